//! Checkers of a whole run: the order of a frame's events (semantics 22) and conservation
//! (semantics 20). The text says what is wrong.

use super::{FrameLog, Machine, Run};
use wavelock_abi::Cycles;
use wavelock_system::RunOutcome;
use wavelock_trace::Event;

/// Whether a frame's events come in the order of semantics 22. The text says what is out of place.
pub(crate) fn frame_order(log: &FrameLog) -> Result<(), String> {
    let stage = |event: &Event<'_>| match event {
        Event::Jump { .. } => Some(0),
        Event::FrameStart { .. } => Some(1),
        Event::Sample { .. } => Some(2),
        Event::Move { .. } => Some(3),
        Event::Dropped { .. } | Event::Deadlock { .. } => Some(4),
        Event::FrameSync { .. } => Some(5),
        _ => None,
    };
    let boundary = log.boundary();
    let stages: Option<Vec<u8>> = boundary.iter().map(stage).collect();
    let stages = stages.ok_or("an event of a lane is among the boundary's")?;
    if !stages.is_sorted()
        || stages.iter().filter(|stage| **stage == 1).count() != 1
        || stages.iter().filter(|stage| **stage == 5).count() != 1
    {
        return Err(format!("frame {}: {boundary:?}", log.frame));
    }
    let numbered = boundary.iter().all(|event| match event {
        Event::FrameStart { frame } | Event::FrameSync { frame } => *frame == log.frame,
        Event::Jump { from, to } => *to == log.frame && *from + 1 < *to,
        _ => true,
    });
    if !numbered {
        return Err(format!("frame {} carries another number", log.frame));
    }
    for lane in 0..log.lanes.len() {
        lane_order(log, lane)?;
    }
    Ok(())
}

/// On a lane: timers, then wakes of readers, then waves of steps.
fn lane_order(log: &FrameLog, lane: usize) -> Result<(), String> {
    let mut waves = 0;
    for (at, event) in log.lane(lane).iter().enumerate() {
        match event {
            Event::Timers { .. } if at != 0 => {
                return Err(format!(
                    "frame {} lane {lane}: timers fire at the frame's start",
                    log.frame
                ));
            }
            Event::Wave { .. } => waves += 1,
            // What a wave's end does to a lane can come to one that had nothing to run in this
            // frame.
            Event::Wake { .. }
            | Event::Timers { .. }
            | Event::CapRefill { .. }
            | Event::Arrival { .. }
            | Event::Handoff { .. }
            | Event::Entered { .. } => {}
            Event::Close { .. }
            | Event::Cancel { .. }
            | Event::Kill { .. }
            | Event::End { .. }
            | Event::SessionEnd { .. } => {}
            _ if waves == 0 => {
                return Err(format!(
                    "frame {} lane {lane}: {event:?} before the first wave",
                    log.frame
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The rows of every frame and lane add up, one after the other, to the run's totals.
pub(crate) fn conserved(run: &Run, machine: &Machine) -> Result<(), String> {
    let frame_cycles = machine.spec.frame_cycles;
    let lanes = usize::from(machine.spec.lanes);
    let mut sums = vec![(0, 0, 0); lanes];
    let mut overrun = vec![Cycles::ZERO; lanes];
    let mut next = 0;
    let last = run.sink.costs.len() - 1;
    for (at, costs) in run.sink.costs.iter().enumerate() {
        let jumped = costs.frame.0 - next;
        next = costs.frame.0 + 1;
        for (lane, row) in costs.rows.iter().enumerate() {
            if jumped == 0 && row.overrun_in != overrun[lane] {
                return Err(format!(
                    "frame {} lane {lane}: overrun in {:?}, the frame before said {:?}",
                    costs.frame.0, row.overrun_in, overrun[lane]
                ));
            }
            if (at < last || run.outcome == RunOutcome::Frames) && !row.is_conserved(frame_cycles) {
                return Err(format!("frame {} lane {lane}: {row:?}", costs.frame.0));
            }
            // A jump begins where the last frame ended on this lane.
            let skipped = (jumped * frame_cycles.0).saturating_sub(overrun[lane].0);
            overrun[lane] = row.overrun_out;
            sums[lane].0 += row.charged.0;
            sums[lane].1 += row.overhead.0;
            sums[lane].2 += row.idle.0 + skipped;
        }
    }
    let cycles = &run.summary.cycles;
    let total =
        sums.iter().fold((0, 0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1, sum.2 + row.2));
    if total != (cycles.charged, cycles.overhead_total(), cycles.idle) {
        return Err(format!("rows {total:?}, totals {cycles:?}"));
    }
    let sessions: u64 = run.summary.sessions.iter().map(|session| session.cycles.0).sum();
    if sessions != cycles.charged {
        Err(format!("sessions {sessions}, lanes {}", cycles.charged))
    } else {
        Ok(())
    }
}
