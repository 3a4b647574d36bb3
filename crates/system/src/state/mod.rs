//! The whole machine as canonical bytes, at the boundary between two frames, and back.
//!
//! An *outline* holds everything but the bytes of memories; those are read and written page by
//! page, so that whoever keeps many snapshots can keep each page once. [`World::save`] is both in
//! one. A world that is restored goes on as the one that was saved, on any number of workers: same
//! digests, same outputs, same totals. `save(restore(bytes)) == bytes`.
//!
//! The bytes are untrusted. What the spec determines (names, wiring, limits, code) is not in them;
//! what is in them is checked against the spec, the modules and itself before anything runs. A
//! forged state can hold values that no run would have computed; it cannot panic.
//!
//! Elsewhere: files, spacing and sharing of pages (`replay`); sessions and coroutines (`machine`);
//! lanes (`kernel`).

mod audit;
mod lane;
mod session;

use crate::codec::{Codec, CodecError, Reader, Width, Writer, record};
use crate::input::InputEvent;
use crate::load::LoadError;
use crate::spec::MachineSpec;
use crate::world::{Phase, World};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use session::can_be_on;
use wavelock_abi::{Frame, SessionId};
use wavelock_kernel::{Lane, LaneState, RebuildRefused};
use wavelock_machine::{DIRTY_PAGE_BYTES, DecodeError, Memory, MemoryAddress};
use wavelock_trace::{Digest, RunDigest};

/// Version of the bytes. Those of another version are refused by its number.
pub const STATE_VERSION: u32 = 2;

/// Bytes of a page of a memory in a state.
pub const STATE_PAGE_BYTES: usize = DIRTY_PAGE_BYTES;

/// Slots that a lane may have made room for beyond twice what it uses.
const ROOM_AHEAD: usize = 1 << 10;

/// Why bytes are not a state of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StateError {
    /// The machine is not between two frames, so it has no state to save.
    NotABoundary,
    /// They are of another version.
    Version {
        /// The version found.
        found: u32,
    },
    /// They are of another machine.
    OtherMachine,
    /// They end too early.
    Truncated {
        /// Where more was needed.
        at: usize,
        /// Bytes needed there.
        needed: u64,
        /// Bytes left.
        left: u64,
    },
    /// Something cannot be what it says.
    Malformed {
        /// Where.
        at: usize,
        /// What.
        what: &'static str,
    },
    /// Parts that must fit do not.
    Inconsistent {
        /// In which session.
        session: SessionId,
        /// What.
        what: &'static str,
    },
    /// A lane's kernel cannot be so.
    Lane {
        /// The lane.
        lane: u16,
        /// Why.
        refused: RebuildRefused,
    },
    /// A session's memory, tables or stacks cannot be so.
    Machine {
        /// The session.
        session: SessionId,
        /// Why.
        error: DecodeError,
    },
    /// The machine itself could not be made.
    Load(LoadError),
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotABoundary => {
                write!(
                    f,
                    "the machine is in the middle of a frame, or over: only a boundary between frames has a state to save"
                )
            }
            Self::Version { found } => {
                write!(f, "state version {found}: this build has version {STATE_VERSION}")
            }
            Self::OtherMachine => write!(
                f,
                "the state is of another machine: another manifest, other modules, or other versions"
            ),
            Self::Truncated { at, needed, left } => {
                write!(f, "the state ends at byte {at}: {needed} bytes needed, {left} left")
            }
            Self::Malformed { at, what } => {
                write!(f, "byte {at} of the state: not what can stand there: {what}")
            }
            Self::Inconsistent { session, what } => {
                write!(f, "session {} of the state does not fit the rest: {what}", session.0)
            }
            Self::Lane { lane, refused } => {
                write!(f, "lane {lane} of the state cannot be so: {refused}")
            }
            Self::Machine { session, error } => {
                write!(f, "session {} of the state: {error}", session.0)
            }
            Self::Load(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for StateError {}

impl From<CodecError> for StateError {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Truncated { at, needed, left } => Self::Truncated { at, needed, left },
            CodecError::Malformed { at, what } => Self::Malformed { at, what },
        }
    }
}

