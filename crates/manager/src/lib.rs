//! Observe, plan, act, verify: the loops that change a process, and the guards around them.
//!
//! Only [`act`] changes anything in another process. Everything else here looks, decides by asking a
//! [`hugepilot_policy::Policy`], or measures what came of it.

#![forbid(unsafe_code)]

pub mod act;
pub mod compare;
pub mod daemon;
pub mod debloat;
pub mod demo;
mod error;
pub mod launch;
pub mod left;
pub mod names;
pub mod pool;
pub mod progress;
pub mod run;
pub mod settings;
pub mod shrink;
mod snapshot;
pub mod status;
pub mod tune;

pub use error::ManagerError;
pub use snapshot::snapshot;
