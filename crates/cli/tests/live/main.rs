//! `wavelock run --live` with real pipes and sockets: what goes in and out, how a run ends, and
//! what hostile clients cost.
//!
//! No test measures time: each waits for what must come, and a run that hangs is ended with a
//! failure.
#![cfg(unix)]

mod durable;
mod folder;
mod harness;

use harness::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[test]
fn lines_of_standard_input_become_inputs_and_the_end_of_it_ends_the_run() {
    let folder = folder("stdin");
    let arguments = ["rooms.toml", "--output", "json", "--record", "t.trace"];
    let mut run = Run::start(&folder, &arguments);
    run.say("{\"session\":\"red\",\"text\":\"one\\n\"}");
    assert!(
        run.hear().contains("\"session\":\"red\",\"stream\":\"output\",\"text\":\"1: one\\n\"")
    );
    run.say("{\"session\":\"*\",\"hex\":\"2f726f6c6c0a\"}");
    for session in ["red", "blue"] {
        let line = run.hear();
        assert!(line.contains(session) && line.contains("the die shows "), "{line}");
    }
    run.say("{\"sesion\":\"red\"}");
    run.say("{\"session\":\"rad\",\"text\":\"\"}");
    run.say("{\"frame\":7,\"session\":\"red\",\"text\":\"\"}");
    run.say("{\"close\":\"red\"}");
    let End { code, errors, .. } = run.end();
    assert_eq!(code, Some(0), "{errors}");
    for words in [
        "standard input, line 3: this line is no request: unknown key `sesion`; did you mean `session`?",
        "standard input, line 4: there is no session `rad`; did you mean `red`?",
        "standard input, line 5: a live line has no `frame`",
        "finished after ",
        "live: 3 requests taken, 3 refused; 0 clients",
    ] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    let digest = errors.split("digest: ").nth(1).and_then(|rest| rest.lines().next());
    replays(&folder, "t.trace", digest.expect("a digest"));
}

/// Sessions are held, released and ended by lines; the recording has them.
#[test]
fn lines_hold_release_and_end_sessions() {
    let folder = folder("control");
    let arguments = ["rooms.toml", "--output", "json", "--record", "t.trace"];
    let mut run = Run::start(&folder, &arguments);
    run.say("{\"hold\":\"red\"}");
    run.say("{\"session\":\"red\",\"text\":\"waits\\n\"}");
    run.say("{\"session\":\"blue\",\"text\":\"goes on\\n\"}");
    assert!(
        run.hear().contains("\"session\":\"blue\",\"stream\":\"output\",\"text\":\"1: goes on")
    );
    run.say("{\"release\":\"red\"}");
    assert!(run.hear().contains("1: waits"));
    run.say("{\"end\":\"*\"}");
    run.say("{\"end\":\"red\"}");
    run.say("{\"session\":\"blue\",\"text\":\"last\\n\"}");
    assert!(run.hear().contains("2: last"));
    let End { code, errors, .. } = run.end();
    assert_eq!(code, Some(0), "{errors}");
    assert!(errors.contains("line 5: this line is for one session"), "{errors}");
    let row = |name: &str| errors.lines().find(|line| line.starts_with(&format!("  {name} ")));
    assert!(row("red").is_some_and(|row| row.contains("canceled")), "{errors}");
    assert!(row("blue").is_some_and(|row| row.contains("finished")), "{errors}");
    let digest = errors.split("digest: ").nth(1).and_then(|rest| rest.lines().next());
    replays(&folder, "t.trace", digest.expect("a digest"));
}

