//! Contexts in `why` and in lists: what a coroutine may use, and why it is throttled, demoted, late
//! or was refused, with the numbers.
//!
//! Contract: the current state of a context comes from the machine. Recent events come from running
//! a bounded number of the last steps again, because a trace need not contain events and never
//! contains the arithmetic of a refusal.

use crate::names::show;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{Read, Seek};
use wavelock_abi::{ContextRef, CoroutineName, CoroutineRef, LaneId, SessionId};
use wavelock_kernel::ContextPhase;
use wavelock_kernel::context::Refill;
use wavelock_replay::{Timeline, TimelineError};
use wavelock_system::{ContextSummary, MachineSpec, World};
use wavelock_trace::Event;

/// Number of steps that are run again to collect recent events.
const STEPS_BACK: u64 = 2_000;
/// Maximum number of recent events, the last ones.
const TOLD: usize = 8;

/// The state of a context that a coroutine holds or has lent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextRow {
    /// Its name, or its slot and generation.
    pub name: String,
    /// The borrower, if the coroutine has lent the context; otherwise the coroutine holds it.
    pub lent_to: Option<String>,
    /// Its phase: `ready`, `current`, `waiting`, `throttled` or `demoted`.
    pub phase: &'static str,
    /// The lane's clock.
    pub clock: u64,
    /// Cycles per period.
    pub budget_cycles: u64,
    /// The period.
    pub period_cycles: u64,
    /// Cycles from a release to its deadline.
    pub deadline_cycles: u64,
    /// What happens when a refill is used up.
    pub overrun_policy: &'static str,
    /// The budget that can be used now.
    pub usable_cycles: u64,
    /// Future refills: amount and lane clock.
    pub coming: Vec<(u64, u64)>,
    /// The current deadline, while its holder can run.
    pub due: Option<u64>,
    /// Cycles since that deadline passed.
    pub late_cycles: Option<u64>,
    /// Lane time charged to it.
    pub charged_cycles: u64,
    /// Refills that made a throttled holder ready.
    pub refills: u64,
    /// Times its holder was throttled.
    pub throttled: u64,
    /// Times its holder was demoted.
    pub demoted: u64,
    /// Deadlines missed.
    pub missed: u64,
    /// The longest overrun of a refill, in cycles.
    pub longest_overrun_cycles: u64,
}

/// The name of a context.
pub(crate) fn context_name(
    world: &World,
    lane: u16,
    context: ContextRef,
    given: Option<&str>,
) -> String {
    match given.or_else(|| world.manifest_context(LaneId(lane), context)) {
        Some(name) => name.to_owned(),
        None => format!("{}.{} of lane {lane}", context.slot, context.generation),
    }
}

/// One event of a lane in words, with the names of its sessions and contexts.
pub(crate) fn describe(world: &World, lane: u16, event: &Event<'_>) -> String {
    let sessions = &world.spec().sessions;
    let session = |number: u64| {
        sessions
            .get(number as usize)
            .map_or_else(|| format!("session {number}"), |session| session.name.clone())
    };
    let live = || world.contexts().into_iter().filter(|context| context.lane.0 == lane);
    let context =
        |slot: u64| match live().find(|context| u64::from(context.view.context.slot) == slot) {
            Some(found) => context_name(world, lane, found.view.context, found.name.as_deref()),
            // The context was removed: assume the manifest's one, which holds if its slot was not
            // reused.
            None => context_name(world, lane, ContextRef::new(slot as u32, 0), None),
        };
    if let Event::Lease { lease, .. } | Event::Noise { lease, .. } = *event {
        let name = world.spec().leases.get(lease as usize);
        let name = name.map_or_else(|| format!("lease {lease}"), |of| format!("lease {}", of.name));
        return wavelock_view::lease(event, &name, &session);
    }
    wavelock_view::describe(event, &session, &|slot| format!("context {}", context(slot)))
}

