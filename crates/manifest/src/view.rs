//! Typed access to a TOML table with a known set of keys. Collects all problems of the table.
//!
//! Used by manifests and cost profiles. Reading never stops at a problem: a bad value is reported
//! and then treated as absent.

use crate::diagnostic::{Diagnostic, SHOWN_DIAGNOSTICS, Source, Span};
use crate::keys::{Key, Takes};
use crate::problem::Problem;
use crate::suggest::nearest;
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with its position.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it is written.
    pub span: Span,
}

impl<T> At<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At { value: change(self.value), span: self.span }
    }
}

/// A table, its header as written in documents, and the keys it may have.
#[derive(Clone)]
pub struct View<'a, 'i> {
    pub(crate) header: &'static str,
    pub(crate) keys: &'static [Key],
    pub(crate) span: Span,
    pub(crate) table: Cow<'a, DeTable<'i>>,
}

impl<'a, 'i> View<'a, 'i> {
    /// A table of the document.
    #[must_use]
    pub fn new(
        header: &'static str,
        keys: &'static [Key],
        span: Span,
        table: &'a DeTable<'i>,
    ) -> Self {
        Self { header, keys, span, table: Cow::Borrowed(table) }
    }

    /// An absent table: every key has its default.
    pub(crate) fn absent(header: &'static str, keys: &'static [Key]) -> Self {
        Self { header, keys, span: 0..0, table: Cow::Owned(DeTable::new()) }
    }

    /// The value of a key.
    pub(crate) fn value(&self, key: &Key) -> Option<&Spanned<DeValue<'i>>> {
        self.table.iter().find(|(name, _)| name.get_ref() == key.name).map(|(_, value)| value)
    }

    /// The position of a key's name.
    pub(crate) fn key_span(&self, key: &Key) -> Option<Span> {
        self.table.iter().find(|(name, _)| name.get_ref() == key.name).map(|(name, _)| name.span())
    }
}

/// The problems found so far in one file.
pub struct Findings<'s> {
    pub(crate) source: &'s Source,
    /// The problems.
    pub list: Vec<Diagnostic>,
}

impl<'s> Findings<'s> {
    /// No problem yet.
    #[must_use]
    pub fn new(source: &'s Source) -> Self {
        Self { source, list: Vec::new() }
    }

    pub(crate) fn add(&mut self, span: Span, problem: &Problem) {
        self.list.push(problem.diagnostic(span));
    }

