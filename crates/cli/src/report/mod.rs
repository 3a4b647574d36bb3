//! Cost reports: the file that `run --report` writes, the tables that `wavelock report` prints, and
//! the profiles it is checked against.
//!
//! The law kept here: every cycle of a run is in exactly one row, by session, coroutine, function
//! and scheduler operation.

mod contexts;
mod inversions;
mod islands;
mod leases;
mod model;
mod print;
mod profile;
mod record;
mod waves;

pub use contexts::{ContextRow, ExecutedRow};
pub use inversions::{InversionRow, Inversions};
pub use islands::{IslandRow, MemberRow};
pub use leases::LeaseRow;
pub use model::{
    CallerRow, CapRow, CoroutineCounts, CoroutineId, CoroutineRow, CycleRow, DeadlockRow,
    DroppedRow, FORMAT, FaultRow, FunctionRow, KillRow, LISTED, LaneRow, LiveRow, Metric,
    MetricRow, ModelRow, OperationRow, Others, OutputRow, Report, ServiceRow, SessionCosts,
    SessionSummary, Stops, StuckRow, Summary, Telemetry, UnreadRow, VERSION, WaitRow, WorstFrame,
};
pub use print::print_report;
pub use profile::{LimitVerdict, Profile, Verdict, read_profiles};
pub use record::{FrameSample, Recorder, most_costly};
pub use waves::{ChannelRow, GroupRow, WIDTH_NAMES, WavesRow};

use crate::exit::Exit;
use crate::failure::Failure;
use std::path::Path;

/// Reads a report file. A file of another kind or version is refused.
pub fn read_report(path: &Path, bytes: &[u8]) -> Result<Report, Failure> {
    let refuse =
        |message: String| Failure::new(Exit::Refused, format!("`{}` {message}", path.display()));
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| {
        refuse(format!(
            "is not a report written by `wavelock run --report`: it is not JSON: {error}"
        ))
    })?;
    let (format, version) = (
        value.get("format").and_then(|format| format.as_str()),
        value.get("version").and_then(|version| version.as_u64()),
    );
    if format != Some(FORMAT) {
        return Err(refuse("is not a report written by `wavelock run --report`".to_owned()));
    }
    if version != Some(u64::from(VERSION)) {
        let found = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
        return Err(refuse(format!(
            "is a report of version {found}, but this wavelock reads version {VERSION}: write it again with `wavelock run --report`"
        )));
    }
    serde_json::from_value(value).map_err(|error| refuse(format!("is a damaged report: {error}")))
}
