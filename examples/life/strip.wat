;; One strip of a cellular automaton (Conway's Life): 64 columns by 8 rows of a board that wraps around on all sides. Each generation the
;; strip sends its first row to the strip above and its last row to the strip below, receives theirs, and computes the next generation.
;; After the last one it sends its rows to the board. `args = [name, strip, generations]`.
;;
;; Ports: `above` and `below` lead to the neighbours, `from_above` and `from_below` are its own, `board` leads to the printer.
(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "send_bytes" (func $send_bytes (param i32 i32 i32) (result i32)))
  (import "wavelock" "recv_bytes" (func $recv_bytes (param i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))

  ;; Memory: argument counts at 0, argument pointers at 16, argument text at 64, port names at 256, first living cells at 320.
  ;; Two buffers of 10 rows of 64 cells (a neighbour's row, 8 own, a neighbour's row), a byte a cell, at 1024 and 2048. The message to the
  ;; board begins one byte before its buffer's own rows, with the strip's number.
  (memory (export "memory") 1)
  (data (i32.const 256) "above") (data (i32.const 264) "below") (data (i32.const 272) "board")
  (data (i32.const 280) "from_above") (data (i32.const 292) "from_below")
  ;; Living cells at the start, as (strip, row, column), ended by 255.
  (data (i32.const 320)
    "\00\01\02" "\00\02\03" "\00\03\01" "\00\03\02" "\00\03\03"  ;; a glider
    "\01\04\20" "\01\04\21" "\01\05\1f" "\01\05\20" "\01\06\20"  ;; the R pentomino
    "\02\04\0a" "\02\04\0b" "\02\04\0c"                          ;; a blinker
    "\03\02\30" "\03\02\33" "\03\03\2f" "\03\04\2f" "\03\04\33" "\03\05\2f" "\03\05\30" "\03\05\31" "\03\05\32" ;; a spaceship
    "\ff")

  (global $above (mut i32) (i32.const 0))
  (global $below (mut i32) (i32.const 0))
  (global $board (mut i32) (i32.const 0))
  (global $from_above (mut i32) (i32.const 0))
  (global $from_below (mut i32) (i32.const 0))

  (func $argument (param $index i32) (result i32)
    (local $at i32) (local $value i32)
    (drop (call $args_sizes_get (i32.const 0) (i32.const 4)))
    (drop (call $args_get (i32.const 16) (i32.const 64)))
    (local.set $at (i32.load (i32.add (i32.const 16) (i32.shl (local.get $index) (i32.const 2)))))
    (block $end
      (loop $digits
        (br_if $end (i32.eqz (i32.load8_u (local.get $at))))
        (local.set $value
          (i32.add (i32.mul (local.get $value) (i32.const 10)) (i32.sub (i32.load8_u (local.get $at)) (i32.const 48))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br $digits)))
    (local.get $value))

  ;; Number of live cells among the three of one row around column $x, the middle one included.
  (func $three (param $row i32) (param $x i32) (result i32)
    (i32.add
      (i32.load8_u (i32.add (local.get $row) (i32.and (i32.sub (local.get $x) (i32.const 1)) (i32.const 63))))
      (i32.add
        (i32.load8_u (i32.add (local.get $row) (local.get $x)))
        (i32.load8_u (i32.add (local.get $row) (i32.and (i32.add (local.get $x) (i32.const 1)) (i32.const 63)))))))

  ;; The next generation of the buffer at $old, into the one at $new.
  (func $generation (param $old i32) (param $new i32)
    (local $row i32) (local $end i32) (local $x i32) (local $sum i32)
    (local.set $row (i32.add (local.get $old) (i32.const 64)))
    (local.set $end (i32.add (local.get $old) (i32.const 576)))
    (loop $rows
      (local.set $x (i32.const 0))
      (loop $cells
        ;; Of nine cells: with 3 live ones the cell is born or survives, with 4 it keeps its state.
        (local.set $sum
          (i32.add
            (call $three (i32.sub (local.get $row) (i32.const 64)) (local.get $x))
            (i32.add
              (call $three (local.get $row) (local.get $x))
              (call $three (i32.add (local.get $row) (i32.const 64)) (local.get $x)))))
        (i32.store8
          (i32.add (i32.sub (i32.add (local.get $new) (local.get $row)) (local.get $old)) (local.get $x))
          (i32.or
            (i32.eq (local.get $sum) (i32.const 3))
            (i32.and
              (i32.eq (local.get $sum) (i32.const 4))
              (i32.load8_u (i32.add (local.get $row) (local.get $x))))))
        (local.set $x (i32.add (local.get $x) (i32.const 1)))
        (br_if $cells (i32.lt_u (local.get $x) (i32.const 64))))
      (local.set $row (i32.add (local.get $row) (i32.const 64)))
      (br_if $rows (i32.lt_u (local.get $row) (local.get $end)))))

  ;; Faults on an error code: this program expects none.
  (func $expect (param $code i32)
    (if (i32.lt_s (local.get $code) (i32.const 0)) (then (unreachable))))

  (func (export "_start")
    (local $strip i32) (local $left i32) (local $now i32) (local $next i32) (local $at i32)
    (global.set $above (call $port (i32.const 256) (i32.const 5)))
    (global.set $below (call $port (i32.const 264) (i32.const 5)))
    (global.set $board (call $port (i32.const 272) (i32.const 5)))
    (global.set $from_above (call $port (i32.const 280) (i32.const 10)))
    (global.set $from_below (call $port (i32.const 292) (i32.const 10)))
    (local.set $strip (call $argument (i32.const 1)))
    (local.set $left (call $argument (i32.const 2)))
    (local.set $now (i32.const 1024))
    (local.set $next (i32.const 2048))
    (local.set $at (i32.const 320))
    (block $sown
      (loop $cells
        (br_if $sown (i32.eq (i32.load8_u (local.get $at)) (i32.const 255)))
        (if (i32.eq (i32.load8_u (local.get $at)) (local.get $strip))
          (then
            (i32.store8 offset=1088
              (i32.add
                (i32.shl (i32.load8_u offset=1 (local.get $at)) (i32.const 6))
                (i32.load8_u offset=2 (local.get $at)))
              (i32.const 1))))
        (local.set $at (i32.add (local.get $at) (i32.const 3)))
        (br $cells)))
    (block $done
      (loop $generations
        (br_if $done (i32.eqz (local.get $left)))
        (call $expect (call $send_bytes (global.get $above) (i32.add (local.get $now) (i32.const 64)) (i32.const 64)))
        (call $expect (call $send_bytes (global.get $below) (i32.add (local.get $now) (i32.const 512)) (i32.const 64)))
        (call $expect (call $recv_bytes (global.get $from_above) (local.get $now) (i32.const 64)))
        (call $expect (call $recv_bytes (global.get $from_below) (i32.add (local.get $now) (i32.const 576)) (i32.const 64)))
        (call $generation (local.get $now) (local.get $next))
        (local.set $at (local.get $now))
        (local.set $now (local.get $next))
        (local.set $next (local.get $at))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br $generations)))
    (local.set $at (i32.add (local.get $now) (i32.const 63)))
    (i32.store8 (local.get $at) (local.get $strip))
    (call $expect (call $send_bytes (global.get $board) (local.get $at) (i32.const 513)))))
