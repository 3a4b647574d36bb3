//! Canonical bytes of a spec: the start of the run digest, and the machine of a trace.
//!
//! Every number is a word of eight bytes; texts and lists follow their length, so two different
//! specs never have the same bytes. Modules are named by their hashes; their own bytes are stored
//! separately. Later additions are optional sections at the end, so that machines without them keep
//! their bytes and digests. Decoding treats its input as untrusted.

use crate::authority::{ContextSpec, Grant, GrantSpec};
use crate::codec::{Codec, CodecError, Reader, Width, Writer, codes, converted, record, variants};
use crate::errors::errors;
use crate::functions::{HostImport, HostImports, HostKind, HostNumber};
use crate::island::IslandSpec;
use crate::lease::LeaseSpec;
use crate::spec::{ChannelSpec, Limits, MachineSpec, OwnLimits, Placement, SessionSpec, Span};
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_abi::{COST_TABLE_VERSION, Cycles, GUEST_INTERFACE_VERSION};
use wavelock_kernel::{
    CapOverrun, CapSettings, Deviation, FairSettings, Fallback, Policy, PriorityRule, Sharing,
};
use wavelock_module::Module;
use wavelock_trace::TRACE_VERSION;

/// The versions at the start of a spec's bytes, by name.
const VERSIONS: [(&str, u32); 3] = [
    ("cost table", COST_TABLE_VERSION),
    ("guest interface", GUEST_INTERFACE_VERSION),
    ("trace format", TRACE_VERSION),
];

/// The optional sections, in this order, each after its number and only if it is not empty:
/// deviations from the policy; contexts and grants; a `session_stack_bytes` that is not the
/// default; caps of sessions; `fair` shared by sessions; lanes and fallbacks of contexts; leases; a
/// machine that is live; the longest gap of later modules; limits of sessions; functions of the
/// embedder; islands.
const DEVIATIONS: u64 = 1;
const AUTHORITY: u64 = 2;
const SESSION_STACK: u64 = 3;
const CAPS: u64 = 4;
const SHARING: u64 = 5;
const MASKS: u64 = 6;
const LEASES: u64 = 7;
const LIVE: u64 = 8;
const MOST_GAP: u64 = 9;
const OWN_LIMITS: u64 = 10;
const HOST: u64 = 12;
const ISLANDS: u64 = 14;

errors! {
    /// Why bytes are not a spec that this build can run.
    #[derive(Copy)]
    SpecError {
        /// Made with another version of something the run depends on.
        Version {
            /// Of what.
            what: &'static str,
            /// The version found.
            found: u64,
            /// This build's.
            expected: u32,
        } => "{what} version {found}: this build has version {expected}",
        /// The bytes end too early, or a value is out of its range.
        Malformed {
            /// The offset of the error.
            offset: usize,
        } => "byte {offset} of the machine's description cannot be decoded",
        /// A module is not the one the run was made with.
        Module {
            /// Its number.
            module: usize,
        } => "module {module} is missing, or its bytes are not those the run was made with",
    }
}

impl From<CodecError> for SpecError {
    fn from(error: CodecError) -> Self {
        Self::Malformed { offset: error.at() }
    }
}

record! {
    Limits {
        coroutines, stack_bytes, memory_pages, table_elements, message_bytes, channel_capacity,
        channels, select, sessions, output_bytes, log_bytes, machine_memory,
        session_stack_bytes = default_session_stack,
    }
    SessionSpec {
        name, module, placement, pinned, priority, weight, class, args, env, ports,
        coroutine_globals, cap = no_cap, limits = no_limits,
    }
    OwnLimits {
        coroutines, stack_bytes, session_stack_bytes, memory_pages, channels, output_bytes,
    }
    CapSettings { budget, period_frames, overrun }
    ChannelSpec { name, owner, capacity }
    Deviation { pick, rank }
    ContextSpec {
        name, session, budget, period, deadline, refills, overrun, activation,
        lanes = no_mask, fallback = best_effort,
    }
    GrantSpec { session, grant }
    IslandSpec { name, members, path, memory_pages, period, deadline, bounds }
    LeaseSpec {
        name, session, context, lane, expires_frames, revocation, wakes, at_start,
    }
    HostImports { name, version, functions }
    HostImport { module, name, kind, params, results, cost }
}

