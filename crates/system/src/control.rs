//! Control inputs: what an operator or embedder changes about sessions of a live machine while it
//! runs (semantics 84 to 91).
//!
//! ```text
//!   give ──▶ check_control ──▶ the queue ──▶ begin_frame ──▶ control ──▶ Event::Control
//!                                                               └─ cannot be ─▶ ControlRefused
//! ```
//!
//! Contract: a control input is an input: recorded, in the digest, applied at its frame's start in
//! the order of the frame's inputs. What the description alone forbids is refused when it is given;
//! what depends on the machine's state (a session that has ended, admission control) is decided in
//! its frame, and a refusal there is an event and changes nothing else. The description that the
//! world keeps follows each change ([`MachineSpec::amended`]), so that a saved state can be loaded.

use crate::authority::Capability;
use crate::errors::errors;
use crate::group::Group;
use crate::index::LaneIndex;
use crate::live::GiveError;
use crate::load::check_caps;
use crate::replace::Replacement;
use crate::spec::MachineSpec;
use crate::start::NewSession;
use crate::world::{Sink, World};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{ContextRef, CoroutineRef, Cycles, Errno, Frame, LaneId, SessionId, Weight};
use wavelock_kernel::{
    CapSettings, ContextParameters, ContextRefusal, HoldReason, Lane, LeaseEnd, LeaseRefusal,
    Share, Sharing,
};
use wavelock_trace::Event;

/// What a control input changes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    /// The weight of a session; under `share = "coroutine"` also that of each of its coroutines.
    Weight {
        /// The session.
        session: SessionId,
        /// Its weight from now on.
        weight: Weight,
    },
    /// The cap of a session. Its account starts full.
    Cap {
        /// The session.
        session: SessionId,
        /// Its cap from now on, if it has one.
        cap: Option<CapSettings>,
    },
    /// The budget of a context of the description.
    Context {
        /// The session that owns it.
        session: SessionId,
        /// Its name.
        name: Box<str>,
        /// Its budget from now on.
        budget: Cycles,
    },
    /// No coroutine of the session runs until it is released.
    Hold {
        /// The session.
        session: SessionId,
    },
    /// Takes back a hold.
    Release {
        /// The session.
        session: SessionId,
    },
    /// The session ends: its coroutines are canceled, and everything it held is released.
    End {
        /// The session.
        session: SessionId,
    },
    /// A lease of the description is asked for.
    Lease {
        /// The session of its holder.
        session: SessionId,
        /// Its name.
        name: Box<str>,
    },
    /// A lease of the description ends.
    EndLease {
        /// The session of its holder.
        session: SessionId,
        /// Its name.
        name: Box<str>,
    },
    /// A session starts. Its number follows those of the sessions that were given before.
    Start(Box<NewSession>),
    /// A session begins anew with another module.
    Replace(Box<Replacement>),
}

impl Control {
    /// The session that it changes, unless it starts one.
    #[must_use]
    pub const fn session(&self) -> Option<SessionId> {
        match self {
            Self::Weight { session, .. }
            | Self::Cap { session, .. }
            | Self::Context { session, .. }
            | Self::Hold { session }
            | Self::Release { session }
            | Self::End { session }
            | Self::Lease { session, .. }
            | Self::EndLease { session, .. } => Some(*session),
            Self::Replace(replacement) => Some(replacement.session),
            Self::Start(_) => None,
        }
    }

    /// Bytes it carries.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::Start(new) => new.size(),
            Self::Replace(replacement) => replacement.size(),
            Self::Context { name, .. } | Self::Lease { name, .. } | Self::EndLease { name, .. } => {
                name.len() as u64
            }
            _ => 0,
        }
    }

    /// Its number and its numbers, for [`Event::Control`]; `context` is the position of the context
    /// or lease that it names.
    const fn numbers(&self, context: u64) -> (u64, [u64; 3]) {
        match self {
            Self::Weight { weight, .. } => (0, [weight.get() as u64, 0, 0]),
            Self::Cap { cap: Some(cap), .. } => {
                (1, [cap.budget.0, cap.period_frames, cap.overrun as u64])
            }
            Self::Cap { cap: None, .. } => (2, [0; 3]),
            Self::Context { budget, .. } => (3, [context, budget.0, 0]),
            Self::Hold { .. } => (4, [0; 3]),
            Self::Release { .. } => (5, [0; 3]),
            Self::End { .. } => (6, [0; 3]),
            Self::Start(_) => (7, [0; 3]),
            Self::Replace(_) => (8, [0; 3]),
            Self::Lease { .. } => (10, [context, 0, 0]),
            Self::EndLease { .. } => (11, [context, 0, 0]),
        }
    }
}

