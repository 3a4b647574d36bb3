//! Cases of `system`: the manifests of this repository, run for some frames, under their own and
//! every other policy.
//!
//! Compared are the run digest, session digests, output and cycle totals. Only the manifest keys
//! used in this repository are supported, and another key panics. Elsewhere: the tests of `cli`
//! cover the manifest parser.

use wavelock_abi::{Cycles, Frame, Priority, SessionId, Weight};
use wavelock_kernel::{FairSettings, Policy, PolicyKind};
use wavelock_system::{
    ContextSpec, Grant, GrantSpec, InputEvent, LeaseSpec, LoadError, MachineSpec, Placement,
    Recipient, RunSummary, Sink, Span, World,
};

use crate::files::{self, Table, Value};
use crate::machine::load;
use crate::{Report, Size, Trail};

/// Frames of a small case and of a full case. A manifest with longer frames runs for one frame, in
/// full reports only.
const SMALL_FRAMES: u64 = 3;
const FULL_FRAMES: u64 = 20;
const LONG_FRAME_CYCLES: Cycles = Cycles(10_000_000);
const SMALL_RANDOM_MACHINES: u64 = 40;
const RANDOM_MACHINES: u64 = 200;

pub(crate) fn cases(report: &mut Report) {
    random_machines(report);
    let manifests = ["examples/", "guests/", "benches/guests/"]
        .into_iter()
        .flat_map(|folder| files::paths(folder, ".toml"));
    for path in manifests.filter(|path| files::toml(path).contains_key("session")) {
        let is_long = manifest(path, None).frame_cycles > LONG_FRAME_CYCLES;
        let (size, frames) = if is_long { (Size::Full, 1) } else { (Size::Small, SMALL_FRAMES) };
        report.case(size, &format!("system/{path}/beginning"), |trail| {
            world(manifest(path, None), Vec::new(), frames, trail)
        });
        for name in PolicyKind::NAMES.iter().copied().filter(|_| !is_long) {
            report.case(Size::Full, &format!("system/{path}/{name}"), |trail| {
                world(manifest(path, Some(name)), Vec::new(), FULL_FRAMES, trail);
            });
        }
    }
    for command in files::tables(&files::toml("corpus/index.toml"), "command") {
        let path = format!("corpus/{}", command["file"].text());
        report.case(Size::Small, &format!("system/{path}"), |trail| {
            let mut spec = MachineSpec::new();
            let module = spec.add_module(load(&path), files::bytes(&path));
            spec.add_session("command", module);
            spec.sessions[0].args = texts(&command["args"]);
            let bytes =
                command.get("stdin").map(|input| files::bytes(&format!("corpus/{}", input.text())));
            let input = bytes.map(|bytes| InputEvent {
                frame: Frame(0),
                recipient: Recipient::Session(SessionId(0)),
                bytes: bytes.into(),
            });
            world(spec, input.into_iter().collect(), FULL_FRAMES, trail);
        });
    }
}

/// Random machines: every kind of operation, policy, wave length and placement, which no manifest
/// here has together.
fn random_machines(report: &mut Report) {
    for seed in 0..RANDOM_MACHINES {
        let size = if seed < SMALL_RANDOM_MACHINES { Size::Small } else { Size::Full };
        report.case(size, &format!("system/random/{seed}"), |trail| {
            world(
                wavelock_generate::machine(seed),
                wavelock_generate::inputs(seed),
                FULL_FRAMES,
                trail,
            );
        });
    }
}

/// A sink that writes the output to the trail.
struct Output<'a>(&'a mut Trail);

impl Sink for Output<'_> {
    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.0.number(u64::from(session.0));
        self.0.bytes(bytes);
    }

    fn log(&mut self, _: SessionId, _: &[u8]) {}
}

fn world(mut spec: MachineSpec, input: Vec<InputEvent>, frames: u64, trail: &mut Trail) {
    spec.max_frames = Some(frames.min(spec.max_frames.unwrap_or(u64::MAX)));
    let mut world = match World::load(spec, input, false) {
        Ok(loaded) => loaded.world,
        // A context that a lane cannot guarantee is refused with the same arithmetic everywhere.
        Err(error @ LoadError::Context { .. }) => return trail.bytes(error.to_string().as_bytes()),
        Err(error) => panic!("{error:?}"),
    };
    let outcome = world.run(&mut Output(trail)).unwrap_or_else(|failure| panic!("{failure}"));
    trail.bytes(outcome.name().as_bytes());
    summary(&world.summary(), trail);
}