/// The same inputs at the same frames are the same run, known at load or given as they came.
#[test]
fn a_live_run_has_the_digest_of_the_same_inputs_from_a_file() {
    let folder = folder("file");
    let mut run =
        Run::start(&folder, &["rooms.toml", "--output", "json", "--json", "--fps", "500"]);
    let mut inputs = String::new();
    let mut frames = Vec::new();
    for word in ["one", "two", "/roll"] {
        run.say(&format!("{{\"session\":\"blue\",\"text\":\"{word}\\n\"}}"));
        // With --json the guests' output is on standard error.
        let mut line = String::new();
        run.errors.read_line(&mut line).expect("a line");
        let frame = json(line.as_bytes())["frame"].as_u64().expect("a frame");
        frames.push(frame);
        inputs += &format!("{{\"frame\":{frame},\"session\":\"blue\",\"text\":\"{word}\\n\"}}\n");
    }
    assert!(frames.is_sorted_by(|one, two| one < two), "{frames:?}");
    run.say("{\"stop\":true}");
    // The end of standard input would end the input of every session.
    let input = run.input.take();
    let object = json(run.end().output.as_bytes());
    assert_eq!(object["outcome"], "stopped");
    drop(input);
    let last = object["frames"].as_u64().expect("frames");
    let live = ROOMS.replace("[machine]", "[machine]\nlive = true");
    std::fs::write(folder.join("live.toml"), live).expect("a file");
    std::fs::write(folder.join("inputs.jsonl"), inputs).expect("a file");
    let (run, last) = (["run", "live.toml", "--input", "inputs.jsonl", "--json"], last.to_string());
    let closed = json(&wavelock(&folder, &[&run[..], &["--frames", &last]].concat()).stdout);
    for number in [0, 1] {
        let digest = |object: &Value| object["sessions"][number]["digest"].clone();
        assert_eq!(digest(&object), digest(&closed));
    }
    assert_eq!(object["cycles"]["charged"], closed["cycles"]["charged"]);
}

#[test]
fn clients_of_both_kinds_of_sockets_talk_and_the_recording_replays() {
    let folder = folder("sockets");
    let arguments = [
        &["rooms.toml", "--listen", "127.0.0.1:0", "--listen", "unix:s.sock", "--output", "json"],
        &["--record", "t.trace", "--json", "--workers", "2"][..],
    ]
    .concat();
    let mut run = Run::start(&folder, &arguments);
    // With clients, the end of standard input ends nothing.
    drop(run.input.take());
    let mut tcp = run.connect();
    let mut unix = UnixStream::connect(folder.join("s.sock")).expect("it accepts");
    let mut heard = BufReader::new(unix.try_clone().expect("a handle"));
    let mut line = String::new();
    // Once it has an answer it is connected, and gets what others say.
    unix.write_all(b"{}\n").expect("it reads");
    heard.read_line(&mut line).expect("a line");
    assert!(line.contains("does not say what it is for"), "{line}");
    is_alive(&mut tcp, "first");
    line.clear();
    heard.read_line(&mut line).expect("a line");
    assert!(line.contains("1: first"), "a client gets what another said: {line}");
    unix.write_all(b"{\"session\":\"blue\",\"text\":\"second\\n\"}\n").expect("it reads");
    assert!(tcp.hear().contains("\"session\":\"blue\",\"stream\":\"output\",\"text\":\"1: second"));
    tcp.say("{\"session\":\"green\",\"text\":\"\"}");
    tcp.hears_error("there is no session `green`");
    // One that only stopped sending still hears.
    unix.shutdown(Shutdown::Write).expect("a socket");
    is_alive(&mut tcp, "third");
    for words in ["1: second", "2: third"] {
        line.clear();
        heard.read_line(&mut line).expect("a line");
        assert!(line.contains(words), "{words}: {line}");
    }
    tcp.say("{\"close\":\"*\"}");
    assert_eq!(tcp.hear(), "", "the run is over");
    let end = run.end();
    let object = json(end.output.as_bytes());
    assert_eq!((end.code, object["outcome"].as_str()), (Some(0), Some("finished")));
    let live = &object["telemetry"]["live"];
    assert_eq!((live["clients"].as_u64(), live["refused"].as_u64()), (Some(2), Some(2)));
    assert!(!folder.join("s.sock").exists(), "the file of the socket is removed");
    replays(&folder, "t.trace", object["digest"].as_str().expect("a digest"));
}

#[test]
fn text_lines_and_raw_output_make_a_chat() {
    let folder = folder("text");
    let arguments = ["room.wat", "--to", "room", "--listen", "127.0.0.1:0"];
    let mut run = Run::start(&folder, &arguments);
    let mut client = run.connect();
    client.say("ana: {hello}");
    assert_eq!(client.hear(), "1: ana: {hello}\n");
    assert_eq!(run.hear(), "1: ana: {hello}\n");
    run.say("ben: hi");
    assert_eq!(client.hear(), "2: ben: hi\n");
    run.signal("-INT");
    let End { code, errors, .. } = run.end();
    assert_eq!(code, Some(130), "{errors}");
    assert!(errors.contains("interrupted after"), "{errors}");
}

