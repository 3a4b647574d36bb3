//! What native code and its caller share: the context and the table of entries.

/// Read by native code, except for the last four fields, which it writes when it stops. Nothing
/// else is written while native code runs.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) memory: *mut u8,
    /// Bytes of the memory.
    pub(crate) length: u64,
    /// One byte per page of 4 KiB.
    pub(crate) dirty: *mut u8,
    /// The first global that the module defines.
    pub(crate) globals: *mut u64,
    /// The end of the coroutine's stack.
    pub(crate) stack_end: *const u64,
    /// By word of the module's code.
    pub(crate) resume: *const Resume,
    /// By table of the module.
    pub(crate) tables: *const TableView,
    pub(crate) functions: *const wavelock_machine::FunctionEntry,
    pub(crate) function_count: u64,
    /// By type of the module: the session's number of it.
    pub(crate) types: *const u32,
    /// The number of the running instance.
    pub(crate) instance: u32,
    /// The address of register 0 of the innermost frame.
    pub(crate) window: *mut u64,
    /// The link of a return to another instance.
    pub(crate) link: u64,
    pub(crate) word: u32,
    pub(crate) left: i32,
}

/// Where native code for a word is, and which of its function's entries.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Resume {
    pub(crate) code: *const u8,
    /// The word itself where there is none: `code` is then the stub that leaves.
    pub(crate) entry: u64,
}

pub(crate) const RESUME_BYTES: usize = size_of::<Resume>();

/// The elements of a table.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct TableView {
    pub(crate) elements: *const u64,
    pub(crate) length: u64,
}

const _: () = assert!(
    RESUME_BYTES == 16
        && size_of::<TableView>() == 16
        && size_of::<wavelock_machine::FunctionEntry>() == 16,
    "native code multiplies by these sizes"
);

/// Why native code returned: the lowest byte of what it returns; a value is above.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum ExitKind {
    OutOfCycles,
    Interpret,
    Finished,
    Fault,
    Return,
}

/// The offset of a field of the context.
macro_rules! field {
    ($name:ident) => {
        std::mem::offset_of!(Context, $name) as i32
    };
}
pub(crate) use field;
