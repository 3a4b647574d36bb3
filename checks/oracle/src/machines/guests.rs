//! Random guests as lists of operations, their WebAssembly text, and the same list for the oracle.
//!
//! A guest keeps one sum and a few memory cells of eight bytes. Results of operations are folded
//! into the sum, which is sent, output and returned, so that every answer shows. The text and the
//! costs of its blocks are made together: a block ends at a host operation, a loop or the end, and
//! what follows a host operation is charged with the next block.

use std::fmt::Write as _;
use wavelock_abi::{HostOperation, HostValue};

/// Memory cells; cell `c` is at address `8 * c`.
pub(crate) const CELLS: u64 = 24;
/// The address of the lists of handles for `select`.
const LISTS: u64 = 4_096;
/// The address and size of the buffer for input.
const INPUT: (u64, u64) = (2_048, 6);

/// A random number generator: splitmix64.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// An operation of a guest. Cells and handles are numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Yield,
    Sleep(u64),
    Spawn {
        entry: u64,
        cell: u64,
    },
    SpawnOn {
        entry: u64,
        lane: u64,
        cell: u64,
    },
    Join {
        cell: u64,
        to: u64,
    },
    Cancel(u64),
    Detach(u64),
    Exit,
    Send(u64),
    TrySend(u64),
    Receive {
        handle: u64,
        to: u64,
    },
    TryReceive {
        handle: u64,
        to: u64,
    },
    Close(u64),
    Make(u64),
    Select(Vec<u64>),
    Output(u64),
    Input,
    Remaining,
    Work(u64),
    /// Folds a cell into the sum; no operation of the host.
    Load(u64),
    Fault,
}

/// What may be drawn.
pub(crate) struct Palette {
    /// Entries of the table from this one on may be spawned: no coroutine spawns itself.
    pub(crate) entries: std::ops::Range<u64>,
    pub(crate) lanes: u64,
    pub(crate) handles: u64,
}

impl Operation {
    pub(crate) fn draw(draws: &mut Draws, palette: &Palette) -> Self {
        let handle = |draws: &mut Draws| draws.below(palette.handles);
        let cell = |draws: &mut Draws| draws.below(8);
        let spawns = !palette.entries.is_empty();
        let entry = |draws: &mut Draws| {
            // One in sixteen does not exist.
            let past = u64::from(draws.one_in(16));
            palette.entries.start + draws.below(palette.entries.end - palette.entries.start + past)
        };
        match draws.below(48) {
            0..4 => Self::Yield,
            4..6 => Self::Sleep(draws.below(4)),
            6..10 if spawns => Self::Spawn { entry: entry(draws), cell: cell(draws) },
            10..12 if spawns => {
                let (entry, lane) = (entry(draws), draws.below(palette.lanes + 1));
                Self::SpawnOn { entry, lane, cell: cell(draws) }
            }
            6..10 | 12..15 => Self::Work(1 + draws.below(200)),
            10..12 | 15 => Self::Load(draws.below(CELLS)),
            16..18 => Self::Join { cell: cell(draws), to: draws.below(CELLS) },
            18 => Self::Cancel(cell(draws)),
            19 => Self::Detach(cell(draws)),
            20 if draws.one_in(3) => Self::Exit,
            20..25 => Self::Send(handle(draws)),
            25..29 => Self::TrySend(handle(draws)),
            29..34 => Self::Receive { handle: handle(draws), to: draws.below(CELLS) },
            34..38 => Self::TryReceive { handle: handle(draws), to: draws.below(CELLS) },
            38 if draws.one_in(2) => Self::Close(handle(draws)),
            38..40 => Self::Make(draws.below(4)),
            40..42 => Self::Select((0..1 + draws.below(3)).map(|_| handle(draws)).collect()),
            42..44 => Self::Output(draws.below(CELLS)),
            44 => Self::Input,
            45..47 => Self::Remaining,
            _ if draws.one_in(8) => Self::Fault,
            _ => Self::Work(1 + draws.below(2_000)),
        }
    }

    fn host(&self) -> Option<HostOperation> {
        Some(match self {
            Self::Yield => HostOperation::Yield,
            Self::Sleep(_) => HostOperation::Sleep,
            Self::Spawn { .. } => HostOperation::Spawn,
            Self::SpawnOn { .. } => HostOperation::SpawnOn,
            Self::Join { .. } => HostOperation::Join,
            Self::Cancel(_) => HostOperation::Cancel,
            Self::Detach(_) => HostOperation::Detach,
            Self::Exit => HostOperation::Exit,
            Self::Send(_) => HostOperation::Send,
            Self::TrySend(_) => HostOperation::TrySend,
            Self::Receive { .. } => HostOperation::Recv,
            Self::TryReceive { .. } => HostOperation::TryRecv,
            Self::Close(_) => HostOperation::Close,
            Self::Make(_) => HostOperation::Channel,
            Self::Select(_) => HostOperation::Select,
            Self::Output(_) => HostOperation::Output,
            Self::Input => HostOperation::Input,
            Self::Remaining => HostOperation::Remaining,
            Self::Work(_) | Self::Load(_) | Self::Fault => return None,
        })
    }

