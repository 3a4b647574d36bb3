//! The lowered instruction set: one table from which the enum, the printer and the documentation
//! expand.
//!
//! An instruction is one or more 64-bit words. The first is `[op:16 | a:16 | b:16 | c:16]`, low
//! bits first; its [`Form`] defines the fields and the number of words. `r` below is a register: a
//! 64-bit slot of the running function's window.

macro_rules! forms {
    ($($name:ident, $words:literal, $text:literal;)*) => {
        /// How an instruction's words are laid out.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Form {
            $(#[doc = $text] $name,)*
        }

        impl Form {
            /// Every form.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// What the fields mean.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Words of an instruction of this form, without the entries of a branch table.
            #[must_use]
            pub const fn words(self) -> u32 {
                match self { $(Self::$name => $words,)* }
            }
        }
    };
}

forms! {
    Plain, 1, "No operands";
    Cost, 1, "b and c: cycles to charge";
    Enter, 2, "a: cycles, b: registers of the window, c: locals to clear; then `[first local:16 | parameters:16 | function:32]`";
    Jump, 2, "then `[distance:32 | cycles of the target's block:32]`";
    BranchOne, 3, "a: condition r; then two branch words";
    BranchTwo, 3, "a, b: r; then two branch words";
    BranchConst, 3, "a: r, c: signed constant; then two branch words";
    BranchTable, 1, "a: index r, b and c: number of entries before the default; then an entry for each, and the default: `[distance:32 | cycles:16 | flags:16]`";
    Return, 1, "a: link r";
    ReturnOne, 1, "a: link r, b: result r";
    ReturnMany, 1, "a: link r, b: first result r, c: number of results";
    Call, 2, "a: first argument r, b: number of arguments, c: own link r; then `[entry word:32 | function:32]`";
    CallImport, 2, "a: first argument r, b: number of arguments, c: distance in words to where it continues if the result is 0; then `[imported function:32 | cycles of that path:32]`";
    ReturnCallImport, 2, "a: first argument r, b: number of arguments, c: own link r; then the imported function";
    CallIndirect, 2, "a: first argument r, b: number of arguments, c: index r; then `[type:32 | table:16 | own link r:16]`";
    Target, 1, "a: destination r";
    Unary, 1, "a: destination r, b: source r";
    Binary, 1, "a: destination r, b and c: source r";
    BinaryConst, 2, "a: destination r, b: source r; then a 64-bit constant";
    Const32, 1, "a: destination r, b and c: a zero-extended 32-bit constant";
    Const64, 2, "a: destination r; then a 64-bit constant";
    ConstCopy, 2, "a: r, b and c: a zero-extended 32-bit constant for it; then `[destination r:16 | source r:16]` of a copy";
    ConstLoad, 2, "a: destination r, b and c: address; then a 64-bit offset";
    Ternary, 2, "a: destination r, b and c: source r; then a third source r";
    TernaryConst, 2, "a: destination r, b and c: source r; then a 64-bit constant";
    MulAddConst, 2, "a: destination r, b: source r; then `[factor:32 | addend:32]`";
    CopyTwo, 2, "a and b: destination and source r of the first copy, c: destination r of the second; then its source r";
    Range, 1, "a: first destination r, b: first source r, c: how many, ascending";
    Load, 1, "a: destination r, b: address r, c: offset";
    LoadFar, 2, "a: destination r, b: address r; then a 64-bit offset";
    Store, 1, "a: value r, b: address r, c: offset";
    StoreFar, 2, "a: value r, b: address r; then a 64-bit offset";
    LoadPlus, 2, "a: destination r, b: base r; then `[constant:32 | offset:32]`, the constant added modulo 2^32";
    StoreConst, 1, "a: signed constant, b: address r, c: offset";
    LoopTwo, 3, "a: counter r, b: r (0 where the test needs none), c: signed step; then two branch words";
    LoopConst, 3, "a: counter r, b: signed constant, c: signed step; then two branch words";
    Index, 1, "a: r, b and c: an index (global, function, segment or table)";
    Table, 1, "a, b: r, c: table";
    Three, 1, "a, b, c: r";
    ThreeIndex, 2, "a, b, c: r; then `[index:32 | second index:32]`";
}

/// How an instruction charges cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// It does not: its cost is part of its block's charge.
    None,
    /// Charges a block, and never stops.
    Block,
    /// Arrives at a safepoint: stops if no cycles are left, otherwise charges the next block.
    Safepoint,
    /// Charges the block it continues with; a backward branch arrives at a loop header, a
    /// safepoint.
    Branch,
    /// A bulk operation: its size is paid in full, over any number of slices, before it takes
    /// effect.
    Prepaid,
}

impl Cost {
    /// Its name in the instruction table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Block => "block",
            Self::Safepoint => "safepoint",
            Self::Branch => "branch",
            Self::Prepaid => "prepaid",
        }
    }

    /// Whether a coroutine can stop at such an instruction without a fault.
    #[must_use]
    pub const fn may_stop(self) -> bool {
        matches!(self, Self::Safepoint | Self::Branch | Self::Prepaid)
    }
}

