//! Machines over the interface: everything that can be done, and that it is in the machine's trace.

mod kit;

use kit::{ECHO, Kit, MANIFEST, refused};
use std::collections::BTreeMap;
use wavelock::{Digest, Engine, Machine};
use wavelock_client::api::{self, Bytes, State, Watched};

fn text(text: &str) -> Bytes {
    Bytes::of(text.as_bytes())
}

/// The digest of a machine that nobody hosted, after the same inputs.
fn straight(frames: u64, tell: impl Fn(&mut Machine, u64)) -> Digest {
    let engine = Engine::new(1).expect("a thread");
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("serve").join("straight");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("echo.wat"), ECHO).expect("a file");
    let builder = Machine::builder(&engine).manifest(MANIFEST, &folder).expect("a manifest");
    let mut machine = builder.live(true).build().expect("a machine");
    for frame in 0..frames {
        tell(&mut machine, frame);
        machine.advance().expect("a frame");
    }
    machine.digest()
}

#[test]
fn a_hosted_machine_computes_what_every_machine_computes() {
    let mut kit = Kit::new("computes", |_| {});
    let made = kit.machine("one");
    assert_eq!((made.state, made.frame, made.sessions), (State::Paused, 0, 2));
    let mut client = kit.client();
    assert_eq!(client.input("one", Some("red"), &text("hello")).expect("taken").frame, 0);
    assert_eq!(client.step("one", 5).expect("steps").frame, 5);
    assert_eq!(client.input("one", None, &Bytes::of(&[0xff, 0])).expect("taken").frame, 5);
    // What was acknowledged and not taken is there after a restart.
    kit.restart();
    assert_eq!(kit.settled("one").frame, 5);
    let mut client = kit.client();
    let position = client.step("one", 3).expect("steps");
    let expected = straight(8, |machine, frame| match frame {
        0 => drop(machine.input(machine.session("red").expect("red"), b"hello")),
        5 => drop(machine.input_all(&[0xff, 0])),
        _ => {}
    });
    assert_eq!((position.frame, position.digest), (8, expected.to_string()));
    // Frames are there for those who look later, also those before the restart.
    let frames = client.frames("one", 0).expect("frames");
    let of = |frame: u64| frames.frames.iter().find(|found| found.frame == frame).expect("a frame");
    assert_eq!(of(5).outputs.len(), 2);
    assert_eq!(of(5).outputs[0].hex.as_deref(), Some("ff00"));
    // The trace replays without the server.
    let segments = client.segments("one").expect("segments").segments;
    assert!(segments.len() >= 2, "{segments:?}");
    let mut last = None;
    for segment in segments {
        let bytes = client.segment("one", segment.number).expect("a segment");
        let trace = wavelock_replay::Trace::open(&bytes[..]).expect("a trace");
        let verified = wavelock_replay::verify(trace, 1).expect("it runs");
        assert!(verified.divergence.is_none(), "{:?}", verified.divergence);
        last = Some(verified.summary.digest.to_string());
    }
    assert_eq!(last, Some(expected.to_string()));
}

