;; A game of two players: an input event is the player's number and a step; the guest adds the step
;; to the player's position, mixes both into a checksum, and writes positions and checksum.
(module
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (func $position (param $player i32) (result i32)
    (i32.add (i32.const 64) (i32.shl (i32.and (local.get $player) (i32.const 1)) (i32.const 2))))
  (func (export "_start") (local $at i32)
    (loop $forever
      (loop $events
        (if (i32.eq (call $input (i32.const 0) (i32.const 64)) (i32.const 2))
          (then
            (local.set $at (call $position (i32.load8_u (i32.const 0))))
            (i32.store (local.get $at)
              (i32.add (i32.load (local.get $at)) (i32.load8_s (i32.const 1))))
            (br $events))))
      (i32.store (i32.const 72)
        (i32.add
          (i32.mul (i32.load (i32.const 72)) (i32.const 31))
          (i32.xor (i32.load (i32.const 64)) (i32.rotl (i32.load (i32.const 68)) (i32.const 16)))))
      (drop (call $output (i32.const 64) (i32.const 12)))
      (call $sleep (i64.const 1))
      (br $forever))))
