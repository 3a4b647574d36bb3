//! Diagnostics: findings about a file, each with its position, and how they are printed.
//!
//! A [`Diagnostic`] holds finished text; each area (manifest, input, profile) writes its messages
//! in one file. They are printed in rustc's form, styled or plain; the output stream strips the
//! styles if it is not a terminal.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;
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
    fn clamp(&self, span: &Span) -> Span {
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

    /// The finding as rustc would print it, without a final newline.
    #[must_use]
    pub fn render(&self, source: &Source, ink: Ink) -> String {
        let level = match self.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let mut group = Group::with_title(level.primary_title(self.title.as_str()));
        if let Some(place) = &self.place {
            let mut snippet =
                Snippet::source(source.text.as_str()).path(source.name.as_str()).annotation(
                    AnnotationKind::Primary
                        .span(source.clamp(&place.span))
                        .label(place.text.as_str()),
                );
            if let Some(related) = &self.related {
                snippet = snippet.annotation(
                    AnnotationKind::Context
                        .span(source.clamp(&related.span))
                        .label(related.text.as_str()),
                );
            }
            group = group.element(snippet);
        }
        group = group.elements(self.notes.iter().map(|note| Level::NOTE.message(note.as_str())));
        if let Some(help) = &self.help {
            group = group.element(Level::HELP.message(help.as_str()));
        }
        let renderer = match ink {
            Ink::Plain => Renderer::plain(),
            Ink::Styled => Renderer::styled(),
        };
        renderer.render(&[group])
    }
}

/// Whether a rendering carries terminal styles. Styles are stripped again by the stream when it is
/// not a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ink {
    /// Text only.
    Plain,
    /// With ANSI styles.
    Styled,
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

    /// All findings, and a last line that counts the errors when there are several.
    #[must_use]
    pub fn render(&self, ink: Ink) -> String {
        let mut text = String::new();
        for finding in self.list.iter().take(SHOWN_DIAGNOSTICS) {
            text.push_str(&finding.render(&self.source, ink));
            text.push_str("\n\n");
        }
        let hidden = self.list.len().saturating_sub(SHOWN_DIAGNOSTICS);
        if hidden > 0 {
            text.push_str(&format!("... and {hidden} more\n\n"));
        }
        match self.errors() {
            0 => {}
            1 => text.push_str(&format!("{}: 1 error\n", self.source.name)),
            count => text.push_str(&format!("{}: {count} errors\n", self.source.name)),
        }
        text
    }

    /// The findings as data, for `--json`.
    #[must_use]
    pub fn rows(&self) -> Vec<DiagnosticRow> {
        // The list is sorted, so one pass over the text finds all lines.
        let mut walk = Walk::default();
        let mut row = |finding: &Diagnostic| {
            let place = finding.place.as_ref().map(|place| walk.to(&self.source, place.span.start));
            DiagnosticRow {
                severity: match finding.severity {
                    Severity::Error => "error",
                    Severity::Warning => "warning",
                },
                message: finding.title.clone(),
                file: self.source.name.clone(),
                line: place.map(|(line, _)| line),
                column: place.map(|(_, column)| column),
                label: finding.place.as_ref().map(|place| place.text.clone()),
                notes: finding.notes.clone(),
                help: finding.help.clone(),
            }
        };
        self.list.iter().map(&mut row).collect()
    }
}

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

/// One finding in `--json` output.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DiagnosticRow {
    /// `error` or `warning`.
    pub severity: &'static str,
    /// What was found, and the rule.
    pub message: String,
    /// The file.
    pub file: String,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// The label of its range.
    pub label: Option<String>,
    /// Facts that explain it.
    pub notes: Vec<String>,
    /// What to write instead.
    pub help: Option<String>,
}
