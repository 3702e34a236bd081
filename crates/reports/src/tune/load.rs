//! Load of the machine beside a tuned process, before its promotions and after them.

mod judge;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use judge::{LoadReading, judge_load};

/// Load of the machine on both sides of the promotions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadReport {
    /// Load before the first promotion; `None` if it was not read, or too briefly.
    pub before: Option<Load>,
    /// Load after the last promotion, likewise.
    pub after: Option<Load>,
    /// Number that changed, so that the gain may be that of the neighbours; `None` if none did.
    pub changed: Option<LoadNumber>,
}

impl LoadReport {
    /// Whether the load is known on both sides, and changed in neither number.
    pub const fn is_alike(&self) -> bool {
        self.before.is_some() && self.after.is_some() && self.changed.is_none()
    }
}

/// Load of the machine over some time, in CPUs: 1 is one CPU, all the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Load {
    /// CPUs that processes other than the targets and hugepilot used.
    pub other_cpus: f64,
    /// CPUs that the hypervisor took (steal time).
    pub stolen_cpus: f64,
}

/// Number of a [`Load`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoadNumber {
    /// CPUs that other processes used.
    OtherCpus,
    /// CPUs that the hypervisor took.
    StolenCpus,
}

impl Load {
    /// The number of this name.
    pub const fn number(&self, number: LoadNumber) -> f64 {
        match number {
            LoadNumber::OtherCpus => self.other_cpus,
            LoadNumber::StolenCpus => self.stolen_cpus,
        }
    }
}
