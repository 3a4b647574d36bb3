//! The step engine: dispatch, one slice of the machine with its host operations, commit.
//!
//! ```text
//!   run_lane ─▶ dispatch ─▶ open ─▶ run ──────────────────────────▶ close ─▶ dispatch ...
//!                                    │ finish_wait: the answer that the coroutine waited for
//!                                    │ the machine: alone, or a batch of slices (`batch`)
//!                                    └ stopped: host operation, return or fault
//! ```
//!
//! Contract: [`Group::run_lane`] equals [`Group::step`] repeated until the wave has no step left,
//! with the same steps, log and state; `step_equals_run` and `in_place` compare them. A batch is
//! the fast path of the engine: it runs slices of one session without leaving the machine and
//! performs their most frequent operations in place. [`Group::may_batch`] is its predicate.
//! Profiling, probes, contexts and single steps run each slice alone.
//!
//! Elsewhere: host operations (`host`, `call`, `context`, `wasi`), how coroutines and sessions end
//! (`group`, `ending`).

use crate::batch::LONGEST_SLICE;
use crate::functions::FIRST_FUNCTION;
use crate::group::{Group, LaneState};
use crate::index::{LaneIndex, SessionIndex, TaskIndex};
use crate::session::{FAULTS_KEPT, FRAMES_KEPT, FaultRecord, FaultStack, LostStack};
use crate::task::EndStatus;
use wavelock_abi::{CoroutineRef, Cycles, FaultCode, HostOperation, SessionId};
use wavelock_kernel::{BlockReason, BoundReason, Lane, Next, Outcome, Running};
use wavelock_machine::{Fault, Stop};
use wavelock_trace::{Event, StopCode};

/// The slice that a host operation runs in.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) lane: LaneIndex,
    pub(crate) session: SessionIndex,
    pub(crate) slot: u32,
    /// Guest cycles the coroutine had been charged when the slice started.
    pub(crate) began: Cycles,
    /// The kernel's token of the slice.
    pub(crate) running: &'a Running,
}

impl Site<'_> {
    pub(crate) const fn task(&self) -> TaskIndex {
        TaskIndex { session: self.session, slot: self.slot }
    }
}

/// A slice that was dispatched and not committed yet.
pub(crate) struct Slice {
    pub(crate) lane: LaneIndex,
    pub(crate) session: SessionIndex,
    pub(crate) running: Running,
    /// Scheduler cycles before it, since the lane's last step.
    pub(crate) overhead: Cycles,
    /// As [`Site::began`].
    pub(crate) began: Cycles,
}

impl Slice {
    pub(crate) const fn site(&self) -> Site<'_> {
        let Self { lane, session, ref running, overhead: _, began } = *self;
        Site { lane, session, slot: running.tag().slot(), began, running }
    }
}

/// How a host operation leaves the coroutine.
pub(crate) enum Flow {
    /// It resumes.
    Continue,
    /// It has used its cycles.
    OutOfCycles,
    /// Its slice is over; it has its result or waits for one.
    Stop(Outcome, StopCode),
    /// It ended itself with a value.
    Exit(i64),
    /// It ended its whole session.
    ExitSession,
    /// It faulted.
    Fault,
}

/// How a batch ended.
pub(crate) enum Batched {
    /// The coroutine of the open slice stopped.
    Stopped(Slice, Stop),
    /// This slice was dispatched, and its coroutine takes the answer to its wait first.
    Dispatched(Slice),
    /// No slice of this session is open; the lane continues with this.
    Left(Next),
}

impl LaneState {
    /// Ends a step: the kernel's stop, and the step's event.
    fn commit(&mut self, slice: Slice, used: Cycles, outcome: Outcome, code: StopCode) {
        let tag = slice.running.tag();
        let _ = self.kernel.stop(slice.running, used, outcome);
        self.log_context_events();
        self.log_cap_events();
        self.log.step(tag.session(), tag.slot(), slice.overhead, used, code);
        self.mark = self.kernel.clock();
        self.steps += 1;
    }
}

