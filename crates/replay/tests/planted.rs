//! Planted faults: one input byte, one memory byte, one scheduling decision. Each is located
//! exactly, with both values.

mod kit;

use kit::{Shared, machine, record_with};
use std::io::Cursor;
use wavelock_abi::SessionId;
use wavelock_machine::MemoryAddress;
use wavelock_replay::{
    Divergence, Happened, Level, MemoryPosition, Recorder, StateSpacing, Timeline, Trace,
    compare_traces, verify,
};
use wavelock_system::{Sink, World};
use wavelock_trace::{
    ChunkKind, Digest, Event, EventReader, EventWriter, TraceReader, TraceWriter, read_frames,
    write_frame,
};

type Chunks = Vec<(ChunkKind, Vec<u8>)>;

/// A complete trace with snapshots, as chunks that can be changed.
fn chunks() -> Chunks {
    let (bytes, ..) = record_with(&machine(), Level::Full, None, Some(10));
    let mut reader = TraceReader::new(bytes.as_slice()).unwrap();
    std::iter::from_fn(|| reader.next_chunk().unwrap()).collect()
}

/// A file of these chunks with valid checksums, so that only a replay can detect the change.
fn forge(chunks: &Chunks) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes).unwrap();
    chunks.iter().for_each(|(kind, payload)| writer.append(*kind, payload).unwrap());
    bytes
}

fn first_difference(bytes: &[u8]) -> Divergence {
    let found = [1, 3].map(|workers| {
        verify(Trace::open(bytes).unwrap(), workers)
            .unwrap()
            .divergence
            .expect("the fault is found")
    });
    assert_eq!(found[0], found[1], "whatever the number of workers");
    found[0].clone()
}

#[test]
fn without_a_planted_fault_there_is_no_divergence() {
    let bytes = forge(&chunks());
    assert_eq!(verify(Trace::open(bytes.as_slice()).unwrap(), 2).unwrap().divergence, None);
}

#[test]
fn an_input_byte_is_located() {
    let mut chunks = chunks();
    // The inputs are at the end of the machine's chunk; this is the first byte of the event for
    // frame 12.
    let machine = machine();
    let at = machine.inputs.iter().position(|event| event.frame.0 == 12).unwrap();
    let after: usize = machine.inputs[at..].iter().map(|event| 24 + event.bytes.len()).sum();
    let payload = &mut chunks[0].1;
    let place = payload.len() - after + 24;
    assert_eq!(payload[place..place + 4], machine.inputs[at].bytes[..]);
    payload[place] ^= 0x40;
    let found = first_difference(&forge(&chunks));
    assert_eq!((found.frame, found.lane), (12, None), "{found}");
    assert_eq!(found.recorded.to_string(), "Sample { session: 0, bytes: [12, 0, 0, 0] }");
    assert_eq!(found.replayed.to_string(), "Sample { session: 0, bytes: [76, 0, 0, 0] }");
}

/// The hash of a chunk in a table: the hash of the hashes of its pages.
fn chunk_hash(bytes: &[u8]) -> [u8; 32] {
    let hashes: Vec<[u8; 32]> =
        bytes.chunks(4096).map(|page| *blake3::hash(page).as_bytes()).collect();
    *blake3::hash(hashes.as_flattened()).as_bytes()
}

#[test]
fn a_memory_byte_is_located() {
    let mut chunks = chunks();
    let table = chunks.iter().position(|(kind, _)| *kind == ChunkKind::Snapshot).unwrap();
    // The collector stores its sum at 16: find the page that has bytes there and not at 64, where
    // producers read their input.
    let pages = chunks[..table]
        .iter()
        .rposition(|(kind, payload)| *kind == ChunkKind::Pages && payload.len() % 4096 == 0)
        .unwrap();
    let before = chunk_hash(&chunks[pages].1);
    let count = chunks[pages].1.len() / 4096;
    let page = (0..count).find(|page| chunks[pages].1[page * 4096 + 16..][..8] != [0; 8]).unwrap();
    let kept = chunks[pages].1[page * 4096 + 18];
    chunks[pages].1[page * 4096 + 18] ^= 0x10;
    let after = chunk_hash(&chunks[pages].1);
    let payload = &mut chunks[table].1;
    let named = payload.windows(32).position(|window| window == before).unwrap();
    payload[named..named + 32].copy_from_slice(&after);
    // The digest of the forged state: any but the real one.
    payload[24] ^= 1;
    let found = first_difference(&forge(&chunks));
    assert_eq!(
        (found.frame, found.memory),
        (10, Some(MemoryPosition { session: 0, page: 0, address: Some(18) })),
        "{found}"
    );
    assert_eq!(
        (found.recorded.to_string(), found.replayed.to_string()),
        (format!("byte {:#04x}", kept ^ 0x10), format!("byte {kept:#04x}"))
    );
}

