//! The peephole pass: fuses neighbouring instructions into superinstructions.
//!
//! Contract. A row of the table is a pair of instructions, a condition and a replacement. The pass
//! matches each instruction with its predecessor, never across a used label, and matches a
//! replacement again with its own predecessor. It removes instructions and never moves one, so
//! every stop point and every fault keeps its position in the WebAssembly code, and every value
//! that is live at a stop point is in its register. `Peepholes::NONE` lowers without it; tests
//! compare both at every stop.
//!
//! Why a result may be dropped: a reader of an operand register right after its writer is its last
//! reader (see [`Body::first_operand`]), so when both are replaced the register is dead.

use alloc::vec::Vec;

use crate::instruction::{Body, Branch, Flow, Instruction, NONE};
use crate::lower::compare::{Row as Comparison, Width, row, row_of};
use crate::op::{Form, Op};

/// Which rows of the peephole table are applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peepholes(u32);

impl Peepholes {
    /// Every row.
    pub const ALL: Self = Self(u32::MAX);
    /// No row: one instruction for each of WebAssembly.
    pub const NONE: Self = Self(0);

    /// Names of the rows, in order.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|row| row.name)
    }

    /// Without the row of this name, if it exists.
    #[must_use]
    pub fn without(self, name: &str) -> Self {
        let row = TABLE.iter().position(|row| row.name == name);
        row.map_or(self, |row| Self(self.0 & !(1 << row)))
    }
}

impl Default for Peepholes {
    fn default() -> Self {
        Self::ALL
    }
}

