//! Prints the report of the corpus: `wavelock-portable small|full`. WebAssembly has no standard
//! output, so Node calls the library instead.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use wavelock_portable::{Size, report};

fn main() -> ExitCode {
    let size = match std::env::args().nth(1).as_deref() {
        Some("small") => Size::Small,
        Some("full") => Size::Full,
        _ => {
            eprintln!("usage: wavelock-portable small|full");
            return ExitCode::from(2);
        }
    };
    print!("{}", report(size));
    ExitCode::SUCCESS
}