impl Group {
    /// Runs a lane to the end of its wave.
    pub(crate) fn run_lane(&mut self, lane: LaneIndex) {
        let mut next = self.dispatch(lane);
        while let Next::Run(running) = next {
            let slice = self.open_slice(lane, running);
            let batches = self.may_batch(&slice);
            next = match self.run_slice(slice, batches) {
                Ok((slice, flow)) => {
                    self.close_slice(slice, flow);
                    self.dispatch(lane)
                }
                Err(next) => {
                    if !matches!(next, Next::Run(_)) {
                        self.serve_last_requests(lane);
                    }
                    next
                }
            };
        }
    }

    /// Serves what the last pick of a wave requested: the end of the wave cut it off from a slice,
    /// and it used up the cap of its session.
    fn serve_last_requests(&mut self, lane: LaneIndex) {
        if !self.lanes[lane].requests.is_empty() {
            self.serve_requests(lane);
        }
    }

    /// One step of a lane: [`Group::run_lane`] with a budget of one slice. `false` if the lane has
    /// no step left in this wave.
    pub(crate) fn step(&mut self, lane: LaneIndex) -> bool {
        let Next::Run(running) = self.dispatch(lane) else { return false };
        let slice = self.open_slice(lane, running);
        if let Ok((slice, flow)) = self.run_slice(slice, false) {
            self.close_slice(slice, flow);
        }
        true
    }

    /// The next dispatch of a lane.
    fn dispatch(&mut self, lane: LaneIndex) -> Next {
        if !self.lanes[lane].requests.is_empty() {
            self.serve_requests(lane);
        }
        let state = &mut self.lanes[lane];
        let next = state.kernel.dispatch();
        if !matches!(next, Next::Run(_)) {
            state.log_context_events();
            state.log_cap_events();
            self.serve_last_requests(lane);
        }
        next
    }

    /// The slice that the lane has just dispatched.
    pub(crate) fn open_slice(&mut self, lane: LaneIndex, running: Running) -> Slice {
        let tag = running.tag();
        let session = self.local[SessionId(tag.session())];
        let state = &self.lanes[lane];
        Slice {
            lane,
            session,
            overhead: state.kernel.clock() - state.mark,
            began: self.sessions[session].tasks.used_at(tag.slot()),
            running,
        }
    }

    /// Whether slices of this session may run in a batch. Contexts decide and record between
    /// slices, a profile stops at every safepoint, and a batch counts a slice's cycles in
    /// 32 bits.
    fn may_batch(&self, slice: &Slice) -> bool {
        let kernel = &self.lanes[slice.lane].kernel;
        !cfg!(feature = "plain")
            && !kernel.has_contexts()
            && !kernel.ends_by_cap(slice.running.tag().session())
            && self.sessions[slice.session].profile.is_none()
            && kernel.longest_slice() <= LONGEST_SLICE
    }

    /// Runs an open slice up to its end, and returns how it ends. With `batches` it may be closed
    /// on the way and others of the session follow: then the slice that is open at the end is
    /// returned; if none is, the error is what the lane continues with.
    pub(crate) fn run_slice(
        &mut self,
        mut slice: Slice,
        batches: bool,
    ) -> Result<(Slice, Flow), Next> {
        // A context may have less than a cycle left at its dispatch. The token's bound is a cycle
        // then, so that a slice that starts in guest code progresses.
        let starts = self.sessions[slice.session].tasks.live_at(slice.site().slot).wait.is_none();
        let mut bound = starts.then(|| slice.running.bound());
        let mut flow = self.finish_wait(slice.site());
        while let Flow::Continue = flow {
            let stop;
            if batches {
                match self.run_batch(slice) {
                    Batched::Stopped(open, reason) => (slice, stop) = (open, reason),
                    Batched::Dispatched(open) => {
                        slice = open;
                        flow = self.finish_wait(slice.site());
                        continue;
                    }
                    Batched::Left(next) => return Err(next),
                }
            } else {
                let bound = bound.take().unwrap_or_else(|| self.left(slice.site()));
                stop = self.run_alone(slice.site(), bound);
            }
            flow = self.stopped(slice.site(), stop);
        }
        Ok((slice, flow))
    }

