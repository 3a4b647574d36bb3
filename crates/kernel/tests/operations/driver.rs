//! One operation on the kernel and on the model, every answer compared.
//!
//! The driver owns both sides. References come from the kernel, which may choose any slot; the
//! model checks that each is fresh. Everything else the two must agree on: decisions with bound and
//! reason, refusals with their facts, moved tags and their order, rows, ledgers, clocks, digests.
//! Elsewhere: which operation comes next (`generate`).

use super::{End, Event, Op, Reached, Setup};
use crate::model::Fault;
use crate::model::lane::{
    Account, CapNews, Decision, Left, Limit, ModelLane, Refused, Row, Settings, State,
};
use crate::model::machine::{Delivery, Machine, Post, Theft};
use crate::support::lane_set::{Applied, Effect, LaneSet, Posted, Steal, WaveSpan};
use wavelock_abi::{
    CoroutineRef, Cycles, Frame, LaneId, LatencyClass, Priority, SCHEDULER_COSTS_V1, Weight,
};
use wavelock_kernel::{
    BlockReason, BoundReason, CapEventKind, CapOverrun, CapSettings, FrameRow, HoldReason, Lane,
    LaneSettings, Ledger, MoveBan, Next, Outcome, Refusal, Reservation, Running, Share, Spawn,
    Stopped, Tag, WakeSource,
};

/// Where the two sides differ, in words.
pub(crate) type Difference = String;

/// A coroutine the sequence has a number for.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) lane: usize,
    pub(crate) reference: CoroutineRef,
    /// Where it was before it last moved, and as what.
    before: Option<(usize, CoroutineRef)>,
    /// Reaped, or ended with its session.
    pub(crate) gone: bool,
}

/// Both sides, and what the sequence knows.
pub(crate) struct World {
    pub(crate) setup: Setup,
    kernel: LaneSet,
    pub(crate) model: Machine,
    /// By number; a number whose spawn was dropped from the sequence has none.
    pub(crate) names: Vec<Option<Named>>,
    /// Numbers given out since the generator last looked.
    pub(crate) fresh: Vec<u32>,
    /// The open slice of each lane.
    slices: Vec<Option<Running>>,
    /// Lanes that had nothing to run when last asked.
    pub(crate) quiet: Vec<bool>,
    pub(crate) reached: Reached,
    applied: u64,
}

fn same<T: PartialEq + core::fmt::Debug>(
    what: &str,
    kernel: T,
    model: T,
) -> Result<(), Difference> {
    if kernel == model {
        Ok(())
    } else {
        Err(format!("{what}: the kernel says {kernel:?}, the model {model:?}"))
    }
}

fn state(state: wavelock_kernel::State) -> State {
    match state {
        wavelock_kernel::State::Ready => State::Ready,
        wavelock_kernel::State::Running => State::Running,
        wavelock_kernel::State::Sleeping { until } => State::Sleeping { until: until.0 },
        wavelock_kernel::State::Blocked { reason } => State::Blocked(reason),
        wavelock_kernel::State::Throttled { held } => State::Held(held.code()),
        wavelock_kernel::State::Finished => State::Finished,
        wavelock_kernel::State::Faulted => State::Faulted,
        wavelock_kernel::State::Canceled => State::Canceled,
    }
}

fn refused(refusal: Refusal) -> Refused {
    match refusal {
        Refusal::Stale { .. } => Refused::Stale,
        Refusal::NotWaiting { state: found } => Refused::NotWaiting(state(found)),
        Refusal::WrongSource { reason, source } => Refused::WrongSource(reason, source),
        Refusal::InSlice { reference } => Refused::InSlice(reference),
        Refusal::NotEnded { state: found } => Refused::NotEnded(state(found)),
        Refusal::Ended { state: found } => Refused::Ended(state(found)),
        Refusal::NotHeld { reason, held } => Refused::NotHeld(reason, held.code()),
        Refusal::NotReady { state: found } => Refused::NotReady(state(found)),
        Refusal::SlotTaken { by } => Refused::SlotTaken(by),
        Refusal::HandoffOff => Refused::HandoffOff,
        Refusal::NoSession { .. } => Refused::NoSession,
        _ => Refused::Unexpected,
    }
}

