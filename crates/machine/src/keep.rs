//! A session kept in memory, to return to: a copy that shares with other copies what did not change
//! between them.
//!
//! A memory is kept as an [`Image`]: its pages, each shared by all copies since it was last
//! written. Every memory has the image of its last copy; a page that no store has marked since is
//! equal to its page there. So keeping costs the written pages, and returning the pages written
//! since and those that differ between the two images.
//!
//! Contract: [`Session::keep`] then [`Session::restore`] gives the same canonical bytes. What
//! linking made is kept once for all copies. Coroutines are the caller's: they are plain data.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use wavelock_module::{FunctionType, GlobalType, MemoryType, TableType};

use crate::memory::{DIRTY_PAGE_BYTES, DIRTY_SHIFT, Memory};
use crate::session::{
    Dropped, FunctionEntry, Held, HostFunction, Instance, MemoryAddress, Session, SessionLimits,
    Table,
};

/// Pages of one node of an image: what a copy that changes one page allocates besides it.
const NODE_PAGES: usize = 32;

/// A page's bytes; `None` if they are all zeros.
type Page = Option<Arc<[u8]>>;

/// Some consecutive pages.
#[derive(Clone, Debug)]
struct Node([Page; NODE_PAGES]);

/// The pages of a memory as of its last copy. Pages beyond the last node are zeros.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    nodes: Arc<Vec<Arc<Node>>>,
}

impl Image {
    fn node(&self, node: usize) -> Option<&Arc<Node>> {
        self.nodes.get(node)
    }

    fn page(&self, page: usize) -> Option<&Arc<[u8]>> {
        self.node(page / NODE_PAGES)?.0[page % NODE_PAGES].as_ref()
    }

    fn set(&mut self, page: usize, bytes: &[u8]) {
        let nodes = Arc::make_mut(&mut self.nodes);
        while nodes.len() <= page / NODE_PAGES {
            nodes.push(Arc::new(Node([const { None }; NODE_PAGES])));
        }
        let is_zero = bytes.iter().all(|byte| *byte == 0);
        Arc::make_mut(&mut nodes[page / NODE_PAGES]).0[page % NODE_PAGES] =
            (!is_zero).then(|| Arc::from(bytes));
    }
}

fn is_same<T: ?Sized>(left: Option<&Arc<T>>, right: Option<&Arc<T>>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => Arc::ptr_eq(left, right),
        (left, right) => left.is_none() && right.is_none(),
    }
}

/// A memory as it was when it was kept.
#[derive(Clone, Debug)]
struct KeptMemory {
    kind: MemoryType,
    bytes: usize,
    image: Image,
}

impl Memory {
    fn keep(&mut self) -> KeptMemory {
        let pages = self.bytes.chunks_exact(DIRTY_PAGE_BYTES);
        for (page, (mark, bytes)) in self.dirty.iter_mut().zip(pages).enumerate() {
            if mark.is_unkept() {
                self.image.set(page, bytes);
                *mark = mark.kept();
            }
        }
        KeptMemory { kind: self.kind, bytes: self.bytes.len(), image: self.image.clone() }
    }

    /// The first page that differs from its image and is not marked as written since: one that the
    /// next copy would miss.
    fn unmarked_page(&self) -> Option<usize> {
        let pages = self.dirty.iter().zip(self.bytes.chunks_exact(DIRTY_PAGE_BYTES));
        let differs = |page: usize, bytes: &[u8]| match self.image.page(page) {
            Some(kept) => **kept != *bytes,
            None => bytes.iter().any(|byte| *byte != 0),
        };
        let mut pages = pages.enumerate();
        pages.find_map(|(page, (mark, bytes))| {
            (!mark.is_unkept() && differs(page, bytes)).then_some(page)
        })
    }

    /// Makes this the memory that was kept, from one of the same session or from an empty one.
    fn restore(&mut self, kept: &KeptMemory) {
        if kept.bytes < self.bytes.len() {
            self.hashes.truncate(kept.bytes >> DIRTY_SHIFT);
        }
        self.kind = kept.kind;
        self.bytes.resize(kept.bytes, 0);
        self.dirty.resize(kept.bytes >> DIRTY_SHIFT, 0);
        let nodes = self.bytes.chunks_mut(DIRTY_PAGE_BYTES * NODE_PAGES);
        let nodes = nodes.zip(self.dirty.chunks_mut(NODE_PAGES)).enumerate();
        for (node, (bytes, marks)) in nodes {
            let is_shared = is_same(self.image.node(node), kept.image.node(node));
            let pages = bytes.chunks_exact_mut(DIRTY_PAGE_BYTES).zip(marks).enumerate();
            for (at, (bytes, mark)) in pages {
                let page = node * NODE_PAGES + at;
                let target = kept.image.page(page);
                if !mark.is_unkept() && (is_shared || is_same(self.image.page(page), target)) {
                    continue;
                }
                match target {
                    Some(target) => bytes.copy_from_slice(target),
                    None => bytes.fill(0),
                }
                *mark = mark.restored();
            }
        }
        self.image = kept.image.clone();
    }
}

