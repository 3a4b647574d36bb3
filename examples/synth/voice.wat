;; One voice of a synth. It renders a buffer of sixteen samples per refill of its context, as sixteen hexadecimal digits of a wave, and gives
;; up the rest of the refill. Its context comes from the manifest: the voice requests none itself.
(module
  (import "wavelock" "context_yield" (func $context_yield (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "lane" (func $lane (result i32)))
  (import "wavelock" "random" (func $random (result i64)))
  (memory (export "memory") 1)
  (data (i32.const 64) "0123456789abcdef")

  ;; A triangle wave folded a few times: cheap steps, many of them per sample, like a real oscillator.
  (func $sample (param $phase i32) (result i32)
    (local $rounds i32) (local $value i32)
    (local.set $rounds (i32.const 25))
    (local.set $value (local.get $phase))
    (loop $fold
      (local.set $value (i32.and (i32.const 1023) (i32.add (i32.mul (local.get $value) (i32.const 5)) (i32.const 3))))
      (local.set $value
        (select (i32.sub (i32.const 1023) (local.get $value)) (local.get $value) (i32.gt_u (local.get $value) (i32.const 511))))
      (local.set $rounds (i32.sub (local.get $rounds) (i32.const 1)))
      (br_if $fold (local.get $rounds)))
    (i32.shr_u (local.get $value) (i32.const 5)))

  (func $buffer (param $phase i32)
    (local $at i32)
    (loop $next
      (i32.store8 (local.get $at) (i32.load8_u (i32.add (i32.const 64)
        (i32.and (i32.const 15) (call $sample (i32.add (local.get $phase) (i32.mul (local.get $at) (i32.const 17))))))))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 16))))
    (i32.store8 (i32.const 16) (i32.const 10))
    (drop (call $output (i32.const 0) (i32.const 17))))

  (func (export "_start")
    (local $buffer i32) (local $phase i32)
    (local.set $phase (i32.and (i32.const 1023) (i32.wrap_i64 (call $random))))
    (loop $play
      (call $buffer (local.get $phase))
      (local.set $phase (i32.add (local.get $phase) (i32.const 29)))
      (drop (call $context_yield))
      (local.set $buffer (i32.add (local.get $buffer) (i32.const 1)))
      (br_if $play (i32.lt_u (local.get $buffer) (i32.const 12))))))
