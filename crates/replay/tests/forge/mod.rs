//! Tampered states and traces: generated from a seed, and checked. Shared with `checks` (smoke run
//! and fuzzer), so that a seed means the same bytes there and here.
//!
//! Contract: [`state`] and [`trace`] take any bytes and panic if a law is broken: the bytes must be
//! refused with an error, or be a state that runs.

use std::io::Cursor;
use std::sync::{Arc, Mutex, OnceLock};
use wavelock_abi::SessionId;
use wavelock_module::{Limits, Module};
use wavelock_replay::{
    Archive, Frames, Level, RecordedMachine, Recorder, StateSpacing, Trace, recheck,
};
use wavelock_system::{Sink, World};
use wavelock_trace::{ChunkKind, TraceReader, TraceWriter};

/// Number of machines that inputs are made from.
const MACHINES: u64 = 12;

/// Steps that an accepted state runs.
const STEPS: u32 = 300;

/// splitmix64.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (value ^ (value >> 31)) % limit.max(1)
    }
}

/// Changes a few bytes after `from`, or truncates, or duplicates or removes a range.
fn tamper(bytes: &mut Vec<u8>, from: usize, draws: &mut Draws) {
    for _ in 0..1 + draws.below(3) {
        if bytes.len() <= from {
            return;
        }
        let at = from + draws.below((bytes.len() - from) as u64) as usize;
        let length = (1 + draws.below(8) as usize).min(bytes.len() - at);
        match draws.below(10) {
            0 | 1 => bytes[at] ^= 1 << draws.below(8),
            2 | 3 => bytes[at] = draws.below(256) as u8,
            4 | 5 => bytes[at] = [0, 1, 2, 0x7f, 0xff][draws.below(5) as usize],
            6 => bytes[at..at + length].fill(0xff),
            7 => bytes.truncate(at),
            8 => drop(bytes.drain(at..at + length)),
            _ => {
                let stretch = bytes[at..at + length].to_vec();
                bytes.splice(at..at, stretch);
            }
        }
    }
}

/// A machine, a state from the middle of its run and a complete trace of it.
struct Sample {
    machine: RecordedMachine,
    state: Vec<u8>,
    trace: Vec<u8>,
}

/// A sink that keeps the state of every boundary.
#[derive(Default)]
struct Saver(Vec<Vec<u8>>);

impl Sink for Saver {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn boundary(&mut self, world: &mut World) {
        self.0.extend(world.save());
    }
}

/// A file in memory that outlives the writer's thread.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(buffer);
        Ok(buffer.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn sample(seed: u64) -> Option<Sample> {
    let source = wat::parse_bytes(include_bytes!("../../../generate/src/actor.wat"))
        .expect("valid text")
        .into_owned();
    let mut spec = wavelock_generate::machine(seed);
    let module = Module::new(&source, &Limits::default()).expect("a module");
    (spec.modules, spec.module_hashes) = (Vec::new(), Vec::new());
    spec.add_module(Arc::new(module), &source);
    let machine =
        RecordedMachine { spec, modules: vec![source], inputs: wavelock_generate::inputs(seed) };
    let mut world = World::load(machine.spec.clone(), machine.inputs.clone(), true).ok()?.world;
    let (out, mut saver) = (Shared::default(), Saver::default());
    let recorder = Recorder::new(out.clone(), &machine, Level::Full, &mut saver).ok()?;
    let mut recorder = recorder.with_snapshots(4).with_states(StateSpacing::Every(2));
    world.run(&mut recorder).ok()?;
    assert!(recorder.finish(&world.summary()).error.is_none());
    let trace = out.0.lock().expect("no writer panics").clone();
    let middle = saver.0.len() / 2;
    (!saver.0.is_empty()).then(|| Sample { machine, state: saver.0.swap_remove(middle), trace })
}

fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| (0..MACHINES).filter_map(sample).collect())
}

/// A forged machine may run forever; a few steps suffice to see whether it panics.
fn run_for_a_while(mut world: World) {
    for _ in 0..STEPS {
        if !world.step(&mut ()).unwrap_or(false) {
            break;
        }
    }
    let _ = world.summary();
}

