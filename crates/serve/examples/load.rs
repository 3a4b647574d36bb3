//! Load on one server: machines that all run, clients that watch, and the time of control requests,
//! first undisturbed and then under a flood of bad requests. Everything is on this host, in this
//! process, and ends by itself.
//!
//! `cargo run --release -p wavelock-serve --example load -- [SECONDS] [MACHINES] [SESSIONS]
//! [WATCHERS]`; without numbers 20 seconds, 100 machines of 20 sessions and 200 watchers, at 20
//! frames a second. It fails if frames are lost, if a request is refused, or if the 99th percentile
//! of an undisturbed request is 50 ms or more.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wavelock_client::{Client, api};
use wavelock_serve::{Server, Settings};

const ECHO: &str = include_str!("../../wavelock/examples/guests/echo.wat");
const HZ: f64 = 20.0;
const LIMIT: Duration = Duration::from_millis(50);
/// Time between two control requests.
const EVERY: Duration = Duration::from_millis(10);

fn manifest(sessions: usize) -> String {
    let mut text = "[machine]\nlive = true\nframe_cycles = 200_000\n".to_owned();
    for number in 0..sessions {
        let _ = write!(text, "[[session]]\nname = \"s{number}\"\nmodule = \"echo.wat\"\n");
    }
    text
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4
}

fn percentile(sorted: &[Duration], of: usize) -> Duration {
    sorted[(sorted.len() * of / 100).min(sorted.len() - 1)]
}

/// What a phase saw.
struct Phase {
    times: Vec<Duration>,
    frames: u64,
    late: u64,
    took: Duration,
}

/// Frames and late frames of all machines.
fn count(client: &mut Client) -> Result<(u64, u64), Box<dyn Error>> {
    let machines = client.machines()?.machines;
    let sum = |of: fn(&api::Machine) -> u64| machines.iter().map(of).sum();
    Ok((sum(|machine| machine.frame), sum(|machine| machine.late)))
}

/// Control requests at a steady rate, to each machine in turn.
fn control(client: &mut Client, machines: usize, time: Duration) -> Result<Phase, Box<dyn Error>> {
    let (before, late) = count(client)?;
    let began = Instant::now();
    let (mut times, mut number) = (Vec::new(), 0usize);
    while began.elapsed() < time {
        let (name, session) = (format!("m{}", number % machines), "s1");
        let sent = Instant::now();
        match number % 4 {
            0 => client.set_weight(&name, session, 1 + (number % 2_000) as u16)?,
            1 => client.hold(&name, session)?,
            2 => client.release(&name, session)?,
            _ => client.input(&name, Some(session), &api::Bytes::of(b"hello"))?,
        };
        times.push(sent.elapsed());
        number += 1;
        std::thread::sleep(EVERY.saturating_sub(sent.elapsed()));
    }
    let took = began.elapsed();
    let (after, late_after) = count(client)?;
    times.sort();
    Ok(Phase { times, frames: after - before, late: late_after - late, took })
}

fn print(name: &str, phase: &Phase, machines: usize) {
    let due = phase.took.as_secs_f64() * HZ * machines as f64;
    println!(
        "{name}: {} requests, p50 {:.1} ms, p99 {:.1} ms, longest {:.1} ms; frames {:.1}% of those \
         due, {} late",
        phase.times.len(),
        percentile(&phase.times, 50).as_secs_f64() * 1e3,
        percentile(&phase.times, 99).as_secs_f64() * 1e3,
        percentile(&phase.times, 100).as_secs_f64() * 1e3,
        100.0 * phase.frames as f64 / due,
        phase.late,
    );
}

/// Bad requests, as fast as one connection can send them.
fn flood(address: SocketAddr, stop: &AtomicBool, sent: &AtomicU64) {
    let request = format!(
        "GET /v1/machines/m0 HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer x\r\n\r\n"
    );
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        sent.fetch_add(1, Ordering::Relaxed);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Result<Vec<usize>, _> =
        std::env::args().skip(1).map(|text| text.parse()).collect();
    let numbers = numbers?;
    let number = |at: usize, or: usize| numbers.get(at).copied().unwrap_or(or);
    let (seconds, machines, sessions, watchers) =
        (number(0, 20), number(1, 100), number(2, 20), number(3, 200));
    let folder = std::env::temp_dir().join(format!("wavelock-load-{}", std::process::id()));
    let server = Server::start(&Settings::new(&folder))?;
    let url = format!("http://{}", server.address());
    let token = server.first_token().ok_or("a new folder has a token")?.to_owned();
    let mut client = Client::new(&url, &token)?;
    let hash = client.upload(ECHO.as_bytes())?.hash;
    for number in 0..machines {
        client.create(&api::CreateMachine {
            name: format!("m{number}"),
            manifest: manifest(sessions),
            modules: BTreeMap::from([("echo.wat".to_owned(), hash.clone())]),
            hz: Some(HZ),
            start: true,
        })?;
    }
    let seen = Arc::new(AtomicU64::new(0));
    for number in 0..watchers {
        let (mut watch, seen) =
            (client.watch(&format!("m{}", number % machines), None)?, seen.clone());
        std::thread::Builder::new().stack_size(128 << 10).spawn(move || {
            while let Ok(Some(_)) = watch.read() {
                seen.fetch_add(1, Ordering::Relaxed);
            }
        })?;
    }
    println!(
        "{machines} machines of {sessions} sessions at {HZ} frames a second, {watchers} watch, \
         changes durable on disk; {} threads of the host",
        std::thread::available_parallelism()?
    );
    let phase = Duration::from_secs(seconds as u64) / 3;
    control(&mut client, machines, phase / 2)?;
    let memory = resident();
    let quiet = control(&mut client, machines, phase)?;
    print("undisturbed", &quiet, machines);
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    for _ in 0..4 {
        let (stop, sent, address) = (stop.clone(), sent.clone(), server.address());
        std::thread::spawn(move || flood(address, &stop, &sent));
    }
    let flooded = control(&mut client, machines, phase)?;
    stop.store(true, Ordering::Relaxed);
    print("under a flood", &flooded, machines);
    let (grown, messages) = (resident().saturating_sub(memory), seen.load(Ordering::Relaxed));
    println!(
        "{} bad requests were refused; {messages} frames were watched; resident memory {} MiB, \
         {grown} KiB more than after the first part",
        sent.load(Ordering::Relaxed),
        resident() / 1024
    );
    drop(server);
    std::fs::remove_dir_all(&folder)?;
    if percentile(&quiet.times, 99) >= LIMIT {
        return Err(format!("the 99th percentile is not below {} ms", LIMIT.as_millis()).into());
    }
    Ok(())
}
