//! The driver: opens waves, certifies them, runs them on the pool or inline, closes them.

use crate::assign::Assignment;
use crate::plan::{Plan, Planner, lane_facts, span};
use crate::pool::{Phase, Pool};
use crate::telemetry::{Telemetry, Time};
use crate::threads::{Claimed, Threads};
use std::fmt;
use std::time::Instant;
use wavelock_abi::{Frame, LaneId};
use wavelock_certify::{Certificate, CheckedWave, Checker, Facts, LaneFacts, Refusal};
use wavelock_system::{HostFailure, RunOutcome, Sink, Snapshot, World};

/// A wave runs on threads if all threads but the busiest would have this many cycles of work
/// together: less is not worth two handovers (about 2 us where this was measured).
pub const PARALLEL_THRESHOLD_CYCLES: u64 = 4_000;

/// Effects at a wave's end from which they are settled on threads: fewer are not worth two more
/// handovers.
const PARALLEL_THRESHOLD_EFFECTS: usize = 64;

/// What one call of [`Waves::round`] did (semantics 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// One step, in canonical order.
    Step,
    /// One whole wave.
    Wave,
    /// Nothing: the run has ended, or the next frame may not start ([`World::allow`]).
    Over,
}

/// Why a driver does not start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartError {
    /// It was given 0 workers.
    NoWorkers,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::NoWorkers = self;
        f.write_str("0 workers: a round of waves needs at least 1 (semantics 2)")
    }
}

impl std::error::Error for StartError {}

/// Whether a wave is spread over threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spread {
    Threads,
    /// Only one group has work, or only one thread exists.
    OneGroup,
    /// The other threads would have less than the threshold.
    Short,
}

/// A world and the threads that run it.
pub struct Waves<P = Planner> {
    world: World,
    planner: P,
    checker: Checker,
    /// The threads of this driver alone.
    pool: Option<Pool>,
    /// Threads that it shares with other drivers.
    threads: Option<Threads>,
    /// Certify every wave, including those on one thread (recording does).
    always_certify: bool,
    parallel_threshold: u64,
    /// The open wave's certificate was refused: it runs one step at a time.
    stepping: bool,
    /// The last certificate, and whether it was accepted for the last wave. Its allocations are
    /// reused.
    certificate: Certificate,
    accepted: bool,
    lane_facts: Vec<LaneFacts>,
    /// The machine's groups by session when a certificate last sent sets.
    session_facts: Vec<LaneId>,
    assignment: Assignment,
    telemetry: Telemetry,
    stopwatch: Option<Instant>,
}

impl Waves<Planner> {
    /// Runs `world` on this many threads including the caller's: at least one, at most one per
    /// group, and fewer if the host cannot spawn them.
    ///
    /// # Errors
    /// [`StartError::NoWorkers`].
    pub fn new(world: World, workers: usize) -> Result<Self, StartError> {
        Self::with_planner(world, workers, Planner::default())
    }

    /// Runs `world` on threads that it shares with other drivers. Waves that find them in use run
    /// on the calling thread.
    #[must_use]
    pub fn on(world: World, threads: &Threads) -> Self {
        let width = threads.width().min(world.groups().len());
        let threads = (width > 1).then(|| threads.clone());
        Self::assemble(world, None, threads, width, Planner::default())
    }
}

impl<P: Plan> Waves<P> {
    /// [`Waves::new`] with another planner.
    ///
    /// # Errors
    /// [`StartError::NoWorkers`].
    pub fn with_planner(world: World, workers: usize, planner: P) -> Result<Self, StartError> {
        if workers == 0 {
            return Err(StartError::NoWorkers);
        }
        let workers = workers.min(world.groups().len());
        let pool =
            if workers > 1 { Pool::new(workers, world.groups().len(), &[]).ok() } else { None };
        let width = pool.as_ref().map_or(1, Pool::width);
        Ok(Self::assemble(world, pool, None, width, planner))
    }

