//! Descriptions of machines from bytes: mostly in order, with numbers at the ends of their ranges,
//! lists with repetitions and indices that name nothing; and guests that call host operations with
//! any argument. Shared with `checks` (smoke run and fuzzer), so that a seed means the same machine
//! there and here.
//!
//! Contract: [`describe`] takes any bytes and panics if a law is broken: a description is refused
//! with words, or it is a machine that runs for a while and whose state survives its bytes.

use std::fmt::Write;
use std::sync::{Arc, OnceLock};
use wavelock_abi::{
    Cycles, Frame, HostOperation, HostValue, LatencyClass, Priority, SessionId, Weight,
};
use wavelock_kernel::{
    Activation, Deviation, FairSettings, Fallback, OverrunPolicy, Policy, PriorityRule,
};
use wavelock_module::{Limits, Module};
use wavelock_system::{
    ContextSpec, Grant, GrantSpec, InputEvent, MachineSpec, Placement, Recipient, Span, Stage,
    World,
};

/// Numbers at which something ends.
const ENDS: [u64; 14] = [
    0,
    1,
    2,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1_000_000_000_000,
    1 << 62,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];
/// Steps for which a machine runs.
const STEPS: u32 = 2_000;
/// Stages of frames that it goes through at most: some machines have frames without steps for ever.
const STAGES: u32 = 500;
/// Numbers that a guest chooses the operation of a call from: those that answer ENOSYS are the
/// last.
const CALLED: usize = 64;
/// Choices that the bytes of a seed are enough for.
const INPUT_WORDS: u64 = 400;

/// What became of a description.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Became {
    Refused,
    /// Its guests made this many host calls.
    Ran(u64),
}

/// Choices read from bytes; all 0 behind their end.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    fn next(&mut self) -> u64 {
        let (word, rest) = self.0.split_at(self.0.len().min(4));
        self.0 = rest;
        word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        // Behind the end of the bytes nothing is odd.
        self.next() % count == count - 1
    }

    /// An ordinary number, or one at an end.
    fn number(&mut self, least: u64, most: u64) -> u64 {
        if self.one_in(64) {
            return ENDS[self.below(ENDS.len() as u64) as usize];
        }
        least + self.below(most - least + 1)
    }

    fn small<T: TryFrom<u64>>(&mut self, least: u64, most: u64, end: T) -> T {
        T::try_from(self.number(least, most)).unwrap_or(end)
    }

    /// An index, rarely one that names nothing.
    fn index(&mut self, count: usize) -> u64 {
        if self.one_in(200) {
            self.number(count as u64, count as u64 + 2)
        } else {
            self.below(count.max(1) as u64)
        }
    }
}

