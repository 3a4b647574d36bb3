//! The overview, as lines of text: what a terminal shows between two commands.
//!
//! Plain lines instead of a drawn interface: a terminal, a script and a test all get the same text.

use crate::debugger::Debugger;
use std::fmt::Write as _;
use std::io::{Read, Seek};
use wavelock_abi::SessionId;

/// Maximum lines of each section.
const LINES: usize = 12;

impl<R: Read + Seek> Debugger<R> {
    /// Position, lanes, coroutines, channels and the last events.
    #[must_use]
    pub fn screen(&self) -> String {
        let sessions: Vec<SessionId> =
            (0..self.timeline().world().spec().sessions.len() as u32).map(SessionId).collect();
        let mut text = String::new();
        let title = if self.probe().is_some() { "inside a slice" } else { "between two steps" };
        let parts = [
            (title, self.place()),
            ("lanes", self.lanes()),
            ("coroutines", self.coroutines(&sessions)),
            ("channels", self.channels(&sessions)),
            ("last step", self.events()),
        ];
        for (title, part) in parts {
            let _ =
                writeln!(text, "-- {title} {}", "-".repeat(60usize.saturating_sub(title.len())));
            let count = part.lines().count();
            part.lines().take(LINES).for_each(|line| {
                let _ = writeln!(text, "{line}");
            });
            if count > LINES {
                let _ = writeln!(text, "... {} more lines", count - LINES);
            }
        }
        text
    }
}
