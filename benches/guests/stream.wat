;; Streaming: `args = [name, messages, capacity]`. One coroutine sends the numbers 1 to `messages` over a channel of that capacity, another
;; receives and adds them up until the channel is closed, and prints the sum.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "close" (func $close (param i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  ;; Page 0: argument counts at 0, argument pointers at 16, argument text at 256, the printed number below 1024.
  (memory (export "memory") 1)
  (table funcref (elem $consumer))

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

  (func $consumer (param $handle i64)
    (local $in i32) (local $sum i64)
    (local.set $in (i32.wrap_i64 (local.get $handle)))
    (block $closed
      (loop $again
        (br_if $closed (i32.lt_s (call $recv (local.get $in) (i32.const 2048)) (i32.const 0)))
        (local.set $sum (i64.add (local.get $sum) (i64.load (i32.const 2048))))
        (br $again)))
    (call $print (local.get $sum)))

  (func (export "_start")
    (local $value i64) (local $last i64) (local $out i32)
    (local.set $out (call $channel (i32.wrap_i64 (call $argument (i32.const 2)))))
    (local.set $last (call $argument (i32.const 1)))
    (if (i64.lt_s (call $spawn (i32.const 0) (i64.extend_i32_u (local.get $out))) (i64.const 0)) (then (unreachable)))
    (loop $again
      (local.set $value (i64.add (local.get $value) (i64.const 1)))
      (if (i32.lt_s (call $send (local.get $out) (local.get $value)) (i32.const 0)) (then (unreachable)))
      (br_if $again (i64.lt_u (local.get $value) (local.get $last))))
    (drop (call $close (local.get $out)))))
