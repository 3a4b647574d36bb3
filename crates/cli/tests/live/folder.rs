//! Sessions that are started, replaced and ended while a run is live: by control lines, and by
//! files of a watched folder.

use crate::harness::*;
use std::fs;
use std::path::Path;
use std::time::Instant;

/// A guest that writes its word when it starts, then sleeps.
fn guest(word: &str) -> String {
    format!(
        r#"(module
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (data (i32.const 0) "{word}\0a")
  (func (export "_start")
    (drop (call $output (i32.const 0) (i32.const {})))
    (call $sleep (i64.const 1_000_000_000))))"#,
        word.len() + 1
    )
}

/// A file that is put into a folder at once, as an upload should be.
fn put(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    let part = folder.join(format!(".{name}.part"));
    fs::write(&part, bytes).expect("a file");
    fs::rename(part, folder.join(name)).expect("a file");
}

impl Run {
    /// Reads notes up to one with these words.
    fn told(&mut self, words: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut before = String::new();
        while Instant::now() < until {
            let mut line = String::new();
            std::io::BufRead::read_line(&mut self.errors, &mut line).expect("a line");
            assert!(!line.is_empty(), "the run ended without `{words}`: {before}");
            if line.contains(words) {
                return line;
            }
            before += &line;
        }
        panic!("no `{words}`: {before}")
    }
}

fn last_digest(errors: &str) -> &str {
    let digest = errors.split("digest: ").nth(1).and_then(|rest| rest.lines().next());
    digest.unwrap_or_else(|| panic!("no digest: {errors}"))
}

#[test]
fn a_folder_of_modules_is_a_set_of_sessions() {
    let folder = folder("watch");
    let mods = folder.join("mods");
    fs::create_dir(&mods).expect("a folder");
    put(&mods, "first.wat", guest("first"));
    let template = "[[profile]]\nname = \"small\"\nmemory_pages = 2\nbudget_cycles = 20_000\n\
                    [template]\nprofile = \"small\"\nweight = 64\n";
    fs::write(folder.join("host.toml"), format!("{ROOMS}{template}")).expect("a file");
    let arguments =
        ["host.toml", "--watch", "mods", "--output", "json", "--record", "t.trace", "--fps", "500"];
    let mut run = Run::start(&folder, &arguments);
    assert!(run.hear().contains("\"session\":\"first\",\"stream\":\"output\",\"text\":\"first"));
    put(&mods, "bot.wat", guest("one"));
    assert!(run.hear().contains("\"session\":\"bot\",\"stream\":\"output\",\"text\":\"one"));
    // The same bytes again are no change, other ones are.
    put(&mods, "bot.wat", guest("one"));
    put(&mods, "bot.wat", guest("two"));
    assert!(run.hear().contains("\"session\":\"bot\",\"stream\":\"output\",\"text\":\"two"));
    fs::remove_file(mods.join("bot.wat")).expect("it is there");
    run.told("`bot` ends");
    // The name is its again.
    put(&mods, "bot.wat", guest("three"));
    assert!(run.hear().contains("\"session\":\"bot\",\"stream\":\"output\",\"text\":\"three"));
    // A module beyond the limits of the template is skipped; the session continues.
    put(&mods, "bot.wat", guest("large").replace("(memory 1)", "(memory 3)"));
    let refused = run.told("--watch: `bot`: ");
    assert!(refused.contains("memory") && refused.contains('2'), "{refused}");
    run.say("{\"stop\":true}");
    let End { code, errors, .. } = run.end();
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        errors.contains("sessions: 2 started, 2 replaced, 1 ended; 1 file skipped"),
        "{errors}"
    );
    // The recording needs no folder.
    fs::remove_dir_all(&mods).expect("it is there");
    replays(&folder, "t.trace", last_digest(&errors));
}