#[test]
fn a_scheduling_decision_is_located() {
    let mut chunks = chunks();
    // The decision: in frame 15, the second step of lane 0 goes to another coroutine.
    let (frame, lane, number) = (15, 0, 1);
    let mut expected = None;
    for (_, payload) in chunks.iter_mut().filter(|(kind, _)| *kind == ChunkKind::Frames) {
        let mut forged = Vec::new();
        for record in read_frames(payload).unwrap() {
            let mut lanes: Vec<Vec<u8>> = record.lanes.iter().map(|lane| lane.to_vec()).collect();
            let mut digest = record.digest;
            if record.frame == frame {
                let mut steps = 0;
                let mut changed = Vec::new();
                for event in EventReader::new(&lanes[lane]).map(Result::unwrap) {
                    let mut event = event;
                    if let Event::Step { session, slot, .. } = &mut event {
                        if steps == number {
                            expected = Some((*session, *slot));
                            *slot += 7;
                        }
                        steps += 1;
                    }
                    EventWriter(&mut changed).event(&event);
                }
                lanes[lane] = changed;
                digest = Digest([9; 32]);
            }
            write_frame(
                record.frame,
                digest,
                record.boundary,
                lanes.iter().map(Vec::as_slice),
                &mut forged,
            );
        }
        *payload = forged;
    }
    let (session, slot) = expected.expect("lane 0 makes two steps in frame 15");
    let bytes = forge(&chunks);
    let found = first_difference(&bytes);
    assert_eq!(
        (found.frame, found.lane, found.step_in_lane),
        (frame, Some(lane as u16), number),
        "{found}"
    );
    assert!(
        found.recorded.to_string().contains(&format!("session: {session}, slot: {}", slot + 7)),
        "{found}"
    );
    assert!(
        found.replayed.to_string().contains(&format!("session: {session}, slot: {slot}")),
        "{found}"
    );
    // The reported step is the right one: it is the next step of the timeline at that position.
    let mut timeline = Timeline::open(Cursor::new(bytes)).unwrap();
    timeline.seek_step(found.step.unwrap()).unwrap();
    assert!(timeline.step_forward().unwrap());
    assert_eq!(timeline.position().frame, frame);
    let last = timeline.happened().last().unwrap();
    let made = |event: Event<'_>| Some(event) == found.replayed.event();
    assert!(
        last.lane == Some(lane as u16) && Happened::events(last).any(|event| made(event.unwrap())),
        "{last:?}"
    );
}

/// Flips a bit of a session's memory before a frame, like a memory error: no event shows it.
struct Flip {
    frame: u64,
    session: SessionId,
    address: u32,
}

impl Sink for Flip {
    fn output(&mut self, _: SessionId, _: &[u8]) {}

    fn log(&mut self, _: SessionId, _: &[u8]) {}

    fn boundary(&mut self, world: &mut World) {
        if world.next_frame_number().0 == self.frame {
            world.visit_memories(|session, memory, contents| {
                if (session, memory) == (self.session, MemoryAddress(0)) {
                    let byte = contents.read(self.address, 1).unwrap()[0];
                    assert!(contents.write(self.address, &[byte ^ 4]));
                }
            });
        }
    }
}

