//! The payload of a `Frames` chunk: whole frames, each with its boundary events, its lanes' events
//! and the run digest after it.

use crate::event::EventWriter;
use crate::{Digest, EventReader};
use alloc::vec::Vec;
use core::fmt;

/// One frame of a trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameRecord<'a> {
    /// Its number.
    pub frame: u64,
    /// The run digest after its FRAME_SYNC.
    pub digest: Digest,
    /// Its boundary events.
    pub boundary: &'a [u8],
    /// Each lane's events, in lane order; empty below the full level.
    pub lanes: Vec<&'a [u8]>,
}

/// The payload is not a list of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FramesError {
    /// Byte offset in the payload.
    pub offset: usize,
}

impl fmt::Display for FramesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of a frames chunk: not a frame", self.offset)
    }
}

impl core::error::Error for FramesError {}

/// Appends one frame.
pub fn write_frame<'a>(
    frame: u64,
    digest: Digest,
    boundary: &[u8],
    lanes: impl ExactSizeIterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) {
    let mut writer = EventWriter(out);
    writer.number(frame);
    writer.0.extend_from_slice(&digest.0);
    writer.bytes(boundary);
    writer.number(lanes.len() as u64);
    lanes.for_each(|lane| writer.bytes(lane));
}

/// Reads the frames of a chunk's payload.
///
/// # Errors
/// The first offset that is not a frame.
pub fn read_frames(payload: &[u8]) -> Result<Vec<FrameRecord<'_>>, FramesError> {
    let mut frames = Vec::new();
    let mut reader = EventReader::new(payload);
    while reader.offset() < payload.len() {
        let offset = reader.offset();
        frames.push(reader.frame().ok_or(FramesError { offset })?);
    }
    Ok(frames)
}

impl<'a> EventReader<'a> {
    fn frame(&mut self) -> Option<FrameRecord<'a>> {
        let frame = self.number_field()?;
        let digest = Digest(self.fixed::<32>()?);
        let boundary = self.bytes_field()?;
        let count = self.number_field()?;
        // Every lane takes at least one byte, so the count is bounded by the remaining input.
        if count > self.rest() as u64 {
            return None;
        }
        let lanes = (0..count).map(|_| self.bytes_field()).collect::<Option<Vec<_>>>()?;
        Some(FrameRecord { frame, digest, boundary, lanes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn frames_round_trip_and_truncations_are_found() {
        let mut bytes = Vec::new();
        let lanes: [&[u8]; 2] = [b"abc", b""];
        write_frame(7, Digest([3; 32]), b"boundary", lanes.into_iter(), &mut bytes);
        let first = bytes.len();
        write_frame(8, Digest([4; 32]), b"", [].into_iter(), &mut bytes);
        let frames = read_frames(&bytes).expect("own encoding");
        assert_eq!(
            frames[0],
            FrameRecord {
                frame: 7,
                digest: Digest([3; 32]),
                boundary: b"boundary",
                lanes: vec![b"abc", b""]
            }
        );
        assert_eq!(frames[1].frame, 8);
        for end in (1..bytes.len()).filter(|end| *end != first) {
            assert!(read_frames(&bytes[..end]).is_err(), "{end}");
        }
    }
}
