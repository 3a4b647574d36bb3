;; Indirect calls: n calls through a table of eight small functions, the next one chosen by the last result, so that the
;; target is hard to predict. `run(n)` is the final value.
(module
  (type $step (func (param i32) (result i32)))
  (table funcref (elem $add $sub $xor $rotate $multiply $swap $shift $mix))
  (func $add (type $step) (i32.add (local.get 0) (i32.const 0x3c6ef372)))
  (func $sub (type $step) (i32.sub (local.get 0) (i32.const 0x1b873593)))
  (func $xor (type $step) (i32.xor (local.get 0) (i32.const 0x5bd1e995)))
  (func $rotate (type $step) (i32.add (i32.rotl (local.get 0) (i32.const 13)) (i32.const 7)))
  (func $multiply (type $step) (i32.add (i32.mul (local.get 0) (i32.const 1664525)) (i32.const 1013904223)))
  (func $swap (type $step) (i32.sub (i32.rotr (local.get 0) (i32.const 16)) (i32.const 3)))
  (func $shift (type $step) (i32.xor (local.get 0) (i32.add (i32.shl (local.get 0) (i32.const 5)) (i32.const 11))))
  (func $mix (type $step) (i32.xor (i32.shr_u (local.get 0) (i32.const 7)) (i32.mul (local.get 0) (i32.const 69069))))
  (func (export "run") (param $n i32) (result i32)
    (local $value i32)
    (local.set $value (i32.const 1))
    (block $done
      (loop $again
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $value
          (call_indirect (type $step)
            (i32.add (local.get $value) (local.get $n))
            (i32.and (i32.xor (local.get $value) (i32.shr_u (local.get $value) (i32.const 16))) (i32.const 7))))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $again)))
    (local.get $value)))
