//! Canonical bytes of a spec: what the run digest begins with, and what a trace keeps to run the machine again.
//!
//! Fixed widths, strings and lists with their length, so two different specs never give the same bytes. Modules stand by their hashes; their
//! own bytes travel beside. Decoding treats its input as untrusted.

use crate::authority::{ContextSpec, Grant, GrantSpec};
use crate::spec::{ChannelSpec, Limits, MachineSpec, Placement, SessionSpec, Span};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{COST_TABLE_VERSION, Cycles, GUEST_INTERFACE_VERSION, LatencyClass, Priority, SessionId, Weight};
use wavelock_kernel::{Activation, Deviation, FairSettings, OverrunPolicy, Policy, PriorityRule};
use wavelock_module::Module;
use wavelock_trace::TRACE_VERSION;

/// The versions a spec's bytes begin with, by name.
const VERSIONS: [(&str, u32); 3] =
    [("cost table", COST_TABLE_VERSION), ("guest interface", GUEST_INTERFACE_VERSION), ("trace format", TRACE_VERSION)];

/// What stands before the list of deviations. A machine without any has no such list, so most identities do not know of it.
const DEVIATIONS: u64 = 1;

/// What stands before contexts and grants, in a machine that has any.
const AUTHORITY: u64 = 2;

/// What stands before `session_stack_bytes`, in a machine where it is not the default.
const SESSION_STACK: u64 = 3;

/// Why bytes are not a spec that this build can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecError {
    /// Made with another version of something the run depends on.
    Version {
        /// Of what.
        what: &'static str,
        /// The version found.
        found: u64,
        /// This build's.
        expected: u32,
    },
    /// The bytes end too early, or a value is out of its range.
    Malformed {
        /// Where.
        offset: usize,
    },
    /// A module is not the one the run was made with.
    Module {
        /// Its number.
        module: usize,
    },
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { what, found, expected } => write!(f, "{what} version {found}: this build has version {expected}"),
            Self::Malformed { offset } => write!(f, "byte {offset} of the machine's description: not what should stand there"),
            Self::Module { module } => write!(f, "module {module} is missing, or its bytes are not those the run was made with"),
        }
    }
}

impl core::error::Error for SpecError {}