/// A guest that makes `turns` calls of any host operation, each with any arguments, and so do its
/// coroutines.
// Long: one guest, a few lines per operation it can make.
fn caller(turns: u32) -> String {
    let mut text = String::from("(module\n");
    let kind = |value: &HostValue| if *value == HostValue::I32 { "i32" } else { "i64" };
    let list = |word: &str, values: &[HostValue]| {
        values.iter().fold(String::new(), |text, value| format!("{text} ({word} {})", kind(value)))
    };
    for operation in HostOperation::ALL {
        let (module, name) = (operation.module(), operation.import());
        let (params, results) =
            (list("param", operation.params()), list("result", operation.results()));
        let _ = writeln!(text, "(import \"{module}\" \"{name}\" (func ${name}{params}{results}))");
    }
    text.push_str(
        r#"(memory (export "memory") 1 2) (global (mut i32) (i32.const 4096)) (global (mut i64) (i64.const 1)) (table 8 funcref) (elem (i32.const 0) $any_work $any_work $idle_work $bad_work)
        (data (i32.const 0) "\00\00\00\00\01\00\00\00\02\00\00\00") (data (i32.const 64) "c0c1c2policycontrolx0x1")
        (data (i32.const 256) "\28\23\00\00\00\00\00\00\e0\93\04\00\00\00\00\00\e0\93\04\00\00\00\00\00\04\00\00\00\00\00\00\00")
        (func $any64 (result i64) (local $r i64) (local.set $r (call $random))
            (if (i64.eqz (i64.and (local.get $r) (i64.const 0x1f))) (then (return (i64.shr_s (local.get $r) (i64.const 8)))))
            (if (i64.eqz (i64.and (local.get $r) (i64.const 0x3e0)))
                (then (return (i64.shl (i64.const -1) (i64.shr_u (local.get $r) (i64.const 58))))))
            (i64.and (i64.shr_u (local.get $r) (i64.const 12)) (i64.const 7)))
        (func $any32 (result i32) (local $r i64) (local.set $r (call $random))
            (if (i64.eqz (i64.and (local.get $r) (i64.const 0x7f))) (then (return (i32.wrap_i64 (i64.shr_u (local.get $r) (i64.const 20))))))
            (if (i64.eqz (i64.and (local.get $r) (i64.const 0x3f80)))
                (then (return (i32.shl (i32.const -1) (i32.wrap_i64 (i64.shr_u (local.get $r) (i64.const 59)))))))
            (if (i64.eqz (i64.and (local.get $r) (i64.const 0xc000)))
                (then (return (i32.and (i32.wrap_i64 (i64.shr_u (local.get $r) (i64.const 20))) (i32.const 0x1fc)))))
            (i32.and (i32.wrap_i64 (i64.shr_u (local.get $r) (i64.const 20))) (i32.const 7)))
        (func $idle_work (param i64) (result i64) (local.get 0))
        (func $bad_work (param i64) (result i64) (unreachable))
        (func $make_call (local $choice i32)
        (local.set $choice (i32.rem_u (i32.wrap_i64 (i64.shr_u (call $random) (i64.const 33))) (i32.const "#,
    );
    let _ = writeln!(text, "{CALLED})))");
    for (number, operation) in HostOperation::ALL.iter().enumerate() {
        let arguments = operation.params().iter().fold(String::new(), |text, value| {
            format!("{text} (call {})", if *value == HostValue::I32 { "$any32" } else { "$any64" })
        });
        let call = format!("(call ${}{arguments})", operation.import());
        let call = if operation.results().is_empty() { call } else { format!("(drop {call})") };
        // What ends or blocks only now and then, or nothing else would be reached.
        let seldom = match operation.import() {
            "exit" | "proc_exit" => 63,
            "join" | "recv" | "recv_bytes" | "select" | "accept" | "serve" | "call" | "fd_read" => {
                7
            }
            "sleep" | "poll_oneoff" | "context_yield" | "send" | "send_bytes" | "cancel"
            | "close" => 3,
            _ => 0,
        };
        let call =
            format!("(if (i64.eqz (i64.and (call $random) (i64.const {seldom}))) (then {call}))");
        let _ = writeln!(
            text,
            "(if (i32.eq (local.get $choice) (i32.const {number})) (then {call} (return)))"
        );
    }
    let _ = writeln!(
        text,
        r#")
        (func $any_work (param i64) (result i64) (local $i i32)
            (loop $again (call $make_call)
                (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {}))))
            (local.get 0))
        (func (export "_start") (local $i i32)
            (drop (call $spawn (i32.const 0) (i64.const 1)))
            (drop (call $spawn_on (i32.const 1) (i64.const 2) (call $any32)))
            (loop $again (call $make_call)
                (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const {turns}))))))"#,
        turns / 4
    );
    text
}

/// The modules that descriptions name, with their bytes: three that run, one without an entry.
fn modules() -> &'static [(Arc<Module>, Vec<u8>)] {
    static MODULES: OnceLock<Vec<(Arc<Module>, Vec<u8>)>> = OnceLock::new();
    MODULES.get_or_init(|| {
        let sleeper = r#"(module (import "wavelock" "sleep" (func $sleep (param i64)))
            (global (mut i32) (i32.const 0)) (global (mut f64) (f64.const 0)) (func (export "_start")
            (call $sleep (i64.const 1)) (call $sleep (i64.const 3))))"#;
        let texts = [caller(120), caller(8), sleeper.to_owned(), "(module)".to_owned()];
        let load = |text: String| {
            let module = Module::from_text(text.as_bytes(), &Limits::default());
            (Arc::new(module.unwrap_or_else(|error| panic!("{error}\n{text}"))), text.into_bytes())
        };
        texts.into_iter().map(load).collect()
    })
}

fn policy(choices: &mut Choices<'_>) -> Policy {
    let quantum = Cycles(choices.number(8_000, 60_000));
    match choices.below(8) {
        0 => Policy::Cooperative,
        1 => Policy::Priority { rule: PriorityRule::FixedMap, quantum },
        2 => Policy::Priority { rule: PriorityRule::Aging, quantum },
        3 => Policy::Priority { rule: PriorityRule::TokenWeighted, quantum },
        4 => Policy::ProgressAware { quantum },
        5 | 6 => {
            let (least, round) =
                (Cycles(choices.number(8_000, 20_000)), Cycles(choices.number(60_000, 1_000_000)));
            FairSettings::new(quantum, least, round)
                .map_or(Policy::RoundRobin { quantum }, Policy::Fair)
        }
        _ => Policy::RoundRobin { quantum },
    }
}

