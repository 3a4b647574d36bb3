//! Arguments of `wavelock serve` and `wavelock ctl`.

use crate::arguments::number;
use clap::{Args, Subcommand, ValueEnum};
use std::net::SocketAddr;
use std::path::PathBuf;

/// When a change is acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum SyncMode {
    /// When the disk has it: it survives the loss of power.
    Disk,
    /// When the operating system has it: it survives the end of the process.
    System,
}

/// `wavelock serve`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct ServeArguments {
    /// The folder of the machines; made if it does not exist
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Where to listen; port 0 takes a free one. Other hosts need --certificate
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub listen: SocketAddr,
    /// A name that clients reach the server by, beside its address; may be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// A PEM file with the chain of certificates for TLS
    #[arg(long, value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// A PEM file with the key of the certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// When a change is acknowledged: disk (survives the loss of power) or system (survives the
    /// end of the process)
    #[arg(long, value_name = "WHEN", value_enum, default_value = "disk")]
    pub sync: SyncMode,
    /// Native threads that a wave of a machine may use; affects speed, never a digest
    #[arg(
        long, value_name = "N", default_value = "1",
        value_parser = |text: &str| number(text, 1, 1024)
    )]
    pub workers: u64,
    /// Hold all machines back when the process uses more than this many MiB
    #[arg(
        long, value_name = "MIB", default_value = "8192",
        value_parser = |text: &str| number(text, 64, 1 << 30)
    )]
    pub memory: u64,
}

/// `wavelock ctl`.
#[derive(Clone, PartialEq, Debug, Args)]
pub struct CtlArguments {
    /// The address of the server
    #[arg(
        long,
        value_name = "URL",
        env = "WAVELOCK_SERVER",
        default_value = "http://127.0.0.1:7070"
    )]
    pub server: String,
    /// A file with the token, such as FOLDER/admin.token
    #[arg(long, value_name = "FILE", env = "WAVELOCK_TOKEN_FILE")]
    pub token_file: PathBuf,
    /// A PEM file with the certificates to trust, for https
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Print the server's answers as JSON
    #[arg(long)]
    pub json: bool,
    /// What to do
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// The commands of `wavelock ctl`.
#[derive(Clone, PartialEq, Debug, Subcommand)]
pub enum CtlCommand {
    /// List the machines
    List,
    /// Show a machine
    Show {
        /// The machine
        machine: String,
    },
    /// Create a machine from a manifest; its modules are uploaded
    Create {
        /// Its name
        machine: String,
        /// The manifest; the modules it names are read beside it
        manifest: PathBuf,
        /// Frames per second [default: 60]
        #[arg(long)]
        hz: Option<f64>,
        /// Run it at once
        #[arg(long)]
        start: bool,
    },
    /// Run a machine's frames
    Start {
        /// The machine
        machine: String,
        /// Frames per second [default: unchanged]
        #[arg(long)]
        hz: Option<f64>,
    },
    /// Stop running frames
    Pause {
        /// The machine
        machine: String,
    },
    /// Run frames of a paused machine
    Step {
        /// The machine
        machine: String,
        /// How many
        #[arg(default_value = "1")]
        frames: u64,
    },
    /// Fork a machine, now or at an earlier frame
    Fork {
        /// The machine
        machine: String,
        /// The name of the new one
        name: String,
        /// The frame it begins at [default: the next]
        #[arg(long)]
        frame: Option<u64>,
        /// Run it at once
        #[arg(long)]
        start: bool,
    },
    /// Keep the state: the trace goes on in a new segment
    Snapshot {
        /// The machine
        machine: String,
    },
    /// End the run of a machine
    End {
        /// The machine
        machine: String,
    },
    /// Delete a machine and everything it recorded
    Delete {
        /// The machine
        machine: String,
    },
    /// Give a session text, or every session
    Input {
        /// The machine
        machine: String,
        /// The session, or * for all
        session: String,
        /// The text; a newline is not added
        text: String,
    },
    /// End the input of a session
    Close {
        /// The machine
        machine: String,
        /// The session
        session: String,
    },
    /// List sessions with what they used
    Sessions {
        /// The machine
        machine: String,
    },
    /// Upload a module and start a session of it
    Run {
        /// The machine
        machine: String,
        /// The name of the session
        session: String,
        /// The module (.wasm, .wat)
        module: PathBuf,
        /// An argument of the guest; may be repeated
        #[arg(long)]
        arg: Vec<String>,
        /// A port and the channel it leads to, as PORT=CHANNEL; may be repeated
        #[arg(long, value_name = "PORT=CHANNEL")]
        port: Vec<String>,
        /// Its weight
        #[arg(long)]
        weight: Option<u16>,
        /// Its lane
        #[arg(long)]
        lane: Option<u16>,
    },
    /// Upload a module and replace that of a session by it
    Replace {
        /// The machine
        machine: String,
        /// The session
        session: String,
        /// The module (.wasm, .wat)
        module: PathBuf,
    },
    /// Hold a session
    Hold {
        /// The machine
        machine: String,
        /// The session
        session: String,
    },
    /// Release a session
    Release {
        /// The machine
        machine: String,
        /// The session
        session: String,
    },
    /// End a session
    Kill {
        /// The machine
        machine: String,
        /// The session
        session: String,
    },
    /// Give a session another weight
    Weight {
        /// The machine
        machine: String,
        /// The session
        session: String,
        /// 1 to 65535; 1024 is neutral
        weight: u16,
    },
    /// Give a session a cap, or take it away with 0 cycles
    Cap {
        /// The machine
        machine: String,
        /// The session
        session: String,
        /// Cycles in a period
        cycles: u64,
        /// Frames of a period
        #[arg(long, default_value = "1")]
        frames: u64,
    },
    /// Give a context another budget
    Context {
        /// The machine
        machine: String,
        /// The session
        session: String,
        /// The context
        context: String,
        /// Cycles in its period
        cycles: u64,
    },
    /// Print frames as they happen, until the machine ends
    Watch {
        /// The machine
        machine: String,
        /// The first frame [default: the next]
        #[arg(long)]
        from: Option<u64>,
    },
    /// Why a coroutine ran at a step, or did not
    Why {
        /// The machine
        machine: String,
        /// The coroutine, as session/slot
        coroutine: String,
        /// The step
        step: u64,
    },
    /// Events of frames, from the trace
    Events {
        /// The machine
        machine: String,
        /// The first frame
        frame: u64,
        /// How many
        #[arg(default_value = "1")]
        frames: u64,
    },
    /// What a machine did and cost so far
    Report {
        /// The machine
        machine: String,
    },
    /// Download the segments of a trace into a folder
    Trace {
        /// The machine
        machine: String,
        /// The folder
        folder: PathBuf,
    },
    /// Metrics, for Prometheus
    Metrics,
    /// List tokens
    Tokens,
    /// Make a token and print it
    Token {
        /// Its name
        name: String,
        /// viewer, operator or admin
        #[arg(long, default_value = "viewer")]
        role: String,
        /// A machine it is for, or *; may be repeated
        #[arg(long = "for", value_name = "MACHINE", default_value = "*")]
        machines: Vec<String>,
    },
    /// Take a token back
    Revoke {
        /// Its name
        name: String,
    },
}
