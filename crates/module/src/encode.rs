//! Encoding: resolves costs and targets, and turns a function's instructions into words.
//!
//! A function is final once it is encoded, except for the entries of the functions it calls, which
//! are filled in at the end. The result is a [`Draft`], which cannot be run until `verify` accepts
//! it.

use alloc::vec::Vec;

use wavelock_abi::{Cycles, MAX_GAP};

use crate::code::{BLOCK_CLASSES, Function, StopPoint};
use crate::instruction::{Block, Body, Flow, Label, NONE};
use crate::op::{Form, Op, TableEntry, Word};
use crate::peephole::{self, Peepholes};

/// Lowered code that is not verified yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Draft {
    /// All functions' words, one after the other.
    pub(crate) words: Vec<u64>,
    /// The functions that the module defines, in index order.
    pub(crate) functions: Vec<Function>,
    /// (word, byte offset in the module), ascending by word: instructions that can stop or fault.
    pub(crate) marks: Vec<(u32, u32)>,
    /// Ascending by word.
    pub(crate) stops: Vec<StopPoint>,
    /// Dead registers of stop points.
    pub(crate) dead: Vec<u16>,
    /// The cost map: (first word of a block, cycles), ascending. Every edge into the block charges
    /// that. Blocks without instructions share their first word with the next.
    pub(crate) costs: Vec<(u32, u32)>,
    /// The longest gap between safepoints, in cycles.
    pub(crate) gap: Cycles,
    /// Blocks by class of cost.
    pub(crate) blocks: [u32; BLOCK_CLASSES],
}

/// Encodes functions one after the other.
#[derive(Default)]
pub(crate) struct Encoder {
    pub(crate) words: Vec<u64>,
    pub(crate) functions: Vec<Function>,
    marks: Vec<(u32, u32)>,
    stops: Vec<StopPoint>,
    /// Lowering appends the dead registers of a stop point as it finds them.
    pub(crate) dead: Vec<u16>,
    costs: Vec<(u32, u32)>,
    pub(crate) gap: u64,
    blocks: [u32; BLOCK_CLASSES],
    /// (word that holds an entry in its lower half, function).
    calls: Vec<(u32, u32)>,
    peepholes: Peepholes,
    scratch: Scratch,
}

/// Buffers reused across functions.
#[derive(Default)]
struct Scratch {
    peephole: peephole::Scratch,
    /// By block: the charge on entering it.
    charges: Vec<u32>,
    path: Vec<u32>,
    /// By instruction: its first word; then the end of the function.
    positions: Vec<u32>,
    /// The function's part of the cost map.
    costs: Vec<(u32, u32)>,
}

impl Encoder {
    pub(crate) fn new(peepholes: Peepholes) -> Self {
        Self { peepholes, ..Self::default() }
    }

    /// Encodes the function with this index; `entry`, `end` and `cost` are filled in here.
    pub(crate) fn function(&mut self, number: u32, mut function: Function, body: &mut Body) {
        function.cost = self.count_blocks(body);
        resolve(body, &mut self.scratch.charges, &mut self.scratch.path);
        peephole::run(self.peepholes, body, &self.scratch.charges, &mut self.scratch.peephole);
        function.entry = self.words.len() as u32;
        self.lay_out(function.entry, body);
        function.end = *self.scratch.positions.last().expect("the end is the last position");
        self.scratch.costs.clear();
        for index in 0..body.instructions.len() {
            self.instruction(number, &function, body, index);
        }
        self.scratch.costs.sort_unstable();
        self.scratch.costs.dedup();
        self.costs.extend_from_slice(&self.scratch.costs);
        self.functions.push(function);
    }

    /// Counts the function's blocks by cost; returns their total cost.
    fn count_blocks(&mut self, body: &Body) -> u64 {
        let mut total = 0;
        for (index, block) in body.blocks.iter().enumerate() {
            if block.alias as usize == index {
                total += u64::from(block.cycles);
                self.blocks[(u32::BITS - block.cycles.leading_zeros()) as usize] += 1;
            }
        }
        total
    }

    /// Finds the first word of every instruction.
    fn lay_out(&mut self, entry: u32, body: &Body) {
        let positions = &mut self.scratch.positions;
        positions.clear();
        let mut at = entry;
        for instruction in &body.instructions {
            positions.push(at);
            at += instruction.op.form().words();
            if let Flow::Table { count, .. } = instruction.flow {
                at += count;
            }
        }
        positions.push(at);
    }

