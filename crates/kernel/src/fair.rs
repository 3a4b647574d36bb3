//! The fair queue: EEVDF over the coroutines of one lane (cpu-authority phase D).
//!
//! Reading order: [`FairSettings`] and [`Share`] are the parameters; [`FairQueue`] is the queue;
//! [`Carried`] is what an entity keeps when it moves to another lane; [`FairState`] is the queue as
//! plain data.
//!
//! Contract: earliest virtual deadline first among the *eligible* (the entities that received no
//! more than their share). Every operation is O(log n) in the worst case; only
//! [`FairQueue::reserve`], [`FairQueue::export`] and [`FairQueue::rebuild`] allocate. An entity is
//! named by its coroutine's slot.
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
mod queue;
mod state;
mod tree;

pub use entity::{Carried, FairSettings, Leave, Placement, SettingsRefused, Share};
pub use queue::{FairQueue, REMOVALS_PER_PICK};
pub use state::{EntityPhase, EntityState, FairState, VirtualTimes};
