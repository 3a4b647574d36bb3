//! Soaks: runs random machines sequentially and on 1 to N workers until one differs.
//!
//! [`soak`] takes seeds in order. A machine whose runs differ is shrunk by [`shrink`] while they
//! still differ, and returned as a [`Failure`] with the first difference. A [`Tally`] measures
//! coverage, since machines that never use two lanes test nothing.
//!
//! The driver that runs a machine on workers is an argument, normally [`on_workers`]: tests pass a
//! broken one and check that the soak finds it. [`soak_live`] does the same for live machines, with
//! control inputs and rollbacks. Elsewhere: the command line writes a failure to
//! files.
//!
//! ```
//! use wavelock_soak::{Settings, on_workers, soak};
//! let settings = Settings { seed: 7, machines: 3, workers: 2 };
//! let (tally, failure) = soak(settings, &on_workers, &mut |_| true);
//! assert_eq!((tally.machines, failure.is_none()), (3, true));
//! ```
#![forbid(unsafe_code)]

mod live;
mod shrink;
mod trial;

pub use live::{LiveDriver, LiveFailure, LiveRun, as_they_come, known_at_load, soak_live};
pub use shrink::{Size, shrink};
pub use trial::{Difference, Driver, Observed, Parallel, on_workers, sequential, try_case};
pub use wavelock_generate::{Case, case};

/// The settings of a soak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The first seed.
    pub seed: u64,
    /// Maximum number of machines.
    pub machines: u64,
    /// Each machine runs on 1 to this many workers.
    pub workers: usize,
}

/// The coverage of a soak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Machines that were run.
    pub machines: u64,
    /// Those with certified waves of several groups.
    pub several_lanes: u64,
    /// Those with waves that ran on several threads.
    pub several_threads: u64,
    /// Those with effects that crossed lanes.
    pub crossed: u64,
    /// Those in which sessions moved to another lane.
    pub moved: u64,
    /// Waves of all sequential runs.
    pub waves: u64,
    /// Waves on several threads, of all runs.
    pub parallel_waves: u64,
    /// Effects that crossed lanes, of all sequential runs.
    pub crossings: u64,
    /// Sessions that moved, of all sequential runs.
    pub moves: u64,
    /// Sum of the first eight bytes of every sequential run's digest: equal for two builds that run
    /// the same machines identically.
    pub digests: u64,
}

impl Tally {
    /// Minimum number of machines for `lacks`.
    const FEWEST: u64 = 200;

    /// The first property that fewer than a third of the machines have, if there are many machines.
    #[must_use]
    pub fn lacks(&self) -> Option<(&'static str, u64)> {
        let parts = [
            ("certified waves of several lanes", self.several_lanes),
            ("waves on several threads", self.several_threads),
            ("effects across lanes", self.crossed),
            ("sessions that moved", self.moved),
        ];
        parts
            .into_iter()
            .find(|(_, count)| self.machines >= Self::FEWEST && count * 3 < self.machines)
    }

    fn add(&mut self, seen: &Observed, runs: &[Parallel]) {
        self.machines += 1;
        self.waves += seen.summary.waves;
        self.crossings += seen.crossings;
        self.moves += seen.moves;
        self.digests = self.digests.wrapping_add(first_bytes(&seen.summary));
        self.crossed += u64::from(seen.crossings > 0);
        self.moved += u64::from(seen.moves > 0);
        self.several_lanes += u64::from(runs.iter().any(|run| run.multi_lane > 0));
        self.several_threads += u64::from(runs.iter().any(|run| run.parallel > 0));
        self.parallel_waves += runs.iter().map(|run| run.parallel).sum::<u64>();
    }
}

fn first_bytes(summary: &wavelock_system::RunSummary) -> u64 {
    summary.digest.0.iter().take(8).fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

/// A machine whose runs differ.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The difference in the original machine.
    pub original: Difference,
    /// The smallest machine found that still differs.
    pub case: Case,
    /// Its difference.
    pub difference: Difference,
    /// Number of machines tried by shrinking.
    pub tried: u64,
}

/// Runs machines until one differs, all are done, or `go_on`, called after each, returns `false`.
pub fn soak(
    settings: Settings,
    driver: Driver<'_>,
    go_on: &mut dyn FnMut(&Tally) -> bool,
) -> (Tally, Option<Failure>) {
    let mut tally = Tally::default();
    for number in 0..settings.machines {
        let seed = settings.seed.wrapping_add(number);
        let drawn = case(seed);
        let expected = sequential(&drawn);
        match try_case(&drawn, &expected, settings.workers, driver) {
            Ok(runs) => tally.add(&expected, &runs),
            Err(original) => {
                tally.machines += 1;
                let (case, difference, tried) =
                    shrink(drawn, original.clone(), settings.workers, driver);
                return (tally, Some(Failure { seed, original, case, difference, tried }));
            }
        }
        if !go_on(&tally) {
            break;
        }
    }
    (tally, None)
}
