//! The handlers of the dispatch loop: what the last column of `wavelock_module::instructions!`
//! names.
//!
//! A handler is a macro because its arguments are tokens of the table and because it ends the loop
//! with `break`. It gets the interpreter's state, the session, the instruction's length in words
//! and the arguments of its row; it executes one instruction and moves `code` to the next. Code
//! without a `break` is in methods of [`Interpreter`].
//!
//! An arm that calls out is marked with `cold_path`, so that the register allocator spills in it
//! and keeps `code`, `window`, `left` and `memory` in machine registers everywhere else. One call
//! in a hot arm can move them to the stack in all of them: count instructions (callgrind) after a
//! change here.
//!
//! Charging: a branch carries the cost of both sides and charges the one it takes. At a safepoint
//! (`safepoint`, `enter`, a jump to a loop header, a return) the coroutine stops if no cycles are
//! left, before the next block is charged.

use core::num::Wrapping;

use crate::coroutine::State;
use crate::host::CallOutcome;
use crate::memory::{Memory, PAGE_BYTES};
use crate::raw::{Bytes, Cursor, Fields, Window};
use crate::session::Instance;

/// Whether cycles are counted. Always, except in the one build that measures what counting costs
/// (`RUSTFLAGS="--cfg wavelock_unmetered"`, see `benches/quick.rs`).
#[allow(unexpected_cfgs)]
pub(crate) const METERED: bool = !cfg!(wavelock_unmetered);

/// 32-bit arithmetic modulo 2^32.
pub(crate) type Mod32 = Wrapping<u32>;
/// 64-bit arithmetic modulo 2^64.
pub(crate) type Mod64 = Wrapping<u64>;

/// A type that a 64-bit register slot can hold. Narrow values are zero-extended, signed ones as
/// unsigned ones of the same width.
pub(crate) trait Slot {
    fn from_slot(slot: u64) -> Self;
    fn to_slot(self) -> u64;
}

macro_rules! slots {
    ($($type:ty: |$from:ident| $value:expr, |$to:ident| $slot:expr;)*) => {
        $(impl Slot for $type {
            #[inline(always)]
            fn from_slot($from: u64) -> Self {
                $value
            }

            #[inline(always)]
            fn to_slot(self) -> u64 {
                let $to = self;
                $slot
            }
        })*
    };
}

slots! {
    bool: |slot| slot != 0, |value| u64::from(value);
    i8: |slot| slot as i8, |value| u64::from(value as u8);
    i16: |slot| slot as i16, |value| u64::from(value as u16);
    u8: |slot| slot as u8, |value| u64::from(value);
    u16: |slot| slot as u16, |value| u64::from(value);
    i32: |slot| slot as i32, |value| u64::from(value as u32);
    u32: |slot| slot as u32, |value| u64::from(value);
    i64: |slot| slot as i64, |value| value as u64;
    u64: |slot| slot, |value| value;
    f32: |slot| f32::from_bits(slot as u32), |value| u64::from(value.to_bits());
    f64: |slot| f64::from_bits(slot), |value| value.to_bits();
    Mod32: |slot| Wrapping(slot as u32), |value| u64::from(value.0);
    Mod64: |slot| Wrapping(slot), |value| value.0;
}

/// The state of the dispatch loop. It lives in a local of the loop whose address never escapes, so
/// that each field is a machine register or a stack slot of its own.
pub(crate) struct Interpreter<'code, 'coroutine, 'memory, H: ?Sized> {
    /// The next instruction.
    pub(crate) code: Cursor<'code>,
    /// The fields of the instruction that is being run.
    pub(crate) word: Fields<'code>,
    /// Registers of the running function.
    pub(crate) window: Window<'coroutine>,
    pub(crate) memory: Bytes<'memory>,
    /// Cycles left; below zero by less than a gap.
    pub(crate) left: i32,
    /// Cycles of this dispatch in total: what is used is the difference to `left`.
    pub(crate) cycles: u32,
    pub(crate) instance: &'code Instance,
    // Fields of the running coroutine, apart from `word`, which is written when the loop ends.
    pub(crate) instance_id: &'coroutine mut u16,
    pub(crate) used: &'coroutine mut u64,
    pub(crate) paid: &'coroutine mut u64,
    pub(crate) state: &'coroutine mut State,
    pub(crate) host: &'coroutine mut H,
    /// Number of the host function that yields.
    pub(crate) yield_function: u32,
}

