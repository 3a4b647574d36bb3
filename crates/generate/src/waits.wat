  ;; What an actor of a machine with waits does instead of a yield, by a draw: parks, unparks itself, the first coroutines, a child or
  ;; whatever a small number names, waits for the session a port leads to, asks for its name and index.
  ;;
  ;; Memory: the exit code of a session at 2048, the name at 2064.
  (func $waits (param $what i64)
    (block $named (block $watched (block $kept (block $first (block $child (block $parked (block $pause
      (br_table $pause $parked $child $parked $child $first $kept $watched $named $child $first $first $parked $watched $first $parked
        (i32.and (i32.wrap_i64 (i64.shr_u (local.get $what) (i64.const 32))) (i32.const 15))))
      (call $yield) (return))
      (drop (call $park)) (return))
      (drop (call $unpark (i64.load (call $child (local.get $what))))) (return))
      (drop (call $unpark (i64.const 0))) (drop (call $unpark (i64.const 1))) (drop (call $unpark (i64.const 2)))
      (drop (call $unpark (i64.and (local.get $what) (i64.const 7)))) (return))
      (drop (call $unpark (call $self)))
      (if (i64.eqz (i64.and (local.get $what) (i64.const 1))) (then (drop (call $park)))) (return))
      (drop (call $session_wait (i32.wrap_i64 (i64.rem_u (local.get $what) (i64.const 6)))
        (select (i32.const 2048) (i32.const -1) (i64.eqz (i64.and (i64.shr_u (local.get $what) (i64.const 40)) (i64.const 1)))))) (return))
    (drop (call $session_name (i32.const 2064)
      (i32.and (i32.wrap_i64 (i64.shr_u (local.get $what) (i64.const 40))) (i32.const 31))))
    (i32.store (i32.const 24) (call $session_index)))
