//! A steal, a depleted budget and a used-up cap allocate nothing in a wave of a whole machine, once
//! it has run for a while: a counting allocator watches waves and their ends.

mod counting;
mod kit;

use counting::COUNT;
use kit::Machine;
use wavelock_abi::Cycles;
use wavelock_kernel::{CapOverrun, CapSettings, OverrunPolicy, Policy};
use wavelock_system::{ContextSpec, World};

/// Allocations in the waves and wave ends of the next `frames` frames. Frame ends are not counted.
fn allocations(world: &mut World, frames: u64) -> u64 {
    let last = world.frame().0 + frames;
    let mut counted = 0;
    while world.frame().0 < last {
        assert!(world.open_wave(&mut ()).expect("the host can"), "the machine goes on");
        let before = COUNT.get();
        world.groups_mut().iter_mut().for_each(|group| group.run_wave());
        world.close_wave();
        counted += COUNT.get() - before;
    }
    counted
}

/// Works for a number of turns that differs from session to session, sleeps, and so on.
fn restless(number: u32) -> String {
    format!(
        r#"(func (export "_start") (local $i i32)
          (loop $forever
            (local.set $i (i32.const 0))
            (loop $l
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $l (i32.lt_u (local.get $i) (i32.const {}))))
            (call $sleep (i64.const {}))
            (br $forever)))"#,
        1_000 + 700 * number,
        1 + number % 3
    )
}

#[test]
fn a_steal_allocates_nothing() {
    let mut machine = Machine::lanes(3);
    for number in 0..9 {
        machine.session(&format!("s{number}"), &restless(number));
    }
    machine.times(20_000, 2_000, 500);
    machine.spec.steal = true;
    let mut world = machine.world(false);
    allocations(&mut world, 300);
    let before = world.crossings_and_moves().1;
    let counted = allocations(&mut world, 300);
    let steals = world.crossings_and_moves().1 - before;
    assert!(steals > 100, "{steals} steals");
    assert_eq!(counted, 0, "allocations in {steals} steals");
}

#[test]
fn a_depleted_budget_allocates_nothing() {
    let mut machine = Machine::new();
    for name in ["bound", "free"] {
        machine.session(name, r#"(func (export "_start") (loop $l (br $l)))"#);
    }
    machine.times(100_000, 20_000, 5_000);
    let session = wavelock_abi::SessionId(0);
    let context = ContextSpec::new("bound", session, Cycles(12_000), Cycles(50_000));
    machine.spec.contexts.push(context);
    let mut world = machine.world(false);
    allocations(&mut world, 100);
    assert_eq!(allocations(&mut world, 100), 0);
    let throttles = world.contexts()[0].view.counts.throttles;
    assert!(throttles >= 390, "{throttles}");
}

/// A holder that is notified: the cell is written and its channel gets a number, which a second
/// coroutine takes. Counted from the first wave on, but for what the log and the stacks grow by.
#[test]
fn a_notice_of_depletion_allocates_nothing() {
    let mut machine = Machine::new();
    let bound = machine.session(
        "bound",
        r#"(data (i32.const 0) "bound")
        (func $listen (param i64) (loop $l
          (drop (call $recv (i32.const 0) (i32.const 16)))
          (drop (call $context_notice (call $capability (i32.const 0) (i32.const 5)) (i32.const 64)))
          (br $l)))
        (elem (i32.const 0) $listen)
        (func (export "_start")
          (drop (call $channel (i32.const 2)))
          (drop (call $context_timeout (call $capability (i32.const 0) (i32.const 5)) (i32.const 0)))
          (drop (call $spawn (i32.const 0) (i64.const 0)))
          (loop $l (br $l)))"#,
    );
    machine.session("free", r#"(func (export "_start") (loop $l (br $l)))"#);
    machine.times(100_000, 20_000, 5_000);
    machine.spec.contexts.push(ContextSpec {
        overrun: OverrunPolicy::NotifyAndThrottle,
        ..ContextSpec::new("bound", bound, Cycles(12_000), Cycles(50_000))
    });
    let mut world = machine.world(false);
    allocations(&mut world, 20);
    let before = world.contexts()[0].view.counts.throttles;
    assert_eq!(allocations(&mut world, 200), 0);
    let throttles = world.contexts()[0].view.counts.throttles - before;
    let received = world.summary().sessions[0].messages;
    assert!(throttles >= 390, "{throttles} throttles, {received} messages");
    assert!(world.contexts()[0].view.cell.sequence >= 390);
}

/// Caps that are used up and refilled: a session that waits for its refill, and one that runs in
/// the background until then.
#[test]
fn a_cap_that_is_used_up_allocates_nothing() {
    for policy in kit::policies(Cycles(5_000)) {
        let mut machine = Machine::new();
        for name in ["throttled", "demoted", "free"] {
            machine.session(name, r#"(func (export "_start") (loop $l (br $l)))"#);
        }
        machine.times(100_000, 20_000, 5_000);
        machine.spec.policy = policy;
        for (at, overrun) in [(0, CapOverrun::Throttle), (1, CapOverrun::Demote)] {
            machine.spec.sessions[at].cap =
                Some(CapSettings { budget: Cycles(9_000), period_frames: 1, overrun });
        }
        let mut world = machine.world(false);
        allocations(&mut world, 20);
        assert_eq!(allocations(&mut world, 100), 0, "{policy:?}");
        let used: u64 = world.caps().iter().map(|cap| cap.account.counts.throttles).sum();
        // Under `cooperative` the session without a cap keeps the lane once it has it.
        let least = if policy == Policy::Cooperative { 1 } else { 200 };
        assert!(used >= least, "{policy:?}: {used}");
    }
}
