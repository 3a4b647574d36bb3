//! WASI preview 1 for plain programs: arguments, environment, three streams, virtual clocks, seeded
//! random numbers, yield, sleep, exit.
//!
//! Answers are WASI's own positive codes. A pointer outside the guest's memory is a fault of that
//! coroutine, as everywhere here. Standard input, output and error are pipes, never terminals: they
//! answer what a pipe answers (`ESPIPE` to every position, so that buffered writers fall back to a
//! stream). No other descriptor exists: it answers `EBADF`, which is also how a C library learns
//! that no directory is preopened. What remains unsupported answers `ENOSYS`.

use crate::group::Group;
use crate::host::Region;
use crate::session::SessionState;
use crate::step::{Flow, Site};
use crate::task::Wait;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{Frame, HostOperation};
use wavelock_kernel::{BlockReason, Outcome};
use wavelock_trace::{Event, StopCode};

const SUCCESS: i32 = 0;
const BAD_FILE: i32 = 8;
const INVALID: i32 = 28;
const NO_SPACE: i32 = 51;
const NO_SYSTEM_CALL: i32 = 52;
const NOT_A_DIRECTORY: i32 = 54;
const NOT_A_SOCKET: i32 = 57;
const NOT_SUPPORTED: i32 = 58;
const NOT_SEEKABLE: i32 = 70;

/// Most buffers one read or write may name.
const MAX_BUFFERS: u64 = 1024;

/// Size of a subscription and of an event of `poll_oneoff`.
const SUBSCRIPTION_BYTES: u64 = 48;
const EVENT_BYTES: u64 = 32;

/// A list of guest buffers, checked to lie inside the memory.
struct Buffers {
    regions: Vec<Region>,
    bytes: u64,
}

impl SessionState {
    fn word_at(&self, address: u32) -> Option<u32> {
        let bytes = self.bytes(Region { start: address, length: 4 })?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads an array of (pointer, length); `None` when it, or a buffer it names, leaves the
    /// memory.
    fn buffers(&self, array: u64, count: u64) -> Option<Buffers> {
        let mut buffers = Buffers { regions: Vec::new(), bytes: 0 };
        for at in 0..count {
            let address = u32::try_from(array.checked_add(at * 8)?).ok()?;
            let region = Region {
                start: self.word_at(address)?,
                length: self.word_at(address.checked_add(4)?)?,
            };
            if !self.holds(region) {
                return None;
            }
            buffers.bytes += u64::from(region.length);
            buffers.regions.push(region);
        }
        Some(buffers)
    }

    fn stream_open(&self, stream: u64) -> bool {
        stream < 3 && self.closed_streams & (1 << stream) == 0
    }
}

/// Total bytes of strings, each with its closing zero.
fn string_bytes(strings: &[String]) -> u64 {
    strings.iter().map(|string| string.len() as u64 + 1).sum()
}

/// What a pipe answers to an operation that needs a position, a directory or a socket; `None` for
/// operations on something else.
const fn pipe_answer(operation: HostOperation) -> Option<i32> {
    use HostOperation as Op;
    Some(match operation {
        Op::FdSeek | Op::FdTell | Op::FdPread | Op::FdPwrite | Op::FdAdvise | Op::FdAllocate => {
            NOT_SEEKABLE
        }
        Op::FdSync | Op::FdDatasync | Op::FdFilestatSetSize => INVALID,
        Op::FdReaddir
        | Op::PathCreateDirectory
        | Op::PathFilestatGet
        | Op::PathFilestatSetTimes
        | Op::PathLink
        | Op::PathOpen
        | Op::PathReadlink
        | Op::PathRemoveDirectory
        | Op::PathRename
        | Op::PathUnlinkFile => NOT_A_DIRECTORY,
        Op::SockAccept | Op::SockRecv | Op::SockSend | Op::SockShutdown => NOT_A_SOCKET,
        _ => return None,
    })
}

impl Group {
    pub(crate) fn wasi_operation(
        &mut self,
        place: Site<'_>,
        operation: HostOperation,
        arguments: [u64; 4],
    ) -> Flow {
        let [first, second, third, fourth] = arguments.map(|argument| argument & 0xffff_ffff);
        match operation {
            HostOperation::ArgsSizesGet => {
                self.string_sizes(place, |state| &state.args, [first, second])
            }
            HostOperation::ArgsGet => {
                self.strings(place, operation, |state| &state.args, [first, second])
            }
            HostOperation::EnvironSizesGet => {
                self.string_sizes(place, |state| &state.env, [first, second])
            }
            HostOperation::EnvironGet => {
                self.strings(place, operation, |state| &state.env, [first, second])
            }
            HostOperation::FdRead => self.fd_read(place, first, [second, third], fourth),
            HostOperation::FdWrite => self.fd_write(place, first, [second, third], fourth),
            HostOperation::FdClose => self.fd_close(place, first),
            HostOperation::FdFdstatGet => self.fd_fdstat_get(place, first, second),
            HostOperation::FdFdstatSetFlags => self.fd_fdstat_set_flags(place, first, second),
            HostOperation::FdFilestatGet => self.fd_filestat_get(place, first, second),
            HostOperation::ClockTimeGet => self.clock(place, first, arguments[2], true),
            HostOperation::ClockResGet => self.clock(place, first, arguments[1], false),
            HostOperation::RandomGet => self.random_get(place, Region::new(first, second)),
            HostOperation::SchedYield => {
                self.code(place, SUCCESS);
                Flow::Stop(Outcome::Yielded, StopCode::Yielded)
            }
            HostOperation::PollOneoff => self.poll_oneoff(place, [first, second], third, fourth),
            HostOperation::ProcExit => {
                // Of two coroutines on different lanes that exit in one wave, the first in
                // canonical order gives the code.
                let state = &mut self.sessions[place.session];
                state.host_calls += 1;
                if !state.exiting {
                    state.exit = first as i32;
                }
                Flow::ExitSession
            }
            HostOperation::FdPrestatGet | HostOperation::FdPrestatDirName => {
                self.code(place, BAD_FILE)
            }
            // The directory is the third argument, behind the text of the link.
            HostOperation::PathSymlink => self.on_stream(place, third, NOT_A_DIRECTORY),
            _ => match pipe_answer(operation) {
                Some(code) => self.on_stream(place, first, code),
                None => self.code(place, NO_SYSTEM_CALL),
            },
        }
    }

