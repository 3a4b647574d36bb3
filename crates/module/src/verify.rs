//! The verifier: proves the properties of lowered code that the machine's unchecked accesses rely
//! on.
//!
//! It shares no code with lowering, the peephole pass or encoding, so that a bug there becomes a
//! refusal here. It is linear in the number of words, runs at every load in every build, and alone
//! can make a [`Proof`], without which no [`Code`] exists.
//!
//! Rules. `machine/src/raw.rs` cites them by number.
//!
//! - **V1, partition.** Functions are contiguous and cover all words. A function is a sequence of
//!   instructions with known numbers, and the last one does not fall through.
//! - **V2, entry.** A function starts with its only `enter`. Its window, locals, parameters and
//!   results are those of its type; link and results fit the window.
//! - **V3, targets.** Every target of a jump, branch, branch table, and of a call's zero path is
//!   the first word of an instruction of the same function after its `enter`.
//! - **V4, registers.** Every register is below the window's size, ranges included. Nothing but a
//!   call writes a link: no instruction has the function's own link register as a destination.
//! - **V5, calls.** The callee or type exists; the number of arguments is its own; the entry is the
//!   callee's; arguments and the callee's link lie above this function's own link and inside the
//!   window, and so do its results; a safepoint follows, where it returns.
//! - **V6, indices.** Every global, function, table, memory and segment exists.
//! - **V7, charges.** Every edge into a block charges its cost in the cost map.
//! - **V8, safepoints.** A backward edge arrives at a loop header, a safepoint; no path charges
//!   more than `G` between two safepoints, and `G` is at most [`MAX_GAP`].
//! - **V9, stop points.** They are exactly the instructions at which a coroutine can be suspended,
//!   with live registers inside the window and dead ones, ascending, below the live ones.
//! - **V10, marks.** Every instruction that can stop or fault has its byte offset in the module,
//!   which lies in its function's body; offsets of a function ascend.

use alloc::vec::Vec;

use wavelock_abi::MAX_GAP;

use crate::code::{Code, Function, StopPoint, length};
use crate::encode::Draft;
use crate::op::{Form, Op, TableEntry, Word};
use crate::{FunctionType, Module};

/// Proof that code was verified. Only this file can make one.
pub(crate) struct Proof(());

/// Why code is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) rule: &'static str,
    /// Byte offset in the module of the instruction, or of its function.
    pub(crate) offset: u32,
}

/// A broken rule, and the word.
#[derive(Clone, Copy)]
struct Invalid {
    word: u32,
    rule: &'static str,
}

/// Verifies the code of `module`.
pub(crate) fn verify(draft: Draft, module: &Module) -> Result<Code, Refusal> {
    let mut verifier = Verifier {
        draft: &draft,
        module,
        stops: &draft.stops,
        marks: &draft.marks,
        costs: &draft.costs,
        own_costs: &[],
        is_start: Vec::new(),
        gaps: Vec::new(),
    };
    match verifier.all() {
        Ok(()) => Ok(Code::new(draft, Proof(()))),
        Err(Invalid { word, rule }) => Err(Refusal { rule, offset: byte_offset(&draft, word) }),
    }
}

/// The byte offset of a word in the module; approximate, since the draft is broken.
fn byte_offset(draft: &Draft, word: u32) -> u32 {
    let mark = draft.marks.iter().rev().find(|mark| mark.0 <= word).map_or(0, |mark| mark.1);
    let function = draft.functions.iter().rev().find(|function| function.entry <= word);
    mark.max(function.map_or(0, |function| function.offset))
}

/// No edge has arrived at a word yet.
const UNKNOWN: u32 = u32::MAX;

struct Verifier<'a> {
    draft: &'a Draft,
    module: &'a Module,
    /// The tables, from the first unchecked entry on.
    stops: &'a [StopPoint],
    marks: &'a [(u32, u32)],
    costs: &'a [(u32, u32)],
    /// The function's part of the cost map.
    own_costs: &'a [(u32, u32)],
    /// By word of the function: whether an instruction starts there.
    is_start: Vec<bool>,
    /// By word of the function: the maximum of cycles since a safepoint on arriving there.
    gaps: Vec<u32>,
}

/// An instruction, and the function it is in.
#[derive(Clone, Copy)]
struct Site<'a> {
    function: &'a Function,
    at: u32,
    op: Op,
    first: Word,
    /// The words after the first.
    rest: &'a [u64],
}

