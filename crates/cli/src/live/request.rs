//! Lines to requests: what a live machine can be told, as JSON or as plain text for one session.

use super::MOST_LINE_BYTES;
use super::lines::Line;
use super::modules::Modules;
use super::watch::Change;
use crate::input::decode_hex;
use crate::manifest::{MOST_CYCLES, grouped, nearest};
use serde::Deserialize;
use std::sync::Arc;
use wavelock_abi::{Cycles, Weight};
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_system::{LaterModule, MOST_PERIOD_FRAMES};

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
    /// Change a session.
    Control {
        /// How.
        verb: Verb,
        /// The session.
        to: String,
    },
    /// Give a context another budget.
    Budget {
        /// The context.
        context: String,
        /// Its session; without it, the only one that has such a context.
        of: Option<String>,
        /// The budget.
        budget: Cycles,
    },
    /// Start a session.
    Start {
        /// Its name.
        name: String,
        /// Its module.
        module: LaterModule,
        /// Its arguments, in place of the template's.
        args: Option<Vec<String>>,
    },
    /// Give a session another module.
    Replace {
        /// The session.
        to: String,
        /// Its module from now on.
        module: LaterModule,
        /// Its first input.
        carry: Vec<u8>,
    },
    /// A file of the watched folder is new, changed or gone.
    Watched(Change),
    /// End the machine.
    Stop,
}

/// What a line does with a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Verb {
    /// None of its coroutines runs.
    Hold,
    /// It runs again.
    Release,
    /// Its coroutines are canceled.
    End,
    /// Its weight.
    Weight(Weight),
    /// Its cap, or none.
    Cap(Option<CapSettings>),
}

impl Request {
    /// Bytes it carries.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Input { to, bytes } => to.len() + bytes.len(),
            Self::Close { to } | Self::Control { to, .. } => to.len(),
            Self::Budget { context, of, .. } => context.len() + of.as_ref().map_or(0, String::len),
            Self::Start { name, module, args } => {
                let args = args.iter().flatten().map(|arg| arg.len() + 24).sum::<usize>();
                name.len() + module.bytes().len() + args
            }
            Self::Replace { to, module, carry } => to.len() + module.bytes().len() + carry.len(),
            Self::Watched(change) => change.size(),
            Self::Stop => 0,
        }
    }

    /// Whether it makes a session, which costs more than an input.
    pub(crate) const fn makes_session(&self) -> bool {
        matches!(self, Self::Start { .. } | Self::Replace { .. } | Self::Watched(_))
    }
}

/// How lines are read.
#[derive(Clone)]
pub(crate) struct Form {
    /// JSON objects, or text for this session with its newline.
    pub(crate) to: Option<String>,
    /// The folder with modules for sessions that lines start.
    pub(crate) modules: Option<Arc<Modules>>,
}

/// A line as written. Unknown keys are refused like those of a manifest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    session: Option<String>,
    close: Option<String>,
    hold: Option<String>,
    release: Option<String>,
    end: Option<String>,
    weight: Option<String>,
    cap: Option<String>,
    context: Option<String>,
    start: Option<String>,
    replace: Option<String>,
    stop: Option<bool>,
    text: Option<String>,
    hex: Option<String>,
    value: Option<u64>,
    budget_cycles: Option<u64>,
    period_frames: Option<u64>,
    overrun: Option<String>,
    of: Option<String>,
    module: Option<String>,
    args: Option<Vec<String>>,
}

impl Written {
    /// The keys that the line has.
    fn keys(&self) -> impl Iterator<Item = &'static str> + use<> {
        [
            ("session", self.session.is_some()),
            ("close", self.close.is_some()),
            ("hold", self.hold.is_some()),
            ("release", self.release.is_some()),
            ("end", self.end.is_some()),
            ("weight", self.weight.is_some()),
            ("cap", self.cap.is_some()),
            ("context", self.context.is_some()),
            ("start", self.start.is_some()),
            ("replace", self.replace.is_some()),
            ("stop", self.stop.is_some()),
            ("text", self.text.is_some()),
            ("hex", self.hex.is_some()),
            ("value", self.value.is_some()),
            ("budget_cycles", self.budget_cycles.is_some()),
            ("period_frames", self.period_frames.is_some()),
            ("overrun", self.overrun.is_some()),
            ("of", self.of.is_some()),
            ("module", self.module.is_some()),
            ("args", self.args.is_some()),
        ]
        .into_iter()
        .filter_map(|(key, is_given)| is_given.then_some(key))
    }
}

