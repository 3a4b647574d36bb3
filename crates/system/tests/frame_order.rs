//! The frame loop against semantics 20 to 25, 32 and 33, asserted from the events and rows it
//! emits.
//!
//! The checkers are in `kit/laws.rs`; here they are shown to hold, and to fail on logs and totals
//! that are wrong.

mod kit;

use kit::laws::{conserved, frame_order};
use kit::{FrameLog, Machine, Run};
use wavelock_abi::{Cycles, SCHEDULER_COSTS_V1};
use wavelock_kernel::Policy;
use wavelock_system::{LoadError, RunOutcome, Span};
use wavelock_trace::{Event, EventWriter, StopCode};

fn check(run: &Run) {
    run.sink
        .frames
        .iter()
        .for_each(|frame| frame_order(frame).unwrap_or_else(|problem| panic!("{problem}")));
}

const READER: &str = r#"(func (export "_start")
  (i32.store (i32.const 0) (i32.const 32)) (i32.store (i32.const 4) (i32.const 64))
  (loop $more
    (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 16)))
    (call $out (call $frame))
    (br_if $more (i32.load (i32.const 16)))))"#;

/// Sleepers, a reader of a stream, loops over several waves, and messages between lanes.
fn busy() -> Machine {
    let sender = r#"(data (i32.const 0) "in")
    (func (export "_start") (local $i i64)
      (loop $l
        (drop (call $send (call $port (i32.const 0) (i32.const 2)) (local.get $i)))
        (local.set $i (i64.add (local.get $i) (i64.const 1)))
        (if (i64.eqz (i64.rem_s (local.get $i) (i64.const 7))) (then (call $sleep (i64.const 1))))
        (br_if $l (i64.lt_s (local.get $i) (i64.const 40)))))"#;
    let owner = r#"(data (i32.const 0) "in")
    (func (export "_start") (local $k i32)
      (loop $l
        (local.set $k (i32.const 3000)) (loop $spin (br_if $spin (local.tee $k (i32.sub (local.get $k) (i32.const 1)))))
        (br_if $l (i32.eqz (call $recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))))
      (call $out (i64.load (i32.const 8))))"#;
    let mut machine = Machine::lanes(3);
    let owner = machine.session("owner", owner);
    let reader = machine.session("reader", READER);
    let senders =
        [machine.session("a", sender), machine.session("b", sender), machine.session("c", sender)];
    machine.wire("in", owner, 4, &senders);
    machine.times(60_000, 17_000, 5_000);
    machine
        .input(2, reader, b"one")
        .input(2, reader, b"two")
        .input(5, reader, b"three")
        .input(90, reader, b"late");
    machine
}

#[test]
fn frames_are_sampled_delivered_run_and_synchronised() {
    let run = busy().run();
    assert_eq!(run.outcome, RunOutcome::Finished);
    assert_eq!(run.numbers(1), [2, 5, 90, 90], "each event is seen in its frame");
    check(&run);
    let lane = run.events(1);
    let (sample, wake) =
        (lane.iter().filter(|event| event.contains("source: 2")).count(), run.boundary());
    assert_eq!(
        (sample, wake.iter().filter(|event| event.starts_with("Sample")).count()),
        (3, 4),
        "two events of one frame are one wake"
    );
    assert!(
        run.events(0).iter().any(|event| event.starts_with("Arrival"))
            && lane.iter().any(|event| event.starts_with("Timers"))
    );
}

#[test]
fn the_order_check_can_fail() {
    let encode = |events: &[Event<'_>]| {
        let mut bytes = Vec::new();
        events.iter().for_each(|event| EventWriter(&mut bytes).event(event));
        bytes
    };
    let (start, sample, sync) = (
        Event::FrameStart { frame: 4 },
        Event::Sample { session: 0, bytes: b"x" },
        Event::FrameSync { frame: 4 },
    );
    let (wave, timers) = (Event::Wave { clock: 0 }, Event::Timers { woken: 1 });
    let step = Event::Step { session: 0, slot: 0, overhead: 36, used: 1, stop: StopCode::Yielded };
    let log = |boundary: &[Event<'_>], lane: &[Event<'_>]| {
        frame_order(&FrameLog { frame: 4, boundary: encode(boundary), lanes: vec![encode(lane)] })
    };
    assert_eq!(log(&[start, sample, sync], &[timers, wave, step]), Ok(()));
    assert!(log(&[sample, start, sync], &[timers, wave, step]).is_err(), "input before the frame");
    assert!(log(&[start, sync, sample], &[timers, wave, step]).is_err(), "input after the frame");
    assert!(log(&[start, sample], &[timers, wave, step]).is_err(), "no FRAME_SYNC");
    assert!(
        log(&[start, Event::FrameSync { frame: 3 }], &[]).is_err(),
        "another frame's FRAME_SYNC"
    );
    assert!(log(&[start, sync], &[wave, step, timers]).is_err(), "sleepers wake late");
    assert!(log(&[start, sync], &[step, wave]).is_err(), "a step outside any wave");
}

