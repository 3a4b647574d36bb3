//! Random machines from a seed: the same seed gives the same machine on every host.
//!
//! [`case`] makes a machine whose sessions run one guest (`actor.wat`), driven by its own random
//! stream: it computes, sleeps, sends and receives within and across lanes, spawns, joins, cancels
//! and faults. Every sixteenth machine has contexts and grants, and actors (`time.wat`) that call,
//! serve and use every operation on contexts. Another sixteenth has actors (`waits.wat`) that park,
//! unpark and wait for sessions. In another sixteenth of the machines, and in some of
//! those with contexts, sessions have caps. Lanes, policy, wave length, wiring, splitting, stealing
//! and balancing are random too. [`live`] makes the same machines live, with control inputs. Parity
//! tests, soaks and fuzzers run these machines.
//!
//! ```
//! let machine = wavelock_generate::machine(7);
//! assert_eq!(machine.identity(), wavelock_generate::machine(7).identity());
//! ```
#![forbid(unsafe_code)]

mod live;

pub use live::{LiveCase, live};

use std::sync::{Arc, OnceLock};
use wavelock_abi::{
    Cycles, Frame, HostOperation, HostValue, LatencyClass, Priority, SCHEDULER_COSTS_V1, SessionId,
    Weight,
};
use wavelock_kernel::{
    Activation, CapOverrun, CapSettings, FairSettings, Fallback, OverrunPolicy, Policy,
    PriorityRule, Sharing,
};
use wavelock_module::{Limits, Module};
use wavelock_system::{
    ContextSpec, Grant, GrantSpec, InputEvent, MachineSpec, Placement, Recipient, Span, World,
};

/// The actor's source.
const ACTOR: &str = include_str!("actor.wat");

/// What actors of machines with contexts do instead of a yield.
const TIME: &str = include_str!("time.wat");

/// What actors of machines with waits do instead of a yield.
const WAITS: &str = include_str!("waits.wat");

/// Imports of host operations under their own names.
fn imports<'a>(operations: impl Iterator<Item = &'a HostOperation>) -> String {
    let import = |operation: &HostOperation| {
        let list = |word: &str, values: &[HostValue]| {
            let types: Vec<&str> = values
                .iter()
                .map(|value| if *value == HostValue::I32 { "i32" } else { "i64" })
                .collect();
            if types.is_empty() { String::new() } else { format!("({word} {})", types.join(" ")) }
        };
        let (params, results) =
            (list("param", operation.params()), list("result", operation.results()));
        format!(
            "(import \"{}\" \"{}\" (func ${} {params} {results}))\n",
            operation.module(),
            operation.import(),
            operation.import()
        )
    };
    operations.map(import).collect()
}

/// The actor of machines with contexts: imports all operations on contexts and calls, and runs
/// `time.wat` where the plain actor yields.
fn timed_actor() -> String {
    let about = HostOperation::ALL
        .iter()
        .filter(|operation| operation.is_about_time() || operation.is_about_calls());
    let imports = imports([HostOperation::Own].iter().chain(about));
    ACTOR
        .replace("  (memory 1)\n", &format!("{imports}  (memory 1)\n{TIME}"))
        .replace("(call $yield) (br $done))", "(call $time (call $random)) (br $done))")
        .replace("(elem $actor)", "(elem $actor $server)")
        .replace(
            "(drop (call $channel (i32.const 2)))",
            "(drop (call $channel (i32.const 2))) (call $first)",
        )
}

/// The actor of machines with waits: runs `waits.wat` where the plain actor yields, and twice as
/// often as that yields.
fn waiting_actor() -> String {
    use HostOperation::{Own, Park, SessionIndex, SessionName, SessionWait, Unpark};
    let imports = imports([Own, Park, Unpark, SessionWait, SessionName, SessionIndex].iter());
    ACTOR
        .replace("  (memory 1)\n", &format!("{imports}  (memory 1)\n{WAITS}"))
        .replace("(call $yield) (br $done))", "(call $waits (call $random)) (br $done))")
        .replace("$work $work $work $nap $nap", "$pause $pause $work $nap $pause")
}

/// The source of the actor of a seed's machine.
fn source(seed: u64) -> String {
    if is_timed(seed) {
        timed_actor()
    } else if is_waiting(seed) {
        waiting_actor()
    } else {
        ACTOR.into()
    }
}

