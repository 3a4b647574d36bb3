//! A server that runs guests at 60 frames a second: clients upload modules and send packets from
//! other threads, guests are capped, every frame is recorded, and a late packet is taken in its own
//! frame by going back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use wavelock::{
    Cycles, Engine, Error, Frame, FrameReport, Level, Machine, Module, Observer, Pacer, Policy,
    SessionBuilder, Snapshot,
};

const BACK: u64 = 8;
const FRAMES: u64 = 120;

/// What a client wants. Everything that changes the machine is for a frame, and is given again when
/// that frame runs again.
enum Event {
    /// Bytes for a session, meant for a frame that may have run already.
    Packet { frame: u64, to: &'static str, bytes: Vec<u8> },
    /// A module: another one for the session of this name, or a new session.
    Upload { name: &'static str, wasm: Vec<u8> },
    /// The end of a session.
    Kick { name: &'static str },
}

/// The same, with the module loaded.
enum Change {
    Input(&'static str, Vec<u8>),
    Module(&'static str, Module),
    End(&'static str),
}

fn apply(machine: &mut Machine, change: &Change) -> Result<(), Error> {
    let (Change::Input(name, _) | Change::Module(name, _) | Change::End(name)) = change;
    match (change, machine.session(name)) {
        (Change::Input(_, bytes), Some(to)) => drop(machine.input(to, bytes)?),
        (Change::Module(_, module), Some(old)) => drop(machine.replace_session(old, module, b"")?),
        (Change::Module(_, module), None) => drop(machine.start_session(guest(name, module))?),
        (Change::End(_), Some(session)) => drop(machine.end_session(session)?),
        (Change::Input(..) | Change::End(_), None) => eprintln!("there is no `{name}`"),
    }
    Ok(())
}

/// A guest of somebody else: it gets at most so many cycles per frame.
fn guest(name: &str, module: &Module) -> SessionBuilder {
    SessionBuilder::new(name, module).cap(Cycles(100_000), 1)
}

/// Sums the time that the host took.
struct Load(Duration);

impl Observer for Load {
    fn frame(&mut self, report: &FrameReport<'_>) {
        self.0 += report.wall();
        if (report.frame().0 + 1).is_multiple_of(60) {
            println!("frame {}: {:?} of the last second", report.frame().0, self.0);
            self.0 = Duration::ZERO;
        }
    }
}

fn serve(engine: &Engine, events: &Receiver<Event>, mut machine: Machine) -> Result<u64, Error> {
    let trace = std::env::temp_dir().join(format!("wavelock-server-{}.trace", std::process::id()));
    machine.record(std::fs::File::create(&trace)?, Level::Inputs)?;
    machine.observe(Load(Duration::ZERO));
    let mut pacer = Pacer::hz(60.0);
    let mut states: VecDeque<(u64, Snapshot)> = VecDeque::new();
    let mut changes: BTreeMap<u64, Vec<Change>> = BTreeMap::new();
    let (mut head, mut answers) = (machine.frame().0, 0);
    while head < FRAMES {
        let now = pacer.wait();
        let mut late = head;
        for event in events.try_iter() {
            let (frame, change) = match event {
                Event::Packet { frame, to, bytes } => (frame, Change::Input(to, bytes)),
                Event::Kick { name } => (head, Change::End(name)),
                Event::Upload { name, wasm } => match engine.module(&wasm) {
                    Ok(module) => (head, Change::Module(name, module)),
                    Err(refused) => {
                        eprintln!("{name}: {refused}");
                        continue;
                    }
                },
            };
            let frame = frame.clamp(head.saturating_sub(BACK), head + 60);
            late = late.min(frame);
            changes.entry(frame).or_default().push(change);
        }
        if let Some(at) = states.iter().position(|(frame, _)| *frame == late) {
            machine.load(&states[at].1)?;
            states.truncate(at);
        }
        head += u64::from(pacer.due(now, 4));
        while machine.frame().0 < head {
            let frame = machine.frame().0;
            states.push_back((frame, machine.save()?));
            while states.len() as u64 > BACK {
                states.pop_front();
            }
            for change in changes.get(&frame).into_iter().flatten() {
                if let Err(refused) = apply(&mut machine, change) {
                    eprintln!("{refused}");
                }
            }
            answers += machine.advance()?.outputs().len() as u64;
            changes = changes.split_off(&frame.saturating_sub(BACK));
        }
        machine.confirm(Frame(head.saturating_sub(BACK)));
    }
    let recorded = machine.finish_recording()?;
    println!("{answers} answers, trace {:?} in {}", recorded, trace.display());
    std::fs::remove_file(trace)?;
    Ok(answers)
}

fn main() -> Result<(), Error> {
    let engine = Engine::new(2)?;
    let echo = engine.module(include_bytes!("guests/echo.wat"))?;
    let machine = Machine::builder(&engine)
        .lanes(4)
        .frame_cycles(Cycles(4_000_000))
        .policy(Policy::Fair)
        .most_gap(Cycles(2_000))
        .session(guest("red", &echo))
        .session(guest("blue", &echo))
        .rollback(BACK)
        .build()?;
    let (client, events) = channel();
    let clients = std::thread::spawn(move || {
        for number in 0..50u64 {
            std::thread::sleep(Duration::from_millis(30));
            let to = ["red", "blue", "green"][(number % 3) as usize];
            let echo = include_bytes!("guests/echo.wat").to_vec();
            let event = match number {
                5 | 20 => Event::Upload { name: "green", wasm: echo },
                10 => Event::Upload { name: "garbage", wasm: b"no module".to_vec() },
                40 => Event::Kick { name: "green" },
                _ => Event::Packet { frame: number * 2, to, bytes: format!("{number}").into() },
            };
            if client.send(event).is_err() {
                return;
            }
        }
    });
    let answers = serve(&engine, &events, machine)?;
    assert!(clients.join().is_ok() && answers > 0, "the guests answered");
    Ok(())
}
