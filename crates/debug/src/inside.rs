//! Moves inside a slice, by safepoint and by instruction, forwards and backwards.
//!
//! Contract: a position inside a slice is a number of safepoints followed by a number of
//! instructions. Every move runs the slice once, from its start to the new position, whatever the
//! distance; going back is running fewer of them. After the last position of a slice comes the step
//! itself.

use crate::breakpoint::cycles_in;
use crate::debugger::Debugger;
use crate::why::run_boundaries;
use std::fmt::Write as _;
use std::io::{Read, Seek};
use wavelock_abi::Cycles;
use wavelock_replay::TimelineError;
use wavelock_system::Probe;

/// Maximum number of listed registers.
const REGISTERS: usize = 16;

impl<R: Read + Seek> Debugger<R> {
    /// Runs the next slice to a position inside it, or to its end if that comes first, and returns
    /// the position reached. The machine is then a probe.
    fn probe_to(
        &mut self,
        safepoints: u64,
        instructions: u64,
    ) -> Result<Option<Probe>, TimelineError> {
        self.leave_probe()?;
        self.from = self.timeline.position();
        run_boundaries(self.timeline.world_mut()).map_err(TimelineError::Host)?;
        let probe = self.timeline.world_mut().probe(safepoints, instructions);
        self.looked = self.looked.saturating_add(probe.map_or(Cycles::ZERO, |probe| probe.used));
        Ok(probe)
    }

    /// Probes the next slice at a position inside it, if the slice gets there. Zero safepoints and
    /// zero instructions is the step boundary, not a probe.
    fn probe_at(
        &mut self,
        safepoints: u64,
        instructions: u64,
    ) -> Result<Option<Probe>, TimelineError> {
        if safepoints + instructions == 0 {
            return self.leave_probe().map(|()| None);
        }
        let probe = self.probe_to(safepoints, instructions)?;
        let probe = probe
            .filter(|probe| (probe.safepoints, probe.instructions) == (safepoints, instructions));
        if probe.is_none() {
            self.timeline.seek_step(self.from.step)?;
        }
        Ok(probe)
    }

    /// Probes a position inside the next slice and goes back.
    fn peek(&mut self, safepoints: u64, instructions: u64) -> Result<Option<Probe>, TimelineError> {
        self.inside = self.probe_at(safepoints, instructions)?;
        let found = self.inside;
        self.leave_probe()?;
        Ok(found)
    }

    /// The number of instructions of the next slice after `safepoints` safepoints.
    fn rest(&mut self, safepoints: u64) -> Result<u64, TimelineError> {
        Ok(self.reach(safepoints, u64::MAX)?.map_or(0, |probe| probe.instructions))
    }

    /// The position that the next slice reaches on the way to a target; the machine is unchanged.
    fn reach(
        &mut self,
        safepoints: u64,
        instructions: u64,
    ) -> Result<Option<Probe>, TimelineError> {
        let probe = self.probe_to(safepoints, instructions)?;
        self.timeline.seek_step(self.from.step)?;
        Ok(probe)
    }

    /// The largest number that `fits`, by galloping search.
    fn most(
        &mut self,
        fits: &mut dyn FnMut(&mut Self, u64) -> Result<bool, TimelineError>,
    ) -> Result<u64, TimelineError> {
        let (mut least, mut most) = (0, 1);
        while fits(self, most)? {
            (least, most) = (most, most.saturating_mul(2));
        }
        while most - least > 1 {
            let middle = least + (most - least) / 2;
            (least, most) = if fits(self, middle)? { (middle, most) } else { (least, middle) };
        }
        Ok(least)
    }

    /// Moves to a position inside the next slice, or over the step if the slice ends before;
    /// returns the position that the slice reached. Runs the slice once.
    fn go_to(
        &mut self,
        safepoints: u64,
        instructions: u64,
    ) -> Result<Option<Probe>, TimelineError> {
        let reached = self.probe_to(safepoints, instructions)?;
        if reached.is_some_and(|probe| {
            (probe.safepoints, probe.instructions) == (safepoints, instructions)
        }) {
            self.inside = reached;
            return Ok(None);
        }
        self.timeline.seek_step(self.from.step)?;
        Ok(reached)
    }

    /// The number of safepoints passed at the current position: moves by instruction may have
    /// passed some.
    fn passed(&mut self) -> Result<u64, TimelineError> {
        match self.inside {
            Some(here) if here.instructions > 0 => self.most(&mut |debugger, count| {
                Ok(debugger.peek(count, 0)?.is_some_and(|probe| probe.used <= here.used))
            }),
            here => Ok(here.map_or(0, |probe| probe.safepoints)),
        }
    }

    /// Moves forward by `count` safepoints, or over the step if the slice has fewer. Returns the
    /// number of moves made, the step itself included.
    pub(crate) fn safepoints_forward(&mut self, count: u64) -> Result<u64, TimelineError> {
        let passed = self.passed()?;
        let reached = self.go_to(passed.saturating_add(count), 0)?;
        self.over(reached.map(|probe| probe.safepoints), passed, count)
    }