/// A page's mark: 0 when it is clean, 1 when it was written since the last hash and the last copy
/// (what a store sets), or one of these two.
pub(crate) trait Mark {
    /// Written since the last copy, and hashed since.
    const HASHED: u8 = 2;
    /// Written since the last hash, and kept since.
    const KEPT: u8 = 4;

    fn is_unhashed(&self) -> bool;
    fn is_unkept(&self) -> bool;
    fn hashed(self) -> Self;
    fn kept(self) -> Self;
    /// The mark of a page that now equals its image and that was not hashed.
    fn restored(self) -> Self;
}

impl Mark for u8 {
    #[inline]
    fn is_unhashed(&self) -> bool {
        matches!(*self, 1 | Self::KEPT)
    }

    #[inline]
    fn is_unkept(&self) -> bool {
        matches!(*self, 1 | Self::HASHED)
    }

    fn hashed(self) -> Self {
        if self.is_unkept() { Self::HASHED } else { 0 }
    }

    fn kept(self) -> Self {
        if self.is_unhashed() { Self::KEPT } else { 0 }
    }

    fn restored(self) -> Self {
        Self::KEPT
    }
}

/// What linking made; never changed afterwards.
#[derive(Debug)]
pub(crate) struct Linked {
    limits: SessionLimits,
    types: Vec<FunctionType>,
    type_ids: BTreeMap<FunctionType, u32>,
    functions: Vec<FunctionEntry>,
    hosts: Vec<HostFunction>,
    tables: Vec<TableType>,
    global_types: Vec<GlobalType>,
    instances: Vec<Instance>,
    coroutine_globals: Vec<u32>,
}

/// A session as it was when it was kept; see [`Session::keep`].
#[derive(Clone, Debug)]
pub struct KeptSession {
    linked: Arc<Linked>,
    memories: Vec<KeptMemory>,
    tables: Vec<Arc<[u64]>>,
    globals: Vec<u64>,
    dropped: Vec<Dropped>,
    stack_bytes_held: u64,
}

impl Session {
    /// A copy to return to. It shares with the last one what has not changed since.
    pub fn keep(&mut self) -> KeptSession {
        let linked = match &self.linked {
            Some(linked) => linked.clone(),
            None => {
                let linked = Arc::new(Linked {
                    limits: self.limits,
                    types: self.types.clone(),
                    type_ids: self.type_ids.clone(),
                    functions: self.functions.clone(),
                    hosts: self.hosts.clone(),
                    tables: self.tables.iter().map(|table| table.kind).collect(),
                    global_types: self.global_types.clone(),
                    instances: self.instances.clone(),
                    coroutine_globals: self.coroutine_globals.clone(),
                });
                self.linked = Some(linked.clone());
                linked
            }
        };
        let table = |table: &mut Table| match &table.kept {
            Some(kept) if **kept == *table.elements => kept.clone(),
            _ => {
                let kept: Arc<[u64]> = Arc::from(table.elements.as_slice());
                table.kept = Some(kept.clone());
                kept
            }
        };
        KeptSession {
            linked,
            memories: self.memories.iter_mut().map(Memory::keep).collect(),
            tables: self.tables.iter_mut().map(table).collect(),
            globals: self.globals.clone(),
            dropped: self.dropped.clone(),
            stack_bytes_held: self.stack_bytes_held.get(),
        }
    }

    /// Checks the invariant of copies: the first memory and page that changed without a mark. Reads
    /// all memory; for tests.
    #[must_use]
    pub fn unmarked_page(&self) -> Option<(MemoryAddress, usize)> {
        let memories = (0..).map(MemoryAddress).zip(&self.memories);
        memories.filter_map(|(at, memory)| Some((at, memory.unmarked_page()?))).next()
    }

