//! Costs in detail, for a report: of each function and host operation of a session, and of each
//! frame.
//!
//! Kept after [`World::profile`], without any effect on the run: a slice is run from safepoint to
//! safepoint instead of at once, which the kernel does not see (semantics 6), and what was charged
//! in between belongs to the one function that the coroutine was in.

use crate::world::World;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, Frame, HostOperation, SessionId};
use wavelock_kernel::FrameRow;
use wavelock_machine::{Change, Coroutine, Session, Stepped, Stepper, Stop, run};

/// The costs of a frame, for a sink at FRAME_SYNC.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameCosts {
    /// The frame.
    pub frame: Frame,
    /// How each lane's cycles were spent, in lane order.
    pub rows: Vec<FrameRow>,
    /// Host operations of all sessions since the start of the run.
    pub host_calls: u64,
    /// Messages of all sessions since the start of the run.
    pub messages: u64,
    /// Most coroutines at once in this frame, lane by lane within a wave.
    pub peak: u64,
}

/// How often a host operation was called, and its cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostCost {
    /// Calls.
    pub calls: u64,
    /// Cycles, with what was prepaid by size.
    pub cycles: u64,
}

/// The costs of one session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Cycles by function index in the module, callees not included, host operations included.
    functions: Vec<u64>,
    host: BTreeMap<HostOperation, HostCost>,
    /// Cycles by call stack, outermost function first; only after [`World::profile_stacks`].
    stacks: Option<BTreeMap<Vec<u32>, u64>>,
    /// The stack at the last stop.
    stack: Vec<u32>,
    /// Safepoints to run to before stopping in the middle of a slice.
    countdown: Option<u64>,
    /// Instructions to run after those, if any.
    instructions: Instructions,
}

/// Instructions to run one by one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Instructions {
    left: u64,
    stepper: Stepper,
    /// What the last of them changed.
    last: Option<Change>,
}

impl Instructions {
    /// Runs what is left of them, or to what stops the machine.
    fn run(&mut self, session: &mut Session, coroutine: &mut Coroutine, cycles: Cycles) -> Stop {
        let end = coroutine.used().saturating_add(cycles);
        while self.left > 0 {
            let cycles = end.saturating_sub(coroutine.used());
            let stepped = if self.left == 1 {
                let (stepped, change) = self.stepper.watched(session, coroutine, cycles);
                self.last = Some(change);
                stepped
            } else {
                self.stepper.step(session, coroutine, cycles)
            };
            match stepped {
                Stepped::Over(stop) => return stop,
                Stepped::Moved => self.left -= 1,
                Stepped::Stopped(stop) => {
                    self.left -= 1;
                    return stop;
                }
            }
        }
        Stop::OutOfCycles { next: Cycles::ZERO }
    }
}

impl Profile {
    /// Cycles of each function that had any, by its index in the module.
    pub fn functions(&self) -> impl Iterator<Item = (u32, Cycles)> {
        self.functions
            .iter()
            .enumerate()
            .filter(|(_, cycles)| **cycles > 0)
            .map(|(index, cycles)| (index as u32, Cycles(*cycles)))
    }

    /// Each host operation that was called, in table order.
    pub fn host(&self) -> impl Iterator<Item = (HostOperation, HostCost)> {
        self.host.iter().map(|(operation, cost)| (*operation, *cost))
    }

    /// Cycles of each call stack, outermost function first, if stacks are kept.
    pub fn stacks(&self) -> impl Iterator<Item = (&[u32], Cycles)> {
        self.stacks.iter().flatten().map(|(stack, cycles)| (stack.as_slice(), Cycles(*cycles)))
    }

    /// [`run`], from safepoint to safepoint.
    pub(crate) fn run(
        &mut self,
        session: &mut Session,
        coroutine: &mut Coroutine,
        cycles: Cycles,
    ) -> Stop {
        let mut left = cycles;
        let mut bound = Cycles(1);
        loop {
            if let Some(pieces) = &mut self.countdown {
                let Some(fewer) = pieces.checked_sub(1) else {
                    return self.instructions.run(session, coroutine, left);
                };
                *pieces = fewer;
            }
            let function = coroutine.backtrace(session).next().map(|place| place.function);
            if self.stacks.is_some() {
                self.stack.clear();
                self.stack.extend(coroutine.backtrace(session).map(|place| place.function));
                self.stack.reverse();
            }
            let before = coroutine.used();
            let stop = run(session, coroutine, bound.min(left));
            let charged = coroutine.used() - before;
            self.charge(function, charged);
            left = left.saturating_sub(charged);
            // A call that was waiting already answers again, and charges nothing.
            if let Stop::Host(call) = &stop
                && charged > Cycles::ZERO
                && let Ok(code) = u8::try_from(call.number)
                && let Some(operation) = HostOperation::from_code(code)
            {
                self.call(operation);
            }
            match stop {
                // The next charge is one piece: a block, or the rest of a bulk operation.
                Stop::OutOfCycles { next } if left > Cycles::ZERO => bound = next.max(Cycles(1)),
                stop => return stop,
            }
        }
    }

