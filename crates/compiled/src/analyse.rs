//! Which registers a function needs in their slots, and which differ from them.
//!
//! Native code keeps registers in values of its own and writes them to their slots only where
//! something else may read them: at an exit, and before a call. Two analyses over the lowered code
//! find out which:
//!
//! - *needed* (backward): the register's value may still be read, by this function or as part of
//!   the canonical state at a stop point, before it is overwritten;
//! - *written* (forward): it may have been written since native code was entered.
//!
//! An exit stores the registers that are both; an entry loads the needed ones.

use crate::Planted;
use wavelock_module::{Code, Form, Function, Op, TableEntry, Word};

/// An instruction.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) at: u32,
    /// The word after it.
    pub(crate) next: u32,
    pub(crate) op: Op,
    first: Word,
    rest: &'a [u64],
}

impl<'a> Site<'a> {
    pub(crate) fn a(&self) -> u16 {
        self.first.a()
    }

    pub(crate) fn b(&self) -> u16 {
        self.first.b()
    }

    pub(crate) fn c(&self) -> u16 {
        self.first.c()
    }

    /// Fields b and c as one number.
    pub(crate) fn bc(&self) -> u32 {
        self.first.bc()
    }

    /// The word after the first.
    pub(crate) fn second(&self) -> u64 {
        self.rest[0]
    }

    /// The lower half of that word.
    pub(crate) fn low(&self) -> u32 {
        self.second() as u32
    }

    /// Its upper half; of a branch, the charge if it is taken.
    pub(crate) fn high(&self) -> u32 {
        (self.second() >> 32) as u32
    }

    /// The target of a jump or branch.
    pub(crate) fn target(&self) -> u32 {
        self.at.wrapping_add_signed(self.second() as i32)
    }

    /// The charge of a branch that is not taken.
    pub(crate) fn fallen(&self) -> u32 {
        self.rest[1] as u32
    }

    /// The loop header at which a backward branch stops, if it is one.
    pub(crate) fn header(&self) -> Option<u32> {
        Some((self.rest[1] >> 32) as u32).filter(|header| *header != 0)
    }

    /// The entries of a branch table, the default last.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = TableEntry> + 'a {
        self.rest.iter().map(|word| TableEntry(*word))
    }

    /// The target of an entry of a branch table.
    pub(crate) fn entry_target(&self, entry: TableEntry) -> u32 {
        self.at.wrapping_add_signed(entry.distance())
    }
}

/// How an instruction continues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// With the next one.
    Next,
    /// With its target.
    Jump,
    /// With its target or the next one.
    Branch,
    /// With an entry of its table.
    Table,
    /// Not in this activation: a return, a tail call, a trap.
    End,
    /// In a callee, which returns to the next one.
    Call,
    /// In the interpreter, and there with the next one.
    Interpret,
}

/// How native code handles an instruction.
pub(crate) fn flow(op: Op) -> Flow {
    match op {
        Op::Jump | Op::JumpLoop => Flow::Jump,
        Op::BranchTable => Flow::Table,
        Op::Return | Op::ReturnOne | Op::ReturnMany | Op::ReturnCall | Op::Unreachable => Flow::End,
        Op::Call | Op::CallIndirect => Flow::Call,
        Op::CallImport
        | Op::ReturnCallImport
        | Op::ReturnCallIndirect
        | Op::GlobalGetImport
        | Op::GlobalSetImport
        | Op::RefFunc
        | Op::TableGet
        | Op::TableSet
        | Op::TableSize
        | Op::TableGrow
        | Op::TableFill
        | Op::TableCopy
        | Op::TableInit
        | Op::ElementDrop
        | Op::MemoryGrow
        | Op::MemoryFill
        | Op::MemoryCopy
        | Op::MemoryInit
        | Op::DataDrop => Flow::Interpret,
        _ => match op.form() {
            Form::BranchOne
            | Form::BranchTwo
            | Form::BranchConst
            | Form::LoopTwo
            | Form::LoopConst => Flow::Branch,
            _ => Flow::Next,
        },
    }
}

