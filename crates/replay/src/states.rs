//! State digests: hashes of a machine's state between two frames.
//!
//! A record holds, for one boundary, the hash of the outline (everything but memories) and the hash
//! of every page that changed since the previous record. Making one reads only what was written
//! since then. Runs with equal records are in equal states; otherwise the first different page is
//! known. Records have their own chunks (kind `States`), outside every digest of the run.
//!
//! A chunk is the format ([`STATES_FORMAT`]), then records: frame, steps, hash of the outline,
//! number of changed pages, for the first [`MOST_LISTED`] of them session, memory, page (32 bits
//! each) and half of the hash, and if there are more, the hash of their entries. Numbers are
//! little-endian and have 64 bits unless stated otherwise. The bytes are untrusted.

use crate::machine::{MachineError, Reader, put_number};
use crate::table::zero_hash;
use std::fmt;
use wavelock_system::{STATE_PAGE_BYTES, StateError, World};

/// Version of the chunk.
const STATES_FORMAT: u64 = 2;

/// Maximum number of pages listed in a record; further ones are hashed together.
const MOST_LISTED: usize = 1 << 16;

/// Bytes of a page's entry.
const ENTRY: usize = 28;

/// Cycles a machine runs per page (or KiB of outline) that its state digests hash: limits them to
/// about a twentieth of the run.
const CYCLES_PER_PAGE: u64 = 40_000;
const STEPS_PER_PAGE: u64 = 100;

/// How often the machine's state is digested during a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateSpacing {
    /// Never.
    Never,
    /// When it is cheap, estimated from what the previous digest had to read; and with every
    /// snapshot.
    Affordable,
    /// Every given number of frames, and with every snapshot.
    Every(u64),
}

/// A page that changed, with half of its hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ChangedPage {
    pub(crate) session: u32,
    pub(crate) memory: u32,
    pub(crate) page: u32,
    pub(crate) hash: [u8; 16],
}

impl ChangedPage {
    fn encode(&self) -> [u8; ENTRY] {
        let mut out = [0; ENTRY];
        out[..4].copy_from_slice(&self.session.to_le_bytes());
        out[4..8].copy_from_slice(&self.memory.to_le_bytes());
        out[8..12].copy_from_slice(&self.page.to_le_bytes());
        out[12..].copy_from_slice(&self.hash);
        out
    }

    fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        Self {
            session: word(0),
            memory: word(4),
            page: word(8),
            hash: std::array::from_fn(|byte| bytes[12 + byte]),
        }
    }

    const fn place(&self) -> (u32, u32, u32) {
        (self.session, self.memory, self.page)
    }
}

/// The digest of one state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct StateRecord {
    pub(crate) frame: u64,
    pub(crate) steps: u64,
    outline: [u8; 32],
    /// The number of changed pages.
    changed: u64,
    pages: Vec<ChangedPage>,
    /// The hash of the entries not in `pages`; zero if there are none.
    rest: [u8; 32],
}

/// Where two states differ, according to their hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StatesDiffer {
    /// A page has different hashes, or changed in one run only.
    Page {
        session: u32,
        memory: u32,
        page: u32,
        recorded: Option<[u8; 16]>,
        replayed: Option<[u8; 16]>,
    },
    /// The state outside memories: both hashes.
    Outline { recorded: [u8; 32], replayed: [u8; 32] },
    /// The numbers of steps.
    Steps { recorded: u64, replayed: u64 },
    /// A page beyond the listed ones.
    Rest,
}

impl StateRecord {
    /// The state of a world at a boundary, and its cost: the number of pages and KiB hashed.
    ///
    /// # Errors
    /// The world is not at a boundary.
    pub(crate) fn of(world: &mut World) -> Result<(Self, u64), StateError> {
        let outline = world.outline()?;
        let zero = zero_hash();
        let (mut pages, mut hashed, mut changed) = (Vec::new(), outline.len() as u64 / 1024, 0);
        let mut rest: Option<blake3::Hasher> = None;
        world.visit_memories(|session, memory, contents| {
            let before: Vec<(usize, [u8; 32])> = contents
                .dirty_pages()
                .map(|page| (page, contents.last_page_hash(page).copied().unwrap_or(zero)))
                .collect();
            let now = contents.page_hashes();
            hashed += before.len() as u64;
            for (page, old) in before {
                let Some(new) = now.get(page).filter(|new| **new != old) else { continue };
                let hash = std::array::from_fn(|at| new[at]);
                let entry =
                    ChangedPage { session: session.0, memory: memory.0, page: page as u32, hash };
                changed += 1;
                if pages.len() < MOST_LISTED {
                    pages.push(entry);
                } else {
                    rest.get_or_insert_default().update(&entry.encode());
                }
            }
        });
        let rest = rest.map_or([0; 32], |hasher| *hasher.finalize().as_bytes());
        let outline = *blake3::hash(&outline).as_bytes();
        let record = Self {
            frame: world.next_frame_number().0,
            steps: world.steps(),
            outline,
            changed,
            pages,
            rest,
        };
        Ok((record, hashed + 1))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_number(out, self.frame);
        put_number(out, self.steps);
        out.extend_from_slice(&self.outline);
        put_number(out, self.changed);
        self.pages.iter().for_each(|page| out.extend_from_slice(&page.encode()));
        if self.changed > MOST_LISTED as u64 {
            out.extend_from_slice(&self.rest);
        }
    }

