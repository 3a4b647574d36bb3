//! Sessions that are replaced while the machine runs (semantics 90 and 91).
//!
//! ```text
//!   give ──▶ plan: the description with the other module, checked as at load; a trial instance
//!   its frame ──▶ renew its contexts ──▶ cancel its coroutines ──▶ make it, open its channels and
//!     ports, carry bytes over ──▶ its first coroutine
//!                   └─ admission says no ─▶ ControlRefused
//! ```
//!
//! Contract: a replacement changes the module of a session and what the old one had made: memory,
//! coroutines, channels of its own making. The session itself stays: its number, name, lanes, cap
//! account, contexts and channels of the description, with the messages in them, and the ports of
//! others to it. So what others hold stays valid. Everything that can be wrong is found when the
//! replacement is given, but for admission of contexts that had ended.

use crate::context::parameters_of;
use crate::control::{Control, ControlRefusal};
use crate::index::{GroupIndex, LaneIndex};
use crate::live::{GiveError, Input};
use crate::load::{LoadError, can_park_or_watch, make_session, reads_stream};
use crate::session::SessionState;
use crate::spec::MachineSpec;
use crate::start::LaterModule;
use crate::world::World;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem::take;
use wavelock_abi::{ChannelId, ContextRef, Frame, SessionId};
use wavelock_kernel::LeaseEnd;
use wavelock_module::Module;
use wavelock_trace::Event;

/// Another module for a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replacement {
    /// The session, which may have ended.
    pub session: SessionId,
    /// Its module from now on.
    pub module: LaterModule,
    /// Its first input, if it has any bytes.
    pub carry: Box<[u8]>,
}

impl Replacement {
    /// Bytes it carries.
    pub(crate) fn size(&self) -> u64 {
        (self.module.bytes().len() + self.carry.len()) as u64
    }
}

impl MachineSpec {
    /// Gives a session another module.
    fn replace_module(&mut self, session: SessionId, module: &LaterModule) {
        self.sessions[session.0 as usize].module = self.module_of(module);
        self.forget_modules();
    }

    /// Removes later modules that no session has any more, so that replacing sessions over and
    /// over does not grow the description. The last one that can park stays: states of the machine
    /// count what it did ([`MachineSpec::has_late_waits`]).
    fn forget_modules(&mut self) {
        let loaded = self.origin.as_ref().map_or(0, |origin| origin.modules.len());
        for at in (loaded..self.modules.len()).rev() {
            let is_used = self.sessions.iter().any(|session| session.module == at);
            let parks = |of: usize| can_park_or_watch(&self.modules[of]);
            let is_last = parks(at) && !(0..self.modules.len()).any(|of| of != at && parks(of));
            if is_used || is_last {
                continue;
            }
            let hash = self.module_hashes.remove(at);
            self.modules.remove(at);
            self.library.retain(|later| *later.hash() != hash);
            let later = self.sessions.iter_mut().filter(|session| session.module > at);
            later.for_each(|session| session.module -= 1);
        }
    }
}

impl SessionState {
    /// Takes over what stays of the session that it replaces; `calls` is more than that can have
    /// made. Returns how many input events were dropped.
    fn succeed(&mut self, old: &mut Self, module: &Module, carry: &[u8], calls: u64) -> u64 {
        old.tasks.begin_anew();
        let wired = old.channels.len() - old.made_channels as usize;
        old.channels.truncate(wired);
        old.handles.truncate(wired + old.ports.len());
        let dropped = old.input.begin_anew(carry, reads_stream(module));
        if let Some(own) = &mut self.calls {
            // Numbers of calls go on above those that the old coroutines made: an answer to one of
            // them is an answer to none of the new.
            own.made = calls;
            if let Some(old) = old.calls.take() {
                own.answered = old.answered;
            }
        }
        if let (Some(asks), Some(before)) = (&mut self.asks, &old.asks) {
            asks.made = before.made;
        }
        self.lanes = take(&mut old.lanes);
        core::mem::swap(&mut self.tasks, &mut old.tasks);
        self.channels = take(&mut old.channels);
        self.ports = take(&mut old.ports);
        self.handles = take(&mut old.handles);
        self.port_names = take(&mut old.port_names);
        self.input = take(&mut old.input);
        self.output = take(&mut old.output);
        self.log = take(&mut old.log);
        self.log_dropped = old.log_dropped;
        self.output_chain = old.output_chain.clone();
        self.cycles = old.cycles;
        self.host_calls = old.host_calls;
        self.messages = old.messages;
        self.profile = old.profile.as_ref().map(|profile| Box::new(profile.begin_anew()));
        dropped
    }
}

/// Giving.
impl World {
    /// The description with another module for a session, if the machine can have it.
    pub(crate) fn plan_replacement(
        &self,
        frame: Frame,
        replacement: &Replacement,
    ) -> Result<Arc<MachineSpec>, GiveError> {
        let Replacement { session, module, .. } = replacement;
        self.plan(frame, module, |planned| {
            planned.replace_module(*session, module);
            Ok(session.0 as usize)
        })
    }
}

impl World {
    /// At a boundary: whether the session is replaced in the frame that starts next.
    pub(crate) fn begins_anew(&self, session: SessionId) -> bool {
        let frame = self.progress.frame;
        let mut coming = self.inputs.iter().take_while(|given| given.frame <= frame);
        self.planned.is_some()
            && coming.any(|given| match &given.input {
                Input::Control(Control::Replace(replacement)) => replacement.session == session,
                _ => false,
            })
    }
}

