//! From a spec to a world: modules linked to the guest interface, sessions instantiated, channels wired, first coroutines published.
//!
//! Everything is checked before anything runs; an error names the session, what was found and what is allowed. Warnings do not
//! stop a machine.

use crate::channel::{Channel, Wiring};
use crate::group::{Group, LaneState, Shared};
use crate::input::{InputEvent, InputQueue, Recipient};
use crate::observe::Chain;
use crate::random::Key;
use crate::session::{Handle, Port, SessionState};
use crate::spec::{MachineSpec, SessionSpec, Span};
use crate::task::{NONE, Task, TaskTable, Wait};
use crate::world::World;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{ChannelId, CoroutineRef, Cycles, HostOperation, HostValue, LaneId, SCHEDULER_COSTS_V1, SessionId};
use wavelock_kernel::{ContextRefusal, Lane, LaneSettings, Policy, Refusal};
use wavelock_machine::{Coroutine, Extern, FunctionAddress, InstanceId, LinkError, Session, SessionError, SessionLimits, StartError};
use wavelock_module::{ExportKind, FunctionType, ImportKind, Module, ValueType};

/// Why a machine could not be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoadError {
    /// The machine has no lane, or more than it may.
    Lanes {
        /// Lanes asked for.
        found: u16,
    },
    /// The machine has no session.
    NoSession,
    /// More sessions than the limit.
    Sessions {
        /// Sessions asked for.
        found: u64,
        /// The limit.
        allowed: u32,
    },
    /// A session's memory at its limit does not fit the machine's.
    MachineMemory {
        /// Bytes all sessions need at load.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// Tables, globals and functions of the sessions do not fit the machine's memory.
    MachineTables {
        /// Bytes all sessions need at load.
        found: u64,
        /// The limit.
        allowed: u64,
    },
    /// A length of time is shorter than can be enforced (semantics 21).
    TooShort {
        /// Which: `frame_cycles`, `wave_cycles`, `wave_picks` or `quantum_cycles`.
        key: &'static str,
        /// What was found.
        found: Cycles,
        /// The least: 2 * (G + switch cost), or one pick.
        least: Cycles,
        /// The longest gap of the modules.
        gap: Cycles,
    },
    /// A frame, wave or quantum is longer than clocks can count with.
    TooLong {
        /// The manifest's key.
        key: &'static str,
        /// What it says.
        found: Cycles,
    },
    /// A session names a lane that there is not.
    NoLane {
        /// The session.
        session: String,
        /// The lane.
        lane: u16,
        /// Lanes there are.
        lanes: u16,
    },
    /// A session has no lane, or one of them twice.
    Placement {
        /// The session.
        session: String,
        /// Its lanes as given.
        lanes: Vec<u16>,
    },
    /// An index names something that the description does not have.
    Reference {
        /// Who names it, with its own name.
        by: String,
        /// What it should be: a module, channel or session.
        what: &'static str,
        /// The index.
        found: u64,
        /// How many there are.
        count: u64,
    },
    /// Imports that nobody provides.
    MissingImports {
        /// The session.
        session: String,
        /// Each of them.
        missing: Vec<MissingImport>,
    },
    /// The module exports neither `_start` nor `main` of type `() -> ()` or `() -> i32`.
    NoEntry {
        /// The session.
        session: String,
        /// What was found under those names.
        found: Option<String>,
    },
    /// A global named as coroutine-local is not there.
    NoGlobal {
        /// The session.
        session: String,
        /// The name.
        global: String,
    },
    /// A channel's capacity is not allowed.
    Capacity {
        /// The channel.
        channel: String,
        /// Its capacity.
        found: u32,
        /// The limit.
        allowed: u32,
    },
    /// A deviation from the policy cannot be one.
    Deviation {
        /// The lane it is about.
        lane: u16,
        /// The pick.
        pick: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A session could not be linked.
    Link {
        /// The session.
        session: String,
        /// Why.
        error: LinkError,
    },
    /// A host function could not be added.
    Session {
        /// The session.
        session: String,
        /// Why.
        error: SessionError,
    },
    /// The first coroutine could not be started.
    Start {
        /// The session.
        session: String,
        /// Why.
        error: StartError,
    },
    /// A machine with contexts counts its waves in picks.
    ContextsNeedCycles {
        /// So many.
        picks: u32,
    },
    /// A context of the manifest was refused.
    Context {
        /// The context.
        context: String,
        /// Why, with the numbers.
        refusal: ContextRefusal,
    },
    /// The scheduler refused the first coroutine.
    Kernel {
        /// The session.
        session: String,
        /// Why.
        refusal: Refusal,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lanes { found } => write!(f, "lanes = {found}: a machine has 1 to {MAX_LANES} lanes"),
            Self::NoSession => write!(f, "the machine has no session: add a [[session]] with a name and a module"),
            Self::Sessions { found, allowed } => write!(f, "{found} sessions: limits.sessions allows {allowed}"),
            Self::MachineMemory { found, allowed } => {
                write!(f, "the sessions' memories take {found} bytes at load: limits.machine_memory allows {allowed}")
            }
            Self::MachineTables { found, allowed } => {
                write!(f, "the sessions' tables, globals and functions take {found} bytes at load: limits.machine_memory allows {allowed}")
            }
            Self::TooShort { key: "wave_picks", .. } => write!(f, "wave_picks = 0: a wave of no picks would never end"),
            Self::TooShort { key, found, least, gap } => write!(
                f,
                "{key} = {}: at least {} can be enforced, 2 * (G + switch) with G = {} of the modules and switch = {}",
                found.0, least.0, gap.0, SCHEDULER_COSTS_V1.switch.0
            ),
            Self::TooLong { key, found } => write!(f, "{key} = {}: at most {} can be counted", found.0, MOST_CYCLES.0),
            Self::NoLane { session, lane, lanes } => {
                write!(f, "session `{session}` is on lane {lane}: there are lanes 0 to {}", lanes.saturating_sub(1))
            }
            Self::Placement { session, lanes } => {
                write!(f, "session `{session}` has lanes {lanes:?}: at least one, and each of them once")
            }
            Self::Reference { by, what, found, count } => {
                write!(f, "{by} names {what} {found}: there are {count}, counted from 0")
            }
            Self::MissingImports { session, missing } => {
                write!(f, "session `{session}` imports what does not exist:")?;
                missing.iter().try_for_each(|import| write!(f, "\n  {import}"))
            }
            Self::NoEntry { session, found: None } => {
                write!(
                    f,
                    "session `{session}`: the module exports neither `_start` nor `main`; one of them must be a function () -> () or () -> i32"
                )
            }
            Self::NoEntry { session, found: Some(found) } => {
                write!(f, "session `{session}`: {found}; an entry is a function () -> () or () -> i32")
            }
            Self::NoGlobal { session, global } => {
                write!(f, "session `{session}`: coroutine_globals names `{global}`, which is neither exported nor in the name section")
            }
            Self::Capacity { channel, found, allowed } => {
                write!(f, "channel `{channel}` has capacity {found}: 1 to limits.channel_capacity = {allowed} are allowed")
            }
            Self::Deviation { lane, pick, why } => write!(f, "the deviation at pick {pick} of lane {lane}: {why}"),
            Self::ContextsNeedCycles { picks } => {
                write!(f, "wave_picks = {picks}: contexts need waves of cycles, because budgets and deadlines are cycles; use wave_cycles")
            }
            Self::Context { context, refusal: ContextRefusal::TargetBound { .. } } => {
                write!(f, "context `{context}`: the session's first coroutine has a context already")
            }
            Self::Context { context, refusal } => write!(f, "context `{context}`: {refusal}"),
            Self::Link { session, error } => write!(f, "session `{session}`: {error}"),
            Self::Session { session, error } => write!(f, "session `{session}`: {error}"),
            Self::Start { session, error } => write!(f, "session `{session}`: the first coroutine cannot start: {error}"),
            Self::Kernel { session, refusal } => write!(f, "session `{session}`: the scheduler refused its first coroutine: {refusal}"),
        }
    }
}

