//! A linear memory, with dirty-page tracking for incremental hashing.
//!
//! Dirty pages are 4 KiB with one mark byte each, so that a store costs one shift and one byte
//! store more. A mark serves two readers: what to hash again (`bytes`) and what to copy again
//! (`keep`). A page that was never written is zero and not dirty.

use alloc::vec::Vec;
use wavelock_module::MemoryType;

use crate::bytes::ChunkHashes;
use crate::keep::{Image, Mark};

/// Bytes of a WebAssembly page.
pub const PAGE_BYTES: usize = 65_536;

/// Bytes of a page of dirty tracking.
pub const DIRTY_PAGE_BYTES: usize = 1 << DIRTY_SHIFT;

pub(crate) const DIRTY_SHIFT: usize = 12;

/// A linear memory.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Invariant: a whole number of WebAssembly pages.
    pub(crate) bytes: Vec<u8>,
    /// One [`Mark`] per dirty page; a store sets 1. Invariant: `bytes.len() / DIRTY_PAGE_BYTES`
    /// entries.
    pub(crate) dirty: Vec<u8>,
    /// As declared: imports are matched against its maximum.
    pub(crate) kind: MemoryType,
    /// Hashes of the pages as of the last digest.
    pub(crate) hashes: ChunkHashes,
    /// The pages as of the last copy. Invariant: a page that is not marked since equals its page
    /// there; no page is beyond the memory.
    pub(crate) image: Image,
}

impl Memory {
    pub(crate) fn new(kind: MemoryType) -> Self {
        let bytes = kind.minimum as usize * PAGE_BYTES;
        Self {
            bytes: alloc::vec![0; bytes],
            dirty: alloc::vec![0; bytes >> DIRTY_SHIFT],
            ..Self::blank(kind)
        }
    }

    /// A memory of this type without pages, to be restored.
    pub(crate) fn blank(kind: MemoryType) -> Self {
        Self {
            bytes: Vec::new(),
            dirty: Vec::new(),
            kind,
            hashes: ChunkHashes::default(),
            image: Image::default(),
        }
    }

    /// A memory of no pages, as a placeholder.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(MemoryType { minimum: 0, maximum: Some(0) })
    }

    /// Its size in WebAssembly pages.
    #[must_use]
    pub fn pages(&self) -> u32 {
        (self.bytes.len() / PAGE_BYTES) as u32
    }

    /// The declared type; the minimum is the size at creation.
    #[must_use]
    pub fn kind(&self) -> MemoryType {
        self.kind
    }

    /// All bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// `length` bytes at `address`, or `None` if any is out of bounds.
    #[must_use]
    pub fn read(&self, address: u32, length: u32) -> Option<&[u8]> {
        let start = address as usize;
        self.bytes.get(start..start.checked_add(length as usize)?)
    }

    /// Writes `data` at `address`, or returns `false` and writes nothing if any byte is out of
    /// bounds.
    #[must_use]
    pub fn write(&mut self, address: u32, data: &[u8]) -> bool {
        let start = address as usize;
        let Some(end) = start.checked_add(data.len()) else { return false };
        let Some(target) = self.bytes.get_mut(start..end) else { return false };
        target.copy_from_slice(data);
        self.mark(start, end);
        true
    }

    /// Marks the pages of `start..end` dirty.
    pub(crate) fn mark(&mut self, start: usize, end: usize) {
        if start < end {
            self.dirty[start >> DIRTY_SHIFT..=(end - 1) >> DIRTY_SHIFT].fill(1);
        }
    }

    /// The pages written since the last [`Memory::page_hashes`], ascending.
    pub fn dirty_pages(&self) -> impl Iterator<Item = usize> + '_ {
        self.dirty.iter().enumerate().filter(|(_, mark)| mark.is_unhashed()).map(|(page, _)| page)
    }

    /// The hash of each page of [`DIRTY_PAGE_BYTES`] bytes. Hashes dirty pages only; none is dirty
    /// afterwards.
    pub fn page_hashes(&mut self) -> &[[u8; 32]] {
        let _ = self.hashes.root(&self.bytes, &mut self.dirty);
        self.hashes.leaves()
    }

    /// The hash of a page as of the last [`Memory::page_hashes`]; `None` before the first, when the
    /// page was zero.
    #[must_use]
    pub fn last_page_hash(&self, page: usize) -> Option<&[u8; 32]> {
        self.hashes.leaves().get(page)
    }

    /// Every page of [`DIRTY_PAGE_BYTES`] bytes in order, for restoring. Slots are independent, so
    /// that several threads can fill them.
    pub fn page_slots(&mut self) -> impl Iterator<Item = PageSlot<'_>> {
        let hashes = self.hashes.open_leaves(self.dirty.len());
        let pages = self.bytes.chunks_exact_mut(DIRTY_PAGE_BYTES).zip(&mut self.dirty).zip(hashes);
        pages.map(|((bytes, dirty), hash)| PageSlot { bytes, dirty, hash })
    }

    /// Adds pages; the caller has checked every limit.
    pub(crate) fn grow(&mut self, pages: u32) {
        let bytes = self.bytes.len() + pages as usize * PAGE_BYTES;
        self.bytes.resize(bytes, 0);
        self.dirty.resize(bytes >> DIRTY_SHIFT, 0);
    }
}

/// A page to restore.
#[derive(Debug)]
pub struct PageSlot<'a> {
    bytes: &'a mut [u8],
    dirty: &'a mut u8,
    hash: &'a mut [u8; 32],
}

impl PageSlot<'_> {
    /// The hash of the page, unless it is dirty.
    #[must_use]
    pub fn hash(&self) -> Option<&[u8; 32]> {
        if self.dirty.is_unhashed() { None } else { Some(self.hash) }
    }

    /// Sets the page to `bytes`, whose hash is `hash`; it is not dirty afterwards. Copies nothing
    /// if the page has that hash already.
    ///
    /// # Panics
    /// If `bytes` is not a page long.
    pub fn fill(self, bytes: &[u8], hash: [u8; 32]) {
        debug_assert_eq!(*blake3::hash(bytes).as_bytes(), hash, "the hash is that of the page");
        if self.dirty.is_unhashed() || *self.hash != hash {
            self.bytes.copy_from_slice(bytes);
            *self.hash = hash;
            *self.dirty = u8::HASHED;
        }
    }
}
