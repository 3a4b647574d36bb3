//! Control flow: blocks, loops, branches, calls and returns.
//!
//! Branches to the function's own label are returns. Values carried by a branch are copied to the
//! label's registers first, so a conditional branch whose values are elsewhere branches over the
//! copies.

use alloc::vec::Vec;

use wasmparser::{BlockType, BrTable};

use super::{Lowering, compare, count};
use crate::cost;
use crate::instruction::{Block, Branch, Entry as TableEntry, Flow, Instruction, Label};
use crate::load::Refusal;
use crate::op::Op;

/// A conditional branch copies at most this many values that are not in registers of their own;
/// more are moved there first, once. So a branch of two bytes emits a bounded number of
/// instructions.
const MOST_COPIES: usize = 4;

/// Maximum length of a loop's head test for which the loop is rotated.
const MOST_TEST: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Function,
    Block,
    Loop,
    If,
    Else,
}

/// An open block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Control {
    kind: Kind,
    /// Operands below it.
    height: usize,
    parameters: u32,
    results: u32,
    /// A loop's first block and the label after its header, or those of the end.
    block: Block,
    label: Label,
    /// Longest gap among the branches to the end.
    gap: u32,
    /// The label and block of `else`; then the gap on arriving there.
    otherwise: Option<(Label, Block)>,
    else_gap: u32,
    header: Option<Label>,
    /// The head test of a loop.
    test: Option<Test>,
}

/// Whether instructions are comparisons of locals and a branch on the result. They can be
/// duplicated: they read no operand that was computed before them.
fn is_test(instructions: &[Instruction], first_operand: u16) -> bool {
    let Some((branch, comparisons)) = instructions.split_last() else { return false };
    let mut made = None;
    let is_available =
        |register: u16, made: Option<u16>| register < first_operand || made == Some(register);
    for comparison in comparisons {
        let has_constant = match compare::row_of(comparison.op) {
            Some((_, has_constant)) => has_constant,
            None => return false,
        };
        if !is_available(comparison.b, made) || !(has_constant || is_available(comparison.c, made))
        {
            return false;
        }
        made = Some(comparison.a);
    }
    is_available(branch.a, made)
}

