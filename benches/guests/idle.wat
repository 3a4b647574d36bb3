;; Idle coroutines: `args = [name, coroutines]`. All coroutines block on receiving from one channel; one frame after the last has
;; blocked, the channel is closed and they all end. The last to end prints their number. The process's peak RSS is the figure.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "close" (func $close (param i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  ;; Page 0: argument counts at 0, argument pointers at 16, argument text at 256, the printed number below 1024.
  (memory (export "memory") 1)
  (global $live (mut i64) (i64.const 0))
  (global $total (mut i64) (i64.const 0))
  (global $waiting (mut i64) (i64.const 0))
  (table funcref (elem $worker))

  ;; Argument $index of the manifest's `args` as a decimal number; 0 when there is none.
  (func $argument (param $index i32) (result i64)
    (local $at i32) (local $digit i32) (local $value i64)
    (drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
    (if (i32.ge_u (local.get $index) (i32.load (i32.const 0))) (then (return (i64.const 0))))
    (drop (call $args_get (i32.const 16) (i32.const 256)))
    (local.set $at (i32.load (i32.add (i32.const 16) (i32.shl (local.get $index) (i32.const 2)))))
    (block $end
      (loop $digits
        (local.set $digit (i32.sub (i32.load8_u (local.get $at)) (i32.const 48)))
        (br_if $end (i32.gt_u (local.get $digit) (i32.const 9)))
        (local.set $value (i64.add (i64.mul (local.get $value) (i64.const 10)) (i64.extend_i32_u (local.get $digit))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $digits)))
    (local.get $value))

  ;; Writes a number and a newline to the output.
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

  ;; The last worker to end prints the total.
  (func $finish (param $done i64)
    (global.set $total (i64.add (global.get $total) (local.get $done)))
    (global.set $live (i64.sub (global.get $live) (i64.const 1)))
    (if (i64.eqz (global.get $live)) (then (call $print (global.get $total)))))

  (func $worker (param $gate i64)
    (global.set $waiting (i64.add (global.get $waiting) (i64.const 1)))
    (if (i32.ne (call $recv (i32.wrap_i64 (local.get $gate)) (i32.const 2048)) (i32.const -3)) (then (unreachable)))
    (call $finish (i64.const 1)))

  (func (export "_start")
    (local $left i64) (local $gate i32)
    (local.set $gate (call $channel (i32.const 1)))
    (local.set $left (call $argument (i32.const 1)))
    (global.set $live (local.get $left))
    (loop $spawning
      (if (i64.lt_s (call $spawn (i32.const 0) (i64.extend_i32_u (local.get $gate))) (i64.const 0)) (then (unreachable)))
      (local.set $left (i64.sub (local.get $left) (i64.const 1)))
      (br_if $spawning (i64.ne (local.get $left) (i64.const 0))))
    (loop $all
      (call $sleep (i64.const 1))
      (br_if $all (i64.lt_u (global.get $waiting) (global.get $live))))
    (drop (call $close (local.get $gate)))))
