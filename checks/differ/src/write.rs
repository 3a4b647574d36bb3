//! Writes WebAssembly: the bytes of single instructions, and the list of types.

use crate::random::Random;
use wasm_encoder::ValType::{self, F32, F64, I32, I64};
use wasm_encoder::{Encode, TypeSection};

/// Parameters and results.
pub(crate) type Signature = (Vec<ValType>, Vec<ValType>);

/// The types of a module, each once.
#[derive(Default)]
pub(crate) struct Types(Vec<Signature>);

impl Types {
    pub(crate) fn index(&mut self, parameters: &[ValType], results: &[ValType]) -> u32 {
        let same = |(found, given): &Signature| found == parameters && given == results;
        let place = self.0.iter().position(same).unwrap_or_else(|| {
            self.0.push((parameters.to_vec(), results.to_vec()));
            self.0.len() - 1
        });
        place as u32
    }

    pub(crate) fn section(&self) -> TypeSection {
        let mut section = TypeSection::new();
        for (parameters, results) in &self.0 {
            section.ty().function(parameters.iter().copied(), results.iter().copied());
        }
        section
    }
}

/// The instructions of a function.
#[derive(Default)]
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
}

impl Code {
    pub(crate) fn byte(&mut self, byte: u8) {
        self.bytes.push(byte);
    }

    pub(crate) fn leb(&mut self, number: u32) {
        number.encode(&mut self.bytes);
    }

    /// An instruction with one index.
    pub(crate) fn local(&mut self, byte: u8, index: u32) {
        self.byte(byte);
        self.leb(index);
    }

    /// A load or a store.
    pub(crate) fn memory(&mut self, byte: u8, offset: u32) {
        self.byte(byte);
        self.leb(0);
        self.leb(offset);
    }

    /// An instruction of the second page.
    pub(crate) fn bulk(&mut self, number: u32, operands: &[u32]) {
        self.byte(0xfc);
        self.leb(number);
        operands.iter().for_each(|operand| self.leb(*operand));
    }

    pub(crate) fn i32(&mut self, number: i32) {
        self.byte(0x41);
        number.encode(&mut self.bytes);
    }

    pub(crate) fn i64(&mut self, number: i64) {
        self.byte(0x42);
        number.encode(&mut self.bytes);
    }

    /// The number 1.
    pub(crate) fn constant_one(&mut self, kind: ValType) {
        if kind == I32 { self.i32(1) } else { self.i64(1) }
    }

    /// A constant, mostly a small one or one at the end of a range.
    pub(crate) fn constant(&mut self, kind: ValType, random: &mut Random) {
        let word = match random.below(8) {
            0 => 0,
            1..=4 => random.below(40).wrapping_sub(8),
            5 => (1u64 << random.below(64)).wrapping_sub(random.below(2)),
            6 => [0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, u64::MAX]
                [random.below(6) as usize],
            _ => random.next(),
        };
        match kind {
            I32 => self.i32(word as i32),
            I64 => self.i64(word as i64),
            F32 => {
                self.byte(0x43);
                self.bytes.extend(single(word).to_le_bytes());
            }
            F64 => {
                self.byte(0x44);
                self.bytes.extend(double(word).to_le_bytes());
            }
            _ => unreachable!("numbers only"),
        }
    }

    /// A block, loop or if with this signature.
    pub(crate) fn open(
        &mut self,
        byte: u8,
        types: &mut Types,
        parameters: &[ValType],
        results: &[ValType],
    ) {
        self.byte(byte);
        match (parameters, results) {
            ([], []) => self.byte(0x40),
            ([], [one]) => one.encode(&mut self.bytes),
            _ => i64::from(types.index(parameters, results)).encode(&mut self.bytes),
        }
    }
}

fn single(word: u64) -> f32 {
    match word {
        0x7fff => f32::NAN,
        0x8000 => f32::INFINITY,
        0xffff => -0.0,
        _ => word as i32 as f32 / 4.0,
    }
}

fn double(word: u64) -> f64 {
    match word {
        0x7fff => f64::NAN,
        0x8000 => f64::NEG_INFINITY,
        0xffff => -0.0,
        _ => word as i64 as f64 / 4.0,
    }
}
