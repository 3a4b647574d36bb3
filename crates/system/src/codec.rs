//! The encoding of a machine's description (`identity`) and of its state (`state`).
//!
//! [`record!`], [`variants!`] and [`codes!`] make writer and reader from one list of fields. The
//! list is a pattern without `..`: a field that is added to a struct and not to its list does not
//! compile. Numbers are little-endian, counts precede lists, and every value has one encoding. The
//! macros use this module's names, which their callers import.
//!
//! Contract: reading treats its input as untrusted. It allocates no more than the bytes hold, and
//! limits the counters of a state so that no run overflows them.

use crate::spec::MachineSpec;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use wavelock_abi::{
    ChannelId, CoroutineName, CoroutineRef, Cycles, Frame, LaneId, LatencyClass, Priority,
    SessionId, Weight,
};
use wavelock_kernel::{Activation, OverrunPolicy};
use wavelock_trace::Digest;

/// The largest value of a counter or an amount of cycles in a state.
const MAX_COUNTER: u64 = 1 << 62;

/// How wide numbers are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// As wide as their type; 32 bits for a count. Used by states.
    Native,
    /// Eight bytes each, whatever the type. Used by descriptions.
    Word,
}

/// Why bytes cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CodecError {
    /// They end too early.
    Truncated { at: usize, needed: u64, left: u64 },
    /// A value is out of its range.
    Malformed { at: usize, what: &'static str },
}

impl CodecError {
    /// The offset of the error.
    pub(crate) const fn at(self) -> usize {
        match self {
            Self::Truncated { at, .. } | Self::Malformed { at, .. } => at,
        }
    }
}

/// Appends encoded values.
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
    width: Width,
    /// See [`MachineSpec::has_late_waits`].
    pub(crate) has_late_waits: bool,
}

impl Writer {
    pub(crate) const fn new(width: Width) -> Self {
        Self { bytes: Vec::new(), width, has_late_waits: false }
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn number<const N: usize>(&mut self, native: [u8; N], word: u64) {
        match self.width {
            Width::Native => self.raw(&native),
            Width::Word => self.raw(&word.to_le_bytes()),
        }
    }

    pub(crate) fn count(&mut self, count: usize) {
        u32::try_from(count).expect("limits keep every count below 2^32").write(self);
    }

    /// A byte string with its length.
    pub(crate) fn blob(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.raw(bytes);
    }
}

/// Decodes values from bytes that may be hostile.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    width: Width,
    /// The machine whose state this is: what it determines is not in the bytes.
    spec: Option<&'a MachineSpec>,
    /// See [`MachineSpec::has_late_waits`].
    pub(crate) has_late_waits: bool,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8], width: Width) -> Self {
        Self { bytes, at: 0, width, spec: None, has_late_waits: false }
    }

    /// The same reader, for the state of a machine of `spec`.
    pub(crate) fn with_spec(self, spec: &'a MachineSpec) -> Self {
        Self { spec: Some(spec), has_late_waits: spec.has_late_waits(), ..self }
    }

    pub(crate) const fn spec(&self) -> &'a MachineSpec {
        self.spec.expect("lanes and sessions are read with their machine's spec")
    }

    /// An error at this offset.
    pub(crate) const fn malformed(&self, what: &'static str) -> CodecError {
        CodecError::Malformed { at: self.at, what }
    }

    /// Refuses the bytes unless `holds`.
    pub(crate) const fn check(&self, what: &'static str, holds: bool) -> Result<(), CodecError> {
        if holds { Ok(()) } else { Err(self.malformed(what)) }
    }

    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let left = self.bytes.len() - self.at;
        if count > left {
            let (needed, left) = (count as u64, left as u64);
            return Err(CodecError::Truncated { at: self.at, needed, left });
        }
        let bytes = &self.bytes[self.at..self.at + count];
        self.at += count;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// How many items follow. Each takes at least a byte (a word, in a description), so there are
    /// never more of them than that.
    pub(crate) fn count(&mut self) -> Result<usize, CodecError> {
        let count = u32::read(self)? as usize;
        let least = if self.width == Width::Word { 8 } else { 1 };
        self.check("a count beyond the end", count <= (self.bytes.len() - self.at) / least)?;
        Ok(count)
    }

    pub(crate) fn blob(&mut self) -> Result<&'a [u8], CodecError> {
        let count = u32::read(self)? as usize;
        self.take(count)
    }

    pub(crate) const fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Refuses bytes after the end.
    pub(crate) const fn finish(&self) -> Result<(), CodecError> {
        self.check("bytes after the end", self.is_at_end())
    }
}

/// A value with one encoding.
pub(crate) trait Codec: Sized {
    fn write(&self, out: &mut Writer);
    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError>;
}