impl<'code, 'coroutine, 'memory, H: ?Sized> Interpreter<'code, 'coroutine, 'memory, H> {
    /// The same with another memory. By value, so that the borrow of the old one ends.
    #[inline(always)]
    pub(crate) fn with_memory<'other>(
        self,
        memory: Bytes<'other>,
    ) -> Interpreter<'code, 'coroutine, 'other, H> {
        let Self {
            code,
            word,
            window,
            left,
            cycles,
            instance,
            instance_id,
            used,
            paid,
            state,
            host,
            yield_function,
            ..
        } = self;
        Interpreter {
            code,
            word,
            window,
            memory,
            left,
            cycles,
            instance,
            instance_id,
            used,
            paid,
            state,
            host,
            yield_function,
        }
    }

    /// The register that field a names.
    #[inline(always)]
    pub(crate) fn a<T: Slot>(&self) -> T {
        T::from_slot(self.window.get(usize::from(self.word.a())))
    }

    /// The register that field b names.
    #[inline(always)]
    pub(crate) fn b<T: Slot>(&self) -> T {
        T::from_slot(self.window.get(usize::from(self.word.b())))
    }

    /// The register that field c names.
    #[inline(always)]
    pub(crate) fn c<T: Slot>(&self) -> T {
        T::from_slot(self.window.get(usize::from(self.word.c())))
    }

    /// The register that the second word names.
    #[inline(always)]
    pub(crate) fn d<T: Slot>(&self) -> T {
        T::from_slot(self.window.get(usize::from(self.word.d())))
    }

    /// Sets the register that field a names.
    #[inline(always)]
    pub(crate) fn set(&mut self, value: impl Slot) {
        self.set_register(self.word.a(), value);
    }

    #[inline(always)]
    pub(crate) fn set_register(&mut self, register: u16, value: impl Slot) {
        self.window.set(usize::from(register), value.to_slot());
    }

    /// Charges a block that is entered at no safepoint.
    #[inline(always)]
    pub(crate) fn charge(&mut self, cycles: u32) {
        if METERED {
            self.left -= cycles as i32;
        }
    }

    /// Charges a block that is entered at a safepoint, if `is_safepoint`. `false` if no cycles were
    /// left: then nothing is charged, and the coroutine has to stop.
    ///
    /// The charge comes first, so that one subtraction serves as the test too; a charge at a
    /// safepoint without cycles left is undone.
    #[inline(always)]
    pub(crate) fn arrive(&mut self, cycles: u32, is_safepoint: impl FnOnce() -> bool) -> bool {
        if METERED {
            let cycles = cycles as i32;
            let is_low = self.left <= cycles;
            self.left -= cycles;
            if is_low {
                let before = undo(self.left, cycles);
                if before <= 0 && is_safepoint() {
                    self.left = before;
                    return false;
                }
            }
        }
        true
    }

    /// Lowers the slice's bound: what is left, and the total, from which `used` is computed.
    #[inline(always)]
    pub(crate) fn shorten_slice(&mut self, cycles: u32) {
        self.left -= cycles as i32;
        self.cycles = self.cycles.wrapping_sub(cycles);
    }

    /// The effective address: base register plus the offset in field c.
    #[inline(always)]
    pub(crate) fn near(&self) -> u64 {
        u64::from(self.b::<u32>()) + u64::from(self.word.c())
    }

    /// The effective address: base register plus the offset in the second word.
    #[inline(always)]
    pub(crate) fn far(&self) -> u64 {
        u64::from(self.b::<u32>()) + self.code.get(1)
    }

    /// The effective address: a constant, then the offset in the second word.
    #[inline(always)]
    pub(crate) fn fixed(&self) -> u64 {
        u64::from(self.word.bc()) + self.code.get(1)
    }

    /// The effective address: base plus constant, modulo 2^32, then the offset.
    #[inline(always)]
    pub(crate) fn plus(&self) -> u64 {
        u64::from(self.b::<u32>().wrapping_add(self.word.low())) + u64::from(self.word.high())
    }

    /// The size of the memory.
    #[inline(always)]
    pub(crate) fn pages(&self) -> u64 {
        self.memory.length() / PAGE_BYTES as u64
    }
}

