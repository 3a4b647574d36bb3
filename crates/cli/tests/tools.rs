//! The tools around traces and schedules as a user runs them: explore, lab, export.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path)
}

/// A fresh folder for one test.
fn folder(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tools").join(name);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).expect("a folder for the test");
    path
}

fn wavelock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wavelock")).args(arguments).output().expect("the command runs")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of the test")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Two sessions: one looks whether the other has sent already.
const RACE: &str = r#"
[[session]]
name = "owner"
module = "owner.wat"
[[session]]
name = "sender"
module = "sender.wat"
ports = { in = "in" }
[[channel]]
name = "in"
owner = "owner"
capacity = 4
"#;
const OWNER: &str = r#"(module
  (import "wavelock" "yield" (func $yield))
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "try_recv" (func $try_recv (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (memory 1) (data (i32.const 0) "in")
  (func (export "_start")
    (call $yield) (call $yield)
    (i32.store (i32.const 16) (call $try_recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))
    (drop (call $output (i32.const 16) (i32.const 4)))))"#;
const SENDER: &str = r#"(module
  (import "wavelock" "yield" (func $yield))
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (memory 1) (data (i32.const 0) "in")
  (func (export "_start")
    (call $yield) (call $yield)
    (drop (call $send (call $port (i32.const 0) (i32.const 2)) (i64.const 7)))))"#;

fn race(name: &str) -> PathBuf {
    let folder = folder(name);
    for (file, content) in [("race.toml", RACE), ("owner.wat", OWNER), ("sender.wat", SENDER)] {
        std::fs::write(folder.join(file), content).expect("written");
    }
    folder
}

#[test]
fn explore_finds_a_race_and_its_trace_replays() {
    let folder = race("race");
    let (manifest, trace) = (folder.join("race.toml"), folder.join("witness.trace"));
    let found = wavelock(&["explore", text(&manifest), "--json", "-o", text(&trace)]);
    assert_eq!(found.status.code(), Some(3), "{found:?}");
    let object = json(&found);
    assert_eq!(object["verdict"], "dependent");
    assert_eq!(object["witness"]["proof"], "shortest");
    assert_eq!(object["witness"]["deviations"].as_array().map(Vec::len), Some(1), "{object}");
    let replayed = wavelock(&["replay", text(&trace), "--json"]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
    // The trace of the machine as it is differs from the witness in what sessions show.
    let usual = folder.join("usual.trace");
    wavelock(&["run", text(&manifest), "--record", text(&usual)]);
    let diff = wavelock(&["diff", text(&usual), text(&trace), "--allow", "sessions"]);
    assert_eq!(diff.status.code(), Some(3), "{diff:?}");
    let again = wavelock(&["explore", text(&manifest), "--json", "-o", text(&trace)]);
    assert_eq!(again.stdout, found.stdout, "exploring twice finds the same");
    let words = wavelock(&["explore", text(&manifest)]);
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    assert!(words.contains("no shorter schedule shows it"), "{words}");
}

#[test]
fn explore_says_what_it_did_not_find_and_what_it_cannot_compare() {
    let hello = wavelock(&["explore", text(&example("hello/hello.toml")), "--json"]);
    assert_eq!((hello.status.code(), json(&hello)["verdict"].as_str()), (Some(0), Some("independent")));
    let primes = wavelock(&["explore", text(&example("primes/primes.toml")), "--runs", "40", "--json"]);
    assert_eq!((primes.status.code(), json(&primes)["verdict"].as_str()), (Some(0), Some("no difference found")));
    let endless = wavelock(&["explore", text(&example("primes/primes.toml")), "--steps", "5"]);
    assert_eq!(endless.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&endless.stderr).contains("--steps"), "{endless:?}");
}

#[test]
fn lab_compares_every_policy_and_draws_it() {
    let folder = folder("lab");
    let picture = folder.join("lab.svg");
    let run = || wavelock(&["lab", text(&example("primes/primes.toml")), "--json", "-o", text(&picture)]);
    let (first, svg) = (run(), std::fs::read_to_string(&picture).expect("a picture"));
    let object = json(&first);
    let rows = object["policies"].as_array().expect("rows");
    assert_eq!(rows.len(), 7);
    for row in rows {
        assert!(svg.contains(row["policy"].as_str().expect("a name")));
        assert_eq!(row["outcome"], "finished");
        let (p50, longest) = (row["waits"]["p50"].as_u64(), row["waits"]["longest"].as_u64());
        assert!(p50 <= longest && row["waits"]["count"].as_u64() > Some(0), "{row}");
        assert!((1..=1_000).contains(&row["fairness_per_mille"].as_u64().expect("a number")));
    }
    let second = run();
    assert_eq!(second.stdout, first.stdout);
    assert_eq!(std::fs::read_to_string(&picture).expect("a picture"), svg, "the same bytes");
    let table = wavelock(&["lab", text(&example("hello/hello.toml"))]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("round-robin"));
}

#[test]
fn exports_are_the_same_bytes_every_time() {
    let folder = folder("export");
    let trace = folder.join("life.trace");
    wavelock(&["run", text(&example("life/life.toml")), "--record", text(&trace)]);
    for (format, needle) in [("perfetto", &b"lane 0"[..]), ("folded", b"strip0;_start;generation ")] {
        let (one, two) = (folder.join("one"), folder.join("two"));
        let written = wavelock(&["export", text(&trace), "--format", format, "-o", text(&one), "--json"]);
        assert_eq!(written.status.code(), Some(0), "{written:?}");
        wavelock(&["export", text(&trace), "--format", format, "-o", text(&two)]);
        let bytes = std::fs::read(&one).expect("written");
        assert_eq!(json(&written)["bytes"].as_u64(), Some(bytes.len() as u64));
        assert_eq!(bytes, std::fs::read(&two).expect("written"), "{format}");
        assert!(bytes.windows(needle.len()).any(|window| window == needle), "{format}");
    }
    // Cycles of all stacks are what the run charged.
    let folded = std::fs::read_to_string(folder.join("one")).expect("written");
    let total: u64 = folded.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    let run = wavelock(&["run", text(&example("life/life.toml")), "--json"]);
    assert_eq!(Some(total), json(&run)["cycles"]["charged"].as_u64());
    let nothing = wavelock(&["export", text(&example("life/life.toml")), "--format", "folded", "-o", text(&folder.join("x"))]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("not a trace"), "{nothing:?}");
}
