;; Dining philosophers. Each fork is a channel of capacity 1 that holds one message while the fork is on the table: `recv` takes
;; it, `send` puts it back. `args = [name, manner]`: with the manner `ordered` each philosopher takes the lower-numbered fork first and
;; all five finish three meals; with any other manner each takes the left fork first, and Wavelock detects the deadlock.
(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "join" (func $join (param i64 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (import "wavelock" "frame" (func $frame (result i64)))
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))

  ;; Memory: argument counts at 0, argument pointers at 16, argument text at 64, the five names at 1024 (8 bytes each, padded), pieces of
  ;; sentences at 1088, whether the manner is `ordered` at 1184, the five forks as channel handles at 1192. From 2048, 128 bytes a philosopher: 8 to receive a fork, 8 for its reference, then the line being written.
  (memory (export "memory") 1)
  (data (i32.const 1024) "Aristo\00\00Boethius" "Cicero\00\00Diogenes" "Epicurus")
  (data (i32.const 1088) "frame ")
  (data (i32.const 1096) ": ")
  (data (i32.const 1104) " takes a fork\n")
  (data (i32.const 1120) " eats meal ")
  (data (i32.const 1136) "all five have eaten and left\n")

  (table funcref (elem $philosopher))

  ;; The channel of a fork.
  (func $fork (param $number i32) (result i32)
    (i32.load offset=1192 (i32.shl (local.get $number) (i32.const 2))))

  ;; Appends $length bytes at $from to the line that ends at $at and returns the new end.
  (func $text (param $at i32) (param $from i32) (param $length i32) (result i32)
    (memory.copy (local.get $at) (local.get $from) (local.get $length))
    (i32.add (local.get $at) (local.get $length)))

  ;; Appends a number below 1,000 and returns the new end.
  (func $number (param $at i32) (param $value i32) (result i32)
    (if (i32.ge_u (local.get $value) (i32.const 10))
      (then (local.set $at (call $number (local.get $at) (i32.div_u (local.get $value) (i32.const 10))))))
    (i32.store8 (local.get $at) (i32.add (i32.const 48) (i32.rem_u (local.get $value) (i32.const 10))))
    (i32.add (local.get $at) (i32.const 1)))

  ;; Appends "frame N: NAME" and returns the new end.
  (func $opening (param $at i32) (param $who i32) (result i32)
    (local $name i32)
    (local.set $at (call $text (local.get $at) (i32.const 1088) (i32.const 6)))
    (local.set $at (call $number (local.get $at) (i32.wrap_i64 (call $frame))))
    (local.set $at (call $text (local.get $at) (i32.const 1096) (i32.const 2)))
    (local.set $name (i32.add (i32.const 1024) (i32.shl (local.get $who) (i32.const 3))))
    (call $text (local.get $at) (local.get $name)
      ;; Two of the names have six letters, the others eight.
      (select (i32.const 6) (i32.const 8) (i32.eqz (i32.load8_u offset=6 (local.get $name))))))

  (func $take (param $who i32) (param $which i32)
    (local $base i32) (local $at i32)
    (local.set $base (i32.add (i32.const 2048) (i32.shl (local.get $who) (i32.const 7))))
    (drop (call $recv (call $fork (local.get $which)) (local.get $base)))
    (local.set $at (call $opening (i32.add (local.get $base) (i32.const 16)) (local.get $who)))
    (local.set $at (call $text (local.get $at) (i32.const 1104) (i32.const 14)))
    (drop (call $output (i32.add (local.get $base) (i32.const 16))
      (i32.sub (local.get $at) (i32.add (local.get $base) (i32.const 16))))))

  (func $eat (param $who i32) (param $meal i32)
    (local $line i32) (local $at i32)
    (local.set $line (i32.add (i32.const 2064) (i32.shl (local.get $who) (i32.const 7))))
    (local.set $at (call $opening (local.get $line) (local.get $who)))
    (local.set $at (call $text (local.get $at) (i32.const 1120) (i32.const 11)))
    (local.set $at (call $number (local.get $at) (local.get $meal)))
    (i32.store8 (local.get $at) (i32.const 10))
    (drop (call $output (local.get $line) (i32.sub (i32.add (local.get $at) (i32.const 1)) (local.get $line))))
    (call $sleep (i64.const 2)))

  (func $philosopher (param $place i64) (result i64)
    (local $who i32) (local $first i32) (local $second i32) (local $meal i32)
    (local.set $who (i32.wrap_i64 (local.get $place)))
    (local.set $first (local.get $who))
    (local.set $second (i32.rem_u (i32.add (local.get $who) (i32.const 1)) (i32.const 5)))
    ;; This avoids the deadlock: the last philosopher's forks are 4 and 0, and it takes 0 first.
    (if (i32.and (i32.load (i32.const 1184)) (i32.gt_u (local.get $first) (local.get $second)))
      (then
        (local.set $first (local.get $second))
        (local.set $second (local.get $who))))
    (loop $meals
      (local.set $meal (i32.add (local.get $meal) (i32.const 1)))
      (call $take (local.get $who) (local.get $first))
      (call $sleep (i64.const 1)) ;; thinks while holding one fork
      (call $take (local.get $who) (local.get $second))
      (call $eat (local.get $who) (local.get $meal))
      (drop (call $send (call $fork (local.get $second)) (i64.const 1)))
      (drop (call $send (call $fork (local.get $first)) (i64.const 1)))
      (br_if $meals (i32.lt_u (local.get $meal) (i32.const 3))))
    (i64.extend_i32_u (local.get $meal)))

  (func (export "_start")
    (local $who i32) (local $at i32)
    ;; The manner is recognised by its first letter.
    (drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
    (if (i32.gt_u (i32.load (i32.const 0)) (i32.const 1))
      (then
        (drop (call $args_get (i32.const 16) (i32.const 64)))
        (i32.store (i32.const 1184) (i32.eq (i32.load8_u (i32.load (i32.const 20))) (i32.const 0x6f))))) ;; 'o'
    ;; Five forks on the table, then five philosophers.
    (local.set $at (i32.const 1192))
    (loop $lay
      (i32.store (local.get $at) (call $channel (i32.const 1)))
      (drop (call $send (i32.load (local.get $at)) (i64.const 1)))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $lay (i32.lt_u (local.get $at) (i32.const 1212))))
    (local.set $at (i32.const 2056))
    (loop $seat
      (i64.store (local.get $at) (call $spawn (i32.const 0) (i64.extend_i32_u (local.get $who))))
      (local.set $at (i32.add (local.get $at) (i32.const 128)))
      (local.set $who (i32.add (local.get $who) (i32.const 1)))
      (br_if $seat (i32.lt_u (local.get $who) (i32.const 5))))
    (local.set $at (i32.const 2056))
    (loop $wait
      (drop (call $join (i64.load (local.get $at)) (i32.const -1)))
      (local.set $at (i32.add (local.get $at) (i32.const 128)))
      (br_if $wait (i32.lt_u (local.get $at) (i32.const 2696))))
    (drop (call $output (i32.const 1136) (i32.const 29)))))
