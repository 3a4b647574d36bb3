//! Hashes of a memory that follow its writes: a tree over 4 KiB chunks, of which only the dirty
//! ones are read again.
//!
//! Contract: [`ChunkHashes::root`] is a function of the memory's bytes alone, whatever was digested
//! before. The memory marks the chunks it writes; this file consumes the marks.

use crate::keep::Mark;
use alloc::vec;
use alloc::vec::Vec;

/// Bytes of one chunk. A WebAssembly page is a whole number of chunks.
pub(crate) const CHUNK_BYTES: usize = 4096;

/// Children of one node of the tree.
const FAN_OUT: usize = 16;

/// The hash of a chunk or of a node.
type Hash = [u8; 32];

/// The tree, level by level from the chunks to the root. Empty until the first digest.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkHashes {
    levels: Vec<Vec<Hash>>,
}

impl ChunkHashes {
    /// The root over `bytes`, of which only chunks with a mark in `dirty` can have changed since
    /// the last call. Clears the marks.
    ///
    /// `dirty` has one mark per chunk. A memory that grew has marks for its new chunks only if they
    /// were written.
    pub(crate) fn root(&mut self, bytes: &[u8], dirty: &mut [u8]) -> Hash {
        let chunks = bytes.len() / CHUNK_BYTES;
        let mut changed = self.resize(chunks);
        for (index, mark) in dirty.iter_mut().enumerate() {
            if mark.is_unhashed() {
                *mark = mark.hashed();
                let chunk = &bytes[index * CHUNK_BYTES..(index + 1) * CHUNK_BYTES];
                self.levels[0][index] = *blake3::hash(chunk).as_bytes();
                push_once(&mut changed, index / FAN_OUT);
            }
        }
        for level in 1..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(level);
            let mut next = Vec::new();
            for &node in &changed {
                above[0][node] = combine(&below[level - 1], node);
                push_once(&mut next, node / FAN_OUT);
            }
            changed = next;
        }
        self.levels.last().and_then(|level| level.first()).copied().unwrap_or([0; 32])
    }

    /// The hash of each chunk as of the last [`ChunkHashes::root`].
    pub(crate) fn leaves(&self) -> &[Hash] {
        self.levels.first().map_or(&[], Vec::as_slice)
    }

    /// The hashes of this many chunks, for the caller to set with the chunks. Drops the nodes above
    /// them.
    pub(crate) fn open_leaves(&mut self, chunks: usize) -> &mut [Hash] {
        let _ = self.resize(chunks);
        self.levels.truncate(1);
        self.levels.first_mut().map_or(&mut [], Vec::as_mut_slice)
    }

    /// Forgets the chunks from this one on, and the nodes above all.
    pub(crate) fn truncate(&mut self, chunks: usize) {
        self.levels.truncate(1);
        self.levels.iter_mut().for_each(|leaves| leaves.truncate(chunks));
    }

    /// Resizes the tree to a number of chunks; new chunks are zeros. Returns the nodes above the
    /// chunks that must be combined again.
    fn resize(&mut self, chunks: usize) -> Vec<usize> {
        let before = self.levels.first().map_or(0, Vec::len);
        let whole = chunks <= 1 || self.levels.len() > 1;
        if before == chunks && whole {
            return Vec::new();
        }
        let zero = *blake3::hash(&[0; CHUNK_BYTES]).as_bytes();
        let mut leaves = core::mem::take(&mut self.levels).into_iter().next().unwrap_or_default();
        leaves.resize(chunks, zero);
        self.levels = vec![leaves];
        let mut width = chunks;
        while width > 1 {
            width = width.div_ceil(FAN_OUT);
            self.levels.push(vec![[0; 32]; width]);
        }
        (0..chunks.div_ceil(FAN_OUT)).collect()
    }
}

/// The hash of node `node`: over its children's, which are `FAN_OUT` or, at the right edge, fewer.
fn combine(children: &[Hash], node: usize) -> Hash {
    let first = node * FAN_OUT;
    let last = children.len().min(first + FAN_OUT);
    let mut hasher = blake3::Hasher::new();
    for child in &children[first..last] {
        hasher.update(child);
    }
    *hasher.finalize().as_bytes()
}

/// Appends an ascending index unless it is the last one already.
fn push_once(list: &mut Vec<usize>, index: usize) {
    if list.last() != Some(&index) {
        list.push(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_follows_writes_and_depends_on_bytes_alone() {
        let mut bytes = vec![0; 40 * CHUNK_BYTES];
        let mut dirty = vec![0; 40];
        let mut hashes = ChunkHashes::default();
        let zeros = hashes.root(&bytes, &mut dirty);
        bytes[17 * CHUNK_BYTES + 3] = 9;
        assert_eq!(hashes.root(&bytes, &mut dirty), zeros, "an unmarked chunk is not read");
        dirty[17] = 1;
        let written = hashes.root(&bytes, &mut dirty);
        assert_ne!(written, zeros);
        assert!(dirty.iter().all(|mark| !mark.is_unhashed()));
        let mut all = vec![1; 40];
        assert_eq!(ChunkHashes::default().root(&bytes, &mut all), written);
        bytes.resize(300 * CHUNK_BYTES, 0);
        dirty.resize(300, 0);
        let grown = hashes.root(&bytes, &mut dirty);
        let mut all = vec![1; 300];
        assert_eq!(ChunkHashes::default().root(&bytes, &mut all), grown);
        bytes[299 * CHUNK_BYTES] = 1;
        dirty[299] = 1;
        let end = hashes.root(&bytes, &mut dirty);
        let mut all = vec![1; 300];
        assert_eq!(ChunkHashes::default().root(&bytes, &mut all), end);
    }

    #[test]
    fn a_root_follows_hashes_that_were_set() {
        for chunks in [1, 2, 40, 300] {
            let bytes = vec![0; chunks * CHUNK_BYTES];
            let mut dirty = vec![0; chunks];
            let mut hashes = ChunkHashes::default();
            let zeros = hashes.root(&bytes, &mut dirty);
            let mut changed = bytes.clone();
            changed[(chunks - 1) * CHUNK_BYTES] = 5;
            let mut all = vec![1; chunks];
            let expected = ChunkHashes::default().root(&changed, &mut all);
            hashes.open_leaves(chunks)[chunks - 1] =
                *blake3::hash(&changed[(chunks - 1) * CHUNK_BYTES..]).as_bytes();
            assert_eq!(hashes.root(&changed, &mut dirty), expected);
            assert_ne!(expected, zeros);
        }
    }
}
