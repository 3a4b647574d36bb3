//! The test kit: machines from WebAssembly text, run to the end, with everything that left them
//! kept for questions.
//!
//! Every guest has the whole guest interface imported under its own names (`$spawn`, `$fd_read`),
//! one page of memory, a table of eight and two helpers: `$out` outputs a number as eight bytes,
//! `$out32` the same for 32 bits. Nothing here judges; assertions are in the tests.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod laws;
pub(crate) mod random;

use std::sync::Arc;
use wavelock_abi::{Cycles, Frame, HostOperation, HostValue, SessionId};
use wavelock_kernel::{FairSettings, Policy, PriorityRule};
use wavelock_module::Module;
use wavelock_system::{
    Deadlock, FrameCosts, InputEvent, LoadError, MachineSpec, Placement, Recipient, RunOutcome,
    RunSummary, SessionSummary, Sink, Span, Warning, World,
};
use wavelock_trace::{Digest, Event, EventReader};

/// All imports of the guest interface, as text.
pub(crate) fn imports() -> String {
    let list = |word: &str, values: &[HostValue]| {
        let types: Vec<&str> = values
            .iter()
            .map(|value| if *value == HostValue::I32 { "i32" } else { "i64" })
            .collect();
        if types.is_empty() { String::new() } else { format!("({word} {})", types.join(" ")) }
    };
    HostOperation::ALL
        .iter()
        .map(|operation| {
            let (params, results) =
                (list("param", operation.params()), list("result", operation.results()));
            format!(
                "(import \"{}\" \"{}\" (func ${} {params} {results}))\n",
                operation.module(),
                operation.import(),
                operation.import()
            )
        })
        .collect()
}

/// A guest with everything imported, around `body`.
pub(crate) fn guest(body: &str) -> String {
    format!(
        r#"(module {}
        (memory (export "memory") 1 4) (table 8 funcref)
        (func $out (param i64) (i64.store (i32.const 65528) (local.get 0)) (drop (call $output (i32.const 65528) (i32.const 8))))
        (func $out32 (param i32) (call $out (i64.extend_i32_s (local.get 0))))
        {body})"#,
        imports()
    )
}

