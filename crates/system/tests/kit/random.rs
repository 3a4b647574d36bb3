//! Random machines from a seed: *tame* ones, whose session observables are the same under every
//! schedule, and *wild* ones, which use everything.
//!
//! Tame: each channel has one sending and one receiving coroutine, a coroutine keeps its own
//! memory, one coroutine of a session outputs, and the messages of all scripts follow one global
//! order, so nothing can deadlock. Wild adds what looks at the schedule: `try_recv`, `select`,
//! clocks, cancels, exits, faults, shared memory, input, split sessions.

use super::{Choices, Machine};
use std::fmt::Write;
use wavelock_abi::{Cycles, Priority, SessionId};
use wavelock_kernel::{CapOverrun, CapSettings};
use wavelock_system::{Placement, Span};

/// What a random machine may use beside blocking sends and receives, joins, sleeps and output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Temper {
    /// Nothing.
    Tame,
    /// One kind of receive that looks at the schedule.
    TryRecv,
    /// Everything.
    Wild,
}

/// A coroutine's script, as text of its body.
struct Script {
    session: usize,
    /// Its place among the session's coroutines; 0 is the first.
    index: usize,
    text: String,
}

struct Link {
    name: String,
    from: usize,
    to: usize,
}

/// A machine of several sessions that send each other numbers.
pub(crate) fn machine(seed: u64, temper: Temper) -> Machine {
    let mut choices = Choices(seed);
    let sessions = 2 + choices.below(3) as usize;
    let mut scripts: Vec<Script> = Vec::new();
    for session in 0..sessions {
        for index in 0..1 + choices.below(3) as usize {
            scripts.push(Script { session, index, text: String::new() });
        }
    }
    let mut links = Vec::new();
    for at in 0..3 + choices.below(4) {
        let from = choices.below(scripts.len() as u64) as usize;
        let to = choices.below(scripts.len() as u64) as usize;
        // Inside a session a channel is made by its first coroutine; here all channels are wired,
        // so both ends are in different ones.
        if scripts[from].session != scripts[to].session {
            links.push(Link { name: format!("link{at}"), from, to });
        }
    }
    write_scripts(&mut choices, &mut scripts, &links, temper);
    assemble(&mut choices, sessions, &scripts, &links, temper)
}

/// One global order of messages; each is a send in one script and a receive in another, with other
/// things between.
fn write_scripts(choices: &mut Choices, scripts: &mut [Script], links: &[Link], temper: Temper) {
    for step in 0..10 + choices.below(30) {
        for script in scripts.iter_mut() {
            quiet(choices, script, temper);
        }
        if links.is_empty() {
            continue;
        }
        let link = choices.pick(links);
        let (from, to) = (&link.from, &link.to);
        send(choices, &mut scripts[*from], &link.name, step, temper);
        receive(choices, &mut scripts[*to], &link.name, temper);
    }
    for link in links {
        let (name, script) = (&link.name, &mut scripts[link.from]);
        let _ = writeln!(script.text, "(drop (call $close (call $p_{name})))");
    }
    for link in links {
        let (name, script) = (&link.name, &mut scripts[link.to]);
        let cell = 1024 + 64 * script.index;
        let _ = writeln!(
            script.text,
            "(loop $d{name} (br_if $d{name} (i32.eqz (call $recv (call $p_{name}) (i32.const {cell})))))"
        );
    }
}

fn send(choices: &mut Choices, script: &mut Script, name: &str, step: u64, temper: Temper) {
    let operation = if temper == Temper::Wild && choices.one_in(5) { "try_send" } else { "send" };
    let _ = writeln!(
        script.text,
        "(local.set $code (call ${operation} (call $p_{name}) (i64.add (local.get $acc) (i64.const {step}))))
         (local.set $acc (i64.add (local.get $acc) (i64.extend_i32_s (local.get $code))))"
    );
}

fn receive(choices: &mut Choices, script: &mut Script, name: &str, temper: Temper) {
    let cell = 1024 + 64 * script.index;
    let text = &mut script.text;
    match temper {
        Temper::TryRecv if choices.one_in(3) => {
            // How often it looked in vain shows in what it does next.
            let _ = writeln!(
                text,
                "(loop $again (local.set $code (call $try_recv (call $p_{name}) (i32.const {cell})))
                   (if (i32.eq (local.get $code) (i32.const -4)) (then (local.set $acc (i64.add (local.get $acc) (i64.const 1))) (call $yield) (br $again))))"
            );
        }
        Temper::Wild if choices.one_in(4) => {
            let _ = writeln!(
                text,
                "(local.set $code (call $try_recv (call $p_{name}) (i32.const {cell})))"
            );
        }
        Temper::Wild if choices.one_in(6) => {
            let _ = writeln!(
                text,
                "(local.set $code (call $recv_bytes (call $p_{name}) (i32.const {cell}) (i32.const 32)))"
            );
        }
        _ => {
            let _ = writeln!(
                text,
                "(local.set $code (call $recv (call $p_{name}) (i32.const {cell})))"
            );
        }
    }
    let _ = writeln!(
        text,
        "(if (i32.eqz (local.get $code)) (then (local.set $acc (i64.add (i64.mul (local.get $acc) (i64.const 31)) (i64.load (i32.const {cell}))))))"
    );
}

