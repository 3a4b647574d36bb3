//! A session: the store of one or more linked instances, as in the WebAssembly specification.
//! Memories, tables, globals and functions have session-wide addresses, so instances can share them
//! and references can cross instances.
//!
//! Invariant: every address in a session (imports, tables, references, coroutines' stacks) is below
//! the length of its list; nothing is ever removed.
//!
//! Elsewhere: instantiation (`link`), execution (`run`).

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use wavelock_abi::{Cycles, MAX_GAP};
use wavelock_module::{
    ExportKind, FunctionType, GlobalType, MemoryType, Module, TableType, ValueType,
};

use crate::coroutine::{Call, Coroutine, State};
use crate::keep::Linked;
use crate::memory::{Memory, PAGE_BYTES};

macro_rules! addresses {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
            pub struct $name(pub u32);
        )*
    };
}

addresses! {
    /// A function of a session.
    FunctionAddress;
    /// A table of a session.
    TableAddress;
    /// A memory of a session.
    MemoryAddress;
    /// A global of a session.
    GlobalAddress;
    /// An instance of a session, in order of instantiation.
    InstanceId;
}

impl FunctionAddress {
    /// The reference value of this function: 1 + its address (0 is null).
    #[must_use]
    pub const fn reference(self) -> u64 {
        self.0 as u64 + 1
    }
}

/// An address of any kind: what an import is linked to and what an export resolves to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extern {
    /// A function.
    Function(FunctionAddress),
    /// A table.
    Table(TableAddress),
    /// A memory.
    Memory(MemoryAddress),
    /// A global.
    Global(GlobalAddress),
}

/// Limits of one session and its coroutines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Bytes of one coroutine's stack.
    pub stack_bytes: u32,
    /// WebAssembly pages of all memories together.
    pub memory_pages: u32,
    /// Elements of all tables together.
    pub table_elements: u32,
    /// Instances; at most [`SessionLimits::MOST_INSTANCES`].
    pub instances: u32,
    /// Bytes of all coroutines' stacks on the heap; slots inline in their records do not count.
    pub session_stack_bytes: u64,
}

impl SessionLimits {
    /// A frame's link holds the caller's instance in 16 bits; two values are reserved.
    pub const MOST_INSTANCES: u32 = 65_533;
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            stack_bytes: 1 << 20,
            memory_pages: 1024,
            table_elements: 1 << 20,
            instances: 256,
            session_stack_bytes: 1 << 30,
        }
    }
}

/// Where a function's code is. Host functions have no instance. Native code reads it, hence the
/// layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct FunctionEntry {
    /// The session's number of its type; equal types have one number.
    pub type_id: u32,
    /// The number of its instance, or [`FunctionEntry::HOST`].
    pub instance: u32,
    /// The word of its `enter`; for a host function, an index of the session's.
    pub entry: u32,
    /// Its index in the module (0 for a host function).
    pub index: u32,
}

impl FunctionEntry {
    /// The instance of a host function.
    pub const HOST: u32 = u32::MAX;
}

/// A host function: its number, signature and cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HostFunction {
    pub(crate) call: Call,
    pub(crate) cost: u32,
    /// One parameter and no results: offered to [`crate::Host::call_blocking`].
    pub(crate) may_block: bool,
}

impl HostFunction {
    /// Two parameters and one result: offered to [`crate::Host::call`].
    pub(crate) const fn is_offered(&self) -> bool {
        self.call.arguments == 2 && self.call.results == 1
    }

    /// The state of a coroutine that called it, with the arguments from register `first` on.
    #[inline]
    pub(crate) const fn called(&self, first: u16) -> State {
        State::Host { first, call: self.call }
    }
}

/// An imported function of an instance, copied from the session's lists so that a call needs one
/// lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Import {
    /// A host function that is [offered](HostFunction::is_offered) to the host of a batch.
    Offered(HostFunction),
    /// Any other host function.
    Host(HostFunction),
    Guest(FunctionEntry),
}

/// A table: references as numbers, 0 is null.
#[derive(Clone, Debug)]
pub struct Table {
    pub(crate) elements: Vec<u64>,
    /// The elements as of the last copy.
    pub(crate) kept: Option<Arc<[u64]>>,
    pub(crate) kind: TableType,
}

impl Table {
    /// Its elements.
    #[must_use]
    pub fn elements(&self) -> &[u64] {
        &self.elements
    }

    /// The declared type; the minimum is the size at creation.
    #[must_use]
    pub fn kind(&self) -> TableType {
        self.kind
    }
}