fn account(ledger: Ledger) -> Account {
    Account {
        runtime: ledger.runtime.0,
        wait_total: ledger.wait_total.0,
        wait_longest: ledger.wait_longest.0,
        switches: ledger.switches,
        preemptions: ledger.preemptions,
        blocks: ledger.blocks,
        sleeps: ledger.sleeps,
        migrations: ledger.migrations,
        steals: ledger.steals,
    }
}

fn row(row: FrameRow) -> Row {
    Row {
        frame: row.frame.0,
        charged: row.charged.0,
        overhead: row.overhead.0,
        idle: row.idle.0,
        overrun_in: row.overrun_in.0,
        overrun_out: row.overrun_out.0,
    }
}

fn decision(running: &Running) -> Decision {
    Decision::Run {
        reference: running.reference(),
        bound: running.bound().0,
        limit: match running.bound_reason() {
            BoundReason::Refill | BoundReason::Release => unreachable!("no contexts here"),
            BoundReason::FrameEnd => Limit::FrameEnd,
            BoundReason::Quantum => Limit::Quantum,
            BoundReason::WaveEnd => Limit::WaveEnd,
            BoundReason::Cap => Limit::Cap,
        },
        picked: running.picked(),
        switched: running.switched(),
    }
}

fn left(stopped: Stopped) -> Left {
    match stopped {
        Stopped::Requeued => Left::Requeued,
        Stopped::Kept => Left::Kept,
        Stopped::Waiting => Left::Waiting,
        Stopped::Throttled => Left::Held,
        Stopped::Ended => Left::Ended,
    }
}

fn delivery(posted: &Posted, applied: &Applied) -> Result<(Post, Delivery), Difference> {
    let post = Post {
        from: usize::from(posted.from.0),
        step: posted.step,
        sequence: posted.sequence,
        to: usize::from(posted.to.0),
        effect: posted.effect,
    };
    let delivery = match *applied {
        Applied::Woken(result) => Delivery::Woken(result.map_err(refused)),
        Applied::Published(Ok(reference)) => Delivery::Published(reference),
        Applied::Published(Err(refusal)) => {
            return Err(format!("an effect could not publish: {refusal:?}"));
        }
        Applied::HandedOff { woken, preferred } => {
            Delivery::HandedOff { woken: woken.map_err(refused), preferred }
        }
    };
    Ok((post, delivery))
}

impl World {
    pub(crate) fn new(setup: Setup, fault: Option<Fault>) -> Self {
        let policy = setup.kind.policy(setup.quantum);
        let settings = LaneSettings {
            policy,
            frame_cycles: Cycles(setup.frame_cycles),
            costs: SCHEDULER_COSTS_V1,
            handoff: setup.handoff,
        };
        let mut kernel = LaneSet::new(setup.lanes, settings);
        let more = Reservation { coroutines: setup.population + 64, sessions: 64 };
        for lane in 0..setup.lanes {
            kernel[LaneId(lane)].reserve(more).expect("memory");
        }
        let settings =
            Settings { policy, frame_cycles: setup.frame_cycles, handoff: setup.handoff };
        let lanes = usize::from(setup.lanes);
        let model = Machine::new(lanes, settings, fault);
        let slices = (0..lanes).map(|_| None).collect();
        let mut world = Self {
            setup,
            kernel,
            model,
            names: Vec::new(),
            fresh: Vec::new(),
            slices,
            quiet: vec![false; lanes],
            reached: Reached::new(),
            applied: 0,
        };
        world.set_caps();
        world
    }

    /// Caps a few sessions of the one lane, one for each of its overrun policies and periods.
    fn set_caps(&mut self) {
        if !self.setup.capped {
            return;
        }
        assert_eq!(self.setup.lanes, 1, "an account is on one lane");
        for session in 0..6 {
            let settings = CapSettings {
                budget: Cycles(200 + u64::from(session) * self.setup.frame_cycles / 12),
                period_frames: 1 + u64::from(session / 3),
                overrun: CapOverrun::ALL[session as usize % 3],
            };
            let (kernel, model) = self.lane(0);
            kernel.set_cap(session, settings).expect("a cap that can be enforced");
            model.set_cap(session, settings);
        }
    }