/// Calls `visit` with each range of registers that an instruction reads: the first, and how many.
fn reads(site: &Site<'_>, mut visit: impl FnMut(u16, u16)) {
    let (a, b, c) = (site.a(), site.b(), site.c());
    let mut one = |register| visit(register, 1);
    match site.op.form() {
        Form::Plain
        | Form::Cost
        | Form::Enter
        | Form::Jump
        | Form::Target
        | Form::Const32
        | Form::Const64
        | Form::ConstLoad => {}
        Form::BranchOne
        | Form::BranchConst
        | Form::BranchTable
        | Form::LoopConst
        | Form::Return => one(a),
        Form::BranchTwo | Form::LoopTwo | Form::ReturnOne | Form::Store | Form::StoreFar => {
            one(a);
            one(b);
        }
        Form::ReturnMany => {
            one(a);
            visit(b, c);
        }
        Form::Call | Form::CallImport => {
            visit(a, b);
            if site.op == Op::ReturnCall {
                visit(c, 1);
            }
        }
        Form::ReturnCallImport => {
            visit(a, b);
            visit(c, 1);
        }
        Form::CallIndirect => {
            visit(a, b);
            visit(c, 1);
            visit((site.second() >> 48) as u16, 1);
        }
        Form::Unary
        | Form::BinaryConst
        | Form::MulAddConst
        | Form::Load
        | Form::LoadFar
        | Form::LoadPlus
        | Form::StoreConst => one(b),
        Form::Binary | Form::TernaryConst => {
            one(b);
            one(c);
        }
        Form::Ternary => {
            one(b);
            one(c);
            one(site.second() as u16);
        }
        Form::ConstCopy => one((site.second() >> 16) as u16),
        Form::CopyTwo => {
            one(b);
            one(site.second() as u16);
        }
        Form::Range => visit(b, c),
        Form::Index => {
            if matches!(site.op, Op::GlobalSet | Op::GlobalSetImport) {
                one(a);
            }
        }
        Form::Table => {
            one(b);
            if site.op == Op::TableSet {
                one(a);
            }
        }
        Form::Three | Form::ThreeIndex => {
            one(a);
            one(b);
            one(c);
        }
    }
}

/// Calls `visit` with each range of registers that an instruction writes.
fn writes(site: &Site<'_>, mut visit: impl FnMut(u16, u16)) {
    let (a, c) = (site.a(), site.c());
    match site.op.form() {
        Form::Enter => visit(site.second() as u16, c),
        Form::LoopTwo
        | Form::LoopConst
        | Form::Target
        | Form::Unary
        | Form::Binary
        | Form::BinaryConst
        | Form::Const32
        | Form::Const64
        | Form::ConstLoad
        | Form::Ternary
        | Form::TernaryConst
        | Form::MulAddConst
        | Form::Load
        | Form::LoadFar
        | Form::LoadPlus => visit(a, 1),
        Form::ConstCopy => {
            visit(a, 1);
            visit(site.second() as u16, 1);
        }
        Form::CopyTwo => {
            visit(a, 1);
            visit(c, 1);
        }
        Form::Range => visit(a, c),
        Form::Index => {
            if matches!(site.op, Op::GlobalGet | Op::GlobalGetImport | Op::RefFunc | Op::TableSize)
            {
                visit(a, 1);
            }
        }
        Form::Table if site.op == Op::TableGet => visit(a, 1),
        Form::ThreeIndex if site.op == Op::TableGrow => visit(a, 1),
        _ => {}
    }
}

/// A set of registers.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Set(Vec<u64>);

impl Set {
    fn new(registers: u16) -> Self {
        Self(vec![0; usize::from(registers).div_ceil(64)])
    }

    pub(crate) fn insert(&mut self, first: u16, count: u16) {
        for register in usize::from(first)..usize::from(first) + usize::from(count) {
            self.0[register / 64] |= 1 << (register % 64);
        }
    }

    fn remove(&mut self, first: u16, count: u16) {
        for register in usize::from(first)..usize::from(first) + usize::from(count) {
            self.0[register / 64] &= !(1 << (register % 64));
        }
    }

