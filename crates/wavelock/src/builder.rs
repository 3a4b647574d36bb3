//! Describing a machine in code, or from a manifest.

use crate::engine::{Engine, Module};
use crate::error::Error;
use crate::host::{Behind, Host};
use crate::machine::Machine;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use wavelock_abi::{Cycles, LatencyClass, Priority, SessionId, Weight};
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_manifest::{Overrides, Policy, Source, machine_spec, nearest, policy_of};
use wavelock_system::{
    ContextSpec, HostImport, Limits, LoadError, Loaded, MachineSpec, NewSession, OwnLimits,
    Placement, World,
};

/// The largest file that is read for a manifest.
const MOST_FILE_BYTES: u64 = 1 << 30;

fn read_file(path: &Path) -> Result<Vec<u8>, Error> {
    let read = || {
        let mut bytes = Vec::new();
        File::open(path)?.take(MOST_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > MOST_FILE_BYTES {
            true => Err(io::Error::other(format!("it has more than {MOST_FILE_BYTES} bytes"))),
            false => Ok(bytes),
        }
    };
    read().map_err(|error| Error::File { path: path.into(), error })
}

/// Cycles of lane time that a session is guaranteed in every period, by a deadline at its end; the
/// machine is refused, with the arithmetic, if the lane cannot guarantee it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Cycles per period.
    pub cycles: Cycles,
    /// The period.
    pub period: Cycles,
}

/// A session to make: a guest with its name, module and place.
///
/// ```
/// use wavelock::{Cycles, Engine, Machine, SessionBuilder};
///
/// let engine = Engine::new(1)?;
/// let guest = engine.module(b"(module (func (export \"_start\")))")?;
/// // At most 100,000 cycles per frame, on lane 1, with a mailbox for others.
/// let server = SessionBuilder::new("server", &guest).lane(1).cap(Cycles(100_000), 1);
/// let server = server.channel("mail", 16);
/// let client = SessionBuilder::new("client", &guest).port("out", "mail").arg("client");
/// let machine = Machine::builder(&engine).lanes(2).session(server).session(client).build()?;
/// assert_eq!(machine.sessions().count(), 2);
/// # Ok::<(), wavelock::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SessionBuilder {
    name: String,
    module: Module,
    lane: Option<u16>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    ports: Vec<(String, String)>,
    channels: Vec<(String, u32)>,
    priority: Priority,
    weight: Weight,
    class: LatencyClass,
    budget: Option<Budget>,
    cap: Option<CapSettings>,
    limits: OwnLimits,
}

impl SessionBuilder {
    /// A session that runs `module` under a name that no other session of the machine has.
    #[must_use]
    pub fn new(name: &str, module: &Module) -> Self {
        Self {
            name: name.into(),
            module: module.clone(),
            lane: None,
            args: Vec::new(),
            env: Vec::new(),
            ports: Vec::new(),
            channels: Vec::new(),
            priority: Priority::default(),
            weight: Weight::default(),
            class: LatencyClass::default(),
            budget: None,
            cap: None,
            limits: OwnLimits::default(),
        }
    }

    /// The lane it runs on. Without it: its number modulo the lanes, and `steal` and `balance` may
    /// move it.
    #[must_use]
    pub fn lane(mut self, lane: u16) -> Self {
        self.lane = Some(lane);
        self
    }

