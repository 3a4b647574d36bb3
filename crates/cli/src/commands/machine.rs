//! From files to a `World`: reads the manifest or module, loads its modules, collects its inputs
//! and has `system` build the machine.
//!
//! Every error points at the line of the manifest it is about, whichever crate found it.

use super::files::{
    MOST_DATA_BYTES, MOST_TEXT_BYTES, is_trace, not_a_trace, read_bounded, read_file,
};
use super::load::{LoadedModule, load_module, sentence};
use crate::arguments::{MachineArguments, RunArguments};
use crate::diagnostic::{Diagnostic, Source};
use crate::exit::Exit;
use crate::failure::{Failure, Reason};
use crate::input::{InputEvent, Recipient, read_input, whole_input};
use crate::manifest::{
    self, GlobalName, Limits, MOST_CYCLES, Manifest, ManifestValue, Policy, Read, WaveSpan, grouped,
};
use crate::suggest::did_you_mean;
use std::path::Path;
use wavelock_abi::{Cycles, HostOperation, SCHEDULER_COSTS_V1, SessionId};
use wavelock_kernel::FairSettings;
use wavelock_replay::RecordedMachine;
use wavelock_system::{
    ChannelSpec, LoadError, Loaded, MachineSpec, MissingImport, Placement, SessionSpec, Span,
    Warning, World,
};

/// A machine that is ready to run, and its warnings.
pub(super) struct Made {
    pub(super) world: World,
    /// The manifest as read, for messages that point into it.
    pub(super) read: Read,
    pub(super) warnings: Vec<Diagnostic>,
    /// The machine as a trace stores it, if a trace is written.
    pub(super) recorded: Option<RecordedMachine>,
}

/// A machine as files and flags describe it, not loaded yet.
pub(super) struct Described {
    /// The manifest as read, for messages that point into it.
    pub(super) read: Read,
    /// The machine with its modules' bytes and inputs.
    pub(super) machine: RecordedMachine,
}

impl Described {
    /// Every policy by name, with this quantum. A policy that does not allow the quantum is left
    /// out.
    pub(super) fn policies(&self, quantum: Cycles) -> Vec<(String, wavelock_kernel::Policy)> {
        let spec = &self.machine.spec;
        let gap =
            spec.modules.iter().map(|module| module.code().gap()).max().unwrap_or(Cycles::ZERO);
        let made = |policy: Policy| {
            Some((
                policy.name().to_owned(),
                policy_of(policy, quantum, gap, spec.frame_cycles).ok()?,
            ))
        };
        Policy::ALL.iter().copied().filter_map(made).collect()
    }

    /// An error of `system`, at the line of the manifest it is about.
    pub(super) fn refuse(&self, error: &LoadError) -> Failure {
        refuse(&self.read, error)
    }
}

/// Reads the files that the arguments name.
pub(super) fn describe(arguments: &MachineArguments) -> Result<Described, Failure> {
    let read = read_machine(arguments)?;
    let modules = load_modules(&read)?;
    let inputs = inputs(arguments, &read.manifest)?;
    let spec = spec(&read, &modules)?;
    let modules = modules.into_iter().map(|loaded| loaded.bytes).collect();
    Ok(Described { read, machine: RecordedMachine { spec, modules, inputs } })
}

/// Builds the machine that the arguments of `run` describe.
pub(super) fn make(arguments: &RunArguments) -> Result<Made, Failure> {
    let Described { read, machine } = describe(&arguments.machine)?;
    let keep_events = arguments.recording.record.is_some() || arguments.report.is_some();
    let recorded = arguments.recording.record.is_some().then(|| machine.clone());
    let Loaded { world, warnings } = World::load(machine.spec, machine.inputs, keep_events)
        .map_err(|error| refuse(&read, &error))?;
    let mut findings = read.warnings.clone();
    findings.extend(warnings.iter().filter_map(|warning| explain(&read, warning)));
    Ok(Made { world, read, warnings: findings, recorded })
}

