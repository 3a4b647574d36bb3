//! Measures the compute kernels on our machine and on its peers, in one run; prints the tables of
//! `docs/performance/engine.md`.
//!
//! Engines alternate, kernel by kernel and round by round, so that a disturbance affects all of
//! them; the minimum over the rounds counts. Every result is compared with the index. Exit 0:
//! measured (the verdict is printed, not part of the status); 1: an error; 2: usage.

mod clock;
mod coroutines;
mod counts;
mod engines;
mod kernels;

use clock::Nanoseconds;
use engines::{Engine, Prepared};
use kernels::Kernel;
use std::process::ExitCode;

const USAGE: &str = "usage: wavelock-check-bench [--rounds N] [--kernel NAME]   the tables of times
       wavelock-check-bench --instructions [--kernel NAME]   instruction counts (needs valgrind)
       wavelock-check-bench --coroutines                     suspend and resume, bytes of an idle coroutine
       wavelock-check-bench --one ENGINE KERNEL N            one run, for a profiler";

/// Goal: the geometric mean of the ratio of wasmi's time with fuel to ours.
const REACH_MEAN: f64 = 1.0;
/// Goal: the same ratio on every single kernel.
const REACH_WORST: f64 = 0.7;
/// Number of coroutines that are resumed in turn.
const TURNS: usize = 1_000;
/// Number of idle coroutines.
const IDLE: usize = 1_000_000;

/// The task given on the command line.
enum Task {
    Times { rounds: u32, kernel: Option<String> },
    Instructions { kernel: Option<String> },
    Coroutines,
    One { engine: Engine, kernel: String, n: i32 },
}

fn task(mut arguments: impl Iterator<Item = String>) -> Option<Task> {
    let mut task = Task::Times { rounds: 7, kernel: None };
    while let Some(flag) = arguments.next() {
        match (flag.as_str(), &mut task) {
            ("--rounds", Task::Times { rounds, .. }) => {
                *rounds = arguments.next()?.parse().ok().filter(|&rounds| rounds > 0)?
            }
            ("--kernel", Task::Times { kernel, .. } | Task::Instructions { kernel }) => {
                *kernel = Some(arguments.next()?)
            }
            ("--instructions", Task::Times { .. }) => task = Task::Instructions { kernel: None },
            ("--coroutines", Task::Times { .. }) => task = Task::Coroutines,
            ("--one", Task::Times { .. }) => {
                let name = arguments.next()?;
                let engine = *Engine::ALL.iter().find(|engine| engine.name() == name)?;
                task = Task::One {
                    engine,
                    kernel: arguments.next()?,
                    n: arguments.next()?.parse().ok()?,
                };
            }
            _ => return None,
        }
    }
    Some(task)
}

/// The selected kernels.
fn selected(name: Option<&str>) -> Result<Vec<Kernel>, String> {
    let kernels: Vec<Kernel> = kernels::all()?
        .into_iter()
        .filter(|kernel| name.is_none_or(|name| name == kernel.name))
        .collect();
    if kernels.is_empty() {
        Err(format!("no kernel {}", name.unwrap_or("at all")))
    } else {
        Ok(kernels)
    }
}

/// Runs a prepared kernel and compares its result.
fn checked(
    engine: Engine,
    kernel: &Kernel,
    prepared: &mut Prepared,
    (n, expected): (i32, i32),
) -> Result<Nanoseconds, String> {
    let (answer, here) = clock::time(|| prepared(n));
    let (result, elsewhere) =
        answer.map_err(|error| format!("{} {}({n}): {error}", engine.name(), kernel.name))?;
    if result == expected {
        Ok(elsewhere.unwrap_or(here))
    } else {
        Err(format!("{} {}({n}) is {result}, not {expected}", engine.name(), kernel.name))
    }
}

/// The minimum time of each engine for a kernel; `None` if it cannot run it.
fn measure(kernel: &Kernel, rounds: u32) -> Result<Vec<Option<Nanoseconds>>, String> {
    let mut prepared = Vec::new();
    for &engine in Engine::ALL {
        let mut ready = engine.prepare(kernel)?;
        if let Some(ready) = &mut ready {
            checked(engine, kernel, ready, kernel.check)?;
        }
        prepared.push((engine, ready, None));
    }
    for _ in 0..rounds {
        for (engine, ready, least) in &mut prepared {
            if let Some(ready) = ready {
                let time = checked(*engine, kernel, ready, kernel.bench)?;
                *least = Some(least.map_or(time, |least: Nanoseconds| least.min(time)));
            }
        }
    }
    Ok(prepared.into_iter().map(|(_, _, least)| least).collect())
}

/// A cell of a table.
fn cell(value: Option<f64>, decimals: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.decimals$}"))
}

