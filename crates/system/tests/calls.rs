//! Calls as guests meet them: what each operation answers, whose time runs where, and every way in
//! which one of the two can go away meanwhile.
//!
//! Each machine here also has to be the same run step by step, with groups in reverse, and from its
//! bytes at any boundary.

mod kit;

use kit::{Machine, Run};
use wavelock_abi::{Cycles, Errno, HostOperation, SessionId};
use wavelock_kernel::OverrunPolicy;
use wavelock_system::{ContextSpec, MachineSpec, RunOutcome, Stage, World};

const EINVAL: i64 = Errno::Invalid.code() as i64;
const ESTALE: i64 = Errno::Stale.code() as i64;
const ECLOSED: i64 = Errno::Closed.code() as i64;
const EMSGSIZE: i64 = Errno::MessageSize.code() as i64;
const ELIMIT: i64 = Errno::Limit.code() as i64;
const EDENIED: i64 = Errno::Denied.code() as i64;
const EFAULTED: i64 = Errno::Faulted.code() as i64;
const ECANCELED: i64 = Errno::Canceled.code() as i64;
const EREVOKED: i64 = Errno::Revoked.code() as i64;

/// What every guest here has: work, the port "in", a call through it that outputs the code and the
/// answer.
const COMMON: &str = r#"
    (data (i32.const 512) "incontrolclock")
    (func $work (param $rounds i32) (loop $more
      (local.set $rounds (i32.sub (local.get $rounds) (i32.const 1)))
      (br_if $more (i32.gt_s (local.get $rounds) (i32.const 0)))))
    (func $in (result i32) (call $port (i32.const 512) (i32.const 2)))
    (func $clock (result i32) (call $capability (i32.const 521) (i32.const 5)))
    (func $ask (param $number i64)
      (i64.store (i32.const 32) (i64.const -77))
      (call $out32 (call $call (call $in) (i32.const 32) (local.get $number)))
      (call $out (i64.load (i32.const 32))))"#;

/// Takes `often` calls with `accept`, works for each, answers twice its number.
fn active(often: u32, work: u32) -> String {
    format!(
        r#"(func (export "_start") (local $i i32) (local $r i32) (loop $next
          (local.set $r (call $accept (call $in) (i32.const 8)))
          (if (i32.lt_s (local.get $r) (i32.const 0)) (then (call $out32 (local.get $r)) (return)))
          (call $work (i32.const {work}))
          (drop (call $reply (local.get $r) (i64.mul (i64.load (i32.const 8)) (i64.const 2))))
          (local.set $i (i32.add (local.get $i) (i32.const 1)))
          (br_if $next (i32.lt_s (local.get $i) (i32.const {often})))))"#
    )
}

/// Serves for ever: works for each call, answers twice its number.
fn passive(work: u32) -> String {
    format!(
        r#"(func (export "_start") (local $r i32)
          (local.set $r (call $serve (call $in) (i32.const 8) (i32.const -1) (i64.const 0)))
          (loop $next
            (if (i32.lt_s (local.get $r) (i32.const 0)) (then (call $out32 (local.get $r)) (return)))
            (call $work (i32.const {work}))
            (local.set $r (call $serve (call $in) (i32.const 8) (local.get $r) (i64.mul (i64.load (i32.const 8)) (i64.const 2))))
            (br $next)))"#
    )
}

