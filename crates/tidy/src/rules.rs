//! The table of rules. Each is a pure function of the tree; the code of a group of rules is in the
//! file of its name.

mod citations;
mod code;
mod core;
mod layers;
mod manifest;
mod text;

use crate::tree::{Finding, Tree};

/// A rule of the house.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Its name, as findings give it.
    pub name: &'static str,
    /// What it asks for, in one sentence.
    pub law: &'static str,
    /// Adds what breaks it.
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
        law: "abi, kernel and certify use nothing from outside the workspace",
        check: layers::core_dependencies,
    },
    Rule {
        name: "reason",
        law: "a dependency from outside is named once, in the root manifest, beside its reason",
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
        law: "no strings made in abi, kernel and certify",
        check: core::strings,
    },
    Rule {
        name: "unsafe",
        law: "crate roots forbid unsafe code; one named file each of cli, machine and waves may hold it",
        check: code::unsafe_code,
    },
    Rule { name: "header", law: "a Rust file opens with what it is", check: code::headers },
    Rule {
        name: "long-function",
        law: "a function over 100 lines says why above it; in machine and module none is over 300",
        check: code::long_functions,
    },
    Rule {
        name: "columns",
        law: "a line of Rust ends at 100 columns, string literals, rows of tables and guests aside",
        check: code::columns,
    },
    Rule { name: "lane-fields", law: "`Lane` has at most 48 fields", check: code::lane_fields },
    Rule { name: "ignored-test", law: "no test is ignored", check: code::ignored_tests },
    Rule { name: "unfinished", law: "no marks of unfinished work", check: code::unfinished },
    Rule {
        name: "machine-path",
        law: "no path of somebody's machine in a tracked file",
        check: text::machine_paths,
    },
    Rule {
        name: "registry",
        law: "no package registry but the public ones in a tracked file",
        check: text::registries,
    },
    Rule { name: "link", law: "links between documents lead somewhere", check: text::links },
    Rule {
        name: "docs-index",
        law: "every page below docs is linked from its index",
        check: text::docs_index,
    },
    Rule {
        name: "citation",
        law: "a rule, section or law of the specification that is cited exists in docs/spec",
        check: citations::citations,
    },
    Rule {
        name: "named-test",
        law: "a test that CAVEATS.md or the page of laws names exists",
        check: text::named_tests,
    },
    Rule {
        name: "code-map",
        law: "ARCHITECTURE.md maps every crate, in `ls` order",
        check: text::code_map,
    },
];

/// Everything in the tree that breaks a rule, in order of path.
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
