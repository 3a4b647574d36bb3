;; Primes by a pipeline of coroutines. A source sends 2, 3, 4, ... up to the limit and closes its channel. The first number that a filter
;; receives is a prime: it prints it, creates a channel and the next filter, and forwards the numbers that its prime does not divide.
;; Closing the first channel ends the pipeline. `args = [name, limit]`, 541 (the 100th prime) by default.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "detach" (func $detach (param i64) (result i32)))
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "close" (func $close (param i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))

  ;; Memory: argument counts at 0, argument pointers at 16, argument text at 64, the printed line below 1024. From 1024, 8 bytes per filter
  ;; to receive into: coroutines of a session share its memory, so each needs its own buffer.
  (memory (export "memory") 1)
  (global $place (mut i64) (i64.const 1024))
  (table funcref (elem $filter))

  ;; Prints a number on a line.
  (func $print (param $value i64)
    (local $at i32)
    (local.set $at (i32.const 1023))
    (i32.store8 (local.get $at) (i32.const 10))
    (loop $digits
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $value) (i64.const 10)))))
      (local.set $value (i64.div_u (local.get $value) (i64.const 10)))
      (br_if $digits (i64.ne (local.get $value) (i64.const 0))))
    (drop (call $output (local.get $at) (i32.sub (i32.const 1024) (local.get $at)))))

  ;; A new channel with a filter at its end.
  (func $extend (result i32)
    (local $handle i32)
    (local.set $handle (call $channel (i32.const 16)))
    (drop (call $detach (call $spawn (i32.const 0) (i64.extend_i32_u (local.get $handle)))))
    (local.get $handle))

  (func $filter (param $source i64)
    (local $in i32) (local $out i32) (local $at i32) (local $prime i64) (local $value i64)
    (local.set $in (i32.wrap_i64 (local.get $source)))
    (local.set $at (i32.wrap_i64 (global.get $place)))
    (global.set $place (i64.add (global.get $place) (i64.const 8)))
    ;; Closed without a number: the previous filter has the last prime.
    (if (call $recv (local.get $in) (local.get $at)) (then (return)))
    (local.set $prime (i64.load (local.get $at)))
    (call $print (local.get $prime))
    (local.set $out (call $extend))
    (block $closed
      (loop $again
        (br_if $closed (call $recv (local.get $in) (local.get $at)))
        (local.set $value (i64.load (local.get $at)))
        (if (i64.ne (i64.rem_u (local.get $value) (local.get $prime)) (i64.const 0))
          (then (drop (call $send (local.get $out) (local.get $value)))))
        (br $again)))
    (drop (call $close (local.get $out))))

  ;; The limit from the arguments, or 541.
  (func $limit (result i64)
    (local $at i32) (local $value i32)
    (drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
    (if (i32.lt_u (i32.load (i32.const 0)) (i32.const 2)) (then (return (i64.const 541))))
    (drop (call $args_get (i32.const 16) (i32.const 64)))
    (local.set $at (i32.load (i32.const 20)))
    (block $end
      (loop $digits
        (br_if $end (i32.eqz (i32.load8_u (local.get $at))))
        (local.set $value
          (i32.add (i32.mul (local.get $value) (i32.const 10)) (i32.sub (i32.load8_u (local.get $at)) (i32.const 48))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $digits)))
    (i64.extend_i32_u (local.get $value)))

  (func (export "_start")
    (local $value i64) (local $last i64) (local $out i32)
    (local.set $last (call $limit))
    (local.set $out (call $extend))
    (local.set $value (i64.const 2))
    (block $done
      (loop $source
        (br_if $done (i64.gt_u (local.get $value) (local.get $last)))
        (drop (call $send (local.get $out) (local.get $value)))
        (local.set $value (i64.add (local.get $value) (i64.const 1)))
        (br $source)))
    (drop (call $close (local.get $out)))))