    fn assemble(
        world: World,
        pool: Option<Pool>,
        threads: Option<Threads>,
        width: usize,
        planner: P,
    ) -> Self {
        let checker = Checker::new(world.spec().lanes, world.spec().sessions.len() as u32);
        let telemetry = Telemetry { workers: width as u64, ..Telemetry::default() };
        let certificate = Certificate { wave: 0, span: span(&world), claims: Vec::new() };
        Self {
            world,
            planner,
            checker,
            pool,
            threads,
            always_certify: false,
            parallel_threshold: PARALLEL_THRESHOLD_CYCLES,
            stepping: false,
            certificate,
            accepted: false,
            lane_facts: Vec::new(),
            session_facts: Vec::new(),
            assignment: Assignment::default(),
            telemetry,
            stopwatch: None,
        }
    }

    /// Makes and checks a certificate for every wave, including those on one thread.
    pub fn certify_always(&mut self) {
        self.always_certify = true;
    }

    /// Pins each worker to a core of its own; `false` if the host does not allow it or has too few.
    /// The calling thread, which should be the one that runs the waves, is a worker and stays
    /// pinned.
    pub fn pin(&mut self) -> bool {
        let Some(width) = self.pool.as_ref().map(Pool::width) else { return false };
        let cores = core_affinity::get_core_ids().unwrap_or_default();
        if cores.len() < width {
            return false;
        }
        self.pool = Pool::new(width, self.world.groups().len(), &cores).ok();
        self.pool.is_some() && core_affinity::set_for_current(cores[0])
    }

    /// Replaces [`PARALLEL_THRESHOLD_CYCLES`]. With 0, every wave of several groups runs on
    /// threads.
    pub const fn set_parallel_threshold(&mut self, cycles: u64) {
        self.parallel_threshold = cycles;
    }

    /// Measures the coordinator's time by phase from now on ([`Telemetry::time`]), with a few clock
    /// reads per wave.
    pub fn measure(&mut self) {
        self.stopwatch = Some(Instant::now());
    }

    /// Returns to a snapshot of this machine ([`World::roll_back`]), whatever the last round did:
    /// planner and checker start anew.
    pub fn roll_back(&mut self, snapshot: &Snapshot) {
        self.world.roll_back(snapshot);
        let spec = self.world.spec();
        self.checker = Checker::new(spec.lanes, spec.sessions.len() as u32);
        self.planner.refused();
        (self.stepping, self.accepted) = (false, false);
        self.session_facts.clear();
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

    /// The certificate of the wave that the last round ran: `None` after a step, a refusal, or a
    /// wave on one thread without [`Waves::certify_always`]. An independent [`Checker`] accepts
    /// them in the order of the run.
    #[must_use]
    pub fn certificate(&self) -> Option<&Certificate> {
        self.accepted.then_some(&self.certificate)
    }

    /// The machine's report about itself that the last certificate was checked against.
    #[must_use]
    pub fn facts(&self) -> Facts<'_> {
        Facts {
            wave: self.certificate.wave,
            span: self.certificate.span,
            lanes: &self.lane_facts,
            sessions: &self.session_facts,
        }
    }

    /// Counts so far.
    #[must_use]
    pub fn telemetry(&self) -> Telemetry {
        self.telemetry.clone()
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// The host could not continue.
    pub fn run(&mut self, sink: &mut dyn Sink) -> Result<RunOutcome, HostFailure> {
        self.world.allow(Frame(u64::MAX));
        self.run_allowed(sink)?;
        Ok(self.world.outcome().unwrap_or(RunOutcome::Finished))
    }

    /// Runs the frames that may start ([`World::allow`]): the machine is then at the boundary
    /// before the first that may not, where a live one can be given inputs, or at its end.
    ///
    /// # Errors
    /// The host could not continue.
    pub fn run_allowed(&mut self, sink: &mut dyn Sink) -> Result<(), HostFailure> {
        while self.round(sink)? != Round::Over {}
        Ok(())
    }

    /// One round: a wave, or after a refusal one step of it.
    ///
    /// # Errors
    /// The host could not continue.
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
        lane_facts(&self.world, &mut self.lane_facts);
        if self.certificate.claims.iter().any(|claim| claim.sets.is_some()) {
            self.checker.admit(self.world.group_lanes().len() as u32);
            self.session_facts.clear();
            self.session_facts.extend_from_slice(self.world.group_lanes());
        }
        let facts = Facts {
            wave: self.world.wave(),
            span: span(&self.world),
            lanes: &self.lane_facts,
            sessions: &self.session_facts,
        };
        self.checker.check(&self.certificate, &facts)
    }