    /// One more argument, as WASI's `args_get` returns them. The first is by custom the name.
    #[must_use]
    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.into());
        self
    }

    /// One more environment variable, as WASI's `environ_get` returns them.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// A port: `port("name")` in the guest finds this channel of another session.
    #[must_use]
    pub fn port(mut self, name: &str, channel: &str) -> Self {
        self.ports.push((name.into(), channel.into()));
        self
    }

    /// A channel that it owns: it receives from it under this name, and sessions with a port to it
    /// send. [`MachineBuilder::channel`] is the same for a session of the machine.
    #[must_use]
    pub fn channel(mut self, name: &str, capacity: u32) -> Self {
        self.channels.push((name.into(), capacity));
        self
    }

    /// The priority of its coroutines, for policies that have priorities.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = Priority(priority);
        self
    }

    /// The weight of its coroutines under [`Policy::Fair`].
    #[must_use]
    pub fn weight(mut self, weight: Weight) -> Self {
        self.weight = weight;
        self
    }

    /// The latency class of its coroutines under [`Policy::Fair`].
    #[must_use]
    pub fn class(mut self, class: LatencyClass) -> Self {
        self.class = class;
        self
    }

    /// Guaranteed lane time, which its first coroutine binds by the name `budget`.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// The most cycles that all its coroutines together use in `frames` frames; beyond them they
    /// are throttled until the next period.
    #[must_use]
    pub fn cap(self, cycles: Cycles, frames: u64) -> Self {
        let overrun = CapOverrun::Throttle;
        self.cap_settings(CapSettings { budget: cycles, period_frames: frames, overrun })
    }

    /// A cap, and what happens to the session when it is used up.
    #[must_use]
    pub fn cap_settings(mut self, cap: CapSettings) -> Self {
        self.cap = Some(cap);
        self
    }

    /// Limits of this session, in place of those of the machine.
    #[must_use]
    pub fn limits(mut self, limits: OwnLimits) -> Self {
        self.limits = limits;
        self
    }
}

impl SessionBuilder {
    /// The session, to be started while the machine runs.
    pub(crate) fn start(self) -> Result<NewSession, Error> {
        if self.budget.is_some() {
            return Err(Error::NoBudget { session: self.name });
        }
        let module = self.module.later();
        Ok(NewSession {
            lane: self.lane,
            priority: self.priority,
            weight: self.weight,
            class: self.class,
            args: self.args,
            env: self.env,
            ports: self.ports,
            channels: self.channels,
            cap: self.cap,
            limits: self.limits,
            ..NewSession::new(&self.name, module)
        })
    }
}

/// Describes a machine, then makes it.
///
/// ```
/// use wavelock::{Cycles, Engine, Error, Machine, Policy, SessionBuilder};
///
/// let engine = Engine::new(2)?;
/// let guest = engine.module(b"(module (func (export \"_start\")))")?;
/// let builder = Machine::builder(&engine)
///     .lanes(4)
///     .frame_cycles(Cycles(4_000_000))
///     .policy(Policy::Fair)
///     .rollback(8)
///     .session(SessionBuilder::new("guest", &guest));
/// let machine = builder.clone().build()?;
/// assert!(machine.session("guest").is_some());
/// // What does not fit is refused with the numbers.
/// let refused = builder.session(SessionBuilder::new("far", &guest).lane(9)).build();
/// assert!(matches!(refused, Err(Error::Load(_))));
/// # Ok::<(), wavelock::Error>(())
/// ```
#[derive(Clone)]
pub struct MachineBuilder {
    engine: Engine,
    spec: MachineSpec,
    modules: Vec<Module>,
    sessions: Vec<SessionBuilder>,
    channels: Vec<(String, String, u32)>,
    policy: Option<Policy>,
    quantum: Option<Cycles>,
    rollback: u64,
    events: bool,
    host: Option<Arc<dyn Behind>>,
}

impl MachineBuilder {
    pub(crate) fn new(engine: &Engine) -> Self {
        Self {
            engine: engine.clone(),
            spec: MachineSpec { live: true, ..MachineSpec::new() },
            modules: Vec::new(),
            sessions: Vec::new(),
            channels: Vec::new(),
            policy: None,
            quantum: None,
            rollback: 0,
            events: false,
            host: None,
        }
    }

    /// Everything that a manifest describes, with its modules read from `folder`. It replaces what
    /// was described before; sessions and channels can be added to it. Machines from manifests are
    /// live only if the manifest or [`MachineBuilder::live`] says so.
    ///
    /// # Errors
    /// [`Error::Manifest`] with every problem and its position, [`Error::File`],
    /// [`Error::Module`].
    pub fn manifest(self, toml: &str, folder: &Path) -> Result<Self, Error> {
        self.read(Source::new("manifest", toml), folder)
    }

    /// [`MachineBuilder::manifest`] of a file; its modules are read relative to it.
    ///
    /// # Errors
    /// As [`MachineBuilder::manifest`].
    pub fn manifest_file(self, path: &Path) -> Result<Self, Error> {
        let source = Source::decode(path.display().to_string(), read_file(path)?)?;
        self.read(source, path.parent().unwrap_or(Path::new("")))
    }

