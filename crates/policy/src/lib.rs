//! Pure decisions: which regions to promote, the predicted gain, and which huge pages to split.
//!
//! Same snapshot and budget in, same plan out: no clock, no I/O, no randomness. What a simulator evaluates is what the
//! manager runs.

#![forbid(unsafe_code)]

mod all;
mod debloat;
mod eligible;
mod heat;
mod predict;
pub mod trial;

pub use all::AllPolicy;
pub use debloat::{DebloatPolicy, DebloatView, Fairness, Order, Priority};
pub use eligible::{Limits, mapping_skip, mapping_split_skip, region_skip, split_skip};
pub use heat::HeatPolicy;
pub use predict::{
    Calibration, CalibrationPoint, Expected, Share, predict, predict_slowdown, sampled_speedup,
};

use hugepilot_record::{Budget, Plan, Snapshot};

/// Decides which regions to promote. Never touches the kernel.
pub trait Policy {
    /// The name used on the command line and in reports.
    fn name(&self) -> &'static str;
    /// What to do now.
    fn plan(&self, seen: &Snapshot, budget: Budget) -> Plan;
}
