//! One function: one pass over its words in order.
//!
//! Lowered code has forward edges and edges back to loop headers only (rule V8), so a loop is an
//! interval of words. While a loop is open, cycles are counted from its first word; when it ends,
//! the longest round times its bound goes before everything that leaves it. Edges that leave
//! several loops are summed over the loops they cross with compressed paths, so that depth does not
//! multiply work.

use alloc::vec::Vec;

use super::calls::Calls;
use super::reach::{MOST, Reach};
use super::{Analysis, Summaries, Summary, WcetMissing};
use crate::bounds::{BoundError, BoundKind};
use crate::code::{Function, length};
use crate::cost;
use crate::op::{Cost, Form, Op, TableEntry, Word};

/// No edge, loop or word.
const NONE: u32 = u32::MAX;

/// Constants remembered before a sized operation.
const MOST_CONSTANTS: usize = 16;

/// A loop that is open or ended; the first is the function.
#[derive(Clone, Copy)]
struct Loop {
    /// Its first word, after the header.
    start: u32,
    /// The last word with an edge back.
    end: u32,
    ordinal: u32,
    /// How its first word is reached, counted from the first word of the loop around it.
    entry: Reach,
    /// To a point of it where the coroutine may end, or wait.
    peak: Reach,
    /// The first of its edges back.
    back: u32,
    /// A loop around it, not necessarily the next.
    around: u32,
    /// From the first word of `around` to this one's in all rounds but the last, once it has ended.
    rounds: Option<Reach>,
}

/// An edge that waits for the loops it leaves to end.
#[derive(Clone, Copy)]
struct Edge {
    /// The innermost loop at its source.
    from: u32,
    reach: Reach,
    /// The next edge of the list.
    next: u32,
}

/// Buffers reused across functions.
#[derive(Default)]
pub(super) struct Scratch {
    /// By word of the function: how it is reached from the same loop.
    reach: Vec<Reach>,
    /// By word: the loop that this counts from.
    within: Vec<u32>,
    /// By word: whether a jump arrives.
    is_target: Vec<bool>,
    /// By word: the edges that leave a loop for it.
    arriving: Vec<u32>,
    /// By word: the end of the loop that starts there.
    loop_end: Vec<u32>,
    /// By word: the loop that starts there, once it is open.
    loop_at: Vec<u32>,
    loops: Vec<Loop>,
    edges: Vec<Edge>,
    path: Vec<u32>,
    /// Registers just set to constants.
    constants: Vec<(u16, u32)>,
}

fn reset<T: Clone>(list: &mut Vec<T>, size: usize, value: T) {
    list.clear();
    list.resize(size, value);
}

impl Scratch {
    fn clear(&mut self, size: usize) {
        reset(&mut self.reach, size, Reach::NONE);
        reset(&mut self.within, size, NONE);
        reset(&mut self.is_target, size, false);
        reset(&mut self.arriving, size, NONE);
        reset(&mut self.loop_end, size, NONE);
        reset(&mut self.loop_at, size, NONE);
        self.loops.clear();
        self.edges.clear();
        self.constants.clear();
    }

    /// The sum of the rounds of all ended loops from `from` out to one that is open, and that one.
    fn out(&mut self, from: u32) -> (Reach, u32) {
        let mut at = from;
        while self.loops[at as usize].rounds.is_some() {
            self.path.push(at);
            at = self.loops[at as usize].around;
        }
        let mut total = Reach::START;
        while let Some(crossed) = self.path.pop() {
            let crossed = &mut self.loops[crossed as usize];
            total = total.then(crossed.rounds.unwrap_or(Reach::START));
            (crossed.rounds, crossed.around) = (Some(total), at);
        }
        (total, at)
    }

    fn push_edge(&mut self, from: u32, reach: Reach, list: u32) -> u32 {
        self.edges.push(Edge { from, reach, next: list });
        self.edges.len() as u32 - 1
    }

    /// The longest of a list of edges, counted from `into`; `None` if one comes from elsewhere.
    fn longest(&mut self, mut list: u32, into: u32) -> Option<Reach> {
        let mut longest = Reach::NONE;
        while let Some(&edge) = self.edges.get(list as usize) {
            let (rounds, reached) = self.out(edge.from);
            if reached != into {
                return None;
            }
            longest = longest.max(rounds.then(edge.reach));
            list = edge.next;
        }
        Some(longest)
    }
}

