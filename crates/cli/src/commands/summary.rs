//! The summary of a run: as a JSON object and as text.

use super::sources::Sources;
use crate::manifest::grouped;
use crate::report::{
    CallerRow, CapRow, CoroutineCounts, CycleRow, DeadlockRow, FaultRow, KillRow, LeaseRow,
    LiveRow, ServiceRow, SessionSummary, StuckRow, Summary, Telemetry, UnreadRow, WaitRow,
};
use crate::table::{Align, Table, plural, share};
use anstyle::AnsiColor;
use std::cmp::Reverse;
use std::fmt::Write as _;
use wavelock_abi::{ChannelId, CoroutineName, Cycles, FaultCode, SessionId};
use wavelock_debug::{function_name, kill_text, show};
use wavelock_kernel::{CapOverrun, CapState, LeaseEnd, LeasePhase, MoveBan};
use wavelock_system::{
    CapSummary, Deadlock, FaultRecord, KillRecord, KillRule, LeaseSummary, LostStack, RunOutcome,
    RunSummary, SessionOutcome, StuckMigrations, UnreadInput, WaitTarget, Waiting, World,
};
use wavelock_view::missing_evidence;

/// Maximum rows of sessions, faults and waits in the text; the object has all.
const SHOWN: usize = 16;
/// What suspended a run that has no outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unfinished {
    /// Ctrl-C.
    Interrupted,
    /// `--for`.
    Time,
    /// The recording that was run again ends here.
    Recording,
}

impl Unfinished {
    /// The outcome of the run, and of its sessions that had not ended.
    const fn name(self) -> &'static str {
        match self {
            Self::Interrupted => "interrupted",
            Self::Time => "time",
            Self::Recording => "recorded",
        }
    }
}

/// The object of `run --json`; without telemetry, that of a report.
pub(super) fn object(
    world: &World,
    run: &RunSummary,
    sources: &Sources,
    unfinished: Unfinished,
    telemetry: Option<Telemetry>,
) -> Summary {
    let (spawned, finished, faulted) = run.coroutines();
    let unread = world.unread_input();
    Summary {
        outcome: run.outcome.map_or(unfinished.name(), RunOutcome::name).to_owned(),
        digest: run.digest.to_string(),
        frames: run.frames,
        steps: run.steps,
        cycles: CycleRow {
            charged: run.cycles.charged,
            overhead: run.cycles.overhead_total(),
            idle: run.cycles.idle,
            total: run.cycles.total(),
        },
        coroutines: CoroutineCounts {
            spawned,
            finished,
            faulted,
            killed: run.sessions.iter().map(|session| session.killed).sum(),
            peak: run.peak,
        },
        sessions: run
            .sessions
            .iter()
            .enumerate()
            .zip(unread)
            .map(|((index, session), unread)| {
                let outcome = word(session, run.outcome, unfinished);
                session_object(world, outcome, index, session, unread, sources)
            })
            .collect(),
        lanes: super::lanes::rows(world),
        services: services(run),
        leases: world.leases().iter().map(|lease| lease_object(world, lease)).collect(),
        stuck_migrations: world.stuck_migrations().map(|stuck| stuck_object(world, &stuck)),
        trace_bytes: None,
        deadlock: world.deadlock().map(|deadlock| deadlock_object(world, deadlock)),
        telemetry,
    }
}

