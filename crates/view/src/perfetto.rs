//! Writes moments as a Perfetto trace: lanes and coroutines as tracks, slices, waits, and messages
//! as flows. One cycle is written as one nanosecond.
//!
//! The bytes are a function of the moments. Only open items are buffered: a coroutine's wait until
//! it ends, a message until it is received. Field numbers and types are those of Perfetto's
//! `trace_packet.proto`, `track_event.proto` and `track_descriptor.proto`.

use crate::budget::{Budget, Budgets};
use crate::lease::lease;
use crate::moment::{CoroutineSlot, Moment, Slice};
use crate::protobuf::Message;
use crate::words::{block_reason, describe};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wavelock_kernel::LeasePhase;
use wavelock_trace::{Event, StopCode};

/// The names of tracks.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Sessions, by number.
    pub sessions: Vec<String>,
    /// The number of lanes.
    pub lanes: u16,
    /// Names of contexts, by lane and slot.
    pub contexts: BTreeMap<(u16, u64), String>,
    /// Leases, by their position in the description.
    pub leases: Vec<String>,
}

impl Names {
    /// A session's name.
    #[must_use]
    pub fn session(&self, number: u64) -> String {
        usize::try_from(number)
            .ok()
            .and_then(|at| self.sessions.get(at))
            .map_or_else(|| format!("session {number}"), Clone::clone)
    }

    /// The name of a lease.
    #[must_use]
    pub fn lease(&self, number: u64) -> String {
        let name = usize::try_from(number).ok().and_then(|at| self.leases.get(at));
        name.map_or_else(|| format!("lease {number}"), |name| format!("lease {name}"))
    }

    /// One line of text about an event of a lane.
    #[must_use]
    pub fn describe(&self, lane: u16, event: &Event<'_>) -> String {
        if let Event::Lease { lease: number, .. } | Event::Noise { lease: number, .. } = *event {
            return lease(event, &self.lease(number), &|session| self.session(session));
        }
        describe(event, &|session| self.session(session), &|slot| self.context(lane, slot))
    }

    /// Takes the name of a session that starts while the machine runs.
    pub fn learn(&mut self, event: &Event<'_>) {
        let Event::Start { session, name, .. } = event else { return };
        // They are numbered in order; others are from a damaged trace.
        if *session == self.sessions.len() as u64 {
            self.sessions.push(String::from_utf8_lossy(name).into_owned());
        }
    }

    /// The name of a context.
    #[must_use]
    pub fn context(&self, lane: u16, slot: u64) -> String {
        self.contexts.get(&(lane, slot)).map_or_else(
            || format!("context {slot} of lane {lane}"),
            |name| format!("context {name}"),
        )
    }
}

/// Field numbers, by message.
mod field {
    pub(super) const PACKET: u32 = 1;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
    pub(super) const DESCRIPTOR_UUID: u32 = 1;
    pub(super) const DESCRIPTOR_NAME: u32 = 2;
    pub(super) const DESCRIPTOR_PARENT: u32 = 5;
    pub(super) const DESCRIPTOR_COUNTER: u32 = 8;
    pub(super) const COUNTER_UNIT_NAME: u32 = 6;
    pub(super) const ANNOTATION: u32 = 4;
    pub(super) const TYPE: u32 = 9;
    pub(super) const TRACK: u32 = 11;
    pub(super) const NAME: u32 = 23;
    pub(super) const COUNTER_VALUE: u32 = 30;
    pub(super) const FLOW: u32 = 47;
    pub(super) const FLOW_END: u32 = 48;
    pub(super) const ANNOTATION_UINT: u32 = 3;
    pub(super) const ANNOTATION_TEXT: u32 = 6;
    pub(super) const ANNOTATION_NAME: u32 = 10;
}

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// Track numbers: one for the machine, then lanes, then sessions, then contexts and their budgets,
/// then leases, then coroutines.
const MACHINE: u64 = 1;
const LANES: u64 = 1 << 16;
const SESSIONS: u64 = 1 << 32;
const CONTEXTS: u64 = 1 << 48;
const BUDGETS: u64 = 1 << 49;
const LEASES: u64 = 1 << 50;

fn coroutine_track(coroutine: CoroutineSlot) -> u64 {
    1 << 63 | (coroutine.session & 0x3fff_ffff) << 32 | coroutine.slot & 0xffff_ffff
}

/// A message in flight.
#[derive(Clone, Copy, Debug)]
struct Flying {
    flow: u64,
    lane: u16,
    coroutine: CoroutineSlot,
    arrived: bool,
}

/// The state of a coroutine since its last slice.
#[derive(Clone, Debug)]
struct Rest {
    since: u64,
    what: String,
}

