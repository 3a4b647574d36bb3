//! Requests between those who read lines and the run, which takes them at a boundary.
//!
//! Each source has a short queue of its own, and the run takes from them in turn: a source that
//! sends faster than the machine takes waits for its own requests and delays no other. All queues
//! together are bounded in bytes.

use super::request::Request;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Requests of one source that wait.
const MOST_OF_A_SOURCE: usize = 1024;

/// Bytes of all requests that wait; beyond it a source with nothing queued may queue one more.
const MOST_BYTES: usize = 16 << 20;

/// Requests that the run takes at one boundary.
const MOST_TAKEN: usize = 16 << 10;

/// Bytes of requests that the run takes at one boundary; the last one may go beyond it.
const MOST_TAKEN_BYTES: usize = 8 << 20;

/// Sessions that are started, ended or replaced at one boundary, by lines or by the folder: making
/// one costs far more than an input.
const MOST_MADE: usize = 16;

/// A source of requests. Never used again for another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct SourceId(pub(crate) u64);

/// Standard input.
pub(crate) const STANDARD_INPUT: SourceId = SourceId(0);

/// The watched folder.
pub(crate) const WATCH: SourceId = SourceId(1);

/// The first client.
pub(crate) const FIRST_CLIENT: SourceId = SourceId(2);

/// What the run takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// A request, and the number of its line.
    Request(u64, Request),
    /// A line that is none, and why.
    Refused(u64, String),
    /// The source has no more lines.
    Ended,
}

impl Message {
    fn size(&self) -> usize {
        match self {
            Self::Request(_, request) => request.size(),
            Self::Refused(_, reason) => reason.len(),
            Self::Ended => 0,
        }
    }

    const fn makes_session(&self) -> bool {
        matches!(self, Self::Request(_, request) if request.makes_session())
    }
}

/// The queues. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Inbox(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queues: Mutex<Queues>,
    /// Something was queued.
    filled: Condvar,
    /// Something was taken.
    taken: Condvar,
}

#[derive(Default)]
struct Queues {
    by_source: BTreeMap<SourceId, VecDeque<Message>>,
    bytes: usize,
    /// The source that the run takes from first.
    turn: SourceId,
    /// The run is over.
    is_closed: bool,
}

impl Inbox {
    /// Queues a message; waits while there is no room. `false` when the run is over.
    pub(crate) fn push(&self, source: SourceId, message: Message) -> bool {
        let size = message.size();
        let mut queues = self.queues();
        loop {
            let queued = queues.by_source.get(&source).map_or(0, VecDeque::len);
            let has_room =
                queued < MOST_OF_A_SOURCE && (queued == 0 || queues.bytes + size <= MOST_BYTES);
            if queues.is_closed {
                return false;
            }
            if has_room {
                break;
            }
            queues = self.0.taken.wait(queues).unwrap_or_else(PoisonError::into_inner);
        }
        queues.bytes += size;
        queues.by_source.entry(source).or_default().push_back(message);
        self.0.filled.notify_all();
        true
    }

    /// Takes what waits, one message of each source in turn, within the limits of a boundary.
    pub(crate) fn take(&self) -> Vec<(SourceId, Message)> {
        let mut queues = self.queues();
        let (mut taken, mut bytes, mut made) = (Vec::new(), 0, 0);
        while taken.len() < MOST_TAKEN && bytes < MOST_TAKEN_BYTES && made < MOST_MADE {
            let next = queues.by_source.range(queues.turn..).next();
            let Some((&source, _)) = next.or_else(|| queues.by_source.iter().next()) else { break };
            queues.turn = SourceId(source.0 + 1);
            let Some(queue) = queues.by_source.get_mut(&source) else { break };
            let message = queue.pop_front();
            if queue.is_empty() {
                queues.by_source.remove(&source);
            }
            let Some(message) = message else { continue };
            let size = message.size();
            bytes += size;
            made += usize::from(message.makes_session());
            queues.bytes -= size;
            taken.push((source, message));
        }
        self.0.taken.notify_all();
        taken
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues().by_source.is_empty()
    }

    /// Waits until something is queued, at most this long.
    pub(crate) fn wait(&self, most: Duration) {
        let queues = self.queues();
        if queues.by_source.is_empty() {
            drop(self.0.filled.wait_timeout(queues, most));
        }
    }

    /// Whether the run is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.queues().is_closed
    }

    /// The run is over: a thread that waits for room returns, and nothing more is queued.
    pub(crate) fn close(&self) {
        self.queues().is_closed = true;
        self.0.taken.notify_all();
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        // Every change of the queues is one statement: they are valid whatever thread died.
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(bytes: usize) -> Request {
        Request::Input { to: String::new(), bytes: vec![0; bytes] }
    }

    #[test]
    fn sources_are_taken_from_in_turn() {
        let inbox = Inbox::default();
        for number in 0..3 {
            assert!(inbox.push(SourceId(7), Message::Request(number, Request::Stop)));
        }
        assert!(inbox.push(SourceId(9), Message::Request(0, Request::Stop)));
        assert!(inbox.push(SourceId(9), Message::Ended));
        let order: Vec<u64> = inbox.take().iter().map(|(source, _)| source.0).collect();
        assert_eq!(order, [7, 9, 7, 9, 7]);
        assert_eq!(inbox.take(), []);
    }

    #[test]
    fn a_source_waits_for_room_and_no_other_does() {
        let inbox = Inbox::default();
        let (fast, slow) = (SourceId(0), SourceId(1));
        for number in 0..MOST_OF_A_SOURCE as u64 {
            assert!(inbox.push(fast, Message::Request(number, Request::Stop)));
        }
        let more = {
            let inbox = inbox.clone();
            std::thread::spawn(move || inbox.push(fast, Message::Ended))
        };
        assert!(inbox.push(slow, Message::Request(0, Request::Stop)), "without waiting");
        let mut taken = 0;
        while taken < MOST_OF_A_SOURCE + 2 {
            inbox.wait(Duration::from_secs(5));
            taken += inbox.take().len();
        }
        assert!(more.join().expect("no panic"));
    }

    #[test]
    fn bytes_are_bounded_and_what_waits_ends_with_the_run() {
        let inbox = Inbox::default();
        let (part, source) = (1 << 20, SourceId(0));
        for number in 0..(MOST_BYTES / part) as u64 {
            assert!(inbox.push(source, Message::Request(number, input(part))));
        }
        let more = {
            let inbox = inbox.clone();
            std::thread::spawn(move || inbox.push(source, Message::Request(0, input(part))))
        };
        assert!(inbox.push(SourceId(1), Message::Request(0, input(part))), "it has none queued");
        assert_eq!(inbox.queues().by_source[&source].len(), MOST_BYTES / part, "the push waits");
        inbox.close();
        assert!(!more.join().expect("no panic"));
        assert!(!inbox.push(SourceId(2), Message::Ended));
        let taken: usize = inbox.take().iter().map(|(_, message)| message.size()).sum();
        assert_eq!(taken, MOST_TAKEN_BYTES);
    }
}
