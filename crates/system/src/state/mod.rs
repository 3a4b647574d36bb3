//! The whole machine as canonical bytes, at the boundary between two frames, and back.
//!
//! An *outline* holds everything but the bytes of memories; those are read and written page by
//! page, so that a store of many snapshots keeps each page once. [`World::save`] is both in one. A
//! restored world continues as the one that was saved, on any number of workers: same digests, same
//! outputs, same totals. `save(restore(bytes)) == bytes`.
//!
//! Contract: the bytes are untrusted. What the spec determines (names, wiring, limits, code) is not
//! in them; what is in them is checked against the spec, the modules and itself before anything
//! runs. A forged state can hold values that no run would have computed; it cannot panic.
//!
//! Elsewhere: files, spacing and sharing of pages (`replay`); the bytes of memories, tables and
//! stacks (`machine`); the fields of lanes and sessions (`lane`, `session`), whether they fit each
//! other (`audit`).

mod audit;
mod lane;
mod session;

use crate::codec::{Codec, CodecError, Reader, Width, Writer, record};
use crate::errors::{InWords, errors};
use crate::identity::SpecError;
use crate::input::InputEvent;
use crate::load::LoadError;
use crate::session::SessionOutcome;
use crate::spec::MachineSpec;
use crate::world::{Phase, World};
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use session::can_be_on;
use wavelock_abi::{Frame, SessionId};
use wavelock_kernel::{Lane, LaneState, RebuildRefused, Sharing};
use wavelock_machine::{DIRTY_PAGE_BYTES, DecodeError, Memory, MemoryAddress};
use wavelock_trace::{Digest, RunDigest};

/// Version of the bytes. Those of another version are refused by its number.
pub const STATE_VERSION: u32 = 2;

/// Bytes of a page of a memory in a state.
pub const STATE_PAGE_BYTES: usize = DIRTY_PAGE_BYTES;

/// Slots that a lane may have made room for beyond twice what it uses.
const ROOM_AHEAD: usize = 1 << 10;

errors! {
    /// Why bytes are not a state of the machine.
    StateError {
        /// The machine is not between two frames, so it has no state to save.
        NotABoundary => "the machine is in the middle of a frame, or over: only a boundary between \
                         frames has a state to save",
        /// They are of another version.
        Version {
            /// The version found.
            found: u32,
        } => "state version {found}: this build has version {STATE_VERSION}",
        /// They are of another machine.
        OtherMachine => "the state is of another machine: another manifest, other modules, or other \
                         versions",
        /// They end too early.
        Truncated {
            /// The offset at which more was needed.
            at: usize,
            /// Bytes needed there.
            needed: u64,
            /// Bytes left.
            left: u64,
        } => "the state ends at byte {at}: {needed} bytes needed, {left} left",
        /// A value is out of its range.
        Malformed {
            /// Its offset.
            at: usize,
            /// What it should be.
            what: &'static str,
        } => "byte {at} of the state cannot be decoded: {}" (InWords(what)),
        /// Parts that must fit each other do not.
        Inconsistent {
            /// The session.
            session: SessionId,
            /// The parts.
            what: &'static str,
        } => "session {} of the state does not fit the rest: {what}" (session.0),
        /// The state of a lane is one that no run reaches.
        Lane {
            /// The lane.
            lane: u16,
            /// Why.
            refused: RebuildRefused,
        } => "lane {lane} of the state is invalid: {refused}",
        /// The memory, tables or stacks of a session are ones that no run reaches.
        Machine {
            /// The session.
            session: SessionId,
            /// Why.
            error: DecodeError,
        } => "session {} of the state: {error}" (session.0),
        /// What control inputs have made of the machine's description cannot be read.
        Amended {
            /// Why.
            error: SpecError,
        } => "the state's description of the machine: {error}",
        /// The machine itself could not be made.
        Load {
            /// Why.
            error: LoadError,
        } => "{error}",
    }
}

impl From<CodecError> for StateError {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Truncated { at, needed, left } => Self::Truncated { at, needed, left },
            CodecError::Malformed { at, what } => Self::Malformed { at, what },
        }
    }
}

