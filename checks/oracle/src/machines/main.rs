//! Compares whole machines with the Coq model of proof/System.v: every event of every lane, the
//! order of effects at each wave's end, and between frames clocks, populations, channels and the
//! ledger of every coroutine.
//!
//! `machines [--machines N] [--seed S] [--oracle PROGRAM] [--panics ignore] [--print]`; 2,000 from
//! seed 0 by default. Exit 0: no difference; 1: a difference, printed with its seed, the line and
//! the first event at which the two differ, or an event that the model has and 1,000 machines or
//! more did not; 2: usage.
//!
//! The shape of a machine (lanes, policy, sessions, placement, priorities, weights, channels,
//! wiring, waves, handoff, steal, balance) is that of `generate` for the seed, without contexts,
//! grants and caps; how many machines lack something, and what, is printed. Its guests are lists of
//! operations (`guests`), compiled to WebAssembly for the code and given as numbers to the model. A
//! third of the machines runs through `World::run` (with the fast paths), a third through
//! `World::step`, a third on two threads with certificates.

mod guests;
#[path = "../process.rs"]
mod process;

use guests::{Draws, Function, Operation, Palette, module_text};
use process::Oracle;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use wavelock_abi::{CoroutineName, Cycles, Frame, LaneId, SCHEDULER_COSTS_V1, SessionId};
use wavelock_generate::WAITING_EVERY;
use wavelock_kernel::{Policy, PriorityRule, Sharing, State};
use wavelock_module::{Limits, Module};
use wavelock_system::{
    InputEvent, MachineSpec, OwnLimits, Recipient, RunOutcome, Sink, Span, World,
};
use wavelock_trace::{Digest, Event, EventReader};
use wavelock_waves::Waves;

const USAGE: &str =
    "usage: machines [--machines N] [--seed S] [--oracle PROGRAM] [--panics ignore] [--print]";

/// A machine for both sides.
struct Machine {
    spec: MachineSpec,
    inputs: Vec<InputEvent>,
    /// The same for the oracle.
    numbers: Vec<u64>,
    /// The modules' text, for a report.
    texts: Vec<String>,
    /// What the machine of `generate` has and this one has not.
    left_out: Vec<&'static str>,
}

/// What the model lacks of the machine that `generate` makes for a seed.
fn left_out(seed: u64, spec: &MachineSpec) -> Vec<&'static str> {
    let lacks = [
        (!spec.contexts.is_empty() || !spec.grants.is_empty(), "contexts, grants and calls"),
        (spec.sessions.iter().any(|session| session.cap.is_some()), "caps"),
        (
            spec.sessions.iter().any(|session| session.limits.stack_bytes.is_some()),
            "limits of sessions in bytes",
        ),
        (seed % WAITING_EVERY == 5, "parks and waits for sessions"),
    ];
    lacks.into_iter().filter_map(|(lacks, what)| lacks.then_some(what)).collect()
}

/// A list: its length, then its items.
fn list(numbers: &mut Vec<u64>, items: impl IntoIterator<Item = u64>) {
    let at = numbers.len();
    numbers.push(0);
    numbers.extend(items);
    numbers[at] = (numbers.len() - at - 1) as u64;
}

/// The number of a policy for the oracle; that of `generate`, where the forms of `fair` are one.
fn policy_number(policy: Policy) -> u64 {
    match policy {
        Policy::Cooperative => 0,
        Policy::RoundRobin { .. } => 1,
        Policy::Priority { rule: PriorityRule::FixedMap, .. } => 2,
        Policy::Priority { rule: PriorityRule::Aging, .. } => 3,
        Policy::Priority { rule: PriorityRule::TokenWeighted, .. } => 4,
        Policy::ProgressAware { .. } => 5,
        Policy::Fair(settings) => 6 + u64::from(settings.sharing() == Sharing::Session),
    }
}

/// A module with its functions for the oracle: main, then the entries.
struct Guests {
    text: String,
    functions: Vec<Function>,
}

fn guests(draws: &mut Draws, lanes: u64) -> Guests {
    let entries = 1 + draws.below(4);
    let mut lists = 0;
    let mut function = |draws: &mut Draws, number: Option<u64>| {
        let first = number.map_or(0, |number| number + 1);
        let palette = Palette { entries: first..entries, lanes, handles: 6 };
        let length = if number.is_none() { 4 + draws.below(24) } else { 2 + draws.below(14) };
        let operations: Vec<Operation> =
            (0..length).map(|_| Operation::draw(draws, &palette)).collect();
        Function::new(&operations, number.is_none(), &mut lists)
    };
    let main = function(draws, None);
    let entries: Vec<Function> = (0..entries).map(|number| function(draws, Some(number))).collect();
    let text = module_text(&main, &entries);
    let functions = [main].into_iter().chain(entries).collect();
    Guests { text, functions }
}

