//! Islands: admitted as a whole or refused with the arithmetic, each stage by itself; admitted ones
//! meet their deadlines beside any neighbours; of refused ones, forced in, most do not.

mod kit;

use kit::{Choices, Machine, Run};
use wavelock_abi::{Cycles, Frame, SessionId};
use wavelock_kernel::OverrunPolicy;
use wavelock_system::{
    ContextSpec, Control, Input, Island, IslandRefusal, IslandSpec, IslandStage, LoadError,
    MachineSpec, Placement, Span, World,
};

/// Sessions of one group are in one module; each has its part of a control loop. The first is
/// released by its context, the others by messages. The last outputs its lane's clock when it ends
/// a period; the first, when it begins one.
fn node(work: u32, inputs: &[&str], outputs: &[&str]) -> String {
    let mut data = String::new();
    let mut ports = String::new();
    let mut at = 1024;
    for name in inputs.iter().chain(outputs) {
        data.push_str(&format!("(data (i32.const {at}) \"{name}\")\n"));
        ports.push_str(&format!("(global ${name} (mut i32) (i32.const 0)) "));
        at += 64;
    }
    let look = |name: &&str, at: usize| {
        format!(
            "(global.set ${name} (call $port (i32.const {}) (i32.const {})))",
            1024 + 64 * at,
            name.len()
        )
    };
    let found: Vec<String> =
        inputs.iter().chain(outputs).enumerate().map(|(at, name)| look(name, at)).collect();
    let receive: String = if inputs.is_empty() {
        "(drop (call $context_yield)) (call $stamp)".to_string()
    } else {
        let one = |name: &&str| format!("(drop (call $recv (global.get ${name}) (i32.const 8)))");
        inputs.iter().map(one).collect()
    };
    let send: String = if outputs.is_empty() {
        "(call $stamp)".to_string()
    } else {
        let one =
            |name: &&str| format!("(drop (call $try_send (global.get ${name}) (i64.const 1)))");
        outputs.iter().map(one).collect()
    };
    format!(
        r#"{data} {ports}
        (func $stamp
            (drop (call $clock_time_get (i32.const 0) (i64.const 0) (i32.const 16)))
            (call $out (i64.load (i32.const 16))))
        (func $work (local $i i32) (local.set $i (i32.const {work}))
            (loop $more (br_if $more (i32.gt_s
                (local.tee $i (i32.sub (local.get $i) (i32.const 1))) (i32.const 0)))))
        (func (export "_start") {}
            (loop $serve {receive} (call $work) {send} (br $serve)))"#,
        found.join(" ")
    )
}

const PERIOD: Cycles = Cycles(100_000);
const FRAME: Cycles = Cycles(100_000);
const WAVE: Cycles = Cycles(5_000);