/// Reads a manifest, or makes one for a module. A file named `.wasm` or `.wat`, or with the magic
/// bytes of a binary module, is a module.
fn read_machine(arguments: &MachineArguments) -> Result<Read, Failure> {
    let (path, overrides) = (arguments.file.as_path(), arguments.overrides());
    if path.extension().is_some_and(|extension| extension == "wasm" || extension == "wat") {
        return Ok(manifest::of_module(path, &overrides));
    }
    if is_trace(path) {
        return Err(not_a_trace(path, "a manifest"));
    }
    if path.is_dir() {
        return Err(not_a_folder(path));
    }
    let bytes = read_file(path, MOST_TEXT_BYTES)?;
    if bytes.starts_with(b"\0asm") {
        return Ok(manifest::of_module(path, &overrides));
    }
    let source = Source::decode(path.display().to_string(), bytes).map_err(Failure::refused)?;
    let directory = path.parent().unwrap_or(Path::new(""));
    manifest::read(source, directory, &overrides).map_err(Failure::refused)
}

/// The error for a directory given as a manifest. It suggests the manifest in it that has the
/// directory's name, or the only one.
fn not_a_folder(path: &Path) -> Failure {
    let entries =
        path.read_dir().into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    let manifests: Vec<_> = entries
        .filter(|entry| entry.extension().is_some_and(|extension| extension == "toml"))
        .collect();
    let named = manifests.iter().find(|manifest| manifest.file_stem() == path.file_name());
    let hint = match (named, manifests.as_slice()) {
        (Some(manifest), _) | (None, [manifest]) => {
            format!("; did you mean `{}`?", manifest.display())
        }
        _ => String::new(),
    };
    Failure::new(
        Exit::Host,
        format!("`{}` is a directory, not a manifest or a module{hint}", path.display()),
    )
}

/// Loads the modules, in manifest order, and reports all that fail.
fn load_modules(read: &Read) -> Result<Vec<LoadedModule>, Failure> {
    let mut modules = Vec::new();
    let mut findings = Vec::new();
    let mut exit = Exit::Host;
    for (index, path) in read.manifest.modules.iter().enumerate() {
        match load_module(path) {
            Ok(module) => modules.push(module),
            Err(failure) => {
                exit = exit.max(failure.exit);
                let user = read
                    .manifest
                    .sessions
                    .iter()
                    .position(|session| session.module.0 as usize == index)
                    .unwrap_or_default();
                let place = ManifestValue::Session(SessionId(user as u32), "module");
                findings.push((
                    failure.clone(),
                    read.refusal(place, sentence(&failure), "of this module"),
                ));
            }
        }
    }
    match findings.as_slice() {
        [] => Ok(modules),
        // A bare module has no manifest to point into.
        [(failure, _)] if read.source.text.is_empty() => Err(failure.clone()),
        _ => {
            let list = findings.into_iter().map(|(_, finding)| finding).collect();
            Err(Failure { exit, reason: Reason::Diagnostics(Box::new(read.diagnostics(list))) })
        }
    }
}

/// `--stdin`, then `--input`.
fn inputs(
    arguments: &MachineArguments,
    manifest: &Manifest,
) -> Result<Vec<wavelock_system::InputEvent>, Failure> {
    let mut events: Vec<InputEvent> = Vec::new();
    if let Some(path) = &arguments.stdin {
        let bytes = if path.as_os_str() == "-" {
            read_bounded(std::io::stdin().lock(), Path::new("standard input"), MOST_DATA_BYTES)?
        } else {
            read_file(path, MOST_DATA_BYTES)?
        };
        events.extend(whole_input(bytes));
    }
    let mut events: Vec<_> = events.into_iter().map(convert).collect();
    if let Some(path) = &arguments.input {
        let names: Vec<&str> =
            manifest.sessions.iter().map(|session| session.name.as_str()).collect();
        events.extend(inputs_from(path, &names)?);
    }
    Ok(events)
}

