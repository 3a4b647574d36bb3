;; The honest session: one coroutine that always has work, and looks into its inbox, if it has one, every 2,000 cycles or so.
(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "try_recv" (func $try_recv (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "inbox")
  (func (export "_start") (local $inbox i32) (local $left i32)
    (local.set $inbox (call $port (i32.const 0) (i32.const 5)))
    (loop $forever
      (local.set $left (i32.const 400))
      (loop $work
        (br_if $work (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (drop (call $try_recv (local.get $inbox) (i32.const 16)))
      (br $forever))))
