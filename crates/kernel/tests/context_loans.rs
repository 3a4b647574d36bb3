//! Loans, exhaustively: every reachable state of three coroutines and two contexts under every
//! operation, with a model beside it that keeps only the chains. After every step the lane's own
//! check holds, and who has which time is what the model says.

mod support;

use std::collections::BTreeSet;
use support::{ROUND_ROBIN, checked, lane, run};
use wavelock_abi::{ContextRef, CoroutineRef, Cycles, LaneId};
use wavelock_kernel::context::LOAN_DEPTH;
use wavelock_kernel::{
    BlockReason, ContextEventKind, ContextParameters, ContextPhase, ContextRefusal,
    ContextSettings, Fallback, Lane, Loan, Outcome, Reservation, Span, Spawn, State, Tag,
    WakeSource,
};

const COROUTINES: usize = 3;
const CONTEXTS: usize = 2;

/// What can happen.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Bind(usize, usize),
    Unbind(usize),
    Lend(usize, usize),
    Return(usize),
    Revoke(usize),
    Wake(usize),
    Cancel(usize),
    EndSession(u32),
}

fn steps() -> Vec<Step> {
    let mut all = Vec::new();
    for context in 0..CONTEXTS {
        all.extend((0..COROUTINES).map(|coroutine| Step::Bind(context, coroutine)));
        all.push(Step::Unbind(context));
        all.push(Step::Revoke(context));
    }
    for from in 0..COROUTINES {
        all.extend((0..COROUTINES).filter(|&to| to != from).map(|to| Step::Lend(from, to)));
        all.push(Step::Return(from));
        all.push(Step::Cancel(from));
    }
    all.push(Step::EndSession(0));
    all
}

/// A chain per context: lenders, then the holder. `None` after revocation.
#[derive(Clone, Debug)]
struct Model {
    chains: [Option<Vec<usize>>; CONTEXTS],
    alive: [bool; COROUTINES],
}

impl Model {
    fn held(&self, coroutine: usize) -> Option<usize> {
        (0..CONTEXTS).find(|&context| {
            self.chains[context].as_ref().is_some_and(|chain| chain.last() == Some(&coroutine))
        })
    }

    fn lent(&self, coroutine: usize) -> Option<usize> {
        (0..CONTEXTS).find(|&context| {
            self.chains[context]
                .as_ref()
                .is_some_and(|chain| chain.iter().rev().skip(1).any(|&lender| lender == coroutine))
        })
    }

    /// A coroutine ended: as lender it leaves its chain, the oldest takes the context with it; as
    /// holder it gives back.
    fn gone(&mut self, coroutine: usize) {
        self.alive[coroutine] = false;
        if let Some(context) = self.lent(coroutine)
            && let Some(chain) = &mut self.chains[context]
        {
            let at = chain.iter().position(|&lender| lender == coroutine).expect("it lent");
            chain.remove(at);
            if at == 0 {
                chain.clear();
            }
        }
        if let Some(context) = self.held(coroutine) {
            self.go_home(context);
        }
    }

    /// The holder gives a context back to the newest lender that has no other by now.
    fn go_home(&mut self, context: usize) {
        self.chains[context].as_mut().expect("live").pop();
        while let Some(&lender) = self.chains[context].as_ref().expect("live").last() {
            let has_it = |chain: &Option<Vec<usize>>| {
                chain.as_ref().is_some_and(|chain| chain.last() == Some(&lender))
            };
            if !(0..CONTEXTS).any(|other| other != context && has_it(&self.chains[other])) {
                return;
            }
            self.chains[context].as_mut().expect("live").pop();
        }
    }
}

struct World {
    lane: Lane,
    coroutines: [CoroutineRef; COROUTINES],
    contexts: [ContextRef; CONTEXTS],
    loans: [Option<Loan>; COROUTINES],
}

/// Three blocked coroutines of two sessions, and two contexts owned by session 0 and 1.
fn world() -> World {
    let mut lane = Lane::new(LaneId(0), support::settings(ROUND_ROBIN));
    lane.reserve(Reservation { coroutines: 4, sessions: 2 }).expect("memory");
    lane.begin_wave(Span::Until(Cycles::MAX));
    lane.reserve_contexts(ContextSettings { gap: Cycles(10), wave: None }, CONTEXTS as u32)
        .expect("memory");
    let coroutines =
        [0, 1, 2].map(|slot| lane.spawn(Spawn::new(Tag::new(slot / 2, slot))).expect("room"));
    for _ in 0..COROUTINES {
        let running = run(&mut lane);
        lane.stop(running, Cycles(5), Outcome::Blocked(BlockReason::Select));
    }
    let contexts = [0, 1].map(|owner| {
        let parameters =
            ContextParameters { owner, ..ContextParameters::new(Cycles(1_000), Cycles(10_000)) };
        lane.create_context(parameters).expect("admitted")
    });
    World { lane, coroutines, contexts, loans: [None; COROUTINES] }
}

