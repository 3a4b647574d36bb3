//! What requests do, once they are let in.

use super::answer::{Call, json, raw};
use super::body::FileBody;
use super::openapi::openapi;
use super::watch::open;
use crate::actor::{MOST_STEP, cap_of};
use crate::history;
use crate::orders::{Answer, Ask, Change};
use crate::problem::Problem;
use crate::registry::state_now;
use axum::body::Body;
use axum::response::Response;
use std::sync::Arc;
use tokio::sync::Semaphore;
use wavelock::{Cycles, Weight};
use wavelock_client::api;

type Result<T = Response> = std::result::Result<T, Problem>;

/// Frames in one answer.
const MOST_FRAMES: usize = 1_000;
const MOST_FRAME_BYTES: usize = 1 << 20;

/// Runs something that takes longer than a moment on another thread, when there is room. It goes on
/// when the client has left.
async fn elsewhere<T: Send + 'static>(
    room: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let closed = |_| Problem::busy("the server is ending");
    let permit = room.clone().acquire_owned().await.map_err(closed)?;
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work()
    });
    done.await.unwrap_or_else(|_| Err(Problem::internal("the request panicked")))
}

fn nothing() -> Result {
    json(&serde_json::Map::new())
}

/// Asks the machine of the path and answers with what it says.
async fn ask(call: &Call, ask: Ask) -> Result {
    match call.machine()?.ask(ask).await? {
        Answer::Taken(taken) => json(&taken),
        Answer::Started(started) => json(&started),
        Answer::Position(position) => json(&position),
        Answer::Machine(machine) => json(&machine),
        Answer::Sessions(sessions) => json(&sessions),
        Answer::Report(report) => json(&report),
        Answer::Done => nothing(),
    }
}

async fn change(call: &Call, change: Change) -> Result {
    ask(call, Ask::Change(change)).await
}

pub(super) async fn health(_: Call) -> Result {
    nothing()
}

pub(super) async fn description(_: Call) -> Result {
    Ok(raw("application/json", Body::from(openapi())))
}

fn visible(call: &Call) -> Vec<Arc<crate::actor::Hosted>> {
    let mut all = call.app.registry.all();
    all.retain(|machine| call.identity.may_see(&machine.name));
    all
}

pub(super) async fn metrics(call: Call) -> Result {
    let page = call.app.metrics.page(&visible(&call));
    Ok(raw("text/plain; version=0.0.4; charset=utf-8", Body::from(page)))
}

pub(super) async fn list_machines(call: Call) -> Result {
    let machines = visible(&call).iter().map(|machine| machine.status()).collect();
    json(&api::Machines { machines })
}

/// A token makes only machines that it is for.
fn check_name(call: &Call, name: &str) -> Result<()> {
    crate::store::Name::new(name)?;
    match call.identity.may_see(name) {
        true => Ok(()),
        false => Err(Problem::forbidden(format!("the token is not for a machine `{name}`"))),
    }
}

/// No machine is made while the process uses too much memory.
fn check_memory(call: &Call) -> Result<()> {
    let common = &call.app.registry.common;
    match common.has_no_memory.load(std::sync::atomic::Ordering::Relaxed) {
        true => Err(Problem::full(format!(
            "the process uses more than {} bytes of memory",
            call.app.limits.process_memory
        ))),
        false => Ok(()),
    }
}

pub(super) async fn create_machine(call: Call) -> Result {
    let new: api::CreateMachine = call.json()?;
    check_name(&call, &new.name)?;
    check_memory(&call)?;
    let app = call.app.clone();
    let made = elsewhere(&call.app.makers, move || app.registry.create(&new)).await?;
    json(&made.status())
}

pub(super) async fn show_machine(call: Call) -> Result {
    json(&call.machine()?.status())
}

pub(super) async fn delete_machine(call: Call) -> Result {
    let (app, name) = (call.app.clone(), call.part("machine").to_owned());
    elsewhere(&call.app.makers, move || app.registry.delete(&name)).await?;
    nothing()
}

pub(super) async fn start_machine(call: Call) -> Result {
    let pace: api::Pace = call.json()?;
    ask(&call, Ask::Pace { is_running: true, hz: pace.hz }).await
}

