/**
 * The guest interface of Wavelock, version 1, for AssemblyScript. One file, no package: copy it beside your program.
 *
 * Every function of import module "wavelock" is declared here with the interface's types and its name in camel case; three names are taken by the
 * language, so `yield` is `yieldNow`, `self` is `own` and `select` is `selectFrom`. Below them are helpers for strings, numbers and coroutines. A
 * negative result is an error code.
 *
 * Compile a program that starts coroutines with `--runtime stub` or `--runtime minimal`: the incremental collector keeps its roots on one stack
 * that coroutines would share. Coroutines share the allocator too, and a policy other than `cooperative` can preempt one inside it: let one coroutine allocate
 * all objects (those of the others before it starts them), as `teller.ts` does, or set `policy = "cooperative"` in the manifest, as `words.toml` does.
 *
 *     asc guest.ts -O --runtime stub --exportTable --use abort=wavelock/abort -o guest.wasm
 *
 * `--exportTable` is needed: without it the optimizer removes the bodies of functions that only `spawn` calls.
 */

// Error codes.
export const EINVAL: i32 = -1; // an argument is outside what the operation accepts
export const ESTALE: i32 = -2; // the reference or handle is no longer valid
export const ECLOSED: i32 = -3; // the channel is closed and, for a receiver, drained
export const EAGAIN: i32 = -4; // it would have to block, and this call never blocks
export const EMSGSIZE: i32 = -5; // the message does not fit the buffer, or is of the other kind; it stays in the channel
export const ELIMIT: i32 = -6; // a limit of the manifest is reached
export const EDENIED: i32 = -7; // the session has no right to do this
export const EFAULTED: i32 = -8; // the coroutine waited for ended with a fault
export const ECANCELED: i32 = -9; // the coroutine waited for was canceled
export const EREVOKED: i32 = -10; // the time lent with a call was revoked

// Coroutines.
@external("wavelock", "spawn") export declare function spawn(entry: i32, arg: i64): i64;
@external("wavelock", "spawn_on") export declare function spawnOn(entry: i32, arg: i64, lane: i32): i64;
@external("wavelock", "spawn_stack") export declare function spawnStack(entry: i32, arg: i64, top: usize): i64;
@external("wavelock", "detach") export declare function detach(ref: i64): i32;
@external("wavelock", "yield") export declare function yieldNow(): void;
@external("wavelock", "sleep") export declare function sleep(frames: i64): void;
@external("wavelock", "self") export declare function own(): i64;
@external("wavelock", "join") export declare function join(ref: i64, ptr: usize): i32;
@external("wavelock", "cancel") export declare function cancel(ref: i64): i32;
@external("wavelock", "park") export declare function park(): i32;
@external("wavelock", "unpark") export declare function unpark(ref: i64): i32;
@external("wavelock", "exit") export declare function exit(value: i64): void;

// Channels.
@external("wavelock", "channel") export declare function channel(capacity: i32): i32;
@external("wavelock", "port") export declare function port(ptr: usize, len: i32): i32;
@external("wavelock", "send") export declare function send(ch: i32, value: i64): i32;
@external("wavelock", "try_send") export declare function trySend(ch: i32, value: i64): i32;
@external("wavelock", "recv") export declare function recv(ch: i32, ptr: usize): i32;
@external("wavelock", "try_recv") export declare function tryRecv(ch: i32, ptr: usize): i32;
@external("wavelock", "send_bytes") export declare function sendBytes(ch: i32, ptr: usize, len: i32): i32;
@external("wavelock", "recv_bytes") export declare function recvBytes(ch: i32, ptr: usize, cap: i32): i32;
@external("wavelock", "select") export declare function selectFrom(ptr: usize, n: i32): i32;
@external("wavelock", "close") export declare function close(ch: i32): i32;

// This session, and the end of another, to which a port leads.
@external("wavelock", "session_name") export declare function sessionName(ptr: usize, cap: i32): i32;
@external("wavelock", "session_index") export declare function sessionIndex(): i32;
@external("wavelock", "session_wait") export declare function sessionWait(ch: i32, ptr: usize): i32;

// Time, lane, random numbers.
@external("wavelock", "frame") export declare function frame(): i64;
@external("wavelock", "lane") export declare function lane(): i32;
@external("wavelock", "cycles") export declare function cycles(): i64;
@external("wavelock", "remaining") export declare function remaining(): i64;
@external("wavelock", "random") export declare function random(): i64;

// Input, output, diagnostics.
@external("wavelock", "input") export declare function input(ptr: usize, cap: i32): i32;
@external("wavelock", "output") export declare function output(ptr: usize, len: i32): i32;
@external("wavelock", "log") export declare function log(ptr: usize, len: i32): void;

// Calls. A caller that holds a context lends it to the coroutine that accepts the call, until the reply. `accept` takes every call; `serve` replies to
// the last one (-1: none) and takes the next that lends a context: the loop of a passive server. Both return a handle for the reply.
@external("wavelock", "call") export declare function call(ch: i32, ptr: usize, value: i64): i32;
@external("wavelock", "accept") export declare function accept(ch: i32, ptr: usize): i32;
@external("wavelock", "reply") export declare function reply(handle: i32, value: i64): i32;
@external("wavelock", "serve") export declare function serve(ch: i32, ptr: usize, handle: i32, value: i64): i32;

