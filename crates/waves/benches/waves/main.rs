//! Waves on threads against the sequential run of the same machine, and what the measured serial
//! part would allow on more cores.
//!
//! `cargo bench -p wavelock-waves --bench waves` prints Markdown: the tables of
//! `docs/performance/waves.md`. Runs are interleaved and the best of five counts (after `--`:
//! `--rounds N`: of N; `--pin`: workers bound to cores; `--write PAGE`: the tables go into that
//! page too; `--quick`: best of one, smaller machines, without the model; `--profile N`: the N-th
//! machine once, sequentially, for a profiler). The second table is a model, not a measurement:
//! cycles of each group and wave from a real run, nanoseconds per cycle and per boundary as
//! measured here, heaviest group first to the least loaded core.

mod workloads;

use std::time::Instant;
use wavelock_system::{Group, MachineSpec, World};
use wavelock_waves::Waves;
use workloads::{Workload, all, scaled};

/// Runs of each machine; the best counts. With five the unevenness of a shared host is still in the
/// figures.
const ROUNDS: usize = 15;
/// Lanes of the measured machines, unless `--lanes` says otherwise.
const LANES: usize = 16;
/// Lanes and cores of the model.
const MODEL_LANES: [u16; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const MODEL_CORES: [usize; 4] = [2, 16, 32, 128];
/// What handing one worker its share and taking it back costs the coordinator, in nanoseconds: two
/// cache lines each way.
const HANDOVER: f64 = 200.0;

fn load(spec: &MachineSpec) -> World {
    World::load(spec.clone(), Vec::new(), false).expect("the machine loads").world
}

/// Runs on a thread of its own, as every run here does: one that was bound to a core would stay
/// there, and the first thread has memory of its own.
fn apart_from_this<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| scope.spawn(run).join().expect("the run ends"))
}

/// Seconds of a sequential run, and its digest.
fn sequential(spec: &MachineSpec) -> (f64, String) {
    let mut world = load(spec);
    apart_from_this(move || {
        let began = Instant::now();
        world.run(&mut ()).expect("the host can");
        (began.elapsed().as_secs_f64(), world.digest().to_string())
    })
}

/// Whether workers are bound to cores in this run of the benchmark.
fn pinned() -> bool {
    std::env::args().any(|argument| argument == "--pin")
}

/// Seconds of a run on workers, and its digest.
fn on_workers(spec: &MachineSpec, workers: usize) -> (f64, String) {
    let world = load(spec);
    apart_from_this(move || {
        let began = Instant::now();
        let mut waves = Waves::new(world, workers).expect("a worker");
        if pinned() {
            waves.pin();
        }
        waves.run(&mut ()).expect("the host can");
        (began.elapsed().as_secs_f64(), waves.world().digest().to_string())
    })
}

/// Seconds in which two threads each make the sequential run of a world of their own, sharing
/// nothing: twice the work in what two cores of this host can do at best.
fn apart(spec: &MachineSpec) -> f64 {
    let mut worlds = [load(spec), load(spec)];
    let began = Instant::now();
    std::thread::scope(|scope| {
        for world in &mut worlds {
            scope.spawn(|| world.run(&mut ()).expect("the host can"));
        }
    });
    began.elapsed().as_secs_f64()
}

/// Part of the coordinator's time on two workers that is neither running nor waiting, in percent,
/// and microseconds of a wave.
fn serial_part(spec: &MachineSpec) -> (f64, f64) {
    let world = load(spec);
    let telemetry = apart_from_this(move || {
        let mut waves = Waves::new(world, 2).expect("a worker");
        if pinned() {
            waves.pin();
        }
        waves.certify_always();
        waves.measure();
        waves.run(&mut ()).expect("the host can");
        waves.telemetry()
    });
    let (certified, total) =
        ((telemetry.time.certify + telemetry.time.close) as f64, telemetry.time.total() as f64);
    (100.0 * certified / total, total / 1000.0 / telemetry.waves.max(1) as f64)
}

/// A row of the first table.
fn speed(workload: &Workload, rounds: usize) -> String {
    let spec = &workload.spec;
    let mut best = [f64::MAX; 4];
    let mut two_apart = f64::MAX;
    let mut digests = Vec::new();
    for _ in 0..rounds {
        for (at, workers) in [0, 1, 2, 4].into_iter().enumerate() {
            let (seconds, digest) =
                if workers == 0 { sequential(spec) } else { on_workers(spec, workers) };
            best[at] = best[at].min(seconds);
            digests.push(digest);
        }
        two_apart = two_apart.min(apart(spec));
    }
    assert!(
        digests.iter().all(|digest| *digest == digests[0]),
        "every run of {} is the same run",
        workload.name
    );
    let [base, one, two, four] = best;
    let (serial, wave) = serial_part(spec);
    format!(
        "| {} | {:.1} | {:.3} | {:.2} | {} | {:.2} | {:.2} | {serial:.1} | {wave:.0} |\n",
        workload.name,
        base * 1000.0,
        base / one,
        base / two,
        workload.reach,
        2.0 * base / two_apart,
        base / four
    )
}

/// What one run says about itself for the model.
struct Shape {
    /// Cycles of each group with work, by wave.
    waves: Vec<Vec<u64>>,
    /// Nanoseconds of all guest work and of all boundaries, certificates included.
    work: f64,
    serial: f64,
}

