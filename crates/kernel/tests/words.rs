//! Refusals as people read them: every one is a sentence with its numbers, and nothing of the
//! source shows in it.

use std::iter;
use wavelock_abi::{ContextRef, CoroutineRef, Cycles, Frame, LaneId};
use wavelock_kernel::context::{Demand, Shortfall};
use wavelock_kernel::{
    BlockReason, ContextRefusal, Denied, HoldReason, HoldReasons, Refusal, State, WakeSource,
};

const COROUTINE: CoroutineRef = CoroutineRef { slot: 41, generation: 42 };
const CONTEXT: ContextRef = ContextRef { slot: 43, generation: 44 };
const LANE: LaneId = LaneId(45);

/// The refusal after this one in the enum's order: a new one does not compile until it stands in
/// the chain, and so in the tests.
fn after(refusal: Refusal) -> Option<Refusal> {
    use Refusal as R;
    let held = HoldReasons::NONE.with(HoldReason::Context).with(HoldReason::Cap);
    Some(match refusal {
        R::Stale { .. } => R::NotReserved { live: 46, capacity: 47 },
        R::NotReserved { .. } => R::SessionsNotReserved { sessions: 46, capacity: 47 },
        R::SessionsNotReserved { .. } => R::TooManyCoroutines { wanted: 46, limit: 47 },
        R::TooManyCoroutines { .. } => R::OutOfMemory { wanted: 46 },
        R::OutOfMemory { .. } => R::NotWaiting { state: State::Sleeping { until: Frame(48) } },
        R::NotWaiting { .. } => {
            R::WrongSource { reason: BlockReason::ChannelReceive, source: WakeSource::SessionEnd }
        }
        R::WrongSource { .. } => R::InSlice { reference: COROUTINE },
        R::InSlice { .. } => {
            R::NotEnded { state: State::Blocked { reason: BlockReason::OtherLane } }
        }
        R::NotEnded { .. } => R::Ended { state: State::Canceled },
        R::Ended { .. } => R::NotHeld { reason: HoldReason::Operator, held },
        R::NotHeld { .. } => R::NotReady { state: State::Throttled { held } },
        R::NotReady { .. } => R::SlotTaken { by: COROUTINE },
        R::SlotTaken { .. } => R::HandoffOff,
        R::HandoffOff => R::NoSession { session: 46, lane: LANE },
        R::NoSession { .. } => R::NoRoom { need: 46, room: 47 },
        R::NoRoom { .. } => R::NoRoomForCap { session: 46, room: 47 },
        R::NoRoomForCap { .. } => {
            R::Cap { budget: Cycles(51), least: Cycles(52), period_frames: 53 }
        }
        R::Cap { .. } => R::Leased { lane: LANE },
        R::Leased { .. } => R::HoldsContext { reference: COROUTINE },
        R::HoldsContext { .. } => return None,
    })
}

