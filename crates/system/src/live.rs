//! Machines that live: inputs that are given while the machine runs (semantics 80 to 84).
//!
//! ```text
//!   give ──▶ the queue, by frame ──▶ begin_frame: sampled, recorded (Sink::inputs)
//!   allow(frame) ──▶ advance: frames before it may start; the next is the first with an event
//! ```
//!
//! Contract: what a run does depends on the inputs and their frames, not on when they were given or
//! how far the driver let the machine run at a time. A frame in which nothing would happen is
//! never run, so an idle machine costs nothing and its clocks jump. Nothing a driver gives can
//! panic: it is refused before it enters the queue, or what cannot be done any more in its frame
//! is an event there.

use crate::control::Control;
use crate::errors::errors;
use crate::input::{InputEvent, Recipient};
use crate::load::LoadError;
use crate::world::{Phase, World};
use alloc::boxed::Box;
use wavelock_abi::{Frame, SessionId};

/// Bytes of one input of a live machine.
pub const MOST_INPUT_BYTES: u64 = 16 << 20;

/// Bytes of the inputs that wait for their frames.
pub const MOST_WAITING_BYTES: u64 = 32 << 20;

/// Inputs that wait for their frames.
pub const MOST_WAITING_INPUTS: usize = 1 << 20;

/// Bytes of input that a session of a live machine keeps unread.
pub const MOST_UNREAD_BYTES: u64 = 16 << 20;

/// Input events that a session of a live machine keeps unread.
pub const MOST_UNREAD_EVENTS: usize = 1 << 16;

/// What a live machine is told from outside, at the start of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// An input event.
    Bytes {
        /// The sessions that get it.
        to: Recipient,
        /// Its bytes.
        bytes: Box<[u8]>,
    },
    /// The end of a session's input: what it has not read is the last.
    End {
        /// The sessions whose input ends.
        to: Recipient,
    },
    /// The machine ends with this frame.
    Stop,
    /// A change of a session (semantics 84).
    Control(Control),
    /// What the embedder's functions answered on a lane in this frame, from a recording: the calls
    /// take these answers instead of calling. In no digest.
    Answers {
        /// The lane.
        lane: u16,
        /// The answers, as [`Sink::answers`](crate::Sink::answers) had them.
        bytes: Box<[u8]>,
    },
}

impl Input {
    /// Bytes it carries.
    #[must_use]
    pub const fn size(&self) -> u64 {
        match self {
            Self::Bytes { bytes, .. } | Self::Answers { bytes, .. } => bytes.len() as u64,
            Self::Control(control) => control.size(),
            Self::End { .. } | Self::Stop => 0,
        }
    }

    const fn recipient(&self) -> Option<Recipient> {
        match self {
            Self::Bytes { to, .. } | Self::End { to } => Some(*to),
            Self::Control(control) => Some(Recipient::Session(control.session())),
            Self::Stop | Self::Answers { .. } => None,
        }
    }
}

/// An input and its frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Given {
    pub(crate) frame: Frame,
    pub(crate) input: Input,
}

impl From<InputEvent> for Given {
    fn from(InputEvent { frame, recipient, bytes }: InputEvent) -> Self {
        Self { frame, input: Input::Bytes { to: recipient, bytes } }
    }
}

errors! {
    /// Why an input is refused.
    GiveError {
        /// The machine takes inputs at load only.
        NotLive => "the machine takes no input while it runs: set live = true",
        /// The run has ended.
        Over => "the run has ended: it takes no more input",
        /// No session has this number.
        Session {
            /// The number.
            found: u32,
            /// Sessions so far.
            count: u32,
        } => "an input is for session {found}: there are {count}, counted from 0",
        /// The frame has started.
        Past {
            /// The frame of the input.
            frame: u64,
            /// The first frame that has not started.
            next: u64,
        } => "an input is for frame {frame}, which has started: the next is {next}",
        /// The run ends before the frame.
        BeyondEnd {
            /// The frame of the input.
            frame: u64,
            /// The last frame of the run.
            last: u64,
        } => "an input is for frame {frame}: the last of the run is {last}",
        /// The input is too large.
        TooLarge {
            /// Its bytes.
            found: u64,
        } => "an input has {found} bytes: at most {MOST_INPUT_BYTES} are allowed",
        /// Too much waits for its frame.
        Full {
            /// Inputs that wait.
            inputs: u64,
            /// Their bytes.
            bytes: u64,
        } => "{inputs} inputs with {bytes} bytes wait for their frames: at most {MOST_WAITING_INPUTS} with \
              {MOST_WAITING_BYTES} bytes may",
        /// A control input has a setting that the machine could not have been loaded with.
        Setting {
            /// Why.
            error: Box<LoadError>,
        } => "{error}",
        /// The description has no such context of the session.
        NoContext {
            /// The session.
            session: u32,
            /// The name.
            name: Box<str>,
        } => "session {session} has no context `{name}` in the machine's description",
        /// A control input is for a session that has ended.
        Ended {
            /// The session.
            session: u32,
        } => "session {session} has ended: nothing of it can be changed any more",
    }
}

