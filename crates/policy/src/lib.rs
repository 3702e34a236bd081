//! Pure decisions: which regions to promote, the predicted gain, and which huge pages to split.
//!
//! The same snapshot, state and goal always give the same decision: there is no clock, no I/O, no
//! hidden randomness. A simulator and the manager run the same code.
//!
//! [`tune::TuneGoal`] decides what to promote, after a [`trial`] inside the process.
//! [`DebloatPolicy`] decides what to split. [`predict`] estimates the gain by a
//! model. A [`round::Round`] is what the engine did once, and a [`journal`] has all rounds.

#![forbid(unsafe_code)]

pub mod daemon;
pub mod debloat;
mod eligible;
pub mod explain;
mod guard;
pub mod journal;
mod kernel_reason;
mod ledger;
mod predict;
pub mod round;
pub mod trial;
pub mod tune;

pub use debloat::{DebloatPolicy, DebloatView, Fairness, Order, Priority};
pub use eligible::{
    Limits, mapping_skip, mapping_split_skip, process_skip, region_skip, split_skip,
};
pub use guard::{Guard, SplitGuard};
pub use kernel_reason::KernelView;
pub use ledger::{Ledger, LedgerCounts};
pub use predict::{
    Calibration, CalibrationPoint, PredictionInput, contradicts, predict, predict_slowdown,
};