/// One instance: a module and where its parts are in the session.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// Its index in [`Session::instances`].
    pub(crate) id: u16,
    pub(crate) module: Arc<Module>,
    /// Session address of every function, imports first.
    pub(crate) functions: Box<[u32]>,
    /// Its imported functions.
    pub(crate) imports: Box<[Import]>,
    pub(crate) tables: Box<[u32]>,
    /// Session address of the memory, or `u32::MAX`.
    pub(crate) memory: u32,
    /// Session address of every global, imports first.
    pub(crate) globals: Box<[u32]>,
    /// Session address of the first global that the module defines; they are consecutive.
    pub(crate) first_global: u32,
    /// Session type id of every type of the module.
    pub(crate) types: Box<[u32]>,
}

/// Which segments of an instance were dropped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Dropped {
    /// Element segments.
    pub(crate) elements: Box<[bool]>,
    /// Data segments.
    pub(crate) data: Box<[bool]>,
}

impl Dropped {
    /// Nothing dropped yet.
    pub(crate) fn none(module: &Module) -> Self {
        Self {
            elements: alloc::vec![false; module.elements().len()].into_boxed_slice(),
            data: alloc::vec![false; module.data().len()].into_boxed_slice(),
        }
    }
}

/// Why the host could not add something to a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionError {
    /// A limit of the session would be exceeded.
    Limit {
        /// The field of [`SessionLimits`].
        limit: &'static str,
        /// The total it would reach.
        found: u64,
        /// What is allowed.
        allowed: u64,
    },
    /// A host function costs more than the longest gap allowed.
    HostCost {
        /// Its cost.
        found: Cycles,
        /// The most allowed.
        allowed: Cycles,
    },
    /// A host function has more than 16 results.
    HostResults {
        /// How many it has.
        found: u32,
    },
}

/// A number that its owner changes through a shared reference; one thread at a time runs a session.
#[derive(Debug)]
pub(crate) struct Held(AtomicU64);

impl Held {
    pub(crate) const fn new(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn set(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self) -> &mut u64 {
        self.0.get_mut()
    }
}

impl Clone for Held {
    fn clone(&self) -> Self {
        Self::new(self.get())
    }
}

/// The store of one or more linked instances.
#[derive(Clone, Debug)]
pub struct Session {
    pub(crate) limits: SessionLimits,
    /// Distinct function types; equal types have one id, so an indirect call compares numbers.
    pub(crate) types: Vec<FunctionType>,
    /// The id of each type.
    pub(crate) type_ids: BTreeMap<FunctionType, u32>,
    pub(crate) functions: Vec<FunctionEntry>,
    pub(crate) hosts: Vec<HostFunction>,
    pub(crate) memories: Vec<Memory>,
    pub(crate) tables: Vec<Table>,
    pub(crate) globals: Vec<u64>,
    pub(crate) global_types: Vec<GlobalType>,
    /// Never changed after linking.
    pub(crate) instances: Vec<Instance>,
    /// By instance.
    pub(crate) dropped: Vec<Dropped>,
    /// Globals of which each coroutine has its own value, ascending. While no coroutine runs, the
    /// session's cell holds the initial value.
    pub(crate) coroutine_globals: Vec<u32>,
    /// Bytes of the coroutines' stacks on the heap, which `session_stack_bytes` limits. The sum
    /// over all coroutines started or decoded and not retired, so it is derived state.
    pub(crate) stack_bytes_held: Held,
    /// What linking made, as copies share it, once there is one.
    pub(crate) linked: Option<Arc<Linked>>,
}

impl Session {
    /// An empty session.
    #[must_use]
    pub fn new(limits: SessionLimits) -> Self {
        Self {
            limits,
            types: Vec::new(),
            type_ids: BTreeMap::new(),
            functions: Vec::new(),
            hosts: Vec::new(),
            memories: Vec::new(),
            tables: Vec::new(),
            globals: Vec::new(),
            global_types: Vec::new(),
            instances: Vec::new(),
            dropped: Vec::new(),
            coroutine_globals: Vec::new(),
            stack_bytes_held: Held::new(0),
            linked: None,
        }
    }

    /// Its limits.
    #[must_use]
    pub fn limits(&self) -> &SessionLimits {
        &self.limits
    }

    /// Bytes of its coroutines' stacks on the heap.
    #[must_use]
    pub fn stack_bytes_held(&self) -> u64 {
        self.stack_bytes_held.get()
    }

    /// Vacates a coroutine that has ended or is dropped; its stack no longer counts.
    pub fn retire(&self, coroutine: &mut Coroutine) {
        self.stack_bytes_held
            .set(self.stack_bytes_held.get().saturating_sub(coroutine.stack.heap_bytes()));
        coroutine.vacate();
    }

    /// All its coroutines are dropped: no stack counts any more.
    pub(crate) fn retire_all(&self) {
        self.stack_bytes_held.set(0);
    }

