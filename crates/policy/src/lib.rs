//! Pure decisions: which regions to put on huge pages, what that should gain, and which huge pages to split again; and whether huge
//! pages were had, and pay.
//!
//! Same snapshot and budget in, same plan out: no clock, no I/O, no randomness. What a simulator evaluates is what the
//! manager runs.

#![forbid(unsafe_code)]

mod all;
mod debloat;
mod effect;
mod eligible;
mod forked;
mod heat;
mod predict;
mod worth;

pub use all::AllPolicy;
pub use debloat::{DebloatPolicy, Fair, Order, Standing, Tenant};
pub use effect::effect;
pub use eligible::{Limits, mapping_skip, mapping_split_skip, region_skip, split_skip};
pub use forked::pool_warning;
pub use heat::HeatPolicy;
pub use predict::{
    Calibration, CalibrationPoint, Expected, Share, predict, predict_slowdown, sampled_speedup,
};
pub use worth::{confirming_rounds, to_confirm, verdict};

use hugepilot_record::{Budget, Plan, Snapshot};

/// Decides which regions to promote. Never touches the kernel.
pub trait Policy {
    /// The name used on the command line and in reports.
    fn name(&self) -> &'static str;
    /// What to do now.
    fn plan(&self, seen: &Snapshot, budget: Budget) -> Plan;
}