    /// The first difference from the replay's record of the same boundary: pages in order, then the
    /// rest.
    pub(crate) fn difference(&self, replayed: &Self) -> Option<StatesDiffer> {
        if self.steps != replayed.steps {
            return Some(StatesDiffer::Steps { recorded: self.steps, replayed: replayed.steps });
        }
        let (mut one, mut two) = (self.pages.iter().peekable(), replayed.pages.iter().peekable());
        loop {
            let (left, right) = (one.peek().copied(), two.peek().copied());
            let first = match (left, right) {
                (None, None) => break,
                (Some(left), Some(right)) => left.place().min(right.place()),
                (Some(only), None) | (None, Some(only)) => only.place(),
            };
            let at = |page: Option<&ChangedPage>| {
                page.filter(|page| page.place() == first).map(|page| page.hash)
            };
            let (recorded, replayed) = (at(left), at(right));
            if recorded != replayed {
                let (session, memory, page) = first;
                return Some(StatesDiffer::Page { session, memory, page, recorded, replayed });
            }
            one.next();
            two.next();
        }
        if self.outline != replayed.outline {
            return Some(StatesDiffer::Outline {
                recorded: self.outline,
                replayed: replayed.outline,
            });
        }
        (self != replayed).then_some(StatesDiffer::Rest)
    }
}

/// Why a chunk of state digests cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatesError {
    /// It is of another format.
    Format {
        /// The format found.
        found: u64,
    },
    /// It is malformed.
    Malformed {
        /// The offset in the chunk.
        offset: usize,
    },
}

impl fmt::Display for StatesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format { found } => write!(
                f,
                "state digests of format {found}: this build reads format {STATES_FORMAT}"
            ),
            Self::Malformed { offset } => {
                write!(f, "byte {offset} of a chunk of state digests is malformed")
            }
        }
    }
}

impl std::error::Error for StatesError {}

impl From<MachineError> for StatesError {
    fn from(error: MachineError) -> Self {
        match error {
            MachineError::Malformed { offset } => Self::Malformed { offset },
            _ => Self::Malformed { offset: 0 },
        }
    }
}

/// Reads a chunk.
pub(crate) fn read_states(bytes: &[u8]) -> Result<Vec<StateRecord>, StatesError> {
    let mut input = Reader { bytes, offset: 0 };
    let found = input.number()?;
    if found != STATES_FORMAT {
        return Err(StatesError::Format { found });
    }
    let mut records = Vec::new();
    while input.offset < bytes.len() {
        let (frame, steps) = (input.number()?, input.number()?);
        let outline = hash(&mut input)?;
        let changed = input.number()?;
        let listed = changed.min(MOST_LISTED as u64) as usize;
        let malformed = StatesError::Malformed { offset: input.offset };
        let entries = bytes
            .get(input.offset..input.offset.saturating_add(listed * ENTRY))
            .ok_or(malformed)?;
        input.offset += entries.len();
        let pages: Vec<ChangedPage> =
            entries.chunks_exact(ENTRY).map(ChangedPage::decode).collect();
        if !pages.is_sorted_by(|one, two| one.place() < two.place()) {
            return Err(malformed);
        }
        let rest = if changed > MOST_LISTED as u64 { hash(&mut input)? } else { [0; 32] };
        records.push(StateRecord { frame, steps, outline, changed, pages, rest });
    }
    Ok(records)
}

fn hash(input: &mut Reader<'_>) -> Result<[u8; 32], StatesError> {
    let words = [input.number()?, input.number()?, input.number()?, input.number()?];
    let mut hash = [0; 32];
    hash.chunks_mut(8)
        .zip(words)
        .for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    Ok(hash)
}

/// Makes the records of a run when they are due.
pub(crate) struct StateWriter {
    spacing: StateSpacing,
    /// The position of the last record, and its cost.
    frame: u64,
    steps: u64,
    took: u64,
    /// Records for the next chunk.
    pending: Vec<u8>,
}