/// Something between two messages.
fn quiet(choices: &mut Choices, script: &mut Script, temper: Temper) {
    let text = &mut script.text;
    let _ = match choices.below(8) {
        0 => writeln!(text, "(call $yield)"),
        1 => writeln!(text, "(call $sleep (i64.const {}))", choices.below(4)),
        2 | 3 => {
            let turns = 10 * (1 + choices.below(60));
            writeln!(
                text,
                "(local.set $i (i32.const {turns})) (loop $s (br_if $s (local.tee $i (i32.sub (local.get $i) (i32.const 1)))))"
            )
        }
        4 if script.index == 0 || temper == Temper::Wild => {
            writeln!(text, "(call $out (local.get $acc))")
        }
        5 => writeln!(text, "(local.set $acc (i64.xor (local.get $acc) (call $random)))"),
        _ => Ok(()),
    };
    if temper == Temper::Wild && choices.one_in(4) {
        wild(choices, text);
    }
}

/// Something that looks at the schedule, at memory of others, or ends things.
fn wild(choices: &mut Choices, text: &mut String) {
    let slot = choices.below(6);
    let _ = match choices.below(24) {
        0 => writeln!(text, "(local.set $acc (i64.add (local.get $acc) (call $cycles)))"),
        1 => writeln!(text, "(local.set $acc (i64.add (local.get $acc) (call $remaining)))"),
        2 => writeln!(text, "(local.set $acc (i64.add (local.get $acc) (call $frame)))"),
        3 => writeln!(text, "(i64.store (i32.const 512) (i64.add (i64.load (i32.const 512)) (local.get $acc)))"),
        4 => writeln!(text, "(local.set $acc (i64.add (local.get $acc) (i64.load (i32.const 512))))"),
        5 => writeln!(text, "(drop (call $spawn (i32.const {}) (local.get $acc)))", choices.below(8)),
        6 => writeln!(text, "(drop (call $spawn_on (i32.const {}) (local.get $acc) (i32.const {})))", choices.below(8), choices.below(4)),
        7 => writeln!(text, "(drop (call $cancel (i64.const {slot})))"),
        8 => writeln!(text, "(local.set $code (call $join (i64.const {slot}) (i32.const 600)))"),
        9 => writeln!(text, "(drop (call $detach (i64.const {slot})))"),
        10 => writeln!(text, "(drop (call $input (i32.const 2048) (i32.const 16)))"),
        11 => writeln!(
            text,
            "(i32.store (i32.const 2048) (i32.const 2064)) (i32.store (i32.const 2052) (i32.const 5))
             (drop (call $fd_read (i32.const 0) (i32.const 2048) (i32.const 1) (i32.const 2056)))"
        ),
        12 => writeln!(text, "(drop (call $send (i32.const 0) (local.get $acc)))"),
        13 => writeln!(text, "(drop (call $recv (i32.const 0) (i32.const 640)))"),
        14 => writeln!(
            text,
            "(i32.store (i32.const 2100) (i32.const 0)) (i32.store (i32.const 2104) (i32.const {})) (i32.store (i32.const 2108) (i32.const 0))
             (drop (call $select (i32.const 2100) (i32.const 3)))",
            choices.below(3)
        ),
        15 => writeln!(text, "(drop (call $send_bytes (i32.const {}) (i32.const 0) (i32.const {})))", choices.below(3), choices.below(3000)),
        16 => writeln!(text, "(drop (call $channel (i32.const 1)))"),
        17 if choices.one_in(6) => writeln!(text, "(call $exit (local.get $acc))"),
        18 if choices.one_in(8) => writeln!(text, "(drop (i64.load (i32.const -1)))"),
        19 if choices.one_in(10) => writeln!(text, "(call $proc_exit (i32.const {slot}))"),
        20 => writeln!(text, "(drop (call $unpark (i64.const {slot})))"),
        21 => writeln!(text, "(drop (call $unpark (call $self))) (drop (call $park))"),
        22 if choices.one_in(4) => writeln!(text, "(drop (call $park))"),
        23 if choices.one_in(4) => {
            writeln!(text, "(drop (call $session_wait (i32.const {slot}) (i32.const 656)))")
        }
        _ => writeln!(text, "(drop (call $close (i32.const {})))", choices.below(9)),
    };
}

