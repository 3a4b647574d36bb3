//! How long loading takes, and how much memory: every shape of `tests/shapes` at two sizes.
//!
//! `cargo bench -p wavelock-module --bench load` prints a Markdown table: milliseconds at the
//! larger size, milliseconds per 100 kB and peak memory per byte of the module at the worse size,
//! and how many times longer four times the bytes take (4 is linear). `-- NAME` measures the shapes
//! whose name contains NAME, `-- NAME BYTES` at another size. Processor time, the least of three
//! runs. The clock is read here only, never while loading.

#[path = "../tests/counting/mod.rs"]
mod counting;
#[path = "../tests/shapes/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod shapes;
#[path = "../tests/stopwatch/mod.rs"]
mod stopwatch;

use wavelock_module::{Limits, LoadError, Module};

/// The larger size, unless a shape ends before; the smaller is a quarter of it.
const BYTES: usize = 400_000;

struct Row {
    bytes: usize,
    milliseconds: f64,
    peak: u64,
    note: String,
}

fn measure(make: fn(usize) -> Vec<u8>, bytes: usize) -> Row {
    let bytes = make(bytes);
    let (mut milliseconds, mut peak, mut note) = (f64::MAX, 0, String::new());
    for run in 0..3 {
        let mut counted = None;
        let took = stopwatch::time(|| {
            counted = Some(counting::count(|| Module::new(&bytes, &Limits::default())))
        });
        let (loaded, taken) = counted.expect("it was measured");
        let took = took.as_secs_f64() * 1e3;
        milliseconds = milliseconds.min(took);
        peak = taken.peak;
        note = match loaded {
            Ok(module) => format!("{} words", module.code().words().len()),
            Err(LoadError::Limit { limit, found, allowed, .. }) => {
                format!("{limit}: {found} of {allowed}")
            }
            Err(error) => format!("{error}"),
        };
        if run == 0 && took > 2_000.0 {
            break;
        }
    }
    Row { bytes: bytes.len(), milliseconds, peak, note }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let wanted = arguments.next().unwrap_or_default();
    let bytes = arguments.next().map_or(BYTES, |bytes| bytes.parse().expect("BYTES is a number"));
    println!(
        "| shape | bytes | ms | ms per 100 kB | 4 times the bytes | peak, bytes per byte | result |"
    );
    println!("|---|---:|---:|---:|---:|---:|---|");
    for shape in shapes::SHAPES.iter().filter(|shape| shape.name.contains(&wanted)) {
        let most = shape.most.min(bytes);
        let (small, large) = (measure(shape.make, most / 4), measure(shape.make, most));
        let growth =
            large.milliseconds / small.milliseconds / (large.bytes as f64 / small.bytes as f64)
                * 4.0;
        let worse = |of: fn(&Row) -> f64| of(&small).max(of(&large));
        println!(
            "| {} | {} | {:.1} | {:.1} | {growth:.1} | {:.0} | {} |",
            shape.name,
            large.bytes,
            large.milliseconds,
            worse(|row| row.milliseconds / row.bytes as f64 * 1e5),
            worse(|row| row.peak as f64 / row.bytes as f64),
            large.note,
        );
    }
}