    /// Its number and arguments for the oracle (proof/oracle/machines.ml).
    fn numbers(&self) -> Vec<u64> {
        match *self {
            Self::Yield => vec![0],
            Self::Sleep(frames) => vec![1, frames],
            Self::Spawn { entry, .. } => vec![2, entry],
            Self::SpawnOn { entry, lane, .. } => vec![3, entry, lane],
            Self::Join { cell, to } => vec![4, cell, to],
            Self::Cancel(cell) => vec![5, cell],
            Self::Detach(cell) => vec![6, cell],
            Self::Exit => vec![7],
            Self::Send(handle) => vec![8, handle],
            Self::TrySend(handle) => vec![9, handle],
            Self::Receive { handle, to } => vec![10, handle, to],
            Self::TryReceive { handle, to } => vec![11, handle, to],
            Self::Close(handle) => vec![12, handle],
            Self::Make(capacity) => vec![13, capacity],
            Self::Select(ref handles) => {
                [14, handles.len() as u64].into_iter().chain(handles.iter().copied()).collect()
            }
            Self::Output(cell) => vec![15, cell],
            Self::Input => vec![16, INPUT.1],
            Self::Remaining => vec![17],
            Self::Work(times) => vec![18, times, LOOP_COST],
            Self::Load(_) => Vec::new(),
            Self::Fault => vec![19],
        }
    }
}

/// One iteration of the loop of [`Operation::Work`]: six simple instructions and a branch.
const LOOP_COST: u64 = 8;
const RETURN: u64 = 20;

/// Instructions with their cost.
#[derive(Default)]
struct Block {
    text: String,
    cost: u64,
    /// What it does to sum and cells, as the oracle's numbers.
    actions: Vec<[u64; 2]>,
    /// A safepoint is before it.
    stops: bool,
}

impl Block {
    fn add(&mut self, text: &str, cost: u64) {
        self.text.push_str(text);
        self.text.push('\n');
        self.cost += cost;
    }

    /// The sum times 31, below the arguments of an operation whose result is folded into it.
    fn begin_fold(&mut self) {
        self.add("local.get $sum i64.const 31 i64.mul", 4);
    }
}

/// The instructions of one function, as text and for the oracle.
pub(crate) struct Function {
    pub(crate) text: String,
    /// The lists of handles that it selects on, as data segments.
    pub(crate) data: String,
    numbers: Vec<Vec<u64>>,
}

impl Function {
    /// `lists` counts the lists of handles of the module.
    pub(crate) fn new(operations: &[Operation], is_main: bool, lists: &mut u64) -> Self {
        let mut function = Self { text: String::new(), data: String::new(), numbers: Vec::new() };
        let mut block = Block { stops: true, ..Block::default() };
        for operation in operations {
            if let Operation::Load(cell) = operation {
                block.begin_fold();
                block.add(&format!("i32.const {} i64.load i64.add local.set $sum", 8 * cell), 5);
                block.actions.push([1, *cell]);
                continue;
            }
            function.before(&mut block, operation, lists);
            let cost = operation.host().map_or(0, |host| host.cost().0);
            function.end(&mut block, &operation.numbers(), cost);
            function.after(&mut block, operation);
        }
        match is_main {
            true => block.add("local.get $sum i32.wrap_i64 i32.const 65535 i32.and", 4),
            false => block.add("local.get $sum", 1),
        }
        function.end(&mut block, &[RETURN], 0);
        function
    }

    /// Arguments and call.
    fn before(&mut self, block: &mut Block, operation: &Operation, lists: &mut u64) {
        use Operation as O;
        match operation {
            O::Spawn { cell, .. } | O::SpawnOn { cell, .. } => {
                block.add(&format!("i32.const {}", 8 * cell), 1);
            }
            O::Output(cell) => {
                block.add(&format!("i32.const {} local.get $sum i64.store", 8 * cell), 4);
                block.actions.push([3, *cell]);
                block.begin_fold();
            }
            O::Yield | O::Sleep(_) | O::Exit | O::Work(_) | O::Load(_) | O::Fault => {}
            _ => block.begin_fold(),
        }
        let constant = |at: u64| format!("i32.const {at}");
        let cell = |at: &u64| format!("i32.const {} i64.load", 8 * at);
        let (arguments, cost) = match operation {
            O::Sleep(frames) => (format!("i64.const {frames}"), 1),
            O::Spawn { entry, .. } => (format!("i32.const {entry} i64.const {}", entry + 1), 2),
            O::SpawnOn { entry, lane, .. } => {
                (format!("i32.const {entry} i64.const {} i32.const {lane}", entry + 1), 3)
            }
            O::Join { cell: at, to } => (format!("{} {}", cell(at), constant(8 * to)), 4),
            O::Cancel(at) | O::Detach(at) => (cell(at), 3),
            O::Exit => ("local.get $sum".into(), 1),
            O::Send(handle) | O::TrySend(handle) => {
                (format!("i32.const {handle} local.get $sum"), 2)
            }
            O::Receive { handle, to } | O::TryReceive { handle, to } => {
                (format!("i32.const {handle} {}", constant(8 * to)), 2)
            }
            O::Close(number) | O::Make(number) => (constant(*number), 1),
            O::Select(handles) => {
                let at = LISTS + 32 * *lists;
                *lists += 1;
                let bytes: String =
                    handles.iter().map(|handle| format!("\\{handle:02x}\\00\\00\\00")).collect();
                writeln!(self.data, "(data (i32.const {at}) \"{bytes}\")").expect("a string grows");
                (format!("i32.const {at} i32.const {}", handles.len()), 2)
            }
            O::Output(at) => (format!("{} i32.const 8", constant(8 * at)), 2),
            O::Input => (format!("i32.const {} i32.const {}", INPUT.0, INPUT.1), 2),
            O::Work(times) => (format!("i64.const {times} local.set $n"), 2),
            O::Fault => ("unreachable".into(), 2),
            O::Yield | O::Remaining | O::Load(_) => (String::new(), 0),
        };
        block.add(&arguments, cost);
        if let Some(host) = operation.host() {
            block.add(&format!("call ${}", host.import()), 8 + host.params().len() as u64);
        }
        if let O::Work(_) = operation {
            block.add(
                "(loop $again local.get $n i64.const 1 i64.sub local.tee $n i64.const 0 i64.ne \
                 br_if $again)",
                0,
            );
        }
    }