// Long: the numbers of a machine, in the order in which the oracle reads them.
fn machine(seed: u64) -> Machine {
    let mut spec = wavelock_generate::machine(seed);
    let mut draws = Draws(seed ^ 0x0af1_e5ce);
    let left_out = left_out(seed, &spec);
    spec.contexts.clear();
    spec.grants.clear();
    spec.modules.clear();
    spec.module_hashes.clear();
    let lanes = u64::from(spec.lanes);
    let kinds: Vec<Guests> = (0..1 + draws.below(3)).map(|_| guests(&mut draws, lanes)).collect();
    let mut gap = 0;
    for kind in &kinds {
        let module = Module::from_text(kind.text.as_bytes(), &Limits::default())
            .unwrap_or_else(|error| panic!("seed {seed}: {error}\n{}", kind.text));
        gap = gap.max(module.code().gap().0);
        spec.add_module(Arc::new(module), kind.text.as_bytes());
    }
    let least = 2 * (gap + SCHEDULER_COSTS_V1.switch.0);
    let quantum = least + draws.below(1_500);
    let frame = (least + draws.below(30_000)).max(quantum);
    spec.frame_cycles = Cycles(frame);
    spec.span = match spec.span {
        Span::Picks(_) => Span::Picks(1 + draws.below(3) as u32),
        Span::Cycles(_) => Span::Cycles(Cycles(least + draws.below(frame))),
    };
    let kind = policy_number(spec.policy);
    let drawn =
        wavelock_generate::policy(kind.min(6), Cycles(quantum), Cycles(least), Cycles(frame));
    spec.policy = match (drawn, spec.policy) {
        (Policy::Fair(drawn), Policy::Fair(shape)) => {
            Policy::Fair(drawn.shared_by(shape.sharing()))
        }
        _ => drawn,
    };
    spec.max_frames = Some(4 + draws.below(24));
    spec.limits.coroutines = 3 + draws.below(14) as u32;
    for session in &mut spec.sessions {
        session.cap = None;
        let own = session.limits;
        let coroutines = own.coroutines.map(|most| 1 + most % 14);
        session.limits = OwnLimits { coroutines, channels: own.channels, ..Default::default() };
        session.module = draws.below(kinds.len() as u64) as usize;
    }
    let mut at = 0;
    let inputs: Vec<InputEvent> = (0..draws.below(5))
        .map(|_| {
            at += draws.below(6);
            let bytes = draws.next().to_le_bytes()[..draws.below(9) as usize].into();
            InputEvent { frame: Frame(at), recipient: Recipient::All, bytes }
        })
        .collect();

    let (by_picks, span) = match spec.span {
        Span::Picks(picks) => (1, u64::from(picks)),
        Span::Cycles(cycles) => (0, cycles.0),
    };
    let mut numbers = vec![
        lanes,
        frame,
        by_picks,
        span,
        spec.max_frames.unwrap_or(1) - 1,
        u64::from(spec.handoff),
        u64::from(spec.steal),
        u64::from(spec.balance),
        kind,
        quantum,
        least,
    ];
    let functions: Vec<&Function> = kinds.iter().flat_map(|kind| &kind.functions).collect();
    numbers.push(functions.len() as u64);
    functions.iter().for_each(|function| numbers.extend(function.numbers()));
    numbers.push(kinds.len() as u64);
    let mut first = 0;
    for kind in &kinds {
        let count = kind.functions.len() as u64;
        numbers.push(first);
        list(&mut numbers, first + 1..first + count);
        first += count;
    }
    numbers.push(spec.sessions.len() as u64);
    for session in &spec.sessions {
        list(&mut numbers, session.placement.lanes().iter().map(|&lane| u64::from(lane)));
        numbers.extend([
            u64::from(session.priority.0),
            u64::from(session.weight.get()),
            session.class as u64,
            u64::from(session.pinned),
            session.module as u64,
        ]);
        list(&mut numbers, session.ports.iter().map(|(_, channel)| *channel as u64));
        let limits = session.limits.over(&spec.limits);
        numbers.extend([limits.coroutines, limits.channels].map(u64::from));
    }
    numbers.push(spec.channels.len() as u64);
    for channel in &spec.channels {
        numbers.extend([u64::from(channel.owner.0), u64::from(channel.capacity)]);
    }
    numbers.push(inputs.len() as u64);
    for input in &inputs {
        numbers.extend([input.frame.0, input.bytes.len() as u64]);
    }
    let texts = kinds.into_iter().map(|kind| kind.text).collect();
    Machine { spec, inputs, numbers, texts, left_out }
}

