;; A small virtual machine in the guest: four registers, two-byte instructions, dispatch by `br_table`. The machine's program
;; counts Collatz steps of 1, 2, 3, ... n and adds them up. `run(n)` is that sum.
;;
;; An instruction is (operation, operand). Registers: r0 = current number, r1 = number under test, r2 = sum, r3 = n.
;;   0 halt            return r2
;;   1 odd  T          if r0 is odd, go to T
;;   2 half            r0 = r0 / 2, r2 = r2 + 1
;;   3 triple          r0 = 3 r0 + 1, r2 = r2 + 1
;;   4 one  T          if r0 is 1, go to T
;;   5 go   T          go to T
;;   6 next T          r1 = r1 + 1; r0 = r1; if r1 > r3, go to T
(module
  (memory 1)
  (data (i32.const 0)
    "\06\07"  ;; 0: next -> 7
    "\04\00"  ;; 1: one  -> 0
    "\01\05"  ;; 2: odd  -> 5
    "\02\00"  ;; 3: half
    "\05\01"  ;; 4: go   -> 1
    "\03\00"  ;; 5: triple
    "\05\01"  ;; 6: go   -> 1
    "\00\00") ;; 7: halt
  (func (export "run") (param $n i32) (result i32)
    (local $pc i32) (local $operation i32) (local $operand i32)
    (local $r0 i32) (local $r1 i32) (local $r2 i32)
    (loop $dispatch
      (local.set $operation (i32.load8_u (local.get $pc)))
      (local.set $operand (i32.shl (i32.load8_u offset=1 (local.get $pc)) (i32.const 1)))
      (local.set $pc (i32.add (local.get $pc) (i32.const 2)))
      (block $next
        (block $go
          (block $one
            (block $triple
              (block $half
                (block $odd
                  (block $halt
                    (br_table $halt $odd $half $triple $one $go $next (local.get $operation)))
                  (return (local.get $r2)))
                (if (i32.and (local.get $r0) (i32.const 1)) (then (local.set $pc (local.get $operand))))
                (br $dispatch))
              (local.set $r0 (i32.shr_u (local.get $r0) (i32.const 1)))
              (local.set $r2 (i32.add (local.get $r2) (i32.const 1)))
              (br $dispatch))
            (local.set $r0 (i32.add (i32.mul (local.get $r0) (i32.const 3)) (i32.const 1)))
            (local.set $r2 (i32.add (local.get $r2) (i32.const 1)))
            (br $dispatch))
          (if (i32.eq (local.get $r0) (i32.const 1)) (then (local.set $pc (local.get $operand))))
          (br $dispatch))
        (local.set $pc (local.get $operand))
        (br $dispatch))
      (local.set $r1 (i32.add (local.get $r1) (i32.const 1)))
      (local.set $r0 (local.get $r1))
      (if (i32.gt_u (local.get $r1) (local.get $n)) (then (local.set $pc (local.get $operand))))
      (br $dispatch))
    (unreachable)))
