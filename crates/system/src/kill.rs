//! Kills: coroutines that a budget's overrun policy ended (semantics 70).
//!
//! Contract: a kill is recorded with its numbers, in the session and in the trace, before the
//! coroutine ends. A coroutine that was killed is never called finished or canceled. A session that
//! used up its cap is killed as a whole, with one record: its coroutines on the lane of the cap at
//! once, those on its other lanes at the wave's end. Elsewhere: who
//! decides on a kill (`kernel`), the order of an end (`ending`).

use crate::authority::Capabilities;
use crate::group::Group;
use crate::index::{LaneIndex, SessionIndex, TaskIndex};
use crate::task::EndStatus;
use crate::world::World;
use alloc::string::String;
use wavelock_abi::{ContextRef, CoroutineName, CoroutineRef, Cycles, Frame, LaneId};
use wavelock_trace::Event;

/// The rule that ended a coroutine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum KillRule {
    /// It used up the refill of its context, whose overrun policy is `end`.
    Context = 0,
    /// Its session used up its cap, whose overrun policy is `end`.
    Cap = 1,
}

impl KillRule {
    /// The word of the command line's JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["context", "cap"][self as usize]
    }

    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Context),
            1 => Some(Self::Cap),
            _ => None,
        }
    }
}

/// A kill, and its numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KillRecord {
    /// The coroutine; the first of the session, if it was killed as a whole.
    pub coroutine: CoroutineRef,
    /// The rule.
    pub rule: KillRule,
    /// The lane it was on.
    pub lane: LaneId,
    /// The session's handle of the context; -1 for a cap.
    pub handle: i32,
    /// The frame.
    pub frame: Frame,
    /// The lane's clock.
    pub clock: Cycles,
    /// What could be used.
    pub budget: Cycles,
    /// What was used beyond it.
    pub overrun: Cycles,
}

/// Kills of a session that are recorded in full; all are counted.
pub(crate) const KILLS_KEPT: usize = 16;

/// The kills of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Kills {
    /// The first of them.
    pub(crate) records: alloc::vec::Vec<KillRecord>,
    /// All of them.
    pub(crate) count: u64,
    /// Its first coroutine was killed, or it was killed as a whole.
    pub(crate) first: bool,
}

impl Kills {
    pub(crate) fn add(&mut self, record: KillRecord) {
        self.first |= record.coroutine == CoroutineRef::new(0, 0);
        self.count += 1;
        if self.records.len() < KILLS_KEPT {
            self.records.push(record);
        }
    }

    /// Adds a kill of the whole session; its coroutines are counted as they end.
    fn add_whole(&mut self, record: KillRecord) {
        self.first = true;
        self.records.truncate(KILLS_KEPT - 1);
        self.records.push(record);
    }

    /// Whether the session was killed as a whole.
    pub(crate) fn is_whole(&self) -> bool {
        self.records.iter().any(|kill| kill.rule == KillRule::Cap)
    }
}

/// The name that the manifest gives a context of a session, by its handle.
pub(crate) fn context_name(table: Option<&Capabilities>, handle: i32) -> Option<String> {
    let mut names = table?.names.iter();
    names.find(|(_, named)| *named == handle).map(|(name, _)| name.clone())
}

impl World {
    /// The kill that ended a coroutine or its whole session, and the name of its context; only the
    /// first of a session are kept.
    #[must_use]
    pub fn kill_of(&self, name: CoroutineName) -> Option<(KillRecord, Option<String>)> {
        self.session_groups.get(name.session.0 as usize)?;
        let state = self.session_ref(name.session);
        let mut records = state.kills.records.iter();
        let found =
            records.find(|kill| kill.coroutine == name.reference || kill.rule == KillRule::Cap)?;
        Some((found.clone(), context_name(state.capabilities.as_deref(), found.handle)))
    }
}

impl Group {
    /// Ends a coroutine whose context was used up, if it still lives.
    pub(crate) fn kill_by_context(
        &mut self,
        lane: LaneIndex,
        at: TaskIndex,
        context: ContextRef,
        overrun: Cycles,
    ) {
        let state = &self.sessions[at.session];
        if state.ended.is_some() || !state.tasks.is_live(at.slot) {
            return;
        }
        let kernel = &self.lanes[lane].kernel;
        let budget = kernel.context(context).map_or(Cycles::ZERO, |view| view.parameters.budget);
        let handle = state.capabilities.as_ref().and_then(|table| table.handle_of(context));
        let record = KillRecord {
            coroutine: state.tasks.reference_at(at.slot),
            rule: KillRule::Context,
            lane: LaneId(self.lanes[lane].id),
            handle: handle.unwrap_or(-1),
            frame: self.frame,
            clock: kernel.clock(),
            budget,
            overrun,
        };
        self.kill_task(lane, at, record);
    }

    /// Ends a session that used up its cap on this lane, if it still lives.
    pub(crate) fn kill_by_cap(
        &mut self,
        lane: LaneIndex,
        session: SessionIndex,
        budget: Cycles,
        used: Cycles,
    ) {
        let state = &mut self.sessions[session];
        if state.ended.is_some() {
            return;
        }
        let record = KillRecord {
            coroutine: CoroutineRef::new(0, 0),
            rule: KillRule::Cap,
            lane: LaneId(self.lanes[lane].id),
            handle: -1,
            frame: self.frame,
            clock: self.lanes[lane].kernel.clock(),
            budget,
            overrun: used.saturating_sub(budget),
        };
        self.lanes[lane].log.event(&Event::Kill {
            session: u64::from(state.id.0),
            slot: 0,
            rule: record.rule as u64,
            budget: record.budget.0,
            overrun: record.overrun.0,
        });
        state.kills.add_whole(record);
        self.exit_session(lane, session);
    }

    /// Ends a live coroutine of this lane that is not running, because of a budget.
    pub(crate) fn kill_task(&mut self, lane: LaneIndex, at: TaskIndex, record: KillRecord) {
        let state = &mut self.sessions[at.session];
        self.lanes[lane].log.event(&Event::Kill {
            session: u64::from(state.id.0),
            slot: u64::from(at.slot),
            rule: record.rule as u64,
            budget: record.budget.0,
            overrun: record.overrun.0,
        });
        state.kills.add(record);
        self.withdraw(lane, at);
        self.end_task(lane, at, EndStatus::Killed, 0);
    }
}