/// The context of a coroutine: the one it holds, else the one it has lent.
pub(crate) fn context_of(world: &World, name: CoroutineName) -> Option<ContextRow> {
    if let Some(held) = world.context_of(name) {
        return Some(row(world, &held, None));
    }
    let lent = world.context_lent_by(name)?;
    let holder = lent
        .holder
        .map_or_else(|| "no coroutine".to_owned(), |(session, slot)| named(world, session, slot));
    Some(row(world, &lent, Some(holder)))
}

fn named(world: &World, session: SessionId, slot: u32) -> String {
    let generation = world.generation(session, slot).unwrap_or(0);
    show(CoroutineName { session, reference: CoroutineRef::new(slot, generation) }, world.spec())
}

pub(crate) fn row(world: &World, summary: &ContextSummary, lent_to: Option<String>) -> ContextRow {
    let (view, counts) = (&summary.view, summary.view.counts);
    let clock = world.lane_clock(summary.lane).map_or(0, |clock| clock.0);
    let (usable, coming): (Vec<Refill>, Vec<Refill>) =
        view.ring.refills().iter().copied().partition(|refill| refill.at.0 <= clock);
    let due = matches!(view.phase, ContextPhase::Ready | ContextPhase::Current)
        .then_some(view.deadline.0);
    ContextRow {
        name: context_name(world, summary.lane.0, view.context, summary.name.as_deref()),
        lent_to,
        phase: view.phase.name(),
        clock,
        budget_cycles: view.parameters.budget.0,
        period_cycles: view.parameters.period.0,
        deadline_cycles: view.parameters.deadline.0,
        overrun_policy: view.parameters.overrun.name(),
        usable_cycles: usable.iter().map(|refill| refill.amount.0).sum(),
        coming: coming.iter().map(|refill| (refill.amount.0, refill.at.0)).collect(),
        due,
        late_cycles: due.and_then(|due| clock.checked_sub(due)).filter(|&late| late > 0),
        charged_cycles: counts.consumed.0,
        refills: counts.replenishments,
        throttled: counts.throttles,
        demoted: counts.demotions,
        missed: counts.misses,
        longest_overrun_cycles: counts.longest_overrun.0,
    }
}

impl ContextRow {
    /// The next refill: amount and lane clock.
    pub(crate) fn next_refill(&self) -> Option<(u64, u64)> {
        self.coming.first().copied()
    }

    /// Why the coroutine does not run on the context now, if it does not.
    pub(crate) fn sentence(&self) -> Option<String> {
        let refill = self.next_refill().map(|(amount, at)| {
            format!(
                "the next refill is {amount} cycles at lane clock {at}, in {}",
                at.saturating_sub(self.clock)
            )
        });
        let refill = refill.unwrap_or_else(|| "no refill is pending".to_owned());
        match (self.phase, self.late_cycles, self.due) {
            ("throttled", ..) => Some(format!(
                "it is throttled: its refill of context {} is used up; {refill}",
                self.name
            )),
            ("demoted", ..) => Some(format!(
                "it is demoted to best effort: its refill of context {} is used up; {refill}",
                self.name
            )),
            (_, Some(late), Some(due)) => {
                Some(format!("it missed its deadline at lane clock {due}, by {late} cycles so far"))
            }
            _ => None,
        }
    }

    /// One line for a list.
    pub(crate) fn short(&self) -> String {
        let mut text = format!(
            "context {} {}, {} of {} usable",
            self.name, self.phase, self.usable_cycles, self.budget_cycles
        );
        if let (0, Some((_, at))) = (self.usable_cycles, self.next_refill()) {
            let _ = write!(text, " until {at}");
        }
        if let Some(late) = self.late_cycles {
            let _ = write!(text, ", {late} late");
        }
        text
    }

