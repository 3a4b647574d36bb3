//! How diagnostics are printed: in rustc's form, styled or plain, and as rows of `--json`. The
//! output stream strips the styles if it is not a terminal.
//!
//! Elsewhere: the findings themselves, as data, in `manifest`.

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};
use serde::Serialize;
pub use wavelock_manifest::{
    Diagnostic, Diagnostics, Mark, SHOWN_DIAGNOSTICS, Severity, Source, Span,
};

/// Whether a rendering carries terminal styles. Styles are stripped again by the stream when it is
/// not a terminal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ink {
    /// Text only.
    Plain,
    /// With ANSI styles.
    Styled,
}

/// Printing findings.
pub trait Render {
    /// All findings, and a last line that counts the errors when there are several.
    fn render(&self, ink: Ink) -> String;

    /// The findings as data, for `--json`.
    fn rows(&self) -> Vec<DiagnosticRow>;
}

impl Render for Diagnostics {
    fn render(&self, ink: Ink) -> String {
        let mut text = String::new();
        for finding in self.list.iter().take(SHOWN_DIAGNOSTICS) {
            text.push_str(&render_one(finding, &self.source, ink));
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

    fn rows(&self) -> Vec<DiagnosticRow> {
        let row = |(finding, position): (&Diagnostic, Option<(usize, usize)>)| DiagnosticRow {
            severity: finding.severity.name(),
            message: finding.title.clone(),
            file: self.source.name.clone(),
            line: position.map(|(line, _)| line),
            column: position.map(|(_, column)| column),
            label: finding.place.as_ref().map(|place| place.text.clone()),
            notes: finding.notes.clone(),
            help: finding.help.clone(),
        };
        self.list.iter().zip(self.positions()).map(row).collect()
    }
}

/// A finding as rustc would print it, without a final newline.
fn render_one(finding: &Diagnostic, source: &Source, ink: Ink) -> String {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(finding.title.as_str()));
    if let Some(place) = &finding.place {
        let mut snippet =
            Snippet::source(source.text.as_str()).path(source.name.as_str()).annotation(
                AnnotationKind::Primary.span(source.clamp(&place.span)).label(place.text.as_str()),
            );
        if let Some(related) = &finding.related {
            snippet = snippet.annotation(
                AnnotationKind::Context
                    .span(source.clamp(&related.span))
                    .label(related.text.as_str()),
            );
        }
        group = group.element(snippet);
    }
    group = group.elements(finding.notes.iter().map(|note| Level::NOTE.message(note.as_str())));
    if let Some(help) = &finding.help {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    let renderer = match ink {
        Ink::Plain => Renderer::plain(),
        Ink::Styled => Renderer::styled(),
    };
    renderer.render(&[group])
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