/// Does one step to both; `false` when both refuse it.
// Long: one arm per step.
fn apply(world: &mut World, model: &mut Model, step: Step) -> bool {
    let lane = &mut world.lane;
    match step {
        Step::Bind(context, coroutine) => {
            let may = model.chains[context].as_ref().is_some_and(Vec::is_empty)
                && model.held(coroutine).is_none()
                && model.alive[coroutine];
            let done = lane.bind_context(world.contexts[context], world.coroutines[coroutine]);
            assert_eq!(done.is_ok(), may, "{done:?}");
            if may {
                model.chains[context] = Some(vec![coroutine]);
            }
            may
        }
        Step::Unbind(context) => {
            let may = model.chains[context].as_ref().is_some_and(|chain| chain.len() == 1);
            let done = lane.unbind_context(world.contexts[context]);
            assert_eq!(done.is_ok(), may, "{done:?}");
            if may {
                model.chains[context] = Some(Vec::new());
            }
            may
        }
        Step::Lend(from, to) => {
            let may = model.alive[from]
                && model.alive[to]
                && model.held(from).is_some()
                && model.lent(from).is_none()
                && model.held(to).is_none()
                && model.lent(to).is_none();
            let done =
                lane.lend_context(world.coroutines[from], world.coroutines[to], Cycles::ZERO);
            assert_eq!(done.is_ok(), may, "{done:?}");
            if let Ok(loan) = done {
                let context = model.held(from).expect("checked");
                model.chains[context].as_mut().expect("live").push(to);
                world.loans[from] = Some(loan);
            }
            may
        }
        Step::Return(lender) => {
            let Some(loan) = world.loans[lender] else { return false };
            let context = world
                .contexts
                .iter()
                .position(|&context| context == loan.context)
                .expect("one of ours");
            let chain = model.chains[context].clone().unwrap_or_default();
            let at = chain.iter().rev().skip(1).position(|&other| other == lender);
            let done = lane.return_loan(loan, Cycles::ZERO);
            match at {
                // The newest lender: the time comes home, once.
                Some(0) => {
                    let before = model.held(lender);
                    model.go_home(context);
                    assert_eq!(done, Ok(before.is_none()));
                }
                Some(_) => {
                    model.chains[context].as_mut().expect("live").retain(|&other| other != lender);
                    assert_eq!(done, Ok(false));
                }
                None => assert_eq!(done, Err(ContextRefusal::NoLoan), "a loan comes back once"),
            }
            at.is_some()
        }
        Step::Revoke(context) => {
            let mut cut = 0;
            let done = lane.revoke_context(world.contexts[context], |_| cut += 1);
            assert_eq!(done, Ok(model.chains[context].is_some()));
            let chain = model.chains[context].take();
            assert_eq!(
                cut,
                chain.as_ref().map_or(0, |chain| chain.len().saturating_sub(1)),
                "every lender is reported, once"
            );
            chain.is_some()
        }
        Step::Wake(coroutine) => {
            lane.wake(world.coroutines[coroutine], WakeSource::SessionEnd).is_ok()
        }
        Step::Cancel(coroutine) => {
            let done = lane.cancel(world.coroutines[coroutine]).is_ok();
            assert_eq!(done, model.alive[coroutine]);
            if done {
                model.gone(coroutine);
            }
            done
        }
        Step::EndSession(session) => {
            // The order of 9.1: coroutines end, oldest first, with their loans; then what the
            // session owned is revoked.
            for coroutine in 0..COROUTINES {
                if coroutine as u32 / 2 == session && model.alive[coroutine] {
                    model.gone(coroutine);
                }
            }
            let ended = lane.end_session(session, |_, _| ()).expect("no slice is open");
            lane.revoke_contexts_of(session, |_| ());
            model.chains[session as usize] = None;
            ended > 0
        }
    }
}

fn agree(world: &World, model: &Model, path: &[Step]) {
    checked(&world.lane);
    for context in 0..CONTEXTS {
        match (world.lane.context(world.contexts[context]), &model.chains[context]) {
            (Ok(view), Some(chain)) => {
                assert_eq!(
                    view.holder,
                    chain.last().map(|&holder| world.coroutines[holder]),
                    "{path:?} {model:?}"
                );
                assert_eq!(
                    usize::from(view.loans),
                    chain.len().saturating_sub(1),
                    "{path:?} {model:?}"
                );
                assert_eq!(view.phase == ContextPhase::Idle, chain.is_empty(), "{path:?}");
                assert!(view.ring.is_sound());
            }
            (Err(ContextRefusal::Stale { .. }), None) => {}
            (found, wanted) => panic!("{path:?}: {found:?}, wanted {wanted:?}"),
        }
    }
}

