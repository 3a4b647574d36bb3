;; Matrix multiply of two n by n matrices of f64, by rows and columns. Entries are small whole numbers, so every sum is
;; exact and `run(n)` is the whole-number sum of the product's entries. n is at most 256.
(module
  (memory 24) ;; A at 0, B at 512 KiB, C at 1 MiB: 256 * 256 * 8 bytes each
  (func $fill (param $base i32) (param $n i32) (param $a i32) (param $b i32)
    (local $i i32) (local $j i32)
    (loop $row
      (local.set $j (i32.const 0))
      (loop $column
        (f64.store
          (i32.add (local.get $base)
            (i32.shl (i32.add (i32.mul (local.get $i) (local.get $n)) (local.get $j)) (i32.const 3)))
          (f64.convert_i32_s
            (i32.sub
              (i32.rem_u
                (i32.add (i32.mul (local.get $i) (local.get $a)) (i32.mul (local.get $j) (local.get $b)))
                (i32.const 11))
              (i32.const 4))))
        (local.set $j (i32.add (local.get $j) (i32.const 1)))
        (br_if $column (i32.lt_u (local.get $j) (local.get $n))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $row (i32.lt_u (local.get $i) (local.get $n)))))

  (func (export "run") (param $n i32) (result i32)
    (local $i i32) (local $j i32) (local $k i32) (local $left i32) (local $right i32) (local $stride i32)
    (local $sum f64) (local $total f64)
    (call $fill (i32.const 0) (local.get $n) (i32.const 3) (i32.const 7))
    (call $fill (i32.const 524288) (local.get $n) (i32.const 5) (i32.const 2))
    (local.set $stride (i32.shl (local.get $n) (i32.const 3)))
    (loop $row
      (local.set $j (i32.const 0))
      (loop $column
        (local.set $left (i32.mul (local.get $i) (local.get $stride)))
        (local.set $right (i32.add (i32.const 524288) (i32.shl (local.get $j) (i32.const 3))))
        (local.set $sum (f64.const 0))
        (local.set $k (local.get $n))
        (loop $inner
          (local.set $sum
            (f64.add (local.get $sum) (f64.mul (f64.load (local.get $left)) (f64.load (local.get $right)))))
          (local.set $left (i32.add (local.get $left) (i32.const 8)))
          (local.set $right (i32.add (local.get $right) (local.get $stride)))
          (local.set $k (i32.sub (local.get $k) (i32.const 1)))
          (br_if $inner (local.get $k)))
        (f64.store
          (i32.add (i32.const 1048576)
            (i32.add (i32.mul (local.get $i) (local.get $stride)) (i32.shl (local.get $j) (i32.const 3))))
          (local.get $sum))
        (local.set $j (i32.add (local.get $j) (i32.const 1)))
        (br_if $column (i32.lt_u (local.get $j) (local.get $n))))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $row (i32.lt_u (local.get $i) (local.get $n))))
    (local.set $k (i32.const 1048576))
    (local.set $left (i32.add (local.get $k) (i32.mul (local.get $n) (local.get $stride))))
    (loop $add
      (local.set $total (f64.add (local.get $total) (f64.load (local.get $k))))
      (local.set $k (i32.add (local.get $k) (i32.const 8)))
      (br_if $add (i32.lt_u (local.get $k) (local.get $left))))
    (i32.wrap_i64 (i64.trunc_sat_f64_s (local.get $total)))))
