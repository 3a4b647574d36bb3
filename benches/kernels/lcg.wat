;; Integer loop: a linear congruential generator stepped n times, one dependent multiply and add per turn.
;; `run(n)` is the generator's state after n steps from 1.
(module
  (func (export "run") (param $n i32) (result i32)
    (local $state i32)
    (local.set $state (i32.const 1))
    (block $done
      (loop $step
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $state
          (i32.add (i32.mul (local.get $state) (i32.const 1664525)) (i32.const 1013904223)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $step)))
    (local.get $state)))
