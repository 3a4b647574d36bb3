//! Host functions: what guests may import beside the guest interface, made by the embedder
//! (semantics 100 to 107).
//!
//! ```text
//!   pure, view:  the machine stops ──▶ HostCode::call ──▶ results ──▶ the same slice continues
//!   command:     the machine stops ──▶ the lane's list ──▶ wave's end ──▶ HostCode::command
//!   ask:         the machine stops ──▶ the coroutine blocks ──▶ a reply in a later frame (`ask`)
//! ```
//!
//! Contract: the description of the functions ([`HostImports`]: names, types, kinds, costs) is in
//! the machine's identity; the code behind them ([`HostCode`]) is not. A call is charged its cost
//! and is a safepoint, as a host operation is. What a `view` returns is an event, so that another
//! host is another digest, found at the call. Commands change the host in canonical order: by
//! lane, then in the order of the calls. What functions answer leaves with the frame
//! (`Sink::answers`); a machine that is given it again ([`Input::Answers`](crate::Input)) takes it
//! and calls nothing, so a recording replays without the embedder.

use crate::group::Group;
use crate::step::{Flow, Site};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{Cycles, FaultCode, Frame, LaneId, SessionId};
use wavelock_machine::Memory;
use wavelock_module::{FunctionType, ValueType};
use wavelock_trace::Event;

/// The number of the first host function; smaller numbers are those of the guest interface.
pub(crate) const FIRST_FUNCTION: u16 = 1 << 10;

/// Host functions of a machine.
pub const MOST_HOST_FUNCTIONS: usize = 1 << 10;

/// Parameters of a host function, and results.
pub const MOST_HOST_VALUES: usize = 8;

/// What a host function may depend on and change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HostKind {
    /// Depends on its arguments alone.
    Pure = 0,
    /// Depends also on guest memory and on the host's state as of the wave's begin, and may write
    /// guest memory.
    View = 1,
    /// Changes the host's state at the wave's end; returns nothing.
    Command = 2,
    /// Blocks the coroutine until the embedder replies, with an input of a later frame.
    Ask = 3,
}

impl HostKind {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Pure),
            1 => Some(Self::View),
            2 => Some(Self::Command),
            3 => Some(Self::Ask),
            _ => None,
        }
    }
}

/// A number that crosses between guest and host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum HostNumber {
    /// 32 bits.
    I32 = 0,
    /// 64 bits.
    I64 = 1,
    /// A float of 32 bits, as its bits.
    F32 = 2,
    /// A float of 64 bits, as its bits.
    F64 = 3,
}

impl HostNumber {
    pub(crate) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::I32),
            1 => Some(Self::I64),
            2 => Some(Self::F32),
            3 => Some(Self::F64),
            _ => None,
        }
    }

    const fn value(self) -> ValueType {
        match self {
            Self::I32 => ValueType::I32,
            Self::I64 => ValueType::I64,
            Self::F32 => ValueType::F32,
            Self::F64 => ValueType::F64,
        }
    }
}

/// One host function, as guests import it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostImport {
    /// The import module.
    pub module: String,
    /// The import name.
    pub name: String,
    /// What it may depend on and change.
    pub kind: HostKind,
    /// Its parameters.
    pub params: Vec<HostNumber>,
    /// Its results.
    pub results: Vec<HostNumber>,
    /// What a call is charged.
    pub cost: Cycles,
}

impl HostImport {
    /// Its WebAssembly type.
    #[must_use]
    pub fn function_type(&self) -> FunctionType {
        let values = |numbers: &[HostNumber]| -> Vec<ValueType> {
            numbers.iter().map(|number| number.value()).collect()
        };
        FunctionType::new(&values(&self.params), &values(&self.results))
    }
}

/// The host functions of a machine: part of its identity.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HostImports {
    /// The host's name.
    pub name: String,
    /// Its version.
    pub version: u32,
    /// Its functions; the code knows them by their positions.
    pub functions: Vec<HostImport>,
}

impl HostImports {
    /// The function of an import, with its position.
    pub(crate) fn find(&self, module: &str, name: &str) -> Option<(usize, &HostImport)> {
        let mut functions = self.functions.iter().enumerate();
        functions.find(|(_, function)| function.module == module && function.name == name)
    }
}