/// The events of an input file for sessions of these names.
pub(super) fn inputs_from(
    path: &Path,
    names: &[&str],
) -> Result<Vec<wavelock_system::InputEvent>, Failure> {
    let source = Source::decode(path.display().to_string(), read_file(path, MOST_DATA_BYTES)?)
        .map_err(Failure::refused)?;
    Ok(read_input(source, names).map_err(Failure::refused)?.into_iter().map(convert).collect())
}

/// A policy by its name, for a machine that is already loaded.
pub(super) fn policy_named(
    name: &str,
    quantum: Option<u64>,
    spec: &MachineSpec,
) -> Result<wavelock_kernel::Policy, Failure> {
    let policy = Policy::find(name)
        .ok_or_else(|| Failure::new(Exit::Usage, format!("there is no policy `{name}`")))?;
    let own = spec.policy.quantum();
    let usual = if own == Cycles::MAX { MachineSpec::new().policy.quantum() } else { own };
    let gap = spec.modules.iter().map(|module| module.code().gap()).max().unwrap_or(Cycles::ZERO);
    let made = policy_of(policy, quantum.map_or(usual, Cycles), gap, spec.frame_cycles);
    made.map_err(|most| {
        Failure::new(
            Exit::Refused,
            format!("--quantum must be at most {} for this machine under `fair`", grouped(most.0)),
        )
    })
}

fn convert(event: InputEvent) -> wavelock_system::InputEvent {
    wavelock_system::InputEvent {
        frame: event.frame,
        recipient: match event.recipient {
            Recipient::Session(session) => wavelock_system::Recipient::Session(session),
            Recipient::All => wavelock_system::Recipient::All,
        },
        bytes: event.bytes.into(),
    }
}

/// Converts the manifest to the description that `system` loads.
fn spec(read: &Read, modules: &[LoadedModule]) -> Result<MachineSpec, Failure> {
    let Manifest { machine, limits, sessions, channels, .. } = &read.manifest;
    let mut spec = MachineSpec {
        lanes: machine.lanes,
        policy: policy(read, modules)?,
        frame_cycles: machine.frame_cycles,
        span: match machine.wave {
            WaveSpan::Cycles(cycles) => Span::Cycles(cycles),
            WaveSpan::Picks(picks) => Span::Picks(picks),
        },
        seed: machine.seed,
        max_frames: machine.max_frames.map(|frames| frames.0),
        handoff: machine.handoff,
        steal: machine.steal,
        balance: machine.balance,
        limits: system_limits(limits),
        ..MachineSpec::new()
    };
    for loaded in modules {
        spec.add_module(loaded.module.clone(), &loaded.bytes);
    }
    spec.sessions = sessions.iter().map(session_spec).collect();
    let channel_spec = |channel: &manifest::Channel| ChannelSpec {
        name: channel.name.clone(),
        owner: channel.owner,
        capacity: channel.capacity,
    };
    spec.channels = channels.iter().map(channel_spec).collect();
    spec.contexts.clone_from(&read.manifest.contexts);
    spec.grants.clone_from(&read.manifest.grants);
    Ok(spec)
}

/// The ranges of `[limits]` fit the types of `system`: `limits_fit_the_machine` tests their ends.
fn system_limits(limits: &Limits) -> wavelock_system::Limits {
    let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    wavelock_system::Limits {
        coroutines: narrow(limits.coroutines),
        stack_bytes: narrow(limits.stack_bytes),
        session_stack_bytes: limits.session_stack_bytes,
        memory_pages: narrow(limits.memory_pages),
        table_elements: narrow(limits.table_elements),
        message_bytes: narrow(limits.message_bytes),
        channel_capacity: narrow(limits.channel_capacity),
        channels: narrow(limits.channels),
        select: narrow(limits.select),
        sessions: narrow(limits.sessions),
        output_bytes: narrow(limits.output_bytes),
        log_bytes: narrow(limits.log_bytes),
        machine_memory: limits.machine_memory,
    }
}