#[test]
fn sessions_start_change_and_end() {
    let kit = Kit::new("sessions", |_| {});
    kit.machine("one");
    let mut client = kit.client();
    let module = client.upload(ECHO.as_bytes()).expect("a module").hash;
    let new = api::StartSession {
        name: "late/one".into(),
        module: module.clone(),
        weight: Some(2_048),
        channels: BTreeMap::from([("mail".to_owned(), 4)]),
        ..api::StartSession::default()
    };
    let started = client.start_session("one", &new).expect("it starts");
    assert_eq!((started.frame, started.session), (0, 2));
    // It has its name at once, also one that a path would mistake.
    client.input("one", Some("late/one"), &text("first")).expect("taken");
    assert_eq!(client.step("one", 1).expect("a frame").frame, 1);
    let frames = client.frames("one", 0).expect("frames").frames;
    assert_eq!(frames[0].outputs[0].session, "late/one");
    client.hold("one", "late/one").expect("held");
    client.release("one", "late/one").expect("released");
    client.set_weight("one", "red", 9).expect("a weight");
    let cap = api::Cap { cycles: 90_000, frames: 2, overrun: api::Overrun::Demote };
    client.set_cap("one", "red", &cap).expect("a cap");
    client.remove_cap("one", "red").expect("no cap");
    client.close("one", "blue").expect("its input ends");
    let by = api::Replace { module, ..api::Replace::default() };
    client.replace("one", "blue", &by).expect("replaced");
    client.end_session("one", "late/one").expect("ended");
    client.step("one", 1).expect("a frame");
    let sessions = client.sessions("one", 0).expect("sessions");
    assert_eq!(sessions.count, 3);
    assert_eq!(sessions.sessions[2].outcome.as_deref(), Some("canceled"));
    let report = client.report("one").expect("a report");
    assert_eq!(report.cycles, report.sessions.iter().map(|session| session.cycles).sum::<u64>());
    // What cannot be is refused, with a reason, and changes nothing.
    let before = client.machine("one").expect("a machine").digest;
    assert_eq!(refused(client.hold("one", "nobody")).0, 404);
    assert_eq!(refused(client.start_session("one", &new)).0, 422);
    assert_eq!(refused(client.set_context("one", "red", "none", 5)).0, 422);
    assert_eq!(refused(client.set_weight("one", "red", 0)).0, 400);
    assert_eq!(refused(client.hold("one", "late/one")).0, 422);
    assert_eq!(client.machine("one").expect("a machine").digest, before);
    // The end of the run.
    client.end("one").expect("taken");
    client.step("one", 1).expect("the last frame");
    let ended = client.machine("one").expect("a machine");
    assert_eq!((ended.state, ended.outcome.as_deref()), (State::Ended, Some("stopped")));
    assert_eq!(refused(client.step("one", 1)).0, 409);
    assert_eq!(refused(client.start("one", &api::Pace::default())).0, 409);
    assert_eq!(refused(client.input("one", None, &text("x"))).0, 422);
}

#[test]
fn the_past_answers() {
    let kit = Kit::new("past", |_| {});
    kit.machine("one");
    let mut client = kit.client();
    for round in 0..6 {
        client.input("one", None, &text(&format!("round {round}"))).expect("taken");
        client.step("one", 2).expect("steps");
        if round % 2 == 1 {
            client.snapshot("one").expect("a snapshot");
        }
    }
    let now = client.machine("one").expect("a machine");
    let why = client.why("one", "red/0", 3).expect("an answer");
    assert!(why.text.contains("red/0") && why.step == 3, "{why:?}");
    let events = client.events("one", 4, 2).expect("events").events;
    assert!(events.iter().any(|event| event.text.contains("red")), "{events:?}");
    assert!(events.iter().all(|event| (4..=6).contains(&event.frame)), "{events:?}");
    assert_eq!(refused(client.why("one", "red/0", 1 << 40)).0, 404);
    assert_eq!(refused(client.why("one", "nobody", 3)).0, 400);
    assert_eq!(refused(client.events("one", 1_000, 1)).0, 404);
    // A fork of now goes on as the other does; one of the past has another future.
    let fork = |name: &str, frame| api::Fork { name: name.into(), frame, hz: None, start: false };
    client.fork("one", &fork("now", None)).expect("a fork");
    client.fork("one", &fork("then", Some(6))).expect("a fork");
    assert_eq!(kit.settled("now").digest, now.digest);
    let then = kit.settled("then");
    let of_then = |frames: Vec<api::Frame>| {
        frames.into_iter().rfind(|found| found.frame < 6).expect("a frame").digest
    };
    assert_eq!(then.frame, 6);
    assert_eq!(then.digest, of_then(client.frames("one", 0).expect("frames").frames));
    for name in ["one", "now"] {
        client.input(name, Some("blue"), &text("the same")).expect("taken");
        client.step(name, 4).expect("steps");
    }
    let (one, now) = (client.machine("one"), client.machine("now"));
    assert_eq!(one.expect("a machine").digest, now.expect("a machine").digest);
    client.step("then", 10).expect("steps");
    // Deleted is gone, with its name free.
    client.delete("then").expect("deleted");
    assert_eq!(refused(client.machine("then")).0, 404);
    client.fork("one", &fork("then", None)).expect("a fork");
}