/// A host function could not answer: it failed, or there is no code for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostFailed;

/// The memory of a calling session.
pub struct GuestMemory<'a> {
    memory: Option<&'a mut Memory>,
    /// A sum over what was written, in order.
    written: u64,
    /// The writes, as answers hold them, and their number.
    writes: Vec<u8>,
    count: u32,
}

impl GuestMemory<'_> {
    /// Bytes of the guest's memory; `None` if any is outside it.
    #[must_use]
    pub fn read(&self, address: u32, length: u32) -> Option<&[u8]> {
        self.memory.as_ref()?.read(address, length)
    }

    /// Writes into the guest's memory; `false`, and nothing written, if any byte is outside it.
    #[must_use]
    pub fn write(&mut self, address: u32, bytes: &[u8]) -> bool {
        let Some(memory) = &mut self.memory else { return false };
        let is_written = memory.write(address, bytes);
        if is_written {
            self.count += 1;
            self.writes.extend_from_slice(&address.to_le_bytes());
            self.writes.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            self.writes.extend_from_slice(bytes);
            self.written = mix(self.written, u64::from(address));
            for word in bytes.chunks(8) {
                let mut padded = [0; 8];
                padded[..word.len()].copy_from_slice(word);
                self.written = mix(self.written, u64::from_le_bytes(padded));
            }
        }
        is_written
    }
}

/// One step of a sum that depends on order.
pub(crate) const fn mix(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
}

/// A command of a guest, applied at the wave's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostCommand {
    /// The position of the function.
    pub function: usize,
    /// The session that called.
    pub session: SessionId,
    /// The frame.
    pub frame: Frame,
    /// The arguments.
    pub arguments: [u64; MOST_HOST_VALUES],
}

/// The code of a machine's host functions. Methods must not panic, and answer the same for the same
/// host state: what they return is recorded as events and not checked.
pub trait HostCode: Send + Sync {
    /// Calls a pure function or a view, on any thread: `results` are zeros to fill.
    ///
    /// # Errors
    /// The function failed: the calling coroutine faults.
    fn call(
        &self,
        function: usize,
        session: SessionId,
        frame: Frame,
        memory: &mut GuestMemory<'_>,
        arguments: &[u64],
        results: &mut [u64],
    ) -> Result<(), HostFailed>;

    /// Applies a command, at the end of a wave.
    fn command(&self, command: &HostCommand);
}

/// The functions with their code, as groups share them.
#[derive(Clone, Default)]
pub(crate) struct Host {
    pub(crate) imports: Arc<HostImports>,
    pub(crate) code: Option<Arc<dyn HostCode>>,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.imports.fmt(f)
    }
}

/// What functions answered on a lane in a frame: for each call the function, whether it answered,
/// its results, and what it wrote.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    bytes: Vec<u8>,
    script: Option<Script>,
}

impl Answers {
    fn record(&mut self, function: usize, is_ok: bool, results: &[u64], count: u32, writes: &[u8]) {
        self.bytes.extend_from_slice(&(function as u16).to_le_bytes());
        self.bytes.push(u8::from(is_ok));
        for word in results {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
        self.bytes.extend_from_slice(&count.to_le_bytes());
        self.bytes.extend_from_slice(writes);
    }
}

/// Answers to follow.
#[derive(Clone, Debug)]
struct Script {
    bytes: Box<[u8]>,
    at: usize,
}

impl Script {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], HostFailed> {
        let bytes = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>());
        self.at += N;
        bytes.copied().ok_or(HostFailed)
    }

    /// The next answer. One of another function, or a damaged one, is a failure of the call.
    fn answer(
        &mut self,
        function: usize,
        memory: &mut GuestMemory<'_>,
        results: &mut [u64],
    ) -> Result<(), HostFailed> {
        let is_same = usize::from(u16::from_le_bytes(self.take()?)) == function;
        let [is_ok] = self.take()?;
        for word in results {
            *word = u64::from_le_bytes(self.take()?);
        }
        for _ in 0..u32::from_le_bytes(self.take()?) {
            let (address, length) =
                (u32::from_le_bytes(self.take()?), u32::from_le_bytes(self.take()?) as usize);
            let end = self.at.checked_add(length).ok_or(HostFailed)?;
            let bytes = self.bytes.get(self.at..end).ok_or(HostFailed)?;
            let is_written = memory.write(address, bytes);
            self.at = end;
            if !is_written {
                return Err(HostFailed);
            }
        }
        if is_same && is_ok == 1 { Ok(()) } else { Err(HostFailed) }
    }
}

