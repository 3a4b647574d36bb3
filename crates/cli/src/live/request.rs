//! Lines to requests: what a live machine can be told, as JSON or as plain text for one session.

use super::MOST_LINE_BYTES;
use super::lines::Line;
use crate::input::decode_hex;
use crate::manifest::grouped;
use serde::Deserialize;

/// What a line asks for. Names are those of sessions, or `*` for every session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Give a session these bytes.
    Input {
        /// The session.
        to: String,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// End the input of a session.
    Close {
        /// The session.
        to: String,
    },
    /// Hold a session, release it, or end it.
    Control {
        /// Which of them.
        verb: Verb,
        /// The session.
        to: String,
    },
    /// End the machine.
    Stop,
}

/// What a line does with a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// None of its coroutines runs.
    Hold,
    /// It runs again.
    Release,
    /// Its coroutines are canceled.
    End,
}

impl Request {
    /// Bytes it carries.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Input { to, bytes } => to.len() + bytes.len(),
            Self::Close { to } | Self::Control { to, .. } => to.len(),
            Self::Stop => 0,
        }
    }
}

/// How lines are read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// JSON objects.
    Json,
    /// Text for this session, with its newline.
    Text(String),
}

/// A line as written. Unknown keys are refused like those of a manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    session: Option<String>,
    text: Option<String>,
    hex: Option<String>,
    close: Option<String>,
    hold: Option<String>,
    release: Option<String>,
    end: Option<String>,
    stop: Option<bool>,
}

/// The forms of a line, added to every error about one.
const FORMS: &str = "a line is {\"session\": \"name\" or \"*\", \"text\" or \"hex\": \"...\"}, \
                     {\"close\": \"name\" or \"*\"}, {\"hold\", \"release\" or \"end\": \"name\"} \
                     or {\"stop\": true}";

impl Form {
    /// What a line asks for; `None` if it is blank.
    pub(crate) fn read(&self, line: Line) -> Result<Option<Request>, String> {
        let bytes = match line {
            Line::Whole(bytes) => bytes,
            Line::TooLong { bytes } => {
                let (found, most) = (grouped(bytes), grouped(MOST_LINE_BYTES as u64));
                return Err(format!("the line has {found} bytes: at most {most} are allowed"));
            }
        };
        match self {
            Self::Text(to) => {
                let bytes = [&bytes[..], b"\n"].concat();
                Ok(Some(Request::Input { to: to.clone(), bytes }))
            }
            Self::Json if bytes.trim_ascii().is_empty() => Ok(None),
            Self::Json => read_json(&bytes).map(Some).map_err(|error| format!("{error}; {FORMS}")),
        }
    }
}

fn read_json(line: &[u8]) -> Result<Request, String> {
    let written: Written = serde_json::from_slice(line).map_err(|error| {
        // The number of the line counts within this one.
        let words = error.to_string();
        let words = words.split(" at line ").next().unwrap_or_default();
        if words.starts_with("unknown field `frame`") {
            return "a live line has no `frame`: it is for the next one".to_owned();
        }
        format!("this line is no request: {} (column {})", shown(words), error.column())
    })?;
    let Written { session, text, hex, close, hold, release, end, stop } = written;
    let verbs = [(Verb::Hold, hold), (Verb::Release, release), (Verb::End, end)];
    let mut verbs = verbs.into_iter().filter_map(|(verb, to)| Some((verb, to?)));
    if let Some((verb, to)) = verbs.next() {
        let others = [session, text, hex, close].iter().any(Option::is_some);
        return match others || stop.is_some() || verbs.next().is_some() {
            true => Err(MIXED.to_owned()),
            false => Ok(Request::Control { verb, to }),
        };
    }
    match (session, text, hex, close, stop) {
        (Some(to), Some(text), None, None, None) => {
            Ok(Request::Input { to, bytes: text.into_bytes() })
        }
        (Some(to), None, Some(hex), None, None) => {
            let bytes = decode_hex(&hex).map_err(|reason| format!("`hex` {reason}"))?;
            Ok(Request::Input { to, bytes })
        }
        (Some(_), Some(_), Some(_), None, None) => {
            Err("both `text` and `hex` are given: give one".to_owned())
        }
        (Some(_), None, None, None, None) => Err("neither `text` nor `hex` is given".to_owned()),
        (None, None, None, Some(to), None) => Ok(Request::Close { to }),
        (None, None, None, None, Some(true)) => Ok(Request::Stop),
        _ => Err(MIXED.to_owned()),
    }
}

