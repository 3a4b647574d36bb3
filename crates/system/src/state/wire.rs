//! The alphabet of a machine's state: little-endian numbers of fixed width, counts before lists, one spelling per value.
//!
//! [`plain!`] and [`tagged!`] make both directions from one list of fields. The list is a pattern without `..`: a field that is added to
//! a struct and not to its list does not compile, so no state is forgotten. Reading treats its input as untrusted: nothing is allocated
//! that the bytes do not hold, and counters stay far enough from their end that no run can overflow them.

use super::StateError;
use alloc::boxed::Box;
use alloc::vec::Vec;
use wavelock_abi::{ChannelId, CoroutineName, CoroutineRef, Cycles, Frame, LaneId, LatencyClass, Priority, SessionId, Weight};
use wavelock_trace::Digest;

/// The largest value of a counter or an amount of cycles.
pub(crate) const MOST: u64 = 1 << 62;

/// Appends state.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) out: Vec<u8>,
}

impl Writer {
    /// A number that may have any value.
    pub(crate) fn raw(&mut self, value: u64) {
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// A byte string with its length.
    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn count(&mut self, count: usize) {
        u32::try_from(count).expect("limits keep every count below 2^32").write(self);
    }
}

/// Reads state that may be hostile.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// An error at this place.
    pub(crate) const fn wrong(&self, what: &'static str) -> StateError {
        StateError::Malformed { at: self.at, what }
    }

    /// Refuses what is not so.
    pub(crate) const fn check(&self, what: &'static str, holds: bool) -> Result<(), StateError> {
        if holds { Ok(()) } else { Err(self.wrong(what)) }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], StateError> {
        let left = self.bytes.len() - self.at;
        if count > left {
            return Err(StateError::Truncated { at: self.at, needed: count as u64, left: left as u64 });
        }
        let bytes = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StateError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn raw(&mut self) -> Result<u64, StateError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// How many items follow: each takes at least a byte, so never more than bytes are left.
    pub(crate) fn count(&mut self) -> Result<usize, StateError> {
        let count = u32::read(self)? as usize;
        self.check("a count beyond the end", count <= self.bytes.len() - self.at)?;
        Ok(count)
    }

    pub(crate) fn blob(&mut self) -> Result<&'a [u8], StateError> {
        let count = self.count()?;
        self.take(count)
    }

    /// The bytes of a page.
    pub(crate) fn page(&mut self) -> Result<&'a [u8], StateError> {
        self.take(super::STATE_PAGE_BYTES)
    }

    /// Nothing may follow.
    pub(crate) fn finish(&self) -> Result<(), StateError> {
        self.check("bytes after the end", self.at == self.bytes.len())
    }
}

/// A value with one spelling.
pub(crate) trait Plain: Sized {
    fn write(&self, out: &mut Writer);
    fn read(input: &mut Reader<'_>) -> Result<Self, StateError>;
}

/// Structs: every field, in this order.
macro_rules! plain {
    ($($name:ident { $($field:ident),* $(,)? })*) => {$(
        impl Plain for $name {
            fn write(&self, out: &mut Writer) {
                let Self { $($field),* } = self;
                $($field.write(out);)*
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
                Ok(Self { $($field: Plain::read(input)?),* })
            }
        }
    )*};
}

/// Enums: a tag, then the fields of the variant.
macro_rules! tagged {
    ($($name:ident { $($tag:literal $variant:ident $({ $($field:ident),* })? $(($($item:ident),*))?,)* })*) => {$(
        impl Plain for $name {
            fn write(&self, out: &mut Writer) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(($($item),*))? => {
                        out.out.push($tag);
                        $($($field.write(out);)*)?
                        $($($item.write(out);)*)?
                    })*
                }
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
                match u8::read(input)? {
                    $($tag => {
                        $($(let $field = Plain::read(input)?;)*)?
                        $($(let $item = Plain::read(input)?;)*)?
                        Ok(Self::$variant $({ $($field),* })? $(($($item),*))?)
                    })*
                    _ => Err(input.wrong(concat!("a tag of ", stringify!($name)))),
                }
            }
        }
    )*};
}

pub(crate) use {plain, tagged};

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Plain for $number {
            fn write(&self, out: &mut Writer) {
                out.out.extend_from_slice(&self.to_le_bytes());
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
                Ok(Self::from_le_bytes(input.array()?))
            }
        }
    )*};
}

numbers!(u8, u16, u32, i32, i64);

/// A counter: see [`MOST`].
impl Plain for u64 {
    fn write(&self, out: &mut Writer) {
        out.raw(*self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let value = input.raw()?;
        input.check("a counter beyond 2^62", value <= MOST)?;
        Ok(value)
    }
}

impl Plain for bool {
    fn write(&self, out: &mut Writer) {
        out.out.push(u8::from(*self));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        match u8::read(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(input.wrong("a flag")),
        }
    }
}

impl<T: Plain> Plain for Option<T> {
    fn write(&self, out: &mut Writer) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        Ok(if bool::read(input)? { Some(T::read(input)?) } else { None })
    }
}

impl<T: Plain> Plain for Vec<T> {
    fn write(&self, out: &mut Writer) {
        out.count(self.len());
        self.iter().for_each(|item| item.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let count = input.count()?;
        let mut items = Self::new();
        for _ in 0..count {
            items.push(T::read(input)?);
        }
        Ok(items)
    }
}

impl<T: Plain> Plain for Box<T> {
    fn write(&self, out: &mut Writer) {
        (**self).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        T::read(input).map(Self::new)
    }
}

impl Plain for Box<[u8]> {
    fn write(&self, out: &mut Writer) {
        out.blob(self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        input.blob().map(Into::into)
    }
}

impl<T: Plain + Copy + Default, const N: usize> Plain for [T; N] {
    fn write(&self, out: &mut Writer) {
        self.iter().for_each(|item| item.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::read(input)?;
        }
        Ok(items)
    }
}

impl<A: Plain, B: Plain> Plain for (A, B) {
    fn write(&self, out: &mut Writer) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        Ok((A::read(input)?, B::read(input)?))
    }
}

macro_rules! wrapped {
    ($($name:ident)*) => {$(
        impl Plain for $name {
            fn write(&self, out: &mut Writer) {
                self.0.write(out);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
                Plain::read(input).map(Self)
            }
        }
    )*};
}

wrapped! { Cycles Frame LaneId SessionId Priority Digest }

plain! {
    ChannelId { owner, index }
    CoroutineName { session, reference }
}

impl Plain for CoroutineRef {
    fn write(&self, out: &mut Writer) {
        let Self { slot, generation } = self;
        slot.write(out);
        generation.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let (slot, generation) = (u32::read(input)?, u32::read(input)?);
        input.check("a generation beyond the last", generation <= Self::LAST_GENERATION)?;
        Ok(Self { slot, generation })
    }
}

impl Plain for Weight {
    fn write(&self, out: &mut Writer) {
        self.get().write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let weight = u16::read(input)?;
        Self::new(weight).ok_or(input.wrong("a weight"))
    }
}

impl Plain for LatencyClass {
    fn write(&self, out: &mut Writer) {
        out.out.push(*self as u8);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, StateError> {
        let code = u8::read(input)?;
        Self::ALL.get(usize::from(code)).copied().ok_or(input.wrong("a latency class"))
    }
}
