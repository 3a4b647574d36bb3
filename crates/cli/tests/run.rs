//! `wavelock` as a user runs it: files in, text and exit codes out. Expected texts are in `runs/`.
//!
//! `WAVELOCK_BLESS=1 cargo test -p wavelock-cli --test run` updates them.

use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const HELLO: &str = r#"(module
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (memory 1) (data (i32.const 0) "hello\n")
  (func (export "_start") (drop (call $output (i32.const 0) (i32.const 6)))))"#;

/// Copies standard input to standard output through WASI.
const CAT: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory 2)
  (func (export "_start")
    (loop $again
      (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 100))
      (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
      (i32.store (i32.const 4) (i32.load (i32.const 8)))
      (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 12)))
      (br_if $again (i32.load (i32.const 8))))))"#;

const CRASH: &str = r#"(module
  (func $divide (param i32) (result i32) (i32.div_u (i32.const 1) (local.get 0)))
  (func (export "_start") (drop (call $divide (i32.const 0)))))"#;

const LOOP: &str = "(module (func (export \"_start\") (loop $l br $l)))";

const WAIT: &str = r#"(module
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (memory 1)
  (func (export "main") (result i32) (call $recv (call $channel (i32.const 1)) (i32.const 0))))"#;

const MISSING: &str = r#"(module
  (import "env" "abort" (func (param i32)))
  (import "wavelock" "yield" (func (param i32)))
  (import "wavelock" "tryrecv" (func (param i32 i32) (result i32)))
  (import "env" "fd_write" (func (param i32 i32 i32 i32) (result i32)))
  (func (export "_start")))"#;

/// Sends the numbers 1 to 300 to port `out`, yielding between them.
const SENDER: &str = r#"(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "send" (func $send (param i32 i64) (result i32)))
  (import "wavelock" "yield" (func $yield))
  (memory 1) (data (i32.const 0) "out")
  (func $burn (param i32) (loop $l (br_if $l (local.tee 0 (i32.sub (local.get 0) (i32.const 1))))))
  (func (export "_start") (local $i i64)
    (loop $next
      (drop (call $send (call $port (i32.const 0) (i32.const 3)) (local.get $i)))
      (call $burn (i32.const 50))
      (call $yield)
      (br_if $next (i64.lt_u (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const 300))))))"#;

/// Sums what arrives at port `results` until it is closed, and exits with the sum's low byte.
const SUM: &str = r#"(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (import "wavelock" "recv" (func $recv (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory 1) (data (i32.const 0) "results")
  (func (export "_start") (local $sum i64)
    (block $done (loop $next
      (br_if $done (call $recv (call $port (i32.const 0) (i32.const 7)) (i32.const 16)))
      (local.set $sum (i64.add (local.get $sum) (i64.load (i32.const 16))))
      (br $next)))
    (call $exit (i32.and (i32.wrap_i64 (local.get $sum)) (i32.const 255)))))"#;

const CROWD: &str = "\
[machine]
lanes = 3
frame_cycles = 20_000
wave_cycles = 5_000
quantum_cycles = 2_000
[[session]]
name = \"sender\"
module = \"sender.wat\"
count = 4
ports = { out = \"results\" }
[[session]]
name = \"sum\"
module = \"sum.wat\"
[[channel]]
name = \"results\"
owner = \"sum\"
capacity = 8
";

/// A temporary directory with these files.
fn folder(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run").join(name);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    for (file, text) in files {
        std::fs::write(folder.join(file), text).expect("a file");
    }
    folder
}

fn wavelock(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wavelock"))
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("wavelock runs")
}

/// Masks digests: they are tested elsewhere, and change with every version of the trace.
fn without_digests(text: &str) -> String {
    let is_digest = |word: &str| {
        matches!(word.len(), 16 | 64) && word.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    text.split_inclusive([' ', '\n'])
        .map(|word| {
            if is_digest(word.trim_end()) {
                word.replace(word.trim_end(), "DIGEST")
            } else {
                word.to_owned()
            }
        })
        .collect()
}

/// Exit code, standard output and standard error, without digests and times.
fn text(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stderr: String = stderr
        .lines()
        .map(|line| match line.rsplit_once(" in ") {
            Some((before, after)) if after.ends_with(" s") => format!("{before} in TIME\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let (code, stdout) =
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout));
    let shown = |line: &'_ str| {
        if line.starts_with("loaded in ") { "loaded in TIME\n".to_owned() } else { line.to_owned() }
    };
    let stdout: String = stdout.split_inclusive('\n').map(shown).collect();
    without_digests(&format!("exit {code}\n--- stdout\n{stdout}--- stderr\n{stderr}"))
}

fn check(name: &str, output: &Output, exit: i32) {
    let actual = text(output);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs").join(name);
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(&path, &actual).expect("bless");
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        actual,
        "{}: run with WAVELOCK_BLESS=1 to accept",
        path.display()
    );
    assert_eq!(output.status.code(), Some(exit));
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("one JSON object: {error}\n{}", text(output)))
}

#[test]
fn a_module_runs_as_a_machine_of_one_session() {
    let folder = folder(
        "hello",
        &[
            ("hello.wat", HELLO),
            ("same.toml", "[[session]]\nname = \"hello\"\nmodule = \"hello.wat\"\n"),
        ],
    );
    let bare = wavelock(&folder, &["run", "hello.wat"]);
    check("hello.txt", &bare, 0);
    assert_eq!(
        text(&bare),
        text(&wavelock(&folder, &["run", "same.toml"])),
        "a manifest that says the same"
    );
    let object = json(&wavelock(&folder, &["run", "hello.wat", "--json"]));
    let cycles = &object["cycles"];
    let number = |key: &str| cycles[key].as_u64().expect("a number");
    assert_eq!(number("charged") + number("overhead") + number("idle"), number("total"));
    assert_eq!(
        (object["outcome"].as_str(), object["sessions"][0]["name"].as_str()),
        (Some("finished"), Some("hello"))
    );
}

