//! The driver: opens waves, has them certified, runs them on the pool or inline, closes them.

use crate::assign::Assignment;
use crate::plan::{Plan, Planner, facts, span, state_facts};
use crate::pool::{Part, Pool};
use crate::telemetry::{Telemetry, Time};
use std::time::Instant;
use wavelock_certify::{Certificate, CheckedWave, Checker, LaneFacts, Refusal};
use wavelock_system::{HostFailure, RunOutcome, Sink, World};

/// Cycles of work a second thread must have before a wave is worth two hand-overs (about 2 us on
/// the machines this was measured on).
pub const PARALLEL_THRESHOLD_CYCLES: u64 = 4_000;

/// Effects at a wave's end before settling them is worth two hand-overs more.
const PARALLEL_THRESHOLD_EFFECTS: usize = 64;

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

/// Whether a wave is spread over threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    Threads,
    /// One group has work, or there is one thread.
    OneGroup,
    /// All threads but one would have too little to do.
    Short,
}

/// A world and the threads that run it.
pub struct Waves<P = Planner> {
    world: World,
    planner: P,
    checker: Checker,
    pool: Option<Pool>,
    /// Certify every wave, also those that run on one thread (recording does).
    always_certify: bool,
    parallel_threshold: u64,
    /// The open wave was refused and runs step by step.
    stepping: bool,
    /// The last certificate, and whether it is that of the last wave and was accepted. Its space is
    /// used again.
    certificate: Certificate,
    accepted: bool,
    lane_facts: Vec<LaneFacts>,
    assignment: Assignment,
    telemetry: Telemetry,
    watch: Option<Instant>,
}

impl Waves<Planner> {
    /// Runs `world` on this many threads, the caller's included; at least one, and no more than it
    /// has groups. If the host has fewer threads to give, on those it gives.
    #[must_use]
    pub fn new(world: World, workers: usize) -> Self {
        Self::with_planner(world, workers, Planner::default())
    }
}

impl<P: Plan> Waves<P> {
    /// The same with another planner.
    #[must_use]
    pub fn with_planner(world: World, workers: usize, planner: P) -> Self {
        let workers = workers.min(world.groups().len());
        let pool =
            if workers > 1 { Pool::new(workers, world.groups().len(), &[]).ok() } else { None };
        let checker = Checker::new(world.spec().lanes, world.spec().sessions.len() as u32);
        let telemetry = Telemetry {
            workers: pool.as_ref().map_or(1, Pool::width) as u64,
            ..Telemetry::default()
        };
        let certificate = Certificate { wave: 0, span: span(&world), claims: Vec::new() };
        Self {
            world,
            planner,
            checker,
            pool,
            always_certify: false,
            parallel_threshold: PARALLEL_THRESHOLD_CYCLES,
            stepping: false,
            certificate,
            accepted: false,
            lane_facts: Vec::new(),
            assignment: Assignment::default(),
            telemetry,
            watch: None,
        }
    }

    /// Makes and checks a certificate for every wave, also for those that run on one thread.
    pub fn certify_always(&mut self) {
        self.always_certify = true;
    }

    /// Binds each worker to a core of its own, where the host allows it and has enough of them:
    /// `true` if so. The calling thread, which should be the one that runs the waves, is a worker
    /// too and stays bound.
    pub fn pin(&mut self) -> bool {
        let Some(width) = self.pool.as_ref().map(Pool::width) else { return false };
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        if cores.len() < width {
            return false;
        }
        self.pool = Pool::new(width, self.world.groups().len(), &cores).ok();
        self.pool.is_some() && core_affinity::set_for_current(cores[0])
    }

    /// Runs a wave on threads from this many cycles of work beside the busiest thread's on, instead
    /// of [`PARALLEL_THRESHOLD_CYCLES`]. With 0, every wave of several groups.
    pub const fn set_parallel_threshold(&mut self, cycles: u64) {
        self.parallel_threshold = cycles;
    }

