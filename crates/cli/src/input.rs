//! Input files: JSON Lines to input events (semantics 32), and whole files as standard input.
//!
//! Contract: events are returned in file order with ascending frames, for existing sessions; any
//! other line is refused with its number. Elsewhere: `system` delivers them.

use crate::diagnostic::{Diagnostic, Diagnostics, SHOWN_DIAGNOSTICS, Source, Span};
use crate::manifest::grouped;
use crate::suggest::nearest;
use serde::Deserialize;
use std::collections::BTreeMap;
use wavelock_abi::{Frame, SessionId};

/// The recipient of an input event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// One session.
    Session(SessionId),
    /// Every session.
    All,
}

/// One input event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputEvent {
    /// The frame at whose start it is delivered.
    pub frame: Frame,
    /// Its recipient.
    pub recipient: Recipient,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A line as written. Unknown keys are refused like those of a manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    frame: u64,
    session: String,
    text: Option<String>,
    hex: Option<String>,
}

/// The form of a line, added to every error.
const FORM: &str =
    "a line is {\"frame\": N, \"session\": \"name\" or \"*\", \"text\" or \"hex\": \"...\"}";

/// Limit of the bytes that all events of a file deliver: a short line for `*` can go to 65,536
/// sessions.
const MOST_DELIVERED_BYTES: u64 = 4 << 30;

/// Bytes counted per delivered event in addition to its contents.
const EVENT_BYTES: u64 = 64;

/// Reads an input file for sessions of these names.
pub fn read_input(source: Source, sessions: &[&str]) -> Result<Vec<InputEvent>, Diagnostics> {
    let mut events: Vec<InputEvent> = Vec::new();
    let mut findings = Vec::new();
    // If two sessions have the same name, the first one is meant.
    let ids = sessions
        .iter()
        .enumerate()
        .rev()
        .map(|(index, name)| (*name, SessionId(index as u32)))
        .collect();
    let (mut start, mut delivered) = (0, 0_u64);
    for line in source.text.split_inclusive('\n') {
        let text = line.trim_end_matches(['\n', '\r']);
        let span = start..start + text.len();
        start += line.len();
        if text.trim().is_empty() {
            continue;
        }
        let least = events.last().map_or(Frame::ZERO, |event| event.frame);
        // A suggestion compares every name, so it is computed only for diagnostics that will be
        // printed.
        let suggests = if findings.len() < SHOWN_DIAGNOSTICS { sessions } else { &[] };
        match read_line(text, &span, &ids, suggests, least) {
            Ok(event) => {
                delivered = delivered.saturating_add(delivered_bytes(&event, sessions.len()));
                if delivered > MOST_DELIVERED_BYTES {
                    findings.push(too_much(span, delivered));
                    break;
                }
                events.push(event);
            }
            Err(finding) => findings.push(finding.note(FORM)),
        }
    }
    if findings.is_empty() { Ok(events) } else { Err(Diagnostics::new(source, findings)) }
}

/// The bytes an event takes when delivered: each recipient gets its own copy.
fn delivered_bytes(event: &InputEvent, sessions: usize) -> u64 {
    let recipients = if event.recipient == Recipient::All { sessions as u64 } else { 1 };
    recipients.saturating_mul(event.bytes.len() as u64 + EVENT_BYTES)
}

fn too_much(span: Span, found: u64) -> Diagnostic {
    let (found, most) = (grouped(found), grouped(MOST_DELIVERED_BYTES));
    Diagnostic::error(format!("the input up to here takes {found} bytes when delivered; the limit is {most}"))
        .mark(span, format!("allowed: at most {most} bytes"))
        .note(format!("an event counts its bytes and {EVENT_BYTES} more, once per recipient; `*` means every session"))
}

fn read_line(
    text: &str,
    span: &Span,
    ids: &BTreeMap<&str, SessionId>,
    suggests: &[&str],
    least: Frame,
) -> Result<InputEvent, Box<Diagnostic>> {
    let line: Line = serde_json::from_str(text).map_err(|error| {
        let at = column_offset(text, error.column()) + span.start;
        // Drop serde's line number, which counts within this line; the position is shown as a
        // range.
        let words = error.to_string();
        let words = words.split(" at line ").next().unwrap_or_default();
        Box::new(
            Diagnostic::error(format!("this line is not an input event: {words}"))
                .mark(at..at, "found here"),
        )
    })?;
    let whole =
        |title: String, label: &str| Box::new(Diagnostic::error(title).mark(span.clone(), label));
    if line.frame < least.0 {
        let title = format!("frame {} comes after frame {}", line.frame, least.0);
        return Err(whole(title, "allowed: ascending frames"));
    }
    let recipient = if line.session == "*" {
        Recipient::All
    } else if let Some(&session) = ids.get(line.session.as_str()) {
        Recipient::Session(session)
    } else {
        let title = format!("there is no session `{}`", line.session.escape_debug());
        let near = nearest(&line.session, suggests.iter().copied());
        let label = near.map_or_else(
            || "not a session of this machine".to_owned(),
            |name| format!("did you mean `{name}`?"),
        );
        return Err(whole(title, &label));
    };
    let bytes = match (line.text, line.hex) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(hex)) => decode_hex(&hex)
            .map_err(|reason| whole(format!("`hex` {reason}"), "allowed: pairs of 0-9, a-f"))?,
        (Some(_), Some(_)) => {
            return Err(whole(
                "both `text` and `hex` are given".to_owned(),
                "allowed: one of them",
            ));
        }
        (None, None) => {
            return Err(whole(
                "neither `text` nor `hex` is given".to_owned(),
                "allowed: one of them",
            ));
        }
    };
    Ok(InputEvent { frame: Frame(line.frame), recipient, bytes })
}

