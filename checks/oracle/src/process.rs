//! The oracle as a process: commands in, lines out (proof/oracle/main.ml).

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A running oracle.
pub(crate) struct Oracle {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Oracle {
    pub(crate) fn start(program: &str) -> Result<Self, String> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}; build it with proof/oracle/build"))?;
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Self { child, input, output })
    }

    /// The lines that it answers to these commands.
    pub(crate) fn answers(&mut self, commands: &str) -> Result<Vec<String>, String> {
        let failed = |error: std::io::Error| format!("the oracle stopped: {error}");
        self.input.write_all(commands.as_bytes()).map_err(failed)?;
        self.input.write_all(b".\n").map_err(failed)?;
        self.input.flush().map_err(failed)?;
        let mut answers = Vec::new();
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).map_err(failed)? == 0 {
                return Err("the oracle stopped".into());
            }
            match line.trim_end_matches('\n') {
                "." => return Ok(answers),
                line => answers.push(line.to_string()),
            }
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
