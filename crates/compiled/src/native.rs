//! The only unsafe code: executable memory and the call into it.
//!
//! The memory is mapped writable, filled, and then made executable and read-only: it is never
//! writable and executable at once. It is unmapped when [`CodeMemory`] is dropped.
//!
//! Why a call of native code is sound. V1 to V10 are the rules of `wavelock_module::verify`, which
//! accepted the code that was compiled.
//!
//! - *It jumps to code only.* Entries come from [`CodeMemory::resume`], which has one element per
//!   word of the module; every index into it is a call's entry (V5), a link's word (only calls
//!   write links, V4), or the entry of a function of the running instance, whose module this is.
//! - *Slots.* A register is below the window's size (V4). `enter` compares the window's end with
//!   the end of the stack before it reads or writes a slot, and leaves if the stack is short;
//!   [`CodeMemory::run`] checks the same for an entry at another stop point. Calls advance the
//!   window inside the caller's (V5), returns restore it.
//! - *Memory.* Every access compares its end with the length; an effective address is below 2^33
//!   (V6), so it does not wrap. The mark of a byte inside the memory exists: asserted on entry.
//! - *Globals, tables, types, functions.* Indices of globals, tables and types exist (V6, V5);
//!   those of elements and functions are compared with the lengths.
//! - *Nothing moves meanwhile.* All pointers come from borrows that last as long as the call. What
//!   can move them (growing a stack, memory or table) is left to the interpreter.
//! - *The host's stack.* Guest calls are tail calls; one activation uses the trampoline's frame and
//!   one function's, which compilation limits.
#![allow(unsafe_code)]

use std::io;
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};
use wavelock_machine::{NativeReason, NativeState, NativeStop};
use wavelock_module::Module;

use wavelock_abi::FaultCode;

use crate::context::{Context, ExitKind, Resume, TableView};

/// The first instructions of functions are aligned to this.
pub(crate) const ALIGNMENT: usize = 64;

type Trampoline = unsafe extern "C" fn(*mut Context, *mut u64, i32, u64, *const u8) -> u64;

/// The native code of one module.
pub(crate) struct CodeMemory {
    memory: Mmap,
    resume: Box<[Resume]>,
}

// SAFETY: the memory is never written again, and the pointers in `resume` point into it.
unsafe impl Send for CodeMemory {}
// SAFETY: as above; running code needs `&self` only and writes what the caller borrows exclusively.
unsafe impl Sync for CodeMemory {}

/// Where the code of a word is: an offset into the bytes, and the entry's number.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) offset: usize,
    pub(crate) number: u64,
}

impl CodeMemory {
    /// Makes `bytes` executable: the trampoline is at 0, the stub that leaves at `stub`. `entries`
    /// has the code for each word of the module, if there is any.
    pub(crate) fn new(bytes: &[u8], stub: usize, entries: &[Option<Entry>]) -> io::Result<Self> {
        let mut memory = MmapMut::map_anon(bytes.len())?;
        memory[..bytes.len()].copy_from_slice(bytes);
        let memory = memory.make_exec()?;
        let at = |offset: usize| memory[offset..].as_ptr();
        let resume = entries.iter().enumerate().map(|(word, entry)| match entry {
            Some(entry) => Resume { code: at(entry.offset), entry: entry.number },
            None => Resume { code: at(stub), entry: word as u64 },
        });
        let resume = resume.collect();
        Ok(Self { memory, resume })
    }

    /// Bytes of code.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// Runs native code from `state.word` on; `tables` is a buffer. `registers` is the size of the
    /// window of the function that the word is in, 0 at the function's entry. `None` if the stack
    /// does not hold the window.
    pub(crate) fn run(
        &self,
        state: NativeState<'_>,
        registers: u16,
        module: &Arc<Module>,
        tables: &mut Vec<TableView>,
    ) -> Option<NativeStop> {
        let NativeState { word, window, left, stack, memory, dirty, globals, .. } = state;
        assert!(
            Arc::ptr_eq(state.module, module) && self.resume.len() == module.code().words().len(),
            "the code of this module"
        );
        assert!(dirty.len() == memory.len() >> 12, "one mark per dirty page");
        let defined = module.globals().len() - module.imported_globals() as usize;
        assert!(
            defined <= globals.len()
                && module.tables().len() == state.table_indices.len()
                && module.types().len() == state.types.len(),
            "an instance of this module"
        );
        let start = window as usize;
        if start + usize::from(registers) > stack.len() {
            return None;
        }
        tables.clear();
        tables.extend(state.table_indices.iter().map(|&table| {
            let elements = state.tables[table as usize].elements();
            TableView { elements: elements.as_ptr(), length: elements.len() as u64 }
        }));
        let resume = self.resume[word as usize];
        let first = stack.as_mut_ptr();
        let mut context = Context {
            memory: memory.as_mut_ptr(),
            length: memory.len() as u64,
            dirty: dirty.as_mut_ptr(),
            globals: globals.as_mut_ptr(),
            stack_end: first.wrapping_add(stack.len()),
            resume: self.resume.as_ptr(),
            tables: tables.as_ptr(),
            functions: state.functions.as_ptr(),
            function_count: state.functions.len() as u64,
            types: state.types.as_ptr(),
            instance: state.instance,
            window: first,
            link: 0,
            word,
            left,
        };
        // SAFETY: offset 0 holds the trampoline, which has this type.
        let trampoline: Trampoline = unsafe { std::mem::transmute(self.memory.as_ptr()) };
        // SAFETY: the header of this file; `start` is inside the stack.
        let code = unsafe {
            trampoline(&raw mut context, first.add(start), left, resume.entry, resume.code)
        };
        // SAFETY: a stop stores the address of a window of the same stack.
        let window = unsafe { context.window.offset_from(first) };
        let value = code >> 8;
        let reason = match code as u8 {
            kind if kind == ExitKind::OutOfCycles as u8 => NativeReason::OutOfCycles(value as u32),
            kind if kind == ExitKind::Interpret as u8 => NativeReason::Interpret,
            kind if kind == ExitKind::Finished as u8 => NativeReason::Finished(value as u16),
            kind if kind == ExitKind::Fault as u8 => NativeReason::Fault(
                FaultCode::from_code(value as u8).expect("compiled from a fault code"),
            ),
            _ => NativeReason::Return(context.link),
        };
        let window = u32::try_from(window).expect("a window inside the stack");
        Some(NativeStop { word: context.word, window, left: context.left, reason })
    }
}
