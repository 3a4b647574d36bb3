//! Channels on one lane and across lanes (semantics 27, 28), and sessions split over lanes
//! (semantics 14, 15).

mod kit;

use kit::{Machine, Run, numbers};
use wavelock_abi::{Errno, SessionId};
use wavelock_system::{RunOutcome, Span};

const ECLOSED: i64 = Errno::Closed.code() as i64;
const EAGAIN: i64 = Errno::Again.code() as i64;
const EMSGSIZE: i64 = Errno::MessageSize.code() as i64;
const ECANCELED: i64 = Errno::Canceled.code() as i64;
const EDENIED: i64 = Errno::Denied.code() as i64;

/// Sends `base + 0 .. base + count` to port "in", then ends; outputs the codes that were not 0.
fn sender(base: i64, count: i64) -> String {
    format!(
        r#"(data (i32.const 0) "in")
        (func (export "_start") (local $i i64) (local $code i32)
          (loop $l
            (local.set $code (call $send (call $port (i32.const 0) (i32.const 2)) (i64.add (i64.const {base}) (local.get $i))))
            (if (local.get $code) (then (call $out32 (local.get $code))))
            (local.set $i (i64.add (local.get $i) (i64.const 1)))
            (br_if $l (i64.lt_s (local.get $i) (i64.const {count})))))"#
    )
}

/// Receives from its channel "in" until it closes, outputting each number, then the code.
const OWNER: &str = r#"(data (i32.const 0) "in")
(func (export "_start") (local $code i32)
  (loop $l
    (local.set $code (call $recv (call $port (i32.const 0) (i32.const 2)) (i32.const 8)))
    (if (i32.eqz (local.get $code)) (then (call $out (i64.load (i32.const 8))) (br $l))))
  (call $out32 (local.get $code)))"#;

#[test]
fn messages_are_first_in_first_out_per_sender_on_any_lanes() {
    for lanes in 1..=4 {
        for capacity in [1, 2, 5, 64] {
            let mut machine = Machine::lanes(lanes);
            let owner = machine.session("owner", OWNER);
            let senders: Vec<SessionId> = (0..5)
                .map(|at| machine.session(&format!("s{at}"), &sender(1000 * at, 20)))
                .collect();
            machine.wire("in", owner, capacity, &senders);
            machine.times(40_000, 6_000, 3_000);
            let run = machine.run();
            assert_eq!(run.outcome, RunOutcome::Finished, "{lanes} lanes, capacity {capacity}");
            let mut got = run.numbers(0);
            assert_eq!(got.pop(), Some(ECLOSED), "closed with the last sender, drained first");
            for at in 0..5 {
                let of: Vec<i64> =
                    got.iter().copied().filter(|number| number / 1000 == at).collect();
                assert_eq!(
                    of,
                    (0..20).map(|number| 1000 * at + number).collect::<Vec<_>>(),
                    "{lanes} lanes, capacity {capacity}"
                );
            }
            assert_eq!(got.len(), 100);
        }
    }
}

/// Tries to send once a wave, `tries` times in a row each, and outputs how many went through per
/// wave.
fn trier(tries: u32, waves: u32) -> String {
    format!(
        r#"(data (i32.const 0) "in")
        (func (export "_start") (local $i i32) (local $w i32) (local $n i64)
          (loop $wave
            (local.set $n (i64.const 0)) (local.set $i (i32.const 0))
            (loop $l
              (if (i32.eqz (call $try_send (call $port (i32.const 0) (i32.const 2)) (i64.const 1)))
                (then (local.set $n (i64.add (local.get $n) (i64.const 1)))))
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $l (i32.lt_u (local.get $i) (i32.const {tries}))))
            (call $out (local.get $n))
            (call $yield)
            (local.set $w (i32.add (local.get $w) (i32.const 1)))
            (br_if $wave (i32.lt_u (local.get $w) (i32.const {waves})))))"#
    )
}