/// One machine in this many has contexts, starting with seed 3. Sessions with grants cannot move,
/// and most machines should have sessions that move.
pub const TIMED_EVERY: u64 = 16;

/// Whether the machine of a seed has contexts.
const fn is_timed(seed: u64) -> bool {
    seed % TIMED_EVERY == 3
}

/// One machine in this many has waits for wakes and for sessions, starting with seed 5.
pub const WAITING_EVERY: u64 = 16;

/// Whether the machine of a seed has waits for wakes and for sessions.
const fn is_waiting(seed: u64) -> bool {
    seed % WAITING_EVERY == 5
}

/// One machine in this many has caps, starting with seed 9.
pub const CAPPED_EVERY: u64 = 16;

/// Whether the machine of a seed has caps; a quarter of the machines with contexts has.
const fn is_capped(seed: u64) -> bool {
    seed % CAPPED_EVERY == 9 || seed % (4 * TIMED_EVERY) == TIMED_EVERY + 3
}

/// One machine in this many has sessions with limits of their own, starting with seed 13.
pub const LIMITED_EVERY: u64 = 16;

/// Whether the machine of a seed has sessions with limits of their own.
const fn is_limited(seed: u64) -> bool {
    seed % LIMITED_EVERY == 13
}

/// Maximum number of frames of a generated machine.
const MAX_FRAMES: u64 = 60;

/// A random number generator: splitmix64.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// The number of turns of an actor: `least` plus a random number below `spread`, a power of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turns {
    /// The minimum.
    pub least: u32,
    /// The exclusive bound of the random part.
    pub spread: u32,
}

/// The turns in the actor's source.
pub const TURNS: Turns = Turns { least: 24, spread: 32 };

/// The part of the source that sets the number of turns.
const TURNS_TEXT: &str = "(i64.const 24) (i64.and (call $random) (i64.const 31))";

/// A machine with its inputs and the turns of its actors.
#[derive(Clone, Debug)]
pub struct Case {
    /// The machine.
    pub spec: MachineSpec,
    /// Its inputs, in frame order.
    pub inputs: Vec<InputEvent>,
    /// The turns of its actors.
    pub turns: Turns,
}

impl Case {
    /// The source of its actors.
    #[must_use]
    pub fn source(&self) -> String {
        let Turns { least, spread } = self.turns;
        let turns = format!(
            "(i64.const {least}) (i64.and (call $random) (i64.const {}))",
            spread.saturating_sub(1)
        );
        source(self.spec.seed).replace(TURNS_TEXT, &turns)
    }

    /// The same machine with another number of turns.
    ///
    /// # Panics
    /// Never: the source is ours, with other constants.
    #[must_use]
    pub fn with_turns(&self, turns: Turns) -> Self {
        let mut case = Self { turns, ..self.clone() };
        let source = case.source();
        let module =
            Module::from_text(source.as_bytes(), &Limits::default()).expect("the actor is valid");
        case.spec.modules.clear();
        case.spec.module_hashes.clear();
        case.spec.add_module(Arc::new(module), source.as_bytes());
        case
    }
}

/// The machine of a seed with its inputs.
#[must_use]
pub fn case(seed: u64) -> Case {
    Case { spec: machine(seed), inputs: inputs(seed), turns: TURNS }
}

/// The actor of a seed's machine, with its source.
fn actor(seed: u64) -> (Arc<Module>, &'static str) {
    static PLAIN: OnceLock<(Arc<Module>, String)> = OnceLock::new();
    static TIMED: OnceLock<(Arc<Module>, String)> = OnceLock::new();
    static WAITING: OnceLock<(Arc<Module>, String)> = OnceLock::new();
    let parse = || {
        let source = source(seed);
        let module = Module::from_text(source.as_bytes(), &Limits::default())
            .unwrap_or_else(|error| panic!("the actor is valid: {error}"));
        (Arc::new(module), source)
    };
    let parsed = match (is_timed(seed), is_waiting(seed)) {
        (true, _) => &TIMED,
        (_, true) => &WAITING,
        _ => &PLAIN,
    };
    let (module, source) = parsed.get_or_init(parse);
    (module.clone(), source)
}

