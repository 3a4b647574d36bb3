//! Traces of earlier builds, in `corpus/traces`: every later build replays each to its end, or
//! refuses it and names the version.
//!
//! `WAVELOCK_BLESS=1` records missing ones. An existing one is never overwritten: a build that
//! cannot replay it must name the version it does not support.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn wavelock(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_wavelock"))
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap()
}

/// Name of the trace, its machine, and the flags of its recording.
const GOLDEN: [(&str, &str, &[&str]); 8] = [
    ("ordered-full", "examples/philosophers/ordered.toml", &["--level", "full"]),
    ("deadlock-full", "examples/philosophers/deadlock.toml", &["--level", "full"]),
    (
        "ordered-snapshots",
        "examples/philosophers/ordered.toml",
        &["--level", "schedule", "--snapshot-every", "5"],
    ),
    (
        "ordered-state-2",
        "examples/philosophers/ordered.toml",
        &["--level", "schedule", "--snapshot-every", "5"],
    ),
    ("life-inputs", "examples/life/life.toml", &["--level", "inputs"]),
    ("deadlock-cost-2", "examples/philosophers/deadlock.toml", &["--level", "full"]),
    (
        "ordered-cost-2",
        "examples/philosophers/ordered.toml",
        &["--level", "schedule", "--snapshot-every", "5"],
    ),
    ("life-cost-2", "examples/life/life.toml", &["--level", "inputs"]),
];

#[test]
fn golden_traces_replay_or_are_refused_by_version() {
    let folder = root().join("corpus/traces");
    for (name, machine, flags) in GOLDEN {
        let path = folder.join(format!("{name}.trace"));
        let trace = path.to_string_lossy();
        if std::env::var_os("WAVELOCK_BLESS").is_some() && !path.exists() {
            wavelock(&[&["run", machine, "--record", &trace], flags].concat());
        }
        for workers in ["1", "2"] {
            let said = wavelock(&["replay", &trace, "--workers", workers]);
            let text = String::from_utf8_lossy(&said.stdout).into_owned()
                + &String::from_utf8_lossy(&said.stderr);
            match said.status.code() {
                Some(0) => assert!(
                    name.ends_with("-cost-2") && text.starts_with("equal: "),
                    "{name}: {text}"
                ),
                Some(1 | 4) => assert!(
                    !name.ends_with("-cost-2")
                        && text.contains("cost table version 1: this build has version 2"),
                    "{name} is refused for another reason: {text}"
                ),
                code => panic!("{name}: exit {code:?}: {text}"),
            }
        }
        let length = std::fs::metadata(&path).unwrap().len();
        assert!(length < 64 << 10, "{name}: {length} bytes; a golden trace is small");
    }
    let kept = std::fs::read_dir(&folder)
        .unwrap()
        .filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "trace"));
    assert_eq!(kept.count(), GOLDEN.len(), "every trace of the folder is in the list");
}

/// A snapshot in a golden trace can be resumed; one of an earlier format is refused with its
/// version.
#[test]
fn a_snapshot_of_an_earlier_build_is_resumed_or_refused_by_version() {
    let resume = |name: &str| {
        let trace = root().join(format!("corpus/traces/{name}.trace"));
        wavelock(&["resume", &trace.to_string_lossy(), "--json"])
    };
    for name in ["ordered-snapshots", "ordered-state-2"] {
        let old = resume(name);
        assert_eq!(old.status.code(), Some(4), "{old:?}");
        let error = String::from_utf8_lossy(&old.stderr);
        assert!(error.contains("cost table version 1: this build has version 2"), "{error}");
    }
    let resumed = resume("ordered-cost-2");
    assert_eq!(resumed.status.code(), Some(0), "{resumed:?}");
    let live = wavelock(&["run", "examples/philosophers/ordered.toml", "--json"]);
    let digest = |output: &Output| {
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["digest"].clone()
    };
    assert_eq!(digest(&resumed), digest(&live), "it ends as the run that was never stopped");
}

/// The test can fail: another version in the file's header is refused with its number.
#[test]
fn another_format_is_refused_by_its_number() {
    let mut bytes = std::fs::read(root().join("corpus/traces/ordered-full.trace")).unwrap();
    bytes[8] = 77;
    let path = std::env::temp_dir().join(format!("wavelock-golden-{}", std::process::id()));
    std::fs::write(&path, &bytes).unwrap();
    let said = wavelock(&["replay", &path.to_string_lossy()]);
    let _ = std::fs::remove_file(&path);
    assert_ne!(said.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&said.stderr).contains("trace format 77"), "{said:?}");
}
