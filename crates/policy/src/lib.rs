//! Pure decisions: which regions to promote, the predicted gain, and which huge pages to split.
//!
//! The same snapshot and budget always give the same plan: there is no clock, no I/O, no
//! randomness. A simulator and the manager run the same code.
//!
//! [`HeatPolicy`] decides what to promote, [`DebloatPolicy`] what to split. [`predict`] estimates
//! the gain of a plan, [`sampled_speedup`] the gain that was achieved.

#![forbid(unsafe_code)]

mod all;
mod debloat;
mod eligible;
mod heat;
mod kernel_reason;
mod predict;
mod status_summary;
pub mod trial;
pub mod tune;

pub use all::AllPolicy;
pub use debloat::{DebloatPolicy, DebloatView, Fairness, Order, Priority};
pub use eligible::{Limits, mapping_skip, mapping_split_skip, region_skip, split_skip};
pub use heat::HeatPolicy;
pub use kernel_reason::KernelView;
pub use predict::{
    Calibration, CalibrationPoint, PredictionInput, Share, predict, predict_slowdown,
    sampled_speedup,
};
pub use status_summary::status_summary;

use hugepilot_record::{Budget, Plan, Snapshot};

/// Choice of the regions to promote. Never changes the system.
pub trait Policy {
    /// Returns the name on the command line and in reports.
    fn name(&self) -> &'static str;
    /// Returns the regions to promote now.
    fn plan(&self, snapshot: &Snapshot, budget: Budget) -> Plan;
}