    /// A host operation was called; the machine has charged its base cost.
    fn call(&mut self, operation: HostOperation) {
        let cost = self.host.entry(operation).or_default();
        cost.calls += 1;
        cost.cycles += operation.cost().0;
    }

    /// A host operation was paid for by size.
    pub(crate) fn prepaid(
        &mut self,
        operation: HostOperation,
        function: Option<u32>,
        cycles: Cycles,
    ) {
        self.host.entry(operation).or_default().cycles += cycles.0;
        self.charge(function, cycles);
    }

    fn charge(&mut self, function: Option<u32>, cycles: Cycles) {
        let Some(function) = function else { return };
        if let Some(stacks) = &mut self.stacks
            && cycles > Cycles::ZERO
        {
            // `entry` would clone the stack of every charge.
            if let Some(known) = stacks.get_mut(&self.stack) {
                *known += cycles.0;
            } else {
                stacks.insert(self.stack.clone(), cycles.0);
            }
        }
        let index = function as usize;
        if self.functions.len() <= index {
            self.functions.resize(index + 1, 0);
        }
        self.functions[index] += cycles.0;
    }
}

impl Profile {
    /// A profile that stops after a number of safepoint-to-safepoint pieces, and a number of
    /// instructions after them.
    pub(crate) fn stopping_after(pieces: u64, instructions: u64) -> Self {
        let instructions = Instructions { left: instructions, ..Instructions::default() };
        Self { countdown: Some(pieces), instructions, ..Self::default() }
    }

    /// An empty one for the next module of its session.
    pub(crate) fn begin_anew(&self) -> Self {
        Self {
            stacks: self.stacks.is_some().then(BTreeMap::new),
            countdown: self.countdown,
            instructions: self.instructions.clone(),
            ..Self::default()
        }
    }

    /// Pieces and instructions that were not run.
    pub(crate) fn left(&self) -> (u64, u64) {
        (self.countdown.unwrap_or(0), self.instructions.left)
    }

    /// The change that the last of the instructions made.
    pub(crate) const fn last_change(&self) -> Option<&Change> {
        self.instructions.last.as_ref()
    }
}

impl World {
    /// Keeps costs in detail from now on: [`World::session_profile`], and
    /// [`Sink::costs`](crate::Sink::costs) at each FRAME_SYNC. Slower, the same run.
    pub fn profile(&mut self) {
        self.profile_with(&Profile::default());
    }

    /// [`World::profile`], by call stack too.
    pub fn profile_stacks(&mut self) {
        self.profile_with(&Profile { stacks: Some(BTreeMap::new()), ..Profile::default() });
    }

    fn profile_with(&mut self, empty: &Profile) {
        for group in &mut self.groups {
            for session in &mut group.sessions {
                session.profile = Some(Box::new(empty.clone()));
            }
            group.lanes.iter_mut().for_each(|lane| lane.kernel.keep_context_books());
        }
        self.begin_wave_profile();
    }

    /// The profile of a session that starts: empty, if costs are kept.
    pub(crate) fn new_profile(&self) -> Option<Box<Profile>> {
        let mut sessions = self.groups.iter().flat_map(|group| &group.sessions);
        let known = sessions.find_map(|session| session.profile.as_deref())?;
        let stacks = known.stacks.is_some().then(BTreeMap::new);
        Some(Box::new(Profile { stacks, ..Profile::default() }))
    }

    /// The costs of a session, if they are kept.
    #[must_use]
    pub fn session_profile(&self, session: SessionId) -> Option<&Profile> {
        self.session_groups.get(session.0 as usize)?;
        self.session_ref(session).profile.as_deref()
    }

    /// The costs of the frame that is ending, with its lanes' rows; between frames, without rows,
    /// the totals so far.
    #[must_use]
    pub fn frame_costs(&self, rows: Vec<FrameRow>) -> FrameCosts {
        let sessions = || self.groups.iter().flat_map(|group| &group.sessions);
        FrameCosts {
            frame: self.frame(),
            rows,
            host_calls: sessions().map(|session| session.host_calls).sum(),
            messages: sessions().map(|session| session.messages).sum(),
            peak: self.frame_peak,
        }
    }
}
