//! Tampered states and traces are refused with an error or run; nothing panics, and allocations are
//! bounded. A failure prints the seed. `checks` runs the same for longer, and with a fuzzer.

mod forge;

const SEEDS: u64 = 480;

/// Limit of this process's peak memory: the machines are small, so trusting a forged length would
/// exceed it by far.
const MOST_BYTES: u64 = 600 << 20;

/// The process's peak memory, if the operating system reports it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

#[test]
fn forged_states_are_refused_or_run_without_a_panic() {
    let mut accepted = 0;
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let runs = forge::state(&forge::state_input(seed));
        assert!(runs || !seed.is_multiple_of(8), "seed {seed}: an unchanged state is accepted");
        accepted += u64::from(runs);
    }
    assert!(
        accepted > SEEDS / 6 && accepted < SEEDS * 9 / 10,
        "{accepted} of {SEEDS} were accepted"
    );
    assert!(peak().is_none_or(|bytes| bytes < MOST_BYTES), "{:?}", peak());
}

#[test]
fn forged_traces_are_refused_or_read_without_a_panic() {
    let (mut untouched, mut tampered) = (0, 0);
    for seed in 0..SEEDS {
        println!("seed {seed}");
        let accepted = forge::trace(&forge::trace_input(seed));
        if seed.is_multiple_of(8) { untouched += accepted } else { tampered += accepted }
    }
    assert!(untouched > 60 && tampered > 60, "{untouched} and {tampered} snapshots were accepted");
    assert!(peak().is_none_or(|bytes| bytes < MOST_BYTES), "{:?}", peak());
}
