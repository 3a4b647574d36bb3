//! The binary's allocator: the system's, with large blocks aligned to cache lines.
//!
//! The kernel's record of a coroutine is 64 bytes. glibc returns a large block 16 bytes behind a
//! page boundary, so each record of a large table covers two cache lines. Here a large block is
//! requested with [`SHIFT`] more bytes and handed out [`SHIFT`] bytes into it: at a line boundary
//! with glibc, and still at a multiple of 16 with any other system allocator.
//!
//! What it gains: `benches/guests/yield-1000000-shuffled.toml` takes 3.34 s without it and 2.79 s
//! with it (CPU time, the least of five interleaved runs on a quiet machine); `sleepers.toml` 0.91
//! and 0.89 s. The type cannot request the alignment itself: the standard library would then copy
//! a table each time it grows, where the system allocator remaps its pages.
//!
//! Contract: that of [`GlobalAlloc`]. No address reaches a digest.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, null_mut};

/// Blocks of this size and more are shifted. From here on glibc maps a block of its own.
const LARGE: usize = 256 << 10;
/// From 16 bytes behind a page boundary to the next line boundary.
const SHIFT: usize = 48;
/// The largest alignment of a shifted block; [`SHIFT`] is a multiple of it.
const ALIGN: usize = 16;

/// The system allocator with large blocks shifted to a line boundary.
pub(crate) struct LineAligned;

/// The system's block that holds a shifted block of `layout`: `None` if `layout` is not shifted.
fn shifted(layout: Layout) -> Option<Layout> {
    let is_shifted = layout.size() >= LARGE && layout.align() <= ALIGN;
    // A size so large that it fails here is one that the system allocator refuses in any case.
    Layout::from_size_align(layout.size().checked_add(SHIFT)?, ALIGN).ok().filter(|_| is_shifted)
}

/// The shifted block within a block of the system; null for null.
///
/// # Safety
/// `block` is null or has more than [`SHIFT`] bytes.
unsafe fn inside(block: *mut u8) -> *mut u8 {
    // SAFETY: the caller's promise.
    if block.is_null() { null_mut() } else { unsafe { block.add(SHIFT) } }
}

// SAFETY: each block is a block of the system allocator or the part of one behind its first
// `SHIFT` bytes, which is long enough and a multiple of `ALIGN`. Which of the two it is follows
// from its layout alone; a reallocation that changes it allocates, copies and frees.
unsafe impl GlobalAlloc for LineAligned {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match shifted(layout) {
            // SAFETY: a layout of more than `SHIFT` bytes.
            Some(outer) => unsafe { inside(System.alloc(outer)) },
            // SAFETY: the caller's promises are the system allocator's.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match shifted(layout) {
            // SAFETY: a layout of more than `SHIFT` bytes.
            Some(outer) => unsafe { inside(System.alloc_zeroed(outer)) },
            // SAFETY: the caller's promises are the system allocator's.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match shifted(layout) {
            // SAFETY: a block of this layout was handed out `SHIFT` bytes into one of `outer`.
            Some(outer) => unsafe { System.dealloc(block.sub(SHIFT), outer) },
            // SAFETY: it came from the system allocator with this layout.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        match (shifted(layout), shifted(new)) {
            // SAFETY: as in `dealloc`; the new size is the one of a valid layout.
            (Some(from), Some(to)) => unsafe {
                inside(System.realloc(block.sub(SHIFT), from, to.size()))
            },
            // SAFETY: the caller's promises are the system allocator's.
            (None, None) => unsafe { System.realloc(block, layout, size) },
            // SAFETY: both blocks hold the smaller of the sizes, and a new block overlaps no other.
            _ => unsafe {
                let target = self.alloc(new);
                if !target.is_null() {
                    ptr::copy_nonoverlapping(block, target, layout.size().min(size));
                    self.dealloc(block, layout);
                }
                target
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a valid layout")
    }

    /// A block keeps its contents and alignment through every change between two sizes.
    #[test]
    fn blocks_keep_their_contents_across_sizes_and_alignments() {
        let sizes = [1, 100, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE, 40 * LARGE];
        for align in [1, 8, 16, 32, 4096] {
            for (from, to) in sizes.iter().flat_map(|from| sizes.map(|to| (*from, to))) {
                let (old, new) = (layout(from, align), layout(to, align));
                let last = from.min(to) - 1;
                // SAFETY: no size is 0; offsets are within both blocks; each block is freed once,
                // with the layout it has last.
                unsafe {
                    let block = LineAligned.alloc_zeroed(old);
                    assert!(block.addr().is_multiple_of(align));
                    assert_eq!((*block, *block.add(from - 1)), (0, 0));
                    (*block, *block.add(last)) = (7, 9);
                    let kept = *block;
                    let block = LineAligned.realloc(block, old, to);
                    assert!(block.addr().is_multiple_of(align));
                    let first = if last == 0 { 9 } else { kept };
                    assert_eq!((*block, *block.add(last)), (first, 9), "{from} to {to}");
                    *block.add(to - 1) = 1;
                    LineAligned.dealloc(block, new);
                }
            }
        }
    }

    #[test]
    fn a_refused_size_is_null_and_changes_nothing() {
        let huge = layout(isize::MAX as usize - 16, 8);
        let small = layout(LARGE, 8);
        // SAFETY: no size is 0; a refused reallocation leaves the block and its layout.
        unsafe {
            // Opaque, or the optimiser removes the allocation together with its failure.
            assert!(black_box(LineAligned.alloc(huge)).is_null());
            assert!(black_box(LineAligned.alloc_zeroed(huge)).is_null());
            let block = LineAligned.alloc(small);
            *block = 7;
            assert!(LineAligned.realloc(block, small, huge.size()).is_null());
            assert_eq!(*block, 7);
            LineAligned.dealloc(block, small);
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn a_large_table_begins_at_a_cache_line_with_glibc() {
        // SAFETY: freed once, with its layout.
        unsafe {
            let block = LineAligned.alloc(layout(64 << 20, 8));
            let grown = LineAligned.realloc(block, layout(64 << 20, 8), 96 << 20);
            assert!(grown.addr().is_multiple_of(64));
            LineAligned.dealloc(grown, layout(96 << 20, 8));
        }
    }
}