    fn read(mut self, source: Source, folder: &Path) -> Result<Self, Error> {
        let read = wavelock_manifest::read(source, folder, &Overrides::default())?;
        let mut modules = Vec::new();
        for path in &read.manifest.modules {
            modules.push(self.engine.module(&read_file(path)?)?);
        }
        let loaded: Vec<_> =
            modules.iter().map(|module| (module.lowered(), module.bytes())).collect();
        let host = std::mem::take(&mut self.spec.host);
        self.spec = MachineSpec { host, ..machine_spec(&read, &loaded)? };
        self.modules = modules;
        Ok(self)
    }

    /// The number of lanes: virtual CPUs of the model, 1 by default. Unlike threads, they are part
    /// of what the machine computes.
    #[must_use]
    pub fn lanes(mut self, lanes: u16) -> Self {
        self.spec.lanes = lanes;
        self
    }

    /// Cycles of a frame on every lane; 1,000,000 by default.
    #[must_use]
    pub fn frame_cycles(mut self, cycles: Cycles) -> Self {
        self.spec.frame_cycles = cycles;
        self
    }

    /// Cycles of a wave, after which lanes see each other's effects; 100,000 by default.
    #[must_use]
    pub fn wave_cycles(mut self, cycles: Cycles) -> Self {
        self.spec.span = wavelock_system::Span::Cycles(cycles);
        self
    }

    /// The scheduling policy of every lane.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Cycles that a coroutine runs before it is preempted.
    #[must_use]
    pub fn quantum(mut self, cycles: Cycles) -> Self {
        self.quantum = Some(cycles);
        self
    }