/// The pass over one function.
struct Pass<'a> {
    analysis: &'a Analysis<'a>,
    calls: &'a Calls,
    summaries: &'a Summaries,
    scratch: &'a mut Scratch,
    words: &'a [u64],
    function: &'a Function,
    /// Its index in the module.
    index: u32,
    /// The innermost open loop.
    current: u32,
    /// The edges to the function's return.
    returns: u32,
    /// Loops that repeat, and sized operations, so far.
    loops: u32,
    sized: u32,
}

impl<'a> Analysis<'a> {
    pub(super) fn function(
        &'a self,
        defined: u32,
        calls: &'a Calls,
        summaries: &'a Summaries,
        scratch: &'a mut Scratch,
    ) -> Result<Result<Summary, WcetMissing>, BoundError> {
        let code = self.module.code();
        let function = &code.functions()[defined as usize];
        scratch.clear((function.end - function.entry) as usize);
        let index = self.module.imported_functions() + defined;
        let mut pass = Pass {
            analysis: self,
            calls,
            summaries,
            scratch,
            words: code.words(),
            function,
            index,
            current: 0,
            returns: NONE,
            loops: 0,
            sized: 0,
        };
        let (loops, sized) = pass.find_loops();
        for (kind, has) in [(BoundKind::Loop, loops), (BoundKind::Size, sized)] {
            if let Some(error) = self.bounds.unused(self.module, index, kind, has) {
                return Err(error);
            }
        }
        Ok(pass.run())
    }
}

