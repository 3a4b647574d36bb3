//! Every interleaving of the hand-over and of parking, by the model checker. The code under test is the crate's own, over the checker's
//! primitives: `crate::sync` here stands for `crate::sync` there.

/// The checker's primitives under the names the hand-over uses.
mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicU32, Ordering};
}

#[path = "../src/handover.rs"]
mod handover;

use handover::{Handover, Offered};
use loom::sync::Arc;
use loom::thread;

/// Every interleaving with at most three preemptions: more find nothing new here and take minutes.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A worker that takes `rounds` values, adds one to each and gives it back; it parks whenever it may.
fn worker(slot: &Handover<u32>, rounds: u32) {
    for _ in 0..rounds {
        let value = loop {
            if let Some(value) = slot.take() {
                break value;
            }
            if slot.announce_sleep() {
                thread::park();
            } else {
                thread::yield_now();
            }
        };
        slot.give_back(value + 1);
    }
}

#[test]
fn values_come_back_and_no_wake_is_lost() {
    check(|| {
        let slot = Arc::new(Handover::new());
        let theirs = slot.clone();
        let thread = thread::spawn(move || worker(&theirs, 2));
        let mut wakes = 0;
        for round in 0..2 {
            if slot.offer(round * 10) == Offered::MustWake {
                wakes += 1;
                thread.thread().unpark();
            }
            let back = loop {
                match slot.reclaim() {
                    Some(back) => break back,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(back, round * 10 + 1);
        }
        assert!(wakes <= 2, "at most one wake-up per offer");
        thread.join().unwrap();
    });
}

/// Set in the child process that runs the planted bug.
const PLANTED: &str = "WAVELOCK_PLANTED_DROPPED_WAKE";

/// The planted bug: a coordinator that never wakes a parked worker. The checker must find the interleaving that hangs, which ends its
/// process; so it runs in a child of this test.
#[test]
fn a_dropped_wake_is_found() {
    if std::env::var_os(PLANTED).is_some() {
        check(|| {
            let slot = Arc::new(Handover::new());
            let theirs = slot.clone();
            let thread = thread::spawn(move || worker(&theirs, 1));
            let _forgotten = slot.offer(1);
            thread.join().unwrap();
        });
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_dropped_wake_is_found", "--nocapture"])
        .env(PLANTED, "1")
        .output()
        .unwrap();
    assert!(!child.status.success(), "without the wake-up some interleaving must hang");
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(said.contains("deadlock"), "the checker names what it found: {said}");
}
