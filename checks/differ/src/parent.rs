//! The parent process: distributes seeds to child processes, reads their output, and survives their
//! crashes.
//!
//! Contract: a seed that crashes its child or takes longer than [`TIME_LIMIT`] is reported like any
//! other failure, and the remaining seeds are still run. Elsewhere: one seed (`main`).

use crate::Source;
use crate::coverage::Coverage;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub(crate) const USAGE: &str = "usage: differ [--iterations N] [--first SEED] [--source shapes|mutants|smith] \
    [--save FOLDER]";

/// Number of concurrent children.
const WORKERS: usize = 2;
/// Seeds per child.
const BATCH: u64 = 500;
/// Address space of one child.
const MOST_KILOBYTES: u64 = 8 << 20;
/// Time limit of one program on all engines together.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// With this many programs of all sources, every lowered instruction must have been executed.
const COVERED_FROM: u64 = 2_000;

/// The command line.
pub(crate) struct Options {
    pub(crate) programs: u64,
    pub(crate) first: u64,
    /// One source only.
    pub(crate) source: Option<Source>,
    /// Where to write every module.
    pub(crate) save: Option<PathBuf>,
    /// Whether this process runs the seeds itself and prints for its parent.
    pub(crate) child: bool,
}

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options =
            Self { programs: 4_000, first: 0, source: None, save: None, child: false };
        while let Some(flag) = arguments.next() {
            if flag == "--child" {
                options.child = true;
                continue;
            }
            let value = arguments.next()?;
            match flag.as_str() {
                "--iterations" => options.programs = value.parse().ok()?,
                "--first" => options.first = value.parse().ok()?,
                "--source" => {
                    options.source = Some(Source::ALL.iter().find(|source| source.0 == value)?.1);
                }
                "--save" => options.save = Some(PathBuf::from(value)),
                _ => return None,
            }
        }
        options.first.checked_add(options.programs)?;
        Some(options)
    }

    /// A child for the seeds `first..first + programs`.
    fn spawn(&self, first: u64, programs: u64) -> std::io::Result<Child> {
        // A shell sets the memory limit, so that a program that makes an engine allocate without
        // bound only ends its child.
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {MOST_KILOBYTES}; exec \"$0\" \"$@\"")]);
        command.arg(std::env::current_exe()?);
        command.args([
            "--child",
            "--first",
            &first.to_string(),
            "--iterations",
            &programs.to_string(),
        ]);
        if let Some(source) = self.source
            && let Some((name, _)) = Source::ALL.iter().find(|named| named.1 == source)
        {
            command.args(["--source", name]);
        }
        if let Some(folder) = &self.save {
            command.arg("--save").arg(folder);
        }
        command.stdout(Stdio::piped()).spawn()
    }
}

/// The results of all children.
#[derive(Default)]
struct Sum {
    /// The next seed to distribute.
    next: u64,
    coverage: Coverage,
    tally: [u64; 3],
    /// Seeds that failed, with the reason.
    failed: Vec<(u64, String)>,
}

/// Runs all seeds and prints the outcome.
pub(crate) fn run(options: &Options) -> ExitCode {
    let start = Instant::now();
    let end = options.first + options.programs;
    let sum = Mutex::new(Sum { next: options.first, ..Sum::default() });
    let lock = || sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let first = lock().next;
                    let count = BATCH.min(end - first);
                    if count == 0 {
                        break;
                    }
                    lock().next = first + count;
                    batch(options, first, count, &sum);
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    report(options, &sum, start.elapsed())
}

/// Runs one batch, with a new child after every seed that crashed one.
fn batch(options: &Options, first: u64, count: u64, sum: &Mutex<Sum>) {
    let end = first + count;
    let mut from = first;
    while from < end {
        let lock = || sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut child = match options.spawn(from, end - from) {
            Ok(child) => child,
            Err(error) => return lock().failed.push((from, format!("no child process: {error}"))),
        };
        let (sender, lines) = channel();
        let output = child.stdout.take();
        let reader = std::thread::spawn(move || {
            let lines = output.into_iter().flat_map(|output| BufReader::new(output).lines());
            lines.map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        });
        let last = read(&lines, sum);
        let patient = last.is_ok();
        if !patient {
            let _ = child.kill();
        }
        let status = child.wait();
        let _ = reader.join();
        let (Ok(last) | Err(last)) = last;
        match status {
            Ok(status) if status.success() && patient => from = end,
            _ => {
                let seed = last.unwrap_or(from);
                let text = if patient {
                    format!("its process ended: {status:?}")
                } else {
                    "it hangs".to_owned()
                };
                fail(&mut lock(), seed, text);
                from = seed + 1;
            }
        }
    }
}