fn lease_object(world: &World, lease: &LeaseSummary) -> LeaseRow {
    let named = |session: u32| session_name(world, SessionId(session)).to_owned();
    let state = lease.state;
    let missing = state.and_then(|state| state.missing).map(|missing| {
        let session = missing.session.map(named);
        let evidence = missing.evidence as u64;
        missing_evidence(evidence, session.as_deref(), missing.count, missing.until)
    });
    let ended = state.and_then(|state| state.ended).map(|end| end.meaning().to_owned());
    let lane = world.look_at_lane(lease.lane).map_or(Cycles::ZERO, |lane| lane.clock);
    let current = state.filter(|state| state.phase == LeasePhase::Active);
    let current = current.and_then(|state| state.began).map_or(0, |began| lane.0 - began.0);
    let ends = LeaseEnd::ALL.iter().zip(lease.counts.ends);
    let ends = ends.filter(|(_, count)| *count > 0);
    LeaseRow {
        name: lease.name.clone(),
        session: named(lease.session.0),
        context: lease.context.clone(),
        lane: lease.lane.0,
        state: state.map_or(LeasePhase::Free, |state| state.phase).name().to_owned(),
        reason: missing.or(ended),
        requests: lease.counts.requests,
        activations: lease.counts.activations,
        denials: lease.counts.denials,
        ends: ends.map(|(end, count)| (end.name().to_owned(), count)).collect(),
        quiet_cycles: lease.counts.quiet.0 + current,
        noise: lease.counts.noise + lease.noise,
        bound_cycles: lease.bound.0,
        longest_revocation_cycles: lease.counts.longest_latency.0,
        late: lease.counts.late,
    }
}

fn stuck_object(world: &World, stuck: &StuckMigrations) -> StuckRow {
    let found = stuck.longest;
    let (reason, fix) = match found.ban {
        MoveBan::Split => ("it is split over several lanes", "give it one lane"),
        MoveBan::Pinned => ("the manifest names its `lane`", "leave out its `lane`"),
        MoveBan::Leased => ("its lane is leased", "give it another lane"),
        MoveBan::Context => ("it has contexts or grants", "give it another lane with `lane`"),
        MoveBan::Call => ("it is in a call", "give it another lane with `lane`"),
    };
    let session = session_name(world, SessionId(found.tag.session()));
    StuckRow {
        steals: stuck.steals,
        coroutine: format!("{session}/{}", found.tag.slot()),
        lane: found.lane.0,
        waited_cycles: found.waited.0,
        limit_cycles: found.limit.0,
        reason: reason.to_owned(),
        fix: fix.to_owned(),
    }
}

/// The sums over counted sessions, which the manifest reader names `NAME.0`, `NAME.1`, ...
fn services(run: &RunSummary) -> Vec<ServiceRow> {
    let mut rows: Vec<ServiceRow> = Vec::new();
    for session in &run.sessions {
        let numbered = session.name.rsplit_once('.');
        let Some((name, number)) = numbered else { continue };
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        if rows.last().is_none_or(|row| row.name != name) {
            rows.push(ServiceRow { name: name.to_owned(), ..ServiceRow::default() });
        }
        let Some(row) = rows.last_mut() else { continue };
        row.sessions += 1;
        row.cycles += session.cycles.0;
        row.spawned += session.spawned;
        row.messages += session.messages;
    }
    rows
}

fn session_object(
    world: &World,
    outcome: &str,
    index: usize,
    session: &wavelock_system::SessionSummary,
    unread: UnreadInput,
    sources: &Sources,
) -> SessionSummary {
    SessionSummary {
        name: session.name.clone(),
        outcome: outcome.to_owned(),
        exit: session.exit,
        cycles: session.cycles.0,
        digest: session.digest.to_string(),
        unread_input: unread_row(unread),
        output: None,
        log: None,
        faults: session
            .faults
            .iter()
            .map(|fault| fault_object(world, index, fault, sources))
            .collect(),
        kills: session.kills.iter().map(kill_object).collect(),
        missed_ports: world.missed_ports(SessionId(index as u32)).to_vec(),
        cap: world.caps_of(SessionId(index as u32)).iter().map(cap_object).collect(),
    }
}

/// The word for a session's outcome. One that has not ended was stopped with the run.
pub(super) const fn word(
    session: &wavelock_system::SessionSummary,
    run: Option<RunOutcome>,
    unfinished: Unfinished,
) -> &'static str {
    match (session.outcome, run) {
        (SessionOutcome::Finished, _) if session.exit != 0 => "exited",
        (SessionOutcome::Running, None) => unfinished.name(),
        (SessionOutcome::Running, Some(RunOutcome::Stopped)) => RunOutcome::Stopped.name(),
        (SessionOutcome::Running, _) => RunOutcome::Frames.name(),
        (outcome, _) => outcome.name(),
    }
}