    /// Whether the open wave runs on threads, and if not, why.
    fn spread(&mut self) -> Spread {
        let width = match (&self.pool, &self.threads) {
            (Some(pool), _) => pool.width(),
            (None, Some(threads)) => threads.width().min(self.world.groups().len()),
            (None, None) if self.always_certify => 1,
            (None, None) => return Spread::OneGroup,
        };
        let beside_busiest = self.assignment.update(self.world.groups(), width);
        let working = self.assignment.working();
        self.telemetry.widest = self.telemetry.widest.max(working);
        match working {
            0 | 1 => Spread::OneGroup,
            _ if width == 1 || beside_busiest < self.parallel_threshold => Spread::Short,
            _ => Spread::Threads,
        }
    }

    fn run_wave(&mut self, proof: Option<CheckedWave>, spread: Spread) {
        let threads = self.threads.clone();
        let groups = self.world.groups().len();
        let is_spread = spread == Spread::Threads;
        let mut claimed = None;
        if is_spread && self.pool.is_none() {
            claimed = threads.as_ref().and_then(|threads| threads.claim(groups));
        }
        let mut own = self.pool.take();
        let pool = own.as_mut().or_else(|| claimed.as_mut().and_then(Claimed::pool));
        match (&proof, pool) {
            (Some(proof), Some(pool)) if is_spread => self.run_on(proof, pool),
            _ => self.run_inline(spread),
        }
        self.pool = own;
    }

    fn run_inline(&mut self, spread: Spread) {
        let count = match spread {
            Spread::OneGroup => &mut self.telemetry.one_group,
            Spread::Threads | Spread::Short => &mut self.telemetry.short,
        };
        *count += 1;
        self.world.groups_mut().iter_mut().for_each(|group| group.run_wave());
        self.lap(|time| &mut time.run);
        self.world.close_wave();
        self.lap(|time| &mut time.close);
    }

    fn run_on(&mut self, proof: &CheckedWave, pool: &mut Pool) {
        let before = pool.counts;
        self.telemetry.parallel += 1;
        pool.run(proof, Phase::Run, self.world.groups_mut(), self.assignment.threads());
        self.lap(|time| &mut time.run);
        self.close_on_threads(proof, pool);
        self.lap(|time| &mut time.close);
        self.telemetry.unparks += pool.counts.unparks - before.unparks;
        self.telemetry.waited += pool.counts.waited - before.waited;
        self.telemetry.taken_over += pool.counts.taken_over - before.taken_over;
    }

    /// Closes a wave that ran on threads; its effects are settled on threads too if they are many.
    fn close_on_threads(&mut self, proof: &CheckedWave, pool: &mut Pool) {
        let Some(effects) = self.world.begin_close() else { return };
        if self.parallel_threshold == 0 || effects >= PARALLEL_THRESHOLD_EFFECTS {
            self.telemetry.settled += 1;
            pool.run(proof, Phase::Settle, self.world.groups_mut(), self.assignment.threads());
        } else {
            self.world.groups_mut().iter_mut().for_each(|group| group.settle());
        }
        self.world.finish_close();
    }

    /// Restarts the stopwatch, if time is measured.
    fn restart(&mut self) {
        if let Some(start) = &mut self.stopwatch {
            *start = Instant::now();
        }
    }

    /// Adds the time since the last call to a phase, if time is measured.
    fn lap(&mut self, part: fn(&mut Time) -> &mut u64) {
        if let Some(start) = &mut self.stopwatch {
            let now = Instant::now();
            *part(&mut self.telemetry.time) += (now - *start).as_nanos() as u64;
            *start = now;
        }
    }
}