/// The machine of a seed.
#[must_use]
pub fn machine(seed: u64) -> MachineSpec {
    let mut draws = Draws(seed);
    let (module, source) = actor(seed);
    let least = 2 * (module.code().gap().0 + SCHEDULER_COSTS_V1.switch.0);
    let lanes = if draws.one_in(16) { 1 } else { 2 + draws.below(7) as u16 };
    let quantum = Cycles(least + draws.below(4_000));
    let frame = least.max(4_000) + draws.below(60_000);
    let mut spec = MachineSpec {
        lanes,
        policy: policy(draws.below(7), quantum, Cycles(least), Cycles(frame)),
        frame_cycles: Cycles(frame),
        span: if draws.one_in(3) {
            Span::Picks(1)
        } else {
            Span::Cycles(Cycles(least + draws.below(frame)))
        },
        seed,
        max_frames: Some(MAX_FRAMES),
        handoff: draws.one_in(3),
        steal: !draws.one_in(16),
        balance: Draws(seed ^ 0xba1a).one_in(3),
        ..MachineSpec::new()
    };
    if let Policy::Fair(settings) = spec.policy
        && Draws(seed ^ 0x5a4e).one_in(2)
    {
        spec.policy = Policy::Fair(settings.shared_by(Sharing::Session));
    }
    spec.limits.coroutines = 64;
    spec.limits.memory_pages = 4;
    spec.limits.stack_bytes = 4096;
    let module = spec.add_module(module, source.as_bytes());
    let sessions = 1 + draws.below(u64::from(lanes) * 3 + 2);
    for number in 0..sessions {
        let id = spec.add_session(&format!("actor.{number}"), module);
        let session = &mut spec.sessions[id.0 as usize];
        session.priority = Priority(draws.below(4) as u8);
        session.weight = Weight::new(1 + draws.below(4_096) as u16).unwrap_or_default();
        session.class = LatencyClass::ALL[draws.below(5) as usize];
        if draws.one_in(6) {
            session.placement = Placement::Lane(draws.below(u64::from(lanes)) as u16);
            session.pinned = true;
        } else if lanes > 1 && draws.one_in(8) {
            let first = draws.below(u64::from(lanes)) as u16;
            session.placement = Placement::Split(vec![first, (first + 1) % lanes]);
        }
    }
    let channels = draws.below(2 * sessions + 1);
    for number in 0..channels {
        let owner = draws.below(sessions);
        let capacity = 1 + draws.below(6) as u32;
        let channel =
            spec.add_channel(&format!("channel.{number}"), SessionId(owner as u32), capacity);
        for sender in 0..sessions {
            if sender != owner && draws.one_in(2) {
                spec.sessions[sender as usize].ports.push((format!("port.{number:02}"), channel));
            }
        }
    }
    if is_capped(seed) {
        with_caps(&mut spec, Draws(seed ^ 0xca95), least);
    }
    if is_limited(seed) {
        with_limits(&mut spec, Draws(seed ^ 0x11b5));
    }
    if is_timed(seed) { with_time(spec, Draws(seed ^ 0x71e5), least) } else { spec }
}

/// Gives half of the sessions limits of their own, smaller and larger than the machine's.
fn with_limits(spec: &mut MachineSpec, mut draws: Draws) {
    for session in &mut spec.sessions {
        if draws.one_in(2) {
            continue;
        }
        let limits = &mut session.limits;
        limits.coroutines = Some(1 + draws.below(80) as u32);
        limits.stack_bytes = Some(4_096 + 1_024 * draws.below(8) as u32);
        let drawn = [8_192 + 1_024 * draws.below(64), 4 + draws.below(4), draws.below(3)];
        limits.session_stack_bytes = Some(drawn[0]).filter(|_| draws.one_in(2));
        limits.memory_pages = Some(drawn[1] as u32).filter(|_| draws.one_in(2));
        limits.channels = Some(drawn[2] as u32).filter(|_| draws.one_in(2));
        limits.output_bytes = draws.one_in(2).then_some(100);
    }
}