/// Numbers for which every bit pattern is valid, and clock values that may be [`Cycles::MAX`].
/// Other numbers of 64 bits are counters, limited to [`MAX_COUNTER`].
pub(crate) trait Unlimited: Sized {
    fn write(&self, out: &mut Writer);
    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError>;
}

/// A part of a loaded machine that running changes: its state is written, and read into a part that
/// was loaded from the same spec.
pub(crate) trait Update {
    fn write(&self, out: &mut Writer);
    fn update(&mut self, input: &mut Reader<'_>) -> Result<(), CodecError>;
}

/// Structs: every field in this order, by the trait named behind it or else by [`Codec`]. A field
/// `= function` is not in the bytes; the function takes it from the reader's spec.
macro_rules! record {
    ($($name:ident { $($field:ident $(as $codec:ident)? $(= $given:path)?),* $(,)? })*) => {$(
        impl Codec for $name {
            fn write(&self, out: &mut Writer) {
                let Self { $($field),* } = self;
                $($crate::codec::record!(@write out $field $(as $codec)? $(= $given)?);)*
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
                Ok(Self {
                    $($field: $crate::codec::record!(@read input $(as $codec)? $(= $given)?)),*
                })
            }
        }
    )*};
    (@write $out:ident $field:ident) => { Codec::write($field, $out) };
    (@write $out:ident $field:ident as $codec:ident) => { $codec::write($field, $out) };
    (@write $out:ident $field:ident = $given:path) => { let _ = $field; };
    (@read $input:ident) => { Codec::read($input)? };
    (@read $input:ident as $codec:ident) => { $codec::read($input)? };
    (@read $input:ident = $given:path) => { $given($input)? };
}

/// Enums with fields: a tag of one byte, then the fields of the variant.
macro_rules! variants {
    ($($name:ident {
        $($tag:literal $variant:ident $({ $($field:ident),* })? $(($($item:ident),*))?,)*
    })*) => {$(
        impl Codec for $name {
            fn write(&self, out: &mut Writer) {
                match self {
                    $(Self::$variant $({ $($field),* })? $(($($item),*))? => {
                        Codec::write(&($tag as u8), out);
                        $($(Codec::write($field, out);)*)?
                        $($(Codec::write($item, out);)*)?
                    })*
                }
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
                match <u8 as Codec>::read(input)? {
                    $($tag => {
                        $($(let $field = Codec::read(input)?;)*)?
                        $($(let $item = Codec::read(input)?;)*)?
                        Ok(Self::$variant $({ $($field),* })? $(($($item),*))?)
                    })*
                    _ => Err(input.malformed(concat!("an unknown ", stringify!($name)))),
                }
            }
        }
    )*};
}

/// Values encoded as another type: the conversion, and the conversion back, which may fail.
macro_rules! converted {
    ($($name:ident as $as:ty: $to:expr, $from:expr, $what:expr;)*) => {$(
        impl Codec for $name {
            fn write(&self, out: &mut Writer) {
                let convert: fn(&$name) -> $as = $to;
                Codec::write(&convert(self), out);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
                let convert: fn($as) -> Option<$name> = $from;
                let value = Codec::read(input)?;
                convert(value).ok_or(input.malformed($what))
            }
        }
    )*};
}

/// Enums without fields: their code, and the conversion back.
macro_rules! codes {
    ($($name:ident: $from_code:expr;)*) => {
        $crate::codec::converted! {
            $($name as u8: |value| *value as u8, $from_code,
                concat!("an unknown ", stringify!($name));)*
        }
    };
}

/// Tuple structs of one field, by the named trait.
macro_rules! newtypes {
    ($($codec:ident: $($name:ident)*;)*) => {$($(
        impl Codec for $name {
            fn write(&self, out: &mut Writer) {
                $codec::write(&self.0, out);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
                $codec::read(input).map(Self)
            }
        }
    )*)*};
}

/// Parts of a loaded machine: the listed fields are state, in this order; those behind `fixed` are
/// not, because the spec determines them, they follow from others, or they are empty at a boundary.
macro_rules! parts {
    ($($name:ident {
        $($field:ident $(as $codec:ident)?),* $(,)? fixed $($other:ident),* $(,)?
    })*) => {$(
        impl Update for $name {
            fn write(&self, out: &mut Writer) {
                let Self { $($field,)* $($other: _),* } = self;
                $($crate::codec::record!(@write out $field $(as $codec)?);)*
            }

            fn update(&mut self, input: &mut Reader<'_>) -> Result<(), CodecError> {
                $($crate::codec::parts!(@update input (self.$field) $(as $codec)?);)*
                Ok(())
            }
        }
    )*};
    (@update $input:ident ($field:expr)) => { $field = Codec::read($input)? };
    (@update $input:ident ($field:expr) as $codec:ident) => {
        $codec::update(&mut $field, $input)?
    };
}

pub(crate) use {codes, converted, newtypes, parts, record, variants};

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl Codec for $number {
            fn write(&self, out: &mut Writer) {
                out.number(self.to_le_bytes(), *self as u64);
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
                if input.width == Width::Native {
                    return Ok(Self::from_le_bytes(input.array()?));
                }
                let error = input.malformed("a number out of its range");
                Self::try_from(<u64 as Unlimited>::read(input)?).map_err(|_| error)
            }
        }
    )*};
}

