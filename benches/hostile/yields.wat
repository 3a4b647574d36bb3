;; A storm of yields: 99 coroutines that do nothing else.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "yield" (func $yield))
  (table funcref (elem $storm))
  (func $storm (param i64) (loop $again (call $yield) (br $again)))
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const 98))
    (loop $spawn
      (drop (call $spawn (i32.const 0) (i64.const 0)))
      (br_if $spawn (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (call $storm (i64.const 0))))