/// The start of a state: where in its run it was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateHead {
    /// The frame that starts next.
    pub frame: Frame,
    /// The frame that ended last; the same only before the first frame.
    pub ended_frame: Frame,
    /// Waves before it.
    pub waves: u64,
    /// Steps before it.
    pub steps: u64,
    /// Input events that were delivered before it.
    pub inputs: u64,
    /// Most coroutines at once so far.
    pub peak: u64,
    /// Input events that were dropped.
    pub dropped_inputs: u64,
    /// Effects that crossed lanes.
    pub crossings: u64,
    /// Sessions that moved.
    pub moves: u64,
    /// The run digest.
    pub digest: Digest,
}

record! {
    StateHead { frame, ended_frame, waves, steps, inputs, peak, dropped_inputs, crossings, moves, digest }
}

impl StateHead {
    /// The head of a machine that was just loaded.
    pub(crate) const fn start(digest: Digest, peak: u64) -> Self {
        Self {
            frame: Frame::ZERO,
            ended_frame: Frame::ZERO,
            waves: 0,
            steps: 0,
            inputs: 0,
            peak,
            dropped_inputs: 0,
            crossings: 0,
            moves: 0,
            digest,
        }
    }

    /// The head of an outline or of saved bytes.
    ///
    /// # Errors
    /// Another version, or too few bytes.
    pub fn of(outline: &[u8]) -> Result<Self, StateError> {
        let mut input = Reader::new(outline, Width::Native);
        let (head, _) = read_head(&mut input)?;
        Ok(head)
    }
}

/// What a state names its machine by: its description, and what control inputs have made of it.
fn machine_digest(spec: &MachineSpec, amended: Option<&[u8]>) -> Digest {
    let loaded = Digest::of(&spec.identity());
    match amended {
        None => loaded,
        Some(amended) => Digest::of(&[&loaded.0, amended].concat()),
    }
}

/// The description that control inputs have changed, after the head of a state.
fn read_amended(
    spec: MachineSpec,
    machine: Digest,
    input: &mut Reader<'_>,
) -> Result<MachineSpec, StateError> {
    let amended = input.blob().map_err(|_| StateError::OtherMachine)?;
    if machine != machine_digest(&spec, Some(amended)) {
        return Err(StateError::OtherMachine);
    }
    let changed = spec.amended_by(amended).map_err(|error| StateError::Amended { error })?;
    let origin = match spec.origin {
        Some(origin) => origin,
        None => Arc::new(MachineSpec { library: Vec::new(), ..spec }),
    };
    Ok(MachineSpec { origin: Some(origin), ..changed })
}

fn read_head(input: &mut Reader<'_>) -> Result<(StateHead, Digest), StateError> {
    let found = u32::read(input)?;
    if found != STATE_VERSION {
        return Err(StateError::Version { found });
    }
    let machine = Codec::read(input)?;
    Ok((StateHead::read(input)?, machine))
}

/// Saving.
impl World {
    /// The state without the bytes of memories.
    ///
    /// # Errors
    /// [`StateError::NotABoundary`].
    pub fn outline(&self) -> Result<Vec<u8>, StateError> {
        if !matches!(self.phase, Phase::Boundary | Phase::Suspended) {
            return Err(StateError::NotABoundary);
        }
        let mut out = Writer::new(Width::Native);
        out.has_late_waits = self.spec.has_late_waits();
        STATE_VERSION.write(&mut out);
        let amended = self.spec.origin.is_some().then(|| self.spec.own_identity());
        machine_digest(&self.spec, amended.as_deref()).write(&mut out);
        let head = StateHead { digest: self.digest(), ..self.progress.clone() };
        head.write(&mut out);
        amended.iter().for_each(|amended| out.blob(amended));
        if head.frame == Frame::ZERO {
            return Ok(out.bytes);
        }
        self.groups.iter().for_each(|group| group.set_version.write(&mut out));
        for lane in (0..self.spec.lanes).map(|lane| self.lane_ref(lane)) {
            lane.steps.write(&mut out);
            let state = lane.kernel.export();
            state.write(&mut out);
            if self.spec.has_caps() {
                lane.kernel.caps().to_vec().write(&mut out);
            }
            if let Some(sessions) = state.fair_sessions {
                sessions.write(&mut out);
            }
            if let Some(lease) = state.lease {
                lease.write(&mut out);
            }
        }
        for session in self.session_ids() {
            let state = self.session_ref(session);
            session::write(state, &mut out);
            if self.spec.live {
                state.input.finished().write(&mut out);
            }
        }
        self.leases.iter().for_each(|lease| lease.write(&mut out));
        for session in self.session_ids() {
            let state = self.session_ref(session);
            if !state.kills.records.is_empty() {
                session.write(&mut out);
                session::write_kills(state, &mut out);
            }
        }
        Ok(out.bytes)
    }

