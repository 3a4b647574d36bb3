/**
 * Calls, a wait with a timeout, and a context that is lent along a call.
 *
 * A clerk accepts calls and replies to each. A `select` on two channels ends by an alarm because nothing else is sent. Then the session creates
 * a context with the authority that the manifest granted, binds it to itself, and calls a vault without a context: the call lends it one.
 */
import {
  accept, call, capabilityNamed, Cell, channel, close, Context, contextBind, contextConsumed, contextCreate, contextRevoke, frame, join, own, print, recv,
  reply, selectFrom, send, serve, sleep, start,
} from "./wavelock";
export { __stack_pointer } from "./wavelock";

// One cell per coroutine: memory is shared, and a coroutine can be preempted inside the allocator, so only the first one allocates.
const atClerk = new Cell();
const atVault = new Cell();
const answer = new Cell();

const counter = channel(4);
const locked = channel(1);
const silent = channel(1);
const alarm = channel(1);

/** Replies with the square of each number until its channel is closed. Returns the number of replies. */
function clerk(_: i64): i64 {
  let answered: i64 = 0;
  for (let handle = accept(counter, atClerk.at); handle >= 0; handle = accept(counter, atClerk.at)) {
    reply(handle, atClerk.value * atClerk.value);
    answered++;
  }
  return answered;
}

/** A passive server: it runs only on the contexts that its callers lend. */
function vault(_: i64): i64 {
  let answered: i64 = 0, found: i64 = 0;
  for (let handle = serve(locked, atVault.at, -1, 0); handle >= 0; handle = serve(locked, atVault.at, handle, found)) {
    found = atVault.value + 1;
    answered++;
  }
  return answered;
}

function ring(frames: i64): i64 {
  sleep(frames);
  send(alarm, 0);
  return 0;
}

function ask(who: string, at: i32, question: i64): void {
  const code = call(at, answer.at, question);
  print(who + " asked " + question.toString() + ": " + (code < 0 ? "code " + code.toString() : answer.value.toString()) + "\n");
}

export function _start(): void {
  const first = start(clerk, 0);
  ask("clerk", counter, 7);
  ask("clerk", counter, 12);

  start(ring, 3);
  const either = StaticArray.fromArray<i32>([silent, alarm]);
  const which = selectFrom(changetype<usize>(either), either.length);
  print((which == 1 ? "nothing came until frame " : "something came in frame ") + frame().toString() + "\n");
  recv(alarm, answer.at);

  const second = start(vault, 0);
  ask("vault without time", locked, 41);
  const context = contextCreate(capabilityNamed("control"), new Context(50_000, 1_000_000).at);
  contextBind(context, own());
  ask("vault with time", locked, 41);
  print(contextConsumed(context) > 0 ? "the context paid\n" : "nothing was paid\n");
  contextRevoke(context);

  close(counter);
  close(locked);
  join(first, answer.at);
  print("clerk answered " + answer.value.toString());
  join(second, answer.at);
  print(", vault " + answer.value.toString() + "\n");
}