fn kill_object((kill, context): &(KillRecord, Option<String>)) -> KillRow {
    KillRow {
        slot: kill.coroutine.slot,
        generation: kill.coroutine.generation,
        rule: kill.rule.name().to_owned(),
        context: context.clone(),
        frame: kill.frame.0,
        lane: kill.lane.0,
        clock: kill.clock.0,
        budget_cycles: kill.budget.0,
        overrun_cycles: kill.overrun.0,
        reason: kill_text(kill, context.as_deref()),
    }
}

fn cap_object(cap: &CapSummary) -> CapRow {
    let CapState { settings, used, counts, .. } = cap.account;
    let until = |overrun| cap.until.filter(|_| settings.overrun == overrun).map(|frame| frame.0);
    CapRow {
        lane: cap.lane.0,
        budget_cycles: settings.budget.0,
        period_frames: settings.period_frames,
        overrun: settings.overrun.name().to_owned(),
        used_cycles: used.0,
        charged_cycles: counts.consumed.0,
        throttled: counts.throttles,
        longest_overrun_cycles: counts.longest_overrun.0,
        throttled_until_frame: until(CapOverrun::Throttle),
        demoted_until_frame: until(CapOverrun::Demote),
        demoted_cycles: counts.demoted.0,
    }
}

/// `None` if the session read all of its input.
pub(super) fn unread_row(unread: UnreadInput) -> Option<UnreadRow> {
    (unread.total() > 0).then_some(UnreadRow { dropped: unread.dropped, left: unread.left })
}

/// Names the sessions that did not read all of their input, and the rule.
pub(super) fn print_unread<'a>(
    text: &mut String,
    rows: impl Iterator<Item = (&'a str, UnreadRow)> + Clone,
) {
    let note = AnsiColor::Yellow.on_default().bold();
    for (session, UnreadRow { dropped, left }) in rows.clone().take(SHOWN) {
        let _ = writeln!(
            text,
            "{note}unread input{note:#}: {session} did not read {}: {} dropped at the end of their frame, {} left at the end",
            plural(dropped + left, "event"),
            grouped(dropped),
            grouped(left)
        );
    }
    let count = rows.count();
    if count > SHOWN {
        let _ = writeln!(
            text,
            "  and {} (--json lists all)",
            plural((count - SHOWN) as u64, "other session")
        );
    }
    if count > 0 {
        let _ = writeln!(
            text,
            "  `input` takes events of the current frame only; `fd_read` keeps them for later frames (docs/spec/semantics.md, rule 32)"
        );
    }
}