    /// Runs the machine once, for at most `bound` cycles.
    fn run_alone(&mut self, site: Site<'_>, bound: Cycles) -> Stop {
        let state = &mut self.sessions[site.session];
        let coroutine = state.tasks.coroutine_at(site.slot);
        match &mut state.profile {
            None => wavelock_machine::run(&mut state.machine, coroutine, bound),
            Some(profile) => profile.run(&mut state.machine, coroutine, bound),
        }
    }

    /// The machine stopped: performs the pending host operation, if any.
    fn stopped(&mut self, site: Site<'_>, stop: Stop) -> Flow {
        match stop {
            Stop::OutOfCycles { .. } => Flow::OutOfCycles,
            Stop::Host(call) if call.number == HostOperation::Yield as u16 => {
                self.resume(site, &[]);
                Flow::Stop(Outcome::Yielded, StopCode::Yielded)
            }
            Stop::Host(call) if call.number >= FIRST_FUNCTION => {
                self.host_function(site, usize::from(call.number - FIRST_FUNCTION))
            }
            Stop::Host(_) => self.host_operation(site),
            Stop::Finished => self.function_returned(site),
            Stop::Fault(fault) => self.faulted(site, fault),
        }
    }

    /// Cycles that the running coroutine has used of its slice.
    #[inline]
    pub(crate) fn used(&mut self, site: Site<'_>) -> Cycles {
        self.sessions[site.session].tasks.used_at(site.slot) - site.began
    }

    /// Cycles the slice may still use. Asked of the kernel, because wakes that the slice caused
    /// have moved the lane's clock.
    #[inline]
    pub(crate) fn left(&mut self, site: Site<'_>) -> Cycles {
        let used = self.used(site);
        self.lanes[site.lane].kernel.left(site.running, used)
    }

    /// Commits a step: to the kernel, the log and, if its coroutine ended, to the session.
    fn close_slice(&mut self, slice: Slice, flow: Flow) {
        let Site { lane, session, slot, began, running } = slice.site();
        let state = &mut self.sessions[session];
        let (task, coroutine) = state.tasks.both_at(slot);
        let (used, reference) = (coroutine.used() - began, task.kernel);
        state.cycles += used.0;
        let (outcome, code) = match flow {
            Flow::Continue | Flow::OutOfCycles => {
                (Outcome::OutOfCycles, bound_code(reached(running, used, &self.lanes[lane].kernel)))
            }
            Flow::Stop(outcome, code) => (outcome, code),
            Flow::Exit(_) => (Outcome::Finished, StopCode::Finished),
            Flow::ExitSession => (Outcome::Finished, StopCode::SessionExit),
            Flow::Fault => (Outcome::Faulted, StopCode::Faulted),
        };
        self.lanes[lane].commit(slice, used, outcome, code);
        let (status, value) = match flow {
            Flow::Continue | Flow::OutOfCycles | Flow::Stop(..) => return,
            Flow::Exit(value) => (EndStatus::Finished, value),
            Flow::ExitSession => (EndStatus::Finished, 0),
            Flow::Fault => (EndStatus::Faulted, 0),
        };
        let _ = self.lanes[lane].kernel.reap(reference).expect("the kernel just ended it");
        self.end_task(lane, TaskIndex { session, slot }, status, value);
        if let Flow::ExitSession = flow {
            self.exit_session(lane, session);
        }
    }

