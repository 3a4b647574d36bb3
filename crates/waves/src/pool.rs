//! Worker threads. Each owns the group it runs until it gives it back; nothing is locked.
//!
//! Groups have a thread of their own, in whose cache they stay; a thread that is done takes what
//! another has not begun, since cores are not equally fast at all times. A worker spins for its
//! next wave, since waves of a run follow each other within microseconds and waking a sleeping
//! thread takes tens of them; after a bounded spin it parks. The coordinator works too: it runs its
//! own share, then waits for the others.

use crate::handover::{Offered, Queue};
use core_affinity::CoreId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use wavelock_certify::CheckedWave;
use wavelock_system::Group;

/// Looks before a thread gives its time slice away, where every thread can have a core, and where
/// not: there, whoever looks keeps another from working.
const SPINS_BEFORE_YIELD: u32 = 2_000;
const SPINS_WHEN_CROWDED: u32 = 50;
/// Slices given away before a worker parks.
const YIELDS_BEFORE_PARK: u32 = 200;

/// What is done with a group: one of the two parts of a wave in which groups are on their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Lanes run.
    Run,
    /// Inboxes are settled.
    Settle,
}

/// A group with its place in the world, so that it comes back in order, and what is done with it.
struct Job {
    part: Part,
    place: usize,
    group: Box<Group>,
    /// The thread that did it.
    by: usize,
}

/// What all threads share: a queue for each, the coordinator's first.
struct Team {
    queues: Box<[Queue<Job>]>,
    quit: AtomicBool,
}

/// Threads beside the coordinator's own.
pub(crate) struct Pool {
    team: Arc<Team>,
    threads: Vec<JoinHandle<()>>,
    spins: u32,
    /// By thread: what it is offered next. By group: those that are back. Their space is used
    /// again.
    staged: Vec<Vec<Job>>,
    back: Vec<Option<Box<Group>>>,
    /// Parked workers that were woken.
    pub(crate) unparks: u64,
    /// Waves in which the coordinator waited for a worker.
    pub(crate) waited: u64,
    /// Groups that ran on another thread than theirs, because theirs was late.
    pub(crate) taken_over: u64,
}

impl Pool {
    /// A pool in which `workers` threads in all run waves of so many groups, the caller's included.
    /// Worker n is bound to the n-th of the cores, where there is one; the caller's thread is left
    /// to the caller.
    pub(crate) fn new(workers: usize, groups: usize, pins: &[CoreId]) -> std::io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let spins = if workers > cores { SPINS_WHEN_CROWDED } else { SPINS_BEFORE_YIELD };
        let team = Arc::new(Team {
            queues: (0..workers).map(|_| Queue::new(groups)).collect(),
            quit: AtomicBool::new(false),
        });
        let staged = (0..workers).map(|_| Vec::new()).collect();
        let mut pool = Self {
            team,
            threads: Vec::new(),
            spins,
            staged,
            back: Vec::new(),
            unparks: 0,
            waited: 0,
            taken_over: 0,
        };
        for number in 1..workers {
            let team = pool.team.clone();
            let core = pins.get(number).copied();
            let body = move || {
                // A host that refuses leaves the thread where it likes: slower, perhaps, and the
                // same run.
                let _ = core.map(core_affinity::set_for_current);
                team.work(number, spins);
            };
            pool.threads
                .push(std::thread::Builder::new().name(format!("wavelock-{number}")).spawn(body)?);
        }
        Ok(pool)
    }

    /// Threads that run waves, the caller's included.
    pub(crate) fn width(&self) -> usize {
        self.staged.len()
    }

    /// Does a part of a checked wave: `assignment[i]` is the worker of group i (0 is the caller),
    /// and whoever is done with its own helps the others. Groups come back in their order.
    #[allow(
        clippy::vec_box,
        reason = "groups move between threads every wave; a box moves eight bytes instead of the whole group"
    )]
    pub(crate) fn run(
        &mut self,
        _proof: &CheckedWave,
        part: Part,
        groups: &mut Vec<Box<Group>>,
        assignment: &[usize],
    ) {
        let count = groups.len();
        for (place, group) in groups.drain(..).enumerate() {
            // A group with nothing to do stays, whoever it belongs to.
            let worker = if part.concerns(&group) { assignment[place] } else { 0 };
            self.staged[worker].push(Job { part, place, group, by: worker });
        }
        for (worker, staged) in
            self.staged.iter_mut().enumerate().filter(|(_, staged)| !staged.is_empty())
        {
            if self.team.queues[worker].offer(staged.drain(..)) == Offered::MustWake {
                self.unparks += 1;
                self.threads[worker - 1].thread().unpark();
            }
        }
        while self.team.help(0) {}
        self.back.resize_with(count, || None);
        let mut waited = false;
        for worker in 0..self.width() {
            waited |= self.collect(worker);
        }
        self.waited += u64::from(waited && part == Part::Run);
        groups.extend(self.back.drain(..).flatten());
        assert_eq!(groups.len(), count, "every group comes back");
    }

    /// Takes a worker's groups back when all are done; gives the processor away when that takes
    /// long. Whether it had to wait.
    fn collect(&mut self, worker: usize) -> bool {
        let mut looks = 0;
        loop {
            let (back, taken_over) = (&mut self.back, &mut self.taken_over);
            let put = |Job { place, group, by, .. }: Job| {
                back[place] = Some(group);
                *taken_over += u64::from(by != worker);
            };
            if self.team.queues[worker].collect(put) {
                return looks > 0;
            }
            looks += 1;
            if looks < self.spins {
                std::hint::spin_loop();
            } else if self.threads.iter().any(JoinHandle::is_finished) {
                panic!("a worker died while it ran a wave");
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Part {
    fn concerns(self, group: &Group) -> bool {
        match self {
            Self::Run => group.has_work(),
            Self::Settle => group.has_to_settle(),
        }
    }

    fn carry_out(self, group: &mut Group) {
        match self {
            Self::Run => group.run_wave(),
            Self::Settle => group.settle(),
        }
    }
}

impl Team {
    /// Does one group that nobody has begun: one of the thread's own, or then of the next thread
    /// that has any. `false` if there is none.
    fn help(&self, number: usize) -> bool {
        let (before, from) = self.queues.split_at(number);
        for queue in from.iter().chain(before) {
            if let Some((at, mut job)) = queue.claim() {
                job.part.carry_out(&mut job.group);
                job.by = number;
                queue.give_back(at, job);
                return true;
            }
        }
        false
    }

    fn work(&self, number: usize, spins: u32) {
        let mut looks = 0;
        while !self.quit.load(Ordering::Acquire) {
            if self.help(number) {
                looks = 0;
                continue;
            }
            looks += 1;
            if looks < spins {
                std::hint::spin_loop();
            } else if looks < spins + YIELDS_BEFORE_PARK {
                std::thread::yield_now();
            } else if self.queues[number].announce_sleep() {
                std::thread::park();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.team.quit.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // A worker that panicked has said so already.
            let _ = thread.join();
        }
    }
}