fn limits(choices: &mut Choices<'_>) -> wavelock_system::Limits {
    let most = u32::MAX;
    wavelock_system::Limits {
        coroutines: choices.small(1, 40, most),
        stack_bytes: choices.small(4_096, 1 << 20, most),
        session_stack_bytes: choices.number(4_096, 1 << 26),
        memory_pages: choices.small(1, 4, most),
        table_elements: choices.small(8, 100, most),
        message_bytes: choices.small(0, 5_000, most),
        channel_capacity: choices.small(4, 100, most),
        channels: choices.small(0, 20, most),
        select: choices.small(0, 8, most),
        sessions: choices.small(20, 40, most),
        output_bytes: choices.small(0, 5_000, most),
        log_bytes: choices.small(0, 5_000, most),
        machine_memory: choices.number(8 << 20, 1 << 30),
    }
}

fn placement(choices: &mut Choices<'_>, lanes: u16) -> Placement {
    let mut lane = || choices.index(usize::from(lanes)).min(u64::from(u16::MAX)) as u16;
    let (first, second, third) = (lane(), lane(), lane());
    let mut some = match choices.below(8) {
        0 | 1 => vec![first, second],
        2 => (0..lanes.min(5)).rev().collect(),
        3 => vec![first, second, third],
        4 if choices.one_in(16) => Vec::new(),
        _ => return Placement::Lane(first),
    };
    if !choices.one_in(16) {
        let mut seen = Vec::new();
        some.retain(|lane| {
            !seen.contains(lane) && {
                seen.push(*lane);
                true
            }
        });
    }
    Placement::Split(some)
}

fn context(choices: &mut Choices<'_>, sessions: usize, number: u64) -> ContextSpec {
    let session = SessionId(choices.index(sessions) as u32);
    let (budget, period) = (choices.number(8_000, 30_000), choices.number(100_000, 900_000));
    let mut context =
        ContextSpec::new(&format!("x{number}"), session, Cycles(budget), Cycles(period));
    if choices.one_in(2) {
        context.deadline = Cycles(choices.number(50_000, 100_000));
    }
    context.refills = choices.small(2, 8, u8::MAX);
    context.overrun =
        OverrunPolicy::from_code(choices.below(6) as u8).unwrap_or(OverrunPolicy::Throttle);
    context.activation =
        if choices.one_in(2) { Activation::ConstantBandwidth } else { Activation::Sporadic };
    // No draws of their own: the other descriptions stay as they were.
    if budget % 8 == 0 {
        let first = (budget / 8 % 3) as u16;
        context.lanes = (first..first + 1 + (budget / 64 % 2) as u16).collect();
    }
    if period % 4 == 0 {
        context.fallback = Fallback::Held;
    }
    context
}

/// The description that these bytes choose, with its inputs.
pub(crate) fn description(bytes: &[u8]) -> (MachineSpec, Vec<InputEvent>) {
    let choices = &mut Choices(bytes);
    let mut spec = MachineSpec::new();
    for (module, text) in modules() {
        spec.add_module(Arc::clone(module), text);
    }
    spec.lanes = choices.small(1, 6, u16::MAX);
    spec.policy = policy(choices);
    spec.frame_cycles = Cycles(choices.number(30_000, 300_000));
    spec.span = match choices.below(5) {
        0 => Span::Picks(choices.small(1, 3, u32::MAX)),
        _ => Span::Cycles(Cycles(choices.number(20_000, 100_000))),
    };
    spec.seed = choices.next();
    spec.max_frames = if choices.one_in(4) { None } else { Some(choices.number(1, 20)) };
    (spec.handoff, spec.steal, spec.balance) =
        (choices.one_in(2), choices.one_in(3), choices.one_in(3));
    spec.limits = limits(choices);
    sessions(choices, &mut spec);
    let time = choices.below(3);
    if time > 0 {
        for number in 0..choices.below(4) {
            let context = context(choices, spec.sessions.len(), number);
            spec.contexts.push(context);
        }
        for _ in 0..choices.below(3) {
            let grant = if choices.one_in(2) { Grant::Policy } else { Grant::Control };
            spec.grants.push(GrantSpec {
                session: SessionId(choices.index(spec.sessions.len()) as u32),
                grant,
            });
        }
    }
    if choices.one_in(6) {
        for lane in 0..choices.below(3) {
            let deviation = Deviation { pick: choices.number(0, 20), rank: choices.small(0, 3, 1) };
            spec.deviations.push((lane as u16, deviation));
        }
    }
    let inputs = inputs(choices, spec.sessions.len());
    (spec, inputs)
}