#[test]
fn free_space_is_divided_evenly_and_the_remainder_goes_round() {
    // The owner on lane 0 never receives; lanes 1, 2, 3 share 8 places once, then all is full.
    let mut machine = Machine::lanes(4);
    let owner =
        machine.session("owner", r#"(func (export "_start") (call $sleep (i64.const 100)))"#);
    let senders: Vec<SessionId> =
        (1..4).map(|at| machine.session(&format!("s{at}"), &trier(10, 3))).collect();
    machine.wire("in", owner, 8, &senders);
    machine.spec.span = Span::Picks(1);
    let run = machine.run();
    let per_wave: Vec<Vec<i64>> = (1..4).map(|at| run.numbers(at)).collect();
    let first: Vec<i64> = per_wave.iter().map(|counts| counts[0]).collect();
    assert_eq!(first, [3, 3, 2], "8 among three: the remainder from lane (wave mod lanes) on");
    assert!(
        per_wave.iter().all(|counts| counts[1] == 0 && counts[2] == 0),
        "no credit, no send: {per_wave:?}"
    );
}

#[test]
fn the_remainder_starts_at_another_lane_as_waves_go_by() {
    // The owner takes what is there each wave, so every other wave one place is free for two lanes.
    let owner = r#"(func (export "_start") (loop $l (call $yield) (br_if $l (i32.ne (call $try_recv (i32.const 0) (i32.const 8)) (i32.const -3)))))"#;
    let mut machine = Machine::lanes(3);
    let owner = machine.session("owner", owner);
    let senders: Vec<SessionId> =
        (1..3).map(|at| machine.session(&format!("s{at}"), &trier(2, 12))).collect();
    machine.wire("in", owner, 1, &senders);
    machine.spec.span = Span::Picks(1);
    let run = machine.run();
    let (first, second) = (run.numbers(1), run.numbers(2));
    // Waves 0, 2, 4, ... of which those with wave mod 3 = 2 begin at lane 2.
    assert_eq!(first, [1, 0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0]);
    assert_eq!(second, [0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn unused_credit_lapses() {
    // Lane 1 has half of 4 places and uses none for a while; the places were not saved up for it:
    // it never gets more than its share.
    let mut machine = Machine::lanes(3);
    let owner =
        machine.session("owner", r#"(func (export "_start") (call $sleep (i64.const 50)))"#);
    let idle = machine.session(
        "late",
        r#"(data (i32.const 0) "in") (func (export "_start") (local $n i64) (local $i i32)
      (loop $w (call $yield) (br_if $w (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 5))))
      (local.set $i (i32.const 0))
      (loop $l (if (i32.eqz (call $try_send (i32.const 0) (i64.const 1))) (then (local.set $n (i64.add (local.get $n) (i64.const 1)))))
        (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 10))))
      (call $out (local.get $n)))"#,
    );
    let eager = machine.session("eager", &trier(10, 8));
    machine.wire("in", owner, 4, &[idle, eager]);
    machine.spec.span = Span::Picks(1);
    let run = machine.run();
    let eager: i64 = run.numbers(2).iter().sum();
    let late = run.numbers(1)[0];
    assert_eq!(run.numbers(2)[0], 2, "half of four in the first wave");
    assert!(eager > 2, "what lane 1 did not use was divided anew: {:?}", run.numbers(2));
    assert_eq!(eager + late, 4);
}

#[test]
fn waiting_senders_enter_first_come_first_served() {
    // Five senders of one lane, and five of another, wait at a channel of capacity 1.
    let senders = r#"(data (i32.const 0) "in")
    (func $one (param i64) (drop (call $send (i32.const 0) (local.get 0))))
    (elem (i32.const 0) $one)
    (func (export "_start") (local $i i64)
      (drop (call $port (i32.const 0) (i32.const 2)))
      (loop $l (drop (call $spawn (i32.const 0) (i64.add (local.get $i) (i64.const BASE))))
        (br_if $l (i64.lt_s (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const 5)))))"#;
    for lanes in 1..=3 {
        let mut machine = Machine::lanes(lanes);
        let owner = machine.session(
            "owner",
            &OWNER.replace(
                "(func (export \"_start\") (local $code i32)",
                "(func (export \"_start\") (local $code i32) (call $sleep (i64.const 2))",
            ),
        );
        let (a, b) = (
            machine.session("a", &senders.replace("BASE", "100")),
            machine.session("b", &senders.replace("BASE", "200")),
        );
        machine.wire("in", owner, 1, &[a, b]);
        let run = machine.run();
        let got = run.numbers(0);
        for base in [1, 2] {
            let of: Vec<i64> = got
                .iter()
                .copied()
                .filter(|number| number / 100 == base)
                .map(|number| number % 100)
                .collect();
            assert_eq!(of, [0, 1, 2, 3, 4], "{lanes} lanes: {got:?}");
        }
        assert_eq!(got.last(), Some(&ECLOSED));
    }
}

#[test]
fn a_channel_closes_with_its_owner() {
    for lanes in 1..=2 {
        let mut machine = Machine::lanes(lanes);
        let owner = machine
            .session("owner", r#"(func (export "_start") (drop (call $recv (i32.const 0) (i32.const 8))) (call $sleep (i64.const 1)))"#);
        let from = machine.session("sender", &sender(0, 6));
        machine.wire("in", owner, 1, &[from]);
        let run = machine.run();
        assert_eq!(run.outcome, RunOutcome::Finished);
        let codes = run.numbers(1);
        assert!(
            !codes.is_empty() && codes.iter().all(|code| *code == ECLOSED),
            "{lanes} lanes: {codes:?}"
        );
    }
}

#[test]
fn a_port_that_is_closed_is_closed_for_its_session_only() {
    let closes = r#"(func (export "_start")
      (call $out32 (call $send (i32.const 0) (i64.const 1))) (call $out32 (call $close (i32.const 0)))
      (call $out32 (call $send (i32.const 0) (i64.const 2))) (call $out32 (call $close (i32.const 0))) (call $sleep (i64.const 5)))"#;
    let later = r#"(func (export "_start") (call $sleep (i64.const 2)) (call $out32 (call $send (i32.const 0) (i64.const 3))) (call $sleep (i64.const 7)))"#;
    for lanes in 1..=3 {
        let mut machine = Machine::lanes(lanes);
        let owner = machine.session(
            "owner",
            &OWNER.replace(
                "(call $out32 (local.get $code))",
                "(call $out32 (local.get $code)) (call $out (call $frame))",
            ),
        );
        let (first, second) = (machine.session("closes", closes), machine.session("later", later));
        machine.wire("in", owner, 4, &[first, second]);
        let run = machine.run();
        assert_eq!(run.numbers(1), [0, 0, ECLOSED, ECLOSED], "{lanes} lanes");
        let got = run.numbers(0);
        assert_eq!(got[..3], [1, 3, ECLOSED], "{lanes} lanes");
        assert_eq!(got[3], 9, "when the last sender ended, and not before");
    }
}

#[test]
fn an_owner_that_closes_refuses_senders_everywhere_and_drains() {
    let owner = r#"(func (export "_start") (call $sleep (i64.const 2)) (call $out32 (call $close (i32.const 0)))
      (loop $l (if (i32.eqz (call $recv (i32.const 0) (i32.const 8))) (then (call $out (i64.load (i32.const 8))) (br $l))))
      (call $out32 (call $recv (i32.const 0) (i32.const 8))) (call $sleep (i64.const 3)))"#;
    for lanes in 1..=3 {
        let mut machine = Machine::lanes(lanes);
        let owner = machine.session("owner", owner);
        let senders = [machine.session("a", &sender(10, 3)), machine.session("b", &sender(20, 3))];
        machine.wire("in", owner, 2, &senders);
        let run = machine.run();
        assert_eq!(run.outcome, RunOutcome::Finished, "{lanes} lanes");
        let got = run.numbers(0);
        assert_eq!(
            (got[0], got.len(), *got.last().expect("a code")),
            (0, 4, ECLOSED),
            "two messages were in it: {got:?}"
        );
        let codes: Vec<i64> = [run.numbers(1), run.numbers(2)].concat();
        assert_eq!(
            (codes.len(), codes.iter().all(|code| *code == ECLOSED)),
            (4, true),
            "{lanes} lanes: {codes:?}"
        );
    }
}

