//! The ready coroutines of a lane under every policy but `Fair`: 256 classes, each a FIFO by
//! arrival.
//!
//! Contract: a class is a list in ascending arrival plus a heap for entries that came back with an
//! older arrival; the first of a class is the older of the two heads. Insertion and removal are
//! O(1) for the list, O(log n) for the heap; nothing is deleted lazily and nothing scans. The head
//! says whether a list is empty; the tail of an empty one, and the `prev` of a head, mean nothing:
//! so one that is the only one of its list comes and goes with little to write.
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
    /// Class 0, the only one of most lanes: here, so that nobody has to look for it.
    first: Class,
    /// The others, class 1 first.
    others: Box<[Class]>,
    /// Which classes have somebody, but for class 0, which says so itself.
    occupied: Bitmap256,
}

impl Ready {
    pub(crate) fn new() -> Self {
        Self {
            first: Class::EMPTY,
            others: vec![Class::EMPTY; 255].into_boxed_slice(),
            occupied: Bitmap256::default(),
        }
    }

    /// Which classes have somebody.
    pub(crate) fn occupied(&self) -> Bitmap256 {
        let mut occupied = self.occupied;
        if self.is_class_empty(0) {
            occupied.clear(0)
        } else {
            occupied.set(0)
        }
        occupied
    }

    #[inline(always)]
    pub(crate) fn class(&self, class: u8) -> &Class {
        self.others.get(usize::from(class).wrapping_sub(1)).unwrap_or(&self.first)
    }

    #[inline(always)]
    fn class_mut(&mut self, class: u8) -> &mut Class {
        self.others.get_mut(usize::from(class).wrapping_sub(1)).unwrap_or(&mut self.first)
    }

    /// Queues a record whose arrival is the newest of the lane: to the tail of the class it
    /// carries. Gives the tail before it, for [`Self::join`], which sets the links: so the caller
    /// needs the record itself only once.
    #[inline(always)]
    pub(crate) fn append(&mut self, hot: &mut Hot, slot: u32) -> u32 {
        hot.place = Place::ReadyList;
        let tail = self.class_mut(hot.class).list.admit(slot, slot);
        if tail == NIL {
            self.occupied.set(hot.class);
        }
        tail
    }

    /// [`Self::append`] to class 0, whatever the record carries.
    #[inline(always)]
    pub(crate) fn append_in_order(&mut self, hot: &mut Hot, slot: u32) -> u32 {
        hot.class = 0;
        hot.place = Place::ReadyList;
        self.first.list.admit(slot, slot)
    }

    /// [`Self::append_in_order`] of a record of class 0 and [`Self::join`] in one, for who has the
    /// links at hand.
    #[inline(always)]
    pub(crate) fn append_linked(&mut self, hot: &mut Hot, links: &mut [Links], slot: u32) {
        debug_assert_eq!(hot.class, 0);
        hot.place = Place::ReadyList;
        let list = &mut self.first.list;
        let own = &mut links[slot as usize];
        own.next = NIL;
        if list.head == NIL {
            (list.head, list.tail) = (slot, slot);
        } else {
            let tail = core::mem::replace(&mut list.tail, slot);
            own.prev = tail;
            links[tail as usize].next = slot;
        }
    }

    /// Queues records as [`Self::append_in_order`] does, of which these are the first and the last;
    /// gives the tail before them.
    #[inline(always)]
    pub(crate) fn append_some(&mut self, first: u32, last: u32) -> u32 {
        self.first.list.admit(first, last)
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
        let class = self.class_mut(index);
        let list = class.list;
        if list.head == NIL || slab.hot(list.tail).arrival < arrival {
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
        let class = self.class_mut(index);
        if slab.hot(slot).place == Place::ReadyList {
            class.list.unlink(slab, slot);
        } else {
            class.heap = heap::remove::<ByArrival>(slab, class.heap, slot);
        }
        if class.list.head == NIL && class.heap == NIL {
            self.occupied.clear(index);
        }
    }

    /// Takes out the first of a list, which is `slot`. The `prev` of the new first one is not read
    /// any more.
    #[inline(always)]
    pub(crate) fn remove_first(&mut self, slot: u32, index: u8, next: u32) {
        let class = self.class_mut(index);
        debug_assert_eq!(class.list.head, slot);
        class.list.head = next;
        if next == NIL && class.heap == NIL {
            self.occupied.clear(index);
        }
    }

    /// [`Self::remove_first`] of what [`Self::head_in_order`] gave.
    #[inline(always)]
    pub(crate) fn remove_head_in_order(&mut self, slot: u32, next: u32) {
        let class = &mut self.first;
        debug_assert!(class.list.head == slot && class.heap == NIL);
        class.list.head = next;
    }

    /// Whether a record is the first of its class's list.
    #[inline(always)]
    pub(crate) fn is_head(&self, class: u8, slot: u32) -> bool {
        self.class(class).list.head == slot
    }

    /// The first of class 0, if all of that class came in order; otherwise [`NIL`].
    #[inline(always)]
    pub(crate) fn head_in_order(&self) -> u32 {
        let class = &self.first;
        if class.heap == NIL { class.list.head } else { NIL }
    }

    /// Whether nobody of a class is queued.
    #[inline(always)]
    pub(crate) fn is_class_empty(&self, class: u8) -> bool {
        let class = self.class(class);
        class.list.head == NIL && class.heap == NIL
    }

    /// The list of class 0.
    #[inline(always)]
    pub(crate) fn in_order(&mut self) -> &mut List {
        &mut self.first.list
    }

    /// The oldest of a class, [`NIL`] when it is empty.
    #[inline(always)]
    pub(crate) fn first(&self, slab: &Slab, class: u8) -> u32 {
        let class = self.class(class);
        if class.heap == NIL { class.list.head } else { class.first_of_both(slab) }
    }
}

impl List {
    /// Records come behind the others, of which these are the first and the last. Gives the tail
    /// before them, or [`NIL`].
    #[inline(always)]
    const fn admit(&mut self, first: u32, last: u32) -> u32 {
        let tail = core::mem::replace(&mut self.tail, last);
        if self.head == NIL {
            self.head = first;
            return NIL;
        }
        tail
    }
}

impl Class {
    /// The older of the list's head and the heap's root.
    #[cold]
    fn first_of_both(&self, slab: &Slab) -> u32 {
        let head = self.list.head;
        if head == NIL || slab.hot(self.heap).arrival < slab.hot(head).arrival {
            self.heap
        } else {
            head
        }
    }
}