type Checked = Result<(), Invalid>;

impl Site<'_> {
    fn invalid(&self, rule: &'static str) -> Invalid {
        Invalid { word: self.at, rule }
    }

    fn require(&self, holds: bool, rule: &'static str) -> Checked {
        if holds { Ok(()) } else { Err(self.invalid(rule)) }
    }

    /// V4: a register that is read.
    fn read(&self, register: u16) -> Checked {
        self.require(register < self.function.registers, "V4: a register outside the window")
    }

    /// V4: a register that is written.
    fn write(&self, register: u16) -> Checked {
        self.read(register)?;
        self.require(register != self.function.parameters, "V4: a link is overwritten")
    }

    /// V4: a range of registers that is read.
    fn read_range(&self, first: u16, count: u16) -> Checked {
        let end = u32::from(first) + u32::from(count);
        self.require(end <= u32::from(self.function.registers), "V4: registers outside the window")
    }

    /// V4: a range of registers that is written.
    fn write_range(&self, first: u16, count: u16) -> Checked {
        self.read_range(first, count)?;
        let (link, end) =
            (u32::from(self.function.parameters), u32::from(first) + u32::from(count));
        self.require(link < u32::from(first) || end <= link, "V4: a link is overwritten")
    }

    /// The second word.
    fn second(&self) -> u64 {
        self.rest[0]
    }

    /// The word at a distance, if it is inside the function.
    fn target(&self, distance: i32) -> Result<u32, Invalid> {
        let target = self
            .at
            .checked_add_signed(distance)
            .ok_or(self.invalid("V3: a target before the code"))?;
        let inside = target > self.function.entry && target < self.function.end;
        self.require(inside, "V3: a target outside its function")?;
        Ok(target)
    }
}

impl<'a> Verifier<'a> {
    fn all(&mut self) -> Checked {
        let draft = self.draft;
        let gap = draft.gap.0;
        let at_start =
            |holds: bool, rule| if holds { Ok(()) } else { Err(Invalid { word: 0, rule }) };
        at_start(gap <= MAX_GAP.0, "V8: the longest gap is above the limit")?;
        let defined = self.module.function_types.len() - self.module.imported_functions as usize;
        at_start(
            draft.functions.len() == defined,
            "V1: the number of functions differs from the module's",
        )?;
        let mut end = 0;
        for (index, function) in draft.functions.iter().enumerate() {
            let follows = function.entry == end
                && function.end > end
                && function.end as usize <= draft.words.len();
            if !follows {
                return Err(Invalid {
                    word: function.entry,
                    rule: "V1: functions are not contiguous",
                });
            }
            end = function.end;
            self.function(index, function)?;
        }
        let after = |rule| Invalid { word: end, rule };
        (end as usize == draft.words.len())
            .then_some(())
            .ok_or(after("V1: words after the last function"))?;
        self.stops
            .is_empty()
            .then_some(())
            .ok_or(after("V9: a stop point without an instruction"))?;
        self.marks.is_empty().then_some(()).ok_or(after("V10: a mark without an instruction"))?;
        self.costs.is_empty().then_some(()).ok_or(after("V7: a cost without an instruction"))
    }

    fn function(&mut self, index: usize, function: &'a Function) -> Checked {
        self.header(index, function)?;
        self.partition(function)?;
        let mut at = function.entry;
        while at < function.end {
            let site = self.site(function, at)?;
            let next = at + 1 + site.rest.len() as u32;
            site.require(
                (site.op == Op::Enter) == (at == function.entry),
                "V2: enter is not the first instruction",
            )?;
            self.operands(&site)?;
            self.tables(&site)?;
            // Unreachable code is checked too.
            let gap = self.gaps[(at - function.entry) as usize];
            let falls = self.flow(&site, next, if gap == UNKNOWN { 0 } else { gap })?;
            site.require(
                !falls || next < function.end,
                "V1: the last instruction falls out of its function",
            )?;
            at = next;
        }
        Ok(())
    }