    /// The coroutine's function returned. The first coroutine may have more to call; otherwise it
    /// exits with the function's value.
    fn function_returned(&mut self, site: Site<'_>) -> Flow {
        let state = &mut self.sessions[site.session];
        let first = state.tasks.reference_at(site.slot) == CoroutineRef::new(0, 0);
        let coroutine = state.tasks.coroutine_at(site.slot);
        if first && let Some(function) = state.startup.pop() {
            // Loading has checked its arguments and its own stack: only the session's limit on
            // stacks can be exceeded now.
            if coroutine.call_next(&state.machine, function, &[]).is_ok() {
                return Flow::Continue;
            }
            let fault = coroutine.fail(&state.machine, FaultCode::StackExhausted);
            return self.faulted(site, fault);
        }
        let value = coroutine.results().first().map_or(0, |&value| value as i64);
        state.note_exit(site.slot, value);
        Flow::Exit(value)
    }

    pub(crate) fn faulted(&mut self, site: Site<'_>, fault: Fault) -> Flow {
        let state = &mut self.sessions[site.session];
        let coroutine = state.tasks.reference_at(site.slot);
        if state.fault_stacks.len() < FAULTS_KEPT {
            let slot = site.slot;
            let (_, stack) = state.tasks.both_at(slot);
            let frames = stack.backtrace(&state.machine).take(FRAMES_KEPT).collect();
            let depth = stack.backtrace(&state.machine).count() as u64;
            let pointer = state.stack_pointer.and_then(|at| stack.global(&state.machine, at));
            let memory_bytes =
                state.memory.map_or(0, |memory| state.machine.memory(memory).bytes().len() as u64);
            // 0 is what `spawn` gives: a first push wraps around to the end of the address space.
            let is_lost =
                |&pointer: &u32| slot > 0 && (pointer == 0 || u64::from(pointer) > memory_bytes);
            let lost_stack = pointer
                .map(|pointer| pointer as u32)
                .filter(is_lost)
                .map(|pointer| LostStack { pointer, memory_bytes });
            state.fault_stacks.push(FaultStack { coroutine, frames, depth, lost_stack });
        }
        state.record_fault(FaultRecord {
            coroutine,
            code: fault.code,
            function: fault.function,
            offset: fault.offset,
        });
        self.lanes[site.lane].log.event(&Event::Fault {
            session: u64::from(state.id.0),
            slot: u64::from(site.slot),
            code: fault.code as u64,
            function: u64::from(fault.function),
            offset: u64::from(fault.offset),
        });
        Flow::Fault
    }
}

/// The bound that a slice out of cycles reached. Wakes it caused moved the lane's clock, so the
/// wave or frame may have ended, or the cap been used up, before a quantum that was nearer when the
/// slice started.
fn reached(running: &Running, used: Cycles, kernel: &Lane) -> BoundReason {
    match running.bound_reason() {
        BoundReason::Quantum
            if used < running.bound() && kernel.cap_left().is_some_and(|left| left <= used) =>
        {
            BoundReason::Cap
        }
        BoundReason::Quantum
            if used < running.bound() && kernel.clock() + used >= kernel.frame_end() =>
        {
            BoundReason::FrameEnd
        }
        BoundReason::Quantum if used < running.bound() => BoundReason::WaveEnd,
        reason => reason,
    }
}

const fn bound_code(reason: BoundReason) -> StopCode {
    match reason {
        BoundReason::Cap => StopCode::EndOfCap,
        BoundReason::Refill => StopCode::EndOfRefill,
        BoundReason::Release => StopCode::Release,
        BoundReason::FrameEnd => StopCode::EndOfFrame,
        BoundReason::Quantum => StopCode::EndOfQuantum,
        BoundReason::WaveEnd => StopCode::EndOfWave,
    }
}

/// The stop code of a wait.
pub(crate) const fn wait_code(reason: BlockReason) -> StopCode {
    match reason {
        BlockReason::ChannelSend => StopCode::WaitSend,
        BlockReason::ChannelReceive => StopCode::WaitReceive,
        BlockReason::Select => StopCode::WaitSelect,
        BlockReason::Join => StopCode::WaitJoin,
        BlockReason::Input => StopCode::WaitInput,
        BlockReason::OtherLane => StopCode::WaitLane,
        BlockReason::Reply => StopCode::WaitReply,
        BlockReason::Park => StopCode::WaitPark,
        BlockReason::Session => StopCode::WaitSession,
    }
}
