//! Limits on a module. A refusal names the limit and both numbers.

macro_rules! limits {
    ($($field:ident = $value:expr, $doc:literal;)*) => {
        /// Limits on one module, checked while loading.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Limits {
            $(#[doc = $doc] pub $field: u32,)*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($field: $value,)* }
            }
        }

        impl Limits {
            /// Name, default and meaning of each limit, for the documentation tables.
            pub const TABLE: &'static [(&'static str, u32, &'static str)] =
                &[$((stringify!($field), $value, $doc),)*];
        }
    };
}

limits! {
    module_bytes = 64 << 20, "bytes of the whole module";
    types = 100_000, "function types";
    imports = 10_000, "imports";
    exports = 100_000, "exports";
    functions = 200_000, "functions that the module defines";
    globals = 100_000, "globals that the module defines";
    tables = 100, "tables that the module defines";
    segments = 100_000, "element segments, and data segments";
    elements = 4 << 20, "items of all element segments together";
    function_bytes = 4 << 20, "bytes of one function's body";
    locals = 32_000, "locals of one function, parameters included";
    registers = 65_535, "registers of one function: parameters, locals and the deepest operand stack, plus one";
    control_depth = 10_000, "nested blocks in one function";
    lowered_words = 32 << 20, "words of lowered code in the module";
}
