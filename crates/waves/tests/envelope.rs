//! Every class of the envelope, from pairs of runs with one difference: the class and the first
//! difference are reported.

use wavelock_system::RunOutcome;
use wavelock_trace::Digest;
use wavelock_waves::{
    ENVELOPE_VERSION, EffectClass, EnvelopeDiff, FailureClass, OrderClass, RunView, SessionView,
};

fn session(name: &str) -> SessionView {
    SessionView { name: name.into(), digest: Digest([1; 32]), outcome: "finished".into(), exit: 0 }
}

fn run() -> RunView {
    let sessions = ["first", "second"].map(session).into();
    RunView {
        digest: Digest([7; 32]),
        outcome: Some(RunOutcome::Finished),
        sessions,
        widest_wave: 1,
    }
}

/// The same run with a change, which is another trace.
fn changed(change: impl FnOnce(&mut RunView)) -> RunView {
    let mut run = RunView { digest: Digest([8; 32]), ..run() };
    change(&mut run);
    run
}

#[test]
fn every_class_and_the_first_difference_are_reported() {
    use {EffectClass as Effect, FailureClass as Failure, OrderClass as Order};
    let cases = [
        (run(), Order::Exact, Effect::Exact, Failure::Exact, None),
        (
            changed(|_| ()),
            Order::SessionNormalizedPermutation,
            Effect::Exact,
            Failure::Exact,
            Some("trace"),
        ),
        (
            changed(|run| run.sessions[1].digest = Digest([2; 32])),
            Order::EnvelopeBounded,
            Effect::Different,
            Failure::Exact,
            Some("observables of session second"),
        ),
        (
            changed(|run| run.sessions[0].exit = 3),
            Order::SessionNormalizedPermutation,
            Effect::Exact,
            Failure::Sessions,
            Some("end of session first"),
        ),
        (
            changed(|run| run.outcome = Some(RunOutcome::Deadlock)),
            Order::SessionNormalizedPermutation,
            Effect::Exact,
            Failure::Different,
            Some("outcome"),
        ),
        (
            changed(|run| drop(run.sessions.pop())),
            Order::EnvelopeBounded,
            Effect::Different,
            Failure::Exact,
            Some("sessions"),
        ),
    ];
    for (other, order, effects, failures, at) in cases {
        for (one, two) in [(run(), other.clone()), (other.clone(), run())] {
            let diff = EnvelopeDiff::between(&one, &two);
            assert_eq!(
                (diff.version, diff.order, diff.effects, diff.failures),
                (ENVELOPE_VERSION, order, effects, failures),
                "{at:?}"
            );
            assert_eq!(diff.first.as_ref().map(|first| first.at.as_str()), at);
            assert!(diff.first.is_none_or(|first| first.first != first.second));
        }
    }
}

#[test]
fn the_width_is_that_of_the_wider_run_and_no_difference() {
    let wide = RunView { widest_wave: 6, ..run() };
    for (one, two) in [(run(), wide.clone()), (wide, run())] {
        let diff = EnvelopeDiff::between(&one, &two);
        assert_eq!((diff.order, diff.width_bound, diff.first), (OrderClass::Exact, 6, None));
    }
}