macro_rules! ops {
    ([] $(
        $name:ident, $form:ident, $cost:ident, $text:literal, $handler:ident($($semantics:tt)*);
    )*) => {
        /// A lowered instruction.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Op {
            $(#[doc = $text] $name,)*
        }

        impl Op {
            /// Every instruction, in order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The instruction of a number.
            #[must_use]
            pub const fn from_number(number: u16) -> Option<Self> {
                let number = number as usize;
                if number < Self::ALL.len() { Some(Self::ALL[number]) } else { None }
            }

            /// What the printer writes.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// How its words are laid out.
            #[must_use]
            pub const fn form(self) -> Form {
                match self { $(Self::$name => Form::$form,)* }
            }

            /// How it charges cycles.
            #[must_use]
            pub const fn cost(self) -> Cost {
                match self { $(Self::$name => Cost::$cost,)* }
            }

            /// Whether a coroutine can stop here without a fault.
            #[must_use]
            pub const fn may_stop(self) -> bool {
                self.cost().may_stop()
            }
        }
    };
}

crate::instructions!(ops);

impl Op {
    /// Whether it can fault, not counting instructions that can stop.
    #[must_use]
    pub(crate) const fn may_fault(self) -> bool {
        match self.form() {
            Form::Load
            | Form::LoadFar
            | Form::LoadPlus
            | Form::ConstLoad
            | Form::Store
            | Form::StoreFar
            | Form::StoreConst
            | Form::Table => true,
            _ => matches!(
                self,
                Self::Unreachable
                    | Self::I32DivS
                    | Self::I32DivU
                    | Self::I32RemS
                    | Self::I32RemU
                    | Self::I64DivS
                    | Self::I64DivU
                    | Self::I64RemS
                    | Self::I64RemU
                    | Self::I32TruncF32S
                    | Self::I32TruncF32U
                    | Self::I32TruncF64S
                    | Self::I32TruncF64U
                    | Self::I64TruncF32S
                    | Self::I64TruncF32U
                    | Self::I64TruncF64S
                    | Self::I64TruncF64U
            ),
        }
    }

    /// Whether this branch on a register and a constant is taken if the register holds 0; `None` if
    /// it is no such branch.
    pub(crate) const fn taken_for_zero(self, constant: i16) -> Option<bool> {
        Some(match self {
            Self::BranchIf => false,
            Self::BranchIfNot => true,
            Self::BranchI32EqConst | Self::BranchI64EqConst => constant == 0,
            Self::BranchI32NeConst
            | Self::BranchI64NeConst
            | Self::BranchI32LtUConst
            | Self::BranchI64LtUConst => constant != 0,
            Self::BranchI32LtSConst | Self::BranchI64LtSConst => 0 < constant,
            Self::BranchI32GtSConst | Self::BranchI64GtSConst => 0 > constant,
            Self::BranchI32GtUConst | Self::BranchI64GtUConst => false,
            _ => return None,
        })
    }
}

/// The first word of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(pub u64);

impl Word {
    /// Packs an instruction and its fields.
    #[must_use]
    pub const fn new(op: Op, a: u16, b: u16, c: u16) -> Self {
        Self(op as u64 | (a as u64) << 16 | (b as u64) << 32 | (c as u64) << 48)
    }

    /// Packs an instruction, field a, and a 32-bit value in b and c.
    #[must_use]
    pub const fn wide(op: Op, a: u16, bc: u32) -> Self {
        Self(op as u64 | (a as u64) << 16 | (bc as u64) << 32)
    }

    /// The instruction's number.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0 as u16
    }

    /// The instruction, if the number is one.
    #[must_use]
    pub const fn op(self) -> Option<Op> {
        Op::from_number(self.number())
    }

    /// Field a.
    #[must_use]
    #[inline(always)]
    pub const fn a(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Field b.
    #[must_use]
    #[inline(always)]
    pub const fn b(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Field c.
    #[must_use]
    #[inline(always)]
    pub const fn c(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Fields b and c as one number.
    #[must_use]
    #[inline(always)]
    pub const fn bc(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// An entry of a branch table: `[distance:32 | cycles:16 | flags:16]`.
///
/// A distance is the signed number of words from the instruction to its target. The two words that
/// follow other conditional branches are `[distance:32 | cycles if taken:32]` and `[cycles if not
/// taken:32 | stop:32]`: `stop` is the loop header (a `safepoint`) at which a backward branch stops
/// without cycles left; 0 for a forward branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableEntry(pub u64);

impl TableEntry {
    /// Flag: the target is a loop's first word; its header, a safepoint, is the word before.
    pub const LOOP: u16 = 1;

    /// The distance in words from the instruction to the target.
    #[must_use]
    #[inline(always)]
    pub const fn distance(self) -> i32 {
        self.0 as i32
    }

    /// Cycles of the target's block.
    #[must_use]
    #[inline(always)]
    pub const fn cycles(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Whether the target is a loop's first word.
    #[must_use]
    #[inline(always)]
    pub const fn is_loop(self) -> bool {
        (self.0 >> 48) as u16 & Self::LOOP != 0
    }
}