/// Sessions, the channels between them, and ports.
fn sessions(choices: &mut Choices<'_>, spec: &mut MachineSpec) {
    for number in 0..1 + choices.below(6) {
        let module = if choices.one_in(200) { choices.number(3, 6) } else { choices.below(3) };
        let name = if choices.one_in(30) { "s0".to_owned() } else { format!("s{number}") };
        let session = spec.add_session(&name, module as usize);
        let placement = placement(choices, spec.lanes);
        let session = &mut spec.sessions[session.0 as usize];
        session.placement = placement;
        session.pinned = choices.one_in(2);
        session.priority = Priority(choices.small(0, 7, u8::MAX));
        session.weight = Weight::new(choices.small(1, 1_000, u16::MAX)).unwrap_or_default();
        session.class = LatencyClass::ALL[choices.below(LatencyClass::ALL.len() as u64) as usize];
        if choices.one_in(8) {
            session.coroutine_globals.push(choices.number(0, 1).to_string());
        }
    }
    let count = spec.sessions.len();
    for number in 0..choices.below(4) {
        let (owner, capacity) =
            (SessionId(choices.index(count) as u32), choices.small(1, 4, u32::MAX));
        spec.add_channel(&format!("c{number}"), owner, capacity);
    }
    let channels = spec.channels.len();
    for session in 0..count {
        for _ in 0..if channels == 0 { 0 } else { choices.below(4) } {
            let channel = choices.index(channels) as usize;
            spec.sessions[session].ports.push((format!("c{}", choices.below(4)), channel));
        }
    }
}

fn inputs(choices: &mut Choices<'_>, sessions: usize) -> Vec<InputEvent> {
    let events = (0..choices.below(4)).map(|_| {
        let recipient = match choices.one_in(3) {
            true => Recipient::All,
            false => Recipient::Session(SessionId(choices.index(sessions) as u32)),
        };
        InputEvent {
            frame: Frame(choices.number(0, 6)),
            recipient,
            bytes: Box::from(&b"an input event"[..]),
        }
    });
    events.collect()
}

/// Loads the description that these bytes choose, runs it for a while, and saves and restores it at
/// a boundary.
pub(crate) fn describe(bytes: &[u8]) -> Became {
    let (spec, inputs) = description(bytes);
    let mut world = match World::load(spec.clone(), inputs.clone(), true) {
        Ok(loaded) => loaded.world,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return Became::Refused;
        }
    };
    let modules = spec.modules.iter().cloned().zip(spec.module_hashes.iter().copied()).collect();
    let again = MachineSpec::from_identity(&spec.identity(), modules);
    assert!(
        again.is_ok_and(|again| again.identity() == spec.identity()),
        "a machine that loads survives its bytes"
    );
    let (mut steps, mut stages, mut saved) = (0, 0, false);
    while steps < STEPS && stages < STAGES && world.stage() != Stage::Over {
        stages += 1;
        match world.advance(&mut ()) {
            Ok(Stage::Wave) => {
                while steps < STEPS && world.step_in_wave() {
                    steps += 1;
                }
                world.close_wave();
            }
            Ok(Stage::Boundary) if steps > 0 && !saved => {
                saved = true;
                let state = world.save().expect("this is a boundary");
                let restored = World::restore(spec.clone(), inputs.clone(), true, &state);
                world =
                    restored.unwrap_or_else(|error| panic!("what was saved is refused: {error}"));
                assert!(
                    world.save().is_ok_and(|again| again == state),
                    "another state than the one saved"
                );
            }
            Ok(_) => {}
            Err(error) => {
                assert!(!error.to_string().is_empty());
                break;
            }
        }
    }
    let _ = world.contexts();
    Became::Ran(world.summary().sessions.iter().map(|session| session.host_calls).sum())
}

/// The bytes of a seed.
pub(crate) fn describe_input(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let words = (0..INPUT_WORDS).map(|_| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32) as u32
    });
    words.flat_map(u32::to_le_bytes).collect()
}
