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

use crate::ask::AskId;
use crate::control::Control;
use crate::errors::errors;
use crate::input::{InputEvent, Recipient};
use crate::load::LoadError;
use crate::spec::MachineSpec;
use crate::world::{Phase, World};
use alloc::boxed::Box;
use alloc::sync::Arc;
use wavelock_abi::{Cycles, Frame, LaneId, SessionId};

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

/// What a live machine gets from outside, at the start of a frame.
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
    /// The reply to an ask of a coroutine.
    Reply {
        /// The ask.
        ask: AskId,
        /// The words of its results.
        results: Box<[u64]>,
    },
    /// What the embedder's functions answered on a lane in this frame, from a recording: the calls
    /// take these answers instead of calling. In no digest.
    Answers {
        /// The lane.
        lane: LaneId,
        /// The answers, as [`Sink::answers`](crate::Sink::answers) had them.
        bytes: Box<[u8]>,
    },
}

impl Input {
    /// Bytes it carries.
    #[must_use]
    pub fn size(&self) -> u64 {
        match self {
            Self::Bytes { bytes, .. } | Self::Answers { bytes, .. } => bytes.len() as u64,
            Self::Control(control) => control.size(),
            Self::Reply { results, .. } => 8 * results.len() as u64,
            Self::End { .. } | Self::Stop => 0,
        }
    }

    const fn recipient(&self) -> Option<Recipient> {
        match self {
            Self::Bytes { to, .. } | Self::End { to } => Some(*to),
            Self::Control(control) => match control.session() {
                Some(session) => Some(Recipient::Session(session)),
                None => None,
            },
            Self::Reply { ask, .. } => Some(Recipient::Session(ask.session)),
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
        /// The ask of a reply waits for none.
        NoAsk {
            /// The session.
            session: u32,
            /// The number of the ask.
            number: u64,
            /// Asks that the session made.
            made: u64,
        } => "a reply is for ask {number} of session {session}, which does not wait for one: the session made {made} asks, \
              counted from 0; an ask ends with its reply or with its coroutine",
        /// The machine was rolled back and asks something else under this number.
        OtherAsk {
            /// The session.
            session: u32,
            /// The number of the ask.
            number: u64,
        } => "a reply is for ask {number} of session {session}, which asks something else since the machine was rolled back",
        /// The ask has a reply that waits for its frame.
        Replied {
            /// The session.
            session: u32,
            /// The number of the ask.
            number: u64,
        } => "ask {number} of session {session} has a reply already, which waits for its frame",
        /// The reply has another number of values than the function returns.
        ReplyValues {
            /// The session.
            session: u32,
            /// The number of the ask.
            number: u64,
            /// Values of the reply.
            found: u64,
            /// Values that the function returns.
            expected: u64,
        } => "a reply to ask {number} of session {session} has {found} values: the function returns {expected}",
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
        /// The description has no such lease of the session.
        NoLease {
            /// The session.
            session: u32,
            /// The name.
            name: Box<str>,
        } => "session {session} has no lease `{name}` in the machine's description",
        /// A port of a new session leads to a channel that the machine has not.
        NoChannel {
            /// The port.
            port: Box<str>,
            /// The name.
            name: Box<str>,
        } => "port `{port}` leads to channel `{name}`, which the machine does not have",
        /// A channel of a new session has the name of another.
        SameChannel {
            /// The name.
            name: Box<str>,
        } => "the machine has a channel `{name}` already",
        /// A later module has a longer gap between safepoints than the machine allows.
        Gap {
            /// Its longest gap.
            found: Cycles,
            /// The most allowed.
            most: Cycles,
        } => "the module has a gap of {} cycles between safepoints: the machine allows {}; load it \
              with a larger most_gap_cycles" (found.0, most.0),
        /// Sessions start in the order in which they are given.
        Order {
            /// The frame of the input.
            frame: u64,
            /// The frame of a session that was given before.
            last: u64,
        } => "a session for frame {frame} is given after one for frame {last}: give them in the \
              order of their frames",
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
        let planned = self.check_input(frame, &input)?;
        match &input {
            Input::Reply { ask, results } => self.check_reply(*ask, results)?,
            Input::Control(control) if self.open_frame()? == frame => {
                self.check_control_now(control)?;
            }
            _ => {}
        }
        let (inputs, bytes) = (self.inputs.len(), self.waiting_bytes);
        if bytes + input.size() > MOST_WAITING_BYTES || inputs >= MOST_WAITING_INPUTS {
            return Err(GiveError::Full { inputs: inputs as u64, bytes });
        }
        self.enqueue(frame, input, planned);
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
            let planned = self.check_input(frame, &input)?;
            self.enqueue(frame, input, planned);
            Ok(())
        })
    }

    fn enqueue(&mut self, frame: Frame, input: Input, planned: Option<Arc<MachineSpec>>) {
        if let Some(spec) = planned {
            self.note_planned(frame, spec);
        }
        let frame = self.groups[0].shared.rules.input_frame(frame, &input);
        self.waiting_bytes += input.size();
        self.note_reply(&input);
        let at = self.inputs.partition_point(|given| given.frame <= frame);
        self.inputs.insert(at, Given { frame, input });
    }

    /// The inputs that wait for their frames, in the order in which they will be taken.
    pub fn inputs_to_come(&self) -> impl Iterator<Item = (Frame, &Input)> {
        self.inputs.iter().map(|given| (given.frame, &given.input))
    }

    /// Whether an input can be given; if it adds a session, the description with it.
    fn check_input(
        &self,
        frame: Frame,
        input: &Input,
    ) -> Result<Option<Arc<MachineSpec>>, GiveError> {
        let (next, last) = (self.open_frame()?, self.last_frame());
        if frame < next {
            return Err(GiveError::Past { frame: frame.0, next: next.0 });
        }
        if frame > last {
            return Err(GiveError::BeyondEnd { frame: frame.0, last: last.0 });
        }
        if let Some(Recipient::Session(SessionId(found))) = input.recipient()
            && found >= self.session_groups.len() as u32
            && found >= self.sessions_at(frame)
        {
            return Err(GiveError::Session { found, count: self.sessions_at(frame) });
        }
        let found = input.size();
        if found > MOST_INPUT_BYTES {
            return Err(GiveError::TooLarge { found });
        }
        match input {
            Input::Control(control) => self.check_control(frame, control),
            _ => Ok(None),
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
