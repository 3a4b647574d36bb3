//! Checks traces against Perfetto's own schema: no unknown fields, correct wire types and enum
//! values, and the rules of its documentation.
//!
//! The schema is the `.proto` files of a dependency, found with `cargo metadata` and read at run
//! time; nothing is generated. Elsewhere: the tests of `crates/view` check the meaning of the
//! tracks.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod rules;
mod schema;

pub use rules::{Counts, check};
pub use schema::Schema;