#[test]
fn guest_output_and_the_json_object_do_not_mix() {
    let folder = folder("json", &[("hello.wat", HELLO)]);
    let output = wavelock(&folder, &["run", "hello.wat", "--json"]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "hello\n");
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
}

#[test]
fn input_reaches_the_guest() {
    let events = "{\"frame\":0,\"session\":\"*\",\"text\":\"one \"}\n{\"frame\":5,\"session\":\"cat\",\"hex\":\"74776f\"}\n";
    let bad = "{\"frame\":0,\"session\":\"dog\",\"text\":\"x\"}\nnonsense\n";
    let folder = folder(
        "input",
        &[("cat.wat", CAT), ("in.jsonl", events), ("bad.jsonl", bad), ("plain.txt", "zero ")],
    );
    check(
        "input.txt",
        &wavelock(&folder, &["run", "cat.wat", "--stdin", "plain.txt", "--input", "in.jsonl"]),
        0,
    );
    check("bad-input.txt", &wavelock(&folder, &["run", "cat.wat", "--input", "bad.jsonl"]), 4);
    let mut child = Command::new(env!("CARGO_BIN_EXE_wavelock"))
        .args(["run", "cat.wat", "--stdin", "-"])
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("wavelock runs");
    child.stdin.take().expect("a pipe").write_all(b"from the pipe").expect("written");
    let output = child.wait_with_output().expect("an end");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from the pipe");
}

/// Takes one event with `input` in frame 0, then sleeps until frame 3.
const TAKE_ONE: &str = r#"(module
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (func (export "_start")
    (drop (call $input (i32.const 0) (i32.const 16))) (call $sleep (i64.const 3))))"#;

/// Frame 0 is read, frames 1 and 2 are dropped, frame 9 comes after the end.
const FOUR_EVENTS: &str = r#"{"frame":0,"session":"*","text":"a"}
{"frame":1,"session":"*","text":"b"}
{"frame":2,"session":"*","text":"c"}
{"frame":9,"session":"*","text":"d"}
"#;

#[test]
fn input_that_was_not_read_is_counted_and_named() {
    let folder =
        folder("unread", &[("take.wat", TAKE_ONE), ("cat.wat", CAT), ("in.jsonl", FOUR_EVENTS)]);
    let run = ["run", "take.wat", "--input", "in.jsonl", "--record", "take.trace"];
    check("unread-input.txt", &wavelock(&folder, &run), 0);
    check("unread-input-replay.txt", &wavelock(&folder, &["replay", "take.trace"]), 0);
    let unread = serde_json::json!({ "dropped": 2, "left": 1 });
    let object = json(&wavelock(&folder, &["run", "take.wat", "--input", "in.jsonl", "--json"]));
    assert_eq!(object["sessions"][0]["unread_input"], unread);
    let object = json(&wavelock(&folder, &["replay", "take.trace", "--json"]));
    assert_eq!(object["unread_input"], serde_json::json!({ "take": unread }));
    let resumed = ["resume", "take.trace", "--at-frame", "1", "--json"];
    assert_eq!(json(&wavelock(&folder, &resumed))["sessions"][0]["unread_input"], unread);
    let read = ["run", "cat.wat", "--input", "in.jsonl", "--json"];
    let object = json(&wavelock(&folder, &read));
    assert!(object["sessions"][0].get("unread_input").is_none(), "{object}");
}

#[test]
fn flags_that_a_trace_cannot_honour_are_refused() {
    let folder = folder("flags", &[("hello.wat", HELLO), ("in.jsonl", FOUR_EVENTS)]);
    let record = ["run", "hello.wat", "--record", "hello.trace", "--level", "inputs"];
    assert_eq!(wavelock(&folder, &record).status.code(), Some(0));
    let snapshot = ["snapshot", "hello.wat", "--at-frame", "0", "-o", "hello.snap"];
    assert_eq!(wavelock(&folder, &snapshot).status.code(), Some(0));
    let flags = [
        ["--policy", "fair"],
        ["--lanes", "2"],
        ["--frames", "3"],
        ["--frame-cycles", "1_000"],
        ["--quantum", "2_000"],
        ["--seed", "1"],
        ["--input", "in.jsonl"],
        ["--stdin", "in.jsonl"],
    ];
    for [flag, value] in flags {
        for file in ["hello.trace", "hello.snap"] {
            let snapshot = ["snapshot", file, "--at-frame", "0", "-o", "other.snap", flag, value];
            for arguments in [&snapshot[..], &["debug", file, flag, value]] {
                let output = wavelock(&folder, arguments);
                let text = text(&output);
                assert_eq!(output.status.code(), Some(2), "{arguments:?}\n{text}");
                let refusal = format!("{flag} cannot be applied to `{file}`");
                assert!(text.contains(&refusal), "{arguments:?}\n{text}");
            }
        }
        assert!(!folder.join("other.snap").exists(), "a refused command writes nothing");
        let machine = wavelock(&folder, &["debug", "hello.wat", flag, value]);
        assert_eq!(machine.status.code(), Some(0), "{flag} applies to a machine");
    }
    let plain = ["snapshot", "hello.trace", "--at-frame", "0", "-o", "other.snap"];
    assert_eq!(wavelock(&folder, &plain).status.code(), Some(0));
    std::fs::remove_file(folder.join("other.snap")).expect("it was just written");
    let policy = ["snapshot", "hello.snap", "--at-frame", "0", "-o", "o", "--policy", "fair"];
    check("flag-of-a-trace.txt", &wavelock(&folder, &policy), 2);
    let level = ["run", "hello.wat", "--level", "inputs"];
    check("usage-level.txt", &wavelock(&folder, &level), 2);
}

/// Writes half a line in one frame and the rest in the next, and a line to its log.
const TALK: &str = r#"(module
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "log" (func $log (param i32 i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1) (data (i32.const 0) "one\0atwo\0aa note\0a")
  (func (export "_start")
    (drop (call $output (i32.const 0) (i32.const 6)))
    (call $log (i32.const 8) (i32.const 7))
    (call $sleep (i64.const 1))
    (drop (call $output (i32.const 6) (i32.const 2)))
    (drop (call $output (i32.const 0) (i32.const 3)))))"#;