/// What was left before a charge. Opaque to the compiler, which would otherwise keep the old value
/// in a register across every charge. Not a call, which would spill registers.
#[inline(always)]
fn undo(left: i32, cycles: i32) -> i32 {
    core::hint::black_box(left) + cycles
}

/// Marks a path as unlikely.
#[cold]
#[inline(never)]
pub(crate) fn cold() {}

/// The memory of an instance.
#[inline(always)]
pub(crate) fn memory_of<'a>(memories: &'a mut [Memory], instance: &Instance) -> Bytes<'a> {
    Bytes::new(memories.get_mut(instance.memory as usize))
}

/// Writes the eight bytes of [`CallOutcome::number`].
#[inline(always)]
pub(crate) fn write_number(memory: &mut Bytes<'_>, at: u64, number: u64) {
    let stored = memory.store(u64::from(at as u32), number.to_le_bytes());
    assert!(stored, "the host has checked the memory's size");
}

/// The result of a completed call, after its number, if any, is written to memory at `at`.
#[inline(always)]
pub(crate) fn result_of(outcome: CallOutcome, memory: &mut Bytes<'_>, at: u64) -> u64 {
    match outcome.number_to_write() {
        Some(number) => {
            write_number(memory, at, number);
            0
        }
        None => outcome.value(),
    }
}

// Arithmetic: operands to a destination.

macro_rules! unary {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident| $value:expr) => {{
        let $a = $vm.b::<$type>();
        $vm.set($value);
        $vm.code.step(const $words);
    }};
}

macro_rules! binary {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident, $b:ident| $value:expr) => {{
        let ($a, $b) = ($vm.b::<$type>(), $vm.c::<$type>());
        $vm.set($value);
        $vm.code.step(const $words);
    }};
}

/// The second operand is the constant in the second word.
macro_rules! constant {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident, $b:ident| $value:expr) => {{
        let ($a, $b) = ($vm.b::<$type>(), <$type>::from_slot($vm.code.get(1)));
        $vm.set($value);
        $vm.code.step(const $words);
    }};
}

macro_rules! ternary {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident, $b:ident, $c:ident| $value:expr) => {{
        let $c = $vm.d::<$type>();
        let ($a, $b) = ($vm.b::<$type>(), $vm.c::<$type>());
        $vm.set($value);
        $vm.code.step(const $words);
    }};
}

/// Two operands and the constant in the second word.
macro_rules! fused {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident, $b:ident, $n:ident| $value:expr) => {{
        let $n = <$type>::from_slot(u64::from($vm.word.low()));
        let ($a, $b) = ($vm.b::<$type>(), $vm.c::<$type>());
        $vm.set($value);
        $vm.code.step(const $words);
    }};
}

macro_rules! mul_add_const {
    ($vm:ident $session:ident $words:tt) => {{
        let product = $vm.b::<u32>().wrapping_mul($vm.word.low());
        $vm.set(product.wrapping_add($vm.word.high()));
        $vm.code.step(const $words);
    }};
}

macro_rules! try_unary {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident| $value:expr) => {{
        let $a = $vm.b::<$type>();
        match $value {
            Ok(value) => $vm.set(value),
            Err(code) => break Exit::Fault(code),
        }
        $vm.code.step(const $words);
    }};
}

macro_rules! try_binary {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident, $b:ident| $value:expr) => {{
        let ($a, $b) = ($vm.b::<$type>(), $vm.c::<$type>());
        match $value {
            Ok(value) => $vm.set(value),
            Err(code) => break Exit::Fault(code),
        }
        $vm.code.step(const $words);
    }};
}

// Copies and constants.

macro_rules! copy_two {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.set($vm.b::<u64>());
        $vm.set_register($vm.word.c(), $vm.d::<u64>());
        $vm.code.step(const $words);
    }};
}

macro_rules! copy_range {
    ($vm:ident $session:ident $words:tt) => {{
        let [to, from, count] = [$vm.word.a(), $vm.word.b(), $vm.word.c()].map(usize::from);
        $vm.window.copy(to, from, count);
        $vm.code.step(const $words);
    }};
}

