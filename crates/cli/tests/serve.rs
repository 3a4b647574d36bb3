//! `wavelock serve` killed again and again (`kill -9`), at random moments: the machine goes on with
//! the digest of one that nothing stopped, and every input that was acknowledged is in its trace,
//! in the frame that was named. And `wavelock ctl` as a person types it.
//!
//! `WAVELOCK_KILLS=200 cargo test -p wavelock-cli --test serve` kills more often.
#![cfg(unix)]

use serde_json::Value;
use std::io::{BufRead, BufReader, Cursor};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use wavelock::{Engine, Machine, Session};
use wavelock_client::{Client, api};
use wavelock_system::{Input, Recipient};

const PATIENCE: Duration = Duration::from_secs(120);

const ECHO: &str = include_str!("../../wavelock/examples/guests/echo.wat");

const MANIFEST: &str = "[machine]\nlive = true\nlanes = 2\nframe_cycles = 100_000\n\
    wave_cycles = 20_000\n[[session]]\nname = \"red\"\nmodule = \"echo.wat\"\n\
    [[session]]\nname = \"blue\"\nmodule = \"echo.wat\"\n";

/// A server process, killed when it is dropped.
struct Process {
    child: Child,
    url: String,
}

impl Process {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wavelock"));
        command.args(["serve", "--listen", "127.0.0.1:0"]).arg(folder);
        let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let url = loop {
            let line = lines.next().expect("it says where it is").expect("text");
            let url = line.split_once("serving at ").map(|(_, rest)| rest);
            if let Some(url) = url.and_then(|rest| rest.split(';').next()) {
                break url.to_owned();
            }
        };
        // What else it says is read, so that it never waits for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, url }
    }

    fn client(&self, folder: &Path) -> Client {
        let token = std::fs::read_to_string(folder.join("admin.token")).expect("a token");
        Client::new(&self.url, &token).expect("an address")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("serve").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    std::fs::write(folder.join("echo.wat"), ECHO).expect("a file");
    std::fs::write(folder.join("machine.toml"), MANIFEST).expect("a file");
    folder
}

/// The machine once it is not recovering any more.
fn settled(client: &mut Client) -> api::Machine {
    let began = Instant::now();
    loop {
        let machine = client.machine("m").expect("a machine");
        if machine.state != api::State::Recovering {
            return machine;
        }
        assert!(began.elapsed() < PATIENCE, "it does not recover");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Keeps a copy of each segment, because only the newest are kept by the server.
fn keep_segments(folder: &Path, kept: &Path) {
    let segments = folder.join("machines/m/segments");
    for entry in std::fs::read_dir(segments).expect("segments") {
        let entry = entry.expect("an entry");
        if entry.path().extension().is_some_and(|extension| extension == "trace") {
            std::fs::copy(entry.path(), kept.join(entry.file_name())).expect("a copy");
        }
    }
}

#[test]
fn a_server_that_is_killed_at_random_moments_loses_nothing_it_acknowledged() {
    let kills: u64 = match std::env::var("WAVELOCK_KILLS") {
        Ok(number) => number.parse().expect("a number"),
        Err(_) => 20,
    };
    let base = folder("kills");
    let (folder, kept) = (base.join("state"), base.join("kept"));
    std::fs::create_dir_all(&kept).expect("a folder");
    let mut draws = 0x9e37_79b9_7f4a_7c15_u64;
    let mut acknowledged: Vec<(u64, String)> = Vec::new();
    let mut number = 0;
    let mut last: Option<(u64, String)> = None;
    for kill in 0..kills {
        let process = Process::start(&folder);
        let mut client = process.client(&folder);
        if kill == 0 {
            let hash = client.upload(ECHO.as_bytes()).expect("a module").hash;
            let modules = [("echo.wat".to_owned(), hash)].into();
            let (name, manifest) = ("m".to_owned(), MANIFEST.to_owned());
            let hz = Some(400.0);
            let new = api::CreateMachine { name, manifest, modules, hz, start: true };
            client.create(&new).expect("a machine");
        }
        let now = settled(&mut client);
        assert_eq!((now.state, &now.problem), (api::State::Running, &None), "kill {kill}");
        if let Some((frame, _)) = &last {
            assert!(now.frame >= *frame, "kill {kill}: {} after {frame}", now.frame);
        }
        keep_segments(&folder, &kept);
        // One thread sends inputs and notes what was acknowledged; this one kills.
        let (noted, ends) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (own, stop) = (noted.clone(), ends.clone());
        let sender = std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let text = format!("input {number}");
                let session = ["red", "blue"].get(number as usize % 3).copied();
                match client.input("m", session, &api::Bytes::of(text.as_bytes())) {
                    Ok(taken) => own.lock().expect("a list").push((taken.frame, text)),
                    Err(wavelock_client::Error::Refused { status: 429, .. }) => {}
                    Err(_) => break,
                }
                if number % 40 == 0 {
                    let _ = client.snapshot("m");
                }
            }
            number
        });
        let mut watcher = process.client(&folder);
        draws = draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(kill | 1);
        std::thread::sleep(Duration::from_micros(2_000 + (draws >> 33) % 80_000));
        if let Ok(seen) = watcher.machine("m") {
            last = Some((seen.frame, seen.digest));
        }
        drop(process);
        ends.store(true, Ordering::Relaxed);
        number = sender.join().expect("no panic");
        acknowledged.append(&mut noted.lock().expect("a list"));
        keep_segments(&folder, &kept);
    }
    assert!(acknowledged.len() as u64 > kills, "{}", acknowledged.len());
    // The machine as it is in the end, which is stopped so that it can be compared.
    let process = Process::start(&folder);
    let mut client = process.client(&folder);
    settled(&mut client);
    client.pause("m").expect("paused");
    let end = client.step("m", 1).expect("a frame");
    keep_segments(&folder, &kept);
    let inputs = inputs_of(&kept);
    for (frame, text) in &acknowledged {
        let found = inputs.iter().filter(|(_, _, bytes)| bytes == text.as_bytes());
        let frames: Vec<u64> = found.map(|(frame, ..)| *frame).collect();
        assert_eq!(frames, [*frame], "{text}: acknowledged for frame {frame}");
    }
    assert_eq!(straight(&base, &inputs, end.frame), end.digest);
}