impl core::error::Error for LoadError {}

/// Most lanes a machine may have.
pub const MAX_LANES: u16 = 1024;

/// The longest frame, wave, quantum or period: clocks count thousands of them on every lane.
pub const MOST_CYCLES: Cycles = Cycles(1_000_000_000_000);

/// What is odd about a machine, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Warning {
    /// It spawns, but the compiler's stack pointer was not found, so coroutines would share one shadow stack.
    NoStackPointer {
        /// The session.
        session: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStackPointer { session } => write!(
                f,
                "session `{session}` spawns coroutines, but its `__stack_pointer` was not found: code from C or Rust would share one \
                 shadow stack. Keep the name section, export the global, or name it in coroutine_globals"
            ),
        }
    }
}

/// A world ready to run, and what is odd about it.
pub struct Loaded {
    /// The world.
    pub world: World,
    /// Warnings, in session order.
    pub warnings: Vec<Warning>,
}

impl World {
    /// Makes the machine of `spec`, with its inputs in frame order. `keep_events` keeps each frame's events for a recorder.
    ///
    /// # Errors
    /// See [`LoadError`]; nothing has run.
    pub fn load(spec: MachineSpec, inputs: Vec<InputEvent>, keep_events: bool) -> Result<Loaded, LoadError> {
        check_spec(&spec)?;
        check_inputs(&inputs, spec.sessions.len())?;
        check_memory(&spec)?;
        let mut warnings = Vec::new();
        let mut groups = make_groups(&spec, keep_events);
        let lane_places = groups[0].shared.lane_places.clone();
        let mut session_places = Vec::with_capacity(spec.sessions.len());
        let coming = events_coming(&inputs, spec.sessions.len());
        for (at, session) in spec.sessions.iter().enumerate() {
            let id = SessionId(at as u32);
            let (group, lane) = lane_places[usize::from(session.placement.home())];
            let mut state = make_session(&spec, session, id, &mut warnings)?;
            state.input = InputQueue::new(coming[at], reads_stream_only(&spec.modules[session.module]));
            let group_state = &mut groups[group];
            group_state.local[at] = group_state.sessions.len() as u32;
            group_state.sessions.push(state);
            publish_first(&spec, group_state, lane, id)?;
            session_places.push(group);
        }
        crate::context::grant(&spec, &mut groups, &lane_places)?;
        let wired_senders = wire(&spec, &mut groups, &lane_places, &session_places);
        let mut world = World::assemble(Arc::new(spec), groups, lane_places, session_places, inputs);
        world.wired_senders = wired_senders;
        Ok(Loaded { world, warnings })
    }
}