    fn instruction(&mut self, number: u32, function: &Function, body: &Body, index: usize) {
        let instruction = &body.instructions[index];
        let (at, next) = (self.scratch.positions[index], self.scratch.positions[index + 1]);
        debug_assert_eq!(at as usize, self.words.len());
        if instruction.offset != NONE {
            self.marks.push((at, instruction.offset));
        }
        if let Some(stop) = body.stops.get(instruction.stop as usize) {
            let (live, dead_start, dead_count) = (stop.live, stop.dead_start, stop.dead_count);
            self.stops.push(StopPoint { word: at, live, dead_count, dead_start });
        }
        let mut word = Word::new(instruction.op, instruction.a, instruction.b, instruction.c).0;
        match instruction.flow {
            Flow::Next if instruction.op == Op::CallImport => {
                let (distance, cycles) = self.zero_path(body, index);
                self.words.push(word | u64::from(distance) << 48);
                self.words.push(instruction.wide | u64::from(cycles) << 32);
            }
            Flow::Next => {
                self.words.push(word);
                match instruction.op.form() {
                    Form::Call => {
                        self.calls.push((self.words.len() as u32, instruction.wide as u32));
                        self.words.push(instruction.wide << 32);
                    }
                    form if form.words() == 2 => self.words.push(instruction.wide),
                    _ => {}
                }
            }
            Flow::Charge(block) => {
                let cycles = self.charge(block, next);
                if instruction.op == Op::Enter {
                    word |= u64::from(cycles as u16) << 16 | u64::from(function.registers) << 32;
                    let parameters = u64::from(function.parameters);
                    self.words.extend([
                        word,
                        (parameters + 1) | parameters << 16 | u64::from(number) << 32,
                    ]);
                } else {
                    self.words.push(word | u64::from(cycles) << 32);
                }
            }
            Flow::Jump { to, charge } => {
                let target = self.position(body, to);
                let cycles = self.charge(charge, target);
                self.words.extend([word, distance(at, target) | u64::from(cycles) << 32]);
            }
            Flow::Branch(branch) => {
                let target = self.position(body, branch.to);
                let header = branch.header.map_or(0, |header| self.position(body, header));
                let taken = match branch.body {
                    None => self.charge(branch.taken, target),
                    Some(block) => {
                        self.scratch.charges[branch.taken.0 as usize] + self.charge(block, target)
                    }
                };
                let fallen = branch.fallen.map_or(0, |block| self.charge(block, next));
                self.words.extend([
                    word,
                    distance(at, target) | u64::from(taken) << 32,
                    u64::from(fallen) | u64::from(header) << 32,
                ]);
            }
            Flow::Table { first, count } => {
                self.words.push(word);
                for entry in &body.entries[first as usize..(first + count) as usize] {
                    let target = self.position(body, entry.to);
                    let cycles = entry.charge.map_or(0, |block| self.charge(block, target));
                    let flags = if entry.is_loop { TableEntry::LOOP } else { 0 };
                    self.words.push(
                        distance(at, target)
                            | u64::from(cycles as u16) << 32
                            | u64::from(flags) << 48,
                    );
                }
            }
        }
    }

    fn position(&self, body: &Body, label: Label) -> u32 {
        self.scratch.positions[body.labels[label.0 as usize] as usize]
    }

    /// The charge on entering `block`, which starts at word `at`; adds it to the cost map.
    fn charge(&mut self, block: Block, at: u32) -> u32 {
        let cycles = self.scratch.charges[block.0 as usize];
        debug_assert!(u64::from(cycles) <= MAX_GAP.0, "a charge is at most a gap");
        self.scratch.costs.push((at, cycles));
        cycles
    }

    /// Fast path of an import that returns 0: the distance in words to where it continues, and the
    /// charge. It skips the safepoint after the call and a branch after that which tests the
    /// result, as guests do that check for errors. Other results take the slow path through both.
    fn zero_path(&self, body: &Body, index: usize) -> (u16, u32) {
        let charges = &self.scratch.charges;
        let positions = &self.scratch.positions;
        let Flow::Charge(block) = body.instructions[index + 1].flow else { return (0, 0) };
        let safepoint = charges[block.0 as usize];
        let plain = ((positions[index + 2] - positions[index]) as u16, safepoint);
        let Some(test) = body.instructions.get(index + 2) else { return plain };
        let Flow::Branch(branch) = test.flow else { return plain };
        if test.a != body.instructions[index].a || branch.header.is_some() || branch.body.is_some()
        {
            return plain;
        }
        let (to, cycles) = match test.op.taken_for_zero(test.c as i16) {
            Some(true) => (self.position(body, branch.to), charges[branch.taken.0 as usize]),
            Some(false) => {
                (positions[index + 3], branch.fallen.map_or(0, |block| charges[block.0 as usize]))
            }
            None => return plain,
        };
        match u16::try_from(to - positions[index]) {
            Ok(distance) => (distance, safepoint + cycles),
            Err(_) => plain,
        }
    }

    /// Fills in the entries of called functions.
    pub(crate) fn finish(mut self, imported_functions: u32) -> Draft {
        for &(word, function) in &self.calls {
            let entry = self.functions[(function - imported_functions) as usize].entry;
            self.words[word as usize] |= u64::from(entry);
        }
        Draft {
            words: self.words,
            functions: self.functions,
            marks: self.marks,
            stops: self.stops,
            dead: self.dead,
            costs: self.costs,
            gap: Cycles(self.gap),
            blocks: self.blocks,
        }
    }
}

/// The distance from an instruction to a target, as in branch words.
fn distance(at: u32, target: u32) -> u64 {
    u64::from(target.wrapping_sub(at))
}

/// Computes the charge on entering each block: its own cost, and that of the block it pays for.
fn resolve(body: &mut Body, charges: &mut Vec<u32>, path: &mut Vec<u32>) {
    charges.clear();
    for index in 0..body.blocks.len() {
        // Follow the chain of blocks that pay for one another, then add up backwards.
        let mut block = body.named(Block(index as u32));
        while body.blocks[block].carries != NONE {
            path.push(block as u32);
            block = body.named(Block(body.blocks[block].carries));
        }
        let mut cycles = body.blocks[block].cycles;
        while let Some(block) = path.pop() {
            let block = &mut body.blocks[block as usize];
            block.cycles += cycles;
            block.carries = NONE;
            cycles = block.cycles;
        }
        charges.push(cycles);
    }
}
