//! The run loop: one function over one set of small handlers.
//!
//! State that changes with every instruction (place in the code, window, cycles left, memory) is in locals; everything else is reached
//! through the session. A stop writes the place and window back and is complete: nothing of a run is left on the host's stack.
//!
//! Charging: a branch carries the cost of both ways it can go and charges it as it goes. At a safepoint (`safepoint`, `enter`, a jump to a
//! loop header, a return) the coroutine stops if nothing is left, before the next block is charged.

use alloc::boxed::Box;
use alloc::vec::Vec;

use wavelock_abi::{Cycles, FaultCode};
use wavelock_module::{BranchWord, Op, Word};

use crate::bulk::{self, Pause, Purse, Store};
use crate::coroutine::{Coroutine, HostCall, Link, State, Stop};
use crate::number::{self, double, single};
use crate::raw::{self, Bytes, Window, Words};
use crate::session::{FunctionEntry, Instance, Session};

/// Why the loop ended.
enum Exit {
    /// At a safepoint with nothing left; what comes next costs this.
    OutOfCycles(u64),
    Host(State),
    Finished(u16),
    Fault(FaultCode),
}

/// Runs `coroutine` in `session` for at most `cycles` (and less than [`Session::gap`] beyond), and says why it stopped.
///
/// A coroutine that waits in a host call answers that call again; one that has ended, its end.
pub fn run(session: &mut Session, coroutine: &mut Coroutine, cycles: Cycles) -> Stop {
    match coroutine.state {
        State::Ready => {}
        State::Host { number, .. } => return Stop::Host(HostCall { number }),
        State::Finished { .. } => return Stop::Finished,
        State::Faulted(code) => return Stop::Fault(coroutine.fault_at(session, code)),
    }
    swap_globals(session, coroutine);
    let exit = execute(session, coroutine, i64::try_from(cycles.0).unwrap_or(i64::MAX));
    swap_globals(session, coroutine);
    match exit {
        Exit::OutOfCycles(next) => Stop::OutOfCycles { next: Cycles(next) },
        Exit::Host(state) => {
            coroutine.state = state;
            let State::Host { number, .. } = state else { unreachable!("a host exit carries a host state") };
            Stop::Host(HostCall { number })
        }
        Exit::Finished(results) => {
            coroutine.state = State::Finished { results };
            coroutine.word = Coroutine::NO_WORD;
            Stop::Finished
        }
        Exit::Fault(code) => {
            coroutine.state = State::Faulted(code);
            Stop::Fault(coroutine.fault_at(session, code))
        }
    }
}

/// Exchanges the session's cells of coroutine-local globals with the coroutine's own values.
#[inline(always)]
fn swap_globals(session: &mut Session, coroutine: &mut Coroutine) {
    for (own, &global) in coroutine.stack.iter_mut().zip(&session.coroutine_globals) {
        core::mem::swap(own, &mut session.globals[global as usize]);
    }
}

/// Marks a path as unlikely.
#[cold]
#[inline(never)]
fn cold() {}

/// Makes the stack at least `needed` slots long, unless that exceeds `most`.
#[cold]
#[inline(never)]
fn grow(stack: &mut Box<[u64]>, needed: usize, most: usize) -> bool {
    if needed > most {
        return false;
    }
    let length = (stack.len() * 2).clamp(needed, most);
    let mut slots = Vec::from(core::mem::take(stack));
    slots.reserve_exact(length - slots.len());
    slots.resize(length, 0);
    *stack = slots.into_boxed_slice();
    true
}

/// The memory an instance uses.
fn memory_of<'a>(memories: &'a mut [crate::memory::Memory], instance: &Instance) -> Bytes<'a> {
    Bytes::new(memories.get_mut(instance.memory as usize))
}