macro_rules! const_32 {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.set($vm.word.bc());
        $vm.code.step(const $words);
    }};
}

macro_rules! const_64 {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.set($vm.code.get(1));
        $vm.code.step(const $words);
    }};
}

macro_rules! const_copy {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.set($vm.word.bc());
        $vm.set_register($vm.word.d(), $vm.window.get(usize::from($vm.word.e())));
        $vm.code.step(const $words);
    }};
}

// Branches. Two branch words follow the first: target and its charge; charge of the fall-through
// and the loop header to stop at.

/// Takes the branch if `$taken`, otherwise falls through.
macro_rules! branch {
    ($vm:ident $words:tt $taken:expr) => {
        if $taken {
            let word = $vm.word;
            if !$vm.arrive(word.taken(), || word.stop() != 0) {
                $vm.code.jump(word.stop() as usize);
                break Exit::OutOfCycles($vm.code.fields().bc());
            }
            $vm.code.jump_by(word.distance());
        } else {
            $vm.charge($vm.word.fallen());
            $vm.code.step(const $words);
        }
    };
}

macro_rules! branch_one {
    ($vm:ident $session:ident $words:tt |$a:ident| $taken:expr) => {{
        let $a = $vm.a::<u64>();
        branch!($vm $words $taken)
    }};
}

macro_rules! branch_two {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident, $b:ident| $taken:expr) => {{
        let ($a, $b) = ($vm.a::<$type>(), $vm.b::<$type>());
        branch!($vm $words $taken)
    }};
}

/// The second operand is the signed constant in field c.
macro_rules! branch_imm {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident, $b:ident| $taken:expr) => {{
        let ($a, $b) = ($vm.a::<$type>(), $vm.word.c() as i16 as $type);
        branch!($vm $words $taken)
    }};
}

/// Steps a counter and compares it.
macro_rules! loop_two {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident, $b:ident| $taken:expr) => {{
        let $a = $vm.a::<$type>().wrapping_add($vm.word.c() as i16 as $type);
        $vm.set($a);
        let $b = $vm.b::<$type>();
        branch!($vm $words $taken)
    }};
}

/// Steps a counter and compares it with the signed constant in field b.
macro_rules! loop_const {
    ($vm:ident $session:ident $words:tt $type:ty: |$a:ident, $b:ident| $taken:expr) => {{
        let $a = $vm.a::<$type>().wrapping_add($vm.word.c() as i16 as $type);
        $vm.set($a);
        let $b = $vm.word.b() as i16 as $type;
        branch!($vm $words $taken)
    }};
}

macro_rules! branch_table {
    ($vm:ident $session:ident $words:tt) => {{
        let index = $vm.a::<u32>().min($vm.word.bc());
        let entry = TableEntry($vm.code.get(const $words + index as usize));
        if !$vm.arrive(u32::from(entry.cycles()), || entry.is_loop()) {
            $vm.code.jump_by(entry.distance() - 1);
            break Exit::OutOfCycles(u32::from(entry.cycles()));
        }
        $vm.code.jump_by(entry.distance());
    }};
}

// Charges and jumps.

macro_rules! fault {
    ($vm:ident $session:ident $words:tt $code:expr) => {
        break Exit::Fault($code)
    };
}

macro_rules! charge {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.charge($vm.word.bc());
        $vm.code.step(const $words);
    }};
}

/// Charges `$cycles` at a safepoint, or ends the loop with `$stop`.
macro_rules! arrive {
    ($vm:ident, $cycles:expr, $stop:expr) => {
        if !$vm.arrive($cycles, || true) {
            break $stop;
        }
    };
}

macro_rules! safepoint {
    ($vm:ident $session:ident $words:tt) => {{
        arrive!($vm, $vm.word.bc(), Exit::OutOfCycles($vm.word.bc()));
        $vm.code.step(const $words);
    }};
}

macro_rules! jump {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.charge($vm.word.taken());
        $vm.code.jump_by($vm.word.distance());
    }};
}

macro_rules! jump_loop {
    ($vm:ident $session:ident $words:tt) => {{
        arrive!($vm, $vm.word.taken(), {
            // The loop header is the word before the target.
            $vm.code.jump_by($vm.word.distance() - 1);
            Exit::OutOfCycles($vm.code.fields().bc())
        });
        $vm.code.jump_by($vm.word.distance());
    }};
}