    /// V2: the function's header, which the machine reads.
    fn header(&self, index: usize, function: &Function) -> Checked {
        let fail = |rule| Err(Invalid { word: function.entry, rule });
        let type_index =
            self.module.function_types[self.module.imported_functions as usize + index];
        let Some(kind) = self.module.types.get(type_index as usize) else {
            return fail("V2: its type does not exist");
        };
        let (parameters, results) = (kind.parameters().len(), kind.results().len());
        if function.type_index != type_index || usize::from(function.parameters) != parameters {
            return fail("V2: the type differs from the module's");
        }
        if usize::from(function.results) != results || results > usize::from(function.registers) {
            return fail("V2: results do not fit the window");
        }
        if function.parameters >= function.registers
            || function.first_operand <= function.parameters
        {
            return fail("V2: no room for the link");
        }
        Ok(())
    }

    /// V1: finds the starts of instructions, and the function's part of the cost map.
    fn partition(&mut self, function: &Function) -> Checked {
        let size = (function.end - function.entry) as usize;
        self.gaps.clear();
        self.gaps.resize(size, UNKNOWN);
        self.is_start.clear();
        self.is_start.resize(size, false);
        let mut at = function.entry;
        while at < function.end {
            self.is_start[(at - function.entry) as usize] = true;
            let length = length(Word(self.draft.words[at as usize]));
            let next = length
                .and_then(|length| at.checked_add(length))
                .filter(|next| *next <= function.end);
            at = next.ok_or(Invalid {
                word: at,
                rule: "V1: not an instruction, or one that exceeds its function",
            })?;
        }
        let count = self.costs.partition_point(|cost| cost.0 < function.end);
        (self.own_costs, self.costs) = self.costs.split_at(count);
        let ascends = self.own_costs.windows(2).all(|pair| pair[0] < pair[1]);
        let begin = self.own_costs.iter().all(|&(word, _)| {
            word > function.entry && self.is_start[(word - function.entry) as usize]
        });
        let fault = Invalid {
            word: function.entry,
            rule: "V7: the cost map is out of order or has an entry without an instruction",
        };
        if ascends && begin { Ok(()) } else { Err(fault) }
    }

