//! From a checked manifest and its loaded modules to the machine that `system` loads; the errors
//! and warnings of `system` at the lines of the manifest they are about.

use crate::diagnostic::{Diagnostic, Diagnostics, Severity};
use crate::keys::{Limits, MOST_CYCLES, grouped};
use crate::model::{Channel, GlobalName, Manifest, Policy, Session, WaveSpan};
use crate::read::{ManifestValue, Read};
use crate::suggest::did_you_mean;
use std::sync::Arc;
use wavelock_abi::{Cycles, HostOperation, SCHEDULER_COSTS_V1, SessionId};
use wavelock_kernel::{FairSettings, Sharing};
use wavelock_module::Module;
use wavelock_system::{
    ChannelSpec, LoadError, MachineSpec, MissingImport, Placement, SessionSpec, Span, Warning,
};

/// A loaded module of a manifest, with the binary it was made from.
pub type LoadedModule<'b> = (Arc<Module>, &'b [u8]);

/// Converts a manifest to the description that `system` loads. `modules` are those of
/// [`Manifest::modules`], in their order.
pub fn machine_spec(read: &Read, modules: &[LoadedModule<'_>]) -> Result<MachineSpec, Diagnostics> {
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
        live: machine.live,
        most_gap: machine.most_gap,
        limits: system_limits(limits),
        ..MachineSpec::new()
    };
    for (module, bytes) in modules {
        spec.add_module(module.clone(), bytes);
    }
    spec.sessions = sessions.iter().map(session_spec).collect();
    let channel_spec = |channel: &Channel| ChannelSpec {
        name: channel.name.clone(),
        owner: channel.owner,
        capacity: channel.capacity,
    };
    spec.channels = channels.iter().map(channel_spec).collect();
    spec.contexts.clone_from(&read.manifest.contexts);
    spec.grants.clone_from(&read.manifest.grants);
    spec.islands.clone_from(&read.manifest.islands);
    spec.leases.clone_from(&read.manifest.leases);
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

fn session_spec(session: &Session) -> SessionSpec {
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
        coroutine_globals: session
            .coroutine_globals
            .iter()
            .flatten()
            .map(GlobalName::text)
            .collect(),
        cap: session.cap,
        limits: session.limits,
    }
}