codes! {
    Grant: |code| [Grant::Control, Grant::Policy, Grant::Isolation].get(usize::from(code)).copied();
    CapOverrun: CapOverrun::from_code;
    Sharing: Sharing::from_code;
    HostKind: HostKind::from_code;
    HostNumber: HostNumber::from_code;
}

/// Caps are in a section of their own.
const fn no_cap(_: &mut Reader<'_>) -> Result<Option<CapSettings>, CodecError> {
    Ok(None)
}

/// Limits of sessions are in a section of their own.
fn no_limits(_: &mut Reader<'_>) -> Result<OwnLimits, CodecError> {
    Ok(OwnLimits::default())
}

/// Masks and fallbacks are in a section of their own.
const fn no_mask(_: &mut Reader<'_>) -> Result<Vec<u16>, CodecError> {
    Ok(Vec::new())
}

const fn best_effort(_: &mut Reader<'_>) -> Result<Fallback, CodecError> {
    Ok(Fallback::BestEffort)
}

fn default_session_stack(_: &mut Reader<'_>) -> Result<u64, CodecError> {
    Ok(Limits::SESSION_STACK_BYTES)
}

variants! {
    Span {
        0 Cycles(cycles),
        1 Picks(picks),
    }
}

converted! {
    Placement as Vec<u16>: |placement| placement.lanes().to_vec(), |lanes| match lanes[..] {
        [] => None,
        [lane] => Some(Placement::Lane(lane)),
        _ => Some(Placement::Split(lanes)),
    }, "a session without a lane";
}

// A policy is a code and three numbers, of which it uses the first few.
converted! {
    Policy as (u8, [Cycles; 3]): |policy| {
        let first = |quantum: Cycles| [quantum, Cycles::ZERO, Cycles::ZERO];
        match policy {
            Policy::Cooperative => (0, [Cycles::ZERO; 3]),
            Policy::RoundRobin { quantum } => (1, first(*quantum)),
            Policy::Priority { rule, quantum } => (2 + *rule as u8, first(*quantum)),
            Policy::ProgressAware { quantum } => (5, first(*quantum)),
            Policy::Fair(fair) => (6, [fair.base_slice(), fair.least_slice(), fair.round()]),
        }
    }, |(code, [quantum, least, round])| Some(match code {
        0 => Policy::Cooperative,
        1 => Policy::RoundRobin { quantum },
        2 => Policy::Priority { rule: PriorityRule::FixedMap, quantum },
        3 => Policy::Priority { rule: PriorityRule::Aging, quantum },
        4 => Policy::Priority { rule: PriorityRule::TokenWeighted, quantum },
        5 => Policy::ProgressAware { quantum },
        6 => Policy::Fair(FairSettings::new(quantum, least, round).ok()?),
        _ => return None,
    }), "a policy";
}

impl MachineSpec {
    /// Canonical bytes of everything the run is a function of, inputs and the modules' own bytes
    /// aside. Control inputs do not change them.
    #[must_use]
    pub fn identity(&self) -> Vec<u8> {
        self.origin.as_ref().map_or_else(|| self.own_identity(), |origin| origin.identity())
    }