/// What a later step can depend on: the chains, the states of coroutines, and the loans that could
/// still be returned.
fn fingerprint(world: &World, model: &Model) -> String {
    let states = world.coroutines.map(|coroutine| world.lane.state(coroutine).ok());
    let loans = world.loans.map(|loan| loan.map(|loan| loan.context));
    format!("{model:?} {states:?} {loans:?}")
}

#[test]
fn every_reachable_state_of_loans_revocations_and_ends_agrees_with_the_model() {
    let steps = steps();
    let mut seen = BTreeSet::new();
    let mut paths = vec![Vec::new()];
    let (mut transitions, mut deepest) = (0, 0);
    while let Some(path) = paths.pop() {
        for &step in &steps {
            let (mut world, mut model) = (
                world(),
                Model { chains: [Some(Vec::new()), Some(Vec::new())], alive: [true; COROUTINES] },
            );
            for &before in &path {
                let _ = apply(&mut world, &mut model, before);
            }
            let changed = apply(&mut world, &mut model, step);
            let mut path = path.clone();
            path.push(step);
            agree(&world, &model, &path);
            transitions += 1;
            deepest = deepest.max(model.chains.iter().flatten().map(Vec::len).max().unwrap_or(0));
            if changed && seen.insert(fingerprint(&world, &model)) {
                paths.insert(0, path);
            }
        }
    }
    assert!(
        seen.len() > 1_000 && deepest == COROUTINES,
        "{} states, {transitions} transitions, chains of {deepest}",
        seen.len()
    );
}

#[test]
fn a_call_takes_time_along_and_brings_it_home() {
    let mut lane = lane(ROUND_ROBIN);
    lane.reserve_contexts(ContextSettings { gap: Cycles(10), wave: None }, 4).expect("memory");
    lane.keep_context_books();
    let hog = lane.spawn(Spawn::new(Tag::new(9, 0))).expect("room");
    let server = lane.spawn(Spawn::new(Tag::new(0, 0))).expect("room");
    let client = lane.spawn(Spawn::new(Tag::new(1, 0))).expect("room");
    let context = lane
        .create_context(ContextParameters::new(Cycles(5_000), Cycles(50_000)))
        .expect("admitted");
    for _ in 0..2 {
        let running = run(&mut lane);
        let outcome = if running.reference() == server {
            Outcome::Blocked(BlockReason::ChannelReceive)
        } else {
            Outcome::Yielded
        };
        lane.stop(running, Cycles(5), outcome);
    }
    lane.bind_context(context, client).expect("free");
    let running = run(&mut lane);
    assert_eq!(running.reference(), client);
    // The call: the server is woken and gets the client's time, the client waits.
    lane.wake(server, WakeSource::Channel).expect("it waits");
    let loan = lane.lend_context(client, server, Cycles(100)).expect("the server has none");
    lane.stop(running, Cycles(120), Outcome::Blocked(BlockReason::Join));
    checked(&lane);
    let running = run(&mut lane);
    assert_eq!(running.reference(), server, "before the hog, on the client's time");
    assert_eq!(lane.ledger(client).expect("live").runtime, Cycles(125 - 5));
    let consumed = lane.take_consumed(context).expect("live");
    assert_eq!(consumed, Cycles(36 + 16 + 100), "pick, switch, wake and what the client used");
    // The reply: the time goes home, the client runs on it.
    lane.wake(client, WakeSource::Join).expect("it waits");
    assert_eq!(lane.return_loan(loan, Cycles(300)), Ok(true));
    assert_eq!(lane.return_loan(loan, Cycles(300)), Err(ContextRefusal::NoLoan));
    lane.stop(running, Cycles(310), Outcome::Blocked(BlockReason::ChannelReceive));
    checked(&lane);
    assert_eq!(lane.take_consumed(context).expect("live"), Cycles(36 + 16 + 300));
    let running = run(&mut lane);
    assert_eq!((running.reference(), lane.context_of(client)), (client, Some(context)));
    lane.stop(running, Cycles(10), Outcome::Finished);
    assert_eq!(run(&mut lane).reference(), hog);
    let mut kinds = Vec::new();
    lane.drain_context_events(|event| kinds.push(event.kind));
    assert_eq!(
        kinds,
        [ContextEventKind::Donated { depth: 1 }, ContextEventKind::Returned { depth: 0 }]
    );
    // Charged to one context, executed by two coroutines; revoking it closes its book and keeps it.
    let charged = lane.context(context).expect("live").counts.consumed;
    lane.revoke_context(context, |_| ()).expect("live");
    let (books, dropped) = lane.context_books();
    let [book] = books.as_slice() else { panic!("{books:?}") };
    assert!(
        book.is_revoked
            && dropped == 0
            && book.overruns == 0
            && book.view.counts.consumed == charged,
        "{book:?}"
    );
    let by: Vec<(u32, u64)> =
        book.executed.iter().map(|row| (row.by.expect("named").session(), row.cycles.0)).collect();
    assert_eq!(by, [(1, 36 + 16 + 100 + 36 + 10), (0, 36 + 16 + 300)]);
    assert_eq!(by.iter().map(|(_, cycles)| cycles).sum::<u64>(), charged.0);
}

