//! A live run depends on inputs and their frames, not on when they were given, how far the machine
//! was let run at a time, or the number of workers; and what is given late is noticed.

use std::sync::Arc;
use wavelock_abi::{Frame, SessionId};
use wavelock_module::{Limits, Module};
use wavelock_system::{Input, MachineSpec, Recipient, RunOutcome, RunSummary, Sink, World};
use wavelock_trace::Digest;
use wavelock_waves::Waves;

/// Reads standard input to its end; outputs each piece with its frame.
const READER: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_read"
        (func $fd_read (param i32 i32 i32 i32) (result i32)))
    (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
    (import "wavelock" "frame" (func $frame (result i64)))
    (memory (export "memory") 1)
    (func (export "_start")
        (i32.store (i32.const 0) (i32.const 16))
        (i32.store (i32.const 4) (i32.const 24))
        (loop $more
            (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
            (i64.store (i32.const 40) (call $frame))
            (drop (call $output (i32.const 16) (i32.const 32)))
            (br_if $more (i32.load (i32.const 8))))))"#;

/// Frames over which inputs are given.
const FRAMES: u64 = 80;

struct Draws(u64);

impl Draws {
    /// xorshift64*.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }
}

/// The machine of a seed with a session that reads standard input, made live.
fn spec(seed: u64) -> MachineSpec {
    let mut spec = wavelock_generate::machine(seed);
    let module = Module::from_text(READER.as_bytes(), &Limits::default()).expect("valid");
    let module = spec.add_module(Arc::new(module), READER.as_bytes());
    spec.add_session("reader", module);
    (spec.live, spec.max_frames) = (true, None);
    spec
}

/// Inputs of a seed, ascending by frame; the last stops the machine.
fn inputs(seed: u64, sessions: u64) -> Vec<(Frame, Input)> {
    let mut draws = Draws(seed ^ 0x9e37_79b9_7f4a_7c15);
    let mut inputs = Vec::new();
    for frame in 0..FRAMES {
        while draws.below(4) == 0 {
            let to = match draws.below(3) {
                0 => Recipient::All,
                1 => Recipient::Session(SessionId(sessions as u32 - 1)),
                _ => Recipient::Session(SessionId(draws.below(sessions) as u32)),
            };
            let input = if draws.below(12) == 0 {
                Input::End { to }
            } else {
                let bytes = (0..draws.below(40)).map(|_| draws.below(256) as u8).collect();
                Input::Bytes { to, bytes }
            };
            inputs.push((Frame(frame), input));
        }
    }
    inputs.push((Frame(FRAMES + draws.below(9)), Input::Stop));
    inputs
}

fn load(seed: u64) -> World {
    World::load(spec(seed), Vec::new(), false).expect("generated machines load").world
}

/// Counts the frames that run.
#[derive(Default)]
struct Ran(u64);

impl Sink for Ran {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn frame(&mut self, _: Frame, _: Digest, _: &[u8], _: &mut dyn Iterator<Item = &[u8]>) {
        self.0 += 1;
    }
}

/// All inputs are given before the first frame. Also the number of frames that ran.
fn known_at_load(seed: u64, inputs: &[(Frame, Input)]) -> (RunSummary, u64) {
    let mut ran = Ran::default();
    let mut world = load(seed);
    for (frame, input) in inputs {
        world.give_at(*frame, input.clone()).expect("in range");
    }
    let outcome = world.run(&mut ran).expect("the host can");
    assert!(!matches!(outcome, RunOutcome::Frames | RunOutcome::Deadlock), "{outcome:?}");
    (world.summary(), ran.0)
}

/// Every input is given at the boundary before its frame; on the way there the machine is let run a
/// few frames at a time, and is once saved and restored.
fn as_they_come(seed: u64, inputs: &[(Frame, Input)], workers: usize) -> RunSummary {
    let mut draws = Draws(seed + 77);
    let mut waves = Waves::new(load(seed), workers).expect("a worker");
    waves.set_parallel_threshold(0);
    let saved_at = draws.below(inputs.len() as u64) as usize;
    for (at, (frame, input)) in inputs.iter().enumerate() {
        while waves.world().next_frame_number() < *frame {
            let here = waves.world().next_frame_number().0;
            waves.world_mut().allow(Frame((here + 1 + draws.below(9)).min(frame.0)));
            waves.run_allowed(&mut ()).expect("the host can");
        }
        if at == saved_at && waves.world().stage().is_boundary() {
            let bytes = waves.world().save().expect("a boundary");
            let world = World::restore(spec(seed), Vec::new(), false, &bytes).expect("own bytes");
            assert_eq!(world.save().expect("a boundary"), bytes, "seed {seed}");
            // Inputs that wait are not state: those of this frame are given again.
            let mut again = Waves::new(world, workers).expect("a worker");
            again.set_parallel_threshold(0);
            for (_, input) in inputs[..at].iter().filter(|(of, _)| of == frame) {
                again.world_mut().give(input.clone()).expect("as before");
            }
            waves = again;
        }
        assert_eq!(waves.world_mut().give(input.clone()), Ok(*frame), "seed {seed}");
    }
    waves.run(&mut ()).expect("the host can");
    waves.world_mut().summary()
}

#[test]
fn a_live_run_does_not_depend_on_when_its_inputs_are_given() {
    let (mut jumped, mut stopped) = (0, 0);
    for seed in 0..150 {
        let inputs = inputs(seed, spec(seed).sessions.len() as u64);
        let (expected, ran) = known_at_load(seed, &inputs);
        for workers in 1..=4 {
            let found = as_they_come(seed, &inputs, workers);
            let what = format!("seed {seed}, {workers} workers");
            assert_eq!((found.digest, found.frames), (expected.digest, expected.frames), "{what}");
            assert_eq!(found.steps, expected.steps, "{what}");
        }
        jumped += u64::from(ran < FRAMES);
        stopped += u64::from(expected.outcome == Some(RunOutcome::Stopped));
    }
    assert!(jumped > 60 && stopped > 50, "{jumped} with idle frames, {stopped} stopped");
}

#[test]
fn an_input_a_frame_late_and_a_lost_end_are_noticed() {
    let (mut late, mut ends, mut lost) = (0, 0, 0);
    for seed in 0..100 {
        let inputs = inputs(seed, spec(seed).sessions.len() as u64);
        let expected = known_at_load(seed, &inputs).0.digest;
        let mut planted = inputs.clone();
        planted[0].0.0 += 1;
        planted.sort_by_key(|(frame, _)| *frame);
        late += u64::from(known_at_load(seed, &planted).0.digest != expected);
        let is_end = |(_, input): &(Frame, Input)| matches!(input, Input::End { .. });
        if let Some(at) = inputs.iter().position(is_end) {
            ends += 1;
            planted.clone_from(&inputs);
            planted.remove(at);
            lost += u64::from(known_at_load(seed, &planted).0.digest != expected);
        }
    }
    assert_eq!(late, 100, "every input that comes a frame late gives another digest");
    assert!(ends > 50 && lost == ends, "{lost} of {ends} lost ends are noticed");
}