/// Caps a third of the sessions. Sessions move, and their accounts with them.
fn with_caps(spec: &mut MachineSpec, mut draws: Draws, least: u64) {
    let frame = spec.frame_cycles.0;
    (spec.steal, spec.balance) = (true, true);
    for session in &mut spec.sessions {
        if !draws.one_in(3) {
            continue;
        }
        let lanes = session.placement.lanes().len() as u64;
        let most = if draws.one_in(3) { frame } else { frame / 16 };
        session.cap = Some(CapSettings {
            budget: Cycles(least * lanes + draws.below(most + 1)),
            period_frames: 1 + draws.below(4),
            overrun: CapOverrun::ALL[draws.below(CapOverrun::COUNT as u64) as usize],
        });
    }
}

/// The same machine with contexts and grants for some sessions; contexts that admission control
/// refuses are left out.
fn with_time(mut spec: MachineSpec, mut draws: Draws, least: u64) -> MachineSpec {
    // Contexts need waves measured in cycles, and waves long enough that lanes do not spend their
    // time waiting for each other.
    spec.frame_cycles = Cycles(spec.frame_cycles.0 + 30 * least);
    spec.span = Span::Cycles(Cycles(20 * least + draws.below(10 * least)));
    for number in 0..spec.sessions.len() as u32 {
        let session = SessionId(number);
        if draws.one_in(2) {
            spec.grants.push(GrantSpec { session, grant: Grant::Control });
        }
        if draws.one_in(2) {
            spec.grants.push(GrantSpec { session, grant: Grant::Policy });
        }
        if draws.one_in(2) {
            let budget = Cycles(least + draws.below(2 * least));
            let period = Cycles(budget.0 * (12 + draws.below(40)));
            spec.contexts.push(ContextSpec {
                deadline: Cycles(period.0 - draws.below(period.0 / 4)),
                refills: 2 + draws.below(7) as u8,
                overrun: OverrunPolicy::ALL[draws.below(5) as usize],
                activation: if draws.one_in(2) {
                    Activation::Sporadic
                } else {
                    Activation::ConstantBandwidth
                },
                ..ContextSpec::new("clock", session, budget, period)
            });
            with_mask(&mut spec, session);
            if World::load(spec.clone(), Vec::new(), false).is_err() {
                spec.contexts.pop();
            }
        }
    }
    spec
}

/// Gives the last context a mask of lanes, one time in two, and a fallback, one time in four. The
/// draws are its own: a machine in which neither is drawn is as it was before.
fn with_mask(spec: &mut MachineSpec, session: SessionId) {
    let mut draws = Draws(spec.seed ^ 0x3a5c ^ u64::from(session.0) << 32);
    let lanes = u64::from(spec.lanes);
    let Some(context) = spec.contexts.last_mut() else { return };
    if draws.one_in(2) && !spec.sessions[session.0 as usize].pinned {
        let first = draws.below(lanes);
        let count = 1 + draws.below(lanes);
        context.lanes = (0..count).map(|lane| ((first + lane) % lanes) as u16).collect();
    }
    if draws.one_in(4) {
        context.fallback = Fallback::Held;
    }
}

/// Inputs of a seed, in frame order.
#[must_use]
pub fn inputs(seed: u64) -> Vec<InputEvent> {
    let mut draws = Draws(!seed);
    let mut frame = 0;
    (0..draws.below(6))
        .map(|_| {
            frame += draws.below(8);
            let bytes = draws.next().to_le_bytes()[..draws.below(9) as usize].into();
            InputEvent { frame: Frame(frame), recipient: Recipient::All, bytes }
        })
        .collect()
}

/// The policy of a number, with this quantum, as the command line makes it from a manifest.
///
/// # Panics
/// The fair policy does not allow the quantum.
#[must_use]
pub fn policy(number: u64, quantum: Cycles, least: Cycles, frame: Cycles) -> Policy {
    match number % 7 {
        0 => Policy::Cooperative,
        1 => Policy::RoundRobin { quantum },
        2 => Policy::Priority { rule: PriorityRule::FixedMap, quantum },
        3 => Policy::Priority { rule: PriorityRule::Aging, quantum },
        4 => Policy::Priority { rule: PriorityRule::TokenWeighted, quantum },
        5 => Policy::ProgressAware { quantum },
        _ => Policy::Fair(
            FairSettings::new(quantum, least, frame.max(quantum)).expect("quanta are in range"),
        ),
    }
}