    /// The known word nearest to an unknown one, if its problem will be printed: comparing all
    /// known words for each of a hundred thousand problems would take too long.
    pub(crate) fn nearest<'k>(
        &self,
        written: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Option<&'k str> {
        if self.list.len() < SHOWN_DIAGNOSTICS { nearest(written, known) } else { None }
    }

    /// Whether any is an error.
    pub(crate) fn failed(&self) -> bool {
        self.list.iter().any(|finding| finding.severity == crate::diagnostic::Severity::Error)
    }

    /// Parses the file. All syntax errors are reported; after one the table may be incomplete.
    pub fn parse(&mut self) -> Option<Spanned<DeTable<'s>>> {
        let (table, errors) = DeTable::parse_recoverable(&self.source.text);
        for error in &errors {
            let end = self.source.text.len();
            let span = error.span().unwrap_or(end..end);
            // A span that starts at a line end is shown there, not over two lines.
            let span = if self.source.text[span.start..].starts_with(['\n', '\r']) {
                span.start..span.start
            } else {
                span
            };
            self.add(span, &Problem::Syntax { message: error.message().to_owned() });
        }
        errors.is_empty().then_some(table)
    }

    /// Describes a value in a user's terms.
    pub(crate) fn describe(&self, value: &Spanned<DeValue<'_>>) -> String {
        let written = self.source.text.get(value.span()).unwrap_or_default();
        let short = |text: &str| match text.char_indices().nth(40) {
            Some((at, _)) => format!("{}...", &text[..at]),
            None => text.to_owned(),
        };
        match value.get_ref() {
            DeValue::String(text) => format!("the string \"{}\"", short(text).escape_debug()),
            DeValue::Integer(_) => short(written),
            DeValue::Float(_) => format!("the float {}", short(written)),
            DeValue::Boolean(truth) => format!("{truth}"),
            DeValue::Datetime(_) => format!("the date {}", short(written)),
            DeValue::Array(_) => "a list".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        }
    }

    /// Reports every key the table does not have. `tables` are the other tables such a key may
    /// belong to.
    pub fn refuse_unknown(
        &mut self,
        view: &View<'_, '_>,
        tables: &[(&'static str, &'static [Key], &'static str)],
    ) {
        for (name, _) in view.table.iter() {
            let text = name.get_ref().as_ref();
            if view.keys.iter().any(|key| key.name == text) {
                continue;
            }
            let elsewhere = tables
                .iter()
                .find(|(_, keys, _)| keys.iter().any(|key| key.name == text))
                .map(|(header, _, _)| *header);
            let known: Vec<&'static str> = view.keys.iter().map(|key| key.name).collect();
            let near = nearest(text, known.iter().copied());
            let problem = Problem::UnknownKey {
                table: view.header,
                name: text.escape_debug().to_string(),
                nearest: near,
                elsewhere,
                known,
            };
            self.add(name.span(), &problem);
        }
    }

    /// A number in the key's range.
    pub fn number(&mut self, view: &View<'_, '_>, key: &Key) -> Option<At<u64>> {
        let Takes::Number { least, most, .. } = key.takes else { return None };
        let value = view.value(key)?;
        self.number_value(format!("`{}`", key.name), value, least, most, None)
    }

    /// A number in a range, in a table or a list.
    pub(crate) fn number_value(
        &mut self,
        what: String,
        value: &Spanned<DeValue<'_>>,
        least: u64,
        most: u64,
        rule: Option<String>,
    ) -> Option<At<u64>> {
        let found = self.describe(value);
        let DeValue::Integer(integer) = value.get_ref() else {
            self.add(value.span(), &Problem::WrongKind { what, wanted: "an integer", found });
            return None;
        };
        match u64::from_str_radix(integer.as_str(), integer.radix()) {
            Ok(number) if (least..=most).contains(&number) => {
                Some(At { value: number, span: value.span() })
            }
            _ => {
                self.add(value.span(), &Problem::OutOfRange { what, found, least, most, rule });
                None
            }
        }
    }

    /// `true` or `false`; `false` when absent.
    pub(crate) fn switch(&mut self, view: &View<'_, '_>, key: &Key) -> bool {
        let Some(value) = view.value(key) else { return false };
        if let DeValue::Boolean(truth) = value.get_ref() {
            return *truth;
        }
        let found = self.describe(value);
        self.add(
            value.span(),
            &Problem::WrongKind {
                what: format!("`{}`", key.name),
                wanted: "`true` or `false`",
                found,
            },
        );
        false
    }

    /// One of the key's words.
    pub(crate) fn word(&mut self, view: &View<'_, '_>, key: &Key) -> Option<At<&'static str>> {
        let Takes::Word { choices, .. } = key.takes else { return None };
        let what = format!("`{}`", key.name);
        let text = self.text(view, key)?;
        if let Some(choice) = choices.iter().find(|choice| **choice == text.value) {
            return Some(At { value: choice, span: text.span });
        }
        let near = nearest(&text.value, choices.iter().copied());
        let found = view.value(key).map(|value| self.describe(value)).unwrap_or_default();
        self.add(text.span, &Problem::WrongWord { what, found, choices, nearest: near });
        None
    }

    /// A string.
    pub(crate) fn text(&mut self, view: &View<'_, '_>, key: &Key) -> Option<At<String>> {
        let value = view.value(key)?;
        self.text_value(format!("`{}`", key.name), value)
    }

    /// A string, in a table or a list. A NUL in it is refused, because guests read NUL-terminated
    /// strings.
    pub(crate) fn text_value(
        &mut self,
        what: String,
        value: &Spanned<DeValue<'_>>,
    ) -> Option<At<String>> {
        let found = self.describe(value);
        match value.get_ref() {
            DeValue::String(text) if !text.contains('\0') => {
                Some(At { value: text.to_string(), span: value.span() })
            }
            DeValue::String(_) => {
                self.add(
                    value.span(),
                    &Problem::WrongKind { what, wanted: "a string without NUL", found },
                );
                None
            }
            _ => {
                self.add(
                    value.span(),
                    &Problem::WrongKind { what, wanted: "a string in quotes", found },
                );
                None
            }
        }
    }

    /// A required string.
    pub(crate) fn required_text(
        &mut self,
        view: &View<'_, '_>,
        key: &'static Key,
    ) -> Option<At<String>> {
        if view.value(key).is_none() {
            self.add(view.span.clone(), &Problem::Missing { table: view.header, key });
            return None;
        }
        self.text(view, key)
    }

    /// The elements of a list.
    pub(crate) fn list<'v, 'i>(
        &mut self,
        view: &'v View<'_, 'i>,
        key: &Key,
    ) -> Option<At<&'v [Spanned<DeValue<'i>>]>> {
        let value = view.value(key)?;
        if let DeValue::Array(elements) = value.get_ref() {
            return Some(At { value: elements.as_ref(), span: value.span() });
        }
        let found = self.describe(value);
        self.add(
            value.span(),
            &Problem::WrongKind {
                what: format!("`{}`", key.name),
                wanted: "a list in `[ ]`",
                found,
            },
        );
        None
    }

    /// The entries of a table.
    pub(crate) fn table<'v, 'i>(
        &mut self,
        view: &'v View<'_, 'i>,
        key: &Key,
    ) -> Option<At<&'v DeTable<'i>>> {
        let value = view.value(key)?;
        if let DeValue::Table(entries) = value.get_ref() {
            return Some(At { value: entries, span: value.span() });
        }
        let found = self.describe(value);
        self.add(
            value.span(),
            &Problem::WrongKind {
                what: format!("`{}`", key.name),
                wanted: "a table in `{ }`",
                found,
            },
        );
        None
    }
}