/// Replacing.
impl World {
    /// Replaces a session. It was checked when it was given; only admission can refuse it.
    pub(crate) fn replace(&mut self, replacement: &Replacement) -> Result<(), ControlRefusal> {
        self.planned_taken();
        let session = replacement.session;
        let contexts = self.renew_contexts(session)?;
        self.clear(session, &contexts);
        self.amend(|spec| spec.replace_module(session, &replacement.module));
        self.emit(&Event::Replace {
            session: u64::from(session.0),
            module: replacement.module.hash(),
            carried: replacement.carry.len() as u64,
        });
        if let Err(error) = self.remake(replacement, &contexts) {
            self.fail(error);
        }
        self.open_again(session);
        Ok(())
    }

    /// The contexts of the description that a session has, in their order; those that ended with it
    /// are made again. If one cannot be, nothing has changed.
    fn renew_contexts(&mut self, session: SessionId) -> Result<Vec<ContextRef>, ControlRefusal> {
        let spec = self.spec.clone();
        let home = self.session_ref(session).home();
        let (mut contexts, mut made) = (Vec::new(), Vec::new());
        for of_spec in spec.contexts.iter().filter(|context| context.session == session) {
            let known = self.context_by_name(session, &of_spec.name);
            let lane = self.lane(home);
            let known = known.filter(|context| lane.kernel.context(*context).is_ok());
            let parameters = parameters_of(of_spec);
            match known.map_or_else(|| lane.kernel.create_context(parameters), Ok) {
                Ok(context) => {
                    contexts.push(context);
                    if known.is_none() {
                        made.push((context, parameters));
                    }
                }
                Err(refusal) => {
                    for (context, _) in made {
                        let _ = lane.kernel.revoke_context(context, |_| ());
                    }
                    lane.log_context_events();
                    let budget = parameters.budget;
                    return Err(ControlRefusal::Replace { session: session.0, budget, refusal });
                }
            }
        }
        let lane = self.lane(home);
        made.iter().for_each(|(context, parameters)| lane.log_made(*context, parameters));
        Ok(contexts)
    }

    /// Cancels the coroutines of a session, which lives on without any, and takes what they held.
    fn clear(&mut self, session: SessionId, contexts: &[ContextRef]) {
        let state = self.session(session);
        if state.ended.is_some() {
            self.ended_sessions -= 1;
            return;
        }
        state.is_replaced = true;
        let (group, home) = self.home_of(session);
        let index = self.groups[group].local[session];
        self.groups[group].end_leases_because(home, index, LeaseEnd::Replaced);
        self.groups[group].cancel_session(session);
        self.groups[group].revoke_other_contexts(home, session, contexts);
        self.settle_ends();
    }

    fn home_of(&self, session: SessionId) -> (GroupIndex, LaneIndex) {
        self.lane_positions[usize::from(self.session_ref(session).home())]
    }

    /// The session's new state and its first coroutine, in place of the old ones.
    fn remake(
        &mut self,
        replacement: &Replacement,
        contexts: &[ContextRef],
    ) -> Result<(), LoadError> {
        let (spec, id, steps) = (self.spec.clone(), replacement.session, self.progress.steps);
        let mut new = make_session(&spec, &spec.sessions[id.0 as usize], id, &mut Vec::new())?;
        let carry = self.groups[0].shared.rules.carried(&replacement.carry);
        let dropped = new.succeed(self.session(id), replacement.module.module(), carry, steps);
        *self.session(id) = new;
        if dropped > 0 {
            self.progress.dropped_inputs += dropped;
            self.emit(&Event::Dropped { session: u64::from(id.0), events: dropped });
        }
        if !replacement.carry.is_empty() {
            self.emit(&Event::Sample { session: u64::from(id.0), bytes: &replacement.carry });
        }
        let (group, lane) = self.home_of(id);
        let group = &mut self.groups[group];
        group.spawn_first(&spec, lane, id)?;
        group.grant_again(&spec, lane, id, contexts);
        Ok(())
    }

    /// Opens the channels and ports of a session that begins anew: its own channels unless all who
    /// could send have left, and its ports. Another session's channel that has closed stays so.
    fn open_again(&mut self, owner: SessionId) {
        for index in 0..self.session_ref(owner).channels.len() as u32 {
            let id = ChannelId { owner, index };
            let channel = self.session_group(owner).channel(id);
            let is_orphaned =
                channel.wiring.as_ref().is_some_and(|wiring| wiring.open_senders == 0);
            if channel.closed && !is_orphaned {
                channel.closed = false;
                let free = channel.room();
                channel.wiring.iter_mut().for_each(|wiring| wiring.free = free);
                channel.refresh();
                self.rewire_channel(id);
            }
        }
        for port in 0..self.session_ref(owner).ports.len() {
            let port = &mut self.session(owner).ports[port];
            if take(&mut port.closed) {
                let id = port.channel;
                let wiring = &mut self.session_group(id.owner).channel(id).wiring;
                wiring.iter_mut().for_each(|wiring| wiring.open_senders += 1);
                self.lease_is_rewired(id);
            }
        }
    }
}