fn session_spec(session: &manifest::Session) -> SessionSpec {
    let global = |name: &GlobalName| match name {
        GlobalName::Name(name) => name.clone(),
        GlobalName::Index(index) => index.to_string(),
    };
    SessionSpec {
        name: session.name.clone(),
        module: session.module.0 as usize,
        placement: match session.lanes.as_slice() {
            [lane] => Placement::Lane(lane.0),
            lanes => Placement::Split(lanes.iter().map(|lane| lane.0).collect()),
        },
        pinned: session.pinned,
        priority: session.priority,
        weight: session.weight,
        class: session.class,
        args: session.args.clone(),
        env: session.env.clone(),
        ports: session
            .ports
            .iter()
            .map(|(name, channel)| (name.clone(), channel.0 as usize))
            .collect(),
        coroutine_globals: session.coroutine_globals.iter().flatten().map(global).collect(),
        cap: session.cap,
    }
}

/// The manifest's policy with its quantum.
fn policy(read: &Read, modules: &[LoadedModule]) -> Result<wavelock_kernel::Policy, Failure> {
    let machine = &read.manifest.machine;
    let quantum = machine.quantum_cycles;
    let gap = modules.iter().map(|loaded| loaded.module.code().gap()).max().unwrap_or(Cycles::ZERO);
    policy_of(machine.policy, quantum, gap, machine.frame_cycles).map_err(|most| {
        let title = format!(
            "`quantum_cycles` must be at most {} under `fair`, found {}",
            grouped(most.0),
            grouped(quantum.0)
        );
        let finding = read.refusal(
            ManifestValue::Machine("quantum_cycles"),
            title,
            format!("allowed: at most {}", grouped(most.0)),
        );
        Failure::refused(read.diagnostics(vec![finding]))
    })
}

/// A policy with a quantum. Under `fair` the quantum is the base request, the minimum slice is the
/// smallest that can be enforced with this longest gap, and a round is a frame. The error is the
/// largest quantum allowed.
fn policy_of(
    policy: Policy,
    quantum: Cycles,
    gap: Cycles,
    frame_cycles: Cycles,
) -> Result<wavelock_kernel::Policy, Cycles> {
    if let Some(policy) = policy.with_quantum(quantum) {
        return Ok(policy);
    }
    let least = Cycles(2 * (gap.0 + SCHEDULER_COSTS_V1.switch.0));
    FairSettings::new(quantum, least, frame_cycles.max(quantum))
        .map(wavelock_kernel::Policy::Fair)
        .map_err(|refused| refused.most)
}

