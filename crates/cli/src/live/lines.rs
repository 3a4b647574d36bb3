//! Bytes to lines, with a bound on each: the rest of a longer one is read and thrown away.

use super::MOST_LINE_BYTES;
use std::io::{self, BufRead, BufReader, Read};

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Line {
    /// Its bytes without the end of line.
    Whole(Vec<u8>),
    /// It had more bytes than a line may have.
    TooLong {
        /// How many.
        bytes: u64,
    },
}

/// The lines of a stream.
pub(crate) struct Lines<R> {
    stream: BufReader<R>,
    /// Lines so far.
    pub(crate) number: u64,
}

impl<R: Read> Lines<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self { stream: BufReader::with_capacity(8 << 10, stream), number: 0 }
    }

    /// The next line, or the rest of the stream; `None` at its end.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line>> {
        let (mut line, mut bytes, mut is_whole) = (Vec::new(), 0_u64, false);
        while !is_whole {
            let part = match self.stream.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                part => part?,
            };
            if part.is_empty() {
                break;
            }
            let end = part.iter().position(|byte| *byte == b'\n');
            let kept = &part[..end.unwrap_or(part.len())];
            bytes += kept.len() as u64;
            // One more byte than is allowed, for a carriage return.
            let room = (MOST_LINE_BYTES + 1).saturating_sub(line.len());
            line.extend_from_slice(&kept[..kept.len().min(room)]);
            is_whole = end.is_some();
            let used = kept.len() + usize::from(is_whole);
            self.stream.consume(used);
        }
        if bytes == 0 && !is_whole {
            return Ok(None);
        }
        self.number += 1;
        if bytes == line.len() as u64 {
            line.pop_if(|last| *last == b'\r');
        }
        Ok(Some(match line.len() <= MOST_LINE_BYTES && bytes <= MOST_LINE_BYTES as u64 + 1 {
            true => Line::Whole(line),
            false => Line::TooLong { bytes },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Line> {
        let mut lines = Lines::new(bytes);
        std::iter::from_fn(|| lines.next().expect("bytes in memory")).collect()
    }

    #[test]
    fn lines_end_at_newlines_and_at_the_end() {
        let whole = |text: &str| Line::Whole(text.into());
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"a\r\n\nb"), [whole("a"), whole(""), whole("b")]);
        assert_eq!(lines(b"\n"), [whole("")]);
        assert_eq!(lines(b"a\rb\n"), [whole("a\rb")]);
    }

    #[test]
    fn a_line_that_is_too_long_is_counted_and_the_next_one_is_read() {
        let long = |bytes: usize, end: &str| [&vec![b'x'; bytes][..], end.as_bytes()].concat();
        let most = MOST_LINE_BYTES;
        assert_eq!(lines(&long(most, "\n")), [Line::Whole(long(most, ""))]);
        assert_eq!(lines(&long(most, "\r\n")), [Line::Whole(long(most, ""))]);
        let found = lines(&long(most + 1, "\nok\n"));
        assert_eq!(found, [Line::TooLong { bytes: most as u64 + 1 }, Line::Whole(b"ok".into())]);
        let found = lines(&long(10 * most, ""));
        assert_eq!(found, [Line::TooLong { bytes: 10 * most as u64 }]);
    }
}