    /// Registers a host function: calling it stops the coroutine with this number. `cost` is
    /// charged to the caller once.
    ///
    /// # Errors
    /// Refuses a cost above [`MAX_GAP`] and more than 16 results.
    pub fn add_host_function(
        &mut self,
        number: u16,
        kind: &FunctionType,
        cost: Cycles,
    ) -> Result<FunctionAddress, SessionError> {
        self.linked = None;
        if cost > MAX_GAP {
            return Err(SessionError::HostCost { found: cost, allowed: MAX_GAP });
        }
        if kind.results().len() > 16 {
            return Err(SessionError::HostResults { found: kind.results().len() as u32 });
        }
        let narrow = kind
            .results()
            .iter()
            .enumerate()
            .filter(|(_, value)| value.is_narrow())
            .fold(0, |mask, (index, _)| mask | 1 << index);
        let type_id = self.intern(kind);
        let host = HostFunction {
            call: Call {
                number,
                arguments: kind.parameters().len() as u16,
                results: kind.results().len() as u16,
                narrow,
            },
            cost: cost.0 as u32,
            may_block: kind.parameters().len() == 1 && kind.results().is_empty(),
        };
        self.functions.push(FunctionEntry {
            type_id,
            instance: FunctionEntry::HOST,
            entry: self.hosts.len() as u32,
            index: 0,
        });
        self.hosts.push(host);
        Ok(FunctionAddress(self.functions.len() as u32 - 1))
    }

    /// Adds a memory that no instance defines.
    ///
    /// # Errors
    /// Refuses what exceeds `memory_pages`.
    pub fn add_memory(&mut self, kind: MemoryType) -> Result<MemoryAddress, SessionError> {
        self.linked = None;
        let found = self.memory_pages() + u64::from(kind.minimum);
        check("memory_pages", found, self.limits.memory_pages)?;
        self.memories.push(Memory::new(kind));
        Ok(MemoryAddress(self.memories.len() as u32 - 1))
    }

    /// Adds a table that no instance defines, full of nulls.
    ///
    /// # Errors
    /// Refuses what exceeds `table_elements`.
    pub fn add_table(&mut self, kind: TableType) -> Result<TableAddress, SessionError> {
        self.linked = None;
        let found = self.table_elements() + u64::from(kind.minimum);
        check("table_elements", found, self.limits.table_elements)?;
        self.tables.push(Table {
            elements: alloc::vec![0; kind.minimum as usize],
            kept: None,
            kind,
        });
        Ok(TableAddress(self.tables.len() as u32 - 1))
    }

    /// Adds a global that no instance defines.
    pub fn add_global(&mut self, kind: GlobalType, value: u64) -> GlobalAddress {
        self.linked = None;
        self.globals.push(narrowed(kind.value, value));
        self.global_types.push(kind);
        GlobalAddress(self.globals.len() as u32 - 1)
    }

    /// Makes a global coroutine-local: each coroutine started from now on has its own value, first
    /// the session's. Call it before starting any.
    pub fn add_coroutine_global(&mut self, global: GlobalAddress) {
        self.linked = None;
        if let Err(index) = self.coroutine_globals.binary_search(&global.0) {
            self.coroutine_globals.insert(index, global.0);
        }
    }

    /// The coroutine-local globals, ascending: their order in a coroutine.
    pub fn coroutine_globals(&self) -> impl ExactSizeIterator<Item = GlobalAddress> + '_ {
        self.coroutine_globals.iter().map(|&global| GlobalAddress(global))
    }

    /// An instance's module.
    #[must_use]
    pub fn module(&self, instance: InstanceId) -> &Arc<Module> {
        &self.instances[instance.0 as usize].module
    }

    /// What an instance exports under a name.
    #[must_use]
    pub fn export(&self, instance: InstanceId, name: &str) -> Option<Extern> {
        let kind = self.module(instance).export(name)?;
        Some(self.resolve(instance, kind))
    }

    /// The session-wide address of something that an instance names by index.
    #[must_use]
    pub fn resolve(&self, instance: InstanceId, kind: ExportKind) -> Extern {
        let instance = &self.instances[instance.0 as usize];
        match kind {
            ExportKind::Function(index) => {
                Extern::Function(FunctionAddress(instance.functions[index as usize]))
            }
            ExportKind::Table(index) => {
                Extern::Table(TableAddress(instance.tables[index as usize]))
            }
            ExportKind::Memory(_) => Extern::Memory(MemoryAddress(instance.memory)),
            ExportKind::Global(index) => {
                Extern::Global(GlobalAddress(instance.globals[index as usize]))
            }
        }
    }

    /// The start function of an instance's module, which the caller runs in a coroutine (semantics
    /// 8).
    #[must_use]
    pub fn start_function(&self, instance: InstanceId) -> Option<FunctionAddress> {
        let start = self.module(instance).start()?;
        Some(FunctionAddress(self.instances[instance.0 as usize].functions[start as usize]))
    }

