//! WASI preview 1 for plain programs: arguments, environment, three streams, virtual clocks, seeded
//! random numbers, yield, sleep, exit.
//!
//! Contract: calls return WASI's own positive codes. A pointer outside the guest's memory is a
//! fault of that coroutine, as for every operation. Standard input, output and error are pipes,
//! never terminals, and behave like pipes (`ESPIPE` for every position, so that buffered writers
//! fall back to a stream). No other descriptor exists: every call on one returns `EBADF`, which is
//! also how a C library detects that no directory is preopened. Everything else returns `ENOSYS`.

use crate::group::Group;
use crate::host::{Done, HostResult, Refused, Region};
use crate::input::Unread;
use crate::session::SessionState;
use crate::step::{Flow, Site};
use crate::task::Wait;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::HostOperation as Op;
use wavelock_kernel::{BlockReason, Outcome};
use wavelock_trace::{Event, StopCode};

const SUCCESS: HostResult = Ok(Done::code(0));
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
    fn word_at(&self, address: u32) -> Result<u32, Refused> {
        let bytes = self.bytes(Region { start: address, length: 4 })?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads an array of (pointer, length) and checks each buffer.
    fn buffers(&self, [array, count]: [u64; 2]) -> Result<Buffers, Refused> {
        if count > MAX_BUFFERS {
            return Err(Refused::Code(INVALID));
        }
        let mut buffers = Buffers { regions: Vec::new(), bytes: 0 };
        for at in 0..count {
            let address = u32::try_from(array + at * 8).map_err(|_| Refused::Pointer)?;
            let second = address.checked_add(4).ok_or(Refused::Pointer)?;
            let region = Region { start: self.word_at(address)?, length: self.word_at(second)? };
            self.bytes(region)?;
            buffers.bytes += u64::from(region.length);
            buffers.regions.push(region);
        }
        Ok(buffers)
    }

    /// Checks that a descriptor is one of the three streams, and open.
    fn stream(&self, stream: u64) -> Result<(), Refused> {
        let is_open = stream < 3 && self.closed_streams & (1 << stream) == 0;
        if is_open { Ok(()) } else { Err(Refused::Code(BAD_FILE)) }
    }

    /// Writes little-endian words at their addresses, all or none, and returns success.
    fn write_words(&mut self, words: &[(u64, u32)]) -> HostResult {
        for &(address, _) in words {
            self.bytes(Region::new(address, 4))?;
        }
        for &(address, value) in words {
            self.write_checked(address as u32, &value.to_le_bytes());
        }
        SUCCESS
    }
}

/// Total bytes of strings, each with its terminating zero.
fn string_bytes(strings: &[String]) -> u64 {
    strings.iter().map(|string| string.len() as u64 + 1).sum()
}

