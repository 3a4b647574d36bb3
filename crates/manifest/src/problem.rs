//! Every problem a manifest can have, as an enum, and the message of each.
//!
//! Every message states what was found and what is allowed. Positions are byte ranges of the
//! manifest's text.

use crate::diagnostic::{Diagnostic, Span};
use crate::keys::{Key, grouped};

/// What a manifest gives names to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Named {
    /// A `[[session]]`.
    Session,
    /// A `[[channel]]`.
    Channel,
    /// An entry of `ports`.
    Port,
    /// An entry of `env`.
    Variable,
    /// A `[[context]]`.
    Context,
    /// A `[[profile]]`.
    Profile,
    /// An `[[island]]`.
    Island,
    /// A `[[lease]]`.
    Lease,
}

impl Named {
    const fn noun(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Channel => "channel",
            Self::Port => "port",
            Self::Variable => "variable",
            Self::Context => "context",
            Self::Profile => "profile",
            Self::Island => "island",
            Self::Lease => "lease",
        }
    }
}

/// Where a value came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A flag of the command line.
    Flag(&'static str),
    /// Written in the manifest.
    Written,
    /// The default.
    Default,
}

impl Origin {
    /// The origin in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Flag(flag) => flag,
            Self::Written => "the manifest",
            Self::Default => "the default",
        }
    }
}