impl Pass<'_> {
    fn local(&self, word: u32) -> usize {
        (word - self.function.entry) as usize
    }

    fn at(&self, word: u32) -> (Word, Op, u32) {
        let first = Word(self.words[word as usize]);
        // Verified code (rule V1).
        (first, first.op().unwrap_or(Op::Unreachable), word + length(first).unwrap_or(1))
    }

    /// Finds where loops start and end; returns their number, and that of sized operations.
    fn find_loops(&mut self) -> (u32, u32) {
        let (mut at, mut sized) = (self.function.entry, 0);
        let mut starts = Vec::new();
        while at < self.function.end {
            let (first, op, next) = self.at(at);
            let mut back = |target: u32| {
                let start = (target - self.function.entry) as usize;
                if self.scratch.loop_end[start] == NONE {
                    starts.push(target);
                }
                self.scratch.loop_end[start] = at;
            };
            match op.form() {
                Form::Jump if op == Op::JumpLoop => back(jump(at, self.words[at as usize + 1])),
                Form::BranchTable => {
                    for word in &self.words[at as usize + 1..next as usize] {
                        let entry = TableEntry(*word);
                        if entry.is_loop() {
                            back(at.wrapping_add_signed(entry.distance()));
                        }
                    }
                }
                form if is_branch(form) => {
                    let header = (self.words[at as usize + 2] >> 32) as u32;
                    if header != 0 {
                        back(header + 1);
                    }
                }
                _ => sized += u32::from(self.is_sized(op, first, at)),
            }
            at = next;
        }
        // A loop ends where the last of those that it contains ends.
        starts.sort_unstable();
        let mut inner: Vec<(u32, u32)> = Vec::new();
        for &start in starts.iter().rev() {
            let mut end = self.scratch.loop_end[(start - self.function.entry) as usize];
            while let Some(&(from, to)) = inner.last()
                && from <= end
            {
                end = end.max(to);
                inner.pop();
            }
            self.scratch.loop_end[(start - self.function.entry) as usize] = end;
            inner.push((start, end));
        }
        (starts.len() as u32, sized)
    }

    fn is_sized(&self, op: Op, first: Word, at: u32) -> bool {
        match op {
            Op::CallImport | Op::ReturnCallImport => {
                let import = self.words[at as usize + 1] as u32;
                let cost = self.analysis.imports[import as usize];
                cost.is_some_and(|cost| cost.size.is_some())
            }
            _ => first.op().is_some_and(|op| op.cost() == Cost::Prepaid),
        }
    }

    fn flow_missing(&self) -> WcetMissing {
        WcetMissing::Flow { function: self.index }
    }

    fn run(&mut self) -> Result<Summary, WcetMissing> {
        self.scratch.loops.push(Loop {
            start: self.function.entry,
            end: NONE,
            ordinal: NONE,
            entry: Reach::START,
            peak: Reach::NONE,
            back: NONE,
            around: 0,
            rounds: None,
        });
        self.scratch.reach[0] = Reach::START;
        self.scratch.within[0] = 0;
        let mut at = self.function.entry;
        while at < self.function.end {
            while self.scratch.loops[self.current as usize].end < at {
                self.end_loop()?;
            }
            let (first, op, next) = self.at(at);
            let mut reach = self.arrive(at)?;
            if self.scratch.loop_end[self.local(at)] != NONE {
                self.begin_loop(at, reach);
                reach = Reach::START;
            }
            if !reach.is_none() {
                let after = self.instruction(at, first, op, next, reach)?;
                self.edge(next, after);
                self.note_constants(op, first, at);
            }
            at = next;
        }
        while self.current != 0 {
            self.end_loop()?;
        }
        let end = self.scratch.longest(self.returns, 0).ok_or(self.flow_missing())?;
        let summary = Summary { end, peak: self.scratch.loops[0].peak };
        if summary.worst() >= MOST {
            return Err(WcetMissing::Overflow { function: self.index });
        }
        Ok(summary)
    }

    /// How a word is reached, from the innermost open loop.
    fn arrive(&mut self, at: u32) -> Result<Reach, WcetMissing> {
        let local = self.local(at);
        if self.scratch.is_target[local] {
            self.scratch.constants.clear();
        }
        let inside = self.scratch.reach[local];
        if !inside.is_none() && self.scratch.within[local] != self.current {
            return Err(self.flow_missing());
        }
        let list = self.scratch.arriving[local];
        let outside = self.scratch.longest(list, self.current).ok_or(self.flow_missing())?;
        Ok(inside.max(outside))
    }

    fn begin_loop(&mut self, start: u32, entry: Reach) {
        let local = self.local(start);
        let number = self.scratch.loops.len() as u32;
        self.scratch.loop_at[local] = number;
        self.scratch.loops.push(Loop {
            start,
            end: self.scratch.loop_end[local],
            ordinal: self.loops,
            entry,
            peak: Reach::NONE,
            back: NONE,
            around: self.current,
            rounds: None,
        });
        self.loops += 1;
        self.current = number;
    }

    /// Ends the innermost loop: its rounds but the last go before whatever left it.
    fn end_loop(&mut self) -> Result<(), WcetMissing> {
        let ended = self.scratch.loops[self.current as usize];
        let back = self.scratch.longest(ended.back, self.current).ok_or(self.flow_missing())?;
        let is_entered = !ended.entry.is_none();
        let mut rounds = ended.entry.max(Reach { fresh: None, since: back.since });
        if let (Some(round), true) = (back.fresh, is_entered) {
            let offset = self.analysis.module.code().offset_at(ended.start - 1).unwrap_or(0);
            let bound = self.analysis.loop_bound(self.index, ended.ordinal, offset)?;
            // The last round leaves; the one in which it last waited is not among the others.
            let times = |count: u64| Reach::cycles(count.saturating_mul(round).min(MOST));
            rounds = ended.entry.then(times(bound - 1));
            if let Some(others) = bound.checked_sub(2) {
                let waited = Reach { fresh: None, since: back.since };
                rounds = rounds.max(waited.then(times(others)));
            }
        }
        let loops = &mut self.scratch.loops;
        loops[self.current as usize].rounds = Some(rounds);
        let around = &mut loops[ended.around as usize];
        around.peak = around.peak.max(rounds.then(ended.peak));
        self.current = ended.around;
        Ok(())
    }

    /// A path of the innermost loop after which the coroutine may end or wait.
    fn note(&mut self, reach: Reach) {
        let current = &mut self.scratch.loops[self.current as usize];
        current.peak = current.peak.max(reach);
    }

    /// An edge forwards.
    fn edge(&mut self, target: u32, reach: Reach) {
        if reach.is_none() {
            return;
        }
        // Verified code (rule V1): what falls through has a next instruction.
        let local = self.local(target);
        if target <= self.scratch.loops[self.current as usize].end {
            self.scratch.reach[local] = self.scratch.reach[local].max(reach);
            self.scratch.within[local] = self.current;
        } else {
            let list = self.scratch.arriving[local];
            self.scratch.arriving[local] = self.scratch.push_edge(self.current, reach, list);
        }
    }

    fn jump(&mut self, target: u32, reach: Reach) {
        let local = self.local(target);
        self.scratch.is_target[local] = true;
        self.edge(target, reach);
    }

    /// An edge back to the first word of a loop.
    fn back(&mut self, start: u32, reach: Reach) -> Result<(), WcetMissing> {
        let number = self.scratch.loop_at[self.local(start)];
        if number == NONE {
            return Err(self.flow_missing());
        }
        let list = self.scratch.loops[number as usize].back;
        self.scratch.loops[number as usize].back =
            self.scratch.push_edge(self.current, reach, list);
        Ok(())
    }

    fn returns(&mut self, reach: Reach) {
        if !reach.is_none() {
            self.returns = self.scratch.push_edge(self.current, reach, self.returns);
        }
    }

    /// The path through a call.
    fn through(&mut self, reach: Reach, callee: Summary) -> Reach {
        self.note(reach.then(callee.peak));
        reach.then(callee.end)
    }

    /// The edges of an instruction; returns the path on which it falls through, or none.
    fn instruction(
        &mut self,
        at: u32,
        first: Word,
        op: Op,
        next: u32,
        reach: Reach,
    ) -> Result<Reach, WcetMissing> {
        if op.may_fault() || op.cost() == Cost::Prepaid || op.form() == Form::CallIndirect {
            self.note(reach);
        }
        let word = |index: u32| self.words[(at + index) as usize];
        let after = |cycles: u32| reach.then(Reach::cycles(u64::from(cycles)));
        match op.form() {
            Form::Enter => {
                // The stack may be exhausted.
                let entered = after(u32::from(first.a()));
                self.note(entered);
                Ok(entered)
            }
            Form::Cost => Ok(after(first.bc())),
            Form::Jump => {
                let (target, cycles) = (jump(at, word(1)), (word(1) >> 32) as u32);
                if op == Op::JumpLoop {
                    self.back(target, after(cycles))?;
                } else {
                    self.jump(target, after(cycles));
                }
                Ok(Reach::NONE)
            }
            Form::BranchTable => {
                for index in at + 1..next {
                    let entry = TableEntry(self.words[index as usize]);
                    let target = at.wrapping_add_signed(entry.distance());
                    let reach = after(u32::from(entry.cycles()));
                    if entry.is_loop() {
                        self.back(target, reach)?;
                    } else {
                        self.jump(target, reach);
                    }
                }
                Ok(Reach::NONE)
            }
            form if is_branch(form) => {
                let (target, taken) = (jump(at, word(1)), (word(1) >> 32) as u32);
                let (fallen, header) = (word(2) as u32, (word(2) >> 32) as u32);
                if header == 0 {
                    self.jump(target, after(taken));
                } else {
                    self.back(header + 1, after(self.charge_of_header(header, target, taken)))?;
                }
                Ok(after(fallen))
            }
            Form::Return | Form::ReturnOne | Form::ReturnMany => {
                self.returns(reach);
                Ok(Reach::NONE)
            }
            Form::Plain => Ok(Reach::NONE),
            Form::Call => {
                let callee = (word(1) >> 32) as u32 - self.analysis.module.imported_functions();
                let callee = self.summaries.functions[callee as usize]?;
                let after = self.through(reach, callee);
                if op == Op::ReturnCall {
                    self.returns(after);
                    return Ok(Reach::NONE);
                }
                Ok(after)
            }
            Form::CallImport | Form::ReturnCallImport => {
                let import = word(1) as u32;
                let size = self.import_size(first, import, at)?;
                let callee = self.analysis.import(import, size)?;
                Ok(self.through(reach, callee))
            }
            Form::CallIndirect => {
                let table = u32::from((word(1) >> 32) as u16);
                if table < self.analysis.module.imported_tables() {
                    return Err(WcetMissing::Table { function: self.index });
                }
                let callee = self.summaries.types[self.calls.type_number(word(1) as u32)]?;
                Ok(self.through(reach, callee))
            }
            _ if op.cost() == Cost::Prepaid => {
                let cycles = self.prepaid(op, first, at)?;
                Ok(reach.then(Reach::cycles(cycles)))
            }
            _ => Ok(reach),
        }
    }

    /// What an edge back is charged up to the loop's first word. One past the loop's test is
    /// charged the test's other side too, which the pass counts again on the way there.
    fn charge_of_header(&self, header: u32, target: u32, taken: u32) -> u32 {
        let mut at = header + 1;
        while at < target {
            let (_, op, next) = self.at(at);
            if next == target && is_branch(op.form()) {
                return taken.saturating_sub(self.words[at as usize + 2] as u32);
            }
            at = next;
        }
        taken
    }
}