// Long: one arm per lowered instruction; the arms are small.
fn execute(session: &mut Session, coroutine: &mut Coroutine, bound: i64) -> Exit {
    let Session { functions, hosts, memories, tables, globals, instances, dropped, limits, .. } = session;
    let most_slots = limits.stack_bytes as usize / 8;
    let mut stack = core::mem::take(&mut coroutine.stack);
    let mut current = coroutine.instance;
    let mut instance = &instances[usize::from(current)];
    let mut words = Words::new(instance.module.code().words());
    let mut memory = memory_of(memories, instance);
    let mut window = Window::new(&mut stack, coroutine.window as usize);
    let mut at = coroutine.word as usize;
    let mut left = bound;

    /// A register named by a field.
    macro_rules! get {
        ($word:expr, $field:ident) => {
            window.get(usize::from($word.$field()))
        };
    }
    macro_rules! set {
        ($word:expr, $value:expr) => {{
            let value: u64 = $value;
            window.set(usize::from($word.a()), value);
        }};
    }

    let exit = loop {
        let word = Word(words.get(at));

        /// Runs a store-wide operation that may pause; the memory may move.
        macro_rules! bulk {
            (|$store:ident, $purse:ident| $run:expr, |$value:ident| $then:expr) => {{
                let $store = Store {
                    instance,
                    memories: memories.as_mut_slice(),
                    tables: tables.as_mut_slice(),
                    globals: globals.as_slice(),
                    dropped: &dropped[usize::from(current)],
                    limits,
                };
                let $purse = Purse { left: &mut left, paid: &mut coroutine.paid };
                let result = $run;
                memory = memory_of(memories, instance);
                match result {
                    Ok($value) => $then,
                    Err(Pause::Unpaid(next)) => break Exit::OutOfCycles(next),
                    Err(Pause::Fault(code)) => break Exit::Fault(code),
                }
            }};
        }
        macro_rules! unary {
            (|$a:ident| $value:expr) => {{
                let $a = get!(word, b);
                set!(word, $value);
                at += 1;
            }};
        }
        macro_rules! binary {
            (|$a:ident, $b:ident| $value:expr) => {{
                let ($a, $b) = (get!(word, b), get!(word, c));
                set!(word, $value);
                at += 1;
            }};
        }
        macro_rules! constant {
            (|$a:ident, $b:ident| $value:expr) => {{
                let ($a, $b) = (get!(word, b), words.get(at + 1));
                set!(word, $value);
                at += 2;
            }};
        }
        macro_rules! faulting {
            (|$a:ident, $b:ident| $value:expr) => {{
                let ($a, $b) = (get!(word, b), get!(word, c));
                match $value {
                    Ok(value) => set!(word, value),
                    Err(code) => break Exit::Fault(code),
                }
                at += 1;
            }};
        }
        macro_rules! convert {
            ($value:expr) => {{
                match $value {
                    Ok(value) => set!(word, value as u64),
                    Err(code) => break Exit::Fault(code),
                }
                at += 1;
            }};
        }
        macro_rules! branch {
            ($taken:expr, $flags:ident) => {{
                let branch = BranchWord(words.get(at + 1));
                if $taken {
                    at = branch.target() as usize;
                    if left <= 0 {
                        cold();
                        if word.$flags() & BranchWord::LOOP != 0 {
                            at -= 1;
                            break Exit::OutOfCycles(u64::from(branch.taken()));
                        }
                    }
                    left -= i64::from(branch.taken());
                } else {
                    left -= i64::from(branch.fallen());
                    at += 2;
                }
            }};
        }
        macro_rules! branch_two {
            (|$a:ident, $b:ident| $taken:expr) => {{
                let ($a, $b) = (get!(word, a), get!(word, b));
                branch!($taken, c)
            }};
        }
        macro_rules! branch_constant {
            (|$a:ident, $b:ident| $taken:expr) => {{
                let ($a, $b) = (get!(word, a), word.c() as i16);
                branch!($taken, b)
            }};
        }
        macro_rules! load {
            ($offset:expr, $size:literal, |$bytes:ident| $value:expr, $words:literal) => {{
                let address = u64::from(get!(word, b) as u32) + $offset;
                let Some($bytes) = memory.load::<$size>(address) else { break Exit::Fault(FaultCode::MemoryOutOfBounds) };
                set!(word, $value);
                at += $words;
            }};
        }
        macro_rules! near {
            ($size:literal, |$bytes:ident| $value:expr) => {
                load!(u64::from(word.c()), $size, |$bytes| $value, 1)
            };
        }
        macro_rules! far {
            ($size:literal, |$bytes:ident| $value:expr) => {
                load!(words.get(at + 1), $size, |$bytes| $value, 2)
            };
        }
        macro_rules! store {
            ($offset:expr, $as:ty, $words:literal) => {{
                let address = u64::from(get!(word, b) as u32) + $offset;
                if !memory.store(address, (get!(word, a) as $as).to_le_bytes()) {
                    break Exit::Fault(FaultCode::MemoryOutOfBounds);
                }
                at += $words;
            }};
        }
        /// Enters the function whose `enter` is at `at`, in the window already moved to.
        macro_rules! enter {
            () => {{
                let enter = Word(words.get(at));
                if left <= 0 {
                    break Exit::OutOfCycles(u64::from(enter.a()));
                }
                left -= i64::from(enter.a());
                let registers = usize::from(enter.b());
                if window.room() < registers {
                    let position = window.position();
                    let grown = grow(&mut stack, position + registers, most_slots);
                    window = Window::new(&mut stack, position);
                    if !grown {
                        break Exit::Fault(FaultCode::StackExhausted);
                    }
                }
                let locals = usize::from(enter.c());
                if locals != 0 {
                    window.clear(usize::from(words.get(at + 1) as u16), locals);
                }
                at += 2;
            }};
        }
        /// Goes to another instance's code.
        macro_rules! switch {
            ($to:expr) => {{
                current = $to;
                instance = &instances[usize::from(current)];
                words = Words::new(instance.module.code().words());
                memory = memory_of(memories, instance);
            }};
        }
        /// Returns to the caller, or finishes. The results are in place.
        macro_rules! leave {
            ($link:ident, $results:expr) => {{
                if $link.tag() != 0 {
                    cold();
                    if $link.tag() == Link::BOTTOM {
                        break Exit::Finished($results);
                    }
                    switch!($link.tag() - 1);
                }
                window.retreat(usize::from($link.distance()));
                at = $link.word() as usize;
                let point = Word(words.get(at));
                if left <= 0 {
                    break Exit::OutOfCycles(u64::from(point.a()));
                }
                left -= i64::from(point.a());
                at += 1;
            }};
        }
        /// Replaces this frame by a call of what is at `first..first + count`.
        macro_rules! replace {
            ($first:expr, $count:expr, $link:expr) => {{
                window.copy(0, $first, $count);
                window.set($count, $link);
            }};
        }
        /// Calls a function found at run time.
        macro_rules! call_entry {
            ($entry:expr, $tail_link:expr) => {{
                let entry: FunctionEntry = $entry;
                let (first, count) = (usize::from(word.a()), usize::from(word.b()));
                if entry.instance == FunctionEntry::HOST {
                    let host = &hosts[entry.entry as usize];
                    if left <= 0 {
                        break Exit::OutOfCycles(u64::from(host.cost));
                    }
                    left -= i64::from(host.cost);
                    break Exit::Host(State::Host {
                        number: host.number,
                        first: word.a(),
                        arguments: host.parameters,
                        results: host.results,
                        narrow: host.narrow,
                    });
                }
                let other = entry.instance != u32::from(current);
                match $tail_link {
                    None => {
                        let tag = if other { current + 1 } else { 0 };
                        window.set(first + count, Link::new(at as u32 + 2, first as u16, tag).0);
                        window.advance(first);
                    }
                    Some(register) => {
                        let register: u16 = register;
                        let mut link = Link(window.get(usize::from(register)));
                        if other && link.tag() == 0 {
                            link = Link::new(link.word(), link.distance(), current + 1);
                        }
                        replace!(first, count, link.0);
                    }
                }
                if other {
                    switch!(entry.instance as u16);
                }
                at = entry.entry as usize;
                enter!();
            }};
        }
        macro_rules! indirect {
            ($second:ident) => {{
                let table = instance.tables[usize::from(($second >> 32) as u16)];
                let index = get!(word, c) as u32;
                let Some(&reference) = tables[table as usize].elements.get(index as usize) else {
                    break Exit::Fault(FaultCode::UndefinedElement);
                };
                if reference == 0 {
                    break Exit::Fault(FaultCode::UninitializedElement);
                }
                let Some(&entry) = functions.get(reference as usize - 1) else { break Exit::Fault(FaultCode::UndefinedElement) };
                if entry.type_id != instance.types[$second as u32 as usize] {
                    break Exit::Fault(FaultCode::IndirectCallTypeMismatch);
                }
                entry
            }};
        }

        match raw::op(word) {
            Op::Unreachable => break Exit::Fault(FaultCode::Unreachable),
            Op::Charge => {
                left -= i64::from(word.a());
                at += 1;
            }
            Op::Safepoint => {
                if left <= 0 {
                    break Exit::OutOfCycles(u64::from(word.a()));
                }
                left -= i64::from(word.a());
                at += 1;
            }
            Op::Enter => enter!(),
            Op::Jump => {
                left -= i64::from(word.a());
                at = word.bc() as usize;
            }
            Op::JumpLoop => {
                at = word.bc() as usize;
                if left <= 0 {
                    at -= 1;
                    break Exit::OutOfCycles(u64::from(word.a()));
                }
                left -= i64::from(word.a());
            }
            Op::BranchTable => {
                let index = (get!(word, a) as u32).min(word.bc());
                let branch = BranchWord(words.get(at + 1 + index as usize));
                at = branch.target() as usize;
                if left <= 0 && branch.fallen() & BranchWord::LOOP != 0 {
                    at -= 1;
                    break Exit::OutOfCycles(u64::from(branch.taken()));
                }
                left -= i64::from(branch.taken());
            }
            Op::Return => {
                let link = Link(get!(word, a));
                leave!(link, 0);
            }
            Op::ReturnOne => {
                let link = Link(get!(word, a));
                let value = get!(word, b);
                window.set(0, value);
                leave!(link, 1);
            }
            Op::ReturnMany => {
                let link = Link(get!(word, a));
                window.copy(0, usize::from(word.b()), usize::from(word.c()));
                leave!(link, word.c());
            }
            Op::Call => {
                let (first, count) = (usize::from(word.a()), usize::from(word.b()));
                window.set(first + count, Link::new(at as u32 + 2, word.a(), 0).0);
                at = words.get(at + 1) as u32 as usize;
                window.advance(first);
                enter!();
            }
            Op::ReturnCall => {
                let link = get!(word, c);
                replace!(usize::from(word.a()), usize::from(word.b()), link);
                at = words.get(at + 1) as u32 as usize;
                enter!();
            }
            Op::CallImport => {
                let function = instance.functions[words.get(at + 1) as usize];
                call_entry!(functions[function as usize], None);
            }
            Op::ReturnCallImport => {
                let function = instance.functions[words.get(at + 1) as usize];
                call_entry!(functions[function as usize], Some(word.c()));
            }
            Op::CallIndirect => {
                let second = words.get(at + 1);
                call_entry!(indirect!(second), None);
            }
            Op::ReturnCallIndirect => {
                let second = words.get(at + 1);
                call_entry!(indirect!(second), Some((second >> 48) as u16));
            }
            Op::BranchIf => {
                let condition = get!(word, a);
                branch!(condition != 0, c);
            }
            Op::BranchIfNot => {
                let condition = get!(word, a);
                branch!(condition == 0, c);
            }
            Op::BranchI32Eq => branch_two!(|a, b| a as u32 == b as u32),
            Op::BranchI32Ne => branch_two!(|a, b| a as u32 != b as u32),
            Op::BranchI32LtS => branch_two!(|a, b| (a as i32) < b as i32),
            Op::BranchI32LtU => branch_two!(|a, b| (a as u32) < b as u32),
            Op::BranchI32LeS => branch_two!(|a, b| a as i32 <= b as i32),
            Op::BranchI32LeU => branch_two!(|a, b| a as u32 <= b as u32),
            Op::BranchI64Eq => branch_two!(|a, b| a == b),
            Op::BranchI64Ne => branch_two!(|a, b| a != b),
            Op::BranchI64LtS => branch_two!(|a, b| (a as i64) < b as i64),
            Op::BranchI64LtU => branch_two!(|a, b| a < b),
            Op::BranchI64LeS => branch_two!(|a, b| a as i64 <= b as i64),
            Op::BranchI64LeU => branch_two!(|a, b| a <= b),
            Op::BranchI32EqConst => branch_constant!(|a, b| a as i32 == i32::from(b)),
            Op::BranchI32NeConst => branch_constant!(|a, b| a as i32 != i32::from(b)),
            Op::BranchI32LtSConst => branch_constant!(|a, b| (a as i32) < i32::from(b)),
            Op::BranchI32LtUConst => branch_constant!(|a, b| (a as u32) < i32::from(b) as u32),
            Op::BranchI32GtSConst => branch_constant!(|a, b| a as i32 > i32::from(b)),
            Op::BranchI32GtUConst => branch_constant!(|a, b| a as u32 > i32::from(b) as u32),
            Op::BranchI64EqConst => branch_constant!(|a, b| a as i64 == i64::from(b)),
            Op::BranchI64NeConst => branch_constant!(|a, b| a as i64 != i64::from(b)),
            Op::BranchI64LtSConst => branch_constant!(|a, b| (a as i64) < i64::from(b)),
            Op::BranchI64LtUConst => branch_constant!(|a, b| a < i64::from(b) as u64),
            Op::BranchI64GtSConst => branch_constant!(|a, b| a as i64 > i64::from(b)),
            Op::BranchI64GtUConst => branch_constant!(|a, b| a > i64::from(b) as u64),
            Op::Copy => unary!(|a| a),
            Op::CopyRange => {
                window.copy(usize::from(word.a()), usize::from(word.b()), usize::from(word.c()));
                at += 1;
            }
            Op::Const32 => {
                set!(word, u64::from(word.bc()));
                at += 1;
            }
            Op::Const64 => {
                set!(word, words.get(at + 1));
                at += 2;
            }
            Op::Select => {
                let condition = window.get(usize::from(words.get(at + 1) as u16));
                let (then, otherwise) = (get!(word, b), get!(word, c));
                set!(word, if condition != 0 { then } else { otherwise });
                at += 2;
            }
            Op::GlobalGet => {
                set!(word, globals[(instance.first_global + word.bc()) as usize]);
                at += 1;
            }
            Op::GlobalSet => {
                globals[(instance.first_global + word.bc()) as usize] = get!(word, a);
                at += 1;
            }
            Op::GlobalGetImport => {
                set!(word, globals[instance.globals[word.bc() as usize] as usize]);
                at += 1;
            }
            Op::GlobalSetImport => {
                globals[instance.globals[word.bc() as usize] as usize] = get!(word, a);
                at += 1;
            }
            Op::RefFunc => {
                set!(word, u64::from(instance.functions[word.bc() as usize]) + 1);
                at += 1;
            }
            Op::TableGet => {
                let table = &tables[instance.tables[usize::from(word.c())] as usize];
                let Some(&value) = table.elements.get(get!(word, b) as u32 as usize) else {
                    break Exit::Fault(FaultCode::TableOutOfBounds);
                };
                set!(word, value);
                at += 1;
            }
            Op::TableSet => {
                let table = &mut tables[instance.tables[usize::from(word.c())] as usize];
                let Some(element) = table.elements.get_mut(get!(word, a) as u32 as usize) else {
                    break Exit::Fault(FaultCode::TableOutOfBounds);
                };
                *element = get!(word, b);
                at += 1;
            }
            Op::TableSize => {
                let table = &tables[instance.tables[word.bc() as usize] as usize];
                set!(word, table.elements.len() as u64);
                at += 1;
            }
            Op::TableGrow => {
                let (value, count) = (get!(word, b), get!(word, c) as u32);
                let table = words.get(at + 1) as usize;
                bulk!(|store, purse| { { store }.table_grow(table, value, count, &mut { purse }) }, |old| {
                    set!(word, u64::from(old));
                    at += 2;
                });
            }
            Op::TableFill => {
                let [to, value, count] = bulk::operands(word).map(|register| window.get(register));
                let table = words.get(at + 1) as usize;
                bulk!(|store, purse| { { store }.table_fill(table, to as u32, value, count as u32, &mut { purse }) }, |_done| {
                    at += 2;
                });
            }
            Op::MemorySize => {
                let pages = memories_pages(&memory);
                set!(word, pages);
                at += 1;
            }
            Op::MemoryGrow => {
                let pages = get!(word, b) as u32;
                bulk!(|store, purse| { { store }.memory_grow(pages, &mut { purse }) }, |old| {
                    set!(word, u64::from(old));
                    at += 1;
                });
            }
            op @ (Op::MemoryFill | Op::MemoryCopy) => {
                let operands = bulk::operands(word).map(|register| window.get(register) as u32);
                bulk!(|store, purse| bulk::run(op, operands, 0, store, purse), |_done| {
                    at += 1;
                });
            }
            op @ (Op::MemoryInit | Op::TableInit | Op::TableCopy) => {
                let operands = bulk::operands(word).map(|register| window.get(register) as u32);
                let second = words.get(at + 1);
                bulk!(|store, purse| bulk::run(op, operands, second, store, purse), |_done| {
                    at += 2;
                });
            }
            Op::ElementDrop => {
                dropped[usize::from(current)].elements[word.bc() as usize] = true;
                at += 1;
            }
            Op::DataDrop => {
                dropped[usize::from(current)].data[word.bc() as usize] = true;
                at += 1;
            }
            Op::Load32 => near!(4, |bytes| u64::from(u32::from_le_bytes(bytes))),
            Op::Load64 => near!(8, |bytes| u64::from_le_bytes(bytes)),
            Op::I32Load8S => near!(1, |bytes| u64::from(i32::from(bytes[0] as i8) as u32)),
            Op::Load8U => near!(1, |bytes| u64::from(bytes[0])),
            Op::I32Load16S => near!(2, |bytes| u64::from(i32::from(i16::from_le_bytes(bytes)) as u32)),
            Op::Load16U => near!(2, |bytes| u64::from(u16::from_le_bytes(bytes))),
            Op::I64Load8S => near!(1, |bytes| i64::from(bytes[0] as i8) as u64),
            Op::I64Load16S => near!(2, |bytes| i64::from(i16::from_le_bytes(bytes)) as u64),
            Op::I64Load32S => near!(4, |bytes| i64::from(i32::from_le_bytes(bytes)) as u64),
            Op::Store8 => store!(u64::from(word.c()), u8, 1),
            Op::Store16 => store!(u64::from(word.c()), u16, 1),
            Op::Store32 => store!(u64::from(word.c()), u32, 1),
            Op::Store64 => store!(u64::from(word.c()), u64, 1),
            Op::Load32Far => far!(4, |bytes| u64::from(u32::from_le_bytes(bytes))),
            Op::Load64Far => far!(8, |bytes| u64::from_le_bytes(bytes)),
            Op::I32Load8SFar => far!(1, |bytes| u64::from(i32::from(bytes[0] as i8) as u32)),
            Op::Load8UFar => far!(1, |bytes| u64::from(bytes[0])),
            Op::I32Load16SFar => far!(2, |bytes| u64::from(i32::from(i16::from_le_bytes(bytes)) as u32)),
            Op::Load16UFar => far!(2, |bytes| u64::from(u16::from_le_bytes(bytes))),
            Op::I64Load8SFar => far!(1, |bytes| i64::from(bytes[0] as i8) as u64),
            Op::I64Load16SFar => far!(2, |bytes| i64::from(i16::from_le_bytes(bytes)) as u64),
            Op::I64Load32SFar => far!(4, |bytes| i64::from(i32::from_le_bytes(bytes)) as u64),
            Op::Store8Far => store!(words.get(at + 1), u8, 2),
            Op::Store16Far => store!(words.get(at + 1), u16, 2),
            Op::Store32Far => store!(words.get(at + 1), u32, 2),
            Op::Store64Far => store!(words.get(at + 1), u64, 2),
            Op::I32Eq => binary!(|a, b| u64::from(a as u32 == b as u32)),
            Op::I32Ne => binary!(|a, b| u64::from(a as u32 != b as u32)),
            Op::I32LtS => binary!(|a, b| u64::from((a as i32) < b as i32)),
            Op::I32LtU => binary!(|a, b| u64::from((a as u32) < b as u32)),
            Op::I32LeS => binary!(|a, b| u64::from(a as i32 <= b as i32)),
            Op::I32LeU => binary!(|a, b| u64::from(a as u32 <= b as u32)),
            Op::I64Eq => binary!(|a, b| u64::from(a == b)),
            Op::I64Ne => binary!(|a, b| u64::from(a != b)),
            Op::I64LtS => binary!(|a, b| u64::from((a as i64) < b as i64)),
            Op::I64LtU => binary!(|a, b| u64::from(a < b)),
            Op::I64LeS => binary!(|a, b| u64::from(a as i64 <= b as i64)),
            Op::I64LeU => binary!(|a, b| u64::from(a <= b)),
            Op::I32EqConst => constant!(|a, b| u64::from(a as u32 == b as u32)),
            Op::I32NeConst => constant!(|a, b| u64::from(a as u32 != b as u32)),
            Op::I32LtSConst => constant!(|a, b| u64::from((a as i32) < b as i32)),
            Op::I32LtUConst => constant!(|a, b| u64::from((a as u32) < b as u32)),
            Op::I32GtSConst => constant!(|a, b| u64::from(a as i32 > b as i32)),
            Op::I32GtUConst => constant!(|a, b| u64::from(a as u32 > b as u32)),
            Op::I64EqConst => constant!(|a, b| u64::from(a == b)),
            Op::I64NeConst => constant!(|a, b| u64::from(a != b)),
            Op::I64LtSConst => constant!(|a, b| u64::from((a as i64) < b as i64)),
            Op::I64LtUConst => constant!(|a, b| u64::from(a < b)),
            Op::I64GtSConst => constant!(|a, b| u64::from(a as i64 > b as i64)),
            Op::I64GtUConst => constant!(|a, b| u64::from(a > b)),
            Op::F32Eq => binary!(|a, b| u64::from(single::eq(a, b))),
            Op::F32Ne => binary!(|a, b| u64::from(!single::eq(a, b))),
            Op::F32Lt => binary!(|a, b| u64::from(single::lt(a, b))),
            Op::F32Le => binary!(|a, b| u64::from(single::le(a, b))),
            Op::F64Eq => binary!(|a, b| u64::from(double::eq(a, b))),
            Op::F64Ne => binary!(|a, b| u64::from(!double::eq(a, b))),
            Op::F64Lt => binary!(|a, b| u64::from(double::lt(a, b))),
            Op::F64Le => binary!(|a, b| u64::from(double::le(a, b))),
            Op::I32Add => binary!(|a, b| u64::from((a as u32).wrapping_add(b as u32))),
            Op::I32Sub => binary!(|a, b| u64::from((a as u32).wrapping_sub(b as u32))),
            Op::I32Mul => binary!(|a, b| u64::from((a as u32).wrapping_mul(b as u32))),
            Op::I32And => binary!(|a, b| a & b),
            Op::I32Or => binary!(|a, b| a | b),
            Op::I32Xor => binary!(|a, b| a ^ b),
            Op::I32Shl => binary!(|a, b| u64::from((a as u32).wrapping_shl(b as u32))),
            Op::I32ShrS => binary!(|a, b| u64::from((a as i32).wrapping_shr(b as u32) as u32)),
            Op::I32ShrU => binary!(|a, b| u64::from((a as u32).wrapping_shr(b as u32))),
            Op::I32Rotl => binary!(|a, b| u64::from((a as u32).rotate_left(b as u32 & 31))),
            Op::I32Rotr => binary!(|a, b| u64::from((a as u32).rotate_right(b as u32 & 31))),
            Op::I32DivS => faulting!(|a, b| number::div_i32(a as i32, b as i32).map(|value| u64::from(value as u32))),
            Op::I32DivU => faulting!(|a, b| number::div_u32(a as u32, b as u32).map(u64::from)),
            Op::I32RemS => faulting!(|a, b| number::rem_i32(a as i32, b as i32).map(|value| u64::from(value as u32))),
            Op::I32RemU => faulting!(|a, b| number::rem_u32(a as u32, b as u32).map(u64::from)),
            Op::I64Add => binary!(|a, b| a.wrapping_add(b)),
            Op::I64Sub => binary!(|a, b| a.wrapping_sub(b)),
            Op::I64Mul => binary!(|a, b| a.wrapping_mul(b)),
            Op::I64And => binary!(|a, b| a & b),
            Op::I64Or => binary!(|a, b| a | b),
            Op::I64Xor => binary!(|a, b| a ^ b),
            Op::I64Shl => binary!(|a, b| a.wrapping_shl(b as u32)),
            Op::I64ShrS => binary!(|a, b| (a as i64).wrapping_shr(b as u32) as u64),
            Op::I64ShrU => binary!(|a, b| a.wrapping_shr(b as u32)),
            Op::I64Rotl => binary!(|a, b| a.rotate_left(b as u32 & 63)),
            Op::I64Rotr => binary!(|a, b| a.rotate_right(b as u32 & 63)),
            Op::I64DivS => faulting!(|a, b| number::div_i64(a as i64, b as i64).map(|value| value as u64)),
            Op::I64DivU => faulting!(|a, b| number::div_u64(a, b)),
            Op::I64RemS => faulting!(|a, b| number::rem_i64(a as i64, b as i64).map(|value| value as u64)),
            Op::I64RemU => faulting!(|a, b| number::rem_u64(a, b)),
            Op::I32AddConst => constant!(|a, b| u64::from((a as u32).wrapping_add(b as u32))),
            Op::I32MulConst => constant!(|a, b| u64::from((a as u32).wrapping_mul(b as u32))),
            Op::I32AndConst => constant!(|a, b| a & b),
            Op::I32OrConst => constant!(|a, b| a | b),
            Op::I32XorConst => constant!(|a, b| a ^ b),
            Op::I32ShlConst => constant!(|a, b| u64::from((a as u32).wrapping_shl(b as u32))),
            Op::I32ShrSConst => constant!(|a, b| u64::from((a as i32).wrapping_shr(b as u32) as u32)),
            Op::I32ShrUConst => constant!(|a, b| u64::from((a as u32).wrapping_shr(b as u32))),
            Op::I32RotlConst => constant!(|a, b| u64::from((a as u32).rotate_left(b as u32 & 31))),
            Op::I32DivUConst => constant!(|a, b| u64::from((a as u32).checked_div(b as u32).unwrap_or(0))),
            Op::I32RemUConst => constant!(|a, b| u64::from((a as u32).checked_rem(b as u32).unwrap_or(0))),
            Op::I64AddConst => constant!(|a, b| a.wrapping_add(b)),
            Op::I64MulConst => constant!(|a, b| a.wrapping_mul(b)),
            Op::I64AndConst => constant!(|a, b| a & b),
            Op::I64OrConst => constant!(|a, b| a | b),
            Op::I64XorConst => constant!(|a, b| a ^ b),
            Op::I64ShlConst => constant!(|a, b| a.wrapping_shl(b as u32)),
            Op::I64ShrSConst => constant!(|a, b| (a as i64).wrapping_shr(b as u32) as u64),
            Op::I64ShrUConst => constant!(|a, b| a.wrapping_shr(b as u32)),
            Op::I64RotlConst => constant!(|a, b| a.rotate_left(b as u32 & 63)),
            Op::I64DivUConst => constant!(|a, b| a.checked_div(b).unwrap_or(0)),
            Op::I64RemUConst => constant!(|a, b| a.checked_rem(b).unwrap_or(0)),
            Op::I32Clz => unary!(|a| u64::from((a as u32).leading_zeros())),
            Op::I32Ctz => unary!(|a| u64::from((a as u32).trailing_zeros())),
            Op::I32Popcnt => unary!(|a| u64::from((a as u32).count_ones())),
            Op::I32Extend8S => unary!(|a| u64::from(i32::from(a as i8) as u32)),
            Op::I32Extend16S => unary!(|a| u64::from(i32::from(a as i16) as u32)),
            Op::I64Clz => unary!(|a| u64::from(a.leading_zeros())),
            Op::I64Ctz => unary!(|a| u64::from(a.trailing_zeros())),
            Op::I64Popcnt => unary!(|a| u64::from(a.count_ones())),
            Op::I64Extend8S => unary!(|a| i64::from(a as i8) as u64),
            Op::I64Extend16S => unary!(|a| i64::from(a as i16) as u64),
            Op::I64Extend32S => unary!(|a| i64::from(a as i32) as u64),
            Op::I32WrapI64 => unary!(|a| u64::from(a as u32)),
            Op::F32Add => binary!(|a, b| single::add(a, b)),
            Op::F32Sub => binary!(|a, b| single::sub(a, b)),
            Op::F32Mul => binary!(|a, b| single::mul(a, b)),
            Op::F32Div => binary!(|a, b| single::div(a, b)),
            Op::F32Min => binary!(|a, b| single::min(a, b)),
            Op::F32Max => binary!(|a, b| single::max(a, b)),
            Op::F32Copysign => binary!(|a, b| single::copysign(a, b)),
            Op::F64Add => binary!(|a, b| double::add(a, b)),
            Op::F64Sub => binary!(|a, b| double::sub(a, b)),
            Op::F64Mul => binary!(|a, b| double::mul(a, b)),
            Op::F64Div => binary!(|a, b| double::div(a, b)),
            Op::F64Min => binary!(|a, b| double::min(a, b)),
            Op::F64Max => binary!(|a, b| double::max(a, b)),
            Op::F64Copysign => binary!(|a, b| double::copysign(a, b)),
            Op::F32Abs => unary!(|a| single::abs(a)),
            Op::F32Neg => unary!(|a| single::neg(a)),
            Op::F32Ceil => unary!(|a| single::ceil(a)),
            Op::F32Floor => unary!(|a| single::floor(a)),
            Op::F32Trunc => unary!(|a| single::trunc(a)),
            Op::F32Nearest => unary!(|a| single::nearest(a)),
            Op::F32Sqrt => unary!(|a| single::sqrt(a)),
            Op::F64Abs => unary!(|a| double::abs(a)),
            Op::F64Neg => unary!(|a| double::neg(a)),
            Op::F64Ceil => unary!(|a| double::ceil(a)),
            Op::F64Floor => unary!(|a| double::floor(a)),
            Op::F64Trunc => unary!(|a| double::trunc(a)),
            Op::F64Nearest => unary!(|a| double::nearest(a)),
            Op::F64Sqrt => unary!(|a| double::sqrt(a)),
            Op::I32TruncF32S => convert!(number::i32_from_f32(get!(word, b)).map(|value| value as u32)),
            Op::I32TruncF32U => convert!(number::u32_from_f32(get!(word, b))),
            Op::I32TruncF64S => convert!(number::i32_from_f64(get!(word, b)).map(|value| value as u32)),
            Op::I32TruncF64U => convert!(number::u32_from_f64(get!(word, b))),
            Op::I64TruncF32S => convert!(number::i64_from_f32(get!(word, b))),
            Op::I64TruncF32U => convert!(number::u64_from_f32(get!(word, b))),
            Op::I64TruncF64S => convert!(number::i64_from_f64(get!(word, b))),
            Op::I64TruncF64U => convert!(number::u64_from_f64(get!(word, b))),
            Op::I32TruncSatF32S => unary!(|a| u64::from(f32::from_bits(a as u32) as i32 as u32)),
            Op::I32TruncSatF32U => unary!(|a| u64::from(f32::from_bits(a as u32) as u32)),
            Op::I32TruncSatF64S => unary!(|a| u64::from(f64::from_bits(a) as i32 as u32)),
            Op::I32TruncSatF64U => unary!(|a| u64::from(f64::from_bits(a) as u32)),
            Op::I64TruncSatF32S => unary!(|a| f32::from_bits(a as u32) as i64 as u64),
            Op::I64TruncSatF32U => unary!(|a| f32::from_bits(a as u32) as u64),
            Op::I64TruncSatF64S => unary!(|a| f64::from_bits(a) as i64 as u64),
            Op::I64TruncSatF64U => unary!(|a| f64::from_bits(a) as u64),
            Op::F32ConvertI32S => unary!(|a| u64::from((a as i32 as f32).to_bits())),
            Op::F32ConvertI32U => unary!(|a| u64::from((a as u32 as f32).to_bits())),
            Op::F32ConvertI64S => unary!(|a| u64::from((a as i64 as f32).to_bits())),
            Op::F32ConvertI64U => unary!(|a| u64::from((a as f32).to_bits())),
            Op::F64ConvertI32S => unary!(|a| f64::from(a as i32).to_bits()),
            Op::F64ConvertI32U => unary!(|a| f64::from(a as u32).to_bits()),
            Op::F64ConvertI64S => unary!(|a| (a as i64 as f64).to_bits()),
            Op::F64ConvertI64U => unary!(|a| (a as f64).to_bits()),
            Op::F32DemoteF64 => unary!(|a| number::demote(a)),
            Op::F64PromoteF32 => unary!(|a| number::promote(a)),
        }
    };

    coroutine.window = window.position() as u32;
    coroutine.stack = stack;
    coroutine.word = at as u32;
    coroutine.instance = current;
    coroutine.used += (bound - left) as u64;
    exit
}

/// Pages of the running memory.
fn memories_pages(memory: &Bytes<'_>) -> u64 {
    memory.length() / crate::memory::PAGE_BYTES as u64
}
