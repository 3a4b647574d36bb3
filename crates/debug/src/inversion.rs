//! Priority inversion: a coroutine of high rank waits for one that is queued behind coroutines of
//! lower rank.
//!
//! Contract: an inversion is reported only if the waiter, were it ready, would run before a
//! coroutine that is queued ahead of the one it waits for, or if that one is throttled. Rank is a
//! context's deadline, or a priority under the policies that order by one; `fair` and FIFO policies
//! have no ranks, so there only holders of contexts can suffer an inversion. If several coroutines
//! could end a wait, the one that would run first counts.

use crate::names::show;
use crate::time;
use crate::why::{CandidateRow, chain, holders, tagged};
use crate::words;
use std::fmt::Write as _;
use wavelock_abi::{CoroutineName, LaneId, SessionId};
use wavelock_kernel::{Candidate, DecisionKey, Policy, PriorityRule, State};
use wavelock_system::{ContextSummary, CoroutineLook, World};

/// Maximum number of listed coroutines ahead; the rest are counted.
const LISTED: usize = 8;
/// Maximum number of coroutines examined by one search.
const LOOKED_AT: usize = 4_096;

/// One inversion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inversion {
    /// The waiter.
    pub waiter: String,
    /// Its rank, in words.
    pub rank: String,
    /// The chain of waits, from the waiter to the coroutine that is not blocked.
    pub chain: Vec<String>,
    /// Why that coroutine does not run.
    pub reason: String,
    /// The first few coroutines ahead of it that the waiter outranks.
    pub ahead: Vec<CandidateRow>,
    /// The number of such coroutines.
    pub ahead_count: u64,
    /// The effect that donation would have.
    pub donation: String,
}

impl Inversion {
    /// The inversion as text.
    pub(crate) fn lines(&self) -> String {
        let mut text =
            format!("  inversion  {} ({}): {}\n", self.chain.join(" -> "), self.rank, self.reason);
        for row in &self.ahead {
            let _ = writeln!(text, "  behind     {} ({})", row.coroutine, row.key);
        }
        let _ = writeln!(text, "  donation   {}", self.donation);
        text
    }
}

/// The rank of a coroutine, were it ready.
enum Rank {
    Deadline(u64, Box<ContextSummary>),
    Priority(u64),
}

impl Rank {
    fn of(world: &World, name: CoroutineName, look: &CoroutineLook) -> Option<Self> {
        if let Some(context) = world.context_of(name).or_else(|| world.context_lent_by(name)) {
            let clock = world.lane_clock(context.lane)?;
            let from = context.view.ring.head().at.max(clock);
            return Some(Self::Deadline(
                from.saturating_add(context.view.parameters.deadline).0,
                Box::new(context),
            ));
        }
        match world.spec().policy {
            Policy::Priority { rule: PriorityRule::FixedMap | PriorityRule::Aging, .. } => {
                Some(Self::Priority(u64::from(look.priority.0)))
            }
            _ => None,
        }
    }

    const fn goes_before(&self, key: DecisionKey) -> bool {
        match (self, key) {
            (Self::Deadline(own, _), DecisionKey::Deadline { deadline, .. }) => *own < deadline,
            (Self::Deadline(..), _) => true,
            (Self::Priority(own), DecisionKey::Class { class, .. }) => *own > class as u64,
            (Self::Priority(own), DecisionKey::Aged { aged, .. }) => *own > aged,
            (Self::Priority(_), DecisionKey::Background { .. }) => true,
            (Self::Priority(_), _) => false,
        }
    }

    fn words(&self, world: &World) -> String {
        match self {
            Self::Deadline(deadline, context) => {
                let name = time::context_name(
                    world,
                    context.lane.0,
                    context.view.context,
                    context.name.as_deref(),
                );
                format!("context {name}, due at {deadline} if it were released now")
            }
            Self::Priority(priority) => format!("priority {priority}"),
        }
    }
}