    /// The memories of sessions that have not ended, in session order.
    pub fn memories(&self) -> impl Iterator<Item = (SessionId, MemoryAddress, &Memory)> {
        self.session_ids().flat_map(|session| {
            let machine = &self.session_ref(session).machine;
            (0..machine.memory_count())
                .map(MemoryAddress)
                .map(move |memory| (session, memory, machine.memory(memory)))
        })
    }

    /// The state in one piece: the outline, then every page that is not all zeros.
    ///
    /// # Errors
    /// [`StateError::NotABoundary`].
    pub fn save(&self) -> Result<Vec<u8>, StateError> {
        let mut out = Writer::new(Width::Native);
        out.blob(&self.outline()?);
        for (session, memory, contents) in self.memories() {
            for (number, page) in nonzero_pages(contents) {
                (session, (memory.0, number)).write(&mut out);
                out.bytes.extend_from_slice(page);
            }
        }
        Ok(out.bytes)
    }

    /// The same, to change or to hash.
    pub fn visit_memories(&mut self, mut visit: impl FnMut(SessionId, MemoryAddress, &mut Memory)) {
        for session in self.session_ids() {
            let machine = &mut self.session(session).machine;
            for memory in (0..machine.memory_count()).map(MemoryAddress) {
                visit(session, memory, machine.memory_mut(memory));
            }
        }
    }

    /// The memories of sessions that have not ended, all at once: by session and number.
    pub fn memories_mut(&mut self) -> BTreeMap<(SessionId, MemoryAddress), &mut Memory> {
        let sessions = self.groups.iter_mut().flat_map(|group| &mut group.sessions);
        sessions
            .flat_map(|state| {
                state
                    .machine
                    .memories_mut()
                    .map(|(memory, contents)| ((state.id, memory), contents))
            })
            .collect()
    }

    /// Moves the memories out of a world of the same machine that is no longer needed, where they
    /// have the same size: a rewind then copies only the pages that differ.
    pub fn take_memories(&mut self, from: &mut Self) {
        let mut theirs = BTreeMap::new();
        from.visit_memories(|session, memory, contents| {
            theirs.insert((session, memory), core::mem::replace(contents, Memory::empty()));
        });
        self.visit_memories(|session, memory, contents| {
            let fits =
                |old: &Memory| old.pages() == contents.pages() && old.kind() == contents.kind();
            if let Some(old) = theirs.remove(&(session, memory)).filter(fits) {
                *contents = old;
            }
        });
    }
}

/// The pages of a memory that are not all zeros, with their numbers.
fn nonzero_pages(memory: &Memory) -> impl Iterator<Item = (u32, &[u8])> {
    let pages = (0u32..).zip(memory.bytes().chunks_exact(STATE_PAGE_BYTES));
    pages.filter(|(_, page)| page.iter().any(|byte| *byte != 0))
}

