//! The fair queue: EEVDF over the sessions and coroutines of one lane (cpu-authority phase D).
//!
//! Reading order: [`FairSettings`] and [`Share`] are the parameters; [`FairQueue`] is one queue of
//! entities; `FairLane` is the queue of a lane, flat or of sessions that contain coroutines;
//! [`Carried`] is what an entity keeps when it moves to another lane; [`FairState`] and
//! [`FairSessionState`] are plain data.
//!
//! Contract: earliest virtual deadline first among the *eligible* (the entities that received no
//! more than their share). Every operation is O(log n) in the worst case; only
//! `reserve`, `export`, `rebuild` and `check` allocate. A coroutine's entity is named by its slot.
//!
//! Elsewhere: generations, coroutine states, costs and the ledger are the lane's.
//!
//! ```text
//!              adopt                    place                     pick / hand_to
//!   (absent) ----------> Resting ----------------> Queued ----------------------> Running
//!       ^                  ^  ^                      ^  <----------------------     |  |
//!       | remove,          |  | leave(Sleep | Move)  |    requeue / yield_running   |  |
//!       | leave(Exit)      |  +----------------------+------------------------------+  |
//!       +------------------+                         | place(Wake)                     |
//!                          |                         |            leave(Sleep) while ineligible
//!                          +-- pick (caught up) -----+-- Delayed <---------------------+
//! ```

mod entity;
mod tree;

mod competition;
mod queue;
mod ready;

mod lane;
mod state;

pub use competition::REMOVALS_PER_PICK;
pub use entity::{Carried, FairSettings, Leave, Placement, SettingsRefused, Share, Sharing};
pub use lane::FairKey;
pub(crate) use lane::FairLane;
pub use queue::FairQueue;
pub use state::{EntityPhase, EntityState, FairSessionState, FairState, VirtualTimes};
