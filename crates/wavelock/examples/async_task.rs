//! A machine as an async task, on an executor of forty lines: frames are paced by a timer future,
//! and another task sends inputs through a `Remote`. The same works on tokio or any other runtime,
//! because a machine is plain data that moves between threads.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use wavelock::{Engine, Error, Machine, Pacer, Remote, Session, SessionBuilder};

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

async fn frames(mut machine: Machine) -> Result<(), Error> {
    let mut pacer = Pacer::hz(120.0);
    loop {
        for _ in 0..pacer.due(Instant::now(), 4) {
            let report = machine.advance()?;
            for (_, bytes) in report.outputs() {
                println!("frame {}: {}", report.frame().0, String::from_utf8_lossy(bytes));
            }
            if report.outcome().is_some() {
                return Ok(());
            }
        }
        sleep_until(Instant::now() + Duration::from_millis(1)).await;
    }
}

async fn client(remote: Remote, to: Session) -> Result<(), Error> {
    for number in 0..5 {
        sleep_until(Instant::now() + Duration::from_millis(20)).await;
        remote.input(to, format!("request {number}").as_bytes())?;
    }
    sleep_until(Instant::now() + Duration::from_millis(20)).await;
    remote.stop()
}

fn main() -> Result<(), Error> {
    let engine = Engine::new(1)?;
    let echo = engine.module(include_bytes!("guests/echo.wat"))?;
    let session = SessionBuilder::new("echo", &echo);
    let machine = Machine::builder(&engine).session(session).build()?;
    let (remote, to) = (machine.remote(), machine.session("echo").ok_or(Error::Over)?);
    run(vec![Box::pin(frames(machine)), Box::pin(client(remote, to))])
}
