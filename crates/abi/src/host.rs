//! The guest interface: every host operation with its import name, type, cost, meaning, errors,
//! when it blocks and what it needs.
//!
//! The enum, the linker's lookup, the cost report and docs/guest-interface.md expand from this one
//! table. Sized operations also cost [`HostOperation::cost_per_8_bytes`], prepaid like a bulk
//! instruction.

use crate::Cycles;

/// Version of the guest interface. Recorded in traces; other versions are refused.
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

/// The parts of an operation's entry in docs/guest-interface.md that only the documentation uses.
/// An empty text: it does not fail, does not block, needs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Manual {
    /// The names of its parameters.
    pub parameters: &'static [&'static str],
    /// What its arguments and its result mean.
    pub notes: &'static str,
    /// The codes it returns, each with its reason.
    pub errors: &'static str,
    /// When and until when the caller blocks.
    pub blocks: &'static str,
    /// What the session needs: a right, a port, a capability.
    pub needs: &'static str,
}

macro_rules! host_operations {
    (@value i32) => { HostValue::I32 };
    (@value i64) => { HostValue::I64 };
    ($(
        $name:ident = $code:literal: $module:ident $import:literal
        ($($argument:ident: $param:ident),*) -> ($($result:tt),*)
        cost $cost:literal + $sized:literal, $doc:literal
        $(, notes $notes:literal)? $(, errors $errors:literal)?
        $(, blocks $blocks:literal)? $(, needs $needs:literal)?;
    )*) => {
        /// An operation a guest can import. Each call is a safepoint.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum HostOperation {
            $(#[doc = $doc] $name = $code,)*
        }

        impl HostOperation {
            /// Every operation, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The operation with this number in a trace or snapshot.
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

            /// What it does, as a phrase.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }

            /// The operation an import names, if there is one.
            #[must_use]
            pub fn find(module: &str, import: &str) -> Option<Self> {
                let is_named =
                    |operation: &Self| operation.module() == module && operation.import() == import;
                Self::ALL.iter().copied().find(is_named)
            }

            /// Its documentation beyond type, cost and meaning.
            #[must_use]
            pub const fn manual(self) -> Manual {
                match self {
                    $(Self::$name => Manual {
                        parameters: &[$(stringify!($argument)),*],
                        notes: concat!("" $(, $notes)?),
                        errors: concat!("" $(, $errors)?),
                        blocks: concat!("" $(, $blocks)?),
                        needs: concat!("" $(, $needs)?),
                    },)*
                }
            }
        }
    };
}

