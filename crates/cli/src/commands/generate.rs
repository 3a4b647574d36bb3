//! `wavelock completions` and `wavelock man`: generated from the declaration of the arguments.

use super::emit;
use crate::arguments::{Arguments, CompletionArguments, ManArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::suggest::nearest;
use clap::CommandFactory;

/// Prints the completions of a shell.
pub(super) fn completions(arguments: &CompletionArguments) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "wavelock", &mut script);
    emit(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}

/// Prints a man page.
pub(super) fn man(arguments: &ManArguments) -> Result<Exit, Failure> {
    let mut command = Arguments::command();
    command.build();
    let page = match &arguments.command {
        None => command,
        Some(name) => {
            let names: Vec<String> =
                command.get_subcommands().map(|known| known.get_name().to_owned()).collect();
            let found = command.find_subcommand(name).cloned();
            found.ok_or_else(|| {
                let hint = nearest(name, names.iter().map(String::as_str))
                    .map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                Failure::new(
                    Exit::Usage,
                    format!(
                        "wavelock has no command `{name}`{hint} (commands: {})",
                        names.join(", ")
                    ),
                )
            })?
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page)
        .source(concat!("wavelock ", env!("CARGO_PKG_VERSION")))
        .render(&mut text)
        .map_err(|error| {
            Failure::new(Exit::Host, format!("cannot generate the man page: {error}"))
        })?;
    emit(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}