#[test]
fn a_message_of_the_wrong_size_is_left_in_place_for_waiting_receivers_too() {
    let body = r#"
    (func $small (param i64) (result i64) (i64.extend_i32_s (call $recv_bytes (i32.const 0) (i32.const 64) (i32.const 2))))
    (func $number (param i64) (result i64) (i64.extend_i32_s (call $recv (i32.const 0) (i32.const 64))))
    (func $large (param i64) (result i64) (i64.extend_i32_s (call $recv_bytes (i32.const 0) (i32.const 64) (i32.const 20))))
    (elem (i32.const 0) $small $number $large)
    (func $result (param i64) (drop (call $join (local.get 0) (i32.const 8))) (call $out (i64.load (i32.const 8))))
    (func (export "_start")
      (drop (call $channel (i32.const 1)))
      (drop (call $spawn (i32.const 0) (i64.const 0))) (drop (call $spawn (i32.const 1) (i64.const 0))) (drop (call $spawn (i32.const 2) (i64.const 0)))
      (call $yield)
      (call $out32 (call $send_bytes (i32.const 0) (i32.const 0) (i32.const 10)))
      (call $result (i64.const 1)) (call $result (i64.const 2)) (call $result (i64.const 3))
      (call $out32 (call $try_recv (i32.const 0) (i32.const 8))))"#;
    assert_eq!(numbers(body), [0, EMSGSIZE, EMSGSIZE, 10, EAGAIN]);
}