/// One pattern.
struct Row {
    name: &'static str,
    /// Whether the instructions match, before the condition on registers.
    matches: fn(Op, Op) -> bool,
    /// The replacement, if the conditions hold.
    replace: fn(&Pair<'_>) -> Option<Instruction>,
}

const _: () = assert!(TABLE.len() <= 32, "a row has a bit in `Peepholes`");

/// Rows, in order of precedence.
const TABLE: &[Row] = &[
    Row {
        name: "compare and branch",
        matches: |first, second| {
            is_comparison(first) && matches!(second, Op::BranchIf | Op::BranchIfNot)
        },
        replace: |pair| {
            pair.feeds(pair.second.a).then_some(())?;
            let mut compare = *pair.first;
            if pair.second.op == Op::BranchIfNot {
                compare = negated(&compare)?;
            }
            let branch = branch_on(&compare)?;
            Some(Instruction { flow: pair.second.flow, ..branch })
        },
    },
    Row {
        name: "step and branch back",
        matches: |first, second| first == Op::I32AddConst && is_branch(second),
        replace: |pair| pair.step_and_branch(i64::from(pair.first.wide as u32 as i32), loop_on),
    },
    Row {
        name: "64-bit step and branch back",
        matches: |first, second| first == Op::I64AddConst && is_branch(second),
        replace: |pair| pair.step_and_branch(pair.first.wide as i64, long_loop_on),
    },
    Row {
        name: "result into a local",
        matches: |first, second| writes_a(first) && second == Op::Copy,
        replace: |pair| {
            pair.feeds(pair.second.b).then_some(())?;
            Some(Instruction { a: pair.second.a, ..*pair.first })
        },
    },
    Row {
        name: "load from an address plus a constant",
        matches: |first, second| first == Op::I32AddConst && plus(second).is_some(),
        replace: |pair| {
            pair.feeds(pair.second.b).then_some(())?;
            let load = Instruction::new(plus(pair.second.op)?, pair.second.a, pair.first.b, 0);
            Some(pair.faulting(load.wide(pair.first.wide & 0xffff_ffff | pair.offset() << 32)))
        },
    },
    Row {
        name: "multiply and add a constant",
        matches: |first, second| first == Op::I32MulConst && second == Op::I32AddConst,
        replace: |pair| {
            pair.feeds(pair.second.b).then_some(())?;
            let constants = pair.first.wide & 0xffff_ffff | pair.second.wide << 32;
            Some(
                pair.result(
                    Instruction::new(Op::I32MulAddConst, 0, pair.first.b, 0).wide(constants),
                ),
            )
        },
    },
    Row {
        name: "add three",
        matches: |first, second| first == Op::I32Add && second == Op::I32Add,
        replace: |pair| {
            let other = u64::from(pair.other()?);
            Some(
                pair.result(
                    Instruction::new(Op::I32AddAdd, 0, pair.first.b, pair.first.c).wide(other),
                ),
            )
        },
    },
    Row {
        name: "shift and exclusive or",
        matches: |first, second| {
            matches!(first, Op::I32RotlConst | Op::I32ShrUConst) && second == Op::I32Xor
        },
        replace: |pair| {
            let op =
                if pair.first.op == Op::I32RotlConst { Op::I32XorRotl } else { Op::I32XorShrU };
            let other = pair.other()?;
            Some(pair.result(Instruction::new(op, 0, other, pair.first.b).wide(pair.first.wide)))
        },
    },
    Row {
        name: "multiply and add floats",
        matches: |first, second| {
            matches!((first, second), (Op::F32Mul, Op::F32Add) | (Op::F64Mul, Op::F64Add))
        },
        replace: |pair| {
            let op = if pair.first.op == Op::F32Mul { Op::F32MulAdd } else { Op::F64MulAdd };
            let other = u64::from(pair.other()?);
            Some(pair.result(Instruction::new(op, 0, pair.first.b, pair.first.c).wide(other)))
        },
    },
    Row {
        name: "load from a constant address",
        matches: |first, second| {
            first == Op::Const32
                && matches!(second, Op::Load32 | Op::Load64 | Op::Load32Far | Op::Load64Far)
        },
        replace: |pair| {
            let op = match pair.second.op {
                Op::Load32 | Op::Load32Far => Op::ConstLoad32,
                _ => Op::ConstLoad64,
            };
            pair.feeds(pair.second.b).then_some(())?;
            Some(pair.faulting(
                Instruction::with_index(op, pair.second.a, pair.first.bc()).wide(pair.offset()),
            ))
        },
    },
    Row {
        name: "constant and copy",
        matches: |first, second| first == Op::Const32 && second == Op::Copy,
        replace: |pair| {
            let copy = u64::from(pair.second.a) | u64::from(pair.second.b) << 16;
            (pair.second.b != pair.first.a).then_some(Instruction {
                op: Op::ConstCopy,
                wide: copy,
                ..*pair.first
            })
        },
    },
    Row {
        name: "two copies",
        matches: |first, second| first == Op::Copy && second == Op::Copy,
        replace: |pair| {
            let (first, second) = (pair.first, pair.second);
            Some(
                Instruction::new(Op::CopyTwo, first.a, first.b, second.a).wide(u64::from(second.b)),
            )
        },
    },
];

/// Two instructions, one after the other.
struct Pair<'a> {
    first: &'a Instruction,
    second: &'a Instruction,
    first_operand: u16,
}

impl Pair<'_> {
    /// Whether `register`, which the second reads, is the result of the first and dead after that.
    fn feeds(&self, register: u16) -> bool {
        register == self.first.a && register >= self.first_operand
    }

    /// The other source of a second that adds or combines the first's result with something.
    fn other(&self) -> Option<u16> {
        let (b, c) = (self.second.b, self.second.c);
        let other = if self.feeds(b) { c } else { b };
        (self.feeds(b) != self.feeds(c)).then_some(other)
    }

    /// The replacement with the second's destination.
    fn result(&self, replacement: Instruction) -> Instruction {
        Instruction { a: self.second.a, ..replacement }
    }

    /// The replacement with the second's byte offset: it faults as the second does.
    fn faulting(&self, replacement: Instruction) -> Instruction {
        Instruction { offset: self.second.offset, ..replacement }
    }

    /// The branch back to a loop that also adds the first's constant to the counter it tests.
    fn step_and_branch(
        &self,
        step: i64,
        find: fn(&Instruction, u16) -> Option<(Op, u16)>,
    ) -> Option<Instruction> {
        let is_back = matches!(self.second.flow, Flow::Branch(Branch { header: Some(_), .. }));
        (is_back && self.first.a == self.first.b).then_some(())?;
        let (op, other) = find(self.second, self.first.a)?;
        let step = i16::try_from(step).ok()? as u16;
        Some(Instruction {
            flow: self.second.flow,
            ..Instruction::new(op, self.first.a, other, step)
        })
    }

    /// The offset of a load.
    fn offset(&self) -> u64 {
        if self.second.op.form() == Form::Load {
            u64::from(self.second.c)
        } else {
            self.second.wide
        }
    }
}

