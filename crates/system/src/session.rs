//! A session: its instance, coroutines, channels, ports, input and output.
//!
//! Contract: a session belongs to one group of lanes. Only the worker that runs that group, or the
//! boundary between waves, accesses it.

use crate::ask::Asks;
use crate::authority::Capabilities;
use crate::call::Calls;
use crate::channel::{Channel, Message};
use crate::input::InputQueue;
use crate::kill::Kills;
use crate::observe::{Chain, session_digest};
use crate::profile::Profile;
use crate::spec::Limits;
use crate::task::{EndStatus, TaskTable};
use crate::watch::Watches;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{
    ChannelId, CoroutineName, CoroutineRef, FaultCode, LatencyClass, Priority, SessionId, Weight,
};
use wavelock_kernel::{Share, Sharing, Spawn, Tag};
use wavelock_machine::{FunctionAddress, Location, MemoryAddress, Session, TableAddress};
use wavelock_trace::Digest;

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SessionOutcome {
    /// All its coroutines ended.
    Finished = 0,
    /// Its first coroutine faulted, or a fault was never joined.
    Faulted = 1,
    /// The run ended before the session did.
    Running = 2,
    /// It waits for an event that can never happen.
    Deadlock = 3,
    /// A budget's overrun policy ended its first coroutine, or one that was never joined.
    Killed = 4,
    /// Another of its coroutines canceled the first one, or the host ended it.
    Canceled = 5,
}

impl SessionOutcome {
    /// All of them, by their numbers.
    pub const ALL: &'static [Self] = &[
        Self::Finished,
        Self::Faulted,
        Self::Running,
        Self::Deadlock,
        Self::Killed,
        Self::Canceled,
    ];

    /// The word of the command line's JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ["finished", "faulted", "running", "deadlocked", "killed", "canceled"][self as usize]
    }
}

/// The channel or port of a guest's handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Handle {
    /// One of the session's own channels.
    Own(u32),
    /// A port to another session's channel: an index into `ports`.
    Port(u32),
}

/// A session's wired port to another session's channel.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) channel: ChannelId,
    /// The channel's name, for the session digest.
    pub(crate) name: String,
    /// The owner's home lane.
    pub(crate) home: u16,
    /// By lane of this session: the index of that lane's credit for the channel. Unused on the home
    /// lane itself.
    pub(crate) credits: Vec<u32>,
    /// The session closed it.
    pub(crate) closed: bool,
    /// The messages sent through it, as an observable.
    pub(crate) sent: Chain,
}

/// A fault and its location.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultRecord {
    /// The coroutine.
    pub coroutine: CoroutineRef,
    /// Why.
    pub code: FaultCode,
    /// Function index, imports first.
    pub function: u32,
    /// Byte offset in the module.
    pub offset: u32,
}

/// The frames of a coroutine when it faulted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultStack {
    /// The coroutine.
    pub coroutine: CoroutineRef,
    /// Its innermost frames, the innermost first; at most 64.
    pub frames: Vec<Location>,
    /// How many it had.
    pub depth: u64,
    /// Its shadow stack pointer, if that is outside the memory: it had no stack of its own there.
    pub lost_stack: Option<LostStack>,
}

/// A shadow stack pointer that points at no stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LostStack {
    /// The pointer.
    pub pointer: u32,
    /// The bytes of the memory.
    pub memory_bytes: u64,
}

/// Frames of a fault that are kept.
pub(crate) const FRAMES_KEPT: usize = 64;

/// Faults of a session that are recorded in full; all are counted.
pub(crate) const FAULTS_KEPT: usize = 16;

/// A session and everything it owns.
#[derive(Clone, Debug)]
pub(crate) struct SessionState {
    pub(crate) id: SessionId,
    pub(crate) name: String,
    pub(crate) machine: Session,
    /// Memory 0, if the module has one.
    pub(crate) memory: Option<MemoryAddress>,
    /// Table 0, which holds the entry functions of `spawn`.
    pub(crate) table: Option<TableAddress>,
    /// The index of the shadow stack pointer among the coroutine-local globals.
    pub(crate) stack_pointer: Option<usize>,
    /// The functions that the first coroutine has still to call, last first: start, `_initialize`,
    /// `_start` or `main`.
    pub(crate) startup: Vec<FunctionAddress>,
    /// Its lanes; the first is its home.
    pub(crate) lanes: Vec<u16>,
    pub(crate) priority: Priority,
    pub(crate) weight: Weight,
    /// Who shares its lanes by weight.
    pub(crate) sharing: Sharing,
    pub(crate) class: LatencyClass,
    /// Its limits: its own, else the machine's.
    pub(crate) limits: Limits,
    pub(crate) tasks: TaskTable,
    pub(crate) channels: Vec<Channel>,
    /// Channels that the guest made itself: the last of `channels`.
    pub(crate) made_channels: u32,
    pub(crate) ports: Vec<Port>,
    pub(crate) handles: Vec<Handle>,
    /// The names that `port` finds, sorted, with their handles.
    pub(crate) port_names: Vec<(String, i32)>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<String>,
    pub(crate) input: InputQueue,
    /// Output of this frame.
    pub(crate) output: Vec<u8>,
    /// Log of this frame.
    pub(crate) log: Vec<u8>,
    /// Log bytes of this frame that did not fit the limit.
    pub(crate) log_dropped: u64,
    pub(crate) output_chain: Chain,
    /// WASI streams the guest closed, as bits.
    pub(crate) closed_streams: u8,
    /// Cycles charged to its coroutines.
    pub(crate) cycles: u64,
    pub(crate) host_calls: u64,
    /// Costs in detail, while they are kept.
    pub(crate) profile: Option<Box<Profile>>,
    pub(crate) messages: u64,
    pub(crate) exit: i32,
    /// `proc_exit` was called, or it was killed as a whole: coroutines on other lanes end at the
    /// wave's end.
    pub(crate) exiting: bool,
    pub(crate) ended: Option<SessionOutcome>,
    /// The host ends it: set for the length of the end.
    pub(crate) ended_by_host: bool,
    /// The host replaces it: set while its old coroutines are canceled, so that it does not end
    /// with the last.
    pub(crate) is_replaced: bool,
    pub(crate) first_faulted: bool,
    pub(crate) faults: Vec<FaultRecord>,
    /// The stacks of `faults` of this process: not state.
    pub(crate) fault_stacks: Vec<FaultStack>,
    pub(crate) kills: Kills,
    /// The first names that `port` did not find: not state.
    pub(crate) missed_ports: Vec<String>,
    /// Its capabilities, if the manifest grants it any.
    pub(crate) capabilities: Option<Box<Capabilities>>,
    /// Its calls, if its module can call or be called.
    pub(crate) calls: Option<Box<Calls>>,
    /// Its waits for other sessions, if its module can wait for one.
    pub(crate) watches: Option<Box<Watches>>,
    /// Its asks, if a function of the machine's host asks.
    pub(crate) asks: Option<Box<Asks>>,
}