// Loads and stores.

/// The little-endian `$type` at `$address`, or the loop ends.
macro_rules! load_le {
    ($vm:ident $address:expr, $type:ty) => {
        match $vm.memory.load($address) {
            Some(bytes) => <$type>::from_le_bytes(bytes),
            None => break Exit::Fault(FaultCode::MemoryOutOfBounds),
        }
    };
}

macro_rules! store_le {
    ($vm:ident $address:expr, $value:expr) => {
        if !$vm.memory.store($address, $value.to_le_bytes()) {
            break Exit::Fault(FaultCode::MemoryOutOfBounds);
        }
    };
}

macro_rules! load {
    ($vm:ident $session:ident $words:tt $address:ident, $type:ty as $extended:ty) => {{
        let value = load_le!($vm $vm.$address(), $type);
        $vm.set(value as $extended);
        $vm.code.step(const $words);
    }};
}

macro_rules! store {
    ($vm:ident $session:ident $words:tt $address:ident, $type:ty) => {{
        store_le!($vm $vm.$address(), $vm.a::<$type>());
        $vm.code.step(const $words);
    }};
}

macro_rules! store_const {
    ($vm:ident $session:ident $words:tt $type:ty) => {{
        store_le!($vm $vm.near(), ($vm.word.a() as i16 as $type));
        $vm.code.step(const $words);
    }};
}

// Globals, references, tables, memories.

macro_rules! global_get {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.set($session.globals[($vm.instance.first_global + $vm.word.bc()) as usize]);
        $vm.code.step(const $words);
    }};
}

macro_rules! global_set {
    ($vm:ident $session:ident $words:tt) => {{
        $session.globals[($vm.instance.first_global + $vm.word.bc()) as usize] = $vm.a();
        $vm.code.step(const $words);
    }};
}

macro_rules! global_get_import {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.set($session.globals[$vm.instance.globals[$vm.word.bc() as usize] as usize]);
        $vm.code.step(const $words);
    }};
}

macro_rules! global_set_import {
    ($vm:ident $session:ident $words:tt) => {{
        $session.globals[$vm.instance.globals[$vm.word.bc() as usize] as usize] = $vm.a();
        $vm.code.step(const $words);
    }};
}

macro_rules! ref_func {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.set(u64::from($vm.instance.functions[$vm.word.bc() as usize]) + 1);
        $vm.code.step(const $words);
    }};
}

macro_rules! table_get {
    ($vm:ident $session:ident $words:tt) => {{
        let table = &$session.tables[$vm.instance.tables[usize::from($vm.word.c())] as usize];
        let Some(&value) = table.elements.get($vm.b::<u32>() as usize) else {
            break Exit::Fault(FaultCode::TableOutOfBounds);
        };
        $vm.set(value);
        $vm.code.step(const $words);
    }};
}

macro_rules! table_set {
    ($vm:ident $session:ident $words:tt) => {{
        let table = &mut $session.tables[$vm.instance.tables[usize::from($vm.word.c())] as usize];
        let Some(element) = table.elements.get_mut($vm.a::<u32>() as usize) else {
            break Exit::Fault(FaultCode::TableOutOfBounds);
        };
        *element = $vm.b();
        $vm.code.step(const $words);
    }};
}

macro_rules! table_size {
    ($vm:ident $session:ident $words:tt) => {{
        let table = &$session.tables[$vm.instance.tables[$vm.word.bc() as usize] as usize];
        $vm.set(table.elements.len() as u64);
        $vm.code.step(const $words);
    }};
}

macro_rules! memory_size {
    ($vm:ident $session:ident $words:tt) => {{
        $vm.set($vm.pages());
        $vm.code.step(const $words);
    }};
}

macro_rules! drop_segment {
    ($vm:ident $session:ident $words:tt $kind:ident) => {{
        $session.dropped[usize::from($vm.instance.id)].$kind[$vm.word.bc() as usize] = true;
        $vm.code.step(const $words);
    }};
}

