//! `wavelock ctl`: each command is a request or two; answers are printed as text or as they came.

use super::emit;
use crate::control::{CtlArguments, CtlCommand};
use crate::exit::Exit;
use crate::failure::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use wavelock_client::api::{self, Watched};
use wavelock_client::{Client, Error};
use wavelock_manifest::{Overrides, Source};

fn failure(error: &Error) -> Failure {
    let exit = match error {
        Error::Refused { .. } => Exit::Refused,
        Error::Setup(_) => Exit::Usage,
        _ => Exit::Host,
    };
    Failure::new(exit, error.to_string())
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::file("read", path, &error))
}

/// What is printed of an answer that is a change.
fn taken(answer: &api::Taken) -> String {
    format!("taken in frame {}\n", answer.frame)
}

fn position(answer: &api::Position) -> String {
    let api::Position { frame, digest, segment } = answer;
    format!("before frame {frame}, digest {digest}, segment {segment}\n")
}

fn machine(answer: &api::Machine) -> String {
    let api::Machine { name, state, frame, hz, sessions, late, watchers, digest, .. } = answer;
    let state = format!("{state:?}").to_lowercase();
    let mut text = format!(
        "{name}: {state}, before frame {frame}, {hz} frames a second, {late} late, \
         {sessions} sessions, {watchers} watching\n  digest {digest}\n"
    );
    for (what, found) in [("outcome", &answer.outcome), ("problem", &answer.problem)] {
        if let Some(found) = found {
            let _ = writeln!(text, "  {what}: {found}");
        }
    }
    text
}

fn sessions(list: &[api::Session]) -> String {
    list.iter().fold(String::new(), |mut text, session| {
        let api::Session { name, cycles, share, coroutines, memory_bytes, outcome, .. } = session;
        let outcome = outcome.as_deref().unwrap_or("running");
        let share = 100.0 * share;
        let _ = writeln!(
            text,
            "{name}: {cycles} cycles ({share:.1}%), {coroutines} coroutines, {memory_bytes} \
             bytes, {outcome}"
        );
        text
    })
}

/// One way to print each answer.
struct Printer {
    json: bool,
}

impl Printer {
    fn print<A: Serialize>(
        &self,
        answer: Result<A, Error>,
        text: impl FnOnce(&A) -> String,
    ) -> Result<(), Failure> {
        let answer = answer.map_err(|error| failure(&error))?;
        if self.json { super::emit_json(&answer) } else { emit(&text(&answer)) }
    }
}

pub(super) fn ctl(arguments: &CtlArguments) -> Result<Exit, Failure> {
    let token = read(&arguments.token_file)?;
    let token = String::from_utf8_lossy(&token);
    let client = match &arguments.ca {
        Some(ca) => Client::with_ca(&arguments.server, &token, ca),
        None => Client::new(&arguments.server, &token),
    };
    let mut client = client.map_err(|error| failure(&error))?;
    run(&mut client, &arguments.command, &Printer { json: arguments.json })?;
    Ok(Exit::Done)
}

// Long: one arm for each command, each a request or two.
fn run(client: &mut Client, command: &CtlCommand, out: &Printer) -> Result<(), Failure> {
    use CtlCommand as Of;
    match command {
        Of::List => out.print(client.machines(), |all| {
            all.machines.iter().map(machine).collect::<Vec<_>>().concat()
        }),
        Of::Show { machine: name } => out.print(client.machine(name), machine),
        Of::Create { machine: name, manifest, hz, start } => {
            let new = create(client, name, manifest, *hz, *start)?;
            out.print(client.create(&new), machine)
        }
        Of::Start { machine: name, hz } => {
            out.print(client.start(name, &api::Pace { hz: *hz }), machine)
        }
        Of::Pause { machine: name } => out.print(client.pause(name), machine),
        Of::Step { machine: name, frames } => out.print(client.step(name, *frames), position),
        Of::Fork { machine: from, name, frame, start } => {
            let fork = api::Fork { name: name.clone(), frame: *frame, hz: None, start: *start };
            out.print(client.fork(from, &fork), machine)
        }
        Of::Snapshot { machine: name } => out.print(client.snapshot(name), position),
        Of::End { machine: name } => out.print(client.end(name), taken),
        Of::Delete { machine: name } => out.print(client.delete(name), |_| "deleted\n".into()),
        Of::Input { machine: name, session, text } => {
            let session = Some(session.as_str()).filter(|session| *session != "*");
            out.print(client.input(name, session, &api::Bytes::of(text.as_bytes())), taken)
        }
        Of::Close { machine: name, session } => out.print(client.close(name, session), taken),
        Of::Sessions { machine: name } => {
            out.print(client.sessions(name, 0), |all| sessions(&all.sessions))
        }
        Of::Run { machine: name, session, module, arg, port, weight, lane } => {
            let module = upload(client, module)?;
            let new = api::StartSession {
                name: session.clone(),
                module,
                lane: *lane,
                args: arg.clone(),
                ports: ports(port)?,
                weight: *weight,
                ..api::StartSession::default()
            };
            out.print(client.start_session(name, &new), |started| {
                format!("starts in frame {} with number {}\n", started.frame, started.session)
            })
        }
        Of::Replace { machine: name, session, module } => {
            let by = api::Replace { module: upload(client, module)?, ..api::Replace::default() };
            out.print(client.replace(name, session, &by), taken)
        }
        Of::Hold { machine: name, session } => out.print(client.hold(name, session), taken),
        Of::Release { machine: name, session } => out.print(client.release(name, session), taken),
        Of::Kill { machine: name, session } => out.print(client.end_session(name, session), taken),
        Of::Weight { machine: name, session, weight } => {
            out.print(client.set_weight(name, session, *weight), taken)
        }
        Of::Cap { machine: name, session, cycles: 0, .. } => {
            out.print(client.remove_cap(name, session), taken)
        }
        Of::Cap { machine: name, session, cycles, frames } => {
            let cap = api::Cap { cycles: *cycles, frames: *frames, ..api::Cap::default() };
            out.print(client.set_cap(name, session, &cap), taken)
        }
        Of::Context { machine: name, session, context, cycles } => {
            out.print(client.set_context(name, session, context, *cycles), taken)
        }
        Of::Watch { machine: name, from } => watch(client, name, *from, out),
        Of::Why { machine: name, coroutine, step } => {
            out.print(client.why(name, coroutine, *step), |why| why.text.clone())
        }
        Of::Events { machine: name, frame, frames } => {
            out.print(client.events(name, *frame, *frames), |events| {
                events.events.iter().fold(String::new(), |mut text, event| {
                    let lane = event.lane.map_or_else(String::new, |lane| format!("lane {lane}: "));
                    let _ = writeln!(text, "frame {}: {lane}{}", event.frame, event.text);
                    text
                })
            })
        }
        Of::Report { machine: name } => out.print(client.report(name), |report| {
            machine(&report.machine) + &sessions(&report.sessions)
        }),
        Of::Trace { machine: name, folder } => trace(client, name, folder, out),
        Of::Metrics => match client.metrics() {
            Ok(page) => emit(&page),
            Err(error) => Err(failure(&error)),
        },
        Of::Tokens => out.print(client.tokens(), |all| {
            all.tokens.iter().fold(String::new(), |mut text, token| {
                let role = format!("{:?}", token.role).to_lowercase();
                let _ = writeln!(text, "{}: {role} of {}", token.name, token.machines.join(", "));
                text
            })
        }),
        Of::Token { name, role, machines } => {
            let role = match role.as_str() {
                "viewer" => api::Role::Viewer,
                "operator" => api::Role::Operator,
                "admin" => api::Role::Admin,
                other => {
                    let message = format!("--role {other}: viewer, operator or admin");
                    return Err(Failure::new(Exit::Usage, message));
                }
            };
            let (name, machines) = (name.clone(), machines.clone());
            let new = api::CreateToken { name, role, machines };
            out.print(client.create_token(&new), |token| {
                format!("{}\n", token.token.as_deref().unwrap_or_default())
            })
        }
        Of::Revoke { name } => out.print(client.delete_token(name), |_| "revoked\n".into()),
    }
}

