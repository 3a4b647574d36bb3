;; 64 coroutines at a time, each of which works for 1,000 cycles, spawns a successor and ends: the lane always has newcomers.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "detach" (func $detach (param i64) (result i32)))
  (table funcref (elem $next))
  (func $next (param i64) (local $left i32)
    (local.set $left (i32.const 200))
    (loop $work
      (br_if $work (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (drop (call $detach (call $spawn (i32.const 0) (i64.const 0)))))
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const 64))
    (loop $spawn
      (drop (call $detach (call $spawn (i32.const 0) (i64.const 0))))
      (br_if $spawn (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))
