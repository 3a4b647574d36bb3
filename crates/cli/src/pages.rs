//! The binary's allocator: large blocks come straight from the kernel, and tables that grow are asked for in huge pages.
//!
//! A million coroutines are five tables of 8 to 112 MiB. In pages of 4 KiB their first touch is 65,000 page faults, half of what spawning them costs, and
//! growing a table copies it. Here a block of [`LARGE`] or more is a mapping of its own: it grows in place, or moves without a copy. Everything smaller is the system
//! allocator's.
//!
//! A block that has grown to be large is a table that is filled from its beginning: the kernel may back it with pages of 2 MiB. One that is asked for as large may be
//! touched here and there, as a guest's memory is, or hardly at all, as room that was reserved: it gets small pages, or a byte in each 2 MiB would cost all of
//! them. Which kind a block is shows in its address: one in huge pages begins at a multiple of [`LARGE`], any other [`SMALL`] behind one. So nothing is noted
//! anywhere, and there is nothing to lock. Either way a large block begins with a line of a cache, whatever alignment was asked for: records of 64 bytes are one line each.
//!
//! A host that takes free memory back from its virtual machines (page reporting does, by 2 MiB) makes the first touch of a huge page fifty times as slow, and small pages are the better
//! choice then. So the first page of each piece that a table grows by is touched here, and the time it takes is looked at ([`Pages::warm`]): after a slow one the process asks for no
//! more.
//!
//! A table that grows by a little is about to be filled (the tables of coroutines grow by a 16th, `push_in_steps` of the machine): the pages of the whole step are asked for at once ([`populate`]), which takes
//! a tenth to a third less than a fault for each. One that doubles may stay half empty, and is left to be touched.
//!
//! Contract: that of [`GlobalAlloc`]. Nothing here reaches a digest: a machine does not know where its tables are.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The size of a huge page, and of the least block that is a mapping of its own.
const LARGE: usize = 2 << 20;
/// Where a block in small pages begins, behind a multiple of [`LARGE`]: a whole number of pages on every kernel there is.
const SMALL: usize = 64 << 10;

/// So much processor time for one huge page is too much: clearing it takes 50 to 400 microseconds.
const SLOW: Duration = Duration::from_micros(1_500);

/// The allocator.
pub(crate) struct Pages {
    /// A huge page was slow.
    is_slow: AtomicBool,
}

/// How a large block is backed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Huge,
    Plain,
}

impl Kind {
    fn of(block: *mut u8) -> Self {
        if block.addr().is_multiple_of(LARGE) { Self::Huge } else { Self::Plain }
    }

    fn offset(self) -> usize {
        match self {
            Self::Huge => 0,
            Self::Plain => SMALL,
        }
    }
}

fn is_large(size: usize, align: usize) -> bool {
    size >= LARGE && align <= SMALL
}

/// The bytes of the mapping of a block of so many: whole huge pages, so that what lies behind a table's end belongs to it. `None` if there are no such addresses.
fn mapped(size: usize) -> Option<usize> {
    size.checked_next_multiple_of(LARGE).filter(|bytes| bytes.checked_add(LARGE + SMALL).is_some())
}

