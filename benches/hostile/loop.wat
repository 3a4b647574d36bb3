;; One coroutine that never stops by itself.
(module
  (func (export "_start") (loop $forever (br $forever))))
