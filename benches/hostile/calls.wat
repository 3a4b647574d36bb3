;; Two coroutines that send each other one number after the other: each message is a wake and a switch.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (table funcref (elem $pong))
  (global $ping (mut i32) (i32.const 0))
  (global $answer (mut i32) (i32.const 0))
  (func $pong (param i64)
    (loop $again
      (drop (call $recv (global.get $ping) (i32.const 0)))
      (drop (call $send (global.get $answer) (i64.const 0)))
      (br $again)))
  (func (export "_start")
    (global.set $ping (call $channel (i32.const 1)))
    (global.set $answer (call $channel (i32.const 1)))
    (drop (call $spawn (i32.const 0) (i64.const 0)))
    (loop $again
      (drop (call $send (global.get $ping) (i64.const 0)))
      (drop (call $recv (global.get $answer) (i32.const 8)))
      (br $again))))
