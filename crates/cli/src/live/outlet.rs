//! Output on its way to one reader: a bounded queue and a thread that writes it.
//!
//! A chunk is what one frame wrote. A reader that is too slow loses whole chunks, which are
//! counted, with a notice in between where the output is JSON Lines.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a full queue does with one more chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WhenFull {
    /// The chunk is dropped and counted.
    Drop,
    /// The run waits for the reader.
    Wait,
}

/// What a reader did not get.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Dropped {
    /// Chunks: frames that wrote something.
    pub(crate) frames: u64,
    /// Their bytes.
    pub(crate) bytes: u64,
}

impl Dropped {
    fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// The sum.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self { frames: self.frames + other.frames, bytes: self.bytes + other.bytes }
    }
}

/// A reader's queue.
pub(crate) struct Outlet {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    /// Tell the reader of what it lost, as a line of JSON.
    tells: bool,
    most_bytes: usize,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Arc<[u8]>>,
    bytes: usize,
    /// The thread writes a chunk.
    is_writing: bool,
    /// Nothing more comes.
    is_closing: bool,
    /// Why the reader cannot be written to any more.
    gone: Option<io::ErrorKind>,
    dropped: Dropped,
    /// Dropped since the reader was told.
    untold: Dropped,
}

impl Outlet {
    /// Starts a thread that writes to `out`, of which at most `most_bytes` wait.
    pub(crate) fn start(
        mut out: impl Write + Send + 'static,
        most_bytes: usize,
        tells: bool,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let queue = shared.clone();
        let thread = std::thread::Builder::new().name("wavelock-output".into());
        let thread = thread.spawn(move || {
            while let Some(chunk) = queue.next() {
                let written = out.write_all(&chunk).and_then(|()| out.flush());
                queue.wrote(written.err().map(|error| error.kind()));
            }
        })?;
        Ok(Self { shared, thread: Some(thread), tells, most_bytes })
    }

    /// Queues what a frame wrote.
    pub(crate) fn push(&self, chunk: &Arc<[u8]>, when_full: WhenFull) {
        let mut queue = self.shared.queue();
        // A chunk that is larger than all that may wait is taken by an empty queue.
        let is_full =
            |queue: &Queue| queue.bytes > 0 && queue.bytes + chunk.len() > self.most_bytes;
        while when_full == WhenFull::Wait && is_full(&queue) && queue.gone.is_none() {
            queue = self.shared.wait(queue, None);
        }
        if queue.gone.is_some() || queue.is_closing {
            return;
        }
        if is_full(&queue) {
            queue.dropped.add(chunk.len());
            queue.untold.add(chunk.len());
            return;
        }
        let untold = std::mem::take(&mut queue.untold);
        if self.tells && untold.frames > 0 {
            let Dropped { frames, bytes } = untold;
            let told = format!("{{\"dropped\":{{\"frames\":{frames},\"bytes\":{bytes}}}}}\n");
            queue.put(told.into_bytes().into());
        }
        queue.put(chunk.clone());
        self.shared.changed.notify_all();
    }

    /// Why the reader cannot be written to any more: it went away.
    pub(crate) fn gone(&self) -> Option<io::ErrorKind> {
        self.shared.queue().gone
    }

    /// Nothing more comes: the thread writes what waits and ends.
    pub(crate) fn close(&self) {
        self.shared.queue().is_closing = true;
        self.shared.changed.notify_all();
    }

    /// Waits until everything is written or the time is up; the rest counts as dropped. Without a
    /// time it waits for the reader.
    pub(crate) fn finish(&mut self, until: Option<Instant>) -> Dropped {
        self.close();
        let mut queue = self.shared.queue();
        while queue.gone.is_none() && (queue.is_writing || !queue.chunks.is_empty()) {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                let lost = std::mem::take(&mut queue.chunks);
                lost.iter().for_each(|chunk| queue.dropped.add(chunk.len()));
                queue.bytes = 0;
                return queue.dropped;
            }
            queue = self.shared.wait(queue, left);
        }
        let dropped = queue.dropped;
        drop(queue);
        // Every chunk is written, so the thread is at its end.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        dropped
    }
}

