//! The house rules of this repository, as data and functions that an ordinary `cargo test` runs
//! over the tree.
//!
//! [`Tree`] is what the rules read: every tracked file and what `cargo metadata` says of the
//! packages. [`RULES`] is the one table of rules; [`check`] gives every [`Finding`]. Rust files are
//! read as tokens ([`token`], [`source`]), so a banned word in a string or a comment is nobody's
//! business. Nothing here lists files by hand: what is in the tree is checked.
//!
//! The law kept: a rule that cannot fail is not a rule. `tests/planted.rs` holds, for each rule, a
//! tree that trips it and one that looks similar and does not, and fails when a rule has no such
//! pair.
//!
//! ```
//! use wavelock_tidy::{Tree, check};
//! let tree = Tree::of(&[("crates/abi/src/ids.rs", "pub struct Id(u32);\n")]);
//! assert!(check(&tree).iter().any(|finding| finding.rule == "header"));
//! ```
#![forbid(unsafe_code)]

mod rules;
pub mod source;
pub mod token;
mod tree;

pub use rules::{RULES, Rule, check};
pub use tree::{Dependency, DependencyKind, File, Finding, Package, Tree, TreeError};
