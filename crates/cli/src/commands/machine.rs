//! From files to a `World`: reads the manifest or module, loads its modules, collects its inputs
//! and has `system` build the machine.
//!
//! Every error points at the line of the manifest it is about, whichever crate found it.

use super::files::{
    MOST_DATA_BYTES, MOST_TEXT_BYTES, is_trace, keep_apart, not_a_trace, read_bounded, read_file,
};
use super::load::{LoadedModule, load_module, other_kind, refuse_source, sentence};
use super::sources::{Source as ModuleSource, Sources};
use crate::arguments::{MachineArguments, RecordArguments, RunArguments};
use crate::diagnostic::{Diagnostic, Source};
use crate::exit::Exit;
use crate::failure::{Failure, Reason};
use crate::input::{InputEvent, Recipient, read_input, whole_input};
use crate::manifest::{
    self, Manifest, ManifestValue, Policy, Read, grouped, in_words, machine_spec, policy_of,
};
use std::path::Path;
use wavelock_abi::{Cycles, MAX_GAP, SessionId};
use wavelock_kernel::Sharing;
use wavelock_replay::RecordedMachine;
use wavelock_system::{LoadError, Loaded, MachineSpec, World};

/// A machine that is ready to run, and its warnings.
pub(super) struct Made {
    pub(super) world: World,
    /// The manifest as read, for messages that point into it.
    pub(super) read: Read,
    pub(super) warnings: Vec<Diagnostic>,
    /// The machine as a trace stores it, if a trace or a snapshot is written.
    pub(super) recorded: Option<RecordedMachine>,
    /// Where its modules come from.
    pub(super) sources: Sources,
}

/// A machine as files and flags describe it, not loaded yet.
pub(super) struct Described {
    /// The manifest as read, for messages that point into it.
    pub(super) read: Read,
    /// The machine with its modules' bytes and inputs.
    pub(super) machine: RecordedMachine,
    /// By module: its text, if it is a text module.
    pub(super) texts: Vec<Option<ModuleSource>>,
}

impl Described {
    /// Every policy by name, with this quantum. A policy that does not allow the quantum is left
    /// out.
    pub(super) fn policies(&self, quantum: Cycles) -> Vec<(String, wavelock_kernel::Policy)> {
        let share = self.read.manifest.machine.share;
        let made =
            |policy: Policy| Some((policy.name().to_owned(), self.made(policy, share, quantum)?));
        Policy::ALL.iter().copied().filter_map(made).collect()
    }

    /// A policy with this quantum, if it allows it; `share` is for `fair`.
    pub(super) fn made(
        &self,
        policy: Policy,
        share: Sharing,
        quantum: Cycles,
    ) -> Option<wavelock_kernel::Policy> {
        let spec = &self.machine.spec;
        let gap =
            spec.modules.iter().map(|module| module.code().gap()).max().unwrap_or(Cycles::ZERO);
        policy_of(policy, share, quantum, gap, spec.frame_cycles).ok()
    }

    /// Refuses to overwrite the files that were read for it; `outputs` have their flags.
    pub(super) fn keep_files(
        &self,
        arguments: &MachineArguments,
        outputs: &[(&str, Option<&Path>)],
    ) -> Result<(), Failure> {
        let given = [Some(&arguments.file), arguments.input.as_ref(), arguments.stdin.as_ref()];
        let modules = self.read.manifest.modules.iter();
        let inputs: Vec<&Path> =
            given.into_iter().flatten().chain(modules).map(|path| path.as_path()).collect();
        keep_apart(outputs, &inputs)
    }

    /// Refuses a quantum on the command line for a policy that has none.
    pub(super) fn refuse_quantum(&self, arguments: &MachineArguments) -> Result<(), Failure> {
        match (arguments.quantum, self.read.manifest.machine.policy) {
            (Some(_), Policy::Cooperative) => Err(no_quantum()),
            _ => Ok(()),
        }
    }

    /// An error of `system`, at the line of the manifest it is about.
    pub(super) fn refuse(&self, error: &LoadError) -> Failure {
        refuse(&self.read, error)
    }
}

fn no_quantum() -> Failure {
    let message = "--quantum cannot be applied under `cooperative`, which never preempts: leave it \
                   out, or give a --policy that has a quantum";
    Failure::new(Exit::Usage, message)
}

/// Reads the files that the arguments name.
pub(super) fn describe(arguments: &MachineArguments) -> Result<Described, Failure> {
    describe_for(arguments, None)
}

