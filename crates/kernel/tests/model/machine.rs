//! Several lanes, naively: canonical order, the end of a wave, moving sessions, and the bounded
//! steal (semantics 14, 15, 23; cpu-authority B.6).
//!
//! Letters between lanes lie in one vector in the order they were posted and are sorted when they
//! are delivered. Elsewhere: everything that one lane does alone (`lane`).

use super::Fault;
use super::lane::{Decision, ModelLane, Refused, Row, Settings};
use crate::support::lane_set::{Effect, WaveSpan};
use wavelock_abi::{CoroutineRef, SchedulerOperation};
use wavelock_kernel::Span;

/// An effect on its way: (sending lane, step, sequence) is its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Post {
    pub(crate) from: usize,
    pub(crate) step: u64,
    pub(crate) sequence: u32,
    pub(crate) to: usize,
    pub(crate) effect: Effect,
}

/// What became of an effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Delivery {
    Woken(Result<(), Refused>),
    Published(CoroutineRef),
    HandedOff { woken: Result<(), Refused>, preferred: bool },
}

/// What a steal did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Theft {
    Won { session: u32, victim: usize, moved: Vec<u64> },
    Busy,
    Nothing,
}

/// All lanes.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) lanes: Vec<ModelLane>,
    fault: Option<Fault>,
    waves: u64,
    cursor: usize,
    posts: Vec<Post>,
}

impl Machine {
    pub(crate) fn new(lanes: usize, settings: Settings, fault: Option<Fault>) -> Self {
        let lanes = (0..lanes).map(|_| ModelLane::new(settings, fault)).collect();
        Self { lanes, fault, waves: 0, cursor: 0, posts: Vec::new() }
    }

    fn latest(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.clock).max().expect("a machine has a lane")
    }

    pub(crate) fn begin_wave(&mut self, span: WaveSpan) {
        let span = match span {
            WaveSpan::Picks(picks) => Span::Picks(picks),
            WaveSpan::Cycles(cycles) => Span::Until(wavelock_abi::Cycles(self.latest() + cycles.0)),
        };
        self.cursor = 0;
        self.lanes.iter_mut().for_each(|lane| lane.begin_wave(span));
    }

    /// The next slice in canonical order.
    pub(crate) fn dispatch(&mut self) -> Option<(usize, Decision)> {
        while self.cursor < self.lanes.len() {
            if let run @ Decision::Run { .. } = self.lanes[self.cursor].dispatch() {
                return Some((self.cursor, run));
            }
            self.cursor += 1;
        }
        None
    }

    pub(crate) fn post(&mut self, from: usize, to: usize, effect: Effect) -> (u64, u32) {
        let step = self.lanes[from].steps;
        let sequence =
            self.posts.iter().filter(|post| post.from == from && post.step == step).count() as u32;
        self.posts.push(Post { from, step, sequence, to, effect });
        (step, sequence)
    }

    /// Clocks align, then letters are delivered in canonical order. `published` are the references
    /// the kernel chose, in that order.
    pub(crate) fn end_wave(&mut self, published: &[CoroutineRef]) -> Vec<(Post, Delivery)> {
        let latest = self.latest();
        self.lanes.iter_mut().for_each(|lane| lane.align(latest));
        self.waves += 1;
        let mut posts = core::mem::take(&mut self.posts);
        if self.fault != Some(Fault::LettersInPostingOrder) {
            posts.sort_by_key(|post| (post.from, post.step, post.sequence));
        }
        let mut published = published.iter();
        posts.into_iter().map(|post| (post, self.deliver(post, &mut published))).collect()
    }

    fn deliver<'a>(
        &mut self,
        post: Post,
        published: &mut impl Iterator<Item = &'a CoroutineRef>,
    ) -> Delivery {
        let lane = &mut self.lanes[post.to];
        lane.book(SchedulerOperation::Inbox);
        match post.effect {
            Effect::Wake { target, source } => Delivery::Woken(lane.wake(target, source)),
            Effect::Publish(spawn) => {
                let reference = published.next().copied().unwrap_or_else(|| lane.unused());
                lane.spawn(reference, spawn);
                Delivery::Published(reference)
            }
            Effect::Handoff { target, source } => {
                let woken = lane.wake(target, source);
                let preferred = woken.is_ok() && lane.prefer(target).is_ok();
                Delivery::HandedOff { woken, preferred }
            }
        }
    }

    pub(crate) fn end_frame(&mut self) -> Vec<Row> {
        self.lanes.iter_mut().map(ModelLane::end_frame).collect()
    }

    pub(crate) fn begin_frame(&mut self, frame: u64) -> u32 {
        self.lanes.iter_mut().map(|lane| lane.begin_frame(frame)).sum()
    }

    /// Nothing can happen without input (semantics 29): some wait, nobody is ready, running,
    /// sleeping or held, no letter is on its way.
    pub(crate) fn is_stalled(&self) -> bool {
        let mut sums = [0; 6];
        for lane in &self.lanes {
            sums.iter_mut().zip(lane.population()).for_each(|(sum, count)| *sum += count);
        }
        let [ready, running, sleeping, blocked, held, _] = sums;
        blocked > 0 && ready + running + sleeping + held == 0 && self.posts.is_empty()
    }

    pub(crate) fn next_wake(&self) -> Option<u64> {
        self.lanes.iter().filter_map(ModelLane::next_wake).min()
    }

    /// Moves a session. `references` are the kernel's choices, in order. Gives the moved tags in
    /// that order.
    pub(crate) fn migrate(
        &mut self,
        session: u32,
        from: usize,
        to: usize,
        references: &[CoroutineRef],
    ) -> Result<Vec<u64>, Refused> {
        self.carry(session, from, to, references, false)
    }

    fn carry(
        &mut self,
        session: u32,
        from: usize,
        to: usize,
        references: &[CoroutineRef],
        stolen: bool,
    ) -> Result<Vec<u64>, Refused> {
        let movers = self.lanes[from].movers(session)?;
        if stolen && self.fault != Some(Fault::StealIsFree) {
            self.lanes[to].book(SchedulerOperation::Steal);
        }
        // A session that has only ended coroutines has no share to take along.
        let luggage = self.lanes[from].depart_session(session);
        self.lanes[to].receive_session(session, luggage);
        let mut references = references.iter();
        let mut tags = Vec::new();
        for mover in movers {
            let traveller = self.lanes[from].depart(mover).expect("movers can move");
            tags.push(traveller.tag());
            let reference = references.next().copied().unwrap_or_else(|| self.lanes[to].unused());
            self.lanes[to].receive(reference, traveller, stolen);
        }
        Ok(tags)
    }

    /// A lane without work looks for a session: at most four victims, in rotation.
    pub(crate) fn steal(
        &mut self,
        thief: usize,
        banned: impl Fn(u32) -> bool,
        references: &[CoroutineRef],
    ) -> Theft {
        if self.lanes[thief].has_work() {
            return Theft::Busy;
        }
        let lanes = self.lanes.len();
        let shift = if self.fault == Some(Fault::StealStartsElsewhere) { 1 } else { 0 };
        let first = ((thief as u64 + self.waves + shift) % lanes as u64) as usize;
        let victims = (0..lanes)
            .map(|step| (first + step) % lanes)
            .filter(|&victim| victim != thief)
            .take((lanes - 1).min(4));
        for victim in victims {
            if let Some(session) = self.lanes[victim].offer(self.waves, &banned) {
                let moved = self
                    .carry(session, victim, thief, references, true)
                    .expect("an offer can move");
                return Theft::Won { session, victim, moved };
            }
        }
        Theft::Nothing
    }
}
