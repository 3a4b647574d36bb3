//! The table of rules. Each is a pure function of the tree; each group of rules has its own file.

mod citations;
mod code;
mod core;
mod layers;
mod manifest;
mod text;
mod walks;

use crate::tree::{Finding, Tree};

/// A rule of the house.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name in findings.
    pub name: &'static str,
    /// What it requires, in one sentence.
    pub law: &'static str,
    /// Appends a finding for each violation.
    check: fn(&Tree, &mut Vec<Finding>),
}

/// Every rule.
pub const RULES: &[Rule] = &[
    Rule {
        name: "layer",
        law: "dependencies point down the layers of ARCHITECTURE.md, and each package has a layer",
        check: layers::direction,
    },
    Rule {
        name: "core-dependency",
        law: "abi, kernel and certify have no dependencies outside the workspace",
        check: layers::core_dependencies,
    },
    Rule {
        name: "reason",
        law: "a third-party dependency is declared once, in the root manifest, with its reason",
        check: manifest::reasons,
    },
    Rule {
        name: "ambient",
        law: "no clock, environment, thread, hash map or random source below `waves`",
        check: core::ambient,
    },
    Rule { name: "float", law: "no floats in abi, kernel and certify", check: core::floats },
    Rule {
        name: "string",
        law: "no strings are allocated in abi, kernel and certify",
        check: core::strings,
    },
    Rule {
        name: "unsafe",
        law: "crate roots forbid unsafe code; one named file each of c, cli, compiled, machine and waves may contain it",
        check: code::unsafe_code,
    },
    Rule {
        name: "header",
        law: "a Rust file starts with a header that describes it",
        check: code::headers,
    },
    Rule {
        name: "long-function",
        law: "a function over 100 lines has a comment that says why; in machine and module none is over 300",
        check: code::long_functions,
    },
    Rule {
        name: "columns",
        law: "a line of Rust has at most 100 columns, except for string literals, rows of tables and guests",
        check: code::columns,
    },
    Rule { name: "lane-fields", law: "`Lane` has at most 30 fields", check: code::lane_fields },
    Rule { name: "ignored-test", law: "no test is ignored", check: code::ignored_tests },
    Rule { name: "unfinished", law: "no marks of unfinished work", check: code::unfinished },
    Rule {
        name: "machine-path",
        law: "no absolute path of a developer's machine in a tracked file",
        check: text::machine_paths,
    },
    Rule {
        name: "registry",
        law: "no private package registry in a tracked file",
        check: text::registries,
    },
    Rule { name: "link", law: "links between documents resolve", check: text::links },
    Rule {
        name: "docs-index",
        law: "every page in docs is linked from its index",
        check: text::docs_index,
    },
    Rule {
        name: "citation",
        law: "every cited rule, section or law of the specification exists in docs/spec",
        check: citations::citations,
    },
    Rule {
        name: "named-test",
        law: "every test named in CAVEATS.md or the page of laws exists",
        check: text::named_tests,
    },
    Rule {
        name: "code-map",
        law: "the code map in ARCHITECTURE.md lists every crate, in `ls` order",
        check: text::code_map,
    },
    Rule {
        name: "walk",
        law: "what ARCHITECTURE.md's walks and table of fast paths name exists; at most 10 and 12 rows",
        check: walks::walks,
    },
];

/// Every violation of a rule in the tree, in order of path.
#[must_use]
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        (rule.check)(tree, &mut findings);
    }
    findings.sort_by(|left, right| {
        (&left.path, left.line, left.rule).cmp(&(&right.path, right.line, right.rule))
    });
    findings
}
