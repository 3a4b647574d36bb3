//! The disassembler: lowered code as text, for debugging and tests.

use alloc::string::String;
use core::fmt::{self, Write};

use crate::Module;
use crate::op::{Form, Op, TableEntry, Word};

impl Module {
    /// The lowered code of a function, by index without imports, one instruction a line.
    #[must_use]
    pub fn disassemble(&self, defined: usize) -> String {
        let mut out = String::new();
        if let Some(function) = self.code().functions().get(defined) {
            let words = self.code().words();
            let mut at = function.entry as usize;
            while at < function.end as usize {
                let (next, result) = instruction(words, at, &mut out);
                debug_assert!(result.is_ok(), "writing to a string cannot fail");
                at = next;
            }
        }
        out
    }
}

/// Prints the instruction at `at`; returns where the next one starts.
pub(crate) fn instruction(words: &[u64], at: usize, out: &mut String) -> (usize, fmt::Result) {
    let word = Word(words[at]);
    let Some(op) = word.op() else { return (at + 1, writeln!(out, "{at:6}  ? {:#x}", word.0)) };
    let second = words.get(at + 1).copied().unwrap_or(0);
    let mut next = at + op.form().words() as usize;
    let result = operands(op, word, second, words, at, &mut next, out);
    (next, result)
}

// Long: one arm per form.
fn operands(
    op: Op,
    word: Word,
    second: u64,
    words: &[u64],
    at: usize,
    next: &mut usize,
    out: &mut String,
) -> fmt::Result {
    let (a, b, c) = (word.a(), word.b(), word.c());
    let (low, high) = (second as u32, (second >> 32) as u32);
    let third = words.get(at + 2).copied().unwrap_or(0);
    let target = (at as u32).wrapping_add(low);
    let branch = Branch { target, taken: high, fallen: third as u32, stop: (third >> 32) as u32 };
    write!(out, "{at:6}  {}", op.text())?;
    match op.form() {
        Form::Plain => {}
        Form::Cost => write!(out, " {}", word.bc())?,
        Form::Enter => write!(
            out,
            " cost {a} registers {b} locals {c} from r{} function {high}",
            second as u16
        )?,
        Form::Jump => write!(out, " -> {target} cost {high}")?,
        Form::BranchOne => write!(out, " r{a}{branch}")?,
        Form::BranchTwo => write!(out, " r{a} r{b}{branch}")?,
        Form::BranchConst => write!(out, " r{a} {}{branch}", c as i16)?,
        Form::BranchTable => {
            write!(out, " r{a}")?;
            let count = word.bc() as usize + 1;
            for entry in &words[at + 1..at + 1 + count] {
                let entry = TableEntry(*entry);
                write!(
                    out,
                    " -> {} cost {}{}",
                    at as i64 + i64::from(entry.distance()),
                    entry.cycles(),
                    if entry.is_loop() { " loop" } else { "" }
                )?;
            }
            *next = at + 1 + count;
        }
        Form::Return => write!(out, " link r{a}")?,
        Form::ReturnOne => write!(out, " r{b} link r{a}")?,
        Form::ReturnMany => write!(out, " r{b}..+{c} link r{a}")?,
        Form::Call => write!(out, " function {high} at {low} r{a}..+{b}")?,
        Form::CallImport => {
            write!(out, " import {low} r{a}..+{b}, 0 -> {} cost {high}", at + usize::from(c))?
        }
        Form::ReturnCallImport => write!(out, " import {low} r{a}..+{b} link r{c}")?,
        Form::CallIndirect => write!(out, " r{c} type {low} table {} r{a}..+{b}", high as u16)?,
        Form::Target => write!(out, " r{a}")?,
        Form::Unary => write!(out, " r{a} r{b}")?,
        Form::Binary | Form::Three => write!(out, " r{a} r{b} r{c}")?,
        Form::BinaryConst => write!(out, " r{a} r{b} {second:#x}")?,
        Form::Const32 => write!(out, " r{a} {:#x}", word.bc())?,
        Form::ConstCopy => {
            write!(out, " r{a} {:#x}, r{} r{}", word.bc(), second as u16, (second >> 16) as u16)?
        }
        Form::ConstLoad => write!(out, " r{a} [{:#x}+{second}]", word.bc())?,
        Form::Const64 => write!(out, " r{a} {second:#x}")?,
        Form::Ternary => write!(out, " r{a} r{b} r{c} r{}", second as u16)?,
        Form::TernaryConst => write!(out, " r{a} r{b} r{c} {second:#x}")?,
        Form::MulAddConst => write!(out, " r{a} r{b} {low:#x} {high:#x}")?,
        Form::CopyTwo => write!(out, " r{a} r{b}, r{c} r{}", second as u16)?,
        Form::LoadPlus => write!(out, " r{a} [r{b}+{low:#x}+{high}]")?,
        Form::StoreConst => write!(out, " [r{b}+{c}] {}", a as i16)?,
        Form::LoopTwo => write!(out, " r{a}+{} r{b}{branch}", c as i16)?,
        Form::LoopConst => write!(out, " r{a}+{} {}{branch}", c as i16, b as i16)?,
        Form::Range => write!(out, " r{a} r{b}..+{c}")?,
        Form::Load => write!(out, " r{a} [r{b}+{c}]")?,
        Form::LoadFar => write!(out, " r{a} [r{b}+{second}]")?,
        Form::Store => write!(out, " [r{b}+{c}] r{a}")?,
        Form::StoreFar => write!(out, " [r{b}+{second}] r{a}")?,
        Form::Index => write!(out, " r{a} {}", word.bc())?,
        Form::Table => write!(out, " r{a} r{b} table {c}")?,
        Form::ThreeIndex => write!(out, " r{a} r{b} r{c} {low} {high}")?,
    }
    writeln!(out)
}

/// The two words that follow a conditional branch.
struct Branch {
    target: u32,
    taken: u32,
    fallen: u32,
    stop: u32,
}

impl fmt::Display for Branch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, " -> {} cost {}/{}", self.target, self.taken, self.fallen)?;
        if self.stop != 0 { write!(out, " loop {}", self.stop) } else { Ok(()) }
    }
}
