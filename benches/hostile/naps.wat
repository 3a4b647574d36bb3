;; 200 coroutines that sleep to the next frame just before their quantum of 2,000 cycles ends.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (table funcref (elem $nap))
  (func $nap (param i64) (local $left i32)
    (loop $again
      (local.set $left (i32.const 360))
      (loop $work
        (br_if $work (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (call $sleep (i64.const 1))
      (br $again)))
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const 199))
    (loop $spawn
      (drop (call $spawn (i32.const 0) (i64.const 0)))
      (br_if $spawn (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
    (call $nap (i64.const 0))))