fn geometric_mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty())
        .then(|| (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

fn times(rounds: u32, kernel: Option<&str>) -> Result<(), String> {
    let peers = &Engine::ALL[1..];
    let milliseconds: String =
        Engine::ALL.iter().map(|engine| format!(" {}, ms |", engine.name())).collect();
    let ratios: String =
        peers.iter().map(|engine| format!(" {} / ours |", engine.name())).collect();
    println!("| kernel |{milliseconds}{ratios}");
    println!("|---|{}", "---:|".repeat(Engine::ALL.len() + peers.len()));
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); peers.len()];
    for kernel in selected(kernel)? {
        let least = measure(&kernel, rounds)?;
        let spent: Vec<Option<f64>> =
            least.iter().map(|time| time.map(|Nanoseconds(time)| time as f64)).collect();
        let ratios: Vec<Option<f64>> =
            spent[1..].iter().map(|peer| Some((*peer)? / spent[0]?)).collect();
        for (column, ratio) in columns.iter_mut().zip(&ratios) {
            column.extend(ratio);
        }
        let spent: String = spent
            .iter()
            .map(|&time| format!(" {} |", cell(time.map(|time| time / 1e6), 1)))
            .collect();
        let ratios: String = ratios.iter().map(|&ratio| format!(" {} |", cell(ratio, 2))).collect();
        println!("| {} |{spent}{ratios}", kernel.name);
    }
    let means: String =
        columns.iter().map(|column| format!(" {} |", cell(geometric_mean(column), 2))).collect();
    println!("| geometric mean |{}{means}\n", " |".repeat(Engine::ALL.len()));
    let fuel = &columns[0];
    let mean = geometric_mean(fuel).unwrap_or(0.0);
    let worst = fuel.iter().copied().fold(f64::INFINITY, f64::min);
    let verdict = if mean >= REACH_MEAN && worst >= REACH_WORST { "reached" } else { "missed" };
    println!(
        "Verdict: wasmi with fuel / ours {mean:.2} in geometric mean (reach {REACH_MEAN:.1}), {worst:.2} at worst (reach {REACH_WORST:.1}): {verdict}."
    );
    Ok(())
}

fn instructions(kernel: Option<&str>) -> Result<(), String> {
    println!(
        "| kernel | ours, instructions | wasmi-fuel | wasmi | wasmi-fuel / ours | fuel in wasmi |"
    );
    println!("|---|---:|---:|---:|---:|---:|");
    let (mut ratios, mut fuels) = (Vec::new(), Vec::new());
    for kernel in selected(kernel)? {
        let [ours, fuel, plain] = [Engine::Ours, Engine::WasmiFuel, Engine::Wasmi]
            .map(|engine| counts::instructions(engine, &kernel));
        let (ours, fuel, plain) = (ours?, fuel?, plain?);
        let (ratio, share) = (fuel as f64 / ours as f64, fuel as f64 / plain as f64);
        ratios.push(ratio);
        fuels.push(share);
        println!(
            "| {} | {ours} | {fuel} | {plain} | {ratio:.2} | {:+.0} % |",
            kernel.name,
            (share - 1.0) * 100.0
        );
    }
    let fuel = geometric_mean(&fuels).map(|share| (share - 1.0) * 100.0);
    println!(
        "| geometric mean | | | | {} | {} % |",
        cell(geometric_mean(&ratios), 2),
        cell(fuel, 0)
    );
    Ok(())
}

fn coroutines() -> Result<(), String> {
    // Memory first: memory freed by others would be reused and not be measured.
    let idle = coroutines::idle_bytes(IDLE)?;
    let (mut ours, mut wasmi) = (coroutines::ours(TURNS)?, coroutines::wasmi(TURNS)?);
    let (mut least_ours, mut least_wasmi) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..40 {
        least_ours = least_ours.min(ours(100)?);
        least_wasmi = least_wasmi.min(wasmi(10)?);
    }
    println!("| what | ours | wasmi-fuel |\n|---|---:|---:|");
    println!(
        "| suspend + resume at a host call, {TURNS} in turn, ns | {least_ours:.1} | {least_wasmi:.1} |"
    );
    println!("| bytes of one of {IDLE} idle coroutines, RSS | {idle:.0} | |");
    Ok(())
}

fn one(engine: Engine, name: &str, n: i32) -> Result<(), String> {
    let kernels = selected(Some(name))?;
    let mut prepared = engine.prepare(&kernels[0])?.ok_or("this engine cannot run it")?;
    // Without the clock: under valgrind there is no vDSO, which the clock's crate needs.
    let (result, _) = prepared(n)?;
    println!("{} {name}({n}) = {result}", engine.name());
    Ok(())
}

fn main() -> ExitCode {
    let Some(task) = task(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let done = match task {
        Task::Times { rounds, kernel } => times(rounds, kernel.as_deref()),
        Task::Instructions { kernel } => instructions(kernel.as_deref()),
        Task::Coroutines => coroutines(),
        Task::One { engine, kernel, n } => one(engine, &kernel, n),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}