#[test]
fn sleepers_wake_by_frame_then_arrival() {
    // Children sleep 3, 1, 2, 1, 3, 2 frames in this order; two more begin to sleep a frame later.
    let body = r#"
    (func $child (param i64) (call $sleep (i64.and (local.get 0) (i64.const 15))) (call $out (i64.shr_u (local.get 0) (i64.const 4))))
    (elem (i32.const 0) $child)
    (func $go (param i64) (drop (call $spawn (i32.const 0) (local.get 0))))
    (func (export "_start")
      (call $go (i64.const 0x13)) (call $go (i64.const 0x21)) (call $go (i64.const 0x32)) (call $go (i64.const 0x41)) (call $go (i64.const 0x53))
      (call $go (i64.const 0x62)) (call $sleep (i64.const 1)) (call $go (i64.const 0x71)) (call $go (i64.const 0x82)))"#;
    assert_eq!(kit::numbers(body), [2, 4, 3, 6, 7, 1, 5, 8]);
}

#[test]
fn a_jump_is_one_event_and_counts_its_frames() {
    let body =
        r#"(func (export "_start") (call $sleep (i64.const 1000)) (call $out (call $frame)))"#;
    let mut machine = Machine::lanes(2);
    machine.session("a", body);
    machine.session("b", body);
    let run = machine.run();
    check(&run);
    let jumps: Vec<String> =
        run.boundary().into_iter().filter(|event| event.starts_with("Jump")).collect();
    assert_eq!(jumps, ["Jump { from: 0, to: 1000 }"]);
    assert_eq!((run.summary.frames, run.sink.frames.len(), run.numbers(0)), (1001, 2, vec![1000]));
    for frames in [1, 2, 500, 999, 1000] {
        machine.spec.max_frames = Some(frames);
        let run = machine.run();
        assert_eq!((run.outcome, run.summary.frames), (RunOutcome::Frames, frames));
        assert_eq!(
            run.summary.cycles.total(),
            2 * frames * machine.spec.frame_cycles.0,
            "every frame counts, jumped ones as idle"
        );
        assert_eq!(run.numbers(0), []);
    }
    machine.spec.max_frames = Some(1001);
    assert_eq!(machine.run().outcome, RunOutcome::Finished);
}

#[test]
fn jumps_go_to_input_too_and_a_sleeper_before_it_is_not_passed() {
    let body = r#"(func (export "_start") (call $sleep (i64.const 50)) (call $out (call $frame)) (call $sleep (i64.const 50))
      (call $out32 (call $input (i32.const 0) (i32.const 8))))"#;
    let mut machine = Machine::one(body);
    machine.input(70, wavelock_abi::SessionId(0), b"missed").input(
        100,
        wavelock_abi::SessionId(0),
        b"got",
    );
    let run = machine.run();
    let jumps: Vec<String> = run
        .boundary()
        .into_iter()
        .filter(|event| event.starts_with("Jump") || event.starts_with("Dropped"))
        .collect();
    let expected = [
        "Jump { from: 0, to: 50 }",
        "Jump { from: 50, to: 70 }",
        "Dropped { session: 0, events: 1 }",
        "Jump { from: 70, to: 100 }",
    ];
    assert_eq!((jumps, run.numbers(0)), (expected.map(String::from).to_vec(), vec![50, 3]));
}

#[test]
fn input_is_seen_only_from_its_frames_start() {
    // It looks without end; what it sees first must be in frame 3, at once.
    let body = r#"(func (export "_start")
      (loop $l (call $yield) (br_if $l (i32.eqz (call $input (i32.const 0) (i32.const 8)))))
      (call $out (call $frame)) (call $out32 (i64.gt_s (call $remaining) (i64.const 19000))))"#;
    let mut machine = Machine::one(body);
    machine.times(20_000, 9_000, 3_000).input(3, wavelock_abi::SessionId(0), b"x");
    let run = machine.run();
    check(&run);
    assert_eq!(run.numbers(0), [3, 1]);
}

