//! Turns: coroutines of one session that yield to or wait for each other, sleep and end, run without leaving the machine in between.
//!
//! Contract: the same steps, in the same order and with the same log, as [`Group::step`] one by one; `step_equals_run` and every digest
//! hold it to that. Slices that end in a yield, a sleep, a wait for a message or a return that nobody waits for are done here; a host operation that
//! `direct` does not answer is asked of `host`, and the turn goes on; any other stop, and a pick of another session or of a coroutine with an
//! answer that is not given in place, goes back to the group.

use crate::direct::{Counts, Direct, RECV, SEND};
use crate::group::{Flow, Group, Place, direct, wait_code};
use crate::host::is_entry;
use crate::random::{Children, Key};
use crate::task::{EndStatus, NONE, Task, Wait};
use wavelock_abi::{CoroutineRef, Cycles, Frame, HostOperation};
use wavelock_kernel::{Began, BlockReason, Next, Outcome, Running, Spawn, Tag};
use wavelock_machine::{Ahead, Answer, Coroutine, Coroutines, Host, Newborn, Nursery, Stop, TableAddress, Turn, Turned};
use wavelock_module::FunctionType;
use wavelock_trace::{Event, StopCode};

/// A session of so many coroutines does not fit a cache, and those about to run are read ahead.
const MANY: u32 = 32_768;

/// After an end, those who run next are fetched so often as if they ended.
const ENDS: u32 = 64;

/// Why a coroutine most often waits.
const RECEIVES: BlockReason = BlockReason::ChannelReceive;
const SLEEP: u16 = HostOperation::Sleep as u16;
const SPAWN: u16 = HostOperation::Spawn as u16;
const YIELD: u16 = HostOperation::Yield as u16;
/// The longest slice that is a turn; on a lane where one may be longer, each runs by itself.
const LONGEST: Cycles = Cycles(Turn::LONGEST as u64);

/// A lane whose slices run in one session, one after the other.
struct Turns<'a> {
    /// Answers in place, and the lane.
    direct: Direct<'a>,
    /// What the lane does when no slice is open any more.
    rest: Option<Next>,
    /// The token of the slice that is open, if it was dispatched; one that was passed to has none.
    token: Option<Running>,
    /// The bound of the slice that is open.
    bound: Cycles,
    /// The lane's overhead before it.
    overhead: Cycles,
    /// How many slices ended without a host call being answered.
    uncounted: u64,
    frame: Frame,
    /// The frame in which the coroutine wakes that goes to sleep now.
    until: Frame,
    /// Live coroutines of the group, and the most there were in this wave.
    live: &'a mut u64,
    wave_peak: &'a mut u64,
    /// The table of functions that coroutines begin with, if one may begin now.
    table: Option<TableAddress>,
    /// Who spawned last, and what the keys of its children derive from. Nobody else has its slot meanwhile: whoever gets a slot is spawned by somebody, who would be the last then.
    parent: (u32, Children),
    /// What the kernel needs to know of a new coroutine.
    spawn: Spawn,
    /// The most coroutines of the session.
    limit: u32,
    /// Calls were taken and not answered: whoever ends may owe an answer.
    has_replies: bool,
    /// How often those who run next are still fetched as if they ended.
    ends: u32,
}