/// A new mapping of `bytes`, zeroed, that begins where its kind says; null if the kernel refuses.
fn map(bytes: usize, kind: Kind) -> *mut u8 {
    // Enough for a beginning anywhere in a huge page, and for the offset.
    let all = bytes + LARGE + kind.offset();
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that is in use.
    let start = unsafe { libc::mmap(null_mut(), all, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if start == libc::MAP_FAILED {
        return null_mut();
    }
    let start = start.cast::<u8>();
    let before = start.addr().next_multiple_of(LARGE) - start.addr() + kind.offset();
    // SAFETY: `before` is less than a huge page and an offset, and `bytes` more stay inside the mapping of `all`; the two ends that are given back are parts
    // of it that nobody has. Advice changes no contents; a kernel without huge pages refuses it, and small ones stay.
    unsafe {
        let block = start.add(before);
        if before > 0 {
            unmap(start, before);
        }
        if before + bytes < all {
            unmap(block.add(bytes), all - before - bytes);
        }
        if kind == Kind::Huge {
            libc::madvise(block.cast(), bytes, libc::MADV_HUGEPAGE);
        }
        block
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the time it is given, and nothing where it fails.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

impl Pages {
    pub(crate) const fn new() -> Self {
        Self { is_slow: AtomicBool::new(false) }
    }

    /// Touches the first page of what a block in huge pages has grown by, `from` bytes on. Where that is slow, or was before, the rest of it comes in small pages.
    ///
    /// # Safety
    /// `block` is a mapping of more than `from` bytes, and nothing is kept from there on.
    unsafe fn warm(&self, block: *mut u8, from: usize, bytes: usize) {
        if !self.is_slow.load(Ordering::Relaxed) {
            let before = processor_time();
            // SAFETY: the caller's promise. Volatile, because nobody reads it.
            unsafe { block.add(from).write_volatile(0) };
            if processor_time().saturating_sub(before) < SLOW {
                return;
            }
            self.is_slow.store(true, Ordering::Relaxed);
        }
        // SAFETY: advice for pages of the mapping, which changes no contents.
        unsafe { libc::madvise(block.cast(), bytes, libc::MADV_NOHUGEPAGE) };
    }
}

/// The most that a table may grow by to be populated, as a part of what it was: the least step of the least table (see `push_in_steps`).
const LITTLE: usize = 8;

/// Has the pages of what a table has grown by ready, unless that is much; the last of them is left, if it is not filled. A kernel that cannot do it (before Linux 5.14) refuses, and nothing is lost.
///
/// # Safety
/// `block` is a mapping of at least `to` bytes.
unsafe fn populate(block: *mut u8, from: usize, to: usize) {
    if to - from <= from / LITTLE {
        // Whole pages of every size there is.
        let (from, to) = (from & !(SMALL - 1), to & !(SMALL - 1));
        // SAFETY: pages of the mapping; this changes no contents.
        unsafe { libc::madvise(block.add(from).cast(), to - from, libc::MADV_POPULATE_WRITE) };
    }
}

/// Gives a part of a mapping back.
///
/// # Safety
/// Whole pages that are mapped and that nobody uses any more.
unsafe fn unmap(start: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise. The kernel refuses only when it has no room to note a hole; then the pages stay as they are, which is a leak and no more.
    unsafe { libc::munmap(start.cast(), bytes) };
}

/// Makes a mapping of `from` bytes one of `to`, in place or somewhere else without a copy; null if the kernel refuses, and nothing has changed then.
///
/// # Safety
/// `block` is such a mapping, of this module.
unsafe fn remap(block: *mut u8, from: usize, to: usize) -> *mut u8 {
    // SAFETY: the caller's promise; without a flag the kernel extends or cuts the mapping where it is, or refuses and changes nothing.
    let is_done = unsafe { libc::mremap(block.cast(), from, to, 0) } != libc::MAP_FAILED;
    // A cut is refused only for want of room to note it: then what is cut off stays mapped.
    if is_done || to < from {
        return block;
    }
    let target = map(to, Kind::of(block));
    if target.is_null() {
        return target;
    }
    // SAFETY: `target` is a fresh mapping of `to` bytes which nobody else has seen, and which the block's pages, with room behind them, replace. All of it at
    // once, so that it is one mapping again and can be moved again.
    unsafe {
        let moved = libc::mremap(block.cast(), from, to, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, target.cast::<libc::c_void>());
        if moved == libc::MAP_FAILED {
            unmap(target, to);
            return null_mut();
        }
    }
    target
}

// SAFETY: blocks are the system's, or mappings that are no other block's: large enough, aligned to at least `SMALL`, theirs until they are given back. Which of the two a
// block is follows from its layout alone, and a reallocation that changes it makes a new block and copies.
unsafe impl GlobalAlloc for Pages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size(), layout.align()) {
            return mapped(layout.size()).map_or(null_mut(), |bytes| map(bytes, Kind::Plain));
        }
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout.size(), layout.align()) {
            // Fresh pages are zero.
            // SAFETY: as above.
            return unsafe { self.alloc(layout) };
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match mapped(layout.size()).filter(|_| is_large(layout.size(), layout.align())) {
            // SAFETY: a large block is a mapping of so many bytes, and its owner is done with it.
            Some(bytes) => unsafe { unmap(block, bytes) },
            // SAFETY: it came from the system allocator with this layout.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let (was, is) = (is_large(layout.size(), layout.align()), is_large(size, layout.align()));
        match (was, is) {
            // SAFETY: as in `alloc`.
            (false, false) => unsafe { System.realloc(block, layout, size) },
            (true, true) => match (mapped(layout.size()), mapped(size)) {
                // SAFETY: the block is a mapping of `from` bytes, and what it grows by is new.
                (Some(from), Some(to)) => unsafe {
                    let target = if from == to { block } else { remap(block, from, to) };
                    if layout.size() < size && !target.is_null() && Kind::of(target) == Kind::Huge {
                        if from < to {
                            self.warm(target, from, to);
                        }
                        populate(target, layout.size(), size);
                    }
                    target
                },
                _ => null_mut(),
            },
            // SAFETY: the caller promises a size that makes a layout; both blocks hold the lesser of the sizes, and a new block overlaps no other.
            _ => unsafe {
                let target = match mapped(size) {
                    Some(bytes) if is => map(bytes, Kind::Huge),
                    Some(_) => System.alloc(Layout::from_size_align_unchecked(size, layout.align())),
                    None => null_mut(),
                };
                if !target.is_null() {
                    if let (true, Some(bytes)) = (is, mapped(size)) {
                        self.warm(target, 0, bytes);
                    }
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

    /// A block, and what is written at its first, middle and last byte.
    struct Held {
        block: *mut u8,
        layout: Layout,
        mark: u8,
    }

    impl Held {
        fn places(&self) -> [usize; 3] {
            [0, self.layout.size() / 2, self.layout.size() - 1]
        }

        fn write(&mut self, mark: u8) {
            self.mark = mark;
            // SAFETY: places inside the block.
            self.places().into_iter().for_each(|at| unsafe { *self.block.add(at) = mark });
        }

        fn check(&self) {
            assert!(self.block.addr().is_multiple_of(self.layout.align()));
            // SAFETY: places inside the block, which were written.
            self.places().into_iter().for_each(|at| assert_eq!(unsafe { *self.block.add(at) }, self.mark, "{:?} at {at}", self.layout));
        }
    }

    #[test]
    fn blocks_keep_what_is_in_them_whatever_becomes_of_others() {
        let pages = Pages::new();
        let sizes = [1, 100, 70_000, LARGE - 1, LARGE, LARGE + 1, 2 * LARGE, 3 * LARGE + 5, 9 * LARGE, 10 * LARGE];
        let (mut held, mut random): (Vec<Held>, u64) = (Vec::new(), 1);
        let mut below = |limit: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % limit
        };
        for step in 0..4_000 {
            pages.is_slow.store(step > 2_000, Ordering::Relaxed);
            let (size, align) = (sizes[below(sizes.len())], 1 << below(18));
            match below(4) {
                0 | 1 if held.len() < 40 => {
                    let (layout, zeroed) = (Layout::from_size_align(size, align).expect("a layout"), below(2) == 0);
                    // SAFETY: no layout is of no bytes.
                    let block = unsafe { if zeroed { pages.alloc_zeroed(layout) } else { pages.alloc(layout) } };
                    assert!(!block.is_null());
                    let mut new = Held { block, layout, mark: 0 };
                    if zeroed {
                        new.check();
                    }
                    assert!(!is_large(size, align) || Kind::of(block) == Kind::Plain, "whether it is filled is not known");
                    assert!(!is_large(size, align) || block.addr().is_multiple_of(64), "a large block begins with a line");
                    new.write(step as u8);
                    held.push(new);
                }
                2 if !held.is_empty() => {
                    let at = below(held.len());
                    let one = &mut held[at];
                    let kind = Kind::of(one.block);
                    // SAFETY: the block has this layout, and the new size is not 0.
                    one.block = unsafe { pages.realloc(one.block, one.layout, size) };
                    let was = one.layout;
                    one.layout = Layout::from_size_align(size, was.align()).expect("a layout");
                    // SAFETY: the first byte was written.
                    assert_eq!(unsafe { *one.block }, one.mark, "from {was:?} to {:?}", one.layout);
                    match (is_large(was.size(), was.align()), is_large(size, was.align())) {
                        (true, true) => assert_eq!(Kind::of(one.block), kind, "a block stays of its kind"),
                        (false, true) => assert_eq!(Kind::of(one.block), Kind::Huge, "a table that has grown"),
                        _ => {}
                    }
                    one.write(step as u8);
                }
                3 if !held.is_empty() => {
                    let one = held.swap_remove(below(held.len()));
                    one.check();
                    // SAFETY: the block has this layout and is not used again.
                    unsafe { pages.dealloc(one.block, one.layout) };
                }
                _ => {}
            }
            held.iter().for_each(Held::check);
        }
        for one in held {
            // SAFETY: as above.
            unsafe { pages.dealloc(one.block, one.layout) };
        }
    }

    /// Whether the page at `at` of a mapping is there.
    fn is_there(block: *mut u8, at: usize) -> bool {
        let mut state = 0;
        // SAFETY: it asks about one page of a mapping, and writes one byte.
        assert_eq!(unsafe { libc::mincore(block.add(at).cast(), 1, &raw mut state) }, 0);
        state & 1 != 0
    }

    #[test]
    fn a_table_that_grows_by_a_little_has_its_pages_and_one_that_doubles_has_not() {
        let pages = Pages::new();
        pages.is_slow.store(true, Ordering::Relaxed);
        let layout = |size| Layout::from_size_align(size, 8).expect("a layout");
        // SAFETY: each block has the layout that it was last given.
        unsafe {
            let mut block = pages.alloc(layout(LARGE / 2));
            block = pages.realloc(block, layout(LARGE / 2), LARGE);
            assert_eq!(Kind::of(block), Kind::Huge, "a table that has grown");
            block = pages.realloc(block, layout(LARGE), LARGE + LARGE / 8);
            block = pages.realloc(block, layout(LARGE + LARGE / 8), LARGE + LARGE / 4);
            // A kernel that knows no such advice says so.
            if libc::madvise(block.cast(), SMALL, libc::MADV_POPULATE_WRITE) == 0 {
                assert!((LARGE..LARGE + LARGE / 4).step_by(SMALL).all(|at| is_there(block, at)));
            }
            assert!(!is_there(block, LARGE + LARGE / 4));
            block = pages.realloc(block, layout(LARGE + LARGE / 4), 3 * LARGE);
            assert!(!is_there(block, 2 * LARGE + LARGE / 2));
            pages.dealloc(block, layout(3 * LARGE));
        }
    }

    #[test]
    fn what_the_kernel_refuses_is_null_and_changes_nothing() {
        let pages = Pages::new();
        let layout = Layout::from_size_align(1 << 62, 8).expect("a layout");
        // SAFETY: layouts of some bytes; a refused reallocation leaves the block, which is given back with the layout it had.
        unsafe {
            assert!(pages.alloc(layout).is_null() && pages.alloc_zeroed(layout).is_null());
            let small = Layout::from_size_align(LARGE, 8).expect("a layout");
            let block = pages.alloc(small);
            *block = 7;
            assert!(pages.realloc(block, small, 1 << 62).is_null());
            assert_eq!(*block, 7);
            pages.dealloc(block, small);
        }
    }
}