errors! {
    /// Why a control input could not take effect in its frame.
    #[derive(Copy)]
    ControlRefusal {
        /// The session has ended.
        Ended {
            /// The session.
            session: u32,
        } => "session {session} has ended: nothing of it can be changed any more",
        /// The context cannot have this budget.
        Context {
            /// The session that owns it.
            session: u32,
            /// Why.
            refusal: ContextRefusal,
        } => "the budget of a context of session {session} stays as it is: {refusal}",
        /// The lane takes no request for a lease.
        Lease {
            /// The session of its holder.
            session: u32,
            /// Why.
            refusal: LeaseRefusal,
        } => "session {session} gets no lease: {refusal}",
        /// The session cannot have its context again.
        Replace {
            /// The session.
            session: u32,
            /// The budget of the context.
            budget: Cycles,
            /// Why.
            refusal: ContextRefusal,
        } => "session {session} is not replaced: its context with a budget of {} cycles ended with it, \
              and cannot be made again: {refusal}" (budget.0),
    }
}

impl ControlRefusal {
    /// Code, number found and number allowed, for [`Event::ControlRefused`]. Code 0 is a session
    /// that has ended; others are error codes of the guest interface, without their sign.
    fn numbers(&self, control: &Control) -> [u64; 3] {
        if let Self::Lease { refusal, .. } = self {
            let code = match refusal {
                LeaseRefusal::Busy { .. } => Errno::Again,
                _ => Errno::Denied,
            };
            return [u64::from(code.code().unsigned_abs()), 0, 0];
        }
        let (refusal, budget) = match (self, control) {
            (Self::Context { refusal, .. }, Control::Context { budget, .. })
            | (Self::Replace { refusal, budget, .. }, _) => (refusal, budget),
            _ => return [0; 3],
        };
        let allowed = match refusal {
            ContextRefusal::Denied(denied) => denied.fits.unwrap_or_default(),
            ContextRefusal::ShrinkBelowDemand { used, .. } => *used,
            ContextRefusal::BudgetTooSmall { least, .. } => *least,
            ContextRefusal::BudgetAboveDeadline { deadline, .. } => *deadline,
            _ => Cycles::ZERO,
        };
        let errno = crate::context::errno_of(*refusal);
        [u64::from(errno.code().unsigned_abs()), budget.0, allowed.0]
    }
}

impl MachineSpec {
    /// This description, to be changed by control inputs: its identity stays that of the machine as
    /// it was loaded.
    pub(crate) fn amended(&mut self) -> &mut Self {
        if self.origin.is_none() {
            self.origin = Some(Arc::new(Self { library: Vec::new(), ..self.clone() }));
            // A replaced or ended session leaves the machine's `G` as it was.
            self.most_gap = Some(self.longest_gap());
        }
        self
    }

    /// The position of a lease of the description whose holder is of this session.
    fn lease_of(&self, session: SessionId, name: &str) -> Option<usize> {
        self.lease_named(name).filter(|&lease| self.leases[lease].session == session)
    }

    /// The position of a context of the description.
    fn context_named(&self, session: SessionId, name: &str) -> Option<usize> {
        let mut contexts = self.contexts.iter();
        contexts.position(|context| context.session == session && context.name == name)
    }
}

/// Giving.
impl World {
    /// Refuses what the description forbids, whatever the state of the machine in that frame. For
    /// one that adds a session, returns the description with it.
    pub(crate) fn check_control(
        &self,
        frame: Frame,
        control: &Control,
    ) -> Result<Option<Arc<MachineSpec>>, GiveError> {
        match control {
            Control::Start(new) => return self.plan_start(frame, new).map(Some),
            Control::Replace(replacement) => {
                return self.plan_replacement(frame, replacement).map(Some);
            }
            Control::Cap { session, cap } if cap.is_some() => {
                let mut spec = (**self.planned()).clone();
                spec.sessions[session.0 as usize].cap = *cap;
                check_caps(&spec).map_err(|error| GiveError::Setting { error: Box::new(error) })?;
            }
            Control::Context { session, name, .. }
                if self.spec.context_named(*session, name).is_none() =>
            {
                return Err(GiveError::NoContext { session: session.0, name: name.clone() });
            }
            Control::Lease { session, name } | Control::EndLease { session, name }
                if self.spec.lease_of(*session, name).is_none() =>
            {
                return Err(GiveError::NoLease { session: session.0, name: name.clone() });
            }
            _ => {}
        }
        Ok(None)
    }