fn fail(sum: &mut Sum, seed: u64, text: String) {
    eprintln!("seed {seed} fails: {text}; reproduce with: differ --first {seed} --iterations 1");
    sum.failed.push((seed, text));
}

/// Reads a child's lines to the end and returns the last seed that it started; an error if it timed
/// out.
fn read(lines: &Receiver<String>, sum: &Mutex<Sum>) -> Result<Option<u64>, Option<u64>> {
    let mut last = None;
    loop {
        let line = match lines.recv_timeout(TIME_LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Disconnected) => return Ok(last),
            Err(RecvTimeoutError::Timeout) => return Err(last),
        };
        let mut sum = sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (what, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let mut numbers = rest.split(' ').map_while(|number| number.parse::<u64>().ok());
        match what {
            "begin" => last = numbers.next(),
            "tally" => sum.tally.iter_mut().zip(numbers).for_each(|(sum, number)| *sum += number),
            "counts" => sum.coverage.add(numbers),
            "fail" => {
                let text = rest.split_once(' ').map_or(rest, |(_, text)| text).to_owned();
                fail(&mut sum, last.unwrap_or(0), text);
            }
            _ => {}
        }
    }
}

fn report(options: &Options, sum: &Sum, took: Duration) -> ExitCode {
    let (seconds, build) =
        (took.as_secs_f64(), if cfg!(feature = "checked") { "checked" } else { "plain" });
    let [refused, open, wasmi_alone] = sum.tally;
    println!(
        "{} programs from seed {}, {build} build: {} failed, {seconds:.1} s, {:.0} programs per second",
        options.programs,
        options.first,
        sum.failed.len(),
        options.programs as f64 / seconds,
    );
    println!(
        "{refused} beyond a limit, {open} not ended or out of stack, {wasmi_alone} on which wasmi alone differs"
    );
    let missing = sum.coverage.missing();
    let executed = sum.coverage.counts().len() - missing.len();
    println!("{executed} of {} lowered instructions were executed", sum.coverage.counts().len());
    if !missing.is_empty() {
        println!("never executed: {}", missing.join(", "));
    }
    let large = options.source.is_none() && options.programs >= COVERED_FROM;
    let hollow = large.then(|| hollow(options.programs, sum)).flatten();
    if let Some(text) = &hollow {
        println!("the run covered too little: {text}");
    }
    if sum.failed.is_empty() && hollow.is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Why a large run of all sources covered too little, if it did.
fn hollow(programs: u64, sum: &Sum) -> Option<String> {
    let [refused, open, wasmi_alone] = sum.tally;
    if !sum.coverage.missing().is_empty() {
        return Some("a lowered instruction was never executed".to_owned());
    }
    // `wasmi` 2.0.0 mistakes a `select` whose condition is `i32.eqz` of one of its operands (see
    // the tests of `machine`): about one program in 200.
    let limits = [
        (refused, 20, "refused"),
        (open, 10, "not ended"),
        (wasmi_alone, 50, "different on wasmi alone"),
    ];
    let over = limits.into_iter().find(|(count, share, _)| count * share > programs);
    over.map(|(count, share, what)| {
        format!("{count} of {programs} are {what}, more than one in {share}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Sum {
        let mut sum = Sum::default();
        sum.coverage.add(std::iter::repeat(1));
        sum
    }

    #[test]
    fn a_run_that_misses_an_instruction_or_compares_little_is_refused() {
        assert_eq!(hollow(2_000, &full()), None);
        assert!(hollow(2_000, &Sum::default()).is_some(), "nothing was executed");
        for place in 0..3 {
            let mut sum = full();
            sum.tally[place] = 500;
            assert!(
                hollow(2_000, &sum).is_some_and(|text| text.starts_with("500 of 2000")),
                "{place}"
            );
        }
    }

    #[test]
    fn a_childs_lines_are_summed_and_a_hang_names_its_seed() {
        let (sender, lines) = channel();
        for line in ["begin 7", "fail 7 text", "begin 8", "tally 1 2 3", "counts 4 5"] {
            let _ = sender.send(line.to_owned());
        }
        drop(sender);
        let sum = Mutex::new(Sum::default());
        assert_eq!(read(&lines, &sum), Ok(Some(8)));
        let sum = sum.into_inner().expect("no thread panicked");
        assert_eq!(sum.failed, [(7, "text".to_owned())]);
        assert_eq!((sum.tally, &sum.coverage.counts()[..3]), ([1, 2, 3], &[4, 5, 0][..]));
    }
}
