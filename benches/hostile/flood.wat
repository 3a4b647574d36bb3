;; 32 coroutines that send to the honest session's inbox as fast as it takes messages, and while it is full try again after a yield.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "try_send" (func $try_send (param i32 i64) (result i32)))
  (import "wavelock" "yield" (func $yield))
  (memory (export "memory") 1)
  (data (i32.const 0) "inbox")
  (table funcref (elem $flood))
  (global $inbox (mut i32) (i32.const 0))
  (func $flood (param i64)
    (loop $again
      (br_if $again (i32.eqz (call $try_send (global.get $inbox) (i64.const 0))))
      (call $yield)
      (br $again)))
  (func (export "_start") (local $left i32)
    (global.set $inbox (call $port (i32.const 0) (i32.const 5)))
    (local.set $left (i32.const 31))
    (loop $spawn
      (drop (call $spawn (i32.const 0) (i64.const 0)))
      (br_if $spawn (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (call $flood (i64.const 0))))