/// A machine in the making.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) spec: MachineSpec,
    pub(crate) inputs: Vec<InputEvent>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let mut spec = MachineSpec::new();
        spec.max_frames = Some(1_000_000);
        Self { spec, inputs: Vec::new() }
    }

    /// A machine with so many lanes.
    pub(crate) fn lanes(lanes: u16) -> Self {
        let mut machine = Self::new();
        machine.spec.lanes = lanes;
        machine
    }

    /// One session of this body.
    pub(crate) fn one(body: &str) -> Self {
        let mut machine = Self::new();
        machine.session("main", body);
        machine
    }

    /// Adds a session whose guest is [`guest`] around `body`, on lane (index mod lanes).
    pub(crate) fn session(&mut self, name: &str, body: &str) -> SessionId {
        self.session_of(name, &guest(body))
    }

    /// Adds a session of a whole module.
    pub(crate) fn session_of(&mut self, name: &str, text: &str) -> SessionId {
        let module = Module::from_text(text.as_bytes(), &wavelock_module::Limits::default())
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        let module = self.spec.add_module(Arc::new(module), text.as_bytes());
        self.spec.add_session(name, module)
    }

    pub(crate) fn on(&mut self, session: SessionId, lane: u16) -> &mut Self {
        self.spec.sessions[session.0 as usize].placement = Placement::Lane(lane);
        self
    }

    pub(crate) fn split(&mut self, session: SessionId, lanes: &[u16]) -> &mut Self {
        self.spec.sessions[session.0 as usize].placement = Placement::Split(lanes.to_vec());
        self
    }

    /// A wired channel of `owner` with a port of the same name for each sender.
    pub(crate) fn wire(
        &mut self,
        name: &str,
        owner: SessionId,
        capacity: u32,
        senders: &[SessionId],
    ) -> usize {
        let channel = self.spec.add_channel(name, owner, capacity);
        for sender in senders {
            self.spec.sessions[sender.0 as usize].ports.push((name.into(), channel));
        }
        channel
    }

    pub(crate) fn input(&mut self, frame: u64, session: SessionId, bytes: &[u8]) -> &mut Self {
        self.inputs.push(InputEvent {
            frame: Frame(frame),
            recipient: Recipient::Session(session),
            bytes: bytes.into(),
        });
        self
    }

    /// Frame, wave and quantum lengths.
    pub(crate) fn times(&mut self, frame: u64, wave: u64, quantum: u64) -> &mut Self {
        self.spec.frame_cycles = Cycles(frame);
        self.spec.span = Span::Cycles(Cycles(wave));
        self.spec.policy = Policy::RoundRobin { quantum: Cycles(quantum) };
        self
    }

    pub(crate) fn refusal(self) -> LoadError {
        World::load(self.spec, self.inputs, false).err().expect("the machine is refused")
    }

    pub(crate) fn warnings(self) -> Vec<Warning> {
        World::load(self.spec, self.inputs, false).expect("the machine loads").warnings
    }

    pub(crate) fn world(&self, keep_events: bool) -> World {
        World::load(self.spec.clone(), self.inputs.clone(), keep_events)
            .unwrap_or_else(|error| panic!("{error}"))
            .world
    }

    /// Runs to the end and keeps everything.
    pub(crate) fn run(&self) -> Run {
        let mut world = self.world(true);
        world.profile();
        let mut sink = Collected::default();
        let outcome = world.run(&mut sink).expect("the host can go on");
        Run::of(outcome, world, sink)
    }

    /// Runs to the end and keeps output only: for long runs.
    pub(crate) fn run_lean(&self) -> Run {
        let mut world = self.world(false);
        let mut sink = Collected { lean: true, ..Collected::default() };
        let outcome = world.run(&mut sink).expect("the host can go on");
        Run::of(outcome, world, sink)
    }

    /// Runs to the end and keeps the state at every boundary.
    pub(crate) fn run_saving(&self) -> (Saver, RunSummary) {
        let (mut world, mut saver) = (self.world(false), Saver::default());
        world.run(&mut saver).expect("the host can go on");
        (saver, world.summary())
    }
}

/// The events of one frame, as bytes.
pub(crate) struct FrameLog {
    pub(crate) frame: u64,
    pub(crate) boundary: Vec<u8>,
    pub(crate) lanes: Vec<Vec<u8>>,
}

impl FrameLog {
    pub(crate) fn boundary(&self) -> Vec<Event<'_>> {
        EventReader::new(&self.boundary).map(|event| event.expect("own encoding")).collect()
    }

    pub(crate) fn lane(&self, lane: usize) -> Vec<Event<'_>> {
        EventReader::new(&self.lanes[lane]).map(|event| event.expect("own encoding")).collect()
    }
}

/// A sink that keeps everything.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) lean: bool,
    /// What left, in the order it left: (session, bytes).
    pub(crate) output: Vec<(SessionId, Vec<u8>)>,
    pub(crate) log: Vec<(SessionId, Vec<u8>)>,
    pub(crate) frames: Vec<FrameLog>,
    pub(crate) digests: Vec<Digest>,
    pub(crate) costs: Vec<FrameCosts>,
}

impl Sink for Collected {
    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.output.push((session, bytes.into()));
    }

    fn log(&mut self, session: SessionId, bytes: &[u8]) {
        self.log.push((session, bytes.into()));
    }

    fn frame(
        &mut self,
        frame: Frame,
        digest: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        if !self.lean {
            self.frames.push(FrameLog {
                frame: frame.0,
                boundary: boundary.into(),
                lanes: lanes.map(<[u8]>::to_vec).collect(),
            });
            self.digests.push(digest);
        }
    }

    fn costs(&mut self, costs: &FrameCosts) {
        self.costs.push(costs.clone());
    }
}

/// Saves at every boundary, and remembers what had left by then.
#[derive(Default)]
pub(crate) struct Saver {
    pub(crate) out: Collected,
    /// A state, and how many outputs, logs and digests there were.
    pub(crate) saved: Vec<(Vec<u8>, usize, usize, usize)>,
}

