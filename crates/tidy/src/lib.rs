//! The house rules of this repository, checked by an ordinary `cargo test`.
//!
//! [`Tree`] is the input of the rules: every tracked file, and the packages from `cargo metadata`.
//! [`RULES`] is the table of rules; [`check`] returns every [`Finding`]. Rust files are read as
//! tokens ([`token`], [`source`]), so a banned word in a string or a comment does not count. No
//! list of files is kept by hand: everything in the tree is checked.
//!
//! The law kept here: every rule can fail. `tests/planted.rs` has, for each rule, a tree that
//! breaks it and a similar one that does not, and fails if a rule has no such pair.
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
