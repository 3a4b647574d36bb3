//! The times that `wavelock-view` assigns to events are those of the scheduler: checked against the
//! kernel's totals on random machines.

use wavelock_abi::{Frame, SessionId};
use wavelock_system::{Sink, World};
use wavelock_trace::Digest;
use wavelock_view::{Moment, Moments, Slice};

#[derive(Default)]
struct Seen {
    moments: Option<Moments>,
    slices: Vec<Slice>,
}

impl Sink for Seen {
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
        let slices = &mut self.slices;
        let mut see = |moment: Moment<'_>| {
            if let Moment::Slice(slice) = moment {
                slices.push(slice);
            }
        };
        self.moments
            .as_mut()
            .expect("set")
            .frame(frame.0, boundary, &lanes, &mut see)
            .expect("own events");
    }
}

#[test]
fn slices_do_not_overlap_and_add_up_to_what_was_charged() {
    let (mut waits, mut several) = (0u64, 0);
    for seed in 0..60 {
        let spec = wavelock_generate::machine(seed);
        let (lanes, sessions, frame_cycles) =
            (spec.lanes, spec.sessions.len() as u64, spec.frame_cycles.0);
        let mut moments = Moments::new(lanes, frame_cycles);
        moments.begin(sessions);
        let mut seen = Seen { moments: Some(moments), slices: Vec::new() };
        let mut world = World::load(spec, wavelock_generate::inputs(seed), true)
            .expect("generated machines load")
            .world;
        world.run(&mut seen).expect("the host can");
        let run = world.summary();
        assert_eq!(seen.slices.len() as u64, run.steps, "seed {seed}");
        assert_eq!(
            seen.slices.iter().map(|slice| slice.used).sum::<u64>(),
            run.cycles.charged,
            "seed {seed}"
        );
        for lane in 0..lanes {
            let mut clock = 0;
            for slice in seen.slices.iter().filter(|slice| slice.lane == lane) {
                assert!(
                    slice.start - slice.overhead >= clock,
                    "seed {seed}, lane {lane}: {slice:?} begins before {clock}"
                );
                assert!(
                    slice.ready_since.is_none_or(|since| since <= slice.start),
                    "seed {seed}: {slice:?} ready after it ran"
                );
                clock = slice.end;
            }
        }
        waits += seen.slices.iter().filter_map(Slice::waited).sum::<u64>();
        several += u64::from(lanes > 1);
    }
    assert!(
        waits > 100_000 && several > 10,
        "the machines do wait, on several lanes: {waits}, {several}"
    );
}
