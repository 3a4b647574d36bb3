//! Why a command failed: an exit code with a message or with diagnostics.

use crate::diagnostic::{DiagnosticRow, Diagnostics, Ink, Render};
use crate::exit::Exit;
use crate::suggest::missing_path;
use serde::Serialize;
use std::path::Path;

/// A command's failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// How the process ends.
    pub exit: Exit,
    /// The message.
    pub reason: Reason,
}

/// The message of a failure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// One sentence, and more lines if they help.
    Message(String),
    /// Findings about a file.
    Diagnostics(Box<Diagnostics>),
}

/// The object that `--json` prints instead of a result.
#[derive(Serialize)]
struct FailureObject {
    error: FailureRow,
}

#[derive(Serialize)]
struct FailureRow {
    exit: u8,
    message: String,
    diagnostics: Vec<DiagnosticRow>,
}

impl Failure {
    /// A failure with a message.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, reason: Reason::Message(message.into()) }
    }

    /// A file that could not be read or written. If a part of the path does not exist, the message
    /// names it and suggests a similar path.
    #[must_use]
    pub fn file(verb: &str, path: &Path, error: &std::io::Error) -> Self {
        let hint = if error.kind() == std::io::ErrorKind::NotFound {
            missing_path(path)
        } else {
            String::new()
        };
        Self::new(Exit::Host, format!("cannot {verb} `{}`: {error}{hint}", path.display()))
    }

    /// Diagnostics about a file that was read but refused.
    #[must_use]
    pub fn refused(diagnostics: Diagnostics) -> Self {
        Self { exit: Exit::Refused, reason: Reason::Diagnostics(Box::new(diagnostics)) }
    }

    /// The failure as text that ends with a newline.
    #[must_use]
    pub fn render(&self, ink: Ink) -> String {
        match &self.reason {
            Reason::Message(message) => {
                let title = anstyle::AnsiColor::Red.on_default().bold();
                match ink {
                    Ink::Plain => format!("error: {message}\n"),
                    Ink::Styled => format!("{title}error{title:#}: {message}\n"),
                }
            }
            Reason::Diagnostics(diagnostics) => diagnostics.render(ink),
        }
    }

    /// The failure as a JSON object on one line.
    #[must_use]
    pub fn json(&self) -> String {
        let (message, diagnostics) = match &self.reason {
            Reason::Message(message) => (message.clone(), Vec::new()),
            Reason::Diagnostics(diagnostics) => {
                let message = diagnostics
                    .list
                    .first()
                    .map_or_else(String::new, |finding| finding.title.clone());
                (message, diagnostics.rows())
            }
        };
        let object =
            FailureObject { error: FailureRow { exit: self.exit.code(), message, diagnostics } };
        serde_json::to_string(&object).expect("plain strings and numbers have a JSON form")
    }
}
