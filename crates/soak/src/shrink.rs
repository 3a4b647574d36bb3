//! Shrinks a machine while its runs still differ: greedy, in passes, until no change keeps the
//! difference.
//!
//! A failure may be flaky because of threads, so a change counts as "still differs" if one of
//! [`TRIES`] tries does. Every change gives a machine that loads: sessions are renumbered in
//! channels and ports, and removed lanes are mapped to the remaining ones.

use crate::trial::{Difference, Driver, sequential, try_case};
use wavelock_abi::{Cycles, LatencyClass, Priority, SessionId, Weight};
use wavelock_generate::{Case, Turns};
use wavelock_kernel::Policy;
use wavelock_system::{OwnLimits, Placement, Recipient};

/// Runs of one smaller machine before it counts as equal.
const TRIES: u32 = 3;

/// Maximum number of machines tried.
const MOST_TRIED: u64 = 2_000;

/// The size of a machine, which shrinking reduces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size {
    /// Sessions.
    pub sessions: usize,
    /// Wired channels.
    pub channels: usize,
    /// Ports of all sessions.
    pub ports: usize,
    /// Lanes.
    pub lanes: u16,
    /// Maximum number of frames.
    pub frames: u64,
    /// Maximum turns of an actor.
    pub turns: u32,
    /// Input events.
    pub inputs: usize,
    /// Number of other settings that are not the default.
    pub oddities: usize,
}

impl Size {
    /// The size of a machine.
    #[must_use]
    pub fn of(case: &Case) -> Self {
        let spec = &case.spec;
        let odd = |session: &wavelock_system::SessionSpec| {
            usize::from(session.pinned)
                + usize::from(matches!(session.placement, Placement::Split(_)))
                + usize::from(session.priority != Priority::default())
                + usize::from(session.weight != Weight::default())
                + usize::from(session.class != LatencyClass::default())
                + usize::from(session.cap.is_some())
                + usize::from(session.limits != OwnLimits::default())
        };
        Self {
            sessions: spec.sessions.len(),
            channels: spec.channels.len(),
            ports: spec.sessions.iter().map(|session| session.ports.len()).sum(),
            lanes: spec.lanes,
            frames: spec.max_frames.unwrap_or(u64::MAX),
            turns: case.turns.least + case.turns.spread,
            inputs: case.inputs.len(),
            oddities: spec.sessions.iter().map(odd).sum::<usize>()
                + spec.contexts.len()
                + spec.grants.len()
                + usize::from(spec.steal)
                + usize::from(spec.balance)
                + usize::from(spec.handoff)
                + usize::from(!matches!(spec.policy, Policy::RoundRobin { .. })),
        }
    }
}

/// The smallest machine found whose runs differ, its difference, and the number of machines tried.
#[must_use]
pub fn shrink(
    case: Case,
    difference: Difference,
    workers: usize,
    driver: Driver<'_>,
) -> (Case, Difference, u64) {
    let (mut best, mut what, mut tried) = (case, difference, 0);
    loop {
        let before = Size::of(&best);
        for smaller in changes(&best) {
            // An earlier change of this pass may have made a later one of the list impossible; each
            // is applied to the best so far.
            let Some(candidate) =
                smaller(&best).filter(|candidate| Size::of(candidate) < Size::of(&best))
            else {
                continue;
            };
            if tried >= MOST_TRIED {
                return (best, what, tried);
            }
            tried += 1;
            if let Some(still) = differs(&candidate, workers, driver) {
                (best, what) = (candidate, still);
            }
        }
        if Size::of(&best) == before {
            return (best, what, tried);
        }
    }
}

fn differs(case: &Case, workers: usize, driver: Driver<'_>) -> Option<Difference> {
    // A change can leave a lane with contexts that admission control refuses.
    wavelock_system::World::load(case.spec.clone(), case.inputs.clone(), false).ok()?;
    let expected = sequential(case);
    (0..TRIES).find_map(|_| try_case(case, &expected, workers, driver).err())
}

type Change = Box<dyn Fn(&Case) -> Option<Case>>;

/// The changes to try, those that remove most first.
fn changes(case: &Case) -> Vec<Change> {
    let sessions = case.spec.sessions.len();
    let mut list: Vec<Change> = Vec::new();
    let halves = [sessions / 2, sessions / 4];
    for part in halves.into_iter().filter(|&part| part > 1) {
        list.push(Box::new(move |case| keep_sessions(case, |index| index >= part)));
        list.push(Box::new(move |case| keep_sessions(case, |index| index + part < sessions)));
    }
    for gone in (0..sessions).rev() {
        list.push(Box::new(move |case| keep_sessions(case, |index| index != gone)));
    }
    for gone in (0..case.spec.channels.len()).rev() {
        list.push(Box::new(move |case| drop_channel(case, gone)));
    }
    for lanes in [1, case.spec.lanes / 2, case.spec.lanes - 1] {
        list.push(Box::new(move |case| fold_lanes(case, lanes)));
    }
    let frames = case.spec.max_frames.unwrap_or(64);
    for fewer in [frames / 4, frames / 2, frames.saturating_sub(1)] {
        list.push(Box::new(move |case| {
            with(case, |case| case.spec.max_frames = Some(fewer.max(1)))
        }));
    }
    let Turns { least, spread } = case.turns;
    for turns in [
        (least / 2, 1),
        (least, 1),
        (least / 2, spread),
        (least.saturating_sub(1), spread),
        (least, spread / 2),
    ] {
        list.push(Box::new(move |case| {
            Some(case.with_turns(Turns { least: turns.0, spread: turns.1.max(1) }))
        }));
    }
    for gone in (0..case.spec.contexts.len()).rev() {
        list.push(Box::new(move |case| with(case, |case| drop_at(&mut case.spec.contexts, gone))));
    }
    for gone in (0..case.spec.grants.len()).rev() {
        list.push(Box::new(move |case| with(case, |case| drop_at(&mut case.spec.grants, gone))));
    }
    list.push(Box::new(|case| with(case, |case| case.inputs.clear())));
    list.push(Box::new(|case| with(case, |case| case.spec.steal = false)));
    list.push(Box::new(|case| with(case, |case| case.spec.balance = false)));
    list.push(Box::new(|case| with(case, |case| case.spec.handoff = false)));
    let quantum = Cycles(10_000).min(case.spec.frame_cycles);
    list.push(Box::new(move |case| {
        with(case, |case| case.spec.policy = Policy::RoundRobin { quantum })
    }));
    for index in 0..sessions {
        list.push(Box::new(move |case| plain_session(case, index)));
        for port in (0..case.spec.sessions[index].ports.len()).rev() {
            list.push(Box::new(move |case| drop_port(case, index, port)));
        }
    }
    list
}