impl MachineSpec {
    /// Canonical bytes of everything the run is a function of, inputs and the modules' own bytes aside.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        VERSIONS.iter().for_each(|(_, version)| out.number(u64::from(*version)));
        out.number(u64::from(self.lanes));
        out.policy(&self.policy);
        out.number(self.frame_cycles.0);
        match self.span {
            Span::Cycles(cycles) => out.pair(0, cycles.0),
            Span::Picks(picks) => out.pair(1, u64::from(picks)),
        }
        out.number(self.seed);
        out.number(self.max_frames.map_or(0, |frames| frames.saturating_add(1)));
        // Balance came later and shares its word with steal, so that machines without it are what they were.
        out.pair(u64::from(self.handoff), u64::from(self.steal) | u64::from(self.balance) << 1);
        limit_words(&self.limits).iter().for_each(|&word| out.number(word));
        out.list(&self.module_hashes, |out, hash| out.0.extend_from_slice(hash));
        out.list(&self.sessions, Writer::session);
        out.list(&self.channels, |out, channel| {
            out.text(&channel.name);
            out.pair(u64::from(channel.owner.0), u64::from(channel.capacity));
        });
        if !self.deviations.is_empty() {
            out.number(DEVIATIONS);
            out.list(&self.deviations, |out, (lane, deviation)| {
                out.number(u64::from(*lane));
                out.pair(deviation.pick, u64::from(deviation.rank));
            });
        }
        if self.grants_time() {
            out.number(AUTHORITY);
            out.list(&self.contexts, Writer::context);
            out.list(&self.grants, |out, grant| out.pair(u64::from(grant.session.0), grant.grant as u64));
        }
        if self.limits.session_stack_bytes != Limits::SESSION_STACK_BYTES {
            out.pair(SESSION_STACK, self.limits.session_stack_bytes);
        }
        out.0
    }

    /// The spec of these bytes, with its modules and their hashes in order.
    ///
    /// # Errors
    /// See [`SpecError`].
    // Long: one field after the other, in the order of the bytes.
    pub fn from_identity(bytes: &[u8], modules: Vec<(Arc<Module>, [u8; 32])>) -> Result<Self, SpecError> {
        let mut input = Reader { bytes, offset: 0 };
        for (what, expected) in VERSIONS {
            let found = input.number()?;
            if found != u64::from(expected) {
                return Err(SpecError::Version { what, found, expected });
            }
        }
        let lanes = input.small()?;
        let policy = input.policy()?;
        let frame_cycles = Cycles(input.number()?);
        let span = match input.number()? {
            0 => Span::Cycles(Cycles(input.number()?)),
            1 => Span::Picks(input.small()?),
            _ => return Err(input.malformed()),
        };
        let seed = input.number()?;
        let max_frames = input.number()?.checked_sub(1);
        let handoff = input.flag()?;
        let (steal, balance) = match input.number()? {
            moves @ 0..=3 => (moves & 1 == 1, moves & 2 == 2),
            _ => return Err(input.malformed()),
        };
        let mut limits = input.limits()?;
        let module_hashes = input.list(Reader::hash)?;
        let sessions = input.list(Reader::session)?;
        let channels =
            input.list(|input| Ok(ChannelSpec { name: input.text()?, owner: SessionId(input.small()?), capacity: input.small()? }))?;
        let mut deviations = Vec::new();
        let (mut contexts, mut grants) = (Vec::new(), Vec::new());
        let mut section = input.next_section()?;
        if section == DEVIATIONS {
            let error = input.malformed();
            deviations = input.list(|input| Ok((input.small()?, Deviation { pick: input.number()?, rank: input.small()? })))?;
            if deviations.is_empty() {
                return Err(error);
            }
            section = input.next_section()?;
        }
        if section == AUTHORITY {
            contexts = input.list(Reader::context)?;
            grants = input.list(Reader::grant)?;
            if contexts.is_empty() && grants.is_empty() {
                return Err(input.malformed());
            }
            section = input.next_section()?;
        }
        if section == SESSION_STACK {
            limits.session_stack_bytes = input.number()?;
            if limits.session_stack_bytes == Limits::SESSION_STACK_BYTES {
                return Err(input.malformed());
            }
            section = input.next_section()?;
        }
        if section != 0 {
            return Err(input.malformed());
        }
        if input.offset != bytes.len() {
            return Err(input.malformed());
        }
        let (modules, found): (Vec<_>, Vec<_>) = modules.into_iter().unzip();
        let different = (0..module_hashes.len().max(found.len())).find(|&at| module_hashes.get(at) != found.get(at));
        if let Some(module) = different {
            return Err(SpecError::Module { module });
        }
        let named = |session: SessionId| (session.0 as usize) < sessions.len();
        if !contexts.iter().all(|context: &ContextSpec| named(context.session))
            || !grants.iter().all(|grant: &GrantSpec| named(grant.session))
        {
            return Err(input.malformed());
        }
        let known = |session: &SessionSpec| session.module < modules.len() && session.ports.iter().all(|(_, port)| *port < channels.len());
        if !sessions.iter().all(known) || !channels.iter().all(|channel| (channel.owner.0 as usize) < sessions.len()) {
            return Err(input.malformed());
        }
        Ok(Self {
            lanes,
            policy,
            frame_cycles,
            span,
            seed,
            max_frames,
            handoff,
            steal,
            balance,
            limits,
            modules,
            module_hashes,
            sessions,
            channels,
            contexts,
            grants,
            deviations,
        })
    }
}

