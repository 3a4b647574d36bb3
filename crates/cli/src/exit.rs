//! Exit codes: the same nine for every command, as one table.
//!
//! Codes 1 and 4: a file that cannot be read, or a module that is not WebAssembly, is 1 (host
//! error); a file that was read but breaks one of our rules (a manifest key, a limit, a missing
//! import) is 4 (refused).

macro_rules! exits {
    ($($name:ident = $code:literal, $doc:literal;)*) => {
        /// How the command ends.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Exit {
            $(#[doc = $doc] $name = $code,)*
        }

        impl Exit {
            /// Every code, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The number the process returns.
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// What it means, for the documentation table.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$name => $doc,)* }
            }
        }
    };
}

exits! {
    Done = 0, "success; also if `--frames` ended the run, or if a session ended with a nonzero exit code of its own";
    Host = 1, "host error: a missing file, a module that is not WebAssembly, a full disk, out of memory";
    Usage = 2, "usage error: the command line is wrong";
    Divergence = 3, "divergence: two runs that must be equal differ";
    Refused = 4, "refused: a rule of the manifest, input or profile, a limit, a missing import, admission control, missing authority";
    Faulted = 5, "a guest faulted";
    Deadlock = 6, "deadlock: coroutines wait and nothing can ever wake them";
    Killed = 7, "a budget ended a session: the overrun policy `end` of a context or of a cap";
    Interrupted = 130, "Ctrl-C ended the run at the end of a frame; its files are whole";
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