    /// Refuses what the state of the machine forbids now, at the boundary before its frame.
    pub(crate) fn check_control_now(&self, control: &Control) -> Result<(), GiveError> {
        match control.session() {
            _ if matches!(control, Control::Replace(_)) => Ok(()),
            Some(session)
                if (session.0 as usize) < self.session_groups.len()
                    && self.session_ref(session).ended.is_some()
                    && !self.begins_anew(session) =>
            {
                Err(GiveError::Ended { session: session.0 })
            }
            _ => Ok(()),
        }
    }
}

impl Group {
    /// Cancels every coroutine of a session, lane by lane.
    pub(crate) fn cancel_session(&mut self, session: SessionId) {
        let at = self.local[session];
        let lanes = self.sessions[at].lanes.clone();
        for lane in LaneIndex::all(&self.lanes) {
            if lanes.contains(&self.lanes[lane].id) {
                self.cancel_lane(lane, at);
            }
        }
    }

    /// Takes back every hold of an operator on its lanes.
    pub(crate) fn release_holds(&mut self) {
        for lane in &mut self.lanes {
            for session in self.sessions.iter().map(|state| state.id.0) {
                let members: Vec<_> = lane.kernel.session(session).collect();
                for (coroutine, _) in members {
                    // One that is not held stays as it is.
                    let _ = lane.kernel.release(coroutine, HoldReason::Operator);
                }
            }
        }
    }
}

/// Applying.
impl World {
    /// Takes a control input at its frame's start, after timers and refills of that frame.
    pub(crate) fn control(&mut self, control: &Control, sink: &mut dyn Sink) {
        let session = match control {
            Control::Start(new) => return self.start(new),
            control => control.session().unwrap_or_default(),
        };
        let context = match control {
            Control::Context { name, .. } => self.spec.context_named(session, name),
            Control::Lease { name, .. } | Control::EndLease { name, .. } => {
                self.spec.lease_of(session, name)
            }
            _ => None,
        };
        let (what, [first, second, third]) = control.numbers(context.unwrap_or(0) as u64);
        let session_number = u64::from(session.0);
        match self.apply(session, control) {
            Ok(()) if matches!(control, Control::Replace(_)) => {}
            Ok(()) => {
                self.emit(&Event::Control { session: session_number, what, first, second, third });
            }
            Err(refusal) => {
                let [code, found, allowed] = refusal.numbers(control);
                let session = session_number;
                self.emit(&Event::ControlRefused { session, what, code, found, allowed });
                sink.refused(self.frame(), control, &refusal);
            }
        }
    }

    fn apply(&mut self, session: SessionId, control: &Control) -> Result<(), ControlRefusal> {
        if let Control::Replace(replacement) = control {
            return self.replace(replacement);
        }
        if self.session_ref(session).ended.is_some() {
            return Err(ControlRefusal::Ended { session: session.0 });
        }
        match control {
            Control::Weight { weight, .. } => self.set_weight(session, *weight),
            Control::Cap { cap, .. } => self.set_cap(session, *cap),
            Control::Context { name, budget, .. } => {
                return self.set_budget(session, name, *budget);
            }
            Control::Hold { .. } => self.each_coroutine(session, |lane, coroutine| {
                // One that has ended and was not joined needs no hold.
                let _ = lane.hold(coroutine, HoldReason::Operator);
            }),
            Control::Release { .. } => self.each_coroutine(session, |lane, coroutine| {
                // One that is not held stays as it is.
                let _ = lane.release(coroutine, HoldReason::Operator);
            }),
            Control::End { .. } => self.end_by_host(session),
            Control::Lease { name, .. } => return self.lease_by_host(session, name),
            Control::EndLease { name, .. } => self.end_lease_by_host(session, name),
            Control::Start(_) | Control::Replace(_) => {}
        }
        Ok(())
    }

    pub(crate) fn amend(&mut self, change: impl FnOnce(&mut MachineSpec)) {
        change(Arc::make_mut(&mut self.spec).amended());
    }

    /// Applies `change` to every coroutine of a session: lane by lane, in slot order.
    fn each_coroutine(
        &mut self,
        session: SessionId,
        mut change: impl FnMut(&mut Lane, CoroutineRef),
    ) {
        let lanes = self.session_ref(session).lanes.clone();
        for lane in lanes {
            let kernel = &mut self.lane(lane).kernel;
            let mut members: Vec<_> = kernel.session(session.0).collect();
            members.sort_unstable_by_key(|(_, tag)| tag.slot());
            members.into_iter().for_each(|(coroutine, _)| change(kernel, coroutine));
        }
    }

