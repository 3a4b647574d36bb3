//! Events about contexts in words: why somebody was throttled, demoted, replenished, late or
//! refused.

use wavelock_abi::{Errno, HostOperation};
use wavelock_trace::Event;

/// One line about an event of a context; any other event is none of its business.
pub(crate) fn describe(
    event: &Event<'_>,
    session: &dyn Fn(u64) -> String,
    context: &dyn Fn(u64) -> String,
) -> String {
    let holder = |id: u64, slot: u64| {
        if id == u64::MAX { "nobody".to_owned() } else { format!("{}/{slot}", session(id)) }
    };
    match *event {
        Event::Context { context: number, owner, budget, period, deadline } => {
            format!(
                "{} of {} made: {budget} cycles in every {period}, each within {deadline} of its release",
                context(number),
                session(owner)
            )
        }
        Event::Bind { context: number, session: id, slot } => {
            format!("{} holds {} from now on", holder(id, slot), context(number))
        }
        Event::Throttle { context: number, session: id, slot, until, overrun } => {
            format!(
                "{} used up the refill of {} (and {overrun} more) and waits for the next until cycle {until}",
                holder(id, slot),
                context(number)
            )
        }
        Event::Demote { context: number, session: id, slot, until, overrun } => {
            format!(
                "{} used up the refill of {} (and {overrun} more) and is best effort until cycle {until}",
                holder(id, slot),
                context(number)
            )
        }
        Event::Overrun { context: number, session: id, slot, deadline, overrun } => {
            format!(
                "{} ran {overrun} beyond the refill of {} and goes on, now due at cycle {deadline}",
                holder(id, slot),
                context(number)
            )
        }
        Event::Replenish { context: number, session: id, slot, amount, deadline } => {
            format!(
                "{} has {amount} cycles again for {}, due at cycle {deadline}",
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
            format!("{} was used up: its timeout channel is told", context(number))
        }
        Event::Donate { context: number, session: id, slot, depth } => {
            format!(
                "{} was lent to {} (loan {depth} of its chain)",
                context(number),
                holder(id, slot)
            )
        }
        Event::Return { context: number, session: id, slot, depth } => {
            format!("{} came back to {} ({depth} loans left)", context(number), holder(id, slot))
        }
        Event::Revoke { context: number, loans } => {
            format!("{} was revoked, with {loans} loans", context(number))
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
        ref other => other.name().to_owned(),
    }
}