numbers!(u8, u16, u32, i32, i64);

/// A counter. Descriptions have no limit here: what is too long is refused when they are loaded.
impl Codec for u64 {
    fn write(&self, out: &mut Writer) {
        out.raw(&self.to_le_bytes());
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        let value = <Self as Unlimited>::read(input)?;
        let is_counter = value <= MAX_COUNTER || input.width == Width::Word;
        input.check("a counter beyond 2^62", is_counter)?;
        Ok(value)
    }
}

impl Unlimited for u64 {
    fn write(&self, out: &mut Writer) {
        out.raw(&self.to_le_bytes());
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self::from_le_bytes(input.array()?))
    }
}

impl Unlimited for Cycles {
    fn write(&self, out: &mut Writer) {
        Unlimited::write(&self.0, out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        Unlimited::read(input).map(Self)
    }
}

impl<A: Unlimited, B: Unlimited> Unlimited for (A, B) {
    fn write(&self, out: &mut Writer) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok((A::read(input)?, B::read(input)?))
    }
}

impl<T: Codec> Codec for Option<T> {
    fn write(&self, out: &mut Writer) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(if bool::read(input)? { Some(T::read(input)?) } else { None })
    }
}

macro_rules! lists {
    ($($list:ident)*) => {$(
        impl<T: Codec> Codec for $list<T> {
            fn write(&self, out: &mut Writer) {
                out.count(self.len());
                self.iter().for_each(|item| item.write(out));
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
                // Grows with what was read, so a forged count reserves nothing.
                (0..input.count()?).map(|_| T::read(input)).collect()
            }
        }
    )*};
}

lists! { Vec VecDeque }

impl<T: Codec + Copy + Default, const N: usize> Codec for [T; N] {
    fn write(&self, out: &mut Writer) {
        self.iter().for_each(|item| item.write(out));
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = T::read(input)?;
        }
        Ok(items)
    }
}

macro_rules! tuples {
    ($(($($name:ident $at:tt),*))*) => {$(
        impl<$($name: Codec),*> Codec for ($($name,)*) {
            fn write(&self, out: &mut Writer) {
                $(self.$at.write(out);)*
            }

            fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
                Ok(($($name::read(input)?,)*))
            }
        }
    )*};
}

tuples! { (A 0, B 1) (A 0, B 1, C 2) }

impl<T: Update> Update for Vec<T> {
    fn write(&self, out: &mut Writer) {
        self.iter().for_each(|item| item.write(out));
    }

    fn update(&mut self, input: &mut Reader<'_>) -> Result<(), CodecError> {
        self.iter_mut().try_for_each(|item| item.update(input))
    }
}

impl<T: Update> Update for Option<Box<T>> {
    fn write(&self, out: &mut Writer) {
        self.iter().for_each(|item| item.write(out));
    }

    fn update(&mut self, input: &mut Reader<'_>) -> Result<(), CodecError> {
        self.iter_mut().try_for_each(|item| item.update(input))
    }
}

newtypes! { Codec: Cycles Frame LaneId SessionId Priority Digest; }

record! {
    ChannelId { owner, index }
    CoroutineName { session, reference }
}

codes! {
    LatencyClass: |code| LatencyClass::ALL.get(usize::from(code)).copied();
    OverrunPolicy: OverrunPolicy::from_code;
    Activation: |code| [Activation::Sporadic, Activation::ConstantBandwidth].get(usize::from(code)).copied();
}

converted! {
    bool as u8: |flag| u8::from(*flag), |code| [false, true].get(usize::from(code)).copied(),
        "a flag";
    usize as u64: |number| *number as u64, |number| usize::try_from(number).ok(),
        "a number out of its range";
    Weight as u16: |weight| weight.get(), Weight::new, "a weight";
    CoroutineRef as (u32, u32): |of| (of.slot, of.generation), |(slot, generation)| {
        (generation <= CoroutineRef::LAST_GENERATION).then_some(CoroutineRef { slot, generation })
    }, "a generation beyond the last";
    String as Box<[u8]>: |text| text.as_bytes().into(), |bytes| String::from_utf8(bytes.into()).ok(),
        "a text in UTF-8";
}

impl<T: Codec> Codec for Box<T> {
    fn write(&self, out: &mut Writer) {
        (**self).write(out);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        T::read(input).map(Self::new)
    }
}

impl Codec for Box<[u8]> {
    fn write(&self, out: &mut Writer) {
        out.blob(self);
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, CodecError> {
        input.blob().map(Into::into)
    }
}