/// Runs a bulk operation on the session's store, which may pause before it is paid; the memory may
/// move. `left` is passed as a copy: its address must not escape.
macro_rules! prepaid {
    ($vm:ident $session:ident |$store:ident, $budget:ident| $run:expr) => {{
        core::hint::cold_path();
        let vm = $vm.with_memory(Bytes::new(None));
        #[allow(unused_mut, reason = "some operations consume it")]
        let mut $store = Store {
            instance: vm.instance,
            memories: $session.memories.as_mut_slice(),
            tables: $session.tables.as_mut_slice(),
            globals: $session.globals.as_slice(),
            dropped: &$session.dropped[usize::from(vm.instance.id)],
            limits: $session.limits,
        };
        let mut $budget = Budget { left: i64::from(vm.left), paid: *vm.paid };
        let result = $run;
        let instance = vm.instance;
        $vm = vm.with_memory(memory_of(&mut $session.memories, instance));
        ($vm.left, *$vm.paid) = ($budget.left as i32, $budget.paid);
        match result {
            Ok(value) => value,
            Err(Pause::Unpaid(next)) => break Exit::out_of_cycles(next),
            Err(Pause::Fault(code)) => break Exit::Fault(code),
        }
    }};
}

/// A bulk operation on three operands without a result; its indices, if any, are the second word.
macro_rules! bulk {
    ($vm:ident $session:ident $words:tt $op:ident) => {{
        let operands = [$vm.a::<u32>(), $vm.b::<u32>(), $vm.c::<u32>()];
        let indices = if const $words > 1 { $vm.code.get(1) } else { 0 };
        prepaid!(
            $vm $session |store, budget| bulk::run(Op::$op, operands, indices, store, &mut budget)
        );
        $vm.code.step(const $words);
    }};
}

macro_rules! table_grow {
    ($vm:ident $session:ident $words:tt) => {{
        let (value, count, table) = ($vm.b::<u64>(), $vm.c::<u32>(), $vm.code.get(1) as usize);
        let old = prepaid!(
            $vm $session |store, budget| store.table_grow(table, value, count, &mut budget)
        );
        $vm.set(old);
        $vm.code.step(const $words);
    }};
}

macro_rules! table_fill {
    ($vm:ident $session:ident $words:tt) => {{
        let (to, value, count) = ($vm.a::<u32>(), $vm.b::<u64>(), $vm.c::<u32>());
        let table = $vm.code.get(1) as usize;
        prepaid!(
            $vm $session |store, budget| store.table_fill(table, to, value, count, &mut budget)
        );
        $vm.code.step(const $words);
    }};
}

macro_rules! memory_grow {
    ($vm:ident $session:ident $words:tt) => {{
        let pages = $vm.b::<u32>();
        let old = prepaid!($vm $session |store, budget| store.memory_grow(pages, &mut budget));
        $vm.set(old);
        $vm.code.step(const $words);
    }};
}

// Calls and returns.

/// Enters the function at `code`, in the window that is already in place.
macro_rules! enter {
    ($vm:ident $session:ident) => {{
        let enter = Word($vm.code.get(0));
        arrive!($vm, u32::from(enter.a()), Exit::OutOfCycles(u32::from(enter.a())));
        let registers = usize::from(enter.b());
        if $vm.window.room() < registers {
            core::hint::cold_path();
            if !$vm.window.grow(registers, &$session.limits, &$session.stack_bytes_held) {
                break Exit::Fault(FaultCode::StackExhausted);
            }
        }
        let locals = usize::from(enter.c());
        if locals != 0 {
            $vm.window.clear(usize::from($vm.code.get(1) as u16), locals);
        }
        $vm.code.step(const { Form::Enter.words() as usize });
    }};
    ($vm:ident $session:ident $words:tt) => {
        enter!($vm $session)
    };
}

/// Continues in another instance's code, at its first word.
macro_rules! enter_instance {
    ($vm:ident $session:ident $to:expr) => {{
        core::hint::cold_path();
        let to: u16 = $to;
        let instance = &$session.instances[usize::from(to)];
        let vm = $vm.with_memory(Bytes::new(None));
        $vm = vm.with_memory(memory_of(&mut $session.memories, instance));
        *$vm.instance_id = to;
        $vm.instance = instance;
        $vm.code = Cursor::new(instance.module.code().words(), 0);
    }};
}