#[test]
fn frames_are_watched_and_inputs_given_over_a_socket() {
    let kit = Kit::new("watch", |_| {});
    kit.machine("one");
    let mut client = kit.client();
    let mut watch = client.watch("one", Some(0)).expect("a socket");
    assert!(matches!(watch.read(), Ok(Some(Watched::Machine(_)))));
    client.start("one", &api::Pace { hz: Some(200.0) }).expect("it runs");
    let input = api::WatchInput {
        id: 7,
        session: Some("red".into()),
        text: Some("hello".into()),
        hex: None,
    };
    watch.send(&input).expect("sent");
    let (mut taken, mut seen) = (None, None);
    while taken.is_none() || seen.is_none() {
        match watch.read().expect("a message").expect("it goes on") {
            Watched::Answer(answer) => {
                assert_eq!((answer.id, &answer.error), (7, &None));
                taken = answer.taken;
            }
            Watched::Frame(frame) if !frame.outputs.is_empty() => seen = Some(frame.frame),
            _ => {}
        }
    }
    assert_eq!(taken, seen, "the frame that takes it is the frame that answers");
    watch.send(&api::WatchInput { id: 8, ..input }).expect("sent");
    let viewer = kit.token("eye", api::Role::Viewer, "one");
    let mut eye = kit.client_of(&viewer).watch("one", None).expect("a socket");
    eye.send(&api::WatchInput { id: 9, text: Some("x".into()), ..api::WatchInput::default() })
        .expect("sent");
    loop {
        if let Watched::Answer(answer) = eye.read().expect("a message").expect("it goes on") {
            assert_eq!(answer.error.expect("refused").code, "forbidden");
            break;
        }
    }
    client.pause("one").expect("paused");
    let page = client.metrics().expect("metrics");
    for line in
        ["wavelock_machine_frames_total{machine=\"one\"}", "http_server_request_duration_seconds"]
    {
        assert!(page.contains(line), "{page}");
    }
}

#[test]
fn a_trace_is_rotated_and_only_the_newest_segments_are_kept() {
    let mut kit = Kit::new("rotate", |settings| {
        settings.limits.segment_frames = 10;
        settings.limits.segments = 3;
    });
    kit.machine("one");
    let mut client = kit.client();
    for _ in 0..10 {
        client.input("one", None, &text("x")).expect("taken");
        client.step("one", 7).expect("steps");
    }
    let before = client.machine("one").expect("a machine");
    let segments = client.segments("one").expect("segments").segments;
    assert_eq!(segments.len(), 3, "{segments:?}");
    assert!(segments[0].number > 4 && segments[2].open, "{segments:?}");
    kit.restart();
    let after = kit.settled("one");
    assert_eq!((after.frame, after.digest), (before.frame, before.digest));
}

#[test]
fn limits_of_the_server_are_refused_with_numbers() {
    let kit = Kit::new("limits", |settings| {
        settings.limits.machines = 2;
        settings.limits.machine_memory = 64 << 20;
        settings.limits.modules = 2_000;
        settings.limits.frame_cycles = 1_000_000;
    });
    let mut client = kit.client();
    let hash = client.upload(ECHO.as_bytes()).expect("a module").hash;
    let create = |name: &str, manifest: &str| api::CreateMachine {
        name: name.into(),
        manifest: manifest.into(),
        modules: BTreeMap::from([("echo.wat".to_owned(), hash.clone())]),
        hz: None,
        start: false,
    };
    // Two sessions of 64 MiB each.
    assert_eq!(refused(client.create(&create("one", MANIFEST))), (422, "refused".into()));
    let small = format!("{MANIFEST}[limits]\nmemory_pages = 2\n");
    let slow = small.replace("frame_cycles = 100_000", "frame_cycles = 1_000_000_000");
    assert_eq!(refused(client.create(&create("one", &slow))).0, 422);
    assert_eq!(refused(client.create(&create("one", "[machine"))).0, 422);
    let hz = api::CreateMachine { hz: Some(1e9), ..create("one", &small) };
    assert_eq!(refused(client.create(&hz)).0, 400);
    client.create(&create("one", &small)).expect("a machine");
    assert_eq!(refused(client.create(&create("one", &small))).0, 409);
    client.create(&create("two", &small)).expect("a machine");
    assert_eq!(refused(client.create(&create("three", &small))).0, 507);
    assert_eq!(refused(client.upload(&[b' '; 3_000])).0, 422, "no module");
    let padded = format!("{ECHO}{}", " ".repeat(3_000));
    assert_eq!(refused(client.upload(padded.as_bytes())), (507, "full".into()));
    client.delete_module(&hash).expect("removed");
    assert_eq!(refused(client.delete_module(&hash)).0, 404);
}