#[test]
fn select_may_name_a_channel_twice() {
    let body = r#"
    (func $chooser (param i64) (result i64) (i64.extend_i32_s (call $select (i32.const 96) (i32.const 4))))
    (elem (i32.const 0) $chooser)
    (func (export "_start")
      (drop (call $channel (i32.const 2))) (drop (call $channel (i32.const 2)))
      (i32.store (i32.const 96) (i32.const 1)) (i32.store (i32.const 100) (i32.const 0)) (i32.store (i32.const 104) (i32.const 0)) (i32.store (i32.const 108) (i32.const 1))
      (drop (call $spawn (i32.const 0) (i64.const 0)))
      (call $yield)
      (drop (call $send (i32.const 0) (i64.const 1)))
      (drop (call $join (i64.const 1) (i32.const 8))) (call $out (i64.load (i32.const 8)))
      (drop (call $send (i32.const 0) (i64.const 1))) (drop (call $send (i32.const 1) (i64.const 1)))
      (call $out32 (call $select (i32.const 96) (i32.const 4))))"#;
    assert_eq!(numbers(body), [1, 0]);
}

/// Coroutines that wait in every way there is, on one session; the first cancels them all, and what
/// they waited for still works.
const CANCELED_WAITERS: &str = r#"
(func $receives (param i64) (drop (call $recv (i32.const 0) (i32.const 64))) (call $out (i64.const -100)))
(func $sends (param i64) (drop (call $send (i32.const 1) (local.get 0))) (call $out (i64.const -100)))
(func $selects (param i64) (drop (call $select (i32.const 96) (i32.const 2))) (call $out (i64.const -100)))
(func $joins (param i64) (drop (call $join (i64.const 0) (i32.const -1))) (call $out (i64.const -100)))
(func $sleeps (param i64) (call $sleep (i64.const 1)) (call $out (i64.const -100)))
(elem (i32.const 0) $receives $sends $selects $joins $sleeps)
(func $go (param i32) (param i32) (drop
  (if (result i64) (i32.eq (local.get 1) (i32.const -1)) (then (call $spawn (local.get 0) (i64.const 5)))
    (else (call $spawn_on (local.get 0) (i64.const 5) (local.get 1))))))
