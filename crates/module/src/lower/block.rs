//! Basic blocks and their costs, safepoints and the gaps between them, stop points.
//!
//! A block's cost is known at its end, so instructions refer to the blocks they charge. Forward
//! branches are before their targets and loop headers are safepoints, so a single pass knows the
//! longest path since a safepoint at every instruction.

use wavelock_abi::MAX_GAP;

use super::Lowering;
use super::stack::Entry;
use crate::instruction::{Block, Flow, Instruction, Stop};
use crate::op::Op;

/// Operands without a register at a stop point; with more, all get one, which bounds the lists of
/// dead registers.
const MOST_UNPLACED: usize = 64;

impl Lowering<'_> {
    /// Makes `block` an alias of `into`.
    pub(super) fn alias(&mut self, block: Block, into: Block) {
        let blocks = &mut self.scratch.body.blocks;
        debug_assert!(
            blocks[block.0 as usize].cycles == 0 && into != block,
            "only a block that was never entered becomes an alias"
        );
        blocks[block.0 as usize].alias = into.0;
    }

    /// Adds an instruction's cost to the current block, after a safepoint if the gap would grow too
    /// long.
    pub(super) fn charge(&mut self, cycles: u32) {
        if u64::from(self.gap + cycles) > MAX_GAP.0 {
            let block = self.scratch.body.new_block();
            self.safepoint(block);
        }
        self.scratch.body.blocks[self.block.0 as usize].cycles += cycles;
        self.gap += cycles;
        self.code.gap = self.code.gap.max(u64::from(self.gap));
    }

    /// Emits a safepoint that opens `block`.
    pub(super) fn safepoint(&mut self, block: Block) {
        let stop = self.stop_point(self.first_operand + self.depth() as u32);
        self.emit_stop(stop, Instruction::new(Op::Safepoint, 0, 0, 0).flow(Flow::Charge(block)));
        self.continue_in(block);
        self.gap = 0;
    }

    /// Continues in `block`, which the edges into it charge.
    pub(super) fn continue_in(&mut self, block: Block) {
        self.block = block;
        self.is_quiet = true;
    }

    /// The current block falls into `block`, a merge point. If nothing in it can fault or stop,
    /// both are charged on entering it: no difference can be observed. Otherwise a `charge` is
    /// emitted.
    pub(super) fn fall_into(&mut self, block: Block) {
        if self.is_quiet {
            self.scratch.body.blocks[self.block.0 as usize].carries = block.0;
        } else {
            self.emit(Instruction::new(Op::Charge, 0, 0, 0).flow(Flow::Charge(block)));
        }
    }

    /// The stop point of the function's entry: parameters and link.
    pub(super) fn stop_point_at_entry(&mut self) -> u32 {
        self.add_stop(u32::from(self.parameters) + 1, self.code.dead.len())
    }

    /// A stop point for the next instruction, with the registers below `live` in use. Operands that
    /// are not in their registers are dead there.
    pub(super) fn stop_point(&mut self, live: u32) -> u32 {
        if self.scratch.unplaced.len() > MOST_UNPLACED {
            self.place_all();
        }
        let dead_start = self.code.dead.len();
        let (mut live, first) = (live, self.first_operand);
        // Drop the depths whose entries were placed since they were pushed.
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
        self.add_stop(live, dead_start)
    }

    fn add_stop(&mut self, live: u32, dead_start: usize) -> u32 {
        let dead_count = (self.code.dead.len() - dead_start) as u16;
        let stops = &mut self.scratch.body.stops;
        stops.push(Stop { live: live as u16, dead_start: dead_start as u32, dead_count });
        stops.len() as u32 - 1
    }
}