/// A trace of a run with a memory error before frame 13, in a byte that no guest reads.
fn flipped(level: Level, states: StateSpacing, snapshots: Option<u64>) -> Vec<u8> {
    let machine = machine();
    let shared = Shared::default();
    let mut world = World::load(machine.spec.clone(), machine.inputs.clone(), true).unwrap().world;
    let mut flip = Flip { frame: 13, session: SessionId(1), address: 40_000 };
    let mut recorder =
        Recorder::new(shared.clone(), &machine, level, &mut flip).unwrap().with_states(states);
    if let Some(every) = snapshots {
        recorder = recorder.with_snapshots(every);
    }
    world.run(&mut recorder).unwrap();
    assert!(recorder.finish(&world.summary()).error.is_none());
    shared.bytes.lock().unwrap().clone()
}

#[test]
fn a_memory_byte_in_no_event_is_located_by_frame_and_page() {
    for level in Level::ALL {
        let found = first_difference(&flipped(level, StateSpacing::Every(1), None));
        let place = MemoryPosition { session: 1, page: 40_000 / 4096, address: None };
        assert_eq!((found.frame, found.memory, found.lane), (13, Some(place), None), "{found}");
        let hash = blake3::hash(&{
            let mut page = [0; 4096];
            page[40_000 % 4096] = 4;
            page
        });
        let expected: String =
            hash.as_bytes()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found.recorded.to_string(), format!("page with hash {expected}"), "{found}");
        assert_eq!(found.replayed.to_string(), "page not changed", "{found}");
    }
}

#[test]
fn a_later_snapshot_shows_the_byte_and_both_values() {
    for snapshots in [13, 20] {
        let found =
            first_difference(&flipped(Level::Schedule, StateSpacing::Every(1), Some(snapshots)));
        let place = MemoryPosition { session: 1, page: 40_000 / 4096, address: Some(40_000) };
        assert_eq!((found.frame, found.memory), (13, Some(place)), "{found}");
        assert_eq!(
            found.recorded.to_string(),
            format!("byte 0x04 (in the snapshot before frame {snapshots})"),
            "{found}"
        );
        assert_eq!(found.replayed.to_string(), "byte 0x00", "{found}");
    }
}

#[test]
fn without_state_digests_the_next_snapshot_locates_it() {
    let found = first_difference(&flipped(Level::Full, StateSpacing::Never, Some(10)));
    let place = MemoryPosition { session: 1, page: 40_000 / 4096, address: Some(40_000) };
    assert_eq!((found.frame, found.memory), (20, Some(place)), "{found}");
    let bytes = flipped(Level::Full, StateSpacing::Never, None);
    assert_eq!(
        verify(Trace::open(bytes.as_slice()).unwrap(), 1).unwrap().divergence,
        None,
        "no event tells"
    );
}

#[test]
fn two_forks_diverge_where_their_inputs_do() {
    let one = machine();
    let mut other = machine();
    let at = other.inputs.iter().position(|event| event.frame.0 == 12).unwrap();
    other.inputs[at].bytes[0] ^= 0x40;
    let apart = |first: Level, second: Level| {
        let traces = [(&one, first), (&other, second)]
            .map(|(machine, level)| record_with(machine, level, None, Some(5)).0);
        let [first, second] = traces.each_ref().map(|bytes| Trace::open(bytes.as_slice()).unwrap());
        compare_traces(first, second).unwrap().expect("they part")
    };
    for (first, second) in
        [(Level::Full, Level::Full), (Level::Schedule, Level::Full), (Level::Full, Level::Schedule)]
    {
        let found = apart(first, second);
        assert_eq!(
            (found.frame, found.recorded.to_string().as_str()),
            (12, "Sample { session: 0, bytes: [12, 0, 0, 0] }"),
            "{found}"
        );
        assert_eq!(found.replayed.to_string(), "Sample { session: 0, bytes: [76, 0, 0, 0] }");
    }
    let found = apart(Level::Inputs, Level::Full);
    assert!(found.frame == 12 && found.recorded.to_string().starts_with("digest "), "{found}");
    let bytes = record_with(&one, Level::Full, None, None).0;
    assert_eq!(
        compare_traces(
            Trace::open(bytes.as_slice()).unwrap(),
            Trace::open(bytes.as_slice()).unwrap()
        )
        .unwrap(),
        None
    );
}