fn summary(summary: &RunSummary, trail: &mut Trail) {
    trail.bytes(&summary.digest.0);
    trail.numbers(&[summary.frames, summary.steps, summary.waves, summary.peak]);
    trail.numbers(&[summary.cycles.charged, summary.cycles.overhead_total(), summary.cycles.idle]);
    for session in &summary.sessions {
        trail.bytes(session.name.as_bytes());
        trail.bytes(&session.digest.0);
        trail.numbers(&[
            session.exit as u64,
            session.cycles.0,
            session.spawned,
            session.faulted,
            session.host_calls,
            session.messages,
        ]);
    }
}

fn policy(name: &str, quantum: Cycles) -> Policy {
    let slice = quantum.min(FairSettings::SLICE_LIMIT);
    let fair = FairSettings::new(slice, Cycles(1_000), slice.max(Cycles(1_000_000)))
        .expect("the settings are in range");
    PolicyKind::find(name)
        .expect("a policy's name")
        .with_quantum(quantum)
        .unwrap_or(Policy::Fair(fair))
}

fn texts(value: &Value) -> Vec<String> {
    value.list().iter().map(|text| text.text().to_owned()).collect()
}

/// The description of a manifest of this repository, under its own policy or another.
fn manifest(path: &str, other_policy: Option<&str>) -> MachineSpec {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let file = files::toml(path);
    let known = ["machine", "limits", "session", "channel", "profile", "context", "grant", "lease"];
    let other = file.keys().find(|key| !known.contains(&key.as_str()));
    assert!(other.is_none(), "{path}: the table {other:?} is not read here");
    let mut spec = MachineSpec::new();
    for (key, value) in file.get("machine").map(Value::table).into_iter().flatten() {
        match key.as_str() {
            "lanes" => spec.lanes = value.number() as u16,
            "policy" | "quantum_cycles" => {}
            "frame_cycles" => spec.frame_cycles = Cycles(value.number() as u64),
            "wave_cycles" => spec.span = Span::Cycles(Cycles(value.number() as u64)),
            "wave_picks" => spec.span = Span::Picks(value.number() as u32),
            "seed" => spec.seed = value.number() as u64,
            "max_frames" => spec.max_frames = Some(value.number() as u64),
            "handoff" => spec.handoff = value.flag(),
            "steal" => spec.steal = value.flag(),
            other => panic!("{path}: the key machine.{other} is not read here"),
        }
    }
    let machine = |key: &str| file.get("machine").and_then(|machine| machine.table().get(key));
    let quantum =
        machine("quantum_cycles").map_or(Cycles(10_000), |quantum| Cycles(quantum.number() as u64));
    spec.policy = policy(
        other_policy.unwrap_or(machine("policy").map_or("round-robin", Value::text)),
        quantum,
    );
    for (key, value) in file.get("limits").map(Value::table).into_iter().flatten() {
        match key.as_str() {
            "coroutines" => spec.limits.coroutines = value.number() as u32,
            "channels" => spec.limits.channels = value.number() as u32,
            "memory_pages" => spec.limits.memory_pages = value.number() as u32,
            "stack_bytes" => spec.limits.stack_bytes = value.number() as u32,
            "output_bytes" => spec.limits.output_bytes = value.number() as u32,
            other => panic!("{path}: the key limits.{other} is not read here"),
        }
    }
    let channels = channels(&file);
    let channel_index =
        |name: &str| channels.iter().position(|(channel, ..)| channel.as_str() == name);
    for session in files::tables(&file, "session") {
        add_sessions(&mut spec, path, folder, session, &channel_index);
    }
    for (name, owner, capacity) in &channels {
        let owner = spec
            .sessions
            .iter()
            .position(|session| session.name == *owner)
            .expect("an owner is a session");
        spec.add_channel(name, SessionId(owner as u32), *capacity);
    }
    add_time(&mut spec, path, &file);
    spec
}

/// Channels one by one, those of a count too: name, owner, capacity.
fn channels(file: &Table) -> Vec<(String, String, u32)> {
    let one_by_one = files::tables(file, "channel").flat_map(|channel| {
        let count = channel.get("count").map_or(1, Value::number);
        let capacity = channel.get("capacity").map_or(64, Value::number) as u32;
        (0..count).map(move |index| {
            let text = |key: &str| channel[key].text().replace("{index}", &index.to_string());
            (text("name"), text("owner"), capacity)
        })
    });
    one_by_one.collect()
}

/// The ports of a session of this index: one, or one to each channel of a count.
fn ports(
    (port, channel): (&str, &str),
    index: &str,
    channel_index: &dyn Fn(&str) -> Option<usize>,
) -> Vec<(String, usize)> {
    if !port.contains("{index}") {
        let channel = channel_index(&channel.replace("{index}", index));
        return vec![(port.to_owned(), channel.expect("a port names a channel"))];
    }
    let numbered = (0..).map(|number: u32| {
        let fill = |text: &str| text.replace("{index}", &number.to_string());
        channel_index(&fill(channel)).map(|channel| (fill(port), channel))
    });
    numbered.map_while(|port| port).collect()
}