/// What was seen: events by name, and stops of steps.
type Seen = BTreeMap<&'static str, u64>;

/// Events and stops that the model has, all of which enough machines must show.
const MODELLED: [&str; 37] = [
    "Wave",
    "Spawn",
    "Wake",
    "Sleep",
    "Wait",
    "Send",
    "Receive",
    "Close",
    "Channel",
    "End",
    "Fault",
    "Cancel",
    "Output",
    "Input",
    "SessionEnd",
    "Timers",
    "FrameStart",
    "Sample",
    "Jump",
    "Arrival",
    "Entered",
    "Move",
    "Deadlock",
    "FrameSync",
    "Dropped",
    "yielded",
    "went to sleep",
    "waits to send",
    "waits to receive",
    "waits on several channels",
    "waits for a coroutine to end",
    "waits for another lane",
    "finished",
    "faulted",
    "reached the end of the frame",
    "used up its quantum",
    "reached the end of the wave",
];

/// The lines that the shipped machine gives.
#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    seen: Seen,
}

/// An event as numbers: its tag, then its fields; of bytes their length and, of an output, their
/// value; of a fault no location.
fn event(event: &Event<'_>) -> String {
    let numbers: Vec<u64> = match *event {
        Event::Step { session, slot, overhead, used, stop } => {
            vec![128 + stop as u64, session, slot, overhead, used]
        }
        Event::Wave { clock } => vec![1, clock],
        Event::Spawn { session, slot, generation, lane } => {
            vec![2, session, slot, generation, lane]
        }
        Event::Wake { session, slot, source } => {
            vec![3, session, slot, source]
        }
        Event::Sleep { frames } => vec![4, frames],
        Event::Wait { reason, owner, index } => {
            vec![5, reason, owner, index]
        }
        Event::Send { owner, index } => vec![6, owner, index],
        Event::Receive { owner, index } => vec![7, owner, index],
        Event::Close { owner, index } => vec![8, owner, index],
        Event::Channel { index, capacity } => vec![9, index, capacity],
        Event::End { session, slot, status, value } => {
            vec![10, session, slot, status, value]
        }
        Event::Fault { session, slot, code, .. } => {
            vec![11, session, slot, code]
        }
        Event::Cancel { session, slot } => vec![12, session, slot],
        Event::Output { session, bytes } => {
            let value = bytes.try_into().map_or(0, u64::from_le_bytes);
            vec![13, session, bytes.len() as u64, value]
        }
        Event::Input { session, length } => vec![14, session, length],
        Event::SessionEnd { session, outcome, exit } => {
            vec![15, session, outcome, exit]
        }
        Event::Timers { woken } => vec![16, woken],
        Event::FrameStart { frame } => vec![32, frame],
        Event::Sample { session, bytes } => {
            vec![33, session, bytes.len() as u64]
        }
        Event::Jump { from, to } => vec![34, from, to],
        Event::Arrival { lane, owner, index } => {
            vec![35, lane, owner, index]
        }
        Event::Entered { session, slot, owner, index } => {
            vec![36, session, slot, owner, index]
        }
        Event::Move { session, from, to, reason } => {
            vec![37, session, from, to, reason]
        }
        Event::Deadlock { waiting } => vec![38, waiting],
        Event::FrameSync { frame } => vec![39, frame],
        Event::Dropped { session, events } => vec![41, session, events],
        ref other => return format!("{other:?}"),
    };
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn events(bytes: &[u8], seen: &mut Seen) -> String {
    let read = EventReader::new(bytes).filter_map(|read| match read {
        // The model has the handoff itself, not the event that records one across lanes.
        Ok(Event::Handoff { .. }) => None,
        Ok(found) => {
            let name = match found {
                Event::Step { stop, .. } => stop.text(),
                _ => found.name(),
            };
            *seen.entry(name).or_default() += 1;
            Some(event(&found))
        }
        Err(error) => Some(error.to_string()),
    });
    read.collect::<Vec<_>>().join("; ")
}

/// Events and stops that the model has and no machine had.
fn unseen(seen: &Seen) -> Vec<&'static str> {
    MODELLED.into_iter().filter(|name| !seen.contains_key(name)).collect()
}

