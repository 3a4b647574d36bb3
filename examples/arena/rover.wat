;; A bot in the text format: it moves straight on, turns if blocked, and sometimes at random. The direction comes from its own random
;; stream, so another seed gives another game.
(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "recv_bytes" (func $recv_bytes (param i32 i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "random" (func $random (result i64)))

  ;; Port names at 0 and 8, the view at 1024: its cells begin at 1036.
  (memory (export "memory") 1)
  (data (i32.const 0) "view")
  (data (i32.const 8) "move")
  (global $direction (mut i32) (i32.const 1))

  ;; The cell next to the bot in a direction: 0 if it is free.
  (func $ahead (param $direction i32) (result i32)
    (local $head i32) (local $x i32) (local $y i32)
    (local.set $head (i32.add (i32.const 1028) (i32.shl (i32.load8_u (i32.const 1024)) (i32.const 1))))
    (local.set $x (i32.load8_u (local.get $head)))
    (local.set $y (i32.load8_u offset=1 (local.get $head)))
    ;; 0 up, 1 right, 2 down, 3 left: odd ones go sideways.
    (if (i32.and (local.get $direction) (i32.const 1))
      (then (local.set $x (i32.add (local.get $x) (i32.sub (i32.const 2) (local.get $direction)))))
      (else (local.set $y (i32.add (local.get $y) (i32.sub (local.get $direction) (i32.const 1))))))
    (i32.load8_u offset=1036
      (i32.add (i32.mul (local.get $y) (i32.load8_u (i32.const 1025))) (local.get $x))))

  (func $turned (param $by i32) (result i32)
    (i32.and (i32.add (global.get $direction) (local.get $by)) (i32.const 3)))

  (func $choose
    (local $chance i32) (local $side i32)
    (local.set $chance (i32.wrap_i64 (call $random)))
    ;; 1 is a turn to the right, 3 one to the left.
    (local.set $side (i32.add (i32.and (local.get $chance) (i32.const 2)) (i32.const 1)))
    ;; With probability 1/16, or if blocked, try one side, then the other, else straight on.
    (if (i32.or
          (i32.eqz (i32.and (i32.shr_u (local.get $chance) (i32.const 8)) (i32.const 15)))
          (i32.ne (call $ahead (global.get $direction)) (i32.const 0)))
      (then
        (if (i32.eqz (call $ahead (call $turned (local.get $side))))
          (then (global.set $direction (call $turned (local.get $side))))
          (else
            (if (i32.eqz (call $ahead (call $turned (i32.sub (i32.const 4) (local.get $side)))))
              (then (global.set $direction (call $turned (i32.sub (i32.const 4) (local.get $side)))))))))))

  (func (export "_start")
    (local $views i32) (local $moves i32)
    (local.set $views (call $port (i32.const 0) (i32.const 4)))
    (local.set $moves (call $port (i32.const 8) (i32.const 4)))
    (block $closed
      (loop $turns
        (br_if $closed (i32.le_s (call $recv_bytes (local.get $views) (i32.const 1024) (i32.const 8192)) (i32.const 0)))
        (call $choose)
        (drop (call $send (local.get $moves)
          (i64.extend_i32_u (i32.or (i32.shl (i32.load8_u (i32.const 1027)) (i32.const 2)) (global.get $direction)))))
        (br $turns)))))