(func $all (param i32) (call $go (i32.const 0) (local.get 0)) (call $go (i32.const 1) (local.get 0)) (call $go (i32.const 2) (local.get 0))
  (call $go (i32.const 3) (local.get 0)) (call $go (i32.const 4) (local.get 0)))
(func (export "_start") (local $r i64)
  (drop (call $channel (i32.const 1))) (drop (call $channel (i32.const 1))) (drop (call $channel (i32.const 1)))
  (i32.store (i32.const 96) (i32.const 2)) (i32.store (i32.const 100) (i32.const 0))
  (drop (call $send (i32.const 1) (i64.const 7)))
  ;; Slots 1 to 15: three of each, and the middle one of each is canceled first.
  (call $all (i32.const LANE)) (call $all (i32.const LANE)) (call $all (i32.const LANE))
  (call $yield) (call $yield) (call $yield)
  (call $cancel_from (i64.const 6) (i64.const 10)) (call $cancel_from (i64.const 11) (i64.const 15)) (call $cancel_from (i64.const 1) (i64.const 5))
  ;; Nobody is left in any queue.
  (call $out32 (call $try_send (i32.const 0) (i64.const 1))) (call $out32 (call $try_recv (i32.const 0) (i32.const 8)))
  (call $out32 (call $try_recv (i32.const 1) (i32.const 8))) (call $out (i64.load (i32.const 8))) (call $out32 (call $try_recv (i32.const 1) (i32.const 8)))
  (call $out32 (call $close (i32.const 0))) (call $out32 (call $close (i32.const 1))) (call $out32 (call $close (i32.const 2))))
(func $cancel_from (param $i i64) (param $last i64)
  (loop $l
    (if (call $cancel (local.get $i)) (then (call $out (local.get $i))))
    (if (i32.ne (call $join (local.get $i) (i32.const -1)) (i32.const -9)) (then (call $out (local.get $i))))
    (br_if $l (i64.le_s (local.tee $i (i64.add (local.get $i) (i64.const 1))) (local.get $last)))))"#;

#[test]
fn canceled_waiters_leave_every_queue() {
    let expected = [0, 0, 0, 7, EAGAIN, 0, 0, 0];
    assert_eq!(numbers(&CANCELED_WAITERS.replace("LANE", "-1")), expected);
    for lane in ["0", "1"] {
        let mut machine = Machine::lanes(2);
        let session = machine.session("main", &CANCELED_WAITERS.replace("LANE", lane));
        machine.split(session, &[0, 1]);
        let run = machine.run();
        assert_eq!(
            (run.outcome, run.numbers(0)),
            (RunOutcome::Finished, expected.to_vec()),
            "from lane {lane}"
        );
    }
}