impl Host for Turns<'_> {
    #[inline(always)]
    fn call(&mut self, number: u16, first: u64, second: u64, memory_bytes: u64) -> Answer {
        match number {
            SEND => Answer::bare(self.direct.send(first as u32, second as i64)),
            RECV => self.direct.receive(first as u32, second as u32, memory_bytes),
            SPAWN => {
                core::hint::cold_path();
                self.table.map_or(Answer::STOP, Answer::start)
            }
            _ => {
                core::hint::cold_path();
                self.direct.attempt(number, first as u32, second, memory_bytes)
            }
        }
    }

    #[inline(never)]
    fn last(&mut self, number: u16, argument: u64) -> bool {
        number == SLEEP && self.sleep(argument)
    }

    /// A yield to somebody else, in the usual case. What is unusual is a call at the end, so that nothing has to be kept over one.
    #[inline(always)]
    fn pass(&mut self, used: Cycles) -> Turn {
        let Direct { session, slot, ref mut lane, .. } = self.direct;
        if !lane.log.short_step(session.0, slot, self.overhead, used, StopCode::Yielded) {
            return self.yield_at_length(used);
        }
        let passed = lane.kernel.pass(used, |bound, overhead| (self.bound, self.overhead, self.token) = (bound, overhead, None));
        match passed {
            Some(tag) => {
                self.direct.slot = tag.slot();
                self.turn_of(tag)
            }
            None => self.yield_otherwise(used),
        }
    }

    /// A wait for a message, in the usual case.
    #[inline(always)]
    fn leave(&mut self, used: Cycles) -> Turn {
        if self.direct.waits != Some(RECEIVES) {
            return self.leave_otherwise(used);
        }
        let Direct { session, slot, ref mut lane, .. } = self.direct;
        if !lane.log.short_step(session.0, slot, self.overhead, used, wait_code(RECEIVES)) {
            return self.leave_otherwise(used);
        }
        self.uncounted += 1;
        let left =
            lane.kernel.leave_waiting(used, RECEIVES, |bound, overhead| (self.bound, self.overhead, self.token) = (bound, overhead, None));
        match left {
            Some(tag) => {
                self.direct.slot = tag.slot();
                self.turn_of(tag)
            }
            None => self.pick_after_wait(used, RECEIVES),
        }
    }

    #[inline(never)]
    fn finish(&mut self, used: Cycles, value: u64) -> Turn {
        let Direct { session, ref mut tasks, ref mut lane, slot, .. } = self.direct;
        if self.has_replies || !tasks.finish(slot, value as i64) {
            return self.finish_otherwise(used, value);
        }
        lane.log.finish(session.0, slot, self.overhead, used, value);
        self.ends = ENDS;
        self.uncounted += 1;
        *self.live -= 1;
        self.pick_after_end(used)
    }

    #[inline(always)]
    fn ahead(&mut self, each: &mut dyn FnMut(u32, Ahead)) -> u32 {
        let Direct { session, ref tasks, ref mut lane, .. } = self.direct;
        if tasks.live() < MANY {
            return 0;
        }
        let may_end = self.ends > 0;
        self.ends = self.ends.saturating_sub(1);
        lane.kernel.read_ahead(may_end, |tag, is_soon| {
            if tag.session() != session.0 {
                return;
            }
            if may_end && !is_soon {
                tasks.fetch(tag.slot());
            }
            each(tag.slot(), if is_soon { Ahead::Near } else { Ahead::Far });
        })
    }

    fn begins(&self, kind: &FunctionType) -> bool {
        is_entry(kind)
    }

    /// What `Group::spawn` does where nothing is refused.
    #[inline(never)]
    fn begin(&mut self, newborn: Newborn, places: u32) -> (u32, u64) {
        let Direct { session, ref mut tasks, ref mut lane, slot: parent, .. } = self.direct;
        if tasks.occupied() >= self.limit {
            return (Turn::NOBODY.slot, 0);
        }
        let reference = tasks.next_reference();
        let slot = reference.slot;
        let spawn = Spawn { tag: Tag::new(session.0, slot), ..self.spawn };
        let kernel = match lane.kernel.spawn_in_order(&spawn) {
            Some(kernel) => kernel,
            None => match lane.publish(spawn) {
                Ok(kernel) => kernel,
                Err(_) => return (Turn::NOBODY.slot, 0),
            },
        };
        if self.parent.0 != parent {
            core::hint::cold_path();
            self.parent = (parent, tasks.live_at(parent).key.children());
        }
        let key = tasks.next_child(parent, self.parent.1);
        let wait = if slot < places { Wait::None } else { Wait::unborn(newborn) };
        tasks.publish_at(reference, Task { kernel, key, wait }, lane.id);
        *self.live += 1;
        *self.wave_peak = (*self.wave_peak).max(*self.live);
        self.direct.counts.calls += 1;
        lane.log.event(&Event::Spawn {
            session: u64::from(session.0),
            slot: u64::from(slot),
            generation: u64::from(reference.generation),
            lane: u64::from(lane.id),
        });
        (slot, reference.to_guest() as u64)
    }

    #[inline(always)]
    fn take(&mut self, slot: u32, into: &mut Coroutine) -> bool {
        self.direct.tasks.take(slot, into)
    }

    fn keep(&mut self, slot: u32, coroutine: Coroutine, coroutines: &mut dyn Coroutines, is_needed: bool) {
        if is_needed {
            self.direct.tasks.put(slot, coroutine, coroutines);
        } else {
            self.direct.tasks.keep(slot, coroutine, coroutines);
        }
    }

    #[inline(always)]
    fn number(&mut self, slot: u32, put: &mut dyn FnMut(u64) -> bool) -> bool {
        self.direct.number(slot, put)
    }

    fn answer(&mut self, slot: u32, second: u64, memory_bytes: u64) -> Answer {
        self.direct.answer(slot, second, memory_bytes)
    }
}