impl StateWriter {
    pub(crate) const fn new(spacing: StateSpacing) -> Self {
        Self { spacing, frame: 0, steps: 0, took: 1, pending: Vec::new() }
    }

    /// Makes a record of a world at a boundary, if one is due; with a snapshot it always is.
    pub(crate) fn boundary(&mut self, world: &mut World, snapshot: bool) {
        let (frame, steps) = (world.next_frame_number().0, world.steps());
        let passed = frame.saturating_sub(self.frame);
        let due = match self.spacing {
            StateSpacing::Never => return,
            StateSpacing::Every(frames) => passed >= frames,
            StateSpacing::Affordable => {
                passed.saturating_mul(world.spec().frame_cycles.0)
                    >= self.took.saturating_mul(CYCLES_PER_PAGE)
                    && steps.saturating_sub(self.steps) >= self.took.saturating_mul(STEPS_PER_PAGE)
            }
        };
        if !(due || snapshot) {
            return;
        }
        // Every boundary has a state; if one had none, the record would be skipped and the run
        // would continue.
        let Ok((record, took)) = StateRecord::of(world) else { return };
        (self.frame, self.steps, self.took) = (frame, steps, took);
        if self.pending.is_empty() {
            put_number(&mut self.pending, STATES_FORMAT);
        }
        record.encode(&mut self.pending);
    }

    /// The length of the next chunk so far.
    pub(crate) const fn waiting(&self) -> usize {
        self.pending.len()
    }

    /// The next chunk, if it is not empty.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        (!self.pending.is_empty()).then(|| std::mem::take(&mut self.pending))
    }
}

/// Half of a page's hash, in words.
pub(crate) fn page_in_words(hash: Option<[u8; 16]>) -> String {
    match hash {
        Some(hash) => hash
            .iter()
            .fold(String::from("page with hash "), |text, byte| text + &format!("{byte:02x}")),
        None => "page not changed".into(),
    }
}

/// The address of a page's first byte.
pub(crate) fn page_address(page: u32) -> u64 {
    u64::from(page) * STATE_PAGE_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pages: &[(u32, u8)]) -> StateRecord {
        let pages: Vec<ChangedPage> = pages
            .iter()
            .map(|&(page, hash)| ChangedPage { session: 1, memory: 0, page, hash: [hash; 16] })
            .collect();
        StateRecord {
            frame: 4,
            steps: 9,
            outline: [7; 32],
            changed: pages.len() as u64,
            pages,
            rest: [0; 32],
        }
    }

    #[test]
    fn records_round_trip_and_malformed_ones_are_refused() {
        let records = vec![record(&[]), record(&[(3, 1), (9, 2)])];
        let mut bytes = Vec::new();
        put_number(&mut bytes, STATES_FORMAT);
        records.iter().for_each(|record| record.encode(&mut bytes));
        assert_eq!(read_states(&bytes), Ok(records));
        for end in 0..bytes.len() {
            // Truncated between two records, it is a shorter list.
            assert!(read_states(&bytes[..end]).is_err() || [8, 64].contains(&end), "{end}");
        }
        bytes[0] = 9;
        assert_eq!(read_states(&bytes), Err(StatesError::Format { found: 9 }));
    }

    #[test]
    fn the_first_page_that_differs_is_named() {
        let page = |page, recorded: Option<u8>, replayed: Option<u8>| {
            let (recorded, replayed) =
                (recorded.map(|byte| [byte; 16]), replayed.map(|byte| [byte; 16]));
            Some(StatesDiffer::Page { session: 1, memory: 0, page, recorded, replayed })
        };
        let one = record(&[(3, 1), (9, 2)]);
        assert_eq!(one.difference(&one.clone()), None);
        assert_eq!(one.difference(&record(&[(3, 1), (9, 5)])), page(9, Some(2), Some(5)));
        assert_eq!(one.difference(&record(&[(9, 2)])), page(3, Some(1), None));
        assert_eq!(one.difference(&record(&[(2, 8), (3, 1), (9, 2)])), page(2, None, Some(8)));
        assert_eq!(
            one.difference(&StateRecord { steps: 8, ..one.clone() }),
            Some(StatesDiffer::Steps { recorded: 9, replayed: 8 })
        );
        let outline = StateRecord { outline: [8; 32], ..one.clone() };
        assert_eq!(
            one.difference(&outline),
            Some(StatesDiffer::Outline { recorded: [7; 32], replayed: [8; 32] })
        );
        assert_eq!(
            one.difference(&StateRecord { rest: [1; 32], ..one.clone() }),
            Some(StatesDiffer::Rest)
        );
    }
}
