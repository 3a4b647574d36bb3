//! The targets of the fuzzers and the smoke run. Each takes bytes and panics if a law is broken.
//!
//! The program generator, mutations and drivers are shared with `crates/machine/tests`, states and
//! traces of whole machines with `crates/replay/tests`, and descriptions of machines with
//! `crates/system/tests`. Elsewhere: choosing inputs (`smoke`, `fuzz`).

#[path = "../../../crates/system/tests/describe/mod.rs"]
mod describe;
#[path = "../../../crates/machine/tests/drive/mod.rs"]
mod drive;
#[path = "../../../crates/replay/tests/forge/mod.rs"]
mod forge;
#[path = "../../../crates/machine/tests/generate/mod.rs"]
mod generate;
#[path = "../../../crates/machine/tests/mutate/mod.rs"]
mod mutate;
#[path = "../../../crates/machine/tests/observe/mod.rs"]
mod observe;
#[cfg(feature = "oracle")]
mod oracle;
#[path = "../../../crates/machine/tests/random/mod.rs"]
mod random;

#[cfg(feature = "oracle")]
pub use oracle::differential;

use drive::{Sliced, Snapshots, Whole};
use generate::from_material;
use random::Random;
use std::sync::{Arc, OnceLock};
use wavelock_machine::{decode, encode};
use wavelock_module::{Limits, Module};

/// Number of programs whose snapshots the snapshot target starts from.
const SNAPSHOT_PROGRAMS: u64 = 16;

/// Loading: a module is refused, or it runs for a while.
pub fn load(bytes: &[u8]) {
    match Module::new(bytes, &Limits::default()) {
        Ok(module) => mutate::exercise(&Arc::new(module)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Snapshot decoding: bytes are refused, or are the unique encoding of a state that runs for a
/// while.
pub fn snapshot(bytes: &[u8]) {
    let modules: Vec<Arc<Module>> =
        snapshots().iter().map(|(module, _)| Arc::clone(module)).collect();
    match decode(bytes, &modules, &observe::LIMITS) {
        Ok((mut session, mut coroutines)) => {
            assert_eq!(
                encode(&session, &coroutines.iter().collect::<Vec<_>>()),
                bytes,
                "another spelling of a state decodes"
            );
            for coroutine in &mut coroutines {
                mutate::run_for_a_while(&mut session, coroutine);
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Whole machines: bytes are refused as a state of one, or run for a while.
pub fn state(bytes: &[u8]) {
    let _ = forge::state(bytes);
}

/// Trace files with snapshots, state digests and certificates: refused, or read and exported up to
/// the first malformed part.
pub fn trace(bytes: &[u8]) {
    let _ = forge::trace(bytes);
    export(bytes);
}

/// Exports a trace as `wavelock export` does, up to the first malformed event.
fn export(bytes: &[u8]) {
    let Ok(mut trace) = wavelock_replay::Trace::open(bytes) else { return };
    let spec = &trace.machine.spec;
    let sessions = spec.sessions.iter().map(|session| session.name.clone()).collect();
    let names = wavelock_view::Names {
        sessions,
        lanes: spec.lanes,
        contexts: Default::default(),
        leases: Default::default(),
    };
    let mut moments = wavelock_view::Moments::new(spec.lanes, spec.frame_cycles.0);
    moments.begin(spec.sessions.len() as u64);
    let mut writer = wavelock_view::Perfetto::new(names);
    while let Ok(wavelock_replay::Frames::Some(payload)) = trace.next_frames() {
        let Ok(frames) = wavelock_trace::read_frames(&payload) else { break };
        for frame in frames {
            let mut see = |moment: wavelock_view::Moment<'_>| {
                if let wavelock_view::Moment::Slice(slice) = &moment {
                    let _ = slice.waited();
                }
                writer.moment(&moment);
            };
            if let Err(error) = moments.frame(frame.frame, frame.boundary, &frame.lanes, &mut see) {
                assert!(!error.to_string().is_empty());
                return;
            }
            let _ = writer.take();
        }
    }
    let _ = writer.finish();
}

/// Descriptions of machines, generated from these bytes: refused with an error, or run for a while,
/// also from their serialized state.
pub fn description(bytes: &[u8]) {
    let _ = describe::describe(bytes);
}

/// Laws: a program generated from these bytes gives the same result in any slices, and through
/// serialization.
pub fn laws(material: &[u8]) {
    let Some(program) = from_material(material) else { return };
    let whole = observe::observe(&program, &mut Whole).unwrap_or_else(|error| panic!("{error}"));
    let sliced = observe::observe(&program, &mut Sliced::new(material.len() as u64, 100))
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(whole == sliced, "slices show something else");
    let restored = observe::observe(&program, &mut Snapshots::new(1 << 16))
        .unwrap_or_else(|error| panic!("{error}"));
    assert!(whole == restored, "canonical bytes show something else");
}

/// Modules and snapshots to start from.
fn snapshots() -> &'static [(Arc<Module>, Vec<u8>)] {
    static SNAPSHOTS: OnceLock<Vec<(Arc<Module>, Vec<u8>)>> = OnceLock::new();
    SNAPSHOTS.get_or_init(|| {
        let programs =
            (0..SNAPSHOT_PROGRAMS).filter_map(|seed| Some((seed, generate::program(seed)?)));
        programs
            .filter_map(|(seed, program)| mutate::stopped(&program, &mut Random::new(seed)))
            .collect()
    })
}

/// A target and the generator of its inputs.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// The check.
    pub run: fn(&[u8]),
    /// The input of a seed.
    pub input: fn(u64) -> Vec<u8>,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "load", run: load, input: corrupted_module },
    Target { name: "snapshot", run: snapshot, input: corrupted_snapshot },
    Target { name: "state", run: state, input: forge::state_input },
    Target { name: "trace", run: trace, input: forge::trace_input },
    Target { name: "description", run: description, input: describe::describe_input },
    Target { name: "laws", run: laws, input: generate::material },
    #[cfg(feature = "oracle")]
    Target { name: "differential", run: differential, input: generate::material },
];

/// A generated module with a few bytes changed; with every eighth seed, unchanged.
pub fn corrupted_module(seed: u64) -> Vec<u8> {
    let bytes = generate::program(seed / 8).map(|program| program.bytes).unwrap_or_default();
    if seed.is_multiple_of(8) { bytes } else { mutate::mutate(&bytes, &mut Random::new(seed)) }
}

/// A snapshot with a few bytes changed; with every eighth seed, unchanged.
pub fn corrupted_snapshot(seed: u64) -> Vec<u8> {
    let snapshots = snapshots();
    let bytes = &snapshots[(seed / 8) as usize % snapshots.len()].1;
    if seed.is_multiple_of(8) {
        bytes.clone()
    } else {
        mutate::mutate(bytes, &mut Random::new(seed))
    }
}