/// A Perfetto trace being written.
#[derive(Clone, Debug)]
pub struct Perfetto {
    names: Names,
    out: Vec<u8>,
    tracks: BTreeSet<u64>,
    resting: BTreeMap<CoroutineSlot, Rest>,
    /// By channel (owner, index): messages sent but not received.
    flying: BTreeMap<(u64, u64), VecDeque<Flying>>,
    /// By coroutine: the channel it waits to receive from.
    receiving: BTreeMap<CoroutineSlot, (u64, u64)>,
    /// Flows that end in a coroutine's next slice.
    landing: BTreeMap<CoroutineSlot, Vec<u64>>,
    /// Events of the current slice, whose step follows.
    inside: Vec<(u64, String, Option<u64>, Option<u64>)>,
    /// Context events of that slice: whether at its end, the track, the text.
    about_time: Vec<(bool, u64, String)>,
    budgets: Budgets,
    /// Leases whose track has an open slice.
    leased: BTreeSet<u64>,
    flows: u64,
}

impl Perfetto {
    /// Starts a trace with a track for each lane.
    #[must_use]
    pub fn new(names: Names) -> Self {
        let mut made = Self {
            names,
            out: Vec::new(),
            tracks: BTreeSet::new(),
            resting: BTreeMap::new(),
            flying: BTreeMap::new(),
            receiving: BTreeMap::new(),
            landing: BTreeMap::new(),
            inside: Vec::new(),
            about_time: Vec::new(),
            budgets: Budgets::default(),
            leased: BTreeSet::new(),
            flows: 0,
        };
        made.track(MACHINE, "machine", None);
        for lane in 0..made.names.lanes {
            made.track(LANES + u64::from(lane), &format!("lane {lane}"), None);
        }
        made
    }