/// What a state begins with: where in its run it was taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateHead {
    /// The frame that begins next.
    pub frame: Frame,
    /// The frame that ended last; the same only where nothing has run yet.
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
        let Self {
            spec,
            groups,
            lane_places,
            session_places,
            wired_senders: _,
            inputs: _,
            delivered_inputs,
            frame,
            wave,
            steps,
            ended_sessions: _,
            peak,
            phase: Phase::Boundary(next),
            digest,
            // Nothing of a frame is left at its end.
            sampled: _,
            boundary: _,
            deadlock: _,
            dropped_inputs,
            crossings,
            moves,
            profiling: _,
            wave_profile: _,
            frame_peak: _,
        } = self
        else {
            return Err(StateError::NotABoundary);
        };
        let mut out = Writer::new(Width::Native);
        STATE_VERSION.write(&mut out);
        Digest::of(&spec.identity()).write(&mut out);
        let head = StateHead {
            frame: *next,
            ended_frame: *frame,
            waves: *wave,
            steps: *steps,
            inputs: *delivered_inputs,
            peak: *peak,
            dropped_inputs: *dropped_inputs,
            crossings: *crossings,
            moves: *moves,
            digest: digest.value(),
        };
        head.write(&mut out);
        if *next == Frame::ZERO {
            return Ok(out.bytes);
        }
        groups.iter().for_each(|group| group.set_version.write(&mut out));
        for &(group, lane) in lane_places.iter() {
            let lane = &groups[group].lanes[lane];
            lane.steps.write(&mut out);
            lane.kernel.export().write(&mut out);
        }
        for (session, &group) in session_places.iter().enumerate() {
            let group = &groups[group];
            session::write(&group.sessions[group.local[SessionId(session as u32)]], &mut out);
        }
        Ok(out.bytes)
    }

    /// The memories of sessions that have not ended, in session order.
    pub fn memories(&self) -> impl Iterator<Item = (SessionId, MemoryAddress, &Memory)> {
        self.session_places.iter().enumerate().flat_map(move |(session, &group)| {
            let group = &self.groups[group];
            let machine = &group.sessions[group.local[SessionId(session as u32)]].machine;
            (0..machine.memory_count()).map(move |memory| {
                let memory = MemoryAddress(memory);
                (SessionId(session as u32), memory, machine.memory(memory))
            })
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
        for session in 0..self.session_places.len() as u32 {
            let machine = &mut self.session(SessionId(session)).machine;
            for memory in (0..machine.memory_count()).map(MemoryAddress) {
                visit(SessionId(session), memory, machine.memory_mut(memory));
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

    /// Takes over the memory of a world of the same machine that is no longer needed, where it has
    /// the same size: what a rewind saves is copying pages that are right already.
    pub fn take_memories(&mut self, from: &mut Self) {
        let mut theirs = BTreeMap::new();
        from.visit_memories(|session, memory, contents| {
            theirs.insert((session, memory), core::mem::replace(contents, Memory::empty()));
        });
        self.visit_memories(|session, memory, contents| {
            if let Some(old) = theirs
                .remove(&(session, memory))
                .filter(|old| old.pages() == contents.pages() && old.kind() == contents.kind())
            {
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
    /// passed over. `keep_events` as in [`World::load`].
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
        if machine != Digest::of(&spec.identity()) {
            return Err(StateError::OtherMachine);
        }
        let delivered =
            usize::try_from(head.inputs).ok().filter(|&delivered| delivered <= inputs.len());
        let mut inputs = inputs;
        inputs.drain(..delivered.ok_or(input.malformed("more inputs delivered than there are"))?);
        let mut world = Self::load(spec, inputs, keep_events).map_err(StateError::Load)?.world;
        if head.frame == Frame::ZERO {
            input.finish()?;
            let fresh = StateHead::of(&world.outline()?)?;
            return if head == fresh {
                Ok(world)
            } else {
                Err(input.malformed("a beginning that is none").into())
            };
        }
        let spec = world.spec.clone();
        let mut input = input.with_spec(&spec);
        world.restore_head(&head, &input)?;
        for group in &mut world.groups {
            group.set_version = Codec::read(&mut input)?;
        }
        world.restore_lanes(&head, &mut input)?;
        for session in 0..world.session_places.len() as u32 {
            world.restore_session(SessionId(session), &mut input)?;
        }
        input.finish()?;
        world.audit()?;
        world.settle();
        Ok(world)
    }

    /// The machine of `spec` in the state that [`World::save`] gave; see
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
            let (session, (memory, page)): (SessionId, (u32, u32)) = Codec::read(&mut input)?;
            let bytes = input.take(STATE_PAGE_BYTES)?;
            input.check(
                "a page out of order, or of zeros",
                last < Some((session, memory, page)) && bytes.iter().any(|byte| *byte != 0),
            )?;
            last = Some((session, memory, page));
            input.check(
                "a page that is not there",
                world.write_page(session, MemoryAddress(memory), page, bytes),
            )?;
        }
        Ok(world)
    }

    /// Writes one page of a memory of a world that is being restored. `false` if there is none
    /// such.
    fn write_page(
        &mut self,
        session: SessionId,
        memory: MemoryAddress,
        page: u32,
        bytes: &[u8],
    ) -> bool {
        let Some(address) = (page as usize)
            .checked_mul(STATE_PAGE_BYTES)
            .and_then(|address| u32::try_from(address).ok())
        else {
            return false;
        };
        if session.0 as usize >= self.session_places.len() || bytes.len() != STATE_PAGE_BYTES {
            return false;
        }
        let machine = &mut self.session(session).machine;
        memory.0 < machine.memory_count() && machine.memory_mut(memory).write(address, bytes)
    }

    fn restore_head(&mut self, head: &StateHead, input: &Reader<'_>) -> Result<(), StateError> {
        let StateHead {
            frame,
            ended_frame,
            waves,
            steps,
            inputs,
            peak,
            dropped_inputs,
            crossings,
            moves,
            digest,
        } = *head;
        input.check(
            "a frame that cannot come next",
            ended_frame < frame && frame <= self.last_frame(),
        )?;
        self.phase = Phase::Boundary(frame);
        self.frame = ended_frame;
        self.wave = waves;
        self.steps = steps;
        self.delivered_inputs = inputs;
        self.peak = peak;
        self.dropped_inputs = dropped_inputs;
        self.crossings = crossings;
        self.moves = moves;
        self.digest = RunDigest::resume(digest);
        Ok(())
    }

    fn restore_lanes(
        &mut self,
        head: &StateHead,
        input: &mut Reader<'_>,
    ) -> Result<(), StateError> {
        let spec = &self.spec;
        let mut steps = 0u64;
        for (number, &(group, lane)) in (0u16..).zip(self.lane_places.iter()) {
            let lane = &mut self.groups[group].lanes[lane];
            lane.steps = Codec::read(input)?;
            steps = steps.saturating_add(lane.steps);
            let state = LaneState::read(input)?;
            let ended = u128::from(head.ended_frame.0 + 1) * u128::from(spec.frame_cycles.0);
            let here = state.id.0 == number
                && state.frame == head.ended_frame
                && u128::from(state.clock.0) >= ended;
            input.check("a lane at another place or time", here)?;
            let used = state.records.len() + state.free.len() + state.retired.len();
            let (slots, sessions) = state.reserved;
            let room = (slots.max(sessions) as usize) <= 2 * used + ROOM_AHEAD;
            input.check("more room than a lane makes", room)?;
            lane.kernel = Lane::rebuild(&state, u32::MAX)
                .map_err(|refused| StateError::Lane { lane: number, refused })?;
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
        let (ended, lanes): (_, Vec<u16>) = Codec::read(input)?;
        input.check("the lanes of a session", can_be_on(&lanes, &self.spec, session))?;
        let (from, to) = (self.session(session).home(), lanes[0]);
        if self.lane_places[usize::from(from)].0 != self.lane_places[usize::from(to)].0 {
            let versions: Vec<u64> = self.groups.iter().map(|group| group.set_version).collect();
            self.carry(session, from, to);
            self.groups
                .iter_mut()
                .zip(versions)
                .for_each(|(group, version)| group.set_version = version);
        }
        session::read(input, self.session(session), ended, lanes)
    }

    /// Makes again what follows from the rest: who is where, which ports are open, what waits in
    /// which lane.
    fn settle(&mut self) {
        for group in &mut self.groups {
            group.wave = self.wave;
            group.frame = self.frame;
            group.live = group.sessions.iter().map(|state| u64::from(state.tasks.live())).sum();
            group.wave_peak = group.live;
        }
        self.ended_sessions = self
            .groups
            .iter()
            .flat_map(|group| &group.sessions)
            .filter(|state| state.ended.is_some())
            .count();
        let channels: Vec<_> = self.wired_senders.keys().copied().collect();
        for channel in channels {
            let senders = self.wired_senders.get(&channel).cloned().unwrap_or_default();
            let open = |world: &mut Self, sender| {
                world
                    .session(sender)
                    .ports
                    .iter()
                    .any(|port| port.channel == channel && !port.closed)
            };
            let open_senders =
                senders.into_iter().filter(|&sender| open(self, sender)).count() as u32;
            if let Some(wiring) = &mut self.session_group(channel.owner).channel(channel).wiring {
                wiring.open_senders = open_senders;
            }
            self.rewire_channel(channel);
        }
    }
}
