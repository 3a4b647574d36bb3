//! The ready coroutines of a lane under every policy but `Fair`: 256 classes, each a FIFO by
//! arrival.
//!
//! Contract: a class is a list in ascending arrival plus a heap for records that came back with an
//! older arrival; the first of a class is the older of the two heads. Insertion and removal are
//! O(1) for the list, amortised O(log n) for the heap; nothing is deleted lazily and nothing scans.
//!
//! Elsewhere: which class a coroutine belongs to and which class goes first (`policy`).

use crate::bitmap::Bitmap256;
use crate::heap::{self, ByArrival};
use crate::record::{Hot, Links, List, NIL, Place, Slab};
use alloc::boxed::Box;

#[derive(Clone, Copy)]
pub(crate) struct Class {
    pub(crate) list: List,
    pub(crate) heap: u32,
}

impl Class {
    const EMPTY: Self = Self { list: List::EMPTY, heap: NIL };

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.list.head == NIL && self.heap == NIL
    }
}

#[derive(Clone)]
pub(crate) struct Ready {
    classes: Box<[Class; 256]>,
    /// The classes that are not empty.
    occupied: Bitmap256,
    /// Picks of token holders in a row, for `ProgressAware`.
    pub(crate) streak: u32,
}

impl Ready {
    pub(crate) fn new() -> Self {
        Self { classes: Box::new([Class::EMPTY; 256]), occupied: Bitmap256::default(), streak: 0 }
    }

    /// The classes that are not empty.
    pub(crate) const fn occupied(&self) -> Bitmap256 {
        self.occupied
    }

    #[inline(always)]
    pub(crate) fn class(&self, class: u8) -> &Class {
        &self.classes[usize::from(class)]
    }

    /// Queues a record whose arrival is the newest of the lane: at the tail of the class it
    /// carries.
    #[inline(always)]
    pub(crate) fn append(&mut self, hot: &mut Hot, links: &mut [Links], slot: u32) {
        let class = hot.class;
        hot.place = Place::ReadyList;
        let list = &mut self.classes[usize::from(class)].list;
        if list.head == NIL {
            self.occupied.set(class);
        }
        list.push_back(links, slot);
    }

    /// Queues a record in the class and at the arrival it carries.
    pub(crate) fn insert(&mut self, slab: &mut Slab, slot: u32) {
        let (index, arrival) = (slab.hot(slot).class, slab.hot(slot).arrival);
        let class = &mut self.classes[usize::from(index)];
        if class.list.head == NIL || slab.hot(class.list.tail).arrival < arrival {
            let (records, links) = slab.parts();
            return self.append(&mut records[slot as usize], links, slot);
        }
        class.heap = heap::push::<ByArrival>(slab, class.heap, slot);
        slab.hot_mut(slot).place = Place::ReadyHeap;
        self.occupied.set(index);
    }

    /// Removes a queued record. The caller sets its place.
    #[inline]
    pub(crate) fn remove(&mut self, slab: &mut Slab, slot: u32) {
        let (index, place) = (slab.hot(slot).class, slab.hot(slot).place);
        let class = &mut self.classes[usize::from(index)];
        if place == Place::ReadyList {
            class.list.unlink(slab.parts().1, slot);
        } else {
            class.heap = heap::remove::<ByArrival>(slab, class.heap, slot);
        }
        if class.is_empty() {
            self.occupied.clear(index);
        }
    }

    /// Removes `head`, the head of the list of class 0, whose heap is empty.
    #[inline(always)]
    pub(crate) fn pop_head(&mut self, links: &[Links], head: u32) {
        let class = &mut self.classes[0];
        debug_assert!(class.list.head == head && class.heap == NIL);
        class.list.head = links[head as usize].next;
        if class.list.head == NIL {
            self.occupied.clear(0);
        }
    }

    /// Appends a record of class 0 to the list and removes `head`, its head.
    #[inline(always)]
    pub(crate) fn rotate(&mut self, links: &mut [Links], slot: u32, head: u32) {
        let list = &mut self.classes[0].list;
        let tail = core::mem::replace(&mut list.tail, slot);
        links[slot as usize] = Links { prev: tail, next: NIL };
        links[tail as usize].next = slot;
        list.head = links[head as usize].next;
    }

    /// The oldest of a class, [`NIL`] when it is empty.
    #[inline(always)]
    pub(crate) fn first(&self, slab: &Slab, class: u8) -> u32 {
        let Class { list: List { head, .. }, heap } = *self.class(class);
        let is_heap =
            heap != NIL && (head == NIL || slab.hot(heap).arrival < slab.hot(head).arrival);
        if is_heap { heap } else { head }
    }
}
