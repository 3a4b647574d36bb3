//! The rules that a description must satisfy, one function each. Contract: everything is checked
//! before anything is made, so that the rest of loading indexes without checks.

use super::{LoadError, MAX_LANES, MOST_CYCLES, MOST_PERIOD_FRAMES};
use crate::functions::{HostKind, MOST_HOST_FUNCTIONS, MOST_HOST_VALUES};
use crate::input::{InputEvent, Recipient};
use crate::spec::{ChannelSpec, MachineSpec, Span};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{Cycles, HostOperation, MAX_GAP, SCHEDULER_COSTS_V1};
use wavelock_kernel::Policy;
use wavelock_module::Module;

type Rule = fn(&MachineSpec) -> Result<(), LoadError>;

/// The rules, in the order in which a broken one is reported. Later ones rely on the first three.
const RULES: [Rule; 11] = [
    lanes,
    sessions,
    check_references,
    names,
    host,
    spans,
    placements,
    capacities,
    deviations,
    caps,
    masks,
];

/// Checks a description by every rule but that of memory, which loading alone needs.
pub(crate) fn check_spec(spec: &MachineSpec) -> Result<(), LoadError> {
    RULES.iter().try_for_each(|rule| rule(spec))
}

const fn lanes(spec: &MachineSpec) -> Result<(), LoadError> {
    match spec.lanes {
        1..=MAX_LANES => Ok(()),
        found => Err(LoadError::Lanes { found }),
    }
}

const fn sessions(spec: &MachineSpec) -> Result<(), LoadError> {
    let (found, allowed) = (spec.sessions.len() as u64, spec.limits.sessions);
    if found == 0 {
        return Err(LoadError::NoSession);
    }
    if found > allowed as u64 { Err(LoadError::Sessions { found, allowed }) } else { Ok(()) }
}

/// Every index names something.
pub(crate) fn check_references(spec: &MachineSpec) -> Result<(), LoadError> {
    let (modules, channels, sessions) =
        (spec.modules.len(), spec.channels.len(), spec.sessions.len());
    for session in &spec.sessions {
        let name = &session.name;
        refer("module", session.module, modules, || format!("session `{name}`"))?;
        for (port, channel) in &session.ports {
            let by = || format!("port `{port}` of session `{name}`");
            refer("channel", *channel, channels, by)?;
        }
    }
    for channel in &spec.channels {
        let by = || format!("channel `{}`", channel.name);
        refer("session", channel.owner.0 as usize, sessions, by)?;
    }
    for context in &spec.contexts {
        let by = || format!("context `{}`", context.name);
        refer("session", context.session.0 as usize, sessions, by)?;
    }
    for lease in &spec.leases {
        let by = || format!("lease `{}`", lease.name);
        refer("session", lease.session.0 as usize, sessions, by)?;
        refer("context", lease.context, spec.contexts.len(), by)?;
        lease.wakes.iter().try_for_each(|&wake| refer("channel", wake, channels, by))?;
    }
    for grant in &spec.grants {
        refer("session", grant.session.0 as usize, sessions, || "a grant".into())?;
    }
    Ok(())
}

/// No two sessions have one name: the name seeds a session's random numbers and tells its
/// observables apart.
fn names(spec: &MachineSpec) -> Result<(), LoadError> {
    let mut numbers = BTreeMap::new();
    for (at, session) in spec.sessions.iter().enumerate() {
        if let Some(first) = numbers.insert(session.name.as_str(), at) {
            let (name, first, second) = (session.name.clone(), first as u64, at as u64);
            return Err(LoadError::SameName { name, first, second });
        }
    }
    Ok(())
}

