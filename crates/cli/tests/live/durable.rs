//! What a killed or a long live run leaves: traces that are read while they are written, state that
//! stays as large as it was.

use crate::harness::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

#[test]
fn a_recording_is_readable_while_it_runs_and_after_kill_9() {
    let folder = folder("kill");
    let arguments = ["rooms.toml", "--fps", "1_000", "--output", "json", "--record", "t.trace"];
    let mut run = Run::start(&folder, &arguments);
    let replay = || json(&wavelock(&folder, &["replay", "t.trace", "--json"]).stdout);
    let mut frames = BTreeSet::from([0]);
    for word in 0..20 {
        run.say(&format!("{{\"session\":\"red\",\"text\":\"{word}\\n\"}}"));
        frames.insert(json(run.hear().as_bytes())["frame"].as_u64().expect("a frame"));
    }
    // The other tools read it too, again and again.
    for tool in [
        &["resume", "t.trace", "--at-frame", "0", "--report", "r.json"][..],
        &["report", "r.json"],
        &["export", "t.trace", "--format", "folded", "-o", "folded"],
        &["why", "t.trace", "--coroutine", "red", "--at", "2"],
    ] {
        let output = wavelock(&folder, tool);
        assert!(output.status.success(), "{tool:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    // Frame 0 and the frames of the lines are in the file soon; idle ones are not run.
    let (ran, last) = (frames.len(), frames.last().copied().unwrap_or_default());
    let until = Instant::now() + PATIENCE;
    loop {
        let object = replay();
        assert_eq!(object["divergence"], Value::Null, "{object}");
        assert_ne!(object["verdict"], "equal", "it has no end yet");
        if object["frames"] == ran {
            break;
        }
        assert!(Instant::now() < until, "{object}");
    }
    run.signal("-KILL");
    assert_eq!(run.end().code, None);
    let object = replay();
    assert_eq!(
        (object["frames"].as_u64(), &object["divergence"]),
        (Some(ran as u64), &Value::Null)
    );
    let text = wavelock(&folder, &["replay", "t.trace"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains(&format!("equal up to where it is truncated: {ran} frames")), "{text}");
    // The other tools read it too.
    let why = ["why", "t.trace", "--coroutine", "red", "--at", "2", "--json"];
    assert_eq!(wavelock(&folder, &why).status.code(), Some(0));
    let export = ["export", "t.trace", "--format", "perfetto", "-o", "p.json"];
    assert_eq!(wavelock(&folder, &export).status.code(), Some(0));
    std::fs::write(folder.join("script"), format!("goto frame {last}\nwhere\n")).expect("a file");
    let debug = wavelock(&folder, &["debug", "t.trace", "--script", "script"]);
    let shown = String::from_utf8_lossy(&debug.stdout).into_owned();
    assert!(debug.status.success() && shown.contains(&format!("frame {last}")), "{shown}");
}

/// A step of a generator of numbers, for moments.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Runs that are killed at any moment while lines come and sessions start: what was written is
/// whole frames, and they replay.
#[test]
fn thirty_kills_leave_thirty_traces_that_replay() {
    let folder = folder("kills");
    std::fs::create_dir(folder.join("mods")).expect("a folder");
    std::fs::write(folder.join("mods/room.wat"), ROOM).expect("a file");
    let (mut state, mut longest, mut cut) = (0x9e37_79b9_7f4a_7c15, 0, 0);
    for round in 0..30_u64 {
        let level = ["inputs", "schedule", "full"][round as usize % 3];
        let fps = ["60", "1_000", "max"][(draw(&mut state) % 3) as usize];
        let arguments = ["rooms.toml", "--modules", "mods", "--record", "t.trace", "--fps", fps];
        let mut run = Run::start(&folder, &[&arguments[..], &["--level", level]].concat());
        let mut input = run.input.take().expect("it is open");
        let talk = std::thread::spawn(move || {
            for number in 0.. {
                let line = match number % 7 {
                    3 => format!("{{\"start\":\"s{number}\",\"module\":\"room.wat\"}}\n"),
                    5 => format!("{{\"end\":\"s{}\"}}\n", number - 2),
                    _ => format!("{{\"session\":\"*\",\"text\":\"{number}\\n\"}}\n"),
                };
                // The run was killed.
                if std::io::Write::write_all(&mut input, line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        let output = run.hear();
        assert!(!output.is_empty(), "round {round}");
        std::thread::sleep(Duration::from_micros(draw(&mut state) % 60_000));
        run.signal("-KILL");
        // Somebody has to read what it wrote, until it is gone.
        assert_eq!(run.end().code, None);
        talk.join().expect("no panic");
        let mut digests = BTreeSet::new();
        for workers in ["1", "2"] {
            let output = wavelock(&folder, &["replay", "t.trace", "--json", "--workers", workers]);
            // Killed before the first chunk was whole.
            if String::from_utf8_lossy(&output.stderr).contains("stopped at its start") {
                continue;
            }
            let object = json(&output.stdout);
            assert_eq!(object["verdict"], "equal as far as it goes", "round {round}: {object}");
            assert_eq!(object["divergence"], Value::Null, "round {round}");
            let reason = object["missing"].as_str().expect("why it has no end");
            cut += u64::from(!reason.contains("has no end"));
            longest = longest.max(object["frames"].as_u64().unwrap_or(0));
            digests.insert(object["digest"].to_string());
        }
        assert!(digests.len() <= 1, "round {round}: {digests:?}");
    }
    assert!(longest > 10, "the longest has {longest} frames");
    println!("{cut} of 60 replays found a chunk that was cut");
}

/// A guest that wakes in every frame, reads its input and writes a line every 65,536 frames.
const POLLER: &str = r#"(module
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (data (i32.const 100) ".\0a")
  (func (export "_start") (local $frame i32)
    (loop $forever
      (loop $read
        (br_if $read (i32.gt_s (call $input (i32.const 0) (i32.const 64)) (i32.const 0))))
      (call $sleep (i64.const 1))
      (local.set $frame (i32.add (local.get $frame) (i32.const 1)))
      (if (i32.eqz (i32.and (local.get $frame) (i32.const 0xffff)))
        (then (drop (call $output (i32.const 100) (i32.const 2)))))
      (br $forever))))"#;

/// Resident bytes of a process.
fn resident(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/statm")).expect("Linux");
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.expect("a number") * 4096
}

/// Ten times 65,536 frames with inputs, sessions and a recording: resident memory is that of the
/// first tenths. `cargo bench -p wavelock-cli --bench live` runs ten million.
#[test]
#[cfg(target_os = "linux")]
fn a_long_run_holds_its_memory() {
    let folder = folder("long");
    std::fs::write(folder.join("poller.wat"), POLLER).expect("a file");
    let arguments = ["poller.wat", "--fps", "max", "--record", "t.trace", "--level", "inputs"];
    let mut run = Run::start(&folder, &arguments);
    let mut input = run.input.take().expect("it is open");
    let talk = std::thread::spawn(move || {
        let line = b"{\"session\":\"poller\",\"text\":\"0123456789abcdef\"}\n";
        let mut lines = 0_u64;
        while std::io::Write::write_all(&mut input, line).is_ok() {
            lines += 1;
            std::thread::sleep(Duration::from_micros(200));
        }
        lines
    });
    let mut samples = Vec::new();
    for _ in 0..10 {
        assert_eq!(run.hear(), ".\n");
        samples.push(resident(run.child.0.id()) >> 10);
    }
    run.signal("-INT");
    let end = run.end();
    assert_eq!(end.code, Some(130), "{}", end.errors);
    assert!(talk.join().expect("no panic") > 100);
    // The first samples have what grows to its size once: queues, stacks of threads.
    let growth = samples[9].saturating_sub(samples[2]);
    assert!(growth <= 512, "{growth} KiB more after seven tenths: {samples:?}");
    let output = wavelock(&folder, &["replay", "t.trace", "--json"]);
    assert!(json(&output.stdout)["frames"].as_u64() >= Some(655_360));
}