impl Group {
    /// Performs the call of the host function at a position. Only a machine that was linked with it
    /// can call it.
    pub(crate) fn host_function(&mut self, site: Site<'_>, function: usize) -> Flow {
        // A forged state can be inside a call of a function that does not exist.
        let Some(import) = self.shared.host.imports.functions.get(function) else {
            return self.host_failed(site);
        };
        let (kind, given, count) = (import.kind, import.params.len(), import.results.len());
        let state = &mut self.sessions[site.session];
        let mut arguments = [0; MOST_HOST_VALUES];
        let values = state.tasks.coroutine_at(site.slot).host_arguments();
        arguments.iter_mut().zip(values).for_each(|(argument, value)| *argument = *value);
        if kind == HostKind::Command {
            let (session, frame) = (state.id, self.frame);
            let command = HostCommand { function, session, frame, arguments };
            self.lanes[site.lane].commands.push(command);
            return self.resume(site, &[]);
        }
        if kind == HostKind::Ask {
            return self.ask(site, function);
        }
        let mut results = [0; MOST_HOST_VALUES];
        let id = state.id;
        let memory = match kind {
            HostKind::View => state.memory.map(|memory| state.machine.memory_mut(memory)),
            _ => None,
        };
        let mut memory = GuestMemory { memory, written: 0, writes: Vec::new(), count: 0 };
        let answers = &mut self.lanes[site.lane].answers;
        let called = match (&mut answers.script, &self.shared.host.code) {
            (Some(script), _) => script.answer(function, &mut memory, &mut results[..count]),
            (None, None) => Err(HostFailed),
            (None, Some(code)) => code.call(
                function,
                id,
                self.frame,
                &mut memory,
                &arguments[..given],
                &mut results[..count],
            ),
        };
        let GuestMemory { written, writes, count: writes_count, .. } = memory;
        answers.record(function, called.is_ok(), &results[..count], writes_count, &writes);
        if called.is_err() {
            return self.host_failed(site);
        }
        if kind == HostKind::View {
            let answer = results[..count].iter().fold(written, |sum, word| mix(sum, *word));
            self.lanes[site.lane].log.event(&Event::View { function: function as u64, answer });
        }
        self.resume(site, &results[..count])
    }

    pub(crate) fn host_failed(&mut self, site: Site<'_>) -> Flow {
        let state = &mut self.sessions[site.session];
        let coroutine = state.tasks.coroutine_at(site.slot);
        let fault = coroutine.fail(&state.machine, FaultCode::HostFunction);
        self.faulted(site, fault)
    }
}

impl crate::world::World {
    /// Sets the code of the machine's host functions. Not state: a machine without it faults the
    /// coroutines that call one.
    pub fn set_host(&mut self, code: Arc<dyn HostCode>) {
        for group in &mut self.groups {
            Arc::make_mut(&mut group.shared).host.code = Some(code.clone());
        }
        self.host_code = Some(code);
    }

    /// The answers that a lane's calls take in this frame.
    pub(crate) fn follow_answers(&mut self, lane: LaneId, bytes: Box<[u8]>) {
        if lane.0 < self.spec.lanes {
            self.lane(lane.0).answers.script = Some(Script { bytes, at: 0 });
        }
    }

    /// The frame's answers leave, lane by lane.
    pub(crate) fn flush_answers(&mut self, frame: Frame, sink: &mut dyn crate::world::Sink) {
        if self.spec.host.functions.is_empty() {
            return;
        }
        for lane in 0..self.spec.lanes {
            let answers = &mut self.lane(lane).answers;
            if !answers.bytes.is_empty() {
                sink.answers(frame, LaneId(lane), &answers.bytes);
            }
            answers.bytes.clear();
            answers.script = None;
        }
    }

    /// Applies the commands of a wave, lane by lane.
    pub(crate) fn apply_commands(&mut self) {
        let Some(code) = self.host_code.clone() else { return };
        for lane in self.lanes_mut() {
            for command in lane.commands.drain(..) {
                code.command(&command);
            }
        }
    }
}