#[test]
fn a_chain_is_bounded_and_a_borrower_is_never_stranded() {
    let mut lane = lane(ROUND_ROBIN);
    lane.reserve_contexts(ContextSettings { gap: Cycles(10), wave: None }, 4).expect("memory");
    let chain: Vec<_> =
        (0..11).map(|slot| lane.spawn(Spawn::new(Tag::new(0, slot))).expect("room")).collect();
    let parameters = ContextParameters {
        fallback: Fallback::Held,
        ..ContextParameters::new(Cycles(5_000), Cycles(50_000))
    };
    let context = lane.create_context(parameters).expect("admitted");
    lane.bind_context(context, chain[0]).expect("free");
    for pair in chain.windows(2).take(usize::from(LOAN_DEPTH)) {
        lane.lend_context(pair[0], pair[1], Cycles::ZERO).expect("room in the chain");
        checked(&lane);
    }
    let full = lane.lend_context(chain[8], chain[9], Cycles::ZERO);
    assert_eq!(full, Err(ContextRefusal::DepthExceeded { depth: 8, most: 8 }));
    assert_eq!(lane.configure_context(context, parameters), Err(ContextRefusal::Lent { depth: 8 }));
    let mut told = Vec::new();
    assert_eq!(lane.revoke_context(context, |tag| told.push(tag.slot())), Ok(true));
    assert_eq!(told, [7, 6, 5, 4, 3, 2, 1, 0], "newest first");
    checked(&lane);
    assert_eq!(lane.state(chain[8]), Ok(State::Ready), "a borrower continues as best effort");
    assert!(
        matches!(lane.state(chain[0]), Ok(State::Throttled { .. })),
        "whom it was bound to may not run without"
    );
    assert_eq!(lane.export().contexts.map(|tier| tier.stranded), Some(1));
}

#[test]
fn a_logout_that_is_cut_off_anywhere_and_begun_again_ends_the_same() {
    // 9.1: coroutines of the session end with their loans, then the records go, then the contexts;
    // each may be done twice.
    let logout: [fn(&mut World); 5] = [
        |world| {
            let _ = world.lane.cancel(world.coroutines[0]);
        },
        |world| {
            let _ = world.lane.cancel(world.coroutines[1]);
        },
        |world| {
            let _ = world.lane.end_session(0, |_, _| ());
        },
        |world| {
            let _ = world.lane.revoke_context(world.contexts[0], |_| ());
        },
        |world| {
            let _ = world.lane.revoke_contexts_of(0, |_| ());
        },
    ];
    let setups: [&[Step]; 4] = [
        &[Step::Bind(0, 0), Step::Lend(0, 2)],
        &[Step::Bind(1, 2), Step::Lend(2, 0), Step::Lend(0, 1)],
        &[Step::Bind(0, 0), Step::Lend(0, 1), Step::Lend(1, 2), Step::Wake(0)],
        &[Step::Bind(0, 2), Step::Bind(1, 1), Step::Lend(2, 0)],
    ];
    for setup in setups {
        let end = |cut: Option<usize>| {
            let (mut world, mut model) = (
                world(),
                Model { chains: [Some(Vec::new()), Some(Vec::new())], alive: [true; COROUTINES] },
            );
            setup
                .iter()
                .for_each(|&step| assert!(apply(&mut world, &mut model, step), "{setup:?}"));
            cut.iter().for_each(|&done| logout[..done].iter().for_each(|step| step(&mut world)));
            logout.iter().for_each(|step| step(&mut world));
            checked(&world.lane);
            world.lane.export()
        };
        let whole = end(None);
        for done in 0..=logout.len() {
            assert_eq!(end(Some(done)), whole, "{setup:?} cut off after {done}");
        }
    }
}