    /// Writes little-endian words at their addresses, all or none, then answers success.
    fn answer_words(&mut self, place: Site<'_>, words: &[(u64, u32)]) -> Flow {
        let state = &mut self.sessions[place.session];
        if !words.iter().all(|&(address, _)| state.holds(Region::new(address, 4))) {
            return self.bad_pointer(place);
        }
        for &(address, value) in words {
            let _ = state.write(address as u32, &value.to_le_bytes());
        }
        self.code(place, SUCCESS)
    }

    fn string_sizes(
        &mut self,
        place: Site<'_>,
        list: fn(&SessionState) -> &Vec<String>,
        at: [u64; 2],
    ) -> Flow {
        let strings = list(&self.sessions[place.session]);
        let (count, bytes) = (strings.len() as u32, string_bytes(strings) as u32);
        self.answer_words(place, &[(at[0], count), (at[1], bytes)])
    }

    fn strings(
        &mut self,
        place: Site<'_>,
        operation: HostOperation,
        list: fn(&SessionState) -> &Vec<String>,
        at: [u64; 2],
    ) -> Flow {
        let state = &self.sessions[place.session];
        let strings = list(state).clone();
        let bytes = string_bytes(&strings);
        if !state.holds(Region::new(at[0], strings.len() as u64 * 4))
            || !state.holds(Region::new(at[1], bytes))
        {
            return self.bad_pointer(place);
        }
        if !self.prepay(place, operation, bytes) {
            return Flow::OutOfCycles;
        }
        let state = &mut self.sessions[place.session];
        let mut next = at[1] as u32;
        for (index, string) in strings.iter().enumerate() {
            let _ = state.write(at[0] as u32 + index as u32 * 4, &next.to_le_bytes());
            let _ = state.write(next, string.as_bytes());
            let _ = state.write(next + string.len() as u32, &[0]);
            next += string.len() as u32 + 1;
        }
        self.code(place, SUCCESS)
    }