fn assemble(
    choices: &mut Choices,
    sessions: usize,
    scripts: &[Script],
    links: &[Link],
    temper: Temper,
) -> Machine {
    let mut machine = Machine::new();
    let mut ids: Vec<SessionId> = Vec::new();
    for session in 0..sessions {
        let own: Vec<&Script> = scripts.iter().filter(|script| script.session == session).collect();
        let wired = links.iter().filter(|link| {
            scripts[link.from].session == session || scripts[link.to].session == session
        });
        ids.push(machine.session(
            &format!("s{session}"),
            &body(choices, &own, &wired.collect::<Vec<_>>(), temper),
        ));
    }
    for link in links {
        let (from, to) = (ids[scripts[link.from].session], ids[scripts[link.to].session]);
        machine.wire(&link.name, to, 1 + choices.below(4) as u32, &[from]);
    }
    for session in &mut machine.spec.sessions {
        session.priority = Priority(choices.below(4) as u8);
    }
    machine.spec.seed = choices.next();
    machine.spec.max_frames = Some(2_000);
    machine
}

/// A session's module: the ports looked up once, a function per coroutine, and a first coroutine
/// that spawns and joins the others.
fn body(choices: &mut Choices, scripts: &[&Script], links: &[&Link], temper: Temper) -> String {
    let mut text = String::new();
    for (at, link) in links.iter().enumerate() {
        let name = &link.name;
        let _ = writeln!(text, "(data (i32.const {}) \"{name}\")", 16 * at);
        let _ = writeln!(
            text,
            "(func $p_{name} (result i32) (call $port (i32.const {}) (i32.const {})))",
            16 * at,
            name.len()
        );
    }
    for script in scripts.iter().filter(|script| script.index > 0) {
        let _ = writeln!(
            text,
            "(func $c{} (param $acc i64) (result i64) (local $code i32) (local $i i32)\n{} (local.get $acc))",
            script.index, script.text
        );
    }
    let names: String = scripts
        .iter()
        .filter(|script| script.index > 0)
        .map(|script| format!("$c{} ", script.index))
        .collect();
    let _ = writeln!(text, "(elem (i32.const 0) {names})");
    let _ = writeln!(
        text,
        "(func (export \"_start\") (local $acc i64) (local $code i32) (local $i i32)"
    );
    for script in scripts.iter().filter(|script| script.index > 0) {
        let spawn = match temper {
            Temper::Wild if choices.one_in(2) => {
                format!(
                    "spawn_on (i32.const {}) (i64.const 7) (i32.const {})",
                    script.index - 1,
                    choices.below(3)
                )
            }
            _ => format!("spawn (i32.const {}) (i64.const {})", script.index - 1, script.index),
        };
        let _ = writeln!(text, "(drop (call ${spawn}))");
    }
    let first =
        scripts.iter().find(|script| script.index == 0).map_or("", |script| script.text.as_str());
    text.push_str(first);
    for script in scripts.iter().filter(|script| script.index > 0) {
        let _ = writeln!(
            text,
            "(drop (call $join (i64.const {}) (i32.const 700))) (call $out (i64.load (i32.const 700)))",
            script.index
        );
    }
    text.push_str("(call $out (local.get $acc)))");
    text
}

/// A random machine that uses everything, on random lanes.
pub(crate) fn wild_machine(seed: u64) -> Machine {
    let mut machine = machine(seed, Temper::Wild);
    let mut choices = Choices(seed ^ 0x5eed);
    let lanes = 1 + choices.below(4) as u16;
    machine.spec.lanes = lanes;
    for session in &mut machine.spec.sessions {
        session.placement = if choices.one_in(3) && lanes > 1 {
            let home = choices.below(u64::from(lanes)) as u16;
            Placement::Split(vec![home, (home + 1) % lanes])
        } else {
            Placement::Lane(choices.below(u64::from(lanes)) as u16)
        };
    }
    let policies = super::policies(Cycles(3_000 + choices.below(9_000)));
    machine.spec.policy = *choices.pick(&policies);
    machine.spec.frame_cycles = Cycles(10_000 + choices.below(60_000));
    machine.spec.span = match choices.one_in(4) {
        true => Span::Picks(1 + choices.below(3) as u32),
        false => Span::Cycles(Cycles(5_000 + choices.below(30_000))),
    };
    machine.spec.handoff = choices.one_in(3);
    machine.spec.steal = choices.one_in(3);
    machine.spec.limits.coroutines = 3 + choices.below(40) as u32;
    machine.spec.limits.message_bytes = 2_000;
    machine.spec.max_frames = Some(4 + choices.below(60));
    for frame in 0..choices.below(6) {
        let session = SessionId(choices.below(machine.spec.sessions.len() as u64) as u32);
        machine.input(frame * 3, session, b"input event");
    }
    if seed % 4 == 1 {
        cap_sessions(&mut machine, &mut Choices(seed ^ 0xca95));
    }
    machine
}

/// Caps about half of the sessions.
fn cap_sessions(machine: &mut Machine, choices: &mut Choices) {
    let gap = machine.spec.modules.iter().map(|module| module.code().gap().0).max().unwrap_or(0);
    for session in &mut machine.spec.sessions {
        if choices.one_in(2) {
            let lanes = session.placement.lanes().len() as u64;
            session.cap = Some(CapSettings {
                budget: Cycles(2 * (gap + 24) * lanes + choices.below(3_000)),
                period_frames: 1 + choices.below(3),
                overrun: CapOverrun::ALL[choices.below(3) as usize],
            });
        }
    }
}
