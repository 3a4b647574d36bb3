//! The bytes of a file as a body: of a length that is fixed when it begins, read piece by piece.

use axum::body::{Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes of a piece.
const PIECE: u64 = 64 * 1024;

/// The first bytes of a file.
pub(crate) struct FileBody {
    file: File,
    left: u64,
}

impl FileBody {
    pub(crate) fn open(path: &std::path::Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let left = file.metadata()?.len();
        Ok(Self { file, left })
    }
}

impl HttpBody for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let mut piece = vec![0; self.left.min(PIECE) as usize];
        Poll::Ready(Some(self.file.read_exact(&mut piece).map(|()| {
            self.left -= piece.len() as u64;
            Frame::data(piece.into())
        })))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
