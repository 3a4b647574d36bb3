//! The control plane: a process that hosts many recorded machines and is spoken to over HTTP.
//!
//! 1. [`Settings`] say where its files are, where it listens and what others may cost
//!    ([`Limits`]).
//! 2. A [`Server`] starts the machines of its folder, each on a thread of its own, and answers
//!    requests on another. `docs/serve.md` has the interface, [`openapi`] its description.
//! 3. A machine's files are trace segments. Each begins with a state and has every input before it
//!    is acknowledged, so a machine goes on after a kill at any moment with the same digest.
//!
//! The law kept here: every change of a machine is an input of it, recorded and acknowledged when
//! it is durable; nothing else here reaches a digest. No request, client, guest or file can stop
//! the process, or a machine that it is not for.
//!
//! ```no_run
//! use wavelock_serve::{Server, Settings};
//! let server = Server::start(&Settings::new("machines"))?;
//! if let Some(token) = server.first_token() {
//!     println!("http://{} with the token {token}", server.address());
//! }
//! server.wait();
//! # Ok::<(), std::io::Error>(())
//! ```
#![forbid(unsafe_code)]

mod settings;

mod problem;

mod feed;
mod orders;
mod store;

mod actor;
mod history;
mod registry;

mod audit;
mod metrics;
mod rates;
mod tokens;

mod http;
mod server;

pub use http::openapi;
pub use server::Server;
pub use settings::{Limits, Settings, Sync};
