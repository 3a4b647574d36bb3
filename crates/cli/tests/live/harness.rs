//! A live run as a child process, and its clients.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) const ROOM: &str = include_str!("../../../../examples/chat/room.wat");

/// Two rooms on two lanes.
pub(crate) const ROOMS: &str = "[machine]\nlanes = 2\n[[session]]\nname = \"red\"\nmodule = \"room.wat\"\n\
                     [[session]]\nname = \"blue\"\nmodule = \"room.wat\"\n";

/// After its first input: 512 frames that write 64 KiB each.
pub(crate) const FLOOD: &str = r#"(module
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 2)
  (func (export "_start") (local $left i32)
    (block $told (loop $wait
      (br_if $told (call $input (i32.const 0) (i32.const 100)))
      (call $sleep (i64.const 1))
      (br $wait)))
    (local.set $left (i32.const 512))
    (loop $next
      (drop (call $output (i32.const 0) (i32.const 65536)))
      (call $sleep (i64.const 1))
      (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))))"#;

pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    let files = [("room.wat", ROOM), ("rooms.toml", ROOMS), ("flood.wat", FLOOD)];
    for (file, text) in files {
        std::fs::write(folder.join(file), text).expect("a file");
    }
    folder
}

pub(crate) fn wavelock(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wavelock"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).output().expect("it runs")
}

pub(crate) fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(text)))
}

/// A process that does not outlive its test.
pub(crate) struct Guarded(pub(crate) Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A live run.
pub(crate) struct Run {
    pub(crate) child: Guarded,
    pub(crate) input: Option<ChildStdin>,
    pub(crate) output: BufReader<ChildStdout>,
    pub(crate) errors: BufReader<ChildStderr>,
    /// The addresses it listens on.
    pub(crate) places: Vec<String>,
}

/// How it ended.
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    pub(crate) errors: String,
}

impl Run {
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_wavelock"))
            .args([&["run", "--live"], arguments].concat())
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut first = String::new();
        errors.read_line(&mut first).expect("a line");
        assert!(first.starts_with("note: live, "), "{first}");
        let places = first.trim().split("; ").filter_map(|part| part.strip_prefix("listening on "));
        let places = places.map(str::to_owned).collect();
        Self { child: Guarded(child), input, output, errors, places }
    }

    pub(crate) fn say(&mut self, line: &str) {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }

    /// The next line of output.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line
    }

    pub(crate) fn connect(&self) -> Client {
        let address = self.places.first().expect("it listens");
        let stream = TcpStream::connect(address).expect("it accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Client { lines: BufReader::new(stream.try_clone().expect("a handle")), stream }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.0.id().to_string();
        let status = Command::new("kill").args([name, &id]).status();
        assert!(status.is_ok_and(|status| status.success()));
    }

    /// Waits for the end; its standard input is closed.
    pub(crate) fn end(mut self) -> End {
        drop(self.input.take());
        let rest = |mut stream: Box<dyn Read + Send>| {
            std::thread::spawn(move || {
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest);
                String::from_utf8_lossy(&rest).into_owned()
            })
        };
        let (output, errors) = (rest(Box::new(self.output)), rest(Box::new(self.errors)));
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.0.try_wait().expect("a child") {
                Some(status) => break status,
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
                None => panic!("the run does not end"),
            }
        };
        let [output, errors] = [output, errors].map(|thread| thread.join().expect("no panic"));
        End { code: status.code(), output, errors }
    }
}

/// A client over TCP.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) lines: BufReader<TcpStream>,
}

impl Client {
    pub(crate) fn say(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }

    /// The next line; empty at the end of the connection.
    pub(crate) fn hear(&mut self) -> String {
        let mut line = String::new();
        match self.lines.read_line(&mut line) {
            Ok(_) => line,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => String::new(),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn hears_error(&mut self, words: &str) {
        let line = self.hear();
        let object = json(line.as_bytes());
        assert!(object["error"].as_str().is_some_and(|error| error.contains(words)), "{line}");
    }
}

/// The machine goes on: a new line gets an answer.
pub(crate) fn is_alive(client: &mut Client, word: &str) {
    client.say(&format!("{{\"session\":\"red\",\"text\":\"{word}\\n\"}}"));
    let line = client.hear();
    assert!(line.contains(word), "{line}");
}

/// Replays a trace on one, two and four workers.
pub(crate) fn replays(folder: &Path, trace: &str, digest: &str) {
    for workers in ["1", "2", "4"] {
        let output = wavelock(folder, &["replay", trace, "--workers", workers, "--json"]);
        let object = json(&output.stdout);
        assert_eq!((object["verdict"].as_str(), output.status.code()), (Some("equal"), Some(0)));
        assert_eq!(object["digest"].as_str(), Some(digest), "{workers} workers");
    }
}
