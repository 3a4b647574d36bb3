//! Counters of a lane: one table, each classed *permanent* (it explains decisions, and is always
//! kept) or *measured* (kept in measured mode only, because it costs a look at every pick).
//!
//! Contract: counters are functions of the model, never of host or workers. Measuring changes no
//! decision and no cycle: nothing in the kernel reads a counter. A measured counter of a lane that
//! does not measure is absent, never zero.

use crate::lane::Lane;
use crate::policy::{Policy, PriorityRule};
use crate::types::WakeSource;
use wavelock_abi::SchedulerOperation;

/// Whether a counter is always kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CounterClass {
    /// Always.
    Permanent,
    /// In measured mode only.
    Measured,
}

macro_rules! counters {
    ($($name:ident, $text:literal, $class:ident, $doc:literal;)*) => {
        /// What is counted.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Counter {
            $(#[doc = $doc] $name,)*
        }

        impl Counter {
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
            /// Every one, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// What it counts, for the documentation tables.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }

            /// Whether it is always kept.
            #[must_use]
            pub const fn class(self) -> CounterClass {
                match self { $(Self::$name => CounterClass::$class,)* }
            }
        }
    };
}

counters! {
    Slices, "slices", Permanent, "slices begun";
    Picks, "picks", Permanent, "decisions taken: slices that began with a pick";
    Switches, "switches", Permanent, "picks of another coroutine than the one that ran last";
    Wakes, "wakes", Permanent, "coroutines made ready, by any source";
    RefusedWakes, "refused-wakes", Permanent, "wakes of a stale or not waiting coroutine, or by the wrong source";
    Preemptions, "preemptions", Permanent, "coroutines sent back to the queue at a safepoint";
    Handoffs, "handoffs", Permanent, "picks of a preferred coroutine";
    MovedIn, "moved-in", Permanent, "coroutines that came from another lane";
    Steals, "steals", Permanent, "sessions taken from another lane by a steal";
    Considered, "considered", Measured, "candidates compared by all picks";
    ReadyTotal, "ready-total", Measured, "ready coroutines at each pick, summed; divided by the picks, the mean length of the queue";
    ReadyPeak, "ready-peak", Measured, "most coroutines ready at a pick";
}

/// A copy of a lane's counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counters {
    values: [u64; Counter::COUNT],
    is_measured: bool,
}

impl Counters {
    /// The value of a counter; `None` for a measured one of a lane that does not measure.
    #[must_use]
    pub const fn get(&self, counter: Counter) -> Option<u64> {
        match counter.class() {
            CounterClass::Measured if !self.is_measured => None,
            _ => Some(self.values[counter as usize]),
        }
    }

    /// What was counted since an earlier copy; a peak stays a peak.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut difference = *self;
        for &counter in Counter::ALL.iter().filter(|&&counter| counter != Counter::ReadyPeak) {
            difference.values[counter as usize] =
                self.values[counter as usize].saturating_sub(earlier.values[counter as usize]);
        }
        difference.is_measured = self.is_measured && earlier.is_measured;
        difference
    }
}

/// What is counted apart from the lane's own totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    /// By [`WakeSource`] in table order.
    pub(crate) wakes: [u64; WakeSource::COUNT],
    pub(crate) refused_wakes: u64,
    pub(crate) preemptions: u64,
    pub(crate) handoffs: u64,
    /// Measured mode is on.
    pub(crate) is_measured: bool,
    pub(crate) considered: u64,
    pub(crate) ready_total: u64,
    pub(crate) ready_peak: u64,
}

impl Lane {
    /// A copy of the counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let tally = &self.tally;
        let values = [
            self.step(),
            self.picks(),
            self.operations[SchedulerOperation::Switch as usize],
            self.wakes().iter().sum(),
            tally.refused_wakes,
            tally.preemptions,
            tally.handoffs,
            self.operations[SchedulerOperation::Migrate as usize],
            self.operations[SchedulerOperation::Steal as usize],
            tally.considered,
            tally.ready_total,
            tally.ready_peak,
        ];
        Counters { values, is_measured: tally.is_measured }
    }

    /// Turns measured mode on or off; the measured counters restart at zero.
    pub fn set_measured(&mut self, is_measured: bool) {
        self.tally =
            Tally { is_measured, considered: 0, ready_total: 0, ready_peak: 0, ..self.tally };
        self.refresh();
    }

    /// Counts what a pick is about to look at.
    #[cold]
    pub(crate) fn measure_pick(&mut self) {
        let ready = u64::from(self.ready_count());
        let considered = match self.settings.policy {
            Policy::Priority { rule: PriorityRule::Aging, .. } => {
                self.ready.occupied().iter().count() as u64
            }
            Policy::ProgressAware { .. } => ready.min(2),
            _ => ready.min(1),
        };
        self.tally.considered += considered;
        self.tally.ready_total += ready;
        self.tally.ready_peak = self.tally.ready_peak.max(ready);
    }
}
