//! Control flow: blocks, loops, branches, calls and returns.
//!
//! A forward branch's target is not known when it is emitted: the pending ones of a label form a list through their own target
//! fields. Branches to the function's own label are returns. Values carried by a branch are copied to the label's registers first,
//! so a conditional branch that carries values not yet in place goes round a small detour.

use wasmparser::{BlockType, BrTable};

use super::compare::Condition;
use super::{Lowering, count};
use crate::cost;
use crate::load::Refusal;
use crate::op::{Form, Op, TableEntry, Word};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Function,
    Block,
    Loop,
    If,
    Else,
}

/// The end of a list of pending branches.
const NONE: u32 = u32::MAX;

/// An open block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Control {
    kind: Kind,
    /// Operands below it.
    height: usize,
    parameters: u32,
    results: u32,
    /// A loop's block and the word after its header, or the block after the end.
    block: u32,
    target: u32,
    /// Pending branches to the end.
    pending: u32,
    /// Longest gap among them.
    gap: u32,
    /// The pending branch to `else`, the block it enters, and the gap there.
    otherwise: u32,
    else_block: u32,
    else_gap: u32,
    /// If a loop begins with a test: the condition that leaves it, and the block it goes on in.
    test: Option<(Condition, u32)>,
}

impl Lowering<'_> {
    fn block_type(&self, kind: BlockType) -> (u32, u32) {
        match kind {
            BlockType::Empty => (0, 0),
            BlockType::Type(_) => (0, 1),
            BlockType::FuncType(index) => {
                let kind = &self.module.types[index as usize];
                (count(kind.parameters()), count(kind.results()))
            }
        }
    }

    fn open(&mut self, kind: Kind, parameters: u32, results: u32) {
        let block = self.new_block();
        let height = self.depth() - parameters as usize;
        self.scratch.controls.push(Control {
            kind,
            height,
            parameters,
            results,
            block,
            target: 0,
            pending: NONE,
            gap: 0,
            otherwise: NONE,
            else_block: 0,
            else_gap: 0,
            test: None,
        });
    }

    pub(super) fn open_function(&mut self) {
        self.open(Kind::Function, 0, u32::from(self.results));
    }

    pub(super) fn open_block(&mut self, kind: BlockType) {
        let (parameters, results) = self.block_type(kind);
        self.settle();
        self.open(Kind::Block, parameters, results);
    }

    pub(super) fn open_loop(&mut self, kind: BlockType) {
        let (parameters, results) = self.block_type(kind);
        self.place_top(parameters as usize);
        self.settle();
        self.open(Kind::Loop, parameters, results);
        let block = self.top().block;
        self.safepoint(block);
        self.fence();
        self.label = self.code.words.len() as u32;
        self.top().target = self.label;
    }

    pub(super) fn open_if(&mut self, kind: BlockType) {
        let (parameters, results) = self.block_type(kind);
        let condition = self.pop_condition(true);
        self.place_top(parameters as usize);
        self.settle();
        self.open(Kind::If, parameters, results);
        let then = self.new_block();
        let otherwise = self.new_block();
        let word = self.emit_branch(condition, 0);
        self.site(word, 32, otherwise);
        self.site(word + 1, 0, then);
        self.note_test(word, condition, then);
        let gap = self.gap;
        let control = self.top();
        control.otherwise = word;
        control.else_block = otherwise;
        control.else_gap = gap;
        self.continue_in(then);
    }

    fn top(&mut self) -> &mut Control {
        self.scratch.controls.last_mut().expect("the validator checked that blocks nest")
    }

    /// Opening a block in unreachable code only counts it.
    pub(super) fn skip_block(&mut self) {
        self.skipped += 1;
    }

    pub(super) fn otherwise(&mut self) {
        if self.skipped > 0 {
            return;
        }
        let control = *self.top();
        if self.reachable {
            self.copy_top(control.results as usize, control.height);
            self.jump(self.scratch.controls.len() - 1);
        }
        self.truncate(control.height);
        for _ in 0..control.parameters {
            self.push_placed();
        }
        self.put_target(control.otherwise);
        self.top().kind = Kind::Else;
        self.label = self.code.words.len() as u32;
        self.gap = control.else_gap;
        self.reachable = true;
        self.continue_in(control.else_block);
    }

    pub(super) fn end(&mut self) {
        if self.skipped > 0 {
            self.skipped -= 1;
            return;
        }
        let control = self.scratch.controls.pop().expect("the validator checked that blocks nest");
        if control.kind == Kind::Function {
            if self.reachable {
                self.emit_return();
            }
            self.reachable = false;
            return;
        }
        let reached = control.pending != NONE || control.kind == Kind::If;
        if self.reachable && !reached {
            // Nothing meets here: the block goes on, with its operands wherever they are.
            return;
        }
        if self.reachable {
            self.place_top(control.results as usize);
        }
        self.truncate(control.height);
        for _ in 0..control.results {
            self.push_placed();
        }
        if reached {
            self.meet(&control);
        }
    }

    /// Puts the label of an ended block here.
    fn meet(&mut self, control: &Control) {
        let here = self.code.words.len() as u32;
        let mut gap = control.gap;
        if control.kind == Kind::If {
            gap = gap.max(control.else_gap);
            self.alias(control.else_block, control.block);
        }
        if self.reachable && self.label == here && self.scratch.costs[self.block as usize] == 0 {
            // Another label was put just here and nothing came since: one block with two labels.
            self.alias(control.block, self.block);
            self.gap = self.gap.max(gap);
        } else {
            if self.reachable {
                self.fall_into(control.block);
                gap = gap.max(self.gap);
            }
            self.gap = gap;
            self.continue_in(control.block);
        }
        self.label = self.code.words.len() as u32;
        self.reachable = true;
        self.fence();
        if control.kind == Kind::If {
            self.put_target(control.otherwise);
        }
        let mut pending = control.pending;
        while pending != NONE {
            let word = pending;
            pending = self.code.words[word as usize] as u32;
            self.put_target(word);
        }
    }

    /// Writes a target into the lower half of a word, which may hold a list's link.
    fn write_target(&mut self, word: u32, target: u32) {
        let word = &mut self.code.words[word as usize];
        *word = *word & !0xffff_ffff | u64::from(target);
    }

    /// Sends a jump or branch here.
    fn put_target(&mut self, word: u32) {
        let here = self.code.words.len() as u32;
        self.write_target(word, here);
    }

    /// Sends a jump or branch to the label of an open block, and notes what it will charge.
    fn send(&mut self, word: u32, label: usize) {
        let gap = self.gap;
        let control = &mut self.scratch.controls[label];
        let block = control.block;
        let target = if control.kind == Kind::Loop {
            control.target
        } else {
            control.gap = control.gap.max(gap);
            core::mem::replace(&mut control.pending, word)
        };
        self.write_target(word, target);
        self.site(word, 32, block);
    }

    /// How many values a branch to this label carries, and the depth they go to.
    fn carried(&self, label: usize) -> (usize, usize) {
        let control = &self.scratch.controls[label];
        let count = if control.kind == Kind::Loop { control.parameters } else { control.results };
        (count as usize, control.height)
    }

    fn label(&self, relative: u32) -> usize {
        self.scratch.controls.len() - 1 - relative as usize
    }

    /// Jumps to a label; the values are in place.
    fn jump(&mut self, label: usize) {
        let control = self.scratch.controls[label];
        let op = if control.kind == Kind::Loop { Op::JumpLoop } else { Op::Jump };
        if let Some((condition, body)) = control.test {
            self.emit_bottom_test(&control, condition, body);
        }
        let word = self.emit_two(Word::new(op, 0, 0, 0), 0);
        self.send(word + 1, label);
        self.scratch.jumps.push(word);
    }

    /// A loop that begins with a test is tested again here, at its bottom: if it goes on, straight to its body, which pays for header
    /// and body and stops at the header like any arrival there. If not, the jump that follows goes to the header, whose test leaves.
    fn emit_bottom_test(&mut self, control: &Control, condition: Condition, body: u32) {
        let Some(stays) = condition.negated() else { return };
        let word = self.emit_loop_branch(stays, control.target - 1);
        self.write_target(word, control.target + Form::BranchOne.words());
        self.site(word, 32, control.block);
        self.site(word, 32, body);
    }

    /// If the branch whose branch words start at `word` is the first instruction of a loop, that loop begins with a test.
    fn note_test(&mut self, word: u32, condition: Condition, body: u32) {
        let start = word - 1;
        if Word(self.code.words[start as usize]).op() != Some(condition.op()) {
            // It also steps a counter: not the test alone.
            return;
        }
        for control in self.scratch.controls.iter_mut().rev() {
            match control.kind {
                Kind::Block | Kind::If => {}
                Kind::Loop if control.target == start => {
                    control.test = Some((condition, body));
                    return;
                }
                _ => return,
            }
        }
    }

    /// Jumps that lead to a return and cost nothing become that return.
    pub(super) fn thread_jumps(&mut self) {
        for &jump in &self.scratch.jumps {
            let word = Word(self.code.words[jump as usize]);
            let second = self.code.words[jump as usize + 1];
            let target = self.code.words.get(second as u32 as usize).copied().map(Word);
            if word.op() == Some(Op::Jump)
                && second >> 32 == 0
                && let Some(target) = target
                && matches!(target.op(), Some(Op::Return | Op::ReturnOne | Op::ReturnMany))
            {
                self.code.words[jump as usize] = target.0;
                self.code.words[jump as usize + 1] = Word::new(Op::Unreachable, 0, 0, 0).0;
            }
        }
    }

    /// Moves the values and jumps, or returns.
    fn leave(&mut self, label: usize) {
        if self.scratch.controls[label].kind == Kind::Function {
            self.emit_return();
        } else {
            let (count, bottom) = self.carried(label);
            self.copy_top(count, bottom);
            self.jump(label);
        }
    }

    fn is_in_place(&self, label: usize) -> bool {
        let (count, bottom) = self.carried(label);
        count == 0 || (self.depth() - count == bottom && self.is_placed(count))
    }

    pub(super) fn branch(&mut self, relative: u32) {
        let label = self.label(relative);
        self.charge(cost::BRANCH + self.carried(label).0 as u32);
        self.leave(label);
        self.reachable = false;
    }

    pub(super) fn branch_if(&mut self, relative: u32) {
        let label = self.label(relative);
        self.charge(cost::BRANCH + self.carried(label).0 as u32);
        let kind = self.scratch.controls[label].kind;
        let next = self.new_block();
        // The condition is popped first, so "in place" is about what is carried.
        let direct = kind != Kind::Function && self.is_in_place_below_condition(label);
        if direct {
            let condition = self.pop_condition(false);
            let word = if kind == Kind::Loop {
                let header = self.scratch.controls[label].target - 1;
                self.emit_loop_branch(condition, header)
            } else {
                self.emit_branch(condition, 0)
            };
            self.send(word, label);
            self.site(word + 1, 0, next);
            self.note_test(word, condition, next);
        } else {
            let condition = self.pop_condition(true);
            let word = self.emit_branch(condition, 0);
            self.site(word, 32, next);
            self.leave(label);
            self.put_target(word);
        }
        self.label = self.code.words.len() as u32;
        self.continue_in(next);
    }

    fn is_in_place_below_condition(&self, label: usize) -> bool {
        let (count, bottom) = self.carried(label);
        let depth = self.depth() - 1;
        count == 0 || (depth - count == bottom && self.is_placed_below(count, 1))
    }

    /// Emits a conditional branch that stops at `stop` (0: nowhere); answers its first branch word, target and costs still empty.
    pub(super) fn emit_branch(&mut self, condition: Condition, stop: u32) -> u32 {
        let word = match condition {
            Condition::One(op, a) => Word::new(op, a, 0, 0),
            Condition::Two(op, a, b) => Word::new(op, a, b, 0),
            Condition::Const(op, a, constant) => Word::new(op, a, 0, constant as u16),
        };
        self.emit_branch_words(word, stop)
    }

    /// Appends a branch and its two branch words; answers the first of these.
    pub(super) fn emit_branch_words(&mut self, word: Word, stop: u32) -> u32 {
        let at = self.emit_two(word, 0);
        self.code.words.push(u64::from(stop) << 32);
        at + 1
    }

    pub(super) fn branch_table(&mut self, table: &BrTable<'_>) -> Result<(), Refusal> {
        let default = self.label(table.default());
        self.charge(cost::BRANCH_TABLE + self.carried(default).0 as u32);
        let index = self.pop_register();
        let first = self.emit(Word::wide(Op::BranchTable, index, table.len())) + 1;
        let mut labels = alloc::vec::Vec::with_capacity(table.len() as usize + 1);
        for target in table.targets() {
            labels.push(self.label(target?));
        }
        labels.push(default);
        self.code.words.resize(self.code.words.len() + labels.len(), 0);
        // One detour per distinct label that needs one.
        let mut distinct = labels.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut detours = alloc::vec::Vec::with_capacity(distinct.len());
        for &label in &distinct {
            if self.scratch.controls[label].kind != Kind::Function && self.is_in_place(label) {
                detours.push(None);
            } else {
                detours.push(Some(self.code.words.len() as u32));
                self.leave(label);
            }
        }
        for (place, label) in labels.into_iter().enumerate() {
            let word = first + place as u32;
            let distinct = distinct.binary_search(&label).expect("every label is among the distinct ones");
            match detours[distinct] {
                Some(detour) => self.write_target(word, detour),
                None => {
                    self.send(word, label);
                    if self.scratch.controls[label].kind == Kind::Loop {
                        self.code.words[word as usize] |= u64::from(TableEntry::LOOP) << 48;
                    }
                }
            }
        }
        self.reachable = false;
        Ok(())
    }

    pub(super) fn return_(&mut self) {
        self.charge(cost::BRANCH + u32::from(self.results));
        self.emit_return();
        self.reachable = false;
    }

    /// Returns the top operands, which stay on the stack.
    fn emit_return(&mut self) {
        let link = self.parameters;
        match self.results {
            0 => {
                self.emit(Word::new(Op::Return, link, 0, 0));
            }
            1 => {
                let source = self.peek_register();
                self.emit(Word::new(Op::ReturnOne, link, source, 0));
            }
            many => {
                let bottom = self.depth() - usize::from(many);
                self.copy_top(usize::from(many), bottom);
                let first = self.register(bottom);
                self.emit(Word::new(Op::ReturnMany, link, first, many));
            }
        }
    }

    pub(super) fn unreachable(&mut self) {
        self.mark_offset();
        self.emit(Word::new(Op::Unreachable, 0, 0, 0));
        self.reachable = false;
    }

    /// Replaces `arguments` operands by `results`, after a call: the point where it returns is a safepoint.
    fn call_returns(&mut self, arguments: usize, results: u32) {
        self.truncate(self.depth() - arguments);
        for _ in 0..results {
            self.push_placed();
        }
        let block = self.new_block();
        self.safepoint(block);
    }

    /// Puts the arguments of a call in place; answers the register of the first. The callee's link goes after them.
    fn arguments(&mut self, arguments: usize) -> u16 {
        self.place_top(arguments);
        let depth = self.depth();
        self.register(depth);
        self.register(depth - arguments)
    }

    pub(super) fn call(&mut self, function: u32, tail: bool) {
        let kind = &self.module.types[self.module.function_types[function as usize] as usize];
        let (arguments, results) = (kind.parameters().len(), count(kind.results()));
        self.charge(cost::CALL + arguments as u32);
        let first = self.arguments(arguments);
        let (link, arguments16) = (self.parameters, arguments as u16);
        if let Some(defined) = function.checked_sub(self.module.imported_functions) {
            let op = if tail { Op::ReturnCall } else { Op::Call };
            self.mark_offset();
            let word = self.emit_two(Word::new(op, first, arguments16, link), u64::from(function) << 32);
            self.code.calls.push((word + 1, defined));
            if tail {
                self.reachable = false;
                return;
            }
            self.call_returns(arguments, results);
            return;
        }
        let op = if tail { Op::ReturnCallImport } else { Op::CallImport };
        self.stop_point(self.first_operand + self.depth() as u32, false);
        self.emit_two(Word::new(op, first, arguments16, if tail { link } else { 0 }), u64::from(function));
        self.call_returns(arguments, results);
        if tail {
            // A host function answers into this frame, which then returns.
            self.emit_return();
            self.reachable = false;
        }
    }

    pub(super) fn call_indirect(&mut self, type_index: u32, table: u32, tail: bool) {
        let kind = &self.module.types[type_index as usize];
        let (arguments, results) = (kind.parameters().len(), count(kind.results()));
        self.charge(cost::CALL_INDIRECT + arguments as u32);
        // The index is on top of the arguments; it is read before the link overwrites its register.
        let index = self.pop_operand();
        let index = self.operand_register(index);
        let first = self.arguments(arguments);
        let depth = self.depth();
        let held = self.register(depth) == index;
        self.stop_point(self.first_operand + depth as u32 + u32::from(held), false);
        let op = if tail { Op::ReturnCallIndirect } else { Op::CallIndirect };
        let second = u64::from(type_index) | u64::from(table as u16) << 32 | u64::from(self.parameters) << 48;
        self.emit_two(Word::new(op, first, arguments as u16, index), second);
        self.call_returns(arguments, results);
        if tail {
            self.emit_return();
            self.reachable = false;
        }
    }
}
