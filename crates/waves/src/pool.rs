//! Worker threads. A worker owns the group it runs until it returns it; there are no locks.
//!
//! Each group is assigned to a thread, in whose cache it stays; an idle thread steals groups that
//! others have not started. A worker spins for its next wave, since waves follow each other within
//! microseconds and unparking a thread takes tens of them; after a bounded spin it parks. The
//! coordinator runs its own share, then waits for the others.
//!
//! A pool on threads of the embedder starts helpers for each wave, which end when nothing is left
//! to claim. One that comes late finds nothing, or helps with a later wave.

use crate::handover::{Offered, Queue};
use core_affinity::CoreId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use wavelock_certify::CheckedWave;
use wavelock_system::Group;

/// Spins before a thread yields its time slice: with a core for every thread, and without, where a
/// spinning thread keeps another from running.
const SPINS_BEFORE_YIELD: u32 = 2_000;
const SPINS_WHEN_CROWDED: u32 = 50;
/// Yields before a worker parks.
const YIELDS_BEFORE_PARK: u32 = 200;

/// A phase of a wave in which groups are independent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Run the lanes.
    Run,
    /// Settle the inboxes.
    Settle,
}

/// A group to run or settle, with its index in the world.
struct Job {
    phase: Phase,
    index: usize,
    group: Box<Group>,
    /// The thread that ran it.
    by: usize,
}

/// Shared by all threads: a queue for each, the coordinator's first.
struct Shared {
    queues: Box<[Queue<Job>]>,
    quit: AtomicBool,
    /// A helper panicked while it ran a group, which will not come back.
    died: AtomicBool,
}

/// Starts a job on a thread of the embedder.
pub(crate) type Spawn = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// The worker threads, without the coordinator's own.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    /// None, if the threads are the embedder's.
    threads: Vec<JoinHandle<()>>,
    spawn: Option<Spawn>,
    capacity: usize,
    spins: u32,
    /// By thread: the jobs to offer next.
    staged: Vec<Vec<Job>>,
    /// By group: those collected.
    collected: Vec<Option<Box<Group>>>,
    pub(crate) counts: Counts,
}

/// What a pool counts.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Parked workers that were unparked.
    pub(crate) unparks: u64,
    /// Waves in which the coordinator waited for a worker.
    pub(crate) waited: u64,
    /// Groups that another thread than the assigned one ran.
    pub(crate) taken_over: u64,
}

impl Pool {
    /// A pool of `workers` threads, the caller's included, for waves of up to `groups` groups.
    /// Worker n is pinned to the n-th of the cores, if there is one; the caller pins its own
    /// thread.
    pub(crate) fn new(workers: usize, groups: usize, pins: &[CoreId]) -> std::io::Result<Self> {
        let mut pool = Self::without_threads(workers, groups, None);
        for number in 1..workers {
            let (shared, spins) = (pool.shared.clone(), pool.spins);
            let core = pins.get(number).copied();
            let body = move || {
                // Without pinning the run is the same, perhaps slower.
                let _ = core.map(core_affinity::set_for_current);
                shared.work(number, spins);
            };
            pool.threads
                .push(std::thread::Builder::new().name(format!("wavelock-{number}")).spawn(body)?);
        }
        Ok(pool)
    }

    /// A pool of the caller's thread and up to `workers - 1` of the embedder's.
    pub(crate) fn lent(workers: usize, groups: usize, spawn: Spawn) -> Self {
        Self::without_threads(workers, groups, Some(spawn))
    }