// Contexts and policy: the handles come from `capability`, for what the manifest granted.
@external("wavelock", "capability") export declare function capability(ptr: usize, len: i32): i32;
@external("wavelock", "context_create") export declare function contextCreate(control: i32, ptr: usize): i32;
@external("wavelock", "context_configure") export declare function contextConfigure(ctx: i32, ptr: usize): i32;
@external("wavelock", "context_bind") export declare function contextBind(ctx: i32, ref: i64): i32;
@external("wavelock", "context_unbind") export declare function contextUnbind(ctx: i32): i32;
@external("wavelock", "context_revoke") export declare function contextRevoke(ctx: i32): i32;
@external("wavelock", "context_consumed") export declare function contextConsumed(ctx: i32): i64;
@external("wavelock", "context_notice") export declare function contextNotice(ctx: i32, ptr: usize): i32;
@external("wavelock", "context_timeout") export declare function contextTimeout(ctx: i32, ch: i32): i32;
@external("wavelock", "context_yield") export declare function contextYield(): i32;
@external("wavelock", "weight") export declare function weight(policy: i32, ref: i64, weight: i32): i32;
@external("wavelock", "latency_class") export declare function latencyClass(policy: i32, ref: i64, latencyClass: i32): i32;
@external("wavelock", "priority") export declare function priority(policy: i32, ref: i64, priority: i32): i32;

/** The parameters of a context, for `contextCreate` and `contextConfigure`. Times are in cycles. */
export class Context {
  budget: i64;
  period: i64;
  /** The period unless it is set. */
  deadline: i64;
  refills: i64 = 4;
  /** 0 throttle, 1 notify and throttle, 2 demote, 3 notify only, 4 end. */
  overrun: i64 = 0;
  /** 0 sporadic, 1 constant bandwidth. */
  activation: i64 = 0;
  constructor(budget: i64, period: i64) {
    this.budget = budget;
    this.period = period;
    this.deadline = period;
  }
  get at(): usize {
    return changetype<usize>(this) + offsetof<Context>("budget");
  }
}

/**
 * AssemblyScript has no shadow stack under these runtimes. Wavelock looks for a global of this name in a module that spawns, and warns if there is none:
 * a program that spawns avoids the warning with `export { __stack_pointer } from "./wavelock";`.
 */
export let __stack_pointer: i32 = 0;

/** Pass this to `join` to discard the result. */
export const NOWHERE: usize = <usize>-1;

/** Memory for one number, for `recv` and `join`. Coroutines share memory, so each needs its own cell. */
export class Cell {
  value: i64 = 0;
  get at(): usize {
    return changetype<usize>(this) + offsetof<Cell>("value");
  }
}

/** Starts `entry(arg)` as a coroutine. */
export function start(entry: (arg: i64) => i64, arg: i64): i64 {
  return spawn(<i32>entry.index, arg);
}

/** Writes a string to the output. */
export function print(text: string): i32 {
  const bytes = String.UTF8.encode(text);
  return output(changetype<usize>(bytes), bytes.byteLength);
}

/** Writes a string to the log. Like `print`, it adds no newline. */
export function note(text: string): void {
  const bytes = String.UTF8.encode(text);
  log(changetype<usize>(bytes), bytes.byteLength);
}

/** The channel wired to a port by its name. */
export function portNamed(name: string): i32 {
  const bytes = String.UTF8.encode(name);
  return port(changetype<usize>(bytes), bytes.byteLength);
}

/** The handle of what the manifest granted: "control", "policy", or the name of a context. */
export function capabilityNamed(name: string): i32 {
  const bytes = String.UTF8.encode(name);
  return capability(changetype<usize>(bytes), bytes.byteLength);
}

/** Sends a string as a byte message. */
export function sendText(ch: i32, text: string): i32 {
  const bytes = String.UTF8.encode(text);
  return sendBytes(ch, changetype<usize>(bytes), bytes.byteLength);
}

/** Receives a byte message of at most `capacity` bytes as a string; null if the channel is closed or the message is of another kind. */
export function recvText(ch: i32, capacity: i32 = 1024): string | null {
  const bytes = new ArrayBuffer(capacity);
  const length = recvBytes(ch, changetype<usize>(bytes), capacity);
  return length < 0 ? null : String.UTF8.decodeUnsafe(changetype<usize>(bytes), length);
}

/** Called by AssemblyScript when an assertion fails: writes a line to the log, then traps. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  note((file ? file : "?") + ":" + line.toString() + ":" + column.toString() + ": " + (message ? message : "abort") + "\n");
  unreachable();
}

// Leases: a lane for one coroutine alone, for sessions with `[[grant]] of = "isolation"`.
@external("wavelock", "lease_request") export declare function leaseRequest(isolation: i32, ptr: usize, len: i32): i32;
@external("wavelock", "lease_revoke") export declare function leaseRevoke(lease: i32): i32;
/** Writes eight i64: state, reason, session, count, activation, end, cycles of the revocation, noise. */
@external("wavelock", "lease_state") export declare function leaseState(lease: i32, ptr: usize): i32;