/// The code of a pipe for an operation that needs a position, a directory or a socket; `None` for
/// operations on something else.
const fn pipe_answer(operation: Op) -> Option<i32> {
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
    // Long: one arm per operation.
    pub(crate) fn wasi_operation(
        &mut self,
        site: Site<'_>,
        operation: Op,
        arguments: [u64; 4],
    ) -> HostResult {
        let [first, second, third, fourth] = arguments.map(|argument| argument & 0xffff_ffff);
        let state = &mut self.sessions[site.session];
        match operation {
            Op::ArgsSizesGet | Op::EnvironSizesGet => {
                let is_args = operation == Op::ArgsSizesGet;
                let strings = if is_args { &state.args } else { &state.env };
                let (count, bytes) = (strings.len() as u32, string_bytes(strings) as u32);
                state.write_words(&[(first, count), (second, bytes)])
            }
            Op::ArgsGet | Op::EnvironGet => {
                let is_args = operation == Op::ArgsGet;
                let strings = if is_args { state.args.clone() } else { state.env.clone() };
                self.strings(site, &strings, [first, second])
            }
            Op::FdRead => self.fd_read(site, first, [second, third], fourth),
            Op::FdWrite => self.fd_write(site, first, [second, third], fourth),
            Op::FdClose => {
                state.stream(first)?;
                state.closed_streams |= 1 << first;
                SUCCESS
            }
            Op::FdFdstatGet => {
                state.stream(first)?;
                state.write(second as u32, &stream_status(first))?;
                SUCCESS
            }
            Op::FdFdstatSetFlags => {
                // A stream appends always and blocks always: other flags are not supported.
                const APPEND: u64 = 1;
                state.stream(first)?;
                if second & !APPEND == 0 { SUCCESS } else { Err(Refused::Code(NOT_SUPPORTED)) }
            }
            Op::FdFilestatGet => {
                // A stream has an unknown type, no size and no times.
                state.stream(first)?;
                state.write(second as u32, &[0; 64])?;
                SUCCESS
            }
            Op::ClockTimeGet => {
                let now = self.now(site).0;
                self.clock(site, first, arguments[2], now)
            }
            Op::ClockResGet => self.clock(site, first, arguments[1], 1),
            Op::RandomGet => self.random_get(site, Region::new(first, second)),
            Op::SchedYield => {
                self.resume(site, &[0]);
                Ok(Done::Flow(Flow::Stop(Outcome::Yielded, StopCode::Yielded)))
            }
            Op::PollOneoff => self.poll_oneoff(site, [first, second], third, fourth),
            Op::ProcExit => {
                // Of two coroutines on different lanes that exit in one wave, the first in
                // canonical order determines the code.
                state.host_calls += 1;
                if !state.exiting {
                    state.exit = first as i32;
                }
                Ok(Done::Flow(Flow::ExitSession))
            }
            Op::FdPrestatGet | Op::FdPrestatDirName => Err(Refused::Code(BAD_FILE)),
            Op::PathSymlink => {
                // The directory is the third argument, behind the text of the link.
                state.stream(third)?;
                Err(Refused::Code(NOT_A_DIRECTORY))
            }
            _ => {
                let code = pipe_answer(operation).ok_or(Refused::Code(NO_SYSTEM_CALL))?;
                state.stream(first)?;
                Err(Refused::Code(code))
            }
        }
    }

    /// Writes strings with their terminating zeros to `at[1]`, and their addresses to `at[0]`.
    fn strings(&mut self, site: Site<'_>, strings: &[String], at: [u64; 2]) -> HostResult {
        let state = &self.sessions[site.session];
        let bytes = string_bytes(strings);
        state.bytes(Region::new(at[0], strings.len() as u64 * 4))?;
        state.bytes(Region::new(at[1], bytes))?;
        self.prepay(site, bytes)?;
        let state = &mut self.sessions[site.session];
        let mut next = at[1] as u32;
        for (index, string) in (0u32..).zip(strings) {
            state.write_checked(at[0] as u32 + index * 4, &next.to_le_bytes());
            state.write_checked(next, string.as_bytes());
            state.write_checked(next + string.len() as u32, &[0]);
            next += string.len() as u32 + 1;
        }
        SUCCESS
    }

    fn fd_read(
        &mut self,
        site: Site<'_>,
        stream: u64,
        array: [u64; 2],
        read_at: u64,
    ) -> HostResult {
        let state = &mut self.sessions[site.session];
        state.stream(stream)?;
        if stream != 0 {
            return Err(Refused::Code(BAD_FILE));
        }
        let buffers = state.buffers(array)?;
        state.bytes(Region::new(read_at, 4))?;
        state.input.unread = Unread::Kept;
        let session = u64::from(state.id.0);
        let available = state.input.available() as u64;
        if available == 0 && buffers.bytes > 0 && !state.input.finished() {
            let ticket = state.input.wait(site.slot);
            return self.wait(site, Wait::Input(ticket), BlockReason::Input, (session, 0));
        }
        let length = available.min(buffers.bytes);
        self.prepay(site, length)?;
        let state = &mut self.sessions[site.session];
        // Only what was paid for is written, whatever the size of the buffers.
        let mut rest = length;
        for region in buffers.regions {
            let mut bytes = alloc::vec![0; u64::from(region.length).min(rest) as usize];
            rest -= state.input.read(&mut bytes) as u64;
            state.write_checked(region.start, &bytes);
        }
        self.lanes[site.lane].log.event(&Event::Input { session, length });
        self.sessions[site.session].write_words(&[(read_at, length as u32)])
    }

    fn fd_write(
        &mut self,
        site: Site<'_>,
        stream: u64,
        array: [u64; 2],
        written_at: u64,
    ) -> HostResult {
        let state = &self.sessions[site.session];
        state.stream(stream)?;
        if stream == 0 {
            return Err(Refused::Code(BAD_FILE));
        }
        let buffers = state.buffers(array)?;
        state.bytes(Region::new(written_at, 4))?;
        if buffers.bytes > u64::from(u32::MAX) {
            return Err(Refused::Code(INVALID));
        }
        let room = u64::from(state.limits.output_bytes) - state.output.len() as u64;
        if stream == 1 && buffers.bytes > room {
            return Err(Refused::Code(NO_SPACE));
        }
        self.prepay(site, buffers.bytes)?;
        for region in buffers.regions {
            let bytes = self.sessions[site.session].bytes(region)?.to_vec();
            match stream {
                1 => self.append_output(site, &bytes),
                _ => self.append_log(site, &bytes),
            }
        }
        self.sessions[site.session].write_words(&[(written_at, buffers.bytes as u32)])
    }

    /// Virtual time, one nanosecond a cycle; every clock is the same clock.
    fn clock(&mut self, site: Site<'_>, clock: u64, at: u64, value: u64) -> HostResult {
        if clock > 3 {
            return Err(Refused::Code(INVALID));
        }
        self.sessions[site.session].write(at as u32, &value.to_le_bytes())?;
        SUCCESS
    }

    fn random_get(&mut self, site: Site<'_>, region: Region) -> HostResult {
        self.sessions[site.session].bytes(region)?;
        self.prepay(site, u64::from(region.length))?;
        let state = &mut self.sessions[site.session];
        let mut bytes = alloc::vec![0; region.length as usize];
        state.tasks.random(site.slot).fill(&mut bytes);
        state.write_checked(region.start, &bytes);
        SUCCESS
    }

    /// One clock subscription is a sleep, rounded up to whole frames; anything else is not
    /// supported.
    fn poll_oneoff(
        &mut self,
        site: Site<'_>,
        [subscriptions, events]: [u64; 2],
        count: u64,
        stored_at: u64,
    ) -> HostResult {
        match count {
            0 => return Err(Refused::Code(INVALID)),
            1 => {}
            _ => return Err(Refused::Code(NO_SYSTEM_CALL)),
        }
        let state = &self.sessions[site.session];
        let subscription = state.bytes(Region::new(subscriptions, SUBSCRIPTION_BYTES))?;
        let word =
            |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| subscription[at + byte]));
        let (user, kind, timeout, is_absolute) =
            (word(0), subscription[8], word(24), subscription[40] & 1 == 1);
        state.bytes(Region::new(events, EVENT_BYTES))?;
        state.bytes(Region::new(stored_at, 4))?;
        if kind != 0 {
            return Err(Refused::Code(NO_SYSTEM_CALL));
        }
        // A duration is a number of frames; a point in time is the first frame that starts at or
        // after it.
        let frames = timeout.div_ceil(self.shared.frame_cycles.0);
        let passed = match is_absolute {
            false => 0,
            true if timeout <= self.now(site).0 => frames,
            true => self.frame.0,
        };
        let mut event = [0; EVENT_BYTES as usize];
        event[..8].copy_from_slice(&user.to_le_bytes());
        let state = &mut self.sessions[site.session];
        state.write_checked(events as u32, &event);
        state.write_checked(stored_at as u32, &1u32.to_le_bytes());
        self.resume(site, &[0]);
        Ok(self.sleep(site, frames - passed))
    }
}

/// The `fdstat` of a stream: the right to read (0) or write (1, 2), and an unknown type (0), as
/// WASI has it for a pipe. A character device without the right to seek would be a terminal to a C
/// library.
fn stream_status(stream: u64) -> [u8; 24] {
    const RIGHT_READ: u64 = 1 << 1;
    const RIGHT_WRITE: u64 = 1 << 6;
    let mut status = [0; 24];
    let rights = if stream == 0 { RIGHT_READ } else { RIGHT_WRITE };
    status[8..16].copy_from_slice(&rights.to_le_bytes());
    status
}
