//! A module's copy for a debugger: every instruction is planted, so that running stops at whichever
//! comes next.
//!
//! Contract: a planted instruction has the number of `unreachable` and keeps its fields and the
//! words that follow, which others read (a call reads its callee's `enter`, a return the safepoint
//! it goes to). Nothing else differs, so the copy can do nothing that the verified module cannot,
//! except stop. Elsewhere: running one instruction of it (`machine`).

use crate::code::Code;
use crate::{Module, print};
use alloc::string::String;

impl Module {
    /// A copy in which every instruction is planted.
    #[must_use]
    pub fn planted(&self) -> Self {
        let mut copy = self.clone();
        for at in self.code.instructions() {
            copy.code.plant(at);
        }
        copy
    }

    /// Plants the instruction that begins at `word` in `original`, of which this is a copy. Nothing
    /// is changed where none begins.
    pub fn plant(&mut self, word: u32, original: &Self) {
        if self.is_copy_of(original) && original.code.begins_at(word) {
            self.code.plant(word);
        }
    }

    /// Makes the instruction that begins at `word` what it is in `original`, of which this is a
    /// copy.
    pub fn dig_up(&mut self, word: u32, original: &Self) {
        if self.is_copy_of(original) && original.code.begins_at(word) {
            self.code.restore(word, &original.code);
        }
    }

    /// Whether both are lowerings of one module with the same layout: words of another would be
    /// code that nobody verified.
    fn is_copy_of(&self, original: &Self) -> bool {
        self.digest == original.digest
            && self.code.words().len() == original.code.words().len()
            && self.code.stops() == original.code.stops()
    }

    /// The instruction that begins at a word, as text.
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
    /// Whether an instruction begins at `word`.
    fn begins_at(&self, word: u32) -> bool {
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
    fn only_numbers_of_instructions_differ_and_digging_all_up_gives_the_module_back() {
        let text = "(module (func (param i32) (result i32)
            (block $a (block $b (br_table $a $b (local.get 0)))) (loop $l (br_if $l (i32.eqz (local.get 0)))) (i32.const 70000)))";
        let module =
            Module::new(&wat::parse_str(text).expect("text"), &Limits::default()).expect("valid");
        let mut planted = module.planted();
        let starts: Vec<u32> = module.code().instructions().collect();
        assert!(starts.len() > 4 && starts.first() == Some(&0));
        for (at, (was, is)) in
            module.code().words().iter().zip(module.planted().code().words()).enumerate()
        {
            let is_start = starts.contains(&(at as u32));
            assert_eq!(
                is_start && Word(*was).op() != Some(Op::Unreachable),
                was != is,
                "word {at}"
            );
            assert_eq!(was >> 16, is >> 16, "word {at}");
            if !is_start {
                let before = planted.clone();
                planted.plant(at as u32, &module);
                planted.dig_up(at as u32, &module);
                assert_eq!(planted, before, "word {at} begins no instruction");
            }
        }
        starts.iter().for_each(|&at| planted.dig_up(at, &module));
        assert_eq!(planted, module);
        let other =
            Module::new(&wat::parse_str("(module (func))").expect("text"), &Limits::default())
                .expect("valid");
        planted.dig_up(0, &other);
        planted.plant(0, &other);
        assert_eq!(planted, module, "another module's words are never taken over");
    }
}
