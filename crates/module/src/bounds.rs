//! Bounds that a module's author declares: how often a loop repeats, how much a sized operation
//! moves.
//!
//! The custom section `wavelock.bounds` is lines of text, so that linkers which concatenate
//! sections of objects concatenate bounds; a manifest adds lines of its own. A line is
//! `1 KIND ORDINAL BOUND FUNCTION`: the version, `loop` or `size`, which one of the function
//! (from 0), the bound, and the function's export name, its name in the name section, or `#INDEX`.
//! Empty lines and lines that begin with `;` are skipped. Bounds are claims: nothing here proves
//! them. Elsewhere: their use (`wcet`).

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::{ExportKind, Module};

/// The custom section's name.
pub const BOUNDS_SECTION: &str = "wavelock.bounds";

/// The version that every line starts with.
pub const BOUNDS_VERSION: u32 = 1;

/// Bytes of all bounds of a module, above which they are refused.
pub const MOST_BOUNDS_BYTES: usize = 1 << 20;

/// What a bound is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BoundKind {
    /// A loop: the most times that its first instruction runs each time the loop is entered.
    Loop,
    /// A sized operation: the most bytes, elements or pages that it moves or adds.
    Size,
}

impl BoundKind {
    /// The word in a line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Size => "size",
        }
    }
}

/// A line of bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Line {
    /// From 1.
    number: u32,
    kind: BoundKind,
    ordinal: u32,
    bound: u32,
    function: String,
}

/// Bounds as text, not yet resolved against a module. Later lines replace earlier ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bounds {
    lines: Vec<Line>,
}

/// Why a line of bounds is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BoundError {
    /// The line, from 1.
    pub line: u32,
    /// What is wrong with it.
    pub problem: BoundProblem,
}

/// What is wrong with a line of bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BoundProblem {
    /// The section is no UTF-8 text, or too long.
    Text,
    /// It starts with another version.
    Version(String),
    /// It is not `1 KIND ORDINAL BOUND FUNCTION`.
    Form,
    /// A loop that is entered runs at least once.
    Zero,
    /// The module defines no such function.
    NoFunction(String),
    /// Several functions have this name.
    Ambiguous(String),
    /// The function has fewer loops or sized operations.
    Unused {
        /// What the bound is about.
        kind: BoundKind,
        /// Which one it names.
        ordinal: u32,
        /// The function.
        function: String,
        /// How many the function has.
        has: u32,
    },
}

impl fmt::Display for BoundError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "bounds, line {}: ", self.line)?;
        match &self.problem {
            BoundProblem::Text => {
                write!(out, "no UTF-8 text of at most {MOST_BOUNDS_BYTES} bytes")
            }
            BoundProblem::Version(found) => {
                write!(out, "version `{found}`; this Wavelock reads {BOUNDS_VERSION}")
            }
            BoundProblem::Form => write!(
                out,
                "a line is `{BOUNDS_VERSION} loop ORDINAL MOST FUNCTION` or \
                 `{BOUNDS_VERSION} size ORDINAL MOST FUNCTION`"
            ),
            BoundProblem::Zero => write!(out, "a loop that is entered runs at least once"),
            BoundProblem::NoFunction(name) => {
                write!(out, "the module defines no function `{name}`")
            }
            BoundProblem::Ambiguous(name) => {
                write!(out, "several functions are named `{name}`: use `#INDEX`")
            }
            BoundProblem::Unused { kind, ordinal, function, has } => {
                let what = match kind {
                    BoundKind::Loop => "loops",
                    BoundKind::Size => "sized operations",
                };
                write!(out, "{} {ordinal} of `{function}`, which has {has} {what}", kind.name())
            }
        }
    }
}

impl core::error::Error for BoundError {}

impl Bounds {
    /// The bounds of the module's custom section; none if it has none.
    ///
    /// # Errors
    /// The first line that is no bound.
    pub fn of(module: &Module) -> Result<Self, BoundError> {
        let mut bounds = Self::default();
        let text = core::str::from_utf8(&module.bounds)
            .ok()
            .filter(|text| text.len() <= MOST_BOUNDS_BYTES)
            .ok_or(BoundError { line: 1, problem: BoundProblem::Text })?;
        bounds.add(text)?;
        Ok(bounds)
    }