/// The input of [`state`] for a seed: the number of a machine, then a state of it with a few bytes
/// changed; with every eighth seed, unchanged.
pub(crate) fn state_input(seed: u64) -> Vec<u8> {
    let samples = samples();
    let number = (seed / 8) as usize % samples.len();
    let mut bytes = vec![number as u8];
    bytes.extend_from_slice(&samples[number].state);
    if !seed.is_multiple_of(8) {
        // A wrong length, version or machine is refused at once, so these are usually left alone.
        let from = if seed % 8 == 1 { 1 } else { 41 };
        tamper(&mut bytes, from, &mut Draws(seed));
    }
    bytes
}

/// Bytes are refused as a state of a machine, or run for a while. Returns whether they were
/// accepted.
pub(crate) fn state(bytes: &[u8]) -> bool {
    let Some((&number, bytes)) = bytes.split_first() else { return false };
    let Sample { machine, .. } = &samples()[usize::from(number) % samples().len()];
    match World::restore(machine.spec.clone(), machine.inputs.clone(), false, bytes) {
        Ok(world) => {
            run_for_a_while(world);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

/// The input of [`trace`] for a seed: a trace with one tampered chunk and valid checksums, or with
/// bytes changed anywhere; with every eighth seed, unchanged.
pub(crate) fn trace_input(seed: u64) -> Vec<u8> {
    let samples = samples();
    let mut draws = Draws(seed);
    let mut bytes = samples[(seed / 8) as usize % samples.len()].trace.clone();
    match seed % 8 {
        0 => bytes,
        1 | 2 => {
            tamper(&mut bytes, 0, &mut draws);
            bytes
        }
        _ => {
            let mut reader = TraceReader::new(bytes.as_slice()).expect("a trace");
            let mut chunks: Vec<(ChunkKind, Vec<u8>)> =
                std::iter::from_fn(|| reader.next_chunk().expect("whole")).collect();
            // Tamper with tables and state digests more often: they are the most complex.
            let wanted = [
                ChunkKind::Snapshot,
                ChunkKind::States,
                ChunkKind::Pages,
                ChunkKind::Frames,
                ChunkKind::Machine,
                ChunkKind::End,
            ];
            let kind = wanted[(draws.below(9) as usize).saturating_sub(3)];
            let places: Vec<usize> = (0..chunks.len()).filter(|&at| chunks[at].0 == kind).collect();
            if let Some(&at) = places.get(draws.below(places.len() as u64) as usize) {
                tamper(&mut chunks[at].1, 0, &mut draws);
            }
            let mut forged = Vec::new();
            let mut writer = TraceWriter::new(&mut forged).expect("memory");
            chunks
                .iter()
                .for_each(|(kind, payload)| writer.append(*kind, payload).expect("memory"));
            forged
        }
    }
}

/// Bytes are refused as a trace, or read up to the first malformed part; snapshots of a known
/// machine run for a while. Returns the number of accepted snapshots.
pub(crate) fn trace(bytes: &[u8]) -> usize {
    let mut accepted = 0;
    if let Ok(mut archive) = Archive::open(Cursor::new(bytes)) {
        let known = samples()
            .iter()
            .any(|sample| sample.machine.spec.identity() == archive.machine.spec.identity());
        for number in 0..archive.snapshot_count().min(4) {
            // A forged machine may use whatever its own limits allow, forever: only known ones are
            // loaded and run.
            match archive.place(number).and_then(|_| {
                if known { archive.restore(number, false).map(Some) } else { Ok(None) }
            }) {
                Ok(Some(world)) => {
                    accepted += 1;
                    run_for_a_while(world);
                }
                Ok(None) => {}
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    if let Ok(mut trace) = Trace::open(bytes) {
        loop {
            match trace.next_frames() {
                Ok(Frames::Some(payload)) => {
                    let _ = wavelock_trace::read_frames(&payload);
                }
                Ok(Frames::End(_) | Frames::Missing(_)) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    break;
                }
            }
        }
    }
    drop(recheck(bytes));
    accepted
}