    fn set_weight(&mut self, session: SessionId, weight: Weight) {
        self.amend(|spec| spec.sessions[session.0 as usize].weight = weight);
        let state = self.session(session);
        state.weight = weight;
        let (of_session, lanes) = (state.spawn(0).session, state.lanes.clone());
        if self.spec.policy.sharing() == Sharing::Coroutine {
            self.each_coroutine(session, |lane, coroutine| {
                if let Ok(own) = lane.share(coroutine) {
                    // One that has ended has no share.
                    let _ = lane.set_share(coroutine, Share { weight, ..own });
                }
            });
        }
        for lane in lanes {
            // Without a coroutine there, it gets its share with the first.
            let _ = self.lane(lane).kernel.set_session_share(session.0, of_session);
        }
    }

    pub(crate) fn set_cap(&mut self, session: SessionId, cap: Option<CapSettings>) {
        self.amend(|spec| spec.sessions[session.0 as usize].cap = cap);
        let (spec, lanes) = (self.spec.clone(), self.session_ref(session).lanes.clone());
        // Sessions with a cap may move to any lane.
        let mut failed = self.lanes_mut().find_map(|lane| lane.room_for_caps(&spec).err());
        for (position, lane) in lanes.into_iter().enumerate() {
            let part = spec.sessions[session.0 as usize].cap_at(position);
            let lane = self.lane(lane);
            // The numbers were checked when the input was given.
            failed = failed.or(lane.kernel.change_cap(session.0, part).err());
            lane.log_cap_events();
        }
        if let Some(refusal) = failed {
            self.groups[0].failure = Some(refusal);
        }
    }

    fn set_budget(
        &mut self,
        session: SessionId,
        name: &str,
        budget: Cycles,
    ) -> Result<(), ControlRefusal> {
        let refused = |refusal| ControlRefusal::Context { session: session.0, refusal };
        let home = self.session_ref(session).home();
        let Some(context) = self.context_by_name(session, name) else {
            return Err(refused(ContextRefusal::Off));
        };
        let lane = self.lane(home);
        let kernel = &mut lane.kernel;
        let view = kernel.context(context).map_err(refused)?;
        let parameters = ContextParameters { budget, ..view.parameters };
        let configured = kernel.configure_context(context, parameters);
        lane.log_context_events();
        configured.map_err(refused)
    }

    fn lease_by_host(&mut self, session: SessionId, name: &str) -> Result<(), ControlRefusal> {
        let refused = |refusal| ControlRefusal::Lease { session: session.0, refusal };
        let lane = LaneId(self.session_ref(session).home());
        let lease = self.spec.lease_of(session, name);
        let lease = lease.ok_or(refused(LeaseRefusal::Off { lane }))?;
        let asked = self.lane_ref(lane.0).kernel.clock();
        self.request(lease, None, asked).map_err(refused)?;
        self.publish_leases();
        Ok(())
    }

    fn end_lease_by_host(&mut self, session: SessionId, name: &str) {
        let now = self.lane_ref(self.session_ref(session).home()).kernel.clock();
        if let Some(lease) = self.spec.lease_of(session, name) {
            self.end_lease(lease, LeaseEnd::ByHost, now);
        }
        self.settle_ended_leases();
    }

    /// The context of a name of the description, while the session has it.
    pub(crate) fn context_by_name(&self, session: SessionId, name: &str) -> Option<ContextRef> {
        let table = self.session_ref(session).capabilities.as_ref()?;
        match table.get(table.named(name.as_bytes())?)? {
            Capability::Context(context) => Some(context),
            _ => None,
        }
    }

    fn end_by_host(&mut self, session: SessionId) {
        self.session(session).ended_by_host = true;
        self.session_group(session).cancel_session(session);
        self.settle_ends();
    }

    /// What ends mean for other lanes takes effect at once, in the order of a wave's end: no wave
    /// may follow in this frame.
    pub(crate) fn settle_ends(&mut self) {
        for group in &mut self.groups {
            for lane in LaneIndex::all(&group.lanes) {
                while !group.lanes[lane].requests.is_empty() {
                    group.serve_requests(lane);
                }
            }
        }
        self.sort_effects();
        self.groups.iter_mut().for_each(|group| group.settle());
        self.finish_exchange();
        self.answer_session_waits();
        self.settle_ended_leases();
        self.count_ended();
    }
}