    fn fd_read(
        &mut self,
        place: Site<'_>,
        stream: u64,
        [array, count]: [u64; 2],
        read_at: u64,
    ) -> Flow {
        let state = &mut self.sessions[place.session];
        if stream != 0 || !state.stream_open(0) {
            return self.code(place, BAD_FILE);
        }
        if count > MAX_BUFFERS {
            return self.code(place, INVALID);
        }
        let Some(buffers) = state.buffers(array, count) else { return self.bad_pointer(place) };
        if !state.holds(Region::new(read_at, 4)) {
            return self.bad_pointer(place);
        }
        state.input.stream = true;
        let available = state.input.available() as u64;
        if available == 0 && buffers.bytes > 0 && !state.input.finished() {
            let ticket = state.input.wait(place.slot);
            let session = u64::from(state.id.0);
            return self.wait(place, Wait::Input(ticket), BlockReason::Input, (session, 0));
        }
        let length = available.min(buffers.bytes);
        if !self.prepay(place, HostOperation::FdRead, length) {
            return Flow::OutOfCycles;
        }
        let state = &mut self.sessions[place.session];
        // Only what was paid for is touched, however large the buffers are.
        let mut rest = length;
        for region in buffers.regions {
            let mut bytes = alloc::vec![0; u64::from(region.length).min(rest) as usize];
            rest -= state.input.read(&mut bytes) as u64;
            let _ = state.write(region.start, &bytes);
        }
        let session = u64::from(state.id.0);
        self.lanes[place.lane].log.event(&Event::Input { session, length });
        self.answer_words(place, &[(read_at, length as u32)])
    }

    fn fd_write(
        &mut self,
        place: Site<'_>,
        stream: u64,
        [array, count]: [u64; 2],
        written_at: u64,
    ) -> Flow {
        let state = &self.sessions[place.session];
        if !(1..=2).contains(&stream) || !state.stream_open(stream) {
            return self.code(place, BAD_FILE);
        }
        if count > MAX_BUFFERS {
            return self.code(place, INVALID);
        }
        let Some(buffers) = state.buffers(array, count) else { return self.bad_pointer(place) };
        if !state.holds(Region::new(written_at, 4)) {
            return self.bad_pointer(place);
        }
        if buffers.bytes > u64::from(u32::MAX) {
            return self.code(place, INVALID);
        }
        let room = u64::from(self.shared.limits.output_bytes) - state.output.len() as u64;
        if stream == 1 && buffers.bytes > room {
            return self.code(place, NO_SPACE);
        }
        if !self.prepay(place, HostOperation::FdWrite, buffers.bytes) {
            return Flow::OutOfCycles;
        }
        for region in buffers.regions {
            let bytes: Vec<u8> =
                self.sessions[place.session].bytes(region).unwrap_or_default().into();
            if stream == 1 { self.emit(place, &bytes) } else { self.note(place, &bytes) }
        }
        self.answer_words(place, &[(written_at, buffers.bytes as u32)])
    }

    fn fd_close(&mut self, place: Site<'_>, stream: u64) -> Flow {
        let state = &mut self.sessions[place.session];
        if !state.stream_open(stream) {
            return self.code(place, BAD_FILE);
        }
        state.closed_streams |= 1 << stream;
        self.code(place, SUCCESS)
    }

    /// Answers `code` for one of the three streams, `EBADF` for anything else.
    fn on_stream(&mut self, place: Site<'_>, stream: u64, code: i32) -> Flow {
        let open = self.sessions[place.session].stream_open(stream);
        self.code(place, if open { code } else { BAD_FILE })
    }

    /// A stream has the right to read (0) or write (1, 2); all else is zero. Its type is unknown
    /// (0), WASI's answer for a pipe: a character device without the right to seek is what C
    /// libraries take for a terminal.
    fn fd_fdstat_get(&mut self, place: Site<'_>, stream: u64, at: u64) -> Flow {
        const RIGHT_READ: u64 = 1 << 1;
        const RIGHT_WRITE: u64 = 1 << 6;
        let state = &mut self.sessions[place.session];
        if !state.stream_open(stream) {
            return self.code(place, BAD_FILE);
        }
        let mut stat = [0; 24];
        stat[8..16]
            .copy_from_slice(&if stream == 0 { RIGHT_READ } else { RIGHT_WRITE }.to_le_bytes());
        if !state.write(at as u32, &stat) {
            return self.bad_pointer(place);
        }
        self.code(place, SUCCESS)
    }