fn ports(pairs: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| {
        let bad = || Failure::new(Exit::Usage, format!("--port {text}: write PORT=CHANNEL"));
        let (port, channel) = text.split_once('=').ok_or_else(bad)?;
        Ok((port.to_owned(), channel.to_owned()))
    };
    pairs.iter().map(pair).collect()
}

fn upload(client: &mut Client, path: &Path) -> Result<String, Failure> {
    Ok(client.upload(&read(path)?).map_err(|error| failure(&error))?.hash)
}

/// A machine from a manifest: the modules it names are uploaded, and their names are those of the
/// files alone, which a hosted machine's manifest has.
fn create(
    client: &mut Client,
    name: &str,
    manifest: &Path,
    hz: Option<f64>,
    start: bool,
) -> Result<api::CreateMachine, Failure> {
    let text = read(manifest)?;
    let source =
        Source::decode(manifest.display().to_string(), text.clone()).map_err(Failure::refused)?;
    let folder = manifest.parent().unwrap_or(Path::new(""));
    let found =
        wavelock_manifest::read(source, folder, &Overrides::default()).map_err(Failure::refused)?;
    let mut modules = BTreeMap::new();
    for path in &found.manifest.modules {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        modules.insert(file.to_owned(), upload(client, path)?);
    }
    let manifest = String::from_utf8_lossy(&text).into_owned();
    Ok(api::CreateMachine { name: name.into(), manifest, modules, hz, start })
}

fn watch(client: &Client, name: &str, from: Option<u64>, out: &Printer) -> Result<(), Failure> {
    let mut watch = client.watch(name, from).map_err(|error| failure(&error))?;
    loop {
        let Some(message) = watch.read().map_err(|error| failure(&error))? else { return Ok(()) };
        let is_last = match &message {
            Watched::Frame(frame) => frame.outcome.is_some(),
            Watched::Machine(machine) => machine.outcome.is_some(),
            _ => false,
        };
        out.print(Ok(message), |message| match message {
            Watched::Frame(frame) => {
                frame.outputs.iter().fold(String::new(), |mut text, output| {
                    let shown = output.text.as_ref().or(output.hex.as_ref());
                    let shown = shown.map_or("", |shown| shown.trim_end());
                    let _ = writeln!(text, "{} {}: {shown}", frame.frame, output.session);
                    text
                })
            }
            Watched::Machine(found) => machine(found),
            Watched::Dropped(api::Dropped { dropped }) => format!("{dropped} frames dropped\n"),
            Watched::Answer(_) => String::new(),
        })?;
        if is_last {
            return Ok(());
        }
    }
}

fn trace(client: &mut Client, name: &str, folder: &Path, out: &Printer) -> Result<(), Failure> {
    let segments = client.segments(name).map_err(|error| failure(&error))?;
    fs::create_dir_all(folder).map_err(|error| Failure::file("create", folder, &error))?;
    for segment in &segments.segments {
        let bytes = client.segment(name, segment.number).map_err(|error| failure(&error))?;
        let path = folder.join(format!("{:08}.trace", segment.number));
        fs::write(&path, bytes).map_err(|error| Failure::file("write", &path, &error))?;
    }
    out.print(Ok(segments), |all| format!("{} segments\n", all.segments.len()))
}
