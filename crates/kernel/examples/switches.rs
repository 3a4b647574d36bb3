//! Yields and nothing else, to count their instructions: docs/performance/fair.md has the figures.
//!
//! `switches POLICY COROUTINES YIELDS SESSIONS`, with `round-robin`, `coroutine` or `session` (who
//! shares the lane under `fair`) as policy. The instructions of a yield are the difference of two
//! runs under `valgrind --tool=callgrind`, divided by the difference of their yields.

use wavelock_abi::{Cycles, LaneId, SCHEDULER_COSTS_V1};
use wavelock_kernel::{
    Departure, FairSettings, Lane, LaneSettings, Next, Outcome, Policy, Reservation, Sharing, Span,
    Spawn, Tag,
};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, policy, numbers @ ..] = &arguments[..] else { panic!("a policy") };
    let numbers: Vec<u64> = numbers.iter().map(|text| text.parse().expect("a number")).collect();
    let [coroutines, yields, sessions] = numbers[..] else { panic!("three numbers") };
    let quantum = Cycles(10_000);
    let fair = FairSettings::new(quantum, Cycles(1_000), Cycles(1_000_000)).expect("in range");
    let policy = match Sharing::ALL.iter().find(|sharing| sharing.name() == policy) {
        Some(&sharing) => Policy::Fair(fair.shared_by(sharing)),
        None => Policy::RoundRobin { quantum },
    };
    let (costs, frame_cycles) = (SCHEDULER_COSTS_V1, Cycles(1 << 50));
    let mut lane =
        Lane::new(LaneId(0), LaneSettings { policy, frame_cycles, costs, handoff: false });
    let room = Reservation { coroutines: coroutines as u32, sessions: sessions as u32 };
    lane.reserve(room).expect("memory");
    for slot in 0..coroutines {
        let tag = Tag::new((slot % sessions) as u32, slot as u32);
        lane.spawn(Spawn::new(tag)).expect("room");
    }
    lane.begin_wave(Span::Until(Cycles(1 << 49)));
    let Next::Run(running) = lane.dispatch() else { panic!("one is ready") };
    let (mut token, mut bound) = (Some(running), Cycles::ZERO);
    for _ in 0..yields {
        match lane.switch(Cycles(30), Departure::Yield) {
            Some(began) => (token, bound) = (None, began.bound),
            None => {
                let running = token.take().unwrap_or_else(|| lane.token(bound));
                let _ = lane.stop(running, Cycles(30), Outcome::Yielded);
                let Next::Run(running) = lane.dispatch() else { panic!("one is ready") };
                token = Some(running);
            }
        }
    }
    println!("{} steps", lane.step());
}
