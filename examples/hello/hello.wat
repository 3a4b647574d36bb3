;; The smallest guest: one session, one coroutine, one line of output.
(module
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "Hello from a wavelock guest.\n")
  (func (export "_start")
    (drop (call $output (i32.const 0) (i32.const 29)))))