#[test]
fn a_canceled_sender_takes_its_message_with_it() {
    // On lane 1 a coroutine waits to send to a full channel of lane 0; it is canceled, from its
    // lane or from another of its session's.
    let split = r#"(data (i32.const 0) "in")
    (func $sends (param i64) (drop (call $send (i32.const 0) (local.get 0))))
    (elem (i32.const 0) $sends)
    (func (export "_start") (local $r i64)
      (drop (call $send (i32.const 0) (i64.const 1)))
      (local.set $r (call $spawn_on (i32.const 0) (i64.const 2) (i32.const LANE)))
      (call $sleep (i64.const 1))
      (call $out32 (call $cancel (local.get $r))) (call $out32 (call $join (local.get $r) (i32.const -1)))
      (call $out32 (call $send (i32.const 0) (i64.const 3))))"#;
    let owner = OWNER.replace(
        "(func (export \"_start\") (local $code i32)",
        "(func (export \"_start\") (local $code i32) (call $sleep (i64.const 2))",
    );
    for (lanes, home, other) in [(3, 1, 2), (3, 2, 1), (3, 1, 1), (3, 0, 1), (3, 1, 0), (3, 2, 0)] {
        let mut machine = Machine::lanes(lanes);
        let owner = machine.session("owner", &owner);
        let from = machine.session("sender", &split.replace("LANE", &other.to_string()));
        if home == other {
            machine.split(from, &[home])
        } else {
            machine.split(from, &[home, other])
        };
        machine.wire("in", owner, 1, &[from]);
        let run = machine.run();
        assert_eq!(run.numbers(1), [0, ECANCELED, 0], "from lane {home}, waiting on {other}");
        assert_eq!(run.numbers(0), [1, 3, ECLOSED], "from lane {home}, waiting on {other}");
    }
}

#[test]
fn a_sender_canceled_in_the_wave_its_place_frees_is_canceled() {
    // The owner makes room in the same wave in which another lane cancels the waiting sender. Every
    // alignment of the two is tried.
    let split = r#"
    (func $sends (param i64) (drop (call $send (i32.const 0) (local.get 0))))
    (elem (i32.const 0) $sends)
    (func (export "_start") (local $r i64) (local $i i32)
      (drop (call $send (i32.const 0) (i64.const 1)))
      (local.set $r (call $spawn_on (i32.const 0) (i64.const 2) (i32.const LANE)))
      (call $sleep (i64.const 1))
      (local.set $i (i32.const SPIN)) (loop $l (br_if $l (i32.gt_s (local.tee $i (i32.sub (local.get $i) (i32.const 1))) (i32.const 0))))
      (drop (call $cancel (local.get $r))) (call $out32 (call $join (local.get $r) (i32.const -1))))"#;
    let owner = OWNER.replace(
        "(func (export \"_start\") (local $code i32)",
        "(func (export \"_start\") (local $code i32) (call $sleep (i64.const 1))",
    );
    let mut outcomes = std::collections::BTreeSet::new();
    for (home, other) in [(1, 0), (0, 1), (1, 2), (2, 1)] {
        for spin in [0, 400, 800, 1200, 1600, 2400, 4000] {
            let mut machine = Machine::lanes(3);
            let owner = machine.session("owner", &owner);
            let from = machine.session(
                "sender",
                &split.replace("LANE", &other.to_string()).replace("SPIN", &spin.to_string()),
            );
            machine.on(owner, 2).split(from, &[home, other]);
            machine.wire("in", owner, 1, &[from]);
            machine.times(100_000, 4_000, 3_000);
            let run = machine.run();
            assert_eq!(
                run.outcome,
                RunOutcome::Finished,
                "{home} {other} {spin} {:?} {:?} {:?}",
                run.deadlock,
                run.numbers(0),
                run.numbers(1)
            );
            let (code, got) = (run.numbers(1)[0], run.numbers(0));
            assert_eq!(
                code == 0,
                got.contains(&2),
                "it was sent or it was canceled: {code} {got:?}"
            );
            outcomes.insert(code);
        }
    }
    assert_eq!(outcomes.into_iter().collect::<Vec<_>>(), [ECANCELED, 0], "both happened");
}

