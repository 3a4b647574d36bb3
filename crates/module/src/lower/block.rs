//! Basic blocks and what they cost; safepoints and the gaps between them; where a coroutine can stand.
//!
//! A block's cost is known only when it ends, so whoever charges it (its entering branches, a `charge`, a safepoint) is noted as a
//! [`Site`] and patched at the end of the function. Forward branches lie before their targets and loop headers are safepoints, so the
//! longest path since a safepoint is known at every point of the single pass.

use wavelock_abi::MAX_GAP;

use super::stack::Entry;
use super::{Lowering, Scratch};
use crate::code::StopPoint;
use crate::op::{Op, Word};

/// No block.
const NONE: u32 = u32::MAX;

/// More unplaced operands than this are placed at a stop point, so that the lists of dead registers stay short whatever the code.
const MOST_UNPLACED: usize = 64;

/// A field of a word that will hold a block's cost, or a sum of costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Site {
    word: u32,
    shift: u32,
    block: u32,
}

impl Lowering<'_> {
    pub(super) fn new_block(&mut self) -> u32 {
        let block = self.scratch.costs.len() as u32;
        self.scratch.costs.push(0);
        self.scratch.aliases.push(block);
        self.scratch.carries.push(NONE);
        block
    }

    /// Notes that a field of a word is to hold the cost of `block`.
    pub(super) fn site(&mut self, word: u32, shift: u32, block: u32) {
        self.scratch.sites.push(Site { word, shift, block });
    }

    /// Makes `block` another name of `into`.
    pub(super) fn alias(&mut self, block: u32, into: u32) {
        debug_assert!(self.scratch.costs[block as usize] == 0 && into != block, "only a block that was never entered gets another name");
        self.scratch.aliases[block as usize] = into;
    }

    /// Adds an instruction's cost to the current block, after a safepoint if the gap would grow too long.
    pub(super) fn charge(&mut self, cycles: u32) {
        if u64::from(self.gap + cycles) > MAX_GAP.0 {
            let block = self.new_block();
            self.safepoint(block);
        }
        self.scratch.costs[self.block as usize] += cycles;
        self.gap += cycles;
        self.code.gap = self.code.gap.max(u64::from(self.gap));
    }

    /// Emits a safepoint that opens `block`.
    pub(super) fn safepoint(&mut self, block: u32) {
        self.stop_point(self.first_operand + self.depth() as u32, false);
        let word = self.emit(Word::new(Op::Safepoint, 0, 0, 0));
        self.site(word, 32, block);
        self.block = block;
        self.block_start = self.code.words.len() as u32;
        self.gap = 0;
    }

    /// Goes on in `block`, charged by whoever entered it.
    pub(super) fn continue_in(&mut self, block: u32) {
        self.block = block;
        self.block_start = self.code.words.len() as u32;
        self.fence();
    }

    /// The current block falls into `block`, where branches meet. If nothing in it can fault or stop, it pays for both when it is entered:
    /// no one can tell. Otherwise a `charge` pays on the way.
    pub(super) fn fall_into(&mut self, block: u32) {
        let quiet = self.code.offsets.last().is_none_or(|last| last.0 < self.block_start);
        if quiet {
            self.scratch.carries[self.block as usize] = block;
        } else {
            let word = self.emit(Word::new(Op::Charge, 0, 0, 0));
            self.site(word, 32, block);
        }
    }

    /// Records that a coroutine can stand at the next word with the registers below `live` in use.
    pub(super) fn stop_point(&mut self, live: u32, entering: bool) {
        if self.scratch.unplaced.len() > MOST_UNPLACED {
            self.place_all();
        }
        self.mark_offset();
        let word = self.code.words.len() as u32;
        let dead_start = self.code.dead.len() as u32;
        let (mut live, first) = (live, self.first_operand);
        if !entering {
            // Entries that were placed since they were pushed are forgotten on the way.
            let stack = &self.scratch.stack;
            self.scratch.unplaced.retain(|&depth| stack[depth as usize] != Entry::Placed);
            let mut unplaced = self.scratch.unplaced.as_slice();
            while let Some((&last, rest)) = unplaced.split_last()
                && first + last + 1 == live
            {
                live -= 1;
                unplaced = rest;
            }
            self.code.dead.extend(unplaced.iter().map(|&depth| (first + depth) as u16));
        }
        let dead_count = (self.code.dead.len() as u32 - dead_start) as u16;
        self.code.stops.push(StopPoint { word, live: live as u16, dead_count, dead_start });
    }

    /// Counts the function's blocks by cost; answers their cost together.
    pub(super) fn count_blocks(&mut self) -> u64 {
        let mut total = 0;
        for (block, &cost) in self.scratch.costs.iter().enumerate() {
            if self.scratch.aliases[block] == block as u32 {
                total += u64::from(cost);
                self.code.blocks[(u32::BITS - cost.leading_zeros()) as usize] += 1;
            }
        }
        total
    }

    /// Writes what entering each block costs where it is charged: the block's own cost, and that of the block it pays for.
    pub(super) fn patch_costs(&mut self) {
        let Scratch { sites, costs, aliases, carries, path, .. } = &mut *self.scratch;
        for site in sites {
            // Along the blocks that pay for one another, then back, adding up; each is added once and then pays for itself.
            let mut block = site.block;
            loop {
                while aliases[block as usize] != block {
                    block = aliases[block as usize];
                }
                if carries[block as usize] == NONE {
                    break;
                }
                path.push(block);
                block = carries[block as usize];
            }
            let mut cost = costs[block as usize];
            while let Some(block) = path.pop() {
                costs[block as usize] += cost;
                carries[block as usize] = NONE;
                cost = costs[block as usize];
            }
            debug_assert!(u64::from(cost) <= MAX_GAP.0, "what is charged at once fits a gap, and a gap fits 16 bits");
            self.code.words[site.word as usize] += u64::from(cost) << site.shift;
        }
    }
}