/// An error of `system`, at the line of the manifest it is about.
fn refuse(read: &Read, error: &LoadError) -> Failure {
    let session = |name: &str| {
        let index = read
            .manifest
            .sessions
            .iter()
            .position(|session| session.name == name)
            .unwrap_or_default();
        SessionId(index as u32)
    };
    let (place, label, exit) = match error {
        LoadError::TooShort { key, least, .. } => (
            ManifestValue::Machine(key),
            format!("allowed: at least {}", grouped(least.0)),
            Exit::Refused,
        ),
        LoadError::TooLong { key, .. } => (
            ManifestValue::Machine(key),
            format!("allowed: at most {}", grouped(MOST_CYCLES)),
            Exit::Refused,
        ),
        LoadError::Lanes { .. } => {
            (ManifestValue::Machine("lanes"), "refused".to_owned(), Exit::Refused)
        }
        LoadError::MissingImports { session: name, .. } => (
            ManifestValue::Session(session(name), "module"),
            "imported by this module".to_owned(),
            Exit::Refused,
        ),
        LoadError::NoGlobal { session: name, .. } => (
            ManifestValue::Session(session(name), "coroutine_globals"),
            "not in the module".to_owned(),
            Exit::Refused,
        ),
        LoadError::ContextsNeedCycles { .. } => {
            (ManifestValue::Machine("wave_picks"), "counted in picks".to_owned(), Exit::Refused)
        }
        LoadError::Context { context: name, .. } => {
            let index = read
                .manifest
                .contexts
                .iter()
                .position(|context| context.name == *name)
                .unwrap_or_default();
            (
                ManifestValue::Context(index as u32, "budget_cycles"),
                "requested here".to_owned(),
                Exit::Refused,
            )
        }
        LoadError::CapTooSmall { session: name, .. } => (
            ManifestValue::Session(session(name), "budget_cycles"),
            "requested here".to_owned(),
            Exit::Refused,
        ),
        LoadError::NoLane { session: name, .. } => (
            ManifestValue::Session(session(name), "name"),
            "of this session".to_owned(),
            Exit::Refused,
        ),
        LoadError::NoEntry { session: name, .. }
        | LoadError::Link { session: name, .. }
        | LoadError::Session { session: name, .. }
        | LoadError::Start { session: name, .. }
        | LoadError::Kernel { session: name, .. } => (
            ManifestValue::Session(session(name), "module"),
            "of this module".to_owned(),
            Exit::Refused,
        ),
        // The others concern the whole machine, or were already refused when the manifest was read.
        _ => return Failure::new(Exit::Refused, error.to_string()),
    };
    let text = in_words(error);
    if read.source.text.is_empty() {
        return Failure::new(exit, text);
    }
    // The first line is the title; the list that follows is printed below the source line.
    let mut lines = text.lines();
    let title = lines.next().unwrap_or_default().to_owned();
    let finding = lines.fold(read.refusal(place, title, label), |finding, line| {
        finding.note(line.trim().to_owned())
    });
    Failure { exit, reason: Reason::Diagnostics(Box::new(read.diagnostics(vec![finding]))) }
}

/// An error of `system` about the machine in a trace or snapshot: there is no manifest to point
/// into.
pub(super) fn refuse_recorded(path: &Path, error: &LoadError) -> Failure {
    Failure::new(
        Exit::Refused,
        format!("the machine in `{}` cannot be loaded: {}", path.display(), in_words(error)),
    )
}

/// The text of an error, with suggestions for misspelled imports.
fn in_words(error: &LoadError) -> String {
    let LoadError::MissingImports { missing, .. } = error else { return error.to_string() };
    let text = error.to_string();
    let (title, _) = text.split_once('\n').unwrap_or((&text, ""));
    let row = |import: &MissingImport| format!("\n  {import}{}", meant(import));
    title.to_owned() + &missing.iter().map(row).collect::<String>()
}

/// A suggestion for an import whose name does not exist.
fn meant(import: &MissingImport) -> String {
    match HostOperation::find(&import.module, &import.name) {
        Some(_) => String::new(),
        None => did_you_mean(&import.module, &import.name),
    }
}

/// A warning of `system`, unless the manifest has already answered it.
fn explain(read: &Read, warning: &Warning) -> Option<Diagnostic> {
    let Warning::NoStackPointer { session: name } = warning;
    let index = read.manifest.sessions.iter().position(|session| session.name == *name)?;
    if read.manifest.sessions[index].coroutine_globals.is_some() {
        return None;
    }
    let refusal = read.refusal(
        ManifestValue::Session(SessionId(index as u32), "module"),
        String::new(),
        "of this module",
    );
    Some(Diagnostic {
        severity: crate::diagnostic::Severity::Warning,
        title: warning.to_string(),
        help: Some(
            "if it has no shadow stack, write `coroutine_globals = []` to silence this warning"
                .to_owned(),
        ),
        ..refusal
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{LIMITS, Takes};

    #[test]
    fn limits_fit_the_machine() {
        for key in LIMITS
            .iter()
            .filter(|key| !["machine_memory", "session_stack_bytes"].contains(&key.name))
        {
            let Takes::Number { most, .. } = key.takes else { panic!("{} is a number", key.name) };
            assert!(u32::try_from(most).is_ok(), "{} would be cut", key.name);
        }
        assert_eq!(
            system_limits(&Limits::default()),
            wavelock_system::Limits::default(),
            "one set of defaults"
        );
    }
}