impl Turns<'_> {
    /// The end of one that is not the usual: detached, or of one that has asked for random numbers. The session's first, its last, and one that others wait for,
    /// are not dealt with here.
    #[cold]
    #[inline(never)]
    fn finish_otherwise(&mut self, used: Cycles, value: u64) -> Turn {
        let Direct { session, ref mut tasks, ref mut lane, slot, .. } = self.direct;
        let is_first = tasks.reference_at(slot) == CoroutineRef::new(0, 0);
        if is_first || self.has_replies || tasks.live() == 1 || tasks.family(slot).joiners != NONE {
            return Turn::GOES_ON;
        }
        self.uncounted += 1;
        lane.log.step(session.0, slot, self.overhead, used, StopCode::Finished);
        lane.end(session, tasks, slot, EndStatus::Finished, value as i64);
        *self.live -= 1;
        self.pick_after_end(used)
    }

    /// A yield whose step is not one word in the log, or has no room there.
    #[cold]
    #[inline(never)]
    fn yield_at_length(&mut self, used: Cycles) -> Turn {
        let step = self.step(used, StopCode::Yielded);
        self.direct.lane.log.event(&step);
        self.yield_otherwise(used)
    }

    /// A yield that is not the usual one, when its step is in the log: of one that is alone, for a start.
    #[inline(never)]
    fn yield_otherwise(&mut self, used: Cycles) -> Turn {
        let kernel = &mut self.direct.lane.kernel;
        match kernel.pass_to_itself(used).or_else(|| kernel.pass_at_length(used)) {
            Some(began) => self.turn(began),
            None => self.pass_otherwise(used, Outcome::Yielded),
        }
    }

    /// A wait that is not to receive or whose step is not short, or a sleep.
    #[inline(never)]
    fn leave_otherwise(&mut self, used: Cycles) -> Turn {
        match self.direct.waits.replace(RECEIVES) {
            Some(reason) => {
                self.uncounted += 1;
                let step = self.step(used, wait_code(reason));
                self.direct.lane.log.usual(&step);
                self.pick_after_wait(used, reason)
            }
            None => {
                let step = self.step(used, StopCode::Slept);
                self.direct.lane.log.usual(&step);
                self.pick_after(used, Outcome::Slept(self.until))
            }
        }
    }

    /// The running coroutine goes to sleep, unless it only yields.
    fn sleep(&mut self, frames: u64) -> bool {
        if frames as i64 <= 0 {
            return false;
        }
        self.direct.waits = None;
        self.direct.lane.log.event(&Event::Sleep { frames });
        self.until = Frame(self.frame.0.saturating_add(frames));
        true
    }

    /// The event of the slice that ends now.
    #[inline(always)]
    fn step(&self, used: Cycles, stop: StopCode) -> Event<'static> {
        let Direct { session, slot, .. } = self.direct;
        Event::Step { session: u64::from(session.0), slot: u64::from(slot), overhead: self.overhead.0, used: used.0, stop }
    }

    /// The turn of a slice that has begun, if it is one of this session.
    #[inline(always)]
    fn turn(&mut self, Began { tag, bound, overhead }: Began) -> Turn {
        (self.bound, self.overhead, self.direct.slot) = (bound, overhead, tag.slot());
        self.token = None;
        self.turn_of(tag)
    }

    /// The turn of the slice that is open, if it is one of this session.
    #[inline(always)]
    fn turn_of(&self, tag: Tag) -> Turn {
        debug_assert!(self.bound <= LONGEST, "such a lane has no turns");
        if tag.session() != self.direct.session.0 {
            core::hint::cold_path();
            return Turn::NOBODY;
        }
        Turn { slot: tag.slot(), cycles: self.bound.0 as u32 }
    }

    /// [`Self::pick_after`] a wait that the kernel does not know from before.
    #[inline(never)]
    fn pick_after_wait(&mut self, used: Cycles, reason: BlockReason) -> Turn {
        self.pick_after(used, Outcome::Blocked(reason))
    }

    /// The kernel's part of the end of a slice whose coroutine has finished, and the next.
    #[inline(always)]
    fn pick_after_end(&mut self, used: Cycles) -> Turn {
        let begins = |bound, overhead| (self.bound, self.overhead, self.token) = (bound, overhead, None);
        match self.direct.lane.kernel.leave_finished(used, begins) {
            Some(tag) => {
                self.direct.slot = tag.slot();
                self.turn_of(tag)
            }
            None => self.pass_otherwise(used, Outcome::Finished),
        }
    }

    /// The kernel's part of the end of a slice whose coroutine is not ready any more, and the next.
    #[inline(always)]
    fn pick_after(&mut self, used: Cycles, outcome: Outcome) -> Turn {
        match self.direct.lane.kernel.leave(used, outcome) {
            Some(began) => self.turn(began),
            None => self.pass_otherwise(used, outcome),
        }
    }

    /// The kernel's part of the end of a slice that is not the usual one.
    #[cold]
    #[inline(never)]
    fn pass_otherwise(&mut self, used: Cycles, outcome: Outcome) -> Turn {
        let kernel = &mut self.direct.lane.kernel;
        let running = self.token.take().unwrap_or_else(|| kernel.token(self.bound));
        let reference = running.reference();
        let _ = kernel.stop(running, used, outcome);
        if outcome == Outcome::Finished {
            let _ = kernel.reap(reference).expect("the kernel just ended it");
        }
        let mark = kernel.clock();
        let next = kernel.dispatch();
        let overhead = kernel.clock() - mark;
        match next {
            Next::Run(running) => {
                let turn = self.turn(Began { tag: running.tag(), bound: running.bound(), overhead });
                self.token = Some(running);
                turn
            }
            rest => {
                (self.rest, self.overhead) = (Some(rest), overhead);
                Turn::NOBODY
            }
        }
    }
}

