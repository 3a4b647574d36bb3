//! The fields of a lane's kernel, as [`Lane::export`](wavelock_kernel::Lane::export) returns them.
//! The settings of lanes, fair queues and contexts come from the spec and are not in the bytes.

use crate::codec::{
    Codec, CodecError, Reader, Unlimited, Writer, codes, converted, newtypes, record, variants,
};
use crate::lease::{LeaseCounts, LeaseRun};
use alloc::vec::Vec;
use wavelock_kernel::context::{ContextState, LiveContextState, Refill, ServerState, TierState};
use wavelock_kernel::fair::{EntityPhase, EntityState, FairSessionState, FairState, VirtualTimes};
use wavelock_kernel::{
    BlockReason, CapCounts, CapState, ContextCounts, ContextParameters, ContextPhase,
    ContextSettings, Evidence, FairSettings, Fallback, HoldReasons, LaneSettings, LaneState,
    LaneTotals, LeaseEnd, LeasePhase, LeaseState as KernelLease, Ledger, Missing, Notification,
    Policy, PreferredState, RecordState, Share, State, Tag, WakeSource,
};

record! {
    LaneState {
        id, settings = lane_settings, clock, charged, idle, operations, frame, frame_mark,
        wave_end as Unlimited, quantum_left as Unlimited, current, boundary, last, preferred,
        arrivals, steps, streak, wakes as waits, tallies, records, free, retired, sessions, reserved as reserved,
        fair, contexts as if_in_spec, caps = no_caps, fair_sessions = no_sessions, lease = no_lease,
    }
    CapState { session, settings, used, is_spent, counts }
    CapCounts { consumed, throttles, longest_overrun, demoted }
    KernelLease {
        generation, phase, name, context, holder, session, owner, bound, expires_frames, expires,
        asked, began, ended, end_asked, end_at, missing, before, caused, noise,
    }
    Missing { evidence, session, count, until as Unlimited }
    LeaseCounts { requests, activations, denials, ends, late, longest_latency, quiet, noise }
    LeaseRun { waiter, last, counts }
    LaneTotals { charged, overhead, idle }
    RecordState { reference, tag, state, held, arrival, picks_at, since, class, priority, tokens, weight, latency, ledger }
    Ledger { runtime, wait_total, wait_longest, switches, preemptions, blocks as waits, sleeps, migrations, steals }

    FairState { settings = fair_settings, slots, arrivals, entities }
    EntityState { slot, share, remainder, phase }
    FairSessionState { entity, arrivals, coroutines }
    VirtualTimes { time, deadline, arrival }
    Share { weight, class }

    TierState { settings = context_settings, capacity, contexts, free, server, current, sequence, stranded }
    ContextState { generation, live }
    LiveContextState { parameters, refills, phase, holder, lenders, deadline, sequence, consumed, counts, cell }
    ContextParameters { budget, period, deadline, refills, overrun, activation, fallback, owner, timeout }
    Refill { amount, at }
    ContextCounts { consumed, throttles, demotions, replenishments, misses, longest_overrun, donations }
    Notification { count, sequence, first, last, overrun }
    ServerState { began, served, active }
}

variants! {
    State {
        0 Ready,
        1 Running,
        2 Sleeping { until },
        3 Blocked { reason },
        4 Throttled { held },
        5 Finished,
        6 Faulted,
        7 Canceled,
    }
    PreferredState {
        0 Own(target),
        1 Pending(target),
        2 Rest(target, rest),
    }
    EntityPhase {
        0 Resting { lag, request_left },
        1 Queued(times),
        2 Delayed(times),
        3 Running(times, protected_until),
    }
}

codes! {
    BlockReason: BlockReason::from_code;
    ContextPhase: ContextPhase::from_code;
    LeasePhase: LeasePhase::from_code;
    LeaseEnd: LeaseEnd::from_code;
    Evidence: Evidence::from_code;
    Fallback: |code| [Fallback::BestEffort, Fallback::Held].get(usize::from(code)).copied();
}

newtypes! { Unlimited: Tag; }

converted! {
    HoldReasons as u8: |reasons| reasons.code(), HoldReasons::from_code, "reasons of a hold";
}

fn lane_settings(input: &mut Reader<'_>) -> Result<LaneSettings, CodecError> {
    Ok(input.spec().lane_settings())
}

fn fair_settings(input: &mut Reader<'_>) -> Result<FairSettings, CodecError> {
    match input.spec().policy {
        Policy::Fair(settings) => Ok(settings),
        _ => Err(input.malformed("a fair queue under another policy")),
    }
}

fn context_settings(input: &mut Reader<'_>) -> Result<ContextSettings, CodecError> {
    input.spec().context_settings().ok_or(input.malformed("contexts that the machine cannot have"))
}

/// The accounts of capped sessions follow the lane, and only in a machine with caps.
const fn no_caps(_: &mut Reader<'_>) -> Result<Vec<CapState>, CodecError> {
    Ok(Vec::new())
}

/// The sessions that share a lane follow it, and only in a machine in which they do.
const fn no_sessions(
    _: &mut Reader<'_>,
) -> Result<Option<(u64, Vec<FairSessionState>)>, CodecError> {
    Ok(None)
}

/// The lease of a lane follows it, and only on lanes that may be leased.
const fn no_lease(_: &mut Reader<'_>) -> Result<Option<KernelLease>, CodecError> {
    Ok(None)
}

/// The capacities of a lane, and a third number that is always 0: lanes once had an outbox.
mod reserved {
    use super::{Codec, CodecError, Reader, Writer};

    pub(super) fn write(value: &(u32, u32), out: &mut Writer) {
        (*value, 0u32).write(out);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<(u32, u32), CodecError> {
        let (reserved, outbox): (_, u32) = Codec::read(input)?;
        input.check("the capacity of an outbox", outbox == 0)?;
        Ok(reserved)
    }
}

/// Counts by reason of a wait, or by what ended one. Those of parks and session waits are the last,
/// and only in the bytes of a machine that has such waits.
mod waits {
    use super::{BlockReason, Codec, CodecError, Reader, WakeSource, Writer};

    /// The first of the late ones, in both lists.
    const LATE: usize = BlockReason::Park as usize;
    const _: () = assert!(LATE == WakeSource::Unpark as usize);

    const fn written<const N: usize>(has_late_waits: bool) -> usize {
        if has_late_waits { N } else { LATE }
    }

    pub(super) fn write<T: Codec, const N: usize>(counts: &[T; N], out: &mut Writer) {
        counts[..written::<N>(out.has_late_waits)].iter().for_each(|count| count.write(out));
    }

    pub(super) fn read<T: Codec + Copy + Default, const N: usize>(
        input: &mut Reader<'_>,
    ) -> Result<[T; N], CodecError> {
        let mut counts = [T::default(); N];
        for count in &mut counts[..written::<N>(input.has_late_waits)] {
            *count = T::read(input)?;
        }
        Ok(counts)
    }
}

/// The contexts of a lane. Whether it has any follows from the spec, so the bytes hold no flag.
mod if_in_spec {
    use super::{Codec, CodecError, Reader, TierState, Writer};

    pub(super) fn write(value: &Option<TierState>, out: &mut Writer) {
        value.iter().for_each(|tier| tier.write(out));
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Option<TierState>, CodecError> {
        input.spec().context_settings().map(|_| Codec::read(input)).transpose()
    }
}