    /// The bytes written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Ends the trace; unfinished slices remain open.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        for (coroutine, rest) in std::mem::take(&mut self.resting) {
            let track = self.coroutine(coroutine);
            self.event(rest.since, track, SLICE_BEGIN, &rest.what, Message::new());
        }
        self.out
    }

    /// Writes the usable budgets of a lane's contexts at its clock. Called after each step of a
    /// run, for lanes with contexts.
    pub fn budgets(&mut self, lane: u16, clock: u64, contexts: &[Budget]) {
        for value in self.budgets.sample(lane, clock, contexts) {
            let parent = self.context(lane, u64::from(value.slot));
            let track = BUDGETS | parent & (CONTEXTS - 1);
            if self.tracks.insert(track) {
                let name = format!("budget of {}", self.names.context(lane, u64::from(value.slot)));
                let counter = Message::new().text(field::COUNTER_UNIT_NAME, "cycles");
                let descriptor = Message::new()
                    .number(field::DESCRIPTOR_UUID, track)
                    .text(field::DESCRIPTOR_NAME, &name);
                let descriptor = descriptor
                    .number(field::DESCRIPTOR_PARENT, parent)
                    .message(field::DESCRIPTOR_COUNTER, &counter);
                self.packet(
                    &Message::new()
                        .number(field::SEQUENCE, 1)
                        .message(field::TRACK_DESCRIPTOR, &descriptor),
                );
            }
            self.event(
                value.at,
                track,
                COUNTER,
                "",
                Message::new().number(field::COUNTER_VALUE, value.cycles),
            );
        }
    }

    /// The track of a context, written on first use.
    fn context(&mut self, lane: u16, slot: u64) -> u64 {
        let track = CONTEXTS | u64::from(lane) << 24 | slot & 0xff_ffff;
        if !self.tracks.contains(&track) {
            let name = self.names.context(lane, slot);
            self.track(track, &name, None);
        }
        track
    }

    /// Writes a context event on the context's own track too: a used-up refill at the end of its
    /// slice, all others at its start.
    fn context_event(&mut self, lane: u16, at: u64, inside: bool, event: &Event<'_>, text: &str) {
        let (slot, late) = match *event {
            Event::Throttle { context, .. }
            | Event::Demote { context, .. }
            | Event::Overrun { context, .. } => (context, true),
            Event::Replenish { context, .. }
            | Event::Miss { context, .. }
            | Event::Donate { context, .. }
            | Event::Return { context, .. }
            | Event::Bind { context, .. }
            | Event::Revoke { context, .. }
            | Event::Notify { context, .. } => (context, false),
            _ => return,
        };
        let track = self.context(lane, slot);
        if inside {
            self.about_time.push((late, track, text.to_owned()));
        } else {
            self.event(at, track, INSTANT, text, Message::new());
        }
    }

    /// Writes the state of a lease on a track of its own: a slice for each state that it is in for
    /// some time, an instant for its end or denial.
    fn lease_event(&mut self, at: u64, event: &Event<'_>, text: &str) {
        let (number, state) = match *event {
            Event::Lease { lease, state, .. } => (lease, state),
            Event::Noise { lease, .. } => (lease, u64::MAX),
            _ => return,
        };
        let track = LEASES | number & 0xffff_ffff;
        if !self.tracks.contains(&track) {
            let name = self.names.lease(number);
            self.track(track, &name, None);
        }
        let phase = u8::try_from(state).ok().and_then(LeasePhase::from_code);
        if phase.is_some() && self.leased.remove(&number) {
            self.event(at, track, SLICE_END, "", Message::new());
        }
        match phase {
            Some(LeasePhase::Released | LeasePhase::Denied) | None => {
                self.event(at, track, INSTANT, text, Message::new());
            }
            Some(phase) => {
                self.leased.insert(number);
                let details = Message::new().message(field::ANNOTATION, &annotation("why", text));
                self.event(at, track, SLICE_BEGIN, phase.name(), details);
            }
        }
    }

    /// Writes one moment.
    pub fn moment(&mut self, moment: &Moment<'_>) {
        match *moment {
            Moment::Boundary { at, event } => {
                self.names.learn(&event);
                let text = self.names.describe(0, &event);
                self.event(at, MACHINE, INSTANT, &text, Message::new());
            }
            Moment::Event { lane, at, by, event } => self.lane_event(lane, at, by, &event),
            Moment::Slice(slice) => self.slice(&slice),
        }
    }

    fn slice(&mut self, slice: &Slice) {
        let (lane, own) = (LANES + u64::from(slice.lane), self.coroutine(slice.coroutine));
        if let Some(rest) = self.resting.remove(&slice.coroutine) {
            self.span(
                own,
                rest.since,
                slice.ready_since.unwrap_or(slice.start).max(rest.since),
                &rest.what,
            );
        }
        if let Some(since) = slice.ready_since {
            self.span(own, since, slice.start, "ready");
        }
        let name =
            format!("{}/{}", self.names.session(slice.coroutine.session), slice.coroutine.slot);
        let mut details = Message::new()
            .message(field::ANNOTATION, &annotation("stopped", slice.stop.text()))
            .message(field::ANNOTATION, &count("used_cycles", slice.used))
            .message(field::ANNOTATION, &count("overhead_cycles", slice.overhead));
        if let Some(waited) = slice.waited() {
            details = details.message(field::ANNOTATION, &count("waited_cycles", waited));
        }
        for flow in self.landing.remove(&slice.coroutine).unwrap_or_default() {
            details = details.fixed(field::FLOW_END, flow);
        }
        self.event(slice.start, lane, SLICE_BEGIN, &name, details);
        for (at, text, begins, ends) in std::mem::take(&mut self.inside) {
            let mut flows = Message::new();
            if let Some(flow) = begins {
                flows = flows.fixed(field::FLOW, flow);
            }
            if let Some(flow) = ends {
                flows = flows.fixed(field::FLOW_END, flow);
            }
            self.event(at, lane, INSTANT, &text, flows);
        }
        self.event(slice.end, lane, SLICE_END, "", Message::new());
        for (late, track, text) in std::mem::take(&mut self.about_time) {
            self.event(
                if late { slice.end } else { slice.start },
                track,
                INSTANT,
                &text,
                Message::new(),
            );
        }
        self.span(own, slice.start, slice.end, "running");
        if matches!(
            slice.stop,
            StopCode::Slept
                | StopCode::WaitSend
                | StopCode::WaitReceive
                | StopCode::WaitSelect
                | StopCode::WaitJoin
                | StopCode::WaitInput
                | StopCode::WaitLane
        ) {
            let what = if slice.stop == StopCode::Slept {
                "sleeps".to_owned()
            } else {
                slice.stop.text().to_owned()
            };
            self.resting.insert(slice.coroutine, Rest { since: slice.end, what });
        }
    }

    fn lane_event(&mut self, lane: u16, at: u64, by: Option<CoroutineSlot>, event: &Event<'_>) {
        let (mut begins, mut ends) = (None, None);
        match *event {
            Event::Send { owner, index } => {
                if let Some(coroutine) = by {
                    self.flows += 1;
                    begins = Some(self.flows);
                    self.flying.entry((owner, index)).or_default().push_back(Flying {
                        flow: self.flows,
                        lane,
                        coroutine,
                        arrived: false,
                    });
                }
            }
            Event::Receive { owner, index } => ends = self.land((owner, index), lane),
            Event::Arrival { lane: from, owner, index } => {
                self.arrive((owner, index), |flying| flying.lane == from as u16)
            }
            Event::Entered { session, slot, owner, index } => self
                .arrive((owner, index), |flying| {
                    flying.coroutine == CoroutineSlot { session, slot }
                }),
            Event::Wait { reason, owner, index } => {
                if let Some(coroutine) = by {
                    if reason == wavelock_kernel::BlockReason::ChannelReceive as u64 {
                        self.receiving.insert(coroutine, (owner, index));
                    } else {
                        self.receiving.remove(&coroutine);
                    }
                    self.inside.push((
                        at,
                        format!("waits for {}", block_reason(reason)),
                        None,
                        None,
                    ));
                }
                return;
            }
            Event::Wake { session, slot, .. } => {
                let coroutine = CoroutineSlot { session, slot };
                if let Some(channel) = self.receiving.remove(&coroutine)
                    && let Some(flow) = self.land(channel, lane)
                {
                    self.landing.entry(coroutine).or_default().push(flow);
                }
            }
            _ => {}
        }
        let text = self.names.describe(lane, event);
        self.lease_event(at, event, &text);
        self.context_event(lane, at, by.is_some(), event, &text);
        match by {
            Some(_) => self.inside.push((at, text, begins, ends)),
            None => self.event(at, LANES + u64::from(lane), INSTANT, &text, Message::new()),
        }
    }

    /// A message from another lane has entered the channel.
    fn arrive(&mut self, channel: (u64, u64), is: impl Fn(&Flying) -> bool) {
        let Some(queue) = self.flying.get_mut(&channel) else { return };
        if let Some(at) = queue.iter().position(|flying| !flying.arrived && is(flying))
            && let Some(flying) = queue.remove(at)
        {
            queue.push_back(Flying { arrived: true, ..flying });
        }
    }

    /// The message taken by a receive on this lane.
    fn land(&mut self, channel: (u64, u64), lane: u16) -> Option<u64> {
        let queue = self.flying.get_mut(&channel)?;
        let at = queue.iter().position(|flying| flying.arrived || flying.lane == lane)?;
        queue.remove(at).map(|flying| flying.flow)
    }

    /// The track of a coroutine, below that of its session, written on first use.
    fn coroutine(&mut self, coroutine: CoroutineSlot) -> u64 {
        let (session, track) =
            (SESSIONS.wrapping_add(coroutine.session), coroutine_track(coroutine));
        if !self.tracks.contains(&session) {
            let name = format!("session {}", self.names.session(coroutine.session));
            self.track(session, &name, None);
        }
        if !self.tracks.contains(&track) {
            let name = format!("{}/{}", self.names.session(coroutine.session), coroutine.slot);
            self.track(track, &name, Some(session));
        }
        track
    }

    fn track(&mut self, uuid: u64, name: &str, parent: Option<u64>) {
        self.tracks.insert(uuid);
        let mut descriptor =
            Message::new().number(field::DESCRIPTOR_UUID, uuid).text(field::DESCRIPTOR_NAME, name);
        if let Some(parent) = parent {
            descriptor = descriptor.number(field::DESCRIPTOR_PARENT, parent);
        }
        self.packet(
            &Message::new()
                .number(field::SEQUENCE, 1)
                .message(field::TRACK_DESCRIPTOR, &descriptor),
        );
    }

    fn span(&mut self, track: u64, from: u64, to: u64, name: &str) {
        if to > from {
            self.event(from, track, SLICE_BEGIN, name, Message::new());
            self.event(to, track, SLICE_END, "", Message::new());
        }
    }

    fn event(&mut self, at: u64, track: u64, kind: u64, name: &str, details: Message) {
        let mut event = details.number(field::TYPE, kind).number(field::TRACK, track);
        if !name.is_empty() {
            event = event.text(field::NAME, name);
        }
        self.packet(
            &Message::new()
                .number(field::TIMESTAMP, at)
                .number(field::SEQUENCE, 1)
                .message(field::TRACK_EVENT, &event),
        );
    }

    fn packet(&mut self, packet: &Message) {
        self.out.extend_from_slice(Message::new().message(field::PACKET, packet).bytes());
    }
}

fn annotation(name: &str, value: &str) -> Message {
    Message::new().text(field::ANNOTATION_NAME, name).text(field::ANNOTATION_TEXT, value)
}

fn count(name: &str, value: u64) -> Message {
    Message::new().text(field::ANNOTATION_NAME, name).number(field::ANNOTATION_UINT, value)
}