    fn site(&self, function: &'a Function, at: u32) -> Result<Site<'a>, Invalid> {
        let first = Word(self.draft.words[at as usize]);
        let unknown = Invalid { word: at, rule: "V1: not an instruction" };
        let (op, length) = (first.op().ok_or(unknown)?, length(first).ok_or(unknown)?);
        Ok(Site {
            function,
            at,
            op,
            first,
            rest: &self.draft.words[at as usize + 1..(at + length) as usize],
        })
    }

    /// V4, V5 and V6: registers and indices of an instruction. One arm per form.
    fn operands(&self, site: &Site<'_>) -> Checked {
        let (a, b, c) = (site.first.a(), site.first.b(), site.first.c());
        match site.op.form() {
            Form::Plain | Form::Cost | Form::Jump => Ok(()),
            Form::Enter => self.enter(site),
            Form::BranchOne | Form::BranchConst | Form::BranchTable => site.read(a),
            Form::BranchTwo => site.read(a).and(site.read(b)),
            Form::LoopTwo => site.write(a).and(site.read(b)),
            Form::LoopConst => site.write(a),
            Form::Return => self.link(site, a),
            Form::ReturnOne => {
                site.require(
                    site.function.results == 1,
                    "V2: the number of results differs from the type's",
                )?;
                self.link(site, a).and(site.read(b))
            }
            Form::ReturnMany => {
                site.require(
                    site.function.results == c,
                    "V2: the number of results differs from the type's",
                )?;
                self.link(site, a).and(site.read_range(b, c))
            }
            Form::Call | Form::CallImport | Form::ReturnCallImport | Form::CallIndirect => {
                self.call(site)
            }
            Form::Target | Form::Const32 | Form::Const64 => self.memory(site).and(site.write(a)),
            Form::Unary | Form::BinaryConst | Form::MulAddConst => {
                self.memory(site).and(site.write(a)).and(site.read(b))
            }
            Form::Binary | Form::TernaryConst => site.write(a).and(site.read(b)).and(site.read(c)),
            Form::Ternary => {
                site.require(
                    site.second() <= u64::from(u16::MAX),
                    "V4: a register outside the window",
                )?;
                site.write(a)
                    .and(site.read(b))
                    .and(site.read(c))
                    .and(site.read(site.second() as u16))
            }
            Form::ConstCopy => {
                let second = site.second();
                site.require(second >> 32 == 0, "V4: a register outside the window")?;
                site.write(a).and(site.write(second as u16)).and(site.read((second >> 16) as u16))
            }
            Form::CopyTwo => {
                site.require(
                    site.second() <= u64::from(u16::MAX),
                    "V4: a register outside the window",
                )?;
                site.write(a)
                    .and(site.read(b))
                    .and(site.write(c))
                    .and(site.read(site.second() as u16))
            }
            Form::Range => site.write_range(a, c).and(site.read_range(b, c)),
            Form::Load | Form::LoadPlus => self.memory(site).and(site.write(a)).and(site.read(b)),
            Form::LoadFar => {
                self.memory(site).and(self.offset(site)).and(site.write(a)).and(site.read(b))
            }
            Form::ConstLoad => self.memory(site).and(self.offset(site)).and(site.write(a)),
            Form::Store => self.memory(site).and(site.read(a)).and(site.read(b)),
            Form::StoreFar => {
                self.memory(site).and(self.offset(site)).and(site.read(a)).and(site.read(b))
            }
            Form::StoreConst => self.memory(site).and(site.read(b)),
            Form::Three => self.memory(site).and(site.read(a)).and(site.read(b)).and(site.read(c)),
            Form::Index => self.index(site),
            Form::Table => {
                self.table(site, u64::from(c))?;
                if site.op == Op::TableGet {
                    site.write(a).and(site.read(b))
                } else {
                    site.read(a).and(site.read(b))
                }
            }
            Form::ThreeIndex => {
                let (low, high) = (site.second() & 0xffff_ffff, site.second() >> 32);
                match site.op {
                    Op::TableGrow => self.table(site, site.second()).and(site.write(a))?,
                    Op::TableFill => self.table(site, site.second())?,
                    Op::TableCopy => self.table(site, low).and(self.table(site, high))?,
                    Op::TableInit => self.table(site, low).and(self.segment(
                        site,
                        high,
                        self.module.elements.len(),
                    ))?,
                    _ => self.memory(site).and(self.segment(
                        site,
                        site.second(),
                        self.module.data.len(),
                    ))?,
                }
                site.read(a).and(site.read(b)).and(site.read(c))
            }
        }
    }

    /// V2: the fields of `enter`.
    fn enter(&self, site: &Site<'_>) -> Checked {
        let (function, second) = (site.function, site.second());
        let (first, parameters, number) =
            (second as u16, (second >> 16) as u16, (second >> 32) as u32);
        let defined = self.draft.functions.partition_point(|other| other.entry < function.entry);
        let agrees = site.first.b() == function.registers
            && parameters == function.parameters
            && u32::from(first) == u32::from(parameters) + 1
            && number as usize == self.module.imported_functions as usize + defined;
        site.require(agrees, "V2: enter and its function differ")?;
        site.read_range(first, site.first.c())
    }

    /// V4: the link that a return reads.
    fn link(&self, site: &Site<'_>, register: u16) -> Checked {
        site.require(
            register == site.function.parameters,
            "V4: a return through another register than the link",
        )
    }

    /// V5: a call of any kind.
    fn call(&self, site: &Site<'_>) -> Checked {
        let (second, function) = (site.second(), site.function);
        let (low, high) = (second as u32, (second >> 32) as u32);
        let imported = self.module.imported_functions;
        let (kind, own_link) = match site.op {
            Op::Call | Op::ReturnCall => {
                let defined = high
                    .checked_sub(imported)
                    .map(|defined| self.draft.functions.get(defined as usize));
                let entry = defined.flatten().map(|callee| callee.entry);
                site.require(
                    entry == Some(low),
                    "V5: the target of a call is not the function's entry",
                )?;
                (self.module.function_type(high), Some(site.first.c()))
            }
            Op::CallImport => {
                site.require(low < imported, "V5: the callee is not an import")?;
                (self.module.function_type(low), None)
            }
            Op::ReturnCallImport => {
                site.require(second < u64::from(imported), "V5: the callee is not an import")?;
                (self.module.function_type(low), Some(site.first.c()))
            }
            _ => {
                site.read(site.first.c())?;
                self.table(site, u64::from(high as u16))?;
                (self.module.types.get(low as usize), Some((second >> 48) as u16))
            }
        };
        let kind: &FunctionType =
            kind.ok_or(site.invalid("V5: the type of a call does not exist"))?;
        let link_is_own = own_link.is_none_or(|link| link == function.parameters);
        site.require(link_is_own, "V4: a tail call with another register than the link")?;
        let (first, arguments) = (u32::from(site.first.a()), usize::from(site.first.b()));
        site.require(
            arguments == kind.parameters().len(),
            "V5: the number of arguments differs from the callee's",
        )?;
        site.require(first > u32::from(function.parameters), "V5: arguments below the own link")?;
        let room = u32::from(function.registers);
        site.require(first + (arguments as u32) < room, "V5: no room for the callee's link")?;
        let results = kind.results().len();
        if matches!(site.op, Op::ReturnCall | Op::ReturnCallImport | Op::ReturnCallIndirect) {
            let agrees = results == usize::from(function.results);
            site.require(agrees, "V5: the results of a tail call differ from its function's")?;
        }
        if site.op == Op::ReturnCall {
            return Ok(());
        }
        site.require(first + results as u32 <= room, "V5: no room for the results")?;
        let next = site.at + 1 + site.rest.len() as u32;
        let follows = next < function.end
            && Word(self.draft.words[next as usize]).op() == Some(Op::Safepoint);
        site.require(follows, "V5: no safepoint where a call returns")
    }

    /// V6: instructions that use the memory have one.
    fn memory(&self, site: &Site<'_>) -> Checked {
        let uses = match site.op.form() {
            Form::Target | Form::Unary => matches!(site.op, Op::MemorySize | Op::MemoryGrow),
            Form::Const32 | Form::Const64 | Form::BinaryConst | Form::MulAddConst => false,
            _ => true,
        };
        site.require(!uses || !self.module.memories.is_empty(), "V6: no memory")
    }

    /// V6: an address and an offset of 32 bits each cannot wrap.
    fn offset(&self, site: &Site<'_>) -> Checked {
        site.require(site.second() <= u64::from(u32::MAX), "V6: an offset above 32 bits")
    }

    fn table(&self, site: &Site<'_>, table: u64) -> Checked {
        site.require(table < self.module.tables.len() as u64, "V6: no such table")
    }

    fn segment(&self, site: &Site<'_>, segment: u64, count: usize) -> Checked {
        site.require(segment < count as u64, "V6: no such segment")
    }

    /// V6: instructions with one index.
    fn index(&self, site: &Site<'_>) -> Checked {
        let (module, index) = (self.module, site.first.bc() as usize);
        let imported = module.imported_globals as usize;
        let (count, writes) = match site.op {
            Op::GlobalGet => (module.globals.len() - imported, true),
            Op::GlobalGetImport => (imported, true),
            Op::GlobalSet => (module.globals.len() - imported, false),
            Op::GlobalSetImport => (imported, false),
            Op::RefFunc => (module.function_types.len(), true),
            Op::TableSize => (module.tables.len(), true),
            Op::ElementDrop => (module.elements.len(), false),
            _ => (module.data.len(), false),
        };
        site.require(index < count, "V6: no such global, function, table or segment")?;
        let names_register = !matches!(site.op, Op::ElementDrop | Op::DataDrop);
        match (names_register, writes) {
            (true, true) => site.write(site.first.a()),
            (true, false) => site.read(site.first.a()),
            _ => Ok(()),
        }
    }

    /// V9 and V10: the tables have an entry for this instruction if and only if it needs one.
    fn tables(&mut self, site: &Site<'_>) -> Checked {
        let function = site.function;
        let stop = self.stops.first().filter(|stop| stop.word <= site.at);
        let is_stop = is_stop_point(site.op);
        site.require(
            stop.is_some() == is_stop && stop.is_none_or(|stop| stop.word == site.at),
            "V9: a stop point is missing or misplaced",
        )?;
        if let Some(stop) = stop {
            self.stop(site, stop)?;
            self.stops = &self.stops[1..];
        }
        let mark = self.marks.first().filter(|mark| mark.0 <= site.at);
        let needs = is_stop || site.op.may_fault() || matches!(site.op, Op::Call | Op::ReturnCall);
        site.require(
            mark.is_some() == needs && mark.is_none_or(|mark| mark.0 == site.at),
            "V10: a mark is missing or misplaced",
        )?;
        if let Some(&(_, offset)) = mark {
            self.marks = &self.marks[1..];
            let inside = offset >= function.offset && offset - function.offset <= function.size;
            let ascends =
                self.marks.first().is_none_or(|next| next.0 >= function.end || next.1 >= offset);
            site.require(
                inside && ascends,
                "V10: an offset outside its function, or out of order",
            )?;
        }
        Ok(())
    }

    fn stop(&self, site: &Site<'_>, stop: &StopPoint) -> Checked {
        site.require(
            stop.live <= site.function.registers,
            "V9: live registers outside the window",
        )?;
        site.require(
            stop.live > site.function.parameters,
            "V9: a parameter or the link is not live",
        )?;
        let at_entry = site.op != Op::Enter || stop.live == site.function.parameters + 1;
        site.require(at_entry, "V9: more than parameters and link on entry")?;
        let start = stop.dead_start as usize;
        let dead = self.draft.dead.get(start..start + usize::from(stop.dead_count));
        let dead = dead.ok_or(site.invalid("V9: dead registers outside their list"))?;
        let ascends = dead.windows(2).all(|pair| pair[0] < pair[1]);
        let below = dead.last().is_none_or(|last| *last < stop.live);
        let above = dead.first().is_none_or(|first| *first >= site.function.first_operand);
        site.require(ascends && below && above, "V9: dead registers out of order or not operands")
    }

    /// V3, V7 and V8: the edges of an instruction and their charges, `gap` cycles after a
    /// safepoint. Returns whether it falls through to the next one.
    fn flow(&mut self, site: &Site<'_>, next: u32, gap: u32) -> Result<bool, Invalid> {
        let first = site.first;
        match site.op.form() {
            Form::Enter => {
                let cycles = u32::from(first.a());
                self.charges(site, cycles, next)?;
                self.arrive(site, next, cycles)?;
                Ok(true)
            }
            Form::Cost => {
                self.charges(site, first.bc(), next)?;
                let before = if site.op == Op::Safepoint { 0 } else { gap };
                self.arrive(site, next, sum(before, first.bc()))?;
                Ok(true)
            }
            Form::Jump => {
                let (distance, cycles) = (site.second() as i32, (site.second() >> 32) as u32);
                let target = site.target(distance)?;
                self.charges(site, cycles, target)?;
                if site.op == Op::JumpLoop {
                    self.loop_header(site, target - 1, target)?;
                    self.arrive(site, target, cycles)?;
                } else {
                    self.forwards(site, target, sum(gap, cycles))?;
                }
                Ok(false)
            }
            Form::BranchOne
            | Form::BranchTwo
            | Form::BranchConst
            | Form::LoopTwo
            | Form::LoopConst => self.branch(site, next, gap),
            Form::BranchTable => {
                for word in site.rest {
                    let entry = TableEntry(*word);
                    let (target, cycles) =
                        (site.target(entry.distance())?, u32::from(entry.cycles()));
                    site.require(word >> 49 == 0, "V3: an unknown flag in a branch table")?;
                    self.charges_if_known(site, cycles, target)?;
                    if entry.is_loop() {
                        self.loop_header(site, target - 1, target)?;
                        self.arrive(site, target, cycles)?;
                    } else {
                        self.forwards(site, target, sum(gap, cycles))?;
                    }
                }
                Ok(false)
            }
            Form::CallImport => {
                self.zero_path(site, next)?;
                Ok(true)
            }
            Form::Call if site.op == Op::ReturnCall => Ok(false),
            Form::Return | Form::ReturnOne | Form::ReturnMany => Ok(false),
            Form::Plain => Ok(false),
            _ => {
                self.arrive(site, next, gap)?;
                Ok(true)
            }
        }
    }

    fn branch(&mut self, site: &Site<'_>, next: u32, gap: u32) -> Result<bool, Invalid> {
        let (low, taken) = (site.second() as i32, (site.second() >> 32) as u32);
        let (fallen, stop) = (site.rest[1] as u32, (site.rest[1] >> 32) as u32);
        let target = site.target(low)?;
        if stop == 0 {
            self.charges(site, taken, target)?;
            self.forwards(site, target, sum(gap, taken))?;
        } else {
            // To the first instruction of a loop, or past the test there.
            self.loop_header(site, stop, target)?;
            let is_start = stop < target && self.is_start(site, target);
            site.require(is_start, "V3: a target inside an instruction")?;
            let arrival = Word(self.draft.words[stop as usize]).bc();
            if target == stop + 1 {
                self.charges(site, taken, target)?;
            } else {
                let is_paid = self.costs_at(target).any(|body| taken == sum(arrival, body));
                site.require(is_paid, "V7: the charge differs from the cost map")?;
                site.require(
                    self.follows_test(stop + 1, target),
                    "V8: an edge into the middle of a loop",
                )?;
            }
            self.arrive(site, target, taken)?;
        }
        self.charges_if_known(site, fallen, next)?;
        self.arrive(site, next, sum(gap, fallen))?;
        Ok(true)
    }

    /// Whether only comparisons and one branch lie between a loop's first word and `target`.
    fn follows_test(&self, from: u32, target: u32) -> bool {
        let mut at = from;
        while at < target {
            let word = Word(self.draft.words[at as usize]);
            let (Some(op), Some(length)) = (word.op(), length(word)) else { return false };
            at += length;
            match op.form() {
                Form::BranchOne | Form::BranchTwo | Form::BranchConst => return at == target,
                Form::Binary | Form::BinaryConst => {}
                _ => return false,
            }
        }
        false
    }

    /// V3 and V7: the path of an import that returns 0: past the safepoint that follows, or also
    /// past a branch after it.
    fn zero_path(&mut self, site: &Site<'_>, next: u32) -> Checked {
        let (distance, cycles) = (site.first.c(), (site.second() >> 32) as u32);
        let target = site.target(i32::from(distance))?;
        let after = next + 1;
        let safepoint = Word(self.draft.words[next as usize]).bc();
        if target == after {
            site.require(cycles == safepoint, "V7: the charge differs from the cost map")?;
        } else {
            site.require(after < site.function.end, "V3: a target outside its function")?;
            let branch = self.site(site.function, after)?;
            let is_taken = match branch.op.form() {
                Form::BranchOne | Form::BranchConst if branch.first.a() == site.first.a() => {
                    branch.op.taken_for_zero(branch.first.c() as i16)
                }
                _ => None,
            };
            let taken = branch.target(branch.rest.first().copied().unwrap_or(0) as i32)?;
            let (to, charge) = match is_taken {
                Some(true) => (taken, (branch.second() >> 32) as u32),
                Some(false) => (after + 1 + branch.rest.len() as u32, branch.rest[1] as u32),
                None => {
                    return Err(site.invalid(
                        "V3: a zero path past an instruction that does not test the result",
                    ));
                }
            };
            let forwards = target == to && to > after;
            site.require(
                forwards && cycles == sum(safepoint, charge),
                "V7: the charge differs from the cost map",
            )?;
        }
        self.forwards(site, target, cycles)
    }

    /// Whether an instruction starts at a word of the function.
    fn is_start(&self, site: &Site<'_>, word: u32) -> bool {
        let index = word.checked_sub(site.function.entry).map(|index| index as usize);
        index.and_then(|index| self.is_start.get(index)).copied().unwrap_or(false)
    }

    /// The costs of the blocks that start at a word: several if blocks have no instructions.
    fn costs_at(&self, word: u32) -> impl Iterator<Item = u32> + use<'a> {
        let first = self.own_costs.partition_point(|cost| cost.0 < word);
        self.own_costs[first..].iter().take_while(move |cost| cost.0 == word).map(|cost| cost.1)
    }