pub(super) async fn pause_machine(call: Call) -> Result {
    ask(&call, Ask::Pace { is_running: false, hz: None }).await
}

pub(super) async fn step_machine(call: Call) -> Result {
    let api::Step { frames } = call.json()?;
    if !(1..=MOST_STEP).contains(&frames) {
        return Err(Problem::invalid(format!("frames = {frames}: 1 to {MOST_STEP}")));
    }
    ask(&call, Ask::Step { frames }).await
}

pub(super) async fn end_machine(call: Call) -> Result {
    change(&call, Change::End).await
}

pub(super) async fn snapshot_machine(call: Call) -> Result {
    ask(&call, Ask::Snapshot).await
}

pub(super) async fn fork_machine(call: Call) -> Result {
    let fork: api::Fork = call.json()?;
    let from = call.machine()?;
    check_name(&call, &fork.name)?;
    check_memory(&call)?;
    let app = call.app.clone();
    let room = if fork.frame.is_some() { &call.app.jobs } else { &call.app.makers };
    let made = elsewhere(room, move || {
        app.registry.fork(&from, &fork, |to| match fork.frame {
            Some(frame) => history::state_at(&from.folder, frame, to),
            None => state_now(&from, to),
        })
    });
    json(&made.await?.status())
}

fn bytes(call: &Call) -> Result<Vec<u8>> {
    call.json::<api::Bytes>()?.bytes().map_err(Problem::invalid)
}

fn session(call: &Call) -> String {
    call.part("session").to_owned()
}

pub(super) async fn input_all(call: Call) -> Result {
    change(&call, Change::Input { session: None, bytes: bytes(&call)? }).await
}

pub(super) async fn input(call: Call) -> Result {
    let session = Some(session(&call));
    change(&call, Change::Input { session, bytes: bytes(&call)? }).await
}

pub(super) async fn close_input(call: Call) -> Result {
    change(&call, Change::Close { session: session(&call) }).await
}

pub(super) async fn hold(call: Call) -> Result {
    change(&call, Change::Hold { session: session(&call) }).await
}

pub(super) async fn release(call: Call) -> Result {
    change(&call, Change::Release { session: session(&call) }).await
}

pub(super) async fn end_session(call: Call) -> Result {
    change(&call, Change::EndSession { session: session(&call) }).await
}

async fn module(call: &Call, hash: String) -> Result<wavelock::Module> {
    let app = call.app.clone();
    elsewhere(&call.app.jobs, move || app.registry.module(&hash)).await
}

pub(super) async fn replace(call: Call) -> Result {
    let api::Replace { module: hash, text, hex } = call.json()?;
    let carry = match (&text, &hex) {
        (None, None) => Vec::new(),
        _ => (api::Bytes { text, hex }).bytes().map_err(Problem::invalid)?,
    };
    let module = module(&call, hash).await?;
    change(&call, Change::Replace { session: session(&call), module, carry }).await
}

pub(super) async fn set_weight(call: Call) -> Result {
    let api::Weight { weight } = call.json()?;
    let weight = Weight::new(weight).ok_or_else(|| Problem::invalid("weight = 0: 1 to 65535"))?;
    change(&call, Change::Weight { session: session(&call), weight }).await
}

pub(super) async fn set_cap(call: Call) -> Result {
    let cap = Some(cap_of(&call.json()?));
    change(&call, Change::Cap { session: session(&call), cap }).await
}

pub(super) async fn remove_cap(call: Call) -> Result {
    change(&call, Change::Cap { session: session(&call), cap: None }).await
}

pub(super) async fn set_context(call: Call) -> Result {
    let api::ContextBudget { cycles } = call.json()?;
    let context = call.part("context").to_owned();
    let budget = Cycles(cycles);
    change(&call, Change::Context { session: session(&call), context, budget }).await
}

pub(super) async fn list_sessions(call: Call) -> Result {
    let from = call.number("from").unwrap_or(0).min(u64::from(u32::MAX)) as u32;
    ask(&call, Ask::Sessions { from }).await
}