    /// The context as text.
    pub(crate) fn lines(&self) -> String {
        let mut text = String::new();
        let lent = self.lent_to.as_ref().map_or_else(String::new, |to| format!(", lent to {to}"));
        let _ = writeln!(
            text,
            "  context    {}{lent}: {} cycles per {}, deadline {} after release, on overrun {}; now {}",
            self.name,
            self.budget_cycles,
            self.period_cycles,
            self.deadline_cycles,
            self.overrun_policy,
            self.phase
        );
        let coming: String =
            self.coming.iter().map(|(amount, at)| format!(", {amount} more at {at}")).collect();
        let due = self.due.map_or_else(String::new, |due| format!(", due at {due}"));
        let _ = writeln!(
            text,
            "  budget     {} usable at lane clock {}{coming}{due}",
            self.usable_cycles, self.clock
        );
        let _ = writeln!(
            text,
            "  so far     {} charged, {} refills awaited, {} throttled, {} demoted, {} missed, longest overrun {}",
            self.charged_cycles,
            self.refills,
            self.throttled,
            self.demoted,
            self.missed,
            self.longest_overrun_cycles
        );
        text
    }
}

/// The events of the last steps that concern a coroutine's context, oldest first. The timeline's
/// position is unchanged.
pub(crate) fn lately<R: Read + Seek>(
    timeline: &mut Timeline<R>,
    name: CoroutineName,
) -> Result<Vec<String>, TimelineError> {
    let here = timeline.position().step;
    let spec = timeline.world().spec();
    let is_capped = spec.sessions.get(name.session.0 as usize).is_some_and(|of| of.cap.is_some());
    if !(spec.grants_time() || is_capped) || here == 0 {
        return Ok(Vec::new());
    }
    let mut told: VecDeque<String> = VecDeque::new();
    timeline.seek_step(here.saturating_sub(STEPS_BACK).max(timeline.first_step()))?;
    while timeline.position().step < here && timeline.step_forward()? {
        let step = timeline.position().step.saturating_sub(1);
        for part in timeline.happened() {
            let lane = part.lane.unwrap_or(0);
            let spec = timeline.world().spec();
            let is_own = |event: &Event<'_>| concerns(event, name) || leases(event, name, spec);
            for event in part.events().flatten().filter(is_own) {
                let mut line = format!("step {step}: {}", describe(timeline.world(), lane, &event));
                if let (Event::Deny { .. }, Some(reason)) =
                    (&event, timeline.world().last_refusal(LaneId(lane)))
                {
                    let _ = write!(line, " ({reason})");
                }
                told.push_back(line);
            }
        }
        while told.len() > TOLD {
            told.pop_front();
        }
    }
    timeline.seek_step(here)?;
    Ok(told.into())
}

/// Whether an event concerns a lease of a coroutine's session, or was denied because of it.
fn leases(event: &Event<'_>, name: CoroutineName, spec: &MachineSpec) -> bool {
    let own = |lease: u64| {
        spec.leases.get(lease as usize).is_some_and(|lease| lease.session == name.session)
    };
    match *event {
        Event::Lease { lease, session, .. } => own(lease) || session == u64::from(name.session.0),
        Event::Noise { lease, .. } => own(lease),
        _ => false,
    }
}

/// Whether an event concerns the context of a coroutine, or the cap of its session.
fn concerns(event: &Event<'_>, name: CoroutineName) -> bool {
    match *event {
        Event::Bind { session, slot, .. }
        | Event::Throttle { session, slot, .. }
        | Event::Demote { session, slot, .. }
        | Event::Overrun { session, slot, .. }
        | Event::Replenish { session, slot, .. }
        | Event::Miss { session, slot, .. }
        | Event::Donate { session, slot, .. }
        | Event::Return { session, slot, .. }
        | Event::Deny { session, slot, .. } => {
            (session, slot) == (u64::from(name.session.0), u64::from(name.reference.slot))
        }
        Event::CapThrottle { session, .. }
        | Event::CapDemote { session, .. }
        | Event::CapRefill { session, .. } => session == u64::from(name.session.0),
        _ => false,
    }
}
