;; Takes numbers from its own inbox until that is closed, and sends the square of each with its own index to the foreman:
;; index * 1000 + square. Exits with the number of jobs it did. It needs no argument to know which worker it is.
(module
  (import "wavelock" "session_index" (func $session_index (result i32)))
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (memory 1)
  (data (i32.const 0) "inout")
  (func (export "main") (result i32)
    (local $in i32) (local $out i32) (local $done i32)
    (local.set $in (call $port (i32.const 0) (i32.const 2)))
    (local.set $out (call $port (i32.const 2) (i32.const 3)))
    (loop $next
      (if (i32.eqz (call $recv (local.get $in) (i32.const 8)))
        (then
          (drop (call $send (local.get $out)
            (i64.add
              (i64.mul (i64.extend_i32_u (call $session_index)) (i64.const 1000))
              (i64.mul (i64.load (i32.const 8)) (i64.load (i32.const 8))))))
          (local.set $done (i32.add (local.get $done) (i32.const 1)))
          (br $next))))
    (local.get $done)))