    /// Removes the registers from `first` on.
    fn truncate(&mut self, first: u16) {
        let first = usize::from(first);
        for (index, word) in self.0.iter_mut().enumerate() {
            if index * 64 >= first {
                *word = 0;
            } else if (index + 1) * 64 > first {
                *word &= (1 << (first % 64)) - 1;
            }
        }
    }

    /// Adds the registers of `other`; returns whether that changed anything.
    fn add(&mut self, other: &Self) -> bool {
        let mut changed = false;
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            changed |= *other & !*own != 0;
            *own |= other;
        }
        changed
    }

    /// The registers in both sets, ascending.
    pub(crate) fn both<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = u16> + 'a {
        let words = self.0.iter().zip(&other.0).map(|(one, two)| one & two);
        words.enumerate().flat_map(|(index, word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 != 0)
                .map(move |bit| (index * 64 + bit) as u16)
        })
    }

    /// Its registers, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.both(self)
    }
}

/// A sequence of instructions that is entered at its first only.
pub(crate) struct Block {
    /// Its instructions, as a range of [`Analysis::sites`].
    pub(crate) first: usize,
    pub(crate) end: usize,
    /// Whether a coroutine can be suspended at its first instruction.
    pub(crate) is_stop: bool,
    /// Whether native code can arrive at it.
    pub(crate) is_reached: bool,
    /// Registers needed when it is entered.
    pub(crate) needed: Set,
    /// Registers that may differ from their slots when it is entered.
    pub(crate) written: Set,
    /// Blocks that follow it, in either tier.
    successors: Vec<usize>,
    /// Loop headers at which its last instruction stops without cycles left.
    headers: Vec<usize>,
}

/// A function, taken apart.
pub(crate) struct Analysis<'a> {
    pub(crate) sites: Vec<Site<'a>>,
    pub(crate) blocks: Vec<Block>,
    /// By word of the function: the block that starts there, or `usize::MAX`.
    starts: Vec<usize>,
    entry: u32,
}

/// The function is larger than a limit.
pub(crate) struct TooLarge;

impl<'a> Analysis<'a> {
    /// Analyses a function. `limit` bounds the size of the result and the time this takes.
    pub(crate) fn new(
        code: &'a Code,
        function: &Function,
        limit: usize,
        planted: Option<Planted>,
    ) -> Result<Self, TooLarge> {
        let (entry, end) = (function.entry, function.end);
        let size = (end - entry) as usize;
        let mut sites = Vec::new();
        let mut leads = vec![false; size + 1];
        let mut at = entry;
        while at < end {
            let site = site(code, at);
            let mut lead = |word: u32| leads[(word - entry) as usize] = true;
            let flow = flow(site.op);
            match flow {
                Flow::Jump | Flow::Branch => lead(site.target()),
                Flow::Table => {
                    site.entries().for_each(|entry| lead(site.entry_target(entry)));
                }
                Flow::Call | Flow::Interpret => lead(site.at),
                Flow::Next | Flow::End => {}
            }
            if flow != Flow::Next {
                lead(site.next);
            }
            if code.stop_at(site.at).is_some() {
                lead(site.at);
            }
            sites.push(site);
            at = site.next;
        }
        let mut blocks: Vec<Block> = Vec::new();
        let mut starts = vec![usize::MAX; size];
        for (index, site) in sites.iter().enumerate() {
            if leads[(site.at - entry) as usize] {
                starts[(site.at - entry) as usize] = blocks.len();
                blocks.push(Block {
                    first: index,
                    end: index,
                    is_stop: code.stop_at(site.at).is_some(),
                    is_reached: false,
                    needed: Set::new(function.registers),
                    written: Set::new(function.registers),
                    successors: Vec::new(),
                    headers: Vec::new(),
                });
            }
            if let Some(block) = blocks.last_mut() {
                block.end = index + 1;
            }
        }
        if blocks.len() * usize::from(function.registers).div_ceil(64) > limit || size > limit {
            return Err(TooLarge);
        }
        let mut analysis = Self { sites, blocks, starts, entry };
        analysis.connect();
        if planted == Some(Planted::Header) {
            analysis.blocks.iter_mut().for_each(|block| block.headers.clear());
        }
        analysis.find_needed(code);
        analysis.find_written();
        Ok(analysis)
    }

