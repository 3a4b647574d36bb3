//! A machine that is dropped at any moment frees all its memory, including what waiting coroutines
//! own. Measured with a counting allocator.

mod counting;
mod kit;

use counting::HELD;
use kit::{Collected, Machine};

/// Some select among two channels, some wait for bytes, get them and have not taken them yet, and
/// in the end all are waited for by one that never gets its answer.
const WAITERS: &str = r#"
    (func $selects (param i64) (drop (call $select (i32.const 96) (i32.const 2))))
    (func $takes (param i64) (drop (call $recv_bytes (i32.const 1) (i32.const 64) (i32.const 20))))
    (elem (i32.const 0) $selects $takes)
    (func (export "_start") (local $left i32)
      (drop (call $channel (i32.const 2)))
      (drop (call $channel (i32.const 2)))
      (i64.store (i32.const 96) (i64.const 0))
      (local.set $left (i32.const 5))
      (loop $on
        (drop (call $spawn (i32.const 0) (i64.const 0)))
        (drop (call $spawn (i32.const 1) (i64.const 0)))
        (call $yield)
        (drop (call $send_bytes (i32.const 1) (i32.const 0) (i32.const 10)))
        (br_if $on (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
      (drop (call $join (i64.const 1) (i32.const 8))))"#;

/// What is held when a machine has made this many steps, and how much of it is left when it is
/// dropped. None when it is over before.
fn left(machine: &Machine, steps: u32) -> Option<(i64, i64)> {
    let before = HELD.get();
    let mut world = machine.world(false);
    let mut sink = Collected { lean: true, ..Collected::default() };
    let goes_on = (0..steps).all(|_| world.step(&mut sink).expect("the host can go on"));
    let held = HELD.get() - before;
    drop((world, sink));
    goes_on.then(|| (held, HELD.get() - before))
}

#[test]
fn a_dropped_machine_frees_all_its_memory() {
    let machine = Machine::one(WAITERS);
    // What is made once in a process is not counted.
    let _ = left(&machine, 3);
    let mut steps = 0;
    while let Some((held, left)) = left(&machine, steps) {
        assert!(held > 10_000, "the counter counts: {held} bytes");
        assert_eq!(left, 0, "bytes left after {steps} steps");
        steps += 1;
    }
    assert!(steps > 15, "it was dropped at {steps} places");
}