    /// V3 and V7: an edge into a block charges its cost in the cost map.
    fn charges(&self, site: &Site<'_>, cycles: u32, target: u32) -> Checked {
        site.require(self.is_start(site, target), "V3: a target inside an instruction")?;
        let known = self.own_costs.binary_search(&(target, cycles)).is_ok();
        site.require(known, "V7: the charge differs from the cost map")
    }

    /// [`Self::charges`] for an edge that may stay in its block, and then charges nothing.
    fn charges_if_known(&self, site: &Site<'_>, cycles: u32, target: u32) -> Checked {
        if cycles == 0 && self.costs_at(target).next().is_none() {
            return site.require(self.is_start(site, target), "V3: a target inside an instruction");
        }
        self.charges(site, cycles, target)
    }

    /// V8: a loop header is the safepoint just before the loop's first word.
    fn loop_header(&self, site: &Site<'_>, header: u32, target: u32) -> Checked {
        let inside = header > site.function.entry && target <= site.at;
        site.require(inside, "V8: not a loop header")?;
        let is_header = self.is_start(site, header)
            && Word(self.draft.words[header as usize]).op() == Some(Op::Safepoint);
        site.require(is_header, "V8: a backward edge that does not arrive at a safepoint")
    }

    /// V8: an edge that does not arrive at a safepoint is a forward edge.
    fn forwards(&mut self, site: &Site<'_>, target: u32, gap: u32) -> Checked {
        site.require(target > site.at, "V8: a backward edge without a safepoint")?;
        site.require(self.is_start(site, target), "V3: a target inside an instruction")?;
        self.arrive(site, target, gap)
    }