    /// Measures where the coordinator's time goes from here on ([`Telemetry::time`]): a few looks
    /// at the clock each wave.
    pub fn measure(&mut self) {
        self.watch = Some(Instant::now());
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

    /// The certificate under which the last round ran its wave: none after a step, a refusal, or a
    /// wave on one thread without [`Waves::certify_always`]. In the order of the run, these are
    /// what an independent [`Checker`] accepts one after the other.
    #[must_use]
    pub fn certificate(&self) -> Option<&Certificate> {
        self.accepted.then_some(&self.certificate)
    }

    /// What the machine stated about its lanes when the last certificate was checked.
    #[must_use]
    pub fn lane_facts(&self) -> &[LaneFacts] {
        &self.lane_facts
    }

    /// Counts so far.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        let mut telemetry = self.telemetry.clone();
        if let Some(pool) = &self.pool {
            (telemetry.unparks, telemetry.waited, telemetry.taken_over) =
                (pool.unparks, pool.waited, pool.taken_over);
        }
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
        self.accepted = false;
        if self.stepping {
            if self.world.step_in_wave() {
                return Ok(Round::Step);
            }
            self.stepping = false;
            self.world.close_wave();
        }
        self.restart();
        if !self.world.open_wave(sink)? {
            return Ok(Round::Over);
        }
        self.lap(|time| &mut time.open);
        self.telemetry.waves += 1;
        let spread = self.spread();
        if spread != Spread::Threads && !self.always_certify {
            self.telemetry.unclaimed += 1;
            self.run_wave(None, spread);
            return Ok(Round::Wave);
        }
        match self.certify() {
            Ok(wave) => {
                self.lap(|time| &mut time.certify);
                self.telemetry.certified += 1;
                self.telemetry.multi_lane += u64::from(self.assignment.working() > 1);
                self.accepted = true;
                self.run_wave(Some(wave), spread);
                Ok(Round::Wave)
            }
            Err(refusal) => {
                self.planner.refused();
                self.telemetry.note_refusal(&refusal);
                self.stepping = true;
                self.round(sink)
            }
        }
    }

    fn certify(&mut self) -> Result<CheckedWave, Refusal> {
        self.planner.plan(&self.world, &mut self.certificate);
        state_facts(&self.world, &mut self.lane_facts);
        self.checker.check(&self.certificate, &facts(&self.world, &self.lane_facts))
    }

    /// Whether the open wave is worth threads, and if not, why.
    fn spread(&mut self) -> Spread {
        let width = match &self.pool {
            Some(pool) => pool.width(),
            None if self.always_certify => 1,
            None => return Spread::OneGroup,
        };
        let beside_heaviest = self.assignment.look(self.world.groups(), width);
        let working = self.assignment.working();
        self.telemetry.widest = self.telemetry.widest.max(working);
        match working {
            0 | 1 => Spread::OneGroup,
            _ if self.pool.is_none() || beside_heaviest < self.parallel_threshold => Spread::Short,
            _ => Spread::Threads,
        }
    }

    fn run_wave(&mut self, proof: Option<CheckedWave>, spread: Spread) {
        let threads = match (&proof, &mut self.pool, spread) {
            (Some(proof), Some(pool), Spread::Threads) => Some((proof, pool)),
            _ => None,
        };
        let Some((proof, pool)) = threads else {
            let count = if spread == Spread::OneGroup {
                &mut self.telemetry.one_group
            } else {
                &mut self.telemetry.short
            };
            *count += 1;
            self.world.groups_mut().iter_mut().for_each(|group| group.run_wave());
            self.lap(|time| &mut time.run);
            self.world.close_wave();
            return self.lap(|time| &mut time.close);
        };
        self.telemetry.parallel += 1;
        pool.run(proof, Part::Run, self.world.groups_mut(), self.assignment.places());
        self.lap(|time| &mut time.run);
        self.close_on_threads(proof);
        self.lap(|time| &mut time.close);
    }

    /// Closes a wave that ran on threads: each settles the groups it ran, if there is enough to
    /// settle.
    fn close_on_threads(&mut self, proof: &CheckedWave) {
        let Some(effects) = self.world.begin_close() else { return };
        let enough = self.parallel_threshold == 0 || effects >= PARALLEL_THRESHOLD_EFFECTS;
        match &mut self.pool {
            Some(pool) if enough => {
                self.telemetry.settled += 1;
                pool.run(proof, Part::Settle, self.world.groups_mut(), self.assignment.places());
            }
            _ => self.world.groups_mut().iter_mut().for_each(|group| group.settle()),
        }
        self.world.finish_close();
    }

    /// The watch begins again, if there is one.
    fn restart(&mut self) {
        if let Some(watch) = &mut self.watch {
            *watch = Instant::now();
        }
    }

    /// What has passed on the watch goes to a part of the time, if there is a watch.
    fn lap(&mut self, part: fn(&mut Time) -> &mut u64) {
        if let Some(watch) = &mut self.watch {
            let now = Instant::now();
            *part(&mut self.telemetry.time) += (now - *watch).as_nanos() as u64;
            *watch = now;
        }
    }
}