fn state(state: State) -> String {
    match state {
        State::Ready => "ready".into(),
        State::Running => "running".into(),
        State::Sleeping { until } => format!("sleeping:{}", until.0),
        State::Blocked { .. } => "blocked".into(),
        State::Throttled { .. } => "held".into(),
        State::Finished | State::Faulted | State::Canceled => "ended".into(),
    }
}

impl Lines {
    fn lanes(&mut self, world: &World) {
        for lane in 0..world.spec().lanes {
            let look = world.look_at_lane(LaneId(lane)).expect("it exists");
            let of = look.population;
            self.lines.push(format!(
                "S {} {} {} {} {} {} {}",
                look.clock.0, of.ready, of.running, of.sleeping, of.blocked, of.throttled, of.ended
            ));
        }
    }

    fn end(&mut self, world: &World, outcome: RunOutcome) {
        self.lanes(world);
        self.lines.push(format!("O {}", outcome as u8));
    }

    fn state(&mut self, world: &World) {
        self.lanes(world);
        for session in (0..world.spec().sessions.len() as u32).map(SessionId) {
            for channel in world.channels(session) {
                let receivers: Vec<String> =
                    channel.receivers.iter().map(|name| name.reference.slot.to_string()).collect();
                let senders: Vec<String> = channel
                    .senders
                    .iter()
                    .map(|CoroutineName { session, reference }| {
                        format!("{}/{}.{}", session.0, reference.slot, reference.generation)
                    })
                    .collect();
                self.lines.push(format!(
                    "C {} {} {} [{}] [{}]",
                    channel.queued,
                    channel.capacity,
                    u8::from(channel.closed),
                    receivers.join(" "),
                    senders.join(" ")
                ));
            }
            for reference in world.coroutines(session) {
                let look = world.look(CoroutineName { session, reference }).expect("it lives");
                let seen = match (look.state, look.ledger) {
                    (Some(found), Some(ledger)) => {
                        let blocks: Vec<String> =
                            ledger.blocks.iter().map(ToString::to_string).collect();
                        format!(
                            "{} {} {} {} {} {} {} {} {} {}",
                            state(found),
                            ledger.runtime.0,
                            ledger.wait_total.0,
                            ledger.wait_longest.0,
                            ledger.switches,
                            ledger.preemptions,
                            blocks.join(" "),
                            ledger.sleeps,
                            ledger.migrations,
                            ledger.steals
                        )
                    }
                    _ => "-".into(),
                };
                self.lines.push(format!(
                    "K {} {} {} {} {seen}",
                    reference.slot, reference.generation, look.lane.0, look.used.0
                ));
            }
        }
    }
}

impl Sink for Lines {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn frame(
        &mut self,
        _: Frame,
        _: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        let text = events(boundary, &mut self.seen);
        self.lines.push(format!("F {text}"));
        for lane in lanes {
            let text = events(lane, &mut self.seen);
            self.lines.push(format!("L {text}"));
        }
    }

    fn boundary(&mut self, world: &mut World) {
        self.state(world);
    }
}

/// Runs the shipped machine; the way depends on the seed.
fn run(seed: u64, machine: &Machine, lines: &mut Lines) -> Result<(), String> {
    let loaded = World::load(machine.spec.clone(), machine.inputs.clone(), true)
        .map_err(|error| format!("seed {seed} does not load: {error:?}"))?;
    let mut world = loaded.world;
    let failed = |error: wavelock_system::HostFailure| error.to_string();
    let outcome = match seed % 3 {
        0 => world.run(lines).map_err(failed)?,
        1 => {
            while world.step(lines).map_err(failed)? {}
            world.outcome().unwrap_or(RunOutcome::Finished)
        }
        _ => {
            let mut waves = Waves::new(world, 2).map_err(|error| format!("{error:?}"))?;
            waves.certify_always();
            let outcome = waves.run(lines).map_err(failed)?;
            lines.end(waves.world(), outcome);
            return Ok(());
        }
    };
    lines.end(&world, outcome);
    Ok(())
}

/// The first line that differs: its number, the code's and the model's.
struct Difference {
    at: usize,
    code: String,
    model: String,
    is_panic: bool,
}