    /// Compares what happened to caps, and ends the sessions that used up one with `end`.
    fn compare_caps(&mut self) -> Result<(), Difference> {
        let (kernel, model) = self.lane(0);
        let mut news = Vec::new();
        kernel.drain_cap_events(|event| {
            let (session, used) = (event.session, event.used.0);
            news.push(match event.kind {
                CapEventKind::Throttled { until } => {
                    CapNews::Throttled { session, used, until: until.0 }
                }
                CapEventKind::Demoted { until } => {
                    CapNews::Demoted { session, used, until: until.0 }
                }
                CapEventKind::Ended => CapNews::Ended { session, used },
                CapEventKind::Refilled => CapNews::Refilled { session, used },
            });
        });
        same("what happened to caps", &news, &core::mem::take(&mut model.cap_news))?;
        let accounts: Vec<_> = kernel
            .caps()
            .iter()
            .map(|cap| (cap.used.0, cap.is_spent, cap.counts.demoted.0))
            .collect();
        let expected: Vec<_> = (0..6)
            .filter_map(|session| model.cap(session))
            .map(|cap| (cap.used, cap.spent, cap.demoted))
            .collect();
        same("accounts", accounts, expected)?;
        for found in news {
            match found {
                CapNews::Throttled { .. } => self.reached.count(Event::Throttled, 1),
                CapNews::Demoted { .. } => self.reached.count(Event::Demoted, 1),
                CapNews::Refilled { .. } => self.reached.count(Event::Refilled, 1),
                CapNews::Ended { session, .. } => {
                    self.reached.count(Event::EndedByCap, 1);
                    self.end_session(0, session)?;
                }
            }
        }
        Ok(())
    }

    fn lane(&mut self, lane: usize) -> (&mut Lane, &mut ModelLane) {
        (&mut self.kernel[LaneId(lane as u16)], &mut self.model.lanes[lane])
    }

    pub(crate) fn is_open(&self, lane: usize) -> bool {
        self.slices[lane].is_some()
    }

    /// The cycles the open slice of a lane may run.
    pub(crate) fn bound(&self, lane: usize) -> u64 {
        self.slices[lane].as_ref().map_or(0, |running| running.bound().0)
    }

    fn all_closed(&self) -> bool {
        self.slices.iter().all(Option::is_none)
    }

    fn named(&self, name: u32, old: bool) -> Option<(usize, CoroutineRef)> {
        let named = self.names.get(name as usize)?.as_ref()?;
        if old { named.before } else { Some((named.lane, named.reference)) }
    }

    fn give_name(&mut self, name: u32, lane: usize, reference: CoroutineRef) {
        if self.names.len() <= name as usize {
            self.names.resize(name as usize + 1, None);
        }
        self.fresh.push(name);
        self.names[name as usize] = Some(Named { lane, reference, before: None, gone: false });
    }

    fn has_moved(&mut self, tag: Tag, lane: usize, reference: CoroutineRef) {
        let named = self.names[tag.slot() as usize].as_mut().expect("what moves has a name");
        named.before = Some((named.lane, named.reference));
        (named.lane, named.reference) = (lane, reference);
    }

    fn compare<T: PartialEq + core::fmt::Debug>(
        &mut self,
        what: &str,
        kernel: Result<T, Refusal>,
        model: Result<T, Refused>,
    ) -> Result<Option<T>, Difference> {
        let kernel = kernel.map_err(refused);
        match kernel {
            Err(Refused::Stale) => self.reached.count(Event::Stale, 1),
            Err(_) => self.reached.count(Event::Refusal, 1),
            Ok(_) => {}
        }
        if kernel != model {
            return Err(format!("{what}: the kernel says {kernel:?}, the model {model:?}"));
        }
        Ok(kernel.ok())
    }

    /// Does one operation on both sides, and checks what the setup asks for after so many.
    pub(crate) fn apply(&mut self, op: Op) -> Result<(), Difference> {
        self.perform(op)?;
        if self.setup.capped {
            self.compare_caps()?;
        }
        self.compare_clocks()?;
        self.applied += 1;
        if self.applied.is_multiple_of(self.setup.check_every) {
            self.compare_everything()?;
        }
        Ok(())
    }