const MIXED: &str = "the keys of this line do not belong together";

/// Letters of a foreign text in a message, at most.
const MOST_SHOWN: usize = 500;

/// A text from outside as it may stand in a message: short, and without control characters.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text
        .chars()
        .take(MOST_SHOWN)
        .flat_map(|letter| match letter.is_control() {
            true => letter.escape_default().collect::<Vec<char>>(),
            false => vec![letter],
        })
        .collect();
    if text.chars().nth(MOST_SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Request>, String> {
        Form::Json.read(Line::Whole(text.into()))
    }

    #[test]
    fn lines_become_requests() {
        let input = |to: &str, bytes: &[u8]| {
            Ok(Some(Request::Input { to: to.into(), bytes: bytes.into() }))
        };
        assert_eq!(read("{\"session\":\"room\",\"text\":\"a\\n\"}"), input("room", b"a\n"));
        assert_eq!(read(" {\"session\":\"*\",\"hex\":\"00fF\"} "), input("*", &[0, 255]));
        assert_eq!(read("{\"close\":\"room\"}"), Ok(Some(Request::Close { to: "room".into() })));
        assert_eq!(read("{\"stop\":true}"), Ok(Some(Request::Stop)));
        for (key, verb) in [("hold", Verb::Hold), ("release", Verb::Release), ("end", Verb::End)] {
            let control = Request::Control { verb, to: "room".into() };
            assert_eq!(read(&format!("{{\"{key}\":\"room\"}}")), Ok(Some(control)));
        }
        assert_eq!(read("  "), Ok(None));
        let text = Form::Text("room".into());
        assert_eq!(text.read(Line::Whole(b"{hi".into())), input("room", b"{hi\n"));
        assert_eq!(text.read(Line::Whole(b"".into())), input("room", b"\n"));
    }

    #[test]
    fn every_other_line_is_refused_with_the_reason() {
        let deep = "[".repeat(100_000);
        let long = format!("{{\"{}\":1}}", "k\\u001b".repeat(100_000));
        let lines = [
            ("{\"frame\":3,\"session\":\"*\",\"text\":\"\"}", "has no `frame`"),
            ("{\"session\":\"*\"}", "neither `text` nor `hex`"),
            ("{\"session\":\"*\",\"text\":\"\",\"hex\":\"\"}", "both `text` and `hex`"),
            ("{\"session\":\"*\",\"hex\":\"abc\"}", "has 3 digits, an odd number"),
            ("{\"session\":7,\"text\":\"\"}", "invalid type"),
            ("{\"stop\":false}", "do not belong together"),
            ("{\"stop\":true,\"close\":\"a\"}", "do not belong together"),
            ("{\"hold\":\"a\",\"end\":\"a\"}", "do not belong together"),
            ("{\"hold\":\"a\",\"text\":\"a\"}", "do not belong together"),
            ("{}", "do not belong together"),
            ("{\"session\":\"*\",\"txt\":\"\"}", "unknown field `txt`"),
            ("GET / HTTP/1.1", "this line is no request"),
            ("\u{0}\u{ff}", "this line is no request"),
            (&deep, "this line is no request"),
            (&long, "unknown field"),
        ];
        for (line, words) in lines {
            let refused = read(line).expect_err(words);
            assert!(refused.contains(words) && refused.contains(FORMS), "{refused}");
            assert!(refused.len() < 2_000 && !refused.contains('\u{1b}'), "{refused}");
        }
        let refused = Form::Json.read(Line::Whole(vec![0xff, 0xfe])).expect_err("not UTF-8");
        assert!(refused.contains("this line is no request"), "{refused}");
        let refused = Form::Json.read(Line::TooLong { bytes: 10_000_000 }).expect_err("too long");
        assert_eq!(refused, "the line has 10_000_000 bytes: at most 1_048_576 are allowed");
    }
}