/// Functions of the embedder: few enough, each once, none of the guest interface, within their
/// limits.
fn host(spec: &MachineSpec) -> Result<(), LoadError> {
    let functions = &spec.host.functions;
    let (found, allowed) = (functions.len() as u64, MOST_HOST_FUNCTIONS as u64);
    if found > allowed {
        return Err(LoadError::HostFunctions { found, allowed });
    }
    for (at, function) in functions.iter().enumerate() {
        let (module, name) = (&function.module, &function.name);
        let values = function.params.len().max(function.results.len());
        let why = if HostOperation::find(module, name).is_some() {
            "the guest interface has a function of this name"
        } else if spec.host.find(module, name).is_some_and(|(first, _)| first != at) {
            "two functions of the host have this name"
        } else if values > MOST_HOST_VALUES {
            "a function has at most 8 parameters and at most 8 results"
        } else if function.kind == HostKind::Command && !function.results.is_empty() {
            "a command returns nothing"
        } else if function.kind == HostKind::Ask && !spec.live {
            "it asks, and the machine is not live, so that no reply could come: set live = true"
        } else if function.cost > MAX_GAP {
            "its cost is above the longest gap between safepoints"
        } else {
            continue;
        };
        return Err(LoadError::HostFunction { name: format!("{module}` `{name}"), why });
    }
    Ok(())
}

/// Input events ascend by frame; every one is for a session that exists.
pub(super) fn inputs(inputs: &[InputEvent], sessions: usize) -> Result<(), LoadError> {
    if let Some(at) = inputs.windows(2).position(|pair| pair[1].frame < pair[0].frame) {
        let (before, frame) = (inputs[at].frame.0, inputs[at + 1].frame.0);
        return Err(LoadError::InputOrder { at: at as u64 + 1, frame, before });
    }
    for event in inputs {
        if let Recipient::Session(session) = event.recipient {
            let by = || format!("an input of frame {}", event.frame.0);
            refer("session", session.0 as usize, sessions, by)?;
        }
    }
    Ok(())
}

/// An index that must be below `count`.
fn refer(
    what: &'static str,
    found: usize,
    count: usize,
    by: impl Fn() -> String,
) -> Result<(), LoadError> {
    if found < count {
        return Ok(());
    }
    Err(LoadError::Reference { by: by(), what, found: found as u64, count: count as u64 })
}

/// Frame, wave and quantum are long enough to be enforced and short enough to be counted.
fn spans(spec: &MachineSpec) -> Result<(), LoadError> {
    let gap = spec.longest_gap();
    let least = Cycles(2 * (gap.0 + SCHEDULER_COSTS_V1.switch.0));
    let wave = match spec.span {
        Span::Cycles(cycles) => Some(cycles),
        Span::Picks(_) => None,
    };
    let quantum = Some(spec.policy.quantum()).filter(|quantum| *quantum < Cycles::MAX);
    for (key, found) in [
        ("frame_cycles", Some(spec.frame_cycles)),
        ("wave_cycles", wave),
        ("quantum_cycles", quantum),
    ] {
        match found {
            Some(found) if found < least => {
                return Err(LoadError::TooShort { key, found, least, gap });
            }
            Some(found) if found > MOST_CYCLES => return Err(LoadError::TooLong { key, found }),
            _ => {}
        }
    }
    if spec.span == Span::Picks(0) { Err(LoadError::NoPicks) } else { Ok(()) }
}

/// A session has at least one lane; each of its lanes exists and is named once.
fn placements(spec: &MachineSpec) -> Result<(), LoadError> {
    for session in &spec.sessions {
        let (found, lanes) = (session.placement.lanes(), spec.lanes);
        if let Some(&lane) = found.iter().find(|&&lane| lane >= lanes) {
            return Err(LoadError::NoLane { session: session.name.clone(), lane, lanes });
        }
        let mut seen = alloc::vec![false; usize::from(lanes)];
        let twice =
            found.iter().any(|&lane| core::mem::replace(&mut seen[usize::from(lane)], true));
        if found.is_empty() || twice {
            let (session, lanes) = (session.name.clone(), found.to_vec());
            return Err(LoadError::Placement { session, lanes });
        }
    }
    Ok(())
}

/// The lanes of a context's mask exist, and each is named once.
fn masks(spec: &MachineSpec) -> Result<(), LoadError> {
    let lanes = spec.lanes;
    let is_wrong = |mask: &[u16]| {
        let mut seen = alloc::vec![false; usize::from(lanes)];
        mask.iter().any(|&lane| match seen.get_mut(usize::from(lane)) {
            Some(seen) => core::mem::replace(seen, true),
            None => true,
        })
    };
    let wrong = spec.contexts.iter().find(|context| is_wrong(&context.lanes));
    wrong.map_or(Ok(()), |context| {
        let (context, found) = (context.name.clone(), context.lanes.clone());
        Err(LoadError::Mask { context, found, lanes })
    })
}

