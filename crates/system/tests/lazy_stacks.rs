//! A coroutine that is spawned in a batch has no stack until it runs, and is in the table of stacks
//! only once it stops otherwise than by its end. That must not be observable: step by step, and
//! under a profile, every coroutine has its stack at once, and states, looks, events and outcomes
//! are compared with those of such runs. A failure prints the seed.

mod kit;

use kit::{Choices, Machine};
use wavelock_abi::{CoroutineName, SessionId};
use wavelock_system::{RunSummary, Sink, World};

/// Machines to try.
const SEEDS: u64 = 60;

/// Workers that end in their first slice, and workers that stop in it in every other way. The last
/// of the table has more registers than fit near, and begins the general way.
const WORKERS: &str = r#"
    (global $channel (mut i32) (i32.const 0))
    (func $ends (param i64) (result i64) (local.get 0))
    (func $yields (param i64) (result i64) (call $yield) (local.get 0))
    (func $sleeps (param i64) (result i64) (call $sleep (i64.and (local.get 0) (i64.const 3))) (local.get 0))
    (func $spawns (param i64) (result i64) (drop (call $spawn (i32.const 0) (local.get 0))) (call $spawn (i32.const 1) (local.get 0)))
    (func $counts (param i64) (result i64)
      (loop $on (br_if $on (i64.ne (local.tee 0 (i64.sub (local.get 0) (i64.const 1))) (i64.const 0)))) (i64.const 7))
    (func $waits (param i64) (result i64) (i64.extend_i32_s (call $recv (global.get $channel) (i32.const 64))))
    (func $faults (param i64) (result i64) (if (i64.gt_u (local.get 0) (i64.const 40)) (then (unreachable))) (i64.const 1))
    (func $grows (param i64) (result i64) (local i64 i64 i64 i64 i64 i64 i64 i64)
      (if (i64.eqz (local.get 0)) (then (return (i64.const 3)))) (call $grows (i64.sub (local.get 0) (i64.const 1))))
    (elem (i32.const 0) $ends $yields $sleeps $spawns $counts $waits $faults $grows)"#;

/// What the first coroutine does, one after the other.
fn first(choices: &mut Choices) -> String {
    let mut body = String::from("(global.set $channel (call $channel (i32.const 2)))");
    let mut spawned = 0;
    for _ in 0..40 + choices.below(60) {
        // Most workers end at once.
        let kind = if choices.one_in(2) { 0 } else { choices.below(8) };
        body += &format!(
            "(drop (call $spawn (i32.const {kind}) (i64.const {})))",
            1 + choices.below(60)
        );
        spawned += 1;
        let other = 1 + choices.below(spawned);
        match choices.below(24) {
            0 => body += &format!("(call $out32 (call $cancel (i64.const {other})))"),
            1 => body += &format!("(drop (call $detach (i64.const {other})))"),
            2 => {
                body +=
                    &format!("(drop (call $try_send (global.get $channel) (i64.const {other})))")
            }
            3 => body += "(call $yield)",
            4 => {
                body += &format!(
                    "(call $out32 (call $join (i64.const {}) (i32.const 8))) (call $out (i64.load (i32.const 8)))",
                    spawned
                )
            }
            _ => {}
        }
    }
    if choices.one_in(2) {
        body += "(call $sleep (i64.const 5)) (drop (call $close (global.get $channel)))";
    }
    body
}

fn machine(seed: u64) -> Machine {
    let mut choices = Choices(seed);
    let mut machine = Machine::lanes(1 + choices.below(2) as u16);
    // Without a catch of its own, a join of one that waits forever is a deadlock: an outcome like
    // any other.
    for name in ["one", "two"] {
        let body = first(&mut choices);
        machine.session(name, &format!("{WORKERS} (func (export \"_start\") {body})"));
    }
    let wave = [150, 700, 5_000][choices.below(3) as usize];
    machine.times(4 * wave, wave, [100, 400, 1_000_000][choices.below(3) as usize]);
    machine.spec.max_frames = Some(3_000);
    machine
}

/// Keeps states at boundaries, and what a debugger sees there.
#[derive(Default)]
struct Seen {
    states: Vec<Vec<u8>>,
    looks: Vec<String>,
}

impl Sink for Seen {
    fn output(&mut self, _session: SessionId, _bytes: &[u8]) {}

    fn log(&mut self, _session: SessionId, _bytes: &[u8]) {}

    fn boundary(&mut self, world: &mut World) {
        self.states.push(world.save().expect("a boundary"));
        for session in [SessionId(0), SessionId(1)] {
            for reference in world.coroutines(session) {
                self.looks.push(format!("{:?}", world.look(CoroutineName { session, reference })));
            }
        }
    }
}

fn at_once(machine: &Machine, is_profiled: bool) -> (Seen, RunSummary, String) {
    let (mut world, mut seen) = (machine.world(false), Seen::default());
    if is_profiled {
        world.profile();
    }
    world.run(&mut seen).expect("the host can go on");
    (seen, world.summary(), format!("{:?}", world.deadlock()))
}

fn by_steps(machine: &Machine) -> (Seen, RunSummary, String) {
    let (mut world, mut seen) = (machine.world(false), Seen::default());
    while world.step(&mut seen).expect("the host can go on") {}
    (seen, world.summary(), format!("{:?}", world.deadlock()))
}

/// A wave of one way, a wave of the other: what one leaves without a place the other runs.
fn by_turns(machine: &Machine, mut choices: Choices) -> (Seen, RunSummary, String) {
    let (mut world, mut seen) = (machine.world(false), Seen::default());
    while world.open_wave(&mut seen).expect("the host can go on") {
        if choices.one_in(2) {
            for _ in 0..choices.below(40) {
                let _ = world.step_in_wave();
            }
        }
        world.groups_mut().iter_mut().for_each(|group| group.run_wave());
        world.close_wave();
    }
    (seen, world.summary(), format!("{:?}", world.deadlock()))
}

#[test]
fn lazily_made_stacks_are_not_observable() {
    let (mut boundaries, mut spawned) = (0, 0);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let machine = machine(seed);
        let (seen, summary, deadlock) = at_once(&machine, false);
        let others = [
            ("by steps", by_steps(&machine)),
            ("profiled", at_once(&machine, true)),
            ("by turns", by_turns(&machine, Choices(seed))),
        ];
        for (name, (other, other_summary, other_deadlock)) in others {
            assert_eq!(summary, other_summary, "seed {seed}, {name}");
            assert_eq!(deadlock, other_deadlock, "seed {seed}, {name}");
            assert_eq!(seen.looks, other.looks, "seed {seed}, {name}");
            assert!(seen.states == other.states, "seed {seed}, {name}: other bytes");
        }
        // A state with such coroutines goes on as the run did.
        if let Some(bytes) = seen.states.get(seen.states.len() / 2) {
            let mut world =
                World::restore(machine.spec.clone(), Vec::new(), false, bytes).expect("a state");
            world.run(&mut ()).expect("the host can go on");
            assert_eq!(world.summary(), summary, "seed {seed}, restored");
        }
        boundaries += seen.states.len();
        spawned += summary.sessions.iter().map(|session| session.spawned).sum::<u64>();
    }
    assert!(boundaries > 500 && spawned > 3_000, "{boundaries} boundaries, {spawned} coroutines");
}
