;; Quicksort of 32-bit words with insertion sort below 12 of them. `run(n)` fills n words from a generator, sorts them as
;; signed numbers and returns a hash of the sorted sequence, or -1 if it is not in order. n is at most 1,048,576.
(module
  (memory 64)

  ;; Sorts the words from byte address $low to byte address $high, both included.
  (func $sort (param $low i32) (param $high i32)
    (local $i i32) (local $j i32) (local $pivot i32) (local $held i32)
    (block $small
      (loop $again
        (br_if $small (i32.lt_s (i32.sub (local.get $high) (local.get $low)) (i32.const 48)))
        ;; Hoare's partition around the middle word.
        (local.set $pivot
          (i32.load
            (i32.add (local.get $low)
              (i32.and (i32.shr_u (i32.sub (local.get $high) (local.get $low)) (i32.const 1)) (i32.const -4)))))
        (local.set $i (local.get $low))
        (local.set $j (local.get $high))
        (block $parted
          (loop $part
            (block $left_stop
              (loop $left
                (br_if $left_stop (i32.ge_s (i32.load (local.get $i)) (local.get $pivot)))
                (local.set $i (i32.add (local.get $i) (i32.const 4)))
                (br $left)))
            (block $right_stop
              (loop $right
                (br_if $right_stop (i32.le_s (i32.load (local.get $j)) (local.get $pivot)))
                (local.set $j (i32.sub (local.get $j) (i32.const 4)))
                (br $right)))
            (br_if $parted (i32.gt_s (local.get $i) (local.get $j)))
            (local.set $held (i32.load (local.get $i)))
            (i32.store (local.get $i) (i32.load (local.get $j)))
            (i32.store (local.get $j) (local.get $held))
            (local.set $i (i32.add (local.get $i) (i32.const 4)))
            (local.set $j (i32.sub (local.get $j) (i32.const 4)))
            (br_if $part (i32.le_s (local.get $i) (local.get $j)))))
        (call $sort (local.get $low) (local.get $j))
        (local.set $low (local.get $i))
        (br $again)))
    ;; Insertion sort of what is left.
    (local.set $i (i32.add (local.get $low) (i32.const 4)))
    (block $sorted
      (loop $insert
        (br_if $sorted (i32.gt_s (local.get $i) (local.get $high)))
        (local.set $held (i32.load (local.get $i)))
        (local.set $j (local.get $i))
        (block $placed
          (loop $shift
            (br_if $placed (i32.le_s (local.get $j) (local.get $low)))
            (br_if $placed (i32.le_s (i32.load (i32.sub (local.get $j) (i32.const 4))) (local.get $held)))
            (i32.store (local.get $j) (i32.load (i32.sub (local.get $j) (i32.const 4))))
            (local.set $j (i32.sub (local.get $j) (i32.const 4)))
            (br $shift)))
        (i32.store (local.get $j) (local.get $held))
        (local.set $i (i32.add (local.get $i) (i32.const 4)))
        (br $insert))))

  (func (export "run") (param $n i32) (result i32)
    (local $at i32) (local $end i32) (local $state i32) (local $hash i32)
    (local.set $end (i32.shl (local.get $n) (i32.const 2)))
    (local.set $state (i32.const 12345))
    (block $filled
      (loop $fill
        (br_if $filled (i32.ge_u (local.get $at) (local.get $end)))
        (local.set $state
          (i32.add (i32.mul (local.get $state) (i32.const 1103515245)) (i32.const 12345)))
        (i32.store (local.get $at) (i32.xor (local.get $state) (i32.shr_u (local.get $state) (i32.const 15))))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br $fill)))
    (call $sort (i32.const 0) (i32.sub (local.get $end) (i32.const 4)))
    (local.set $at (i32.const 0))
    (block $hashed
      (loop $check
        (br_if $hashed (i32.ge_u (local.get $at) (local.get $end)))
        (if (local.get $at)
          (then
            (if (i32.gt_s (i32.load (i32.sub (local.get $at) (i32.const 4))) (i32.load (local.get $at)))
              (then (return (i32.const -1))))))
        (local.set $hash
          (i32.add (i32.mul (local.get $hash) (i32.const 31)) (i32.load (local.get $at))))
        (local.set $at (i32.add (local.get $at) (i32.const 4)))
        (br $check)))
    (local.get $hash)))