/// A kind of line.
struct Kind {
    /// The key that tells it.
    verb: &'static str,
    /// Keys that it may have besides.
    takes: &'static [&'static str],
    /// How it is written.
    form: &'static str,
}

/// Every kind of line.
const KINDS: &[Kind] = &[
    Kind {
        verb: "session",
        takes: &["text", "hex"],
        form: "{\"session\": \"NAME\" or \"*\", \"text\" or \"hex\": \"...\"}",
    },
    Kind { verb: "close", takes: &[], form: "{\"close\": \"NAME\" or \"*\"}" },
    Kind { verb: "hold", takes: &[], form: "{\"hold\": \"NAME\"}" },
    Kind { verb: "release", takes: &[], form: "{\"release\": \"NAME\"}" },
    Kind { verb: "end", takes: &[], form: "{\"end\": \"NAME\"}" },
    Kind { verb: "weight", takes: &["value"], form: "{\"weight\": \"NAME\", \"value\": N}" },
    Kind {
        verb: "cap",
        takes: &["budget_cycles", "period_frames", "overrun"],
        form: "{\"cap\": \"NAME\", \"budget_cycles\": N, \"period_frames\": N, \"overrun\": \
               \"throttle\", \"demote\" or \"end\"}, or {\"cap\": \"NAME\"} for none",
    },
    Kind {
        verb: "context",
        takes: &["of", "budget_cycles"],
        form: "{\"context\": \"NAME\", \"of\": \"SESSION\", \"budget_cycles\": N}",
    },
    Kind {
        verb: "start",
        takes: &["module", "args"],
        form: "{\"start\": \"NAME\", \"module\": \"FILE\", \"args\": [...]}",
    },
    Kind {
        verb: "replace",
        takes: &["module", "text", "hex"],
        form: "{\"replace\": \"NAME\", \"module\": \"FILE\"}, with \"text\" or \"hex\" for its first input",
    },
    Kind { verb: "stop", takes: &[], form: "{\"stop\": true}" },
];

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
        match &self.to {
            Some(to) => {
                let bytes = [&bytes[..], b"\n"].concat();
                Ok(Some(Request::Input { to: to.clone(), bytes }))
            }
            None if bytes.trim_ascii().is_empty() => Ok(None),
            None => self.read_json(&bytes).map(Some),
        }
    }

    fn read_json(&self, line: &[u8]) -> Result<Request, String> {
        let written: Written = serde_json::from_slice(line).map_err(|error| in_words(&error))?;
        let kind = |key: &str| KINDS.iter().find(|kind| kind.verb == key);
        let Some(kind) = written.keys().find_map(kind) else {
            return Err(format!("the line does not say what it is for: it has one of {}", verbs()));
        };
        let mut strays =
            written.keys().filter(|key| *key != kind.verb && !kind.takes.contains(key));
        if let Some(stray) = strays.next() {
            return Err(format!("`{stray}` does not belong to `{}`: {}", kind.verb, kind.form));
        }
        self.request(kind, written).map_err(|reason| format!("{reason}: {}", kind.form))
    }

    /// The request of a line that has the keys of its kind only.
    fn request(&self, kind: &Kind, written: Written) -> Result<Request, String> {
        let control = |verb: Verb, to: String| Request::Control { verb, to };
        Ok(match written {
            Written { session: Some(to), text, hex, .. } => {
                let bytes = bytes(text, hex)?.ok_or("neither `text` nor `hex` is given")?;
                Request::Input { to, bytes }
            }
            Written { close: Some(to), .. } => Request::Close { to },
            Written { hold: Some(to), .. } => control(Verb::Hold, to),
            Written { release: Some(to), .. } => control(Verb::Release, to),
            Written { end: Some(to), .. } => control(Verb::End, to),
            Written { weight: Some(to), value, .. } => {
                let weight = number("value", value, u64::from(u16::MAX))? as u16;
                control(Verb::Weight(Weight::new(weight).unwrap_or_default()), to)
            }
            Written { cap: Some(to), budget_cycles, period_frames, overrun, .. } => {
                control(Verb::Cap(cap(budget_cycles, period_frames, overrun)?), to)
            }
            Written { context: Some(context), of, budget_cycles, .. } => {
                let budget = Cycles(number("budget_cycles", budget_cycles, MOST_CYCLES)?);
                Request::Budget { context, of, budget }
            }
            Written { start: Some(name), module, args, .. } => {
                let file = module.ok_or("`module` is missing")?;
                Request::Start { name, module: self.module(&file)?, args }
            }
            Written { replace: Some(to), module, text, hex, .. } => {
                let carry = bytes(text, hex)?.unwrap_or_default();
                let file = module.ok_or("`module` is missing")?;
                Request::Replace { to, module: self.module(&file)?, carry }
            }
            Written { stop: Some(true), .. } => Request::Stop,
            _ => return Err(format!("`{}` has another value", kind.verb)),
        })
    }

    /// A module of the folder with modules.
    fn module(&self, file: &str) -> Result<LaterModule, String> {
        let Some(modules) = &self.modules else {
            return Err("the run was started without --modules DIR".to_owned());
        };
        modules.load(file).map_err(|reason| format!("`{}`: {reason}", shown(file)))
    }
}