    /// Canonical bytes of the description as control inputs have left it.
    pub(crate) fn own_identity(&self) -> Vec<u8> {
        let mut out = Writer::new(Width::Word);
        VERSIONS.iter().for_each(|(_, version)| version.write(&mut out));
        (self.lanes, self.policy, self.frame_cycles).write(&mut out);
        (self.span, self.seed).write(&mut out);
        let max_frames = self.max_frames.map_or(0, |frames| frames.saturating_add(1));
        let moves = u8::from(self.steal) | u8::from(self.balance) << 1;
        (max_frames, self.handoff, moves).write(&mut out);
        self.limits.write(&mut out);
        out.count(self.module_hashes.len());
        self.module_hashes.iter().for_each(|hash| out.raw(hash));
        self.sessions.write(&mut out);
        self.channels.write(&mut out);
        if !self.deviations.is_empty() {
            Codec::write(&DEVIATIONS, &mut out);
            self.deviations.write(&mut out);
        }
        if self.grants_time() {
            Codec::write(&AUTHORITY, &mut out);
            self.contexts.write(&mut out);
            self.grants.write(&mut out);
        }
        if self.limits.session_stack_bytes != Limits::SESSION_STACK_BYTES {
            (SESSION_STACK, self.limits.session_stack_bytes).write(&mut out);
        }
        if self.has_caps() {
            (CAPS, self.caps()).write(&mut out);
        }
        if self.policy.sharing() != Sharing::Coroutine {
            (SHARING, self.policy.sharing()).write(&mut out);
        }
        if !self.masks().is_empty() {
            (MASKS, self.masks()).write(&mut out);
        }
        if !self.leases.is_empty() {
            Codec::write(&LEASES, &mut out);
            self.leases.write(&mut out);
        }
        if self.live {
            Codec::write(&LIVE, &mut out);
        }
        if let Some(most_gap) = self.most_gap {
            (MOST_GAP, most_gap).write(&mut out);
        }
        if !self.own_limits().is_empty() {
            (OWN_LIMITS, self.own_limits()).write(&mut out);
        }
        if !self.host.functions.is_empty() {
            Codec::write(&HOST, &mut out);
            self.host.write(&mut out);
        }
        if !self.islands.is_empty() {
            (ISLANDS, self.islands.clone()).write(&mut out);
        }
        out.bytes
    }

