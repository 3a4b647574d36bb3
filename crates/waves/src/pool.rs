//! Worker threads. Each owns the groups it was handed until it hands them back; nothing is locked.
//!
//! A worker spins for its next wave, since waves of a run follow each other within microseconds and waking a sleeping thread takes
//! tens of them; after a bounded spin it parks. The coordinator works too: it runs its own share, then waits for the others.

use crate::handover::{Handover, Offered};
use core_affinity::CoreId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use wavelock_certify::CheckedWave;
use wavelock_system::Group;

/// Looks before a thread gives its time slice away, where every thread can have a core, and where not: there, whoever looks keeps another from
/// working.
const SPINS_BEFORE_YIELD: u32 = 2_000;
const SPINS_WHEN_CROWDED: u32 = 50;
/// Slices given away before a worker parks.
const YIELDS_BEFORE_PARK: u32 = 200;

/// What is done with every group of a share: one of the two parts of a wave in which groups are on their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Lanes run.
    Run,
    /// Inboxes are settled.
    Settle,
}

/// Groups with their places in the world, so that they come back in order, and what is done with them.
struct Share {
    part: Part,
    groups: Vec<(usize, Box<Group>)>,
}

struct Worker {
    slot: Arc<Handover<Share>>,
    thread: Thread,
    handle: Option<JoinHandle<()>>,
    /// What it is handed next. The space goes with it and comes back.
    groups: Vec<(usize, Box<Group>)>,
    busy: bool,
}

/// Threads beside the coordinator's own.
pub(crate) struct Pool {
    workers: Vec<Worker>,
    quit: Arc<AtomicBool>,
    spins: u32,
    own: Vec<(usize, Box<Group>)>,
    back: Vec<Option<Box<Group>>>,
    /// Parked workers that were woken.
    pub(crate) unparks: u64,
    /// Waves in which the coordinator waited for a worker.
    pub(crate) waited: u64,
}

impl Pool {
    /// A pool in which `workers` threads in all run waves, the caller's included. Worker n is bound to the n-th of the cores, where there is
    /// one; the caller's thread is left to the caller.
    pub(crate) fn new(workers: usize, pins: &[CoreId]) -> std::io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let spins = if workers > cores { SPINS_WHEN_CROWDED } else { SPINS_BEFORE_YIELD };
        let quit = Arc::new(AtomicBool::new(false));
        let mut pool = Self { workers: Vec::new(), quit, spins, own: Vec::new(), back: Vec::new(), unparks: 0, waited: 0 };
        for number in 1..workers {
            let slot = Arc::new(Handover::new());
            let (own_slot, own_quit) = (slot.clone(), pool.quit.clone());
            let core = pins.get(number).copied();
            let body = move || {
                // A host that refuses leaves the thread where it likes: slower, perhaps, and the same run.
                let _ = core.map(core_affinity::set_for_current);
                work(&own_slot, &own_quit, spins);
            };
            let handle = std::thread::Builder::new().name(format!("wavelock-{number}")).spawn(body)?;
            pool.workers.push(Worker { slot, thread: handle.thread().clone(), handle: Some(handle), groups: Vec::new(), busy: false });
        }
        Ok(pool)
    }

    /// Threads that run waves, the caller's included.
    pub(crate) fn width(&self) -> usize {
        self.workers.len() + 1
    }

    /// Does a part of a checked wave: `assignment[i]` is the worker of group i (0 is the caller). Groups come back in their order.
    #[allow(clippy::vec_box, reason = "groups move between threads every wave; a box moves eight bytes instead of the whole group")]
    pub(crate) fn run(&mut self, _proof: &CheckedWave, part: Part, groups: &mut Vec<Box<Group>>, assignment: &[usize]) {
        let count = groups.len();
        for (place, group) in groups.drain(..).enumerate() {
            // A group with nothing to do stays, whoever it belongs to.
            match assignment[place].checked_sub(1).filter(|_| part.concerns(&group)) {
                Some(worker) => self.workers[worker].groups.push((place, group)),
                None => self.own.push((place, group)),
            }
        }
        for worker in self.workers.iter_mut().filter(|worker| !worker.groups.is_empty()) {
            worker.busy = true;
            if worker.slot.offer(Share { part, groups: std::mem::take(&mut worker.groups) }) == Offered::MustWake {
                self.unparks += 1;
                worker.thread.unpark();
            }
        }
        part.carry_out(&mut self.own);
        self.back.resize_with(count, || None);
        let back = &mut self.back;
        let mut put = |groups: &mut Vec<(usize, Box<Group>)>| groups.drain(..).for_each(|(place, group)| back[place] = Some(group));
        put(&mut self.own);
        let mut waited = false;
        for worker in self.workers.iter_mut().filter(|worker| worker.busy) {
            let share = worker.slot.reclaim().unwrap_or_else(|| {
                waited = true;
                worker.wait(self.spins)
            });
            worker.groups = share.groups;
            put(&mut worker.groups);
            worker.busy = false;
        }
        self.waited += u64::from(waited && part == Part::Run);
        groups.extend(self.back.drain(..).flatten());
        assert_eq!(groups.len(), count, "every group comes back");
    }
}

impl Part {
    fn concerns(self, group: &Group) -> bool {
        match self {
            Self::Run => group.has_work(),
            Self::Settle => group.has_to_settle(),
        }
    }

    fn carry_out(self, groups: &mut [(usize, Box<Group>)]) {
        match self {
            Self::Run => groups.iter_mut().for_each(|(_, group)| group.run_wave()),
            Self::Settle => groups.iter_mut().for_each(|(_, group)| group.settle()),
        }
    }
}

impl Worker {
    /// Spins for the share this worker runs; gives the processor away when that takes long.
    fn wait(&self, before_yield: u32) -> Share {
        let mut spins = 0;
        loop {
            if let Some(share) = self.slot.reclaim() {
                return share;
            }
            spins += 1;
            if spins < before_yield {
                std::hint::spin_loop();
            } else if self.handle.as_ref().is_some_and(JoinHandle::is_finished) {
                panic!("a worker died while it ran a wave");
            } else {
                std::thread::yield_now();
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.quit.store(true, Ordering::Release);
        for worker in &mut self.workers {
            worker.thread.unpark();
            if let Some(handle) = worker.handle.take() {
                // A worker that panicked has said so already.
                let _ = handle.join();
            }
        }
    }
}

fn work(slot: &Handover<Share>, quit: &AtomicBool, spins: u32) {
    let mut looks = 0;
    while !quit.load(Ordering::Acquire) {
        if let Some(mut share) = slot.take() {
            share.part.carry_out(&mut share.groups);
            slot.give_back(share);
            looks = 0;
            continue;
        }
        looks += 1;
        if looks < spins {
            std::hint::spin_loop();
        } else if looks < spins + YIELDS_BEFORE_PARK {
            std::thread::yield_now();
        } else if slot.announce_sleep() {
            std::thread::park();
        }
    }
}
