//! Moves through endless runs, which the progress callback can interrupt, over skipped frames, and
//! inside slices, with their cost.

use std::cell::Cell;
use std::io::Cursor;
use std::rc::Rc;
use std::sync::Arc;
use wavelock_debug::{Debugger, Reply};
use wavelock_module::{Limits, Module};
use wavelock_replay::{Level, RecordedMachine, Timeline};
use wavelock_system::MachineSpec;
use wavelock_trace::{ChunkKind, TraceWriter};

/// Two sessions that yield to each other forever, on one lane.
fn endless() -> Debugger<Cursor<Vec<u8>>> {
    debugger(
        r#"(module (import "wavelock" "yield" (func $yield)) (func (export "_start") (loop $l (call $yield) (br $l))))"#,
    )
}

/// A machine of two sessions of one module under the debugger.
fn debugger(text: &str) -> Debugger<Cursor<Vec<u8>>> {
    let source = wat::parse_str(text).expect("valid text");
    let mut spec = MachineSpec::new();
    let module = spec
        .add_module(Arc::new(Module::new(&source, &Limits::default()).expect("a module")), &source);
    spec.add_session("one", module);
    spec.add_session("two", module);
    let machine = RecordedMachine { spec, modules: vec![source], inputs: Vec::new() };
    let mut trace = Vec::new();
    let mut first = vec![Level::Inputs as u8];
    first.extend_from_slice(&machine.encode());
    TraceWriter::new(&mut trace)
        .and_then(|mut writer| writer.append(ChunkKind::Machine, &first))
        .expect("memory");
    Debugger::new(Timeline::open(Cursor::new(trace)).expect("a machine"))
}