    /// V8: arrives at `target` with `gap` cycles charged since a safepoint.
    fn arrive(&mut self, site: &Site<'_>, target: u32, gap: u32) -> Checked {
        site.require(u64::from(gap) <= self.draft.gap.0, "V8: more than G between two safepoints")?;
        let Some(known) = self.gaps.get_mut((target - site.function.entry) as usize) else {
            return Err(site.invalid("V1: the last instruction falls out of its function"));
        };
        if target <= site.at {
            // Already checked with the gap known then, which must cover this edge too.
            return site
                .require(*known != UNKNOWN && gap <= *known, "V8: a longer gap around a loop");
        }
        *known = if *known == UNKNOWN { gap } else { gap.max(*known) };
        Ok(())
    }
}

/// Whether a coroutine can be suspended at an instruction. A call of a defined function, a branch
/// and a return stop at the safepoint they arrive at.
fn is_stop_point(op: Op) -> bool {
    match op.form() {
        Form::Enter
        | Form::CallImport
        | Form::ReturnCallImport
        | Form::CallIndirect
        | Form::Three
        | Form::ThreeIndex => true,
        _ => matches!(op, Op::Safepoint | Op::MemoryGrow),
    }
}

/// A sum of cycles; saturated, it exceeds every limit.
fn sum(left: u32, right: u32) -> u32 {
    left.saturating_add(right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limits;
    use alloc::string::String;

    const TEXT: &str = r#"(module (import "host" "f" (func $f (param i32) (result i32))) (memory 1)
        (func (param i32) (result i32) (local i32)
            (i32.const 9)
            (loop $l (local.set 0 (call $f (i32.load (local.get 0)))) (br_if $l (local.get 0)))
            (i32.div_s (local.get 1))))"#;

    /// The rule that a change of a draft breaks.
    fn rule(change: impl FnOnce(&mut Draft)) -> Option<String> {
        let module =
            Module::new(&wat::parse_str(TEXT).expect("text"), &Limits::default()).expect("valid");
        let mut draft = module.code().to_draft();
        change(&mut draft);
        verify(draft, &module)
            .err()
            .map(|refusal| refusal.rule.split(':').next().unwrap_or("").into())
    }

    type Change = fn(&mut Draft);

    #[test]
    fn every_table_is_checked_against_the_words() {
        assert_eq!(rule(|_| {}), None);
        let planted: &[(&str, Change)] = &[
            ("V1", |draft| draft.functions[0].end -= 1),
            ("V1", |draft| draft.words.push(0)),
            ("V1", |draft| draft.functions.clear()),
            ("V2", |draft| draft.functions[0].parameters = 0),
            ("V2", |draft| draft.functions[0].results = 2),
            ("V2", |draft| draft.functions[0].registers += 1),
            ("V7", |draft| draft.costs[1].1 += 1),
            ("V7", |draft| draft.costs.push((0, 0))),
            ("V8", |draft| draft.gap.0 -= 1),
            ("V8", |draft| draft.gap.0 = MAX_GAP.0 + 1),
            ("V9", |draft| draft.stops[1].word += 1),
            ("V9", |draft| draft.stops.truncate(1)),
            ("V9", |draft| draft.stops[1].live = 100),
            ("V9", |draft| draft.stops[0].live += 1),
            ("V9", |draft| draft.stops[1].dead_start = 1_000),
            ("V9", |draft| draft.dead[0] = 0),
            ("V10", |draft| draft.marks.truncate(2)),
            ("V10", |draft| draft.marks[1].1 = 0),
            ("V10", |draft| draft.marks[2].1 += 1_000),
        ];
        for (at, (expected, change)) in planted.iter().enumerate() {
            assert_eq!(rule(change).as_deref(), Some(*expected), "change {at}");
        }
    }
}
