//! Use of a program with all its descendants.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Share of the use in no slice, above which a recording has a warning.
const MUCH: f64 = 0.05;
/// Page faults in no slice of which a recording never has a warning: each process has some hundred.
const FEW_FAULTS: u64 = 500;
/// The same of CPU time, in seconds: each process is read in clock ticks.
const LITTLE_CPU: f64 = 0.1;

/// Use of a program, or of a running process, with all its descendants, and the part of it that no
/// slice has: that of children that ended before they were found, and of processes since their last
/// slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TreeUse {
    /// Page faults of the process and all its descendants, since the recording began.
    pub faults: u64,
    /// Page faults that are in no slice.
    pub unseen_faults: u64,
    /// CPU time of the process and all its descendants, since the recording began.
    pub cpu_seconds: f64,
    /// CPU time that is in no slice.
    pub unseen_cpu_seconds: f64,
    /// Context switches of the process and the children that it waited for, and theirs; `None` if
    /// the recording began after the process, or ended before it.
    pub context_switches: Option<u64>,
    /// Context switches that are in no slice, those of threads that ended included.
    pub unseen_context_switches: Option<u64>,
    /// Processes that are recorded at a time, if there were more: the others are in no slice.
    /// `None` if there were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_limit: Option<u64>,
    /// Descendants of a running process that started before the recording: they are in no slice.
    /// `None` if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier_processes: Option<u64>,
}

impl TreeUse {
    /// Share of the page faults that is in no slice; `None` without faults.
    #[allow(clippy::cast_precision_loss)]
    pub fn unseen_faults_ratio(&self) -> Option<f64> {
        (self.faults > 0).then(|| self.unseen_faults as f64 / self.faults as f64)
    }

    /// Share of the CPU time that is in no slice; `None` without CPU time.
    pub fn unseen_cpu_ratio(&self) -> Option<f64> {
        (self.cpu_seconds > 0.0).then(|| self.unseen_cpu_seconds / self.cpu_seconds)
    }

    /// Whether the slices lack more than 5 % of the page faults or of the CPU time.
    pub fn is_much_unseen(&self) -> bool {
        let is_much = |ratio: Option<f64>| ratio.is_some_and(|ratio| ratio > MUCH);
        self.unseen_faults >= FEW_FAULTS && is_much(self.unseen_faults_ratio())
            || self.unseen_cpu_seconds >= LITTLE_CPU && is_much(self.unseen_cpu_ratio())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_use_or_a_small_share_is_no_warning() {
        let of = |unseen_faults, unseen_cpu_seconds| {
            let (faults, cpu_seconds) = (10_000, 10.0);
            let tree = TreeUse {
                faults,
                unseen_faults,
                cpu_seconds,
                unseen_cpu_seconds,
                ..TreeUse::default()
            };
            tree.is_much_unseen()
        };
        assert!(!of(0, 0.0) && !of(500, 0.5));
        assert!(of(501, 0.0) && of(0, 0.51));
        let short = TreeUse { faults: 600, unseen_faults: 499, ..TreeUse::default() };
        assert!(!short.is_much_unseen());
        let ticks = TreeUse { cpu_seconds: 0.1, unseen_cpu_seconds: 0.09, ..TreeUse::default() };
        assert!(!ticks.is_much_unseen());
    }
}