    /// Moves forward by `count` instructions, or over the step if the slice has fewer. Returns the
    /// number of moves made, the step itself included.
    pub(crate) fn instructions_forward(&mut self, count: u64) -> Result<u64, TimelineError> {
        let (safepoints, instructions) =
            self.inside.map_or((0, 0), |probe| (probe.safepoints, probe.instructions));
        let reached = self.go_to(safepoints, instructions.saturating_add(count))?;
        self.over(reached.map(|probe| probe.instructions), instructions, count)
    }

    /// Finishes a forward move in a slice: makes the step if the slice ended early. Returns the
    /// number of moves made from `here`.
    fn over(&mut self, reached: Option<u64>, here: u64, count: u64) -> Result<u64, TimelineError> {
        if self.inside.is_some() {
            return Ok(count);
        }
        let made = self.timeline.step_forward()?;
        Ok((reached.unwrap_or(0).saturating_sub(here) + u64::from(made)).min(count))
    }

    /// Moves back by `asked` safepoints and returns the number of moves made.
    pub(crate) fn safepoints_back(&mut self, asked: u64) -> Result<u64, TimelineError> {
        let mut count = asked;
        while count > 0 {
            let here = match self.inside {
                // After the last safepoint there is one more position to go back from.
                Some(here) => self.passed()? + u64::from(here.instructions > 0),
                None if !self.timeline.step_back()? => return Ok(asked - count),
                None => self.reach(u64::MAX, 0)?.map_or(0, |probe| probe.safepoints) + 1,
            };
            self.inside = self.probe_at(here.saturating_sub(count), 0)?;
            count = count.saturating_sub(here.max(1));
        }
        Ok(asked)
    }

    /// Moves back by `asked` instructions and returns the number of moves made.
    pub(crate) fn instructions_back(&mut self, asked: u64) -> Result<u64, TimelineError> {
        let mut count = asked;
        while count > 0 {
            let here = match self.inside {
                Some(here) if here.safepoints == 0 => here.instructions,
                Some(here) => self.as_instructions(here)?,
                None if !self.timeline.step_back()? => return Ok(asked - count),
                // The step itself is one position after the last instruction.
                None => self.rest(0)? + 1,
            };
            self.inside = self.probe_at(0, here.saturating_sub(count))?;
            count = count.saturating_sub(here.max(1));
        }
        Ok(asked)
    }

    /// Converts a position after safepoints to instructions from the slice's start: the largest
    /// count with no more cycles that is at the same instruction.
    fn as_instructions(&mut self, here: Probe) -> Result<u64, TimelineError> {
        let next = self.world().at_instruction(&here);
        let most = self.most(&mut |debugger, count| {
            Ok(debugger.peek(0, count)?.is_some_and(|probe| probe.used <= here.used))
        })?;
        let mut at = most;
        while at > 0 {
            self.inside = self.probe_at(0, at)?;
            let Some(probe) = self.inside else { break };
            if self.world().at_instruction(&probe) == next {
                return Ok(at);
            }
            if probe.used < here.used {
                break;
            }
            at -= 1;
        }
        Ok(most)
    }

    /// After a step in which a function ran: goes back to where its slice enters the function, or
    /// to the step's start if the slice begins in it.
    pub(crate) fn before(&mut self, function: &str) -> Result<(), TimelineError> {
        self.timeline.step_back()?;
        self.from = self.timeline.position();
        let safepoints = self.most(&mut |debugger, count| {
            debugger.inside = debugger.probe_at(count, 0)?;
            // A probe counts the cycles of its slice alone.
            let is_before = debugger.inside.is_some_and(|probe| {
                cycles_in(debugger.world(), probe.name.session, function) == 0
            });
            debugger.leave_probe()?;
            Ok(is_before)
        })?;
        self.inside = self.probe_at(safepoints, 0)?;
        Ok(())
    }

    /// The effect of the last instruction and the next one, inside a slice.
    pub(crate) fn instruction(&self) -> String {
        let mut text = String::new();
        let Some(probe) = self.inside else { return text };
        if let Some(change) = self.world().last_change(&probe).filter(|_| probe.instructions > 0) {
            let place = change.location.map_or_else(String::new, |place| {
                format!(
                    "  ({}, byte {:#x})",
                    self.function(probe.name.session, place.function),
                    place.offset
                )
            });
            let _ = writeln!(text, "  ran   {}{place}", change.text);
            for (register, before, after) in change.registers.iter().take(REGISTERS) {
                let _ = writeln!(text, "        r{register}: {before:#x} -> {after:#x}");
            }
            if let Some((address, before, after)) = &change.memory {
                let hex = |bytes: &[u8]| {
                    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
                };
                let _ = writeln!(
                    text,
                    "        memory {address:#x}: {} -> {}",
                    hex(before),
                    hex(after)
                );
            }
        }
        if let Some((next, _)) = self.world().at_instruction(&probe) {
            let _ = writeln!(text, "  next  {next}");
        }
        text
    }
}