/// Removes one item, if it still exists.
fn drop_at<T>(items: &mut Vec<T>, gone: usize) {
    if gone < items.len() {
        items.remove(gone);
    }
}

fn with(case: &Case, change: impl Fn(&mut Case)) -> Option<Case> {
    let mut case = case.clone();
    change(&mut case);
    Some(case)
}

/// Keeps some sessions, with the channels they own, on the lanes that a manifest would place them
/// on.
fn keep_sessions(case: &Case, keep: impl Fn(usize) -> bool) -> Option<Case> {
    let kept: Vec<usize> = (0..case.spec.sessions.len()).filter(|&index| keep(index)).collect();
    if kept.is_empty() || kept.len() == case.spec.sessions.len() {
        return None;
    }
    let mut small = case.clone();
    small.spec.sessions = kept.iter().map(|&index| case.spec.sessions[index].clone()).collect();
    let number = |old: SessionId| {
        kept.iter().position(|&index| index == old.0 as usize).map(|new| SessionId(new as u32))
    };
    for gone in (0..case.spec.channels.len()).rev() {
        match number(case.spec.channels[gone].owner) {
            Some(owner) => small.spec.channels[gone].owner = owner,
            None => small = drop_channel(&small, gone)?,
        }
    }
    small
        .spec
        .contexts
        .retain_mut(|context| number(context.session).map(|new| context.session = new).is_some());
    small
        .spec
        .grants
        .retain_mut(|grant| number(grant.session).map(|new| grant.session = new).is_some());
    small.inputs.retain_mut(|event| match &mut event.recipient {
        Recipient::All => true,
        Recipient::Session(session) => number(*session).map(|new| *session = new).is_some(),
    });
    place(&mut small);
    Some(small)
}

/// Places sessions that are not pinned by their number.
fn place(case: &mut Case) {
    let lanes = case.spec.lanes;
    for (index, session) in case.spec.sessions.iter_mut().enumerate() {
        if let (false, Placement::Lane(lane)) = (session.pinned, &mut session.placement) {
            *lane = (index % usize::from(lanes)) as u16;
        }
    }
}

fn drop_channel(case: &Case, gone: usize) -> Option<Case> {
    if gone >= case.spec.channels.len() {
        return None;
    }
    let mut small = case.clone();
    small.spec.channels.remove(gone);
    for session in &mut small.spec.sessions {
        session.ports.retain(|(_, channel)| *channel != gone);
        session
            .ports
            .iter_mut()
            .filter(|(_, channel)| *channel > gone)
            .for_each(|(_, channel)| *channel -= 1);
    }
    Some(small)
}

fn drop_port(case: &Case, session: usize, port: usize) -> Option<Case> {
    let mut small = case.clone();
    let ports = &mut small.spec.sessions.get_mut(session)?.ports;
    if port >= ports.len() {
        return None;
    }
    ports.remove(port);
    Some(small)
}

fn fold_lanes(case: &Case, lanes: u16) -> Option<Case> {
    if lanes == 0 || lanes >= case.spec.lanes {
        return None;
    }
    let mut small = case.clone();
    small.spec.lanes = lanes;
    for session in &mut small.spec.sessions {
        match &mut session.placement {
            Placement::Lane(lane) => *lane %= lanes,
            Placement::Split(split) => {
                split.iter_mut().for_each(|lane| *lane %= lanes);
                split.dedup();
                if let [lane] = split[..] {
                    (session.placement, session.pinned) = (Placement::Lane(lane), true);
                }
            }
        }
    }
    for context in &mut small.spec.contexts {
        context.lanes.iter_mut().for_each(|lane| *lane %= lanes);
        context.lanes.sort_unstable();
        context.lanes.dedup();
    }
    place(&mut small);
    Some(small)
}

fn plain_session(case: &Case, index: usize) -> Option<Case> {
    let mut small = case.clone();
    let session = small.spec.sessions.get_mut(index)?;
    (session.priority, session.weight, session.class) =
        (Priority::default(), Weight::default(), LatencyClass::default());
    (session.pinned, session.cap) = (false, None);
    session.limits = OwnLimits::default();
    session.placement = Placement::Lane(session.placement.home());
    place(&mut small);
    Some(small)
}