/// A session on lanes [0, 1]: memory at once, spawns and wakes at wave ends, joins, cancels and
/// exits across.
#[test]
fn a_split_session_joins_cancels_and_talks_across_its_lanes() {
    let body = r#"
    (func $where (param i64) (result i64) (i64.add (i64.mul (i64.extend_i32_s (call $lane)) (i64.const 100)) (local.get 0)))
    (func $echo (param i64) (result i64) (local $n i64)
      (loop $l
        (if (i32.eqz (call $recv (i32.const 0) (i32.const 200))) (then
          (local.set $n (i64.add (local.get $n) (i64.load (i32.const 200))))
          (drop (call $send (i32.const 1) (i64.mul (i64.load (i32.const 200)) (i64.const 2)))) (br $l))))
      (local.get $n))
    (func $spins (param i64) (loop $l (br $l)))
    (func $traps (param i64) unreachable)
    (elem (i32.const 0) $where $echo $spins $traps)
    (func $result (param i64) (call $out32 (call $join (local.get 0) (i32.const 8))) (call $out (i64.load (i32.const 8))))
    (func (export "_start") (local $r i64) (local $i i64)
      (drop (call $channel (i32.const 1))) (drop (call $channel (i32.const 1)))
      (call $result (call $spawn_on (i32.const 0) (i64.const 5) (i32.const 1)))
      (call $result (call $spawn_on (i32.const 0) (i64.const 5) (i32.const 0)))
      (local.set $r (call $spawn_on (i32.const 1) (i64.const 0) (i32.const 1)))
      (loop $l
        (drop (call $send (i32.const 0) (local.get $i)))
        (drop (call $recv (i32.const 1) (i32.const 8))) (call $out (i64.load (i32.const 8)))
        (br_if $l (i64.lt_s (local.tee $i (i64.add (local.get $i) (i64.const 1))) (i64.const 4))))
      (drop (call $close (i32.const 0)))
      (call $result (local.get $r))
      (local.set $r (call $spawn_on (i32.const 2) (i64.const 0) (i32.const 1)))
      (call $sleep (i64.const 1))
      (call $out32 (call $cancel (local.get $r))) (call $out32 (call $join (local.get $r) (i32.const -1)))
      ;; Canceled in the wave it was spawned in.
      (local.set $r (call $spawn_on (i32.const 2) (i64.const 0) (i32.const 1)))
      (call $out32 (call $cancel (local.get $r))) (call $out32 (call $join (local.get $r) (i32.const -1)))
      (call $out32 (call $join (call $spawn_on (i32.const 3) (i64.const 0) (i32.const 1)) (i32.const -1))))"#;
    let mut machine = Machine::lanes(2);
    let session = machine.session("main", body);
    machine.split(session, &[0, 1]);
    let run = machine.run();
    assert_eq!(
        (run.outcome, run.numbers(0)),
        (
            RunOutcome::Finished,
            vec![0, 105, 0, 5, 0, 2, 4, 6, 0, 6, 0, ECANCELED, 0, ECANCELED, -8]
        )
    );
    assert!(run.events(1).iter().any(|event| event.starts_with("Step")), "lane 1 did run");
}

#[test]
fn finished_and_canceled_in_one_wave_is_finished() {
    let body = r#"
    (func $quick (param i64) (result i64) (i64.const 3))
    (elem (i32.const 0) $quick)
    (func (export "_start") (local $r i64)
      (local.set $r (call $spawn_on (i32.const 0) (i64.const 0) (i32.const 1)))
      (call $sleep (i64.const 1))
      (local.set $r (call $spawn_on (i32.const 0) (i64.const 0) (i32.const 0)))
      (call $yield)
      (call $out32 (call $cancel (local.get $r)))
      (call $out32 (call $join (local.get $r) (i32.const 8))) (call $out (i64.load (i32.const 8))))"#;
    let mut machine = Machine::lanes(2);
    let session = machine.session("main", body);
    machine.split(session, &[0, 1]);
    assert_eq!(machine.run().numbers(0), [0, 0, 3]);
}