/// The same for a machine that takes modules with gaps up to this later, unless it says itself
/// which.
fn describe_for(
    arguments: &MachineArguments,
    most_gap: Option<Cycles>,
) -> Result<Described, Failure> {
    let mut read = read_machine(arguments)?;
    let machine = &mut read.manifest.machine;
    machine.most_gap = machine.most_gap.or(most_gap);
    let mut modules = load_modules(&read)?;
    let inputs = inputs(arguments, &read.manifest)?;
    let of_spec: Vec<_> =
        modules.iter().map(|loaded| (loaded.module.clone(), loaded.bytes.as_slice())).collect();
    let spec = machine_spec(&read, &of_spec).map_err(Failure::refused)?;
    let texts = modules.iter_mut().map(|loaded| loaded.text.take()).zip(&read.manifest.modules);
    let texts = texts
        .map(|(text, path)| text.map(|text| ModuleSource::Text { path: path.clone(), text }))
        .collect();
    let modules = modules.into_iter().map(|loaded| loaded.bytes).collect();
    Ok(Described { read, machine: RecordedMachine { spec, modules, inputs }, texts })
}

/// Builds the machine that the arguments of `run` describe.
pub(super) fn make(arguments: &RunArguments) -> Result<Made, Failure> {
    let most_gap = arguments.live.starts_sessions().then_some(MAX_GAP);
    let described = describe_for(&arguments.machine, most_gap)?;
    described.refuse_quantum(&arguments.machine)?;
    let RecordArguments { record, snapshot, .. } = &arguments.recording;
    let outputs = [
        ("--record", record.as_deref()),
        ("--report", arguments.report.as_deref()),
        ("--snapshot", snapshot.as_deref()),
    ];
    described.keep_files(&arguments.machine, &outputs)?;
    let Described { read, mut machine, texts } = described;
    if arguments.live.live {
        if arguments.machine.stdin.as_deref() == Some(Path::new("-")) {
            let message = "`--stdin -` takes standard input as one event, --live takes its lines: \
                           give one of the two, or `--live --to SESSION` for lines of text";
            return Err(Failure::new(Exit::Usage, message));
        }
        machine.spec.live = true;
    }
    let keep_events = arguments.recording.record.is_some() || arguments.report.is_some();
    let recorded = (record.is_some() || snapshot.is_some()).then(|| machine.clone());
    let sources = machine.modules.into_iter().zip(texts);
    let sources =
        sources.map(|(bytes, text)| text.unwrap_or(ModuleSource::Binary(bytes))).collect();
    let Loaded { world, warnings } = World::load(machine.spec, machine.inputs, keep_events)
        .map_err(|error| refuse(&read, &error))?;
    let mut findings = read.warnings.clone();
    findings.extend(warnings.iter().filter_map(|warning| manifest::warning(&read, warning)));
    Ok(Made { world, read, warnings: findings, recorded, sources: Sources(sources) })
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
    refuse_source(path)?;
    let bytes = read_file(path, MOST_TEXT_BYTES)?;
    if let Some(found) = other_kind(&bytes) {
        return Err(Failure::new(Exit::Host, format!("`{}` is {found}", path.display())));
    }
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
    if quantum.is_some() && policy == Policy::Cooperative {
        return Err(no_quantum());
    }
    let own = spec.policy.quantum();
    let usual = if own == Cycles::MAX { MachineSpec::new().policy.quantum() } else { own };
    let gap = spec.modules.iter().map(|module| module.code().gap()).max().unwrap_or(Cycles::ZERO);
    let share = match spec.policy {
        wavelock_kernel::Policy::Fair(settings) => settings.sharing(),
        _ => wavelock_kernel::Sharing::Session,
    };
    let made = policy_of(policy, share, quantum.map_or(usual, Cycles), gap, spec.frame_cycles);
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

/// An error of `system`, at the line of the manifest it is about.
fn refuse(read: &Read, error: &LoadError) -> Failure {
    match manifest::refusal(read, error) {
        Some(diagnostics) => Failure::refused(diagnostics),
        None => Failure::new(Exit::Refused, in_words(error)),
    }
}

/// An error of `system` about the machine in a trace or snapshot: there is no manifest to point
/// into.
pub(super) fn refuse_recorded(path: &Path, error: &LoadError) -> Failure {
    Failure::new(
        Exit::Refused,
        format!("the machine in `{}` cannot be loaded: {}", path.display(), in_words(error)),
    )
}
