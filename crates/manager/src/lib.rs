//! Observe, plan, act, verify: the loops that change a process, and the guards around them.
//!
//! Only [`act`] changes anything in another process. Everything else here looks, decides by asking a
//! [`hugepilot_policy::Policy`], or measures what came of it.

#![forbid(unsafe_code)]

pub mod act;
pub mod daemon;
pub mod debloat;
mod error;
pub mod names;
pub mod progress;
mod snapshot;
pub mod status;
pub mod tune;

pub use error::ManagerError;
pub use snapshot::snapshot;
