;; Writes every input event back, in the frame it comes in.
(module
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (func (export "_start") (local $length i32)
    (loop $forever
      (local.set $length (call $input (i32.const 0) (i32.const 65536)))
      (if (i32.gt_s (local.get $length) (i32.const 0))
        (then
          (drop (call $output (i32.const 0) (local.get $length)))
          (br $forever)))
      (call $sleep (i64.const 1))
      (br $forever))))