    // Long: one arm per operation; each is a call on both sides.
    fn perform(&mut self, op: Op) -> Result<(), Difference> {
        match op {
            Op::Spawn { name, lane, session, priority, weight, class } => {
                let spawn = Spawn {
                    tag: Tag::new(session, name),
                    priority: Priority(priority),
                    weight: Weight::new(weight).expect("not zero"),
                    latency: LatencyClass::ALL[usize::from(class)],
                    session: share_of(session),
                };
                let (kernel, model) = self.lane(usize::from(lane));
                let reference = kernel
                    .spawn(spawn)
                    .map_err(|refusal| format!("spawn was refused: {refusal:?}"))?;
                model.spawn(reference, spawn);
                self.give_name(name, usize::from(lane), reference);
                self.quiet[usize::from(lane)] = false;
                Ok(())
            }
            Op::Dispatch { lane } => self.dispatch(usize::from(lane)),
            Op::DispatchNext => self.dispatch_next(),
            Op::Stop { lane, used, end } => self.stop(usize::from(lane), used, end),
            Op::Wake { name, old, source } => self.wake(name, old, source),
            Op::Hold { name, old, reason } => self.hold(name, old, reason),
            Op::Release { name, old, reason } => {
                let Some((lane, reference)) = self.named(name, old) else { return Ok(()) };
                let reason = self.hold_reason(reason);
                let (kernel, model) = self.lane(lane);
                let (kernel, model) =
                    (kernel.release(reference, reason), model.release(reference, reason));
                let done = self.compare("release", kernel, model)?.is_some();
                self.reached.count(Event::Release, u64::from(done));
                self.quiet[lane] = false;
                Ok(())
            }
            Op::Cancel { name, old } => {
                let Some((lane, reference)) = self.named(name, old) else { return Ok(()) };
                let (kernel, model) = self.lane(lane);
                let (kernel, model) = (kernel.cancel(reference), model.cancel(reference));
                self.compare("cancel", kernel, model).map(|_| ())
            }
            Op::Reap { name, old } => {
                let Some((lane, reference)) = self.named(name, old) else { return Ok(()) };
                let (kernel, model) = self.lane(lane);
                let (kernel, model) = (kernel.reap(reference).map(account), model.reap(reference));
                if self.compare("reap", kernel, model)?.is_some() {
                    self.names[name as usize].as_mut().expect("it has a name").gone = true;
                }
                Ok(())
            }
            Op::EndSession { lane, session } => self.end_session(usize::from(lane), session),
            Op::Prefer { name, old } => {
                let Some((lane, reference)) = self.named(name, old) else { return Ok(()) };
                let (kernel, model) = self.lane(lane);
                let (kernel, model) = (kernel.prefer(reference), model.prefer(reference));
                self.compare("prefer", kernel, model).map(|_| ())
            }
            Op::SetPriority { name, old, priority } => {
                let Some((lane, reference)) = self.named(name, old) else { return Ok(()) };
                let (kernel, model) = self.lane(lane);
                let (kernel, model) = (
                    kernel.set_priority(reference, Priority(priority)),
                    model.set_priority(reference, priority),
                );
                self.compare("set priority", kernel, model).map(|_| ())
            }
            Op::SetShare { name, old, weight, class } => {
                let Some((lane, reference)) = self.named(name, old) else { return Ok(()) };
                let class = LatencyClass::ALL[usize::from(class)];
                let share = Share { weight: Weight::new(weight).expect("not zero"), class };
                let (kernel, model) = self.lane(lane);
                let (kernel, model) =
                    (kernel.set_share(reference, share), model.set_share(reference, weight, class));
                self.compare("set share", kernel, model).map(|_| ())
            }
            Op::SetSessionShare { lane, session, weight, class } => {
                let class = LatencyClass::ALL[usize::from(class)];
                let share = Share { weight: Weight::new(weight).expect("not zero"), class };
                let (kernel, model) = self.lane(usize::from(lane));
                let (kernel, model) = (
                    kernel.set_session_share(session, share),
                    model.set_session_share(session, weight, class),
                );
                self.compare("set session share", kernel, model).map(|_| ())
            }
            Op::SetPolicy { lane, kind, quantum } => {
                let lane = usize::from(lane);
                if self.is_open(lane) {
                    return Ok(());
                }
                let (kernel, model) = self.lane(lane);
                kernel
                    .set_policy(kind.policy(quantum))
                    .map_err(|refusal| format!("set policy was refused: {refusal:?}"))?;
                model.set_policy(kind.policy(quantum));
                self.reached.count(Event::PolicySwitch, 1);
                Ok(())
            }
            Op::PostWake { from, name, old, source } => {
                let Some((to, target)) = self.named(name, old) else { return Ok(()) };
                self.post(
                    from,
                    to,
                    Effect::Wake { target, source: WakeSource::ALL[usize::from(source)] },
                )
            }
            Op::PostHandoff { from, name, old, source } => {
                let Some((to, target)) = self.named(name, old) else { return Ok(()) };
                let source = WakeSource::ALL[usize::from(source)];
                let effect = Effect::Handoff { target, source };
                self.post(from, to, effect)
            }
            Op::PostSpawn { from, to, name, session, priority } => {
                let spawn = Spawn {
                    priority: Priority(priority),
                    session: share_of(session),
                    ..Spawn::new(Tag::new(session, name))
                };
                self.post(from, usize::from(to), Effect::Publish(spawn))
            }
            Op::Migrate { session, from, to } => {
                self.migrate(session, usize::from(from), usize::from(to))
            }
            Op::Steal { lane, banned } => self.steal(usize::from(lane), banned),
            Op::Rebuild { lane } => self.rebuild(usize::from(lane)),
            Op::Measure { lane, on } => {
                self.lane(usize::from(lane)).0.set_measured(on);
                Ok(())
            }
            Op::Wave { picks, span } => self.wave(picks, span),
            Op::NextFrame { skip, picks, span } => self.next_frame(1 + skip, picks, span),
            Op::Jump { picks, span } => self.jump(picks, span),
        }
    }