/// Sized operations.
impl Pass<'_> {
    /// The cycles of a bulk instruction beyond its block's.
    fn prepaid(&mut self, op: Op, first: Word, at: u32) -> Result<u64, WcetMissing> {
        let module = self.analysis.module;
        let register = if op == Op::MemoryGrow { first.b() } else { first.c() };
        let second = self.words.get(at as usize + 1).copied().unwrap_or(0);
        let declared = match op {
            Op::MemoryGrow => {
                module.memories().first().and_then(|memory| memory.maximum).map(u64::from)
            }
            Op::MemoryInit => {
                let segment = module.data().get(second as usize);
                segment.map(|segment| segment.bytes.len() as u64)
            }
            Op::MemoryFill | Op::MemoryCopy => self.analysis.memory_bytes(),
            Op::TableInit => {
                let segment = module.elements().get((second >> 32) as usize);
                segment.map(|segment| segment.items.len() as u64)
            }
            _ => self.analysis.table_elements(second as u32),
        };
        let count = self.size(at, Some(register), declared)?;
        Ok(match op {
            Op::MemoryGrow => count.saturating_mul(u64::from(cost::PAGE)),
            Op::MemoryFill | Op::MemoryCopy | Op::MemoryInit => cost::bytes(count),
            _ => cost::elements(count),
        })
    }

    /// The most that the size argument of a call of an import can be; `None` if it has none.
    fn import_size(
        &mut self,
        first: Word,
        import: u32,
        at: u32,
    ) -> Result<Option<u64>, WcetMissing> {
        let Some(size) = self.analysis.imports[import as usize].and_then(|cost| cost.size) else {
            return Ok(None);
        };
        let register = size.argument.map(|argument| first.a() + u16::from(argument));
        let memory = self.analysis.memory_bytes().map(|bytes| bytes / size.unit);
        let declared = register.and(memory);
        self.size(at, register, declared).map(Some)
    }

    /// The bound of the next sized operation: a constant, or what is declared for it, or for all.
    fn size(
        &mut self,
        at: u32,
        register: Option<u16>,
        declared: Option<u64>,
    ) -> Result<u64, WcetMissing> {
        let (function, ordinal) = (self.index, self.sized);
        self.sized += 1;
        let constants = &self.scratch.constants;
        let constant = register.and_then(|register| {
            constants.iter().rev().find(|known| known.0 == register).map(|known| u64::from(known.1))
        });
        let bound = self.analysis.bounds.get(function, BoundKind::Size, ordinal);
        let offset = self.analysis.module.code().offset_at(at).unwrap_or(0);
        let least = [constant, bound, declared].into_iter().flatten().min();
        let declarable = register.is_some();
        least.ok_or(WcetMissing::Size { function, ordinal, offset, declarable })
    }

    /// Remembers constants as long as nothing but constants and copies follows.
    fn note_constants(&mut self, op: Op, first: Word, at: u32) {
        let constants = &mut self.scratch.constants;
        let mut set = |register: u16, value: Option<u32>| {
            constants.retain(|known| known.0 != register);
            if let Some(value) = value
                && constants.len() < MOST_CONSTANTS
            {
                constants.push((register, value));
            }
        };
        match op {
            Op::Const32 => set(first.a(), Some(first.bc())),
            Op::ConstCopy => {
                set(first.a(), Some(first.bc()));
                set(self.words[at as usize + 1] as u16, None);
            }
            Op::Const64 | Op::Copy => set(first.a(), None),
            Op::CopyTwo => {
                set(first.a(), None);
                set(first.c(), None);
            }
            _ => constants.clear(),
        }
    }
}

/// The target of a jump or branch: the distance is the lower half of its second word.
fn jump(at: u32, second: u64) -> u32 {
    at.wrapping_add_signed(second as i32)
}

const fn is_branch(form: Form) -> bool {
    matches!(
        form,
        Form::BranchOne | Form::BranchTwo | Form::BranchConst | Form::LoopTwo | Form::LoopConst
    )
}
