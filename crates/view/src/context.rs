//! Events about contexts as text: why a coroutine was throttled, demoted, replenished, late or
//! refused.

use wavelock_abi::{Errno, HostOperation};
use wavelock_trace::Event;

/// One line about an event of a context; `None` for other events.
// Long: one arm per event.
pub(crate) fn describe(
    event: &Event<'_>,
    session: &dyn Fn(u64) -> String,
    context: &dyn Fn(u64) -> String,
) -> String {
    let holder = |id: u64, slot: u64| {
        if id == u64::MAX { "no coroutine".to_owned() } else { format!("{}/{slot}", session(id)) }
    };
    match *event {
        Event::Context { context: number, owner, budget, period, deadline } => {
            format!(
                "{} of {} created: {budget} cycles per {period}, deadline {deadline} after release",
                context(number),
                session(owner)
            )
        }
        Event::Bind { context: number, session: id, slot } => {
            format!("{} now holds {}", holder(id, slot), context(number))
        }
        Event::Throttle { context: number, session: id, slot, until, overrun } => {
            format!(
                "{} used up the refill of {} (overrun {overrun}) and is throttled until cycle {until}",
                holder(id, slot),
                context(number)
            )
        }
        Event::Demote { context: number, session: id, slot, until, overrun } => {
            format!(
                "{} used up the refill of {} (overrun {overrun}) and is demoted to best effort until cycle {until}",
                holder(id, slot),
                context(number)
            )
        }
        Event::Overrun { context: number, session: id, slot, deadline, overrun } => {
            format!(
                "{} ran {overrun} beyond the refill of {} and continues, with its deadline now at cycle {deadline}",
                holder(id, slot),
                context(number)
            )
        }
        Event::Replenish { context: number, session: id, slot, amount, deadline } => {
            format!(
                "{} got a refill of {amount} cycles for {}, deadline at cycle {deadline}",
                context(number),
                holder(id, slot)
            )
        }
        Event::Miss { context: number, session: id, slot, deadline } => {
            format!(
                "{} missed its deadline at cycle {deadline} on {}",
                holder(id, slot),
                context(number)
            )
        }
        Event::Notify { context: number } => {
            format!("{} was used up: a message went to its timeout channel", context(number))
        }
        Event::Donate { context: number, session: id, slot, depth } => {
            format!(
                "{} was lent to {} (loan {depth} of its chain)",
                context(number),
                holder(id, slot)
            )
        }
        Event::Return { context: number, session: id, slot, depth } => {
            format!("{} was returned to {} ({depth} loans left)", context(number), holder(id, slot))
        }
        Event::Revoke { context: number, session: u64::MAX, loans, .. } => {
            format!("{} was revoked, and {loans} loans with it", context(number))
        }
        Event::Revoke { context: number, session: id, slot, loans } => {
            format!(
                "{} was revoked from {}, and {loans} loans with it",
                context(number),
                holder(id, slot)
            )
        }
        Event::Deny { session: id, slot, operation, code } => {
            let operation = u8::try_from(operation)
                .ok()
                .and_then(HostOperation::from_code)
                .map_or("an operation", HostOperation::import);
            let code =
                Errno::ALL.iter().find(|errno| u64::from(errno.code().unsigned_abs()) == code);
            let (code, meaning) =
                code.map_or(("a code", "unknown"), |errno| (errno.name(), errno.meaning()));
            format!("`{operation}` of {} was refused with {code}: {meaning}", holder(id, slot))
        }
        Event::Priority { session: id, slot, priority } => {
            format!("{} has priority {priority} now", holder(id, slot))
        }
        Event::OutOfRange { session: id, slot, operation, found, most } => {
            let operation = u8::try_from(operation)
                .ok()
                .and_then(HostOperation::from_code)
                .map_or("an operation", HostOperation::import);
            format!(
                "`{operation}` of {} got {}, where 0 to {most} is allowed",
                holder(id, slot),
                found as i64
            )
        }
        Event::CapThrottle { session: id, used, budget, until } => {
            format!(
                "{} used {used} of the {budget} cycles of its cap and is throttled until frame {until}",
                session(id)
            )
        }
        Event::CapDemote { session: id, used, budget, until } => {
            format!(
                "{} used {used} of the {budget} cycles of its cap and runs in the background until frame {until}",
                session(id)
            )
        }
        Event::CapRefill { session: id, used, budget } => {
            format!(
                "{} competes again: its cap of {budget} cycles was refilled, {used} of them are paid for its overrun",
                session(id)
            )
        }
        ref other => other.name().to_owned(),
    }
}
