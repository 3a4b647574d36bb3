//! A module's copy for a debugger: every instruction is planted, so that running stops at whichever comes next.
//!
//! Contract: a planted instruction has the number of `unreachable` and keeps its fields and the words that follow, which others read (a call reads its
//! callee's `enter`, a return the safepoint it goes to). Nothing else differs, so the copy can do nothing that the module it was made from cannot,
//! except stop. Elsewhere: running one instruction of it (`machine`).

use crate::code::Code;
use crate::op::{Op, Word};
use crate::{Module, print};
use alloc::string::String;

impl Code {
    /// The words at which instructions begin, ascending.
    pub fn instructions(&self) -> impl Iterator<Item = u32> + '_ {
        let mut at = 0;
        core::iter::from_fn(move || {
            let word = Word(*self.words.get(at as usize)?);
            let op = word.op()?;
            let here = at;
            at += op.form().words() + if op == Op::BranchTable { word.bc() + 1 } else { 0 };
            Some(here)
        })
    }

    /// The instruction that begins at a word.
    #[must_use]
    pub fn op_at(&self, word: u32) -> Option<Op> {
        Word(*self.words.get(word as usize)?).op()
    }
}

impl Module {
    /// A copy in which every instruction is planted.
    #[must_use]
    pub fn planted(&self) -> Self {
        let mut copy = self.clone();
        for at in self.code.instructions() {
            copy.plant(at);
        }
        copy
    }

    /// Plants the instruction that begins at `word`.
    pub fn plant(&mut self, word: u32) {
        if let Some(found) = self.code.words.get_mut(word as usize) {
            *found = *found >> 16 << 16 | Op::Unreachable as u64;
        }
    }

    /// Makes the instruction that begins at `word` what it is in `original`, of which this is a copy.
    pub fn dig_up(&mut self, word: u32, original: &Self) {
        if let (Some(found), Some(was)) = (self.code.words.get_mut(word as usize), original.code.words.get(word as usize)) {
            *found = *was;
        }
    }

    /// The instruction that begins at a word, as text.
    #[must_use]
    pub fn instruction_text(&self, word: u32) -> String {
        let mut text = String::new();
        if (word as usize) < self.code.words.len() {
            let (_, written) = print::instruction(&self.code.words, word as usize, &mut text);
            debug_assert!(written.is_ok(), "writing to a string cannot fail");
        }
        text.trim().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use alloc::vec::Vec;

    #[test]
    fn only_numbers_of_instructions_differ_and_digging_all_up_gives_the_module_back() {
        let text = "(module (func (param i32) (result i32)
            (block $a (block $b (br_table $a $b (local.get 0)))) (loop $l (br_if $l (i32.eqz (local.get 0)))) (i32.const 70000)))";
        let module = Module::new(&wat::parse_str(text).expect("text"), &Limits::default()).expect("valid");
        let mut planted = module.planted();
        let starts: Vec<u32> = module.code().instructions().collect();
        assert!(starts.len() > 4 && starts.first() == Some(&0));
        for (at, (was, is)) in module.code().words().iter().zip(planted.code().words()).enumerate() {
            let is_start = starts.contains(&(at as u32));
            assert_eq!(is_start && Word(*was).op() != Some(Op::Unreachable), was != is, "word {at}");
            assert_eq!(was >> 16, is >> 16, "word {at}");
        }
        starts.iter().for_each(|&at| planted.dig_up(at, &module));
        assert_eq!(planted, module);
    }
}
