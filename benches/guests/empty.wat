;; An empty guest: the cost of a run without work, subtracted from every other figure.
(module
  (memory (export "memory") 1)
  (func (export "_start")))
