//! The versioned costs of scheduler operations.
//!
//! Nothing is free (law 6): each scheduler operation advances the lane's clock and is charged to
//! the lane's overhead. Elsewhere: costs of instructions (`module`) and of host operations
//! ([`crate::HostOperation`]). All change only with [`COST_TABLE_VERSION`].

use crate::Cycles;

/// Version of all costs in this workspace. Recorded in traces; other versions are refused.
pub const COST_TABLE_VERSION: u32 = 2;

/// The maximum gap between two safepoints of a module, in cycles.
pub const MAX_GAP: Cycles = Cycles(4_096);

macro_rules! scheduler_costs {
    ($($name:ident, $field:ident, $cycles:literal, $doc:literal;)*) => {
        /// A scheduler operation that is charged to a lane's overhead row.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum SchedulerOperation {
            $(#[doc = $doc] $name,)*
        }

        impl SchedulerOperation {
            /// Every operation, in table order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name in reports.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($field),)* }
            }

            /// What it covers, for the documentation tables.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }
        }

        /// Cycles of each scheduler operation.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct SchedulerCosts {
            $(#[doc = $doc] pub $field: Cycles,)*
        }

        impl SchedulerCosts {
            /// The cost of one operation.
            #[must_use]
            pub const fn of(&self, operation: SchedulerOperation) -> Cycles {
                match operation { $(SchedulerOperation::$name => self.$field,)* }
            }
        }

        /// Version 1 of the scheduler's costs.
        pub const SCHEDULER_COSTS_V1: SchedulerCosts =
            SchedulerCosts { $($field: Cycles($cycles),)* };
    };
}

scheduler_costs! {
    Pick, pick, 12, "choosing the next coroutine of a lane";
    Switch, switch, 24, "switching a lane to another coroutine than the one it ran last";
    Wake, wake, 16, "making a blocked coroutine ready";
    Timer, timer, 8, "firing one sleeper or cycle timer";
    Inbox, inbox, 16, "applying one cross-lane effect at a wave's end";
    Refill, refill, 12, "replenishing a context";
    Migrate, migrate, 120, "moving one coroutine to another lane";
    Steal, steal, 60, "taking a session from another lane, beside its migrations";
}