impl SessionState {
    /// The lane that holds its channels.
    pub(crate) fn home(&self) -> u16 {
        self.lanes.first().copied().unwrap_or(0)
    }

    pub(crate) fn handle(&self, handle: i32) -> Option<Handle> {
        self.handles.get(usize::try_from(handle).ok()?).copied()
    }

    /// Whether it may still send to a channel of another session.
    pub(crate) fn has_open_port(&self, channel: ChannelId) -> bool {
        self.ports.iter().any(|port| port.channel == channel && !port.closed)
    }

    /// The name of the coroutine in a slot.
    pub(crate) fn coroutine_name(&self, slot: u32) -> CoroutineName {
        CoroutineName { session: self.id, reference: self.tasks.reference_at(slot) }
    }

    /// The kernel's parameters of a new coroutine of this session.
    pub(crate) fn spawn(&self, slot: u32) -> Spawn {
        let session = Share { weight: self.weight, class: self.class };
        // Where sessions share a lane, the coroutines of one begin as equals.
        let own = if self.sharing == Sharing::Session { Share::default() } else { session };
        Spawn {
            tag: Tag::new(self.id.0, slot),
            priority: self.priority,
            weight: own.weight,
            latency: own.class,
            session,
        }
    }

    /// The value that the first coroutine returns, or exits with, is the session's exit code.
    pub(crate) fn note_exit(&mut self, slot: u32, value: i64) {
        if !self.exiting && self.tasks.reference_at(slot) == CoroutineRef::new(0, 0) {
            self.exit = value as i32;
        }
    }

    pub(crate) fn record_fault(&mut self, fault: FaultRecord) {
        self.first_faulted |= fault.coroutine == CoroutineRef::new(0, 0);
        if self.faults.len() < FAULTS_KEPT {
            self.faults.push(fault);
        }
    }

    /// The outcome of a session whose coroutines have all ended (semantics 11, 70, 71).
    pub(crate) fn verdict(&self) -> SessionOutcome {
        if self.first_faulted || self.tasks.unjoined_faults > 0 {
            SessionOutcome::Faulted
        } else if self.kills.first || self.tasks.unjoined_kills > 0 {
            SessionOutcome::Killed
        } else if self.ended_by_host || self.tasks.is_first_canceled() && !self.exiting {
            SessionOutcome::Canceled
        } else {
            SessionOutcome::Finished
        }
    }

    /// The digest of its observables (semantics 31).
    pub(crate) fn digest(&self) -> Digest {
        let mut sent: Vec<_> = self.ports.iter().map(|port| (&port.name, &port.sent)).collect();
        let mut end = [0; 5];
        end[0] = self.ended.unwrap_or(SessionOutcome::Running) as u8;
        end[1..].copy_from_slice(&self.exit.to_le_bytes());
        session_digest(
            &mut sent,
            &self.output_chain,
            self.calls.as_ref().map(|calls| &calls.answered),
            &end,
        )
    }

    /// A message of its coroutine `slot` that waited at a channel has entered it, and counts as
    /// sent. Whether it is a call.
    pub(crate) fn entered(&mut self, channel: ChannelId, slot: u32, message: &mut Message) -> bool {
        if let Some(port) = self.ports.iter_mut().find(|port| port.channel == channel) {
            port.sent.add_message(message);
        }
        self.entered_call(slot, message)
    }

    /// The code that a join of a coroutine with this end returns.
    pub(crate) const fn join_code(status: EndStatus) -> i32 {
        match status {
            EndStatus::Finished => 0,
            EndStatus::Faulted => wavelock_abi::Errno::Faulted.code(),
            EndStatus::Canceled | EndStatus::Killed => wavelock_abi::Errno::Canceled.code(),
        }
    }
}