/// The test at the head of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Test {
    /// The index of the branch that leaves the loop; the instructions since the header compute its
    /// condition.
    branch: usize,
    /// What follows the branch.
    body: Label,
    block: Block,
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
        let block = self.scratch.body.new_block();
        let label = self.scratch.body.new_label();
        let height = self.depth() - parameters as usize;
        self.scratch.controls.push(Control {
            kind,
            height,
            parameters,
            results,
            block,
            label,
            gap: 0,
            otherwise: None,
            else_gap: 0,
            header: None,
            test: None,
        });
    }

    pub(super) fn open_function(&mut self) {
        self.open(Kind::Function, 0, u32::from(self.results));
    }

    pub(super) fn open_block(&mut self, kind: BlockType) {
        let (parameters, results) = self.block_type(kind);
        self.spill_locals();
        self.open(Kind::Block, parameters, results);
    }

    pub(super) fn open_loop(&mut self, kind: BlockType) {
        let (parameters, results) = self.block_type(kind);
        self.place_top(parameters as usize);
        self.spill_locals();
        self.open(Kind::Loop, parameters, results);
        let block = self.top().block;
        let header = self.scratch.body.new_label();
        // A stop point may place operands, so the header is the safepoint itself, the last
        // instruction.
        self.safepoint(block);
        self.scratch.body.bind_last(header);
        let label = self.top().label;
        self.bind(label);
        self.top().header = Some(header);
        self.last_loop = (self.label, self.scratch.controls.len() - 1);
    }

    pub(super) fn open_if(&mut self, kind: BlockType) {
        let (parameters, results) = self.block_type(kind);
        let condition = self.pop_register();
        self.place_top(parameters as usize);
        self.spill_locals();
        self.open(Kind::If, parameters, results);
        let then = self.scratch.body.new_block();
        let otherwise = (self.scratch.body.new_label(), self.scratch.body.new_block());
        self.emit_branch(Op::BranchIfNot, condition, otherwise.0, otherwise.1, Some(then));
        self.note_test(then);
        let gap = self.gap;
        let control = self.top();
        control.otherwise = Some(otherwise);
        control.else_gap = gap;
        self.continue_in(then);
    }

    fn top(&mut self) -> &mut Control {
        self.scratch.controls.last_mut().expect("the validator checked that blocks nest")
    }

    /// Binds a label here.
    fn bind(&mut self, label: Label) {
        self.scratch.body.bind(label);
        self.label = self.scratch.body.instructions.len();
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
        let (label, block) = control.otherwise.expect("the validator checked that else ends an if");
        if self.reachable {
            self.copy_top(control.results as usize, control.height);
            self.jump(self.scratch.controls.len() - 1);
        }
        self.truncate(control.height);
        for _ in 0..control.parameters {
            self.push_placed();
        }
        self.bind(label);
        let open = self.top();
        open.kind = Kind::Else;
        open.otherwise = None;
        self.gap = control.else_gap;
        self.reachable = true;
        self.continue_in(block);
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
        let is_used = self.scratch.body.is_used[control.label.0 as usize];
        let reached = control.kind == Kind::If || control.kind != Kind::Loop && is_used;
        if self.reachable && !reached {
            // No merge point: the current block continues.
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
            self.merge(&control);
        }
    }

    /// Binds the label of an ended block: a merge point.
    fn merge(&mut self, control: &Control) {
        let mut gap = control.gap;
        if let Some((_, block)) = control.otherwise {
            gap = gap.max(control.else_gap);
            self.alias(block, control.block);
        }
        let is_at_label = self.label == self.scratch.body.instructions.len();
        if self.reachable
            && is_at_label
            && self.scratch.body.blocks[self.block.0 as usize].cycles == 0
        {
            // Another label was bound here without code since: one block with two labels.
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
        if let Some((label, _)) = control.otherwise {
            self.bind(label);
        }
        self.bind(control.label);
        self.reachable = true;
    }

    /// The flow to the label of an open block, with its charge.
    fn target(&mut self, label: usize) -> (Label, Block, Option<Label>) {
        let gap = self.gap;
        let control = &mut self.scratch.controls[label];
        if control.kind != Kind::Loop {
            control.gap = control.gap.max(gap);
        }
        (control.label, control.block, control.header)
    }

    /// The number of values that a branch to this label carries, and their depth there.
    fn carried(&self, label: usize) -> (usize, usize) {
        let control = &self.scratch.controls[label];
        let count = if control.kind == Kind::Loop { control.parameters } else { control.results };
        (count as usize, control.height)
    }

    fn label(&self, relative: u32) -> usize {
        self.scratch.controls.len() - 1 - relative as usize
    }

    /// Jumps to a label; the values are in its registers.
    fn jump(&mut self, label: usize) {
        if let Some(test) = self.scratch.controls[label].test {
            self.emit_bottom_test(label, test);
        }
        let (to, charge, header) = self.target(label);
        let op = if header.is_some() { Op::JumpLoop } else { Op::Jump };
        let to = self.scratch.body.target(to);
        self.emit(Instruction::new(op, 0, 0, 0).flow(Flow::Jump { to, charge }));
    }

    /// Loop rotation: duplicates the head test at the bottom of the loop. If the loop continues,
    /// the branch skips the head: it charges header and body, and stops at the header like any
    /// arrival there. Otherwise the jump that follows arrives at the header, whose test leaves the
    /// loop.
    fn emit_bottom_test(&mut self, label: usize, test: Test) {
        let control = self.scratch.controls[label];
        let start = self.scratch.body.labels[control.label.0 as usize] as usize;
        for at in start..test.branch {
            self.emit(self.scratch.body.instructions[at]);
        }
        let leaves = self.scratch.body.instructions[test.branch];
        let op = if leaves.op == Op::BranchIf { Op::BranchIfNot } else { Op::BranchIf };
        let (to, header) = (
            self.scratch.body.target(test.body),
            control.header.map(|header| self.scratch.body.target(header)),
        );
        let branch =
            Branch { to, taken: control.block, body: Some(test.block), fallen: None, header };
        self.emit(Instruction::new(op, leaves.a, 0, 0).flow(Flow::Branch(branch)));
    }

    /// Records the head test of the last loop, if that is the branch just emitted. `block` follows
    /// the branch.
    fn note_test(&mut self, block: Block) {
        let (start, control) = self.last_loop;
        let body = &mut self.scratch.body;
        let branch = body.instructions.len() - 1;
        let is_first = start <= branch
            && branch - start <= MOST_TEST
            && self.scratch.controls.get(control).is_some_and(|control| {
                let at = body.labels[control.label.0 as usize] as usize;
                control.kind == Kind::Loop && control.test.is_none() && at == start
            });
        let is_head_test = is_first
            && matches!(body.instructions[branch].flow, Flow::Branch(Branch { header: None, .. }))
            && is_test(&body.instructions[start..=branch], body.first_operand);
        if is_head_test {
            let label = body.new_label();
            body.bind(label);
            self.scratch.controls[control].test = Some(Test { branch, body: label, block });
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
        let next = self.scratch.body.new_block();
        let condition = self.pop_register();
        self.limit_copies(self.carried(label).0);
        if kind != Kind::Function && self.is_in_place(label) {
            let (to, taken, header) = self.target(label);
            let to = self.scratch.body.target(to);
            let header = header.map(|header| self.scratch.body.target(header));
            let branch = Branch { to, taken, body: None, fallen: Some(next), header };
            self.emit(Instruction::new(Op::BranchIf, condition, 0, 0).flow(Flow::Branch(branch)));
            self.note_test(next);
            self.label = self.scratch.body.instructions.len();
        } else {
            let over = self.scratch.body.new_label();
            self.emit_branch(Op::BranchIfNot, condition, over, next, None);
            self.leave(label);
            self.bind(over);
        }
        self.continue_in(next);
    }

    /// Moves the top `count` operands to their registers if copying them would take more than
    /// [`MOST_COPIES`] instructions.
    fn limit_copies(&mut self, count: usize) {
        if self.count_unplaced(count) > MOST_COPIES {
            self.place_top(count);
        }
    }

    /// Emits a conditional branch forwards.
    fn emit_branch(
        &mut self,
        op: Op,
        condition: u16,
        to: Label,
        taken: Block,
        fallen: Option<Block>,
    ) {
        let to = self.scratch.body.target(to);
        let branch = Branch { to, taken, body: None, fallen, header: None };
        self.emit(Instruction::new(op, condition, 0, 0).flow(Flow::Branch(branch)));
    }

    pub(super) fn branch_table(&mut self, table: &BrTable<'_>) -> Result<(), Refusal> {
        let default = self.label(table.default());
        self.charge(cost::BRANCH_TABLE + self.carried(default).0 as u32);
        let index = self.pop_register();
        self.limit_copies(self.carried(default).0);
        let mut labels = Vec::with_capacity(table.len() as usize + 1);
        for target in table.targets() {
            labels.push(self.label(target?));
        }
        labels.push(default);
        // Entries whose values are in the label's registers go there directly, others through
        // copies.
        let mut distinct = labels.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let mut entries = Vec::with_capacity(distinct.len());
        for &label in &distinct {
            let is_direct =
                self.scratch.controls[label].kind != Kind::Function && self.is_in_place(label);
            entries.push(if is_direct {
                let (to, charge, header) = self.target(label);
                TableEntry {
                    to: self.scratch.body.target(to),
                    charge: Some(charge),
                    is_loop: header.is_some(),
                }
            } else {
                let detour = self.scratch.body.new_label();
                TableEntry { to: self.scratch.body.target(detour), charge: None, is_loop: false }
            });
        }
        let first = self.scratch.body.entries.len() as u32;
        for label in &labels {
            let at = distinct.binary_search(label).expect("every label is among the distinct ones");
            self.scratch.body.entries.push(entries[at]);
        }
        let flow = Flow::Table { first, count: labels.len() as u32 };
        self.emit(Instruction::with_index(Op::BranchTable, index, table.len()).flow(flow));
        for (&label, entry) in distinct.iter().zip(&entries) {
            if entry.charge.is_none() {
                self.bind(entry.to);
                self.leave(label);
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
            0 => self.emit(Instruction::new(Op::Return, link, 0, 0)),
            1 => {
                let source = self.peek_register();
                self.emit(Instruction::new(Op::ReturnOne, link, source, 0));
            }
            many => {
                let bottom = self.depth() - usize::from(many);
                self.copy_top(usize::from(many), bottom);
                let first = self.register(bottom);
                self.emit(Instruction::new(Op::ReturnMany, link, first, many));
            }
        }
    }

    pub(super) fn unreachable(&mut self) {
        self.emit_faulting(Instruction::new(Op::Unreachable, 0, 0, 0));
        self.reachable = false;
    }

    /// Replaces `arguments` operands by `results`, after a call: the point where it returns is a
    /// safepoint.
    fn call_returns(&mut self, arguments: usize, results: u32) {
        self.truncate(self.depth() - arguments);
        for _ in 0..results {
            self.push_placed();
        }
        let block = self.scratch.body.new_block();
        self.safepoint(block);
    }

    /// Moves the arguments of a call to their registers; returns the first. The callee's link
    /// follows them.
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
        if function >= self.module.imported_functions {
            let op = if tail { Op::ReturnCall } else { Op::Call };
            self.emit_faulting(
                Instruction::new(op, first, arguments16, link).wide(u64::from(function)),
            );
            if tail {
                self.reachable = false;
                return;
            }
            self.call_returns(arguments, results);
            return;
        }
        let op = if tail { Op::ReturnCallImport } else { Op::CallImport };
        let stop = self.stop_point(self.first_operand + self.depth() as u32);
        let link = if tail { link } else { 0 };
        self.emit_stop(
            stop,
            Instruction::new(op, first, arguments16, link).wide(u64::from(function)),
        );
        self.call_returns(arguments, results);
        if tail {
            // A host function writes its results to this frame, which then returns.
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
        let stop = self.stop_point(self.first_operand + depth as u32 + u32::from(held));
        let op = if tail { Op::ReturnCallIndirect } else { Op::CallIndirect };
        let second = u64::from(type_index)
            | u64::from(table as u16) << 32
            | u64::from(self.parameters) << 48;
        self.emit_stop(stop, Instruction::new(op, first, arguments as u16, index).wide(second));
        self.call_returns(arguments, results);
        if tail {
            self.emit_return();
            self.reachable = false;
        }
    }
}