/// Returns to the caller, or finishes. The results are in place.
macro_rules! leave {
    ($vm:ident $session:ident $link:ident, $results:expr) => {{
        if $link.tag() != 0 {
            cold();
            if $link.tag() == Link::BOTTOM {
                break Exit::Finished($results);
            }
            enter_instance!($vm $session $link.tag() - 1);
        }
        $vm.window.retreat(usize::from($link.distance()));
        $vm.code.jump($link.word() as usize);
        let cycles = $vm.code.fields().bc();
        arrive!($vm, cycles, Exit::OutOfCycles(cycles));
        $vm.code.step(const { Form::Cost.words() as usize });
    }};
}

macro_rules! return_none {
    ($vm:ident $session:ident $words:tt) => {{
        let link = Link($vm.a());
        leave!($vm $session link, 0);
    }};
}

macro_rules! return_one {
    ($vm:ident $session:ident $words:tt) => {{
        let link = Link($vm.a());
        $vm.set_register(0, $vm.b::<u64>());
        leave!($vm $session link, 1);
    }};
}

macro_rules! return_many {
    ($vm:ident $session:ident $words:tt) => {{
        let link = Link($vm.a());
        $vm.window.copy(0, usize::from($vm.word.b()), usize::from($vm.word.c()));
        leave!($vm $session link, $vm.word.c());
    }};
}

macro_rules! call {
    ($vm:ident $session:ident $words:tt) => {{
        let (first, count) = (usize::from($vm.word.a()), usize::from($vm.word.b()));
        let word = $vm.code.position() as u32 + const { ($words) as u32 };
        $vm.window.set(first + count, Link::new(word, $vm.word.a(), 0).0);
        $vm.code.jump($vm.word.low() as usize);
        $vm.window.advance(first);
        enter!($vm $session);
    }};
}

macro_rules! return_call {
    ($vm:ident $session:ident $words:tt) => {{
        let link = $vm.c::<u64>();
        let (first, count) = (usize::from($vm.word.a()), usize::from($vm.word.b()));
        $vm.window.copy(0, first, count);
        $vm.window.set(count, link);
        $vm.code.jump($vm.word.low() as usize);
        enter!($vm $session);
    }};
}

/// Calls a guest function found at run time; `$tail_link` is the register of the link to keep if it
/// is a tail call.
macro_rules! call_guest {
    ($vm:ident $session:ident $words:tt $entry:expr, $tail_link:expr) => {{
        let entry: FunctionEntry = $entry;
        let tail_link: Option<u16> = $tail_link;
        let (first, count) = (usize::from($vm.word.a()), usize::from($vm.word.b()));
        let is_other = entry.instance != u32::from($vm.instance.id);
        match tail_link {
            None => {
                let word = $vm.code.position() as u32 + const { ($words) as u32 };
                let tag = if is_other { $vm.instance.id + 1 } else { 0 };
                $vm.window.set(first + count, Link::new(word, first as u16, tag).0);
                $vm.window.advance(first);
            }
            Some(register) => {
                let mut link = Link($vm.window.get(usize::from(register)));
                if is_other && link.tag() == 0 {
                    link = Link::new(link.word(), link.distance(), $vm.instance.id + 1);
                }
                $vm.window.copy(0, first, count);
                $vm.window.set(count, link.0);
            }
        }
        if is_other {
            enter_instance!($vm $session entry.instance as u16);
        }
        $vm.code.jump(entry.entry as usize);
        enter!($vm $session);
    }};
}

/// Calls a host function that is not offered to [`crate::Host::call`].
macro_rules! call_host {
    ($vm:ident $words:tt $host:expr) => {{
        let host = $host;
        arrive!($vm, host.cost, Exit::OutOfCycles(host.cost));
        if S::SWITCHES && u32::from(host.call.number) == $vm.yield_function {
            debug_assert!(host.call.results == 0);
            $vm.code.step(const $words);
            break Exit::YIELDED;
        }
        if S::SWITCHES && host.may_block && $vm.host.call_blocking(host.call.number, $vm.a()) {
            $vm.code.step(const $words);
            break Exit::BLOCKED;
        }
        *$vm.state = host.called($vm.word.a());
        break Exit::HOST;
    }};
}

