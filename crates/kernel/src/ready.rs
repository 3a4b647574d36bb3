//! The ready coroutines of a lane under every policy but `Fair`: 256 classes, each a FIFO by arrival.
//!
//! Contract: a class is a list in ascending arrival plus a heap for entries that came back with an older arrival; the first of a class is the
//! older of the two heads. Insertion and removal are O(1) for the list, O(log n) for the heap; nothing is deleted lazily and nothing scans.
//!
//! Elsewhere: which class a coroutine belongs to and which class goes first (`policy`).

use crate::bitmap::Bitmap256;
use crate::heap::{self, ByArrival};
use crate::record::{Hot, Links, List, NIL, Place, Slab};
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
}

impl Ready {
    pub(crate) fn new() -> Self {
        let classes: Box<[Class]> = vec![Class::EMPTY; 256].into_boxed_slice();
        Self { classes: classes.try_into().unwrap_or_else(|_| unreachable!("256 were made")), occupied: Bitmap256::default() }
    }

    pub(crate) const fn occupied(&self) -> &Bitmap256 {
        &self.occupied
    }

    pub(crate) fn class(&self, class: u8) -> &Class {
        &self.classes[usize::from(class)]
    }

    /// Queues a record whose arrival is the newest of the lane: to the tail of the class it carries. Gives the tail before it, for
    /// [`Self::join`], which sets the links: so the caller needs the record itself only once.
    #[inline(always)]
    pub(crate) fn append(&mut self, hot: &mut Hot, slot: u32) -> u32 {
        let list = &mut self.classes[usize::from(hot.class)].list;
        let tail = list.tail;
        hot.place = Place::ReadyList;
        list.tail = slot;
        if tail == NIL {
            list.head = slot;
            self.occupied.set(hot.class);
        }
        tail
    }

    /// [`Self::append`] to class 0, whatever the record carries.
    #[inline(always)]
    pub(crate) fn append_in_order(&mut self, hot: &mut Hot, slot: u32) -> u32 {
        let list = &mut self.classes[0].list;
        let tail = list.tail;
        hot.class = 0;
        hot.place = Place::ReadyList;
        list.tail = slot;
        if tail == NIL {
            list.head = slot;
            self.occupied.set(0);
        }
        tail
    }

    /// [`Self::append_in_order`] and [`Self::join`] in one, for who has the links at hand.
    #[inline(always)]
    pub(crate) fn append_linked(&mut self, hot: &mut Hot, links: &mut [Links], slot: u32) {
        let list = &mut self.classes[0].list;
        hot.class = 0;
        hot.place = Place::ReadyList;
        let tail = core::mem::replace(&mut list.tail, slot);
        // Nobody has the links of `NIL`.
        match links.get_mut(tail as usize) {
            Some(before) => before.next = slot,
            None => {
                list.head = slot;
                self.occupied.set(0);
            }
        }
        links[slot as usize] = Links { prev: tail, next: NIL };
    }

    /// Queues records as [`Self::append_in_order`] does, of which these are the first and the last; gives the tail before them.
    #[inline(always)]
    pub(crate) fn append_some(&mut self, first: u32, last: u32) -> u32 {
        let list = &mut self.classes[0].list;
        let tail = core::mem::replace(&mut list.tail, last);
        if tail == NIL {
            list.head = first;
            self.occupied.set(0);
        }
        tail
    }

    /// Links the record appended and the tail that [`Self::append`] gave to each other.
    #[inline(always)]
    pub(crate) fn join(slab: &mut Slab, tail: u32, slot: u32) {
        *slab.links_mut(slot) = Links { prev: tail, next: NIL };
        if tail != NIL {
            slab.links_mut(tail).next = slot;
        }
    }

    /// Queues a record in the class and at the arrival it carries.
    pub(crate) fn insert(&mut self, slab: &mut Slab, slot: u32) {
        let (index, arrival) = (slab.hot(slot).class, slab.hot(slot).arrival);
        let class = &mut self.classes[usize::from(index)];
        let tail = class.list.tail;
        if tail == NIL || slab.hot(tail).arrival < arrival {
            let tail = self.append(slab.hot_mut(slot), slot);
            Self::join(slab, tail, slot);
        } else {
            class.heap = heap::push::<ByArrival>(slab, class.heap, slot);
            slab.hot_mut(slot).place = Place::ReadyHeap;
            self.occupied.set(index);
        }
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
    }

    /// Takes out the first of a list, which is `slot`. The `prev` of the new first one is not read any more.
    #[inline(always)]
    pub(crate) fn remove_first(&mut self, slot: u32, index: u8, next: u32) {
        let class = &mut self.classes[usize::from(index)];
        debug_assert_eq!(class.list.head, slot);
        class.list.head = next;
        if next == NIL {
            class.list.tail = NIL;
            if class.heap == NIL {
                self.occupied.clear(index);
            }
        }
    }

    /// [`Self::remove_first`] of what [`Self::head_in_order`] gave.
    #[inline(always)]
    pub(crate) fn remove_head_in_order(&mut self, slot: u32, next: u32) {
        let class = &mut self.classes[0];
        debug_assert!(class.list.head == slot && class.heap == NIL);
        class.list.head = next;
        if next == NIL {
            class.list.tail = NIL;
            self.occupied.clear(0);
        }
    }

    /// Whether a record is the first of its class's list.
    #[inline(always)]
    pub(crate) fn is_head(&self, class: u8, slot: u32) -> bool {
        self.classes[usize::from(class)].list.head == slot
    }

    /// The first of class 0, if all of that class came in order; otherwise [`NIL`].
    #[inline(always)]
    pub(crate) fn head_in_order(&self) -> u32 {
        let class = &self.classes[0];
        if class.heap == NIL { class.list.head } else { NIL }
    }

    /// The first of class 0, or [`NIL`]; nothing if not all of that class came in order.
    #[inline(always)]
    pub(crate) fn head_if_in_order(&self) -> Option<u32> {
        let class = &self.classes[0];
        if class.heap == NIL { Some(class.list.head) } else { None }
    }

    /// Whether nobody of a class is queued.
    #[inline(always)]
    pub(crate) fn is_class_empty(&self, class: u8) -> bool {
        let class = &self.classes[usize::from(class)];
        class.list.head == NIL && class.heap == NIL
    }

    /// The list of class 0.
    #[inline(always)]
    pub(crate) fn in_order(&mut self) -> &mut List {
        &mut self.classes[0].list
    }

    /// The oldest of a class, [`NIL`] when it is empty.
    #[inline(always)]
    pub(crate) fn first(&self, slab: &Slab, class: u8) -> u32 {
        let class = &self.classes[usize::from(class)];
        if class.heap == NIL { class.list.head } else { class.first_of_both(slab) }
    }
}

impl Class {
    /// The older of the list's head and the heap's root.
    #[cold]
    fn first_of_both(&self, slab: &Slab) -> u32 {
        let head = self.list.head;
        if head == NIL || slab.hot(self.heap).arrival < slab.hot(head).arrival { self.heap } else { head }
    }
}
