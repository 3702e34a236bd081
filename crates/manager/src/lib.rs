//! Loops that observe, decide, act and verify: `tune`, `debloat`, the daemon; and `status`.
//!
//! Only [`act`] changes other processes. The other modules read, ask [`hugepilot_policy`] for a
//! decision, or measure the outcome.

#![forbid(unsafe_code)]

pub mod act;
pub mod daemon;
pub mod debloat;
pub mod engine;
mod error;
mod fold;
pub mod names;
pub mod progress;
pub mod sampling;
pub mod status;
pub mod trial_guard;
pub mod tune;
pub mod undo;
mod work_rate;

pub use error::ManagerError;
