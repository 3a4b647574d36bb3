//! The fair queue: EEVDF over the coroutines of one lane (cpu-authority phase D).
//!
//! Reading order: [`FairSettings`] and [`Share`] say what is asked for; [`FairQueue`] is the queue;
//! [`Carried`] is what an entity takes along to another lane; [`FairState`] is the whole queue as
//! plain data.
//!
//! Contract: earliest virtual deadline first among the *eligible* (those that received no more than
//! their share), every operation O(log n) in the worst case, no allocation outside
//! [`FairQueue::reserve`] and [`FairQueue::export`]. Entities are named by the lane's slot;
//! generations, states other than fairness, costs, masks and the ledger are the lane's and
//! deliberately elsewhere.
//!
//! ```text
//!              admit / adopt                 place                    pick / hand_to
//!   (absent) ----------------> Resting ----------------> Queued ----------------------> Running
//!       ^                        ^  ^                       ^  <----------------------    |  |
//!       | release / depart(Exit) |  | depart(Sleep|Move)    |     requeue / give_way      |  |
//!       +------------------------+  +-----------------------+-----------------------------+  |
//!                                |                          | place(Wake)                    | depart(Sleep), ineligible
//!                                +------ pick (debt paid) --+---- Delayed <------------------+
//! ```

mod entity;
mod queue;
mod state;
mod tree;

pub use entity::{
    Carried, Departure, FairSettings, Overload, Picked, Placement, SettingsRefused, Share,
};
pub use queue::{CHARGE_LIMIT, FairQueue, REMOVALS_PER_PICK};
pub use state::{EntityState, FairState, FairViolation, Standing, StateRefused};
