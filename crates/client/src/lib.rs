//! A client of `wavelock serve`: blocking, typed, one connection that is kept open.
//!
//! 1. [`api`] has the types of the interface, which the server uses too.
//! 2. A [`Client`] sends requests and reads answers.
//! 3. [`Client::watch`] opens a [`Watch`]: frames as they happen, and inputs over the same
//!    connection.
//!
//! The law kept here: what a server answers is untrusted: lengths are bounded, nothing panics.
//!
//! ```no_run
//! use wavelock_client::{Client, api};
//! let token = std::fs::read_to_string("serve/admin.token")?;
//! let mut client = Client::new("http://127.0.0.1:7070", &token)?;
//! for machine in client.machines()?.machines {
//!     println!("{} {:?} frame {}", machine.name, machine.state, machine.frame);
//! }
//! let taken = client.input("chat", Some("red"), &api::Bytes::of(b"hello"))?;
//! println!("durable; taken in frame {}", taken.frame);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod api;
mod client;
mod connection;
mod watch;

pub use client::Client;
pub use connection::Error;
pub use watch::Watch;