/// A client that calls with each of these numbers.
fn client(numbers: &[i64]) -> String {
    let calls: String =
        numbers.iter().map(|number| format!("(call $ask (i64.const {number}))")).collect();
    format!(r#"(func (export "_start") {calls})"#)
}

/// A server and clients, wired with a channel of this capacity; the first `with_time` clients have
/// contexts.
fn machine(server: &str, clients: &[&str], capacity: u32, with_time: usize) -> Machine {
    let mut machine = Machine::new();
    machine.times(200_000, 20_000, 5_000);
    let owner = machine.session("server", &format!("{COMMON} {server}"));
    let clients: Vec<SessionId> = (0..)
        .zip(clients)
        .map(|(number, client)| {
            machine.session(&format!("client.{number}"), &format!("{COMMON} {client}"))
        })
        .collect();
    machine.wire("in", owner, capacity, &clients);
    machine.spec.sessions[owner.0 as usize].ports.push(("in".into(), 0));
    for &client in &clients[..with_time] {
        machine.spec.contexts.push(ContextSpec::new(
            "clock",
            client,
            Cycles(20_000),
            Cycles(100_000),
        ));
    }
    machine
}

fn count(run: &Run, event: &str) -> usize {
    let lanes = run.sink.frames.first().map_or(1, |frame| frame.lanes.len());
    (0..lanes).flat_map(|lane| run.events(lane)).filter(|line| line.starts_with(event)).count()
}

/// Runs a machine in every way there is and gives the run.
fn run(machine: &Machine) -> Run {
    let whole = machine.run();
    let mut stepped = machine.world(false);
    while stepped.step(&mut ()).expect("the host can go on") {}
    assert_eq!(stepped.digest(), whole.summary.digest, "step by step");
    let mut reversed = machine.world(false);
    while reversed.open_wave(&mut ()).expect("the host can go on") {
        reversed.groups_mut().iter_mut().rev().for_each(|group| group.run_wave());
        reversed.close_wave();
    }
    assert_eq!(reversed.digest(), whole.summary.digest, "groups in reverse");
    let mut world = machine.world(false);
    let mut saved = 0;
    while saved < 12 && world.advance(&mut ()).is_ok_and(|stage| stage != Stage::Over) {
        if world.stage() == Stage::Wave {
            world.groups_mut().iter_mut().for_each(|group| group.run_wave());
            world.close_wave();
        }
        let Ok(bytes) = world.save() else { continue };
        saved += 1;
        let modules = machine
            .spec
            .modules
            .iter()
            .cloned()
            .zip(machine.spec.module_hashes.iter().copied())
            .collect();
        let spec = MachineSpec::from_identity(&machine.spec.identity(), modules)
            .expect("an identity is a spec");
        let mut twin = World::restore(spec, Vec::new(), false, &bytes)
            .unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(twin.save().expect("a boundary"), bytes);
        twin.run(&mut ()).expect("the host can go on");
        assert_eq!(twin.digest(), whole.summary.digest, "from boundary {saved}");
    }
    whole
}

#[test]
fn the_operations_of_calls_are_these() {
    let about_calls: Vec<&str> = HostOperation::ALL
        .iter()
        .filter(|operation| operation.is_about_calls())
        .map(|operation| operation.import())
        .collect();
    assert_eq!(about_calls, ["call", "accept", "reply", "serve"], "each has a case in this file");
}

#[test]
fn a_call_waits_for_its_answer_with_or_without_time() {
    for with_time in [0, 1] {
        let run = run(&machine(&active(3, 10), &[&client(&[4, 5, 6])], 2, with_time));
        assert_eq!(run.outcome, RunOutcome::Finished);
        assert_eq!(run.numbers(1), [0, 8, 0, 10, 0, 12]);
        assert_eq!(
            [count(&run, "Call "), count(&run, "Accept "), count(&run, "Answer ")],
            [3, 3, 3]
        );
        assert_eq!(
            [count(&run, "Donate "), count(&run, "Return ")],
            [3 * with_time; 2],
            "lent with each call, back with each answer"
        );
    }
}

#[test]
fn a_passive_server_runs_on_what_two_clients_lend_it() {
    let clients = [client(&[1, 2, 3, 4]), client(&[10, 20, 30])];
    let mut machine = machine(&passive(300), &[&clients[0], &clients[1]], 4, 2);
    // Somebody who wants the whole lane: without lent time the server would wait for its turns.
    machine.session(
        "hog",
        &format!("{COMMON} (func (export \"_start\") (call $work (i32.const 200000)))"),
    );
    machine.spec.policy = wavelock_kernel::Policy::Cooperative;
    let run = run(&machine);
    assert_eq!(run.numbers(1), [0, 2, 0, 4, 0, 6, 0, 8]);
    assert_eq!(run.numbers(2), [0, 20, 0, 40, 0, 60]);
    assert_eq!([count(&run, "Donate "), count(&run, "Return ")], [7, 7]);
    assert_eq!(run.numbers(0), [ECLOSED], "its channel closes with the last client, and it ends");
    assert_eq!(run.outcome, RunOutcome::Finished);
    // The hog never yields: whoever answered before it was done ran on a context.
    let hog_done = run
        .events(0)
        .iter()
        .position(|line| line.starts_with("End { session: 3"))
        .expect("it ends");
    let answers =
        run.events(0).iter().take(hog_done).filter(|line| line.starts_with("Answer ")).count();
    assert!(answers >= 6, "{answers} answers while the hog ran");
}

#[test]
fn a_passive_server_refuses_calls_without_time() {
    let run = run(&machine(&passive(10), &[&client(&[1, 2]), &client(&[7])], 4, 1));
    assert_eq!(run.numbers(1), [0, 2, 0, 4]);
    assert_eq!(
        run.numbers(2),
        [EDENIED, -77],
        "whichever came first, the caller gets the code and the server continues"
    );
    assert_eq!(run.outcome, RunOutcome::Finished);
}

#[test]
fn calls_that_queue_bring_their_time_when_they_are_taken() {
    let clients = [client(&[1, 2, 3]), client(&[4, 5, 6]), client(&[7, 8, 9])];
    let clients: Vec<&str> = clients.iter().map(String::as_str).collect();
    for server in [active(9, 2_000), passive(2_000)] {
        // One place: others wait to send.
        let run = run(&machine(&server, &clients, 1, 3));
        assert_eq!(run.numbers(1), [0, 2, 0, 4, 0, 6]);
        assert_eq!(run.numbers(2), [0, 8, 0, 10, 0, 12]);
        assert_eq!(run.numbers(3), [0, 14, 0, 16, 0, 18]);
        assert_eq!(count(&run, "Donate "), count(&run, "Return "));
        assert!(count(&run, "Donate ") >= 7, "{}", count(&run, "Donate "));
    }
}

#[test]
fn what_the_server_does_is_charged_to_the_clients_context() {
    // The server works three budgets' worth in one call: the client's context throttles it.
    let run = run(&machine(&passive(9_000), &[&client(&[1])], 2, 1));
    assert_eq!(run.numbers(1), [0, 2]);
    let throttled = run
        .events(0)
        .iter()
        .filter(|line| line.starts_with("Throttle ") && line.contains("session: 0"))
        .count();
    assert!(throttled >= 2, "{throttled}");
    let client = run.session(1).cycles.0;
    assert!(
        run.session(0).cycles.0 > 50_000 && client < 2_000,
        "the ledger says who ran, the context who paid"
    );
}

/// A chain of servers, each calling the next through its port "next"; the last answers one more.
fn chain(length: u32) -> Machine {
    let mut machine = Machine::new();
    machine.times(200_000, 20_000, 5_000);
    let link = r#"(data (i32.const 560) "next")
        (func (export "_start") (local $r i32)
          (local.set $r (call $serve (call $in) (i32.const 8) (i32.const -1) (i64.const 0)))
          (loop $go
            (if (i32.lt_s (local.get $r) (i32.const 0)) (then (return)))
            (call $work (i32.const 20))
            (if (call $call (call $port (i32.const 560) (i32.const 4)) (i32.const 16) (i64.load (i32.const 8)))
              (then (i64.store (i32.const 16) (i64.load (i32.const 8)))))
            (local.set $r (call $serve (call $in) (i32.const 8) (local.get $r) (i64.add (i64.load (i32.const 16)) (i64.const 1))))
            (br $go)))"#;
    let client = machine.session("client", &format!("{COMMON} {}", client(&[0, 0])));
    let links: Vec<SessionId> = (0..length)
        .map(|at| machine.session(&format!("link.{at}"), &format!("{COMMON} {link}")))
        .collect();
    let mut before = client;
    for (at, &link) in links.iter().enumerate() {
        let channel = machine.spec.add_channel(&format!("to.{at}"), link, 2);
        let name = if before == client { "in" } else { "next" };
        machine.spec.sessions[before.0 as usize].ports.push((name.into(), channel));
        machine.spec.sessions[link.0 as usize].ports.push(("in".into(), channel));
        before = link;
    }
    machine.spec.contexts.push(ContextSpec::new("clock", client, Cycles(40_000), Cycles(100_000)));
    machine
}

#[test]
fn a_chain_of_servers_runs_on_one_context_eight_deep_and_no_deeper() {
    let run = run(&chain(12));
    // The eighth link cannot lend on: its call is refused, it answers for itself, and the answers
    // add up on the way home.
    assert_eq!(run.numbers(0), [0, 8, 0, 8]);
    assert_eq!([count(&run, "Donate "), count(&run, "Return ")], [16, 16]);
    assert!(
        run.events(0).iter().any(|line| line.starts_with("Donate ") && line.contains("depth: 8"))
    );
    assert!(run.events(0).iter().any(|line| line.starts_with("Deny ")), "the refusal is recorded");
    assert_eq!(run.outcome, RunOutcome::Finished);
}

#[test]
fn codes_of_calls() {
    let body = r#"
      (func $server (param i64) (result i64) (local $r i32)
        (call $out32 (call $accept (i32.wrap_i64 (local.get 0)) (i32.const 8)))
        (call $out32 (call $recv (i32.wrap_i64 (local.get 0)) (i32.const 8)))
        (call $out32 (call $recv_bytes (i32.wrap_i64 (local.get 0)) (i32.const 8) (i32.const 8)))
        (local.set $r (call $accept (i32.wrap_i64 (local.get 0)) (i32.const 8)))
        (call $out (i64.load (i32.const 8)))
        (call $out32 (call $reply (i32.add (local.get $r) (i32.const 1)) (i64.const 0)))
        (call $out32 (call $reply (i32.add (local.get $r) (i32.const 65536)) (i64.const 0)))
        (call $out32 (call $reply (i32.const -1) (i64.const 0)))
        (i32.store (i32.const 40) (local.get $r))
        (call $out32 (call $reply (local.get $r) (i64.const 99)))
        (call $out32 (call $reply (local.get $r) (i64.const 99)))
        (call $out32 (call $serve (i32.wrap_i64 (local.get 0)) (i32.const 8) (local.get $r) (i64.const 0)))
        (i64.const 0))
      (elem (i32.const 0) $server)
      (func (export "_start") (local $ch i32) (local $r i64)
        (local.set $ch (call $channel (i32.const 2)))
        (call $out32 (call $call (i32.const 99) (i32.const 32) (i64.const 1)))
        (call $out32 (call $accept (i32.const 99) (i32.const 32)))
        (call $out32 (call $reply (i32.const 0) (i64.const 1)))
        (drop (call $send (local.get $ch) (i64.const 5)))
        (local.set $r (call $spawn (i32.const 0) (i64.extend_i32_s (local.get $ch))))
        (call $yield)
        (call $out32 (call $call (local.get $ch) (i32.const 32) (i64.const 6)))
        (call $out (i64.load (i32.const 32)))
        (drop (call $join (local.get $r) (i32.const 48)))
        (call $out32 (call $close (local.get $ch)))
        (call $out32 (call $call (local.get $ch) (i32.const 32) (i64.const 6)))
        (call $out32 (call $accept (local.get $ch) (i32.const 32))))"#;
    let run = run(&Machine::one(&format!("{COMMON} {body}")));
    let wanted = [
        // A handle that is none; a reply that nobody has.
        EINVAL, EINVAL, ESTALE,
        // A number taken with `accept` is left in place, `recv` takes it; then a call taken with
        // `recv_bytes`.
        EMSGSIZE, 0,
        EMSGSIZE, // The call; forged handles; the answer, once; `serve` with a handle that is over.
        6, ESTALE, ESTALE, ESTALE, 0, ESTALE,
        ESTALE, // The caller's side; and after the channel closed.
        0, 99, 0, ECLOSED, ECLOSED,
    ];
    assert_eq!(run.numbers(0), wanted);
}

#[test]
fn only_who_took_a_call_answers_it_and_only_the_owner_takes_calls() {
    let body = r#"
      (func $other (param i64) (result i64) (call $out32 (call $reply (i32.wrap_i64 (local.get 0)) (i64.const 3))) (i64.const 0))
      (elem (i32.const 0) $other)
      (func (export "_start") (local $r i32)
        (local.set $r (call $accept (call $in) (i32.const 8)))
        (drop (call $join (call $spawn (i32.const 0) (i64.extend_i32_s (local.get $r))) (i32.const 16)))
        (call $out32 (call $reply (local.get $r) (i64.const 4))))"#;
    let asking = format!(
        "{} (func $try (call $out32 (call $accept (call $in) (i32.const 8))))",
        client(&[1])
    );
    let asking =
        asking.replace("(func (export \"_start\")", "(func (export \"_start\") (call $try)");
    let run = run(&machine(body, &[&asking], 1, 1));
    assert_eq!(run.numbers(0), [EDENIED, 0]);
    assert_eq!(run.numbers(1), [EDENIED, 0, 4]);
}

#[test]
fn a_bad_pointer_faults_before_anything_is_sent() {
    for call in [
        "(call $call (call $in) (i32.const 65532) (i64.const 1))",
        "(call $accept (call $channel (i32.const 1)) (i32.const -4))",
    ] {
        let body = format!("(func (export \"_start\") (drop {call}))");
        let run = machine(&active(1, 1), &[&body], 1, 1).run();
        assert_eq!((run.outcome, count(&run, "Call ")), (RunOutcome::Faulted, 0));
        assert_eq!(run.numbers(0), [ECLOSED], "the server sees its last client go");
    }
}

/// A server that takes one call and then does `then`.
fn after_one(then: &str) -> String {
    format!(
        r#"(func (export "_start") (local $r i32) (local.set $r (call $accept (call $in) (i32.const 8))) {then})"#
    )
}

#[test]
fn a_callee_that_ends_faults_or_is_canceled_answers_with_a_code_and_gives_the_time_back() {
    let after =
        r#"(func (export "_start") (call $ask (i64.const 1)) (call $out32 (call $context_yield)))"#;
    let cancels = r#"
      (func $takes (param i64) (result i64) (drop (call $accept (call $in) (i32.const 8))) (call $sleep (i64.const 50)) (i64.const 0))
      (elem (i32.const 0) $takes)
      (func (export "_start") (local $c i64)
        (local.set $c (call $spawn (i32.const 0) (i64.const 0))) (call $sleep (i64.const 2))
        (call $out32 (call $cancel (local.get $c))))"#;
    let exits = after_one("(call $proc_exit (i32.const 3))");
    for (server, code) in [
        (after_one("(call $work (i32.const 50))"), ECANCELED),
        (after_one("(unreachable)"), EFAULTED),
        (exits, ECANCELED),
        (cancels.into(), ECANCELED),
    ] {
        let run = run(&machine(&server, &[after], 2, 1));
        assert_eq!(run.numbers(1), [code, -77, 0], "{server}: the caller has its context again");
        assert_eq!([count(&run, "Donate "), count(&run, "Return ")], [1, 1]);
    }
}

#[test]
fn a_caller_that_ends_takes_its_time_back_and_gets_no_reply() {
    // The client's second coroutine cancels the first while the server works on its time, and takes
    // that time up itself.
    let client = r#"
      (func $cancels (param i64) (result i64) (call $sleep (i64.const 2))
        (call $out32 (call $cancel (local.get 0)))
        (call $out32 (call $context_bind (call $clock) (call $self)))
        (call $out32 (call $context_yield)) (i64.const 0))
      (elem (i32.const 0) $cancels)
      (func (export "_start") (drop (call $spawn (i32.const 0) (call $self))) (call $ask (i64.const 1)))"#;
    let server = after_one(
        "(call $work (i32.const 40000)) (call $out32 (call $reply (local.get $r) (i64.const 5)))",
    );
    let run = run(&machine(&server, &[client], 2, 1));
    assert_eq!(run.numbers(1), [0, 0, 0]);
    assert_eq!(
        run.numbers(0),
        [ESTALE],
        "the server finished as best effort; nobody waits for its answer"
    );
    assert_eq!([count(&run, "Donate "), count(&run, "Return ")], [1, 0]);
}

#[test]
fn revoking_time_on_loan_ends_the_calls_it_went_along_newest_first() {
    // The client's second coroutine revokes the context while the server works on it.
    let client = r#"
      (func $revokes (param i64) (result i64) (call $sleep (i64.const 2)) (call $out32 (call $context_revoke (call $clock))) (i64.const 0))
      (elem (i32.const 0) $revokes)
      (func (export "_start")
        (drop (call $spawn (i32.const 0) (i64.const 0)))
        (call $ask (i64.const 1))
        (call $ask (i64.const 2))
        (call $out32 (call $context_yield)))"#;
    let run = run(&machine(&active(2, 40_000), &[client], 2, 1));
    assert_eq!(
        run.numbers(1),
        [0, EREVOKED, -77, 0, 4, EINVAL],
        "the late answer to the first call is not taken for one to the second"
    );
    assert_eq!([count(&run, "Donate "), count(&run, "Return "), count(&run, "Revoke ")], [1, 0, 1]);
    assert_eq!(run.outcome, RunOutcome::Finished);
}

#[test]
fn the_end_of_a_session_ends_its_calls_on_both_sides() {
    // The server's session ends with a call in its queue and one that waits to get in; the client's
    // with its time on loan.
    let ends = r#"(func (export "_start") (call $sleep (i64.const 3)))"#;
    let waiting = run(&machine(ends, &[&client(&[1]), &client(&[2])], 1, 2));
    assert_eq!((waiting.numbers(1), waiting.numbers(2)), (vec![ECLOSED, -77], vec![ECLOSED, -77]));
    let leaves = r#"
      (func $leaves (param i64) (result i64) (call $sleep (i64.const 2)) (call $proc_exit (i32.const 0)) (i64.const 0))
      (elem (i32.const 0) $leaves)
      (func (export "_start") (drop (call $spawn (i32.const 0) (i64.const 0))) (call $ask (i64.const 1)))"#;
    let run = run(&machine(&active(2, 40_000), &[leaves, &client(&[5])], 2, 1));
    assert_eq!(run.numbers(2), [0, 10], "the server finished the dead client's call and went on");
    assert_eq!(run.outcome, RunOutcome::Finished);
    assert_eq!(count(&run, "Revoke "), 1);
}

#[test]
fn a_context_that_ends_its_holder_ends_whom_it_is_bound_to_and_not_a_server() {
    let mut machine = machine(&active(2, 9_000), &[&client(&[1]), &client(&[5])], 2, 1);
    machine.spec.contexts[0].overrun = OverrunPolicy::End;
    let run = run(&machine);
    assert_eq!(run.numbers(1), [], "the client ran over, in the server's hands");
    assert_eq!(run.numbers(2), [0, 10]);
    assert_eq!(run.session(0).outcome, wavelock_system::SessionOutcome::Finished);
}

#[test]
fn a_timeout_is_delivered_without_lending_anything() {
    // The watcher waits on the context's timeout channel with a receive: it gets the notice, and no
    // time with it.
    let client = r#"
      (func $watch (param i64) (result i64)
        (call $out32 (call $recv (i32.wrap_i64 (local.get 0)) (i32.const 48)))
        (call $out32 (call $context_yield)) (i64.const 0))
      (elem (i32.const 0) $watch)
      (func (export "_start") (local $ch i32)
        (local.set $ch (call $channel (i32.const 4)))
        (call $out32 (call $context_timeout (call $clock) (local.get $ch)))
        (drop (call $spawn (i32.const 0) (i64.extend_i32_s (local.get $ch))))
        (call $ask (i64.const 1)))"#;
    let mut machine = machine(&passive(9_000), &[client], 2, 1);
    machine.spec.contexts[0].overrun = OverrunPolicy::NotifyAndThrottle;
    let run = run(&machine);
    assert_eq!(
        run.numbers(1),
        [0, 0, EINVAL, 0, 2],
        "told while the server was throttled; the watcher has no context"
    );
    assert_eq!([count(&run, "Donate "), count(&run, "Notify ")], [1, 1]);
}

#[test]
fn calls_across_lanes_are_answered_at_waves_ends_and_bring_no_time() {
    let clients = [client(&[1, 2, 3]), client(&[4, 5, 6])];
    for (server, with_time) in [
        (active(6, 100), [0, 2, 0, 4, 0, 6]),
        (passive(100), [EDENIED, -77, EDENIED, -77, EDENIED, -77]),
    ] {
        let mut machine = machine(&server, &[&clients[0], &clients[1]], 1, 2);
        machine.spec.lanes = 3;
        machine.spec.sessions.iter_mut().enumerate().for_each(|(at, session)| {
            session.placement = wavelock_system::Placement::Lane(at as u16);
        });
        let run = run(&machine);
        assert_eq!(run.numbers(1), with_time);
        assert_eq!(run.outcome, RunOutcome::Finished);
        assert_eq!(count(&run, "Donate "), 0, "nothing is lent across lanes");
    }
}

#[test]
fn a_session_in_a_call_does_not_move() {
    let clients: Vec<String> = (0..6).map(|at| client(&[at, at + 1, at + 2, at + 3])).collect();
    let clients: Vec<&str> = clients.iter().map(String::as_str).collect();
    let mut machine = machine(&active(24, 3_000), &clients, 2, 0);
    machine.spec.lanes = 3;
    (machine.spec.steal, machine.spec.balance) = (true, true);
    let run = run(&machine);
    assert_eq!(run.outcome, RunOutcome::Finished);
    for at in 0..6 {
        let wanted: Vec<i64> = (0..4).flat_map(|more| [0, 2 * (at + more)]).collect();
        assert_eq!(run.numbers(1 + at as u32), wanted);
    }
}

#[test]
fn a_call_to_oneself_is_a_deadlock_with_its_name() {
    let body = r#"(func (export "_start") (drop (call $call (call $channel (i32.const 1)) (i32.const 32) (i64.const 1))))"#;
    let run = run(&Machine::one(&format!("{COMMON} {body}")));
    assert_eq!(run.outcome, RunOutcome::Deadlock);
    let deadlock = run.deadlock.expect("found");
    assert_eq!(deadlock.waiting[0].reason, wavelock_kernel::BlockReason::Reply);
    assert_eq!(deadlock.closed_set, [0]);
}

#[test]
fn a_session_takes_calls_up_to_its_limit() {
    let callers = r#"(func $calls (param i64) (result i64) (drop (call $call (call $in) (i32.const 32) (local.get 0))) (i64.const 0))
      (elem (i32.const 0) $calls)
      (func (export "_start") (local $i i32) (loop $next (drop (call $spawn (i32.const 0) (i64.const 1)))
        (local.set $i (i32.add (local.get $i) (i32.const 1))) (br_if $next (i32.lt_s (local.get $i) (i32.const 1030)))))"#;
    let hoards = r#"(func (export "_start") (local $n i64) (loop $next
        (local.set $n (i64.add (local.get $n) (i64.const 1)))
        (br_if $next (i32.ge_s (call $accept (call $in) (i32.const 8)) (i32.const 0))))
        (call $out (local.get $n)) (call $out32 (call $accept (call $in) (i32.const 8))))"#;
    let run = machine(hoards, &[callers], 2_000, 0).run();
    assert_eq!(run.numbers(0), [1_025, ELIMIT]);
    assert_eq!(run.outcome, RunOutcome::Finished, "callers are told when it ends");
}