    fn without_threads(workers: usize, groups: usize, spawn: Option<Spawn>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let spins = if workers > cores { SPINS_WHEN_CROWDED } else { SPINS_BEFORE_YIELD };
        let shared = Arc::new(Shared {
            queues: (0..workers).map(|_| Queue::new(groups)).collect(),
            quit: AtomicBool::new(false),
            died: AtomicBool::new(false),
        });
        Self {
            shared,
            threads: Vec::new(),
            spawn,
            capacity: groups,
            spins,
            staged: (0..workers).map(|_| Vec::new()).collect(),
            collected: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// The most groups of a wave.
    pub(crate) const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Threads that run waves, the caller's included.
    pub(crate) fn width(&self) -> usize {
        self.staged.len()
    }

    /// Executes a phase of a checked wave: `assignment[i]` is the worker of group i (0 is the
    /// caller). Groups come back in order.
    #[allow(
        clippy::vec_box,
        reason = "groups move between threads every wave; a box moves eight bytes instead of the whole group"
    )]
    pub(crate) fn run(
        &mut self,
        _proof: &CheckedWave,
        phase: Phase,
        groups: &mut Vec<Box<Group>>,
        assignment: &[usize],
    ) {
        let count = groups.len();
        for (index, group) in groups.drain(..).enumerate() {
            // An idle group stays on the caller's thread.
            let worker = if phase.has_work(&group) { assignment[index] } else { 0 };
            self.staged[worker].push(Job { phase, index, group, by: worker });
        }
        for (worker, staged) in
            self.staged.iter_mut().enumerate().filter(|(_, staged)| !staged.is_empty())
        {
            let is_parked = self.shared.queues[worker].offer(staged.drain(..)) == Offered::Parked;
            match &self.spawn {
                Some(spawn) if worker > 0 => self.shared.clone().help(worker, spawn),
                _ if is_parked => {
                    self.counts.unparks += 1;
                    self.threads[worker - 1].thread().unpark();
                }
                _ => {}
            }
        }
        while self.shared.run_one(0) {}
        self.collected.resize_with(count, || None);
        let mut waited = false;
        for worker in 0..self.width() {
            waited |= self.collect(worker);
        }
        self.counts.waited += u64::from(waited && phase == Phase::Run);
        groups.extend(self.collected.drain(..).flatten());
        assert_eq!(groups.len(), count, "every group comes back");
    }

    /// Collects a worker's groups once all are done; spins, then yields. Returns whether it had to
    /// wait.
    fn collect(&mut self, worker: usize) -> bool {
        let mut spins = 0;
        loop {
            let (collected, taken_over) = (&mut self.collected, &mut self.counts.taken_over);
            let put = |Job { index, group, by, .. }: Job| {
                collected[index] = Some(group);
                *taken_over += u64::from(by != worker);
            };
            if self.shared.queues[worker].collect(put) {
                return spins > 0;
            }
            spins += 1;
            if spins < self.spins {
                std::hint::spin_loop();
            } else if self.shared.died.load(Ordering::Relaxed)
                || self.threads.iter().any(JoinHandle::is_finished)
            {
                panic!("a worker panicked while it ran a wave");
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Phase {
    fn has_work(self, group: &Group) -> bool {
        match self {
            Self::Run => group.has_work(),
            Self::Settle => group.has_to_settle(),
        }
    }

    fn execute(self, group: &mut Group) {
        match self {
            Self::Run => group.run_wave(),
            Self::Settle => group.settle(),
        }
    }
}

impl Shared {
    /// Claims and runs one group: of the thread's own queue, otherwise stolen from the next thread
    /// that has any. `false` if none is left.
    fn run_one(&self, number: usize) -> bool {
        let (before, from) = self.queues.split_at(number);
        for queue in from.iter().chain(before) {
            if let Some((at, mut job)) = queue.claim() {
                job.phase.execute(&mut job.group);
                job.by = number;
                queue.complete(at, job);
                return true;
            }
        }
        false
    }

    /// Starts a helper on a thread of the embedder, which runs groups while there are any.
    fn help(self: Arc<Self>, number: usize, spawn: &Spawn) {
        let job = move || {
            let work = AssertUnwindSafe(|| while self.run_one(number) {});
            if let Err(panic) = catch_unwind(work) {
                self.died.store(true, Ordering::Relaxed);
                std::panic::resume_unwind(panic);
            }
        };
        // A wave needs no helper: if the embedder panics here, the coordinator runs everything.
        let _ = catch_unwind(AssertUnwindSafe(|| spawn(Box::new(job))));
    }

    fn work(&self, number: usize, most_spins: u32) {
        let mut spins = 0;
        while !self.quit.load(Ordering::Acquire) {
            if self.run_one(number) {
                spins = 0;
                continue;
            }
            spins += 1;
            if spins < most_spins {
                std::hint::spin_loop();
            } else if spins < most_spins + YIELDS_BEFORE_PARK {
                std::thread::yield_now();
            } else if self.queues[number].prepare_park() {
                std::thread::park();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.quit.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A worker that panicked has printed its message.
            let _ = thread.join();
        }
    }
}
