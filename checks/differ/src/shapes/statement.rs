//! Statements: what changes locals and memory, and the control flow around it. Values may stay on
//! the stack behind a statement, and often do.

use super::{COUNTERS, GLOBALS, Label, MOST_LOOPS, Maker, kind};
use wasm_encoder::ValType::{self, I32, I64};

/// How a loop counts: its counter, the comparison with its limit, and whether that comes first.
struct Count {
    counter: u32,
    kind: ValType,
    step: i64,
    limit: Limit,
    /// The last byte of the comparison, from that of `eq`.
    relation: u8,
    swapped: bool,
}

#[derive(Clone, Copy)]
enum Limit {
    Constant(i64),
    Local(u32),
    /// The counter itself is the condition.
    Zero,
}

impl Maker<'_> {
    pub(super) fn statement(&mut self, depth: u32) {
        match self.below(40) {
            0..=2 => self.set(),
            3 if depth > 0 => self.kept_over_if(),
            4..=7 => self.tee(),
            8..=10 => {
                let kind = kind(self.random);
                self.leaf(kind);
            }
            11..=13 if self.stack.len() > self.floor() => self.sink(),
            14 | 15 => self.store(),
            16 | 17 => self.update(),
            18..=22 if depth > 0 => self.branching(depth - 1),
            23 | 24 if depth > 0 => self.block(depth - 1),
            25 | 26 if depth > 0 && self.loops < MOST_LOOPS => self.counted(depth - 1),
            27 | 28 => self.branch_if(),
            29..=31 => self.tested_call(depth),
            32 | 33 => self.call_any(),
            34 if depth > 0 => self.switch(depth - 1),
            35 => self.global_set(),
            36 => self.bulk(),
            37 if depth > 0 => self.early_return(),
            38 if depth > 0 => self.chain(depth - 1),
            _ => self.copies(),
        }
    }

    fn set(&mut self) {
        let kind = kind(self.random);
        let Some(local) = self.settable(kind) else { return };
        self.value(kind, 2);
        self.code.local(0x21, local);
        self.pop(1);
    }

    /// A local set and its value kept, which may outlive the next change of the local.
    fn tee(&mut self) {
        let kind = kind(self.random);
        let Some(local) = self.settable(kind) else { return };
        if self.one_in(2) {
            self.leaf(kind)
        } else {
            self.value(kind, 2)
        }
        self.code.local(0x22, local);
    }

    /// Locals set to constants and copies, one of them teed, and an if that sets some of them again
    /// while the teed value is kept.
    fn kept_over_if(&mut self) {
        self.copies();
        if let Some(local) = self.settable(I32) {
            self.leaf(I32);
            self.code.local(0x22, local);
        }
        if self.one_in(3) {
            self.copies();
        }
        self.condition(0);
        self.pop(1);
        self.code.open(0x04, self.types, &[], &[]);
        self.enter(0, Vec::new(), false);
        self.copies();
        self.leave(&[]);
    }

    /// Constants and copies in a row.
    fn copies(&mut self) {
        for _ in 0..1 + self.below(4) {
            let kind = kind(self.random);
            let Some(local) = self.settable(kind) else { continue };
            self.leaf(kind);
            self.code.local(0x21, local);
            self.pop(1);
        }
    }

    fn enter(&mut self, parameters: usize, kinds: Vec<ValType>, back: bool) {
        let height = self.stack.len() - parameters;
        self.labels.push(Label { height, kinds, back });
    }

    /// Kinds of the values on top of this block's stack, up to two, that a nested block takes as
    /// its own.
    fn taken(&mut self) -> Vec<ValType> {
        let most = (self.stack.len() - self.floor()).min(2) as u64;
        let count = if self.one_in(3) { self.below(most + 1) as usize } else { 0 };
        self.stack[self.stack.len() - count..].to_vec()
    }

    /// The same where a condition is on top.
    fn taken_below_condition(&mut self) -> Vec<ValType> {
        let condition = self.stack.pop();
        let taken = self.taken();
        self.stack.extend(condition);
        taken
    }

    fn given(&mut self) -> Vec<ValType> {
        let count = [0, 0, 1, 1, 2][self.below(5) as usize];
        (0..count).map(|_| kind(self.random)).collect()
    }

    fn block(&mut self, depth: u32) {
        let (taken, given) = (self.taken(), self.given());
        self.code.open(0x02, self.types, &taken, &given);
        self.enter(taken.len(), given.clone(), false);
        self.body(&given, depth);
        self.leave(&given);
    }

    /// Ends a block whose values are on the stack.
    fn leave(&mut self, given: &[ValType]) {
        let label = self.labels.pop().expect("a block is open");
        debug_assert_eq!(self.stack[label.height..], *given);
        self.code.byte(0x0b);
    }

    /// An if with or without else, often one that only changes a local.
    fn branching(&mut self, depth: u32) {
        self.condition(2);
        if self.one_in(3) {
            let given = self.given();
            let taken = self.taken_below_condition();
            return self.choice(&taken, &given, depth);
        }
        self.pop(1);
        self.code.open(0x04, self.types, &[], &[]);
        self.enter(0, Vec::new(), false);
        let small = self.one_in(2);
        if small {
            self.copies()
        } else {
            self.body(&[], depth)
        }
        self.arrange(&[]);
        self.leave(&[]);
    }

    /// An if with both arms for the condition on top; each may leave for an outer label.
    pub(super) fn choice(&mut self, taken: &[ValType], given: &[ValType], depth: u32) {
        self.pop(1);
        self.code.open(0x04, self.types, taken, given);
        let before = self.stack.clone();
        self.enter(taken.len(), given.to_vec(), false);
        self.body(given, depth);
        self.jump();
        self.code.byte(0x05);
        self.stack = before;
        self.body(given, depth);
        self.leave(given);
    }

    /// Sometimes an unconditional branch at the end of an arm. What follows is the arm's end.
    fn jump(&mut self) {
        if !self.one_in(6) {
            return;
        }
        let depth = self.below(self.labels.len() as u64) as usize;
        let place = self.labels.len() - 1 - depth;
        if self.labels[place].back {
            return;
        }
        let kinds = self.labels[place].kinds.clone();
        let height = self.stack.len();
        for kind in &kinds {
            self.leaf(*kind);
        }
        self.code.local(0x0c, depth as u32);
        self.stack.truncate(height);
    }

    /// A branch to a label whose values are on top, or are pushed first.
    fn branch_if(&mut self) {
        let depth = self.below(self.labels.len() as u64) as usize;
        let place = self.labels.len() - 1 - depth;
        if self.labels[place].back {
            return;
        }
        let kinds = self.labels[place].kinds.clone();
        if !self.stack[self.floor()..].ends_with(&kinds) {
            for kind in &kinds {
                self.value(*kind, 1);
            }
        }
        self.condition(2);
        self.code.local(0x0d, depth as u32);
        self.pop(1);
    }

    /// Comparisons that leave a block one after the other, as for a switch or a condition with
    /// `&&`.
    fn chain(&mut self, depth: u32) {
        self.code.open(0x02, self.types, &[], &[]);
        self.enter(0, Vec::new(), false);
        for _ in 0..1 + self.below(4) {
            self.condition(1);
            self.code.local(0x0d, 0);
            self.pop(1);
            if self.one_in(2) {
                self.copies();
            }
        }
        self.body(&[], depth);
        self.leave(&[]);
    }

    /// A call of an import with constants and copies, and a test of what it answers.
    fn tested_call(&mut self, depth: u32) {
        let kind = if self.one_in(4) { I64 } else { I32 };
        if !self.call_import_for(kind) {
            return;
        }
        match self.below(6) {
            0 => {}
            1 => {
                if let Some(local) = self.settable(kind) {
                    self.code.local(0x22, local);
                }
            }
            2 => return self.sink(),
            _ => {}
        }
        match self.below(4) {
            0 => self.code.byte(if kind == I32 { 0x45 } else { 0x50 }),
            1 if kind == I32 => {}
            _ => {
                self.small(kind);
                self.compare(kind);
                self.stack.pop();
                self.stack.push(kind);
            }
        }
        self.pop(1);
        self.stack.push(I32);
        if depth > 0 && self.one_in(2) {
            self.pop(1);
            self.code.open(0x04, self.types, &[], &[]);
            self.enter(0, Vec::new(), false);
            self.body(&[], depth - 1);
            self.leave(&[]);
        } else if self.labels.last().is_some_and(|label| label.kinds.is_empty() && !label.back) {
            self.code.local(0x0d, 0);
            self.pop(1);
        }
    }

    /// A branch table over nested blocks that all give the same values.
    fn switch(&mut self, depth: u32) {
        let (count, given) = (1 + self.below(4) as u32, self.given());
        for _ in 0..count {
            self.code.open(0x02, self.types, &[], &given);
            self.enter(0, given.clone(), false);
        }
        for kind in &given {
            self.value(*kind, 1);
        }
        if self.one_in(2) {
            self.leaf(I32)
        } else {
            self.masked()
        }
        self.code.byte(0x0e);
        let entries = self.below(6) as u32;
        self.code.leb(entries);
        for _ in 0..=entries {
            let target = self.below(u64::from(count)) as u32;
            self.code.leb(target);
        }
        self.pop(1);
        for _ in 0..count {
            self.leave(&given);
            if self
                .labels
                .last()
                .is_some_and(|label| label.height + given.len() == self.stack.len())
            {
                for _ in 0..given.len() {
                    self.sink_one();
                }
                self.statement(depth.min(1));
                self.arrange(&given);
            }
        }
    }

    /// Takes the top off into a local, or drops it.
    fn sink_one(&mut self) {
        let Some(kind) = self.stack.pop() else { return };
        match self.settable(kind) {
            Some(local) => self.code.local(0x21, local),
            None => self.code.byte(0x1a),
        }
    }

    fn early_return(&mut self) {
        self.condition(1);
        self.pop(1);
        self.code.open(0x04, self.types, &[], &[]);
        self.enter(0, Vec::new(), false);
        if self.one_in(12) {
            self.code.byte(0x00);
        } else {
            let (results, height) = (self.results.clone(), self.stack.len());
            for kind in &results {
                self.value(*kind, 1);
            }
            self.code.byte(0x0f);
            self.stack.truncate(height);
        }
        self.leave(&[]);
    }

    fn global_set(&mut self) {
        let global = 1 + self.below(GLOBALS.len() as u64 - 1) as u32;
        self.value(GLOBALS[global as usize], 2);
        self.code.local(0x24, global);
        self.pop(1);
    }

    /// A loop with a counter, in one of the spellings of compilers.
    fn counted(&mut self, depth: u32) {
        let wide = self.one_in(3);
        let choices = (0..COUNTERS.len()).filter(|place| (COUNTERS[*place] == I64) == wide);
        let choices = choices.map(|place| self.counters + place as u32);
        let free: Vec<u32> = choices.filter(|local| !self.busy.contains(local)).collect();
        let Some(counter) = free.first().copied() else { return };
        let count = self.count(counter, if wide { I64 } else { I32 });
        // One value may go round on the stack.
        let round: Vec<ValType> = if self.one_in(4) { vec![kind(self.random)] } else { Vec::new() };
        for kind in &round {
            self.value(*kind, 1);
        }
        self.code.open(0x03, self.types, &round, &round);
        self.enter(round.len(), round.clone(), true);
        self.loops += 1;
        let busy = self.busy.len();
        self.busy.push(counter);
        if let Limit::Local(local) = count.limit {
            self.busy.push(local);
        }
        self.body(&round, depth);
        self.step(&count);
        self.code.local(0x0d, 0);
        self.pop(1);
        self.busy.truncate(busy);
        self.loops -= 1;
        self.leave(&round);
    }

    /// Chooses how a loop counts, and starts its counter.
    fn count(&mut self, counter: u32, kind: ValType) -> Count {
        let (times, step) = (1 + self.below(6) as i64, [1, 1, 1, 2, 4][self.below(5) as usize]);
        let down = self.one_in(2);
        let (first, end) = if down { (times * step, 0) } else { (0, times * step) };
        let from = self.below(3) as i64 * 8;
        let (first, end) =
            if down && self.one_in(2) { (first, end) } else { (first + from, end + from) };
        self.constant(kind, first);
        self.code.local(0x21, counter);
        self.pop(1);
        // eq ne lt_s lt_u gt_s gt_u le_s le_u ge_s ge_u
        let relations: [u8; 5] = if down { [1, 4, 5, 8, 9] } else { [1, 2, 3, 6, 7] };
        let relation = relations[self.below(5) as usize];
        let mut limit = Limit::Constant(end);
        if down && end == 0 && relation == 1 && self.one_in(2) && kind == I32 {
            limit = Limit::Zero;
        } else if self.one_in(2)
            && let Some(local) = self.settable(kind)
        {
            self.constant(kind, end);
            self.code.local(0x21, local);
            self.pop(1);
            limit = Limit::Local(local);
        }
        // An unsigned counter never gets below zero: a loop until then must stop at one step above.
        let relation = if down && end == 0 && relation == 9 { 5 } else { relation };
        let step = if down { -step } else { step };
        Count { counter, kind, step, limit, relation, swapped: self.one_in(3) }
    }

    fn constant(&mut self, kind: ValType, number: i64) {
        if kind == I32 {
            self.code.i32(number as i32)
        } else {
            self.code.i64(number)
        }
        self.stack.push(kind);
    }

    /// Steps a loop's counter and leaves on the stack whether it goes round again.
    fn step(&mut self, count: &Count) {
        let (kind, wide) = (count.kind, count.kind == I64);
        self.code.local(0x20, count.counter);
        self.stack.push(kind);
        if count.step < 0 && self.one_in(3) {
            self.constant(kind, -count.step);
            self.code.byte(if wide { 0x7d } else { 0x6b });
        } else {
            self.constant(kind, count.step);
            self.code.byte(if wide { 0x7c } else { 0x6a });
        }
        self.pop(1);
        if self.one_in(2) && !count.swapped {
            self.code.local(0x22, count.counter);
        } else {
            self.code.local(0x21, count.counter);
            self.pop(1);
            if !count.swapped {
                self.code.local(0x20, count.counter);
                self.stack.push(kind);
            }
        }
        self.compared(count);
    }

    /// The comparison of a counter, which is on the stack unless the limit comes first.
    fn compared(&mut self, count: &Count) {
        let (kind, first) = (count.kind, if count.kind == I64 { 0x51 } else { 0x46 });
        if let Limit::Zero = count.limit {
            if count.swapped {
                self.code.local(0x20, count.counter);
                self.stack.push(kind);
            }
            return;
        }
        match count.limit {
            Limit::Local(local) => {
                self.code.local(0x20, local);
                self.stack.push(kind);
            }
            Limit::Constant(end) => self.constant(kind, end),
            Limit::Zero => {}
        }
        // The same question with its operands exchanged, or as the negation of the opposite.
        let mut relation = count.relation;
        if count.swapped {
            self.code.local(0x20, count.counter);
            self.stack.push(kind);
            relation = [0, 1, 4, 5, 2, 3, 8, 9, 6, 7][usize::from(relation)];
        }
        let negated = self.one_in(5);
        if negated {
            relation = [1, 0, 8, 9, 6, 7, 4, 5, 2, 3][usize::from(relation)];
        }
        self.code.byte(first + relation);
        self.pop(2);
        self.stack.push(I32);
        if negated {
            self.code.byte(0x45);
        }
    }

    /// Instructions on whole stretches of memory and tables, and on references.
    fn bulk(&mut self) {
        match self.below(12) {
            0 => {
                self.code.local(0x3f, 0);
                self.stack.push(I32);
            }
            1 => {
                let pages = self.below(2) as i64;
                self.number(pages);
                self.code.local(0x40, 0);
            }
            2 => self.three(11, &[0]),
            3 => self.three(10, &[0, 0]),
            4 => self.three(8, &[1, 0]),
            5 if self.one_in(3) => self.code.bulk(9, &[1]),
            6 => self.three(12, &[1, 0]),
            7 => self.three(14, &[0, 0]),
            8 if self.one_in(3) => self.code.bulk(13, &[1]),
            9 => self.table_element(),
            10 => {
                self.code.bulk(16, &[0]);
                self.stack.push(I32);
            }
            _ => self.table_stretch(),
        }
    }

    /// An instruction with three numbers, small enough to be inside.
    fn three(&mut self, number: u32, operands: &[u32]) {
        for most in [5, 4, 3] {
            let place = self.below(most) as i64;
            self.number(place);
        }
        self.code.bulk(number, operands);
        self.pop(3);
    }

    fn table_element(&mut self) {
        let place = self.below(8) as i64;
        self.number(place);
        self.reference();
        self.code.local(0x26, 0);
        self.pop(1);
        self.number(place);
        self.code.local(0x25, 0);
        self.code.byte(0xd1);
    }

    /// A function reference, which the stack of kinds does not record.
    fn reference(&mut self) {
        if self.one_in(3) {
            self.code.bytes.extend([0xd0, 0x70]);
        } else {
            self.code.local(0xd2, super::IMPORTS.len() as u32);
        }
    }

    fn table_stretch(&mut self) {
        if self.one_in(2) {
            self.reference();
            self.number(1);
            self.code.bulk(15, &[0]);
        } else {
            let place = self.below(8) as i64;
            self.number(place);
            self.reference();
            self.number(2);
            self.code.bulk(17, &[0]);
            self.pop(2);
        }
    }
}