    /// What is done with the result, in the next block.
    fn after(&mut self, block: &mut Block, operation: &Operation) {
        use Operation as O;
        block.stops = operation.host().is_some();
        match operation {
            O::Spawn { cell, .. } | O::SpawnOn { cell, .. } => {
                block.add("i64.store", 2);
                block.actions.push([2, *cell]);
            }
            O::Yield | O::Sleep(_) | O::Exit | O::Work(_) | O::Load(_) | O::Fault => {}
            O::Remaining => {
                block.add("i64.add local.set $sum", 2);
                block.actions.push([0, 0]);
            }
            _ => {
                block.add("i64.extend_i32_s i64.add local.set $sum", 3);
                block.actions.push([0, 0]);
            }
        }
    }

    /// Ends a block with an operation.
    fn end(&mut self, block: &mut Block, operation: &[u64], cost: u64) {
        let Block { text, cost: block_cost, actions, stops } = std::mem::take(block);
        self.text.push_str(&text);
        let mut numbers = vec![u64::from(stops), block_cost, actions.len() as u64];
        for [kind, cell] in actions {
            numbers.push(kind);
            if kind != 0 {
                numbers.push(cell);
            }
        }
        numbers.extend(operation);
        numbers.push(cost);
        self.numbers.push(numbers);
    }

    /// Its instructions for the oracle, their number first.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let mut numbers = vec![self.numbers.len() as u64];
        numbers.extend(self.numbers.iter().flatten());
        numbers
    }
}

/// A module with a main function and a table of entries.
pub(crate) fn module_text(main: &Function, entries: &[Function]) -> String {
    let mut text = String::from("(module\n");
    for host in HostOperation::ALL.iter().filter(|host| IMPORTS.contains(host)) {
        let list = |word: &str, values: &[HostValue]| -> String {
            let name = |value: &HostValue| if *value == HostValue::I32 { "i32" } else { "i64" };
            let names: Vec<&str> = values.iter().map(name).collect();
            if names.is_empty() { String::new() } else { format!("({word} {})", names.join(" ")) }
        };
        writeln!(
            text,
            "(import \"{}\" \"{}\" (func ${} {} {}))",
            host.module(),
            host.import(),
            host.import(),
            list("param", host.params()),
            list("result", host.results())
        )
        .expect("a string grows");
    }
    text.push_str("(memory 1)\n");
    let names: Vec<String> = (0..entries.len()).map(|at| format!("$entry.{at}")).collect();
    writeln!(text, "(table funcref (elem {}))", names.join(" ")).expect("a string grows");
    text.push_str(&main.data);
    entries.iter().for_each(|entry| text.push_str(&entry.data));
    writeln!(
        text,
        "(func (export \"main\") (result i32) (local $sum i64) (local $n i64)\n{})",
        main.text
    )
    .expect("a string grows");
    for (name, entry) in names.iter().zip(entries) {
        writeln!(
            text,
            "(func {name} (param $sum i64) (result i64) (local $n i64)\n{})",
            entry.text
        )
        .expect("a string grows");
    }
    text.push_str(")\n");
    text
}

/// The operations that guests import.
const IMPORTS: [HostOperation; 18] = [
    HostOperation::Yield,
    HostOperation::Sleep,
    HostOperation::Spawn,
    HostOperation::SpawnOn,
    HostOperation::Join,
    HostOperation::Cancel,
    HostOperation::Detach,
    HostOperation::Exit,
    HostOperation::Send,
    HostOperation::TrySend,
    HostOperation::Recv,
    HostOperation::TryRecv,
    HostOperation::Close,
    HostOperation::Channel,
    HostOperation::Select,
    HostOperation::Output,
    HostOperation::Input,
    HostOperation::Remaining,
];
