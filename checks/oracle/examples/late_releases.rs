//! Admitted contexts that miss deadlines: a defect of the admission test that the proof of
//! `proof/Admission.v` found.
//!
//! The test counts the cost of a release only for contexts whose deadline lies in the interval. The
//! dispatcher books it at every release, before anything runs. So a context with a short deadline
//! is late when many with long ones are released together. Prints the misses by the number of
//! those; a sound test refuses the sets or nothing is missed.

use wavelock_abi::{Cycles, LaneId, SCHEDULER_COSTS_V1};
use wavelock_kernel::{
    Activation, ContextEventKind, ContextParameters, ContextSettings, Lane, LaneSettings, Next,
    Outcome, Policy, Reservation, Span, Spawn, Tag,
};

const OTHERS: [u32; 5] = [0, 10, 50, 100, 200];

/// Misses of a context that needs 2,000 of 2,260 cycles, beside `others` with long periods; `None`
/// if one was refused. Every slice stops exactly at its bound.
fn misses(others: u32) -> Option<u32> {
    let mut lane = Lane::new(
        LaneId(0),
        LaneSettings {
            policy: Policy::RoundRobin { quantum: Cycles(10_000) },
            frame_cycles: Cycles(1_000_000),
            costs: SCHEDULER_COSTS_V1,
            handoff: false,
        },
    );
    lane.reserve(Reservation { coroutines: 300, sessions: 300 }).expect("memory");
    lane.reserve_contexts(ContextSettings::new(Cycles(50)), 256).expect("memory");
    lane.begin_wave(Span::Until(Cycles::MAX));
    lane.spawn(Spawn::new(Tag::new(299, 0))).expect("room");
    let short = ContextParameters {
        deadline: Cycles(2_260),
        ..ContextParameters::new(Cycles(2_000), Cycles(20_000))
    };
    let mut bound = Vec::new();
    for session in 0..=others {
        let long = ContextParameters::new(Cycles(148), Cycles(100_000));
        let parameters = if session == 0 { short } else { long };
        let parameters = ContextParameters { activation: Activation::Sporadic, ..parameters };
        let context = lane.create_context(parameters).ok()?;
        let holder = lane.spawn(Spawn::new(Tag::new(session, 0))).expect("room");
        bound.push((context, holder));
    }
    for (context, holder) in bound {
        lane.bind_context(context, holder).expect("free");
    }
    let mut missed = 0;
    while lane.clock() < Cycles(900_000) {
        if let Next::Run(running) = lane.dispatch() {
            let used = running.bound();
            lane.stop(running, used, Outcome::OutOfCycles);
        }
        lane.drain_context_events(|event| {
            missed += u32::from(matches!(event.kind, ContextEventKind::Missed { .. }));
        });
    }
    Some(missed)
}

fn main() {
    for others in OTHERS {
        match misses(others) {
            Some(missed) => println!("{others} others: admitted, {missed} deadlines missed"),
            None => println!("{others} others: refused"),
        }
    }
}
