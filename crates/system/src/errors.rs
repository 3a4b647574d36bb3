//! Error types as tables: each variant is one row with its documentation, its values and its
//! message.

use core::fmt::{self, Write};

/// Makes an error type from its rows: the enum, its documentation and its messages.
macro_rules! errors {
    ($(#[$about:meta])* $name:ident {
        $(
            $(#[$doc:meta])*
            $variant:ident $({ $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* })?
                => $message:tt $(($($argument:expr),*))?,
        )*
    }) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum $name {
            $($(#[$doc])* $variant $({ $($(#[$field_doc])* $field: $kind,)* })?,)*
        }

        impl core::fmt::Display for $name {
            #[allow(unused_variables, reason = "not every message has every number")]
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self {
                    $(Self::$variant $({ $($field),* })? => {
                        write!(f, $message $($(, $argument)*)?)
                    })*
                }
            }
        }

        impl core::error::Error for $name {}
    };
}

/// A text in which a type's name is printed as words: "an unknown BlockReason" as "an unknown block
/// reason".
pub(crate) struct InWords(pub(crate) &'static str);

impl fmt::Display for InWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = ' ';
        for letter in self.0.chars() {
            if letter.is_uppercase() && before != ' ' {
                f.write_char(' ')?;
            }
            letter.to_lowercase().try_for_each(|lower| f.write_char(lower))?;
            before = letter;
        }
        Ok(())
    }
}

pub(crate) use errors;

#[cfg(test)]
mod tests {
    use super::InWords;
    use alloc::string::ToString;

    #[test]
    fn names_of_types_are_printed_as_words() {
        assert_eq!(InWords("an unknown BlockReason").to_string(), "an unknown block reason");
        assert_eq!(InWords("a number out of its range").to_string(), "a number out of its range");
    }
}
