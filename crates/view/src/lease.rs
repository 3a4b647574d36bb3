//! Events about leases as text: asked for, active, denied with what was missing, ended and why.

use wavelock_abi::SchedulerOperation;
use wavelock_kernel::{Evidence, LeaseEnd, LeasePhase};
use wavelock_trace::Event;

/// The missing evidence of a denied lease, with its numbers.
#[must_use]
pub fn missing(evidence: u64, session: Option<&str>, count: u64, until: u64) -> String {
    let known = u8::try_from(evidence).ok().and_then(Evidence::from_code);
    let name = known.map_or("evidence", Evidence::name);
    let of = session.map_or_else(String::new, |session| format!(" of session {session}"));
    let why = match known {
        Some(Evidence::HousekeepingElsewhere) => {
            let what = session.unwrap_or("its lane");
            format!("no other lane is open and in a group of its own to take {what}")
        }
        Some(Evidence::DeferredCleanupDrained) if session.is_some() => {
            format!("{count} coroutines{of} were still in a call in frame {until}")
        }
        Some(Evidence::DeferredCleanupDrained) => format!("{count} requests of the lane wait"),
        Some(Evidence::TimersMigrated) => format!("{count} sleepers{of} until frame {until}"),
        Some(Evidence::WakeSourcesRouted) => {
            let first =
                session.map_or_else(String::new, |session| format!(", the first {session},"));
            format!("{count} open senders{first} to its channel {until}, which is no wake source")
        }
        Some(Evidence::AccountingTarget) => "its holder has lent or lost its context".to_owned(),
        Some(Evidence::SingleRunnable) => format!("{count} coroutines{of} that cannot leave"),
        Some(Evidence::NoStarvationServer) => match until {
            u64::MAX => "its holder runs as best effort".to_owned(),
            _ => format!("its holder runs as best effort until cycle {until}"),
        },
        Some(Evidence::RevocationBound) => format!("{count} cycles are promised, {until} needed"),
        None => format!("{count}, {until}{of}"),
    };
    format!("{name}, {why}")
}

/// One line about [`Event::Lease`] or [`Event::Noise`]; `lease` is the lease's name.
#[must_use]
pub fn lease(event: &Event<'_>, lease: &str, session: &dyn Fn(u64) -> String) -> String {
    match *event {
        Event::Lease { state, reason, session: id, first, second, .. } => {
            let known = (id != u64::MAX).then(|| session(id));
            let end = u8::try_from(reason).ok().and_then(LeaseEnd::from_code);
            let end = end.map_or("it ended", LeaseEnd::meaning);
            match u8::try_from(state).ok().and_then(LeasePhase::from_code) {
                Some(LeasePhase::Requested) => {
                    let by = known.map_or_else(String::new, |by| format!(" by {by}"));
                    format!("{lease} was asked for{by} at cycle {first}")
                }
                Some(LeasePhase::Active) if second == u64::MAX => {
                    format!("{lease} is active from cycle {first} on")
                }
                Some(LeasePhase::Active) => {
                    format!("{lease} is active from cycle {first} on, before frame {second}")
                }
                Some(LeasePhase::Denied) => {
                    format!("{lease} denied: {}", missing(reason, known.as_deref(), first, second))
                }
                Some(LeasePhase::Revoking) => {
                    format!("{lease} ended at cycle {second}, asked for at cycle {first}: {end}")
                }
                Some(LeasePhase::Released) => {
                    let late = if first > second { ", too late" } else { "" };
                    format!(
                        "the lane of {lease} is open again; the end took {first} of at most {second} cycles{late} ({end})"
                    )
                }
                Some(phase) => format!("{lease} is {}: {}", phase.name(), phase.meaning()),
                None => format!("{lease} is in an unknown state"),
            }
        }
        Event::Noise { operation, count, .. } => {
            let mut all = SchedulerOperation::ALL.iter();
            let operation = all.find(|known| **known as u64 == operation);
            let operation = operation.map_or("unknown", |operation| operation.name());
            format!("{lease} was not quiet: {count} times {operation} for others")
        }
        ref other => other.name().to_owned(),
    }
}
