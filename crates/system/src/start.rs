//! Sessions that start while the machine runs (semantics 88 and 89).
//!
//! ```text
//!   give ──▶ plan: the description with this session, checked as at load; a trial instance
//!   its frame ──▶ start: described, made, wired, its first coroutine published
//! ```
//!
//! Contract: everything that can be wrong with a new session is found when it is given, against the
//! description with all sessions that wait to start. So starting cannot fail, and sessions are
//! numbered in the order in which they were given. The description that the world keeps has the
//! session afterwards: a saved state is loaded as if it had been there from the start.

use crate::channel::{Channel, Wiring};
use crate::group::Group;
use crate::index::{LaneIndex, SessionIndex};
use crate::input::{Coming, InputQueue};
use crate::live::GiveError;
use crate::load::{LoadError, check_memory, check_spec, make_session, publish_first, reads_stream};
use crate::observe::Chain;
use crate::session::{Handle, Port};
use crate::spec::{ChannelSpec, MachineSpec, OwnLimits, Placement, SessionSpec};
use crate::world::World;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{
    ChannelId, Cycles, Frame, LaneId, LatencyClass, MAX_GAP, Priority, SessionId, Weight,
};
use wavelock_kernel::CapSettings;
use wavelock_module::Module;
use wavelock_trace::Event;

/// A module that a control input brings: its code, and its bytes for the trace. Two are equal if
/// their bytes are.
#[derive(Clone)]
pub struct LaterModule {
    module: Arc<Module>,
    hash: [u8; 32],
    bytes: Arc<[u8]>,
}

impl LaterModule {
    /// A module with the bytes it was made from.
    #[must_use]
    pub fn new(module: Arc<Module>, bytes: Arc<[u8]>) -> Self {
        Self { module, hash: *blake3::hash(&bytes).as_bytes(), bytes }
    }

    /// Its code.
    #[must_use]
    pub const fn module(&self) -> &Arc<Module> {
        &self.module
    }

    /// The hash of its bytes.
    #[must_use]
    pub const fn hash(&self) -> &[u8; 32] {
        &self.hash
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> &Arc<[u8]> {
        &self.bytes
    }
}

impl PartialEq for LaterModule {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
    }
}

impl Eq for LaterModule {}

impl fmt::Debug for LaterModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaterModule").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

/// A session to start while the machine runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewSession {
    /// Its name: one that no session of the machine has or had.
    pub name: String,
    /// Its module.
    pub module: LaterModule,
    /// The lane it stays on. Without it: its number modulo the lanes, and it may move.
    pub lane: Option<u16>,
    /// Priority of its coroutines.
    pub priority: Priority,
    /// Its weight.
    pub weight: Weight,
    /// Latency class of its coroutines.
    pub class: LatencyClass,
    /// WASI arguments.
    pub args: Vec<String>,
    /// WASI environment, name and value.
    pub env: Vec<(String, String)>,
    /// Names of coroutine-local globals, besides `__stack_pointer`.
    pub coroutine_globals: Vec<String>,
    /// Channels that it owns: names and capacities.
    pub channels: Vec<(String, u32)>,
    /// Names of its ports, and of the channels they lead to.
    pub ports: Vec<(String, String)>,
    /// Its cap.
    pub cap: Option<CapSettings>,
    /// Its limits, in place of the machine's.
    pub limits: OwnLimits,
}

impl NewSession {
    /// A session with the defaults of a manifest.
    #[must_use]
    pub fn new(name: &str, module: LaterModule) -> Self {
        Self {
            name: name.into(),
            module,
            lane: None,
            priority: Priority::default(),
            weight: Weight::default(),
            class: LatencyClass::default(),
            args: Vec::new(),
            env: Vec::new(),
            coroutine_globals: Vec::new(),
            channels: Vec::new(),
            ports: Vec::new(),
            cap: None,
            limits: OwnLimits::default(),
        }
    }

    /// Bytes it carries.
    pub(crate) fn size(&self) -> u64 {
        let pairs = self.env.iter().chain(&self.ports);
        let channels = self.channels.iter().map(|(name, _)| name.len() + 16);
        let texts = self.args.iter().chain(&self.coroutine_globals).map(|text| text.len() + 16);
        let texts = texts.chain(pairs.map(|(one, two)| one.len() + two.len() + 32)).chain(channels);
        (texts.sum::<usize>() + self.name.len() + self.module.bytes.len()) as u64
    }