#[test]
fn guest_output_carries_its_session() {
    let manifest = "[[session]]\nname = \"bot\"\nmodule = \"talk.wat\"\ncount = 2\n\n[[session]]\nname = \"quiet\"\nmodule = \"loop.wat\"\n";
    let quiet = "(module (func (export \"_start\")))";
    let folder =
        folder("output", &[("talk.wat", TALK), ("loop.wat", quiet), ("talk.toml", manifest)]);
    let run = |mode: &str, more: &[&str]| {
        let arguments = [&["run", "talk.toml", "--workers", "1", "--output", mode], more].concat();
        wavelock(&folder, &arguments)
    };
    check("output-prefix.txt", &run("prefix", &[]), 0);
    check("output-json.txt", &run("json", &[]), 0);
    check("output-wrong.txt", &run("file", &[]), 2);
    let colored = |color: &str| run("prefix", &["--color", color]).stdout.contains(&0x1b);
    assert!(colored("always") && !colored("auto") && !colored("never"));

    // The files of an earlier run are replaced, and nothing else is written to standard output.
    let file = |name: &str| folder.join("guests").join(name);
    std::fs::create_dir_all(folder.join("guests")).expect("a folder");
    for name in ["bot.0.out", "quiet.out"] {
        std::fs::write(file(name), "of an earlier run").expect("a file");
    }
    let output = run("files=guests", &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{}", text(&output));
    let read = |name: &str| std::fs::read_to_string(file(name)).expect("a file");
    for name in ["bot.0", "bot.1"] {
        assert_eq!(read(&format!("{name}.out")), "one\ntwo\none");
        assert_eq!(read(&format!("{name}.log")), "a note\n");
    }
    assert!(!file("quiet.out").exists());
    check("output-no-folder.txt", &run("files=talk.wat", &[]), 1);

    let object = json(&run("plain", &["--json"]));
    let said = serde_json::json!({ "bytes": 11, "cut": 0, "text": "one\ntwo\none" });
    assert_eq!(object["sessions"][1]["output"], said);
    assert_eq!(object["sessions"][1]["log"]["text"], "a note\n");
    assert!(object["sessions"][2].get("output").is_none(), "{object}");
    let mut digests = ["plain", "prefix", "json", "files=guests"]
        .map(|mode| json(&run(mode, &["--json"]))["digest"].clone().to_string());
    digests.sort();
    assert_eq!(digests[0], digests[3], "the mode is not part of the run");
}

#[test]
fn faults_and_deadlocks_are_explained_and_have_their_exit_codes() {
    let folder = folder("ends", &[("crash.wat", CRASH), ("wait.wat", WAIT), ("loop.wat", LOOP)]);
    check("fault.txt", &wavelock(&folder, &["run", "crash.wat"]), 5);
    check("deadlock.txt", &wavelock(&folder, &["run", "wait.wat"]), 6);
    check(
        "frames.txt",
        &wavelock(&folder, &["run", "loop.wat", "--frames", "3", "--frame-cycles", "1_000"]),
        0,
    );
    let fault = json(&wavelock(&folder, &["run", "crash.wat", "--json"]));
    assert_eq!(fault["sessions"][0]["faults"][0]["function"], "divide");
    let deadlock = json(&wavelock(&folder, &["run", "wait.wat", "--json"]));
    assert_eq!(
        (deadlock["outcome"].as_str(), deadlock["deadlock"]["waiting"].as_u64()),
        (Some("deadlocked"), Some(1))
    );
}

#[test]
fn load_errors_point_at_the_line_of_the_manifest() {
    let manifest = |module: &str| {
        format!(
            "[machine]\nquantum_cycles = 2_000\n\n[[session]]\nname = \"a\"\nmodule = \"{module}\"\n"
        )
    };
    let short =
        "[machine]\nframe_cycles = 40\n\n[[session]]\nname = \"a\"\nmodule = \"loop.wat\"\n";
    let globals =
        "[[session]]\nname = \"a\"\nmodule = \"loop.wat\"\ncoroutine_globals = [\"sp\"]\n";
    let folder = folder(
        "refused",
        &[
            ("loop.wat", LOOP),
            ("missing.wat", MISSING),
            ("broken.wat", "(module (func"),
            ("broken.wasm", "\0asm\u{1}\0\0\0\u{1}"),
            ("library.wat", "(module (func (export \"main\") (param i32)))"),
            ("imports.toml", &manifest("missing.wat")),
            ("entry.toml", &manifest("library.wat")),
            ("broken.toml", &manifest("broken.wat")),
            ("absent.toml", &manifest("absent.wasm")),
            ("short.toml", short),
            ("globals.toml", globals),
            (
                "typo.toml",
                "[machine]\nlane = 2\n[[session]]\nname = \"a\"\nmodule = \"loop.wat\"\nprioritty = 3\n",
            ),
        ],
    );
    check("missing-imports.txt", &wavelock(&folder, &["run", "imports.toml"]), 4);
    check("missing-imports-bare.txt", &wavelock(&folder, &["run", "missing.wat"]), 4);
    check("no-entry.txt", &wavelock(&folder, &["run", "entry.toml"]), 4);
    check("broken-text.txt", &wavelock(&folder, &["run", "broken.toml"]), 1);
    check("broken-binary.txt", &wavelock(&folder, &["run", "broken.wasm"]), 1);
    check("absent-module.txt", &wavelock(&folder, &["run", "absent.toml"]), 1);
    check("absent-manifest.txt", &wavelock(&folder, &["run", "nowhere.toml"]), 1);
    check("short-frame.txt", &wavelock(&folder, &["run", "short.toml"]), 4);
    check("short-quantum.txt", &wavelock(&folder, &["run", "entry.toml", "--quantum", "10"]), 4);
    check(
        "fair-quantum.txt",
        &wavelock(&folder, &["run", "loop.wat", "--policy", "fair", "--quantum", "1_000_000_000"]),
        4,
    );
    check("no-global.txt", &wavelock(&folder, &["run", "globals.toml"]), 4);
    check("typo.txt", &wavelock(&folder, &["run", "typo.toml"]), 4);
    check("typo-json.txt", &wavelock(&folder, &["run", "typo.toml", "--json"]), 4);
}

#[test]
fn a_spawning_module_without_a_stack_pointer_is_warned_about() {
    let spawner = r#"(module (import "wavelock" "spawn" (func (param i32 i64) (result i64)))
      (global (mut i32) (i32.const 0)) (func (export "_start")))"#;
    let silent = "[[session]]\nname = \"a\"\nmodule = \"spawner.wat\"\ncoroutine_globals = []\n";
    let named = "[[session]]\nname = \"a\"\nmodule = \"spawner.wat\"\ncoroutine_globals = [0]\n";
    let plain = "[[session]]\nname = \"a\"\nmodule = \"spawner.wat\"\n";
    let folder = folder(
        "spawner",
        &[
            ("spawner.wat", spawner),
            ("silent.toml", silent),
            ("named.toml", named),
            ("plain.toml", plain),
        ],
    );
    check("stack-pointer.txt", &wavelock(&folder, &["run", "plain.toml"]), 0);
    for quiet in ["silent.toml", "named.toml"] {
        let output = wavelock(&folder, &["run", quiet]);
        assert!(!text(&output).contains("warning"), "{}", text(&output));
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn wrong_command_lines_are_usage_errors() {
    let folder = folder("usage", &[("hello.wat", HELLO)]);
    check("usage-workers.txt", &wavelock(&folder, &["run", "hello.wat", "--workers", "0"]), 2);
    check("usage-negative.txt", &wavelock(&folder, &["run", "loop.wat", "--quantum", "-5"]), 2);
    check("usage-policy.txt", &wavelock(&folder, &["run", "hello.wat", "--policy", "fairr"]), 2);
    check("usage-command.txt", &wavelock(&folder, &["runn"]), 2);
    check("usage-man.txt", &wavelock(&folder, &["man", "rum"]), 2);
    assert_eq!(wavelock(&folder, &["--help"]).status.code(), Some(0));
    assert_eq!(wavelock(&folder, &["--version"]).status.code(), Some(0));
}

#[test]
fn completions_and_man_pages_name_every_flag() {
    let folder = folder("generated", &[]);
    let bash = String::from_utf8(wavelock(&folder, &["completions", "bash"]).stdout).expect("text");
    let man = String::from_utf8(wavelock(&folder, &["man", "run"]).stdout).expect("text");
    assert!(
        man.contains(concat!("\"wavelock ", env!("CARGO_PKG_VERSION"), "\"")),
        "a page is of the whole command"
    );
    for flag in [
        "policy",
        "lanes",
        "workers",
        "frames",
        "frame-cycles",
        "quantum",
        "seed",
        "input",
        "stdin",
        "record",
        "report",
        "json",
    ] {
        assert!(bash.contains(&format!("--{flag}")), "completions have --{flag}");
        assert!(
            man.replace("\\-", "-").contains(&format!("--{flag}")),
            "the man page has --{flag}"
        );
    }
}

#[test]
fn neither_workers_nor_a_report_change_the_run() {
    let folder =
        folder("crowd", &[("crowd.toml", CROWD), ("sender.wat", SENDER), ("sum.wat", SUM)]);
    let plain = json(&wavelock(&folder, &["run", "crowd.toml", "--json", "--workers", "1"]));
    assert_eq!(
        plain["sessions"][4]["exit"],
        (4 * (0..300).sum::<u64>()) % 256,
        "everything arrived"
    );
    for (workers, report) in [("1", "one.json"), ("3", "three.json")] {
        let other = json(&wavelock(
            &folder,
            &["run", "crowd.toml", "--json", "--workers", workers, "--report", report],
        ));
        for key in ["digest", "steps", "frames", "cycles", "coroutines", "sessions"] {
            assert_eq!(plain[key], other[key], "{key} with {workers} workers and a report");
        }
    }
    let read = |name: &str| std::fs::read(folder.join(name)).expect("a report");
    assert_eq!(read("one.json"), read("three.json"), "a report is a function of the model");
    let changed = json(&wavelock(&folder, &["run", "crowd.toml", "--json", "--lanes", "2"]));
    assert_ne!(plain["digest"], changed["digest"], "lanes are part of the model");
    assert_eq!(
        plain["sessions"][0]["digest"], changed["sessions"][0]["digest"],
        "observables do not depend on them"
    );
}

#[test]
fn a_recorded_run_is_the_same_run_and_its_trace_verifies() {
    let folder =
        folder("record", &[("crowd.toml", CROWD), ("sender.wat", SENDER), ("sum.wat", SUM)]);
    let plain = json(&wavelock(&folder, &["run", "crowd.toml", "--json"]));
    let recorded = json(&wavelock(
        &folder,
        &["run", "crowd.toml", "--json", "--record", "run.trace", "--report", "run.json"],
    ));
    assert_eq!(plain["digest"], recorded["digest"]);
    assert_eq!(
        recorded["telemetry"]["certified"], recorded["telemetry"]["waves"],
        "recording certifies every wave"
    );
    let file = std::fs::File::open(folder.join("run.trace")).expect("the trace");
    let trace = wavelock_replay::Trace::open(file).expect("a trace");
    let verified = wavelock_replay::verify(trace, 2).expect("it runs again");
    assert!(
        verified.divergence.is_none() && verified.missing.is_none(),
        "{:?}",
        verified.divergence
    );
    assert_eq!(verified.summary.digest.to_string(), plain["digest"]);
    if Path::new("/dev/full").exists() {
        check(
            "trace-disk-full.txt",
            &wavelock(&folder, &["run", "crowd.toml", "--workers", "1", "--record", "/dev/full"]),
            1,
        );
        check(
            "report-disk-full.txt",
            &wavelock(&folder, &["run", "crowd.toml", "--workers", "1", "--report", "/dev/full"]),
            1,
        );
    }
}

#[test]
fn every_cycle_of_a_report_is_in_one_row() {
    let folder = folder("sums", &[("crowd.toml", CROWD), ("sender.wat", SENDER), ("sum.wat", SUM)]);
    assert_eq!(
        wavelock(&folder, &["run", "crowd.toml", "--report", "report.json"]).status.code(),
        Some(0)
    );
    let report: Value =
        serde_json::from_slice(&std::fs::read(folder.join("report.json")).expect("a report"))
            .expect("JSON");
    let sum = |rows: &Value, key: &str| {
        rows.as_array()
            .expect("rows")
            .iter()
            .map(|row| row[key].as_u64().expect("a number"))
            .sum::<u64>()
    };
    let cycles = &report["summary"]["cycles"];
    assert_eq!(sum(&report["scheduler"], "cycles"), cycles["overhead"]);
    assert_eq!(sum(&report["sessions"], "cycles"), cycles["charged"]);
    assert_eq!(sum(&report["sessions"], "slices"), report["summary"]["steps"]);
    for session in report["sessions"].as_array().expect("sessions") {
        assert_eq!(
            sum(&session["functions"], "cycles"),
            session["cycles"],
            "functions of {}",
            session["name"]
        );
        assert_eq!(
            sum(&session["coroutines"], "cycles"),
            session["cycles"],
            "coroutines of {}",
            session["name"]
        );
    }
    let metric = |name: &str| {
        report["metrics"]
            .as_array()
            .expect("metrics")
            .iter()
            .find(|row| row["name"] == name)
            .expect("the metric")
    };
    assert_eq!(
        metric("cycles")["total"],
        cycles["charged"].as_u64().expect("a number")
            + cycles["overhead"].as_u64().expect("a number")
    );
    assert_eq!(metric("messages")["total"], 1_200);
    let sends: u64 = report["sessions"]
        .as_array()
        .expect("sessions")
        .iter()
        .flat_map(|session| session["host"].as_array().expect("rows"))
        .filter(|row| row["name"] == "send")
        .map(|row| row["count"].as_u64().expect("a number"))
        .sum();
    assert_eq!(sends, 1_200);
    let burn = &report["sessions"][0]["functions"][0];
    assert_eq!(burn["name"], "burn");
}

#[test]
fn a_module_is_inspected() {
    let folder = folder("inspect", &[("sender.wat", SENDER), ("missing.wat", MISSING)]);
    check("inspect.txt", &wavelock(&folder, &["inspect", "sender.wat"]), 0);
    check("inspect-missing.txt", &wavelock(&folder, &["inspect", "missing.wat"]), 0);
    let object = json(&wavelock(&folder, &["inspect", "sender.wat", "--json"]));
    assert_eq!(
        (object["runnable"].as_bool(), object["functions"].as_array().map(Vec::len)),
        (Some(true), Some(2))
    );
    assert_eq!(object["imports"][0]["satisfied"], true);
    assert!(
        object["gap"]["cycles"].is_u64() && object["load"]["microseconds"].is_u64(),
        "{object}"
    );
    assert_eq!(object["load"]["peak_bytes"].is_u64(), cfg!(target_os = "linux"), "{object}");
    check("inspect-absent.txt", &wavelock(&folder, &["inspect", "absent.wasm"]), 1);
}

/// A trace is replayed on one and several workers; damage is located; two traces are compared.
#[test]
fn traces_replay_and_differ_as_they_should() {
    let folder = std::env::temp_dir().join(format!("wavelock-replay-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/life/life.toml");
    let wavelock = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_wavelock"))
            .args(arguments)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (one, other) = (file("one.trace"), file("other.trace"));
    assert_eq!(wavelock(&["run", example, "--record", &one]).0, Some(0));
    assert_eq!(
        wavelock(&["run", example, "--policy", "cooperative", "--record", &other]).0,
        Some(0)
    );
    for workers in ["1", "2"] {
        let (code, said) = wavelock(&["replay", &one, "--workers", workers]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with("equal: "), "{said}");
    }
    assert_eq!(wavelock(&["diff", &one, &one]).0, Some(0));
    let (code, said) = wavelock(&["diff", &one, &other]);
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains(
            "every session did the same, in another interleaving; all ended alike; at most "
        ),
        "{said}"
    );
    assert_eq!(
        wavelock(&["diff", &one, &other, "--allow", "sessions"]).0,
        Some(0),
        "life does not depend on the schedule"
    );

    let bytes = std::fs::read(&one).unwrap();
    let cut = file("cut.trace");
    std::fs::write(&cut, &bytes[..bytes.len() - 10]).unwrap();
    let (code, said) = wavelock(&["replay", &cut, "--json"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("equal as far as it goes") && said.contains("incomplete"), "{said}");
    let mut damaged = bytes.clone();
    damaged[bytes.len() / 2] ^= 1;
    std::fs::write(&cut, &damaged).unwrap();
    let (code, said) = wavelock(&["replay", &cut]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("damaged"), "{said}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Creates channel after channel and fills each with messages of 64 KiB, without reaching a limit
/// of one session, coroutine or channel.
const FLOOD: &str = r#"(module
  (import "wavelock" "channel" (func $channel (param i32) (result i32)))
  (import "wavelock" "send_bytes" (func $send_bytes (param i32 i32 i32) (result i32)))
  (memory 1)
  (func (export "_start") (local $channel i32) (local $sent i32)
    (loop $channels
      (local.set $channel (call $channel (i32.const 1000)))
      (local.set $sent (i32.const 0))
      (loop $messages
        (drop (call $send_bytes (local.get $channel) (i32.const 0) (i32.const 65536)))
        (br_if $messages (i32.lt_u (local.tee $sent (i32.add (local.get $sent) (i32.const 1))) (i32.const 1000))))
      (br $channels))))"#;

#[cfg(target_os = "linux")]
#[test]
fn a_flood_that_the_host_cannot_hold_ends_the_run_and_not_the_host() {
    let machine = "[machine]\n[[session]]\nname = \"flood\"\nmodule = \"flood.wat\"\n";
    let folder = folder("flood", &[("flood.wat", FLOOD), ("machine.toml", machine)]);
    let output = wavelock(
        &folder,
        &["run", "machine.toml", "--host-memory", "200", "--record", "flood.trace"],
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("out of host memory") && stderr.contains("its limit is 200 MiB"),
        "{stderr}"
    );
    let held: u64 = stderr
        .split("uses ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next())
        .and_then(|held| held.parse().ok())
        .expect("a number");
    assert!((201..1_000).contains(&held), "found out in time: {held} MiB");
    let output = wavelock(&folder, &["replay", "flood.trace"]);
    // The trace up to that point is complete.
    let text = text(&output);
    assert!(
        text.contains("equal up to where it is truncated")
            && !text.contains(": 0 frames")
            && text.contains("the trace has no end"),
        "{text}"
    );
}

/// A bot without an end, on a context that ends it, beside a guest that exits with 3.
const BOT: &str = "\
[machine]
max_frames = 20
[[session]]
name = \"bot\"
module = \"loop.wat\"
[[session]]
name = \"other\"
module = \"three.wat\"
[[context]]
name = \"play\"
session = \"bot\"
budget_cycles = 5_000
period_cycles = 100_000
overrun = \"end\"
";

const THREE: &str = r#"(module (func (export "main") (result i32) (i32.const 3)))"#;

#[test]
fn what_a_budget_ended_is_killed_and_never_finished() {
    let folder = folder("killed", &[("bot.toml", BOT), ("loop.wat", LOOP), ("three.wat", THREE)]);
    let files = ["run", "bot.toml", "--record", "bot.trace", "--report", "bot.json"];
    check("killed.txt", &wavelock(&folder, &files), 7);
    let object = json(&wavelock(&folder, &["run", "bot.toml", "--json"]));
    let sessions = &object["sessions"];
    assert_eq!(
        (object["outcome"].as_str(), object["coroutines"]["killed"].as_u64()),
        (Some("killed"), Some(1))
    );
    assert_eq!(
        (sessions[0]["outcome"].as_str(), sessions[1]["outcome"].as_str()),
        (Some("killed"), Some("exited"))
    );
    let kill = &sessions[0]["kills"][0];
    assert_eq!(
        (kill["context"].as_str(), kill["budget_cycles"].as_u64()),
        (Some("play"), Some(5_000))
    );
    let report = wavelock(&folder, &["report", "bot.json"]);
    let report = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(report.contains("killed bot/0.0: context `play` allows 5000 cycles"), "{report}");
    let why = wavelock(&folder, &["why", "bot.trace", "--coroutine", "bot", "--at", "2"]);
    let why = String::from_utf8_lossy(&why.stdout).into_owned();
    assert!(why.contains("it was killed: context `play` allows 5000 cycles"), "{why}");
    assert_eq!(wavelock(&folder, &["replay", "bot.trace"]).status.code(), Some(0));
}

/// Writes a line per frame, without end.
const TICK: &str = r#"(module
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1) (data (i32.const 0) "0\0a")
  (func (export "_start")
    (loop $l
      (drop (call $output (i32.const 0) (i32.const 2)))
      (i32.store8 (i32.const 0) (i32.add (i32.load8_u (i32.const 0)) (i32.const 1)))
      (call $sleep (i64.const 1)) (br $l))))"#;

#[test]
fn a_run_out_of_frames_resumes_from_its_end() {
    let folder = folder("goes-on", &[("tick.wat", TICK), ("hello.wat", HELLO)]);
    let whole = wavelock(&folder, &["run", "tick.wat", "--frames", "7"]);
    let files = ["run", "tick.wat", "--frames", "3", "--snapshot", "a.snap", "--record", "a.trace"];
    let first = wavelock(&folder, &files);
    check("frames-snapshot.txt", &first, 0);
    for file in ["a.snap", "a.trace"] {
        let again = ["resume", file, "--frames", "5", "--snapshot", "b.snap"];
        let second = wavelock(&folder, &again);
        assert_eq!(second.status.code(), Some(0), "{}", text(&second));
        let third =
            wavelock(&folder, &["resume", "b.snap", "--frames", "7", "--record", "c.trace"]);
        let outputs = [&first.stdout[..], &second.stdout, &third.stdout].concat();
        assert_eq!(outputs, whole.stdout, "{}", text(&third));
        assert_eq!(wavelock(&folder, &["replay", "c.trace"]).status.code(), Some(0));
    }
    let at = ["snapshot", "tick.wat", "--frames", "3", "--at-frame", "3", "-o", "c.snap"];
    assert_eq!(wavelock(&folder, &at).status.code(), Some(0));
    let fifth = wavelock(&folder, &["resume", "c.snap", "--frames", "7"]);
    assert_eq!([&first.stdout[..], &fifth.stdout].concat(), whole.stdout);
    let over = wavelock(&folder, &["run", "hello.wat", "--snapshot", "none.snap"]);
    check("no-snapshot.txt", &over, 0);
    assert!(!folder.join("none.snap").exists(), "a run that is over leaves no snapshot");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_run_at_a_boundary_with_whole_files() {
    use std::io::Read;
    let folder = folder("interrupt", &[("tick.wat", TICK), ("loop.wat", LOOP)]);
    let interrupt = |arguments: &[&str], times: usize| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_wavelock"))
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("wavelock runs");
        // Something was written, so the run has begun.
        let mut first = [0; 2];
        if times == 1 {
            child.stdout.as_mut().expect("a pipe").read_exact(&mut first).expect("output");
        } else {
            std::thread::sleep(std::time::Duration::from_secs(2));
        }
        let drain = child.stdout.take().map(|mut out| {
            std::thread::spawn(move || {
                let mut rest = Vec::new();
                let _ = out.read_to_end(&mut rest);
                rest
            })
        });
        for _ in 0..times {
            let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            assert!(kill.is_ok_and(|status| status.success()));
            std::thread::sleep(std::time::Duration::from_millis(500));
        }
        let output = child.wait_with_output().expect("an end");
        let rest = drain.and_then(|drain| drain.join().ok()).unwrap_or_default();
        (output, [&first[..], &rest].concat())
    };
    let run =
        ["run", "tick.wat", "--record", "t.trace", "--level", "inputs", "--snapshot", "t.snap"];
    let (output, written) = interrupt(&run, 1);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(
        said.contains("interrupted after") && said.contains("wavelock resume t.snap"),
        "{said}"
    );
    let object = json(&wavelock(&folder, &["replay", "t.trace", "--json"]));
    assert_eq!(object["divergence"], Value::Null, "{object}");
    let frames = written.len() as u64 / 2;
    let until = (frames + 3).to_string();
    for file in ["t.snap", "t.trace"] {
        let again = wavelock(&folder, &["resume", file, "--frames", &until]);
        let whole = wavelock(&folder, &["run", "tick.wat", "--frames", &until]);
        assert_eq!([&written[..], &again.stdout].concat(), whole.stdout, "{file}");
    }
    // One frame without an end: only the second Ctrl-C can end it.
    let (output, _) = interrupt(&["run", "loop.wat", "--frame-cycles", "1_000_000_000_000"], 2);
    assert_eq!(output.status.code(), Some(130));
}

/// Asks for a port that the manifest does not give it.
const ASKS: &str = r#"(module
  (import "wavelock" "port" (func $port (param i32 i32) (result i32)))
  (memory 1) (data (i32.const 0) "results")
  (func (export "_start") (drop (call $port (i32.const 0) (i32.const 7)))))"#;

/// As a compiler for C would: a function that pushes 16 bytes is spawned without a stack.
const NO_STACK: &str = r#"(module
  (import "wavelock" "spawn" (func $spawn (param i32 i64) (result i64)))
  (memory 1) (table 1 funcref) (elem (i32.const 0) $child)
  (global $__stack_pointer (export "__stack_pointer") (mut i32) (i32.const 65536))
  (func $push (result i32)
    (global.set $__stack_pointer (i32.sub (global.get $__stack_pointer) (i32.const 16)))
    (i32.store (global.get $__stack_pointer) (i32.const 1))
    (i32.const 0))
  (func $child (param i64) (result i64) (i64.extend_i32_u (call $push)))
  (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 0)))))"#;