fn shape(spec: &MachineSpec) -> Shape {
    let mut waves = Waves::new(load(spec), 1).expect("a worker");
    waves.certify_always();
    waves.measure();
    let costs =
        |groups: &[Box<Group>]| groups.iter().map(|group| group.worked().0).collect::<Vec<u64>>();
    let mut before = costs(waves.world().groups());
    let mut seen = Vec::new();
    while waves.round(&mut ()).expect("the host can") != wavelock_waves::Round::Over {
        let after = costs(waves.world().groups());
        seen.push(
            after
                .iter()
                .zip(&before)
                .map(|(after, before)| after - before)
                .filter(|cost| *cost > 0)
                .collect(),
        );
        before = after;
    }
    let time = waves.telemetry().time;
    Shape { waves: seen, work: time.run as f64, serial: time.serial() as f64 }
}

impl Shape {
    /// Cycles of the busiest of `cores` cores, heaviest group first to the least loaded, summed
    /// over waves.
    fn makespan(&self, cores: usize) -> u64 {
        let wave = |costs: &Vec<u64>| {
            let mut costs = costs.clone();
            costs.sort_unstable_by(|a, b| b.cmp(a));
            let mut loads = vec![0u64; cores];
            for cost in costs {
                *loads.iter_mut().min().expect("cores") += cost;
            }
            loads.into_iter().max().unwrap_or(0)
        };
        self.waves.iter().map(wave).sum()
    }

    fn cycles(&self) -> u64 {
        self.waves.iter().flatten().sum()
    }

    /// Speed against one core, by the model.
    fn speedup(&self, cores: usize) -> f64 {
        let per_cycle = self.work / self.cycles().max(1) as f64;
        let handed = |costs: &Vec<u64>| costs.len().min(cores).saturating_sub(1) as f64 * HANDOVER;
        let handover: f64 = self.waves.iter().map(handed).sum();
        (self.work + self.serial)
            / (self.makespan(cores) as f64 * per_cycle + self.serial + handover)
    }
}

/// The rows of a machine in the second table.
fn model(name: &str, make: &dyn Fn(u16) -> MachineSpec) -> String {
    let row = |lanes: u16| {
        let shape = shape(&make(lanes));
        let waves = shape.waves.len().max(1) as f64;
        let cells: Vec<String> =
            MODEL_CORES.iter().map(|&cores| format!("{:.1}", shape.speedup(cores))).collect();
        format!(
            "| {name} | {lanes} | {:.1} | {:.2} | {:.2} | {} |\n",
            shape.work / waves / 1000.0,
            shape.serial / waves / 1000.0,
            100.0 * shape.serial / (shape.work + shape.serial),
            cells.join(" | ")
        )
    };
    MODEL_LANES.into_iter().map(row).collect()
}

/// Puts a table between the marks of a section of a page.
fn replace(page: &mut String, section: &str, table: &str) {
    let (start, end) = (format!("<!-- {section} -->\n"), format!("<!-- end of {section} -->"));
    let from = page.find(&start).expect("the start mark") + start.len();
    let to = page.find(&end).expect("the end mark");
    page.replace_range(from..to, &format!("\n{table}\n"));
}

fn argument_after(name: &str) -> Option<String> {
    std::env::args().skip_while(|argument| argument != name).nth(1)
}

fn number_after(name: &str) -> Option<usize> {
    argument_after(name).and_then(|number| number.parse().ok())
}

fn main() {
    // `cargo test` runs benches too, with `--test`: then only that they run is of interest.
    let quick = std::env::args().any(|argument| argument == "--quick" || argument == "--test");
    let (rounds, part) = if quick { (1, 20) } else { (ROUNDS, 1) };
    let rounds = number_after("--rounds").unwrap_or(rounds);
    let lanes = number_after("--lanes").unwrap_or(LANES).clamp(1, 1_024) as u16;
    if let Some(number) = number_after("--profile") {
        let machines = all(lanes, 20);
        println!("{:?}", sequential(&machines[std::cmp::min(number, machines.len() - 1)].spec));
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut speeds = format!(
        "{lanes} lanes, waves of 100,000 cycles, {cores} cores, best of {rounds}; speeds are against the sequential run.\n\n"
    );
    speeds += "| workload | sequential ms | 1 worker | 2 workers | reach | two apart | 4 workers | certificate and commit % | us per wave |\n";
    speeds += "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    let only = argument_after("--only");
    let workloads = all(lanes, part);
    let chosen = workloads
        .iter()
        .filter(|workload| only.as_ref().is_none_or(|only| workload.name.contains(only)));
    speeds.extend(chosen.map(|workload| speed(workload, rounds)));
    println!("{speeds}");
    if quick || only.is_some() {
        return;
    }
    let mut models =
        "| model of | lanes | work us per wave | serial us per wave | serial % | 2 cores | 16 cores | 32 cores | 128 cores |\n".to_owned();
    models += "|---|---:|---:|---:|---:|---:|---:|---:|---:|\n";
    models.extend(scaled(part).into_iter().map(|(name, make)| model(name, &*make)));
    println!("{models}");
    if let Some(path) = argument_after("--write") {
        let mut page = std::fs::read_to_string(&path).expect("the page");
        replace(&mut page, "measured", &speeds);
        replace(&mut page, "model", &models);
        std::fs::write(&path, page).expect("the page can be written");
    }
}