    /// Adds it to a description.
    fn describe(&self, spec: &mut MachineSpec) -> Result<(), GiveError> {
        let id = SessionId(spec.sessions.len() as u32);
        for (name, capacity) in &self.channels {
            if spec.channels.iter().any(|channel| channel.name == *name) {
                return Err(GiveError::SameChannel { name: name.as_str().into() });
            }
            let (name, capacity) = (name.clone(), *capacity);
            spec.channels.push(ChannelSpec { name, owner: id, capacity });
        }
        let mut ports = Vec::with_capacity(self.ports.len());
        for (port, name) in &self.ports {
            let found = spec.channels.iter().position(|channel| channel.name == *name);
            let unknown =
                || GiveError::NoChannel { port: port.as_str().into(), name: name.as_str().into() };
            ports.push((port.clone(), found.ok_or_else(unknown)?));
        }
        let module = spec.module_of(&self.module);
        let lanes = u32::from(spec.lanes.max(1));
        spec.sessions.push(SessionSpec {
            name: self.name.clone(),
            module,
            placement: Placement::Lane(self.lane.unwrap_or((id.0 % lanes) as u16)),
            pinned: self.lane.is_some(),
            priority: self.priority,
            weight: self.weight,
            class: self.class,
            args: self.args.clone(),
            env: self.env.clone(),
            ports,
            coroutine_globals: self.coroutine_globals.clone(),
            cap: self.cap,
            limits: self.limits,
        });
        Ok(())
    }
}

/// The description that a machine will have when the inputs that wait have been taken.
#[derive(Clone)]
pub(crate) struct Planned {
    spec: Arc<MachineSpec>,
    /// The frames of the inputs that change it, ascending, each with the number of sessions then.
    changes: VecDeque<(Frame, u32)>,
}

impl MachineSpec {
    /// The position of a module, which is added if it is new.
    pub(crate) fn module_of(&mut self, module: &LaterModule) -> usize {
        if !self.library.contains(module) {
            self.library.push(module.clone());
        }
        let known = self.module_hashes.iter().position(|hash| *hash == module.hash);
        known.unwrap_or_else(|| {
            self.modules.push(module.module.clone());
            self.module_hashes.push(module.hash);
            self.modules.len() - 1
        })
    }

    /// The module of a hash, among those that the description and its library have.
    pub(crate) fn find_module(&self, hash: &[u8; 32]) -> Option<Arc<Module>> {
        let of_spec = self.module_hashes.iter().zip(&self.modules);
        let of_library = self.library.iter().map(|later| (&later.hash, &later.module));
        let mut all = of_spec.chain(of_library);
        all.find(|(known, _)| *known == hash).map(|(_, module)| module.clone())
    }

    /// The identity of a wired channel.
    pub(crate) fn channel_id(&self, channel: usize) -> ChannelId {
        let owner = self.channels[channel].owner;
        let before = self.channels[..channel].iter().filter(|of| of.owner == owner).count();
        ChannelId { owner, index: before as u32 }
    }
}

/// Giving.
impl World {
    /// The description with every session that waits to start.
    pub(crate) fn planned(&self) -> &Arc<MachineSpec> {
        self.planned.as_ref().map_or(&self.spec, |planned| &planned.spec)
    }

    /// Sessions, with those that wait to start: the number of the next one.
    #[must_use]
    pub fn sessions_planned(&self) -> u32 {
        self.planned().sessions.len() as u32
    }

    /// An input that was checked changes the description.
    pub(crate) fn note_planned(&mut self, frame: Frame, spec: Arc<MachineSpec>) {
        let before = self.planned.take();
        let mut changes = before.map_or_else(VecDeque::new, |planned| planned.changes);
        changes.push_back((frame, spec.sessions.len() as u32));
        self.planned = Some(Planned { spec, changes });
    }

    /// The first of the inputs that change the description was taken.
    pub(crate) fn planned_taken(&mut self) {
        let Some(planned) = &mut self.planned else { return };
        planned.changes.pop_front();
        if planned.changes.is_empty() {
            self.planned = None;
        }
    }

    /// The sessions that there are when the last input of a frame is taken, as far as inputs are
    /// known.
    pub(crate) fn sessions_at(&self, frame: Frame) -> u32 {
        let changes = self.planned.iter().flat_map(|planned| &planned.changes);
        let last = changes.take_while(|(change, _)| *change <= frame).last();
        last.map_or(self.session_groups.len() as u32, |(_, sessions)| *sessions)
    }

