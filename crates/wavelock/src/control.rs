//! What a program changes about the sessions of a machine while it runs. Each is an input of a
//! frame: recorded, in the digest, and in a replay without the program.

use crate::builder::SessionBuilder;
use crate::engine::Module;
use crate::error::Error;
use crate::machine::{Machine, Session};
use crate::remote::Remote;
use wavelock_abi::{Cycles, Frame, Weight};
use wavelock_kernel::CapSettings;
use wavelock_system::{Control, Input, Replacement};

/// The input that replaces the module of a session.
fn replacement(session: Session, module: &Module, carry: &[u8]) -> Input {
    let (session, module) = (session.id(), module.later());
    Input::Control(Control::Replace(Box::new(Replacement { session, module, carry: carry.into() })))
}

/// Changes of sessions, as inputs of the next frame. Each returns the frame it is for. What only
/// the frame can tell (admission control, a session that ends before) is in its
/// [`FrameReport::refused`](crate::FrameReport::refused), and has changed nothing.
impl Machine {
    /// Gives a session another weight; where coroutines share by weight, also each of its
    /// coroutines.
    ///
    /// # Errors
    /// [`Error::Input`]: no such session, or it has ended.
    pub fn set_weight(&mut self, session: Session, weight: Weight) -> Result<Frame, Error> {
        self.give(Input::Control(Control::Weight { session: session.id(), weight }))
    }

    /// Gives a session another cap, or none. Its account starts full.
    ///
    /// # Errors
    /// [`Error::Input`]: no such session, it has ended, or the cap cannot be enforced.
    pub fn set_cap(&mut self, session: Session, cap: Option<CapSettings>) -> Result<Frame, Error> {
        self.give(Input::Control(Control::Cap { session: session.id(), cap }))
    }

    /// Gives a context of the machine's description another budget, if admission control allows it
    /// in that frame.
    ///
    /// # Errors
    /// [`Error::Input`]: no such session or context, or the session has ended.
    pub fn set_context_budget(
        &mut self,
        session: Session,
        context: &str,
        budget: Cycles,
    ) -> Result<Frame, Error> {
        let (session, name) = (session.id(), context.into());
        self.give(Input::Control(Control::Context { session, name, budget }))
    }

    /// Holds a session: none of its coroutines runs until [`Machine::release`]. Its channels and
    /// its input go on taking what comes.
    ///
    /// # Errors
    /// [`Error::Input`]: no such session, or it has ended.
    pub fn hold(&mut self, session: Session) -> Result<Frame, Error> {
        self.give(Input::Control(Control::Hold { session: session.id() }))
    }

    /// Takes back a hold.
    ///
    /// # Errors
    /// As [`Machine::hold`].
    pub fn release(&mut self, session: Session) -> Result<Frame, Error> {
        self.give(Input::Control(Control::Release { session: session.id() }))
    }

    /// Starts a session. Its handle is valid at once, for inputs of the same frame and later ones.
    ///
    /// # Errors
    /// [`Error::Input`] with what is wrong with it: its name is taken, its module does not fit the
    /// machine, a port leads nowhere, a limit is reached. [`Error::NoBudget`].
    pub fn start_session(&mut self, session: SessionBuilder) -> Result<Session, Error> {
        let new = Box::new(session.start()?);
        let number = self.sessions_planned();
        self.give(Input::Control(Control::Start(new)))?;
        Ok(Session::of_number(number))
    }

    /// Gives a session another module, with which it begins anew: under the same name, number and
    /// handle, with its cap, contexts, channels and ports. Messages that wait in its channels and
    /// input that it has not read stay; `carry` is input that comes before them. A session that has
    /// ended can be replaced too.
    ///
    /// # Errors
    /// [`Error::Input`]: no such session, or the module cannot take its place: it lacks an entry or
    /// an import, is larger than a limit, or has a longer gap than
    /// [`MachineBuilder::most_gap`](crate::MachineBuilder::most_gap).
    pub fn replace_session(
        &mut self,
        session: Session,
        module: &Module,
        carry: &[u8],
    ) -> Result<Frame, Error> {
        self.give(replacement(session, module, carry))
    }

    /// Ends a session: its coroutines are canceled, its channels close, its memory is released. Its
    /// outcome is [`SessionOutcome::Canceled`](crate::SessionOutcome).
    ///
    /// # Errors
    /// As [`Machine::hold`].
    pub fn end_session(&mut self, session: Session) -> Result<Frame, Error> {
        self.give(Input::Control(Control::End { session: session.id() }))
    }
}

/// Changes of sessions from other threads. One that is refused is reported by
/// [`FrameReport::refused`](crate::FrameReport::refused).
impl Remote {
    /// [`Machine::set_weight`] at the next boundary.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn set_weight(&self, session: Session, weight: Weight) -> Result<(), Error> {
        self.give(Input::Control(Control::Weight { session: session.id(), weight }))
    }

    /// [`Machine::set_cap`] at the next boundary.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn set_cap(&self, session: Session, cap: Option<CapSettings>) -> Result<(), Error> {
        self.give(Input::Control(Control::Cap { session: session.id(), cap }))
    }

    /// [`Machine::set_context_budget`] at the next boundary.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn set_context_budget(
        &self,
        session: Session,
        context: &str,
        budget: Cycles,
    ) -> Result<(), Error> {
        let (session, name) = (session.id(), context.into());
        self.give(Input::Control(Control::Context { session, name, budget }))
    }

    /// [`Machine::start_session`] at the next boundary. [`Machine::session`] finds it by its name
    /// when that frame has run.
    ///
    /// # Errors
    /// [`Error::NoBudget`]; as [`Remote::input`].
    pub fn start_session(&self, session: SessionBuilder) -> Result<(), Error> {
        self.give(Input::Control(Control::Start(Box::new(session.start()?))))
    }

    /// [`Machine::replace_session`] at the next boundary.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn replace_session(
        &self,
        session: Session,
        module: &Module,
        carry: &[u8],
    ) -> Result<(), Error> {
        self.give(replacement(session, module, carry))
    }

    /// [`Machine::hold`] at the next boundary.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn hold(&self, session: Session) -> Result<(), Error> {
        self.give(Input::Control(Control::Hold { session: session.id() }))
    }

    /// [`Machine::release`] at the next boundary.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn release(&self, session: Session) -> Result<(), Error> {
        self.give(Input::Control(Control::Release { session: session.id() }))
    }

    /// [`Machine::end_session`] at the next boundary.
    ///
    /// # Errors
    /// As [`Remote::input`].
    pub fn end_session(&self, session: Session) -> Result<(), Error> {
        self.give(Input::Control(Control::End { session: session.id() }))
    }
}
