//! Run of the mix in one mode, as measured.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::super::records::Machine;

/// Control of huge pages during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    /// THP `never`.
    Never,
    /// THP `always`, with the kernel's other defaults.
    Always,
    /// THP `madvise`, and the daemon.
    Daemon,
}

impl Mode {
    pub(super) const ALL: [Self; 3] = [Self::Never, Self::Always, Self::Daemon];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
            Self::Daemon => "daemon",
        }
    }

    /// Value of the kernel setting `enabled`.
    pub(super) fn thp(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Always => "always",
            Self::Daemon => "madvise",
        }
    }
}

/// Run of the mix. Times are seconds since its start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) mode: Mode,
    /// Length of the run.
    pub(super) seconds: f64,
    pub(super) limit_bytes: u64,
    pub(super) seed: u64,
    /// Time of the start in seconds since 1970.
    pub(super) unix_seconds: f64,
    /// State of the cgroup and of the daemon, about once a second.
    pub(super) samples: Vec<Sample>,
    pub(super) programs: Vec<ProgramRun>,
    /// Memory of the ballast in each shortage.
    pub(super) ballast: Vec<Ballast>,
    /// Log of the daemon.
    #[serde(default)]
    pub(super) log: Vec<Value>,
    /// Largest resident memory of the daemon.
    #[serde(default)]
    pub(super) daemon_peak_bytes: u64,
    /// Kernel settings that matter for huge pages, by file.
    pub(super) settings: Vec<(String, String)>,
    pub(super) machine: Machine,
}

/// State at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    pub(super) at: f64,
    /// Memory of the cgroup.
    pub(super) used_bytes: u64,
    /// Part of it on anonymous huge pages.
    pub(super) huge_bytes: u64,
    /// Time until now in which some task stalled on memory.
    pub(super) stalled_seconds: f64,
    /// CPU time of the daemon until now.
    pub(super) daemon_cpu_seconds: f64,
    pub(super) daemon_rss_bytes: u64,
    /// CPU time of khugepaged since the start.
    pub(super) khugepaged_cpu_seconds: f64,
}

/// Progress of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ProgramRun {
    pub(super) name: String,
    /// When its memory was filled.
    pub(super) ready: Option<f64>,
    /// Time, operations until then and CPU seconds until then, about once a second.
    pub(super) points: Vec<[f64; 3]>,
    /// Time, resident bytes and bytes on huge pages, now and then.
    pub(super) memory: Vec<(f64, u64, u64)>,
}

/// Ballast in a shortage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Ballast {
    pub(super) wanted_bytes: u64,
    pub(super) from: f64,
    pub(super) to: f64,
    /// Time, and bytes held from then on.
    pub(super) held: Vec<(f64, u64)>,
    /// Time for which it wanted more and the ceiling was reached.
    pub(super) waited_seconds: f64,
}
