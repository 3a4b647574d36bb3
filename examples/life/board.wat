;; Collects the strips of the automaton, in any order, and prints the board. Each message is a strip's number and its
;; 8 rows of 64 cells. The port `board` is this session's own; it closes when every strip has ended.
(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "recv_bytes" (func $recv_bytes (param i32 i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))

  ;; Memory: the port's name at 0, a message at 1023 (its cells at 1024), the text of 32 lines of 65 bytes at 4096.
  (memory (export "memory") 1)
  (data (i32.const 0) "board")

  (func (export "_start")
    (local $board i32) (local $at i32) (local $cell i32)
    (local.set $board (call $port (i32.const 0) (i32.const 5)))
    (block $closed
      (loop $strips
        (br_if $closed (i32.lt_s (call $recv_bytes (local.get $board) (i32.const 1023) (i32.const 513)) (i32.const 0)))
        (local.set $at (i32.add (i32.const 4096) (i32.mul (i32.load8_u (i32.const 1023)) (i32.const 520))))
        (local.set $cell (i32.const 0))
        (loop $cells
          (i32.store8 (local.get $at)
            (select (i32.const 0x23) (i32.const 0x2e) (i32.load8_u offset=1024 (local.get $cell)))) ;; '#' or '.'
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (local.set $cell (i32.add (local.get $cell) (i32.const 1)))
          (if (i32.eqz (i32.and (local.get $cell) (i32.const 63)))
            (then
              (i32.store8 (local.get $at) (i32.const 10))
              (local.set $at (i32.add (local.get $at) (i32.const 1)))))
          (br_if $cells (i32.lt_u (local.get $cell) (i32.const 512))))
        (br $strips)))
    (drop (call $output (i32.const 4096) (i32.const 2080)))))
