;; A template for guests in the text format: every import of module "wavelock" with its type, a memory for pointers, a `_start`, a table of
;; entry functions for coroutines, and a worked example that uses the common imports. Delete what you do not need;
;; `wavelock run template.wat` runs it unchanged.
;;
;; A negative result is an error code: -1 EINVAL, -2 ESTALE, -3 ECLOSED, -4 EAGAIN, -5 EMSGSIZE, -6 ELIMIT, -7 EDENIED, -8 EFAULTED, -9 ECANCELED,
;; -10 EREVOKED.
(module
  ;; Coroutines.
  (import "wavelock" "spawn" (func $spawn (param $entry i32) (param $arg i64) (result i64)))
  (import "wavelock" "spawn_on" (func $spawn_on (param $entry i32) (param $arg i64) (param $lane i32) (result i64)))
  (import "wavelock" "spawn_stack" (func $spawn_stack (param $entry i32) (param $arg i64) (param $top i32) (result i64)))
  (import "wavelock" "detach" (func $detach (param $ref i64) (result i32)))
  (import "wavelock" "yield" (func $yield))
  (import "wavelock" "sleep" (func $sleep (param $frames i64)))
  (import "wavelock" "self" (func $self (result i64)))
  (import "wavelock" "join" (func $join (param $ref i64) (param $ptr i32) (result i32)))
  (import "wavelock" "cancel" (func $cancel (param $ref i64) (result i32)))
  (import "wavelock" "park" (func $park (result i32)))
  (import "wavelock" "unpark" (func $unpark (param $ref i64) (result i32)))
  (import "wavelock" "exit" (func $exit (param $value i64)))
  ;; Channels.
  (import "wavelock" "channel" (func $channel (param $capacity i32) (result i32)))
  (import "wavelock" "port" (func $port (param $ptr i32) (param $len i32) (result i32)))
  (import "wavelock" "send" (func $send (param $ch i32) (param $value i64) (result i32)))
  (import "wavelock" "try_send" (func $try_send (param $ch i32) (param $value i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param $ch i32) (param $ptr i32) (result i32)))
  (import "wavelock" "try_recv" (func $try_recv (param $ch i32) (param $ptr i32) (result i32)))
  (import "wavelock" "send_bytes" (func $send_bytes (param $ch i32) (param $ptr i32) (param $len i32) (result i32)))
  (import "wavelock" "recv_bytes" (func $recv_bytes (param $ch i32) (param $ptr i32) (param $cap i32) (result i32)))
  (import "wavelock" "select" (func $select (param $ptr i32) (param $n i32) (result i32)))
  (import "wavelock" "close" (func $close (param $ch i32) (result i32)))
  ;; This session, and the end of another, to which a port leads.
  (import "wavelock" "session_name" (func $session_name (param $ptr i32) (param $cap i32) (result i32)))
  (import "wavelock" "session_index" (func $session_index (result i32)))
  (import "wavelock" "session_wait" (func $session_wait (param $ch i32) (param $ptr i32) (result i32)))
  ;; Time, lane, random numbers.
  (import "wavelock" "frame" (func $frame (result i64)))
  (import "wavelock" "lane" (func $lane (result i32)))
  (import "wavelock" "cycles" (func $cycles (result i64)))
  (import "wavelock" "remaining" (func $remaining (result i64)))
  (import "wavelock" "random" (func $random (result i64)))
  ;; Input, output, diagnostics.
  (import "wavelock" "input" (func $input (param $ptr i32) (param $cap i32) (result i32)))
  (import "wavelock" "output" (func $output (param $ptr i32) (param $len i32) (result i32)))
  (import "wavelock" "log" (func $log (param $ptr i32) (param $len i32)))
  ;; Calls: a caller that holds a context lends it to the coroutine that accepts the call, until the reply.
  (import "wavelock" "call" (func $call (param $ch i32) (param $ptr i32) (param $value i64) (result i32)))
  (import "wavelock" "accept" (func $accept (param $ch i32) (param $ptr i32) (result i32)))
  (import "wavelock" "reply" (func $reply (param $reply i32) (param $value i64) (result i32)))
  (import "wavelock" "serve" (func $serve (param $ch i32) (param $ptr i32) (param $reply i32) (param $value i64) (result i32)))
  ;; Contexts and policy: parameters are six i64 at $ptr (budget, period, deadline, refills, overrun policy, activation).
  (import "wavelock" "capability" (func $capability (param $ptr i32) (param $len i32) (result i32)))
  (import "wavelock" "context_create" (func $context_create (param $control i32) (param $ptr i32) (result i32)))
  (import "wavelock" "context_configure" (func $context_configure (param $ctx i32) (param $ptr i32) (result i32)))
  (import "wavelock" "context_bind" (func $context_bind (param $ctx i32) (param $ref i64) (result i32)))
  (import "wavelock" "context_unbind" (func $context_unbind (param $ctx i32) (result i32)))
  (import "wavelock" "context_revoke" (func $context_revoke (param $ctx i32) (result i32)))
  (import "wavelock" "context_consumed" (func $context_consumed (param $ctx i32) (result i64)))
  (import "wavelock" "context_notice" (func $context_notice (param $ctx i32) (param $ptr i32) (result i32)))
  (import "wavelock" "context_timeout" (func $context_timeout (param $ctx i32) (param $ch i32) (result i32)))
  (import "wavelock" "context_yield" (func $context_yield (result i32)))
  (import "wavelock" "weight" (func $weight (param $policy i32) (param $ref i64) (param $weight i32) (result i32)))
  (import "wavelock" "latency_class" (func $latency_class (param $policy i32) (param $ref i64) (param $class i32) (result i32)))
  (import "wavelock" "priority" (func $priority (param $policy i32) (param $ref i64) (param $priority i32) (result i32)))
  ;; Leases: a lane for one coroutine alone, with the isolation capability; the state is eight i64 at $ptr.
  (import "wavelock" "lease_request" (func $lease_request (param $isolation i32) (param $ptr i32) (param $len i32) (result i32)))
  (import "wavelock" "lease_revoke" (func $lease_revoke (param $lease i32) (result i32)))
  (import "wavelock" "lease_state" (func $lease_state (param $lease i32) (param $ptr i32) (result i32)))

  ;; The session's coroutines share memory, so each needs its own buffer to receive into. Here: strings at 0, the output line at 128, and from
  ;; 1024 on 8 bytes per child for its result.
  (memory (export "memory") 1)
  (data (i32.const 0) "three children add up to ")
  (data (i32.const 32) "a child did not end well\n")

  ;; The functions that `spawn` can start, by their index in table 0. Type: (i64) -> i64 or (i64) -> ().
  (table funcref (elem $child))

  ;; A coroutine: it yields, sleeps a frame, and returns a result to the coroutine that joins it.
  (func $child (param $arg i64) (result i64)
    (call $yield)
    (call $sleep (i64.const 1))
    (i64.mul (local.get $arg) (local.get $arg)))

  ;; Writes a number and a newline at $at and returns the end.
  (func $number (param $at i32) (param $value i64) (result i32)
    (if (i64.ge_u (local.get $value) (i64.const 10))
      (then (local.set $at (i32.sub (call $number (local.get $at) (i64.div_u (local.get $value) (i64.const 10))) (i32.const 1)))))
    (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $value) (i64.const 10)))))
    (i32.store8 offset=1 (local.get $at) (i32.const 10))
    (i32.add (local.get $at) (i32.const 2)))

  ;; The first coroutine of the session: spawns three children, joins them, and outputs one line.
  (func (export "_start")
    (local $first i64) (local $second i64) (local $third i64) (local $end i32)
    (local.set $first (call $spawn (i32.const 0) (i64.const 3)))
    (local.set $second (call $spawn (i32.const 0) (i64.const 4)))
    (local.set $third (call $spawn (i32.const 0) (i64.const 12)))
    (if (i32.or
          (call $join (local.get $first) (i32.const 1024))
          (i32.or
            (call $join (local.get $second) (i32.const 1032))
            (call $join (local.get $third) (i32.const 1040))))
      (then
        (call $log (i32.const 32) (i32.const 25))
        (return)))
    (memory.copy (i32.const 128) (i32.const 0) (i32.const 25))
    (local.set $end
      (call $number (i32.const 153)
        (i64.add (i64.load (i32.const 1024)) (i64.add (i64.load (i32.const 1032)) (i64.load (i32.const 1040))))))
    (drop (call $output (i32.const 128) (i32.sub (local.get $end) (i32.const 128))))))
