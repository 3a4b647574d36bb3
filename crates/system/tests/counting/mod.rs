//! A global allocator that counts what each thread allocates and holds.
#![allow(dead_code, reason = "each test file uses its part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    /// Bytes held, less those given back, on this thread.
    pub(crate) static HELD: Cell<i64> = const { Cell::new(0) };
    /// Allocations and reallocations on this thread.
    pub(crate) static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn hold(bytes: usize, sign: i64) {
    let _ = HELD.try_with(|held| held.set(held.get() + sign * bytes as i64));
}

fn count() {
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call goes to the system allocator unchanged; counting touches only thread-local
// cells.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        hold(layout.size(), 1);
        count();
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        hold(layout.size(), -1);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        hold(layout.size(), -1);
        hold(size, 1);
        count();
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