/// The longest unknown key that is compared with the keys.
const LONGEST_KEY: usize = 40;

/// An error of the JSON reader. The number of the line counts within this one.
fn in_words(error: &serde_json::Error) -> String {
    let words = error.to_string();
    let words = words.split(" at line ").next().unwrap_or_default();
    if let Some(key) = words.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next())
    {
        if key == "frame" {
            return "a live line has no `frame`: it is for the next one".to_owned();
        }
        let keys = KINDS.iter().flat_map(|kind| kind.takes.iter().chain([&kind.verb])).copied();
        let near =
            Some(key).filter(|key| key.len() <= LONGEST_KEY).and_then(|key| nearest(key, keys));
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        return format!("this line is no request: unknown key `{}`{near}", shown(key));
    }
    let column = error.column();
    format!(
        "this line is no request: {} (column {column}); it has one of {}",
        shown(words),
        verbs()
    )
}

/// The keys of which a line has one.
fn verbs() -> String {
    KINDS.iter().map(|kind| format!("`{}`", kind.verb)).collect::<Vec<_>>().join(", ")
}

/// The bytes of a line, if it has any.
fn bytes(text: Option<String>, hex: Option<String>) -> Result<Option<Vec<u8>>, String> {
    match (text, hex) {
        (Some(_), Some(_)) => Err("both `text` and `hex` are given, give one".to_owned()),
        (text, None) => Ok(text.map(String::into_bytes)),
        (None, Some(hex)) => decode_hex(&hex).map(Some).map_err(|reason| format!("`hex` {reason}")),
    }
}

/// A number of a line within its range, which begins at 1.
fn number(key: &str, value: Option<u64>, most: u64) -> Result<u64, String> {
    match value {
        Some(value @ 1..) if value <= most => Ok(value),
        Some(value) => {
            Err(format!("`{key}` is {}, allowed are 1 to {}", grouped(value), grouped(most)))
        }
        None => Err(format!("`{key}` is missing")),
    }
}