/// The inputs of all segments, each once. A segment may begin with those that waited in the one
/// before it.
fn inputs_of(kept: &Path) -> Vec<(u64, Option<u32>, Vec<u8>)> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(kept)
        .expect("segments")
        .map(|entry| entry.expect("one").path())
        .collect();
    paths.sort();
    let mut all: Vec<(u64, Option<u32>, Vec<u8>)> = Vec::new();
    for path in paths {
        let bytes = std::fs::read(&path).expect("a segment");
        let archive = wavelock_replay::Archive::open(Cursor::new(bytes)).expect("a trace");
        let begins = archive.origin().expect("a state").frame;
        // What waited when the segment began is in it again.
        all.retain(|(frame, ..)| *frame < begins);
        for (frame, input) in archive.inputs() {
            let Input::Bytes { to, bytes } = input else { panic!("another input: {input:?}") };
            let to = match to {
                Recipient::All => None,
                Recipient::Session(session) => Some(session.0),
            };
            all.push((frame.0, to, bytes.to_vec()));
        }
    }
    all
}

/// The digest of a machine that nothing stopped, after these inputs.
fn straight(base: &Path, inputs: &[(u64, Option<u32>, Vec<u8>)], frames: u64) -> String {
    let engine = Engine::new(1).expect("a thread");
    let builder = Machine::builder(&engine).manifest(MANIFEST, base).expect("a manifest");
    let mut machine = builder.build().expect("a machine");
    let mut inputs = inputs.iter().peekable();
    while machine.frame().0 < frames {
        while let Some((_, to, bytes)) = inputs.next_if(|(frame, ..)| *frame == machine.frame().0) {
            let given = match to {
                Some(session) => machine.input(Session::of_number(*session), bytes),
                None => machine.input_all(bytes),
            };
            given.expect("an input");
        }
        machine.advance().expect("a frame");
    }
    machine.digest().to_string()
}

fn ctl(process: &Process, base: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavelock"));
    let (server, token) = (process.url.as_str(), base.join("state/admin.token"));
    command.args(["ctl", "--server", server, "--token-file"]).arg(token).args(arguments);
    command.current_dir(base).stdin(Stdio::null()).output().expect("it runs")
}

#[test]
fn a_machine_is_controlled_from_the_shell() {
    let base = folder("ctl");
    let process = Process::start(&base.join("state"));
    let ok = |arguments: &[&str]| {
        let output = ctl(&process, &base, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(ok(&["create", "m", "machine.toml"]).contains("m:"));
    assert_eq!(ok(&["input", "m", "red", "hello"]), "taken in frame 0\n");
    assert!(ok(&["step", "m", "3"]).starts_with("before frame 3"));
    ok(&["weight", "m", "red", "2048"]);
    ok(&["cap", "m", "red", "90000", "--frames", "2"]);
    ok(&["cap", "m", "red", "0"]);
    ok(&["run", "m", "green", "echo.wat", "--arg", "x"]);
    ok(&["step", "m"]);
    ok(&["hold", "m", "green"]);
    ok(&["release", "m", "green"]);
    ok(&["replace", "m", "green", "echo.wat"]);
    ok(&["kill", "m", "green"]);
    ok(&["fork", "m", "other", "--frame", "2"]);
    ok(&["snapshot", "m"]);
    assert!(ok(&["why", "m", "red/0", "2"]).contains("red/0"));
    assert!(ok(&["events", "m", "1"]).contains("frame 1"));
    assert!(ok(&["sessions", "m"]).contains("blue:"));
    assert!(ok(&["report", "m"]).contains("red:"));
    assert!(ok(&["metrics"]).contains("wavelock_machine_frames_total"));
    let token = ok(&["token", "eye", "--role", "viewer", "--for", "m"]);
    assert!(token.starts_with("wl_") && token.len() > 60, "{token}");
    ok(&["revoke", "eye"]);
    assert!(ok(&["trace", "m", "segments"]).contains("segments"));
    let replay = Command::new(env!("CARGO_BIN_EXE_wavelock"))
        .args(["replay", "segments/00000002.trace"])
        .current_dir(&base)
        .output()
        .expect("it runs");
    assert!(replay.status.success(), "{replay:?}");
    let list: Value = serde_json::from_str(&ok(&["--json", "list"])).expect("JSON");
    assert_eq!(list["machines"].as_array().map(Vec::len), Some(2));
    ok(&["end", "m"]);
    ok(&["step", "m"]);
    assert!(ok(&["watch", "m", "--from", "0"]).contains("ended"));
    ok(&["delete", "m"]);
    // Refusals have their own exit code, and JSON with --json.
    let refused = ctl(&process, &base, &["--json", "show", "m"]);
    assert_eq!(refused.status.code(), Some(4));
    let refusal: Value = serde_json::from_slice(&refused.stdout).expect("JSON");
    assert!(refusal["error"]["message"].as_str().is_some_and(|text| text.contains("`m`")));
}