/// Refuses a machine whose sessions need more host memory than it may have, before any of them is made: sessions of one
/// large module can be many.
fn check_memory(spec: &MachineSpec) -> Result<(), LoadError> {
    let needs: Vec<(u64, u64)> = spec.modules.iter().map(|module| (memory_bytes(module), table_bytes(module))).collect();
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

/// Bytes of the memories that an instance of a module begins with. What it imports does not count: guests bring their own.
fn memory_bytes(module: &Module) -> u64 {
    let memories = &module.memories()[module.imported_memories() as usize..];
    memories.iter().map(|memory| u64::from(memory.minimum) * wavelock_machine::PAGE_BYTES as u64).sum()
}

/// Bytes of everything else that an instance of a module has for itself.
fn table_bytes(module: &Module) -> u64 {
    let tables = &module.tables()[module.imported_tables() as usize..];
    let elements: u64 = tables.iter().map(|table| u64::from(table.minimum)).sum();
    let segments = module.elements().len() + module.data().len();
    let (functions, types) = (u64::from(module.function_count()), module.types().len() as u64);
    // An element and a global are 8 bytes, a function's address and entry 20, a type's number 4 and the type itself 48.
    8 * elements + 12 * module.globals().len() as u64 + 20 * functions + 52 * types + segments as u64
}

/// The longest gap of the modules that sessions use.
fn longest_gap(spec: &MachineSpec) -> Cycles {
    spec.sessions.iter().map(|session| spec.modules[session.module].code().gap()).max().unwrap_or(Cycles::ZERO)
}

pub(crate) fn check_spec(spec: &MachineSpec) -> Result<(), LoadError> {
    if spec.lanes == 0 || spec.lanes > MAX_LANES {
        return Err(LoadError::Lanes { found: spec.lanes });
    }
    if spec.sessions.is_empty() {
        return Err(LoadError::NoSession);
    }
    if spec.sessions.len() as u64 > u64::from(spec.limits.sessions) {
        return Err(LoadError::Sessions { found: spec.sessions.len() as u64, allowed: spec.limits.sessions });
    }
    check_references(spec)?;
    let gap = longest_gap(spec);
    let least = Cycles(2 * (gap.0 + SCHEDULER_COSTS_V1.switch.0));
    let wave = match spec.span {
        Span::Cycles(cycles) => Some(cycles),
        Span::Picks(_) => None,
    };
    let quantum = Some(spec.policy.quantum()).filter(|quantum| *quantum < Cycles::MAX);
    for (key, found) in [("frame_cycles", Some(spec.frame_cycles)), ("wave_cycles", wave), ("quantum_cycles", quantum)] {
        match found {
            Some(found) if found < least => return Err(LoadError::TooShort { key, found, least, gap }),
            Some(found) if found > MOST_CYCLES => return Err(LoadError::TooLong { key, found }),
            _ => {}
        }
    }
    if spec.span == Span::Picks(0) {
        return Err(LoadError::TooShort { key: "wave_picks", found: Cycles(0), least: Cycles(1), gap });
    }
    for session in &spec.sessions {
        check_placement(session, spec.lanes)?;
    }
    for channel in &spec.channels {
        if channel.capacity == 0 || channel.capacity > spec.limits.channel_capacity {
            let (found, allowed) = (channel.capacity, spec.limits.channel_capacity);
            return Err(LoadError::Capacity { channel: channel.name.clone(), found, allowed });
        }
    }
    check_deviations(spec)
}

/// A session has at least one lane, each of its lanes exists and is there once.
fn check_placement(session: &SessionSpec, lanes: u16) -> Result<(), LoadError> {
    let found = session.placement.lanes();
    if let Some(&lane) = found.iter().find(|&&lane| lane >= lanes) {
        return Err(LoadError::NoLane { session: session.name.clone(), lane, lanes });
    }
    let mut seen = alloc::vec![false; usize::from(lanes)];
    let twice = found.iter().any(|&lane| core::mem::replace(&mut seen[usize::from(lane)], true));
    if found.is_empty() || twice {
        return Err(LoadError::Placement { session: session.name.clone(), lanes: found.to_vec() });
    }
    Ok(())
}

/// Every index of a description names something: what is made from it indexes without asking again.
fn check_references(spec: &MachineSpec) -> Result<(), LoadError> {
    let (modules, channels, sessions) = (spec.modules.len(), spec.channels.len(), spec.sessions.len());
    for session in &spec.sessions {
        let name = &session.name;
        refer("module", session.module, modules, || alloc::format!("session `{name}`"))?;
        for (port, channel) in &session.ports {
            refer("channel", *channel, channels, || alloc::format!("port `{port}` of session `{name}`"))?;
        }
    }
    for channel in &spec.channels {
        let by = || alloc::format!("channel `{}`", channel.name);
        refer("session", channel.owner.0 as usize, sessions, by)?;
    }
    for context in &spec.contexts {
        let by = || alloc::format!("context `{}`", context.name);
        refer("session", context.session.0 as usize, sessions, by)?;
    }
    for grant in &spec.grants {
        refer("session", grant.session.0 as usize, sessions, || "a grant".into())?;
    }
    Ok(())
}

/// Every input event is for a session that exists.
fn check_inputs(inputs: &[InputEvent], sessions: usize) -> Result<(), LoadError> {
    for event in inputs {
        if let Recipient::Session(session) = event.recipient {
            let by = || alloc::format!("an input of frame {}", event.frame.0);
            refer("session", session.0 as usize, sessions, by)?;
        }
    }
    Ok(())
}

/// An index that must be below `count`.
fn refer(what: &'static str, found: usize, count: usize, by: impl Fn() -> String) -> Result<(), LoadError> {
    if found < count {
        return Ok(());
    }
    Err(LoadError::Reference { by: by(), what, found: found as u64, count: count as u64 })
}

/// Deviations ascend, on lanes that there are, under a policy that has a place to take them from.
fn check_deviations(spec: &MachineSpec) -> Result<(), LoadError> {
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

/// Lanes that share a session form one group (semantics 14); every other lane is a group of its own.
fn make_groups(spec: &MachineSpec, keep_events: bool) -> Vec<Box<Group>> {
    let mut leader: Vec<u16> = (0..spec.lanes).collect();
    fn find(leader: &mut [u16], lane: u16) -> u16 {
        let next = leader[usize::from(lane)];
        if next == lane {
            return lane;
        }
        let top = find(leader, next);
        leader[usize::from(lane)] = top;
        top
    }
    for session in &spec.sessions {
        for &lane in session.placement.lanes() {
            // Looked up for every lane: joining the last one may have given the home lane another leader.
            let (home, other) = (find(&mut leader, session.placement.home()), find(&mut leader, lane));
            let (low, high) = (home.min(other), home.max(other));
            leader[usize::from(high)] = low;
        }
    }
    let mut sizes: Vec<usize> = Vec::new();
    let mut group_of = alloc::vec![usize::MAX; usize::from(spec.lanes)];
    let lane_places: Arc<[(usize, usize)]> = (0..spec.lanes)
        .map(|lane| {
            let top = usize::from(find(&mut leader, lane));
            if group_of[top] == usize::MAX {
                group_of[top] = sizes.len();
                sizes.push(0);
            }
            let size = &mut sizes[group_of[top]];
            *size += 1;
            (group_of[top], *size - 1)
        })
        .collect();
    let (limits, frame_cycles, lanes, handoff) = (spec.limits, spec.frame_cycles, spec.lanes, spec.handoff);
    let shared = Arc::new(Shared { limits, frame_cycles, lanes, handoff, lane_places: lane_places.clone(), rules: Default::default() });
    let settings = LaneSettings { policy: spec.policy, frame_cycles: spec.frame_cycles, costs: SCHEDULER_COSTS_V1, handoff: spec.handoff };
    let mut groups: Vec<Box<Group>> = sizes.iter().map(|_| Box::new(Group::new(shared.clone(), spec.sessions.len()))).collect();
    for (lane, &(group, _)) in (0..spec.lanes).zip(&*lane_places) {
        let mut kernel = Lane::new(LaneId(lane), settings);
        kernel.set_deviations(spec.deviations_of(lane));
        let state = LaneState::new(lane, kernel, keep_events);
        groups[group].lanes.push(state);
    }
    groups
}

fn make_session(spec: &MachineSpec, session: &SessionSpec, id: SessionId, warnings: &mut Vec<Warning>) -> Result<SessionState, LoadError> {
    let module = &spec.modules[session.module];
    let name = || session.name.clone();
    let mut machine = Session::new(SessionLimits {
        stack_bytes: spec.limits.stack_bytes,
        memory_pages: spec.limits.memory_pages,
        table_elements: spec.limits.table_elements,
        session_stack_bytes: spec.limits.session_stack_bytes,
        ..SessionLimits::default()
    });
    let imports = link(&mut machine, module, &session.name)?;
    let instance = machine.instantiate(module.clone(), &imports).map_err(|error| LoadError::Link { session: name(), error })?;
    let startup = entries(&machine, instance, module).map_err(|found| LoadError::NoEntry { session: name(), found })?;
    let stack_pointer = coroutine_globals(&mut machine, instance, module, session)?;
    let spawns = module.imports().iter().any(|import| import.module == wavelock_abi::WAVELOCK_MODULE && import.name.starts_with("spawn"));
    if spawns && stack_pointer.is_none() && has_shadow_stack(module) {
        warnings.push(Warning::NoStackPointer { session: name() });
    }
    let table = match module.tables().is_empty() {
        true => None,
        false => match machine.resolve(instance, ExportKind::Table(0)) {
            Extern::Table(table) => Some(table),
            _ => None,
        },
    };
    Ok(SessionState {
        id,
        name: name(),
        memory: machine.instance_memory(instance),
        table,
        machine,
        stack_pointer,
        startup,
        lanes: session.placement.lanes().into(),
        priority: session.priority,
        weight: session.weight,
        class: session.class,
        tasks: TaskTable::new(),
        channels: Vec::new(),
        made_channels: 0,
        ports: Vec::new(),
        handles: Vec::new(),
        port_names: Vec::new(),
        args: session.args.clone(),
        env: session.env.iter().map(|(name, value)| alloc::format!("{name}={value}")).collect(),
        input: InputQueue::default(),
        output: Vec::new(),
        log: Vec::new(),
        log_dropped: 0,
        output_chain: Chain::new(),
        closed_streams: 0,
        cycles: 0,
        host_calls: 0,
        profile: None,
        messages: 0,
        exit: 0,
        exiting: false,
        ended: None,
        first_faulted: false,
        faults: Vec::new(),
        capabilities: None,
        calls: crate::call::takes_part(module).then(|| Box::new(crate::call::Calls::new())),
    })
}

/// The value types of a host operation.
fn host_type(operation: HostOperation) -> FunctionType {
    let convert = |values: &[HostValue]| -> Vec<ValueType> {
        values
            .iter()
            .map(|value| match value {
                HostValue::I32 => ValueType::I32,
                HostValue::I64 => ValueType::I64,
            })
            .collect()
    };
    FunctionType::new(&convert(operation.params()), &convert(operation.results()))
}

/// An import that nobody provides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingImport {
    /// The module it is imported from.
    pub module: String,
    /// Its name.
    pub name: String,
    /// As what it is imported, and as what it exists if it does.
    pub wanted: String,
}

impl fmt::Display for MissingImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` `{}` {}", self.module, self.name, self.wanted)
    }
}

/// Whether an import is one of the guest interface, with the type it has there.
#[must_use]
pub fn provided_import(module: &Module, import: usize) -> Option<HostOperation> {
    let wanted = module.imports().get(import)?;
    let ImportKind::Function(kind) = wanted.kind else { return None };
    let operation = HostOperation::find(&wanted.module, &wanted.name)?;
    (module.types().get(kind as usize)? == &host_type(operation)).then_some(operation)
}

/// Finds each import among the host operations; all that are missing are named at once.
fn link(machine: &mut Session, module: &Module, session: &str) -> Result<Vec<Extern>, LoadError> {
    let mut imports = Vec::with_capacity(module.imports().len());
    let mut missing = Vec::new();
    for (at, import) in module.imports().iter().enumerate() {
        match provided_import(module, at) {
            Some(operation) => {
                let function = machine
                    .add_host_function(operation as u16, &host_type(operation), operation.cost())
                    .map_err(|error| LoadError::Session { session: session.into(), error })?;
                imports.push(Extern::Function(function));
            }
            None => {
                let wanted = match import.kind {
                    ImportKind::Function(kind) => {
                        module.types().get(kind as usize).map_or_else(String::new, |kind| alloc::format!("{kind}"))
                    }
                    ImportKind::Table(_) => "a table: guests bring their own".into(),
                    ImportKind::Memory(_) => "a memory: guests bring their own".into(),
                    ImportKind::Global(_) => "a global: guests bring their own".into(),
                };
                let known = HostOperation::find(&import.module, &import.name);
                let hint = known.map_or_else(String::new, |operation| alloc::format!(" (it exists with type {})", host_type(operation)));
                missing.push(MissingImport { module: import.module.clone(), name: import.name.clone(), wanted: wanted + &hint });
            }
        }
    }
    if missing.is_empty() { Ok(imports) } else { Err(LoadError::MissingImports { session: session.into(), missing }) }
}

/// What the first coroutine calls, last first: the start function, `_initialize`, then `_start` or `main` (semantics 8).
fn entries(machine: &Session, instance: InstanceId, module: &Module) -> Result<Vec<FunctionAddress>, Option<String>> {
    let function = |name: &str| match machine.export(instance, name) {
        Some(Extern::Function(function)) => Some(function),
        _ => None,
    };
    let Some((name, main)) = ["_start", "main"].iter().find_map(|name| function(name).map(|main| (*name, main))) else {
        let other = ["_start", "main"].iter().find(|name| module.export(name).is_some());
        return Err(other.map(|name| alloc::format!("export `{name}` is not a function")));
    };
    let kind = machine.function_type(main);
    if !kind.parameters().is_empty() || !(kind.results().is_empty() || kind.results() == [ValueType::I32]) {
        return Err(Some(alloc::format!("export `{name}` has type {kind}")));
    }
    let mut calls = alloc::vec![main];
    if let Some(initialize) = function("_initialize")
        && machine.function_type(initialize).parameters().is_empty()
        && machine.function_type(initialize).results().is_empty()
    {
        calls.push(initialize);
    }
    calls.extend(machine.start_function(instance));
    Ok(calls)
}

/// Names the coroutine-local globals to the machine; returns the stack pointer's place among them.
fn coroutine_globals(
    machine: &mut Session,
    instance: InstanceId,
    module: &Module,
    session: &SessionSpec,
) -> Result<Option<usize>, LoadError> {
    let mut names: Vec<&str> = alloc::vec!["__stack_pointer"];
    names.extend(session.coroutine_globals.iter().map(String::as_str).filter(|name| *name != "__stack_pointer"));
    let mut stack_pointer = None;
    for name in names {
        // A module without a name section has its globals by number only.
        let numbered = || name.parse().ok().filter(|&global: &u32| (global as usize) < module.globals().len());
        let Some(index) = module.find_global(name).or_else(numbered) else {
            if name == "__stack_pointer" && !session.coroutine_globals.iter().any(|named| named == name) {
                continue;
            }
            return Err(LoadError::NoGlobal { session: session.name.clone(), global: name.into() });
        };
        // Without an explicit name, the first coroutine-local global that can hold a pointer counts as the stack pointer.
        let pointer = module.globals().get(index as usize).is_some_and(|global| global.value == ValueType::I32);
        if pointer && (name == "__stack_pointer" || stack_pointer.is_none()) {
            stack_pointer = Some(machine.coroutine_globals().len());
        }
        match machine.resolve(instance, ExportKind::Global(index)) {
            Extern::Global(global) => machine.add_coroutine_global(global),
            _ => unreachable!("a global resolves to a global"),
        }
    }
    Ok(stack_pointer)
}

/// How many input events each session will be given.
fn events_coming(inputs: &[InputEvent], sessions: usize) -> Vec<u64> {
    let all = inputs.iter().filter(|event| event.recipient == Recipient::All).count() as u64;
    let mut coming = alloc::vec![all; sessions];
    for event in inputs {
        if let Recipient::Session(session) = event.recipient {
            coming[session.0 as usize] += 1;
        }
    }
    coming
}

/// Whether a module reads its input as a stream and no other way: then nothing of it is dropped before the first read.
fn reads_stream_only(module: &Module) -> bool {
    let imports = |operation: HostOperation| {
        module.imports().iter().any(|import| import.module == operation.module() && import.name == operation.import())
    };
    imports(HostOperation::FdRead) && !imports(HostOperation::Input)
}

/// Whether code of this module could keep a shadow stack at all: it has a mutable global of 32 bits.
fn has_shadow_stack(module: &Module) -> bool {
    module.globals().iter().any(|global| global.mutable && global.value == ValueType::I32)
}

/// The first coroutine: ready on the session's home lane, with the first of the session's entries to call.
fn publish_first(spec: &MachineSpec, group: &mut Group, lane: usize, id: SessionId) -> Result<(), LoadError> {
    let index = group.local[id.0 as usize] as usize;
    let state = &mut group.sessions[index];
    // The later ones are called when the first has returned: that they can be is checked now.
    for &entry in &state.startup {
        let mut trial =
            Coroutine::start(&state.machine, entry, &[]).map_err(|error| LoadError::Start { session: state.name.clone(), error })?;
        state.machine.retire(&mut trial);
    }
    let first = state.startup.pop().expect("there is an entry");
    let coroutine =
        Coroutine::start(&state.machine, first, &[]).map_err(|error| LoadError::Start { session: state.name.clone(), error })?;
    let kernel = group.lanes[lane].publish(state.spawn(0)).map_err(|refusal| LoadError::Kernel { session: state.name.clone(), refusal })?;
    let key = Key::root(spec.seed, &state.name);
    let lane = group.lanes[lane].id;
    let task = Task { kernel, key, wait: Wait::None };
    let reference = state.tasks.insert(task, lane, coroutine);
    debug_assert_eq!(reference, CoroutineRef::new(0, 0));
    group.live += 1;
    Ok(())
}

/// Makes the wired channels and the ports and credits that lead to them.
fn wire(
    spec: &MachineSpec,
    groups: &mut [Box<Group>],
    lane_places: &[(usize, usize)],
    session_places: &[usize],
) -> BTreeMap<ChannelId, Vec<SessionId>> {
    let mut wired_senders = BTreeMap::new();
    let mut senders: Vec<Vec<usize>> = alloc::vec![Vec::new(); spec.channels.len()];
    let mut owned: Vec<Vec<usize>> = alloc::vec![Vec::new(); spec.sessions.len()];
    for (at, session) in spec.sessions.iter().enumerate() {
        for &(_, channel) in &session.ports {
            if spec.channels[channel].owner.0 as usize != at && senders[channel].last() != Some(&at) {
                senders[channel].push(at);
            }
        }
    }
    let mut ids = Vec::with_capacity(spec.channels.len());
    for (at, channel) in spec.channels.iter().enumerate() {
        owned[channel.owner.0 as usize].push(at);
        let mut lanes: Vec<u16> = senders[at].iter().flat_map(|&sender| spec.sessions[sender].placement.lanes().iter().copied()).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let lanes: Arc<[u16]> = lanes.into();
        let home = spec.sessions[channel.owner.0 as usize].placement.home();
        let owner = owner_of(groups, session_places, channel.owner);
        let id = ChannelId { owner: channel.owner, index: owner.channels.len() as u32 };
        let mut credits = Vec::with_capacity(lanes.len());
        for &number in lanes.iter() {
            let (group, lane) = lane_places[usize::from(number)];
            let line = groups[group].lanes[lane].credit_for(id, lanes.clone(), channel.capacity, false);
            credits.push(line);
        }
        let open_senders = senders[at].len() as u32;
        let wiring = (open_senders > 0).then(|| Box::new(Wiring { lanes, credits, home, free: channel.capacity, open_senders }));
        let owner = owner_of(groups, session_places, channel.owner);
        owner.channels.push(Channel::new(id, channel.capacity, wiring));
        owner.handles.push(Handle::Own(id.index));
        ids.push((id, home));
        wired_senders.insert(id, senders[at].iter().map(|&sender| SessionId(sender as u32)).collect());
    }
    for (at, session) in spec.sessions.iter().enumerate() {
        let (state, lanes) = state_and_lanes(groups, session_places, SessionId(at as u32));
        let mut known = BTreeMap::new();
        // The owner finds its channels under their own names too.
        let own_names = owned[at].iter().map(|&channel| (spec.channels[channel].name.clone(), channel));
        for (name, channel) in session.ports.iter().cloned().chain(own_names) {
            let (id, home) = ids[channel];
            let handle = if id.owner.0 as usize == at {
                id.index as i32
            } else {
                add_port(state, &mut known, id, home, &spec.channels[channel].name, lanes)
            };
            state.port_names.push((name, handle));
        }
        // Of two ports of one name the first counts: the order stays.
        state.port_names.sort_by(|one, other| one.0.cmp(&other.0));
        state.port_names.dedup_by(|later, first| later.0 == first.0);
    }
    wired_senders
}

/// A session and the lanes of its group.
fn state_and_lanes<'a>(
    groups: &'a mut [Box<Group>],
    session_places: &[usize],
    session: SessionId,
) -> (&'a mut SessionState, &'a [LaneState]) {
    let group = &mut *groups[session_places[session.0 as usize]];
    let index = group.local[session.0 as usize] as usize;
    (&mut group.sessions[index], &group.lanes)
}

fn owner_of<'a>(groups: &'a mut [Box<Group>], session_places: &[usize], session: SessionId) -> &'a mut SessionState {
    let group = &mut groups[session_places[session.0 as usize]];
    let index = group.local[session.0 as usize] as usize;
    &mut group.sessions[index]
}

/// A port of a session to another's channel; two names for one channel share it, by `known`.
fn add_port(
    state: &mut SessionState,
    known: &mut BTreeMap<ChannelId, i32>,
    channel: ChannelId,
    home: u16,
    name: &str,
    lanes: &[LaneState],
) -> i32 {
    *known.entry(channel).or_insert_with(|| {
        let find = |own: &u16| lanes.iter().find(|lane| lane.id == *own);
        let line = |own: &u16| find(own).and_then(|lane| lane.credit_lines.get(&channel)).copied();
        let credits = state.lanes.iter().map(|own| line(own).unwrap_or(NONE)).collect();
        state.ports.push(Port { channel, name: name.into(), home, credits, closed: false, sent: Chain::new() });
        state.handles.push(Handle::Port(state.ports.len() as u32 - 1));
        state.handles.len() as i32 - 1
    })
}
