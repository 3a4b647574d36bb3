//! Quick benchmarks: the compute kernels of `benches/kernels`, suspend and resume at a host call,
//! memory of idle coroutines.
//!
//! `cargo bench -p wavelock-machine --bench quick [-- NAME]`, a kernel's name or `yield`. Times are
//! CPU time of this thread, the least of five. For instruction counts run it under `valgrind
//! --tool=callgrind` with a name and two sizes in turn: the difference is free of loading.
//! Elsewhere: comparison with other engines (`checks/bench`).
//!
//! What metering costs: the same with `RUSTFLAGS="--cfg wavelock_unmetered"`, in another target
//! folder.

use std::sync::Arc;

use wavelock_abi::Cycles;
use wavelock_machine::{Coroutine, Extern, InstanceId, Session, SessionLimits, Stop, run};
use wavelock_module::{FunctionType, Limits, Module, Peepholes};

macro_rules! kernels {
    ($($name:literal, $n:literal, $expected:literal;)*) => {
        &[$(($name, include_str!(concat!("../../../benches/kernels/", $name, ".wat")), $n, $expected),)*]
    };
}

/// Name, text, argument and expected result.
const KERNELS: &[(&str, &str, i32, i32)] = kernels! {
    "fib", 32, 2_178_309;
    "lcg", 20_000_000, 654_669_057;
    "sieve", 5_000_000, 348_513;
    "sort", 500_000, 2_132_631_652;
    "sha256", 20_000, 2_102_541_766;
    "matmul", 160, 4_095_657;
    "copy_bulk", 20_000, -1_600_427_719;
    "copy_loop", 2_000, 2_143_743_570;
    "indirect", 5_000_000, 1_097_837_003;
    "vm", 20_000, 1_834_634;
};

const YIELDER: &str = r#"(module
    (import "host" "yield" (func $yield))
    (func (export "run") (param $n i32)
        (loop $again
            (call $yield)
            (local.set $n (i32.sub (local.get $n) (i32.const 1)))
            (br_if $again (local.get $n)))))"#;

fn main() {
    // `cargo bench` passes `--bench`; what else is given names one kernel, and its size.
    let given: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if let [name, n] = &given[..] {
        return once(name, n.parse().expect("a size"));
    }
    let only = given.first();
    println!("a coroutine is {} bytes and its stack", size_of::<Coroutine>());
    for &(name, text, n, expected) in KERNELS {
        if only.is_none_or(|only| only == name) {
            let times = if only.is_some() { 1 } else { 5 };
            println!("{name:10} {:10.3} ms", kernel(text, n, expected, times) / 1e6);
        }
    }
    if only.is_none_or(|only| only == "yield") {
        let times = if only.is_some() { 1 } else { 10 };
        println!(
            "yield      {:10.2} ns, suspend and resume, 1,000 coroutines",
            suspend_and_resume(times)
        );
    }
    if only.is_none() {
        println!("idle       {:10.1} bytes of RSS a coroutine, 1,000,000 of them", idle_bytes());
    }
}

/// Every row of the peephole table, without those that `WITHOUT` names, separated by commas.
fn peepholes() -> Peepholes {
    let without = std::env::var("WITHOUT").unwrap_or_default();
    without.split(',').fold(Peepholes::ALL, Peepholes::without)
}

/// Runs a kernel of this size once, without a clock.
fn once(name: &str, n: i32) {
    let text =
        KERNELS.iter().find(|kernel| kernel.0 == name).expect("a kernel of benches/kernels").1;
    let (mut session, instance) = instance(text, &[]);
    let mut coroutine = start(&session, instance, n);
    let stop = run(&mut session, &mut coroutine, Cycles::MAX);
    println!("{stop:?} {}", coroutine.results()[0]);
}

fn instance(text: &str, imports: &[&str]) -> (Session, InstanceId) {
    let bytes = wat::parse_str(text).expect("the kernels are well formed");
    let module = Module::with_peepholes(&bytes, &Limits::default(), peepholes())
        .expect("the kernels are valid");
    let module = Arc::new(module);
    let mut session = Session::new(SessionLimits::default());
    let imports: Vec<_> = imports
        .iter()
        .map(|_| {
            Extern::Function(
                session
                    .add_host_function(1, &FunctionType::new(&[], &[]), Cycles(8))
                    .expect("a cheap function"),
            )
        })
        .collect();
    let instance = session.instantiate(module, &imports).expect("its imports are given");
    (session, instance)
}

fn start(session: &Session, instance: InstanceId, argument: i32) -> Coroutine {
    let Some(Extern::Function(function)) = session.export(instance, "run") else {
        panic!("every kernel exports run")
    };
    Coroutine::start(session, function, &[argument as u64]).expect("run takes one number")
}

fn kernel(text: &str, n: i32, expected: i32, times: usize) -> f64 {
    let mut least = f64::MAX;
    for _ in 0..times {
        let (mut session, instance) = instance(text, &[]);
        let mut coroutine = start(&session, instance, n);
        let before = cpu_nanoseconds();
        let stop = run(&mut session, &mut coroutine, Cycles::MAX);
        least = least.min(cpu_nanoseconds() - before);
        assert_eq!((stop, coroutine.results()[0] as i32), (Stop::Finished, expected));
    }
    least
}

fn suspend_and_resume(times: usize) -> f64 {
    let (mut session, instance) = instance(YIELDER, &["yield"]);
    let mut coroutines: Vec<_> = (0..1_000).map(|_| start(&session, instance, i32::MAX)).collect();
    let mut least = f64::MAX;
    for _ in 0..times {
        let before = cpu_nanoseconds();
        for _ in 0..1_000 {
            for coroutine in &mut coroutines {
                if let Stop::Host(_) = run(&mut session, coroutine, Cycles(1_000)) {
                    coroutine.resume(&[]);
                }
            }
        }
        least = least.min((cpu_nanoseconds() - before) / 1e6);
    }
    least
}

fn idle_bytes() -> f64 {
    let (mut session, instance) = instance(YIELDER, &["yield"]);
    let count = 1_000_000;
    let mut coroutines = Vec::with_capacity(count);
    let before = resident_bytes();
    for _ in 0..count {
        let mut coroutine = start(&session, instance, 1);
        assert!(matches!(run(&mut session, &mut coroutine, Cycles(1_000)), Stop::Host(_)));
        coroutines.push(coroutine);
    }
    (resident_bytes() - before) / count as f64
}

/// CPU time of this process, which has one thread.
fn cpu_nanoseconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("a number")
}

fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: f64 = text.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("a number");
    pages * 4096.0
}