#[test]
fn proc_exit_ends_a_split_session_on_every_lane() {
    let body = |exits_on: u32| {
        format!(
            r#"(func $spins (param i64) (loop $l (br $l)))
            (func $exits (param i64) (call $proc_exit (i32.const 4)))
            (func $waits (param i64) (drop (call $recv (i32.const 0) (i32.const 8))))
            (elem (i32.const 0) $spins $exits $waits)
            (func (export "_start")
              (drop (call $channel (i32.const 1)))
              (drop (call $spawn_on (i32.const 0) (i64.const 0) (i32.const 0))) (drop (call $spawn_on (i32.const 0) (i64.const 0) (i32.const 1)))
              (drop (call $spawn_on (i32.const 2) (i64.const 0) (i32.const 1)))
              (drop (call $spawn_on (i32.const 1) (i64.const 0) (i32.const {exits_on})))
              (loop $l (call $out (call $spawn_on (i32.const 2) (i64.const 0) (i32.const 1))) (call $sleep (i64.const 1)) (br $l)))"#
        )
    };
    for exits_on in [0, 1] {
        let mut machine = Machine::lanes(2);
        let session = machine.session("main", &body(exits_on));
        machine.split(session, &[0, 1]);
        machine.spec.max_frames = Some(20);
        let run = machine.run();
        assert_eq!(
            (run.outcome, run.session(0).exit),
            (RunOutcome::Finished, 4),
            "from lane {exits_on}"
        );
        assert!(run.numbers(0).iter().all(|number| *number > 0 || *number == EDENIED));
    }
}

/// What a session of a machine does is the same when others are on its lane and when they are not.
fn observables(run: &Run) -> Vec<wavelock_trace::Digest> {
    run.summary.sessions.iter().map(|session| session.digest).collect()
}

#[test]
fn a_refused_or_withdrawn_message_was_not_sent() {
    // The owner ends while the second message waits: whether it waited, or came too late, the
    // session sent one message.
    let digest = |frames: u64| {
        let mut machine = Machine::new();
        let owner =
            machine.session("owner", r#"(func (export "_start") (call $sleep (i64.const 2)))"#);
        let from = machine.session(
            "sender",
            &format!(
                r#"(func (export "_start") (drop (call $send (i32.const 0) (i64.const 1)))
          (call $sleep (i64.const {frames})) (drop (call $send (i32.const 0) (i64.const 2))))"#
            ),
        );
        machine.wire("in", owner, 1, &[from]);
        let run = machine.run();
        assert_eq!(run.outcome, RunOutcome::Finished);
        observables(&run)[1]
    };
    assert_eq!(digest(1), digest(4));
}

#[test]
fn of_two_exits_in_one_wave_the_first_in_canonical_order_counts() {
    let body = |on_lane_zero: &str, on_lane_one: &str| {
        format!(
            r#"(func $zero (param i64) (call $sleep (i64.const 1)) {on_lane_zero}) (func $one (param i64) (call $sleep (i64.const 1)) {on_lane_one})
            (elem (i32.const 0) $zero $one)
            (func (export "main") (result i32)
              (drop (call $spawn_on (i32.const 0) (i64.const 0) (i32.const 0))) (drop (call $spawn_on (i32.const 1) (i64.const 0) (i32.const 1)))
              (call $sleep (i64.const 1)) (call $yield) (i32.const 7))"#
        )
    };
    let exit = |body: &str, home: u16| {
        let mut machine = Machine::lanes(2);
        let session = machine.session("main", body);
        machine.split(session, &[home, 1 - home]);
        let run = machine.run();
        assert_eq!(run.outcome, RunOutcome::Finished);
        run.session(0).exit
    };
    assert_eq!(
        exit(&body("(call $proc_exit (i32.const 1))", "(call $proc_exit (i32.const 2))"), 0),
        1
    );
    assert_eq!(
        exit(&body("(call $proc_exit (i32.const 1))", ""), 1),
        1,
        "a return after an exit on another lane does not change its code"
    );
    assert_eq!(exit(&body("", ""), 1), 7);
}