    /// The description with one more session, if the machine can have it.
    pub(crate) fn plan_start(
        &self,
        frame: Frame,
        new: &NewSession,
    ) -> Result<Arc<MachineSpec>, GiveError> {
        if let Some(lane) = new.lane
            && let Some(lease) = self.lease_for(lane)
        {
            let (session, lease) = (new.name.clone(), lease.name.clone());
            let error = Box::new(LoadError::LeasedLane { session, lane, lease });
            return Err(GiveError::Setting { error });
        }
        self.plan(frame, &new.module, |planned| {
            new.describe(planned)?;
            Ok(planned.sessions.len() - 1)
        })
    }

    /// The description with a change that brings a module for a session, if loading would take it.
    pub(crate) fn plan(
        &self,
        frame: Frame,
        module: &LaterModule,
        change: impl FnOnce(&mut MachineSpec) -> Result<usize, GiveError>,
    ) -> Result<Arc<MachineSpec>, GiveError> {
        self.check_order(frame)?;
        self.check_gap(module)?;
        let mut planned = (**self.planned()).clone();
        let session = change(planned.amended())?;
        let setting = |error| GiveError::Setting { error: Box::new(error) };
        check_spec(&planned).map_err(setting)?;
        check_memory(&planned).map_err(setting)?;
        try_session(&planned, session).map_err(setting)?;
        Ok(Arc::new(planned))
    }

    /// Inputs that bring modules are given in the order of their frames: the numbers of sessions,
    /// and what they are checked against, follow it.
    fn check_order(&self, frame: Frame) -> Result<(), GiveError> {
        match self.planned.as_ref().and_then(|planned| planned.changes.back()) {
            Some(&(last, _)) if last > frame => {
                Err(GiveError::Order { frame: frame.0, last: last.0 })
            }
            _ => Ok(()),
        }
    }

    /// The machine's `G` bounds later modules.
    fn check_gap(&self, module: &LaterModule) -> Result<(), GiveError> {
        let (found, most) = (module.module.code().gap(), self.spec.longest_gap());
        if found > most { Err(GiveError::Gap { found, most }) } else { Ok(()) }
    }
}

impl Group {
    /// The first coroutine of a session that is made while the machine runs.
    pub(crate) fn spawn_first(
        &mut self,
        spec: &MachineSpec,
        lane: LaneIndex,
        id: SessionId,
    ) -> Result<(), LoadError> {
        publish_first(spec, self, lane, id)?;
        let state = &mut self.lanes[lane];
        let (session, lane) = (u64::from(id.0), u64::from(state.id));
        state.log.event(&Event::Spawn { session, slot: 0, generation: 0, lane });
        Ok(())
    }
}

/// Makes an instance of a session of a description, and drops it: what it finds wrong, starting
/// would.
pub(crate) fn try_session(spec: &MachineSpec, session: usize) -> Result<(), LoadError> {
    let of_spec = &spec.sessions[session];
    let state = make_session(spec, of_spec, SessionId(session as u32), &mut Vec::new())?;
    crate::load::check_entries(state)
}

/// Starting.
impl World {
    /// Starts a session. It was checked when it was given.
    pub(crate) fn start(&mut self, new: &NewSession) {
        let id = SessionId(self.session_groups.len() as u32);
        let mut described = Ok(());
        self.amend(|spec| described = new.describe(spec));
        debug_assert_eq!(described, Ok(()), "it was checked when it was given");
        let spec = self.spec.clone();
        let (lane, hash) = (self.starting_lane(&spec, id), &new.module.hash);
        self.emit(&Event::Start {
            session: u64::from(id.0),
            lane: u64::from(lane),
            module: hash,
            name: new.name.as_bytes(),
        });
        if let Err(error) = self.make(&spec, id, lane) {
            self.fail(error);
        }
        for (channel, of_spec) in spec.channels.iter().enumerate() {
            if of_spec.owner == id {
                self.own_channel(spec.channel_id(channel), of_spec.capacity);
            }
        }
        self.connect(&spec, id);
        if new.cap.is_some() {
            self.set_cap(id, new.cap);
        }
        self.planned_taken();
    }

    /// The lane that a session starts on: its own, or if that is leased one that is not.
    fn starting_lane(&self, spec: &MachineSpec, id: SessionId) -> u16 {
        let home = spec.sessions[id.0 as usize].placement.home();
        if self.lane_ref(home).kernel.is_open() {
            home
        } else {
            self.housekeeping(home).unwrap_or(0)
        }
    }