    /// Makes this the session that was kept. If it is the same session, only what differs is
    /// copied; its coroutines are the caller's to replace.
    pub fn restore(&mut self, kept: &KeptSession) {
        let is_same = self.linked.as_ref().is_some_and(|own| Arc::ptr_eq(own, &kept.linked));
        if !is_same {
            let Linked { limits, tables, .. } = &*kept.linked;
            let table = |&kind: &TableType| Table { elements: Vec::new(), kept: None, kind };
            *self = Self {
                types: kept.linked.types.clone(),
                type_ids: kept.linked.type_ids.clone(),
                functions: kept.linked.functions.clone(),
                hosts: kept.linked.hosts.clone(),
                tables: tables.iter().map(table).collect(),
                global_types: kept.linked.global_types.clone(),
                instances: kept.linked.instances.clone(),
                coroutine_globals: kept.linked.coroutine_globals.clone(),
                linked: Some(kept.linked.clone()),
                memories: kept.memories.iter().map(|memory| Memory::blank(memory.kind)).collect(),
                ..Self::new(*limits)
            };
        }
        for (memory, kept) in self.memories.iter_mut().zip(&kept.memories) {
            memory.restore(kept);
        }
        for (table, kept) in self.tables.iter_mut().zip(&kept.tables) {
            table.elements.clear();
            table.elements.extend_from_slice(kept);
            table.kept = Some(kept.clone());
        }
        self.globals.clone_from(&kept.globals);
        self.dropped.clone_from(&kept.dropped);
        self.stack_bytes_held = Held::new(kept.stack_bytes_held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::PAGE_BYTES;
    use alloc::vec;

    const KIND: MemoryType = MemoryType { minimum: 2, maximum: Some(8) };

    fn session() -> Session {
        let mut session = Session::new(SessionLimits::default());
        session.add_memory(KIND).expect("two pages");
        session
    }

    /// Marks follow what was hashed and what was kept, in any order.
    #[test]
    fn a_mark_serves_hashing_and_keeping() {
        for mark in [0u8, 1, u8::HASHED, u8::KEPT] {
            assert!(!mark.hashed().is_unhashed() && !mark.kept().is_unkept());
            assert_eq!(mark.hashed().is_unkept(), mark.is_unkept());
            assert_eq!(mark.kept().is_unhashed(), mark.is_unhashed());
        }
        assert!(1.is_unhashed() && 1.is_unkept(), "what a store sets");
        assert!(0u8.restored().is_unhashed() && !0u8.restored().is_unkept());
    }

    /// Random writes, growth, hashes, copies and returns: the bytes are always those of a plain
    /// copy, and the hashes those of a memory that never was restored.
    #[test]
    fn a_restored_memory_has_the_bytes_and_hashes_of_a_plain_copy() {
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let mut session = session();
        let mut copies: Vec<(KeptSession, Vec<u8>)> = Vec::new();
        let (mut kept, mut returned) = (0, 0);
        for step in 0..4_000 {
            let memory = session.memory_mut(MemoryAddress(0));
            match below(16) {
                0 if memory.pages() < 8 => memory.grow(1),
                1 | 2 => {
                    kept += 1;
                    let bytes = memory.bytes.clone();
                    copies.push((session.keep(), bytes));
                }
                3 if !copies.is_empty() => {
                    returned += 1;
                    let at = below(copies.len() as u64) as usize;
                    session.restore(&copies[at].0);
                    assert_eq!(session.memory(MemoryAddress(0)).bytes(), copies[at].1, "{step}");
                }
                4 => {
                    let mut fresh = Memory::new(memory.kind());
                    fresh.grow(memory.pages() - 2);
                    assert!(fresh.write(0, memory.bytes()));
                    assert_eq!(memory.page_hashes(), fresh.page_hashes(), "step {step}");
                }
                _ => {
                    let at = below(memory.bytes.len() as u64 - 8) as u32;
                    assert!(memory.write(at, &[below(3) as u8; 8]));
                }
            }
            assert_eq!(session.unmarked_page(), None, "step {step}");
            if copies.len() > 8 {
                copies.remove(below(8) as usize);
            }
        }
        assert!(kept > 300 && returned > 150, "{kept} copies, {returned} returns");
    }

    #[test]
    fn copies_share_the_pages_that_did_not_change() {
        let mut session = session();
        assert!(session.memory_mut(MemoryAddress(0)).write(0, &vec![7; 2 * PAGE_BYTES]));
        let first = session.keep();
        assert!(session.memory_mut(MemoryAddress(0)).write(20 * 4096, &[8]));
        let second = session.keep();
        let pages = [&first, &second].map(|kept| &kept.memories[0].image);
        let differ = (0..32).filter(|&page| !is_same(pages[0].page(page), pages[1].page(page)));
        assert_eq!(differ.collect::<Vec<_>>(), [20]);
        let third = session.keep();
        assert!(Arc::ptr_eq(&third.memories[0].image.nodes, &pages[1].nodes), "all of it");
    }

    /// A store that forgot its mark is found, and would be lost by a copy.
    #[test]
    fn a_forgotten_mark_is_noticed() {
        let mut session = session();
        let _ = session.keep();
        session.memories[0].bytes[5 * 4096] = 1;
        assert_eq!(session.unmarked_page(), Some((MemoryAddress(0), 5)));
        let kept = session.keep();
        session.memories[0].mark(0, 2 * PAGE_BYTES);
        session.restore(&kept);
        assert_eq!(session.memory(MemoryAddress(0)).bytes()[5 * 4096], 0, "the copy missed it");
    }
}