    fn began(&mut self, lane: usize, next: Next) -> Decision {
        let answer = match &next {
            Next::Run(running) => decision(running),
            Next::Idle => Decision::Idle,
            Next::Over => Decision::Over,
        };
        self.quiet[lane] = !matches!(next, Next::Run(_));
        if let Next::Run(running) = next {
            self.reached.count(Event::Slice, 1);
            self.slices[lane] = Some(running);
        }
        answer
    }

    fn dispatch(&mut self, lane: usize) -> Result<(), Difference> {
        if self.is_open(lane) {
            return Ok(());
        }
        let explains = self.setup.check_every == 1;
        let (kernel, model) = self.lane(lane);
        let before = model.current();
        let explained = if explains { kernel.explain() } else { None };
        let (kernel, model) = (kernel.dispatch(), model.dispatch());
        if let (true, Decision::Run { reference, .. }) = (explains, model) {
            same(
                "explanation",
                explained.map(|explained| explained.winner.reference),
                Some(reference),
            )?;
            self.reached.count(Event::Explained, 1);
        }
        if let (Some(before), Decision::Run { picked: true, .. }) = (before, model) {
            let displaced = self.model.lanes[lane].state(before) == Ok(State::Ready);
            self.reached.count(Event::Displaced, u64::from(displaced));
        }
        let kernel = self.began(lane, kernel);
        same("dispatch", kernel, model)
    }

    fn dispatch_next(&mut self) -> Result<(), Difference> {
        if !self.all_closed() {
            return Ok(());
        }
        let kernel = self.kernel.dispatch();
        let model = self.model.dispatch();
        let kernel = kernel.map(|(lane, running)| {
            let lane = usize::from(lane.0);
            (lane, self.began(lane, Next::Run(running)))
        });
        if kernel.is_none() {
            self.quiet.fill(true);
        }
        same("dispatch in canonical order", kernel, model)
    }

    fn stop(&mut self, lane: usize, used: u64, end: End) -> Result<(), Difference> {
        let Some(running) = self.slices[lane].take() else { return Ok(()) };
        let outcome = match end {
            End::Yield => Outcome::Yielded,
            End::Sleep(frames) => Outcome::Slept(Frame(self.model.lanes[lane].frame() + frames)),
            End::Block(reason) => Outcome::Blocked(BlockReason::ALL[usize::from(reason)]),
            End::Spent => Outcome::OutOfCycles,
            End::Finish => Outcome::Finished,
            End::Fault => Outcome::Faulted,
        };
        let (kernel, model) = self.lane(lane);
        let delayed = model.fair().map_or(0, |fair| fair.delayed());
        let (kernel, model) =
            (left(kernel.stop(running, Cycles(used), outcome)), model.stop(used, outcome));
        let delayed =
            self.model.lanes[lane].fair().map_or(0, |fair| fair.delayed()).saturating_sub(delayed);
        self.reached.count(Event::Delayed, delayed as u64);
        self.reached.count(Event::Kept, u64::from(model == Left::Kept));
        self.reached
            .count(Event::Preempted, u64::from(model == Left::Requeued && end == End::Spent));
        self.reached
            .count(Event::Sleep, u64::from(model == Left::Waiting && matches!(end, End::Sleep(_))));
        same("stop", kernel, model)
    }