fn say(debugger: &mut Debugger<Cursor<Vec<u8>>>, line: &str) -> String {
    match debugger.line(line).expect("the host can") {
        Reply::Text(text) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn an_interrupted_move_stops_and_can_be_continued() {
    let mut debugger = endless();
    let left = Rc::new(Cell::new(0));
    let remaining = left.clone();
    debugger.on_progress(Box::new(move |_| {
        remaining.set(remaining.get() - 1);
        remaining.get() > 0
    }));
    left.set(100);
    let text = say(&mut debugger, "step 999999999999");
    assert!(
        text.starts_with("frame 0, step 100\n")
            && text
                .ends_with("\n100 of 999999999999 steps so far; enter an empty line to continue\n"),
        "{text}"
    );
    left.set(100);
    let text = say(&mut debugger, "");
    assert!(text.starts_with("frame 0, step 200\n"), "{text}");
    left.set(3);
    let text = say(&mut debugger, "frame 999999999999");
    assert!(
        text.starts_with("frame 3, step ") && text.contains("\n3 of 999999999999 frames so far"),
        "{text}"
    );
    left.set(7);
    assert!(say(&mut debugger, "wave 999999999999").contains("\n7 of 999999999999 waves so far"));
    left.set(50);
    let text = say(&mut debugger, "continue");
    assert!(
        text.starts_with("no breakpoint was hit so far; enter an empty line to continue\nframe "),
        "{text}"
    );
    left.set(2);
    let text = say(&mut debugger, "goto step 999999999999");
    assert!(text.contains(" of 999999999999 steps so far"), "{text}");
    left.set(9);
    assert!(
        say(&mut debugger, "goto step 999999").starts_with("frame "),
        "what is near is reached"
    );
    assert!(say(&mut debugger, "where").contains("step 999999\n"));
    left.set(4);
    let text = say(&mut debugger, "safepoint 999999999999");
    let made = text
        .split_once(" of 999999999999 safepoints so far")
        .and_then(|(before, _)| before.rsplit(char::is_whitespace).next()?.parse::<u64>().ok());
    // The callback is called once per slice, and each of these slices has at least one safepoint.
    assert!(made.is_some_and(|made| made >= 4), "{text}");
    left.set(4);
    assert!(
        say(&mut debugger, "instruction 999999999999")
            .contains(" of 999999999999 instructions so far")
    );
}

#[test]
fn going_back_by_frames_passes_over_skipped_frames() {
    let mut debugger = debugger(
        r#"(module (import "wavelock" "sleep" (func $sleep (param i64)))
        (func (export "_start") (call $sleep (i64.const 10)) (call $sleep (i64.const 1000000)) (call $sleep (i64.const 1))))"#,
    );
    assert!(say(&mut debugger, "frame 4").contains("the run has ended\n"));
    let at = |text: String| text.lines().next().unwrap_or_default().to_owned();
    // Each of the two made one step in frames 0, 10, 1000010 and 1000011.
    let expected =
        ["frame 1000011, step 6", "frame 1000010, step 4", "frame 10, step 2", "frame 0, step 0"];
    assert_eq!(at(say(&mut debugger, "goto frame 1000011")), expected[0]);
    for place in &expected[1..] {
        assert_eq!(at(say(&mut debugger, "back frame")), *place);
    }
    assert!(
        say(&mut debugger, "back frame").contains("0 of 1 frames: this is the start of the run")
    );
    for place in expected.iter().rev().skip(1) {
        assert_eq!(at(say(&mut debugger, "frame")), *place);
    }
    assert_eq!(at(say(&mut debugger, "back frame 2")), expected[2]);
}

/// The position at the start of a reply: steps, safepoints and cycles.
fn place(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The cycles of a position inside a slice.
fn cycles_of(text: &str) -> u64 {
    let found = place(text)
        .split_once(" cycles")
        .and_then(|(before, _)| before.rsplit_once('(')?.1.parse().ok());
    found.unwrap_or_else(|| panic!("{text}"))
}

const BUSY: &str = r#"(module (func (export "_start") (loop $l (br $l))))"#;

#[test]
fn a_move_by_any_number_of_safepoints_runs_its_slice_once() {
    let mut debugger = debugger(BUSY);
    let mut remaining = 0;
    let mut costs = |debugger: &Debugger<Cursor<Vec<u8>>>| {
        let now = debugger.probe_cycles().0;
        std::mem::replace(&mut remaining, now).abs_diff(now)
    };
    for count in [500, 1_000, 2_000] {
        let text = say(&mut debugger, &format!("safepoint {count}"));
        assert!(text.contains(&format!("step 0, {count} safepoints (")), "{text}");
        assert_eq!(costs(&debugger), cycles_of(&text), "{text}");
        let text = say(&mut debugger, &format!("back safepoint {}", count - 1));
        assert!(text.contains("step 0, 1 safepoints ("), "{text}");
        assert_eq!(costs(&debugger), cycles_of(&text), "{text}");
        assert_eq!(place(&say(&mut debugger, "back safepoint")), "frame 0, step 0");
    }
    // Over several slices: each is run once more than its step, and the last up to the position.
    let beyond = say(&mut debugger, "safepoint 100000");
    let spent = costs(&debugger);
    let steps: u64 = place(&beyond)
        .split_once("step ")
        .and_then(|(_, rest)| rest.split_once(',')?.0.parse().ok())
        .expect("a step");
    assert!(steps > 3, "{beyond}");
    let quantum = MachineSpec::new().policy.quantum().0;
    assert!(spent <= (steps + 1) * 2 * quantum, "{spent} cycles for {steps} steps");
}

#[test]
fn a_move_by_n_safepoints_equals_n_single_moves() {
    let text = r#"(module (import "wavelock" "yield" (func $yield))
        (func $some (param i32) (loop $l (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))))
        (func (export "_start") (call $some (i32.const 4)) (call $yield) (call $some (i32.const 3)) (call $yield)))"#;
    let (mut single, mut whole) = (debugger(text), debugger(text));
    let mut forwards = vec![place(&say(&mut single, "where")).to_owned()];
    for count in 1..1_000 {
        let answer = say(&mut single, "safepoint");
        if answer.contains("0 of 1 safepoints: the run has ended") {
            break;
        }
        forwards.push(place(&answer).to_owned());
        let mut fresh = debugger(text);
        assert_eq!(place(&say(&mut fresh, &format!("safepoint {count}"))), forwards[count]);
    }
    assert!(forwards.len() > 20, "{forwards:?}");
    let last = forwards.len() - 1;
    for count in 1..=last {
        say(&mut whole, &format!("safepoint {last}"));
        assert_eq!(
            place(&say(&mut whole, &format!("back safepoint {count}"))),
            forwards[last - count],
            "{count} back"
        );
        say(&mut whole, "goto step 0");
        assert_eq!(
            place(&say(&mut single, "back safepoint")),
            forwards[last - count],
            "{count} single moves back"
        );
    }
    assert!(
        say(&mut whole, "back safepoint 3")
            .contains("0 of 3 safepoints: this is the start of the run")
    );
    // After moves by instruction, which may have passed safepoints: the next one is ahead, the last
    // one behind.
    let begins = ["goto step 0", "safepoint 3", "instruction 5"];
    let behind = begins.map(|line| say(&mut whole, line));
    let cycles = cycles_of(&say(&mut whole, "safepoint 2"));
    assert!(cycles > behind.last().map_or(0, |text| cycles_of(text)), "{behind:?}");
    begins.iter().for_each(|line| drop(say(&mut whole, line)));
    say(&mut whole, "safepoint");
    assert_eq!(cycles_of(&say(&mut whole, "safepoint")), cycles, "two moves of one");
    begins.iter().for_each(|line| drop(say(&mut whole, line)));
    let back = cycles_of(&say(&mut whole, "back safepoint"));
    assert!((cycles_of(&behind[1])..cycles).contains(&back), "{back}: {behind:?}");
}
