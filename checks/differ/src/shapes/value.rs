//! Values: expressions that leave one value on the stack, and calls.

use super::{GLOBALS, IMPORTS, LEAVES, Maker, kind};
use crate::write::Signature;
use wasm_encoder::ValType::{self, F32, F64, I32, I64};

impl Maker<'_> {
    /// Pushes a local, or a constant if there is none.
    pub(super) fn leaf(&mut self, kind: ValType) {
        match self.readable(kind) {
            Some(local) if !self.one_in(4) => self.code.local(0x20, local),
            _ => self.code.constant(kind, self.random),
        }
        self.stack.push(kind);
    }

    pub(super) fn number(&mut self, number: i64) {
        self.code.i32(number as i32);
        self.stack.push(I32);
    }

    /// Pushes a value.
    pub(super) fn value(&mut self, kind: ValType, depth: u32) {
        if depth == 0 || self.one_in(3) {
            return self.leaf(kind);
        }
        match self.below(16) {
            0..=4 => {
                self.value(kind, depth - 1);
                self.value(kind, depth - 1);
                self.binary(kind);
            }
            5 | 6 => self.load(kind),
            7 if kind == I32 => self.condition(depth - 1),
            8 => self.convert(kind, depth - 1),
            9 => {
                self.value(kind, depth - 1);
                self.unary(kind);
            }
            10 => {
                self.value(kind, depth - 1);
                self.value(kind, depth - 1);
                self.condition(depth - 1);
                self.code.byte(0x1b);
                self.pop(3);
                self.stack.push(kind);
            }
            11 => self.global_get(kind),
            12 => {
                self.value(kind, depth - 1);
                if let Some(local) = self.settable(kind) {
                    self.code.local(0x22, local);
                }
            }
            13 => {
                self.condition(depth - 1);
                self.choice(&[], &[kind], depth - 1);
            }
            14 => self.rotated(kind),
            _ => self.leaf(kind),
        }
    }

    /// Shift or rotation by a constant, multiplied or added: the fused arithmetic.
    pub(super) fn rotated(&mut self, kind: ValType) {
        match kind {
            I32 => {}
            F32 => return self.multiplied(kind, 0x94, 0x92),
            F64 => return self.multiplied(kind, 0xa2, 0xa0),
            _ => return self.multiplied(kind, 0x7e, 0x7c),
        }
        let amount = self.below(33) as i64;
        let inner = [0x6c, 0x74, 0x76, 0x77, 0x6a][self.below(5) as usize];
        let outer = [0x6a, 0x73][self.below(2) as usize];
        let first = self.one_in(2);
        if first {
            self.leaf(I32);
        }
        self.leaf(I32);
        if inner == 0x6a {
            self.leaf(I32)
        } else {
            self.number(amount)
        }
        self.code.byte(inner);
        self.pop(1);
        if !first {
            self.leaf(I32);
        }
        self.code.byte(outer);
        self.pop(1);
    }

    /// A product and a sum of leaves, the product first or second.
    fn multiplied(&mut self, kind: ValType, multiply: u8, add: u8) {
        let first = self.one_in(2);
        if first {
            self.leaf(kind);
        }
        let depth = self.below(2) as u32;
        self.value(kind, depth);
        self.value(kind, depth);
        self.code.byte(multiply);
        self.pop(1);
        if !first {
            self.leaf(kind);
        }
        self.code.byte(add);
        self.pop(1);
    }

    pub(super) fn pop(&mut self, count: usize) {
        self.stack.truncate(self.stack.len() - count);
    }

    /// A binary operation of the two values of `kind` on top.
    pub(super) fn binary(&mut self, kind: ValType) {
        let (first, count) = match kind {
            I32 => (0x6a, 15),
            I64 => (0x7c, 15),
            F32 => (0x92, 7),
            _ => (0xa0, 7),
        };
        // Additions are what compilers make most of.
        let mut place = if self.one_in(3) { 0 } else { self.below(count) as u8 };
        let divides = count == 15 && (3..7).contains(&place);
        if divides && !self.one_in(8) {
            // By an odd number, and not signed, so that it does not trap.
            self.code.constant_one(kind);
            self.code.byte(if kind == I32 { 0x72 } else { 0x84 });
            place = if place < 5 { 4 } else { 6 };
        }
        self.code.byte(first + place);
        self.pop(1);
    }

    pub(super) fn unary(&mut self, kind: ValType) {
        let byte = match kind {
            I32 => [0x67, 0x68, 0x69, 0xc0, 0xc1][self.below(5) as usize],
            I64 => [0x79, 0x7a, 0x7b, 0xc2, 0xc3, 0xc4][self.below(6) as usize],
            F32 => 0x8b + self.below(7) as u8,
            _ => 0x99 + self.below(7) as u8,
        };
        self.code.byte(byte);
    }

    /// A value of `kind` converted from another; those that can trap are rare.
    pub(super) fn convert(&mut self, kind: ValType, depth: u32) {
        let (source, bytes): (ValType, &[u8]) = match (kind, self.below(8)) {
            (I32, 0..=3) => (I64, &[0xa7]),
            (I32, 4) => (F32, &[0xbc]),
            (I32, 5) => (F64, &[0xfc, 2]),
            (I32, 6) => (F32, &[0xfc, 0]),
            (I64, 0 | 1) => (I32, &[0xac]),
            (I64, 2 | 3) => (I32, &[0xad]),
            (I64, 4) => (F64, &[0xbd]),
            (I64, 5) => (F64, &[0xfc, 6]),
            (I64, 6) => (F32, &[0xfc, 4]),
            (F32, 0) => (F64, &[0xb6]),
            (F32, 1) => (I32, &[0xbe]),
            (F32, 2..=4) => (I32, &[0xb2]),
            (F32, _) => (I64, &[0xb4]),
            (F64, 0) => (F32, &[0xbb]),
            (F64, 1) => (I64, &[0xbf]),
            (F64, 2..=4) => (I32, &[0xb7]),
            (F64, _) => (I64, &[0xb9]),
            (I32, _) => return self.truncate(I32, depth),
            _ => return self.truncate(I64, depth),
        };
        // Signed and unsigned are neighbours, except where there is one of its kind.
        let pair = match bytes {
            [0xfc, _] | [0xb2 | 0xb4 | 0xb7 | 0xb9] => u8::from(self.one_in(2)),
            _ => 0,
        };
        self.value(source, depth);
        let (last, rest) = bytes.split_last().unwrap_or((&0, &[]));
        self.code.bytes.extend(rest);
        self.code.byte(last + pair);
        self.pop(1);
        self.stack.push(kind);
    }

    /// A truncation that traps on a NaN and beyond the range: mostly of a small number.
    pub(super) fn truncate(&mut self, kind: ValType, depth: u32) {
        let (source, first) = match (kind, self.one_in(2)) {
            (I32, true) => (F32, 0xa8),
            (I32, false) => (F64, 0xaa),
            (_, true) => (F32, 0xae),
            _ => (F64, 0xb0),
        };
        if self.one_in(4) {
            self.value(source, depth);
        } else {
            self.leaf(I32);
            self.number(0xff);
            self.code.byte(0x71);
            self.code.byte(if source == F32 { 0xb3 } else { 0xb8 });
            self.pop(2);
            self.stack.push(source);
        }
        let unsigned = self.below(2) as u8;
        self.code.byte(first + unsigned);
        self.pop(1);
        self.stack.push(kind);
    }

    /// Pushes an `i32` to branch on, mostly a comparison.
    pub(super) fn condition(&mut self, depth: u32) {
        match self.below(12) {
            0 => return self.leaf(I32),
            1 => {
                let (kind, byte) = if self.one_in(2) { (I32, 0x45) } else { (I64, 0x50) };
                self.leaf(kind);
                self.code.byte(byte);
                self.pop(1);
                self.stack.push(I32);
                return;
            }
            2 if self.call_import_for(I32) => {}
            2 | 3 => self.float_compare(),
            4 => self.value(I32, depth.min(2)),
            _ => {
                let kind = if self.one_in(3) { I64 } else { I32 };
                self.value(kind, depth.min(1));
                if self.one_in(2) {
                    self.leaf(kind)
                } else {
                    self.small(kind)
                }
                self.compare(kind);
            }
        }
        if self.one_in(5) {
            self.code.byte(0x45);
        }
    }

    pub(super) fn small(&mut self, kind: ValType) {
        let number = self.below(24) as i64 - 4;
        if kind == I32 {
            self.code.i32(number as i32)
        } else {
            self.code.i64(number)
        }
        self.stack.push(kind);
    }

    pub(super) fn compare(&mut self, kind: ValType) {
        let first = if kind == I32 { 0x46 } else { 0x51 };
        let place = self.below(10) as u8;
        self.code.byte(first + place);
        self.pop(2);
        self.stack.push(I32);
    }

    pub(super) fn float_compare(&mut self) {
        let (kind, first) = if self.one_in(2) { (F32, 0x5b) } else { (F64, 0x61) };
        self.leaf(kind);
        self.leaf(kind);
        let place = self.below(6) as u8;
        self.code.byte(first + place);
        self.pop(2);
        self.stack.push(I32);
    }

    pub(super) fn global_get(&mut self, kind: ValType) {
        let globals = (0..GLOBALS.len() as u32).filter(|global| GLOBALS[*global as usize] == kind);
        let globals: Vec<u32> = globals.collect();
        if globals.is_empty() {
            return self.leaf(kind);
        }
        let global = globals[self.below(globals.len() as u64) as usize];
        self.code.local(0x23, global);
        self.stack.push(kind);
    }

    /// Pushes an address, mostly inside memory, in one of the spellings that lowering knows.
    pub(super) fn address(&mut self) {
        match self.below(10) {
            0 | 1 => {
                let place = self.below(2_048) as i64;
                self.number(place);
            }
            2 => self.leaf(I32),
            3..=5 => {
                self.masked();
                let (place, add) = (self.below(4_096) as i64, self.one_in(2));
                self.number(if add { place } else { -place.min(8) });
                self.code.byte(0x6a);
                self.pop(1);
            }
            6..=8 => {
                self.masked();
                self.masked();
                if self.one_in(2) {
                    let shift = self.below(5) as i64;
                    self.number(shift);
                    self.code.byte(0x74);
                    self.pop(1);
                }
                self.code.byte(0x6a);
                self.pop(1);
            }
            _ => self.masked(),
        }
    }

    pub(super) fn masked(&mut self) {
        self.leaf(I32);
        if !self.one_in(6) {
            let mask = [0xff, 0xff8, 0x7fff][self.below(3) as usize];
            self.number(mask);
            self.code.byte(0x71);
            self.pop(1);
        }
    }

    /// An offset: mostly near, sometimes beyond 16 bits.
    pub(super) fn offset(&mut self) -> u32 {
        match self.below(10) {
            0 => 65_536 + self.below(1_000) as u32,
            1..=5 => 0,
            _ => self.below(64) as u32,
        }
    }

    pub(super) fn load(&mut self, kind: ValType) {
        let bytes: &[u8] = match kind {
            I32 => &[0x28, 0x28, 0x28, 0x2c, 0x2d, 0x2e, 0x2f],
            I64 => &[0x29, 0x29, 0x29, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35],
            F32 => &[0x2a],
            _ => &[0x2b],
        };
        let byte = bytes[self.below(bytes.len() as u64) as usize];
        self.address();
        let offset = self.offset();
        self.code.memory(byte, offset);
        self.pop(1);
        self.stack.push(kind);
    }

    pub(super) fn store(&mut self) {
        let kind = kind(self.random);
        let bytes: &[u8] = match kind {
            I32 => &[0x36, 0x36, 0x3a, 0x3b],
            I64 => &[0x37, 0x37, 0x3c, 0x3d, 0x3e],
            F32 => &[0x38],
            _ => &[0x39],
        };
        let byte = bytes[self.below(bytes.len() as u64) as usize];
        self.address();
        match self.below(4) {
            0 if kind == I32 || kind == I64 => self.small(kind),
            1 => self.value(kind, 2),
            _ => self.leaf(kind),
        }
        let offset = self.offset();
        self.code.memory(byte, offset);
        self.pop(2);
    }

    /// `memory[c] += k`, as compilers write a counter in memory; or a load whose address is a
    /// constant.
    pub(super) fn update(&mut self) {
        let wide = self.one_in(3);
        let (load, store, add) = if wide { (0x29, 0x37, 0x7c) } else { (0x28, 0x36, 0x6a) };
        let kind = if wide { I64 } else { I32 };
        let place = self.below(64) as i64 * 8;
        let by_local = self.one_in(3);
        if by_local {
            self.masked()
        } else {
            self.number(place)
        }
        if self.one_in(4) {
            self.leaf(kind);
            self.number(place);
            self.code.memory(load, 0);
            self.pop(1);
            self.stack.push(kind);
        } else {
            if self.one_in(2) {
                self.leaf(I32)
            } else {
                self.number(place)
            }
            self.code.memory(load, 0);
            self.pop(1);
            self.stack.push(kind);
            if self.one_in(3) { self.leaf(kind) } else { self.small(kind) }
        }
        self.code.byte(add);
        self.pop(1);
        self.code.memory(store, 0);
        self.pop(2);
    }

    /// Calls an import that gives `kind` alone; false if none was chosen.
    pub(super) fn call_import_for(&mut self, kind: ValType) -> bool {
        let fit = self.callable.iter().filter(|(index, signature)| {
            (*index as usize) < IMPORTS.len() && signature.1 == [kind]
        });
        let fit: Vec<(u32, Signature)> = fit.cloned().collect();
        if fit.is_empty() {
            return false;
        }
        let (index, signature) = fit[self.below(fit.len() as u64) as usize].clone();
        self.call(index, &signature);
        true
    }

    pub(super) fn arguments(&mut self, kinds: &[ValType]) {
        for kind in kinds {
            if self.one_in(5) { self.value(*kind, 1) } else { self.leaf(*kind) }
        }
    }

    pub(super) fn call(&mut self, index: u32, signature: &Signature) {
        self.arguments(&signature.0);
        self.code.local(0x10, index);
        self.pop(signature.0.len());
        self.stack.extend(&signature.1);
    }

    /// A call of anything, or through the table; the results stay.
    pub(super) fn call_any(&mut self) {
        let choice = self.below(self.callable.len() as u64) as usize;
        let (index, signature) = self.callable[choice].clone();
        let leaves = IMPORTS.len() as u32..IMPORTS.len() as u32 + LEAVES;
        if leaves.contains(&index) && self.one_in(2) {
            self.arguments(&signature.0);
            self.table_index(index - leaves.start);
            self.code.local(0x11, self.types.index(&signature.0, &signature.1));
            self.code.leb(0);
            self.pop(signature.0.len() + 1);
            self.stack.extend(&signature.1);
        } else {
            self.call(index, &signature);
        }
    }

    /// Where the table has a function; rarely where it has another, or none.
    pub(super) fn table_index(&mut self, leaf: u32) {
        if self.one_in(8) {
            self.leaf(I32);
            self.number(7);
            self.code.byte(0x71);
            self.pop(1);
        } else {
            self.number(i64::from(leaf));
        }
    }

    /// Ends the function with a tail call of one that has its results.
    pub(super) fn tail_call(&mut self) -> bool {
        let fit =
            self.callable.iter().filter(|(_, signature)| signature.1 == self.results).cloned();
        let fit: Vec<(u32, Signature)> = fit.collect();
        if fit.is_empty() || !self.one_in(3) {
            return false;
        }
        let (index, signature) = fit[self.below(fit.len() as u64) as usize].clone();
        let leaves = IMPORTS.len() as u32..IMPORTS.len() as u32 + LEAVES;
        self.arguments(&signature.0);
        if leaves.contains(&index) && self.one_in(2) {
            self.table_index(index - leaves.start);
            self.code.local(0x13, self.types.index(&signature.0, &signature.1));
            self.code.leb(0);
        } else {
            self.code.local(0x12, index);
        }
        self.code.byte(0x0b);
        true
    }
}
