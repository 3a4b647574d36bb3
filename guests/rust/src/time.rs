//! Contexts and policy: creates, binds, reads and revokes contexts through the handles that the
//! manifest granted.
//!
//! Every error is a [`Code`]; `docs/guest-interface.md` lists the errors of each operation.

use crate::{Channel, Code, Coroutine, check, raw};

/// What happens when a refill is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i64)]
pub enum Overrun {
    /// The holder waits for the next refill.
    Throttle = 0,
    /// The same, and the timeout channel is notified.
    NotifyAndThrottle = 1,
    /// The holder continues as best effort.
    Demote = 2,
    /// The timeout channel is notified and the holder continues.
    NotifyOnly = 3,
    /// The coroutine that it is bound to ends.
    End = 4,
}

/// When the period of a refill starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i64)]
pub enum Activation {
    /// When its holder becomes runnable.
    Sporadic = 0,
    /// When its holder becomes current.
    ConstantBandwidth = 1,
}

/// The parameters of a context. Times are in cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Cycles per period.
    pub budget: i64,
    /// The period.
    pub period: i64,
    /// Cycles from a release to its deadline.
    pub deadline: i64,
    /// Maximum number of separate refills, 2 to 8.
    pub refills: i64,
    /// What happens when a refill is used up.
    pub overrun: Overrun,
    /// When the period of a refill starts.
    pub activation: Activation,
}

impl Parameters {
    /// A budget of cycles per period, with the deadline at the period's end and four refills; a
    /// holder that used it up is throttled.
    #[must_use]
    pub const fn new(budget: i64, period: i64) -> Self {
        Self { budget, period, deadline: period, refills: 4, overrun: Overrun::Throttle, activation: Activation::Sporadic }
    }

    const fn words(self) -> [i64; 6] {
        [self.budget, self.period, self.deadline, self.refills, self.overrun as i64, self.activation as i64]
    }
}

/// The notification cell of a context: how often a refill was used up since the last read, when,
/// and by how much it was overrun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Notice {
    /// The number of times.
    pub count: i64,
    /// The lane clock at the first.
    pub first: i64,
    /// The lane clock at the last.
    pub last: i64,
    /// Cycles beyond the refill, at the last.
    pub overrun: i64,
}

fn capability(name: &str) -> Result<i32, Code> {
    // SAFETY: the name is valid for reads of its length.
    check(unsafe { raw::capability(name.as_ptr(), name.len()) })
}

/// The right to create contexts on the session's home lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control(i32);

impl Control {
    /// What the manifest granted.
    ///
    /// # Errors
    /// `Denied` without the grant.
    pub fn granted() -> Result<Self, Code> {
        capability("control").map(Self)
    }

    /// Creates a context.
    ///
    /// # Errors
    /// `Limit` if the lane cannot guarantee it, `Invalid` if a parameter is out of range.
    pub fn create(self, parameters: Parameters) -> Result<Context, Code> {
        // SAFETY: six words are valid for reads.
        check(unsafe { raw::context_create(self.0, parameters.words().as_ptr()) }).map(Context)
    }
}

/// The right to change weights, latency classes and priorities of the session's coroutines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy(i32);

impl Policy {
    /// What the manifest granted.
    ///
    /// # Errors
    /// `Denied` without the grant.
    pub fn granted() -> Result<Self, Code> {
        capability("policy").map(Self)
    }

    /// Sets a weight, 1 to 65535.
    ///
    /// # Errors
    /// `Invalid`, `Stale`.
    pub fn weight(self, coroutine: Coroutine, weight: i32) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::weight(self.0, coroutine.0, weight) }).map(drop)
    }

    /// Sets a latency class, 0 urgent to 4 idle.
    ///
    /// # Errors
    /// `Invalid`, `Stale`.
    pub fn latency_class(self, coroutine: Coroutine, class: i32) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::latency_class(self.0, coroutine.0, class) }).map(drop)
    }

    /// Sets a priority, 0 to 255; larger runs first.
    ///
    /// # Errors
    /// `Invalid`, `Stale`.
    pub fn priority(self, coroutine: Coroutine, priority: i32) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::priority(self.0, coroutine.0, priority) }).map(drop)
    }
}

/// A context, by its handle in this session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context(i32);

impl Context {
    /// A context of the manifest, by its name.
    ///
    /// # Errors
    /// `Denied` if the session has none of this name.
    pub fn named(name: &str) -> Result<Self, Code> {
        capability(name).map(Self)
    }

    /// Changes its parameters.
    ///
    /// # Errors
    /// `Limit` if the lane cannot guarantee them, `Invalid`, `Stale`.
    pub fn configure(self, parameters: Parameters) -> Result<(), Code> {
        // SAFETY: six words are valid for reads.
        check(unsafe { raw::context_configure(self.0, parameters.words().as_ptr()) }).map(drop)
    }

    /// Lets a coroutine run on it.
    ///
    /// # Errors
    /// `Invalid` if either is already bound, `Again` if the coroutine is blocked and the context
    /// has no usable budget, `Stale`.
    pub fn bind(self, coroutine: Coroutine) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::context_bind(self.0, coroutine.0) }).map(drop)
    }

    /// Takes it from its holder.
    ///
    /// # Errors
    /// `Invalid` if it is not bound, is lent, or is held by the caller; `Stale`.
    pub fn unbind(self) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::context_unbind(self.0) }).map(drop)
    }

    /// Revokes it, and ends the calls along which it was lent.
    ///
    /// # Errors
    /// `Stale`.
    pub fn revoke(self) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::context_revoke(self.0) }).map(drop)
    }

    /// Lane time charged to it since the last call.
    ///
    /// # Errors
    /// `Stale`.
    pub fn consumed(self) -> Result<i64, Code> {
        // SAFETY: no memory is involved.
        let consumed = unsafe { raw::context_consumed(self.0) };
        if consumed < 0 { Err(Code::of(consumed as i32)) } else { Ok(consumed) }
    }

    /// Reads and clears its notification cell.
    ///
    /// # Errors
    /// `Stale`.
    pub fn notice(self) -> Result<Notice, Code> {
        let mut words = [0; 4];
        // SAFETY: four words are valid for writes.
        check(unsafe { raw::context_notice(self.0, words.as_mut_ptr()) })?;
        let [count, first, last, overrun] = words;
        Ok(Notice { count, first, last, overrun })
    }

    /// Sets the channel of this session that is notified when its cell is first written, or none.
    ///
    /// # Errors
    /// `Invalid` for a channel of another session, `Stale`.
    pub fn timeout(self, channel: Option<Channel>) -> Result<(), Code> {
        // SAFETY: no memory is involved.
        check(unsafe { raw::context_timeout(self.0, channel.map_or(-1, |channel| channel.0)) }).map(drop)
    }
}

/// Gives up the rest of the refill and waits for the next.
///
/// # Errors
/// `Invalid` without a context.
pub fn give_up_refill() -> Result<(), Code> {
    // SAFETY: no memory is involved.
    check(unsafe { raw::context_yield() }).map(drop)
}
