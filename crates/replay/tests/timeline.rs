//! Forwards, backwards and to any place: always the same run.

mod kit;

use kit::{machine, record};
use std::io::Cursor;
use wavelock_replay::{Level, Timeline};
use wavelock_trace::Event;

/// Every step's events by walking, then the same by seeking to places out of order.
#[test]
fn a_place_is_the_same_however_it_is_reached() {
    let (bytes, _, digest) = record(&machine(), Level::Full, None);
    let mut timeline = Timeline::open(Cursor::new(bytes)).unwrap();
    let mut walked = vec![(timeline.position(), Vec::new())];
    while timeline.step_forward().unwrap() {
        walked.push((timeline.position(), timeline.happened().to_vec()));
    }
    assert!(timeline.is_over());
    assert_eq!(timeline.world().digest(), digest);
    let last = walked.len() as u64 - 1;
    assert!(last > 100);
    for (number, (position, happened)) in walked.iter().enumerate().skip(1) {
        assert_eq!(position.step, number as u64);
        let step = happened.last().unwrap();
        assert!(step.lane.is_some() && step.events().any(|event| matches!(event, Ok(Event::Step { .. }))));
    }
    for step in [last, 1, last / 2, last / 2 + 1, 7, last / 3, 0, last - 1] {
        let found = timeline.seek_step(step).unwrap();
        assert_eq!((found, timeline.happened()), (walked[step as usize].0, walked[step as usize].1.as_slice()), "step {step}");
    }
    timeline.seek_step(last / 2).unwrap();
    for back in 1..20 {
        assert!(timeline.step_back().unwrap());
        assert_eq!(timeline.position(), walked[(last / 2 - back) as usize].0);
    }
    for frame in [20, 5, 30, 0, 1] {
        let found = timeline.seek_frame(frame).unwrap();
        assert!(found.frame >= frame);
        let first = walked.iter().skip(1).position(|(position, _)| position.frame >= frame).unwrap();
        assert_eq!(found.step, first as u64, "frame {frame}");
    }
    timeline.seek_frame(1_000_000).unwrap();
    assert!(timeline.is_over());
    assert!(!timeline.step_forward().unwrap());
}
