//! A timeline forwards, backwards and to any position is always the same run, with and without
//! snapshots in the file.

mod kit;

use kit::{machine, record, record_with};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::sync::Arc;
use wavelock_module::{Limits, Module};
use wavelock_replay::{Archive, Happened, Level, Position, RecordedMachine, Timeline};
use wavelock_system::MachineSpec;
use wavelock_trace::Event;

fn open(bytes: &[u8]) -> Timeline<Cursor<Vec<u8>>> {
    Timeline::open(Cursor::new(bytes.to_vec())).unwrap()
}

/// Every position of a run, by single steps.
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
fn a_position_has_the_same_state_however_it_is_reached() {
    let traces = traces();
    let walked = walk(&traces[0]);
    let last = walked.len() as u64 - 1;
    assert!(last > 100);
    for (number, (position, happened)) in walked.iter().enumerate().skip(1) {
        assert_eq!(position.step, number as u64);
        let step = happened.last().unwrap();
        assert!(
            step.lane.is_some()
                && step.events().any(|event| matches!(event, Ok(Event::Step { .. })))
        );
    }
    for bytes in traces {
        let mut timeline = open(&bytes);
        for step in [last, 1, last / 2, last / 2 + 1, 7, last / 3, 0, last - 1, 2, 1] {
            let found = timeline.seek_step(step).unwrap();
            assert_eq!(
                (found, timeline.happened()),
                (walked[step as usize].0, walked[step as usize].1.as_slice()),
                "step {step}"
            );
        }
        timeline.seek_step(last / 2).unwrap();
        for back in 1..=last / 2 {
            assert!(timeline.step_back().unwrap());
            let expected = &walked[(last / 2 - back) as usize];
            assert_eq!(
                (timeline.position(), timeline.happened()),
                (expected.0, expected.1.as_slice())
            );
        }
        assert!(!timeline.step_back().unwrap());
        for frame in [20, 5, 30, 0, 1] {
            let found = timeline.seek_frame(frame).unwrap();
            assert!(found.frame >= frame);
            let first =
                walked.iter().skip(1).position(|(position, _)| position.frame >= frame).unwrap();
            assert_eq!(found.step, first as u64, "frame {frame}");
        }
        timeline.seek_frame(1_000_000).unwrap();
        assert!(timeline.is_over());
    }
}

#[test]
fn events_are_the_same_backwards_and_forwards() {
    let sends = |timeline: &Timeline<Cursor<Vec<u8>>>| {
        timeline
            .happened()
            .iter()
            .flat_map(Happened::events)
            .any(|event| matches!(event, Ok(Event::Send { .. })))
    };
    for bytes in traces() {
        let mut timeline = open(&bytes);
        let mut there = Vec::new();
        while timeline.forward_until(sends).unwrap() {
            there.push(timeline.position());
        }
        assert!(there.len() > 50);
        // At the end, `happened` has the events after the last step: make that step again.
        timeline.seek_step(timeline.position().step).unwrap();
        let mut back = Vec::new();
        loop {
            if sends(&timeline) {
                back.push(timeline.position());
            }
            if !timeline.step_back().unwrap() {
                break;
            }
        }
        back.reverse();
        assert_eq!(there, back);
        assert_eq!(timeline.position().step, 0);
    }
}

#[test]
fn states_at_boundaries_are_those_of_the_run() {
    let traces = traces();
    let state = |timeline: &mut Timeline<Cursor<Vec<u8>>>, frame| {
        timeline.seek_frame(frame).unwrap();
        timeline.world().save().unwrap()
    };
    let (mut plain, mut often, mut seldom) = (open(&traces[0]), open(&traces[1]), open(&traces[2]));
    assert!(often.archive().snapshot_count() > 30 && seldom.archive().snapshot_count() > 3);
    for frame in [30, 3, 21, 22, 14, 15, 1] {
        let expected = state(&mut plain, frame);
        assert!(
            state(&mut often, frame) == expected && state(&mut seldom, frame) == expected,
            "frame {frame}"
        );
    }
}

