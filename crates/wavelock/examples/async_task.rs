//! A machine as an async task, on an executor of forty lines: frames are paced by a timer future,
//! and another task answers what the guest asks, through a `Remote`. The same works on tokio or any
//! other runtime, because a machine is plain data that moves between threads.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use wavelock::{Ask, Cycles, Engine, Error, Host, Machine, Pacer, Remote, SessionBuilder};

/// A future that the executor owns.
type Task = Pin<Box<dyn Future<Output = Result<(), Error>>>>;

/// Wakes the thread that polls.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls all tasks until every one has ended.
fn run(mut tasks: Vec<Task>) -> Result<(), Error> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    while !tasks.is_empty() {
        let mut failed = None;
        tasks.retain_mut(|task| match task.as_mut().poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(result) => {
                failed = failed.take().or(result.err());
                false
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    Ok(())
}

/// Ready at a time.
async fn sleep_until(time: Instant) {
    poll_fn(|_| if Instant::now() >= time { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Asks for the scores of five players, one after the other, and writes each.
const GUEST: &[u8] = br#"(module
  (import "net" "score_of" (func $score_of (param i32) (result i64)))
  (import "wavelock" "output" (func $output (param i32 i32) (result i32)))
  (memory 1)
  (func (export "_start") (local $player i32)
    (loop $next
      (i64.store (i32.const 0) (call $score_of (local.get $player)))
      (drop (call $output (i32.const 0) (i32.const 8)))
      (local.set $player (i32.add (local.get $player) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $player) (i32.const 5))))))"#;

async fn frames(mut machine: Machine, asks: Sender<Ask>) -> Result<(), Error> {
    let mut pacer = Pacer::hz(120.0);
    loop {
        for _ in 0..pacer.due(Instant::now(), 4) {
            let report = machine.advance()?;
            for (_, bytes) in report.outputs() {
                let score = bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
                println!("frame {}: score {score}", report.frame().0);
            }
            for ask in report.asks() {
                let _ = asks.send(ask.clone());
            }
            if !report.ended().is_empty() {
                return Ok(());
            }
        }
        sleep_until(Instant::now() + Duration::from_millis(1)).await;
    }
}

/// A database that takes its time.
async fn database(asks: Receiver<Ask>, remote: Remote) -> Result<(), Error> {
    loop {
        match asks.try_recv() {
            Ok(ask) => {
                sleep_until(Instant::now() + Duration::from_millis(20)).await;
                let player: i32 = ask.arguments().unwrap_or(-1);
                remote.answer(ask.id(), i64::from(player) * 100 + 7)?;
            }
            Err(TryRecvError::Empty) => {
                sleep_until(Instant::now() + Duration::from_millis(1)).await;
            }
            Err(TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

fn main() -> Result<(), Error> {
    let engine = Engine::new(1)?;
    let guest = engine.module(GUEST)?;
    let host = Host::new("scores", 1, ()).ask::<i32, i64>(("net", "score_of"), Cycles(100));
    let session = SessionBuilder::new("scores", &guest);
    let machine = Machine::builder(&engine).host(host).session(session).build()?;
    let remote = machine.remote();
    let (sender, receiver) = channel();
    run(vec![Box::pin(frames(machine, sender)), Box::pin(database(receiver, remote))])
}
