//! Authority over time: the manifest's grants, and each session's table of capabilities.
//!
//! Contract: a guest names a capability by a handle of its own session: a slot and its generation.
//! A handle that was never given out, or whose capability was removed, is refused and recorded; a
//! guest cannot forge one. Weights and latency classes change only through a policy capability;
//! contexts are made only through a control capability, on its lane. A machine whose manifest
//! grants nothing has no tables.

use crate::spec::MachineSpec;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{ContextRef, Cycles, LaneId, LeaseRef, SessionId};
use wavelock_kernel::{Activation, ContextSettings, Fallback, OverrunPolicy};

/// Capabilities a session can have at once.
pub(crate) const MOST_CAPABILITIES: usize = 1 << 10;

/// Contexts a lane keeps at most.
pub const MOST_CONTEXTS: u32 = 256;

/// The name under which `capability` finds the control capability of a session's lane.
pub(crate) const CONTROL_NAME: &str = "control";
/// The name under which `capability` finds the policy capability.
pub(crate) const POLICY_NAME: &str = "policy";
/// The name under which `capability` finds the isolation capability.
pub(crate) const ISOLATION_NAME: &str = "isolation";

/// A context that the manifest makes and binds to the first coroutine of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContextSpec {
    /// Its name, for `capability` and reports.
    pub name: String,
    /// The session it is for; it is on that session's home lane.
    pub session: SessionId,
    /// Cycles per period.
    pub budget: Cycles,
    /// The period.
    pub period: Cycles,
    /// Cycles from a release to its deadline.
    pub deadline: Cycles,
    /// Refills that it can hold separately.
    pub refills: u8,
    /// What happens when a refill is used up.
    pub overrun: OverrunPolicy,
    /// When a refill is in use.
    pub activation: Activation,
    /// The lanes it may be on: its session is placed on the first that can promise it. Empty: that
    /// of its session.
    pub lanes: Vec<u16>,
    /// What its holder does when it is revoked.
    pub fallback: Fallback,
}

impl ContextSpec {
    /// A context with the manifest's defaults: due at the end of its period, four refills,
    /// throttled, sporadic.
    #[must_use]
    pub fn new(name: &str, session: SessionId, budget: Cycles, period: Cycles) -> Self {
        let (overrun, activation) = (OverrunPolicy::Throttle, Activation::Sporadic);
        Self {
            name: name.into(),
            session,
            budget,
            period,
            deadline: period,
            refills: 4,
            overrun,
            activation,
            lanes: Vec::new(),
            fallback: Fallback::BestEffort,
        }
    }
}

/// What a session may do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Grant {
    /// Make contexts on its home lane.
    Control = 0,
    /// Change weights, latency classes and priorities of its own coroutines.
    Policy = 1,
    /// Ask for leases of the machine, and end them.
    Isolation = 2,
}

/// A grant of the manifest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantSpec {
    /// The session.
    pub session: SessionId,
    /// The grant.
    pub grant: Grant,
}

impl MachineSpec {
    /// Whether the machine has contexts or grants.
    #[must_use]
    pub fn grants_time(&self) -> bool {
        !self.contexts.is_empty() || !self.grants.is_empty()
    }

    /// Whether a session has, or may make, contexts: such a session does not move.
    pub(crate) fn owns_time(&self, session: SessionId) -> bool {
        self.contexts.iter().any(|context| context.session == session)
            || self.grants.iter().any(|grant| grant.session == session)
    }

    /// The settings of lanes with contexts; `None` when no session has or may make any.
    pub(crate) fn context_settings(&self) -> Option<ContextSettings> {
        let makes = self.grants.iter().any(|grant| grant.grant == Grant::Control);
        if self.contexts.is_empty() && !makes {
            return None;
        }
        let wave = match self.span {
            crate::spec::Span::Cycles(cycles) if self.lanes > 1 => Some(cycles),
            _ => None,
        };
        Some(ContextSettings { gap: self.longest_gap(), wave })
    }
}

