//! Events of every kind with boundary values, as in a forged trace with valid checksums: they are
//! printed without a panic.

use std::collections::BTreeMap;
use wavelock_trace::EventReader;
use wavelock_view::{Moment, Moments, Names, Perfetto, describe};

/// Boundary values.
const ENDS: [u64; 9] = [0, 1, 2, 63, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ (value >> 31)) % bound as u64) as usize
    }
}

/// A number as traces write it.
fn number(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// An event of a tag with numbers from [`ENDS`]. `None` if no event has the tag.
fn event(tag: u8, random: &mut Random) -> Option<Vec<u8>> {
    let mut bytes = vec![tag];
    for _ in 0..6 {
        let read: Vec<_> = EventReader::new(&bytes).collect();
        if let [Ok(_)] = read.as_slice() {
            return Some(bytes);
        }
        number(ENDS[random.below(ENDS.len())], &mut bytes);
    }
    None
}

#[test]
fn events_with_any_numbers_are_shown() {
    let random = &mut Random(7);
    let (mut kinds, mut shown) = (BTreeMap::new(), 0);
    let tags: Vec<u8> =
        (0..=u8::MAX).filter(|tag| (0..20).any(|_| event(*tag, random).is_some())).collect();
    for seed in 0..3_000 {
        let random = &mut Random(seed);
        let names = Names {
            sessions: vec!["one".to_owned()],
            lanes: 2,
            contexts: BTreeMap::new(),
            leases: Vec::new(),
        };
        let (mut moments, mut writer) =
            (Moments::new(2, ENDS[random.below(ENDS.len())]), Perfetto::new(names));
        moments.begin(1);
        for frame in [0, 1, u64::MAX] {
            let mut list = |count| -> Vec<u8> {
                (0..count)
                    .filter_map(|_| event(tags[random.below(tags.len())], random))
                    .flatten()
                    .collect()
            };
            let (boundary, lanes) = (list(3), [list(12), list(12)]);
            let mut see = |moment: Moment<'_>| {
                shown += 1;
                match &moment {
                    Moment::Slice(slice) => drop(slice.waited()),
                    Moment::Event { event, .. } | Moment::Boundary { event, .. } => {
                        *kinds.entry(event.name()).or_insert(0) += 1;
                        let _ = describe(event, &|session| session.to_string(), &|slot| {
                            slot.to_string()
                        });
                    }
                }
                writer.moment(&moment);
            };
            println!("seed {seed}, frame {frame}");
            let read = moments.frame(frame, &boundary, &[&lanes[0], &lanes[1]], &mut see);
            assert!(read.is_ok(), "seed {seed}: each event was read alone");
        }
        let _ = writer.finish();
    }
    assert!(shown > 50_000 && kinds.len() >= 35, "{shown} moments of {} kinds", kinds.len());
}