macro_rules! call_entry {
    ($vm:ident $session:ident $words:tt $entry:expr, $tail_link:expr) => {{
        let entry: FunctionEntry = $entry;
        if entry.instance == FunctionEntry::HOST {
            call_host!($vm $words &$session.hosts[entry.entry as usize]);
        }
        call_guest!($vm $session $words entry, $tail_link);
    }};
}

/// The function that an indirect call names, of the expected type.
macro_rules! callee {
    ($vm:ident $session:ident $second:ident) => {{
        let table = $vm.instance.tables[usize::from(($second >> 32) as u16)];
        let Some(&reference) =
            $session.tables[table as usize].elements.get($vm.c::<u32>() as usize)
        else {
            break Exit::Fault(FaultCode::UndefinedElement);
        };
        if reference == 0 {
            break Exit::Fault(FaultCode::UninitializedElement);
        }
        let Some(&entry) = $session.functions.get(reference as usize - 1) else {
            break Exit::Fault(FaultCode::UndefinedElement);
        };
        if entry.type_id != $vm.instance.types[$second as u32 as usize] {
            break Exit::Fault(FaultCode::IndirectCallTypeMismatch);
        }
        entry
    }};
}

macro_rules! call_indirect {
    ($vm:ident $session:ident $words:tt) => {{
        let second = $vm.code.get(1);
        call_entry!($vm $session $words callee!($vm $session second), None);
    }};
}

macro_rules! return_call_indirect {
    ($vm:ident $session:ident $words:tt) => {{
        let second = $vm.code.get(1);
        call_entry!($vm $session $words callee!($vm $session second), Some((second >> 48) as u16));
    }};
}

macro_rules! return_call_import {
    ($vm:ident $session:ident $words:tt) => {{
        let function = $vm.instance.functions[$vm.code.get(1) as usize];
        call_entry!($vm $session $words $session.functions[function as usize], Some($vm.word.c()));
    }};
}

/// Offers the call to the host, with its first two arguments.
macro_rules! offer {
    ($vm:ident $words:tt $host:expr) => {{
        let (first, host) = (usize::from($vm.word.a()), $host);
        arrive!($vm, host.cost, Exit::OutOfCycles(host.cost));
        let (argument, other) = ($vm.window.get(first), $vm.window.get(first + 1));
        let outcome = $vm.host.call(host.call.number, argument, other, $vm.memory.length());
        if !outcome.is_just_done() {
            if let Some(number) = outcome.just_number() {
                write_number(&mut $vm.memory, $vm.window.get(first + 1), number);
            } else if outcome.is_blocked() {
                *$vm.state = host.called($vm.word.a());
                break Exit::BLOCKED;
            } else if !outcome.is_completed() {
                *$vm.state = host.called($vm.word.a());
                break match outcome.spawn_table() {
                    Some(table) => Exit::Spawn(table),
                    None => Exit::HOST,
                };
            } else {
                $vm.shorten_slice(outcome.shortens_by());
                let result = result_of(outcome, &mut $vm.memory, $vm.window.get(first + 1));
                let result = if host.call.narrow != 0 { u64::from(result as u32) } else { result };
                $vm.window.set(first, result);
                // On to the safepoint that follows, at which it may stop.
                $vm.code.step(const $words);
                continue;
            }
        }
        $vm.window.set(first, 0);
        // Skip the safepoint that follows, charged here as after a return, and a branch after it
        // that tests the result.
        arrive!($vm, $vm.word.high(), {
            $vm.code.step(const $words);
            debug_assert!(matches!($vm.code.fields().op(), Op::Safepoint));
            Exit::OutOfCycles($vm.code.fields().bc())
        });
        $vm.code.jump_by(i32::from($vm.word.c()));
    }};
}

macro_rules! call_import {
    ($vm:ident $session:ident $words:tt) => {{
        let host = match import($vm.instance, u64::from($vm.word.low())) {
            Import::Offered(host) if S::SWITCHES => host,
            Import::Host(host) | Import::Offered(host) => call_host!($vm $words host),
            &Import::Guest(entry) => {
                core::hint::cold_path();
                call_guest!($vm $session $words entry, None);
                continue;
            }
        };
        offer!($vm $words host);
    }};
}