    /// A stream appends always and blocks always: other flags are not supported.
    fn fd_fdstat_set_flags(&mut self, place: Site<'_>, stream: u64, flags: u64) -> Flow {
        const APPEND: u64 = 1;
        self.on_stream(place, stream, if flags & !APPEND == 0 { SUCCESS } else { NOT_SUPPORTED })
    }

    /// A stream has an unknown type, no size and no times: all is zero.
    fn fd_filestat_get(&mut self, place: Site<'_>, stream: u64, at: u64) -> Flow {
        let state = &mut self.sessions[place.session];
        if !state.stream_open(stream) {
            return self.code(place, BAD_FILE);
        }
        if !state.write(at as u32, &[0; 64]) {
            return self.bad_pointer(place);
        }
        self.code(place, SUCCESS)
    }

    /// Virtual time, one nanosecond a cycle; every clock is the same clock.
    fn clock(&mut self, place: Site<'_>, clock: u64, at: u64, time: bool) -> Flow {
        if clock > 3 {
            return self.code(place, INVALID);
        }
        let value = if time { self.now(place).0 } else { 1 };
        if !self.sessions[place.session].write(at as u32, &value.to_le_bytes()) {
            return self.bad_pointer(place);
        }
        self.code(place, SUCCESS)
    }

    fn random_get(&mut self, place: Site<'_>, region: Region) -> Flow {
        if !self.sessions[place.session].holds(region) {
            return self.bad_pointer(place);
        }
        if !self.prepay(place, HostOperation::RandomGet, u64::from(region.length)) {
            return Flow::OutOfCycles;
        }
        let state = &mut self.sessions[place.session];
        let mut bytes = alloc::vec![0; region.length as usize];
        state.tasks.random(place.slot).fill(&mut bytes);
        let _ = state.write(region.start, &bytes);
        self.code(place, SUCCESS)
    }

    /// One clock subscription is a sleep, rounded up to whole frames; anything else is not
    /// supported.
    fn poll_oneoff(
        &mut self,
        place: Site<'_>,
        [subscriptions, events]: [u64; 2],
        count: u64,
        stored_at: u64,
    ) -> Flow {
        if count != 1 {
            return self.code(place, if count == 0 { INVALID } else { NO_SYSTEM_CALL });
        }
        let state = &self.sessions[place.session];
        let Some(subscription) = state.bytes(Region::new(subscriptions, SUBSCRIPTION_BYTES)) else {
            return self.bad_pointer(place);
        };
        let word =
            |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| subscription[at + byte]));
        let (user, kind, timeout, absolute) =
            (word(0), subscription[8], word(24), subscription[40] & 1 == 1);
        if !state.holds(Region::new(events, EVENT_BYTES)) || !state.holds(Region::new(stored_at, 4))
        {
            return self.bad_pointer(place);
        }
        if kind != 0 {
            return self.code(place, NO_SYSTEM_CALL);
        }
        // A length of time is so many frames; a point in time is the first frame that begins at or
        // after it.
        let frames = timeout.div_ceil(self.shared.frame_cycles.0);
        let passed = match absolute {
            false => 0,
            true if timeout <= self.now(place).0 => frames,
            true => self.frame.0,
        };
        let frames = frames - passed;
        let mut event = [0; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&user.to_le_bytes());
        let _ = self.sessions[place.session].write(events as u32, &event);
        self.answer_words(place, &[(stored_at, 1)]);
        if frames == 0 {
            return Flow::Stop(Outcome::Yielded, StopCode::Yielded);
        }
        self.lanes[place.lane].log.event(&Event::Sleep { frames });
        Flow::Stop(Outcome::Slept(Frame(self.frame.0.saturating_add(frames))), StopCode::Slept)
    }
}
