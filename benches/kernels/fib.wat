;; Recursive Fibonacci: the cost of a call and a return. `run(n)` is the n-th Fibonacci number, wrapping at 32 bits.
(module
  (func $fib (export "run") (param $n i32) (result i32)
    (if (result i32) (i32.lt_u (local.get $n) (i32.const 2))
      (then (local.get $n))
      (else
        (i32.add
          (call $fib (i32.sub (local.get $n) (i32.const 1)))
          (call $fib (i32.sub (local.get $n) (i32.const 2))))))))
