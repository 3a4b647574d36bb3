//! After a reservation no pick, charge, wake, requeue, sleep, hold, migration, steal or exit
//! allocates: a counting allocator watches.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use support::lane_set::{Effect, Steal, WaveSpan};
use support::{Random, lanes, policies};
use wavelock_abi::{ContextRef, Cycles, Frame, LaneId, Priority};
use wavelock_kernel::{
    BlockReason, ContextEventKind, ContextParameters, ContextSettings, HoldReason, Next, Outcome,
    OverrunPolicy, Share, Spawn, Tag, WakeSource,
};

struct Counting;

thread_local! {
    static COUNT: Cell<Option<u64>> = const { Cell::new(None) };
}

fn note() {
    let _ = COUNT.try_with(|count| count.set(count.get().map(|counted| counted + 1)));
}

// SAFETY: every call goes to the system allocator unchanged; counting touches only a thread-local
// cell.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations made by `work` on this thread.
fn allocations(work: impl FnOnce()) -> u64 {
    COUNT.with(|count| count.set(Some(0)));
    work();
    COUNT.with(|count| count.take()).expect("it was set above")
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1u64)))) >= 1);
}

#[test]
fn nothing_allocates_after_the_reservation() {
    for (name, policy) in policies() {
        let mut set = lanes(3, policy);
        let mut random = Random(1);
        let mut steals = 0;
        let counted = allocations(|| {
            for wave in 0..400u64 {
                if wave % 10 == 0 {
                    for slot in 0..30 {
                        let spawn = Spawn {
                            priority: Priority(slot as u8 * 8),
                            ..Spawn::new(Tag::new(slot % 7, slot))
                        };
                        let _ = set[LaneId(random.below(2) as u16)].spawn(spawn);
                    }
                }
                set.begin_wave(WaveSpan::Cycles(Cycles(20_000)));
                for id in (0..3).map(LaneId) {
                    while let Next::Run(running) = set[id].dispatch() {
                        let reference = running.reference();
                        let other = wavelock_abi::CoroutineRef::new(
                            random.below(60) as u32,
                            random.below(4) as u32,
                        );
                        let drawn = random.below(10);
                        let lane = &mut set[id];
                        match drawn {
                            0 => drop(lane.wake(other, WakeSource::SessionEnd)),
                            1 => drop(lane.hold(other, HoldReason::Operator)),
                            2 => drop(lane.release(other, HoldReason::Operator)),
                            3 => drop(lane.set_priority(other, Priority(random.below(256) as u8))),
                            4 => {
                                let source = WakeSource::SessionEnd;
                                set.post(id, LaneId(0), Effect::Wake { target: other, source });
                            }
                            5 => drop(lane.prefer(other)),
                            6 => drop(lane.set_share(other, Share::default())),
                            _ => {}
                        }
                        let lane = &mut set[id];
                        let outcome = match random.below(8) {
                            0 => Outcome::Blocked(BlockReason::Select),
                            1 => Outcome::Slept(Frame(lane.frame().0 + 1 + random.below(300))),
                            2 => Outcome::Finished,
                            3 => Outcome::OutOfCycles,
                            _ => Outcome::Yielded,
                        };
                        lane.stop(running, Cycles(random.below(3_000)), outcome);
                        if outcome == Outcome::Finished {
                            lane.reap(reference).unwrap();
                        }
                    }
                }
                set.end_wave(|_, _| ());
                for thief in 0..3 {
                    steals += u32::from(matches!(
                        set.steal(LaneId(thief), |_| None, |_, _| ()),
                        Ok(Steal::Won { .. })
                    ));
                }
                let clock = set[LaneId(0)].clock();
                if clock >= set[LaneId(0)].frame_end() {
                    set.end_frame(|_| ());
                    let frame = set[LaneId(0)].frame();
                    set.begin_frame(Frame(frame.0 + 1));
                }
                if wave % 50 == 49 {
                    for lane in 0..3 {
                        set[LaneId(lane)].end_session(random.below(7) as u32, |_, _| ()).unwrap();
                    }
                }
            }
        });
        assert_eq!(counted, 0, "{name}");
        assert!(steals > 0, "{name}: the run stole");
        set.iter().for_each(support::checked);
    }
}