fn is_comparison(op: Op) -> bool {
    row_of(op).is_some()
}

fn is_branch(op: Op) -> bool {
    matches!(op.form(), Form::BranchOne | Form::BranchTwo | Form::BranchConst)
}

/// Whether `a` is where the instruction puts its one result, after it has read everything.
fn writes_a(op: Op) -> bool {
    match op.form() {
        Form::Unary
        | Form::Binary
        | Form::BinaryConst
        | Form::Ternary
        | Form::TernaryConst
        | Form::MulAddConst
        | Form::Load
        | Form::LoadFar
        | Form::LoadPlus
        | Form::ConstLoad
        | Form::Target => op != Op::Copy,
        Form::Index => {
            matches!(op, Op::GlobalGet | Op::GlobalGetImport | Op::RefFunc | Op::TableSize)
        }
        Form::Table => op == Op::TableGet,
        Form::ThreeIndex => op == Op::TableGrow,
        _ => false,
    }
}

/// The negated comparison, if it exists.
fn negated(compare: &Instruction) -> Option<Instruction> {
    let (Comparison { width, relation, .. }, has_constant) = row_of(compare.op)?;
    let relation = relation.negated();
    if has_constant {
        let (relation, bits) = relation.with_constant(*width, compare.wide)?;
        return Some(Instruction { op: row(*width, relation).constant?, wide: bits, ..*compare });
    }
    let (relation, swap) = relation.between_registers();
    let (b, c) = if swap { (compare.c, compare.b) } else { (compare.b, compare.c) };
    Some(Instruction { op: row(*width, relation).registers?, b, c, ..*compare })
}

/// The branch on a comparison, without its flow.
fn branch_on(compare: &Instruction) -> Option<Instruction> {
    let (row, has_constant) = row_of(compare.op)?;
    if !has_constant {
        return Some(Instruction::new(row.branch?, compare.b, compare.c, 0));
    }
    match compare.op {
        Op::I32EqConst | Op::I64EqConst if compare.wide == 0 => {
            return Some(Instruction::new(Op::BranchIfNot, compare.b, 0, 0));
        }
        Op::I32NeConst | Op::I64NeConst if compare.wide == 0 => {
            return Some(Instruction::new(Op::BranchIf, compare.b, 0, 0));
        }
        _ => {}
    }
    let signed = match row.width {
        Width::W32 => i64::from(compare.wide as u32 as i32),
        Width::W64 => compare.wide as i64,
    };
    let constant = i16::try_from(signed).ok()?;
    Some(Instruction::new(row.branch_constant?, compare.b, 0, constant as u16))
}

/// The branch fused with a step of `counter`, and its field `b`, if it exists.
fn loop_on(branch: &Instruction, counter: u16) -> Option<(Op, u16)> {
    let (a, b, constant) = (branch.a, branch.b, branch.c);
    let left = a == counter && b != counter;
    let right = b == counter && a != counter;
    Some(match branch.op {
        Op::BranchIf if a == counter => (Op::LoopI32NeZero, 0),
        Op::BranchI32Ne if left => (Op::LoopI32Ne, b),
        Op::BranchI32Ne if right => (Op::LoopI32Ne, a),
        Op::BranchI32LtS if left => (Op::LoopI32LtS, b),
        Op::BranchI32LtS if right => (Op::LoopI32GtS, a),
        Op::BranchI32LtU if left => (Op::LoopI32LtU, b),
        Op::BranchI32LtU if right => (Op::LoopI32GtU, a),
        Op::BranchI32LeS if left => (Op::LoopI32LeS, b),
        Op::BranchI32LeS if right => (Op::LoopI32GeS, a),
        Op::BranchI32LeU if left => (Op::LoopI32LeU, b),
        Op::BranchI32LeU if right => (Op::LoopI32GeU, a),
        Op::BranchI32NeConst if a == counter => (Op::LoopI32NeConst, constant),
        Op::BranchI32LtSConst if a == counter => (Op::LoopI32LtSConst, constant),
        Op::BranchI32LtUConst if a == counter => (Op::LoopI32LtUConst, constant),
        Op::BranchI32GtSConst if a == counter => (Op::LoopI32GtSConst, constant),
        Op::BranchI32GtUConst if a == counter => (Op::LoopI32GtUConst, constant),
        _ => return None,
    })
}