#[test]
fn hostile_lines_are_refused_to_their_client_and_the_machine_continues() {
    let folder = folder("hostile");
    let arguments = ["rooms.toml", "--output", "json", "--listen", "127.0.0.1:0", "--json"];
    let mut run = Run::start(&folder, &arguments);
    let mut good = run.connect();
    is_alive(&mut good, "before");

    let mut long = run.connect();
    long.stream.write_all(&vec![b'x'; 10_000_000]).expect("it reads");
    long.say("");
    long.hears_error("the line has 10_000_000 bytes: at most 1_048_576 are allowed");
    is_alive(&mut long, "after-long");
    assert!(good.hear().contains("after-long"));

    let mut deep = run.connect();
    deep.say(&"[".repeat(500_000));
    deep.hears_error("this line is no request");

    let mut page = run.connect();
    page.say("POST / HTTP/1.1\r\nContent-Length: 13\r\n\r\n{\"stop\":true}");
    page.hears_error("no HTTP server");
    assert_eq!(page.hear(), "", "it is disconnected, and what followed is not taken");

    // Bytes without structure: refused a hundred times, then disconnected.
    let mut garbage = run.connect();
    let noise: Vec<u8> =
        (0..40_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let sent = garbage
        .stream
        .write_all(&noise)
        .and_then(|()| garbage.stream.write_all(&b"x\n".repeat(100)));
    drop(sent);
    let heard: Vec<String> =
        std::iter::from_fn(|| Some(garbage.hear()).filter(|line| !line.is_empty())).collect();
    assert!(heard.last().is_some_and(|line| line.contains("100 lines were refused")), "{heard:?}");
    assert_eq!(heard.len(), 101);

    // A stopped line, and half of a connection.
    let mut half = run.connect();
    half.stream.write_all(b"{\"session\":\"red\",\"te").expect("it reads");
    half.stream.shutdown(Shutdown::Write).expect("a socket");
    half.hears_error("this line is no request");

    is_alive(&mut good, "at-the-end");
    run.say("{\"stop\":true}");
    let end = run.end();
    let object = json(end.output.as_bytes());
    assert_eq!((end.code, object["outcome"].as_str()), (Some(0), Some("stopped")));
    let live = &object["telemetry"]["live"];
    assert_eq!((live["taken"].as_u64(), live["refused"].as_u64()), (Some(4), Some(104)), "{live}");
    assert_eq!((live["clients"].as_u64(), live["disconnected"].as_u64()), (Some(6), Some(2)));
}

#[test]
fn thousands_of_connections_cost_a_bounded_number_of_places() {
    let folder = folder("crowd");
    let arguments = ["rooms.toml", "--output", "json", "--listen", "127.0.0.1:0", "--json"];
    let mut run = Run::start(&folder, &arguments);
    let mut good = run.connect();
    is_alive(&mut good, "before");
    // Connections that say nothing take every place.
    let silent: Vec<Client> = (0..63).map(|_| run.connect()).collect();
    let mut refused = run.connect();
    refused.hears_error("64 clients are connected: no more are allowed");
    assert_eq!(refused.hear(), "");
    for _ in 0..3_000 {
        drop(run.connect());
    }
    is_alive(&mut good, "between");
    // One place becomes free as soon as one of them is gone.
    silent[7].stream.shutdown(Shutdown::Both).expect("a socket");
    let until = Instant::now() + PATIENCE;
    loop {
        let mut late = run.connect();
        late.say("{\"session\":\"blue\",\"text\":\"late\\n\"}");
        if late.hear().contains("late") {
            break;
        }
        assert!(Instant::now() < until, "no place becomes free");
    }
    assert!(good.hear().contains("late"));
    drop(silent);
    run.say("{\"stop\":true}");
    let object = json(run.end().output.as_bytes());
    let live = &object["telemetry"]["live"];
    let count = |key: &str| live[key].as_u64().expect("a number");
    assert!(count("turned_away") >= 2_500, "{live}");
    assert!((65..600).contains(&count("clients")), "{live}");
}

/// 32 MiB for a client that reads nothing, and for standard output that nobody reads until the end.
#[test]
fn a_slow_reader_stops_nothing_and_what_it_loses_is_counted() {
    let folder = folder("slow");
    let arguments =
        ["flood.wat", "--listen", "127.0.0.1:0", "--fps", "100_000", "--record", "t.trace"];
    let mut run = Run::start(&folder, &[&arguments[..], &["--level", "inputs"]].concat());
    let silent = run.connect();
    run.say("{\"session\":\"flood\",\"text\":\"go\"}");
    // The trace has its end although nothing was read.
    let until = Instant::now() + PATIENCE;
    while run.child.0.try_wait().expect("a child").is_none() {
        assert!(Instant::now() < until, "the run waits for its readers");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(silent);
    let End { code, output, errors } = run.end();
    assert_eq!(code, Some(0), "{errors}");
    assert!(output.len() < 512 * 65_536, "{}", output.len());
    let dropped = errors.lines().find(|line| line.starts_with("dropped: "));
    assert!(dropped.is_some_and(|line| line.contains("readers were too slow")), "{errors}");
    assert_eq!(wavelock(&folder, &["replay", "t.trace"]).status.code(), Some(0));
}

/// As fast as possible, standard output is not dropped: the run waits for it, as any program does.
#[test]
fn without_a_pace_standard_output_is_whole() {
    let folder = folder("whole");
    let mut run = Run::start(&folder, &["flood.wat", "--fps", "max"]);
    run.say("{\"session\":\"flood\",\"text\":\"go\"}");
    let End { code, output, errors } = run.end();
    assert_eq!((code, output.len()), (Some(0), 512 * 65_536), "{errors}");
    assert!(!errors.contains("dropped"), "{errors}");
}

#[test]
fn a_run_ended_by_its_time_limit_resumes_where_it_was() {
    let folder = folder("time");
    let arguments = [
        &["rooms.toml", "--fps", "200", "--listen", "unix:s.sock", "--for", "200ms"],
        &["--snapshot", "s.snap", "--record", "t.trace", "--report", "r.json"][..],
    ]
    .concat();
    let mut run = Run::start(&folder, &arguments);
    run.say("{\"session\":\"red\",\"text\":\"kept\\n\"}");
    assert_eq!(run.hear(), "1: kept\n");
    let End { code, errors, .. } = run.end();
    assert_eq!(code, Some(0), "{errors}");
    for words in [
        "out of time after",
        "2 sessions still running when --for ended the run",
        "wavelock resume s.snap",
    ] {
        assert!(errors.contains(words), "{words}: {errors}");
    }
    assert_eq!(wavelock(&folder, &["replay", "t.trace"]).status.code(), Some(0));
    assert_eq!(wavelock(&folder, &["report", "r.json"]).status.code(), Some(0));
    for file in ["s.snap", "t.trace"] {
        let output = wavelock(&folder, &["resume", file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(4) && said.contains("--live"), "{file}: {said}");
        let mut again = Command::new(env!("CARGO_BIN_EXE_wavelock"));
        let again = again.args(["resume", file, "--live", "--to", "red"]).current_dir(&folder);
        let mut child = again
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it runs");
        child.stdin.take().expect("a pipe").write_all(b"more\n").expect("it reads");
        let output = child.wait_with_output().expect("an end");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "2: more\n", "{file}");
        assert_eq!(output.status.code(), Some(0));
    }
}

/// A socket's file that a killed run left is replaced; one that is in use is not, nor another file.
#[test]
fn a_socket_that_is_in_use_is_refused() {
    let folder = folder("in-use");
    let arguments = ["rooms.toml", "--listen", "unix:s.sock"];
    let run = Run::start(&folder, &arguments);
    let second = wavelock(&folder, &[&["run", "--live"], &arguments[..]].concat());
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(said.contains("cannot listen on unix:s.sock"), "{said}");
    assert_eq!(second.status.code(), Some(1));
    run.signal("-KILL");
    assert_eq!(run.end().code, None);
    assert!(folder.join("s.sock").exists());
    let mut run = Run::start(&folder, &arguments);
    run.say("{\"stop\":true}");
    assert_eq!(run.end().code, Some(0));
    std::fs::write(folder.join("s.sock"), "mine").expect("a file");
    let other = wavelock(&folder, &[&["run", "--live"], &arguments[..]].concat());
    assert_eq!(other.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(folder.join("s.sock")).expect("it is kept"), "mine");
}