/// One problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Problem {
    /// Not TOML.
    Syntax { message: String },
    /// A table or key at the top that does not exist.
    UnknownTable { name: String, nearest: Option<&'static str>, elsewhere: Option<&'static str> },
    /// `[session]` for `[[session]]`, or the reverse.
    WrongBrackets { wanted: &'static str },
    /// A key that the table does not have.
    UnknownKey {
        table: &'static str,
        name: String,
        nearest: Option<&'static str>,
        elsewhere: Option<&'static str>,
        known: Vec<&'static str>,
    },
    /// A value of a kind that the key does not accept.
    WrongKind { what: String, wanted: &'static str, found: String },
    /// A number outside its range. `rule` explains the bound if it is not that of the key.
    OutOfRange { what: String, found: String, least: u64, most: u64, rule: Option<String> },
    /// A word that is not one of the choices.
    WrongWord {
        what: String,
        found: String,
        choices: &'static [&'static str],
        nearest: Option<&'static str>,
    },
    /// A required key that is absent.
    Missing { table: &'static str, key: &'static Key },
    /// Two keys that exclude each other.
    Both { first: &'static str, second: &'static str, first_span: Span },
    /// A name with a character that names cannot contain.
    BadName { named: Named, found: String, reason: String },
    /// A name used twice. `first` is the position of the first use.
    Duplicate { named: Named, name: String, first: Span },
    /// A name that does not exist. `counted` is the number of sessions if it is the name of a
    /// counted session.
    Unknown { named: Named, name: String, nearest: Option<String>, counted: Option<u32> },
    /// More entries than allowed.
    TooMany { what: String, found: u64, most: u64, rule: String },
    /// A list that must not be empty.
    Empty { what: &'static str },
    /// The same lane twice.
    LaneTwice { lane: u64 },
    /// `{index}` where there is no index.
    IndexWithoutCount { what: String, table: &'static str },
    /// `count` of a channel whose name has no `{index}`.
    CountWithoutIndex { name: String },
    /// A port with `{index}` in its name, to a channel that is not counted under that name.
    NotCounted { port: String, nearest: Option<String> },
    /// No session at all.
    NoSession,
    /// Warning: a channel that no session can send to.
    NoSender { name: String, owner: String },
}

fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

fn did_you_mean(nearest: Option<impl std::fmt::Display>) -> String {
    nearest.map_or_else(String::new, |word| format!("did you mean `{word}`?"))
}

impl Problem {
    /// The message, at a position.
    // Long: one arm per problem, so that all messages of the manifest are together.
    #[must_use]
    pub(crate) fn diagnostic(&self, span: Span) -> Diagnostic {
        match self {
            Self::Syntax { message } => {
                Diagnostic::error(format!("this is not valid TOML: {message}"))
                    .mark(span, "found here")
            }
            Self::UnknownTable { name, nearest, elsewhere } => {
                let label = nearest.map_or_else(
                    || "not a table of a manifest".to_owned(),
                    |table| did_you_mean(Some(table)),
                );
                let finding = Diagnostic::error(format!("a manifest has no table `{name}`"))
                    .mark(span, label)
                    .note("allowed: `[machine]`, `[limits]`, `[[session]]`, `[[channel]]`, `[[context]]`, `[[profile]]`, `[[grant]]`, `[[lease]]`, `[[island]]`");
                match elsewhere {
                    Some(table) => finding.help(format!("`{name}` is a key of `{table}`")),
                    None => finding,
                }
            }
            Self::WrongBrackets { wanted } => {
                Diagnostic::error(format!("this table must be written `{wanted}`"))
                    .mark(span, "wrong brackets")
                    .help(format!("write `{wanted}`"))
            }
            Self::UnknownKey { table, name, nearest, elsewhere, known } => {
                let finding = Diagnostic::error(format!("`{table}` has no key `{name}`"))
                    .mark(
                        span,
                        nearest.map_or_else(
                            || "unknown key".to_owned(),
                            |word| did_you_mean(Some(word)),
                        ),
                    )
                    .note(format!("keys of `{table}`: {}", list(known)));
                match elsewhere {
                    Some(other) => finding.help(format!("`{name}` is a key of `{other}`")),
                    None => finding,
                }
            }
            Self::WrongKind { what, wanted, found } => {
                Diagnostic::error(format!("{what} must be {wanted}, found {found}"))
                    .mark(span, format!("allowed: {wanted}"))
            }
            Self::OutOfRange { what, found, least, most, rule } => {
                let range = if least == most {
                    grouped(*least)
                } else {
                    format!("{} to {}", grouped(*least), grouped(*most))
                };
                let finding = Diagnostic::error(format!("{what} must be {range}, found {found}"))
                    .mark(span, format!("allowed: {range}"));
                match rule {
                    Some(rule) => finding.note(rule.clone()),
                    None => finding,
                }
            }
            Self::WrongWord { what, found, choices, nearest } => {
                let label = if nearest.is_some() {
                    did_you_mean(*nearest)
                } else {
                    "not one of the allowed words".to_owned()
                };
                Diagnostic::error(format!("{what} cannot be {found}"))
                    .mark(span, label)
                    .note(format!("allowed: {}", list(choices)))
            }
            Self::Missing { table, key } => {
                Diagnostic::error(format!("this `{table}` has no `{}`", key.name))
                    .mark(span, format!("`{}` is required", key.name))
                    .help(format!("add `{} = ...` ({}): {}", key.name, key.form(), key.doc))
            }
            Self::Both { first, second, first_span } => {
                Diagnostic::error(format!("`{first}` and `{second}` cannot be used together"))
                    .mark(span, format!("`{second}` is here"))
                    .related(first_span.clone(), format!("`{first}` is here"))
                    .help("keep one of them")
            }
            Self::BadName { named, found, reason } => {
                Diagnostic::error(format!("{found} is not a valid {} name", named.noun()))
                    .mark(span, reason.clone())
            }
            Self::Duplicate { named, name, first } => {
                Diagnostic::error(format!("two {}s are named `{name}`", named.noun()))
                    .mark(span, "the second")
                    .related(first.clone(), "the first")
            }
            Self::Unknown { named, name, nearest, counted } => {
                let label = if nearest.is_some() {
                    did_you_mean(nearest.as_ref())
                } else {
                    format!("no {} of this manifest has this name", named.noun())
                };
                let finding = Diagnostic::error(format!("there is no {} `{name}`", named.noun()))
                    .mark(span, label);
                match counted {
                    Some(1) => finding.help(format!("`{name}` has `count = 1`: write `{name}.0`")),
                    Some(count) => finding.help(format!(
                        "`{name}` has `count = {count}`: write one of `{name}.0` to `{name}.{}`",
                        count - 1
                    )),
                    None => finding,
                }
            }
            Self::TooMany { what, found, most, rule } => Diagnostic::error(format!(
                "{what}: {} exceed the limit of {}",
                grouped(*found),
                grouped(*most)
            ))
            .mark(span, format!("allowed: at most {}", grouped(*most)))
            .note(rule.clone()),
            Self::Empty { what } => {
                Diagnostic::error(format!("{what} is empty")).mark(span, "allowed: at least one")
            }
            Self::LaneTwice { lane } => Diagnostic::error(format!("lane {lane} is listed twice"))
                .mark(span, "allowed: each lane once"),
            Self::IndexWithoutCount { what, table } => Diagnostic::error(format!(
                "{what} uses `{{index}}`, but its {table} has no `count`"
            ))
            .mark(span, format!("only {table}s with `count` have an index"))
            .help(format!(
                "add `count = ...` to the {table}, or write the text without `{{index}}`"
            )),
            Self::CountWithoutIndex { name } => Diagnostic::error(format!(
                "`count` makes several channels, but their name `{name}` has no `{{index}}`"
            ))
            .mark(span, "each channel needs a name of its own")
            .help(format!("write `name = \"{name}.{{index}}\"`")),
            Self::NotCounted { port, nearest } => {
                let label = match nearest {
                    Some(_) => did_you_mean(nearest.as_ref()),
                    None => "no `[[channel]]` with `count` has this name".to_owned(),
                };
                Diagnostic::error(format!(
                    "port `{port}` stands for a port to each channel of a `count`"
                ))
                .mark(span, label)
                .help("name the channel as its `[[channel]]` does, such as `\"inbox.{index}\"`")
            }
            Self::NoSession => Diagnostic::error("a manifest needs at least one `[[session]]`")
                .help("add `[[session]]` with `name = \"...\"` and `module = \"....wasm\"`"),
            Self::NoSender { name, owner } => {
                Diagnostic::warning(format!("no other session can send to channel `{name}`"))
                    .mark(span, format!("only its owner `{owner}` has a port to it"))
                    .help(format!("give the sending session `ports = {{ out = \"{name}\" }}`"))
            }
        }
    }
}
