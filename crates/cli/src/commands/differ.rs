//! Where the output of two runs differs, in the guest's terms: the line, and both texts.

use crate::manifest::grouped;
use std::collections::BTreeMap;
use wavelock_abi::SessionId;
use wavelock_system::{InputEvent, MachineSpec, Sink, World};
use wavelock_trace::{Event, EventReader};

/// Kept of each session's output, in bytes; a difference behind it is not described.
const KEPT_BYTES: usize = 1 << 20;
/// Kept of all sessions' outputs together.
const ALL_KEPT_BYTES: usize = 64 << 20;
/// Shown of a line, in bytes.
const SHOWN_BYTES: usize = 60;

/// The heads of the outputs of a run.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    by_session: BTreeMap<u64, Vec<u8>>,
    kept: usize,
}

impl Outputs {
    /// The outputs of a run of a machine that ends.
    pub(super) fn of(spec: &MachineSpec, inputs: &[InputEvent]) -> Option<Self> {
        let mut world = World::load(spec.clone(), inputs.to_vec(), false).ok()?.world;
        let mut outputs = Self::default();
        world.run(&mut outputs).ok()?;
        Some(outputs)
    }

    /// Adds the outputs among the events of a lane.
    pub(super) fn add_events(&mut self, events: &[u8]) {
        for event in EventReader::new(events).map_while(Result::ok) {
            if let Event::Output { session, bytes } = event {
                self.add(session, bytes);
            }
        }
    }

    fn add(&mut self, session: u64, bytes: &[u8]) {
        let head = self.by_session.entry(session).or_default();
        let room = (KEPT_BYTES - head.len()).min(ALL_KEPT_BYTES - self.kept).min(bytes.len());
        head.extend_from_slice(&bytes[..room]);
        self.kept += room;
    }

    /// Where the outputs of a session differ: the line, and what each has there.
    pub(super) fn difference(&self, other: &Self, session: u64) -> Option<OutputDifference> {
        let of = |outputs: &Self| outputs.by_session.get(&session).cloned().unwrap_or_default();
        let (one, two) = (of(self), of(other));
        let at = one.iter().zip(&two).position(|(one, two)| one != two);
        let at = at.or((one.len() != two.len()).then(|| one.len().min(two.len())))?;
        let before = one.get(..at)?;
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count() as u64;
        Some(OutputDifference {
            line,
            one: excerpt(&one, start, at),
            two: excerpt(&two, start, at),
        })
    }
}

/// The first difference between two outputs.
#[derive(Debug)]
pub(super) struct OutputDifference {
    line: u64,
    pub(super) one: String,
    pub(super) two: String,
}

impl OutputDifference {
    /// Where, in words.
    pub(super) fn place(&self) -> String {
        format!("line {} of its output", grouped(self.line))
    }
}

/// The line from `start`, cut around the byte `at`.
fn excerpt(bytes: &[u8], start: usize, at: usize) -> String {
    if start >= bytes.len() {
        return "nothing more".to_owned();
    }
    let start = start.max(at.saturating_sub(SHOWN_BYTES / 2));
    let rest = &bytes[start..];
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let shown = &rest[..end.min(SHOWN_BYTES)];
    match std::str::from_utf8(shown) {
        Ok(text) => format!("`{}`", text.escape_debug()),
        Err(_) => format!("bytes {}", shown.escape_ascii()),
    }
}

impl Sink for Outputs {
    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.add(u64::from(session.0), bytes);
    }

    fn log(&mut self, _: SessionId, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(one: &[u8], two: &[u8]) -> Option<(u64, String, String)> {
        let of = |bytes: &[u8]| {
            let mut outputs = Outputs::default();
            outputs.output(SessionId(3), bytes);
            outputs
        };
        let found = of(one).difference(&of(two), 3)?;
        Some((found.line, found.one, found.two))
    }

    #[test]
    fn the_line_that_differs_is_shown_from_both_sides() {
        assert_eq!(difference(b"a\nb\n", b"a\nb\n"), None);
        let texts = |line, one: &str, two: &str| Some((line, one.to_owned(), two.to_owned()));
        assert_eq!(
            difference(b"a\ntotal 41\nx", b"a\ntotal 42\nx"),
            texts(2, "`total 41`", "`total 42`")
        );
        assert_eq!(difference(b"a\n", b"a\nb\n"), texts(2, "nothing more", "`b`"));
        assert_eq!(difference(b"", b"\xff\n"), texts(1, "nothing more", "bytes \\xff"));
        let long = [&[b'x'; 500][..], b"1\n"].concat();
        let (line, one, two) = difference(&long, &[b'x'; 500]).expect("a difference");
        assert_eq!(
            (line, one, two),
            (1, format!("`{}1`", "x".repeat(30)), format!("`{}`", "x".repeat(30)))
        );
    }
}
