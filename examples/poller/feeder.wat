;; Sends 120 numbers, ten in each frame.
(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory (export "memory") 1)
  (data (i32.const 0) "work")
  (func (export "_start")
    (local $work i32) (local $i i64)
    (local.set $work (call $port (i32.const 0) (i32.const 4)))
    (loop $next
      (drop (call $send (local.get $work) (local.get $i)))
      (local.set $i (i64.add (local.get $i) (i64.const 1)))
      (if (i64.eqz (i64.rem_u (local.get $i) (i64.const 10))) (then (call $sleep (i64.const 1))))
      (br_if $next (i64.lt_u (local.get $i) (i64.const 120))))))