/// [`loop_on`] for a 64-bit counter.
fn long_loop_on(branch: &Instruction, counter: u16) -> Option<(Op, u16)> {
    let (a, b) = (branch.a, branch.b);
    let left = a == counter && b != counter;
    Some(match branch.op {
        Op::BranchIf if a == counter => (Op::LoopI64NeZero, 0),
        Op::BranchI64Ne if left => (Op::LoopI64Ne, b),
        Op::BranchI64Ne if b == counter && a != counter => (Op::LoopI64Ne, a),
        Op::BranchI64LtS if left => (Op::LoopI64LtS, b),
        Op::BranchI64LtU if left => (Op::LoopI64LtU, b),
        _ => return None,
    })
}

/// The load with a constant added to its address.
fn plus(op: Op) -> Option<Op> {
    Some(match op {
        Op::Load32 | Op::Load32Far => Op::Load32Plus,
        Op::Load64 | Op::Load64Far => Op::Load64Plus,
        Op::Load8U | Op::Load8UFar => Op::Load8UPlus,
        Op::Load16U | Op::Load16UFar => Op::Load16UPlus,
        _ => return None,
    })
}

/// Buffers reused across functions.
#[derive(Default)]
pub(crate) struct Scratch {
    out: Vec<Instruction>,
    /// By instruction of the input: whether a used label is bound to it.
    is_target: Vec<bool>,
    /// [`Self::is_target`] by instruction of the output.
    is_kept_target: Vec<bool>,
    /// By instruction of the input, and its end: the index in the output.
    moved: Vec<u32>,
}

/// Rewrites a function. `charges` is the charge on entering each block.
pub(crate) fn run(peepholes: Peepholes, body: &mut Body, charges: &[u32], scratch: &mut Scratch) {
    let Scratch { out, is_target, is_kept_target, moved } = scratch;
    out.clear();
    is_kept_target.clear();
    moved.clear();
    is_target.clear();
    is_target.resize(body.instructions.len() + 1, false);
    for (&at, &is_used) in body.labels.iter().zip(&body.is_used) {
        if is_used && at != NONE {
            is_target[at as usize] = true;
        }
    }
    for (at, instruction) in body.instructions.iter().enumerate() {
        moved.push(out.len() as u32);
        let (mut next, mut is_fenced) = (*instruction, is_target[at]);
        while !is_fenced
            && let Some(first) = out.last()
            && let Some(replacement) = replacement(peepholes, first, &next, body.first_operand)
        {
            next = replacement;
            out.pop();
            is_fenced = is_kept_target.pop().unwrap_or(true);
        }
        out.push(next);
        is_kept_target.push(is_fenced);
    }
    moved.push(out.len() as u32);
    for at in &mut body.labels {
        if *at != NONE {
            *at = moved[*at as usize];
        }
    }
    core::mem::swap(&mut body.instructions, out);
    thread_returns(peepholes, body, charges);
}

fn replacement(
    peepholes: Peepholes,
    first: &Instruction,
    second: &Instruction,
    first_operand: u16,
) -> Option<Instruction> {
    TABLE.iter().enumerate().find_map(|(index, row)| {
        let applies = peepholes.0 & 1 << index != 0 && (row.matches)(first.op, second.op);
        if applies { (row.replace)(&Pair { first, second, first_operand }) } else { None }
    })
}

/// A jump to a return that costs nothing becomes that return.
fn thread_returns(peepholes: Peepholes, body: &mut Body, charges: &[u32]) {
    if peepholes == Peepholes::NONE {
        return;
    }
    for at in 0..body.instructions.len() {
        if let Instruction { op: Op::Jump, flow: Flow::Jump { to, charge }, .. } =
            body.instructions[at]
            && charges[charge.0 as usize] == 0
            && let Some(target) = body.instructions.get(body.labels[to.0 as usize] as usize)
            && matches!(target.op, Op::Return | Op::ReturnOne | Op::ReturnMany)
        {
            body.instructions[at] = *target;
        }
    }
}
