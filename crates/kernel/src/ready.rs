//! The ready coroutines of a lane under every policy but `Fair`: 256 classes, each a FIFO by arrival.
//!
//! Contract: a class is a list in ascending arrival plus a heap for entries that came back with an older arrival; the first of a class is the
//! older of the two heads. Insertion and removal are O(1) for the list, O(log n) for the heap; nothing is deleted lazily and nothing scans.
//!
//! Elsewhere: which class a coroutine belongs to and which class goes first (`policy`).

use crate::bitmap::Bitmap256;
use crate::heap::{self, ByArrival};
use crate::record::{List, NIL, Place, Slab};
use alloc::boxed::Box;
use alloc::vec;

#[derive(Clone, Copy)]
pub(crate) struct Class {
    pub(crate) list: List,
    pub(crate) heap: u32,
}

impl Class {
    const EMPTY: Self = Self { list: List::EMPTY, heap: NIL };
}

pub(crate) struct Ready {
    classes: Box<[Class; 256]>,
    occupied: Bitmap256,
    count: u32,
}

impl Ready {
    pub(crate) fn new() -> Self {
        let classes: Box<[Class]> = vec![Class::EMPTY; 256].into_boxed_slice();
        Self { classes: classes.try_into().unwrap_or_else(|_| unreachable!("256 were made")), occupied: Bitmap256::default(), count: 0 }
    }

    #[inline]
    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    pub(crate) const fn occupied(&self) -> &Bitmap256 {
        &self.occupied
    }

    pub(crate) fn class(&self, class: u8) -> &Class {
        &self.classes[usize::from(class)]
    }

    /// Queues a record in the class and at the arrival it carries.
    #[inline]
    pub(crate) fn insert(&mut self, slab: &mut Slab, slot: u32) {
        let (index, arrival) = (slab.hot(slot).class, slab.hot(slot).arrival);
        let class = &mut self.classes[usize::from(index)];
        let tail = class.list.tail;
        if tail == NIL || slab.hot(tail).arrival < arrival {
            class.list.push_back(slab, slot);
            slab.hot_mut(slot).place = Place::ReadyList;
        } else {
            class.heap = heap::push::<ByArrival>(slab, class.heap, slot);
            slab.hot_mut(slot).place = Place::ReadyHeap;
        }
        self.occupied.set(index);
        self.count += 1;
    }

    /// Takes a queued record out. Its place is the caller's to set.
    #[inline]
    pub(crate) fn remove(&mut self, slab: &mut Slab, slot: u32) {
        let index = slab.hot(slot).class;
        let class = &mut self.classes[usize::from(index)];
        if slab.hot(slot).place == Place::ReadyList {
            class.list.unlink(slab, slot);
        } else {
            class.heap = heap::remove::<ByArrival>(slab, class.heap, slot);
        }
        if class.list.head == NIL && class.heap == NIL {
            self.occupied.clear(index);
        }
        self.count -= 1;
    }

    /// The oldest of a class, [`NIL`] when it is empty.
    #[inline]
    pub(crate) fn first(&self, slab: &Slab, class: u8) -> u32 {
        let class = &self.classes[usize::from(class)];
        let head = class.list.head;
        if class.heap == NIL {
            return head;
        }
        if head == NIL || slab.hot(class.heap).arrival < slab.hot(head).arrival { class.heap } else { head }
    }
}