fn compare(
    seed: u64,
    machine: &Machine,
    oracle: &mut Oracle,
    seen: &mut Seen,
) -> Result<(usize, Option<Difference>), String> {
    let mut lines = Lines { lines: Vec::new(), seen: std::mem::take(seen) };
    let ran = catch_unwind(AssertUnwindSafe(|| run(seed, machine, &mut lines)));
    let mut command = String::from("Y");
    for number in &machine.numbers {
        write!(command, " {number}").expect("a string grows");
    }
    command.push('\n');
    let mut answers = oracle.answers(&command)?;
    answers.retain(|line| !line.is_empty());
    let panics = match ran {
        Ok(result) => result.map(|()| false)?,
        Err(_) => true,
    };
    *seen = lines.seen;
    let compared = lines.lines.len();
    let count = if panics { compared } else { compared.max(answers.len()) };
    for at in 0..count {
        let [code, model] = [&lines.lines, &answers]
            .map(|side| side.get(at).map_or("nothing", |line| line.trim_end()));
        if code != model {
            let (code, model) = (code.into(), model.into());
            return Ok((compared, Some(Difference { at, code, model, is_panic: false })));
        }
    }
    let panicked =
        || Difference { at: compared, code: "panics".into(), model: String::new(), is_panic: true };
    Ok((compared, panics.then(panicked)))
}

/// The position and text of the first event of two lines that differs.
fn report(seed: u64, machine: &Machine, difference: &Difference, prints: bool) {
    println!("seed {seed}: the code and the oracle differ in line {}", difference.at);
    let [code, model] =
        [&difference.code, &difference.model].map(|line| line.split("; ").collect::<Vec<_>>());
    let first = (0..code.len().max(model.len())).find(|&at| code.get(at) != model.get(at));
    let first = first.unwrap_or(0);
    let around = |events: &[&str]| {
        let from = first.saturating_sub(3);
        events
            .get(from..)
            .unwrap_or_default()
            .iter()
            .take(6)
            .copied()
            .collect::<Vec<_>>()
            .join("; ")
    };
    println!("event {first} of the line; from three before it:");
    println!("code   {}", around(&code));
    println!("oracle {}", around(&model));
    if prints {
        println!("{:#?}", machine.spec.sessions);
        println!("{:?} {:?} {:?}", machine.spec.policy, machine.spec.span, machine.spec.channels);
        machine.texts.iter().for_each(|text| println!("{text}"));
    }
}

struct Options {
    machines: u64,
    seed: u64,
    oracle: String,
    panics: bool,
    prints: bool,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Option<Options> {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proof/oracle/oracle");
    let mut options =
        Options { machines: 2_000, seed: 0, oracle: program.into(), panics: true, prints: false };
    while let Some(flag) = arguments.next() {
        if flag == "--print" {
            options.prints = true;
            continue;
        }
        let value = arguments.next()?;
        match flag.as_str() {
            "--machines" => options.machines = value.parse().ok()?,
            "--seed" => options.seed = value.parse().ok()?,
            "--oracle" => options.oracle = value,
            "--panics" => options.panics = value != "ignore",
            _ => return None,
        }
    }
    Some(options)
}

fn compare_all(options: &Options) -> Result<bool, String> {
    let mut oracle = Oracle::start(&options.oracle)?;
    let (begun, shows) = (Instant::now(), std::io::stderr().is_terminal());
    let (mut lines, mut seen) = (0, Seen::new());
    let (mut whole, mut lacking) = (0, Seen::new());
    for number in 0..options.machines {
        let seed = options.seed + number;
        let machine = machine(seed);
        let (compared, found) = compare(seed, &machine, &mut oracle, &mut seen)?;
        lines += compared;
        whole += u64::from(machine.left_out.is_empty());
        machine.left_out.iter().for_each(|what| *lacking.entry(what).or_default() += 1);
        if let Some(difference) = found.filter(|found| !found.is_panic || options.panics) {
            report(seed, &machine, &difference, options.prints);
            return Ok(false);
        }
        if shows && number % 50 == 0 {
            eprint!("\r{number} of {} machines", options.machines);
        }
    }
    if shows {
        eprintln!();
    }
    println!(
        "{} machines from seed {}: {lines} lines compared, no difference, {} s",
        options.machines,
        options.seed,
        begun.elapsed().as_secs()
    );
    println!("with all that generate gives them: {whole}; without {}", table(&lacking));
    let total: u64 = seen.values().sum();
    println!("{total} events; {}", table(&seen));
    let missing = unseen(&seen);
    if options.machines >= COMPLETE_FROM && !missing.is_empty() {
        println!("no machine had these: {}", missing.join(", "));
        return Ok(false);
    }
    Ok(true)
}

/// This number of machines has every event and every stop that the model has.
const COMPLETE_FROM: u64 = 1_000;

fn table(seen: &Seen) -> String {
    seen.iter().map(|(name, count)| format!("{name}: {count}")).collect::<Vec<_>>().join(", ")
}

fn main() -> ExitCode {
    let Some(options) = options(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match compare_all(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(1)
        }
    }
}