/// A cap with the defaults of a manifest.
fn cap(
    budget: Option<u64>,
    period: Option<u64>,
    overrun: Option<String>,
) -> Result<Option<CapSettings>, String> {
    if budget.is_none() && period.is_none() && overrun.is_none() {
        return Ok(None);
    }
    let word = overrun.as_deref().unwrap_or(CapOverrun::Throttle.name());
    let overrun = CapOverrun::ALL.iter().copied().find(|overrun| overrun.name() == word);
    Ok(Some(CapSettings {
        budget: Cycles(number("budget_cycles", budget, MOST_CYCLES)?),
        period_frames: number("period_frames", period.or(Some(1)), MOST_PERIOD_FRAMES)?,
        overrun: overrun.ok_or_else(|| format!("`overrun` is `{}`", shown(word)))?,
    }))
}

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

    const JSON: Form = Form { to: None, modules: None };

    fn read(text: &str) -> Result<Option<Request>, String> {
        JSON.read(Line::Whole(text.into()))
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
        let cap = |budget, period_frames, overrun| {
            Verb::Cap(Some(CapSettings { budget: Cycles(budget), period_frames, overrun }))
        };
        for (line, verb) in [
            ("{\"hold\":\"room\"}", Verb::Hold),
            ("{\"release\":\"room\"}", Verb::Release),
            ("{\"end\":\"room\"}", Verb::End),
            ("{\"weight\":\"room\",\"value\":1}", Verb::Weight(Weight::new(1).expect("not 0"))),
            ("{\"cap\":\"room\"}", Verb::Cap(None)),
            ("{\"cap\":\"room\",\"budget_cycles\":9}", cap(9, 1, CapOverrun::Throttle)),
            (
                "{\"overrun\":\"end\",\"budget_cycles\":9,\"cap\":\"room\",\"period_frames\":60}",
                cap(9, 60, CapOverrun::End),
            ),
        ] {
            let control = Request::Control { verb, to: "room".into() };
            assert_eq!(read(line), Ok(Some(control)), "{line}");
        }
        let budget = |of: Option<&str>| {
            let (context, of) = ("tick".to_owned(), of.map(str::to_owned));
            Ok(Some(Request::Budget { context, of, budget: Cycles(5) }))
        };
        assert_eq!(read("{\"context\":\"tick\",\"budget_cycles\":5}"), budget(None));
        let of = "{\"context\":\"tick\",\"of\":\"room\",\"budget_cycles\":5}";
        assert_eq!(read(of), budget(Some("room")));
        assert_eq!(read("  "), Ok(None));
        let text = Form { to: Some("room".into()), modules: None };
        assert_eq!(text.read(Line::Whole(b"{hi".into())), input("room", b"{hi\n"));
        assert_eq!(text.read(Line::Whole(b"".into())), input("room", b"\n"));
    }

    #[test]
    fn every_other_line_is_refused_with_the_reason() {
        let deep = "[".repeat(100_000);
        let long = format!("{{\"{}\":1}}", "k\\u001b".repeat(100_000));
        let cap = "{\"cap\":\"a\",\"budget_cycles\":1,";
        let (word, period) =
            (format!("{cap}\"overrun\":\"stop\"}}"), format!("{cap}\"period_frames\":0}}"));
        let lines = [
            ("{\"frame\":3,\"session\":\"*\",\"text\":\"\"}", "has no `frame`"),
            ("{\"session\":\"*\"}", "neither `text` nor `hex`"),
            ("{\"session\":\"*\",\"text\":\"\",\"hex\":\"\"}", "both `text` and `hex`"),
            ("{\"session\":\"*\",\"hex\":\"abc\"}", "has 3 digits, an odd number"),
            ("{\"session\":7,\"text\":\"\"}", "invalid type"),
            ("{\"stop\":false}", "`stop` has another value: {\"stop\": true}"),
            ("{\"stop\":true,\"close\":\"a\"}", "`stop` does not belong to `close`"),
            (
                "{\"hold\":\"a\",\"end\":\"a\"}",
                "`end` does not belong to `hold`: {\"hold\": \"NAME\"}",
            ),
            ("{\"hold\":\"a\",\"text\":\"a\"}", "`text` does not belong to `hold`"),
            ("{\"weight\":\"a\"}", "`value` is missing: {\"weight\": \"NAME\", \"value\": N}"),
            ("{\"weight\":\"a\",\"value\":0}", "`value` is 0, allowed are 1 to 65_535"),
            ("{\"weight\":\"a\",\"value\":65536}", "`value` is 65_536, allowed are 1 to 65_535"),
            ("{\"weight\":\"a\",\"value\":-1}", "invalid value"),
            ("{\"cap\":\"a\",\"period_frames\":2}", "`budget_cycles` is missing"),
            (&word, "`overrun` is `stop`: {\"cap\": "),
            (&period, "`period_frames` is 0, allowed are 1 to "),
            ("{\"context\":\"a\",\"of\":\"b\"}", "`budget_cycles` is missing"),
            ("{\"start\":\"a\"}", "`module` is missing"),
            ("{\"start\":\"a\",\"module\":\"/etc/passwd\"}", "without --modules DIR"),
            ("{}", "the line does not say what it is for: it has one of `session`, `close`"),
            ("{\"text\":\"a\"}", "the line does not say what it is for"),
            ("{\"session\":\"*\",\"txt\":\"\"}", "unknown key `txt`; did you mean `text`?"),
            ("GET / HTTP/1.1", "this line is no request"),
            ("\u{0}\u{ff}", "this line is no request"),
            (&deep, "this line is no request"),
            (&long, "unknown key"),
        ];
        for (line, words) in lines {
            let refused = read(line).expect_err(words);
            assert!(refused.contains(words), "{refused}");
            assert!(refused.len() < 2_000 && !refused.contains('\u{1b}'), "{refused}");
        }
        let refused = JSON.read(Line::Whole(vec![0xff, 0xfe])).expect_err("not UTF-8");
        assert!(refused.contains("this line is no request"), "{refused}");
        let refused = JSON.read(Line::TooLong { bytes: 10_000_000 }).expect_err("too long");
        assert_eq!(refused, "the line has 10_000_000 bytes: at most 1_048_576 are allowed");
    }

    /// The page for users has every kind of line with its keys.
    #[test]
    fn the_document_has_every_line() {
        let page = include_str!("../../../../docs/live.md");
        for kind in KINDS {
            for key in [&kind.verb].into_iter().chain(kind.takes) {
                assert!(page.contains(&format!("\"{key}\"")), "docs/live.md: `{key}`");
            }
        }
    }
}
