//! A counting allocator for tests and benchmarks of loading: bytes allocated, their peak, and the
//! number of allocations. Per thread, so that parallel tests do not interfere.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
    static BLOCKS: Cell<u64> = const { Cell::new(0) };
}

fn note(bytes: i64) {
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        MOST.with(|most| most.set(most.get().max(held.get())));
    });
}

fn note_block() {
    let _ = BLOCKS.try_with(|blocks| blocks.set(blocks.get() + 1));
}

// SAFETY: every call goes to the system allocator unchanged; counting touches only thread-local
// cells.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        note_block();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as i64);
        note_block();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as i64));
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size as i64 - layout.size() as i64);
        note_block();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What `work` took on this thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Taken {
    /// The most bytes it held at one time, beyond what was held before.
    pub(crate) peak: u64,
    /// How often it asked for a block, or for a block to change its size.
    pub(crate) blocks: u64,
}

/// Does `work` and counts.
pub(crate) fn count<T>(work: impl FnOnce() -> T) -> (T, Taken) {
    let (held, blocks) = (HELD.get(), BLOCKS.get());
    MOST.set(held);
    let result = work();
    (result, Taken { peak: (MOST.get() - held) as u64, blocks: BLOCKS.get() - blocks })
}
