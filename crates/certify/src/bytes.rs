//! Canonical bytes of a certificate, for traces. Decoding treats its input as untrusted: sizes are
//! bounded by the input.

use crate::{CERTIFICATE_VERSION, Certificate, Claim, Pick, Sets, Span};
use alloc::vec::Vec;
use core::fmt;
use wavelock_abi::{ChannelId, CoroutineRef, LaneId, SessionId};

/// Why bytes are not a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// Another format version.
    Version {
        /// The version found.
        found: u32,
    },
    /// The bytes end too early.
    Truncated {
        /// Byte offset at which more was expected.
        offset: usize,
    },
    /// A number is out of its range.
    Range {
        /// Byte offset.
        offset: usize,
    },
    /// Bytes are left over.
    Trailing {
        /// Byte offset of the first.
        offset: usize,
    },
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version { found } => write!(
                f,
                "certificate format {found}: this build reads format {CERTIFICATE_VERSION}"
            ),
            Self::Truncated { offset } => write!(f, "byte {offset}: the certificate is cut off"),
            Self::Range { offset } => write!(f, "byte {offset}: a number is out of its range"),
            Self::Trailing { offset } => {
                write!(f, "byte {offset}: bytes after the end of the certificate")
            }
        }
    }
}

impl core::error::Error for DecodeError {}

impl Certificate {
    /// Its canonical bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        out.word(CERTIFICATE_VERSION);
        out.long(self.wave);
        match self.span {
            Span::Cycles(cycles) => {
                out.word(0);
                out.long(cycles);
            }
            Span::Picks(picks) => {
                out.word(1);
                out.long(u64::from(picks));
            }
        }
        out.list(&self.claims, Writer::claim);
        out.0
    }

    /// Reads a certificate from untrusted bytes.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut input = Reader { bytes, offset: 0 };
        let found = input.word()?;
        if found != CERTIFICATE_VERSION {
            return Err(DecodeError::Version { found });
        }
        let wave = input.long()?;
        let span = match (input.word()?, input.long()?) {
            (0, cycles) => Span::Cycles(cycles),
            (1, picks) => Span::Picks(
                u32::try_from(picks).map_err(|_| DecodeError::Range { offset: input.offset })?,
            ),
            _ => return Err(DecodeError::Range { offset: input.offset }),
        };
        let claims = input.list(Reader::claim)?;
        if input.offset < bytes.len() {
            return Err(DecodeError::Trailing { offset: input.offset });
        }
        Ok(Self { wave, span, claims })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn word(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn long(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    fn list<T>(&mut self, items: &[T], each: fn(&mut Self, &T)) {
        self.word(items.len() as u32);
        items.iter().for_each(|item| each(self, item));
    }

    fn claim(&mut self, claim: &Claim) {
        self.list(&claim.lanes, |out, lane| out.word(u32::from(lane.0)));
        self.long(claim.set_version);
        self.word(u32::from(claim.sets.is_some()));
        if let Some(sets) = &claim.sets {
            self.list(&sets.sessions, |out, session| out.word(session.0));
            self.list(&sets.channels, |out, channel| {
                out.word(channel.owner.0);
                out.word(channel.index);
            });
        }
        self.long(claim.ready_digest);
        self.list(&claim.picks, |out, pick| {
            out.word(u32::from(pick.lane.0));
            out.word(pick.session.0);
            out.word(pick.coroutine.slot);
            out.word(pick.coroutine.generation);
        });
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let found =
            self.bytes.get(self.offset..self.offset + N).and_then(|bytes| bytes.try_into().ok());
        let bytes = found.ok_or(DecodeError::Truncated { offset: self.offset })?;
        self.offset += N;
        Ok(bytes)
    }

    fn word(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    fn long(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn lane(&mut self) -> Result<LaneId, DecodeError> {
        let offset = self.offset;
        u16::try_from(self.word()?).map(LaneId).map_err(|_| DecodeError::Range { offset })
    }

    /// A list: every item takes at least four bytes, so its length is bounded by the input.
    fn list<T>(
        &mut self,
        each: fn(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let offset = self.offset;
        let count = self.word()? as usize;
        if count > (self.bytes.len() - self.offset) / 4 {
            return Err(DecodeError::Truncated { offset });
        }
        (0..count).map(|_| each(self)).collect()
    }

    fn claim(&mut self) -> Result<Claim, DecodeError> {
        let lanes = self.list(Self::lane)?;
        let set_version = self.long()?;
        let sets = match self.word()? {
            0 => None,
            1 => Some(Sets {
                sessions: self.list(|input| input.word().map(SessionId))?,
                channels: self.list(|input| {
                    Ok(ChannelId { owner: SessionId(input.word()?), index: input.word()? })
                })?,
            }),
            _ => return Err(DecodeError::Range { offset: self.offset }),
        };
        let ready_digest = self.long()?;
        let picks = self.list(|input| {
            let (lane, session) = (input.lane()?, SessionId(input.word()?));
            Ok(Pick { lane, session, coroutine: CoroutineRef::new(input.word()?, input.word()?) })
        })?;
        Ok(Claim { lanes, set_version, sets, ready_digest, picks })
    }
}
