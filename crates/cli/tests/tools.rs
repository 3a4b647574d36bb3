//! The commands for traces and schedules, as a user runs them: explore, lab, export, certify, why,
//! debug, soak, diff.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

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

/// Two sessions: one polls whether the other has sent already.
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
    // The trace of the unchanged machine differs from the witness in what sessions do.
    let usual = folder.join("usual.trace");
    wavelock(&["run", text(&manifest), "--record", text(&usual)]);
    let diff = wavelock(&["diff", text(&usual), text(&trace), "--allow", "sessions"]);
    assert_eq!(diff.status.code(), Some(3), "{diff:?}");
    let again = wavelock(&["explore", text(&manifest), "--json", "-o", text(&trace)]);
    assert_eq!(again.stdout, found.stdout, "exploring twice finds the same");
    let words = wavelock(&["explore", text(&manifest)]);
    let words = String::from_utf8_lossy(&words.stdout).into_owned();
    assert!(words.contains("no shorter schedule does"), "{words}");
}

#[test]
fn explore_reports_independence_and_refuses_endless_runs() {
    let hello = wavelock(&["explore", text(&example("hello/hello.toml")), "--json"]);
    assert_eq!(
        (hello.status.code(), json(&hello)["verdict"].as_str()),
        (Some(0), Some("independent"))
    );
    let primes =
        wavelock(&["explore", text(&example("primes/primes.toml")), "--runs", "40", "--json"]);
    assert_eq!(
        (primes.status.code(), json(&primes)["verdict"].as_str()),
        (Some(0), Some("no difference found"))
    );
    let endless = wavelock(&["explore", text(&example("primes/primes.toml")), "--steps", "5"]);
    assert_eq!(endless.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&endless.stderr).contains("--steps"), "{endless:?}");
}

#[test]
fn lab_compares_every_policy_and_draws_it() {
    let folder = folder("lab");
    let picture = folder.join("lab.svg");
    let run =
        || wavelock(&["lab", text(&example("primes/primes.toml")), "--json", "-o", text(&picture)]);
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
    for (format, needle) in [("perfetto", &b"lane 0"[..]), ("folded", b"strip0;_start;generation ")]
    {
        let (one, two) = (folder.join("one"), folder.join("two"));
        let written =
            wavelock(&["export", text(&trace), "--format", format, "-o", text(&one), "--json"]);
        assert_eq!(written.status.code(), Some(0), "{written:?}");
        wavelock(&["export", text(&trace), "--format", format, "-o", text(&two)]);
        let bytes = std::fs::read(&one).expect("written");
        assert_eq!(json(&written)["bytes"].as_u64(), Some(bytes.len() as u64));
        assert_eq!(bytes, std::fs::read(&two).expect("written"), "{format}");
        assert!(bytes.windows(needle.len()).any(|window| window == needle), "{format}");
    }
    // The cycles of all stacks add up to what the run charged.
    let folded = std::fs::read_to_string(folder.join("one")).expect("written");
    let total: u64 =
        folded.lines().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    let run = wavelock(&["run", text(&example("life/life.toml")), "--json"]);
    assert_eq!(Some(total), json(&run)["cycles"]["charged"].as_u64());
    let nothing = wavelock(&[
        "export",
        text(&example("life/life.toml")),
        "--format",
        "folded",
        "-o",
        text(&folder.join("x")),
    ]);
    assert_eq!(nothing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("not a trace"), "{nothing:?}");
}

/// A trace of a machine, recorded where a test can find it.
fn recorded(name: &str, manifest: &Path, flags: &[&str]) -> PathBuf {
    let trace = folder(name).join("run.trace");
    let mut arguments = vec!["run", text(manifest), "--record", text(&trace)];
    arguments.extend_from_slice(flags);
    let run = wavelock(&arguments);
    assert!(trace.exists(), "{run:?}");
    trace
}