/// The byte of a column that serde counted in bytes from 1, on a character boundary.
fn column_offset(text: &str, column: usize) -> usize {
    let mut at = column.saturating_sub(1).min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

pub(crate) fn decode_hex(hex: &str) -> Result<Vec<u8>, String> {
    if let Some(stranger) = hex.chars().find(|digit| !digit.is_ascii_hexdigit()) {
        return Err(format!("contains `{}`", stranger.escape_debug()));
    }
    if !hex.len().is_multiple_of(2) {
        return Err(format!("has {} digits, an odd number", hex.len()));
    }
    let value = |digit: u8| (digit as char).to_digit(16).unwrap_or_default() as u8;
    Ok(hex.as_bytes().chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect())
}

/// A file as the standard input of the first session, one event at frame 0. An empty file gives no
/// event.
#[must_use]
pub fn whole_input(bytes: Vec<u8>) -> Option<InputEvent> {
    (!bytes.is_empty()).then_some(InputEvent {
        frame: Frame::ZERO,
        recipient: Recipient::Session(SessionId(0)),
        bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::{Ink, Render};

    fn read(text: &str) -> Result<Vec<InputEvent>, String> {
        read_input(Source::new("in.jsonl", text), &["worker.0", "collector"])
            .map_err(|problems| problems.render(Ink::Plain))
    }

    #[test]
    fn events_come_in_order_with_their_bytes() {
        let text = "{\"frame\":0,\"session\":\"*\",\"text\":\"a\\u00e9\"}\n\n{\"frame\":3,\"session\":\"collector\",\"hex\":\"00fF\"}\r\n";
        let events = read(text).expect("valid");
        assert_eq!(
            events[0],
            InputEvent { frame: Frame(0), recipient: Recipient::All, bytes: "aé".into() }
        );
        assert_eq!(
            events[1],
            InputEvent {
                frame: Frame(3),
                recipient: Recipient::Session(SessionId(1)),
                bytes: vec![0, 255]
            }
        );
    }

    #[test]
    fn every_bad_line_is_refused_with_its_line() {
        let lines = [
            ("{\"frame\":9,\"session\":\"*\",\"text\":\"\"}", ""),
            ("{\"frame\":8,\"session\":\"*\",\"text\":\"\"}", "frame 8 comes after frame 9"),
            ("{\"frame\":9,\"session\":\"worker\",\"text\":\"\"}", "did you mean `worker.0`?"),
            ("{\"frame\":9,\"session\":\"*\"}", "neither `text` nor `hex`"),
            ("{\"frame\":9,\"session\":\"*\",\"text\":\"\",\"hex\":\"\"}", "both `text` and `hex`"),
            ("{\"frame\":9,\"session\":\"*\",\"hex\":\"abc\"}", "has 3 digits, an odd number"),
            ("{\"frame\":9,\"session\":\"*\",\"hex\":\"zz\"}", "contains `z`"),
            ("{\"frame\":-1,\"session\":\"*\",\"text\":\"\"}", "invalid value: integer `-1`"),
            ("{\"frame\":9,\"session\":\"*\",\"txt\":\"\"}", "unknown field `txt`"),
            ("{\"frame\":9", "EOF while parsing"),
            ("[]", "this line is not an input event"),
        ];
        let text: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
        let message = read(&text).expect_err("bad lines");
        for (index, (_, words)) in lines.iter().enumerate().skip(1) {
            assert!(message.contains(words), "{words} in\n{message}");
            assert!(
                message.contains(&format!("in.jsonl:{}:", index + 1)),
                "line {} in\n{message}",
                index + 1
            );
        }
        assert!(message.ends_with("in.jsonl: 10 errors\n"), "{message}");
    }

    /// Session names are resolved in constant time each, and the limit of delivered bytes is
    /// enforced with both numbers in the message.
    #[test]
    fn events_for_many_sessions_are_read_and_too_many_are_refused() {
        let names: Vec<String> = (0..65_536).map(|at| format!("s{at}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let line = |session: &str, text: &str| {
            format!("{{\"frame\":0,\"session\":\"{session}\",\"text\":\"{text}\"}}\n")
        };
        let many: String = (0..40_000).map(|at| line(&format!("s{}", 65_535 - at), "x")).collect();
        let events =
            read_input(Source::new("in.jsonl", many), &names).expect("each session exists");
        assert_eq!(
            (events.len(), events[1].recipient),
            (40_000, Recipient::Session(SessionId(65_534)))
        );
        let unknown: String = (0..20_000).map(|at| line(&format!("t{at}"), "x")).collect();
        let refused =
            read_input(Source::new("in.jsonl", unknown), &names).expect_err("no such sessions");
        assert_eq!(refused.list.len(), 20_000);
        assert_eq!(refused.rows().last().and_then(|row| row.line), Some(20_000));
        let wide = line("*", &"x".repeat(70_000));
        let refused = read_input(Source::new("in.jsonl", wide), &names).expect_err("4.6 GB");
        assert!(
            refused.list[0].title.contains("4_591_714_304 bytes")
                && refused.list[0].title.contains("4_294_967_296"),
            "{refused:?}"
        );
    }

    #[test]
    fn an_empty_standard_input_is_no_event() {
        assert_eq!(whole_input(Vec::new()), None);
        assert_eq!(whole_input(b"x".to_vec()).map(|event| event.frame), Some(Frame(0)));
    }
}
