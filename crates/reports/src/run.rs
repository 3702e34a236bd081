//! Report of `hugepilot run`, schema `hugepilot.run/2`.

pub(crate) mod text;

mod effect;
mod warning;

use hugepilot_record::{Ending, Mode};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use effect::{Effect, EffectCause, HugeMemory, Libc, PageOwner, ProgramKind};
pub use warning::{CompareWarning, PartialReach, PoolShortage, RunWarning};

/// The value of `schema`.
pub const SCHEMA: &str = "hugepilot.run/2";

/// Report of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    /// [`SCHEMA`].
    pub schema: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Page mode.
    pub mode: Mode,
    /// Variables set for the program, as `NAME=value`.
    pub environment: Vec<String>,
    /// Time and memory.
    #[serde(flatten)]
    pub run: Run,
    /// Effect of the mode.
    #[serde(flatten)]
    pub effect: Effect,
    /// Further observations.
    pub warnings: Vec<RunWarning>,
}

/// Time and memory of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Run {
    /// How it ended.
    pub ending: Ending,
    /// Time from its first instruction to its end.
    pub wall_seconds: f64,
    /// Whether the program or hugepilot was stopped for a while, such as by Ctrl-Z; `wall_seconds`
    /// includes that time.
    #[serde(default)]
    pub stopped: bool,
    /// CPU time in user mode, of the program and its reaped children.
    pub user_seconds: f64,
    /// CPU time in the kernel, likewise.
    pub system_seconds: f64,
    /// Time that its threads were runnable and waited for a processor, as of the last sample of
    /// each; `None` if not measured.
    #[serde(default)]
    pub processor_wait_seconds: Option<f64>,
    /// Page faults of the program and its reaped children.
    pub page_faults: u64,
    /// Peak memory.
    #[serde(flatten)]
    pub peak: Peak,
}

impl Run {
    /// CPU time in user mode and in the kernel.
    pub fn cpu_seconds(&self) -> f64 {
        self.user_seconds + self.system_seconds
    }
    /// Share of its runnable time that it waited for a processor; `None` if not measured.
    pub fn processor_wait_ratio(&self) -> Option<f64> {
        let wait = self.processor_wait_seconds?;
        let runnable = wait + self.cpu_seconds();
        (runnable > 0.0).then(|| wait / runnable)
    }
}

/// Peak memory of a program and its descendants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Peak {
    /// Resident set, without hugetlb pages.
    pub rss_peak_bytes: Bytes,
    /// Part on transparent huge pages of all kinds.
    pub thp_peak_bytes: Bytes,
    /// Anonymous part of these.
    pub anonymous_thp_peak_bytes: Bytes,
    /// Memory on hugetlb pages.
    pub hugetlb_peak_bytes: Bytes,
    /// Part on 2 MiB pages.
    pub hugetlb_2m_peak_bytes: Bytes,
    /// Part on 1 GiB pages.
    pub hugetlb_1g_peak_bytes: Bytes,
    /// Samples; peaks between two samples are missed.
    pub rss_samples: u32,
    /// Samples with a process that could not be read.
    pub rss_samples_denied: u32,
    /// Time of sampling.
    pub rss_sample_seconds: f64,
}

impl Peak {
    /// Memory on huge pages of any kind.
    pub fn all_huge(&self) -> Bytes {
        self.thp_peak_bytes + self.hugetlb_peak_bytes
    }
    /// Memory on huge pages by kind.
    pub fn huge_memory(&self) -> HugeMemory {
        HugeMemory {
            anonymous_thp_bytes: self.anonymous_thp_peak_bytes,
            shared_thp_bytes: self.thp_peak_bytes - self.anonymous_thp_peak_bytes,
            hugetlb_2m_bytes: self.hugetlb_2m_peak_bytes,
            hugetlb_1g_bytes: self.hugetlb_1g_peak_bytes,
        }
    }
    /// Whether any sample could be read.
    pub const fn is_sampled(&self) -> bool {
        self.rss_samples > self.rss_samples_denied
    }
}
