//! Moves through the run by step, wave and frame, forwards and backwards.
//!
//! Contract: a forward move ends at its target, at the run's end, or when the [`Progress`] callback
//! returns `false`; if it ends early, the reply gives the distance requested and the distance made.
//! Elsewhere: moves inside a slice are in `inside`.

use crate::command::Unit;
use crate::debugger::Debugger;
use crate::why::run_boundaries;
use std::io::{Read, Seek};
use wavelock_replay::{Position, TimelineError};
use wavelock_system::Stage;

/// A callback with the current position; returns whether to continue.
pub type Progress = Box<dyn FnMut(Position) -> bool>;

/// How to continue a move that was interrupted.
pub(crate) const CONTINUE: &str = "enter an empty line to continue";

/// How a move ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// It reached its target.
    Reached,
    /// The run ended after this many units.
    RunEnded(u64),
    /// It was interrupted after this many units.
    Interrupted(u64),
}

impl End {
    /// The message about a move that ended early.
    pub(crate) fn sentence(self, unit: Unit, asked: u64, end: &str) -> String {
        let unit = unit.name();
        match self {
            Self::Reached => String::new(),
            Self::RunEnded(made) => format!("{made} of {asked} {unit}s: {end}\n"),
            Self::Interrupted(made) => format!("{made} of {asked} {unit}s so far; {CONTINUE}\n"),
        }
    }
}

impl<R: Read + Seek> Debugger<R> {
    pub(crate) fn forward(&mut self, unit: Unit, count: u64) -> Result<End, TimelineError> {
        if !matches!(unit, Unit::Safepoint | Unit::Instruction) {
            self.leave_probe()?;
        }
        let mut made = 0;
        while made < count {
            if self.timeline.is_over() {
                return Ok(End::RunEnded(made));
            }
            if made > 0 && !self.should_continue() {
                return Ok(End::Interrupted(made));
            }
            made += match unit {
                Unit::Safepoint => self.safepoints_forward(count - made)?,
                Unit::Instruction => self.instructions_forward(count - made)?,
                Unit::Step => u64::from(self.timeline.step_forward()?),
                Unit::Wave => u64::from(self.wave_forward()?),
                Unit::Frame => {
                    let here = self.timeline.position().frame;
                    u64::from(self.timeline.seek_frame(here + 1)?.frame > here)
                }
            };
        }
        Ok(End::Reached)
    }

    /// Moves to the end of the wave that the next step is in. `false` if there is no next step.
    fn wave_forward(&mut self) -> Result<bool, TimelineError> {
        let wave = self.wave_now()?;
        let (mut inside, mut any) = (true, false);
        while inside && self.timeline.step_forward()? {
            (any, inside) = (true, self.timeline.world().wave() <= wave);
        }
        // The end of a wave is only detected by the first step of the next one, so that step is
        // undone.
        if !inside {
            self.timeline.step_back()?;
        }
        Ok(any)
    }

    /// Moves to the state before a step.
    pub(crate) fn goto_step(&mut self, step: u64) -> Result<End, TimelineError> {
        if step <= self.timeline.position().step {
            self.timeline.seek_step(step)?;
            return Ok(End::Reached);
        }
        // From the nearest stored state, in intervals, so that the progress callback is called.
        self.timeline.approach(step)?;
        loop {
            let stretch = self.timeline.position().step.saturating_add(INTERVAL).min(step);
            let reached = self.timeline.seek_step(stretch)?.step;
            if reached == step {
                return Ok(End::Reached);
            }
            if self.timeline.is_over() {
                return Ok(End::RunEnded(reached));
            }
            if !self.should_continue() {
                return Ok(End::Interrupted(reached));
            }
        }
    }

    /// The number of the wave that the next step is in.
    fn wave_now(&mut self) -> Result<u64, TimelineError> {
        let step = self.timeline.position().step;
        run_boundaries(self.timeline.world_mut()).map_err(TimelineError::Host)?;
        let wave = self.timeline.world().wave();
        self.timeline.seek_step(step)?;
        Ok(wave)
    }

    pub(crate) fn back(&mut self, unit: Unit, count: u64) -> Result<End, TimelineError> {
        let inside = match unit {
            Unit::Safepoint => Some(self.safepoints_back(count)?),
            Unit::Instruction => Some(self.instructions_back(count)?),
            Unit::Step | Unit::Wave | Unit::Frame => None,
        };
        if let Some(made) = inside {
            return Ok(if made < count { End::RunEnded(made) } else { End::Reached });
        }
        self.leave_probe()?;
        for made in 0..count {
            let here = self.timeline.position();
            match unit {
                Unit::Frame => self.frame_back()?,
                Unit::Wave => {
                    let wave = self.last_wave();
                    while self.timeline.step_back()? && self.last_wave() >= wave {}
                }
                _ => drop(self.timeline.step_back()?),
            }
            // A move back ends at the start of the run.
            if self.timeline.position() == here {
                return Ok(End::RunEnded(made));
            }
        }
        Ok(End::Reached)
    }

    /// Moves to the start of the previous frame that was not skipped.
    fn frame_back(&mut self) -> Result<(), TimelineError> {
        let here = self.timeline.position();
        let reached = self.timeline.seek_frame(here.frame.saturating_sub(1))?;
        if reached != here {
            return Ok(());
        }
        // Frames were skipped here: go to the frame of the last step, or to the first frame if
        // there is none.
        let frame = if self.timeline.step_back()? { self.timeline.position().frame } else { 0 };
        self.timeline.seek_frame(frame).map(drop)
    }

    /// The number of the wave that the last step was in.
    fn last_wave(&self) -> u64 {
        let world = self.timeline.world();
        if world.stage() == Stage::Wave { world.wave() } else { world.wave().saturating_sub(1) }
    }
}

/// Steps between two calls of the progress callback.
const INTERVAL: u64 = 1_000_000;