/// Sense, control and act on the lanes given, with this much work each; a hog on every lane.
fn control(work: [u32; 3], lanes: [u16; 3]) -> Machine {
    let mut machine = Machine::lanes(3);
    machine.spec.frame_cycles = FRAME;
    machine.spec.span = Span::Cycles(WAVE);
    machine.spec.max_frames = Some(60);
    let bodies =
        [node(work[0], &[], &["a"]), node(work[1], &["a"], &["b"]), node(work[2], &["b"], &[])];
    for (index, body) in bodies.iter().enumerate() {
        let session = machine.session(&format!("node.{index}"), body);
        machine.spec.sessions[session.0 as usize].placement = Placement::Lane(lanes[index]);
        machine.spec.contexts.push(ContextSpec {
            deadline: Cycles(27_000),
            overrun: OverrunPolicy::Throttle,
            ..ContextSpec::new("own", session, Cycles(8_000), PERIOD)
        });
    }
    for (name, owner) in [("a", 1), ("b", 2)] {
        let channel = machine.spec.add_channel(name, SessionId(owner), 4);
        machine.spec.sessions[owner as usize - 1].ports.push((name.into(), channel));
    }
    for lane in 0..3 {
        let hog = machine
            .session(&format!("hog.{lane}"), r#"(func (export "_start") (loop $l (br $l)))"#);
        machine.spec.sessions[hog.0 as usize].placement = Placement::Lane(lane);
    }
    machine.spec.islands.push(IslandSpec {
        name: "loop".into(),
        members: vec![0, 1, 2],
        path: vec![0, 1],
        memory_pages: 12,
        period: PERIOD,
        deadline: PERIOD,
        bounds: vec!["1 loop 0 800 work".into()],
    });
    machine
}

fn refusal(machine: &Machine) -> Option<IslandRefusal> {
    match World::load(machine.spec.clone(), Vec::new(), false) {
        Err(LoadError::Island { refusal, .. }) => Some(refusal),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

/// The longest time from a release of the first member to the end of the last, over all periods,
/// and how many there were. The first release is that after the first yield.
fn responses(run: &Run) -> (u64, usize) {
    let (began, ended) = (run.numbers(0), run.numbers(2));
    let times = began.iter().zip(&ended).map(|(began, ended)| (ended - began) as u64);
    (times.clone().max().unwrap_or(0), times.count())
}

#[test]
fn a_control_loop_is_admitted_and_meets_its_deadline_beside_hogs() {
    for lanes in [[0, 0, 0], [0, 1, 2], [0, 1, 0]] {
        let machine = control([400, 800, 200], lanes);
        let loaded = World::load(machine.spec.clone(), Vec::new(), false).expect("admitted");
        let islands = loaded.world.islands();
        let [Island { state: Ok(summary), .. }] = &islands[..] else { panic!("{islands:?}") };
        assert_eq!(summary.members.len(), 3);
        let run = machine.run();
        let (longest, periods) = responses(&run);
        assert!(periods > 50, "{lanes:?}: {periods} periods");
        assert!(longest <= summary.longest().0, "{lanes:?}: {longest} of {:?}", summary.longest());
        assert_eq!(machine.run().numbers(2), run.numbers(2), "the same clocks again");
        println!("{lanes:?}: {periods} periods, {longest} of {:?}", summary.longest());
    }
}

fn fails_at(stage: IslandStage, text: &str, change: impl FnOnce(&mut MachineSpec)) {
    let mut machine = control([400, 800, 200], [0, 1, 2]);
    change(&mut machine.spec);
    let refusal = refusal(&machine).unwrap_or_else(|| panic!("admitted: {text}"));
    assert_eq!((refusal.stage(), refusal.to_string().as_str()), (stage, text));
}

#[test]
fn every_stage_refuses_with_its_numbers() {
    use IslandStage as S;
    fails_at(S::Parse, "it has no members", |spec| spec.islands[0].members.clear());
    fails_at(
        S::Parse,
        "context 1 does not exist, or is named twice or by another island",
        |spec| spec.islands[0].members = vec![0, 1, 1],
    );
    fails_at(
        S::Parse,
        "deadline_cycles = 100001: 1 to period_cycles = 100000 are allowed",
        |spec| {
            spec.islands[0].deadline = Cycles(100_001);
        },
    );
    fails_at(S::Authority, "session `hog.1` has an end of channel `b` and is no member", |spec| {
        spec.sessions[4].ports.push(("b".into(), 1))
    });
    fails_at(
        S::Memory,
        "the members' memories can have 12 pages together, and memory_pages = 11",
        |spec| spec.islands[0].memory_pages = 11,
    );
    fails_at(S::Channels, "channel `a` is part of a circle: a path has an end", |spec| {
        let back = spec.add_channel("back", SessionId(0), 1);
        spec.sessions[2].ports.push(("back".into(), back));
        spec.islands[0].path.push(back);
    });
    fails_at(
        S::Context,
        "context `own` has period_cycles = 200000, and the island 100000",
        |spec| {
            spec.contexts[2].period = Cycles(200_000);
        },
    );
    let gap = MachineSpec { ..control([1; 3], [0; 3]).spec };
    let crossing =
        WAVE.0 + gap.modules.iter().map(|module| module.code().gap().0).max().unwrap_or(0);
    let total = 3 * 27_000 + 2 * crossing;
    fails_at(
        S::Path,
        &format!(
            "the longest path takes 27000 (deadline of `node.0`) + {crossing} (crossing by `a`) + 27000 \
             (deadline of `node.1`) + {crossing} (crossing by `b`) + 27000 (deadline of `node.2`) = {total} \
             cycles, and deadline_cycles = {}",
            total - 1
        ),
        |spec| spec.islands[0].deadline = Cycles(total - 1),
    );
    fails_at(
        S::Wcet,
        "session `node.0`: bounds, line 1: the module defines no function `nowhere`",
        |spec| {
            spec.islands[0].bounds = vec!["1 loop 0 5 nowhere".into()];
        },
    );
}

/// A planted fault at each stage: the machine is refused, and nothing of it was made.
#[test]
fn a_member_without_a_bound_or_with_too_small_a_budget_is_refused() {
    let mut machine = control([400, 800, 200], [0, 1, 2]);
    machine.spec.islands[0].bounds.clear();
    let text = refusal(&machine).map(|refusal| refusal.to_string()).unwrap_or_default();
    assert!(text.starts_with("session `node.0` has no worst case: loop 0 of `work`"), "{text}");
    machine.spec.islands[0].bounds.push("1 loop 0 800 work".into());
    machine.spec.islands[0].bounds[0] = "1 loop 0 3000 work".into();
    let text = refusal(&machine).map(|refusal| refusal.to_string()).unwrap_or_default();
    assert!(
        text.starts_with("context `own` has budget_cycles = 8000, and its period takes up to"),
        "{text}"
    );
}

/// Random islands, with random neighbours that have contexts too: those that are admitted never
/// miss; of those refused for their members' budgets, most do when they are forced in.
#[test]
fn admitted_islands_never_miss_and_most_refused_ones_do() {
    let mut random = Choices(21);
    let (mut admitted, mut refused, mut missed) = (0, 0, 0);
    for round in 0..240 {
        let lanes = [0; 3].map(|_| random.below(3) as u16);
        let work = [0; 3].map(|_| 100 + random.below(1_200) as u32);
        let mut machine = control(work, lanes);
        machine.spec.seed = round;
        machine.spec.max_frames = Some(25);
        let most = work.iter().max().copied().unwrap_or(0);
        machine.spec.islands[0].bounds = vec![format!("1 loop 0 {most} work")];
        for context in &mut machine.spec.contexts {
            context.budget = Cycles(3_000 + random.below(9_000));
            context.deadline = Cycles(context.budget.0 + 8_000 + random.below(14_000));
        }
        for lane in 0..3 {
            let hog = SessionId(3 + lane);
            let (budget, period) = (1_500 + random.below(6_000), 40_000 + random.below(100_000));
            machine.spec.contexts.push(ContextSpec::new(
                "hog",
                hog,
                Cycles(budget),
                Cycles(period),
            ));
        }
        machine.spec.islands[0].deadline = Cycles(80_000 + random.below(20_000));
        let deadline = machine.spec.islands[0].deadline.0;
        let found = match World::load(machine.spec.clone(), Vec::new(), false) {
            Err(LoadError::Island { refusal, .. }) => Some(refusal),
            Err(_) => continue,
            Ok(_) => None,
        };
        match found {
            None => {
                admitted += 1;
                let (longest, periods) = responses(&machine.run());
                assert!(periods >= 20, "round {round}: {periods} periods");
                assert!(longest <= deadline, "round {round}: {longest} of {deadline}");
            }
            Some(IslandRefusal::Budget { have, need, .. }) if need.step.0 * 2 > have.0 * 3 => {
                refused += 1;
                machine.spec.islands.clear();
                let (longest, periods) = responses(&machine.run());
                missed += u32::from(longest > deadline || periods < 20);
            }
            Some(_) => {}
        }
    }
    println!("{admitted} admitted, {missed} of {refused} refused ones missed");
    assert!(admitted >= 8 && refused >= 8 && missed * 2 > refused, "{admitted} {missed} {refused}");
}

/// What a control input takes from an island shows in its state, with the arithmetic, and back; the
/// machine can be saved in either.
#[test]
fn an_island_that_loses_its_budget_is_degraded() {
    let mut machine = control([400, 800, 200], [0, 1, 2]);
    (machine.spec.live, machine.spec.max_frames) = (true, None);
    let loaded = machine.spec.clone();
    let mut world = machine.world(false);
    let mut frames = 0;
    let mut give = |world: &mut World, budget| {
        let (session, name) = (SessionId(1), "own".into());
        let control = Control::Context { session, name, budget: Cycles(budget) };
        world.give(Input::Control(control)).expect("an input");
        frames += 3;
        world.allow(Frame(frames));
        world.run_allowed(&mut ()).expect("the host can");
        let bytes = world.save().expect("a boundary");
        let again = World::restore(loaded.clone(), Vec::new(), false, &bytes);
        assert_eq!(again.expect("own bytes").islands(), world.islands());
        world.islands().remove(0).state
    };
    let lost = give(&mut world, 5_000).expect_err("too small a budget").to_string();
    assert!(lost.starts_with("context `own` has budget_cycles = 5000, and its period"), "{lost}");
    assert!(give(&mut world, 8_000).is_ok());
}

#[test]
fn a_machine_without_islands_keeps_its_identity() {
    let mut spec = control([400, 800, 200], [0, 1, 2]).spec;
    spec.islands[0].memory_pages = u64::MAX;
    let with = spec.identity();
    let hashes = spec.module_hashes.iter().copied();
    let modules: Vec<_> = spec.modules.iter().cloned().zip(hashes).collect();
    let again = MachineSpec::from_identity(&with, modules.clone()).expect("own bytes");
    assert_eq!((&again.islands, again.identity()), (&spec.islands, with.clone()));
    for end in with.len() - 40..with.len() {
        assert!(MachineSpec::from_identity(&with[..end], modules.clone()).is_err());
    }
    spec.islands.clear();
    let without = spec.identity();
    assert_eq!(with[..without.len()], without);
    assert!(with.len() > without.len());
}
