//! Watching a machine over a WebSocket: frames out, inputs in. A client that is too slow loses
//! frames and is told how many; one that takes nothing is disconnected. The machine never waits.

use super::answer::{Call, PROTOCOL};
use crate::actor::Hosted;
use crate::orders::{Answer, Ask, Change};
use crate::problem::Problem;
use axum::extract::FromRequestParts;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use wavelock_client::api::{self, Role};

/// Frames and bytes that are sent before the client is listened to again.
const MOST_ENTRIES: usize = 64;
const MOST_BYTES: usize = 256 * 1024;

/// How often a connection is looked after, and how many times until it is pinged.
const LOOK: Duration = Duration::from_secs(5);
const PING: u32 = 3;

/// Bytes of a message of a client.
const MOST_MESSAGE: usize = 64 * 1024;

/// Begins to watch.
pub(super) async fn open(mut call: Call) -> Result<Response, Problem> {
    let machine = call.machine()?;
    let room = call.app.watchers.clone().try_acquire_owned();
    let room = room.map_err(|_| {
        Problem::busy(format!("{} clients watch, the most allowed", call.app.limits.watchers))
    })?;
    let upgrade = WebSocketUpgrade::from_request_parts(&mut call.parts, &()).await;
    let upgrade = upgrade
        .map_err(|error| Problem::invalid(format!("this path is for WebSockets: {error}")))?;
    let upgrade = upgrade
        .protocols([PROTOCOL])
        .max_message_size(MOST_MESSAGE)
        .max_frame_size(MOST_MESSAGE)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * call.app.limits.feed.max(MOST_MESSAGE));
    Ok(upgrade.on_upgrade(move |socket| async move {
        let _room = room;
        machine.counters.watchers.fetch_add(1, Ordering::Relaxed);
        let mut watcher = Watcher { socket, machine: machine.clone(), call };
        // How it ends is the client's affair.
        let _ = watcher.run().await;
        machine.counters.watchers.fetch_sub(1, Ordering::Relaxed);
    }))
}

/// Waits until the server ends.
async fn over(ends: &mut tokio::sync::watch::Receiver<bool>) {
    let _ = ends.wait_for(|ends| *ends).await;
}

/// The connection is over.
struct Over;

struct Watcher {
    socket: WebSocket,
    machine: Arc<Hosted>,
    call: Call,
}

impl Watcher {
    async fn send(&mut self, message: Message) -> Result<(), Over> {
        match timeout(self.call.app.limits.send_time, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Over),
        }
    }

    async fn send_json(&mut self, value: &impl Serialize) -> Result<(), Over> {
        let text = serde_json::to_string(value).map_err(|_| Over)?;
        self.send(Message::text(text)).await
    }

    async fn run(&mut self) -> Result<(), Over> {
        let feed = &self.machine.feed;
        let mut changes = feed.subscribe();
        let (mut next, mut dropped) = match self.call.number("from") {
            Some(from) => feed.find(from),
            None => (feed.end(), 0),
        };
        let mut state = None;
        let mut ends = self.call.app.ends.clone();
        let mut look = tokio::time::interval(LOOK);
        let mut looked = 0;
        loop {
            changes.borrow_and_update();
            let status = self.machine.status();
            if state.as_ref() != Some(&(status.state, status.problem.clone())) {
                state = Some((status.state, status.problem.clone()));
                self.send_json(&status).await?;
            }
            let read = self.machine.feed.read(next, MOST_ENTRIES, MOST_BYTES);
            dropped += read.dropped;
            if dropped > 0 {
                self.call.app.metrics.dropped_frames.fetch_add(dropped, Ordering::Relaxed);
                self.send_json(&api::Dropped { dropped }).await?;
                dropped = 0;
            }
            next = read.next;
            let is_all = read.entries.is_empty();
            for entry in read.entries {
                self.send(Message::Text(entry.json)).await?;
            }
            // While there is more to send, the client is still listened to.
            tokio::select! {
                biased;
                () = over(&mut ends) => return self.close().await,
                message = self.socket.recv() => match message {
                    Some(Ok(message)) => self.receive(message).await?,
                    _ => return Err(Over),
                },
                _ = look.tick() => {
                    let is_there = self.call.app.registry.find(&self.machine.name);
                    let is_same = is_there.is_ok_and(|found| Arc::ptr_eq(&found, &self.machine));
                    if !is_same || !self.call.app.tokens.is_known(&self.call.identity) {
                        return self.close().await;
                    }
                    looked += 1;
                    if looked % PING == 0 {
                        self.send(Message::Ping(Default::default())).await?;
                    }
                }
                _ = changes.changed(), if is_all => {}
                () = std::future::ready(()), if !is_all => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), Over> {
        self.send(Message::Close(None)).await
    }

    async fn receive(&mut self, message: Message) -> Result<(), Over> {
        let text = match message {
            Message::Text(text) => text,
            Message::Binary(_) | Message::Close(_) => return Err(Over),
            Message::Ping(_) | Message::Pong(_) => return Ok(()),
        };
        let answer = match serde_json::from_str::<api::WatchInput>(&text) {
            Ok(input) => self.input(input).await,
            Err(error) => refuse(0, &Problem::invalid(format!("the message: {error}"))),
        };
        self.send_json(&answer).await
    }

    /// Gives an input and waits until it is durable.
    async fn input(&mut self, input: api::WatchInput) -> api::WatchAnswer {
        let api::WatchInput { id, session, text, hex } = input;
        let app = &self.call.app;
        if self.call.identity.role < Role::Operator {
            return refuse(id, &Problem::forbidden("this needs the role operator"));
        }
        if !app.tokens.is_known(&self.call.identity) {
            return refuse(id, &Problem::unauthorized("the token was taken back"));
        }
        if !app.rates.take(self.call.identity.name.clone(), Instant::now()) {
            return refuse(id, &Problem::too_many("too many inputs per second of one token"));
        }
        let bytes = match (api::Bytes { text, hex }).bytes() {
            Ok(bytes) => bytes,
            Err(error) => return refuse(id, &Problem::invalid(error)),
        };
        let asked = self.machine.ask(Ask::Change(Change::Input { session, bytes }));
        match timeout(app.limits.request_time, asked).await {
            Ok(Ok(Answer::Taken(taken))) => {
                api::WatchAnswer { id, taken: Some(taken.frame), error: None }
            }
            Ok(Ok(_)) => refuse(id, &Problem::internal("another answer than to an input")),
            Ok(Err(problem)) => refuse(id, &problem),
            Err(_) => refuse(id, &Problem::slow("the machine does not answer")),
        }
    }
}

fn refuse(id: u64, problem: &Problem) -> api::WatchAnswer {
    api::WatchAnswer { id, taken: None, error: Some(problem.json().error) }
}
