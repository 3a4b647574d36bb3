//! The guest interface as one table: every host operation with its import name, type, cost and meaning.
//!
//! The enum, the linker's lookup, the cost report and the documentation page expand from this table. Sized operations add a
//! cost per eight bytes on top ([`HostOperation::cost_per_8_bytes`]), prepaid like a bulk instruction.

use crate::Cycles;

/// Version of the guest interface. A trace names it; another version is refused.
pub const GUEST_INTERFACE_VERSION: u32 = 1;

/// The import module of Wavelock's own operations.
pub const WAVELOCK_MODULE: &str = "wavelock";

/// The import module of WASI preview 1.
pub const WASI_MODULE: &str = "wasi_snapshot_preview1";

/// A value type a host operation takes or returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostValue {
    /// A 32-bit integer or pointer.
    I32,
    /// A 64-bit integer.
    I64,
}

macro_rules! host_operations {
    (@value i32) => { HostValue::I32 };
    (@value i64) => { HostValue::I64 };
    ($($name:ident = $code:literal: $module:ident $import:literal ($($param:ident),*) -> ($($result:tt),*) cost $cost:literal + $sized:literal, $doc:literal;)*) => {
        /// An operation a guest can import. Each call is a safepoint.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum HostOperation {
            $(#[doc = $doc] $name = $code,)*
        }

        impl HostOperation {
            /// Every operation, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The operation of a number in a trace or snapshot.
            #[must_use]
            #[inline]
            pub const fn from_code(code: u8) -> Option<Self> {
                const BY_CODE: [Option<HostOperation>; 256] = {
                    let mut table = [None; 256];
                    $(table[$code] = Some(HostOperation::$name);)*
                    table
                };
                BY_CODE[code as usize]
            }

            /// The import module it belongs to.
            #[must_use]
            pub const fn module(self) -> &'static str {
                match self { $(Self::$name => $module,)* }
            }

            /// The name guests import.
            #[must_use]
            pub const fn import(self) -> &'static str {
                match self { $(Self::$name => $import,)* }
            }

            /// Parameter types.
            #[must_use]
            pub const fn params(self) -> &'static [HostValue] {
                match self { $(Self::$name => &[$(host_operations!(@value $param)),*],)* }
            }

            /// Result types.
            #[must_use]
            pub const fn results(self) -> &'static [HostValue] {
                match self { $(Self::$name => &[$(host_operations!(@value $result)),*],)* }
            }

            /// Cycles charged to the caller, once, even if the call waits (semantics 6).
            #[must_use]
            pub const fn cost(self) -> Cycles {
                match self { $(Self::$name => Cycles($cost),)* }
            }

            /// Cycles added per started group of eight bytes moved.
            #[must_use]
            pub const fn cost_per_8_bytes(self) -> u64 {
                match self { $(Self::$name => $sized,)* }
            }

            /// What it does, for the documentation tables.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }

            /// The operation an import names, if there is one.
            #[must_use]
            pub fn find(module: &str, import: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|operation| operation.module() == module && operation.import() == import)
            }
        }
    };
}

