;; A chat room: reads lines from its standard input, numbers them and writes them back for everyone. `/roll` throws a die.
(module
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "random" (func $random (result i64)))
  ;; 0: the vector of `fd_read`; 8: bytes read; 16: texts; 100: digits end here; 128: the line; 4096: what was read.
  (memory 1)
  (data (i32.const 0) "\00\10\00\00\00\10\00\00")
  (data (i32.const 16) "/roll" "the die shows " ": " "\n")
  (global $length (mut i32) (i32.const 0))
  (global $lines (mut i32) (i32.const 0))

  ;; Writes a number in decimal.
  (func $number (param $number i32) (local $at i32)
    (local.set $at (i32.const 100))
    (loop $digit
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at)
        (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10))))
      (br_if $digit (local.tee $number (i32.div_u (local.get $number) (i32.const 10)))))
    (drop (call $output (local.get $at) (i32.sub (i32.const 100) (local.get $at)))))

  ;; Whether the line is `/roll`.
  (func $rolls (result i32)
    (i32.and (i32.eq (global.get $length) (i32.const 5))
      (i32.and (i32.eq (i32.load (i32.const 128)) (i32.load (i32.const 16)))
        (i32.eq (i32.load8_u (i32.const 132)) (i32.load8_u (i32.const 20))))))

  ;; The line is complete.
  (func $line
    (global.set $lines (i32.add (global.get $lines) (i32.const 1)))
    (call $number (global.get $lines))
    (drop (call $output (i32.const 35) (i32.const 2)))
    (if (call $rolls)
      (then
        (drop (call $output (i32.const 21) (i32.const 14)))
        (call $number (i32.add (i32.const 1) (i32.wrap_i64 (i64.rem_u (call $random) (i64.const 6))))))
      (else (drop (call $output (i32.const 128) (global.get $length)))))
    (drop (call $output (i32.const 37) (i32.const 1)))
    (global.set $length (i32.const 0)))

  (func (export "_start") (local $at i32) (local $end i32) (local $byte i32)
    (block $closed
      (loop $more
        (br_if $closed (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
        (local.set $at (i32.const 4096))
        (local.set $end (i32.add (local.get $at) (i32.load (i32.const 8))))
        ;; No bytes: the input has ended.
        (br_if $closed (i32.eq (local.get $at) (local.get $end)))
        (loop $byte
          (local.set $byte (i32.load8_u (local.get $at)))
          (if (i32.eq (local.get $byte) (i32.const 10))
            (then (call $line))
            ;; What does not fit into a line is left out.
            (else (if (i32.lt_u (global.get $length) (i32.const 1024))
              (then
                (i32.store8 (i32.add (i32.const 128) (global.get $length)) (local.get $byte))
                (global.set $length (i32.add (global.get $length) (i32.const 1)))))))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br_if $byte (i32.lt_u (local.get $at) (local.get $end))))
        (br $more)))))
