//! The messages of a channel, in order of arrival: a ring of numbers whose size is a power of two.
//!
//! Contract: behaves as a `VecDeque<Message>`. While all messages are numbers, one is appended or
//! removed by one store or load. Once another kind of message arrives the queue is mixed
//! ([`Queue::is_mixed`]): all messages are in a list beside the ring, until the list is empty and a
//! number arrives.

use crate::call::Call;
use crate::channel::Message;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Messages in order of arrival.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub(crate) struct Queue {
    length: u32,
    /// The index of the first number, before masking.
    head: u32,
    /// The ring. Its length is 0 or a power of two.
    ring: Box<[i64]>,
    /// All messages, if the queue is mixed.
    #[allow(clippy::box_collection, reason = "one word, so that a channel is two cache lines")]
    mixed: Option<Box<VecDeque<Message>>>,
}

/// The first message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Front<'a> {
    Number(i64),
    Bytes(&'a [u8]),
    Call(&'a Call),
}

/// The length of the first ring.
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

    /// Whether the messages are in the list instead of the ring.
    pub(crate) const fn is_mixed(&self) -> bool {
        self.mixed.is_some()
    }

    /// The index of the number `behind` the first.
    #[inline(always)]
    const fn at(&self, behind: u32) -> usize {
        // The ring has at most 2^31 numbers, and is not empty here.
        (self.head.wrapping_add(behind) & (self.ring.len() as u32).wrapping_sub(1)) as usize
    }

    /// Fast path of [`Queue::push_back`], for a queue that is not mixed: `false` if the ring is
    /// full.
    #[inline(always)]
    pub(crate) fn push_number(&mut self, number: i64) -> bool {
        debug_assert!(!self.is_mixed());
        if self.length as usize >= self.ring.len() {
            return false;
        }
        let at = self.at(self.length);
        self.ring[at] = number;
        self.length += 1;
        true
    }

    /// Fast path of [`Queue::pop_front`], for a queue that is not mixed.
    #[inline(always)]
    pub(crate) fn pop_number(&mut self) -> Option<i64> {
        debug_assert!(!self.is_mixed());
        if self.length == 0 {
            return None;
        }
        let number = self.ring[self.at(0)];
        self.length -= 1;
        self.head = self.head.wrapping_add(1);
        Some(number)
    }

    pub(crate) fn push_back(&mut self, message: Message) {
        match message {
            Message::Number(number) if self.length == 0 || !self.is_mixed() => {
                self.mixed = None;
                if self.length as usize == self.ring.len() {
                    self.grow();
                }
                let at = self.at(self.length);
                self.ring[at] = number;
            }
            message => {
                if !self.is_mixed() {
                    let numbers = (0..self.length)
                        .map(|behind| Message::Number(self.ring[self.at(behind)]))
                        .collect();
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
            None => self.pop_number().map(Message::Number),
        }
    }

    pub(crate) fn front(&self) -> Option<Front<'_>> {
        if self.length == 0 {
            return None;
        }
        let Some(mixed) = &self.mixed else {
            return Some(Front::Number(self.ring[self.at(0)]));
        };
        mixed.front().map(|message| match message {
            Message::Number(number) => Front::Number(*number),
            Message::Bytes(bytes) => Front::Bytes(bytes),
            Message::Call(call) => Front::Call(call),
        })
    }

    /// The messages of a mixed queue, in order; none of one that is not mixed.
    pub(crate) fn mixed(&self) -> impl Iterator<Item = &Message> {
        self.mixed.iter().flat_map(|mixed| mixed.iter())
    }

    /// Calls `each` with every message, in order.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&Message)) {
        match &self.mixed {
            Some(mixed) => mixed.iter().for_each(each),
            None => (0..self.length)
                .for_each(|behind| each(&Message::Number(self.ring[self.at(behind)]))),
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let size = (self.ring.len() * 2).max(FIRST);
        let mut ring: Vec<i64> = Vec::with_capacity(size);
        ring.extend((0..self.length).map(|behind| self.ring[self.at(behind)]));
        ring.resize(size, 0);
        (self.head, self.ring) = (0, ring.into_boxed_slice());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a list, with numbers, bytes and every way in and out.
    #[test]
    fn it_is_a_list_of_messages() {
        let (mut queue, mut list, mut random, mut changes) =
            (Queue::new(), VecDeque::new(), 7u64, 0);
        for step in 0..20_000i64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let was_mixed = queue.is_mixed();
            match (random >> 33) % 9 {
                0 | 1 if !queue.is_mixed() => {
                    let has_room = (queue.len() as usize) < queue.ring.len();
                    assert_eq!(queue.push_number(step), has_room);
                    list.extend(has_room.then_some(Message::Number(step)));
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
                    assert!(
                        core::iter::from_fn(|| queue.pop_front()).eq(core::mem::take(&mut list))
                    );
                }
                _ if !queue.is_mixed() => {
                    assert_eq!(queue.pop_number().map(Message::Number), list.pop_front());
                }
                _ => {}
            }
            let front = list.front().map(|message| match message {
                Message::Number(number) => Front::Number(*number),
                Message::Bytes(bytes) => Front::Bytes(bytes),
                Message::Call(call) => Front::Call(call),
            });
            assert_eq!(
                (queue.len() as usize, queue.is_empty(), queue.front()),
                (list.len(), list.is_empty(), front)
            );
            let mut all = Vec::new();
            queue.for_each(|message| all.push(message.clone()));
            assert!(list.iter().eq(&all));
            let is_plain = list.iter().all(|message| matches!(message, Message::Number(_)));
            assert!(queue.is_mixed() || is_plain, "whatever is no number is beside the ring");
            assert!(queue.mixed().eq(list.iter().filter(|_| queue.is_mixed())));
            changes += u32::from(was_mixed != queue.is_mixed());
        }
        assert!(queue.ring.len() >= 8 && changes > 20, "it grew, and had both forms: {changes}");
    }
}
