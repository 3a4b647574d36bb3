;; A hostile tenant: it spawns ten coroutines, and all of them only burn cycles.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (table 1 funcref)
  (elem (i32.const 0) $burn)
  (func $burn (param $cycles i64) (result i64)
    (loop $more
      (local.set $cycles (i64.sub (local.get $cycles) (i64.const 1)))
      (br_if $more (i64.gt_s (local.get $cycles) (i64.const 0))))
    (i64.const 0))
  (func (export "_start")
    (local $i i32)
    (loop $next
      (drop (call $spawn (i32.const 0) (i64.const 30000)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $next (i32.lt_s (local.get $i) (i32.const 10))))
    (drop (call $burn (i64.const 30000)))))
