//! Bulk instructions: `memory.copy/fill/init/grow` and `table.copy/fill/init/grow`.
//!
//! Semantics 5: bounds are checked first; then the size is paid for, over any number of slices,
//! without a visible effect; then the bounds are checked again (another coroutine may have run) and
//! the whole operation takes effect. The amount paid is part of the coroutine's state. The second
//! check needs no code: the instruction is executed again after each stop.

use wavelock_abi::FaultCode;
use wavelock_module::{Op, cost};

use crate::link;
use crate::memory::{Memory, PAGE_BYTES};
use crate::session::{Dropped, Instance, SessionLimits, Table};

/// Cycles left in the slice, and cycles already paid for the current instruction.
pub(crate) struct Budget {
    pub(crate) left: i64,
    pub(crate) paid: u64,
}

/// Why a bulk instruction did not complete.
pub(crate) enum Pause {
    /// This many cycles are still missing.
    Unpaid(u64),
    Fault(FaultCode),
}

impl From<FaultCode> for Pause {
    fn from(code: FaultCode) -> Self {
        Self::Fault(code)
    }
}

impl Budget {
    /// Pays towards `cost`, up to the cycles left. Once all is paid, `paid` is 0 again.
    fn pay(&mut self, cost: u64) -> Result<(), Pause> {
        let missing = cost.saturating_sub(self.paid);
        let pays = missing.min(u64::try_from(self.left).unwrap_or(0));
        self.left -= pays as i64;
        if pays < missing {
            self.paid += pays;
            return Err(Pause::Unpaid(missing - pays));
        }
        self.paid = 0;
        Ok(())
    }
}

/// The parts of a session a bulk instruction may touch.
pub(crate) struct Store<'a> {
    pub(crate) instance: &'a Instance,
    pub(crate) memories: &'a mut [Memory],
    pub(crate) tables: &'a mut [Table],
    pub(crate) globals: &'a [u64],
    pub(crate) dropped: &'a Dropped,
    pub(crate) limits: SessionLimits,
}

/// Whether `start..start + count` is within `length`.
fn inside(start: u32, count: u32, length: usize) -> bool {
    u64::from(start) + u64::from(count) <= length as u64
}

/// Runs a bulk instruction with three operands and no result.
///
/// # Errors
/// When it is not paid for yet, or out of bounds.
#[inline(never)]
pub(crate) fn run(
    op: Op,
    operands: [u32; 3],
    second: u64,
    mut store: Store<'_>,
    budget: &mut Budget,
) -> Result<(), Pause> {
    let [a, b, c] = operands;
    let (low, high) = (second as u32 as usize, (second >> 32) as usize);
    match op {
        Op::MemoryFill => store.memory_fill(a, b as u8, c, budget),
        Op::MemoryCopy => store.memory_copy(a, b, c, budget),
        Op::MemoryInit => store.memory_init(low, a, b, c, budget),
        Op::TableCopy => store.table_copy(low, high, a, b, c, budget),
        Op::TableInit => store.table_init(low, high, a, b, c, budget),
        other => unreachable!("{other:?} is no bulk instruction of this shape"),
    }
}

