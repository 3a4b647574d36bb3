;; Nothing: what a run costs without a guest's work, to be taken off every other figure.
(module
  (memory (export "memory") 1)
  (func (export "_start")))
