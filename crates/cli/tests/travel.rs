//! Snapshots, resumed runs, forks, and recordings after a kill or on a full disk, as a user runs
//! the commands.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use wavelock_module::{Limits, Module};
use wavelock_replay::{Level, RecordedMachine};
use wavelock_system::MachineSpec;
use wavelock_trace::{ChunkKind, TraceWriter};

const BINARY: &str = env!("CARGO_BIN_EXE_wavelock");

/// A temporary directory, removed at the end of the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("wavelock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn wavelock(arguments: &[&str]) -> Output {
    Command::new(BINARY).args(arguments).output().unwrap()
}

fn done(arguments: &[&str]) -> Output {
    let output = wavelock(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_slice(&wavelock(arguments).stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn example(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples")
        .join(name)
        .to_string_lossy()
        .into_owned()
}

/// Everything that stopping and resuming must not change: all but telemetry and output, which is
/// that of the resumed part.
fn facts(mut run: serde_json::Value) -> serde_json::Value {
    run.as_object_mut().unwrap().remove("telemetry");
    for session in run["sessions"].as_array_mut().unwrap() {
        let session = session.as_object_mut().unwrap();
        session.remove("output");
        session.remove("log");
    }
    run
}

#[test]
fn a_resumed_machine_equals_one_that_never_stopped() {
    let folder = Folder::new("resume");
    let saved = folder.file("saved");
    let mut stopped = 0;
    let names = [
        "life/life",
        "philosophers/ordered",
        "philosophers/deadlock",
        "primes/primes",
        "arena/arena",
    ];
    for name in names.map(|name| format!("{name}.toml")) {
        let manifest = example(&name);
        let whole = json(&["run", &manifest, "--json"]);
        let output = wavelock(&["run", &manifest]).stdout;
        let frames = whole["frames"].as_u64().unwrap();
        for frame in std::collections::BTreeSet::from([1.min(frames - 1), frames / 2]) {
            let at = frame.to_string();
            let first = wavelock(&["snapshot", &manifest, "--at-frame", &at, "-o", &saved]);
            assert!(
                first.status.success(),
                "{name}, frame {frame}: {}",
                String::from_utf8_lossy(&first.stderr)
            );
            stopped += 1;
            for workers in ["1", "2"] {
                assert_eq!(
                    facts(json(&["resume", &saved, "--workers", workers, "--json"])),
                    facts(whole.clone()),
                    "{name}, frame {frame}"
                );
            }
            let rest = wavelock(&["resume", &saved]).stdout;
            assert!(
                [first.stdout, rest].concat() == output,
                "{name}, frame {frame}: the two outputs are the one"
            );
        }
    }
    assert!(stopped >= 8, "{stopped} machines were stopped");
}

#[test]
fn a_resumed_recording_keeps_its_certificates() {
    let folder = Folder::new("resume-certificates");
    let (saved, trace) = (folder.file("saved"), folder.file("trace"));
    done(&["snapshot", &example("life/life.toml"), "--at-frame", "2", "-o", &saved]);
    done(&["resume", &saved, "--workers", "1", "--record", &trace]);
    let checked = json(&["certify", &trace, "--json"]);
    assert!(checked["certificates"].as_u64().is_some_and(|count| count > 0), "{checked}");
    done(&["certify", &trace]);
}

#[test]
fn a_resumed_run_reports_the_costs_from_the_snapshot_on() {
    let folder = Folder::new("resume-report");
    let (saved, whole, rest) = (folder.file("saved"), folder.file("whole"), folder.file("rest"));
    let manifest = example("life/life.toml");
    done(&["run", &manifest, "--report", &whole]);
    done(&["snapshot", &manifest, "--at-frame", "4", "-o", &saved]);
    done(&["resume", &saved, "--report", &rest, "--workers", "2"]);
    let [whole, part] =
        [&whole, &rest].map(|file| json(&["report", file, "--json"])["report"].clone());
    assert_eq!(whole["summary"], part["summary"], "totals are the whole run's");
    assert_eq!(whole["model"], part["model"]);
    let count = |report: &serde_json::Value, key: &str| -> u64 {
        report["sessions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|session| session[key].as_u64().unwrap())
            .sum()
    };
    let (all, some) = (count(&whole, "slices"), count(&part, "slices"));
    assert!(0 < some && some < all, "{some} of {all} slices came after the snapshot");
    let functions = |report: &serde_json::Value| -> u64 {
        let sessions = report["sessions"].as_array().unwrap().iter();
        sessions
            .flat_map(|session| session["functions"].as_array().unwrap())
            .map(|function| function["cycles"].as_u64().unwrap())
            .sum()
    };
    assert!(0 < functions(&part) && functions(&part) < functions(&whole));
}

#[test]
fn forks_are_recorded_replayed_and_compared() {
    let folder = Folder::new("fork");
    let (trace, other, same) = (folder.file("trace"), folder.file("other"), folder.file("same"));
    let manifest = example("life/life.toml");
    done(&["run", &manifest, "--record", &trace, "--level", "schedule", "--snapshot-every", "3"]);
    assert!(done(&["replay", &trace]).stdout.starts_with(b"equal: "));
    done(&["resume", &trace, "--at-frame", "4", "--record", &same]);
    done(&["resume", &trace, "--at-frame", "4", "--policy", "cooperative", "--record", &other]);
    for recorded in [&same, &other] {
        let said = done(&["replay", recorded, "--workers", "2"]);
        assert!(said.stdout.starts_with(b"equal: "), "{}", String::from_utf8_lossy(&said.stdout));
    }
    done(&["diff", &trace, &same]);
    let futures = wavelock(&["diff", &trace, &other]);
    assert_eq!(futures.status.code(), Some(3), "another policy gives another run");
    assert!(
        String::from_utf8_lossy(&futures.stdout).contains("first different event: frame 4, lane "),
        "{futures:?}"
    );
    done(&["diff", &trace, &other, "--allow", "sessions"]);
    let early = wavelock(&["resume", &same, "--at-frame", "2"]);
    assert_eq!(early.status.code(), Some(4), "{}", String::from_utf8_lossy(&early.stderr));
    let late = wavelock(&["resume", &same, "--at-frame", "1000000"]);
    assert_eq!(late.status.code(), Some(4), "{}", String::from_utf8_lossy(&late.stderr));
}

/// Prints the input of every frame; ends when the input ends.
const ECHO: &str = r#"(module
    (import "wavelock" "sleep" (func $sleep (param i64)))
    (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
    (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
    (memory 1)
    (func (export "_start") (local $left i32) (local $got i32)
        (local.set $left (i32.const 20))
        (loop $again
            (local.set $got (call $input (i32.const 0) (i32.const 100)))
            (if (i32.gt_s (local.get $got) (i32.const 0)) (then (drop (call $output (i32.const 0) (local.get $got)))))
            (call $sleep (i64.const 1))
            (br_if $again (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#;

#[test]
fn a_fork_receives_the_new_inputs() {
    let folder = Folder::new("inputs");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.0.join(name), text).unwrap();
        folder.file(name)
    };
    let module = write("echo.wat", ECHO);
    let line = |frame: u64, text: &str| {
        format!("{{\"frame\":{frame},\"session\":\"*\",\"text\":\"{text}\"}}\n")
    };
    let inputs = write("inputs", &(line(2, "a") + &line(5, "b") + &line(9, "c")));
    let others = write("others", &(line(8, "x") + &line(11, "y")));
    let saved = folder.file("saved");
    let first = done(&["snapshot", &module, "--input", &inputs, "--at-frame", "7", "-o", &saved]);
    assert_eq!(first.stdout, b"ab");
    assert_eq!(done(&["resume", &saved]).stdout, b"c");
    let fork = folder.file("fork");
    assert_eq!(done(&["resume", &saved, "--input", &others, "--record", &fork]).stdout, b"xy");
    assert!(done(&["replay", &fork]).stdout.starts_with(b"equal: "));
    let rest = folder.file("rest");
    done(&["resume", &saved, "--record", &rest]);
    let apart = &json(&["diff", &rest, &fork, "--json"])["apart"];
    assert_eq!((&apart["frame"], &apart["lane"]), (&8.into(), &serde_json::Value::Null), "{apart}");
    assert_eq!(apart["second"], "input for echo: 1 byte, \"x\"", "{apart}");
    let early = wavelock(&["resume", &saved, "--input", &inputs]);
    assert_eq!(early.status.code(), Some(4), "what is before the snapshot cannot be heard again");
}

/// Endless: two coroutines yield forever and write memory.
const ENDLESS: &str = r#"(module
    (import "wavelock" "yield" (func $yield))
    (memory 4)
    (global $at (mut i32) (i32.const 0))
    (func (export "_start")
        (loop $again
            (i32.store (i32.and (global.get $at) (i32.const 0x3fffc)) (global.get $at))
            (global.set $at (i32.add (global.get $at) (i32.const 404)))
            (call $yield)
            (br $again))))"#;

#[test]
fn a_kill_at_any_time_loses_at_most_the_unfinished_chunk() {
    let folder = Folder::new("kill");
    let module = folder.file("endless.wat");
    std::fs::write(&module, ENDLESS).unwrap();
    let trace = folder.file("trace");
    let mut verified = 0;
    for round in 0..8u64 {
        let arguments = [
            "run",
            &module,
            "--record",
            &trace,
            "--snapshot-every",
            "2",
            "--frame-cycles",
            "50000",
        ];
        let mut child = Command::new(BINARY)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(15 + round * 37 % 90));
        child.kill().unwrap();
        let _ = child.wait();
        let said = json(&["replay", &trace, "--json"]);
        match said["verdict"].as_str() {
            Some(verdict) => {
                assert_eq!(verdict, "equal as far as it goes", "{said}");
                assert!(said["missing"].is_string(), "{said}");
                verified += u64::from(said["frames"].as_u64().unwrap() > 0);
            }
            // Killed before the first chunk was complete.
            None => assert!(said["error"].is_object() || said["error"].is_string(), "{said}"),
        }
    }
    assert!(verified >= 4, "{verified} of 8 traces had frames to verify");
    // The recorded part can be resumed.
    let resumed = json(&["resume", &trace, "--at-frame", "1", "--frames", "3", "--json"]);
    assert_eq!(resumed["outcome"], "frames", "{resumed}");
}

#[cfg(unix)]
#[test]
fn a_full_disk_ends_the_recording_at_a_chunk_and_not_the_run() {
    let folder = Folder::new("full");
    let trace = folder.file("trace");
    let manifest = example("life/life.toml");
    done(&["run", &manifest, "--record", &trace, "--snapshot-every", "1"]);
    let whole = std::fs::metadata(&trace).unwrap().len();
    assert!(whole > 20_000, "{whole} bytes");
    // Limit files to a few blocks of 512 bytes, and ignore the signal that would kill the process.
    let script = format!(
        "trap '' XFSZ; ulimit -f {}; exec \"$0\" run \"$1\" --record \"$2\" --snapshot-every 1 --json",
        whole / 2 / 512
    );
    let output =
        Command::new("sh").args(["-c", &script, BINARY, &manifest, &trace]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("ends early"));
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(run["digest"], json(&["run", &manifest, "--json"])["digest"], "the run went on");
    let said = json(&["replay", &trace, "--json"]);
    assert_eq!(said["verdict"], "equal as far as it goes", "{said}");
}

#[test]
fn a_file_of_the_wrong_kind_is_refused_with_the_command_to_use() {
    let folder = Folder::new("kinds");
    let (saved, trace, cut) = (folder.file("saved"), folder.file("trace"), folder.file("cut"));
    let manifest = example("philosophers/ordered.toml");
    done(&["run", &manifest, "--record", &trace]);
    let told = done(&["snapshot", &manifest, "--at-frame", "3", "-o", &saved]).stderr;
    assert!(
        String::from_utf8_lossy(&told).contains("snapshot before frame 3, after "),
        "{}",
        String::from_utf8_lossy(&told)
    );
    let whole = std::fs::read(&saved).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 9]).unwrap();
    let longer = [std::fs::read(&trace).unwrap(), vec![0; 40]].concat();
    let after = longer.len() - 40;
    std::fs::write(folder.file("longer"), &longer).unwrap();
    for (arguments, exit, wanted) in [
        (
            ["run", &trace],
            4,
            "is a trace or a snapshot, not a manifest: use `wavelock replay` to run a trace again"
                .to_owned(),
        ),
        (["explore", &saved], 4, "`wavelock resume` to continue a snapshot".to_owned()),
        (["inspect", &trace], 4, "is a trace or a snapshot, not a module".to_owned()),
        (
            ["replay", &saved],
            4,
            "is a snapshot without frames to compare: use `wavelock resume` to continue it"
                .to_owned(),
        ),
        (["resume", &trace], 4, "contains no snapshot: record with --snapshot-every".to_owned()),
        (["resume", &cut], 4, "is truncated and contains no complete snapshot".to_owned()),
        (
            ["report", &manifest],
            4,
            "is not a report written by `wavelock run --report`: it is not JSON".to_owned(),
        ),
        (
            ["replay", &manifest],
            1,
            "this is not a trace: it does not begin with `WAVELOCK`".to_owned(),
        ),
        (
            ["replay", &folder.file("longer")],
            1,
            format!("byte {after}: the trace ends here, but more bytes follow"),
        ),
        (["certify", &folder.file("longer")], 1, format!("byte {after}: ")),
    ] {
        let output = wavelock(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&wanted), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {said}");
    }
}

/// A trace of a build with another guest interface: it imports `yeild`, which does not exist here.
fn foreign_trace() -> Vec<u8> {
    let text = br#"(module (import "wavelock" "yeild" (func)) (func (export "_start")))"#;
    let bytes = wat::parse_bytes(text).unwrap().into_owned();
    let module = Module::new(&bytes, &Limits::default()).unwrap();
    let mut spec = MachineSpec::new();
    let number = spec.add_module(Arc::new(module), &bytes);
    spec.add_session("main", number);
    let machine = RecordedMachine { spec, modules: vec![bytes], inputs: Vec::new() };
    let first = [vec![Level::Inputs as u8], machine.encode()].concat();
    let mut trace = Vec::new();
    TraceWriter::new(&mut trace)
        .and_then(|mut writer| writer.append(ChunkKind::Machine, &first))
        .unwrap();
    trace
}

#[test]
fn every_command_suggests_the_nearest_name() {
    let folder = Folder::new("nearly");
    let (trace, out, there) =
        (folder.file("foreign.trace"), folder.file("out"), folder.file("inside/deeper"));
    std::fs::write(&trace, foreign_trace()).unwrap();
    std::fs::create_dir_all(folder.file("inside")).unwrap();
    std::fs::write(&there, "").unwrap();
    // An import that does not exist, in a machine from a trace instead of a manifest.
    let import = "`wavelock` `yeild` () -> (); did you mean `yield`?";
    let recorded: [&[&str]; 5] = [
        &["replay", &trace],
        &["resume", &trace, "--at-frame", "1"],
        &["debug", &trace],
        &["why", &trace, "--coroutine", "main", "--at", "0"],
        &["export", &trace, "--format", "perfetto", "-o", &out],
    ];
    // A typo in the name of a file, and in that of a directory above it.
    let (slip, far) = (folder.file("foriegn.trace"), folder.file("insied/deeper"));
    let file = format!(
        "cannot read `{slip}`: No such file or directory (os error 2); did you mean `{trace}`?"
    );
    let way =
        format!("; there is no directory `{}`; did you mean `{there}`?", folder.file("insied"));
    let manifest = example("hello/hello.toml");
    let cases = recorded.into_iter().map(|arguments| (arguments.to_vec(), 4, import.to_owned()));
    let slips = ["run", "replay", "resume", "certify", "debug", "inspect", "report"]
        .map(|command| (vec![command, &slip], 1, file.clone()));
    let ways =
        ["run", "replay", "resume", "debug"].map(|command| (vec![command, &far], 1, way.clone()));
    let outputs = [(vec!["run", &manifest, "--record", &far], 1, way.clone())];
    let (hello, inside) = (example("hello"), folder.file("inside"));
    let folders = [
        (
            vec!["run", &hello],
            1,
            format!(
                "`{hello}` is a directory, not a manifest or a module; did you mean `{manifest}`?"
            ),
        ),
        (
            vec!["debug", &inside],
            1,
            format!("`{inside}` is a directory, not a manifest or a module\n"),
        ),
        (
            vec!["replay", &inside],
            1,
            format!("`{inside}` is a directory, not a trace or a snapshot\n"),
        ),
        (
            vec!["resume", &manifest],
            1,
            "`wavelock run --record FILE` writes a trace, `wavelock snapshot` a snapshot"
                .to_owned(),
        ),
    ];
    for (arguments, exit, wanted) in cases.chain(slips).chain(ways).chain(outputs).chain(folders) {
        let output = wavelock(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&wanted), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {said}");
    }
}

#[test]
fn a_failed_snapshot_leaves_the_existing_file_unchanged() {
    let folder = Folder::new("kept");
    let (saved, other) = (folder.file("saved"), folder.file("other"));
    let manifest = example("philosophers/ordered.toml");
    done(&["snapshot", &manifest, "--at-frame", "3", "-o", &saved]);
    let whole = std::fs::read(&saved).unwrap();
    for path in [&saved, &other] {
        let output = wavelock(&["snapshot", &manifest, "--at-frame", "999999", "-o", path]);
        assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(std::fs::read(&saved).unwrap() == whole, "the existing snapshot is unchanged");
    assert!(!Path::new(&other).exists(), "there is no empty file");
    // A shorter snapshot truncates a longer file.
    std::fs::write(&other, vec![7; whole.len() + 1000]).unwrap();
    done(&["snapshot", &manifest, "--at-frame", "3", "-o", &other]);
    assert!(std::fs::read(&other).unwrap() == whole, "the same snapshot, and nothing after it");
}

/// An unwritable output path is refused before the work, not after hours of it.
#[test]
fn output_paths_are_checked_before_the_work() {
    let folder = Folder::new("asked");
    let (nowhere, there, file) = (folder.file("no/x"), folder.file("there"), folder.file("file"));
    std::fs::create_dir(&there).unwrap();
    std::fs::write(&file, "kept").unwrap();
    let manifest = example("philosophers/deadlock.toml");
    let (missing, is_folder) = ("there is no directory `", "Is a directory");
    for (command, output, wanted) in [
        ("explore", &nowhere, missing),
        ("explore", &there, is_folder),
        ("lab", &nowhere, missing),
        ("lab", &there, is_folder),
    ] {
        let output = wavelock(&[command, &manifest, "-o", output]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot write `") && said.contains(wanted), "{command}: {said}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{command}: {said}");
    }
    for (out, wanted) in [(folder.file("no"), "No such file"), (file.clone(), "Not a directory")] {
        let output = wavelock(&["soak", "--machines", "1", "--out", &out]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("cannot write into `") && said.contains(wanted), "{said}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
    }
    // No difference is found, so an existing file is unchanged and no new one is created.
    let hello = example("hello/hello.toml");
    done(&["explore", &hello, "-o", &file]);
    done(&["explore", &hello, "-o", &folder.file("new")]);
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    assert!(!Path::new(&folder.file("new")).exists());
}

#[test]
fn positions_before_a_snapshot_are_refused() {
    let folder = Folder::new("before");
    let (saved, empty) = (folder.file("saved"), folder.file("empty.wasm"));
    std::fs::write(&empty, "").unwrap();
    let manifest = example("life/life.toml");
    done(&["snapshot", &manifest, "--at-frame", "5", "-o", &saved]);
    let frames = format!(
        "--frames 5 counts from the start of the original run, and `{saved}` continues before frame 5: use at least 6"
    );
    let cases: [(&[&str], i32, &str); 5] = [
        (&["resume", &saved, "--frames", "5"], 4, &frames),
        (
            &["why", &saved, "--coroutine", "printer", "--at", "100"],
            2,
            "so it does not contain step 100",
        ),
        (
            &["diff", &saved, &saved],
            4,
            "cannot be compared: the trace has no end: the run was killed before it could write one",
        ),
        (
            &["inspect", &manifest],
            1,
            "looks like a manifest, not a module (.wasm, .wat): use `wavelock run` for manifests",
        ),
        (&["run", &empty], 1, "is empty, not a module"),
    ];
    for (arguments, exit, wanted) in cases {
        let output = wavelock(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(wanted), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {said}");
    }
    assert_eq!(json(&["resume", &saved, "--frames", "6", "--json"])["frames"], 6);
}

/// Runs a machine with a closed pipe as standard output, and waits for its end.
fn unread(arguments: &[&str]) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    // Close the pipe before the start: a fast machine could otherwise write everything first.
    drop(reader);
    Command::new(BINARY).args(arguments).stdout(writer).stderr(Stdio::piped()).output().unwrap()
}

#[test]
fn a_closed_pipe_is_no_error_and_loses_no_file() {
    let folder = Folder::new("unread");
    let (trace, report, saved) =
        (folder.file("trace"), folder.file("report"), folder.file("saved"));
    let manifest = example("philosophers/ordered.toml");
    let output = unread(&["run", &manifest]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "nothing more is wanted, so nothing more is done: {said}"
    );
    let output = unread(&["run", &manifest, "--record", &trace, "--report", &report]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("finished after"), "{said}");
    done(&["replay", &trace]);
    done(&["report", &report]);
    assert!(unread(&["snapshot", &manifest, "--at-frame", "9", "-o", &saved]).status.success());
    done(&["resume", &saved]);
}
