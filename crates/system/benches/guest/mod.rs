//! What the benches of this crate share: a guest of `benches/guests` as a machine of one session,
//! run once without a process around it, and the CPU time that took. What is counted and printed is
//! each bench's own.
#![allow(dead_code, reason = "each bench uses its part")]

use std::sync::Arc;

use wavelock_abi::Cycles;
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_module::{Limits, Module, Peepholes};
use wavelock_system::{MachineSpec, World};

/// The name and the text of a guest.
pub(crate) type Guest = (&'static str, &'static str);

pub(crate) const IDLE: Guest = ("idle", include_str!("../../../../benches/guests/idle.wat"));
pub(crate) const PINGPONG: Guest =
    ("pingpong", include_str!("../../../../benches/guests/pingpong.wat"));
pub(crate) const RING: Guest = ("ring", include_str!("../../../../benches/guests/ring.wat"));
pub(crate) const SLEEPERS: Guest =
    ("sleepers", include_str!("../../../../benches/guests/sleepers.wat"));
pub(crate) const SPAWN: Guest = ("spawn", include_str!("../../../../benches/guests/spawn.wat"));
pub(crate) const STREAM: Guest = ("stream", include_str!("../../../../benches/guests/stream.wat"));
pub(crate) const YIELD: Guest = ("yield", include_str!("../../../../benches/guests/yield.wat"));

/// The arguments of the bench, without those that cargo adds.
pub(crate) fn arguments() -> Vec<String> {
    std::env::args().skip(1).filter(|argument| argument != "--bench").collect()
}

/// A machine of this guest alone, with these numbers as its arguments.
pub(crate) fn world((name, text): Guest, numbers: &[u64], mut spec: MachineSpec) -> World {
    let bytes = wat::parse_str(text).expect("the guest is valid");
    // Without the rows of the peephole table that `WITHOUT` names, separated by commas.
    let without = std::env::var("WITHOUT").unwrap_or_default();
    let peepholes = without.split(',').fold(Peepholes::ALL, Peepholes::without);
    let module =
        Module::with_peepholes(&bytes, &Limits::default(), peepholes).expect("the guest is valid");
    let module = spec.add_module(Arc::new(module), text.as_bytes());
    let session = spec.add_session(name, module);
    spec.sessions[session.0 as usize].args =
        std::iter::once(name.into()).chain(numbers.iter().map(u64::to_string)).collect();
    // With `CAPPED`, the session has a cap that it never uses up.
    spec.sessions[session.0 as usize].cap = std::env::var_os("CAPPED").map(|_| CapSettings {
        budget: Cycles(1_000_000_000_000),
        period_frames: 1,
        overrun: CapOverrun::Throttle,
    });
    World::load(spec, Vec::new(), false).expect("a machine that can be made").world
}

/// CPU nanoseconds of the run.
pub(crate) fn run(world: &mut World) -> f64 {
    let before = cpu_nanoseconds();
    let outcome = world.run(&mut ());
    let time = cpu_nanoseconds() - before;
    assert!(outcome.is_ok(), "{outcome:?}");
    time
}

/// CPU time of this process, which has one thread.
fn cpu_nanoseconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("a number")
}