#[test]
fn what_cannot_be_a_session_is_told_and_skipped() {
    let folder = folder("watch-garbage");
    let mods = folder.join("mods");
    fs::create_dir(&mods).expect("a folder");
    let arguments = ["rooms.toml", "--watch", "mods", "--listen", "127.0.0.1:0", "--json"];
    let mut run = Run::start(
        &folder,
        &[&arguments[..], &["--output", "json", "--record", "t.trace"]].concat(),
    );
    let mut client = run.connect();
    is_alive(&mut client, "before");
    let whole = guest("whole");
    let secret = folder.join("secret.txt");
    fs::write(&secret, "do not print this").expect("a file");
    std::os::unix::fs::symlink(&secret, mods.join("link.wat")).expect("a link");
    assert!(std::process::Command::new("mkfifo").arg(mods.join("pipe.wasm")).status().is_ok());
    fs::create_dir(mods.join("folder.wasm")).expect("a folder");
    fs::write(mods.join("notes.txt"), "no module").expect("a file");
    fs::write(mods.join("a b.wat"), &whole).expect("a file");
    fs::write(mods.join("red.wat"), &whole).expect("a file");
    fs::write(mods.join("secret.wat"), "(this is a secret)").expect("a file");
    fs::write(mods.join("noise.wasm"), [0xa5; 100_000]).expect("a file");
    fs::write(mods.join("empty.wasm"), "").expect("a file");
    // Sparse: nothing of it is read.
    fs::File::create(mods.join("huge.wasm"))
        .and_then(|file| file.set_len(1 << 40))
        .expect("a file");
    // Half of a module, and the rest of it later.
    fs::write(mods.join("half.wat"), &whole[..whole.len() / 2]).expect("a file");
    let mut told = String::new();
    for _ in 0..9 {
        told += &run.told("--watch: ");
    }
    for words in [
        "link.wat: it is no plain file",
        "pipe.wasm: it is no plain file",
        "folder.wasm: it is no plain file",
        "a b.wat: the name of the file names its session; allowed: letters",
        "`red`: a session of the machine's own has this name",
        "secret.wat: is not a module",
        "noise.wasm: ",
        "empty.wasm: is empty",
        "huge.wasm: it has 1_099_511_627_776 bytes: at most 16_777_216 are allowed",
        "half.wat: is not a module",
    ] {
        if !told.contains(words) {
            told += &run.told("--watch: ");
        }
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(!told.contains("print this") && !told.contains("(this is"), "{told}");
    fs::write(mods.join("half.wat"), &whole).expect("a file");
    let line = client.hear();
    assert!(line.contains("\"session\":\"half\",\"stream\":\"output\",\"text\":\"whole"), "{line}");
    // The folder itself goes away: its sessions stay.
    fs::rename(&mods, folder.join("elsewhere")).expect("it is there");
    run.told("No such file");
    is_alive(&mut client, "after");
    client.say("{\"stop\":true}");
    let end = run.end();
    let object = json(end.output.as_bytes());
    assert_eq!((end.code, object["outcome"].as_str()), (Some(0), Some("stopped")));
    let live = &object["telemetry"]["live"];
    let count = |key: &str| live[key].as_u64();
    assert_eq!((count("started"), count("ended")), (Some(1), Some(0)), "{live}");
    assert!(count("skipped") >= Some(11), "{live}");
    replays(&folder, "t.trace", object["digest"].as_str().expect("a digest"));
}

/// Many files, of which most are no modules, and more entries than are looked
/// at.
#[test]
fn a_storm_of_uploads_costs_a_bounded_amount_and_stops_nothing() {
    let folder = folder("watch-storm");
    let mods = folder.join("mods");
    fs::create_dir(&mods).expect("a folder");
    let limits = format!("[limits]\nsessions = 20\n{ROOMS}");
    fs::write(folder.join("host.toml"), limits).expect("a file");
    let arguments = ["host.toml", "--watch", "mods", "--listen", "127.0.0.1:0", "--json"];
    let mut run = Run::start(&folder, &[&arguments[..], &["--record", "t.trace"]].concat());
    let mut client = run.connect();
    for number in 0..90 {
        let bytes = match number % 3 {
            0 => b"(module (func (export \"_start\")))".to_vec(),
            1 => format!("(module {number}").into_bytes(),
            _ => vec![number as u8; 5_000],
        };
        put(&mods, &format!("bot{number}.wat"), bytes);
        if number % 30 == 0 {
            is_alive(&mut client, &format!("line{number}"));
        }
    }
    // Thirty modules and room for 18 sessions.
    run.told("allows 20");
    // Every file is gone at once, and rubbish is there in its place.
    fs::remove_dir_all(&mods).expect("it is there");
    fs::create_dir(&mods).expect("a folder");
    for number in 0..5_000 {
        fs::write(mods.join(format!("{number}.txt")), "").expect("a file");
    }
    run.told("has more than 4_096 entries");
    is_alive(&mut client, "still");
    client.say("{\"stop\":true}");
    let object = json(run.end().output.as_bytes());
    let live = &object["telemetry"]["live"];
    assert_eq!(live["started"], 18, "{live}");
    assert!(live["skipped"].as_u64() >= Some(60), "{live}");
    replays(&folder, "t.trace", object["digest"].as_str().expect("a digest"));
}

#[test]
fn lines_start_replace_and_change_sessions() {
    let folder = folder("lines");
    fs::create_dir(folder.join("mods")).expect("a folder");
    put(&folder.join("mods"), "one.wat", guest("one"));
    put(&folder.join("mods"), "room.wat", ROOM);
    put(&folder.join("mods"), "bad.wat", "(module (import \"wavelock\" \"outpu\" (func)))");
    put(&folder.join("mods"), "secret.txt", "do not print this");
    let context = "[[context]]\nname = \"tick\"\nsession = \"red\"\nbudget_cycles = 10_000\n\
                   period_cycles = 1_000_000\n";
    fs::write(folder.join("host.toml"), format!("{ROOMS}{context}")).expect("a file");
    let arguments = ["host.toml", "--modules", "mods", "--output", "json", "--record", "t.trace"];
    let mut run = Run::start(&folder, &arguments);
    run.say("{\"start\":\"green\",\"module\":\"room.wat\",\"args\":[\"a\",\"b\"]}");
    run.say("{\"session\":\"green\",\"text\":\"hi\\n\"}");
    assert!(run.hear().contains("\"session\":\"green\",\"stream\":\"output\",\"text\":\"1: hi"));
    run.say("{\"replace\":\"green\",\"module\":\"room.wat\",\"text\":\"kept\\n\"}");
    assert!(run.hear().contains("\"session\":\"green\",\"stream\":\"output\",\"text\":\"1: kept"));
    run.say("{\"replace\":\"blue\",\"module\":\"one.wat\"}");
    assert!(run.hear().contains("\"session\":\"blue\",\"stream\":\"output\",\"text\":\"one"));
    run.say("{\"weight\":\"green\",\"value\":2048}");
    run.say(
        "{\"cap\":\"green\",\"budget_cycles\":50000,\"period_frames\":2,\"overrun\":\"demote\"}",
    );
    run.say("{\"cap\":\"green\"}");
    run.say("{\"context\":\"tick\",\"budget_cycles\":20000}");
    let refused = [
        ("{\"cap\":\"green\",\"budget_cycles\":1}", "`green`: "),
        ("{\"context\":\"tock\",\"budget_cycles\":1}", "no context `tock`; did you mean `tick`?"),
        ("{\"context\":\"tick\",\"of\":\"blue\",\"budget_cycles\":1}", "has no context `tick`"),
        ("{\"start\":\"red\",\"module\":\"room.wat\"}", "there is a session `red` already"),
        ("{\"start\":\"a b\",\"module\":\"room.wat\"}", "allowed: letters"),
        ("{\"start\":\"x\",\"module\":\"none.wat\"}", "`none.wat`: No such file"),
        ("{\"start\":\"x\",\"module\":\"../room.wat\"}", "no name of a file in the folder"),
        ("{\"start\":\"x\",\"module\":\"/etc/passwd\"}", "no name of a file in the folder"),
        ("{\"start\":\"x\",\"module\":\"..\"}", "no name of a file in the folder"),
        ("{\"start\":\"x\",\"module\":\"bad.wat\"}", "outpu"),
        ("{\"start\":\"x\",\"module\":\"secret.txt\"}", "is not a module"),
        ("{\"replace\":\"nobody\",\"module\":\"room.wat\"}", "no session `nobody`"),
        ("{\"weight\":\"*\",\"value\":1}", "this line is for one session"),
    ];
    for (line, words) in refused {
        run.say(line);
        let mut told = String::new();
        std::io::BufRead::read_line(&mut run.errors, &mut told).expect("a line");
        assert!(told.contains(words) && !told.contains("print this"), "{line}: {told}");
    }
    run.say("{\"end\":\"green\"}");
    run.say("{\"stop\":true}");
    let End { code, errors, .. } = run.end();
    assert_eq!(code, Some(0), "{errors}");
    let counts = "sessions: 1 started, 2 replaced, 1 ended; 0 files skipped";
    assert!(errors.contains(counts), "{errors}");
    replays(&folder, "t.trace", last_digest(&errors));
    // Both kinds of export run the machine again, with its inputs.
    for format in ["folded", "perfetto"] {
        let export = ["export", "t.trace", "--format", format, "-o", "exported"];
        let output = wavelock(&folder, &export);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let bytes = fs::read(folder.join("exported")).expect("it was written");
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("green"), "{format}: the names of later sessions");
    }
}