/// The same for contexts.
fn after_context(refusal: ContextRefusal) -> Option<ContextRefusal> {
    use ContextRefusal as R;
    let cycles = [Cycles(51), Cycles(52), Cycles(53), Cycles(54)];
    let [first, second, third, fourth] = cycles;
    let wanted = Demand { budget: first, deadline: second, period: third };
    let shortfall =
        Shortfall { at: first, demand: second, supply: third, utilisation: 950_000, cap: 900_000 };
    let denied = Denied { contexts: 2, wanted, shortfall, fits: None };
    Some(match refusal {
        R::Off => R::Stale { context: CONTEXT, found_generation: 46 },
        R::Stale { .. } => {
            R::Coroutine(Refusal::Stale { reference: COROUTINE, found_generation: 46 })
        }
        R::Coroutine(_) => {
            R::BudgetTooSmall { budget: first, least: second, gap: third, switch: fourth }
        }
        R::BudgetTooSmall { .. } => R::BudgetAboveDeadline { budget: first, deadline: second },
        R::BudgetAboveDeadline { .. } => R::DeadlineAbovePeriod { deadline: first, period: second },
        R::DeadlineAbovePeriod { .. } => R::PeriodTooLong { period: first, most: second },
        R::PeriodTooLong { .. } => R::Refills { found: 46 },
        R::Refills { .. } => R::NotReserved { live: 46, capacity: 47 },
        R::NotReserved { .. } => R::Denied(denied),
        R::Denied(Denied { fits: None, .. }) => R::Denied(Denied { fits: Some(fourth), ..denied }),
        R::Denied(_) => R::ShrinkBelowDemand { used: first, budget: second },
        R::ShrinkBelowDemand { .. } => R::Bound { to: COROUTINE },
        R::Bound { .. } => R::TargetBound { to: CONTEXT },
        R::TargetBound { .. } => {
            R::NothingReady { state: State::Sleeping { until: Frame(48) }, ready: first }
        }
        R::NothingReady { .. } => R::NotBound,
        R::NotBound => R::SelfUnbind { reference: COROUTINE },
        R::SelfUnbind { .. } => R::Lent { depth: 46 },
        R::Lent { .. } => R::NothingToLend,
        R::NothingToLend => R::CalleeHasContext { context: CONTEXT },
        R::CalleeHasContext { .. } => R::DepthExceeded { depth: 46, most: 47 },
        R::DepthExceeded { .. } => R::NoLoan,
        R::NoLoan => return None,
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty())
}

/// What is wrong with a sentence that stands for a value whose form in the source is `debug`.
fn shows_source(sentence: &str, debug: &str) -> Option<String> {
    if let Some(sign) =
        ["{", "}", "::", "Some", "None", "_"].into_iter().find(|sign| sentence.contains(sign))
    {
        return Some(format!("`{sign}`"));
    }
    let names: Vec<&str> = words(debug)
        .filter(|word| word.starts_with(|letter: char| letter.is_ascii_uppercase()))
        .collect();
    if let Some(name) = names.into_iter().find(|name| words(sentence).any(|word| word == *name)) {
        return Some(format!("the name `{name}`"));
    }
    // Numbers from 41 on are the values of this test; a set of reasons is a number in the source
    // and words here.
    let numbers = words(debug)
        .filter(|word| word.parse::<u32>().is_ok_and(|number| (41..=54).contains(&number)));
    let lost = numbers
        .into_iter()
        .find(|number| !debug.contains("Denied") && !words(sentence).any(|word| word == *number));
    lost.map(|number| format!("no {number}"))
}

#[test]
fn every_refusal_is_a_sentence_with_its_numbers() {
    let first = Refusal::Stale { reference: COROUTINE, found_generation: 46 };
    let plain = iter::successors(Some(first), |refusal| after(*refusal))
        .map(|refusal| (refusal.to_string(), format!("{refusal:?}")));
    let contexts = iter::successors(Some(ContextRefusal::Off), |refusal| after_context(*refusal));
    let contexts = contexts.map(|refusal| (refusal.to_string(), format!("{refusal:?}")));
    for (sentence, debug) in plain.chain(contexts) {
        assert!(words(&sentence).count() >= 4, "{debug}: {sentence}");
        assert_eq!(shows_source(&sentence, &debug), None, "{debug}: {sentence}");
    }
}

/// The check itself can fail: on the form of the source, on a name that slipped in, on a number
/// that is missing.
#[test]
fn a_form_of_the_source_is_noticed() {
    let refusal = Refusal::InSlice { reference: COROUTINE };
    let debug = format!("{refusal:?}");
    assert_eq!(shows_source(&debug, &debug).as_deref(), Some("`{`"));
    assert_eq!(
        shows_source("the coroutine 41 42 is InSlice", &debug).as_deref(),
        Some("the name `InSlice`")
    );
    assert_eq!(
        shows_source("the coroutine of slot 41 is in a slice", &debug).as_deref(),
        Some("no 42")
    );
}
