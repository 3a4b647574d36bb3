//! A list of attacks. Nothing is let in, the server goes on, and a machine beside them has the
//! digest of one that nobody attacked.

mod kit;

use kit::{ECHO, Kit, PATIENCE, refused};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use wavelock_client::api::{self, Bytes, Role};

const GET: &str = "GET /v1/machines";

/// A machine that must not notice, and what it computed without attacks.
fn bystander(kit: &Kit) -> String {
    kit.machine("bystander");
    let mut client = kit.client();
    let fork = api::Fork { name: "quiet".into(), frame: None, hz: None, start: false };
    client.fork("bystander", &fork).expect("a fork");
    client.input("quiet", None, &Bytes::of(b"x")).expect("taken");
    client.step("quiet", 50).expect("steps").digest
}

/// The bystander computes the same, and the server serves.
fn unharmed(kit: &Kit, expected: &str) {
    let mut client = kit.client();
    client.input("bystander", None, &Bytes::of(b"x")).expect("taken");
    assert_eq!(client.step("bystander", 50).expect("steps").digest, expected);
    assert_eq!(client.machine("bystander").expect("a machine").state, api::State::Paused);
}

#[test]
fn tokens_that_are_none_or_for_another_machine_or_role_let_nobody_in() {
    let kit = Kit::new("tokens", |settings| settings.limits.failures = 10_000);
    let expected = bystander(&kit);
    let address = kit.address();
    let with = |authorization: &str| {
        let more = format!("host: {address}\r\nconnection: close\r\n{authorization}\r\n");
        kit.raw(&format!("{GET} HTTP/1.1\r\n{more}")).0
    };
    let token = &kit.token;
    assert_eq!(with(&format!("authorization: Bearer {token}\r\n")), 200);
    let wrong = [
        String::new(),
        "authorization: Bearer \r\n".into(),
        "authorization: Bearer wl_0\r\n".into(),
        format!("authorization: Bearer {}\r\n", "x".repeat(8_000)),
        format!("authorization: Bearer {}\r\n", &token[..token.len() - 1]),
        format!("authorization: Bearer {token}0\r\n"),
        format!("authorization: Bearer  {token}\r\n"),
        format!("authorization: Basic {token}\r\n"),
        format!("authorization: Bearer {}\r\n", token.to_uppercase()),
        format!("authorization: Bearer x\r\nauthorization: Bearer {token}\r\n"),
        format!("cookie: token={token}\r\n"),
    ];
    for authorization in wrong {
        assert_eq!(with(&authorization), 401, "{authorization}");
    }
    assert_eq!(
        kit.raw(&format!(
            "{GET}?token={token} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
        ))
        .0,
        401
    );
    // Another machine's token sees nothing of this one: it is as if it did not exist.
    let admin = kit.token("other", Role::Admin, "other");
    let mut other = kit.client_of(&admin);
    assert!(other.machines().expect("a list").machines.is_empty());
    let of_none = refused(other.machine("nobody"));
    assert_eq!(refused(other.machine("bystander")), of_none);
    assert_eq!(of_none.0, 404);
    let text = Bytes::of(b"x");
    let fork = |name: &str| api::Fork { name: name.into(), frame: None, hz: None, start: false };
    assert_eq!(refused(other.input("bystander", None, &text)).0, 404);
    assert_eq!(refused(other.delete("bystander")).0, 404);
    assert_eq!(refused(other.segment("bystander", 1)).0, 404);
    assert_eq!(refused(other.fork("bystander", &fork("other"))).0, 404);
    assert!(other.watch("bystander", None).is_err());
    assert!(!other.metrics().expect("metrics").contains("bystander"));
    assert_eq!(refused(other.tokens()).0, 403);
    let new =
        api::CreateToken { name: "mine".into(), role: Role::Admin, machines: vec!["*".into()] };
    assert_eq!(refused(other.create_token(&new)).0, 403);
    let create = api::CreateMachine { name: "third".into(), ..api::CreateMachine::default() };
    assert_eq!(refused(other.create(&create)).0, 403);
    // A role does what it may and no more.
    let viewer = kit.token("viewer", Role::Viewer, "bystander");
    let mut viewer = kit.client_of(&viewer);
    viewer.machine("bystander").expect("it may look");
    assert_eq!(refused(viewer.input("bystander", None, &text)).0, 403);
    assert_eq!(refused(viewer.step("bystander", 1)).0, 403);
    assert_eq!(refused(viewer.upload(ECHO.as_bytes())).0, 403);
    let operator = kit.token("operator", Role::Operator, "bystander");
    let mut operator = kit.client_of(&operator);
    assert_eq!(refused(operator.delete("bystander")).0, 403);
    assert_eq!(refused(operator.fork("bystander", &fork("b"))).0, 403);
    // A token that was taken back is none.
    kit.client().delete_token("operator").expect("revoked");
    assert_eq!(refused(operator.machine("bystander")).0, 401);
    assert_eq!(refused(kit.client().delete_token("admin")).0, 409, "the last one stays");
    // Files with secrets are their owner's alone, and hold no token but the first.
    #[cfg(unix)]
    for file in ["tokens", "admin.token", "audit.jsonl"] {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(kit.folder.join(file)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    for file in ["tokens", "audit.jsonl"] {
        let text = std::fs::read_to_string(kit.folder.join(file)).expect("text");
        assert!(!text.contains(token.as_str()) && !text.contains(&admin), "{file}");
        assert!(text.contains("\"viewer\"") || file == "tokens", "{file}");
    }
    unharmed(&kit, &expected);
}

#[test]
fn pages_of_other_sites_are_refused() {
    let kit = Kit::new("sites", |settings| settings.hosts = vec!["wavelock.example".into()]);
    let expected = bystander(&kit);
    let (address, token) = (kit.address(), kit.token.clone());
    let port = address.port();
    let ask = |host: &str, more: &str| {
        let bearer = format!("authorization: Bearer {token}\r\nconnection: close\r\n");
        kit.raw(&format!("{GET} HTTP/1.1\r\n{host}{bearer}{more}\r\n")).0
    };
    let own = format!("host: {address}\r\n");
    let good = ["localhost", "127.0.0.1", "wavelock.example", "LOCALHOST"];
    for host in good {
        assert_eq!(ask(&format!("host: {host}:{port}\r\n"), ""), 200, "{host}");
    }
    assert_eq!(ask(&own, &format!("origin: http://{address}\r\n")), 200);
    // A name that an attacker points here, and hosts that are none.
    let bad = ["evil.example", "evil.example:80", "localhost", "127.0.0.1.evil.example", ""];
    for host in bad {
        let status = ask(&format!("host: {host}\r\n"), "");
        assert_eq!(status, 421, "{host}");
    }
    assert_eq!(ask("", ""), 421);
    assert_eq!(ask(&format!("{own}host: evil.example\r\n"), ""), 421);
    let origins = ["http://evil.example", "null", "https://localhost", "file://", ""];
    for origin in origins {
        assert_eq!(ask(&own, &format!("origin: {origin}\r\n")), 403, "{origin}");
    }
    assert_eq!(ask(&own, "sec-fetch-site: cross-site\r\n"), 403);
    assert_eq!(ask(&own, "sec-fetch-site: same-site\r\n"), 403);
    // No preflight is answered, and no answer has a header that allows another site anything.
    let preflight = format!(
        "OPTIONS /v1/machines HTTP/1.1\r\n{own}origin: http://evil.example\r\n\
         access-control-request-method: POST\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(kit.raw(&preflight).0, 403);
    // What a form of another site could send is not taken for JSON.
    let form = "content-type: text/plain\r\ncontent-length: 13\r\n";
    let line = "POST /v1/machines/bystander/step";
    assert_eq!(kit.raw(&(kit.head(line, form) + "{\"frames\": 1}")).0, 415);
    // A page that opens a WebSocket is refused too.
    let upgrade = format!(
        "GET /v1/machines/bystander/watch HTTP/1.1\r\n{own}connection: upgrade\r\n\
         upgrade: websocket\r\nsec-websocket-version: 13\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    );
    let protocol = format!("sec-websocket-protocol: wavelock, bearer.{token}\r\n");
    let evil = "origin: http://evil.example\r\n";
    assert_eq!(kit.raw(&format!("{upgrade}{protocol}{evil}connection: close\r\n\r\n")).0, 403);
    unharmed(&kit, &expected);
}

#[test]
fn names_do_not_leave_their_folder() {
    let kit = Kit::new("names", |_| {});
    let expected = bystander(&kit);
    let mut client = kit.client();
    let hash = client.upload(ECHO.as_bytes()).expect("a module").hash;
    let names = ["..", "../x", "a/b", "/etc", "a\0b", "", ".hidden", "A", "%2e%2e", "x\n", "é"];
    let create = |name: &str, manifest: &str, file: &str| api::CreateMachine {
        name: name.into(),
        manifest: manifest.into(),
        modules: BTreeMap::from([(file.to_owned(), hash.clone())]),
        hz: None,
        start: false,
    };
    let fork = |name: &str| api::Fork { name: name.into(), frame: None, hz: None, start: false };
    for name in names {
        assert_eq!(refused(client.create(&create(name, kit::MANIFEST, "echo.wat"))).0, 400);
        assert_eq!(refused(client.fork("bystander", &fork(name))).0, 400, "{name:?}");
    }
    for file in ["../x.wasm", "/x.wasm", "..", "a/b.wasm", ".x", "a\0.wasm"] {
        assert_eq!(refused(client.create(&create("m", kit::MANIFEST, file))).0, 400, "{file:?}");
    }
    // A manifest that names a file elsewhere, which exists.
    for module in ["../manifest.toml", "../../../tokens", "modules/../echo.wat", "./../x"] {
        let manifest = format!("[[session]]\nname = \"a\"\nmodule = \"{module}\"\n");
        let (status, code) = refused(client.create(&create("m", &manifest, "echo.wat")));
        assert_eq!((status, code.as_str()), (400, "invalid"), "{module}");
    }
    let absolute = kit.folder.join("tokens");
    let manifest = format!(
        "[[session]]\nname = \"a\"\nmodule = '{}'\n",
        absolute.canonicalize().expect("it").display()
    );
    assert_eq!(refused(client.create(&create("m", &manifest, "echo.wat"))).0, 400);
    let paths = [
        "/v1/machines/../tokens",
        "/v1/machines/%2e%2e",
        "/v1/machines/..%2ftokens",
        "/v1/machines/bystander/segments/..%2f..%2fmanifest.toml",
        "/v1/machines/bystander/segments/-1",
        "/v1/machines/bystander/segments/1.trace",
        "/v1/machines/bystander/segments/99999999999999999999",
        "/v1/machines/%00",
        "/v1/machines/%ff",
        "//v1/machines",
        "/v1/modules/..%2ftokens",
    ];
    for path in paths {
        let method = if path.contains("modules") { "DELETE" } else { "GET" };
        let (status, body) = kit.raw(&kit.head(&format!("{method} {path}"), ""));
        assert!(matches!(status, 400 | 404), "{path}: {status} {body}");
    }
    assert_eq!(refused(client.delete_module("../tokens")).0, 400);
    assert!(kit.folder.join("tokens").exists());
    unharmed(&kit, &expected);
}

#[test]
fn bombs_are_refused_by_their_size_or_shape() {
    let kit = Kit::new("bombs", |settings| {
        settings.limits.module = 200_000;
        settings.limits.bodies = 1 << 20;
    });
    let expected = bystander(&kit);
    let json = |line: &str, body: &str| {
        let more = format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len());
        kit.raw(&(kit.head(line, &more) + body))
    };
    let step = "POST /v1/machines/bystander/step";
    let deep = format!("{{\"frames\": {}1{}}}", "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(json(step, &deep).0, 400);
    let deep = "{\"x\":".repeat(100_000) + "1" + &"}".repeat(100_000);
    assert_eq!(json(step, &deep).0, 400);
    let huge = format!("{{\"frames\": \"{}\"}}", "x".repeat(2 << 20));
    assert_eq!(json(step, &huge).0, 413);
    let bad = [
        "",
        "{",
        "[]",
        "{\"frames\": -1}",
        "{\"frames\": 1e999}",
        "{\"frames\": 1.5}",
        "null",
        "{\"frames\": 1, \"frames\": 2}",
        "{\"frames\": 1, \"x\": 2}",
        "{\"frames\": 0}",
        "{\"frames\": 18446744073709551616}",
        "\u{feff}{\"frames\": 1}",
        "{\"frames\": 1}}",
    ];
    for body in bad {
        assert_eq!(json(step, body).0, 400, "{body}");
    }
    // A length that is a lie, no length, and bodies that would have to be unpacked.
    let head = |more: &str| kit.head(step, &format!("content-type: application/json\r\n{more}"));
    assert_eq!(kit.raw(&head("content-length: 99999999999\r\n")).0, 413);
    assert_eq!(kit.raw(&head("content-length: -1\r\n")).0, 400);
    assert_eq!(kit.raw(&head("content-length: 18446744073709551616\r\n")).0, 400);
    assert_eq!(kit.raw(&(head("transfer-encoding: chunked\r\n") + "1\r\n{\r\n0\r\n\r\n")).0, 411);
    let packed = head("content-encoding: gzip\r\ncontent-length: 10\r\n") + "0123456789";
    assert_eq!(kit.raw(&packed).0, 415);
    let two = head("content-length: 5\r\ncontent-length: 6\r\n") + "012345";
    assert_eq!(kit.raw(&two).0, 400);
    // Heads.
    let long = kit.head(&format!("GET /{}", "x".repeat(100_000)), "");
    assert!(matches!(kit.raw(&long).0, 0 | 400..=499));
    let many: String = (0..5_000).map(|number| format!("x-{number}: y\r\n")).collect();
    assert!(matches!(kit.raw(&kit.head(GET, &many)).0, 0 | 400..=499));
    for noise in [&b"\0\0\0\0\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01", b"GET", b"\r\n\r\n\r\n"] {
        let (status, _) = kit.raw_bytes(noise);
        assert!(matches!(status, 0 | 400..=499), "{noise:?}: {status}");
    }
    // Modules: none, one that is too large, and one that promises more than it has.
    let mut client = kit.client();
    assert_eq!(refused(client.upload(&vec![0; 300_000])).0, 413);
    let promises: [&[u8]; 3] = [
        b"\0asm\x01\0\0\0\x01\xff\xff\xff\xff\x0f",
        b"\0asm\x01\0\0\0\x03\x06\xff\xff\xff\xff\x0f\0",
        b"\0asm\x01\0\0\0\x05\x05\x01\0\xff\xff\xff",
    ];
    for bytes in promises {
        assert_eq!(refused(client.upload(bytes)).0, 422, "{bytes:?}");
    }
    // A module that asks for 4 GiB is one, but no machine may have it.
    let greedy = "(module (memory 65536) (func (export \"_start\")))";
    let hash = client.upload(greedy.as_bytes()).expect("a module").hash;
    let greedy = api::CreateMachine {
        name: "greedy".into(),
        manifest: "[[session]]\nname = \"a\"\nmodule = \"a.wat\"\n".into(),
        modules: BTreeMap::from([("a.wat".to_owned(), hash)]),
        ..api::CreateMachine::default()
    };
    assert_eq!(refused(client.create(&greedy)).0, 422);
    let nested = format!("(module (func {} {}))", "(block ".repeat(10_000), ")".repeat(10_000));
    assert!(matches!(
        client.upload(nested.as_bytes()),
        Ok(_) | Err(wavelock_client::Error::Refused { .. })
    ));
    unharmed(&kit, &expected);
}

#[test]
fn slow_clients_are_left_behind() {
    let kit = Kit::new("slow", |settings| {
        settings.limits.head_time = Duration::from_millis(200);
        settings.limits.request_time = Duration::from_millis(400);
        settings.limits.connections = 20;
        settings.limits.feed = 4_096;
    });
    let expected = bystander(&kit);
    // Connections that say nothing, or half a head, take the places of others for a moment only.
    let mut idle: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(kit.address()).expect("it listens")).collect();
    for stream in &mut idle {
        let _ = stream.write_all(b"GET /v1/machines HT");
    }
    let began = Instant::now();
    while kit.client().machines().is_err() {
        assert!(began.elapsed() < PATIENCE, "the places are never free again");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(idle);
    // A body that never comes.
    let line = "POST /v1/machines/bystander/step";
    let more = "content-type: application/json\r\ncontent-length: 100\r\n";
    assert_eq!(kit.raw(&(kit.head(line, more) + "{")).0, 408);
    // A client that watches and reads nothing loses frames; others lose none of the machine.
    let mut client = kit.client();
    let mut slow = client.watch("bystander", Some(0)).expect("a socket");
    let fork = api::Fork { name: "busy".into(), frame: None, hz: Some(1_000.0), start: false };
    client.fork("bystander", &fork).expect("a fork");
    let mut lagging = client.watch("busy", Some(0)).expect("a socket");
    for _ in 0..100 {
        client.input("busy", None, &Bytes::of(&[b'x'; 1_000])).expect("taken");
        client.step("busy", 1).expect("a frame");
    }
    let mut dropped = 0;
    let frames = client.frames("busy", 0).expect("frames");
    while let Ok(Some(message)) = lagging.read() {
        match message {
            api::Watched::Dropped(found) => dropped += found.dropped,
            api::Watched::Frame(frame) if frame.frame == 99 => break,
            _ => {}
        }
    }
    assert!(frames.dropped > 0 && frames.frames.len() < 10, "{}", frames.dropped);
    assert!(dropped < 100, "{dropped}");
    // Frames of a WebSocket that are too large end the connection.
    let text = Some("x".repeat(100_000));
    let _ = slow.send(&api::WatchInput { id: 1, text, ..api::WatchInput::default() });
    while let Ok(Some(_)) = slow.read() {}
    unharmed(&kit, &expected);
}

#[test]
fn floods_are_answered_with_too_many() {
    let kit = Kit::new("floods", |settings| {
        settings.limits.failures = 10;
        settings.limits.requests = 50;
        settings.limits.watchers = 2;
    });
    let bare = format!("{GET} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", kit.address());
    let statuses: Vec<u16> = (0..60).map(|_| kit.raw(&bare).0).collect();
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
    assert!(statuses.iter().all(|status| matches!(status, 401 | 429)));
    // A token has its own bucket: the flood without one costs it nothing, and one of its own does.
    let mut client = kit.client();
    let mut others = 0;
    for _ in 0..300 {
        match client.machines() {
            Ok(_) => {}
            Err(wavelock_client::Error::Refused { status: 429, .. }) => others += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(others > 0 && others < 300, "{others}");
    std::thread::sleep(Duration::from_secs(2));
    kit.machine("one");
    let client = kit.client();
    let first = client.watch("one", None).expect("a socket");
    let _second = client.watch("one", None).expect("a socket");
    assert!(client.watch("one", None).is_err(), "two watch already");
    drop(first);
    // The audit log has the refusals of a second up to a number, and counts the others.
    let log = std::fs::read_to_string(kit.folder.join("audit.jsonl")).expect("a log");
    assert!(log.lines().filter(|line| line.contains("401")).count() <= 60);
}

#[test]
fn a_second_server_and_a_server_on_the_network_are_refused() {
    let kit = Kit::new("second", |_| {});
    let mut settings = wavelock_serve::Settings::new(&kit.folder);
    let second = wavelock_serve::Server::start(&settings).map(drop).expect_err("it is in use");
    assert!(second.to_string().contains("in use"), "{second}");
    settings.folder = kit.folder.join("other");
    settings.listen = "0.0.0.0:0".parse().expect("an address");
    let open = wavelock_serve::Server::start(&settings).map(drop).expect_err("without TLS");
    assert!(open.to_string().contains("certificate"), "{open}");
    // A connection that is cut while it is answered harms nobody.
    for _ in 0..50 {
        let mut stream = TcpStream::connect(kit.address()).expect("it listens");
        let _ = stream.write_all(kit.head("GET /openapi.json", "").as_bytes());
        let mut byte = [0];
        let _ = stream.read(&mut byte);
    }
    kit.client().machines().expect("it goes on");
}