    /// The spec of these bytes, with its modules and their hashes in order.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn from_identity(
        bytes: &[u8],
        modules: Vec<(Arc<Module>, [u8; 32])>,
    ) -> Result<Self, SpecError> {
        let (mut spec, input) = Self::parse(bytes)?;
        let (modules, found): (Vec<_>, Vec<_>) = modules.into_iter().unzip();
        let different = (0..spec.module_hashes.len().max(found.len()))
            .find(|&at| spec.module_hashes.get(at) != found.get(at));
        if let Some(module) = different {
            return Err(SpecError::Module { module });
        }
        spec.modules = modules;
        let known = crate::load::check_references(&spec).is_ok();
        input.check("an index that names nothing", known)?;
        Ok(spec)
    }

    /// The spec of these bytes, which control inputs have made of this one: with its modules, and
    /// those of its library.
    pub(crate) fn amended_by(&self, bytes: &[u8]) -> Result<Self, SpecError> {
        let (mut spec, input) = Self::parse(bytes)?;
        for (module, hash) in spec.module_hashes.iter().enumerate() {
            spec.modules.push(self.find_module(hash).ok_or(SpecError::Module { module })?);
        }
        spec.library.clone_from(&self.library);
        let known = crate::load::check_references(&spec).is_ok();
        input.check("an index that names nothing", known)?;
        Ok(spec)
    }

    /// The spec of these bytes, without its modules.
    fn parse(bytes: &[u8]) -> Result<(Self, Reader<'_>), SpecError> {
        let mut input = Reader::new(bytes, Width::Word);
        for (what, expected) in VERSIONS {
            let found = Codec::read(&mut input)?;
            if found != u64::from(expected) {
                return Err(SpecError::Version { what, found, expected });
            }
        }
        let mut spec = Self::new();
        (spec.lanes, spec.policy, spec.frame_cycles) = Codec::read(&mut input)?;
        (spec.span, spec.seed) = Codec::read(&mut input)?;
        let (max_frames, handoff, moves): (u64, bool, u8) = Codec::read(&mut input)?;
        input.check("how sessions move", moves <= 3)?;
        spec.max_frames = max_frames.checked_sub(1);
        (spec.handoff, spec.steal, spec.balance) = (handoff, moves & 1 == 1, moves & 2 == 2);
        spec.limits = Codec::read(&mut input)?;
        for _ in 0..input.count()? {
            let hash = input.take(32)?;
            spec.module_hashes.push(core::array::from_fn(|at| hash[at]));
        }
        (spec.sessions, spec.channels) = Codec::read(&mut input)?;
        spec.read_sections(&mut input)?;
        Ok((spec, input))
    }

    /// The caps by session, ascending.
    fn caps(&self) -> Vec<(usize, CapSettings)> {
        let caps = self.sessions.iter().enumerate();
        caps.filter_map(|(at, session)| Some((at, session.cap?))).collect()
    }

    /// Gives sessions their caps, ascending.
    fn set_caps(&mut self, caps: &[(usize, CapSettings)]) -> bool {
        for &(at, cap) in caps {
            match self.sessions.get_mut(at) {
                Some(session) => session.cap = Some(cap),
                None => return false,
            }
        }
        !caps.is_empty() && self.caps() == caps
    }

    /// Sessions with limits of their own, ascending.
    fn own_limits(&self) -> Vec<(usize, OwnLimits)> {
        let all = self.sessions.iter().map(|session| session.limits).enumerate();
        all.filter(|(_, limits)| *limits != OwnLimits::default()).collect()
    }

    /// Gives sessions their own limits, ascending.
    fn set_limits(&mut self, limits: &[(usize, OwnLimits)]) -> bool {
        for &(at, own) in limits {
            let Some(session) = self.sessions.get_mut(at) else { return false };
            session.limits = own;
        }
        !limits.is_empty() && self.own_limits() == limits
    }

    /// Lanes and fallbacks of contexts that have other ones than the default, ascending.
    fn masks(&self) -> Vec<(usize, (Vec<u16>, Fallback))> {
        let contexts = self.contexts.iter().enumerate();
        let others = contexts.filter(|(_, context)| {
            !context.lanes.is_empty() || context.fallback != Fallback::BestEffort
        });
        others.map(|(at, context)| (at, (context.lanes.clone(), context.fallback))).collect()
    }

    /// Gives contexts their lanes and fallbacks, ascending.
    fn set_masks(&mut self, masks: &[(usize, (Vec<u16>, Fallback))]) -> bool {
        for (at, (lanes, fallback)) in masks {
            let Some(context) = self.contexts.get_mut(*at) else { return false };
            (context.lanes, context.fallback) = (lanes.clone(), *fallback);
        }
        !masks.is_empty() && self.masks() == masks
    }

    fn read_sections(&mut self, input: &mut Reader<'_>) -> Result<(), CodecError> {
        let mut last = 0;
        while !input.is_at_end() {
            let section: u64 = Codec::read(input)?;
            input.check("a section out of order", last < section)?;
            last = section;
            let is_needed = match section {
                DEVIATIONS => {
                    self.deviations = Codec::read(input)?;
                    !self.deviations.is_empty()
                }
                AUTHORITY => {
                    (self.contexts, self.grants) = Codec::read(input)?;
                    self.grants_time()
                }
                SESSION_STACK => {
                    self.limits.session_stack_bytes = Codec::read(input)?;
                    self.limits.session_stack_bytes != Limits::SESSION_STACK_BYTES
                }
                CAPS => {
                    let caps: Vec<_> = Codec::read(input)?;
                    self.set_caps(&caps)
                }
                SHARING => {
                    let sharing = Codec::read(input)?;
                    if let Policy::Fair(settings) = &mut self.policy {
                        *settings = settings.shared_by(sharing);
                    }
                    self.policy.sharing() != Sharing::Coroutine
                }
                MASKS => {
                    let masks: Vec<_> = Codec::read(input)?;
                    self.set_masks(&masks)
                }
                LEASES => {
                    self.leases = Codec::read(input)?;
                    !self.leases.is_empty()
                }
                LIVE => {
                    self.live = true;
                    true
                }
                MOST_GAP => {
                    self.most_gap = Some(Codec::read(input)?);
                    true
                }
                OWN_LIMITS => {
                    let limits: Vec<_> = Codec::read(input)?;
                    self.set_limits(&limits)
                }
                HOST => {
                    self.host = Codec::read(input)?;
                    !self.host.functions.is_empty()
                }
                ISLANDS => {
                    self.islands = Codec::read(input)?;
                    !self.islands.is_empty()
                }
                _ => false,
            };
            input.check("an empty or unknown section", is_needed)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wavelock_abi::LatencyClass;

    fn sample() -> MachineSpec {
        let mut spec = MachineSpec {
            lanes: 3,
            seed: 9,
            max_frames: Some(0),
            steal: true,
            balance: true,
            span: Span::Picks(1),
            ..MachineSpec::new()
        };
        spec.policy = Policy::Fair(
            FairSettings::new(Cycles(10_000), Cycles(9_000), Cycles(100_000)).expect("in range"),
        );
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
        let overrun = CapOverrun::Throttle;
        second.cap = Some(CapSettings { budget: Cycles(9_999), period_frames: 7, overrun });
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
        assert_eq!(again.sessions[1].cap, sample().sessions[1].cap);
        let parts = [0, 1].map(|at| again.sessions[1].cap_at(at).map(|cap| cap.budget.0));
        assert_eq!(parts, [Some(5_000), Some(4_999)], "the remainder is the first lane's");
        let mut twice = sample().identity();
        let section = twice.len() - 5 * 8;
        twice[section + 8] = 2;
        let cap: Vec<u8> = twice[section + 16..].into();
        twice.extend(cap);
        assert!(MachineSpec::from_identity(&twice, modules()).is_err(), "a session has one cap");
        let mut shorter = sample();
        shorter.sessions[1].cap = None;
        let uncapped = shorter.identity();
        let plain = MachineSpec { deviations: Vec::new(), ..shorter }.identity();
        let sections = [plain.len(), uncapped.len()];
        for end in (0..bytes.len()).filter(|end| !sections.contains(end)) {
            assert!(MachineSpec::from_identity(&bytes[..end], modules()).is_err());
        }
    }

    #[test]
    fn limits_of_sessions_are_in_a_section_of_their_own() {
        let plain = sample().identity();
        let mut limited = sample();
        limited.sessions[0].limits.memory_pages = Some(3);
        limited.sessions[1].limits = OwnLimits {
            coroutines: Some(4),
            session_stack_bytes: Some(1 << 40),
            ..OwnLimits::default()
        };
        let bytes = limited.identity();
        assert_eq!(bytes[..plain.len()], plain, "a machine without them keeps its bytes");
        let again = MachineSpec::from_identity(&bytes, modules()).expect("own bytes");
        for (found, expected) in again.sessions.iter().zip(&limited.sessions) {
            assert_eq!(found.limits, expected.limits);
        }
        let over = again.sessions[1].limits.over(&again.limits);
        assert_eq!((over.coroutines, over.memory_pages), (4, again.limits.memory_pages));
        for end in plain.len() + 1..bytes.len() {
            assert!(MachineSpec::from_identity(&bytes[..end], modules()).is_err());
        }
    }

    #[test]
    fn a_lane_that_sessions_share_is_named_in_a_section_of_its_own() {
        let flat = sample();
        let Policy::Fair(settings) = flat.policy else { panic!("the sample is fair") };
        let policy = Policy::Fair(settings.shared_by(Sharing::Session));
        let shared = MachineSpec { policy, ..sample() };
        let (flat, bytes) = (flat.identity(), shared.identity());
        assert_eq!(bytes[..flat.len()], flat, "a flat one keeps its bytes");
        assert_eq!(bytes.len(), flat.len() + 16);
        let again = MachineSpec::from_identity(&bytes, modules()).expect("own bytes");
        assert_eq!((again.policy, again.identity()), (policy, bytes.clone()));
        let mut coroutines = bytes.clone();
        coroutines[flat.len() + 8] = Sharing::Coroutine as u8;
        assert!(MachineSpec::from_identity(&coroutines, modules()).is_err(), "an empty section");
        let mut round_robin = sample();
        round_robin.policy = Policy::RoundRobin { quantum: Cycles(9) };
        let mut other = round_robin.identity();
        other.extend_from_slice(&bytes[flat.len()..]);
        assert!(MachineSpec::from_identity(&other, modules()).is_err(), "not under `fair`");
    }

    #[test]
    fn other_versions_and_modules_are_refused_by_name() {
        let mut bytes = sample().identity();
        let missing = MachineSpec::from_identity(&bytes, Vec::new());
        assert_eq!(missing.err(), Some(SpecError::Module { module: 0 }));
        bytes[8] = 7;
        let other = MachineSpec::from_identity(&bytes, modules());
        assert_eq!(
            other.err(),
            Some(SpecError::Version {
                what: "guest interface",
                found: 7,
                expected: GUEST_INTERFACE_VERSION
            })
        );
    }
}