    fn wake(&mut self, name: u32, old: bool, source: u8) -> Result<(), Difference> {
        let Some((lane, reference)) = self.named(name, old) else { return Ok(()) };
        let source = WakeSource::ALL[usize::from(source)];
        let open = self.is_open(lane);
        let (kernel, model) = self.lane(lane);
        let (kernel, model) = (kernel.wake(reference, source), model.wake(reference, source));
        if self.compare("wake", kernel, model)?.is_some() {
            self.reached.count(Event::Wake, 1);
            self.reached.count(Event::WakeInSlice, u64::from(open));
            self.quiet[lane] = false;
        }
        Ok(())
    }

    /// A reason to hold; what a cap holds is its own business.
    fn hold_reason(&self, reason: u8) -> HoldReason {
        match HoldReason::ALL[usize::from(reason)] {
            HoldReason::Cap if self.setup.capped => HoldReason::Operator,
            reason => reason,
        }
    }

    fn hold(&mut self, name: u32, old: bool, reason: u8) -> Result<(), Difference> {
        let Some((lane, reference)) = self.named(name, old) else { return Ok(()) };
        let reason = self.hold_reason(reason);
        let in_slice = self.is_open(lane) && self.model.lanes[lane].current() == Some(reference);
        let (kernel, model) = self.lane(lane);
        let (kernel, model) = (kernel.hold(reference, reason), model.hold(reference, reason));
        if self.compare("hold", kernel, model)?.is_some() {
            self.reached.count(Event::Hold, 1);
            self.reached.count(Event::HeldInSlice, u64::from(in_slice));
        }
        Ok(())
    }

    fn end_session(&mut self, lane: usize, session: u32) -> Result<(), Difference> {
        let mut ended = Vec::new();
        let (kernel, model) = self.lane(lane);
        let kernel =
            kernel.end_session(session, |tag, ledger| ended.push((tag.0, account(ledger))));
        let kernel = kernel.map(|count| (count as usize, ended));
        let model = model.end_session(session).map(|ended| (ended.len(), ended));
        if let Some((count, ended)) = self.compare("end session", kernel, model)? {
            self.reached.count(Event::SessionEnd, u64::from(count > 0));
            for (tag, _) in ended {
                self.names[Tag(tag).slot() as usize].as_mut().expect("it has a name").gone = true;
            }
        }
        Ok(())
    }

    fn post(&mut self, from: u16, to: usize, effect: Effect) -> Result<(), Difference> {
        if usize::from(from) == to {
            return Ok(());
        }
        let kernel = self.kernel.post(LaneId(from), LaneId(to as u16), effect);
        same("post", kernel, self.model.post(usize::from(from), to, effect))
    }

    fn migrate(&mut self, session: u32, from: usize, to: usize) -> Result<(), Difference> {
        if from == to {
            return Ok(());
        }
        let mut moved = Vec::new();
        let each = |tag: Tag, reference: CoroutineRef| moved.push((tag, reference));
        let kernel = self.kernel.migrate(session, LaneId(from as u16), LaneId(to as u16), each);
        let references: Vec<CoroutineRef> = moved.iter().map(|&(_, reference)| reference).collect();
        let model = self.model.migrate(session, from, to, &references);
        let kernel = kernel.map(|count| {
            (count as usize, moved.iter().map(|(tag, _)| tag.0).collect::<Vec<u64>>())
        });
        let model = model.map(|tags| (tags.len(), tags));
        if self.compare("migrate", kernel, model)?.is_some() {
            self.reached.count(Event::Migration, 1);
            self.quiet[to] = false;
            moved.into_iter().for_each(|(tag, reference)| self.has_moved(tag, to, reference));
        }
        Ok(())
    }

