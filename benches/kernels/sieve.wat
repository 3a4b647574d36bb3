;; Sieve of Eratosthenes over one byte per number. `run(n)` counts the primes up to n, for n from 2 to 5,242,879.
;; Byte i of memory is 1 while i may be prime.
(module
  (memory 80)
  (func (export "run") (param $n i32) (result i32)
    (local $i i32) (local $j i32) (local $count i32)
    (local.set $i (i32.const 2))
    (loop $mark
      (i32.store8 (local.get $i) (i32.const 1))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $mark (i32.le_u (local.get $i) (local.get $n))))
    (local.set $i (i32.const 2))
    (block $crossed
      (loop $next
        (local.set $j (i32.mul (local.get $i) (local.get $i)))
        (br_if $crossed (i32.gt_u (local.get $j) (local.get $n)))
        (if (i32.load8_u (local.get $i))
          (then
            (loop $cross
              (i32.store8 (local.get $j) (i32.const 0))
              (local.set $j (i32.add (local.get $j) (local.get $i)))
              (br_if $cross (i32.le_u (local.get $j) (local.get $n))))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    (local.set $i (i32.const 2))
    (loop $sum
      (local.set $count (i32.add (local.get $count) (i32.load8_u (local.get $i))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $sum (i32.le_u (local.get $i) (local.get $n))))
    (local.get $count)))