host_operations! {
    Spawn = 1: WAVELOCK_MODULE "spawn" (i32, i64) -> (i64) cost 120 + 0, "new coroutine of this session at an entry of table 0; does not switch";
    SpawnOn = 2: WAVELOCK_MODULE "spawn_on" (i32, i64, i32) -> (i64) cost 120 + 0, "the same, on another of the session's lanes";
    SpawnStack = 3: WAVELOCK_MODULE "spawn_stack" (i32, i64, i32) -> (i64) cost 120 + 0, "the same as spawn, with the child's shadow stack pointer given";
    Detach = 4: WAVELOCK_MODULE "detach" (i64) -> (i32) cost 16 + 0, "nobody will join it: its slot frees when it ends";
    Yield = 5: WAVELOCK_MODULE "yield" () -> () cost 8 + 0, "to the tail of the ready queue";
    Sleep = 6: WAVELOCK_MODULE "sleep" (i64) -> () cost 16 + 0, "not runnable until that many frames later; 0 is yield";
    Own = 7: WAVELOCK_MODULE "self" () -> (i64) cost 4 + 0, "own reference";
    Join = 8: WAVELOCK_MODULE "join" (i64, i32) -> (i32) cost 24 + 0, "wait for a coroutine's end and take its result";
    Cancel = 9: WAVELOCK_MODULE "cancel" (i64) -> (i32) cost 32 + 0, "end another coroutine of this session at its next safepoint";
    Exit = 10: WAVELOCK_MODULE "exit" (i64) -> () cost 8 + 0, "end this coroutine";
    Channel = 11: WAVELOCK_MODULE "channel" (i32) -> (i32) cost 64 + 0, "new channel of this session";
    Port = 12: WAVELOCK_MODULE "port" (i32, i32) -> (i32) cost 32 + 1, "the channel that the manifest wired to this name";
    Send = 13: WAVELOCK_MODULE "send" (i32, i64) -> (i32) cost 20 + 0, "send a number, waiting while the channel is full";
    TrySend = 14: WAVELOCK_MODULE "try_send" (i32, i64) -> (i32) cost 20 + 0, "send a number unless the channel is full";
    Recv = 15: WAVELOCK_MODULE "recv" (i32, i32) -> (i32) cost 20 + 0, "receive a number, waiting while the channel is empty";
    TryRecv = 16: WAVELOCK_MODULE "try_recv" (i32, i32) -> (i32) cost 20 + 0, "receive a number unless the channel is empty";
    SendBytes = 17: WAVELOCK_MODULE "send_bytes" (i32, i32, i32) -> (i32) cost 24 + 1, "send a byte message, waiting while the channel is full";
    RecvBytes = 18: WAVELOCK_MODULE "recv_bytes" (i32, i32, i32) -> (i32) cost 24 + 1, "receive a byte message, waiting while the channel is empty";
    Select = 19: WAVELOCK_MODULE "select" (i32, i32) -> (i32) cost 24 + 4, "wait until one of several channels can be received from or is closed";
    Close = 20: WAVELOCK_MODULE "close" (i32) -> (i32) cost 24 + 0, "close a channel, or this session's port of one";
    Frame = 21: WAVELOCK_MODULE "frame" () -> (i64) cost 4 + 0, "the current frame";
    Lane = 22: WAVELOCK_MODULE "lane" () -> (i32) cost 4 + 0, "the current lane";
    Cycles = 23: WAVELOCK_MODULE "cycles" () -> (i64) cost 4 + 0, "cycles charged to this coroutine so far";
    Remaining = 24: WAVELOCK_MODULE "remaining" () -> (i64) cost 4 + 0, "cycles left for this lane in this frame";
    Random = 25: WAVELOCK_MODULE "random" () -> (i64) cost 8 + 0, "the next number of this coroutine's own stream";
    Input = 26: WAVELOCK_MODULE "input" (i32, i32) -> (i32) cost 24 + 1, "the next input event of this frame";
    Output = 27: WAVELOCK_MODULE "output" (i32, i32) -> (i32) cost 24 + 1, "bytes that leave at FRAME_SYNC";
    Log = 28: WAVELOCK_MODULE "log" (i32, i32) -> () cost 24 + 1, "diagnostics, not part of the observables";
    Capability = 29: WAVELOCK_MODULE "capability" (i32, i32) -> (i32) cost 24 + 0, "the handle of what the manifest granted under a name";
    ContextCreate = 30: WAVELOCK_MODULE "context_create" (i32, i32) -> (i32) cost 2000 + 0, "a new context on the lane of a control capability";
    ContextConfigure = 31: WAVELOCK_MODULE "context_configure" (i32, i32) -> (i32) cost 2000 + 0, "other parameters for a context";
    ContextBind = 32: WAVELOCK_MODULE "context_bind" (i32, i64) -> (i32) cost 40 + 0, "let a coroutine of this session run on a context";
    ContextUnbind = 33: WAVELOCK_MODULE "context_unbind" (i32) -> (i32) cost 40 + 0, "take a context from its holder";
    ContextRevoke = 34: WAVELOCK_MODULE "context_revoke" (i32) -> (i32) cost 60 + 0, "end a context; its handles are stale";
    ContextConsumed = 35: WAVELOCK_MODULE "context_consumed" (i32) -> (i64) cost 8 + 0, "lane time charged to a context since the last call";
    ContextNotice = 36: WAVELOCK_MODULE "context_notice" (i32, i32) -> (i32) cost 16 + 0, "read and clear a context's cell";
    ContextTimeout = 37: WAVELOCK_MODULE "context_timeout" (i32, i32) -> (i32) cost 16 + 0, "the channel that is told when a context is used up";
    ContextYield = 38: WAVELOCK_MODULE "context_yield" () -> (i32) cost 8 + 0, "give up the rest of the refill and wait for the next";
    Weight = 39: WAVELOCK_MODULE "weight" (i32, i64, i32) -> (i32) cost 24 + 0, "a coroutine's weight, through the policy capability";
    LatencyClass = 40: WAVELOCK_MODULE "latency_class" (i32, i64, i32) -> (i32) cost 24 + 0, "a coroutine's latency class, through the policy capability";
    Call = 41: WAVELOCK_MODULE "call" (i32, i32, i64) -> (i32) cost 40 + 0, "send a number and wait for its answer, lending one's context until then";
    Accept = 42: WAVELOCK_MODULE "accept" (i32, i32) -> (i32) cost 40 + 0, "take a call, waiting while there is none; the handle of its reply";
    Reply = 43: WAVELOCK_MODULE "reply" (i32, i64) -> (i32) cost 40 + 0, "answer a call, giving back what it lent";
    Serve = 44: WAVELOCK_MODULE "serve" (i32, i32, i32, i64) -> (i32) cost 64 + 0, "answer a call and take the next that brings time: the loop of a server without time of its own";
    ArgsSizesGet = 64: WASI_MODULE "args_sizes_get" (i32, i32) -> (i32) cost 16 + 0, "how many arguments, and their bytes";
    ArgsGet = 65: WASI_MODULE "args_get" (i32, i32) -> (i32) cost 24 + 1, "the arguments";
    EnvironSizesGet = 66: WASI_MODULE "environ_sizes_get" (i32, i32) -> (i32) cost 16 + 0, "how many environment variables, and their bytes";
    EnvironGet = 67: WASI_MODULE "environ_get" (i32, i32) -> (i32) cost 24 + 1, "the environment variables";
    FdRead = 68: WASI_MODULE "fd_read" (i32, i32, i32, i32) -> (i32) cost 24 + 1, "bytes of the input events, as a stream";
    FdWrite = 69: WASI_MODULE "fd_write" (i32, i32, i32, i32) -> (i32) cost 24 + 1, "bytes to the output (1) or the log (2)";
    FdClose = 70: WASI_MODULE "fd_close" (i32) -> (i32) cost 16 + 0, "close one of the three streams";
    FdSeek = 71: WASI_MODULE "fd_seek" (i32, i64, i32, i32) -> (i32) cost 16 + 0, "streams do not seek";
    FdFdstatGet = 72: WASI_MODULE "fd_fdstat_get" (i32, i32) -> (i32) cost 16 + 0, "what kind of stream a descriptor is";
    ClockTimeGet = 73: WASI_MODULE "clock_time_get" (i32, i64, i32) -> (i32) cost 16 + 0, "virtual time: one cycle is one nanosecond";
    ClockResGet = 74: WASI_MODULE "clock_res_get" (i32, i32) -> (i32) cost 16 + 0, "resolution of virtual time";
    RandomGet = 75: WASI_MODULE "random_get" (i32, i32) -> (i32) cost 16 + 2, "bytes of this coroutine's own stream";
    SchedYield = 76: WASI_MODULE "sched_yield" () -> (i32) cost 8 + 0, "the same as yield";
    PollOneoff = 77: WASI_MODULE "poll_oneoff" (i32, i32, i32, i32) -> (i32) cost 24 + 0, "sleep on one clock, rounded up to whole frames";
    ProcExit = 78: WASI_MODULE "proc_exit" (i32) -> () cost 8 + 0, "end the whole session";
    FdAdvise = 100: WASI_MODULE "fd_advise" (i32, i64, i64, i32) -> (i32) cost 8 + 0, "streams have no position";
    FdAllocate = 101: WASI_MODULE "fd_allocate" (i32, i64, i64) -> (i32) cost 8 + 0, "streams have no position";
    FdDatasync = 102: WASI_MODULE "fd_datasync" (i32) -> (i32) cost 8 + 0, "streams are not synchronised: answers EINVAL";
    FdFdstatSetFlags = 103: WASI_MODULE "fd_fdstat_set_flags" (i32, i32) -> (i32) cost 8 + 0, "none or append; other flags are not supported";
    FdFdstatSetRights = 104: WASI_MODULE "fd_fdstat_set_rights" (i32, i64, i64) -> (i32) cost 8 + 0, "answers ENOSYS";
    FdFilestatGet = 105: WASI_MODULE "fd_filestat_get" (i32, i32) -> (i32) cost 8 + 0, "a stream of unknown type, without size and times";
    FdFilestatSetSize = 106: WASI_MODULE "fd_filestat_set_size" (i32, i64) -> (i32) cost 8 + 0, "streams have no size: answers EINVAL";
    FdFilestatSetTimes = 107: WASI_MODULE "fd_filestat_set_times" (i32, i64, i64, i32) -> (i32) cost 8 + 0, "answers ENOSYS";
    FdPread = 108: WASI_MODULE "fd_pread" (i32, i32, i32, i64, i32) -> (i32) cost 8 + 0, "streams have no position: answers ESPIPE";
    FdPrestatGet = 109: WASI_MODULE "fd_prestat_get" (i32, i32) -> (i32) cost 8 + 0, "no directory is ever preopened: answers EBADF";
    FdPrestatDirName = 110: WASI_MODULE "fd_prestat_dir_name" (i32, i32, i32) -> (i32) cost 8 + 0, "no directory is ever preopened: answers EBADF";
    FdPwrite = 111: WASI_MODULE "fd_pwrite" (i32, i32, i32, i64, i32) -> (i32) cost 8 + 0, "streams have no position: answers ESPIPE";
    FdReaddir = 112: WASI_MODULE "fd_readdir" (i32, i32, i32, i64, i32) -> (i32) cost 8 + 0, "no directory is open";
    FdRenumber = 113: WASI_MODULE "fd_renumber" (i32, i32) -> (i32) cost 8 + 0, "answers ENOSYS";
    FdSync = 114: WASI_MODULE "fd_sync" (i32) -> (i32) cost 8 + 0, "streams are not synchronised: answers EINVAL";
    FdTell = 115: WASI_MODULE "fd_tell" (i32, i32) -> (i32) cost 8 + 0, "streams have no position: answers ESPIPE";
    PathCreateDirectory = 116: WASI_MODULE "path_create_directory" (i32, i32, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    PathFilestatGet = 117: WASI_MODULE "path_filestat_get" (i32, i32, i32, i32, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    PathFilestatSetTimes = 118: WASI_MODULE "path_filestat_set_times" (i32, i32, i32, i32, i64, i64, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    PathLink = 119: WASI_MODULE "path_link" (i32, i32, i32, i32, i32, i32, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    PathOpen = 120: WASI_MODULE "path_open" (i32, i32, i32, i32, i32, i64, i64, i32, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    PathReadlink = 121: WASI_MODULE "path_readlink" (i32, i32, i32, i32, i32, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    PathRemoveDirectory = 122: WASI_MODULE "path_remove_directory" (i32, i32, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    PathRename = 123: WASI_MODULE "path_rename" (i32, i32, i32, i32, i32, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    PathSymlink = 124: WASI_MODULE "path_symlink" (i32, i32, i32, i32, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    PathUnlinkFile = 125: WASI_MODULE "path_unlink_file" (i32, i32, i32) -> (i32) cost 8 + 0, "no directory is open: answers EBADF, or ENOTDIR for a stream";
    ProcRaise = 126: WASI_MODULE "proc_raise" (i32) -> (i32) cost 8 + 0, "answers ENOSYS";
    SockAccept = 127: WASI_MODULE "sock_accept" (i32, i32, i32) -> (i32) cost 8 + 0, "no socket is open: answers EBADF, or ENOTSOCK for a stream";
    SockRecv = 128: WASI_MODULE "sock_recv" (i32, i32, i32, i32, i32, i32) -> (i32) cost 8 + 0, "no socket is open: answers EBADF, or ENOTSOCK for a stream";
    SockSend = 129: WASI_MODULE "sock_send" (i32, i32, i32, i32, i32) -> (i32) cost 8 + 0, "no socket is open: answers EBADF, or ENOTSOCK for a stream";
    SockShutdown = 130: WASI_MODULE "sock_shutdown" (i32, i32) -> (i32) cost 8 + 0, "no socket is open: answers EBADF, or ENOTSOCK for a stream";
}

impl HostOperation {
    /// Whether it is about calls (`call` to `serve`).
    #[must_use]
    pub const fn is_about_calls(self) -> bool {
        matches!(self, Self::Call | Self::Accept | Self::Reply | Self::Serve)
    }

    /// Whether it is about authority over time (`capability` to `latency_class`).
    #[must_use]
    pub const fn is_about_time(self) -> bool {
        self as u8 >= Self::Capability as u8 && self as u8 <= Self::LatencyClass as u8
    }
}