/// Restoring.
impl World {
    /// The machine of `spec` in the state of these bytes, without the bytes of its memories.
    /// `inputs` are those of the whole run, in frame order; the ones that were delivered before are
    /// skipped. `keep_events` as in [`World::load`]. Inputs that a live machine was given and that
    /// wait for their frames are no part of its state.
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn restore_outline(
        spec: MachineSpec,
        inputs: Vec<InputEvent>,
        keep_events: bool,
        outline: &[u8],
    ) -> Result<Self, StateError> {
        let mut input = Reader::new(outline, Width::Native);
        let (head, machine) = read_head(&mut input)?;
        let spec = if machine == machine_digest(&spec, None) {
            spec
        } else {
            read_amended(spec, machine, &mut input)?
        };
        let mut inputs = inputs;
        if spec.live {
            inputs.retain(|event| event.frame >= head.frame);
        } else {
            let delivered =
                usize::try_from(head.inputs).ok().filter(|&delivered| delivered <= inputs.len());
            let delivered =
                delivered.ok_or(input.malformed("more inputs delivered than there are"))?;
            inputs.drain(..delivered);
        }
        let loaded = Self::load_as_is(spec, inputs, keep_events);
        let mut world = loaded.map_err(|error| StateError::Load { error })?.world;
        if head.frame == Frame::ZERO {
            input.finish()?;
            input.check("the head of a machine that has not run", head == world.progress)?;
            return Ok(world);
        }
        let spec = world.spec.clone();
        let mut input = input.with_spec(&spec);
        let is_next = head.ended_frame < head.frame && head.frame <= world.last_frame();
        input.check("a frame that cannot come next", is_next)?;
        world.digest = RunDigest::resume(head.digest);
        world.progress = head;
        for group in &mut world.groups {
            group.set_version = Codec::read(&mut input)?;
        }
        world.restore_lanes(&mut input)?;
        for session in world.session_ids() {
            world.restore_session(session, &mut input)?;
            if spec.live && bool::read(&mut input)? {
                world.session(session).input.end();
            }
        }
        for lease in &mut world.leases {
            *lease = Codec::read(&mut input)?;
        }
        world.restore_kills(&mut input)?;
        input.finish()?;
        world.audit()?;
        world.restore_derived();
        Ok(world)
    }

    /// The machine of `spec` in the state that [`World::save`] returned; see
    /// [`World::restore_outline`].
    ///
    /// # Errors
    /// See [`StateError`].
    pub fn restore(
        spec: MachineSpec,
        inputs: Vec<InputEvent>,
        keep_events: bool,
        bytes: &[u8],
    ) -> Result<Self, StateError> {
        let mut input = Reader::new(bytes, Width::Native);
        let mut world = Self::restore_outline(spec, inputs, keep_events, input.blob()?)?;
        let mut last = None;
        while !input.is_at_end() {
            let at: (SessionId, (u32, u32)) = Codec::read(&mut input)?;
            let bytes = input.take(STATE_PAGE_BYTES)?;
            let is_next = last < Some(at) && bytes.iter().any(|byte| *byte != 0);
            input.check("a page out of order, or of zeros", is_next)?;
            last = Some(at);
            let is_written = world.write_page(at, bytes);
            input.check("a page outside every memory", is_written)?;
        }
        Ok(world)
    }

    /// Writes one page of a memory of a world that is being restored. `false` if it does not exist.
    fn write_page(
        &mut self,
        (session, (memory, page)): (SessionId, (u32, u32)),
        bytes: &[u8],
    ) -> bool {
        let is_known = (session.0 as usize) < self.session_groups.len();
        let address = page.checked_mul(STATE_PAGE_BYTES as u32);
        let Some(address) = address.filter(|_| is_known) else { return false };
        let machine = &mut self.session(session).machine;
        let memory = MemoryAddress(memory);
        memory.0 < machine.memory_count() && machine.memory_mut(memory).write(address, bytes)
    }