    /// The seed of every random stream.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.spec.seed = seed;
        self
    }

    /// The limits on everything that guests can use up.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.spec.limits = limits;
        self
    }

    /// The machine ends after this many frames.
    #[must_use]
    pub fn frames(mut self, frames: u64) -> Self {
        self.spec.max_frames = Some(frames);
        self
    }

    /// Whether the machine takes inputs while it runs, which is the default. One that does not
    /// ends by itself: when its sessions have ended, or when none of them can continue.
    #[must_use]
    pub fn live(mut self, live: bool) -> Self {
        self.spec.live = live;
        self
    }

    /// Frames that can be undone: a frame is confirmed when this many later ones have run, or by
    /// [`Machine::confirm`]. Recorders and observers get confirmed frames only. 0 by default.
    #[must_use]
    pub fn rollback(mut self, frames: u64) -> Self {
        self.rollback = frames;
        self
    }

    /// Keeps the events of each frame, which recording above level `inputs` needs.
    #[must_use]
    pub fn events(mut self, events: bool) -> Self {
        self.events = events;
        self
    }

    /// Gives guests functions of the embedder. A later host replaces it.
    #[must_use]
    pub fn host<S: Clone + Send + Sync + 'static>(mut self, host: Host<S>) -> Self {
        let (imports, behind) = host.shared();
        (self.spec.host, self.host) = (imports, Some(behind));
        self
    }

    /// Adds a session.
    #[must_use]
    pub fn session(mut self, session: SessionBuilder) -> Self {
        self.sessions.push(session);
        self
    }

    /// Adds a channel: the session `owner` receives from it, and sessions with a port to it send.
    #[must_use]
    pub fn channel(mut self, name: &str, owner: &str, capacity: u32) -> Self {
        self.channels.push((name.into(), owner.into(), capacity));
        self
    }

    /// The longest gap between safepoints that modules of sessions started later may have. Without
    /// it, that of the modules the machine is made with.
    #[must_use]
    pub fn most_gap(mut self, cycles: Cycles) -> Self {
        self.spec.most_gap = Some(cycles);
        self
    }

    /// Makes the machine.
    ///
    /// # Errors
    /// [`Error::Load`] with the rule and the numbers; [`Error::Unknown`] for a channel of a
    /// session, or a port to a channel, that does not exist.
    pub fn build(self) -> Result<Machine, Error> {
        let Self { engine, mut spec, mut modules, sessions, channels, .. } = self;
        let own = sessions.iter().flat_map(|of| of.channels.iter().map(move |own| (of, own)));
        let own = own.map(|(of, (name, capacity))| (name.clone(), of.name.clone(), *capacity));
        let channels: Vec<_> = channels.into_iter().chain(own).collect();
        let first = spec.sessions.len();
        for session in &sessions {
            let known = modules.iter().position(|module| module.is(&session.module));
            let module = known.unwrap_or_else(|| {
                modules.push(session.module.clone());
                spec.add_module(session.module.lowered(), session.module.bytes())
            });
            let id = spec.add_session(&session.name, module);
            let made = &mut spec.sessions[id.0 as usize];
            if let Some(lane) = session.lane {
                (made.placement, made.pinned) = (Placement::Lane(lane), true);
            }
            made.args.clone_from(&session.args);
            made.env.clone_from(&session.env);
            (made.priority, made.weight) = (session.priority, session.weight);
            (made.class, made.cap) = (session.class, session.cap);
            made.limits = session.limits;
            if let Some(Budget { cycles, period }) = session.budget {
                spec.contexts.push(ContextSpec::new("budget", id, cycles, period));
            }
        }
        for (name, owner, capacity) in &channels {
            let names = spec.sessions.iter().map(|session| session.name.as_str());
            let owner = SessionId(find("session", owner, names)? as u32);
            let channel = spec.add_channel(name, owner, *capacity);
            let owner = &mut spec.sessions[owner.0 as usize];
            if !owner.ports.iter().any(|(port, _)| port == name) {
                owner.ports.push((name.clone(), channel));
            }
        }
        for (at, session) in sessions.iter().enumerate() {
            for (port, channel) in &session.ports {
                let names = spec.channels.iter().map(|channel| channel.name.as_str());
                let channel = find("channel", channel, names)?;
                spec.sessions[first + at].ports.push((port.clone(), channel));
            }
        }
        if self.policy.is_some() || self.quantum.is_some() {
            let policy = self.policy.unwrap_or(spec.policy.kind());
            let found = self.quantum.unwrap_or(match spec.policy.quantum() {
                Cycles::MAX => MachineSpec::new().policy.quantum(),
                quantum => quantum,
            });
            let gap = spec.modules.iter().map(|module| module.code().gap()).max();
            let share = match spec.policy {
                wavelock_kernel::Policy::Fair(settings) => settings.sharing(),
                _ => wavelock_kernel::Sharing::Session,
            };
            let gap = gap.unwrap_or(Cycles::ZERO);
            let made = policy_of(policy, share, found, gap, spec.frame_cycles);
            spec.policy = made.map_err(|most| Error::Quantum { found, most })?;
        }
        let names: Vec<(String, String)> = spec.host.functions.iter().map(name_of).collect();
        let loaded = World::load(spec, Vec::new(), self.events);
        let Loaded { mut world, warnings } = loaded.map_err(|error| suggest(error, &names))?;
        if let Some(host) = &self.host {
            world.set_host(host.clone().code());
        }
        let warnings = warnings.iter().map(ToString::to_string).collect();
        let (rollback, events) = (self.rollback, self.events);
        Ok(Machine::start(&engine, world, modules, rollback, events, warnings, self.host))
    }
}

/// The position of a name.
fn find<'n>(
    what: &'static str,
    name: &str,
    names: impl Iterator<Item = &'n str>,
) -> Result<usize, Error> {
    let names: Vec<&str> = names.collect();
    names.iter().position(|known| *known == name).ok_or_else(|| Error::Unknown {
        what,
        name: name.into(),
        nearest: nearest(name, names).map(str::to_owned),
    })
}

impl fmt::Debug for MachineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineBuilder").field("spec", &self.spec).finish_non_exhaustive()
    }
}

fn name_of(function: &HostImport) -> (String, String) {
    (function.module.clone(), function.name.clone())
}

/// Adds the nearest function of the host to each import that is missing.
fn suggest(mut error: LoadError, names: &[(String, String)]) -> Error {
    if let LoadError::MissingImports { missing, .. } = &mut error {
        for import in missing {
            let of_module = names.iter().filter(|(module, _)| *module == import.module);
            let near = nearest(&import.name, of_module.map(|(_, name)| name.as_str()));
            let elsewhere = || names.iter().find(|(_, name)| *name == import.name);
            match near {
                Some(near) if near != import.name => {
                    import.wanted += &format!("; did you mean `{near}` of the host?");
                }
                None if let Some((module, name)) = elsewhere() => {
                    import.wanted += &format!("; did you mean `{module}` `{name}` of the host?");
                }
                _ => {}
            }
        }
    }
    error.into()
}
