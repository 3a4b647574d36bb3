//! Host calls that are answered in place: the coroutine goes on in the loop instead of stopping and being run again.
//!
//! Contract: an answer in place is what a stop, [`crate::Coroutine::resume`] and another [`crate::run`] with the cycles that are left would have been; the
//! call is charged before it is asked for, as ever. Calls of two parameters and one result are offered, in runs of usual length; everything else
//! stops.

/// Answers some host calls in place.
pub trait Host {
    /// The call of function `number` with these arguments; the caller's memory has `memory_bytes`.
    fn call(&mut self, number: u16, arguments: [u64; 2], memory_bytes: u64) -> Answer;
}

/// What a [`Host`] does with a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Nothing: the coroutine stops with [`crate::Stop::Host`], and nothing has changed.
    Stop,
    /// It is done, with this result.
    Result(u64),
    /// It is done, with this result, and the slice ends so many cycles sooner: what was done moved the lane's clock.
    Sooner {
        /// The result.
        result: u64,
        /// Cycles.
        cycles: u32,
    },
    /// It is done, with result 0, and eight bytes are written to the caller's memory.
    Number {
        /// Where; the host has made sure that they fit.
        at: u32,
        /// What, in little-endian order.
        number: u64,
    },
}

/// A host that answers nothing in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopping;

impl Host for Stopping {
    fn call(&mut self, _number: u16, _arguments: [u64; 2], _memory_bytes: u64) -> Answer {
        Answer::Stop
    }
}