    fn restore_lanes(&mut self, input: &mut Reader<'_>) -> Result<(), StateError> {
        let (spec, head) = (&self.spec, &self.progress);
        let mut steps = 0u64;
        for (number, &(group, lane)) in (0u16..).zip(self.lane_positions.iter()) {
            let lane = &mut self.groups[group].lanes[lane];
            lane.steps = Codec::read(input)?;
            steps = steps.saturating_add(lane.steps);
            let mut state = LaneState::read(input)?;
            if spec.has_caps() {
                state.caps = Codec::read(input)?;
            }
            if spec.policy.sharing() == Sharing::Session {
                state.fair_sessions = Some(Codec::read(input)?);
            }
            if lane.kernel.lease().is_some() {
                state.lease = Some(Codec::read(input)?);
            }
            let ended = u128::from(head.ended_frame.0 + 1) * u128::from(spec.frame_cycles.0);
            let here = state.id.0 == number
                && state.frame == head.ended_frame
                && u128::from(state.clock.0) >= ended;
            input.check("a lane of another number or time", here)?;
            let is_counted = state.clock.0 / spec.frame_cycles.0 <= spec.countable_frames();
            input.check("a clock later than any run's", is_counted)?;
            let used = state.records.len() + state.free.len() + state.retired.len();
            let (slots, sessions) = state.reserved;
            let room = (slots.max(sessions) as usize) <= 2 * used + ROOM_AHEAD;
            input.check("more room than a lane makes", room)?;
            lane.kernel = Lane::rebuild(&state, u32::MAX)
                .map_err(|refused| StateError::Lane { lane: number, refused })?;
            lane.reserve_caps(spec).map_err(|error| StateError::Load { error })?;
            lane.kernel.set_prefetch(wavelock_machine::prefetch);
            lane.kernel.set_deviations(spec.deviations_of(number));
        }
        Ok(input.check("the number of steps", steps == head.steps)?)
    }

    fn restore_session(
        &mut self,
        session: SessionId,
        input: &mut Reader<'_>,
    ) -> Result<(), StateError> {
        let (ended, lanes): (Option<SessionOutcome>, Vec<u16>) = Codec::read(input)?;
        // Leases move ended sessions of all kinds, if they cannot begin anew.
        let is_moved = ended.is_some() && !self.spec.live && !self.spec.leases.is_empty();
        let fits = is_moved && matches!(lanes[..], [lane] if lane < self.spec.lanes)
            || can_be_on(&lanes, &self.spec, session);
        input.check("the lanes of a session", fits)?;
        let (from, to) = (self.session(session).home(), lanes[0]);
        let [old, new] = [from, to].map(|lane| self.lane_positions[usize::from(lane)].0);
        if old != new {
            let versions = [old, new].map(|group| self.groups[group].set_version);
            self.carry(session, from, to);
            [self.groups[old].set_version, self.groups[new].set_version] = versions;
        }
        session::read(input, self.session(session), ended, lanes)
    }

    /// The rest of an outline: the sessions with kills.
    fn restore_kills(&mut self, input: &mut Reader<'_>) -> Result<(), StateError> {
        let mut last = None;
        while !input.is_at_end() {
            let session = SessionId::read(input)?;
            let is_next = last < Some(session) && (session.0 as usize) < self.session_groups.len();
            input.check("a session with kills", is_next)?;
            last = Some(session);
            session::read_kills(input, self.session(session))?;
        }
        Ok(())
    }

    /// Recomputes what is not in the bytes because it follows from the rest.
    fn restore_derived(&mut self) {
        for group in &mut self.groups {
            group.wave = self.progress.waves;
            group.frame = self.progress.ended_frame;
            group.live = group.sessions.iter().map(|state| u64::from(state.tasks.live())).sum();
            group.wave_peak = group.live;
        }
        let sessions = self.groups.iter().flat_map(|group| &group.sessions);
        self.ended_sessions = sessions.filter(|state| state.ended.is_some()).count();
        for (channel, senders) in self.wired_senders.clone() {
            let is_open = |sender: &&SessionId| self.session_ref(**sender).has_open_port(channel);
            let open_senders = senders.iter().filter(is_open).count() as u32;
            if let Some(wiring) = &mut self.session_group(channel.owner).channel(channel).wiring {
                wiring.open_senders = open_senders;
            }
            self.rewire_channel(channel);
        }
        self.publish_leases();
    }
}