/// Fills 2 MiB, then writes to scattered pages, zeroing some of them again, and yields.
fn scattering() -> RecordedMachine {
    let module = kit::wat(
        r#"(module (import "wavelock" "yield" (func $yield)) (memory 32)
            (func (export "_start") (local $at i32) (local $x i64)
                (loop $fill
                    (i64.store (local.get $at) (i64.add (i64.extend_i32_u (local.get $at)) (i64.const 1)))
                    (br_if $fill (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 4096))) (i32.const 0x180000))))
                (local.set $at (i32.const 0))
                (loop $again
                    (i64.store (i32.and (local.get $at) (i32.const 0x1ff000)) (local.get $x))
                    (memory.fill (i32.and (i32.mul (local.get $at) (i32.const 7)) (i32.const 0x1ff000)) (i32.const 0) (i32.const 4096))
                    (local.set $x (i64.add (local.get $x) (i64.const 1)))
                    (local.set $at (i32.add (local.get $at) (i32.const 0x9000)))
                    (call $yield)
                    (br $again))))"#,
    );
    let mut spec = MachineSpec {
        max_frames: Some(24),
        frame_cycles: wavelock_abi::Cycles(60_000),
        ..MachineSpec::new()
    };
    let number =
        spec.add_module(Arc::new(Module::new(&module, &Limits::default()).unwrap()), &module);
    spec.add_session("scatter", number);
    RecordedMachine { spec, modules: vec![module], inputs: Vec::new() }
}

/// An anchor takes pages from itself, from the file and from the current world; the resulting state
/// is the same.
#[test]
fn states_after_steps_back_are_those_of_the_run() {
    let machine = scattering();
    let (plain, ..) = record(&machine, Level::Inputs, None);
    let (with, ..) = record_with(&machine, Level::Inputs, None, Some(6));
    let state = |timeline: &Timeline<Cursor<Vec<u8>>>| {
        let memories = timeline
            .world()
            .memories()
            .map(|(_, _, memory)| *blake3::hash(memory.bytes()).as_bytes());
        (timeline.position(), memories.collect::<Vec<_>>())
    };
    let mut walker = open(&plain);
    walker.seek_frame(u64::MAX).unwrap();
    let last = walker.position().step;
    assert!(last > 200, "{last} steps");
    let targets = [last / 2, last - 5, last / 4, last / 2 + 30, last / 2 - 30, 60];
    let wanted: BTreeSet<u64> = targets.iter().flat_map(|&target| target - 20..=target).collect();
    walker.seek_step(0).unwrap();
    let mut expected = BTreeMap::new();
    while walker.step_forward().unwrap() {
        if wanted.contains(&walker.position().step) {
            expected.insert(walker.position().step, state(&walker));
        }
    }
    for bytes in [plain, with] {
        let mut timeline = open(&bytes);
        for target in targets {
            timeline.seek_step(target).unwrap();
            for back in 0..20 {
                assert_eq!(
                    state(&timeline),
                    expected[&(target - back)],
                    "step {target} and {back} back"
                );
                assert!(timeline.step_back().unwrap());
            }
        }
    }
}

/// A seek checks what it reads: a changed byte in any chunk of pages is reported by the seek that
/// needs the chunk.
#[test]
fn a_damaged_page_is_refused_by_the_seek_that_needs_it() {
    let (bytes, ..) = record_with(&scattering(), Level::Inputs, None, Some(4));
    let mut at = wavelock_trace::FILE_HEAD;
    let mut tried = 0;
    while at < bytes.len() {
        let length = u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + 12 + byte])) as usize;
        let (kind, end) = (bytes[at + 4], at + wavelock_trace::CHUNK_HEAD + length);
        if kind == wavelock_trace::ChunkKind::Pages as u8 {
            let mut damaged = bytes.clone();
            damaged[end - 1 - length / 3] ^= 0x20;
            let mut archive = Archive::open(Cursor::new(damaged)).unwrap();
            let results: Vec<_> = (0..archive.snapshot_count())
                .map(|number| archive.restore(number, false).err())
                .collect();
            let refused: Vec<String> =
                results.into_iter().flatten().map(|error| error.to_string()).collect();
            assert!(!refused.is_empty(), "the chunk at {at} belongs to some snapshot");
            assert!(refused.iter().all(|words| words.contains("chunk")), "{refused:?}");
            tried += 1;
        }
        at = end;
    }
    assert!(tried > 3, "{tried} chunks of pages");
}
