//! Cases of `trace`: events of lanes, their bytes, and the digest of a run of many frames.

use wavelock_abi::{Cycles, Frame};
use wavelock_trace::{Event, EventReader, LaneLog, RunDigest, StopCode};

use crate::{Report, Size, Stream};

pub(crate) fn cases(report: &mut Report) {
    for (size, name, frames, steps) in
        [(Size::Small, "trace/run", 4, 500), (Size::Full, "trace/long-run", 50, 20_000)]
    {
        report.case(size, name, |trail| {
            let mut stream = Stream(7);
            let mut run = RunDigest::new(b"portable");
            let mut lanes = [LaneLog::new(true), LaneLog::new(false), LaneLog::new(true)];
            for frame in 0..frames {
                for lane in &mut lanes {
                    lane.begin_frame();
                    lane.wave(Cycles(frame * 1_000_000));
                    write_steps(lane, &mut stream, steps);
                }
                let digests = lanes.each_mut().map(LaneLog::finish_frame);
                run.frame_sync(Frame(frame), &digests, &stream.next().to_le_bytes());
                trail.bytes(&run.value().0);
                let read = EventReader::new(lanes[0].bytes()).filter(Result::is_ok).count();
                trail.number(read as u64);
            }
        });
    }
}

/// Steps with every stop code, and occasionally an event with bytes.
fn write_steps(lane: &mut LaneLog, stream: &mut Stream, steps: u64) {
    for _ in 0..steps {
        let stop = StopCode::ALL[stream.below(StopCode::ALL.len() as u64) as usize];
        let (session, slot) = (stream.below(1 << 10) as u32, stream.next() as u32);
        lane.step(
            session,
            slot,
            Cycles(stream.below(100)),
            Cycles(stream.next() >> stream.below(64)),
            stop,
        );
        if stream.below(10) == 0 {
            lane.event(&Event::Output {
                session: u64::from(session),
                bytes: &stream.next().to_le_bytes(),
            });
        }
    }
}
