//! The state of a lane's kernel: what [`Lane::export`](wavelock_kernel::Lane::export) gives, as bytes. Settings are the spec's, not the state's.

use super::StateError;
use super::wire::{Plain, Reader, Writer, plain, tagged};
use wavelock_abi::Cycles;
use wavelock_kernel::fair::{EntityState, FairState, Standing};
use wavelock_kernel::{
    BlockReason, ContextSettings, HoldReasons, LaneSettings, LaneState, LaneTotals, Ledger, Policy, PreferredState, RecordState, Share,
    State, Tag,
};

plain! {
    RecordState { reference, tag, state, held, arrival, picks_at, since, class, priority, tokens, weight, latency, ledger }
    Ledger { runtime, wait_total, wait_longest, switches, preemptions, blocks, sleeps, migrations, steals }
    LaneTotals { charged, overhead, idle }
    EntityState { slot, share, remainder, standing }
    Share { weight, class }
}

tagged! {
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
    Standing {
        0 Resting { lag, request_left },
        1 Queued { time, deadline, arrival },
        2 Delayed { time, deadline, arrival },
        3 Running { time, deadline, arrival, protected_until },
    }
}

impl Plain for Tag {
    fn write(&self, out: &mut Writer) {
        out.raw(self.0);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        input.raw().map(Self)
    }
}

impl Plain for HoldReasons {
    fn write(&self, out: &mut Writer) {
        self.code().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let code = u8::read(input)?;
        Self::from_code(code).ok_or(input.wrong("reasons of a hold"))
    }
}

impl Plain for BlockReason {
    fn write(&self, out: &mut Writer) {
        out.out.push(*self as u8);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let code = u8::read(input)?;
        Self::from_code(code).ok_or(input.wrong("the reason of a wait"))
    }
}

// Long: one list of fields, each with its place.
pub(crate) fn write(state: &LaneState, out: &mut Writer) {
    let LaneState {
        id,
        settings: _,
        clock,
        charged,
        idle,
        operations,
        frame,
        frame_mark,
        wave_end,
        current,
        quantum_left,
        boundary,
        last,
        preferred,
        arrivals,
        steps,
        streak,
        wakes,
        tallies,
        records,
        free,
        retired,
        sessions,
        reserved,
        fair,
        contexts,
    } = state;
    id.write(out);
    (*clock, (*charged, *idle)).write(out);
    operations.write(out);
    (*frame, *frame_mark).write(out);
    // These three may be without end.
    out.raw(wave_end.0.0);
    out.raw(wave_end.1);
    out.raw(quantum_left.0);
    current.write(out);
    (*boundary, *last).write(out);
    preferred.write(out);
    (*arrivals, (*steps, *streak)).write(out);
    wakes.write(out);
    tallies.write(out);
    records.write(out);
    free.write(out);
    retired.write(out);
    sessions.write(out);
    (reserved.0, (reserved.1, reserved.2)).write(out);
    fair.is_some().write(out);
    if let Some(FairState { settings: _, slots, arrivals, entities }) = fair {
        (*slots, *arrivals).write(out);
        entities.write(out);
    }
    // No byte says whether there are any: the spec does.
    if let Some(contexts) = contexts {
        super::context::write(contexts, out);
    }
}

// Long: one list of fields, each with its place.
pub(crate) fn read(input: &mut Reader<'_>, settings: LaneSettings, contexts: Option<ContextSettings>) -> Result<LaneState, StateError> {
    let id = Plain::read(input)?;
    let (clock, (charged, idle)) = Plain::read(input)?;
    let operations = Plain::read(input)?;
    let (frame, frame_mark) = Plain::read(input)?;
    let wave_end = (Cycles(input.raw()?), input.raw()?);
    let quantum_left = Cycles(input.raw()?);
    let current = Plain::read(input)?;
    let (boundary, last) = Plain::read(input)?;
    let preferred = Plain::read(input)?;
    let (arrivals, (steps, streak)) = Plain::read(input)?;
    let wakes = Plain::read(input)?;
    let tallies = Plain::read(input)?;
    let records = Plain::read(input)?;
    let free = Plain::read(input)?;
    let retired = Plain::read(input)?;
    let sessions = Plain::read(input)?;
    let (first, (second, third)) = Plain::read(input)?;
    let has_fair = bool::read(input)?;
    let fair = match settings.policy {
        Policy::Fair(settings) if has_fair => {
            let (slots, arrivals) = Plain::read(input)?;
            Some(FairState { settings, slots, arrivals, entities: Plain::read(input)? })
        }
        _ => {
            input.check("a fair queue under another policy", !has_fair)?;
            None
        }
    };
    Ok(LaneState {
        id,
        settings,
        clock,
        charged,
        idle,
        operations,
        frame,
        frame_mark,
        wave_end,
        current,
        quantum_left,
        boundary,
        last,
        preferred,
        arrivals,
        steps,
        streak,
        wakes,
        tallies,
        records,
        free,
        retired,
        sessions,
        reserved: (first, second, third),
        fair,
        contexts: contexts.map(|settings| super::context::read(input, settings)).transpose()?,
    })
}
