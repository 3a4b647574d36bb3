//! Refusals: a status, a word for programs, and a sentence with the rule and the numbers.

use std::fmt;
use std::io;
use wavelock::Error;
use wavelock_client::api;

/// Why something is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

macro_rules! problems {
    ($($name:ident = $status:literal, $code:literal;)*) => {
        /// By status.
        impl Problem {
            $(pub(crate) fn $name(message: impl Into<String>) -> Self {
                Self { status: $status, code: $code, message: message.into() }
            })*
        }

        /// Every status of a refusal, once.
        pub(crate) const STATUSES: &[(u16, &str)] = &[$(($status, $code)),*];
    };
}

problems! {
    invalid = 400, "invalid";
    unauthorized = 401, "unauthorized";
    forbidden = 403, "forbidden";
    not_found = 404, "not_found";
    wrong_method = 405, "method_not_allowed";
    slow = 408, "timeout";
    conflict = 409, "conflict";
    no_length = 411, "length_required";
    too_large = 413, "too_large";
    unsupported = 415, "unsupported_media_type";
    misdirected = 421, "misdirected_request";
    refused = 422, "refused";
    too_many = 429, "too_many_requests";
    internal = 500, "internal";
    busy = 503, "busy";
    full = 507, "full";
}

impl Problem {
    pub(crate) fn no_machine(name: &str) -> Self {
        Self::not_found(format!("there is no machine `{name}` that this token may see"))
    }

    pub(crate) fn disk(error: &io::Error) -> Self {
        Self::internal(format!("the disk: {error}"))
    }

    pub(crate) fn json(&self) -> api::Refusal {
        let error = api::Problem { code: self.code.into(), message: self.message.clone() };
        api::Refusal { error }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Over => Self::conflict(message),
            Error::Unknown { .. } => Self::not_found(message),
            Error::Io(_) | Error::JournalFailed | Error::Host(_) | Error::Diverged { .. } => {
                Self::internal(message)
            }
            _ => Self::refused(message),
        }
    }
}
