//! What `wavelock run --live` costs: an idle minute at 60 Hz, and ten million frames with inputs.
//!
//! `cargo bench -p wavelock-cli --bench live` runs the command itself, with a client connected, a
//! folder watched and a recording written, and reads CPU time (of all its threads) and resident
//! memory from Linux. The goals: below 1 % of a core, and no growth. `-- --seconds N --frames N`
//! makes both parts shorter.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Frames between two samples of a long run: the guest writes a line.
const PART: u64 = 1 << 18;

/// Waits for input that seldom comes.
const WAITER: &str = include_str!("../../../examples/chat/room.wat");

/// Wakes in every frame, reads its input, writes a line every 2^18 frames.
const POLLER: &str = r#"(module
  (import "wavelock" "input" (func $input (param i32 i32) (result i32)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (import "wavelock" "sleep" (func $sleep (param i64)))
  (memory 1)
  (data (i32.const 100) ".\0a")
  (func (export "_start") (local $frame i32)
    (loop $forever
      (loop $read
        (br_if $read (i32.gt_s (call $input (i32.const 0) (i32.const 64)) (i32.const 0))))
      (call $sleep (i64.const 1))
      (local.set $frame (i32.add (local.get $frame) (i32.const 1)))
      (if (i32.eqz (i32.and (local.get $frame) (i32.const 0x3ffff)))
        (then (drop (call $output (i32.const 100) (i32.const 2)))))
      (br $forever))))"#;

/// A live run and the address that it listens on.
struct Run {
    child: Child,
    address: String,
}

impl Run {
    fn start(folder: &Path, module: &str, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_wavelock"))
            .args(["run", "--live", module, "--listen", "127.0.0.1:0", "--watch", "mods"])
            .args(["--record", "t.trace", "--level", "inputs"])
            .args(more)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut errors = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        errors.read_line(&mut line).expect("a line");
        let address = line.split("listening on ").nth(1).and_then(|rest| rest.split(';').next());
        let address = address.unwrap_or_else(|| panic!("no address: {line}")).to_owned();
        // The rest of what it says is read, so that it is not dropped.
        std::thread::spawn(move || drop(errors.read_to_end(&mut Vec::new())));
        Self { child, address }
    }

    fn client(&self) -> TcpStream {
        TcpStream::connect(&self.address).expect("it accepts")
    }

    /// CPU nanoseconds of all its threads.
    fn cpu_nanoseconds(&self) -> u64 {
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("Linux");
        let of = |path: PathBuf| -> Option<u64> {
            fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
        };
        threads.filter_map(|thread| of(thread.ok()?.path())).sum()
    }

    fn resident_kib(&self) -> i64 {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.child.id())).expect("Linux");
        let pages = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
        pages.map_or(0, |pages: i64| pages * 4)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The part of a core that an idle machine takes at 60 Hz, in percent.
fn idle(folder: &Path, module: &str, time: Duration) -> f64 {
    let run = Run::start(folder, module, &[]);
    let _client = run.client();
    std::thread::sleep(Duration::from_secs(2));
    let (began, before) = (Instant::now(), run.cpu_nanoseconds());
    std::thread::sleep(time);
    (run.cpu_nanoseconds() - before) as f64 / began.elapsed().as_nanos() as f64 * 100.0
}

/// Prints the resident memory in the parts of a long run with an input every millisecond.
fn long(folder: &Path, frames: u64) {
    let run = Run::start(folder, "poller.wat", &["--fps", "max"]);
    let client = run.client();
    let mut lines = client.try_clone().expect("a handle");
    let talk = std::thread::spawn(move || {
        let line = b"{\"session\":\"poller\",\"text\":\"0123456789abcdef\"}\n";
        let mut count = 0_u64;
        while lines.write_all(line).is_ok() {
            count += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        count
    });
    let mut output = BufReader::new(client);
    let (mut rows, mut before, began) = (Vec::new(), 0, Instant::now());
    let parts = (frames / PART).max(1);
    for part in 1..=parts {
        let mut line = String::new();
        output.read_line(&mut line).expect("a line");
        assert_eq!(line, ".\n");
        if part % (parts / 10).max(1) == 0 {
            let now = run.resident_kib();
            rows.push(now - before);
            before = now;
        }
    }
    let (nanoseconds, frames) = (run.cpu_nanoseconds(), parts * PART);
    let seconds = began.elapsed().as_secs_f64();
    drop(run);
    let inputs = talk.join().expect("no panic");
    println!(
        "{frames} frames with {inputs} inputs in {seconds:.0} s, {} CPU ns a frame; KiB resident, \
         then growth by part: {rows:?}",
        nanoseconds / frames
    );
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |flag: &str, default: u64| {
        let mut after = arguments.iter().skip_while(|argument| *argument != flag).skip(1);
        after.next().and_then(|count| count.parse().ok()).unwrap_or(default)
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("live-bench");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("mods")).expect("a folder");
    fs::write(folder.join("waiter.wat"), WAITER).expect("a file");
    fs::write(folder.join("poller.wat"), POLLER).expect("a file");
    for number in 0..20 {
        fs::write(folder.join(format!("mods/mod{number}.wat")), WAITER).expect("a file");
    }
    let time = Duration::from_secs(number("--seconds", 60));
    println!(
        "idle at 60 Hz, 21 guests wait         {:.3} % of a core",
        idle(&folder, "waiter.wat", time)
    );
    println!(
        "idle at 60 Hz, one polls every frame  {:.3} % of a core",
        idle(&folder, "poller.wat", time)
    );
    long(&folder, number("--frames", 10_000_000));
}
