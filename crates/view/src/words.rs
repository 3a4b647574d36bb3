//! Events as text: the only place where events become text. Elsewhere: events about contexts are in
//! `context`.

use crate::lease::lease;
use wavelock_abi::{Errno, FaultCode};
use wavelock_kernel::{BlockReason, WakeSource};
use wavelock_trace::Event;

/// One line of text about an event. `session` and `context` return the names of a session and of a
/// context of the event's lane.
// Long: one arm per event of the vocabulary.
#[must_use]
pub fn describe(
    event: &Event<'_>,
    session: &dyn Fn(u64) -> String,
    context: &dyn Fn(u64) -> String,
) -> String {
    match *event {
        Event::Step { session: id, slot, overhead, used, stop } => {
            format!(
                "{}/{slot} ran {used} cycles after {overhead} of the scheduler and {}",
                session(id),
                stop.text()
            )
        }
        Event::Wave { clock } => format!("a wave starts at cycle {clock}"),
        Event::Spawn { session: id, slot, generation, lane } => {
            format!("spawned {}/{slot}.{generation} on lane {lane}", session(id))
        }
        Event::Wake { session: id, slot, source } => {
            format!("woke {}/{slot} ({})", session(id), wake_source(source))
        }
        Event::Sleep { frames } => format!("sleeps for {frames} frames"),
        Event::Wait { reason, owner, index } => {
            format!("waits for {} ({}, {index})", block_reason(reason), session(owner))
        }
        Event::Send { owner, index } => format!("sent to channel {index} of {}", session(owner)),
        Event::Receive { owner, index } => {
            format!("received from channel {index} of {}", session(owner))
        }
        Event::Close { owner, index } => {
            format!("closed channel {index} of {}, or its port of it", session(owner))
        }
        Event::Channel { index, capacity } => {
            format!("created channel {index} with capacity {capacity}")
        }
        Event::End { session: id, slot, status, value } => {
            let how = ["finished", "faulted", "canceled", "killed"]
                .get(status as usize)
                .copied()
                .unwrap_or("ended");
            format!("{}/{slot} {how} with {}", session(id), value as i64)
        }
        Event::Fault { session: id, slot, code, function, offset } => {
            let fault = u8::try_from(code)
                .ok()
                .and_then(FaultCode::from_code)
                .map_or("unknown", FaultCode::text);
            format!(
                "{}/{slot} faulted: {fault} in function {function} at byte {offset:#x}",
                session(id)
            )
        }
        Event::Unpark { session: id, slot } => format!("unparked {}/{slot}", session(id)),
        Event::Cancel { session: id, slot } => format!("canceled {}/{slot}", session(id)),
        Event::Kill { session: id, slot, rule, budget, overrun } => format!(
            "killed {}/{slot}: it used {} of the {budget} cycles of its {}",
            session(id),
            budget.saturating_add(overrun),
            if rule == 0 { "context" } else { "session's cap" },
        ),
        Event::Output { session: id, bytes } => format!("{} wrote {}", session(id), excerpt(bytes)),
        Event::Input { session: id, length } => {
            format!("{} took {length} bytes of input", session(id))
        }
        Event::SessionEnd { session: id, outcome, exit } => {
            format!(
                "session {} ended: {}, exit {}",
                session(id),
                word(SESSION_OUTCOMES, outcome),
                exit as u32 as i32
            )
        }
        Event::Lease { lease: number, .. } | Event::Noise { lease: number, .. } => {
            lease(event, &format!("lease {number}"), session)
        }
        Event::Timers { woken } => format!("{woken} sleeping coroutines woke"),
        Event::FrameStart { frame } => format!("frame {frame} starts"),
        Event::Sample { session: id, bytes } => {
            format!("input for {}: {}", session(id), excerpt(bytes))
        }
        Event::View { function, answer } => {
            format!("host function {function} answered ({answer:#018x})")
        }
        Event::Ask { session: id, number, function } => {
            format!("{} asks through host function {function} (ask {number})", session(id))
        }
        Event::Reply { session: id, number, bytes } => {
            format!("reply to ask {number} of {}: {}", session(id), excerpt(bytes))
        }
        Event::LostReply { session: id, number } => {
            format!("a reply to ask {number} of {} came when that had ended", session(id))
        }
        Event::InputEnd { session: id } => format!("the input of {} ended", session(id)),
        Event::Stop { running } => {
            format!("the machine was told to end; {running} sessions were running")
        }
        Event::Jump { from, to } => {
            format!("nothing to run: skips from frame {from} to frame {to}")
        }
        Event::Arrival { lane, owner, index } => {
            format!("a message from lane {lane} entered channel {index} of {}", session(owner))
        }
        Event::Entered { session: id, slot, owner, index } => {
            format!(
                "the pending message of {}/{slot} entered channel {index} of {}",
                session(id),
                session(owner)
            )
        }
        Event::Move { session: id, from, to, .. } => {
            format!("session {} moved from lane {from} to {to}", session(id))
        }
        Event::Handoff { session: id, slot, from, to_session, to_slot, to, .. } => {
            format!(
                "{}/{to_slot} on lane {to} runs next, for a message of {}/{slot} from lane {from}",
                session(to_session),
                session(id)
            )
        }
        Event::Deadlock { waiting } => {
            format!("deadlock: {waiting} coroutines wait and nothing can wake them")
        }
        Event::FrameSync { frame } => format!("frame {frame} ends: output is written"),
        Event::Outcome { outcome } => format!("the machine ended: {}", word(OUTCOMES, outcome)),
        Event::Call { owner, index } => {
            format!("called through channel {index} of {} and waits for the reply", session(owner))
        }
        Event::Accept { session: id, slot, caller, caller_slot } => {
            format!("{}/{slot} took the call of {}/{caller_slot}", session(id), session(caller))
        }
        Event::Answer { session: id, slot, code: 0 } => {
            format!("the call of {}/{slot} was answered", session(id))
        }
        Event::Answer { session: id, slot, code } => {
            let errno =
                Errno::ALL.iter().find(|errno| u64::from(errno.code().unsigned_abs()) == code);
            format!(
                "the call of {}/{slot} was answered with {}",
                session(id),
                errno.map_or("an unknown code", |errno| errno.name())
            )
        }
        Event::Dropped { session: id, events } => {
            format!("{events} unread input events of {} were dropped", session(id))
        }
        ref about_time => crate::context::describe(about_time, session, context),
    }
}

