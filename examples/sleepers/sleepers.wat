;; A million sleepers. The first coroutine spawns them; each sleeps 1 to 1,000 frames, a number from its own random stream, and then
;; increments the count of awake coroutines. A reporter prints the count every hundred frames. `args = [name, sleepers]`, a million by default.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "detach" (func $detach (param i64) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (import "wavelock" "frame" (func $frame (result i64)))
  (import "wavelock" "random" (func $random (result i64)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))

  ;; Memory: argument counts at 0, argument pointers at 16, argument text at 64, pieces of the sentence at 256, the line at 512.
  (memory (export "memory") 1)
  (data (i32.const 256) "frame ")
  (data (i32.const 264) ": ")
  (data (i32.const 272) " awake\n")
  (table funcref (elem $sleeper))
  (global $awake (mut i64) (i64.const 0))

  (func $sleeper (param i64)
    (call $sleep (i64.add (i64.rem_u (call $random) (i64.const 1000)) (i64.const 1)))
    (global.set $awake (i64.add (global.get $awake) (i64.const 1))))

  (func $text (param $at i32) (param $from i32) (param $length i32) (result i32)
    (memory.copy (local.get $at) (local.get $from) (local.get $length))
    (i32.add (local.get $at) (local.get $length)))

  (func $number (param $at i32) (param $value i64) (result i32)
    (if (i64.ge_u (local.get $value) (i64.const 10))
      (then (local.set $at (call $number (local.get $at) (i64.div_u (local.get $value) (i64.const 10))))))
    (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $value) (i64.const 10)))))
    (i32.add (local.get $at) (i32.const 1)))

  (func $report
    (local $at i32)
    (local.set $at (call $text (i32.const 512) (i32.const 256) (i32.const 6)))
    (local.set $at (call $number (local.get $at) (call $frame)))
    (local.set $at (call $text (local.get $at) (i32.const 264) (i32.const 2)))
    (local.set $at (call $number (local.get $at) (global.get $awake)))
    (local.set $at (call $text (local.get $at) (i32.const 272) (i32.const 7)))
    (drop (call $output (i32.const 512) (i32.sub (local.get $at) (i32.const 512)))))

  (func $count (result i64)
    (local $at i32) (local $value i32)
    (drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
    (if (i32.lt_u (i32.load (i32.const 0)) (i32.const 2)) (then (return (i64.const 1000000))))
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
    (local $count i64) (local $spawned i64) (local $reference i64)
    (local.set $count (call $count))
    (loop $spawning
      (local.set $reference (call $spawn (i32.const 0) (local.get $spawned)))
      (if (i64.lt_s (local.get $reference) (i64.const 0)) (then (unreachable)))
      (drop (call $detach (local.get $reference)))
      (local.set $spawned (i64.add (local.get $spawned) (i64.const 1)))
      (br_if $spawning (i64.lt_u (local.get $spawned) (local.get $count))))
    (loop $watching
      (call $sleep (i64.const 100))
      (call $report)
      (br_if $watching (i64.lt_u (global.get $awake) (local.get $count))))))
