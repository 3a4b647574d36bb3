//! Forwards, backwards and to any place: always the same run, with snapshots in the file and without.

mod kit;

use kit::{machine, record, record_with};
use std::io::Cursor;
use wavelock_replay::{Happened, Level, Position, Timeline};
use wavelock_trace::Event;

fn open(bytes: &[u8]) -> Timeline<Cursor<Vec<u8>>> {
    Timeline::open(Cursor::new(bytes.to_vec())).unwrap()
}

/// Every place of a run, by walking.
fn walk(bytes: &[u8]) -> Vec<(Position, Vec<Happened>)> {
    let mut timeline = open(bytes);
    let mut walked = vec![(timeline.position(), Vec::new())];
    while timeline.step_forward().unwrap() {
        walked.push((timeline.position(), timeline.happened().to_vec()));
    }
    assert!(timeline.is_over() && !timeline.step_forward().unwrap());
    walked
}

fn traces() -> Vec<Vec<u8>> {
    let (plain, _, digest) = record(&machine(), Level::Full, None);
    let with = |every, level| record_with(&machine(), level, None, Some(every));
    let (often, _, same) = with(1, Level::Full);
    let (seldom, _, also) = with(7, Level::Inputs);
    assert!(digest == same && digest == also, "snapshots change nothing about a run");
    vec![plain, often, seldom]
}

#[test]
fn a_place_is_the_same_however_it_is_reached() {
    let traces = traces();
    let walked = walk(&traces[0]);
    let last = walked.len() as u64 - 1;
    assert!(last > 100);
    for (number, (position, happened)) in walked.iter().enumerate().skip(1) {
        assert_eq!(position.step, number as u64);
        let step = happened.last().unwrap();
        assert!(step.lane.is_some() && step.events().any(|event| matches!(event, Ok(Event::Step { .. }))));
    }
    for bytes in traces {
        let mut timeline = open(&bytes);
        for step in [last, 1, last / 2, last / 2 + 1, 7, last / 3, 0, last - 1, 2, 1] {
            let found = timeline.seek_step(step).unwrap();
            assert_eq!((found, timeline.happened()), (walked[step as usize].0, walked[step as usize].1.as_slice()), "step {step}");
        }
        timeline.seek_step(last / 2).unwrap();
        for back in 1..=last / 2 {
            assert!(timeline.step_back().unwrap());
            let expected = &walked[(last / 2 - back) as usize];
            assert_eq!((timeline.position(), timeline.happened()), (expected.0, expected.1.as_slice()));
        }
        assert!(!timeline.step_back().unwrap());
        for frame in [20, 5, 30, 0, 1] {
            let found = timeline.seek_frame(frame).unwrap();
            assert!(found.frame >= frame);
            let first = walked.iter().skip(1).position(|(position, _)| position.frame >= frame).unwrap();
            assert_eq!(found.step, first as u64, "frame {frame}");
        }
        timeline.seek_frame(1_000_000).unwrap();
        assert!(timeline.is_over());
    }
}

#[test]
fn what_is_seen_on_the_way_back_is_what_was_seen_on_the_way_there() {
    let sends = |timeline: &Timeline<Cursor<Vec<u8>>>| {
        timeline.happened().iter().flat_map(Happened::events).any(|event| matches!(event, Ok(Event::Send { .. })))
    };
    for bytes in traces() {
        let mut timeline = open(&bytes);
        let mut there = Vec::new();
        while timeline.forward_until(sends).unwrap() {
            there.push(timeline.position());
        }
        assert!(there.len() > 50);
        let mut back = Vec::new();
        while timeline.back_until(sends).unwrap() {
            back.push(timeline.position());
        }
        back.reverse();
        assert_eq!(there, back);
        assert_eq!(timeline.position().step, 0);
    }
}

#[test]
fn states_on_the_way_are_the_states_of_the_run() {
    let traces = traces();
    let state = |timeline: &mut Timeline<Cursor<Vec<u8>>>, frame| {
        timeline.seek_frame(frame).unwrap();
        timeline.world().save().unwrap()
    };
    let (mut plain, mut often, mut seldom) = (open(&traces[0]), open(&traces[1]), open(&traces[2]));
    assert!(often.archive().snapshot_count() > 30 && seldom.archive().snapshot_count() > 3);
    for frame in [30, 3, 21, 22, 14, 15, 1] {
        let expected = state(&mut plain, frame);
        assert!(state(&mut often, frame) == expected && state(&mut seldom, frame) == expected, "frame {frame}");
    }
}
