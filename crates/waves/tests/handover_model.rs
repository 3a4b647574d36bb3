//! Every interleaving of the handover and of parking, under the model checker `loom`. The code
//! under test is the crate's own; `crate::sync` is replaced by the checker's primitives.

/// The checker's primitives under the names of `crate::sync`.
mod sync {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

#[path = "../src/handover.rs"]
mod handover;

use handover::{Offered, Queue};
use loom::sync::Arc;
use loom::thread;

/// Every interleaving with at most three preemptions: more find nothing new here and take minutes.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A worker that adds one to each item it claims, until it completed `last`; it parks whenever it
/// may.
fn worker(queue: &Queue<u32>, last: u32) {
    loop {
        if let Some((place, value)) = queue.claim() {
            queue.complete(place, value + 1);
            if value == last {
                return;
            }
        } else if queue.prepare_park() {
            thread::park();
        } else {
            thread::yield_now();
        }
    }
}

/// What the queue held, once all of it is done.
fn collected(queue: &Queue<u32>) -> Vec<u32> {
    let mut values = Vec::new();
    while !queue.collect(|value| values.push(value)) {
        thread::yield_now();
    }
    values
}

#[test]
fn items_are_collected_and_no_unpark_is_lost() {
    check(|| {
        let queue = Arc::new(Queue::new(1));
        let theirs = queue.clone();
        let thread = thread::spawn(move || worker(&theirs, 10));
        let mut wakes = 0;
        for round in 0..2 {
            if queue.offer([round * 10].into_iter()) == Offered::Parked {
                wakes += 1;
                thread.thread().unpark();
            }
            assert_eq!(collected(&queue), [round * 10 + 1]);
        }
        assert!(wakes <= 2, "at most one wake-up per offer");
        thread.join().unwrap();
    });
}

/// The coordinator and a stealing thread both claim from a queue, over two offers: every item is
/// completed once, also if the thread loaded the state of the first offer before the second.
#[test]
fn an_item_claimed_by_two_threads_is_completed_once() {
    check(|| {
        let queue = Arc::new(Queue::new(2));
        let theirs = queue.clone();
        let thief = thread::spawn(move || {
            for _ in 0..2 {
                if let Some((place, value)) = theirs.claim() {
                    theirs.complete(place, value + 1);
                }
            }
        });
        for round in [0, 10] {
            let _awake = queue.offer([round, round + 1].into_iter());
            while let Some((place, value)) = queue.claim() {
                queue.complete(place, value + 1);
            }
            assert_eq!(collected(&queue), [round + 1, round + 2]);
        }
        thief.join().unwrap();
    });
}

/// Set in the child process that runs the planted bug.
const PLANTED: &str = "WAVELOCK_PLANTED_DROPPED_WAKE";

/// The planted bug: a coordinator that never unparks a worker. The checker must find the
/// interleaving that hangs, which ends its process; so it runs in a child process.
#[test]
fn a_lost_unpark_is_found() {
    if std::env::var_os(PLANTED).is_some() {
        check(|| {
            let queue = Arc::new(Queue::new(1));
            let theirs = queue.clone();
            let thread = thread::spawn(move || worker(&theirs, 1));
            let _forgotten = queue.offer([1].into_iter());
            thread.join().unwrap();
        });
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_lost_unpark_is_found", "--nocapture"])
        .env(PLANTED, "1")
        .output()
        .unwrap();
    assert!(!child.status.success(), "without the wake-up some interleaving must hang");
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(said.contains("deadlock"), "the checker names what it found: {said}");
}
