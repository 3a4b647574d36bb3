//! The state of a lane's kernel, as [`Lane::export`](wavelock_kernel::Lane::export) returns it. The
//! settings of lanes, fair queues and contexts are the spec's and not in the bytes.

use crate::codec::{
    Codec, CodecError, Reader, Unlimited, Writer, codes, newtypes, record, variants,
};
use wavelock_kernel::context::{ContextState, LiveContextState, Refill, ServerState, TierState};
use wavelock_kernel::fair::{EntityPhase, EntityState, FairState, VirtualTimes};
use wavelock_kernel::{
    BlockReason, ContextCounts, ContextParameters, ContextPhase, ContextSettings, FairSettings,
    Fallback, HoldReasons, LaneSettings, LaneState, LaneTotals, Ledger, Notification, Policy,
    PreferredState, RecordState, Share, State, Tag,
};

record! {
    LaneState {
        id, settings = lane_settings, clock, charged, idle, operations, frame, frame_mark,
        wave_end as Unlimited, quantum_left as Unlimited, current, boundary, last, preferred,
        arrivals, steps, streak, wakes, tallies, records, free, retired, sessions, reserved as Reserved,
        fair, contexts as IfInSpec,
    }
    LaneTotals { charged, overhead, idle }
    RecordState { reference, tag, state, held, arrival, picks_at, since, class, priority, tokens, weight, latency, ledger }
    Ledger { runtime, wait_total, wait_longest, switches, preemptions, blocks, sleeps, migrations, steals }

    FairState { settings = fair_settings, slots, arrivals, entities }
    EntityState { slot, share, remainder, phase }
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
    Fallback: |code| [Fallback::BestEffort, Fallback::Held].get(usize::from(code)).copied();
}

newtypes! { Unlimited: Tag; }

impl Codec for HoldReasons {
    fn write(&self, out: &mut Writer) {
        self.code().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        let code = u8::read(input)?;
        Self::from_code(code).ok_or(input.malformed("reasons of a hold"))
    }
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

/// The capacities of a lane. A third number is 0: lanes had an outbox once.
trait Reserved: Sized {
    fn write(&self, out: &mut Writer);
    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError>;
}

impl Reserved for (u32, u32) {
    fn write(&self, out: &mut Writer) {
        Codec::write(self, out);
        0u32.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        let reserved = Codec::read(input)?;
        let outbox = u32::read(input)?;
        input.check("the capacity of an outbox", outbox == 0)?;
        Ok(reserved)
    }
}

/// What some machines have: the spec decides, so the bytes hold no flag.
trait IfInSpec: Sized {
    fn write(&self, out: &mut Writer);
    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError>;
}

impl IfInSpec for Option<TierState> {
    fn write(&self, out: &mut Writer) {
        self.iter().for_each(|tier| tier.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        input.spec().context_settings().map(|_| Codec::read(input)).transpose()
    }
}
