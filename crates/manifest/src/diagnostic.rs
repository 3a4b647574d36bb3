//! Diagnostics: findings about a file, each with its position, as data.
//!
//! A [`Diagnostic`] holds finished text; each area (manifest, input, profile) writes its messages
//! in one file. `Display` prints one line per finding. Elsewhere: the command line prints them in
//! rustc's form, with the lines of the file.

use std::ops::Range;

/// A range of a file, in bytes.
pub type Span = Range<usize>;

/// At most this many diagnostics of one file are printed; the rest are counted.
pub const SHOWN_DIAGNOSTICS: usize = 50;

/// A text file that diagnostics point into.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The path as the user wrote it.
    pub name: String,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// A file and its text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Decodes a file's bytes. The first byte that is not UTF-8 is reported as a diagnostic.
    pub fn decode(name: impl Into<String>, bytes: Vec<u8>) -> Result<Self, Diagnostics> {
        let name = name.into();
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self { name, text }),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let byte = error.as_bytes()[at];
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                let source = Self { name, text };
                let finding = Diagnostic::error(format!("byte 0x{byte:02x} is not UTF-8"))
                    .mark(at..at + 1, "the file must be UTF-8 text");
                Err(Diagnostics { source, list: vec![finding] })
            }
        }
    }

    /// Line and column of a byte, both from 1, the column in characters.
    #[must_use]
    pub fn line_column(&self, at: usize) -> (usize, usize) {
        let at = self.boundary(at);
        let before = &self.text[..at];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (line, before[start..].chars().count() + 1)
    }

    /// The nearest character boundary at or before a byte.
    fn boundary(&self, at: usize) -> usize {
        let mut at = at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }

    /// A span that lies inside the text, on character boundaries, in order.
    #[must_use]
    pub fn clamp(&self, span: &Span) -> Span {
        let start = self.boundary(span.start);
        let end = self.boundary(span.end.max(start));
        start..end
    }
}

/// How serious a finding is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// The command stops.
    Error,
    /// The command continues.
    Warning,
}

impl Severity {
    /// Its name: `error` or `warning`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// A range with a label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Where.
    pub span: Span,
    /// The label.
    pub text: String,
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// What was found, and the rule.
    pub title: String,
    /// The range it is about, if it came from the file.
    pub place: Option<Mark>,
    /// A second range, such as the first of two definitions.
    pub related: Option<Mark>,
    /// Facts that explain it.
    pub notes: Vec<String>,
    /// What to write instead.
    pub help: Option<String>,
}

impl Diagnostic {
    /// An error without a range.
    #[must_use]
    pub fn error(title: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            title: title.into(),
            place: None,
            related: None,
            notes: Vec::new(),
            help: None,
        }
    }

    /// A warning without a range.
    #[must_use]
    pub fn warning(title: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(title) }
    }

    /// Sets the range it is about, with what is allowed there.
    #[must_use]
    pub fn mark(mut self, span: Span, text: impl Into<String>) -> Self {
        self.place = Some(Mark { span, text: text.into() });
        self
    }

    /// Sets the second range.
    #[must_use]
    pub fn related(mut self, span: Span, text: impl Into<String>) -> Self {
        self.related = Some(Mark { span, text: text.into() });
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn note(mut self, text: impl Into<String>) -> Self {
        self.notes.push(text.into());
        self
    }

    /// What to write instead.
    #[must_use]
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }
}

/// All findings about one file, in the order of their ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostics {
    /// The file.
    pub source: Source,
    /// The findings.
    pub list: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Sorts findings about a file by their ranges; those without a range come first.
    #[must_use]
    pub fn new(source: Source, mut list: Vec<Diagnostic>) -> Self {
        list.sort_by_key(|finding| {
            finding.place.as_ref().map(|place| (place.span.start, place.span.end))
        });
        Self { source, list }
    }

    /// How many are errors.
    #[must_use]
    pub fn errors(&self) -> usize {
        self.list.iter().filter(|finding| finding.severity == Severity::Error).count()
    }

    /// Line and column of each finding, in the order of the list; `None` without a range.
    #[must_use]
    pub fn positions(&self) -> Vec<Option<(usize, usize)>> {
        // The list is sorted, so one pass over the text finds all lines.
        let mut walk = Walk::default();
        let mut position = |finding: &Diagnostic| {
            finding.place.as_ref().map(|place| walk.to(&self.source, place.span.start))
        };
        self.list.iter().map(&mut position).collect()
    }
}

/// One line per finding: `m.toml:2:1: error: ...`, its label and its notes.
impl std::fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let positions = self.positions();
        let shown = self.list.iter().zip(positions).take(SHOWN_DIAGNOSTICS).enumerate();
        for (at, (finding, position)) in shown {
            if at > 0 {
                writeln!(f)?;
            }
            match position {
                Some((line, column)) => write!(f, "{}:{line}:{column}: ", self.source.name)?,
                None => write!(f, "{}: ", self.source.name)?,
            }
            write!(f, "{}: {}", finding.severity.name(), finding.title)?;
            let label = finding.place.iter().map(|place| &place.text);
            for more in label.chain(&finding.notes).chain(&finding.help) {
                write!(f, "; {more}")?;
            }
        }
        match self.list.len().saturating_sub(SHOWN_DIAGNOSTICS) {
            0 => Ok(()),
            hidden => write!(f, "\n... and {hidden} more"),
        }
    }
}

impl std::error::Error for Diagnostics {}

/// A cursor that converts ascending byte offsets to lines and columns, in linear time for all
/// together.
#[derive(Default)]
struct Walk {
    at: usize,
    newlines: usize,
    /// Characters of the line before `at`.
    characters: usize,
}

impl Walk {
    /// [`Source::line_column`] of a byte that is not before the last.
    fn to(&mut self, source: &Source, at: usize) -> (usize, usize) {
        let at = source.boundary(at);
        if at < self.at {
            *self = Self::default();
        }
        for letter in source.text[self.at..at].chars() {
            self.characters += 1;
            if letter == '\n' {
                (self.newlines, self.characters) = (self.newlines + 1, 0);
            }
        }
        self.at = at;
        (self.newlines + 1, self.characters + 1)
    }
}
