//! Moves inside a slice, by safepoint and by instruction, forwards and back.
//!
//! Contract: a place inside is so many safepoints and then so many instructions into the next
//! slice; every move makes the slice again from its begin up to there, once for however many places
//! it goes, so going back is going forward to fewer places. Beyond the last place of a slice is the
//! step itself.

use crate::debugger::Debugger;
use crate::why::settle;
use std::fmt::Write as _;
use std::io::{Read, Seek};
use wavelock_abi::Cycles;
use wavelock_replay::TimelineError;
use wavelock_system::Probe;

/// Registers that are listed.
const REGISTERS: usize = 16;

impl<R: Read + Seek> Debugger<R> {
    /// Makes the next slice up to a place inside it, or to its end if that comes first: how far
    /// that is. The machine is then a probe.
    fn look(&mut self, safepoints: u64, instructions: u64) -> Result<Option<Probe>, TimelineError> {
        self.leave_probe()?;
        self.from = self.timeline.position();
        settle(self.timeline.world_mut()).map_err(TimelineError::Host)?;
        let probe = self.timeline.world_mut().probe(safepoints, instructions);
        self.looked = self.looked.saturating_add(probe.map_or(Cycles::ZERO, |probe| probe.used));
        Ok(probe)
    }

    /// The probe of the next slice at a place inside it, if the slice has it; at no safepoint and
    /// no instruction there is nothing inside.
    fn probe_at(
        &mut self,
        safepoints: u64,
        instructions: u64,
    ) -> Result<Option<Probe>, TimelineError> {
        if safepoints + instructions == 0 {
            return self.leave_probe().map(|()| None);
        }
        let probe = self.look(safepoints, instructions)?;
        let probe = probe
            .filter(|probe| (probe.safepoints, probe.instructions) == (safepoints, instructions));
        if probe.is_none() {
            self.timeline.seek_step(self.from.step)?;
        }
        Ok(probe)
    }

    /// Looks at a place inside the next slice and comes back from it.
    fn glance(
        &mut self,
        safepoints: u64,
        instructions: u64,
    ) -> Result<Option<Probe>, TimelineError> {
        self.inside = self.probe_at(safepoints, instructions)?;
        let found = self.inside;
        self.leave_probe()?;
        Ok(found)
    }

    /// How many instructions the next slice has after so many safepoints.
    fn rest(&mut self, safepoints: u64) -> Result<u64, TimelineError> {
        Ok(self.reach(safepoints, u64::MAX)?.map_or(0, |probe| probe.instructions))
    }

    /// How far the next slice goes towards a place; the machine stands where it stood.
    fn reach(
        &mut self,
        safepoints: u64,
        instructions: u64,
    ) -> Result<Option<Probe>, TimelineError> {
        let probe = self.look(safepoints, instructions)?;
        self.timeline.seek_step(self.from.step)?;
        Ok(probe)
    }

    /// The largest number that `fits`: doubled until it does not, then halved.
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

    /// To a place inside the next slice, or if the slice has it not over the step: the place that
    /// the slice did reach. It is made once to find out.
    fn go_to(
        &mut self,
        safepoints: u64,
        instructions: u64,
    ) -> Result<Option<Probe>, TimelineError> {
        let reached = self.look(safepoints, instructions)?;
        if reached.is_some_and(|probe| {
            (probe.safepoints, probe.instructions) == (safepoints, instructions)
        }) {
            self.inside = reached;
            return Ok(None);
        }
        self.timeline.seek_step(self.from.step)?;
        Ok(reached)
    }

    /// Safepoints that were passed here: instructions may have gone past some.
    fn passed(&mut self) -> Result<u64, TimelineError> {
        match self.inside {
            Some(here) if here.instructions > 0 => self.most(&mut |debugger, count| {
                Ok(debugger.glance(count, 0)?.is_some_and(|probe| probe.used <= here.used))
            }),
            here => Ok(here.map_or(0, |probe| probe.safepoints)),
        }
    }

    /// So many safepoints on, or to the slice's end if it has fewer; how many those are, the step
    /// itself among them.
    pub(crate) fn safepoints_forward(&mut self, count: u64) -> Result<u64, TimelineError> {
        let passed = self.passed()?;
        let reached = self.go_to(passed.saturating_add(count), 0)?;
        self.over(reached.map(|probe| probe.safepoints), passed, count)
    }

    /// So many instructions on, or to the slice's end if it has fewer; how many those are, the step
    /// itself among them.
    pub(crate) fn instructions_forward(&mut self, count: u64) -> Result<u64, TimelineError> {
        let (safepoints, instructions) =
            self.inside.map_or((0, 0), |probe| (probe.safepoints, probe.instructions));
        let reached = self.go_to(safepoints, instructions.saturating_add(count))?;
        self.over(reached.map(|probe| probe.instructions), instructions, count)
    }

    /// The end of a way forward in a slice: where it was not gone to its end, the step is made. How
    /// far it was, from `here`.
    fn over(&mut self, reached: Option<u64>, here: u64, count: u64) -> Result<u64, TimelineError> {
        if self.inside.is_some() {
            return Ok(count);
        }
        let made = self.timeline.step_forward()?;
        Ok((reached.unwrap_or(0).saturating_sub(here) + u64::from(made)).min(count))
    }

    /// So many safepoints back; how many there were.
    pub(crate) fn safepoints_back(&mut self, asked: u64) -> Result<u64, TimelineError> {
        let mut count = asked;
        while count > 0 {
            let here = match self.inside {
                // Behind the last safepoint is one place more to go back from.
                Some(here) => self.passed()? + u64::from(here.instructions > 0),
                None if !self.timeline.step_back()? => return Ok(asked - count),
                None => self.reach(u64::MAX, 0)?.map_or(0, |probe| probe.safepoints) + 1,
            };
            self.inside = self.probe_at(here.saturating_sub(count), 0)?;
            count = count.saturating_sub(here.max(1));
        }
        Ok(asked)
    }

    /// So many instructions back; how many there were.
    pub(crate) fn instructions_back(&mut self, asked: u64) -> Result<u64, TimelineError> {
        let mut count = asked;
        while count > 0 {
            let here = match self.inside {
                Some(here) if here.safepoints == 0 => here.instructions,
                Some(here) => self.as_instructions(here)?,
                None if !self.timeline.step_back()? => return Ok(asked - count),
                // The step itself is one place beyond the last instruction.
                None => self.rest(0)? + 1,
            };
            self.inside = self.probe_at(0, here.saturating_sub(count))?;
            count = count.saturating_sub(here.max(1));
        }
        Ok(asked)
    }

    /// How many instructions from the slice's begin a place after safepoints is: as many as used no
    /// more, and stand at the same instruction.
    fn as_instructions(&mut self, here: Probe) -> Result<u64, TimelineError> {
        let next = self.world().at_instruction(&here);
        let most = self.most(&mut |debugger, count| {
            Ok(debugger.glance(0, count)?.is_some_and(|probe| probe.used <= here.used))
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

    /// What the last instruction did and which comes next, when the place is inside a slice.
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