impl Sink for Saver {
    fn output(&mut self, session: SessionId, bytes: &[u8]) {
        self.out.output(session, bytes);
    }

    fn log(&mut self, session: SessionId, bytes: &[u8]) {
        self.out.log(session, bytes);
    }

    fn frame(
        &mut self,
        frame: Frame,
        digest: Digest,
        boundary: &[u8],
        lanes: &mut dyn Iterator<Item = &[u8]>,
    ) {
        self.out.frame(frame, digest, boundary, lanes);
    }

    fn boundary(&mut self, world: &mut World) {
        let state = world.save().expect("this is a boundary");
        self.saved.push((state, self.out.output.len(), self.out.log.len(), self.out.digests.len()));
    }
}

/// A run that is over.
pub(crate) struct Run {
    pub(crate) outcome: RunOutcome,
    pub(crate) summary: RunSummary,
    pub(crate) sink: Collected,
    pub(crate) deadlock: Option<Deadlock>,
}

impl Run {
    fn of(outcome: RunOutcome, world: World, sink: Collected) -> Self {
        let deadlock = world.deadlock().cloned();
        Self { outcome, summary: world.summary(), sink, deadlock }
    }

    pub(crate) fn bytes(&self, session: u32) -> Vec<u8> {
        self.sink
            .output
            .iter()
            .filter(|(id, _)| id.0 == session)
            .flat_map(|(_, bytes)| bytes.clone())
            .collect()
    }

    /// The numbers a session put out.
    pub(crate) fn numbers(&self, session: u32) -> Vec<i64> {
        let bytes = self.bytes(session);
        assert_eq!(bytes.len() % 8, 0, "a guest that outputs numbers only");
        bytes
            .chunks(8)
            .map(|chunk| i64::from_le_bytes(chunk.try_into().expect("eight bytes")))
            .collect()
    }

    pub(crate) fn log(&self, session: u32) -> Vec<u8> {
        self.sink
            .log
            .iter()
            .filter(|(id, _)| id.0 == session)
            .flat_map(|(_, bytes)| bytes.clone())
            .collect()
    }

    pub(crate) fn session(&self, session: u32) -> &SessionSummary {
        &self.summary.sessions[session as usize]
    }

    /// Every event of a lane over all frames, as text.
    pub(crate) fn events(&self, lane: usize) -> Vec<String> {
        self.sink
            .frames
            .iter()
            .flat_map(|frame| {
                frame.lane(lane).iter().map(|event| format!("{event:?}")).collect::<Vec<_>>()
            })
            .collect()
    }

    pub(crate) fn boundary(&self) -> Vec<String> {
        self.sink
            .frames
            .iter()
            .flat_map(|frame| {
                frame.boundary().iter().map(|event| format!("{event:?}")).collect::<Vec<_>>()
            })
            .collect()
    }
}

/// Runs a machine of one session that must finish, and gives the numbers it put out.
pub(crate) fn numbers(body: &str) -> Vec<i64> {
    let run = Machine::one(body).run();
    assert_eq!(run.outcome, RunOutcome::Finished, "{:?}", run.summary.sessions);
    run.numbers(0)
}

/// Every policy, with this quantum.
pub(crate) fn policies(quantum: Cycles) -> Vec<Policy> {
    let mut policies = vec![
        Policy::Cooperative,
        Policy::RoundRobin { quantum },
        Policy::ProgressAware { quantum },
    ];
    policies.extend(
        [PriorityRule::FixedMap, PriorityRule::Aging, PriorityRule::TokenWeighted]
            .map(|rule| Policy::Priority { rule, quantum }),
    );
    policies.push(Policy::Fair(
        FairSettings::new(quantum, Cycles(2_000), Cycles(1_000_000))
            .expect("settings within their limits"),
    ));
    policies
}

/// A small generator of choices for random machines: splitmix64.
pub(crate) struct Choices(pub(crate) u64);

impl Choices {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True once in `n`.
    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}