/// A client on another lane lends nothing: the server is told so at load, with the fix, unless it
/// has time of its own.
#[test]
fn a_passive_server_with_clients_on_other_lanes_is_warned_about() {
    let lean = |imports: &[&str]| {
        let types = ["(param i32 i32 i64) (result i32)", "(param i32 i32 i32 i64) (result i32)"];
        let import = |name: &&str| {
            let of = types[usize::from(*name == "serve")];
            format!("(import \"wavelock\" \"{name}\" (func {of}))")
        };
        let imports: String = imports.iter().map(import).collect();
        format!("(module {imports} (func (export \"_start\")))")
    };
    let mut machine = Machine::lanes(3);
    let server = machine.session_of("vault", &lean(&["serve"]));
    let clients: Vec<SessionId> =
        (0..6).map(|at| machine.session_of(&format!("c{at}"), &lean(&["call"]))).collect();
    let silent = machine.session_of("silent", &lean(&[]));
    machine.wire("in", server, 4, &[&clients[..], &[silent]].concat());
    let texts: Vec<String> = machine.clone().warnings().iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    let expected = "session `vault` serves calls on time that they lend, and a call from another \
                    lane lends none: it is refused with EDENIED. Its callers on other lanes: \
                    `c0` on lane 1, `c1` on lane 2, `c3` on lane 1 and 1 more. Give them \
                    `lane = 0`, or `vault` a `[[context]]` of its own";
    assert_eq!(texts[0].split_whitespace().collect::<Vec<_>>().join(" "), expected);
    let mut paid = machine.clone();
    paid.spec.contexts.push(ContextSpec::new("own", server, Cycles(20_000), Cycles(400_000)));
    assert_eq!(paid.warnings(), []);
    for client in &clients {
        machine.on(*client, 0);
    }
    assert_eq!(machine.warnings(), []);
}

