//! Exports of random machines are valid under Perfetto's schema, and planted faults are found. A
//! failure prints the seed.

use wavelock_abi::{Cycles, Frame, LaneId, SessionId};
use wavelock_check_perfetto::{Counts, Schema, check};
use wavelock_kernel::{Activation, OverrunPolicy};
use wavelock_system::{ContextSpec, ContextSummary, InputEvent, MachineSpec, Sink, Span, World};
use wavelock_trace::Digest;
use wavelock_view::{Budget, Moments, Names, Perfetto};

/// A sink that writes a Perfetto trace.
struct Writer {
    moments: Moments,
    writer: Perfetto,
}

impl Sink for Writer {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn frame(
        &mut self,
        frame: Frame,
        _: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        let lanes: Vec<&[u8]> = lanes.collect();
        let Self { moments, writer } = self;
        moments
            .frame(frame.0, boundary, &lanes, &mut |moment| writer.moment(&moment))
            .expect("own events");
    }
}

fn export(seed: u64) -> Vec<u8> {
    export_of(wavelock_generate::machine(seed), wavelock_generate::inputs(seed))
}

fn export_of(spec: MachineSpec, inputs: Vec<InputEvent>) -> Vec<u8> {
    let mut moments = Moments::new(spec.lanes, spec.frame_cycles.0);
    moments.begin(spec.sessions.len() as u64);
    let names = Names {
        sessions: spec.sessions.iter().map(|session| session.name.clone()).collect(),
        lanes: spec.lanes,
        ..Names::default()
    };
    let mut sink = Writer { moments, writer: Perfetto::new(names) };
    let lanes = spec.lanes;
    let mut world = World::load(spec, inputs, true).expect("generated machines load").world;
    while world.step(&mut sink).expect("the host can") {
        let contexts = world.contexts();
        for lane in 0..lanes {
            let here = contexts.iter().filter(|context| context.lane.0 == lane);
            let refills = |context: &ContextSummary| {
                context
                    .view
                    .ring
                    .refills()
                    .iter()
                    .map(|refill| (refill.amount.0, refill.at.0))
                    .collect()
            };
            let here: Vec<Budget> = here
                .map(|context| Budget {
                    slot: context.view.context.slot,
                    refills: refills(context),
                })
                .collect();
            let clock = world.lane_clock(LaneId(lane)).expect("a lane of the machine");
            sink.writer.budgets(lane, clock.0, &here);
        }
    }
    sink.writer.finish()
}

/// A machine with contexts: two sessions that exceed their budgets, one of them demoted.
fn timed() -> MachineSpec {
    let (seed, mut spec) = (0..)
        .map(|seed| (seed, wavelock_generate::machine(seed)))
        .find(|(_, spec)| spec.sessions.len() >= 2)
        .expect("some");
    let context = |session: u32, overrun: OverrunPolicy| ContextSpec {
        overrun,
        ..ContextSpec::new(
            &format!("context {session}"),
            SessionId(session),
            Cycles(20_000),
            Cycles(100_000),
        )
    };
    spec.contexts = vec![context(0, OverrunPolicy::Throttle), context(1, OverrunPolicy::Demote)];
    spec.span = Span::Cycles(Cycles(50_000));
    spec.frame_cycles = Cycles(1_000_000);
    assert!(spec.sessions.len() >= 2, "seed {seed}");
    spec
}

#[test]
fn budgets_are_counters_as_perfettos_own_schema_says() {
    let schema = Schema::load().expect("the schema is a dependency");
    let mut counts = Counts::default();
    let bytes = export_of(timed(), Vec::new());
    check(&schema, &bytes, &mut counts).unwrap_or_else(|error| panic!("{error}"));
    assert!(counts.counters > 2, "{counts:?}");
}

#[test]
fn exports_match_perfettos_own_schema() {
    let schema = Schema::load().expect("the schema is a dependency");
    let mut counts = Counts::default();
    for seed in 0..25 {
        let bytes = export(seed);
        assert_eq!(bytes, export(seed), "seed {seed}: two exports of one run differ");
        check(&schema, &bytes, &mut counts).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    assert!(counts.slices > 1_000 && counts.flows > 100, "{counts:?}: too few to show anything");
    println!("{counts:?}");
}

/// One packet: its bytes in a trace.
fn packet(inside: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x0a, u8::try_from(inside.len()).expect("short")];
    bytes.extend_from_slice(inside);
    bytes
}

#[test]
fn fields_that_the_schema_does_not_have_are_refused() {
    let schema = Schema::load().expect("the schema is a dependency");
    let refusal =
        |bytes: &[u8]| check(&schema, bytes, &mut Counts::default()).expect_err("a planted fault");
    let described = packet(&[0x50, 1, 0xe2, 0x03, 5, 0x08, 7, 0x12, 1, b'x']);
    check(&schema, &described, &mut Counts::default()).expect("a track");
    let after = |inside: &[u8]| [described.clone(), packet(inside)].concat();
    // timestamp 1, sequence 1, track event {type 3, track 7}: an instant.
    check(&schema, &after(&[0x40, 1, 0x50, 1, 0x5a, 4, 0x48, 3, 0x58, 7]), &mut Counts::default())
        .expect("an instant");
    // The same with a field that a packet does not have, at the top and inside.
    assert!(
        refusal(&after(&[0x40, 1, 0x50, 1, 0xf8, 0x7f, 1]))
            .contains("TracePacket has no field 2047")
    );
    assert!(
        refusal(&after(&[0x40, 1, 0x50, 1, 0x5a, 7, 0x48, 3, 0x58, 7, 0xf8, 0x7f, 1]))
            .contains("TrackEvent has no field 2047")
    );
    // The type of an event as four bytes, its number out of the enumeration.
    assert!(
        refusal(&after(&[0x40, 1, 0x50, 1, 0x5a, 7, 0x4d, 3, 0, 0, 0, 0x58, 7]))
            .to_lowercase()
            .contains("wire")
    );
    assert!(
        refusal(&after(&[0x40, 1, 0x50, 1, 0x5a, 4, 0x48, 99, 0x58, 7]))
            .contains("has no value 99")
    );
    // An undescribed track, an end without a start, a missing time.
    assert!(
        refusal(&after(&[0x40, 1, 0x50, 1, 0x5a, 4, 0x48, 3, 0x58, 8]))
            .contains("is not described")
    );
    assert!(
        refusal(&after(&[0x40, 1, 0x50, 1, 0x5a, 4, 0x48, 2, 0x58, 7])).contains("without a start")
    );
    assert!(refusal(&after(&[0x50, 1, 0x5a, 4, 0x48, 3, 0x58, 7])).contains("without a time"));
}

#[test]
fn a_changed_byte_of_an_export_is_usually_detected() {
    let schema = Schema::load().expect("the schema is a dependency");
    let bytes = export(1);
    let mut noticed = 0;
    let places: Vec<usize> = (0..bytes.len()).step_by(bytes.len() / 40 + 1).collect();
    for &at in &places {
        let mut changed = bytes.clone();
        changed[at] ^= 0x41;
        noticed += usize::from(check(&schema, &changed, &mut Counts::default()).is_err());
    }
    assert!(noticed * 4 > places.len(), "{noticed} of {}", places.len());
}
