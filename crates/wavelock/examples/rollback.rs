//! Two peers play over a network that delays and reorders: each runs ahead with a guess of the
//! other's input, rolls back when the guess was wrong, and both end with the same digest.
//!
//! The network is a pair of UDP sockets on loopback; packets are held back at random before they
//! are sent.

use std::collections::{BTreeMap, VecDeque};
use std::net::UdpSocket;
use std::time::Duration;
use wavelock::{Engine, Error, Frame, Machine, Session, SessionBuilder, Snapshot};

const FRAMES: u64 = 300;
const WINDOW: u64 = 8;

/// A pseudo-random step of a player in a frame.
fn step(player: u8, frame: u64) -> u8 {
    let mixed = (frame / 7 + u64::from(player) * 97).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 60) as u8
}

struct Peer {
    player: u8,
    machine: Machine,
    session: Session,
    socket: UdpSocket,
    /// By frame: the other's step, as far as it has arrived.
    arrived: BTreeMap<u64, u8>,
    /// By frame: the step that the frame was run with.
    used: BTreeMap<u64, u8>,
    states: VecDeque<(u64, Snapshot)>,
    /// Packets that are held back, with the frame in which they leave.
    held: VecDeque<(u64, [u8; 9])>,
    rollbacks: u64,
}

impl Peer {
    fn new(engine: &Engine, player: u8, socket: UdpSocket) -> Result<Self, Error> {
        let game = engine.module(include_bytes!("guests/peers.wat"))?;
        let machine = Machine::builder(engine)
            .session(SessionBuilder::new("game", &game))
            .rollback(WINDOW)
            .build()?;
        let session = machine.session("game").ok_or(Error::Over)?;
        Ok(Self {
            player,
            machine,
            session,
            socket,
            arrived: BTreeMap::new(),
            used: BTreeMap::new(),
            states: VecDeque::new(),
            held: VecDeque::new(),
            rollbacks: 0,
        })
    }

    /// The first frame whose input of the other player has not arrived.
    fn known(&self) -> u64 {
        (0..).find(|frame| !self.arrived.contains_key(frame)).unwrap_or(0)
    }

    /// Sends this frame's input after a while, and takes what has arrived.
    fn network(&mut self, tick: u64) -> Result<(), Error> {
        let frame = self.machine.frame().0;
        if frame < FRAMES && self.held.back().is_none_or(|(_, packet)| number(packet) < frame) {
            let mut packet = [step(self.player, frame); 9];
            packet[..8].copy_from_slice(&frame.to_le_bytes());
            let delay = u64::from(step(self.player, frame * 13)) % 5;
            self.held.push_back((tick + delay, packet));
        }
        while let Some((_, packet)) = self.held.pop_front_if(|(at, _)| *at <= tick) {
            self.socket.send(&packet)?;
        }
        let mut packet = [0; 9];
        while self.socket.recv(&mut packet).is_ok() {
            self.arrived.insert(number(&packet), packet[8]);
        }
        Ok(())
    }

    /// Rolls back to the first frame that was run with a wrong guess, then runs up to the present
    /// and, if the other is not too far behind, one frame more.
    fn advance(&mut self) -> Result<(), Error> {
        let present = self.machine.frame().0;
        let wrong = self
            .used
            .iter()
            .find(|(frame, used)| self.arrived.get(frame).is_some_and(|arrived| arrived != *used));
        if let Some((&frame, _)) = wrong
            && let Some(at) = self.states.iter().position(|(state, _)| *state == frame)
        {
            self.machine.load(&self.states[at].1)?;
            self.states.truncate(at);
            self.rollbacks += 1;
        }
        let next = if present < FRAMES && present < self.known() + WINDOW { 1 } else { 0 };
        while self.machine.frame().0 < present + next {
            let frame = self.machine.frame().0;
            self.states.push_back((frame, self.machine.save()?));
            while self.states.len() as u64 > WINDOW + 1 {
                self.states.pop_front();
            }
            let last = self.arrived.range(..frame).next_back().map_or(0, |(_, step)| *step);
            let guess = self.arrived.get(&frame).copied().unwrap_or(last);
            self.used.insert(frame, guess);
            let (own, other) = (step(self.player, frame), guess);
            let steps = if self.player == 0 { [own, other] } else { [other, own] };
            for (player, step) in (0u8..).zip(steps) {
                self.machine.input(self.session, &[player, step])?;
            }
            self.machine.advance()?;
            self.used.retain(|used, _| used + 2 * WINDOW > frame);
        }
        self.machine.confirm(Frame(self.known().saturating_sub(1)));
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.machine.frame().0 >= FRAMES
            && self.known() >= FRAMES
            && self.used.iter().all(|(frame, used)| self.arrived.get(frame) == Some(used))
    }
}

fn number(packet: &[u8; 9]) -> u64 {
    u64::from_le_bytes(packet[..8].try_into().unwrap_or_default())
}

fn main() -> Result<(), Error> {
    let engine = Engine::new(1)?;
    let sockets = [UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?];
    for (own, other) in [(0, 1), (1, 0)] {
        sockets[own].connect(sockets[other].local_addr()?)?;
        sockets[own].set_nonblocking(true)?;
    }
    let [first, second] = sockets;
    let mut peers = [Peer::new(&engine, 0, first)?, Peer::new(&engine, 1, second)?];
    let mut tick = 0;
    while !peers.iter().all(Peer::is_done) {
        for peer in &mut peers {
            peer.network(tick)?;
            peer.advance()?;
        }
        tick += 1;
        if tick % 64 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(tick < 1_000_000, "a packet was lost on loopback");
    }
    let [first, second] = peers.each_ref().map(|peer| peer.machine.digest());
    for peer in &peers {
        println!("player {}: {} rollbacks", peer.player, peer.rollbacks);
    }
    println!("digests {first} and {second}");
    assert_eq!(first, second, "both played the same game");
    assert!(peers.iter().all(|peer| peer.rollbacks > 0), "the network delayed something");
    Ok(())
}
