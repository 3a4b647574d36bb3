//! Units. Each is its own type; there is no conversion between clocks.

use core::ops::{Add, AddAssign, Sub, SubAssign};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub u64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);
            /// More than any run reaches: "no bound".
            pub const MAX: Self = Self(u64::MAX);

            /// The difference, or zero when `other` is larger.
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// The sum, or [`Self::MAX`] when it does not fit.
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                self.0 += other.0;
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                self.0 -= other.0;
            }
        }
    };
}

unit! {
    /// Virtual time and guest cost, from the versioned cost table.
    Cycles
}
unit! {
    /// A frame number, or a count of frames.
    Frame
}
unit! {
    /// Monotonic host time; telemetry and the native driver only, never a decision of the
    /// deterministic scheduler.
    Nanos
}

/// Scheduling priority, larger first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Priority(pub u8);

/// Share of leftover time among fair entities: 1..=65535, 1024 is neutral.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Weight(u16);

impl Weight {
    /// The neutral weight.
    pub const NEUTRAL: Self = Self(1024);

    /// A weight, unless it is zero.
    #[must_use]
    pub const fn new(value: u16) -> Option<Self> {
        if value == 0 { None } else { Some(Self(value)) }
    }

    /// Its number, 1..=65535.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::NEUTRAL
    }
}

/// Latency class of a coroutine under the fair policy. It changes latency (the size of a request),
/// never the share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(u8)]
pub enum LatencyClass {
    /// An eighth of the base request.
    Urgent = 0,
    /// A quarter.
    Interactive = 1,
    /// The base request.
    #[default]
    Normal = 2,
    /// Four times the base request.
    Batch = 3,
    /// Sixteen times; never preempts another class.
    Idle = 4,
}

impl LatencyClass {
    /// All classes, most urgent first.
    pub const ALL: [Self; 5] =
        [Self::Urgent, Self::Interactive, Self::Normal, Self::Batch, Self::Idle];

    /// The request of this class when the base request is `base`, at least one cycle.
    #[must_use]
    pub const fn request(self, base: Cycles) -> Cycles {
        let cycles = match self {
            Self::Urgent => base.0 / 8,
            Self::Interactive => base.0 / 4,
            Self::Normal => base.0,
            Self::Batch => base.0.saturating_mul(4),
            Self::Idle => base.0.saturating_mul(16),
        };
        Cycles(if cycles == 0 { 1 } else { cycles })
    }
}
