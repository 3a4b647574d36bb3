//! Breakpoints for single-stepping: a copy of a module in which every instruction traps.
//!
//! Contract: a breakpoint replaces an instruction's number by that of `unreachable`. Its fields and
//! further words stay, because other instructions read them (a call its callee's `enter`, a return
//! the safepoint it returns to). So the copy can do nothing that the verified module cannot, except
//! stop. Elsewhere: single-stepping itself (`machine`).

use crate::code::Code;
use crate::{Module, print};
use alloc::string::String;

impl Module {
    /// A copy with a breakpoint on every instruction.
    #[must_use]
    pub fn with_breakpoints(&self) -> Self {
        let mut copy = self.clone();
        for at in self.code.instructions() {
            copy.code.set_breakpoint(at);
        }
        copy
    }

    /// Sets a breakpoint on the instruction at `word`. Does nothing if this is not a copy of
    /// `original`, or no instruction starts there.
    pub fn set_breakpoint(&mut self, word: u32, original: &Self) {
        if self.is_copy_of(original) && original.code.is_start(word) {
            self.code.set_breakpoint(word);
        }
    }

    /// Restores the instruction at `word` from `original`, under the same conditions.
    pub fn remove_breakpoint(&mut self, word: u32, original: &Self) {
        if self.is_copy_of(original) && original.code.is_start(word) {
            self.code.restore(word, &original.code);
        }
    }

    /// Whether both are lowerings of one module with the same layout: words of another would be
    /// unverified code.
    fn is_copy_of(&self, original: &Self) -> bool {
        self.digest == original.digest
            && self.code.words().len() == original.code.words().len()
            && self.code.stops() == original.code.stops()
    }

    /// The instruction at a word, disassembled.
    #[must_use]
    pub fn instruction_text(&self, word: u32) -> String {
        let mut text = String::new();
        if (word as usize) < self.code.words().len() {
            let (_, written) = print::instruction(self.code.words(), word as usize, &mut text);
            debug_assert!(written.is_ok(), "writing to a string cannot fail");
        }
        text.trim().into()
    }
}

impl Code {
    /// Whether an instruction starts at `word`.
    fn is_start(&self, word: u32) -> bool {
        let Some(function) = self.function_at(word) else { return false };
        self.instructions_from(self.functions()[function].entry).find(|at| *at >= word)
            == Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Op, Word};
    use alloc::vec::Vec;

    #[test]
    fn breakpoints_change_instruction_numbers_only_and_can_all_be_removed() {
        let text = "(module (func (param i32) (result i32)
            (block $a (block $b (br_table $a $b (local.get 0)))) (loop $l (br_if $l (i32.eqz (local.get 0)))) (i32.const 70000)))";
        let module =
            Module::new(&wat::parse_str(text).expect("text"), &Limits::default()).expect("valid");
        let mut copy = module.with_breakpoints();
        let starts: Vec<u32> = module.code().instructions().collect();
        assert!(starts.len() > 4 && starts.first() == Some(&0));
        for (at, (was, is)) in
            module.code().words().iter().zip(module.with_breakpoints().code().words()).enumerate()
        {
            let is_start = starts.contains(&(at as u32));
            assert_eq!(
                is_start && Word(*was).op() != Some(Op::Unreachable),
                was != is,
                "word {at}"
            );
            assert_eq!(was >> 16, is >> 16, "word {at}");
            if !is_start {
                let before = copy.clone();
                copy.set_breakpoint(at as u32, &module);
                copy.remove_breakpoint(at as u32, &module);
                assert_eq!(copy, before, "no instruction starts at word {at}");
            }
        }
        starts.iter().for_each(|&at| copy.remove_breakpoint(at, &module));
        assert_eq!(copy, module);
        let other =
            Module::new(&wat::parse_str("(module (func))").expect("text"), &Limits::default())
                .expect("valid");
        copy.remove_breakpoint(0, &other);
        copy.set_breakpoint(0, &other);
        assert_eq!(copy, module, "words of another module are never copied");
    }
}
