//! Planted faults: one input byte, one memory byte, one scheduling decision. Each is located exactly, with both values.

mod kit;

use kit::{machine, record_with};
use std::io::Cursor;
use wavelock_replay::{Divergence, Happened, Level, Timeline, Trace, verify};
use wavelock_trace::{ChunkKind, Digest, Event, EventReader, EventWriter, TraceReader, TraceWriter, read_frames, write_frame};

type Chunks = Vec<(ChunkKind, Vec<u8>)>;

/// A whole trace with snapshots, as chunks that can be changed.
fn chunks() -> Chunks {
    let (bytes, ..) = record_with(&machine(), Level::Full, None, Some(10));
    let mut reader = TraceReader::new(bytes.as_slice()).unwrap();
    std::iter::from_fn(|| reader.next_chunk().unwrap()).collect()
}

/// A file of these chunks with good checksums, so that nothing but a run can tell.
fn forge(chunks: &Chunks) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = TraceWriter::new(&mut bytes).unwrap();
    chunks.iter().for_each(|(kind, payload)| writer.append(*kind, payload).unwrap());
    bytes
}

fn first_difference(bytes: &[u8]) -> Divergence {
    let found = [1, 3].map(|workers| verify(Trace::open(bytes).unwrap(), workers).unwrap().divergence.expect("the fault is found"));
    assert_eq!(found[0], found[1], "whatever the number of workers");
    found[0].clone()
}

#[test]
fn nothing_is_found_where_nothing_was_planted() {
    let bytes = forge(&chunks());
    assert_eq!(verify(Trace::open(bytes.as_slice()).unwrap(), 2).unwrap().divergence, None);
}

#[test]
fn an_input_byte_is_located() {
    let mut chunks = chunks();
    // The inputs are the last thing in the machine's chunk; this is the first byte of the event for frame 12.
    let machine = machine();
    let at = machine.inputs.iter().position(|event| event.frame.0 == 12).unwrap();
    let after: usize = machine.inputs[at..].iter().map(|event| 24 + event.bytes.len()).sum();
    let payload = &mut chunks[0].1;
    let place = payload.len() - after + 24;
    assert_eq!(payload[place..place + 4], machine.inputs[at].bytes[..]);
    payload[place] ^= 0x40;
    let found = first_difference(&forge(&chunks));
    assert_eq!((found.frame, found.lane), (12, None), "{found}");
    assert_eq!(found.recorded, "Sample { session: 0, bytes: [12, 0, 0, 0] }");
    assert_eq!(found.replayed, "Sample { session: 0, bytes: [76, 0, 0, 0] }");
}

/// The hash by which a table names a chunk: that of the hashes of its pages.
fn chunk_hash(bytes: &[u8]) -> [u8; 32] {
    let hashes: Vec<[u8; 32]> = bytes.chunks(4096).map(|page| *blake3::hash(page).as_bytes()).collect();
    *blake3::hash(hashes.as_flattened()).as_bytes()
}

#[test]
fn a_memory_byte_is_located() {
    let mut chunks = chunks();
    let table = chunks.iter().position(|(kind, _)| *kind == ChunkKind::Snapshot).unwrap();
    // The collector keeps its sum at 16: the page that has bytes there and not at 64, where producers read their input.
    let pages = chunks[..table].iter().rposition(|(kind, payload)| *kind == ChunkKind::Pages && payload.len() % 4096 == 0).unwrap();
    let before = chunk_hash(&chunks[pages].1);
    let count = chunks[pages].1.len() / 4096;
    let page = (0..count).find(|page| chunks[pages].1[page * 4096 + 16..][..8] != [0; 8]).unwrap();
    let kept = chunks[pages].1[page * 4096 + 18];
    chunks[pages].1[page * 4096 + 18] ^= 0x10;
    let after = chunk_hash(&chunks[pages].1);
    let payload = &mut chunks[table].1;
    let named = payload.windows(32).position(|window| window == before).unwrap();
    payload[named..named + 32].copy_from_slice(&after);
    // The digest of the forged state: any but the true one.
    payload[24] ^= 1;
    let found = first_difference(&forge(&chunks));
    assert_eq!((found.frame, found.memory), (10, Some((0, 18))), "{found}");
    assert_eq!((found.recorded, found.replayed), (format!("byte {:#04x}", kept ^ 0x10), format!("byte {kept:#04x}")));
}

#[test]
fn a_scheduling_decision_is_located() {
    let mut chunks = chunks();
    // The decision: in frame 15, the second step of lane 0 is given to another coroutine.
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
            write_frame(record.frame, digest, record.boundary, lanes.iter().map(Vec::as_slice), &mut forged);
        }
        *payload = forged;
    }
    let (session, slot) = expected.expect("lane 0 makes two steps in frame 15");
    let bytes = forge(&chunks);
    let found = first_difference(&bytes);
    assert_eq!((found.frame, found.lane, found.step_in_lane), (frame, Some(lane as u16), number), "{found}");
    assert!(found.recorded.contains(&format!("session: {session}, slot: {}", slot + 7)), "{found}");
    assert!(found.replayed.contains(&format!("session: {session}, slot: {slot}")), "{found}");
    // The step it names is the one: just before it, the timeline makes it next.
    let mut timeline = Timeline::open(Cursor::new(bytes)).unwrap();
    timeline.seek_step(found.step.unwrap()).unwrap();
    assert!(timeline.step_forward().unwrap());
    assert_eq!(timeline.position().frame, frame);
    let last = timeline.happened().last().unwrap();
    let made = |event: Event<'_>| format!("{event:?}") == found.replayed;
    assert!(last.lane == Some(lane as u16) && Happened::events(last).any(|event| made(event.unwrap())), "{last:?}");
}
