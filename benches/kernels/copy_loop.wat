;; Memory copy by a loop of 8-byte loads and stores, as a compiler without bulk memory makes it: n rounds of 64 KiB from page
;; 0 to page 1, shifted by the round's number so that no round repeats another. `run(n)` is a hash of page 1.
(module
  (memory 3)
  (func $copy (param $to i32) (param $from i32) (param $length i32)
    (local $end i32)
    (local.set $end (i32.add (local.get $from) (local.get $length)))
    (loop $words
      (i64.store (local.get $to) (i64.load (local.get $from)))
      (local.set $to (i32.add (local.get $to) (i32.const 8)))
      (local.set $from (i32.add (local.get $from) (i32.const 8)))
      (br_if $words (i32.lt_u (local.get $from) (local.get $end)))))
  (func (export "run") (param $n i32) (result i32)
    (local $at i32) (local $hash i32) (local $round i32)
    (loop $seed
      (i32.store (local.get $at) (i32.mul (local.get $at) (i32.const -1640531527)))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $seed (i32.lt_u (local.get $at) (i32.const 65536))))
    (block $done
      (loop $again
        (br_if $done (i32.ge_u (local.get $round) (local.get $n)))
        (call $copy
          (i32.add (i32.const 65536) (i32.and (local.get $round) (i32.const 255)))
          (i32.const 0)
          (i32.const 65536))
        (local.set $round (i32.add (local.get $round) (i32.const 1)))
        (br $again)))
    (local.set $at (i32.const 65536))
    (loop $mix
      (local.set $hash (i32.xor (i32.rotl (local.get $hash) (i32.const 5)) (i32.load (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $mix (i32.lt_u (local.get $at) (i32.const 131072))))
    (local.get $hash)))
