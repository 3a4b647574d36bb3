//! Recent frames of a machine for those who watch: one ring by machine, bounded in bytes, whatever
//! the number of clients and however slow they are. The machine appends and never waits.

use axum::extract::ws::Utf8Bytes;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// A frame as it is sent.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) frame: u64,
    pub(crate) json: Utf8Bytes,
}

#[derive(Default)]
struct Ring {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// The number of the first entry, counted from the machine's start.
    first: u64,
    /// Frames before this one may have left the ring.
    left_before: u64,
}

/// The ring, and who waits for its next entry.
pub(crate) struct Feed {
    ring: Mutex<Ring>,
    most_bytes: usize,
    /// Counts changes: entries and states.
    changed: watch::Sender<u64>,
}

/// What a reader gets.
pub(crate) struct Read {
    pub(crate) entries: Vec<Entry>,
    /// Entries that left the ring before they were read.
    pub(crate) dropped: u64,
    /// The number of the next entry.
    pub(crate) next: u64,
}

impl Feed {
    pub(crate) fn new(most_bytes: usize) -> Self {
        Self { ring: Mutex::default(), most_bytes, changed: watch::Sender::new(0) }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a frame. One that is larger than the ring leaves it at once, and is counted.
    pub(crate) fn push(&self, frame: u64, json: String) {
        let mut ring = self.ring();
        ring.bytes += json.len();
        ring.entries.push_back(Entry { frame, json: json.into() });
        while ring.bytes > self.most_bytes
            && let Some(old) = ring.entries.pop_front()
        {
            ring.bytes -= old.json.as_str().len();
            ring.first += 1;
            ring.left_before = old.frame + 1;
        }
        drop(ring);
        self.wake();
    }

    /// Those who wait look again.
    pub(crate) fn wake(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The number of the next entry.
    pub(crate) fn end(&self) -> u64 {
        let ring = self.ring();
        ring.first + ring.entries.len() as u64
    }

    /// The number of the first entry of this frame or a later one, and how many frames from there
    /// on may have left the ring.
    pub(crate) fn find(&self, frame: u64) -> (u64, u64) {
        let ring = self.ring();
        let at = ring.entries.partition_point(|entry| entry.frame < frame);
        (ring.first + at as u64, ring.left_before.saturating_sub(frame))
    }

    /// At most `most` entries from a number on, and at most `bytes` bytes of them but one.
    pub(crate) fn read(&self, from: u64, most: usize, bytes: usize) -> Read {
        let ring = self.ring();
        let dropped = ring.first.saturating_sub(from);
        let skip = from.saturating_sub(ring.first) as usize;
        let mut size = 0;
        let entries: Vec<Entry> = ring
            .entries
            .iter()
            .skip(skip)
            .take(most)
            .take_while(|entry| {
                let fits = size == 0 || size + entry.json.as_str().len() <= bytes;
                size += entry.json.as_str().len();
                fits
            })
            .cloned()
            .collect();
        let next = from.max(ring.first) + entries.len() as u64;
        Read { entries, dropped, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_bounded_and_counts_what_left_it() {
        let feed = Feed::new(100);
        for frame in 0..20 {
            feed.push(frame * 2, "x".repeat(10));
        }
        let read = feed.read(0, 100, 1_000);
        assert_eq!((read.entries.len(), read.dropped, read.next), (10, 10, 20));
        assert_eq!(read.entries[0].frame, 20);
        let read = feed.read(15, 2, 1_000);
        assert_eq!((read.entries.len(), read.dropped, read.next), (2, 0, 17));
        assert_eq!(feed.read(15, 9, 25).entries.len(), 2, "at most 25 bytes");
        assert_eq!(feed.read(15, 9, 1).entries.len(), 1, "but at least one entry");
        assert_eq!((feed.find(25), feed.find(4), feed.end()), ((13, 0), (10, 15), 20));
        // A frame that is larger than the ring is dropped, and everything before it.
        feed.push(60, "x".repeat(101));
        assert_eq!((feed.read(20, 9, 99).dropped, feed.end()), (1, 21));
    }
}
