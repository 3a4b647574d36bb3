//! Runs other programs: captures output in a file, enforces a time limit, and names the command in
//! errors.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Runs a command to its end; its output is shown.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let shown = show(command);
    let status =
        command.stdin(Stdio::null()).status().map_err(|error| format!("{shown}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown}: {status}")) }
}

/// The standard output of a command.
pub(crate) fn answer(command: &mut Command) -> Result<String, String> {
    let shown = show(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{shown}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{shown}: {}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| format!("{shown}: {error}"))
}

/// The standard output of a command, also written to `file`; kills it after `limit`.
pub(crate) fn answer_within(
    command: &mut Command,
    limit: Duration,
    file: &Path,
) -> Result<String, String> {
    let shown = show(command);
    let fail = |error: std::io::Error| format!("{shown}: {error}");
    let output = File::create(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let start = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(output).spawn().map_err(fail)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(fail)? {
            break status;
        }
        if start.elapsed() > limit {
            child.kill().map_err(fail)?;
            child.wait().map_err(fail)?;
            return Err(format!("{shown}: not finished after {} s", limit.as_secs()));
        }
        thread::sleep(Duration::from_millis(20));
    };
    if !status.success() {
        return Err(format!("{shown}: {status}; its output is in {}", file.display()));
    }
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// A command as typed, without the environment.
fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