/// A slice that a lane has begun: its token, what the lane's clock had advanced by before it, and what it has spent and may still spend.
struct Slice {
    running: Running,
    overhead: Cycles,
    spent: Cycles,
    left: Cycles,
}

impl Group {
    /// Runs a lane to its wave's end: steps until there is none.
    pub(crate) fn run_lane(&mut self, lane: usize) {
        // Contexts decide and record between slices: such a lane goes step by step.
        if self.lanes[lane].kernel.has_contexts() {
            while self.step(lane) {}
            return;
        }
        let mut next = self.lanes[lane].dispatch();
        while let Next::Run(running) = next {
            next = self.turns(lane, running);
        }
    }

    /// Runs a slice, and those that follow it in the same session. Answers what the lane does next.
    fn turns(&mut self, lane: usize, running: Running) -> Next {
        let session = self.local[running.tag().session() as usize] as usize;
        if self.sessions[session].profile.is_some() || self.lanes[lane].kernel.longest_slice() > LONGEST {
            self.slice_of(lane, running);
            return self.lanes[lane].dispatch();
        }
        let mut slice = Slice { overhead: self.lanes[lane].overhead(), spent: Cycles::ZERO, left: running.bound(), running };
        loop {
            let (next, overhead, Turned { stop, began }) = self.run_turns((lane, session), slice);
            let Next::Run(running) = next else { return next };
            match stop {
                Some(Stop::Host(call)) if call.number != YIELD => {
                    let slot = running.tag().slot();
                    match self.host_operation(Place { lane, session, slot, began, running: &running }) {
                        Flow::Continue => {
                            let spent = self.sessions[session].tasks.coroutine_at(slot).used() - began;
                            slice = Slice { overhead, spent, left: self.lanes[lane].kernel.left(&running, spent), running };
                            continue;
                        }
                        flow => self.conclude((lane, session), began, overhead, running, flow),
                    }
                }
                Some(stop) => self.stopped((lane, session), began, overhead, running, stop, None),
                // It waits for an answer that is not given in place.
                None if self.sessions[session].id.0 == running.tag().session() => self.slice_of(lane, running),
                None => return Next::Run(running),
            }
            return self.lanes[lane].dispatch();
        }
    }

