;; Bulk memory copy: n rounds of `memory.copy` of 64 KiB and one overlapping move of 4,093 bytes, with `memory.fill` of 256
;; bytes between them. `run(n)` is a hash of the copied bytes. Its cost is the host's memmove plus the prepaid charge.
(module
  (memory 4)
  (func (export "run") (param $n i32) (result i32)
    (local $at i32) (local $hash i32) (local $round i32)
    ;; A pattern in the first page.
    (loop $seed
      (i32.store (local.get $at) (i32.mul (local.get $at) (i32.const -1640531527)))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $seed (i32.lt_u (local.get $at) (i32.const 65536))))
    (block $done
      (loop $again
        (br_if $done (i32.ge_u (local.get $round) (local.get $n)))
        (memory.copy (i32.const 65536) (i32.const 0) (i32.const 65536))
        (memory.copy (i32.const 65539) (i32.const 65536) (i32.const 4093))
        (memory.fill
          (i32.add (i32.const 65536) (i32.and (i32.mul (local.get $round) (i32.const 251)) (i32.const 65279)))
          (local.get $round)
          (i32.const 256))
        (memory.copy (i32.const 0) (i32.const 65536) (i32.const 65536))
        (local.set $round (i32.add (local.get $round) (i32.const 1)))
        (br $again)))
    (local.set $at (i32.const 0))
    (loop $mix
      (local.set $hash (i32.xor (i32.rotl (local.get $hash) (i32.const 5)) (i32.load (local.get $at))))
      (local.set $at (i32.add (local.get $at) (i32.const 4)))
      (br_if $mix (i32.lt_u (local.get $at) (i32.const 65536))))
    (local.get $hash)))