impl Store<'_> {
    fn memory(&mut self) -> &mut Memory {
        &mut self.memories[self.instance.memory as usize]
    }

    fn table(&mut self, index: usize) -> &mut Table {
        &mut self.tables[self.instance.tables[index] as usize]
    }

    fn memory_fill(
        &mut self,
        to: u32,
        value: u8,
        count: u32,
        budget: &mut Budget,
    ) -> Result<(), Pause> {
        let memory = self.memory();
        if !inside(to, count, memory.bytes.len()) {
            return Err(FaultCode::MemoryOutOfBounds.into());
        }
        budget.pay(cost::bytes(u64::from(count)))?;
        let (start, end) = (to as usize, to as usize + count as usize);
        memory.bytes[start..end].fill(value);
        memory.mark(start, end);
        Ok(())
    }

    fn memory_copy(
        &mut self,
        to: u32,
        from: u32,
        count: u32,
        budget: &mut Budget,
    ) -> Result<(), Pause> {
        let memory = self.memory();
        if !inside(to, count, memory.bytes.len()) || !inside(from, count, memory.bytes.len()) {
            return Err(FaultCode::MemoryOutOfBounds.into());
        }
        budget.pay(cost::bytes(u64::from(count)))?;
        let (from, to, count) = (from as usize, to as usize, count as usize);
        memory.bytes.copy_within(from..from + count, to);
        memory.mark(to, to + count);
        Ok(())
    }

    fn memory_init(
        &mut self,
        segment: usize,
        to: u32,
        from: u32,
        count: u32,
        budget: &mut Budget,
    ) -> Result<(), Pause> {
        let instance = self.instance;
        let data: &[u8] =
            if self.dropped.data[segment] { &[] } else { &instance.module.data()[segment].bytes };
        let memory = self.memory();
        if !inside(to, count, memory.bytes.len()) || !inside(from, count, data.len()) {
            return Err(FaultCode::MemoryOutOfBounds.into());
        }
        budget.pay(cost::bytes(u64::from(count)))?;
        let (from, to, count) = (from as usize, to as usize, count as usize);
        memory.bytes[to..to + count].copy_from_slice(&data[from..from + count]);
        memory.mark(to, to + count);
        Ok(())
    }

    /// `memory.grow`: the old size, or -1 if a limit forbids it.
    #[inline(never)]
    pub(crate) fn memory_grow(&mut self, pages: u32, budget: &mut Budget) -> Result<u32, Pause> {
        let all: u64 =
            self.memories.iter().map(|memory| (memory.bytes.len() / PAGE_BYTES) as u64).sum();
        let allowed = u64::from(self.limits.memory_pages);
        let memory = self.memory();
        let old = memory.pages();
        let most = memory.kind.maximum.unwrap_or(65_536).min(65_536);
        let fits = u64::from(old) + u64::from(pages) <= u64::from(most)
            && all + u64::from(pages) <= allowed;
        if !fits {
            budget.paid = 0;
            return Ok(u32::MAX);
        }
        budget.pay(cost::pages(u64::from(pages)))?;
        memory.grow(pages);
        Ok(old)
    }

    /// `table.grow`: the old size, or -1 if a limit forbids it.
    #[inline(never)]
    pub(crate) fn table_grow(
        &mut self,
        table: usize,
        value: u64,
        count: u32,
        budget: &mut Budget,
    ) -> Result<u32, Pause> {
        let all: u64 = self.tables.iter().map(|table| table.elements.len() as u64).sum();
        let allowed = u64::from(self.limits.table_elements);
        let table = self.table(table);
        let old = table.elements.len() as u32;
        let most = table.kind.maximum.unwrap_or(u32::MAX);
        let fits = u64::from(old) + u64::from(count) <= u64::from(most)
            && all + u64::from(count) <= allowed;
        if !fits {
            budget.paid = 0;
            return Ok(u32::MAX);
        }
        budget.pay(cost::elements(u64::from(count)))?;
        table.elements.resize(old as usize + count as usize, value);
        Ok(old)
    }

    /// `table.fill`: the value is a reference, so this one does not go through [`run`].
    #[inline(never)]
    pub(crate) fn table_fill(
        &mut self,
        table: usize,
        to: u32,
        value: u64,
        count: u32,
        budget: &mut Budget,
    ) -> Result<(), Pause> {
        let table = self.table(table);
        if !inside(to, count, table.elements.len()) {
            return Err(FaultCode::TableOutOfBounds.into());
        }
        budget.pay(cost::elements(u64::from(count)))?;
        table.elements[to as usize..to as usize + count as usize].fill(value);
        Ok(())
    }

    fn table_copy(
        &mut self,
        target: usize,
        source: usize,
        to: u32,
        from: u32,
        count: u32,
        budget: &mut Budget,
    ) -> Result<(), Pause> {
        let (target, source) =
            (self.instance.tables[target] as usize, self.instance.tables[source] as usize);
        if !inside(to, count, self.tables[target].elements.len())
            || !inside(from, count, self.tables[source].elements.len())
        {
            return Err(FaultCode::TableOutOfBounds.into());
        }
        budget.pay(cost::elements(u64::from(count)))?;
        let (from, to, count) = (from as usize, to as usize, count as usize);
        if target == source {
            self.tables[target].elements.copy_within(from..from + count, to);
        } else if let Ok([target, source]) = self.tables.get_disjoint_mut([target, source]) {
            target.elements[to..to + count].copy_from_slice(&source.elements[from..from + count]);
        }
        Ok(())
    }

    fn table_init(
        &mut self,
        table: usize,
        segment: usize,
        to: u32,
        from: u32,
        count: u32,
        budget: &mut Budget,
    ) -> Result<(), Pause> {
        let (instance, globals) = (self.instance, self.globals);
        let items = if self.dropped.elements[segment] {
            &[][..]
        } else {
            &instance.module.elements()[segment].items
        };
        let table = self.table(table);
        if !inside(to, count, table.elements.len()) || !inside(from, count, items.len()) {
            return Err(FaultCode::TableOutOfBounds.into());
        }
        budget.pay(cost::elements(u64::from(count)))?;
        let (from, to, count) = (from as usize, to as usize, count as usize);
        for (slot, &item) in table.elements[to..].iter_mut().zip(&items[from..from + count]) {
            *slot = link::reference(item, globals, &instance.globals, &instance.functions);
        }
        Ok(())
    }
}
