//! The contexts of a lane as bytes. A machine without contexts has none of these bytes; their settings are the spec's.

use super::StateError;
use super::wire::{Plain, Reader, Writer, plain};
use wavelock_kernel::context::{ContextState, LiveContextState, Refill, ServerState, TierState};
use wavelock_kernel::{Activation, ContextCounts, ContextParameters, ContextPhase, ContextSettings, Fallback, Notification, OverrunPolicy};

plain! {
    ContextState { generation, live }
    LiveContextState { parameters, refills, phase, holder, lenders, deadline, sequence, consumed, counts, cell }
    ContextParameters { budget, period, deadline, refills, overrun, activation, fallback, owner, timeout }
    Refill { amount, at }
    ContextCounts { consumed, throttles, demotions, replenishments, misses, longest_overrun, donations }
    Notification { count, sequence, first, last, overrun }
    ServerState { began, served, active }
}

/// Enums that are their code.
macro_rules! coded {
    ($($name:ident, $what:literal, $read:expr;)*) => {$(
        impl Plain for $name {
            fn write(&self, out: &mut Writer) {
                out.out.push(*self as u8);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
                let code = u8::read(input)?;
                ($read)(code).ok_or(input.wrong($what))
            }
        }
    )*};
}

coded! {
    ContextPhase, "the phase of a context", ContextPhase::from_code;
    OverrunPolicy, "an overrun policy", OverrunPolicy::from_code;
    Activation, "an activation", |code| [Activation::Sporadic, Activation::ConstantBandwidth].get(usize::from(code)).copied();
    Fallback, "a fallback", |code| [Fallback::BestEffort, Fallback::Held].get(usize::from(code)).copied();
}

pub(crate) fn write(state: &TierState, out: &mut Writer) {
    let TierState { settings: _, capacity, contexts, free, server, current, sequence, stranded } = state;
    capacity.write(out);
    contexts.write(out);
    free.write(out);
    (*server, *current).write(out);
    (*sequence, *stranded).write(out);
}

pub(crate) fn read(input: &mut Reader<'_>, settings: ContextSettings) -> Result<TierState, StateError> {
    let capacity = Plain::read(input)?;
    let contexts = Plain::read(input)?;
    let free = Plain::read(input)?;
    let (server, current) = Plain::read(input)?;
    let (sequence, stranded) = Plain::read(input)?;
    Ok(TierState { settings, capacity, contexts, free, server, current, sequence, stranded })
}
