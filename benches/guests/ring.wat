;; Ring: `args = [name, coroutines, hops]`. A token travels around a ring of coroutines, each with a channel of capacity 1, for `hops`
;; hops; then a second round ends every coroutine. The last to end prints the number of hops of the token.
(module
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  ;; Page 0: argument counts at 0, argument pointers at 16, argument text at 256, the printed number below 1024.
  ;; From 65536: 16 bytes a member: its channel's handle, and where it receives.
  (memory (export "memory") 17)
  (global $live (mut i64) (i64.const 0))
  (global $total (mut i64) (i64.const 0))
  (global $end (mut i64) (i64.const 0))
  (table funcref (elem $member))

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

  (func $member (param $place i64)
    (local $at i32) (local $next i32) (local $token i64) (local $hops i64)
    (local.set $at (i32.wrap_i64 (local.get $place)))
    (local.set $next (i32.add (local.get $at) (i32.const 16)))
    (if (i32.eq (local.get $next) (i32.wrap_i64 (global.get $end))) (then (local.set $next (i32.const 65536))))
    (loop $again
      (if (call $recv (i32.load (local.get $at)) (i32.add (local.get $at) (i32.const 8))) (then (unreachable)))
      (local.set $token (i64.sub (i64.load offset=8 (local.get $at)) (i64.const 1)))
      (local.set $hops (i64.add (local.get $hops) (i64.extend_i32_u (i64.ge_s (local.get $token) (i64.const 0)))))
      (if (i64.lt_s (local.get $token) (i64.const -1)) (then (local.set $token (i64.const -1))))
      (if (call $send (i32.load (local.get $next)) (local.get $token)) (then (unreachable)))
      (br_if $again (i64.ge_s (local.get $token) (i64.const 0))))
    (call $finish (local.get $hops)))

  (func (export "_start")
    (local $at i32)
    (global.set $live (call $argument (i32.const 1)))
    (global.set $end (i64.add (i64.const 65536) (i64.shl (global.get $live) (i64.const 4))))
    (local.set $at (i32.const 65536))
    (loop $members
      (i32.store (local.get $at) (call $channel (i32.const 1)))
      (if (i32.lt_s (i32.load (local.get $at)) (i32.const 0)) (then (unreachable)))
      (if (i64.lt_s (call $spawn (i32.const 0) (i64.extend_i32_u (local.get $at))) (i64.const 0)) (then (unreachable)))
      (local.set $at (i32.add (local.get $at) (i32.const 16)))
      (br_if $members (i32.lt_u (local.get $at) (i32.wrap_i64 (global.get $end)))))
    (drop (call $send (i32.load (i32.const 65536)) (call $argument (i32.const 2))))))
