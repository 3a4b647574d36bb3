//! Which lowered instructions were executed, counted while programs are stepped through.
//!
//! Contract: the list is `Op::ALL`, so it follows the instruction table as that changes.

use std::collections::BTreeMap;
use wavelock_machine::{Coroutine, Session};
use wavelock_module::Op;

/// Execution counts of the lowered instructions, by number.
pub(crate) struct Coverage {
    counts: Vec<u64>,
    /// From the text of an instruction to its number.
    numbers: BTreeMap<&'static str, usize>,
}

impl Default for Coverage {
    fn default() -> Self {
        let numbers = Op::ALL.iter().enumerate().map(|(number, op)| (op.text(), number)).collect();
        Self { counts: vec![0; Op::ALL.len()], numbers }
    }
}

impl Coverage {
    /// Counts the instruction that a coroutine is about to execute.
    pub(crate) fn count(&mut self, session: &Session, coroutine: &Coroutine) {
        let Some(text) = coroutine.next_instruction(session) else { return };
        // The text is the word's number, the instruction and its operands.
        let number = text.split_whitespace().nth(1).and_then(|name| self.numbers.get(name));
        if let Some(number) = number {
            self.counts[*number] += 1;
        }
    }

    pub(crate) fn add(&mut self, counts: impl Iterator<Item = u64>) {
        for (sum, count) in self.counts.iter_mut().zip(counts) {
            *sum += count;
        }
    }

    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Instructions that were never executed.
    pub(crate) fn missing(&self) -> Vec<&'static str> {
        let zero = Op::ALL.iter().zip(&self.counts).filter(|(_, count)| **count == 0);
        zero.map(|(op, _)| op.text()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_has_a_text_of_its_own() {
        assert_eq!(Coverage::default().numbers.len(), Op::ALL.len());
    }

    #[test]
    fn instructions_never_executed_are_reported() {
        let mut coverage = Coverage::default();
        coverage.add((0..Op::ALL.len() as u64).map(|number| u64::from(number != 3)));
        assert_eq!(coverage.missing(), [Op::ALL[3].text()]);
    }
}