    fn steal(&mut self, thief: usize, banned: u32) -> Result<(), Difference> {
        let mut moved = Vec::new();
        let ban = |session: u32| (session == banned).then_some(MoveBan::Pinned);
        let kernel = self
            .kernel
            .steal(LaneId(thief as u16), ban, |tag, reference| moved.push((tag, reference)));
        let references: Vec<CoroutineRef> = moved.iter().map(|&(_, reference)| reference).collect();
        let model = self.model.steal(thief, |session| session == banned, &references);
        let tags: Vec<u64> = moved.iter().map(|(tag, _)| tag.0).collect();
        let kernel = match kernel.map_err(|refusal| format!("steal was refused: {refusal:?}"))? {
            Steal::Won { session, victim, coroutines } => {
                same("coroutines stolen", coroutines as usize, tags.len())?;
                self.reached.count(Event::Steal, 1);
                Theft::Won { session, victim: usize::from(victim.0), moved: tags }
            }
            Steal::Busy => Theft::Busy,
            Steal::Nothing(_) => Theft::Nothing,
        };
        self.quiet[thief] = false;
        moved.into_iter().for_each(|(tag, reference)| self.has_moved(tag, thief, reference));
        same("steal", kernel, model)
    }

    fn rebuild(&mut self, lane: usize) -> Result<(), Difference> {
        let id = LaneId(lane as u16);
        if self.is_open(lane) {
            return Ok(());
        }
        let exported = self.kernel[id].export();
        let rebuilt = Lane::rebuild(&exported, u32::MAX)
            .map_err(|refused| format!("rebuild was refused: {refused:?}"))?;
        if rebuilt.export() != exported {
            return Err(format!(
                "a rebuilt lane exports something else: {:?} from {exported:?}",
                rebuilt.export()
            ));
        }
        self.kernel[id] = rebuilt;
        self.reached.count(Event::Rebuild, 1);
        Ok(())
    }

    fn end_wave(&mut self) -> Result<(), Difference> {
        let mut delivered = Vec::new();
        self.kernel.end_wave(|posted, applied| delivered.push((posted, applied)));
        let mut published = Vec::new();
        for (posted, applied) in &delivered {
            if let (Effect::Publish(spawn), Applied::Published(Ok(reference))) =
                (posted.effect, applied)
            {
                published.push(*reference);
                self.give_name(spawn.tag.slot(), usize::from(posted.to.0), *reference);
            }
        }
        let kernel: Result<Vec<_>, _> =
            delivered.iter().map(|(posted, applied)| delivery(posted, applied)).collect();
        let kernel = kernel?;
        let model = self.model.end_wave(&published);
        self.reached.count(Event::Effect, kernel.len() as u64);
        let handed = kernel
            .iter()
            .filter(|(_, what)| matches!(what, Delivery::HandedOff { preferred: true, .. }))
            .count();
        self.reached.count(Event::RemoteHandoff, handed as u64);
        same("effects", kernel, model)
    }

    fn begin_wave(&mut self, picks: bool, span: u64) {
        let span =
            if picks { WaveSpan::Picks(span as u32) } else { WaveSpan::Cycles(Cycles(span)) };
        self.kernel.begin_wave(span);
        self.model.begin_wave(span);
        self.quiet.fill(false);
    }

    fn wave(&mut self, picks: bool, span: u64) -> Result<(), Difference> {
        if !self.all_closed() {
            return Ok(());
        }
        self.end_wave()?;
        self.begin_wave(picks, span);
        Ok(())
    }

    fn next_frame(&mut self, ahead: u64, picks: bool, span: u64) -> Result<(), Difference> {
        if !self.all_closed() {
            return Ok(());
        }
        self.end_wave()?;
        let mut rows = Vec::new();
        self.kernel.end_frame(|ended| rows.push(ended));
        if let Some(bad) =
            rows.iter().find(|ended| !ended.is_conserved(Cycles(self.setup.frame_cycles)))
        {
            return Err(format!("a row does not add up: {bad:?}"));
        }
        let kernel: Vec<Row> = rows.into_iter().map(row).collect();
        self.reached.count(
            Event::Overrun,
            kernel.iter().filter(|ended| ended.overrun_out > 0).count() as u64,
        );
        same("rows of the frame", kernel, self.model.end_frame())?;
        // Overruns larger than a frame cannot happen to a machine (they are below G); the grid goes
        // on where the clock is.
        let latest = self.model.lanes.iter().map(|lane| lane.clock).max().unwrap_or(0)
            / self.setup.frame_cycles;
        let frame = (self.model.lanes[0].frame() + ahead).max(latest);
        let woken = self.kernel.begin_frame(Frame(frame));
        self.reached.count(Event::SleepersWoken, u64::from(woken));
        same("sleepers woken", woken, self.model.begin_frame(frame))?;
        self.begin_wave(picks, span);
        Ok(())
    }