/// The limits as numbers, in one order for both directions.
fn limit_words(limits: &Limits) -> [u64; 12] {
    let small = [
        limits.coroutines,
        limits.stack_bytes,
        limits.memory_pages,
        limits.table_elements,
        limits.message_bytes,
        limits.channel_capacity,
        limits.channels,
        limits.select,
        limits.sessions,
        limits.output_bytes,
        limits.log_bytes,
    ];
    let mut words = [limits.machine_memory; 12];
    words[..11].iter_mut().zip(small).for_each(|(word, small)| *word = u64::from(small));
    words
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn pair(&mut self, first: u64, second: u64) {
        self.number(first);
        self.number(second);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    fn list<T>(&mut self, items: &[T], each: fn(&mut Self, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|item| each(self, item));
    }

    /// A code and three numbers, whatever the policy needs of them.
    fn policy(&mut self, policy: &Policy) {
        let (code, numbers) = match policy {
            Policy::Cooperative => (0, [Cycles::ZERO; 3]),
            Policy::RoundRobin { quantum } => (1, [*quantum, Cycles::ZERO, Cycles::ZERO]),
            Policy::Priority { rule, quantum } => (2 + *rule as u64, [*quantum, Cycles::ZERO, Cycles::ZERO]),
            Policy::ProgressAware { quantum } => (5, [*quantum, Cycles::ZERO, Cycles::ZERO]),
            Policy::Fair(settings) => (6, [settings.base_slice(), settings.least_slice(), settings.round()]),
        };
        self.number(code);
        numbers.iter().for_each(|number| self.number(number.0));
    }

    fn context(&mut self, context: &ContextSpec) {
        self.text(&context.name);
        self.pair(u64::from(context.session.0), context.budget.0);
        self.pair(context.period.0, context.deadline.0);
        self.number(u64::from(context.refills));
        self.pair(context.overrun as u64, context.activation as u64);
    }

    fn session(&mut self, session: &SessionSpec) {
        self.text(&session.name);
        self.number(session.module as u64);
        self.list(session.placement.lanes(), |out, lane| out.number(u64::from(*lane)));
        self.pair(u64::from(session.pinned), u64::from(session.priority.0));
        self.pair(u64::from(session.weight.get()), session.class as u64);
        self.list(&session.args, |out, text| out.text(text));
        self.list(&session.env, |out, (name, value)| {
            out.text(name);
            out.text(value);
        });
        self.list(&session.ports, |out, (name, channel)| {
            out.text(name);
            out.number(*channel as u64);
        });
        self.list(&session.coroutine_globals, |out, text| out.text(text));
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl Reader<'_> {
    fn context(&mut self) -> Result<ContextSpec, SpecError> {
        let (name, session) = (self.text()?, SessionId(self.small()?));
        let (budget, period, deadline) = (Cycles(self.number()?), Cycles(self.number()?), Cycles(self.number()?));
        let refills = self.small()?;
        let overrun = OverrunPolicy::from_code(self.small()?).ok_or(self.malformed())?;
        let activation = match self.number()? {
            0 => Activation::Sporadic,
            1 => Activation::ConstantBandwidth,
            _ => return Err(self.malformed()),
        };
        Ok(ContextSpec { name, session, budget, period, deadline, refills, overrun, activation })
    }

    fn grant(&mut self) -> Result<GrantSpec, SpecError> {
        let session = SessionId(self.small()?);
        let grant = match self.number()? {
            0 => Grant::Control,
            1 => Grant::Policy,
            _ => return Err(self.malformed()),
        };
        Ok(GrantSpec { session, grant })
    }

    const fn malformed(&self) -> SpecError {
        SpecError::Malformed { offset: self.offset }
    }

    fn take(&mut self, length: usize) -> Result<&[u8], SpecError> {
        let end = self.offset.checked_add(length).filter(|&end| end <= self.bytes.len()).ok_or(self.malformed())?;
        let taken = &self.bytes[self.offset..end];
        self.offset = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u64, SpecError> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(core::array::from_fn(|at| bytes[at])))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Result<T, SpecError> {
        let error = self.malformed();
        T::try_from(self.number()?).map_err(|_| error)
    }

    fn flag(&mut self) -> Result<bool, SpecError> {
        let error = self.malformed();
        match self.number()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(error),
        }
    }

    fn text(&mut self) -> Result<String, SpecError> {
        let error = self.malformed();
        let length = self.small()?;
        let bytes = self.take(length)?;
        core::str::from_utf8(bytes).map(String::from).map_err(|_| error)
    }

    /// What stands before the next list that not every machine has; 0 at the end.
    fn next_section(&mut self) -> Result<u64, SpecError> {
        if self.offset < self.bytes.len() { self.number() } else { Ok(0) }
    }

    fn hash(&mut self) -> Result<[u8; 32], SpecError> {
        let bytes = self.take(32)?;
        Ok(core::array::from_fn(|at| bytes[at]))
    }

    /// A list: every item takes at least eight bytes, so its length is bounded by what is left.
    fn list<T>(&mut self, each: fn(&mut Self) -> Result<T, SpecError>) -> Result<Vec<T>, SpecError> {
        let error = self.malformed();
        let count: usize = self.small()?;
        if count > (self.bytes.len() - self.offset) / 8 {
            return Err(error);
        }
        (0..count).map(|_| each(self)).collect()
    }

    fn policy(&mut self) -> Result<Policy, SpecError> {
        let error = self.malformed();
        let code = self.number()?;
        let [quantum, least, round] = [Cycles(self.number()?), Cycles(self.number()?), Cycles(self.number()?)];
        Ok(match code {
            0 => Policy::Cooperative,
            1 => Policy::RoundRobin { quantum },
            2 => Policy::Priority { rule: PriorityRule::FixedMap, quantum },
            3 => Policy::Priority { rule: PriorityRule::Aging, quantum },
            4 => Policy::Priority { rule: PriorityRule::TokenWeighted, quantum },
            5 => Policy::ProgressAware { quantum },
            6 => Policy::Fair(FairSettings::new(quantum, least, round).map_err(|_| error)?),
            _ => return Err(error),
        })
    }

    fn limits(&mut self) -> Result<Limits, SpecError> {
        Ok(Limits {
            coroutines: self.small()?,
            stack_bytes: self.small()?,
            memory_pages: self.small()?,
            table_elements: self.small()?,
            message_bytes: self.small()?,
            channel_capacity: self.small()?,
            channels: self.small()?,
            select: self.small()?,
            sessions: self.small()?,
            output_bytes: self.small()?,
            log_bytes: self.small()?,
            machine_memory: self.number()?,
            session_stack_bytes: Limits::SESSION_STACK_BYTES,
        })
    }

    fn session(&mut self) -> Result<SessionSpec, SpecError> {
        let (name, module) = (self.text()?, self.small()?);
        let lanes: Vec<u16> = self.list(Self::small)?;
        let placement = match lanes[..] {
            [] => return Err(self.malformed()),
            [lane] => Placement::Lane(lane),
            _ => Placement::Split(lanes),
        };
        let (pinned, priority) = (self.flag()?, Priority(self.small()?));
        let error = self.malformed();
        let weight = Weight::new(self.small()?).ok_or(error)?;
        let class = *LatencyClass::ALL.get(self.small::<usize>()?).ok_or(error)?;
        Ok(SessionSpec {
            name,
            module,
            placement,
            pinned,
            priority,
            weight,
            class,
            args: self.list(Self::text)?,
            env: self.list(|input| Ok((input.text()?, input.text()?)))?,
            ports: self.list(|input| Ok((input.text()?, input.small()?)))?,
            coroutine_globals: self.list(Self::text)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> MachineSpec {
        let mut spec =
            MachineSpec { lanes: 3, seed: 9, max_frames: Some(0), steal: true, balance: true, span: Span::Picks(1), ..MachineSpec::new() };
        spec.policy = Policy::Fair(FairSettings::new(Cycles(10_000), Cycles(9_000), Cycles(100_000)).expect("in range"));
        let module = spec.add_module(Arc::new(Module::default()), b"one");
        let first = spec.add_session("first", module);
        spec.add_session("second", module);
        let channel = spec.add_channel("results", first, 64);
        let second = &mut spec.sessions[1];
        second.placement = Placement::Split([2, 0].into());
        second.ports.push(("out".into(), channel));
        second.args.push("a".into());
        second.env.push(("K".into(), "v".into()));
        second.class = LatencyClass::Batch;
        spec.deviations.push((2, Deviation { pick: 7, rank: 1 }));
        spec
    }

    fn modules() -> Vec<(Arc<Module>, [u8; 32])> {
        alloc::vec![(Arc::new(Module::default()), *blake3::hash(b"one").as_bytes())]
    }

    #[test]
    fn a_spec_survives_its_bytes() {
        let bytes = sample().identity();
        let again = MachineSpec::from_identity(&bytes, modules()).expect("own bytes");
        assert_eq!(again.identity(), bytes);
        assert_eq!((again.max_frames, again.sessions[1].placement.home()), (Some(0), 2));
        assert_eq!(again.deviations, sample().deviations);
        let plain = MachineSpec { deviations: Vec::new(), ..sample() }.identity();
        for end in (0..bytes.len()).filter(|&end| end != plain.len()) {
            assert!(MachineSpec::from_identity(&bytes[..end], modules()).is_err());
        }
    }

    #[test]
    fn other_versions_and_modules_are_refused_by_name() {
        let mut bytes = sample().identity();
        let missing = MachineSpec::from_identity(&bytes, Vec::new());
        assert_eq!(missing.err(), Some(SpecError::Module { module: 0 }));
        bytes[8] = 7;
        let other = MachineSpec::from_identity(&bytes, modules());
        assert_eq!(other.err(), Some(SpecError::Version { what: "guest interface", found: 7, expected: GUEST_INTERFACE_VERSION }));
    }
}