/// What a handle names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Capability {
    /// The session's home lane: contexts may be made there.
    Control,
    /// The shares of the session's coroutines may be changed.
    Policy,
    /// A context on the session's home lane.
    Context(ContextRef),
    /// Leases of the machine may be asked for.
    Isolation,
    /// A lease that the session asked for.
    Lease(LeaseRef),
}

/// One slot of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CapabilityEntry {
    pub(crate) generation: u16,
    pub(crate) capability: Option<Capability>,
}

/// The capabilities of a session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Capabilities {
    pub(crate) entries: Vec<CapabilityEntry>,
    /// Names of the manifest with their handles. Not state: they follow from the spec.
    pub(crate) names: Vec<(String, i32)>,
}

impl Capabilities {
    /// Adds a capability and returns its handle; `None` when the table is full.
    pub(crate) fn add(&mut self, capability: Capability) -> Option<i32> {
        let free = self
            .entries
            .iter()
            .position(|entry| entry.capability.is_none() && entry.generation < i16::MAX as u16);
        let slot = match free {
            Some(slot) => slot,
            None if self.entries.len() < MOST_CAPABILITIES => {
                self.entries.push(CapabilityEntry { generation: 0, capability: None });
                self.entries.len() - 1
            }
            None => return None,
        };
        self.entries[slot].capability = Some(capability);
        Some(i32::from(self.entries[slot].generation) << 16 | slot as i32)
    }

    /// What a handle names; `None` when it is stale or was never given out.
    pub(crate) fn get(&self, handle: i32) -> Option<Capability> {
        let entry = self
            .entries
            .get(handle as usize & 0xffff)
            .filter(|entry| handle >= 0 && i32::from(entry.generation) == handle >> 16);
        entry.and_then(|entry| entry.capability)
    }

    /// Removes a capability: its handle is stale. A slot that used up its generations is not used
    /// again.
    pub(crate) fn remove(&mut self, handle: i32) {
        if let Some(entry) = self.entries.get_mut(handle as usize & 0xffff) {
            entry.capability = None;
            entry.generation = entry.generation.saturating_add(1);
        }
    }

    /// Removes the lease of a lane: its next one has another handle.
    pub(crate) fn forget_lease(&mut self, lane: LaneId) {
        for entry in &mut self.entries {
            if matches!(entry.capability, Some(Capability::Lease(lease)) if lease.lane == lane) {
                entry.capability = None;
                entry.generation = entry.generation.saturating_add(1);
            }
        }
    }

    pub(crate) fn named(&self, name: &[u8]) -> Option<i32> {
        self.names.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, handle)| *handle)
    }

    /// The handle of a context, if the session still has one.
    pub(crate) fn handle_of(&self, context: ContextRef) -> Option<i32> {
        let slot = self
            .entries
            .iter()
            .position(|entry| entry.capability == Some(Capability::Context(context)))?;
        Some(i32::from(self.entries[slot].generation) << 16 | slot as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_unforgeable_within_their_table() {
        let mut table = Capabilities::default();
        let first = table.add(Capability::Control).expect("room");
        let second = table.add(Capability::Policy).expect("room");
        assert_eq!(
            (table.get(first), table.get(second)),
            (Some(Capability::Control), Some(Capability::Policy))
        );
        table.remove(first);
        assert_eq!(table.get(first), None);
        let third = table.add(Capability::Context(ContextRef::new(3, 1))).expect("room");
        assert_ne!(third, first, "the slot is the same, the generation is not");
        assert_eq!(table.get(first), None);
        for forged in [-1, i32::MIN, i32::MAX, 2, 1 << 16 | 1, 7 << 16] {
            assert_eq!(table.get(forged), None, "{forged}");
        }
        while table.add(Capability::Control).is_some() {}
        assert_eq!(table.entries.len(), MOST_CAPABILITIES);
    }
}