/// Outcomes of machines, by their numbers in the trace.
pub const OUTCOMES: &[&str] = &["finished", "frames", "deadlocked", "faulted", "stopped", "killed"];
/// Outcomes of sessions, by their numbers in the trace.
pub const SESSION_OUTCOMES: &[&str] =
    &["finished", "faulted", "running", "deadlocked", "killed", "canceled"];

fn word(words: &'static [&'static str], number: u64) -> &'static str {
    usize::try_from(number)
        .ok()
        .and_then(|number| words.get(number))
        .copied()
        .unwrap_or("unknown outcome")
}

/// Maximum number of printed bytes of an event.
const SHOWN: usize = 24;

/// The number of bytes, and the first few.
fn excerpt(bytes: &[u8]) -> String {
    let (shown, more) =
        (bytes.get(..SHOWN).unwrap_or(bytes), if bytes.len() > SHOWN { "..." } else { "" });
    let unit = if bytes.len() == 1 { "byte" } else { "bytes" };
    format!("{} {unit}, \"{}{more}\"", bytes.len(), shown.escape_ascii())
}

/// The bytes of an event, if it has any.
const fn bytes_of<'a>(event: &Event<'a>) -> &'a [u8] {
    match event {
        Event::Output { bytes, .. } | Event::Sample { bytes, .. } => bytes,
        _ => &[],
    }
}

/// The offset of the first different byte of two events, and an excerpt of each from there: for
/// events that [`describe`] prints alike.
#[must_use]
pub fn first_different_byte(one: &Event<'_>, two: &Event<'_>) -> Option<(usize, [String; 2])> {
    let (one, two) = (bytes_of(one), bytes_of(two));
    let at = one.iter().zip(two).position(|(one, two)| one != two)?;
    Some((at, [one, two].map(|bytes| excerpt(&bytes[at..]))))
}

/// The text of a wake's source, by its number in the trace.
#[must_use]
pub(crate) fn wake_source(code: u64) -> &'static str {
    u8::try_from(code)
        .ok()
        .and_then(WakeSource::from_code)
        .map_or("another source", WakeSource::name)
}

/// The text of a wait's reason, by its number in the trace.
#[must_use]
pub(crate) fn block_reason(code: u64) -> &'static str {
    u8::try_from(code)
        .ok()
        .and_then(BlockReason::from_code)
        .map_or("something", BlockReason::meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_printed_alike_are_distinguished_by_their_bytes() {
        let (one, mut two) = ([b'a'; 40], [b'a'; 40]);
        two[30] = b'b';
        let [one, two] = [&one, &two].map(|bytes| Event::Output { session: 0, bytes });
        let tell = |event: &Event<'_>| describe(event, &|_| "writer".into(), &|_| String::new());
        assert_eq!(tell(&one), format!("writer wrote 40 bytes, \"{}...\"", "a".repeat(24)));
        assert_eq!(tell(&one), tell(&two));
        let (at, [one, two]) = first_different_byte(&one, &two).expect("they part");
        assert_eq!(
            (at, one.as_str(), two.as_str()),
            (30, "10 bytes, \"aaaaaaaaaa\"", "10 bytes, \"baaaaaaaaa\"")
        );
    }

    #[test]
    fn unknown_numbers_of_forged_events_are_printed() {
        let tell = |event: &Event<'_>| {
            describe(event, &|session| format!("session {session}"), &|_| String::new())
        };
        assert_eq!(
            tell(&Event::Outcome { outcome: u64::MAX }),
            "the machine ended: unknown outcome"
        );
        assert_eq!(
            tell(&Event::Answer { session: 1, slot: 2, code: 77 }),
            "the call of session 1/2 was answered with an unknown code"
        );
        assert_eq!(
            tell(&Event::Answer { session: 1, slot: 2, code: 3 }),
            "the call of session 1/2 was answered with ECLOSED"
        );
        let fault = Event::Fault { session: 0, slot: 1, code: 999, function: 3, offset: 16 };
        assert_eq!(tell(&fault), "session 0/1 faulted: unknown in function 3 at byte 0x10");
    }
}