/// Contexts, from their own keys and those of their profile, grants and leases.
fn add_time(spec: &mut MachineSpec, path: &str, file: &Table) {
    let session_named = |spec: &MachineSpec, table: &Table| {
        let name = table["session"].text();
        SessionId(
            spec.sessions
                .iter()
                .position(|session| session.name == name)
                .expect("a context or grant names a session") as u32,
        )
    };
    for context in files::tables(file, "context") {
        let wanted = context.get("profile").map(Value::text);
        let profile =
            files::tables(file, "profile").find(|profile| Some(profile["name"].text()) == wanted);
        let read =
            ["name", "session", "profile", "budget_cycles", "period_cycles", "deadline_cycles"];
        let other = context
            .keys()
            .chain(profile.into_iter().flatten().map(|(key, _)| key))
            .find(|key| !read.contains(&key.as_str()));
        assert!(other.is_none(), "{path}: the key context.{other:?} is not read here");
        let cycles = |key: &str| {
            context
                .get(key)
                .or_else(|| profile?.get(key))
                .map(|value| Cycles(value.number() as u64))
        };
        let period = cycles("period_cycles").expect("a period");
        let (name, session) = (context["name"].text(), session_named(spec, context));
        let budget = cycles("budget_cycles").expect("a budget");
        let deadline = cycles("deadline_cycles").unwrap_or(period);
        let made = ContextSpec::new(name, session, budget, period);
        spec.contexts.push(ContextSpec { deadline, ..made });
    }
    for grant in files::tables(file, "grant") {
        let of = match grant["of"].text() {
            "control" => Grant::Control,
            "policy" => Grant::Policy,
            "isolation" => Grant::Isolation,
            other => panic!("{path}: the grant of {other} is not read here"),
        };
        spec.grants.push(GrantSpec { session: session_named(spec, grant), grant: of });
    }
    for lease in files::tables(file, "lease") {
        let session = session_named(spec, lease);
        let context = spec.contexts.iter().position(|context| {
            context.session == session && context.name == lease["context"].text()
        });
        let context = context.expect("a lease names a context of its session");
        let mut made = LeaseSpec::new(lease["name"].text(), session, context);
        for (key, value) in lease {
            match key.as_str() {
                "name" | "session" | "context" => {}
                "wakes" => {
                    let channel = |name: &String| {
                        let mut channels = spec.channels.iter();
                        channels.position(|channel| channel.name == *name)
                    };
                    made.wakes = texts(value).iter().filter_map(channel).collect();
                    assert_eq!(
                        made.wakes.len(),
                        value.list().len(),
                        "{path}: a wake is no channel"
                    );
                }
                "requested" => made.at_start = value.text() == "at-start",
                other => panic!("{path}: the key lease.{other} is not read here"),
            }
        }
        spec.leases.push(made);
    }
}

fn add_sessions(
    spec: &mut MachineSpec,
    path: &str,
    folder: &str,
    session: &Table,
    channel_index: &dyn Fn(&str) -> Option<usize>,
) {
    let module_path = format!("{folder}/{}", session["module"].text());
    let module = spec.add_module(load(&module_path), files::bytes(&module_path));
    let count = session.get("count").map(Value::number);
    for number in 0..count.unwrap_or(1) {
        let name = session["name"].text();
        let name = if count.is_some() { format!("{name}.{number}") } else { name.to_owned() };
        let id = spec.add_session(&name, module);
        let added = &mut spec.sessions[id.0 as usize];
        for (key, value) in session {
            match key.as_str() {
                "name" | "module" | "count" => {}
                "lane" => added.placement = Placement::Lane(value.number() as u16),
                "lanes" => {
                    added.placement = Placement::Split(
                        value.list().iter().map(|lane| lane.number() as u16).collect(),
                    )
                }
                "priority" => added.priority = Priority(value.number() as u8),
                "weight" => {
                    added.weight = Weight::new(value.number() as u16).expect("a weight in range")
                }
                "args" => added.args = texts(value),
                "ports" => {
                    let index = number.to_string();
                    let table = value.table().iter().map(|(port, name)| (port.as_str(), name));
                    added.ports = table
                        .flat_map(|(port, name)| ports((port, name.text()), &index, channel_index))
                        .collect()
                }
                other => panic!("{path}: the key session.{other} is not read here"),
            }
        }
    }
}