fn fault_object(world: &World, session: usize, fault: &FaultRecord, sources: &Sources) -> FaultRow {
    let module = &world.spec().modules[world.spec().sessions[session].module];
    let limits = &world.spec().limits;
    let name = CoroutineName { session: SessionId(session as u32), reference: fault.coroutine };
    let stack = world.fault_stack(name);
    let reason = match fault.code {
        FaultCode::StackExhausted => format!(
            "{} (stack_bytes = {}, session_stack_bytes = {} for all of the session)",
            fault.code.text(),
            grouped(u64::from(limits.stack_bytes)),
            grouped(limits.session_stack_bytes)
        ),
        code => code.text().to_owned(),
    };
    let lost = stack.and_then(|stack| stack.lost_stack);
    let reason = match lost.filter(|_| fault.code == FaultCode::MemoryOutOfBounds) {
        Some(LostStack { pointer, memory_bytes }) => {
            // `spawn` starts the pointer at 0, and a stack grows down from there.
            let why = match pointer > u32::MAX / 2 {
                true => "spawned without a stack of its own",
                false => "given a stack that ends outside it",
            };
            format!(
                "{reason}; its stack pointer is {pointer:#x}, outside its memory of {} bytes: it \
                 was {why}. Give `spawn_stack` the end of an array",
                grouped(memory_bytes)
            )
        }
        None => reason,
    };
    let frames = stack.map_or(&[][..], |stack| &stack.frames);
    // The fault itself is the innermost frame; a caller is behind its call.
    let callers = frames.get(1..).unwrap_or_default();
    let offsets = callers.iter().map(|caller| caller.offset.saturating_sub(1));
    let offsets: Vec<u32> = std::iter::once(fault.offset).chain(offsets).collect();
    let mut lines = sources.lines(world.spec().sessions[session].module, &offsets).into_iter();
    let source = lines.next().flatten();
    let listed = callers.len().min(SHOWN);
    FaultRow {
        source,
        more_callers: stack.map_or(0, |stack| stack.depth.saturating_sub(1 + listed as u64)),
        callers: callers
            .iter()
            .zip(lines)
            .take(SHOWN)
            .map(|(caller, source)| CallerRow {
                function: function_name(module, caller.function),
                offset: caller.offset,
                source,
            })
            .collect(),
        slot: fault.coroutine.slot,
        generation: fault.coroutine.generation,
        reason,
        function: function_name(module, fault.function),
        offset: fault.offset,
    }
}

/// A channel by its name in the manifest, else by its owner and number.
pub(super) fn channel_name(world: &World, channel: &ChannelId) -> String {
    let spec = world.spec();
    // The manifest's channels are the first of their owner, in manifest order.
    let wired = spec
        .channels
        .iter()
        .filter(|wired| wired.owner == channel.owner)
        .nth(channel.index as usize);
    match wired {
        Some(wired) => format!("channel `{}`", wired.name),
        None => format!("channel {}/{}", session_name(world, channel.owner), channel.index),
    }
}

fn session_name(world: &World, session: SessionId) -> &str {
    let session = world.spec().sessions.get(session.0 as usize);
    session.map_or("?", |session| session.name.as_str())
}

/// What a call of the host function at a position waits for.
fn reply_text(world: &World, function: usize) -> String {
    match world.spec().host.functions.get(function) {
        Some(import) => format!("the reply to `{}` `{}`", import.module, import.name),
        None => "a reply".to_owned(),
    }
}

fn target_text(world: &World, target: &WaitTarget) -> String {
    match target {
        WaitTarget::Channel(channel) => channel_name(world, channel),
        WaitTarget::Channels(channels) => channels
            .iter()
            .map(|channel| channel_name(world, channel))
            .collect::<Vec<_>>()
            .join(", "),
        WaitTarget::Coroutine(name) => format!("coroutine {}", show(*name, world.spec())),
        WaitTarget::Input => "input".to_owned(),
        WaitTarget::Reply(function) => reply_text(world, *function),
        WaitTarget::Unpark(_) => "an unpark".to_owned(),
        WaitTarget::Lease(lease) => match world.spec().leases.get(*lease) {
            Some(lease) => format!("lease {}", lease.name),
            None => "a lease".to_owned(),
        },
        WaitTarget::Session(session) => {
            format!("the end of session {}", session_name(world, *session))
        }
    }
}

fn wait_object(world: &World, waiting: &Waiting) -> WaitRow {
    WaitRow {
        coroutine: show(waiting.coroutine, world.spec()),
        reason: waiting.reason.name().to_owned(),
        target: target_text(world, &waiting.target),
    }
}

fn deadlock_object(world: &World, deadlock: &Deadlock) -> DeadlockRow {
    let pick = |indices: &[usize]| {
        indices.iter().map(|&index| wait_object(world, &deadlock.waiting[index])).collect()
    };
    DeadlockRow {
        waiting: deadlock.waiting.len() as u64,
        closed_set: pick(&deadlock.closed_set),
        cycle: pick(&deadlock.cycle),
    }
}

