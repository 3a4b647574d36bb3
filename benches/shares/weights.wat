;; Ten coroutines that change their own weights and classes all the time, with the policy capability.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "self" (func $self (result i64)))
  (import "wavelock" "capability" (func $capability (param i32 i32) (result i32)))
  (import "wavelock" "weight" (func $weight (param i32 i64 i32) (result i32)))
  (import "wavelock" "latency_class" (func $class (param i32 i64 i32) (result i32)))
  (memory 1)
  (data (i32.const 0) "policy")
  (table funcref (elem $change))
  (func $change (param i64) (local $policy i32) (local $turn i32) (local $left i32)
    (local.set $policy (call $capability (i32.const 0) (i32.const 6)))
    (loop $forever
      (drop (call $weight (local.get $policy) (call $self)
        (select (i32.const 65535) (i32.const 1) (i32.and (local.get $turn) (i32.const 1)))))
      (drop (call $class (local.get $policy) (call $self)
        (i32.rem_u (local.tee $turn (i32.add (local.get $turn) (i32.const 1))) (i32.const 5))))
      (local.set $left (i32.const 200))
      (loop $work
        (br_if $work (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (br $forever)))
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const 9))
    (loop $spawn
      (drop (call $spawn (i32.const 0) (i64.const 0)))
      (br_if $spawn (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (call $change (i64.const 0))))
