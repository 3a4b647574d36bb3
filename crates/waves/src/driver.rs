//! The driver: opens waves, has them certified, runs them on the pool or inline, closes them.

use crate::plan::{Plan, Planner, facts, lane_facts};
use crate::pool::Pool;
use crate::telemetry::Telemetry;
use wavelock_certify::{CheckedWave, Checker, Refusal};
use wavelock_system::{HostFailure, RunOutcome, Sink, World};

/// Cycles of work a second thread must have before a wave is worth two hand-overs (about 2 us on the machines this was measured on).
const WORTH_A_THREAD: u64 = 4_000;

/// Waves between two looks at the assignment of groups to workers.
const WAVES_PER_ASSIGNMENT: u64 = 16;

/// What one call of [`Waves::round`] did (semantics 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// One step, in canonical order.
    Step,
    /// One whole wave.
    Wave,
    /// Nothing: the run is over.
    Over,
}

/// A world and the threads that run it.
pub struct Waves<P = Planner> {
    world: World,
    planner: P,
    checker: Checker,
    pool: Option<Pool>,
    /// Certify waves even with one worker (recording does).
    always_certify: bool,
    /// The open wave was refused and runs step by step.
    stepping: bool,
    assignment: Vec<usize>,
    telemetry: Telemetry,
}

impl Waves<Planner> {
    /// Runs `world` on this many threads, the caller's included; at least one. If the host has fewer threads to give, on those it gives.
    #[must_use]
    pub fn new(world: World, workers: usize) -> Self {
        Self::with_planner(world, workers, Planner::default())
    }
}

impl<P: Plan> Waves<P> {
    /// The same with another planner.
    #[must_use]
    pub fn with_planner(world: World, workers: usize, planner: P) -> Self {
        let pool = if workers > 1 { Pool::new(workers).ok() } else { None };
        let checker = Checker::new(world.spec().lanes, world.spec().sessions.len() as u32);
        let telemetry = Telemetry { workers: pool.as_ref().map_or(1, Pool::width) as u64, ..Telemetry::default() };
        Self { world, planner, checker, pool, always_certify: false, stepping: false, assignment: Vec::new(), telemetry }
    }

    /// Makes and checks certificates even with one worker.
    pub fn certify_always(&mut self) {
        self.always_certify = true;
    }

    /// The world, between rounds.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// The world, between rounds.
    pub const fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// Counts so far.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        let mut telemetry = self.telemetry.clone();
        telemetry.unparks = self.pool.as_ref().map_or(0, |pool| pool.unparks);
        telemetry
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The host could not go on.
    pub fn run(&mut self, sink: &mut dyn Sink) -> Result<RunOutcome, HostFailure> {
        while self.round(sink)? != Round::Over {}
        Ok(self.world.outcome().unwrap_or(RunOutcome::Finished))
    }

    /// One round: a wave, or after a refusal one step of it.
    ///
    /// # Errors
    /// The host could not go on.
    pub fn round(&mut self, sink: &mut dyn Sink) -> Result<Round, HostFailure> {
        if self.stepping {
            if self.world.step_in_wave() {
                return Ok(Round::Step);
            }
            self.stepping = false;
            self.world.close_wave();
        }
        if !self.world.open_wave(sink)? {
            return Ok(Round::Over);
        }
        self.telemetry.waves += 1;
        if self.pool.is_none() && !self.always_certify {
            self.run_inline();
            return Ok(Round::Wave);
        }
        let working = self.world.groups().iter().filter(|group| group.has_work()).count();
        self.telemetry.note_width(working);
        match self.certify() {
            Ok(wave) => {
                self.telemetry.certified += 1;
                self.telemetry.multi_lane += u64::from(working > 1);
                self.run_checked(&wave, working);
                Ok(Round::Wave)
            }
            Err(refusal) => {
                self.telemetry.note_refusal(&refusal);
                self.stepping = true;
                self.round(sink)
            }
        }
    }

    fn certify(&mut self) -> Result<CheckedWave, Refusal> {
        let certificate = self.planner.plan(&self.world);
        let lanes = lane_facts(&self.world);
        self.checker.check(&certificate, &facts(&self.world, &lanes))
    }

    fn run_inline(&mut self) {
        self.world.groups_mut().iter_mut().for_each(|group| group.run_wave());
        self.world.close_wave();
    }

    fn run_checked(&mut self, wave: &CheckedWave, working: usize) {
        let worth_it = working > 1 && self.assign();
        match &mut self.pool {
            Some(pool) if worth_it => {
                self.telemetry.parallel += 1;
                pool.run(wave, self.world.groups_mut(), &self.assignment);
                self.world.close_wave();
            }
            _ => {
                self.telemetry.inline += 1;
                self.run_inline();
            }
        }
    }

    /// Assigns groups to workers by what they cost last, heaviest first to the least loaded. `false` if all but one thread would have
    /// too little to do.
    fn assign(&mut self) -> bool {
        let Some(pool) = &self.pool else { return false };
        let costs: Vec<u64> =
            self.world.groups().iter().map(|group| if group.has_work() { group.last_cost().0.min(1 << 40) } else { 0 }).collect();
        let mut loads = vec![0u64; pool.width()];
        let fresh = self.assignment.len() != costs.len() || self.telemetry.waves % WAVES_PER_ASSIGNMENT == 1;
        if fresh {
            let mut order: Vec<usize> = (0..costs.len()).collect();
            order.sort_by_key(|&group| std::cmp::Reverse(costs[group]));
            self.assignment.resize(costs.len(), 0);
            for group in order {
                let least = (0..loads.len()).min_by_key(|&worker| loads[worker]).unwrap_or(0);
                self.assignment[group] = least;
                loads[least] += costs[group];
            }
        } else {
            costs.iter().zip(&self.assignment).for_each(|(cost, &worker)| loads[worker] += cost);
        }
        let total: u64 = loads.iter().sum();
        let heaviest = loads.iter().copied().max().unwrap_or(0);
        total - heaviest >= WORTH_A_THREAD
    }
}