/// The manifest's policy with its quantum.
fn policy(
    read: &Read,
    modules: &[LoadedModule<'_>],
) -> Result<wavelock_kernel::Policy, Diagnostics> {
    let machine = &read.manifest.machine;
    let quantum = machine.quantum_cycles;
    let gaps = modules.iter().map(|(module, _)| module.code().gap()).chain(machine.most_gap);
    let gap = gaps.max().unwrap_or(Cycles::ZERO);
    let made = policy_of(machine.policy, machine.share, quantum, gap, machine.frame_cycles);
    made.map_err(|most| {
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
        read.diagnostics(vec![finding])
    })
}

/// A policy with a quantum. Under `fair`, shared by these, the quantum is the base request, the
/// minimum slice is the smallest that can be enforced with this longest gap, and a round is a
/// frame. The error is the largest quantum allowed.
pub fn policy_of(
    policy: Policy,
    share: Sharing,
    quantum: Cycles,
    gap: Cycles,
    frame_cycles: Cycles,
) -> Result<wavelock_kernel::Policy, Cycles> {
    if let Some(policy) = policy.with_quantum(quantum) {
        return Ok(policy);
    }
    let least = Cycles(2 * (gap.0 + SCHEDULER_COSTS_V1.switch.0));
    FairSettings::new(quantum, least, frame_cycles.max(quantum))
        .map(|settings| wavelock_kernel::Policy::Fair(settings.shared_by(share)))
        .map_err(|refused| refused.most)
}

/// An error of `system`, at the line of the manifest it is about.
/// `None` if it is about no value of a manifest with text: [`in_words`] has its message then.
#[must_use]
pub fn refusal(read: &Read, error: &LoadError) -> Option<Diagnostics> {
    let session = |name: &str| {
        let index = read
            .manifest
            .sessions
            .iter()
            .position(|session| session.name == name)
            .unwrap_or_default();
        SessionId(index as u32)
    };
    let (place, label) = match error {
        LoadError::TooShort { key, least, .. } => {
            (ManifestValue::Machine(key), format!("allowed: at least {}", grouped(least.0)))
        }
        LoadError::TooLong { key, .. } => {
            (ManifestValue::Machine(key), format!("allowed: at most {}", grouped(MOST_CYCLES)))
        }
        LoadError::Lanes { .. } => (ManifestValue::Machine("lanes"), "refused".to_owned()),
        LoadError::MissingImports { session: name, .. } => {
            (ManifestValue::Session(session(name), "module"), "imported by this module".to_owned())
        }
        LoadError::NoGlobal { session: name, .. } => (
            ManifestValue::Session(session(name), "coroutine_globals"),
            "not in the module".to_owned(),
        ),
        LoadError::ContextsNeedCycles { .. } => {
            (ManifestValue::Machine("wave_picks"), "counted in picks".to_owned())
        }
        LoadError::Context { context: name, .. }
        | LoadError::NoLaneOfMask { context: name, .. }
        | LoadError::OutsideMask { context: name, .. } => {
            let index = read
                .manifest
                .contexts
                .iter()
                .position(|context| context.name == *name)
                .unwrap_or_default();
            (ManifestValue::Context(index as u32, "budget_cycles"), "requested here".to_owned())
        }
        LoadError::Island { island, .. } => {
            let mut islands = read.manifest.islands.iter();
            let index = islands.position(|known| known.name == *island).unwrap_or_default();
            (ManifestValue::Island(index as u32, "name"), "of this island".to_owned())
        }
        LoadError::Lease { lease: name, .. } => {
            let mut leases = read.manifest.leases.iter();
            let index = leases.position(|lease| lease.name == *name).unwrap_or_default();
            (ManifestValue::Lease(index as u32), "this lease".to_owned())
        }
        LoadError::CapTooSmall { session: name, .. } => {
            (ManifestValue::Session(session(name), "budget_cycles"), "requested here".to_owned())
        }
        LoadError::NoLane { session: name, .. } => {
            (ManifestValue::Session(session(name), "name"), "of this session".to_owned())
        }
        LoadError::NoEntry { session: name, .. }
        | LoadError::Link { session: name, .. }
        | LoadError::Session { session: name, .. }
        | LoadError::Start { session: name, .. }
        | LoadError::Kernel { session: name, .. } => {
            (ManifestValue::Session(session(name), "module"), "of this module".to_owned())
        }
        // The others concern the whole machine, or were already refused when the manifest was read.
        _ => return None,
    };
    let text = in_words(error);
    if read.source.text.is_empty() {
        return None;
    }
    // The first line is the title; the list that follows is printed below the source line.
    let mut lines = text.lines();
    let title = lines.next().unwrap_or_default().to_owned();
    let finding = lines.fold(read.refusal(place, title, label), |finding, line| {
        finding.note(line.trim().to_owned())
    });
    Some(read.diagnostics(vec![finding]))
}

/// The text of an error, with suggestions for misspelled imports.
#[must_use]
pub fn in_words(error: &LoadError) -> String {
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
#[must_use]
pub fn warning(read: &Read, found: &Warning) -> Option<Diagnostic> {
    let (Warning::NoStackPointer { session: name } | Warning::PassiveServer { session: name, .. }) =
        found;
    let index = read.manifest.sessions.iter().position(|session| session.name == *name)?;
    let (key, label, help) = match found {
        Warning::NoStackPointer { .. } => (
            "module",
            "of this module",
            Some(
                "if it has no shadow stack, write `coroutine_globals = []` to silence this warning",
            ),
        ),
        Warning::PassiveServer { .. } => ("name", "this server", None),
    };
    let is_silenced = read.manifest.sessions[index].coroutine_globals.is_some();
    if is_silenced && matches!(found, Warning::NoStackPointer { .. }) {
        return None;
    }
    let value = ManifestValue::Session(SessionId(index as u32), key);
    let refusal = read.refusal(value, String::new(), label);
    Some(Diagnostic {
        severity: Severity::Warning,
        title: found.to_string(),
        help: help.map(str::to_owned),
        ..refusal
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::{LIMITS, Takes};

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