fn why(trace: &Path, coroutine: &str, at: &str) -> Value {
    let output = wavelock(&["why", text(trace), "--coroutine", coroutine, "--at", at, "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    json(&output)
}

#[test]
fn certificates_are_recorded_and_hold() {
    let trace = recorded("certify", &example("life/life.toml"), &["--workers", "1"]);
    let output = wavelock(&["certify", text(&trace), "--json"]);
    let object = json(&output);
    assert_eq!(
        (output.status.code(), object["verdict"].as_str(), object["refused"].as_u64()),
        (Some(0), Some("all hold"), Some(0))
    );
    assert!(object["certificates"].as_u64() > Some(1), "{object}");
    // A damaged file is reported as such.
    let mut bytes = std::fs::read(&trace).expect("a trace");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&trace, bytes).expect("written");
    assert_eq!(wavelock(&["certify", text(&trace)]).status.code(), Some(1));
}

#[test]
fn why_explains_philosophers() {
    let trace = recorded("why-philosophers", &example("philosophers/deadlock.toml"), &[]);
    let first = why(&trace, "table", "0");
    assert_eq!(
        (first["verdict"].as_str(), first["coroutine"].as_str()),
        (Some("runs"), Some("table/0.0"))
    );
    let unborn = why(&trace, "table/3", "0");
    assert_eq!(unborn["verdict"], "absent");
    let runs = why(&trace, "table/1", "1");
    assert_eq!(
        (runs["verdict"].as_str(), runs["candidate_count"].as_u64()),
        (Some("runs"), Some(5)),
        "{runs}"
    );
    let later = why(&trace, "table/4.0", "1");
    assert_eq!(later["verdict"], "not its turn");
    assert!(
        later["answer"].as_str().is_some_and(|answer| answer.contains("table/1.0 runs first")),
        "{later}"
    );
    let sleeps = why(&trace, "table/1", "5");
    assert_eq!(sleeps["verdict"], "sleeps");
    assert!(sleeps["next_wake"].as_str().is_some_and(|wake| wake.contains("frame 1")));
    let waits = why(&trace, "table/1", "9");
    assert_eq!(
        (waits["verdict"].as_str(), waits["waits_for"]["reason"].as_str()),
        (Some("waits"), Some("channel-receive")),
        "{waits}"
    );
    assert!(
        waits["waits_for"]["holders"].as_array().is_some_and(|holders| holders.len() == 5),
        "{waits}"
    );
    let over = why(&trace, "table/1", "11");
    assert_eq!(
        (over["verdict"].as_str(), over["cycle"].as_bool()),
        (Some("over"), Some(true)),
        "{over}"
    );
    let beyond = wavelock(&["why", text(&trace), "--coroutine", "table", "--at", "12"]);
    assert_eq!(beyond.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&beyond.stderr).contains("11 steps"), "{beyond:?}");
    let unknown = wavelock(&["why", text(&trace), "--coroutine", "chair/0", "--at", "1"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("sessions: table"), "{unknown:?}");
}

#[test]
fn why_explains_the_fair_policy_by_its_keys() {
    let folder = race("why-fair");
    let trace = recorded(
        "why-fair-trace",
        &folder.join("race.toml"),
        &["--policy", "fair", "--lanes", "1"],
    );
    let runs = why(&trace, "owner", "0");
    assert_eq!(
        (runs["verdict"].as_str(), runs["candidate_count"].as_u64()),
        (Some("runs"), Some(2)),
        "{runs}"
    );
    assert!(runs["rule"].as_str().is_some_and(|rule| rule.starts_with("fair")));
    let keys: Vec<&str> = runs["candidates"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["key"].as_str())
        .collect();
    assert!(
        keys.iter().all(|key| key.contains("deadline in") && key.contains("eligible")),
        "{keys:?}"
    );
    let words = wavelock(&["why", text(&trace), "--coroutine", "sender/0.0", "--at", "0"]);
    assert!(String::from_utf8_lossy(&words.stdout).contains("owner/0.0 runs first"), "{words:?}");
}

#[test]
fn why_names_the_coroutine_that_runs_at_every_step() {
    // At every step of a small run exactly one coroutine has the verdict `runs`, and it is the one
    // that made the step.
    let trace = recorded("why-all", &example("philosophers/ordered.toml"), &[]);
    let script: String = (0..60).flat_map(|_| ["lanes\n", "step\n"]).collect();
    let path = trace.with_extension("script");
    std::fs::write(&path, script).expect("written");
    let output = wavelock(&["debug", text(&trace), "--script", text(&path), "--json"]);
    let object = json(&output);
    let answers: Vec<&str> = object["answers"]
        .as_array()
        .expect("answers")
        .iter()
        .filter_map(|row| row["answer"].as_str())
        .collect();
    let mut compared = 0;
    for pair in answers.chunks(2) {
        let (Some((_, next)), Some((_, ran))) =
            (pair[0].split_once("next "), pair[1].split_once("lane 0: "))
        else {
            continue;
        };
        let (next, ran) = (next.split(':').next(), ran.split(' ').next());
        if pair[1].contains(" ran ") {
            assert_eq!(next, ran, "{pair:?}");
            compared += 1;
        }
    }
    assert!(compared > 10, "{answers:?}");
}

#[test]
fn debug_moves_forwards_and_backwards() {
    let trace = recorded("debug", &example("philosophers/deadlock.toml"), &[]);
    let script = "step 4\nsafepoint 3\nstack table/4\nback safepoint 3\nwhere\nback\nwhere\nbreak channel table/0\ngoto step 0\ncontinue\n\
                  continue\nreverse\nbreak state table/2 blocked\ndelete 0\ngoto step 0\ncontinue\nmemory table 0 16\nscreen\nwhy table/2\n";
    let path = trace.with_extension("script");
    std::fs::write(&path, script).expect("written");
    let output = wavelock(&["debug", text(&trace), "--script", text(&path), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let object = json(&output);
    let answer = |command: usize| {
        object["answers"][command]["answer"].as_str().unwrap_or_default().to_owned()
    };
    assert!(answer(0).starts_with("frame 0, step 4"), "{}", answer(0));
    assert!(answer(1).contains("3 safepoints") && answer(1).contains("table/4.0"), "{}", answer(1));
    assert!(answer(2).contains("#0 fork") && answer(2).contains("#2 philosopher"), "{}", answer(2));
    assert_eq!(
        (answer(4).as_str(), answer(6).as_str()),
        ("frame 0, step 4\n", "frame 0, step 3\n")
    );
    assert!(answer(9).contains("breakpoint 0") && answer(9).contains("step 1\n"), "{}", answer(9));
    assert!(answer(10).contains("step 2\n"), "{}", answer(10));
    assert!(answer(11).contains("step 1\n"), "back to the one before: {}", answer(11));
    assert!(
        answer(15).contains("state table/2.0 blocked") && answer(15).contains("step 8\n"),
        "{}",
        answer(15)
    );
    assert!(answer(16).starts_with("00000000  "), "{}", answer(16));
    for part in ["-- lanes", "-- coroutines", "-- channels", "-- last step", "table/2.0"] {
        assert!(answer(17).contains(part), "{part}: {}", answer(17));
    }
    assert!(answer(18).contains("waits for  channel table/2"), "{}", answer(18));
}

#[test]
fn debug_takes_a_machine_and_refuses_malformed_commands() {
    let folder = folder("debug-machine");
    let path = folder.join("script");
    std::fs::write(
        &path,
        "break function generation\ncontinue\nbreak write strip0 0 65536\nframe 3\nreverse\n",
    )
    .expect("written");
    let output =
        wavelock(&["debug", text(&example("life/life.toml")), "--script", text(&path), "--json"]);
    let object = json(&output);
    assert_eq!(output.status.code(), Some(0), "{object}");
    assert!(
        object["answers"][1]["answer"]
            .as_str()
            .is_some_and(|answer| answer.contains("breakpoint 0: function generation")),
        "{object}"
    );
    assert!(
        object["answers"][4]["answer"]
            .as_str()
            .is_some_and(|answer| answer.contains("breakpoint ")),
        "{object}"
    );
    std::fs::write(&path, "fly\nbreak function nowhere\nbreak state strip0/0 tired\nwhere\n")
        .expect("written");
    let output = wavelock(&["debug", text(&example("life/life.toml")), "--script", text(&path)]);
    assert_eq!(output.status.code(), Some(2));
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in ["`help` lists them", "no module has a function `nowhere`", "no state `tired`"] {
        assert!(words.contains(part), "{words}");
    }
    assert!(String::from_utf8_lossy(&output.stdout).contains("frame 0, step 0"));
}

#[test]
fn the_last_instruction_of_a_slice_leaves_the_state_of_the_step() {
    let folder = folder("instructions");
    let sessions = ["printer", "strip0", "strip1", "strip2", "strip3"];
    let look: String =
        sessions.iter().map(|name| format!("stack {name}\nmemory {name} 0 4096\n")).collect();
    let script: String = (1..60)
        .map(|step| format!("goto step {step}\nback instruction\n{look}step\n{look}"))
        .collect();
    std::fs::write(folder.join("script"), script).expect("written");
    let said = wavelock(&[
        "debug",
        text(&example("life/life.toml")),
        "--script",
        text(&folder.join("script")),
        "--json",
    ]);
    let answers = json(&said)["answers"].as_array().expect("answers").clone();
    // A coroutine's scheduling state changes with the step, so only its stack and its memory are
    // compared.
    let shown = |row: &Value| -> String {
        let answer = row["answer"].as_str().unwrap_or_default();
        let skipped = usize::from(
            row["command"].as_str().is_some_and(|command| command.starts_with("stack")),
        );
        answer.lines().skip(skipped).collect::<Vec<_>>().join("\n")
    };
    let mut inside = 0;
    for (step, rows) in answers.chunks(3 + 4 * sessions.len()).enumerate() {
        let (before, after) = (&rows[2..2 + 2 * sessions.len()], &rows[3 + 2 * sessions.len()..]);
        inside += u32::from(
            rows[1]["answer"].as_str().is_some_and(|place| place.contains("instructions (")),
        );
        for (one, other) in before.iter().zip(after) {
            assert_eq!(shown(one), shown(other), "step {}: {}", step + 1, one["command"]);
        }
    }
    assert!(inside > 50, "{inside} slices had instructions");
}

#[test]
fn debug_steps_by_instruction_forwards_and_back() {
    let folder = folder("by-instruction");
    let script = "step 2\ninstruction 40\nn\nn\nback instruction 2\nsafepoint\nback instruction\nn\nn 5000\n";
    std::fs::write(folder.join("script"), script).expect("written");
    let said = json(&wavelock(&[
        "debug",
        text(&example("life/life.toml")),
        "--script",
        text(&folder.join("script")),
        "--json",
    ]));
    let answer = |at: usize| {
        said["answers"][at]["answer"].as_str().unwrap_or_else(|| panic!("{said}")).to_owned()
    };
    assert!(answer(1).contains("0 safepoints and 40 instructions (329 cycles) into the slice of strip1/0.0, in argument"), "{said}");
    assert!(
        answer(2).contains(
            "ran   17  load8_u r4 [r2+0]  (argument, byte 0x11b)\n        r4: 0x0 -> 0x31"
        ),
        "{said}"
    );
    assert_eq!(answer(4), answer(1), "two on and two back");
    assert!(answer(5).contains("safepoints (") && !answer(5).contains("instructions"), "{said}");
    assert!(answer(6).contains("instructions ("), "{said}");
    // A position reached by safepoints and the same one reached by instructions are at the same
    // instruction.
    let next = |text: &str| text.lines().find(|line| line.starts_with("  next")).map(str::to_owned);
    assert_eq!(next(&answer(5)), next(&answer(7)), "{said}");
    assert!(answer(8).contains("frame"), "over many slices: {said}");
}

/// The result of a soak is on standard output; the sum of digests is the same in every repetition
/// and for any number of workers.
#[test]
fn soak_prints_its_result_and_a_reproducible_sum() {
    let words = wavelock(&["soak", "--machines", "12", "--seed", "7"]);
    assert!(words.status.success(), "{words:?}");
    let printed = String::from_utf8_lossy(&words.stdout);
    assert!(
        printed.starts_with("12 machines from seed 7, each on 1 to 4 workers")
            && printed.ends_with("no difference\n"),
        "{printed}"
    );

    let data =
        json(&wavelock(&["soak", "--machines", "12", "--seed", "7", "--workers", "2", "--json"]));
    let sum = data["digest_sum"].as_str().expect("a sum");
    assert!(printed.contains(&format!("sum of digests: {sum}")), "{sum} in {printed}");
    let other =
        json(&wavelock(&["soak", "--machines", "12", "--seed", "8", "--workers", "2", "--json"]));
    assert_ne!(other["digest_sum"], data["digest_sum"]);
}

#[test]
fn debug_stops_moving_back_at_the_start_of_the_run() {
    let trace = recorded("debug-back", &example("philosophers/deadlock.toml"), &[]);
    for unit in ["", "wave ", "frame ", "safepoint ", "instruction "] {
        let command = format!("back {unit}18446744073709551615");
        let mut child = Command::new(env!("CARGO_BIN_EXE_wavelock"))
            .args(["debug", text(&trace)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        writeln!(child.stdin.take().unwrap(), "step 5\n{command}\nwhere\nquit").unwrap();
        let output = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        assert!(output.trim_end().ends_with("frame 0, step 0"), "{command}: {output}");
    }
}

/// A move beyond the end stops there and reports the distance made and the distance requested.
#[test]
fn debug_stops_moving_forward_at_the_end_of_the_run() {
    let trace = recorded("debug-end", &example("philosophers/deadlock.toml"), &[]);
    let path = trace.with_extension("script");
    let far = u64::MAX;
    let script = format!(
        "step {far}\nback 3\nstep 3\ngoto step 0\nwave {far}\ngoto step 2\nframe {far}\ngoto step 2\nsafepoint {far}\ngoto step 2\n\
         instruction {far}\ngoto step {far}\ngoto frame {far}\nback {far}\nstep 2\nback instruction {far}\ncontinue\n"
    );
    std::fs::write(&path, script).expect("written");
    let object = json(&wavelock(&["debug", text(&trace), "--script", text(&path), "--json"]));
    let answer = |at: usize| {
        object["answers"][at]["answer"].as_str().unwrap_or_else(|| panic!("{object}")).to_owned()
    };
    let steps: u64 = answer(0)
        .split("step ")
        .nth(1)
        .and_then(|rest| rest.split(',').next())
        .and_then(|steps| steps.parse().ok())
        .expect("a step");
    assert!(steps > 10 && answer(0).contains("the run has ended\n  machine: "), "{object}");
    assert!(
        answer(0).ends_with(&format!("\n{steps} of {far} steps: the run has ended\n")),
        "{object}"
    );
    assert!(!answer(2).contains(" of 3 steps"), "all of them were made: {object}");
    for (at, unit) in
        [(4, "wave"), (6, "frame"), (8, "safepoint"), (10, "instruction"), (11, "step")]
    {
        assert!(
            answer(at).ends_with(&format!(" of {far} {unit}s: the run has ended\n")),
            "{unit}: {object}"
        );
    }
    assert!(answer(11).contains(&format!("\n{steps} of {far} steps")), "{object}");
    assert!(answer(12).ends_with(&format!("no frame {far}: the run has ended\n")), "{object}");
    assert!(
        answer(13).ends_with(&format!("{steps} of {far} steps: this is the start of the run\n")),
        "{object}"
    );
    assert!(
        answer(15).ends_with(&format!("of {far} instructions: this is the start of the run\n")),
        "{object}"
    );
    assert!(answer(16).starts_with("no breakpoint was hit: the run has ended\n"), "{object}");
}

/// The first different event of two traces is printed in words, with the names of the machine.
#[test]
fn diff_prints_events_in_words() {
    let one = recorded("diff-one", &example("life/life.toml"), &[]);
    let other = recorded("diff-other", &example("life/life.toml"), &["--quantum", "5_000"]);
    let output = wavelock(&["diff", text(&one), text(&other)]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = said.lines().collect();
    assert!(
        lines[2].starts_with("first different event: frame 0, lane 0, step 2 of the lane in this frame, step 5 of the run, in the step of strip0/0"),
        "{said}"
    );
    assert_eq!(
        lines[3],
        "  A: strip0/0 ran 10003 cycles after 36 of the scheduler and used up its quantum"
    );
    assert_eq!(
        lines[4],
        "  B: strip0/0 ran 5024 cycles after 36 of the scheduler and used up its quantum"
    );
    let data = json(&wavelock(&["diff", text(&one), text(&other), "--json"]));
    assert_eq!(
        (&data["apart"]["first"], &data["apart"]["second"]),
        (&Value::from(&lines[3][5..]), &Value::from(&lines[4][5..]))
    );

    // Inputs with a common prefix longer than the excerpt are shown from where they differ.
    let inputs = folder("diff-inputs");
    let traces =
        ["exactly the same for a good while, then", "exactly the same for a good while, now!"].map(
            |words| {
                std::fs::write(inputs.join("input"), words).expect("written");
                let name = format!("diff-{}", &words[words.len() - 3..words.len() - 1]);
                recorded(
                    &name,
                    &example("wasi-hello/hello.toml"),
                    &["--stdin", text(&inputs.join("input"))],
                )
            },
        );
    let said =
        String::from_utf8_lossy(&wavelock(&["diff", text(&traces[0]), text(&traces[1])]).stdout)
            .into_owned();
    for (trace, words) in [("A", "then"), ("B", "now!")] {
        let expected = format!(
            "\n  {trace}: input for hello: 39 bytes, \"exactly the same for a g...\", from byte 35 on 4 bytes, \"{words}\"\n"
        );
        assert!(said.contains(&expected), "{said}");
    }
}

/// `wavelock-view` uses the same names for outcomes as `system`.
#[test]
fn outcomes_have_one_name_each() {
    use wavelock_system::{RunOutcome, SessionOutcome};
    let (runs, sessions) = (RunOutcome::ALL, SessionOutcome::ALL);
    assert_eq!(wavelock_view::OUTCOMES.len(), runs.len());
    assert_eq!(wavelock_view::SESSION_OUTCOMES.len(), sessions.len());
    assert!(
        runs.iter().all(|outcome| wavelock_view::OUTCOMES[*outcome as usize] == outcome.name())
    );
    assert!(
        sessions
            .iter()
            .all(|outcome| wavelock_view::SESSION_OUTCOMES[*outcome as usize] == outcome.name())
    );
}
