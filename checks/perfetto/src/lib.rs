//! Bytes against Perfetto's own schema: nothing unknown, every wire type and enumeration right, and
//! the rules that its documentation adds.
//!
//! The schema is the `.proto` files of a dependency, found with `cargo metadata` and read at run
//! time; nothing is generated. What the writer means by its tracks is tested beside it, in
//! `crates/view`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod rules;
mod schema;

pub use rules::{Counts, check};
pub use schema::Schema;
