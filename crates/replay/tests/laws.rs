//! Over random machines: a recording with snapshots replays, and resuming from any snapshot on any
//! number of workers gives the same run.

use std::io::Cursor;
use std::sync::{Arc, Mutex};
use wavelock_generate::{inputs, machine};
use wavelock_replay::{Archive, Level, RecordedMachine, Recorder, Trace, verify};
use wavelock_system::{RunSummary, World};
use wavelock_waves::Waves;

const SEEDS: u64 = 24;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn record(machine: &RecordedMachine, level: Level, workers: usize) -> (Vec<u8>, RunSummary) {
    let out = Shared::default();
    let world = World::load(machine.spec.clone(), machine.inputs.clone(), true).unwrap().world;
    let mut nothing = ();
    let mut recorder =
        Recorder::new(out.clone(), machine, level, &mut nothing).unwrap().with_snapshots(3);
    let mut waves = Waves::new(world, workers).expect("a worker");
    waves.run(&mut recorder).unwrap();
    let summary = waves.world_mut().summary();
    assert!(recorder.finish(&summary).error.is_none());
    let bytes = out.0.lock().unwrap().clone();
    (bytes, summary)
}

#[test]
fn generated_machines_resume_from_any_snapshot_on_any_number_of_workers() {
    let mut resumed = 0;
    for seed in 0..SEEDS {
        println!("seed {seed}");
        // The actor's module is text; a trace stores binary modules.
        let source =
            wat::parse_bytes(include_bytes!("../../generate/src/actor.wat")).unwrap().into_owned();
        let mut spec = machine(seed);
        let module =
            wavelock_module::Module::new(&source, &wavelock_module::Limits::default()).unwrap();
        (spec.modules, spec.module_hashes) = (Vec::new(), Vec::new());
        spec.add_module(Arc::new(module), &source);
        let machine = RecordedMachine { spec, modules: vec![source], inputs: inputs(seed) };
        let level = Level::ALL[seed as usize % 3];
        let (bytes, summary) = record(&machine, level, 1 + seed as usize % 3);
        let verified =
            verify(Trace::open(bytes.as_slice()).unwrap(), 1 + (seed as usize + 1) % 3).unwrap();
        assert_eq!((verified.divergence, verified.missing), (None, None), "seed {seed}");
        let mut archive = Archive::open(Cursor::new(bytes)).unwrap();
        for number in 0..archive.snapshot_count() {
            let world = archive.restore(number, false).unwrap();
            let mut waves = Waves::new(world, 1 + number % 4).expect("a worker");
            waves.run(&mut ()).unwrap();
            assert_eq!(waves.world_mut().summary(), summary, "seed {seed}, snapshot {number}");
            resumed += 1;
        }
    }
    assert!(resumed > 60, "{resumed} snapshots were resumed");
}
