//! Ways through the run by step, wave and frame, forwards and back, and what is said of one that
//! was not gone to its end.
//!
//! Contract: a way forward ends where it was told to, at the run's end, or where whoever waits for
//! it does not want to wait longer ([`Patience`]); what was asked and what was made is told. Moves
//! inside a slice are in `inside`.

use crate::command::Unit;
use crate::debugger::Debugger;
use crate::why::settle;
use std::io::{Read, Seek};
use wavelock_replay::{Position, TimelineError};
use wavelock_system::Stage;

/// Whether to go on from here.
pub type Patience = Box<dyn FnMut(Position) -> bool>;

/// How to go on after a way was cut short.
pub(crate) const GO_ON: &str = "an empty line goes on";

/// How far a way went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// As far as was asked.
    Whole,
    /// So far: there is nothing beyond.
    Over(u64),
    /// So far: it was not to go on.
    Cut(u64),
}

impl End {
    /// What is to be said of a way that was to go so far.
    pub(crate) fn sentence(self, unit: Unit, asked: u64, end: &str) -> String {
        let unit = unit.name();
        match self {
            Self::Whole => String::new(),
            Self::Over(made) => format!("{made} of {asked} {unit}s: {end}\n"),
            Self::Cut(made) => format!("{made} of {asked} {unit}s so far; {GO_ON}\n"),
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
                return Ok(End::Over(made));
            }
            if made > 0 && !self.goes_on() {
                return Ok(End::Cut(made));
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
        Ok(End::Whole)
    }

    /// To the end of the wave that the next step is in. `false` if there is no next step.
    fn wave_forward(&mut self) -> Result<bool, TimelineError> {
        let wave = self.wave_now()?;
        let (mut inside, mut any) = (true, false);
        while inside && self.timeline.step_forward()? {
            (any, inside) = (true, self.timeline.world().wave() <= wave);
        }
        // The first step of the next wave tells that the last one is over; it is taken back.
        if !inside {
            self.timeline.step_back()?;
        }
        Ok(any)
    }

    /// To where so many steps are made.
    pub(crate) fn goto_step(&mut self, step: u64) -> Result<End, TimelineError> {
        if step <= self.timeline.position().step {
            self.timeline.seek_step(step)?;
            return Ok(End::Whole);
        }
        // From the nearest state that is kept a stretch at a time, so that somebody who waits can
        // be asked.
        self.timeline.approach(step)?;
        loop {
            let stretch = self.timeline.position().step.saturating_add(STRETCH).min(step);
            let reached = self.timeline.seek_step(stretch)?.step;
            if reached == step {
                return Ok(End::Whole);
            }
            if self.timeline.is_over() {
                return Ok(End::Over(reached));
            }
            if !self.goes_on() {
                return Ok(End::Cut(reached));
            }
        }
    }

    /// The number of the wave that the next step is in.
    fn wave_now(&mut self) -> Result<u64, TimelineError> {
        let step = self.timeline.position().step;
        settle(self.timeline.world_mut()).map_err(TimelineError::Host)?;
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
            return Ok(if made < count { End::Over(made) } else { End::Whole });
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
            // However many are asked for, it ends at the beginning.
            if self.timeline.position() == here {
                return Ok(End::Over(made));
            }
        }
        Ok(End::Whole)
    }

    /// To the begin of the last frame before this one that was not jumped over.
    fn frame_back(&mut self) -> Result<(), TimelineError> {
        let here = self.timeline.position();
        let reached = self.timeline.seek_frame(here.frame.saturating_sub(1))?;
        if reached != here {
            return Ok(());
        }
        // Time jumped here: from the frame of the last step, or if there is none from the first.
        let frame = if self.timeline.step_back()? { self.timeline.position().frame } else { 0 };
        self.timeline.seek_frame(frame).map(drop)
    }

    /// The number of the wave that the last step was in.
    fn last_wave(&self) -> u64 {
        let world = self.timeline.world();
        if world.stage() == Stage::Wave { world.wave() } else { world.wave().saturating_sub(1) }
    }
}

/// Steps of a long way between two questions.
const STRETCH: u64 = 1_000_000;
