;; Takes numbers from its channel until all feeders are done, and works a little on each.
(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "work")
  (data (i32.const 64) "poller: every entry was taken\n")
  (data (i32.const 96) "poller: entries are missing\n  ")
  (func (export "_start")
    (local $work i32) (local $count i32) (local $i i32)
    (local.set $work (call $port (i32.const 0) (i32.const 4)))
    (block $done
      (loop $next
        (br_if $done (call $recv (local.get $work) (i32.const 16)))
        (local.set $count (i32.add (local.get $count) (i32.const 1)))
        (local.set $i (i32.const 100))
        (loop $more
          (local.set $i (i32.sub (local.get $i) (i32.const 1)))
          (br_if $more (local.get $i)))
        (br $next)))
    (drop (call $output
      (select (i32.const 64) (i32.const 96) (i32.eq (local.get $count) (i32.const 360)))
      (i32.const 30)))))