/// Inputs that are given.
impl World {
    /// Gives a live machine an input for the next frame that has not started, and returns that
    /// frame.
    ///
    /// # Errors
    /// See [`GiveError`]; nothing has changed then.
    pub fn give(&mut self, input: Input) -> Result<Frame, GiveError> {
        let frame = self.open_frame()?;
        self.give_at(frame, input)?;
        Ok(frame)
    }

    /// Gives a live machine an input for a frame that has not started. Inputs of one frame are
    /// delivered in the order in which they were given.
    ///
    /// # Errors
    /// See [`GiveError`]; nothing has changed then.
    pub fn give_at(&mut self, frame: Frame, input: Input) -> Result<(), GiveError> {
        self.check_input(frame, &input)?;
        if let Input::Control(control) = &input
            && self.open_frame()? == frame
        {
            self.check_control_now(control)?;
        }
        let (inputs, bytes) = (self.inputs.len(), self.waiting_bytes);
        if bytes + input.size() > MOST_WAITING_BYTES || inputs >= MOST_WAITING_INPUTS {
            return Err(GiveError::Full { inputs: inputs as u64, bytes });
        }
        self.enqueue(frame, input);
        Ok(())
    }

    /// Gives a live machine the inputs of a recorded run, or of the rest of one, in their order;
    /// any number of them may wait for their frames.
    ///
    /// # Errors
    /// See [`GiveError`]; what comes before the refused input was given.
    pub fn give_recorded(
        &mut self,
        inputs: impl IntoIterator<Item = (Frame, Input)>,
    ) -> Result<(), GiveError> {
        inputs.into_iter().try_for_each(|(frame, input)| {
            self.check_input(frame, &input)?;
            self.enqueue(frame, input);
            Ok(())
        })
    }

    fn enqueue(&mut self, frame: Frame, input: Input) {
        self.waiting_bytes += input.size();
        let at = self.inputs.partition_point(|given| given.frame <= frame);
        self.inputs.insert(at, Given { frame, input });
    }

    fn check_input(&self, frame: Frame, input: &Input) -> Result<(), GiveError> {
        let (next, last) = (self.open_frame()?, self.last_frame());
        if frame < next {
            return Err(GiveError::Past { frame: frame.0, next: next.0 });
        }
        if frame > last {
            return Err(GiveError::BeyondEnd { frame: frame.0, last: last.0 });
        }
        if let Some(Recipient::Session(SessionId(found))) = input.recipient()
            && found as usize >= self.session_groups.len()
        {
            return Err(GiveError::Session { found, count: self.session_groups.len() as u32 });
        }
        let found = input.size();
        if found > MOST_INPUT_BYTES {
            return Err(GiveError::TooLarge { found });
        }
        match input {
            Input::Control(control) => self.check_control(control),
            _ => Ok(()),
        }
    }

    /// The first frame that has not started: the one that [`World::give`] gives inputs for.
    ///
    /// # Errors
    /// The machine is not live, or the run has ended.
    pub fn open_frame(&self) -> Result<Frame, GiveError> {
        match self.phase {
            _ if !self.spec.live => Err(GiveError::NotLive),
            Phase::Done(_) | Phase::Suspended => Err(GiveError::Over),
            Phase::Boundary => Ok(self.progress.frame),
            Phase::Frame | Phase::Wave(_) => Ok(Frame(self.frame().0 + 1)),
        }
    }

    /// Lets frames before `until` start, and no other: at the boundary before `until` the machine
    /// waits ([`Stage::Waiting`](crate::Stage)). Not state, and nothing of a run depends on it.
    ///
    /// A machine that is not live may start every frame until this is called, a live one none.
    pub const fn allow(&mut self, until: Frame) {
        self.until = until;
    }

    /// At a boundary, the next frame in which anything happens without another input; `None` if
    /// nothing does before the run's last frame.
    #[must_use]
    pub fn due(&mut self) -> Option<Frame> {
        let frame = self.progress.frame;
        if frame == Frame::ZERO || self.has_work() {
            return Some(frame);
        }
        let last = self.last_frame();
        self.next_event().map(|at| at.max(frame).min(last))
    }

    /// The next frame that would run. The last of the run always runs.
    pub(crate) fn due_frame(&mut self) -> Frame {
        self.due().unwrap_or_else(|| self.last_frame())
    }

    /// At a boundary of a live machine: starts the next frame that is due, if it may start; else
    /// time passes up to the frame that may not.
    pub(crate) fn begin_due_frame(&mut self, sink: &mut dyn crate::world::Sink) {
        let due = self.due_frame();
        if due < self.until {
            self.progress.frame = due;
            self.begin_frame(sink);
        } else {
            self.progress.frame = self.progress.frame.max(self.until);
        }
    }
}