/// The inversion that a coroutine suffers now, if it does.
pub(crate) fn inversion(world: &World, name: CoroutineName) -> Option<Inversion> {
    let look = world.look(name)?;
    look.waiting.as_ref()?;
    let rank = Rank::of(world, name, &look)?;
    let (mut names, is_cycle) = chain(world, name);
    if is_cycle || names.len() < 2 {
        return None;
    }
    // Of the coroutines that could end the last wait of the chain, take the one that would run
    // first.
    let before_last = *names.get(names.len() - 2)?;
    let waiting = world.look(before_last)?.waiting?;
    let runnable = holders(world, &waiting).into_iter().take(LOOKED_AT).filter_map(|name| {
        let look = world.look(name)?;
        Some((queue_position(world, name, &look)?, name))
    });
    let (standing, last) = runnable.min_by_key(|(standing, _)| {
        standing.ahead.len() + usize::from(standing.is_held) * LOOKED_AT
    })?;
    *names.last_mut()? = last;
    // A coroutine that runs on the waiter's own context, lent along the call, has the waiter's
    // rank.
    if let (Rank::Deadline(_, own), Some(held)) = (&rank, world.context_of(last))
        && (own.lane, own.view.context) == (held.lane, held.view.context)
    {
        return None;
    }
    let outranked: Vec<&Candidate> =
        standing.ahead.iter().filter(|candidate| rank.goes_before(candidate.key)).collect();
    let held_back = standing.is_held && matches!(rank, Rank::Deadline(..));
    if outranked.is_empty() && !held_back {
        return None;
    }
    let shown = show(last, world.spec());
    let row = |candidate: &&Candidate| CandidateRow {
        coroutine: tagged(world, candidate),
        key: words::key(candidate.key),
        chosen: false,
    };
    let reason = if standing.is_held {
        format!("{shown} is throttled: its own budget is used up")
    } else {
        format!(
            "{shown} is ready on lane {} behind {} coroutines; the waiter outranks {} of them",
            standing.lane.0,
            standing.ahead.len(),
            outranked.len()
        )
    };
    Some(Inversion {
        waiter: show(name, world.spec()),
        rank: rank.words(world),
        chain: names.iter().map(|&name| show(name, world.spec())).collect(),
        reason,
        ahead: outranked.iter().take(LISTED).map(row).collect(),
        ahead_count: outranked.len() as u64,
        donation: donation(world, &rank, last, &standing),
    })
}

/// The queue position of a coroutine that is not blocked.
struct QueuePosition {
    lane: LaneId,
    is_held: bool,
    ahead: Vec<Candidate>,
}

/// `None` if it is blocked, asleep or not spawned yet.
fn queue_position(
    world: &World,
    name: CoroutineName,
    look: &CoroutineLook,
) -> Option<QueuePosition> {
    let is_held = matches!(look.state, Some(State::Throttled { .. }));
    if !is_held && !matches!(look.state, Some(State::Ready | State::Running)) {
        return None;
    }
    let lane = world.look_at_lane(look.lane)?;
    let own = show(name, world.spec());
    let is_own = |candidate: &Candidate| tagged(world, candidate) == own;
    if lane.next.is_some_and(|next| is_own(&next.winner)) {
        return Some(QueuePosition { lane: look.lane, is_held: false, ahead: Vec::new() });
    }
    let ahead =
        lane.candidates.iter().take_while(|candidate| !is_own(candidate)).copied().collect();
    Some(QueuePosition { lane: look.lane, is_held, ahead })
}

/// The effect of lending the waiter's context to the coroutine it waits for.
fn donation(world: &World, rank: &Rank, last: CoroutineName, standing: &QueuePosition) -> String {
    let shown = show(last, world.spec());
    let Rank::Deadline(deadline, context) = rank else {
        return format!(
            "a wait donates nothing: the waiter has no context, and its priority is not inherited; a context lent along a call would put {shown} before all of them"
        );
    };
    let name =
        time::context_name(world, context.lane.0, context.view.context, context.name.as_deref());
    if context.lane != standing.lane {
        return format!(
            "context {name} is on lane {} and {shown} on lane {}: a loan does not cross lanes",
            context.lane.0, standing.lane.0
        );
    }
    if let Some(own) = world.context_of(last) {
        let own = time::context_name(world, own.lane.0, own.view.context, own.name.as_deref());
        return format!("{shown} already runs on context {own}, so nothing would be lent to it");
    }
    let stay = standing.ahead.iter().filter(|candidate| !rank.goes_before(candidate.key)).count();
    format!(
        "a call instead of a wait would lend context {name}: {shown} would run in the deadline tier, due at {deadline}, with {stay} before it instead of {}",
        standing.ahead.len()
    )
}

/// Every current inversion, in order of sessions and slots. Examines a bounded number of
/// coroutines.
#[must_use]
pub fn inversions(world: &World) -> Vec<Inversion> {
    let sessions = (0..world.spec().sessions.len() as u32).map(SessionId);
    let all = sessions.flat_map(|session| {
        world
            .coroutines(session)
            .into_iter()
            .map(move |reference| CoroutineName { session, reference })
    });
    all.take(LOOKED_AT).filter_map(|name| inversion(world, name)).collect()
}

/// Whether a machine has ranks at all, so that inversions are possible.
#[must_use]
pub fn can_invert(world: &World) -> bool {
    let spec = world.spec();
    spec.grants_time()
        || matches!(
            spec.policy,
            Policy::Priority { rule: PriorityRule::FixedMap | PriorityRule::Aging, .. }
        )
}
