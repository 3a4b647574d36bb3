//! A server that runs guests at 60 frames a second: clients send packets from other threads, guests
//! are capped, every frame is recorded, and a late packet is taken in its own frame by going back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use wavelock::{
    Cycles, Engine, Error, Frame, FrameReport, Level, Machine, Observer, Pacer, Policy, Session,
    SessionBuilder, Snapshot,
};

const BACK: u64 = 8;
const FRAMES: u64 = 120;

/// A packet of a client, meant for a frame.
struct Packet {
    frame: u64,
    to: Session,
    bytes: Vec<u8>,
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

fn serve(packets: &Receiver<Packet>, mut machine: Machine) -> Result<u64, Error> {
    let trace = std::env::temp_dir().join(format!("wavelock-server-{}.trace", std::process::id()));
    machine.record(std::fs::File::create(&trace)?, Level::Inputs)?;
    machine.observe(Load(Duration::ZERO));
    let mut pacer = Pacer::hz(60.0);
    let mut states: VecDeque<(u64, Snapshot)> = VecDeque::new();
    let mut inputs: BTreeMap<u64, Vec<Packet>> = BTreeMap::new();
    let (mut head, mut answers) = (machine.frame().0, 0);
    while head < FRAMES {
        let now = pacer.wait();
        let mut late = head;
        for packet in packets.try_iter() {
            let frame = packet.frame.clamp(head.saturating_sub(BACK), head + 60);
            late = late.min(frame);
            inputs.entry(frame).or_default().push(packet);
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
            for packet in inputs.get(&frame).into_iter().flatten() {
                machine.input(packet.to, &packet.bytes)?;
            }
            answers += machine.advance()?.outputs().len() as u64;
            inputs = inputs.split_off(&frame.saturating_sub(BACK));
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
    let session = |name| SessionBuilder::new(name, &echo).cap(Cycles(100_000), 1);
    let machine = Machine::builder(&engine)
        .lanes(4)
        .frame_cycles(Cycles(4_000_000))
        .policy(Policy::Fair)
        .session(session("red"))
        .session(session("blue"))
        .rollback(BACK)
        .build()?;
    let sessions: Vec<Session> = machine.sessions().collect();
    let (client, packets) = channel();
    let clients = std::thread::spawn(move || {
        for number in 0..50u64 {
            std::thread::sleep(Duration::from_millis(30));
            let to = sessions[(number % 2) as usize];
            let packet = Packet { frame: number * 2, to, bytes: format!("{number}").into() };
            if client.send(packet).is_err() {
                return;
            }
        }
    });
    let answers = serve(&packets, machine)?;
    assert!(clients.join().is_ok() && answers > 0, "the guests answered");
    Ok(())
}