const VECTOR: &str = r#"(module
  (func (export "main") (result i32) (i32x4.extract_lane 0 (v128.const i32x4 1 2 3 4))))"#;

/// What a new user does wrong, and the answers, in one file.
#[test]
fn mistakes_of_a_new_user_are_answered_with_what_to_do() {
    let manifest = |text: &str| format!("[[session]]\nname = \"bot\"\n{text}\n");
    let files = [
        ("bot.c", "int main(void) { return 0; }\n".to_owned()),
        ("hello.wat", HELLO.to_owned()),
        ("take.wat", TAKE_ONE.to_owned()),
        ("four.jsonl", FOUR_EVENTS.to_owned()),
        ("broken.wat", "(module\n  (func (export \"main\")\n    (i32.cons 1)))\n".to_owned()),
        ("crash.wat", CRASH.to_owned()),
        ("wait.wat", WAIT.to_owned()),
        ("loop.wat", LOOP.to_owned()),
        ("three.wat", THREE.to_owned()),
        ("missing.wat", MISSING.to_owned()),
        ("asks.wat", ASKS.to_owned()),
        ("no-stack.wat", NO_STACK.to_owned()),
        ("vector.wat", VECTOR.to_owned()),
        ("no-entry.wat", "(module (func (export \"go\")))".to_owned()),
        ("bot.toml", BOT.to_owned()),
        ("key.toml", manifest("modul = \"hello.wat\"")),
        ("absent.toml", manifest("module = \"helo.wat\"")),
        ("live.toml", format!("[machine]\nlive = true\n{}", manifest("module = \"hello.wat\""))),
        ("memory.toml", manifest("module = \"take.wat\"\nmemory_pages = 0")),
        (
            "profile.toml",
            manifest("module = \"loop.wat\"\nprofile = \"smal\"\n\n[[profile]]\nname = \"small\""),
        ),
        ("small.toml", manifest("module = \"loop.wat\"\nbudget_cycles = 10")),
        ("word.toml", manifest("module = \"loop.wat\"\nbudget_cycles = 50000\noverrun = \"kill\"")),
    ];
    let files: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let folder = folder("mistakes", &files);
    std::fs::write(folder.join("component.wasm"), b"\0asm\x0d\0\x01\0").expect("a file");
    std::fs::write(folder.join("native.wasm"), b"\x7fELF\x02\x01\x01").expect("a file");
    let record = ["run", "take.wat", "--record", "take.trace"];
    assert_eq!(wavelock(&folder, &record).status.code(), Some(0));
    let trace = std::fs::read(folder.join("take.trace")).expect("the trace");
    std::fs::write(folder.join("killed.trace"), &trace[..trace.len() - 40]).expect("a file");
    let mistakes: [(&str, &[&str]); 36] = [
        ("source code instead of a module", &["run", "bot.c"]),
        ("a component", &["run", "component.wasm"]),
        ("a native program", &["run", "native.wasm"]),
        ("a module that uses SIMD", &["run", "vector.wat"]),
        ("text with a mistake", &["run", "broken.wat"]),
        ("a module without an entry", &["run", "no-entry.wat"]),
        ("imports that do not exist", &["run", "missing.wat"]),
        ("a folder", &["run", "."]),
        ("a file that does not exist", &["run", "helo.wat"]),
        ("a module that does not exist", &["run", "absent.toml"]),
        ("an unknown key", &["run", "key.toml"]),
        ("a cap that cannot be enforced", &["run", "small.toml"]),
        ("an overrun that does not exist", &["run", "word.toml"]),
        ("a profile that does not exist", &["run", "profile.toml"]),
        ("a session that may not have its memory", &["run", "memory.toml"]),
        ("a command that does not exist", &["rum", "hello.wat"]),
        ("a trace instead of a machine", &["run", "take.trace"]),
        ("a machine instead of a trace", &["replay", "hello.wat"]),
        ("the trace of a killed run", &["replay", "killed.trace"]),
        ("a flag that a trace cannot honour", &["debug", "take.trace", "--lanes", "2"]),
        (
            "a quantum for a policy without one",
            &["run", "hello.wat", "--policy", "cooperative", "--quantum", "500"],
        ),
        ("a policy for a command that runs all", &["lab", "hello.wat", "--policy", "fair"]),
        ("a trace in the place of the module", &["run", "hello.wat", "--record", "./hello.wat"]),
        ("two results in one file", &["run", "hello.wat", "--record", "out", "--report", "out"]),
        ("input that nobody reads", &["run", "take.wat", "--input", "four.jsonl"]),
        ("a port that was not given", &["run", "asks.wat"]),
        ("a spawn without a stack", &["run", "no-stack.wat"]),
        ("a fault, with the lines of its callers", &["run", "crash.wat"]),
        ("a wait that cannot end", &["run", "wait.wat"]),
        ("a bot that its budget ends", &["run", "bot.toml"]),
        ("a machine that `lab` might not end", &["lab", "hello.wat"]),
        ("a live machine that nobody drives", &["run", "live.toml"]),
        ("a live flag without --live", &["run", "take.wat", "--listen", "127.0.0.1:7000"]),
        ("a port for other hosts", &["run", "--live", "take.wat", "--listen", "0.0.0.0:7000"]),
        ("lines for a session that does not exist", &["run", "--live", "take.wat", "--to", "tak"]),
        ("a duration without a unit", &["run", "--live", "take.wat", "--for", "10"]),
    ];
    let mut told = String::new();
    for (number, (title, arguments)) in (1..).zip(mistakes) {
        let output = text(&wavelock(&folder, arguments));
        told += &format!("## {number}. {title}\n$ wavelock {}\n{output}\n", arguments.join(" "));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs/mistakes.txt");
    if std::env::var_os("WAVELOCK_BLESS").is_some() {
        std::fs::write(&path, &told).expect("bless");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(expected, told, "run with WAVELOCK_BLESS=1 to accept");
}

#[test]
fn measuring_changes_nothing_and_prints_the_lanes() {
    let files = [("crowd.toml", CROWD), ("sender.wat", SENDER), ("sum.wat", SUM)];
    let folder = folder("measure", &files);
    let run = |more: &[&str]| {
        let arguments = [&["run", "crowd.toml", "--workers", "1", "--json"], more].concat();
        json(&wavelock(&folder, &arguments))
    };
    let (plain, measured) = (run(&[]), run(&["--measure"]));
    assert_eq!(plain["digest"], measured["digest"]);
    let sum = |object: &Value, of: &dyn Fn(&Value) -> Option<u64>| -> u64 {
        object["lanes"].as_array().expect("lanes").iter().filter_map(of).sum()
    };
    // The lanes are the ledger: their sums are the totals, and so are those of the sessions.
    for part in ["charged", "overhead", "idle"] {
        let lanes = sum(&plain, &|lane| lane[part].as_u64());
        assert_eq!(plain["cycles"][part].as_u64(), Some(lanes), "{part}");
    }
    let sessions = plain["sessions"].as_array().expect("sessions").iter();
    let charged: u64 = sessions.filter_map(|session| session["cycles"].as_u64()).sum();
    assert_eq!(plain["cycles"]["charged"].as_u64(), Some(charged));
    let wakes = sum(&plain, &|lane| lane["counters"]["wakes"].as_u64());
    let by_source = sum(&plain, &|lane| {
        lane["wakes"].as_object().map(|wakes| wakes.values().filter_map(Value::as_u64).sum())
    });
    assert!(wakes > 0 && wakes == by_source, "{wakes} {by_source}");
    let considered = |object: &Value| sum(object, &|lane| lane["counters"]["considered"].as_u64());
    assert!(considered(&plain) == 0 && considered(&measured) > 0);
    let service = &plain["services"][0];
    assert_eq!((service["name"].as_str(), service["sessions"].as_u64()), (Some("sender"), Some(4)));
    let output = wavelock(&folder, &["run", "crowd.toml", "--measure", "--workers", "1"]);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("considered") && told.contains("wakes by channel"), "{told}");
}

/// A session that starves beside an idle lane, which may not take it: named, with what to change.
const STARVES: &str = r#"
[machine]
lanes = 2
policy = "priority-fixed"
frame_cycles = 100_000
steal = true

[[session]]
name = "hog"
module = "loop.wat"
lane = 0
priority = 9

[[session]]
name = "meek"
module = "loop.wat"
lane = 0
"#;

#[test]
fn a_session_that_may_not_move_to_an_idle_lane_is_named() {
    let free = STARVES.trim_end().strip_suffix("lane = 0").expect("the last line");
    let files = [("starves.toml", STARVES), ("free.toml", free), ("loop.wat", LOOP)];
    let folder = folder("starves", &files);
    let run = |file: &str, more: &[&str]| {
        wavelock(&folder, &[&["run", file, "--frames", "30"], more].concat())
    };
    let object = json(&run("starves.toml", &["--json", "--report", "costs.json"]));
    let stuck = &object["stuck_migrations"];
    assert_eq!((stuck["coroutine"].as_str(), stuck["lane"].as_u64()), (Some("meek/0"), Some(0)));
    assert_eq!(stuck["limit_cycles"].as_u64(), Some(800_000));
    let waited = stuck["waited_cycles"].as_u64().expect("a number");
    assert!((2_000_000..=3_000_000).contains(&waited), "{waited}");
    let told = "stuck: meek/0 waited ";
    let fix = "the manifest names its `lane`. To let it move, leave out its `lane`\n";
    for output in [run("starves.toml", &[]).stderr, report(&folder)] {
        let text = String::from_utf8_lossy(&output);
        assert!(text.contains(told) && text.contains(fix), "{text}");
    }
    let object = json(&run("free.toml", &["--json"]));
    assert!(object["stuck_migrations"].is_null(), "it moved: {object}");
}

/// What `wavelock report costs.json` prints.
fn report(folder: &Path) -> Vec<u8> {
    wavelock(folder, &["report", "costs.json"]).stdout
}
