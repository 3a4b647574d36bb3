;; An actor that does what its random stream says: one module, as many programs as there are seeds.
;;
;; Each coroutine takes `budget` turns. A turn draws a number; its lower bits choose what to do, its upper bits with what. Channel
;; handles are drawn from 0..6: own channels, ports and handles that do not exist, so refusals are part of the program. Children
;; get half the budget. References to children are kept in a small table that siblings share.
(module
  (import "wavelock" "yield" (func $yield))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (import "wavelock" "random" (func $random (result i64)))
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "spawn_on" (func $spawn_on (param i32 i64 i32) (result i64)))
  (import "wavelock" "join" (func $join (param i64 i32) (result i32)))
  (import "wavelock" "cancel" (func $cancel (param i64) (result i32)))
  (import "wavelock" "detach" (func $detach (param i64) (result i32)))
  (import "wavelock" "exit" (func $exit (param i64)))
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "try_send" (func $try_send (param i32 i64) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wavelock" "try_recv" (func $try_recv (param i32 i32) (result i32)))
  (import "wavelock" "send_bytes" (func $send_bytes (param i32 i32 i32) (result i32)))
  (import "wavelock" "recv_bytes" (func $recv_bytes (param i32 i32 i32) (result i32)))
  (import "wavelock" "select" (func $select (param i32 i32) (result i32)))
  (import "wavelock" "close" (func $close (param i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "remaining" (func $remaining (result i64)))
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (memory 1)
  (table funcref (elem $actor))
  (data (i32.const 512) "\00\00\00\00\01\00\00\00\02\00\00\00")

  ;; Place of child $which in the table of references.
  (func $child (param $which i64) (result i32)
    (i32.add (i32.const 256) (i32.shl (i32.and (i32.wrap_i64 (local.get $which)) (i32.const 7)) (i32.const 3))))

  (func $actor (param $budget i64) (result i64)
    (local $draw i64) (local $what i64) (local $handle i32) (local $sum i64)
    (loop $turn
      (if (i64.le_s (local.get $budget) (i64.const 0)) (then (return (local.get $sum))))
      (local.set $budget (i64.sub (local.get $budget) (i64.const 1)))
      (local.set $draw (call $random))
      (local.set $what (i64.shr_u (local.get $draw) (i64.const 8)))
      (local.set $handle (i32.wrap_i64 (i64.rem_u (local.get $what) (i64.const 6))))
      (block $done
        (block $io (block $faulty (block $kill (block $wait (block $birth (block $bytes (block $receive (block $transmit (block $nap (block $work (block $pause
          (br_table $pause $pause $pause $work $work $work $nap $nap
                    $transmit $transmit $transmit $transmit $transmit $receive $receive $receive
                    $receive $receive $bytes $bytes $birth $birth $birth $wait
                    $wait $kill $faulty $io $io $io $work $pause
            (i32.and (i32.wrap_i64 (local.get $draw)) (i32.const 31))))
          ;; $pause
          (call $yield) (br $done))
          ;; $work: count down, and fill a little memory
          (local.set $sum (i64.and (local.get $what) (i64.const 1023)))
          (loop $count
            (local.set $sum (i64.sub (local.get $sum) (i64.const 1)))
            (br_if $count (i64.gt_s (local.get $sum) (i64.const 0))))
          (memory.fill (i32.add (i32.const 8192) (i32.and (i32.wrap_i64 (local.get $what)) (i32.const 4095)))
            (i32.wrap_i64 (local.get $draw)) (i32.and (i32.wrap_i64 (i64.shr_u (local.get $what) (i64.const 12))) (i32.const 2047)))
          (br $done))
          ;; $nap
          (call $sleep (i64.and (local.get $what) (i64.const 3))) (br $done))
          ;; $transmit: waits one time in four
          (if (i64.eqz (i64.and (i64.shr_u (local.get $what) (i64.const 8)) (i64.const 3)))
            (then (drop (call $send (local.get $handle) (local.get $what))))
            (else (drop (call $try_send (local.get $handle) (local.get $what)))))
          (br $done))
          ;; $receive: waits one time in eight
          (if (i64.eqz (i64.and (i64.shr_u (local.get $what) (i64.const 8)) (i64.const 7)))
            (then (drop (call $recv (local.get $handle) (i32.const 8))))
            (else (drop (call $try_recv (local.get $handle) (i32.const 8)))))
          (local.set $sum (i64.add (local.get $sum) (i64.load (i32.const 8))))
          (br $done))
          ;; $bytes: a byte message sent, received or selected for
          (if (i64.eqz (i64.and (i64.shr_u (local.get $what) (i64.const 8)) (i64.const 1)))
            (then (drop (call $send_bytes (local.get $handle) (i32.const 8192) (i32.and (i32.wrap_i64 (local.get $what)) (i32.const 255)))))
            (else (if (i64.eqz (i64.and (i64.shr_u (local.get $what) (i64.const 9)) (i64.const 7)))
              (then (drop (call $select (i32.const 512) (i32.const 3))))
              (else (if (i64.eqz (i64.and (i64.shr_u (local.get $what) (i64.const 9)) (i64.const 3)))
                (then (drop (call $recv_bytes (local.get $handle) (i32.const 1024) (i32.const 200)))))))))
          (br $done))
          ;; $birth: a child here, or on a lane that may not be ours
          (i64.store (call $child (local.get $what))
            (if (result i64) (i64.eqz (i64.and (i64.shr_u (local.get $what) (i64.const 8)) (i64.const 3)))
              (then (call $spawn_on (i32.const 0) (i64.shr_s (local.get $budget) (i64.const 1))
                      (i32.and (i32.wrap_i64 (i64.shr_u (local.get $what) (i64.const 12))) (i32.const 3))))
              (else (call $spawn (i32.const 0) (i64.shr_s (local.get $budget) (i64.const 1))))))
          (br $done))
          ;; $wait
          (if (i64.eqz (i64.and (i64.shr_u (local.get $what) (i64.const 8)) (i64.const 3)))
            (then (drop (call $detach (i64.load (call $child (local.get $what))))))
            (else (drop (call $join (i64.load (call $child (local.get $what))) (i32.const 16)))))
          (br $done))
          ;; $kill
          (drop (call $cancel (i64.load (call $child (local.get $what))))) (br $done))
          ;; $faulty: rarely a fault, an exit or a close
          (if (i64.eqz (i64.and (local.get $what) (i64.const 63))) (then (unreachable)))
          (if (i64.eqz (i64.and (local.get $what) (i64.const 31))) (then (call $exit (local.get $sum))))
          (if (i64.eqz (i64.and (local.get $what) (i64.const 7))) (then (drop (call $close (local.get $handle)))))
          (br $done))
        ;; $io: output, or input, and what is left of the frame
        (i64.store (i32.const 24) (local.get $sum))
        (if (i64.eqz (i64.and (local.get $what) (i64.const 3)))
          (then (drop (call $input (i32.const 128) (i32.const 64))))
          (else (drop (call $output (i32.const 24) (i32.const 8)))))
        (local.set $sum (i64.add (local.get $sum) (i64.and (call $remaining) (i64.const 7)))))
      (br $turn))
    (local.get $sum))

  (func (export "main") (result i32)
    (drop (call $channel (i32.const 2)))
    (i32.wrap_i64 (call $actor (i64.add (i64.const 24) (i64.and (call $random) (i64.const 31)))))))
