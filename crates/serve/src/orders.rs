//! What a machine's thread is asked, and what it answers.

use crate::problem::Problem;
use std::path::PathBuf;
use tokio::sync::oneshot;
use wavelock::{CapSettings, Cycles, Module, Weight};
use wavelock_client::api;

/// An input, or a change of a session: taken by the machine as an input of its next frame, and
/// acknowledged when it is durable.
#[derive(Debug)]
pub(crate) enum Change {
    Input {
        session: Option<String>,
        bytes: Vec<u8>,
    },
    Close {
        session: String,
    },
    Weight {
        session: String,
        weight: Weight,
    },
    Cap {
        session: String,
        cap: Option<CapSettings>,
    },
    Context {
        session: String,
        context: String,
        budget: Cycles,
    },
    Hold {
        session: String,
    },
    Release {
        session: String,
    },
    Replace {
        session: String,
        module: Module,
        carry: Vec<u8>,
    },
    EndSession {
        session: String,
    },
    Start {
        new: Box<api::StartSession>,
        module: Module,
    },
    /// The run ends with its next frame.
    End,
}

/// What a machine's thread is asked.
#[derive(Debug)]
pub(crate) enum Ask {
    Change(Change),
    Pace {
        is_running: bool,
        hz: Option<f64>,
    },
    Step {
        frames: u64,
    },
    Snapshot,
    /// Write the state to this file.
    Export {
        to: PathBuf,
    },
    Sessions {
        from: u32,
    },
    /// The sessions that used most.
    Report,
    /// The thread ends.
    Quit,
}

/// What it answers.
#[derive(Debug)]
pub(crate) enum Answer {
    Taken(api::Taken),
    Started(api::Started),
    Position(api::Position),
    Machine(Box<api::Machine>),
    Sessions(api::Sessions),
    Report(Box<api::Report>),
    Done,
}

/// Where an answer goes.
pub(crate) type Slot = oneshot::Sender<Result<Answer, Problem>>;

/// A question with the way back for its answer.
pub(crate) struct Order {
    pub(crate) ask: Ask,
    pub(crate) answer: Slot,
}