    /// Adds lines, which replace earlier bounds of the same loop or operation.
    ///
    /// # Errors
    /// The first line that is no bound; those before it were added.
    pub fn add(&mut self, text: &str) -> Result<(), BoundError> {
        for (number, line) in (1..).zip(text.split(['\n', '\0'])) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(';') {
                continue;
            }
            let read =
                read(number, line).map_err(|problem| BoundError { line: number, problem })?;
            self.lines.push(read);
        }
        Ok(())
    }
}

fn read(number: u32, line: &str) -> Result<Line, BoundProblem> {
    let mut words = line.splitn(5, ' ');
    let version = words.next().unwrap_or("");
    if version.parse() != Ok(BOUNDS_VERSION) {
        return Err(BoundProblem::Version(version.to_owned()));
    }
    let kind = match words.next() {
        Some("loop") => BoundKind::Loop,
        Some("size") => BoundKind::Size,
        _ => return Err(BoundProblem::Form),
    };
    let mut count = || words.next().and_then(|word| word.parse().ok()).ok_or(BoundProblem::Form);
    let (ordinal, bound) = (count()?, count()?);
    let function = words.next().map(str::trim).filter(|name| !name.is_empty());
    let function = function.ok_or(BoundProblem::Form)?.to_owned();
    if kind == BoundKind::Loop && bound == 0 {
        return Err(BoundProblem::Zero);
    }
    Ok(Line { number, kind, ordinal, bound, function })
}

/// Bounds by function index, kind and ordinal.
pub(crate) struct Resolved {
    found: BTreeMap<(u32, BoundKind, u32), (u32, u32)>,
}

impl Resolved {
    pub(crate) fn new(bounds: &Bounds, module: &Module) -> Result<Self, BoundError> {
        let mut names: BTreeMap<&str, Option<u32>> = BTreeMap::new();
        if !bounds.lines.is_empty() {
            // An export's name is unique; two functions of one name in the name section are not.
            for (index, name) in &module.names.functions {
                names.entry(name).and_modify(|known| *known = None).or_insert(Some(*index));
            }
            for export in module.exports() {
                if let ExportKind::Function(index) = export.kind {
                    names.insert(&export.name, Some(index));
                }
            }
        }
        let mut found = BTreeMap::new();
        for line in &bounds.lines {
            let fail = |problem| Err(BoundError { line: line.number, problem });
            let name = line.function.as_str();
            let index = match name.strip_prefix('#').and_then(|index| index.parse().ok()) {
                Some(index) => Some(index),
                None => match names.get(name) {
                    Some(None) => return fail(BoundProblem::Ambiguous(name.to_owned())),
                    Some(Some(index)) => Some(*index),
                    None => None,
                },
            };
            let defined = module.imported_functions()..module.function_count();
            let Some(index) = index.filter(|index| defined.contains(index)) else {
                return fail(BoundProblem::NoFunction(name.to_owned()));
            };
            found.insert((index, line.kind, line.ordinal), (line.bound, line.number));
        }
        Ok(Self { found })
    }

    pub(crate) fn get(&self, function: u32, kind: BoundKind, ordinal: u32) -> Option<u64> {
        self.found.get(&(function, kind, ordinal)).map(|found| u64::from(found.0))
    }

    /// The first bound that names more than `function` has of a kind.
    pub(crate) fn unused(
        &self,
        module: &Module,
        function: u32,
        kind: BoundKind,
        has: u32,
    ) -> Option<BoundError> {
        let beyond = (function, kind, has)..=(function, kind, u32::MAX);
        let (&(_, _, ordinal), &(_, line)) = self.found.range(beyond).next()?;
        let function = crate::wcet::name(module, function);
        Some(BoundError { line, problem: BoundProblem::Unused { kind, ordinal, function, has } })
    }
}