pub(super) async fn start_session(call: Call) -> Result {
    let new: Box<api::StartSession> = Box::new(call.json()?);
    if new.weight == Some(0) {
        return Err(Problem::invalid("weight = 0: 1 to 65535"));
    }
    let (most, sessions) = (call.app.limits.sessions, call.machine()?.status().sessions);
    if sessions >= most {
        return Err(Problem::refused(format!(
            "the machine has had {sessions} sessions: this server allows {most}"
        )));
    }
    let module = module(&call, new.module.clone()).await?;
    change(&call, Change::Start { new, module }).await
}

pub(super) async fn frames(call: Call) -> Result {
    let feed = &call.machine()?.feed;
    let (from, dropped) = feed.find(call.number("from").unwrap_or(0));
    let read = feed.read(from, MOST_FRAMES, MOST_FRAME_BYTES);
    let list: Vec<&str> = read.entries.iter().map(|entry| entry.json.as_str()).collect();
    let next = match read.entries.last() {
        Some(last) => last.frame + 1,
        None => call.number("from").unwrap_or(0),
    };
    let dropped = dropped + read.dropped;
    let list = list.join(",");
    let body = format!("{{\"frames\":[{list}],\"dropped\":{dropped},\"next\":{next}}}");
    Ok(raw("application/json", Body::from(body)))
}

pub(super) async fn watch(call: Call) -> Result {
    open(call).await
}

pub(super) async fn why(call: Call) -> Result {
    let folder = call.machine()?.folder.clone();
    let (coroutine, step) = (call.text("coroutine").to_owned(), call.number("step").unwrap_or(0));
    json(&elsewhere(&call.app.jobs, move || history::why(&folder, &coroutine, step)).await?)
}

pub(super) async fn events(call: Call) -> Result {
    let folder = call.machine()?.folder.clone();
    let (frame, frames) = (call.number("frame").unwrap_or(0), call.number("frames").unwrap_or(1));
    if frames > history::MOST_FRAMES {
        let most = history::MOST_FRAMES;
        return Err(Problem::invalid(format!("frames = {frames}: at most {most}")));
    }
    json(&elsewhere(&call.app.jobs, move || history::events(&folder, frame, frames)).await?)
}

pub(super) async fn report(call: Call) -> Result {
    ask(&call, Ask::Report).await
}

pub(super) async fn list_segments(call: Call) -> Result {
    let machine = call.machine()?;
    let found = machine.folder.segments().map_err(|error| Problem::disk(&error))?;
    let status = machine.status();
    let is_open = |number| status.segment == number && status.outcome.is_none();
    let segments = found
        .into_iter()
        .map(|(number, bytes)| api::Segment { number, bytes, open: is_open(number) })
        .collect();
    json(&api::Segments { segments })
}

pub(super) async fn segment(call: Call) -> Result {
    let machine = call.machine()?;
    let number = call.part("segment").parse::<u64>();
    let number = number.map_err(|_| Problem::invalid("a segment has a number"))?;
    let body =
        FileBody::open(&machine.folder.segment(number)).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Problem::not_found(format!("there is no segment {number}"))
            }
            _ => Problem::disk(&error),
        })?;
    Ok(raw("application/octet-stream", Body::new(body)))
}

pub(super) async fn list_modules(call: Call) -> Result {
    json(&call.app.registry.modules()?)
}

pub(super) async fn upload_module(call: Call) -> Result {
    check_memory(&call)?;
    let (app, body) = (call.app.clone(), call.body.clone());
    json(&elsewhere(&call.app.jobs, move || app.registry.upload(&body)).await?)
}

pub(super) async fn delete_module(call: Call) -> Result {
    call.app.registry.delete_module(call.part("module"))?;
    nothing()
}

pub(super) async fn list_tokens(call: Call) -> Result {
    json(&call.app.tokens.list())
}

pub(super) async fn create_token(call: Call) -> Result {
    json(&call.app.tokens.create(call.json()?)?)
}

pub(super) async fn delete_token(call: Call) -> Result {
    call.app.tokens.delete(call.part("token"))?;
    nothing()
}
