//! Anchors: states near a timeline's position, kept in memory so that going back is cheap.
//!
//! An anchor holds the outline, the hash of every page, and the bytes of only those pages that are
//! neither zero nor equal to those of the snapshot that the world was restored from (its *base*).
//! Making one therefore copies what changed since that snapshot, not the whole machine. Restoring
//! one copies the pages that differ; a page of the base is read from the file on demand, checked by
//! its hash, and cached.

use crate::archive::Archive;
use crate::snapshot::SnapshotError;
use crate::table::{Hash, MemoryKey, Table, zero_hash};
use crate::trace::OpenError;
use std::collections::BTreeMap;
use std::io::{Read, Seek};
use std::sync::Arc;
use wavelock_machine::PageSlot;
use wavelock_system::{STATE_PAGE_BYTES, World};

/// Maximum number of pages from the file that an anchor caches; further ones are read again each
/// time.
const MOST_FETCHED: usize = 1024;

/// A page, shared by all anchors that contain it.
type Page = Arc<[u8]>;

/// The snapshot that a world was restored from.
pub(crate) struct Base {
    table: Table,
    hashes: BTreeMap<MemoryKey, Vec<Hash>>,
}

impl Base {
    /// `world` is in the state of the snapshot.
    pub(crate) fn new(table: Table, world: &mut World) -> Self {
        let mut hashes = BTreeMap::new();
        world.visit_memories(|session, memory, contents| {
            drop(hashes.insert((session, memory), contents.page_hashes().to_vec()))
        });
        Self { table, hashes }
    }

    fn has(&self, key: MemoryKey, page: usize, hash: &Hash) -> bool {
        self.hashes.get(&key).and_then(|pages| pages.get(page)) == Some(hash)
    }
}

/// One memory of an anchor.
struct Kept {
    hashes: Vec<Hash>,
    pages: BTreeMap<u32, Page>,
}

/// A state in memory.
pub(crate) struct Anchor {
    pub(crate) frame: u64,
    outline: Vec<u8>,
    pub(crate) base: Option<Arc<Base>>,
    memories: BTreeMap<MemoryKey, Kept>,
}

impl Anchor {
    /// The state of a world at a boundary. Copies only pages that neither `base` nor `earlier` has.
    pub(crate) fn of(
        world: &mut World,
        base: Option<&Arc<Base>>,
        earlier: Option<&Self>,
    ) -> Option<Self> {
        let outline = world.outline().ok()?;
        let frame = world.next_frame_number().0;
        let zero = zero_hash();
        let mut memories = BTreeMap::new();
        world.visit_memories(|session, memory, contents| {
            let key = (session, memory);
            let hashes = contents.page_hashes().to_vec();
            let before = earlier.and_then(|anchor| anchor.memories.get(&key));
            let mut pages = BTreeMap::new();
            for (number, bytes) in contents.bytes().chunks_exact(STATE_PAGE_BYTES).enumerate() {
                let hash = &hashes[number];
                if *hash == zero || base.is_some_and(|base| base.has(key, number, hash)) {
                    continue;
                }
                let page = number as u32;
                let known = before
                    .filter(|kept| kept.hashes.get(number) == Some(hash))
                    .and_then(|kept| kept.pages.get(&page));
                pages.insert(page, known.map_or_else(|| Page::from(bytes), Page::clone));
            }
            memories.insert(key, Kept { hashes, pages });
        });
        Some(Self { frame, outline, base: base.cloned(), memories })
    }

    /// The machine in this state. Reuses the memory of `old` where it is already equal.
    pub(crate) fn restore<R: Read + Seek>(
        &mut self,
        archive: &mut Archive<R>,
        old: &mut World,
    ) -> Result<World, OpenError> {
        let machine = &archive.machine;
        let restored = World::restore_outline(
            machine.spec.clone(),
            machine.inputs.clone(),
            true,
            &self.outline,
        );
        let mut world = restored.map_err(SnapshotError::State)?;
        world.take_memories(old);
        let (zero, zeros) = (zero_hash(), [0; STATE_PAGE_BYTES]);
        let mut missing: Vec<(MemoryKey, u32)> = Vec::new();
        let memories = &self.memories;
        // Fills a page from memory; returns the slot if only the file has the page.
        let mut put = |key: MemoryKey, page: u32, slot| -> Option<PageSlot<'_>> {
            let slot: PageSlot<'_> = slot;
            let kept = memories.get(&key)?;
            let hash = *kept.hashes.get(page as usize)?;
            if slot.hash() == Some(&hash) {
                return None;
            }
            if hash == zero {
                slot.fill(&zeros, hash);
                return None;
            }
            if let Some(bytes) = kept.pages.get(&page) {
                slot.fill(bytes, hash);
                return None;
            }
            missing.push((key, page));
            Some(slot)
        };
        match &self.base {
            Some(base) => {
                let wanted = base.table.wanted(world.memories_mut(), put)?;
                archive.fill(&base.table, wanted)?;
            }
            None => {
                for (key, memory) in world.memories_mut() {
                    for (page, slot) in (0..).zip(memory.page_slots()) {
                        // Without a base every page that is not zero is stored, so no slot is
                        // returned.
                        let _ = put(key, page, slot);
                    }
                }
            }
        }
        archive.feed(&mut world)?;
        if missing.len() > MOST_FETCHED {
            return Ok(world);
        }
        // Going back again needs the same pages: cache them.
        let now = world.memories_mut();
        for (key, page) in missing {
            let bytes = now.get(&key).and_then(|memory| {
                memory.bytes().chunks_exact(STATE_PAGE_BYTES).nth(page as usize)
            });
            if let (Some(bytes), Some(kept)) = (bytes, self.memories.get_mut(&key)) {
                kept.pages.insert(page, bytes.into());
            }
        }
        Ok(world)
    }
}