impl Shared {
    /// The next chunk to write; `None` when there is none left.
    fn next(&self) -> Option<Arc<[u8]>> {
        let mut queue = self.queue();
        loop {
            if queue.gone.is_some() {
                return None;
            }
            if let Some(chunk) = queue.chunks.pop_front() {
                queue.is_writing = true;
                return Some(chunk);
            }
            if queue.is_closing {
                return None;
            }
            queue = self.wait(queue, None);
        }
    }

    /// A chunk was written, or could not be.
    fn wrote(&self, error: Option<io::ErrorKind>) {
        let mut queue = self.queue();
        queue.is_writing = false;
        queue.bytes = queue.chunks.iter().map(|chunk| chunk.len()).sum();
        if error.is_some() {
            queue.gone = error;
            queue.chunks.clear();
            queue.bytes = 0;
        }
        self.changed.notify_all();
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Every change of the queue leaves it valid, whatever thread died.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        queue: MutexGuard<'a, Queue>,
        most: Option<Duration>,
    ) -> MutexGuard<'a, Queue> {
        match most {
            Some(most) => match self.changed.wait_timeout(queue, most) {
                Ok((queue, _)) => queue,
                Err(poisoned) => poisoned.into_inner().0,
            },
            None => self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl Queue {
    fn put(&mut self, chunk: Arc<[u8]>) {
        self.bytes += chunk.len();
        self.chunks.push_back(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// A reader that takes a chunk when it is let.
    struct Gate {
        lets: Receiver<()>,
        wrote: Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.lets.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
            let _ = self.wrote.send(bytes.into());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gate() -> (Sender<()>, Receiver<Vec<u8>>, Gate) {
        let ((open, lets), (wrote, written)) = (channel(), channel());
        (open, written, Gate { lets, wrote })
    }

    #[test]
    fn a_reader_that_does_not_read_loses_whole_chunks_and_is_told() {
        let (open, written, gate) = gate();
        let mut outlet = Outlet::start(gate, 10, true).expect("a thread");
        let chunk: Arc<[u8]> = Arc::from(&b"12345"[..]);
        // The chunk that is being written counts until it is written.
        for _ in 0..5 {
            outlet.push(&chunk, WhenFull::Drop);
        }
        assert_eq!(outlet.shared.queue().dropped, Dropped { frames: 3, bytes: 15 });
        for _ in 0..2 {
            open.send(()).expect("the thread lives");
            assert_eq!(written.recv().as_deref(), Ok(&b"12345"[..]));
        }
        while outlet.shared.queue().is_writing {
            std::thread::yield_now();
        }
        outlet.push(&chunk, WhenFull::Drop);
        (0..2).for_each(|_| open.send(()).expect("the thread lives"));
        let told = written.recv().expect("a line");
        assert_eq!(told, b"{\"dropped\":{\"frames\":3,\"bytes\":15}}\n");
        assert_eq!(outlet.finish(None), Dropped { frames: 3, bytes: 15 });
        assert_eq!(written.recv().as_deref(), Ok(&b"12345"[..]));
    }

    #[test]
    fn what_waits_when_the_time_is_up_is_dropped_and_counted() {
        let (open, _written, gate) = gate();
        let mut outlet = Outlet::start(gate, 100, false).expect("a thread");
        let chunk: Arc<[u8]> = Arc::from(&b"12345"[..]);
        outlet.push(&chunk, WhenFull::Drop);
        while !outlet.shared.queue().is_writing {
            std::thread::yield_now();
        }
        outlet.push(&chunk, WhenFull::Drop);
        assert_eq!(outlet.finish(Some(Instant::now())), Dropped { frames: 1, bytes: 5 });
        drop(open);
    }

    #[test]
    fn a_reader_that_went_away_costs_nothing_more() {
        let (open, _written, gate) = gate();
        drop(open);
        let mut outlet = Outlet::start(gate, 10, false).expect("a thread");
        let chunk: Arc<[u8]> = Arc::from(&b"12345"[..]);
        outlet.push(&chunk, WhenFull::Wait);
        while outlet.gone().is_none() {
            std::thread::yield_now();
        }
        (0..9).for_each(|_| outlet.push(&chunk, WhenFull::Wait));
        assert_eq!(outlet.finish(None), Dropped::default());
        assert_eq!(outlet.gone(), Some(io::ErrorKind::BrokenPipe));
    }
}
