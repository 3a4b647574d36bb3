//! Error types as tables: each variant is one row with its documentation, its values and its
//! message.

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

pub(crate) use errors;