host_operations! {
    Spawn = 1: WAVELOCK_MODULE "spawn" (entry: i32, arg: i64) -> (i64) cost 120 + 0,
        "spawns a coroutine of this session; does not switch to it",
        notes "It calls entry `entry` of table 0 with `arg`. Returns its reference. Its `__stack_pointer` starts at 0.",
        errors "EINVAL: table 0 has no function of type (i64) -> i64 or (i64) -> () at `entry`; EDENIED: the session is ending; ELIMIT: `coroutines`, or `session_stack_bytes`";
    SpawnOn = 2: WAVELOCK_MODULE "spawn_on" (entry: i32, arg: i64, lane: i32) -> (i64) cost 120 + 0,
        "spawns a coroutine on another lane of this session",
        notes "As `spawn`; on another lane the child can run after the wave's end.",
        errors "EINVAL: table 0 has no function of type (i64) -> i64 or (i64) -> () at `entry`; EDENIED: `lane` is not one of the session's lanes, or the session is ending; ELIMIT: `coroutines`, or `session_stack_bytes`",
        needs "`lanes` of the session in the manifest, for another lane than its own";
    SpawnStack = 3: WAVELOCK_MODULE "spawn_stack" (entry: i32, arg: i64, top: i32) -> (i64) cost 120 + 0,
        "spawns a coroutine with its own shadow stack",
        notes "As `spawn`, with the child's `__stack_pointer` at `top`: the end of memory that nothing else uses.",
        errors "EINVAL: table 0 has no function of type (i64) -> i64 or (i64) -> () at `entry`; EDENIED: the session is ending; ELIMIT: `coroutines`, or `session_stack_bytes`";
    Detach = 4: WAVELOCK_MODULE "detach" (ref: i64) -> (i32) cost 16 + 0,
        "detaches a coroutine: it can no longer be joined",
        notes "Its slot is freed when it ends. Returns 0.",
        errors "EINVAL: `ref` is negative; ESTALE: it was joined, detached and ended, or never existed";
    Yield = 5: WAVELOCK_MODULE "yield" () -> () cost 8 + 0,
        "requeues this coroutine behind the others of its lane",
        blocks "until the lane dispatches it again";
    Sleep = 6: WAVELOCK_MODULE "sleep" (frames: i64) -> () cost 16 + 0,
        "sleeps for a number of frames",
        notes "Runs again at the start of frame `frame() + frames`; 0 or less is `yield`.",
        blocks "until that frame";
    Own = 7: WAVELOCK_MODULE "self" () -> (i64) cost 4 + 0,
        "returns this coroutine's reference",
        notes "The first coroutine of a session is 0.";
    Join = 8: WAVELOCK_MODULE "join" (ref: i64, ptr: i32) -> (i32) cost 24 + 0,
        "waits for a coroutine to end and takes its result",
        notes "Writes the result (i64) at `ptr`, or nowhere if `ptr` is -1, and returns 0. The first join frees the slot.",
        errors "EINVAL: `ref` is negative or the caller; ESTALE: it was joined or detached, or never existed; EFAULTED, ECANCELED: it ended that way, nothing is written",
        blocks "until it has ended";
    Cancel = 9: WAVELOCK_MODULE "cancel" (ref: i64) -> (i32) cost 32 + 0,
        "ends another coroutine of this session",
        notes "It runs no more code. Returns 0, also if it has ended already.",
        errors "EINVAL: `ref` is negative or the caller; ESTALE: it was joined or detached, or never existed",
        blocks "until the wave's end if it is on another lane";
    Exit = 10: WAVELOCK_MODULE "exit" (value: i64) -> () cost 8 + 0,
        "ends this coroutine",
        notes "`value` is its result, and in the first coroutine the session's exit code. Does not return. The session continues while it has other coroutines.";
    Channel = 11: WAVELOCK_MODULE "channel" (capacity: i32) -> (i32) cost 64 + 0,
        "creates a channel of this session",
        notes "Returns its handle. The channel lives as long as the session.",
        errors "EINVAL: `capacity` is below 1; ELIMIT: `channel_capacity`, or `channels`";
    Port = 12: WAVELOCK_MODULE "port" (ptr: i32, len: i32) -> (i32) cost 32 + 1,
        "looks up the channel that the manifest wired to a name",
        notes "The name is `len` bytes at `ptr`. Returns the handle. The owner can also look up its channels by their own names.",
        errors "EINVAL: no port has that name";
    Send = 13: WAVELOCK_MODULE "send" (ch: i32, value: i64) -> (i32) cost 20 + 0,
        "sends a number, waiting while the channel is full",
        notes "Returns 0.",
        errors "EINVAL: no such handle; ECLOSED: the channel, or this session's port of it, is closed",
        blocks "while the channel is full; from another lane while the sender's lane has no credit",
        needs "a channel of its own, or a port to one";
    TrySend = 14: WAVELOCK_MODULE "try_send" (ch: i32, value: i64) -> (i32) cost 20 + 0,
        "sends a number unless the channel is full",
        notes "Returns 0.",
        errors "EINVAL: no such handle; ECLOSED: the channel, or this session's port of it, is closed; EAGAIN: it would block",
        needs "a channel of its own, or a port to one";
    Recv = 15: WAVELOCK_MODULE "recv" (ch: i32, ptr: i32) -> (i32) cost 20 + 0,
        "receives a number, waiting while the channel is empty",
        notes "Writes the i64 at `ptr` and returns 0.",
        errors "EINVAL: no such handle; EDENIED: another session owns the channel; ECLOSED: closed and drained; EMSGSIZE: the next message is of another kind, it stays",
        blocks "while the channel is empty",
        needs "to own the channel";
    TryRecv = 16: WAVELOCK_MODULE "try_recv" (ch: i32, ptr: i32) -> (i32) cost 20 + 0,
        "receives a number unless the channel is empty",
        notes "Writes the i64 at `ptr` and returns 0.",
        errors "EINVAL: no such handle; EDENIED: another session owns the channel; ECLOSED: closed and drained; EMSGSIZE: the next message is of another kind, it stays; EAGAIN: it is empty",
        needs "to own the channel";
    SendBytes = 17: WAVELOCK_MODULE "send_bytes" (ch: i32, ptr: i32, len: i32) -> (i32) cost 24 + 1,
        "sends a byte message, waiting while the channel is full",
        notes "Returns 0.",
        errors "EINVAL: no such handle; ECLOSED: the channel, or this session's port of it, is closed; ELIMIT: `message_bytes`",
        blocks "while the channel is full; from another lane while the sender's lane has no credit",
        needs "a channel of its own, or a port to one";
    RecvBytes = 18: WAVELOCK_MODULE "recv_bytes" (ch: i32, ptr: i32, cap: i32) -> (i32) cost 24 + 1,
        "receives a byte message, waiting while the channel is empty",
        notes "Writes it at `ptr` and returns its length.",
        errors "EINVAL: no such handle; EDENIED: another session owns the channel; ECLOSED: closed and drained; EMSGSIZE: the next message is of another kind or longer than `cap`, it stays",
        blocks "while the channel is empty",
        needs "to own the channel";
    Select = 19: WAVELOCK_MODULE "select" (ptr: i32, n: i32) -> (i32) cost 24 + 4,
        "waits until one of several channels can be received from or is closed",
        notes "`n` handles (i32) at `ptr`. Returns the lowest such index; takes nothing.",
        errors "EINVAL: `n` is below 1, or no such handle; EDENIED: another session owns one; ELIMIT: `select`",
        blocks "until one can be received from",
        needs "to own the channels";
    Close = 20: WAVELOCK_MODULE "close" (ch: i32) -> (i32) cost 24 + 0,
        "closes a channel, or this session's port of one",
        notes "Returns 0. Senders get ECLOSED at once, receivers when it is drained. A wired channel also closes when all its senders have closed their ports.",
        errors "EINVAL: no such handle; ECLOSED: it is closed already";
    Frame = 21: WAVELOCK_MODULE "frame" () -> (i64) cost 4 + 0,
        "returns the current frame";
    Lane = 22: WAVELOCK_MODULE "lane" () -> (i32) cost 4 + 0,
        "returns the current lane";
    Cycles = 23: WAVELOCK_MODULE "cycles" () -> (i64) cost 4 + 0,
        "returns the cycles charged to this coroutine so far";
    Remaining = 24: WAVELOCK_MODULE "remaining" () -> (i64) cost 4 + 0,
        "returns the cycles left for this lane in this frame";
    Random = 25: WAVELOCK_MODULE "random" () -> (i64) cost 8 + 0,
        "returns the next number of this coroutine's own stream",
        notes "The stream depends on the machine's seed, the session's name and the coroutine's position in the spawn tree.";
    Input = 26: WAVELOCK_MODULE "input" (ptr: i32, cap: i32) -> (i32) cost 24 + 1,
        "takes the next input event of this frame",
        notes "Writes it at `ptr` and returns its length; 0 if there is none. Events not taken by the frame's end are dropped.",
        errors "EMSGSIZE: it is longer than `cap`, and stays";
    Output = 27: WAVELOCK_MODULE "output" (ptr: i32, len: i32) -> (i32) cost 24 + 1,
        "outputs bytes",
        notes "They are released at the frame's end. Returns 0.",
        errors "ELIMIT: `output_bytes` of this frame";
    Log = 28: WAVELOCK_MODULE "log" (ptr: i32, len: i32) -> () cost 24 + 1,
        "writes diagnostics, which are not part of the observables",
        notes "Bytes beyond `log_bytes` of a frame are dropped and counted.";
    Capability = 29: WAVELOCK_MODULE "capability" (ptr: i32, len: i32) -> (i32) cost 24 + 0,
        "looks up the handle of a capability that the manifest granted",
        notes "The name is `len` bytes at `ptr`: `control`, `policy`, `isolation`, or a context's name.",
        errors "EDENIED: nothing was granted under that name",
        needs "a `[[grant]]` or `[[context]]`";
    ContextCreate = 30: WAVELOCK_MODULE "context_create" (control: i32, ptr: i32) -> (i32) cost 2000 + 0,
        "creates a context on this session's home lane",
        notes "Six i64 at `ptr`: budget, period, deadline, refills (2 to 8), overrun (0 throttle, 1 notify and throttle, 2 demote, 3 notify only, 4 end), activation (0 sporadic, 1 constant bandwidth). Returns its handle.",
        errors "EDENIED: no authority was granted, or not on the home lane; ESTALE: the handle was revoked or never given out; EINVAL: not the control capability, or a parameter out of range; ELIMIT: not admitted, or no room",
        needs "the control capability";
    ContextConfigure = 31: WAVELOCK_MODULE "context_configure" (context: i32, ptr: i32) -> (i32) cost 2000 + 0,
        "changes the parameters of a context",
        notes "Six i64 at `ptr`: budget, period, deadline, refills (2 to 8), overrun (0 throttle, 1 notify and throttle, 2 demote, 3 notify only, 4 end), activation (0 sporadic, 1 constant bandwidth). One in use keeps its window. Returns 0.",
        errors "EDENIED: no authority was granted, or not on the home lane; ESTALE: the handle was revoked or never given out; EINVAL: not a context, a parameter out of range, a budget below what is outstanding, or lent; ELIMIT: not admitted",
        needs "the context's handle";
    ContextBind = 32: WAVELOCK_MODULE "context_bind" (context: i32, ref: i64) -> (i32) cost 40 + 0,
        "lets a coroutine of this session run on a context",
        notes "Returns 0.",
        errors "EDENIED: no authority was granted, or the coroutine is on another lane; ESTALE: the handle was revoked or never given out; EINVAL: not a context, or one of the two is bound; EAGAIN: the coroutine waits and the context has nothing to give",
        needs "the context's handle";
    ContextUnbind = 33: WAVELOCK_MODULE "context_unbind" (context: i32) -> (i32) cost 40 + 0,
        "takes a context from its holder",
        notes "Returns 0.",
        errors "EDENIED: no authority was granted, or not on the home lane; ESTALE: the handle was revoked or never given out; EINVAL: not a context, not bound, held by the caller, or lent",
        needs "the context's handle";
    ContextRevoke = 34: WAVELOCK_MODULE "context_revoke" (context: i32) -> (i32) cost 60 + 0,
        "ends a context; its handles are stale",
        notes "Calls along which it was lent end with EREVOKED. Returns 0.",
        errors "EDENIED: no authority was granted, or not on the home lane; ESTALE: the handle was revoked or never given out; EINVAL: not a context",
        needs "the context's handle";
    ContextConsumed = 35: WAVELOCK_MODULE "context_consumed" (context: i32) -> (i64) cost 8 + 0,
        "returns the lane time charged to a context since the last call",
        notes "Up to the last stop of its holder.",
        errors "EDENIED: no authority was granted, or not on the home lane; ESTALE: the handle was revoked or never given out; EINVAL: not a context",
        needs "the context's handle";
    ContextNotice = 36: WAVELOCK_MODULE "context_notice" (context: i32, ptr: i32) -> (i32) cost 16 + 0,
        "reads and clears a context's notification cell",
        notes "Four i64 at `ptr`: count, first, last, overrun. Returns the count.",
        errors "EDENIED: no authority was granted, or not on the home lane; ESTALE: the handle was revoked or never given out; EINVAL: not a context",
        needs "the context's handle";
    ContextTimeout = 37: WAVELOCK_MODULE "context_timeout" (context: i32, ch: i32) -> (i32) cost 16 + 0,
        "names the channel that is notified when a context is used up",
        notes "One of the session's own channels gets the handle as a number when the cell is first written; `ch` -1 is none. Returns 0.",
        errors "EDENIED: no authority was granted, or not on the home lane; ESTALE: the handle was revoked or never given out; EINVAL: not a context, or not an own channel",
        needs "the context's handle";
    ContextYield = 38: WAVELOCK_MODULE "context_yield" () -> (i32) cost 8 + 0,
        "gives up the rest of the refill",
        notes "Returns 0 when it runs again.",
        errors "EINVAL: the caller holds no context",
        blocks "until the next refill",
        needs "to hold a context";
    Weight = 39: WAVELOCK_MODULE "weight" (policy: i32, ref: i64, weight: i32) -> (i32) cost 24 + 0,
        "sets a coroutine's weight under `fair`",
        notes "1 to 65,535; 1,024 is neutral. Returns 0.",
        errors "EDENIED: no authority was granted, or the coroutine is on another lane; ESTALE: the handle was revoked or never given out; EINVAL: not the policy capability, or out of range",
        needs "the policy capability";
    LatencyClass = 40: WAVELOCK_MODULE "latency_class" (policy: i32, ref: i64, class: i32) -> (i32) cost 24 + 0,
        "sets a coroutine's latency class under `fair`",
        notes "0 urgent, 1 interactive, 2 normal, 3 batch, 4 idle. Returns 0.",
        errors "EDENIED: no authority was granted, or the coroutine is on another lane; ESTALE: the handle was revoked or never given out; EINVAL: not the policy capability, or out of range",
        needs "the policy capability";
    Priority = 62: WAVELOCK_MODULE "priority" (policy: i32, ref: i64, priority: i32) -> (i32) cost 24 + 0,
        "sets a coroutine's priority under the priority policies",
        notes "0 to 255; larger runs first. It acts from the next pick on: a ready coroutine keeps its arrival, and its children start with the session's. Returns 0.",
        errors "EDENIED: no authority was granted, or the coroutine is on another lane; ESTALE: the handle was revoked or never given out; EINVAL: not the policy capability, or out of range",
        needs "the policy capability";
    Call = 41: WAVELOCK_MODULE "call" (ch: i32, ptr: i32, value: i64) -> (i32) cost 40 + 0,
        "sends a number and waits for the reply",
        notes "Writes the reply (i64) at `ptr` and returns 0. A context that the caller holds is lent to the acceptor on its lane until then.",
        errors "EINVAL: no such handle; ECLOSED: closed before the call was accepted; EDENIED: a passive server accepted it and it lent no time; EFAULTED, ECANCELED: the acceptor ended without a reply; EREVOKED: the time lent with it was revoked",
        blocks "until the reply",
        needs "a channel of its own, or a port to one";
    Accept = 42: WAVELOCK_MODULE "accept" (ch: i32, ptr: i32) -> (i32) cost 40 + 0,
        "accepts a call, waiting while there is none",
        notes "Writes its number (i64) at `ptr` and returns the handle of its reply.",
        errors "EINVAL: no such handle; EDENIED: another session owns the channel; ECLOSED: closed and drained; EMSGSIZE: the next message is of another kind, it stays; ELIMIT: 1,024 calls have no reply yet",
        blocks "while there is no call",
        needs "to own the channel";
    Reply = 43: WAVELOCK_MODULE "reply" (reply: i32, value: i64) -> (i32) cost 40 + 0,
        "replies to a call",
        notes "The time that the call lent goes back to the caller. Returns 0.",
        errors "ESTALE: no such call, replied to already, or its caller has ended; EDENIED: another coroutine accepted it";
    Serve = 44: WAVELOCK_MODULE "serve" (ch: i32, ptr: i32, reply: i32, value: i64) -> (i32) cost 64 + 0,
        "replies to a call and accepts the next that lends time",
        notes "The loop of a passive server: `reply` with `value` (-1: no call to reply to), then as `accept`. Calls that lend no time get EDENIED, unless the server has a context of its own.",
        errors "EINVAL: no such handle; EDENIED: another session owns the channel, another coroutine accepted the call, or not on the home lane; ECLOSED: closed and drained; EMSGSIZE: the next message is of another kind, it stays; ESTALE: no such call; ELIMIT: 1,024 calls have no reply yet",
        blocks "while there is no call that lends time",
        needs "to own the channel, on the session's home lane";
    LeaseRequest = 45: WAVELOCK_MODULE "lease_request" (isolation: i32, ptr: i32, len: i32) -> (i32) cost 400 + 0,
        "asks for a `[[lease]]` of the machine: a lane for one coroutine alone",
        notes "The lease's name is `len` bytes at `ptr`. Returns the lease's handle once it is active.",
        errors "EINVAL: no lease has that name, or not the isolation capability; ESTALE: no such handle; EAGAIN: its lane has a lease already; EDENIED: not on the home lane, or evidence was missing (an event says which); EREVOKED: it ended before it was active; ELIMIT: no room for a handle",
        blocks "until the end of the wave in which the lease is active or denied",
        needs "`[[grant]] of = \"isolation\"`";
    LeaseRevoke = 46: WAVELOCK_MODULE "lease_revoke" (lease: i32) -> (i32) cost 120 + 0,
        "ends a lease",
        notes "Returns 0, also if it has ended already. On the leased lane it ends at once.",
        errors "EINVAL: not a lease; ESTALE: no such handle; EDENIED: not on the home lane",
        blocks "until the wave's end if the lease is of another lane",
        needs "the handle that `lease_request` returned";
    LeaseState = 47: WAVELOCK_MODULE "lease_state" (lease: i32, ptr: i32) -> (i32) cost 40 + 0,
        "reads the state of a lease",
        notes "Writes eight i64 at `ptr`: state, reason of its end or denial, the session in the way (-1 for none), a count, lane clock of its activation (-1 for none), lane clock of its end, cycles that its revocation took, operations of noise. Returns the state: 1 requested, 2 draining, 3 flushing, 4 active, 5 revoking, 6 released, 7 denied. Of another lane it is the state at the last wave's end.",
        errors "EINVAL: not a lease; ESTALE: no such handle, or its lane has had another lease since; EDENIED: not on the home lane",
        needs "the handle that `lease_request` returned";
    Park = 48: WAVELOCK_MODULE "park" () -> (i32) cost 16 + 0,
        "waits until another coroutine unparks this one",
        notes "Returns 0. Returns at once if it was unparked since it last parked: one such wake is kept, however many there were.",
        blocks "until it is unparked";
    Unpark = 49: WAVELOCK_MODULE "unpark" (ref: i64) -> (i32) cost 20 + 0,
        "wakes a parked coroutine of this session, or keeps a wake for its next `park`",
        notes "Returns 0, also if it has ended, and also for the caller itself. On another lane it takes effect at the wave's end.",
        errors "EINVAL: `ref` is negative; ESTALE: it was joined or detached, or never existed";
    SessionWait = 59: WAVELOCK_MODULE "session_wait" (ch: i32, ptr: i32) -> (i32) cost 32 + 0,
        "waits for the end of the session that a port leads to",
        notes "`ch` is a port of this session, closed or not. Writes the session's exit code (i64) at `ptr`, or nowhere if `ptr` is -1, and returns 0.",
        errors "EINVAL: no such handle, or a channel of its own; EFAULTED: the session faulted, nothing is written; ECANCELED: it ended in another way, nothing is written",
        blocks "until the end of the wave in which the session ended, and always to the end of this one",
        needs "a port to a channel of that session";
    SessionName = 60: WAVELOCK_MODULE "session_name" (ptr: i32, cap: i32) -> (i32) cost 24 + 1,
        "reads the name of this session",
        notes "Writes the full name (`bot.2` for a counted session) at `ptr` and returns its length.",
        errors "EMSGSIZE: it is longer than `cap`, nothing is written";
    SessionIndex = 61: WAVELOCK_MODULE "session_index" () -> (i32) cost 4 + 0,
        "returns the index of this session among those of its `count`",
        notes "It is the number after the last dot of the session's name, and 0 if there is none.";
    ArgsSizesGet = 64: WASI_MODULE "args_sizes_get" (argc: i32, argv_bytes: i32) -> (i32) cost 16 + 0,
        "returns the number of arguments and their size",
        notes "The manifest's `args`.";
    ArgsGet = 65: WASI_MODULE "args_get" (argv: i32, argv_buffer: i32) -> (i32) cost 24 + 1,
        "returns the arguments";
    EnvironSizesGet = 66: WASI_MODULE "environ_sizes_get" (count: i32, bytes: i32) -> (i32) cost 16 + 0,
        "returns the number of environment variables and their size",
        notes "The manifest's `env`, in name order; nothing comes from the host.";
    EnvironGet = 67: WASI_MODULE "environ_get" (environ: i32, environ_buffer: i32) -> (i32) cost 24 + 1,
        "returns the environment variables";
    FdRead = 68: WASI_MODULE "fd_read" (fd: i32, iovs: i32, iovs_len: i32, nread: i32) -> (i32) cost 24 + 1,
        "reads the session's input events as one stream of bytes",
        notes "From descriptor 0. Returns 0 bytes after the last event.",
        errors "EBADF: not 0, or closed; EINVAL: more than 1,024 buffers",
        blocks "while there is no input yet";
    FdWrite = 69: WASI_MODULE "fd_write" (fd: i32, iovs: i32, iovs_len: i32, nwritten: i32) -> (i32) cost 24 + 1,
        "writes to the output (1) or to the log (2)",
        notes "All or nothing. Released at the frame's end.",
        errors "EBADF: not 1 or 2, or closed; EINVAL: more than 1,024 buffers or 4 GiB; ENOSPC: `output_bytes` of this frame";
    FdClose = 70: WASI_MODULE "fd_close" (fd: i32) -> (i32) cost 16 + 0,
        "closes one of the three streams",
        errors "EBADF: not 0, 1 or 2, or closed";
    FdSeek = 71: WASI_MODULE "fd_seek" (fd: i32, offset: i64, whence: i32, result: i32) -> (i32) cost 16 + 0,
        "returns ESPIPE: streams do not seek",
        errors "ESPIPE, EBADF";
    FdFdstatGet = 72: WASI_MODULE "fd_fdstat_get" (fd: i32, stat: i32) -> (i32) cost 16 + 0,
        "returns what a stream is: of unknown type, with the right to read (0) or write (1, 2)",
        errors "EBADF";
    ClockTimeGet = 73: WASI_MODULE "clock_time_get" (clock: i32, precision: i64, time: i32) -> (i32) cost 16 + 0,
        "returns virtual time: the lane's clock, one cycle is one nanosecond",
        notes "All four clocks are the same and start at 0.",
        errors "EINVAL: a clock above 3";
    ClockResGet = 74: WASI_MODULE "clock_res_get" (clock: i32, resolution: i32) -> (i32) cost 16 + 0,
        "returns the resolution of virtual time, 1",
        errors "EINVAL: a clock above 3";
    RandomGet = 75: WASI_MODULE "random_get" (buffer: i32, length: i32) -> (i32) cost 16 + 2,
        "fills a buffer from this coroutine's own random stream",
        notes "Words of the stream of `random`, little-endian.";
    SchedYield = 76: WASI_MODULE "sched_yield" () -> (i32) cost 8 + 0,
        "the same as `yield`",
        blocks "until the lane dispatches it again";
    PollOneoff = 77: WASI_MODULE "poll_oneoff" (in: i32, out: i32, count: i32, nevents: i32) -> (i32) cost 24 + 0,
        "sleeps on one clock subscription, rounded up to whole frames",
        notes "A relative time is `ceil(time / frame_cycles)` frames; an absolute one is the first frame that begins at or after it; 0 frames is a yield.",
        errors "EINVAL: no subscription; ENOSYS: more than one, or not a clock",
        blocks "until that frame";
    ProcExit = 78: WASI_MODULE "proc_exit" (code: i32) -> () cost 8 + 0,
        "ends the whole session with an exit code",
        notes "Does not return.";
    FdAdvise = 100: WASI_MODULE "fd_advise" (fd: i32, offset: i64, length: i64, advice: i32) -> (i32) cost 8 + 0,
        "returns ESPIPE: streams have no position",
        errors "ESPIPE, EBADF";
    FdAllocate = 101: WASI_MODULE "fd_allocate" (fd: i32, offset: i64, length: i64) -> (i32) cost 8 + 0,
        "returns ESPIPE: streams have no position",
        errors "ESPIPE, EBADF";
    FdDatasync = 102: WASI_MODULE "fd_datasync" (fd: i32) -> (i32) cost 8 + 0,
        "returns EINVAL: streams are not synchronised",
        errors "EINVAL, EBADF";
    FdFdstatSetFlags = 103: WASI_MODULE "fd_fdstat_set_flags" (fd: i32, flags: i32) -> (i32) cost 8 + 0,
        "accepts no flags or `append`",
        errors "ENOTSUP: any other flag; EBADF";
    FdFdstatSetRights = 104: WASI_MODULE "fd_fdstat_set_rights" (fd: i32, base: i64, inheriting: i64) -> (i32) cost 8 + 0,
        "returns ENOSYS",
        errors "ENOSYS";
    FdFilestatGet = 105: WASI_MODULE "fd_filestat_get" (fd: i32, stat: i32) -> (i32) cost 8 + 0,
        "returns a stream of unknown type, without size and times",
        errors "EBADF";
    FdFilestatSetSize = 106: WASI_MODULE "fd_filestat_set_size" (fd: i32, size: i64) -> (i32) cost 8 + 0,
        "returns EINVAL: streams have no size",
        errors "EINVAL, EBADF";
    FdFilestatSetTimes = 107: WASI_MODULE "fd_filestat_set_times" (fd: i32, accessed: i64, modified: i64, flags: i32) -> (i32) cost 8 + 0,
        "returns ENOSYS",
        errors "ENOSYS";
    FdPread = 108: WASI_MODULE "fd_pread" (fd: i32, iovs: i32, iovs_len: i32, offset: i64, nread: i32) -> (i32) cost 8 + 0,
        "returns ESPIPE: streams have no position",
        errors "ESPIPE, EBADF";
    FdPrestatGet = 109: WASI_MODULE "fd_prestat_get" (fd: i32, prestat: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is ever preopened",
        errors "EBADF";
    FdPrestatDirName = 110: WASI_MODULE "fd_prestat_dir_name" (fd: i32, path: i32, path_len: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is ever preopened",
        errors "EBADF";
    FdPwrite = 111: WASI_MODULE "fd_pwrite" (fd: i32, iovs: i32, iovs_len: i32, offset: i64, nwritten: i32) -> (i32) cost 8 + 0,
        "returns ESPIPE: streams have no position",
        errors "ESPIPE, EBADF";
    FdReaddir = 112: WASI_MODULE "fd_readdir" (fd: i32, buffer: i32, length: i32, cookie: i64, used: i32) -> (i32) cost 8 + 0,
        "returns ENOTDIR: no directory is open",
        errors "ENOTDIR, EBADF";
    FdRenumber = 113: WASI_MODULE "fd_renumber" (from: i32, to: i32) -> (i32) cost 8 + 0,
        "returns ENOSYS",
        errors "ENOSYS";
    FdSync = 114: WASI_MODULE "fd_sync" (fd: i32) -> (i32) cost 8 + 0,
        "returns EINVAL: streams are not synchronised",
        errors "EINVAL, EBADF";
    FdTell = 115: WASI_MODULE "fd_tell" (fd: i32, offset: i32) -> (i32) cost 8 + 0,
        "returns ESPIPE: streams have no position",
        errors "ESPIPE, EBADF";
    PathCreateDirectory = 116: WASI_MODULE "path_create_directory" (fd: i32, path: i32, path_len: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    PathFilestatGet = 117: WASI_MODULE "path_filestat_get" (fd: i32, flags: i32, path: i32, path_len: i32, stat: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    PathFilestatSetTimes = 118: WASI_MODULE "path_filestat_set_times" (fd: i32, flags: i32, path: i32, path_len: i32, accessed: i64, modified: i64, times: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    PathLink = 119: WASI_MODULE "path_link" (fd: i32, flags: i32, path: i32, path_len: i32, new_fd: i32, new_path: i32, new_path_len: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    PathOpen = 120: WASI_MODULE "path_open" (fd: i32, lookup: i32, path: i32, path_len: i32, flags: i32, base: i64, inheriting: i64, fdflags: i32, opened: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    PathReadlink = 121: WASI_MODULE "path_readlink" (fd: i32, path: i32, path_len: i32, buffer: i32, length: i32, used: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    PathRemoveDirectory = 122: WASI_MODULE "path_remove_directory" (fd: i32, path: i32, path_len: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    PathRename = 123: WASI_MODULE "path_rename" (fd: i32, path: i32, path_len: i32, new_fd: i32, new_path: i32, new_path_len: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    PathSymlink = 124: WASI_MODULE "path_symlink" (old_path: i32, old_path_len: i32, fd: i32, new_path: i32, new_path_len: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    PathUnlinkFile = 125: WASI_MODULE "path_unlink_file" (fd: i32, path: i32, path_len: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no directory is open",
        errors "EBADF; ENOTDIR: `fd` is one of the three streams";
    ProcRaise = 126: WASI_MODULE "proc_raise" (signal: i32) -> (i32) cost 8 + 0,
        "returns ENOSYS",
        errors "ENOSYS";
    SockAccept = 127: WASI_MODULE "sock_accept" (fd: i32, flags: i32, opened: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no socket is open",
        errors "EBADF; ENOTSOCK: `fd` is one of the three streams";
    SockRecv = 128: WASI_MODULE "sock_recv" (fd: i32, iovs: i32, iovs_len: i32, flags: i32, nread: i32, roflags: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no socket is open",
        errors "EBADF; ENOTSOCK: `fd` is one of the three streams";
    SockSend = 129: WASI_MODULE "sock_send" (fd: i32, iovs: i32, iovs_len: i32, flags: i32, nwritten: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no socket is open",
        errors "EBADF; ENOTSOCK: `fd` is one of the three streams";
    SockShutdown = 130: WASI_MODULE "sock_shutdown" (fd: i32, how: i32) -> (i32) cost 8 + 0,
        "returns EBADF: no socket is open",
        errors "EBADF; ENOTSOCK: `fd` is one of the three streams";
}

impl HostOperation {
    /// Whether it is about calls (`call` to `serve`).
    #[must_use]
    pub const fn is_about_calls(self) -> bool {
        matches!(self, Self::Call | Self::Accept | Self::Reply | Self::Serve)
    }

    /// Whether it is about leases of lanes.
    #[must_use]
    pub const fn is_about_leases(self) -> bool {
        matches!(self, Self::LeaseRequest | Self::LeaseRevoke | Self::LeaseState)
    }

    /// Whether it is about authority over time (`capability` to `latency_class`, and `priority`).
    #[must_use]
    pub const fn is_about_time(self) -> bool {
        let code = self as u8;
        code >= Self::Capability as u8 && code <= Self::LatencyClass as u8
            || code == Self::Priority as u8
    }
}
