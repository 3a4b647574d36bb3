;; Gives worker i the jobs i + 1 and i + 5, closes the inboxes, adds up the answers, and waits for each worker to end.
;; Outputs one line per worker with its exit code, then the sum of the squares.
(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "close" (func $close (param i32) (result i32)))
  (import "wavelock" "session_wait" (func $session_wait (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (memory 1)
  (data (i32.const 0) "to0results")
  (data (i32.const 32) "worker 0 did 0 jobs\n")
  (data (i32.const 64) "sum of squares 000\n")

  ;; The port to worker $i: the name is "to" and a digit.
  (func $to (param $i i32) (result i32)
    (i32.store8 (i32.const 2) (i32.add (i32.const 48) (local.get $i)))
    (call $port (i32.const 0) (i32.const 3)))

  (func $digit (param $at i32) (param $value i32)
    (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $value) (i32.const 10)))))

  (func (export "_start")
    (local $i i32) (local $left i32) (local $sum i32)
    (loop $workers
      (drop (call $send (call $to (local.get $i)) (i64.extend_i32_u (i32.add (local.get $i) (i32.const 1)))))
      (drop (call $send (call $to (local.get $i)) (i64.extend_i32_u (i32.add (local.get $i) (i32.const 5)))))
      (drop (call $close (call $to (local.get $i))))
      (br_if $workers (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 4))))

    (local.set $left (i32.const 8))
    (loop $answers
      (drop (call $recv (call $port (i32.const 3) (i32.const 7)) (i32.const 128)))
      (local.set $sum (i32.add (local.get $sum) (i32.rem_u (i32.wrap_i64 (i64.load (i32.const 128))) (i32.const 1000))))
      (br_if $answers (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))

    (local.set $i (i32.const 0))
    (loop $ends
      ;; The port is closed; it still names the session.
      (drop (call $session_wait (call $to (local.get $i)) (i32.const 136)))
      (call $digit (i32.const 39) (local.get $i))
      (call $digit (i32.const 45) (i32.wrap_i64 (i64.load (i32.const 136))))
      (drop (call $output (i32.const 32) (i32.const 20)))
      (br_if $ends (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 4))))

    (call $digit (i32.const 79) (i32.div_u (local.get $sum) (i32.const 100)))
    (call $digit (i32.const 80) (i32.div_u (local.get $sum) (i32.const 10)))
    (call $digit (i32.const 81) (local.get $sum))
    (drop (call $output (i32.const 64) (i32.const 19)))))
