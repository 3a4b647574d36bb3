//! The commands: the second stage of the arguments (their meaning together with files), and what
//! each command prints.
//!
//! Every command ends in an [`Exit`] or a [`Failure`]; only `main` turns those into text and a
//! process exit code.

mod certify;
mod costs;
mod ctl;
mod debug;
mod differ;
mod drive;
mod explore;
mod export;
mod files;
mod generate;
mod inspect;
mod interrupt;
mod lab;
mod lanes;
mod live;
mod load;
mod machine;
mod memory;
mod output;
mod replay;
mod report;
mod run;
mod serve;
mod shares;
mod snapshot;
mod soak;
mod sources;
mod streams;
mod summary;

pub(crate) use lanes::table as lane_table;
pub(crate) use load::{decode_module, sentence};

use crate::arguments::{Arguments, Color, Command};
use crate::diagnostic::Ink;
use crate::exit::Exit;
use crate::failure::Failure;
use clap::{CommandFactory, FromArgMatches};
use std::io::Write;
use std::process::ExitCode;

/// Parses the process's arguments, runs the command, prints its errors.
#[must_use]
pub fn main() -> ExitCode {
    // Treat a negative number as a value, not as an unknown flag, so that the error names the
    // allowed range.
    let command =
        Arguments::command().mut_subcommands(|command| command.allow_negative_numbers(true));
    let arguments =
        match command.try_get_matches().and_then(|matches| Arguments::from_arg_matches(&matches)) {
            Ok(arguments) => arguments,
            Err(error) => {
                // Help and version arrive here too, with exit code 0. A closed pipe is not an
                // error.
                let _ = error.print();
                return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
            }
        };
    match arguments.color {
        Color::Auto => {}
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
    let json = wants_json(&arguments.command);
    match dispatch(arguments.command) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            let _ = write!(anstream::stderr(), "{}", failure.render(Ink::Styled));
            if json {
                let _ = writeln!(std::io::stdout(), "{}", failure.json());
            }
            failure.exit.into()
        }
    }
}

fn dispatch(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Inspect(arguments) => inspect::inspect(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Replay(arguments) => replay::replay(&arguments),
        Command::Snapshot(arguments) => snapshot::snapshot(&arguments),
        Command::Resume(arguments) => snapshot::resume(&arguments),
        Command::Diff(arguments) => replay::diff(&arguments),
        Command::Soak(arguments) => soak::soak(&arguments),
        Command::Certify(arguments) => certify::certify(&arguments),
        Command::Why(arguments) => debug::why(&arguments),
        Command::Debug(arguments) => debug::debug(&arguments),
        Command::Explore(arguments) => explore::explore(&arguments),
        Command::Lab(arguments) => lab::lab(&arguments),
        Command::Export(arguments) => export::export(&arguments),
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Ctl(arguments) => ctl::ctl(&arguments),
        Command::Completions(arguments) => generate::completions(&arguments),
        Command::Man(arguments) => generate::man(&arguments),
    }
}

fn wants_json(command: &Command) -> bool {
    match command {
        Command::Run(arguments) => arguments.json,
        Command::Inspect(arguments) => arguments.json,
        Command::Report(arguments) => arguments.json,
        Command::Replay(arguments) => arguments.json,
        Command::Snapshot(arguments) => arguments.json,
        Command::Resume(arguments) => arguments.json,
        Command::Diff(arguments) => arguments.json,
        Command::Soak(arguments) => arguments.json,
        Command::Certify(arguments) => arguments.json,
        Command::Why(arguments) => arguments.json,
        Command::Debug(arguments) => arguments.json,
        Command::Explore(arguments) => arguments.json,
        Command::Lab(arguments) => arguments.json,
        Command::Export(arguments) => arguments.json,
        Command::Ctl(arguments) => arguments.json,
        Command::Serve(_) | Command::Completions(_) | Command::Man(_) => false,
    }
}

/// Writes a result to standard output; styles are stripped in a pipe. A closed pipe is not an
/// error.
fn emit(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Host, format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON object and a newline to standard output.
fn emit_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value).map_err(|error| {
        Failure::new(Exit::Host, format!("cannot serialise the result as JSON: {error}"))
    })?;
    emit(&format!("{text}\n"))
}