/// Clients that start, replace and end sessions as fast as they can.
#[test]
fn a_storm_of_starts_and_ends_is_bounded() {
    let folder = folder("start-storm");
    fs::create_dir(folder.join("mods")).expect("a folder");
    put(&folder.join("mods"), "one.wat", guest("one"));
    put(&folder.join("mods"), "two.wat", guest("two"));
    let limits = format!("[limits]\nsessions = 150\n{ROOMS}");
    fs::write(folder.join("host.toml"), limits).expect("a file");
    let arguments = ["host.toml", "--modules", "mods", "--listen", "127.0.0.1:0", "--json"];
    let more = ["--record", "t.trace", "--fps", "1_000", "--workers", "2"];
    let run = Run::start(&folder, &[&arguments[..], &more].concat());
    let storms: Vec<_> = (0..4)
        .map(|number| {
            let mut client = run.connect();
            std::thread::spawn(move || {
                let mut refused = 0;
                for start in 0..50 {
                    let name = format!("s{number}.{start}");
                    client.say(&format!("{{\"start\":\"{name}\",\"module\":\"one.wat\"}}"));
                    client.say(&format!("{{\"replace\":\"{name}\",\"module\":\"two.wat\"}}"));
                    client.say(&format!("{{\"end\":\"{name}\"}}"));
                    client.say(&format!("{{\"hold\":\"{name}\"}}"));
                }
                // Behind all of its lines.
                let last = format!("done{number}");
                client.say(&format!("{{\"session\":\"red\",\"text\":\"{last}\\n\"}}"));
                loop {
                    let line = client.hear();
                    refused += u64::from(line.contains("\"error\""));
                    // One of which too much was refused is disconnected.
                    if line.is_empty() || line.contains(&last) {
                        return refused;
                    }
                }
            })
        })
        .collect();
    let mut client = run.connect();
    client.say("{\"session\":\"blue\",\"text\":\"during\\n\"}");
    while !client.hear().contains("during") {}
    let refused: u64 = storms.into_iter().map(|storm| storm.join().expect("no panic")).sum();
    assert!(refused >= 52, "{refused}");
    client.say("{\"stop\":true}");
    let end = run.end();
    let object = json(end.output.as_bytes());
    assert_eq!((end.code, object["outcome"].as_str()), (Some(0), Some("stopped")));
    // Room for 148 of 200.
    let live = &object["telemetry"]["live"];
    assert_eq!(
        (live["started"].as_u64(), live["ended"].as_u64()),
        (Some(148), Some(148)),
        "{live}"
    );
    replays(&folder, "t.trace", object["digest"].as_str().expect("a digest"));
}
