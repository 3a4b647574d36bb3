//! The messages that a channel holds, in the order they came: a ring whose size is a power of two.
//!
//! Contract: as a `VecDeque` would have them; but places that hold no message hold a number, which owns nothing, so that a number is put in
//! and taken out by one store or load, without a look at what was there.

use crate::channel::Message;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Messages, first come first.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Queue {
    length: u32,
    /// Where the first message is.
    head: u32,
    /// None, or a power of two; where no message is, there is a number.
    places: Box<[Message]>,
}

/// A place for a number, behind the others.
pub(crate) struct Vacancy<'a> {
    place: &'a mut Message,
    length: &'a mut u32,
}

impl Vacancy<'_> {
    #[inline(always)]
    pub(crate) fn fill(self, number: i64) {
        // What was there owns nothing.
        core::mem::forget(core::mem::replace(self.place, Message::Number(number)));
        *self.length += 1;
    }
}

const VACANT: Message = Message::Number(0);
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

    /// How many messages there is room for without a larger ring.
    pub(crate) const fn room(&self) -> u32 {
        self.places.len() as u32
    }

    /// The place of the message so many behind the first.
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

    /// Takes the first message out if it is a number.
    #[inline(always)]
    pub(crate) fn pop_number(&mut self) -> Option<i64> {
        let number = self.first_number()?;
        self.drop_number();
        Some(number)
    }

    /// Takes the first message out, which is known to be a number. What stays behind is as vacant as another.
    #[inline(always)]
    pub(crate) fn drop_number(&mut self) {
        debug_assert!(self.first_number().is_some());
        self.head = self.head.wrapping_add(1);
        self.length -= 1;
    }

    /// The first message if it is a number.
    #[inline(always)]
    pub(crate) fn first_number(&self) -> Option<i64> {
        if self.length == 0 {
            return None;
        }
        match self.places.get(self.at(0)) {
            Some(&Message::Number(number)) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn push_back(&mut self, message: Message) {
        if self.length == self.room() {
            self.grow();
        }
        let at = self.at(self.length);
        self.places[at] = message;
        self.length += 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<Message> {
        let at = self.at(0);
        let message = if self.length == 0 { None } else { self.places.get_mut(at) };
        let message = core::mem::replace(message?, VACANT);
        self.head = self.head.wrapping_add(1);
        self.length -= 1;
        Some(message)
    }

    pub(crate) fn front(&self) -> Option<&Message> {
        self.iter().next()
    }

    /// The messages, first come first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Message> {
        (0..self.length).map(|behind| &self.places[self.at(behind)])
    }

    /// Makes the ring twice as large.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let size = (self.places.len() * 2).max(FIRST);
        let mut places: Vec<Message> = Vec::with_capacity(size);
        while let Some(message) = self.pop_front() {
            places.push(message);
        }
        (self.head, self.length) = (0, places.len() as u32);
        places.resize(size, VACANT);
        self.places = places.into_boxed_slice();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::VecDeque;

    /// Against a list, with numbers, bytes and every way in and out.
    #[test]
    fn it_is_a_list_of_messages() {
        let (mut queue, mut list, mut random) = (Queue::new(), VecDeque::new(), 7u64);
        for step in 0..20_000i64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            match (random >> 33) % 9 {
                0 | 1 if queue.len() < queue.room() => {
                    queue.vacancy().expect("it has room").fill(step);
                    list.push_back(Message::Number(step));
                }
                2 => {
                    queue.push_back(Message::Number(step));
                    list.push_back(Message::Number(step));
                }
                3 => {
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
                    assert_eq!(queue.pop_number(), number);
                    if number.is_some() {
                        list.pop_front();
                    }
                }
            }
            assert_eq!((queue.len() as usize, queue.is_empty(), queue.front()), (list.len(), list.is_empty(), list.front()));
            assert!(queue.iter().eq(&list));
        }
        assert!(queue.room() >= 8, "it grew");
    }
}
