//! Loops that observe, decide, act and verify: `tune`, `debloat` and the daemon.
//!
//! Only [`act`] changes other processes. The other modules read, ask [`hugepilot_policy`] for a
//! decision, or measure the outcome.

#![forbid(unsafe_code)]

pub mod act;
mod act_totals;
pub mod daemon;
pub mod debloat;
pub mod engine;
mod error;
mod fold;
pub mod names;
pub mod sampling;
pub mod trial_guard;
pub mod tune;
pub mod undo;

pub use error::ManagerError;
