//! Lanes of sessions whose contexts have a mask: a session is placed on the first lane of the mask,
//! lowest number first, that can promise its context (cpu-authority E.6).
//!
//! Contract: a function of the description alone. The lanes it tries are empty but for contexts, in
//! the order in which loading makes them, so that loading gets the same answers.

use super::LoadError;
use crate::authority::{ContextSpec, MOST_CONTEXTS};
use crate::context::parameters_of;
use crate::spec::{MachineSpec, Placement, Span};
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;
use wavelock_abi::{LaneId, SessionId};
use wavelock_kernel::{ContextRefusal, ContextSettings, Lane};

/// The same description with the sessions of masked contexts on their lanes; `None` if there are no
/// masks, or contexts are refused for another reason anyway.
pub(super) fn place(spec: &MachineSpec) -> Result<Option<MachineSpec>, LoadError> {
    let is_masked = spec.contexts.iter().any(|context| !context.lanes.is_empty());
    let (Some(settings), Span::Cycles(_), true) = (spec.context_settings(), spec.span, is_masked)
    else {
        return Ok(None);
    };
    let mut trial = Trial { spec, settings, lanes: BTreeMap::new(), homes: BTreeMap::new() };
    for context in &spec.contexts {
        trial.admit(context)?;
    }
    let homes = trial.homes;
    let mut placed = spec.clone();
    for (session, home) in homes {
        let session = &mut placed.sessions[session.0 as usize];
        if !matches!(session.placement, Placement::Split(_)) {
            session.placement = Placement::Lane(home);
        }
    }
    Ok(Some(placed))
}

impl MachineSpec {
    /// The same description with every session where loading places it; none of its own if nothing
    /// is placed.
    pub(crate) fn placed(&self) -> Option<Self> {
        place(self).ok().flatten()
    }

    /// By context of the description: the lane that loading puts it on.
    #[must_use]
    pub fn context_lanes(&self) -> Vec<LaneId> {
        let placed = self.placed();
        let sessions = &placed.as_ref().unwrap_or(self).sessions;
        let session_of = |context: &ContextSpec| sessions.get(context.session.0 as usize);
        let home = |context| session_of(context).map_or(0, |session| session.placement.home());
        self.contexts.iter().map(|context| LaneId(home(context))).collect()
    }
}

/// Lanes with the contexts admitted so far.
struct Trial<'a> {
    spec: &'a MachineSpec,
    settings: ContextSettings,
    lanes: BTreeMap<u16, Lane>,
    /// The lanes of sessions that have a context.
    homes: BTreeMap<SessionId, u16>,
}

impl Trial<'_> {
    /// Puts a context on the lane of its session's first one, or on the first of its mask that says
    /// yes.
    fn admit(&mut self, context: &ContextSpec) -> Result<(), LoadError> {
        let session = &self.spec.sessions[context.session.0 as usize];
        let fixed = self.homes.get(&context.session).copied().or_else(|| {
            let may_move = !context.lanes.is_empty() && !session.pinned;
            let is_split = session.placement.lanes().len() > 1;
            (is_split || !may_move).then(|| session.placement.home())
        });
        let mut candidates = match fixed {
            Some(home) => [home].into(),
            None => context.lanes.clone(),
        };
        candidates.sort_unstable();
        if let Some(&lane) = candidates.first()
            && !context.lanes.is_empty()
            && fixed.is_some_and(|home| !context.lanes.contains(&home))
        {
            let (context, lanes) = (context.name.clone(), context.lanes.clone());
            return Err(LoadError::OutsideMask { context, lane, lanes });
        }
        let mut refusals: Vec<(u16, ContextRefusal)> = Vec::new();
        for lane in candidates {
            match self.lane(lane)?.create_context(parameters_of(context)) {
                Ok(_) => {
                    self.homes.insert(context.session, lane);
                    return Ok(());
                }
                Err(refusal) => refusals.push((lane, refusal)),
            }
        }
        match &refusals[..] {
            [(_, refusal)] => {
                Err(LoadError::Context { context: context.name.clone(), refusal: *refusal })
            }
            _ => Err(LoadError::NoLaneOfMask { context: context.name.clone(), refusals }),
        }
    }

    /// A lane that keeps contexts.
    fn lane(&mut self, lane: u16) -> Result<&mut Lane, LoadError> {
        let Self { spec, settings, lanes, .. } = self;
        match lanes.entry(lane) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(vacant) => {
                let mut empty = Lane::new(LaneId(lane), spec.lane_settings());
                empty
                    .reserve_contexts(*settings, MOST_CONTEXTS)
                    .map_err(|refusal| LoadError::Machine { refusal })?;
                Ok(vacant.insert(empty))
            }
        }
    }
}
