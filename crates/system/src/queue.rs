//! The messages that a channel holds, in the order they came: a ring of numbers whose size is a power of two.
//!
//! Contract: as a `VecDeque` would have them. A number is put in and taken out by one store or load. Where one of the messages is no number, all of them are in a list
//! beside the ring, until it is empty and a number comes; whoever goes the short ways has made sure that it is not so ([`Queue::is_mixed`]).

use crate::call::Call;
use crate::channel::Message;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Messages, first come first.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Queue {
    length: u32,
    /// Where the first number is.
    head: u32,
    /// None, or a power of two.
    places: Box<[i64]>,
    /// All messages, if one of them is no number, or was.
    #[allow(clippy::box_collection, reason = "one word, so that a channel is two lines of memory")]
    mixed: Option<Box<VecDeque<Message>>>,
}

/// The first message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front<'a> {
    Number(i64),
    Bytes(&'a [u8]),
    Call(&'a Call),
}

/// A place for a number, behind the others.
pub(crate) struct Vacancy<'a> {
    place: &'a mut i64,
    length: &'a mut u32,
}

impl Vacancy<'_> {
    #[inline(always)]
    pub(crate) fn fill(self, number: i64) {
        *self.place = number;
        *self.length += 1;
    }
}

/// The first ring's places.
const FIRST: usize = 4;

impl Queue {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[inline(always)]
    pub(crate) const fn len(&self) -> u32 {
        self.length
    }

    #[inline(always)]
    pub(crate) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the messages are not in the ring.
    pub(crate) const fn is_mixed(&self) -> bool {
        self.mixed.is_some()
    }

    /// How many messages there is room for without a larger ring.
    pub(crate) const fn room(&self) -> u32 {
        if self.is_mixed() { 0 } else { self.places.len() as u32 }
    }

    /// The place of the number so many behind the first.
    #[inline(always)]
    const fn at(&self, behind: u32) -> usize {
        // The ring has at most 2^31 places, and none is asked for where there is none.
        (self.head.wrapping_add(behind) & (self.places.len() as u32).wrapping_sub(1)) as usize
    }

    /// The place behind the others, in a ring that has room.
    #[inline(always)]
    pub(crate) fn vacancy(&mut self) -> Option<Vacancy<'_>> {
        debug_assert!(self.length < self.room());
        let at = self.at(self.length);
        Some(Vacancy { place: self.places.get_mut(at)?, length: &mut self.length })
    }

    /// The first number, of a ring that is not empty.
    #[inline(always)]
    pub(crate) fn first_in_ring(&self) -> Option<i64> {
        debug_assert!(self.length > 0 && !self.is_mixed());
        self.places.get(self.at(0)).copied()
    }

    /// Takes out what [`Queue::first_in_ring`] gives.
    #[inline(always)]
    pub(crate) fn drop_number(&mut self) {
        debug_assert!(self.length > 0 && !self.is_mixed());
        self.length -= 1;
        self.head = self.head.wrapping_add(1);
    }

    /// The first message if it is a number.
    pub(crate) fn first_number(&self) -> Option<i64> {
        match self.front() {
            Some(Front::Number(number)) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn push_back(&mut self, message: Message) {
        match message {
            Message::Number(number) if self.length == 0 || !self.is_mixed() => {
                self.mixed = None;
                if self.length == self.room() {
                    self.grow();
                }
                let at = self.at(self.length);
                self.places[at] = number;
            }
            message => {
                if !self.is_mixed() {
                    let numbers = (0..self.length).map(|behind| Message::Number(self.places[self.at(behind)])).collect();
                    self.mixed = Some(Box::new(numbers));
                }
                if let Some(mixed) = &mut self.mixed {
                    mixed.push_back(message);
                }
            }
        }
        self.length += 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<Message> {
        if self.length == 0 {
            return None;
        }
        match &mut self.mixed {
            Some(mixed) => {
                self.length -= 1;
                mixed.pop_front()
            }
            None => {
                let number = self.first_in_ring()?;
                self.drop_number();
                Some(Message::Number(number))
            }
        }
    }

    pub(crate) fn front(&self) -> Option<Front<'_>> {
        if self.length == 0 {
            return None;
        }
        let Some(mixed) = &self.mixed else { return self.first_in_ring().map(Front::Number) };
        mixed.front().map(|message| match message {
            Message::Number(number) => Front::Number(*number),
            Message::Bytes(bytes) => Front::Bytes(bytes),
            Message::Call(call) => Front::Call(call),
        })
    }

    /// The messages, first come first, if one of them is no number; numbers alone are none.
    pub(crate) fn mixed(&self) -> impl Iterator<Item = &Message> {
        self.mixed.iter().flat_map(|mixed| mixed.iter())
    }

    /// Every message, first come first.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Message)) {
        match &self.mixed {
            Some(mixed) => mixed.iter().for_each(each),
            None => (0..self.length).for_each(|behind| each(&Message::Number(self.places[self.at(behind)]))),
        }
    }

    /// Makes the ring twice as large.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let size = (self.places.len() * 2).max(FIRST);
        let mut places: Vec<i64> = Vec::with_capacity(size);
        places.extend((0..self.length).map(|behind| self.places[self.at(behind)]));
        places.resize(size, 0);
        (self.head, self.places) = (0, places.into_boxed_slice());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list, with numbers, bytes and every way in and out.
    #[test]
    fn it_is_a_list_of_messages() {
        let (mut queue, mut list, mut random, mut changes) = (Queue::new(), VecDeque::new(), 7u64, 0);
        for step in 0..20_000i64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let was_mixed = queue.is_mixed();
            match (random >> 33) % 9 {
                0 | 1 if queue.len() < queue.room() => {
                    queue.vacancy().expect("it has room").fill(step);
                    list.push_back(Message::Number(step));
                }
                2 => {
                    queue.push_back(Message::Number(step));
                    list.push_back(Message::Number(step));
                }
                3 if (random >> 40) % 8 == 0 => {
                    let bytes = Message::Bytes(step.to_le_bytes().into());
                    queue.push_back(bytes.clone());
                    list.push_back(bytes);
                }
                4 | 5 => assert_eq!(queue.pop_front(), list.pop_front()),
                6 if (random >> 40) % 64 == 0 => {
                    assert!(core::iter::from_fn(|| queue.pop_front()).eq(core::mem::take(&mut list)));
                }
                _ => {
                    let number = match list.front() {
                        Some(&Message::Number(number)) => Some(number),
                        _ => None,
                    };
                    assert_eq!(queue.first_number(), number);
                    if !queue.is_mixed() && !queue.is_empty() {
                        assert_eq!(queue.first_in_ring(), number);
                        queue.drop_number();
                        list.pop_front();
                    }
                }
            }
            let front = list.front().map(|message| match message {
                Message::Number(number) => Front::Number(*number),
                Message::Bytes(bytes) => Front::Bytes(bytes),
                Message::Call(call) => Front::Call(call),
            });
            assert_eq!((queue.len() as usize, queue.is_empty(), queue.front()), (list.len(), list.is_empty(), front));
            let mut all = Vec::new();
            queue.for_each(|message| all.push(message.clone()));
            assert!(list.iter().eq(&all));
            let is_plain = list.iter().all(|message| matches!(message, Message::Number(_)));
            assert!(queue.is_mixed() || is_plain, "whatever is no number is beside the ring");
            assert!(queue.mixed().eq(list.iter().filter(|_| queue.is_mixed())));
            changes += u32::from(was_mixed != queue.is_mixed());
        }
        assert!(queue.places.len() >= 8 && changes > 20, "it grew, and had both forms: {changes}");
    }
}
