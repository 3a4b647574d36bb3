//! Direction of dependencies between layers, and no third-party dependencies in the core, from
//! `cargo metadata`. Development dependencies are exempt: tests may use any oracle.

use crate::tree::{Dependency, DependencyKind, Finding, Package, Tree};

/// A crate's layer, with restrictions and exceptions to what the layer allows.
struct Row {
    folder: &'static str,
    layer: u8,
    /// If given, the only workspace crates it may use.
    only: Option<&'static [&'static str]>,
    /// Crates of lower layers that it must not use.
    never: &'static [&'static str],
    /// Crates of its own layer that it may use; the table gives the reason for each.
    beside: &'static [&'static str],
}

const fn row(folder: &'static str, layer: u8) -> Row {
    Row { folder, layer, only: None, never: &[], beside: &[] }
}

/// The layer of tools: nothing may use them but tests.
const TOOL: u8 = 100;

/// The layers, numbered as in ARCHITECTURE.md. A package without a row is a finding.
const LAYERS: &[Row] = &[
    row("abi", 0),
    Row { only: Some(&["abi"]), ..row("kernel", 1) },
    Row { only: Some(&["abi"]), ..row("certify", 1) },
    row("module", 1),
    row("trace", 1),
    Row { never: &["kernel"], ..row("machine", 2) },
    // In the workspace of the checks, because it compiles Cranelift.
    row("compiled", 3),
    row("system", 3),
    row("waves", 4),
    row("manifest", 4),
    // Not a test tool: `wavelock soak` runs its machines.
    row("generate", 4),
    row("soak", 5),
    // It verifies a trace on any number of workers, which `waves` runs.
    Row { beside: &["waves"], ..row("replay", 4) },
    // It computes waits from the moments of `view`.
    Row { beside: &["view"], ..row("lab", 5) },
    // It prints events with `view`.
    Row { beside: &["view"], ..row("debug", 5) },
    // Of the kernel it uses only the names of reasons and sources.
    Row { only: Some(&["abi", "kernel", "trace"]), ..row("view", 5) },
    // What an embedder uses of everything below.
    row("wavelock", 5),
    // Types and a client of the server's interface: JSON, and nothing of a machine.
    row("client", 0),
    row("serve", 6),
    // It starts the server.
    Row { beside: &["serve"], ..row("cli", 6) },
    // The crate `wavelock` for C.
    Row { only: Some(&["wavelock"]), ..row("c", 6) },
    row("tidy", TOOL),
    row("xtask", TOOL),
    row("portable", TOOL),
];

/// The crates without third-party dependencies.
const PURE: [&str; 3] = ["abi", "kernel", "certify"];

fn place_of(folder: &str) -> Option<&'static Row> {
    LAYERS.iter().find(|place| place.folder == folder)
}

/// The dependencies of a package, except for those of its tests.
fn shipped(package: &Package) -> impl Iterator<Item = &Dependency> {
    package.dependencies.iter().filter(|dependency| dependency.kind != DependencyKind::Development)
}

pub(super) fn direction(tree: &Tree, findings: &mut Vec<Finding>) {
    for package in &tree.packages {
        let mut find = |message: String| {
            findings.push(Finding { rule: "layer", path: package.folder.clone(), line: 0, message })
        };
        // The public crate has the project's own name.
        let is_public = package.name == "wavelock" && package.folder == "wavelock";
        if !is_public && package.name != format!("wavelock-{}", package.folder) {
            find(format!(
                "package {} in directory {}: its name must be wavelock-{}",
                package.name, package.folder, package.folder
            ));
        }
        let Some(place) = place_of(&package.folder) else {
            find(
                "no layer: add it to the table of layers and to the code map of ARCHITECTURE.md"
                    .to_owned(),
            );
            continue;
        };
        for dependency in shipped(package).filter(|dependency| !dependency.third_party) {
            let Some(used) = tree
                .packages
                .iter()
                .find(|other| other.name == dependency.name)
                .and_then(|other| place_of(&other.folder))
            else {
                find(format!("uses {}, which has no layer", dependency.name));
                continue;
            };
            if used.layer >= place.layer && !place.beside.contains(&used.folder) {
                find(format!(
                    "layer {} uses {}, of layer {}: dependencies point down only",
                    place.layer, used.folder, used.layer
                ));
            }
            if let Some(only) = place.only
                && !only.contains(&used.folder)
            {
                find(format!("uses {}; it may only use {}", used.folder, only.join(" and ")));
            }
            if place.never.contains(&used.folder) {
                find(format!("uses {}, which it must not", used.folder));
            }
        }
    }
}

pub(super) fn core_dependencies(tree: &Tree, findings: &mut Vec<Finding>) {
    for package in tree.packages.iter().filter(|package| PURE.contains(&package.folder.as_str())) {
        for dependency in shipped(package).filter(|dependency| dependency.third_party) {
            let message = format!(
                "uses {} from outside the workspace; {} must not",
                dependency.name,
                PURE.join(", ")
            );
            findings.push(Finding {
                rule: "core-dependency",
                path: package.folder.clone(),
                line: 0,
                message,
            });
        }
    }
}