fn capacities(spec: &MachineSpec) -> Result<(), LoadError> {
    let allowed = spec.limits.channel_capacity;
    let wrong = spec.channels.iter().find(|channel| !(1..=allowed).contains(&channel.capacity));
    wrong.map_or(Ok(()), |ChannelSpec { name, capacity, .. }| {
        Err(LoadError::Capacity { channel: name.clone(), found: *capacity, allowed })
    })
}

/// Deviations ascend, on lanes that exist, under a policy whose ranks can be deviated from.
fn deviations(spec: &MachineSpec) -> Result<(), LoadError> {
    let mut last = None;
    for &(lane, deviation) in &spec.deviations {
        let why = if matches!(spec.policy, Policy::Fair(_)) {
            "`fair` takes no deviations"
        } else if lane >= spec.lanes {
            "the machine has no such lane"
        } else if last >= Some((lane, deviation.pick)) {
            "deviations ascend by lane and pick"
        } else {
            last = Some((lane, deviation.pick));
            continue;
        };
        return Err(LoadError::Deviation { lane, pick: deviation.pick, why });
    }
    Ok(())
}

/// Every part of a cap can be enforced, and its period counted.
pub(crate) fn caps(spec: &MachineSpec) -> Result<(), LoadError> {
    let gap = spec.longest_gap();
    let least = Cycles(2 * (gap.0 + SCHEDULER_COSTS_V1.switch.0));
    for session in &spec.sessions {
        let (Some(cap), name) = (session.cap, || session.name.clone()) else { continue };
        let lanes = session.placement.lanes().len();
        let part = session.cap_at(lanes.saturating_sub(1)).map_or(cap.budget, |part| part.budget);
        if part < least {
            let (found, lanes) = (cap.budget, lanes as u16);
            return Err(LoadError::CapTooSmall { session: name(), found, lanes, least, gap });
        }
        if cap.budget > MOST_CYCLES {
            return Err(LoadError::TooLong { key: "budget_cycles", found: cap.budget });
        }
        if !(1..=MOST_PERIOD_FRAMES).contains(&cap.period_frames) {
            let found = cap.period_frames;
            return Err(LoadError::CapPeriod { session: name(), found });
        }
    }
    Ok(())
}

/// Refuses a machine whose sessions need more host memory than it may have, before any of them is
/// made: sessions of one large module can be many.
pub(crate) fn memory(spec: &MachineSpec) -> Result<(), LoadError> {
    let needs: Vec<(u64, u64)> =
        spec.modules.iter().map(|module| (memory_bytes(module), table_bytes(module))).collect();
    let (mut memories, mut tables) = (0_u64, 0_u64);
    for session in &spec.sessions {
        let (memory, table) = needs.get(session.module).copied().unwrap_or_default();
        memories = memories.saturating_add(memory);
        tables = tables.saturating_add(table);
    }
    let allowed = spec.limits.machine_memory;
    if memories > allowed {
        return Err(LoadError::MachineMemory { found: memories, allowed });
    }
    if tables > allowed {
        return Err(LoadError::MachineTables { found: tables, allowed });
    }
    Ok(())
}

/// Bytes of the initial memories of an instance of a module. Imports do not count: they are
/// refused.
fn memory_bytes(module: &Module) -> u64 {
    let memories = &module.memories()[module.imported_memories() as usize..];
    memories
        .iter()
        .map(|memory| u64::from(memory.minimum) * wavelock_machine::PAGE_BYTES as u64)
        .sum()
}

/// Bytes of everything else that an instance of a module has for itself.
fn table_bytes(module: &Module) -> u64 {
    let tables = &module.tables()[module.imported_tables() as usize..];
    let elements: u64 = tables.iter().map(|table| u64::from(table.minimum)).sum();
    let segments = module.elements().len() + module.data().len();
    let (functions, types) = (u64::from(module.function_count()), module.types().len() as u64);
    // An element and a global are 8 bytes, a function's address and entry 20, a type's number 4 and
    // the type itself 48.
    8 * elements
        + 12 * module.globals().len() as u64
        + 20 * functions
        + 52 * types
        + segments as u64
}
