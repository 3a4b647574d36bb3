//! What can be wrong with what the embedder asks for, in one type.

use crate::machine::Session;
use std::fmt;
use std::io;
use wavelock_abi::{Cycles, Frame};
use wavelock_manifest::{Diagnostics, in_words};
use wavelock_replay::{MachineError, OpenError};
use wavelock_system::{ControlRefusal, GiveError, HostFailure, HostNumber, LoadError, StateError};
use wavelock_trace::Digest;

/// Why an operation was refused. Nothing has changed then, unless a variant says so.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An engine of no threads, or of too many.
    Threads {
        /// The number that was asked for.
        found: usize,
        /// The most allowed.
        most: usize,
    },
    /// The bytes are no module that can be loaded: not WebAssembly or its text, not valid, or
    /// beyond a limit.
    Module(String),
    /// The manifest is refused; each problem has its position.
    Manifest(Box<Diagnostics>),
    /// A file that the manifest names could not be read.
    File {
        /// Its path.
        path: std::path::PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The machine cannot be made.
    Load(Box<LoadError>),
    /// No session, or channel, of the machine has this name.
    Unknown {
        /// What it should name.
        what: &'static str,
        /// The name.
        name: String,
        /// The nearest that exists.
        nearest: Option<String>,
    },
    /// An input is refused.
    Input(GiveError),
    /// A reply of other types than the function returns.
    ReplyTypes {
        /// The session that asks.
        session: Session,
        /// The number of the ask.
        number: u64,
        /// The types of the reply.
        found: Vec<HostNumber>,
        /// The types that the function returns.
        expected: Vec<HostNumber>,
    },
    /// The machine is in the middle of a frame that [`Machine::advance_until`] or
    /// [`Remote::interrupt`] stopped: finish it with `advance`, or `load` an earlier state.
    ///
    /// [`Machine::advance_until`]: crate::Machine::advance_until
    /// [`Remote::interrupt`]: crate::Remote::interrupt
    InFrame {
        /// The frame.
        frame: Frame,
    },
    /// [`Remote::interrupt`](crate::Remote::interrupt) stopped the frame between two waves; the
    /// same frame continues with the next call.
    Interrupted {
        /// The frame.
        frame: Frame,
    },
    /// The run has ended.
    Over,
    /// A snapshot of another machine.
    OtherMachine,
    /// A snapshot of a frame that was confirmed since.
    Confirmed {
        /// The frame of the snapshot.
        frame: Frame,
        /// Frames before this one are final.
        confirmed: Frame,
    },
    /// A session that is started while the machine runs cannot have a guaranteed budget.
    NoBudget {
        /// The session.
        session: String,
    },
    /// A control input could not take effect in its frame. Nothing has changed.
    Refused {
        /// The frame.
        frame: Frame,
        /// Why.
        refusal: ControlRefusal,
    },
    /// The machine is being recorded already.
    Recording,
    /// The journal could not be written: the machine goes no further, and is made again from what
    /// the file has.
    JournalFailed,
    /// A machine with a journal does not go back, and one that keeps frames open has no journal.
    JournalRollback,
    /// A machine made again from a journal has another digest than the journal.
    Diverged {
        /// The last frame of the journal.
        frame: Frame,
        /// The digest of this build.
        found: Digest,
        /// The digest in the journal.
        expected: Digest,
    },
    /// Commands of guests panicked in the host: what they had changed by then stays, and the guests
    /// go on.
    CommandsPanicked {
        /// How many.
        commands: u64,
    },
    /// The machine in a file has other host functions.
    OtherHost {
        /// The host that was given.
        found: String,
        /// The host of the machine.
        expected: String,
    },
    /// A recording above level `inputs` of a machine that keeps no events.
    NoEvents,
    /// The quantum is longer than the policy allows.
    Quantum {
        /// The quantum.
        found: Cycles,
        /// The most allowed.
        most: Cycles,
    },
    /// A trace or an exported machine cannot be read.
    Open(OpenError),
    /// The machine in a file cannot be made.
    Machine(MachineError),
    /// The state cannot be written or restored.
    State(StateError),
    /// Writing or reading failed.
    Io(io::Error),
    /// The host could not continue. The machine is unusable.
    Host(HostFailure),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads { found, most } => {
                write!(f, "an engine of {found} threads: 1 to {most} are allowed")
            }
            Self::Module(error) => f.write_str(error),
            Self::Manifest(diagnostics) => diagnostics.fmt(f),
            Self::File { path, error } => write!(f, "cannot read `{}`: {error}", path.display()),
            Self::Load(error) => f.write_str(&in_words(error)),
            Self::Unknown { what, name, nearest } => {
                write!(f, "there is no {what} `{name}`")?;
                nearest.iter().try_for_each(|near| write!(f, "; did you mean `{near}`?"))
            }
            Self::Input(error) => error.fmt(f),
            Self::ReplyTypes { session, number, found, expected } => write!(
                f,
                "a reply to ask {number} of session {} has values {}: the function returns {}",
                session.number(),
                types(found),
                types(expected)
            ),
            Self::InFrame { frame } => {
                write!(f, "the machine is inside frame {}: finish it with `advance` first", frame.0)
            }
            Self::Interrupted { frame } => {
                write!(f, "frame {} was interrupted: the next call continues it", frame.0)
            }
            Self::Over => f.write_str("the run has ended"),
            Self::OtherMachine => f.write_str("the snapshot is of another machine"),
            Self::Confirmed { frame, confirmed } => write!(
                f,
                "the snapshot is of frame {}, but frames before {} are confirmed: a larger \
                 `MachineBuilder::rollback` keeps more of them open",
                frame.0, confirmed.0
            ),
            Self::NoBudget { session } => write!(
                f,
                "session `{session}` starts while the machine runs and cannot have a budget: give it \
                 a cap or a weight"
            ),
            Self::Refused { frame, refusal } => write!(f, "in frame {}: {refusal}", frame.0),
            Self::Recording => f.write_str("the machine is being recorded already"),
            Self::JournalFailed => f.write_str(
                "the journal could not be written: the machine goes on only when it is made again \
                 from its journal",
            ),
            Self::JournalRollback => {
                f.write_str("a machine with a journal keeps no frames open and does not go back")
            }
            Self::Diverged { frame, found, expected } => write!(
                f,
                "after frame {} the journal has digest {expected}, and this build {found}",
                frame.0
            ),
            Self::CommandsPanicked { commands } => {
                write!(f, "{commands} commands of guests panicked in the host")
            }
            Self::OtherHost { found, expected } => write!(
                f,
                "the machine has the functions of host {expected}; those of {found} differ in \
                 name, version, types or costs"
            ),
            Self::NoEvents => f.write_str(
                "the machine keeps no events to record above level `inputs`: see \
                 `MachineBuilder::events`",
            ),
            Self::Quantum { found, most } => write!(
                f,
                "the quantum is {} cycles: at most {} are allowed under `fair`",
                found.0, most.0
            ),
            Self::Open(error) => error.fmt(f),
            Self::Machine(error) => error.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Io(error) => error.fmt(f),
            Self::Host(error) => error.fmt(f),
        }
    }
}

/// Types as a signature has them.
fn types(numbers: &[HostNumber]) -> String {
    let names = numbers.iter().map(|number| match number {
        HostNumber::I32 => "i32",
        HostNumber::I64 => "i64",
        HostNumber::F32 => "f32",
        HostNumber::F64 => "f64",
    });
    format!("({})", names.collect::<Vec<_>>().join(", "))
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Manifest(error) => Some(error),
            Self::File { error, .. } | Self::Io(error) => Some(error),
            Self::Load(error) => Some(error),
            Self::Input(error) => Some(error),
            Self::Open(error) => Some(error),
            Self::Machine(error) => Some(error),
            Self::State(error) => Some(error),
            Self::Host(error) => Some(error),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($error:ty => $variant:expr;)*) => {$(
        impl From<$error> for Error {
            fn from(error: $error) -> Self {
                $variant(error)
            }
        }
    )*};
}

from! {
    GiveError => Self::Input;
    HostFailure => Self::Host;
    OpenError => Self::Open;
    MachineError => Self::Machine;
    StateError => Self::State;
    io::Error => Self::Io;
    LoadError => |error| Self::Load(Box::new(error));
    Diagnostics => |error| Self::Manifest(Box::new(error));
}
