;; A tenant that computes without ever yielding.
(module
  (memory (export "memory") 1)
  (func (export "_start") (local $left i32)
    (local.set $left (i32.const 400000))
    (loop $more
      (local.set $left (i32.sub (local.get $left) (i32.const 1)))
      (br_if $more (local.get $left)))))