    /// The machine's part of [`Group::turns`], and what was counted meanwhile. Also gives the overhead before the slice that is open, if one is.
    fn run_turns(&mut self, (lane, session): (usize, usize), slice: Slice) -> (Next, Cycles, Turned) {
        let (state, lane_state) = (&mut self.sessions[session], &mut self.lanes[lane]);
        let (step_before, charged_before) = (lane_state.kernel.step(), lane_state.kernel.charged());
        let slot = slice.running.tag().slot();
        let first = (Turn { slot, cycles: slice.left.0 as u32 }, slice.spent.0 as u32);
        let mut coroutines = Nursery::new(core::mem::take(&mut state.tasks.coroutines));
        let state_spawn = state.spawn(slot);
        let mut turns = Turns {
            direct: direct!(state, lane_state, slot),
            rest: None,
            bound: slice.running.bound(),
            token: Some(slice.running),
            overhead: slice.overhead,
            uncounted: 0,
            frame: self.frame,
            until: self.frame,
            live: &mut self.live,
            wave_peak: &mut self.wave_peak,
            table: state.table.filter(|_| !state.exiting),
            parent: (NONE, Key(0).children()),
            spawn: state_spawn,
            limit: self.shared.limits.coroutines,
            ends: 0,
            has_replies: state.calls.as_ref().is_some_and(|calls| calls.open() > 0),
        };
        let turned = wavelock_machine::run_turns(&mut state.machine, &mut coroutines, first, &mut turns, YIELD);

        // All that was charged, and all slices but the one that may be open, were turns of this session; a wait counts as a call when it is answered.
        let (overhead, uncounted) = (turns.overhead, turns.uncounted);
        let (rest, token, bound, counts) = (turns.rest, turns.token, turns.bound, turns.direct.counts);
        let next = rest.unwrap_or_else(|| Next::Run(token.unwrap_or_else(|| lane_state.kernel.token(bound))));
        state.tasks.coroutines = coroutines.into_places();
        let steps = lane_state.kernel.step() - step_before + u64::from(!matches!(next, Next::Run(_)));
        state.count(counts);
        state.host_calls += steps - uncounted;
        state.cycles += (lane_state.kernel.charged() - charged_before).0;
        lane_state.steps += steps;
        lane_state.mark = lane_state.kernel.clock() - overhead;
        (next, overhead, turned)
    }
}