    /// The session's state and its first coroutine, on this lane.
    fn make(&mut self, spec: &MachineSpec, id: SessionId, lane: u16) -> Result<(), LoadError> {
        let placement = Placement::Lane(lane);
        let session = &SessionSpec { placement, ..spec.sessions[id.0 as usize].clone() };
        let (group, lane) = self.lane_positions[usize::from(lane)];
        let mut state = make_session(spec, session, id, &mut Vec::new())?;
        state.input = InputQueue::new(Coming::Open, reads_stream(&spec.modules[session.module]));
        state.profile = self.new_profile();
        self.groups.iter_mut().for_each(|group| group.local.add());
        let group_state = &mut *self.groups[group];
        group_state.local.insert(id, SessionIndex::new(group_state.sessions.len()));
        group_state.sessions.push(state);
        group_state.set_version += 1;
        self.group_lanes.push(LaneId(group_state.lanes[0].id));
        self.session_groups.push(group);
        group_state.spawn_first(spec, lane, id)
    }

    /// The host could not hold what was checked before.
    pub(crate) fn fail(&mut self, error: LoadError) {
        match error {
            LoadError::Kernel { refusal, .. } => self.groups[0].failure = Some(refusal),
            error => unreachable!("it was checked when it was given: {error}"),
        }
    }

    fn own_channel(&mut self, id: ChannelId, capacity: u32) {
        let state = self.session(id.owner);
        state.channels.push(Channel::new(id.owner, id.index as usize, capacity, None));
        state.handles.push(Handle::Own(id.index));
        self.wired_senders.insert(id, Vec::new());
    }

    /// The ports of a session that has just been made, in their order, and the names of its own
    /// channels: as loading wires them.
    fn connect(&mut self, spec: &MachineSpec, id: SessionId) {
        let session = &spec.sessions[id.0 as usize];
        let own = spec.channels.iter().enumerate().filter(|(_, channel)| channel.owner == id);
        let own = own.map(|(at, channel)| (&channel.name, at));
        let ports = session.ports.iter().map(|(name, channel)| (name, *channel));
        let mut known: BTreeMap<ChannelId, i32> = BTreeMap::new();
        for (name, channel) in ports.chain(own) {
            let to = spec.channel_id(channel);
            let handle = if to.owner == id {
                to.index as i32
            } else if let Some(handle) = known.get(&to) {
                *handle
            } else {
                let handle = self.add_sender(to, id, &spec.channels[channel].name);
                self.lease_is_rewired(to);
                known.insert(to, handle);
                handle
            };
            self.session(id).port_names.push((name.clone(), handle));
        }
        let names = &mut self.session(id).port_names;
        // Of two ports with one name the first counts: the sort is stable.
        names.sort_by(|one, other| one.0.cmp(&other.0));
        names.dedup_by(|later, first| later.0 == first.0);
    }

    /// A port of session `sender` to another session's channel. Returns its handle.
    fn add_sender(&mut self, to: ChannelId, sender: SessionId, name: &str) -> i32 {
        self.wired_senders.entry(to).or_default().push(sender);
        let home = self.session(to.owner).home();
        let group: &mut Group = self.session_group(to.owner);
        group.set_version += 1;
        let channel = group.channel(to);
        let free = channel.room();
        let wiring = channel.wiring.get_or_insert_with(|| {
            let (lanes, credits) = (Vec::new().into(), Vec::new());
            Box::new(Wiring { lanes, credits, home, free, open_senders: 0 })
        });
        wiring.open_senders += 1;
        channel.refresh();
        let state = self.session(sender);
        state.ports.push(Port {
            channel: to,
            name: name.into(),
            home,
            credits: Vec::new(),
            closed: false,
            sent: Chain::new(),
        });
        state.handles.push(Handle::Port(state.ports.len() as u32 - 1));
        let handle = state.handles.len() as i32 - 1;
        self.rewire_channel(to);
        handle
    }
}

/// `G` of a machine that may start sessions: what later modules may have at most. No module has a
/// longer gap than the cost table's bound.
pub(crate) const fn most_gap(declared: Option<Cycles>, found: Cycles) -> Cycles {
    match declared {
        Some(declared) if declared.0 > MAX_GAP.0 => MAX_GAP,
        Some(declared) if declared.0 > found.0 => declared,
        _ => found,
    }
}