    /// The block that starts at a word.
    pub(crate) fn block_at(&self, word: u32) -> usize {
        self.starts[(word - self.entry) as usize]
    }

    fn connect(&mut self) {
        for index in 0..self.blocks.len() {
            let last = self.sites[self.blocks[index].end - 1];
            let (mut found, mut headers) = (Vec::new(), Vec::new());
            match flow(last.op) {
                Flow::Jump => {
                    found.push(last.target());
                    if last.op == Op::JumpLoop {
                        headers.push(last.target() - 1);
                    }
                }
                Flow::Branch => {
                    found.extend([last.target(), last.next]);
                    headers.extend(last.header());
                }
                Flow::Table => {
                    for entry in last.entries() {
                        found.push(last.entry_target(entry));
                        if entry.is_loop() {
                            headers.push(last.entry_target(entry) - 1);
                        }
                    }
                    for words in [&mut found, &mut headers] {
                        words.sort_unstable();
                        words.dedup();
                    }
                }
                Flow::Next | Flow::Call | Flow::Interpret => found.push(last.next),
                Flow::End => {}
            }
            let blocks = |words: Vec<u32>| words.into_iter().map(|word| self.block_at(word));
            let (successors, headers) = (blocks(found).collect(), blocks(headers).collect());
            (self.blocks[index].successors, self.blocks[index].headers) = (successors, headers);
        }
    }

    fn find_needed(&mut self, code: &Code) {
        let mut changes = true;
        while changes {
            changes = false;
            for index in (0..self.blocks.len()).rev() {
                let block = &self.blocks[index];
                let mut needed = Set(vec![0; block.needed.0.len()]);
                for &next in block.successors.iter().chain(&block.headers) {
                    needed.add(&self.blocks[next].needed);
                }
                for site in self.sites[block.first..block.end].iter().rev() {
                    match flow(site.op) {
                        // The callee's window starts at the first argument.
                        Flow::Call => needed.truncate(site.a()),
                        _ => writes(site, |first, count| needed.remove(first, count)),
                    }
                    reads(site, |first, count| needed.insert(first, count));
                }
                if let Some(stop) = code.stop_at(self.sites[block.first].at) {
                    let mut shown = Set(vec![0; block.needed.0.len()]);
                    shown.insert(0, stop.live);
                    for &register in code.dead_at(stop) {
                        shown.remove(register, 1);
                    }
                    needed.add(&shown);
                }
                changes |= self.blocks[index].needed.add(&needed);
            }
        }
    }

    fn find_written(&mut self) {
        let mut work: Vec<usize> = Vec::new();
        for (index, block) in self.blocks.iter_mut().enumerate() {
            // Native code is entered at stop points, the first instruction among them.
            if block.is_stop {
                block.is_reached = true;
                work.push(index);
            }
        }
        while let Some(index) = work.pop() {
            let block = &self.blocks[index];
            if matches!(
                flow(self.sites[block.end - 1].op),
                Flow::Call | Flow::Interpret | Flow::End
            ) {
                continue;
            }
            let mut written = block.written.clone();
            for site in &self.sites[block.first..block.end] {
                writes(site, |first, count| written.insert(first, count));
            }
            for next in block.successors.clone() {
                let changed = self.blocks[next].written.add(&written);
                if changed || !self.blocks[next].is_reached {
                    self.blocks[next].is_reached = true;
                    work.push(next);
                }
            }
        }
    }
}

/// The instruction at a word of verified code.
fn site(code: &Code, at: u32) -> Site<'_> {
    let words = code.words();
    let first = Word(words[at as usize]);
    let op = first.op().expect("verified code consists of instructions");
    let entries = if op == Op::BranchTable { first.bc() + 1 } else { 0 };
    let next = at + op.form().words() + entries;
    Site { at, next, op, first, rest: &words[at as usize + 1..next as usize] }
}

/// Adds the registers that an instruction writes to a set.
pub(crate) fn add_writes(site: &Site<'_>, set: &mut Set) {
    writes(site, |first, count| set.insert(first, count));
}
