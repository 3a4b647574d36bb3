//! Events about contexts in words: why somebody was throttled, demoted, replenished, late or refused.

use wavelock_abi::{Errno, HostOperation};
use wavelock_trace::Event;

/// One line about an event of a context; any other event is none of its business.
pub(crate) fn describe(event: &Event<'_>, session: &dyn Fn(u64) -> String) -> String {
    let holder = |id: u64, slot: u64| if id == u64::MAX { "nobody".to_owned() } else { format!("{}/{slot}", session(id)) };
    match *event {
        Event::Context { context, owner, budget, period, deadline } => {
            format!(
                "context {context} of {} made: {budget} cycles in every {period}, each within {deadline} of its release",
                session(owner)
            )
        }
        Event::Bind { context, session: id, slot } => format!("{} holds context {context} from now on", holder(id, slot)),
        Event::Throttle { context, session: id, slot, until, overrun } => {
            format!(
                "{} used up the refill of context {context} (and {overrun} more) and waits for the next until cycle {until}",
                holder(id, slot)
            )
        }
        Event::Demote { context, session: id, slot, until, overrun } => {
            format!(
                "{} used up the refill of context {context} (and {overrun} more) and is best effort until cycle {until}",
                holder(id, slot)
            )
        }
        Event::Overrun { context, session: id, slot, deadline, overrun } => {
            format!("{} ran {overrun} beyond the refill of context {context} and goes on, now due at cycle {deadline}", holder(id, slot))
        }
        Event::Replenish { context, session: id, slot, amount, deadline } => {
            format!("context {context} has {amount} cycles again for {}, due at cycle {deadline}", holder(id, slot))
        }
        Event::Miss { context, session: id, slot, deadline } => {
            format!("{} missed its deadline at cycle {deadline} on context {context}", holder(id, slot))
        }
        Event::Notify { context } => format!("context {context} was used up: its timeout channel is told"),
        Event::Donate { context, session: id, slot, depth } => {
            format!("context {context} was lent to {} (loan {depth} of its chain)", holder(id, slot))
        }
        Event::Return { context, session: id, slot, depth } => {
            format!("context {context} came back to {} ({depth} loans left)", holder(id, slot))
        }
        Event::Revoke { context, loans } => format!("context {context} was revoked, with {loans} loans"),
        Event::Deny { session: id, slot, operation, code } => {
            let operation = u8::try_from(operation).ok().and_then(HostOperation::from_code).map_or("an operation", HostOperation::import);
            let code = Errno::ALL.iter().find(|errno| u64::from(errno.code().unsigned_abs()) == code);
            let (code, meaning) = code.map_or(("a code", "unknown"), |errno| (errno.name(), errno.meaning()));
            format!("`{operation}` of {} was refused with {code}: {meaning}", holder(id, slot))
        }
        ref other => other.name().to_owned(),
    }
}
