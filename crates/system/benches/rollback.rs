//! What snapshots in memory cost: one per frame, and returning over eight frames.
//!
//! `cargo bench -p wavelock-system --bench rollback`: for each machine the milliseconds of a
//! snapshot, of returning to one of eight frames ago, and of that with the eight frames run and
//! snapshot again (a rollback as a game makes it), each the median of 31 (the least in brackets);
//! then the heap bytes that one more snapshot holds. The goals: at most 1 ms, and at most 16.6 ms.

#[path = "../tests/counting/mod.rs"]
mod counting;

use counting::HELD;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use wavelock_abi::Cycles;
use wavelock_module::{Limits, Module};
use wavelock_system::{MachineSpec, Placement, Snapshot, Stage, World};

/// Frames that a rollback goes back.
const BACK: usize = 8;
const SAMPLES: usize = 31;

/// A machine of the table.
struct Row {
    name: &'static str,
    sessions: u64,
    lanes: u16,
    /// WebAssembly pages of each session.
    pages: u64,
    /// Coroutines of each session that wake in every frame.
    coroutines: u64,
}

const ROWS: [Row; 5] = [
    Row { name: "10.5 MB, 1 % dirty", sessions: 1, lanes: 1, pages: 160, coroutines: 0 },
    Row { name: "+ 1,000 coroutines", sessions: 1, lanes: 1, pages: 160, coroutines: 1_000 },
    Row { name: "+ 10,000 coroutines", sessions: 1, lanes: 1, pages: 160, coroutines: 10_000 },
    Row { name: "16 sessions, 4 lanes", sessions: 16, lanes: 4, pages: 10, coroutines: 20 },
    Row { name: "67 MB, 1 % dirty", sessions: 1, lanes: 1, pages: 1_024, coroutines: 0 },
];

/// A guest that writes all its pages, and then in every frame a word of one page in a hundred,
/// beside coroutines that sleep and wake.
fn text(row: &Row) -> String {
    let pages = row.pages * 16;
    format!(
        r#"(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory {})
  (table funcref (elem $sleeper))
  (func $sleeper (param i64)
    (loop $forever
      (call $sleep (i64.const 1))
      (br $forever)))
  (func $touch (param $page i64) (param $value i64)
    (i64.store (i32.shl (i32.wrap_i64 (local.get $page)) (i32.const 12)) (local.get $value)))
  (func (export "_start") (local $frame i64) (local $i i64)
    (loop $spawning
      (if (i64.lt_u (local.get $i) (i64.const {}))
        (then
          (drop (call $spawn (i32.const 0) (i64.const 0)))
          (local.set $i (i64.add (local.get $i) (i64.const 1)))
          (br $spawning))))
    (local.set $i (i64.const 0))
    (loop $fill
      (call $touch (local.get $i) (i64.const -1))
      (br_if $fill (i64.lt_u
        (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const {pages}))))
    (loop $forever
      (local.set $frame (i64.add (local.get $frame) (i64.const 1)))
      (local.set $i (i64.const 0))
      (loop $write
        (call $touch
          (i64.rem_u (i64.add (i64.mul (local.get $i) (i64.const 101)) (local.get $frame))
            (i64.const {pages}))
          (local.get $frame))
        (br_if $write (i64.lt_u
          (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const {}))))
      (call $sleep (i64.const 1))
      (br $forever))))"#,
        row.pages,
        row.coroutines,
        pages.div_ceil(100),
    )
}

fn world(row: &Row) -> World {
    let text = text(row);
    let bytes = wat::parse_str(&text).expect("the guest is valid");
    let module = Module::new(&bytes, &Limits::default()).expect("the guest is valid");
    let mut spec = MachineSpec {
        lanes: row.lanes,
        frame_cycles: Cycles(100_000_000),
        span: wavelock_system::Span::Cycles(Cycles(10_000_000)),
        ..MachineSpec::new()
    };
    let module = spec.add_module(Arc::new(module), &bytes);
    for session in 0..row.sessions {
        let id = spec.add_session(&format!("s{session}"), module);
        spec.sessions[id.0 as usize].placement =
            Placement::Lane((session % u64::from(row.lanes)) as u16);
    }
    World::load(spec, Vec::new(), false).expect("a machine that can be made").world
}

/// Runs to the end of the next frame.
fn frame(world: &mut World) {
    loop {
        match world.advance(&mut ()).expect("the host can") {
            Stage::Wave => {
                world.groups_mut().iter_mut().for_each(|group| group.run_wave());
                world.close_wave();
            }
            Stage::Frame => {}
            Stage::Boundary | Stage::Waiting => return,
            Stage::Over => panic!("the machine goes on"),
        }
    }
}

fn timed<T>(list: &mut Vec<f64>, work: impl FnOnce() -> T) -> T {
    let before = Instant::now();
    let result = work();
    list.push(before.elapsed().as_secs_f64() * 1e3);
    result
}

fn median_and_least(list: &mut [f64]) -> String {
    list.sort_by(f64::total_cmp);
    format!("{:7.3} ({:.3})", list[list.len() / 2], list[0])
}

fn main() {
    println!(
        "{:22} {:>16} {:>16} {:>16} {:>14}",
        "machine", "snapshot ms", "return ms", "8 frames ms", "snapshot bytes"
    );
    for row in &ROWS {
        let mut world = world(row);
        (0..4).for_each(|_| frame(&mut world));
        let mut kept: VecDeque<Snapshot> = VecDeque::new();
        let (mut saves, mut returns, mut whole, mut bytes) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for _ in 0..SAMPLES {
            for _ in 0..BACK {
                let held = HELD.get();
                kept.push_back(timed(&mut saves, || world.snapshot().expect("a boundary")));
                bytes.push(HELD.get() - held);
                kept.truncate(BACK + 1);
                frame(&mut world);
            }
            let digest = world.digest();
            timed(&mut whole, || {
                let target = kept[kept.len() - BACK].clone();
                timed(&mut returns, || world.roll_back(&target));
                for _ in 0..BACK {
                    kept.push_back(world.snapshot().expect("a boundary"));
                    frame(&mut world);
                }
            });
            assert_eq!(world.digest(), digest, "the same frames again");
            kept.clear();
        }
        bytes.sort_unstable();
        println!(
            "{:22} {:>16} {:>16} {:>16} {:>14}",
            row.name,
            median_and_least(&mut saves),
            median_and_least(&mut returns),
            median_and_least(&mut whole),
            bytes[bytes.len() / 2]
        );
    }
}