/// The summary as text.
pub(super) fn print(
    world: &World,
    run: &RunSummary,
    sources: &Sources,
    unfinished: Unfinished,
    telemetry: &Telemetry,
) -> String {
    let object = object(world, run, sources, unfinished, None);
    let mut text = String::new();
    let good = AnsiColor::Green.on_default().bold();
    let bad = AnsiColor::Red.on_default().bold();
    let (style, words) = match run.outcome {
        Some(RunOutcome::Finished) => (good, "finished"),
        Some(RunOutcome::Frames) => (good, "out of frames"),
        Some(RunOutcome::Stopped) => (good, "stopped"),
        Some(RunOutcome::Deadlock) => (bad, "deadlocked"),
        Some(RunOutcome::Faulted) => (bad, "faulted"),
        Some(RunOutcome::Killed) => (bad, "killed: budget"),
        None if unfinished == Unfinished::Time => (good, "out of time"),
        None if unfinished == Unfinished::Recording => (good, "at the end of the recording"),
        None => (bad, "interrupted"),
    };
    let _ = writeln!(
        text,
        "{style}{words}{style:#} after {}, {}, {} on {} in {:.3} s",
        plural(run.frames, "frame"),
        plural(run.steps, "step"),
        plural(telemetry.waves, "wave"),
        plural(telemetry.workers, "worker"),
        telemetry.wall_seconds
    );
    let cycles = &object.cycles;
    let part = |part: u64| format!("{} ({})", grouped(part), share(part, cycles.total));
    let _ = writeln!(
        text,
        "cycles: {} charged, {} overhead, {} idle, {} total",
        part(cycles.charged),
        part(cycles.overhead),
        part(cycles.idle),
        grouped(cycles.total)
    );
    let counts = &object.coroutines;
    let _ = writeln!(
        text,
        "coroutines: {} spawned, {} finished, {} faulted, {}at most {} at once",
        grouped(counts.spawned),
        grouped(counts.finished),
        grouped(counts.faulted),
        if counts.killed > 0 {
            format!("{} killed, ", grouped(counts.killed))
        } else {
            String::new()
        },
        grouped(counts.peak)
    );
    let _ = writeln!(text, "digest: {}", object.digest);
    print_sessions(&mut text, &object);
    print_faults(&mut text, run, unfinished, &object);
    print_kills(&mut text, run, &object);
    print_missed_ports(&mut text, &object);
    print_caps(&mut text, &object);
    print_leases(&mut text, &object);
    if let Some(stuck) = &object.stuck_migrations {
        let note = AnsiColor::Yellow.on_default().bold();
        let _ = writeln!(text, "{note}stuck{note:#}: {}", stuck.text());
    }
    let sessions = object.sessions.iter();
    print_unread(
        &mut text,
        sessions.filter_map(|session| Some((session.name.as_str(), session.unread_input?))),
    );
    if let Some(deadlock) = &object.deadlock {
        print_deadlock(&mut text, deadlock);
    }
    if let Some(live) = &telemetry.live {
        print_live(&mut text, live);
    }
    text
}

/// What came from outside, and what did not reach it.
fn print_live(text: &mut String, live: &LiveRow) {
    let note = AnsiColor::Yellow.on_default().bold();
    let _ = writeln!(
        text,
        "live: {} taken, {} refused; {}, {} turned away, {} disconnected",
        plural(live.taken, "request"),
        grouped(live.refused),
        plural(live.clients, "client"),
        grouped(live.turned_away),
        grouped(live.disconnected)
    );
    if live.started + live.replaced + live.ended + live.skipped > 0 {
        let _ = writeln!(
            text,
            "sessions: {} started, {} replaced, {} ended; {} skipped",
            grouped(live.started),
            grouped(live.replaced),
            grouped(live.ended),
            plural(live.skipped, "file")
        );
    }
    if live.dropped.frames > 0 {
        let _ = writeln!(
            text,
            "{note}dropped{note:#}: {} with {} of output, because readers were too slow",
            plural(live.dropped.frames, "frame"),
            plural(live.dropped.bytes, "byte")
        );
    }
    if live.late > 0 {
        let _ = writeln!(
            text,
            "{note}late{note:#}: {} did not run when due: this host is too slow for {} a second",
            plural(live.late, "frame"),
            plural(live.rate.ceil() as u64, "frame")
        );
    }
}