    /// An instance's memory.
    #[must_use]
    pub fn instance_memory(&self, instance: InstanceId) -> Option<MemoryAddress> {
        let memory = self.instances[instance.0 as usize].memory;
        (memory != u32::MAX).then_some(MemoryAddress(memory))
    }

    /// The type of a function.
    #[must_use]
    pub fn function_type(&self, function: FunctionAddress) -> &FunctionType {
        &self.types[self.functions[function.0 as usize].type_id as usize]
    }

    /// The function that an element of a table refers to, if there is one.
    #[must_use]
    pub fn table_function(&self, table: TableAddress, index: u32) -> Option<FunctionAddress> {
        let reference = *self.tables.get(table.0 as usize)?.elements.get(index as usize)?;
        self.function_of_reference(reference)
    }

    /// The function of a reference value, unless it is null or none of this session's.
    #[must_use]
    pub fn function_of_reference(&self, reference: u64) -> Option<FunctionAddress> {
        let address = reference.checked_sub(1)?;
        (address < self.functions.len() as u64).then_some(FunctionAddress(address as u32))
    }

    /// A memory.
    #[must_use]
    pub fn memory(&self, memory: MemoryAddress) -> &Memory {
        &self.memories[memory.0 as usize]
    }

    /// A memory, mutable.
    #[must_use]
    pub fn memory_mut(&mut self, memory: MemoryAddress) -> &mut Memory {
        &mut self.memories[memory.0 as usize]
    }

    /// Every memory, mutable.
    pub fn memories_mut(&mut self) -> impl Iterator<Item = (MemoryAddress, &mut Memory)> {
        (0..).map(MemoryAddress).zip(&mut self.memories)
    }

    /// Number of memories.
    #[must_use]
    pub fn memory_count(&self) -> u32 {
        self.memories.len() as u32
    }

    /// A table.
    #[must_use]
    pub fn table(&self, table: TableAddress) -> &Table {
        &self.tables[table.0 as usize]
    }

    /// A global's type.
    #[must_use]
    pub fn global_type(&self, global: GlobalAddress) -> GlobalType {
        self.global_types[global.0 as usize]
    }

    /// A global's value; of a coroutine-local one, the value coroutines start with.
    #[must_use]
    pub fn global(&self, global: GlobalAddress) -> u64 {
        self.globals[global.0 as usize]
    }

    /// Sets a global's value.
    pub fn set_global(&mut self, global: GlobalAddress, value: u64) {
        self.globals[global.0 as usize] =
            narrowed(self.global_types[global.0 as usize].value, value);
    }

    /// `G` of this session: the longest gap between safepoints of its modules and host functions.
    #[must_use]
    pub fn gap(&self) -> Cycles {
        let modules = self.instances.iter().map(|instance| instance.module.code().gap());
        let hosts = self.hosts.iter().map(|host| Cycles(u64::from(host.cost)));
        modules.chain(hosts).max().unwrap_or(Cycles::ZERO)
    }

    /// Pages of all memories.
    #[must_use]
    pub fn memory_pages(&self) -> u64 {
        self.memories.iter().map(|memory| (memory.bytes.len() / PAGE_BYTES) as u64).sum()
    }

    /// Elements of all tables.
    #[must_use]
    pub fn table_elements(&self) -> u64 {
        self.tables.iter().map(|table| table.elements.len() as u64).sum()
    }

    /// The entries of imported functions with these addresses.
    pub(crate) fn imports(&self, addresses: &[u32]) -> Box<[Import]> {
        let import = |&address: &u32| {
            let entry = self.functions[address as usize];
            if entry.instance == FunctionEntry::HOST {
                let host = self.hosts[entry.entry as usize].clone();
                if host.is_offered() { Import::Offered(host) } else { Import::Host(host) }
            } else {
                Import::Guest(entry)
            }
        };
        addresses.iter().map(import).collect()
    }

    /// The id of a function type; equal types get one id.
    pub(crate) fn intern(&mut self, kind: &FunctionType) -> u32 {
        if let Some(&id) = self.type_ids.get(kind) {
            return id;
        }
        let id = self.types.len() as u32;
        self.types.push(kind.clone());
        self.type_ids.insert(kind.clone(), id);
        id
    }
}

/// A value as slots hold it: the upper half of a 32-bit value is zero.
pub(crate) fn narrowed(kind: ValueType, value: u64) -> u64 {
    if kind.is_narrow() { u64::from(value as u32) } else { value }
}

pub(crate) fn check(limit: &'static str, found: u64, allowed: u32) -> Result<(), SessionError> {
    if found > u64::from(allowed) {
        Err(SessionError::Limit { limit, found, allowed: u64::from(allowed) })
    } else {
        Ok(())
    }
}