#[test]
fn contexts_allocate_nothing_either() {
    for (name, policy) in policies() {
        let mut set = lanes(1, policy);
        let lane = &mut set[LaneId(0)];
        lane.reserve_contexts(ContextSettings { gap: Cycles(50), wave: None }, 40).unwrap();
        let coroutines: Vec<_> =
            (0..40).map(|slot| lane.spawn(Spawn::new(Tag::new(slot % 4, slot))).unwrap()).collect();
        let mut random = Random(3);
        let (mut refused, mut loans, mut returned, mut throttled) = (0, 0, 0, 0);
        let mut last = None;
        let counted = allocations(|| {
            for round in 0..300u64 {
                lane.begin_wave(wavelock_kernel::Span::Until(lane.clock() + Cycles(20_000)));
                for _ in 0..20 {
                    let target = coroutines[random.below(40) as usize];
                    let other = coroutines[random.below(40) as usize];
                    let context = ContextRef::new(random.below(40) as u32, random.below(4) as u32);
                    let overrun = OverrunPolicy::ALL[random.below(5) as usize];
                    let parameters = ContextParameters {
                        overrun,
                        owner: random.below(4) as u32,
                        ..ContextParameters::new(Cycles(200), Cycles(9_000))
                    };
                    match random.below(10) {
                        0 => refused += u32::from(lane.create_context(parameters).is_err()),
                        1 | 2 => drop(lane.bind_context(context, target)),
                        3 => drop(lane.unbind_context(context)),
                        4 => drop(lane.configure_context(context, parameters)),
                        5 => {
                            let lent = lane.lend_context(target, other, Cycles::ZERO).ok();
                            loans += u32::from(lent.is_some());
                            last = lent.or(last);
                        }
                        8 => {
                            returned +=
                                u32::from(last.take().is_some_and(|loan| {
                                    lane.return_loan(loan, Cycles::ZERO).is_ok()
                                }))
                        }
                        9 if round == 299 => drop(lane.cancel(target)),
                        6 if round % 8 == 0 => drop(lane.revoke_context(context, |_| ())),
                        7 => drop(lane.wake(target, WakeSource::SessionEnd)),
                        _ => {}
                    }
                }
                if round % 50 == 49 {
                    lane.revoke_contexts_of(random.below(4) as u32, |_| ());
                }
                while let Next::Run(running) = lane.dispatch() {
                    let used =
                        Cycles(running.bound().0.min(random.below(2_000)) + random.below(50));
                    let _ = random.below(9) == 0 && lane.yield_context();
                    let outcome = match random.below(8) {
                        0 => Outcome::Blocked(BlockReason::Select),
                        1 => Outcome::Slept(Frame(lane.frame().0 + 1)),
                        2 | 3 => Outcome::Yielded,
                        _ => Outcome::OutOfCycles,
                    };
                    lane.stop(running, used, outcome);
                    lane.drain_context_events(|event| {
                        throttled +=
                            u32::from(matches!(event.kind, ContextEventKind::Throttled { .. }))
                    });
                }
                lane.align(lane.clock() + Cycles(500));
                if lane.clock() >= lane.frame_end() {
                    let _ = lane.end_frame();
                    let frame = lane.frame();
                    lane.begin_frame(Frame(frame.0 + 1));
                }
            }
        });
        assert_eq!(counted, 0, "{name}");
        assert!(
            refused > 0 && loans > 10 && returned > 5 && throttled > 5,
            "{name}: {refused}, {loans}, {returned}, {throttled}"
        );
        support::checked(lane);
    }
}
