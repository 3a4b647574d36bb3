//! Loads chunks of pages into a machine's memories: reads, decompresses, hashes and copies each
//! once, on two threads.
//!
//! The thread that owns the file reads; it also processes the chunks for which the helper is too
//! busy. A page is copied only after its chunk's hash was verified, together with its own hash, so
//! that it need not be hashed again. A chunk is in memory only while it is processed.

use crate::archive::ChunkLocation;
use crate::snapshot::SnapshotError;
use crate::table::{Hash, Table, block_hashes, chunk_hash};
use crate::trace::OpenError;
use std::io::{Read, Seek, SeekFrom};
use std::sync::mpsc::{TrySendError, channel, sync_channel};
use wavelock_machine::PageSlot;
use wavelock_system::STATE_PAGE_BYTES;
use wavelock_trace::{CHUNK_HEAD, Chain, TraceError};

/// With fewer chunks a second thread is not worth its start.
const WORTH_A_THREAD: usize = 4;

/// One chunk, and the destinations of its pages.
struct Job<'s, 'w> {
    spot: &'s ChunkLocation,
    number: u64,
    hash: Hash,
    format: u64,
    pages: Vec<(usize, PageSlot<'w>)>,
}

/// The buffers a thread reuses from chunk to chunk.
#[derive(Default)]
struct Room {
    unpacked: Vec<u8>,
    hashes: Vec<Hash>,
}

impl Job<'_, '_> {
    fn finish(self, stored: &[u8], room: &mut Room) -> Result<(), OpenError> {
        let Room { unpacked, hashes } = room;
        let bytes =
            checked(self.spot, stored, (self.number, self.hash, self.format), unpacked, hashes)?;
        for (index, slot) in self.pages {
            let start = index.saturating_mul(STATE_PAGE_BYTES);
            let page = bytes.get(start..start.saturating_add(STATE_PAGE_BYTES));
            let (page, hash) =
                page.zip(hashes.get(index)).ok_or(SnapshotError::Chunk { number: self.number })?;
            slot.fill(page, *hash);
        }
        Ok(())
    }
}

/// The bytes of a chunk if they have the expected hash; `hashes` are then those of its pages.
fn checked<'a>(
    spot: &ChunkLocation,
    stored: &'a [u8],
    (number, hash, format): (u64, Hash, u64),
    unpacked: &'a mut Vec<u8>,
    hashes: &mut Vec<Hash>,
) -> Result<&'a [u8], OpenError> {
    let bytes =
        Chain::unpack_into(&spot.head, stored, spot.offset, unpacked).map_err(TraceError::Chunk)?;
    hashes.clear();
    hashes.extend(block_hashes(bytes));
    if chunk_hash(format, bytes, hashes) == hash {
        Ok(bytes)
    } else {
        Err(SnapshotError::Chunk { number }.into())
    }
}

/// Fills the slots from the chunks of a table; `spots` are the chunks of pages by number.
pub(crate) fn fill(
    input: &mut (impl Read + Seek),
    spots: &[ChunkLocation],
    table: &Table,
    wanted: Vec<Vec<(usize, PageSlot<'_>)>>,
) -> Result<(), OpenError> {
    let mut jobs = Vec::new();
    for (&(number, hash), pages) in
        table.chunks.iter().zip(wanted).filter(|(_, pages)| !pages.is_empty())
    {
        jobs.push(Job { spot: spot(spots, number)?, number, hash, format: table.format, pages });
    }
    let mut room = Room::default();
    let mut stored = Vec::new();
    if jobs.len() < WORTH_A_THREAD {
        for job in jobs {
            read_stored(input, job.spot, &mut stored)?;
            job.finish(&stored, &mut room)?;
        }
        return Ok(());
    }
    std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel::<(Job<'_, '_>, Vec<u8>)>(1);
        let (back, returned) = channel();
        let helper = scope.spawn(move || -> Result<(), OpenError> {
            let mut room = Room::default();
            for (job, stored) in receiver {
                job.finish(&stored, &mut room)?;
                // Fails if the reader has finished and no longer needs the buffer.
                let _ = back.send(stored);
            }
            Ok(())
        });
        for job in jobs {
            if stored.capacity() == 0 {
                stored = returned.try_recv().unwrap_or_default();
            }
            read_stored(input, job.spot, &mut stored)?;
            match sender.try_send((job, std::mem::take(&mut stored))) {
                Ok(()) => {}
                Err(TrySendError::Full((job, bytes))) => {
                    job.finish(&bytes, &mut room)?;
                    stored = bytes;
                }
                // The helper stopped with an error, which is returned below.
                Err(TrySendError::Disconnected(_)) => break,
            }
        }
        drop(sender);
        helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The outline of a table, from its pieces.
pub(crate) fn outline(
    input: &mut (impl Read + Seek),
    spots: &[ChunkLocation],
    table: &Table,
) -> Result<Vec<u8>, OpenError> {
    let (mut outline, mut stored, mut room) = (Vec::new(), Vec::new(), Room::default());
    for &(number, hash) in &table.chunks[table.pieces.clone()] {
        let spot = spot(spots, number)?;
        read_stored(input, spot, &mut stored)?;
        outline.extend_from_slice(checked(
            spot,
            &stored,
            (number, hash, table.format),
            &mut room.unpacked,
            &mut room.hashes,
        )?);
    }
    Ok(outline)
}

fn spot(spots: &[ChunkLocation], number: u64) -> Result<&ChunkLocation, SnapshotError> {
    usize::try_from(number)
        .ok()
        .and_then(|number| spots.get(number))
        .ok_or(SnapshotError::Chunk { number })
}

/// Reads the stored bytes of a chunk.
pub(crate) fn read_stored(
    input: &mut (impl Read + Seek),
    spot: &ChunkLocation,
    stored: &mut Vec<u8>,
) -> Result<(), OpenError> {
    input.seek(SeekFrom::Start(spot.offset + CHUNK_HEAD as u64)).map_err(TraceError::Io)?;
    stored.resize(spot.length, 0);
    input.read_exact(stored).map_err(|error| OpenError::Trace(TraceError::Io(error)))
}