#[test]
fn output_leaves_at_the_frames_end_in_manifest_order() {
    let mut machine = Machine::lanes(2);
    let slow = machine.session(
        "slow",
        r#"(func (export "_start") (local $i i32) (local.set $i (i32.const 3000))
      (loop $l (br_if $l (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
      (call $out (i64.const 1)) (call $out (i64.const 2)) (call $sleep (i64.const 1)) (call $out (i64.const 3)))"#,
    );
    machine.session("quick", r#"(func (export "_start") (call $out (i64.const 4)) (call $yield) (call $out (i64.const 5)))"#);
    machine.on(slow, 1);
    let mut world = machine.world(true);
    let mut sink = kit::Collected::default();
    while world.step(&mut sink).expect("the host can go on") {
        assert_eq!(
            sink.output.len(),
            if world.frame().0 == 0 { 0 } else { 2 },
            "nothing leaves inside a frame"
        );
    }
    let order: Vec<(u32, usize)> =
        sink.output.iter().map(|(session, bytes)| (session.0, bytes.len())).collect();
    assert_eq!(order, [(0, 16), (1, 16), (0, 8)]);
}

#[test]
fn every_frame_is_conserved_and_the_totals_are_the_sum() {
    for policy in kit::policies(Cycles(5_000)) {
        let mut machine = busy();
        machine.spec.policy = policy;
        let run = machine.run();
        conserved(&run, &machine).unwrap_or_else(|problem| panic!("{policy:?}: {problem}"));
        machine.spec.max_frames = Some(4);
        let run = machine.run();
        assert_eq!(run.outcome, RunOutcome::Frames);
        conserved(&run, &machine)
            .unwrap_or_else(|problem| panic!("{policy:?} cut at 4: {problem}"));
    }
    let mut broken = busy().run();
    broken.summary.cycles.idle += 1;
    assert!(conserved(&broken, &busy()).is_err(), "the check can fail");
}

#[test]
fn an_overrun_shortens_the_next_frame() {
    let mut machine = Machine::one(r#"(func (export "_start") (loop $l (br $l)))"#);
    machine.times(10_001, 10_001, 10_001);
    machine.spec.max_frames = Some(20);
    let run = machine.run();
    conserved(&run, &machine).unwrap_or_else(|problem| panic!("{problem}"));
    let rows: Vec<_> = run.sink.costs.iter().map(|costs| costs.rows[0]).collect();
    assert!(
        rows.iter().any(|row| row.overrun_out > Cycles::ZERO),
        "an odd frame of even steps runs over"
    );
    let gap = machine.spec.modules[0].code().gap();
    assert!(rows.iter().all(|row| row.overrun_out < gap), "by less than G");
}

/// Why the first slice of an endless loop stopped, with these lengths.
fn first_stop(frame: u64, wave: u64, quantum: u64) -> StopCode {
    let mut machine = Machine::one(r#"(func (export "_start") (loop $l (br $l)))"#);
    machine.times(frame, wave, quantum);
    machine.spec.max_frames = Some(1);
    let run = machine.run();
    let events = run.sink.frames[0].lane(0);
    let stop = events
        .iter()
        .find_map(|event| if let Event::Step { stop, .. } = event { Some(*stop) } else { None });
    stop.expect("a step")
}

#[test]
fn the_least_bound_is_the_reason_and_ties_go_frame_quantum_wave() {
    let first = SCHEDULER_COSTS_V1.pick.0 + SCHEDULER_COSTS_V1.switch.0;
    let at = |cycles: u64| cycles + first;
    assert_eq!(first_stop(50_000, 20_000, 10_000), StopCode::EndOfQuantum);
    assert_eq!(first_stop(50_000, 9_000, 10_000), StopCode::EndOfWave);
    assert_eq!(first_stop(9_000, 20_000, 10_000), StopCode::EndOfFrame);
    assert_eq!(
        first_stop(50_000, at(10_000), 10_000),
        StopCode::EndOfQuantum,
        "quantum before wave"
    );
    assert_eq!(
        first_stop(at(10_000), at(10_000), 10_000),
        StopCode::EndOfFrame,
        "frame before quantum"
    );
    assert_eq!(
        first_stop(at(10_000), at(10_000), 20_000),
        StopCode::EndOfFrame,
        "frame before wave"
    );
    assert_eq!(first_stop(at(10_000), at(10_001), 10_000), StopCode::EndOfFrame);
    assert_eq!(first_stop(at(10_001), at(10_001), 10_000), StopCode::EndOfQuantum);
}

#[test]
fn a_slice_cut_short_by_its_own_wakes_names_the_bound_it_met() {
    // Forty receivers wait; one slice wakes them all, which brings the wave's end nearer than the
    // quantum's.
    let body = r#"
    (func $receives (param i64) (loop $l (br_if $l (i32.eqz (call $recv (i32.const 0) (i32.const 8))))))
    (elem (i32.const 0) $receives)
    (func (export "_start") (local $i i32)
      (drop (call $channel (i32.const 100)))
      (loop $s (drop (call $spawn (i32.const 0) (i64.const 0))) (br_if $s (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 40))))
      (loop $again
        (call $sleep (i64.const 1))
        (local.set $i (i32.const 0))
        (loop $w (drop (call $send (i32.const 0) (i64.const 1))) (br_if $w (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 40))))
        (local.set $i (i32.const 5000)) (loop $spin (br_if $spin (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))
        (br $again)))"#;
    for (frame, wave) in [(60_000, 4_200), (4_200, 4_200)] {
        let mut machine = Machine::one(body);
        machine.times(frame, wave, 4_000);
        machine.spec.max_frames = Some(30);
        let run = machine.run();
        let (mut quantum, mut shortened) = (false, 0);
        for frame in &run.sink.frames {
            for event in frame.lane(0) {
                let Event::Step { overhead, stop, used, .. } = event else { continue };
                assert!(
                    !quantum || overhead >= SCHEDULER_COSTS_V1.pick.0,
                    "after a quantum's end comes a pick"
                );
                quantum = stop == StopCode::EndOfQuantum;
                shortened += u32::from(
                    matches!(stop, StopCode::EndOfWave | StopCode::EndOfFrame)
                        && (3_000..4_000).contains(&used),
                );
            }
        }
        assert!(shortened > 0, "some slices were shortened");
    }
}

#[test]
fn a_boundary_costs_the_running_coroutine_nothing() {
    let body = r#"(func $spin (param i64) (loop $l (br $l))) (elem (i32.const 0) $spin)
    (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 0))) (loop $l (br $l)))"#;
    let mut machine = Machine::one(body);
    machine.times(40_000, 10_000, 35_000);
    machine.spec.max_frames = Some(3);
    let run = machine.run();
    let mut before = None;
    for frame in &run.sink.frames {
        for event in frame.lane(0) {
            let Event::Step { slot, overhead, stop, .. } = event else { continue };
            if let Some((last, StopCode::EndOfWave | StopCode::EndOfFrame)) = before {
                assert_eq!((slot, overhead), (last, 0), "it goes on, without pick or switch");
            }
            before = Some((slot, stop));
        }
    }
    machine.spec.policy = Policy::Cooperative;
    let steps = |run: &Run| -> Vec<u64> {
        let frames = run.sink.frames.iter().flat_map(FrameLog::lane_zero_steps);
        frames.collect()
    };
    assert!(steps(&machine.run()).iter().all(|slot| *slot == 0), "cooperative never preempts");
}

impl FrameLog {
    /// The slots of lane 0's steps.
    fn lane_zero_steps(&self) -> Vec<u64> {
        self.lane(0)
            .iter()
            .filter_map(
                |event| if let Event::Step { slot, .. } = event { Some(*slot) } else { None },
            )
            .collect()
    }
}

#[test]
fn lanes_begin_waves_at_one_clock() {
    let mut machine = Machine::lanes(2);
    machine.session("a", r#"(func (export "_start") (loop $l (br $l)))"#);
    machine.session("b", r#"(func (export "_start") (loop $l (call $yield) (br $l)))"#);
    machine.times(30_000, 9_000, 5_000);
    machine.spec.max_frames = Some(5);
    let run = machine.run();
    let waves = |lane: usize| -> Vec<String> {
        run.events(lane).into_iter().filter(|event| event.starts_with("Wave")).collect()
    };
    assert!(waves(0).len() > 10);
    assert_eq!(waves(0), waves(1));
}

#[test]
fn lengths_too_short_to_enforce_are_refused_with_the_numbers() {
    let machine = Machine::one(r#"(func (export "_start"))"#);
    let gap = machine.spec.modules[0].code().gap();
    let least = Cycles(2 * (gap.0 + SCHEDULER_COSTS_V1.switch.0));
    let short = Cycles(least.0 - 1);
    for key in ["frame_cycles", "wave_cycles", "quantum_cycles"] {
        for (length, refused) in [(short, true), (least, false)] {
            let mut machine = machine.clone();
            match key {
                "frame_cycles" => machine.spec.frame_cycles = length,
                "wave_cycles" => machine.spec.span = Span::Cycles(length),
                _ => machine.spec.policy = Policy::RoundRobin { quantum: length },
            }
            if !refused {
                assert_eq!(machine.run().outcome, RunOutcome::Finished);
                continue;
            }
            let error = machine.refusal();
            assert_eq!(error, LoadError::TooShort { key, found: short, least, gap });
            let text = error.to_string();
            assert!(
                [key, &short.0.to_string(), &least.0.to_string(), &gap.0.to_string()]
                    .iter()
                    .all(|part| text.contains(*part)),
                "{text}"
            );
        }
    }
    let mut picks = machine.clone();
    picks.spec.span = Span::Picks(0);
    assert!(picks.clone().refusal().to_string().contains("wave_picks"));
    picks.spec.span = Span::Picks(1);
    assert_eq!(picks.run().outcome, RunOutcome::Finished);
}
