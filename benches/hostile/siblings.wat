;; 99 coroutines that never stop by themselves.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (table funcref (elem $forever))
  (func $forever (param i64) (loop $again (br $again)))
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const 98))
    (loop $spawn
      (drop (call $spawn (i32.const 0) (i64.const 0)))
      (br_if $spawn (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (call $forever (i64.const 0))))