/// With direct handoff, a message from another lane prefers its receiver at the wave's end, and
/// that is recorded; one of the same lane is not.
#[test]
fn a_handoff_across_lanes_is_recorded_and_counted() {
    let receiver = r#"(func (export "_start") (local $n i32)
      (local.set $n (i32.const 4))
      (loop $next
        (drop (call $recv (call $in) (i32.const 8)))
        (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))"#;
    let sender = r#"(func (export "_start") (local $n i32)
      (local.set $n (i32.const 4))
      (loop $next
        (drop (call $send (call $in) (i64.const 1)))
        (call $sleep (i64.const 1))
        (br_if $next (local.tee $n (i32.sub (local.get $n) (i32.const 1))))))"#;
    for (lanes, handoff, expected) in [(2, true, 4), (2, false, 0), (1, true, 0)] {
        let mut machine = Machine::lanes(lanes);
        let to = machine.session("to", &format!("{COMMON} {receiver}"));
        let from = machine.session("from", &format!("{COMMON} {sender}"));
        machine.wire("in", to, 4, &[from]);
        machine.spec.handoff = handoff;
        let run = machine.run();
        assert_eq!(run.outcome, RunOutcome::Finished);
        let events = run.events(0);
        let recorded: Vec<&String> =
            events.iter().filter(|event| event.starts_with("Handoff")).collect();
        assert_eq!(recorded.len(), expected, "{lanes} lanes, handoff {handoff}: {recorded:?}");
        if let Some(first) = recorded.first() {
            let fields = "session: 1, slot: 0, from: 1, to_session: 0, to_slot: 0, to: 0, step: 1";
            assert!(first.contains(fields), "{first}");
        }
        let mut world = machine.world(false);
        world.run(&mut ()).expect("the host can");
        assert_eq!(world.handoffs_across_lanes(), expected as u64);
    }
}