    fn jump(&mut self, picks: bool, span: u64) -> Result<(), Difference> {
        if !self.all_closed() {
            return Ok(());
        }
        let kernel = self.kernel.next_wake();
        same("frame of the next sleeper", kernel.map(|frame| frame.0), self.model.next_wake())?;
        let Some(frame) = kernel else { return Ok(()) };
        self.reached.count(Event::Jump, 1);
        self.next_frame(frame.0.saturating_sub(self.model.lanes[0].frame()).max(1), picks, span)
    }

    /// What every operation can have moved, cheaply.
    fn compare_clocks(&mut self) -> Result<(), Difference> {
        for lane in 0..self.slices.len() {
            let (kernel, model) = self.lane(lane);
            let overhead = kernel.totals().overhead.map(|cycles| cycles.0);
            same("overhead rows", overhead, model.overhead)?;
            let totals = kernel.totals();
            same(
                "clock, charged and idle",
                (kernel.clock().0, totals.charged.0, totals.idle.0),
                (model.clock, model.charged, model.idle),
            )?;
            same("clock and what it is made of", kernel.clock().0, totals.total().0)?;
            same("picks and steps", (kernel.picks(), kernel.step()), (model.picks, model.steps))?;
            same("wakes", *kernel.wakes(), model.wakes)?;
            same(
                "frame",
                (kernel.frame().0, kernel.frame_end().0),
                (model.frame(), model.frame_end()),
            )?;
            same("current coroutine", kernel.current(), model.current())?;
        }
        for (lane, running) in self
            .slices
            .iter()
            .enumerate()
            .filter_map(|(lane, running)| Some((lane, running.as_ref()?)))
        {
            let kernel = &self.kernel[LaneId(lane as u16)];
            for used in [0, running.bound().0 / 2, running.bound().0] {
                same(
                    "cycles left of a slice",
                    kernel.left(running, Cycles(used)).0,
                    self.model.lanes[lane].left(used),
                )?;
            }
        }
        Ok(())
    }

    /// Every coroutine, every lane, and the kernel's own invariants.
    pub(crate) fn compare_everything(&mut self) -> Result<(), Difference> {
        same("stalled", self.kernel.is_stalled(), self.model.is_stalled())?;
        for lane in 0..self.slices.len() {
            let (kernel, model) = self.lane(lane);
            kernel.check().map_err(|violation| {
                format!("check, {}: lane {lane}, {violation:?}", violation.rule)
            })?;
            let population = kernel.population();
            let kernel_counts = [
                population.ready,
                population.running,
                population.sleeping,
                population.blocked,
                population.throttled,
                population.ended,
            ];
            same("population", kernel_counts, model.population())?;
            same("ready-set digest", kernel.ready_digest(), model.ready_digest())?;
            same("row so far", row(kernel.row()), model.row())?;
            for reference in model.references() {
                let pair =
                    (kernel.state(reference).map(state).map_err(refused), model.state(reference));
                same("state", (lane, reference, pair.0), (lane, reference, pair.1))?;
                let pair = (
                    kernel.ledger(reference).map(account).map_err(refused),
                    model.account(reference),
                );
                same("ledger", (lane, reference, pair.0), (lane, reference, pair.1))?;
                let pair = (kernel.tokens(reference).map_err(refused), model.tokens(reference));
                same("tokens", (lane, reference, pair.0), (lane, reference, pair.1))?;
                let pair =
                    (kernel.tag(reference).map(|tag| tag.0).map_err(refused), model.tag(reference));
                same("tag", (lane, reference, pair.0), (lane, reference, pair.1))?;
            }
        }
        Ok(())
    }

    /// What the model counted over the whole run.
    pub(crate) fn finish(&mut self) {
        let reuses = self.model.lanes.iter().map(|lane| lane.reused).sum();
        self.reached.count(Event::Reuse, reuses);
        let handoffs = self.model.lanes.iter().map(|lane| lane.handoffs).sum();
        self.reached.count(Event::Handoff, handoffs);
    }
}

/// The share that a session begins with: of five weights and classes.
fn share_of(session: u32) -> Share {
    let weight = Weight::new(256 << (session % 5)).expect("not zero");
    Share { weight, class: LatencyClass::ALL[session as usize % 5] }
}