fn print_sessions(text: &mut String, object: &Summary) {
    let mut table = Table::new(&[
        ("session", Align::Left),
        ("outcome", Align::Left),
        ("exit", Align::Right),
        ("cycles", Align::Right),
        ("digest", Align::Left),
    ]);
    let mut rows: Vec<&SessionSummary> = object.sessions.iter().collect();
    if rows.len() > SHOWN {
        rows.sort_by_key(|session| Reverse(session.cycles));
    }
    for session in rows.iter().take(SHOWN) {
        let digest: String = session.digest.chars().take(16).collect();
        table.row(vec![
            session.name.clone(),
            match session.outcome.as_str() {
                "killed" => "killed: budget".to_owned(),
                outcome => outcome.to_owned(),
            },
            session.exit.to_string(),
            grouped(session.cycles),
            digest,
        ]);
    }
    text.push_str(&table.render());
    let hidden = rows.len().saturating_sub(SHOWN);
    if hidden > 0 {
        let _ =
            writeln!(text, "  and {} (--json lists all)", plural(hidden as u64, "other session"));
    }
}

/// Names the ports that sessions asked for and were not given, with the fix.
fn print_missed_ports(text: &mut String, object: &Summary) {
    let note = AnsiColor::Yellow.on_default().bold();
    let missed = object
        .sessions
        .iter()
        .flat_map(|session| session.missed_ports.iter().map(move |port| (&session.name, port)));
    for (session, port) in missed.take(SHOWN) {
        let _ = writeln!(
            text,
            "{note}missing port{note:#}: {session} asked for the port `{}`, which it has not: give its [[session]] `ports = {{ {} = \"CHANNEL\" }}`, or add a [[channel]] of this name with owner \"{session}\"",
            port.escape_debug(),
            port.escape_debug()
        );
    }
}

/// Names the coroutines that a budget ended, with its numbers.
fn print_kills(text: &mut String, run: &RunSummary, object: &Summary) {
    let bad = AnsiColor::Red.on_default().bold();
    let kills = object
        .sessions
        .iter()
        .flat_map(|session| session.kills.iter().map(move |kill| (&session.name, kill)));
    for (session, kill) in kills.take(SHOWN) {
        let _ = writeln!(text, "{bad}killed{bad:#} {}: {}", kill.subject(session), kill.reason);
    }
    let hidden = run.sessions.iter().map(|session| match session.kills.last() {
        Some((kill, _)) if kill.rule == KillRule::Cap => 0,
        _ => session.killed,
    });
    let hidden = hidden.sum::<u64>().saturating_sub(SHOWN as u64);
    if hidden > 0 {
        let _ = writeln!(text, "and {} killed", plural(hidden, "other coroutine"));
    }
}

/// Names the sessions that used up their cap.
fn print_caps(text: &mut String, object: &Summary) {
    let note = AnsiColor::Yellow.on_default().bold();
    let caps = object.sessions.iter().flat_map(|session| {
        session.cap.iter().filter(|cap| cap.is_noted()).map(move |cap| (&session.name, cap))
    });
    for (session, cap) in caps.clone().take(SHOWN) {
        let _ = writeln!(text, "{note}{}{note:#}: {session} {}", cap.word(), cap.text());
    }
    let hidden = caps.count().saturating_sub(SHOWN);
    if hidden > 0 {
        let _ = writeln!(text, "and {} (--json lists all)", plural(hidden as u64, "other cap"));
    }
}

