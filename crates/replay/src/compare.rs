//! Compares two traces: the first frame in which their runs differ, from the recorded data alone;
//! nothing is run.
//!
//! Forks of one snapshot are compared frame by frame after it. Frames that only one of the traces
//! has because the other starts later are skipped.

use crate::divergence::Divergence;
use crate::record::Level;
use crate::trace::{Frames, OpenError, Trace};
use crate::verify::OwnedFrame;
use std::collections::VecDeque;
use std::io::Read;
use wavelock_trace::{Event, EventReader, read_frames};

/// An iterator over the frames of a trace, with one frame of lookahead.
struct Reading<R> {
    trace: Trace<R>,
    frames: VecDeque<OwnedFrame>,
    over: bool,
}

impl<R: Read> Reading<R> {
    const fn new(trace: Trace<R>) -> Self {
        Self { trace, frames: VecDeque::new(), over: false }
    }

    /// The next frame, which is not consumed. `None` at the trace's end.
    fn peek(&mut self) -> Result<Option<&OwnedFrame>, OpenError> {
        while self.frames.is_empty() && !self.over {
            match self.trace.next_frames()? {
                Frames::Some(payload) => {
                    let frames = read_frames(&payload).map_err(OpenError::Frames)?;
                    self.frames.extend(frames.iter().map(OwnedFrame::of));
                }
                Frames::End(_) | Frames::Missing(_) => self.over = true,
            }
        }
        Ok(self.frames.front())
    }
}

/// The first difference between the runs of two traces: the first frame whose events differ (or
/// whose digests differ, if a trace contains no events), or which only one of them has. `recorded`
/// is that of the first trace, `replayed` that of the second. Runs of different machines have
/// different digests in every frame; frames with equal events count as equal.
///
/// # Errors
/// A trace cannot be read.
pub fn compare_traces<A: Read, B: Read>(
    first: Trace<A>,
    second: Trace<B>,
) -> Result<Option<Divergence>, OpenError> {
    let level = first.level.min(second.level);
    let mut steps = first
        .origin
        .iter()
        .chain(&second.origin)
        .map(|origin| origin.place().steps)
        .max()
        .unwrap_or(0);
    let (mut one, mut two) = (Reading::new(first), Reading::new(second));
    let begin =
        one.peek()?.map_or(0, OwnedFrame::number).max(two.peek()?.map_or(0, OwnedFrame::number));
    while one.peek()?.is_some_and(|frame| frame.number() < begin) {
        one.frames.pop_front();
    }
    while two.peek()?.is_some_and(|frame| frame.number() < begin) {
        two.frames.pop_front();
    }
    loop {
        let (left, right) = match (one.peek()?, two.peek()?) {
            (None, None) => return Ok(None),
            (Some(left), None) => {
                return Ok(Some(Divergence::plain(left.number(), "another frame", "nothing more")));
            }
            (None, Some(right)) => {
                return Ok(Some(Divergence::plain(
                    right.number(),
                    "nothing more",
                    "another frame",
                )));
            }
            (Some(left), Some(right)) => (left, right),
        };
        if left.number() != right.number() {
            let (a, b) = (left.number(), right.number());
            return Ok(Some(Divergence::plain(
                a.min(b),
                &format!("frame {a}"),
                &format!("frame {b}"),
            )));
        }
        let (boundary, lanes) = right.events();
        if left.digest() != right.digest() {
            if level == Level::Inputs {
                return Ok(Some(Divergence::plain(
                    left.number(),
                    &format!("digest {}", left.digest()),
                    &format!("digest {}", right.digest()),
                )));
            }
            if let Some(found) = left.at_level(level).difference(level, boundary, &lanes, steps) {
                return Ok(Some(found));
            }
        }
        let count = |bytes: &&[u8]| {
            EventReader::new(bytes).filter(|event| matches!(event, Ok(Event::Step { .. }))).count()
                as u64
        };
        steps += lanes.iter().map(count).sum::<u64>();
        one.frames.pop_front();
        two.frames.pop_front();
    }
}