/// Names the leases that were asked for.
fn print_leases(text: &mut String, object: &Summary) {
    let note = AnsiColor::Yellow.on_default().bold();
    let asked = object.leases.iter().filter(|lease| lease.requests > 0);
    for lease in asked.clone().take(SHOWN) {
        let _ = writeln!(text, "{note}lease{note:#}: {}", lease.text());
    }
    let hidden = asked.count().saturating_sub(SHOWN);
    if hidden > 0 {
        let _ = writeln!(text, "and {} (--json lists all)", plural(hidden as u64, "other lease"));
    }
}

fn print_faults(text: &mut String, run: &RunSummary, unfinished: Unfinished, object: &Summary) {
    let bad = AnsiColor::Red.on_default().bold();
    let faults = object
        .sessions
        .iter()
        .flat_map(|session| session.faults.iter().map(move |fault| (session, fault)));
    for (session, fault) in faults.take(SHOWN) {
        let place = |source: &Option<String>, offset: u32| match source {
            Some(line) => format!("{line} (byte {offset:#x} of the module)"),
            None => format!("byte {offset:#x} of the module"),
        };
        let _ = writeln!(
            text,
            "{bad}fault{bad:#} in {}/{}.{}: {}, in `{}` at {}",
            session.name,
            fault.slot,
            fault.generation,
            fault.reason,
            fault.function,
            place(&fault.source, fault.offset)
        );
        for caller in &fault.callers {
            let (function, place) = (&caller.function, place(&caller.source, caller.offset));
            let _ = writeln!(text, "  called by `{function}` at {place}");
        }
        if fault.more_callers > 0 {
            let _ = writeln!(text, "  and {}", plural(fault.more_callers, "more caller"));
        }
    }
    let total: u64 = run.sessions.iter().map(|session| session.faulted).sum();
    let hidden = total.saturating_sub(SHOWN as u64);
    if hidden > 0 {
        let _ = writeln!(text, "and {}", plural(hidden, "other fault"));
    }
    let dropped: u64 = run.sessions.iter().map(|session| session.log_dropped).sum();
    if dropped > 0 {
        let _ = writeln!(
            text,
            "{} of log output beyond the limit `log_bytes` were dropped",
            plural(dropped, "byte")
        );
    }
    let running =
        run.sessions.iter().filter(|session| session.outcome == SessionOutcome::Running).count();
    if running > 0 {
        let _ = writeln!(
            text,
            "{} still running {}",
            plural(running as u64, "session"),
            match run.outcome {
                None if unfinished == Unfinished::Time => "when --for ended the run",
                None if unfinished == Unfinished::Recording => "when the recording ended",
                None => "when Ctrl-C ended the run",
                Some(RunOutcome::Stopped) => "when the machine was told to stop",
                Some(_) => "at the last frame (--frames, max_frames)",
            }
        );
    }
}

fn print_deadlock(text: &mut String, deadlock: &DeadlockRow) {
    let bad = AnsiColor::Red.on_default().bold();
    let _ = writeln!(
        text,
        "{bad}deadlock{bad:#}: {} for an event that can never happen. The smallest set that waits only for itself:",
        if deadlock.waiting == 1 {
            "1 coroutine waits".to_owned()
        } else {
            format!("{} coroutines wait", grouped(deadlock.waiting))
        }
    );
    let rows = &deadlock.closed_set;
    for wait in rows.iter().take(SHOWN) {
        let _ = writeln!(text, "  {} ({}) waits for {}", wait.coroutine, wait.reason, wait.target);
    }
    let hidden = rows.len().saturating_sub(SHOWN);
    if hidden > 0 {
        let _ = writeln!(text, "  and {}", plural(hidden as u64, "other"));
    }
    if deadlock.cycle.len() > 1 {
        let waits: Vec<String> = deadlock
            .cycle
            .iter()
            .map(|wait| format!("{} waits for {}", wait.coroutine, wait.target))
            .collect();
        let first = &deadlock.cycle[0].coroutine;
        let _ = writeln!(text, "  the whole cycle: {} -> {first}", waits.join(" -> "));
    }
}
