//! Report of `hugepilot top`, schema `hugepilot.top/2`: processes at one moment, and the cost of
//! the looks.

pub(crate) mod text;

use hugepilot_record::sentence::{Sentence, counted};
use hugepilot_record::{AccessError, Answer, Pid, Prediction, SkipReason};
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of `schema`.
pub const SCHEMA: &str = "hugepilot.top/2";

/// State of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopProcess {
    /// Process.
    pub pid: Pid,
    /// Number of its real user; `None` if it cannot be read.
    pub user_id: Option<u32>,
    /// Name of that user; `None` if `/etc/passwd` has none.
    pub user: Option<String>,
    /// Name of the process, control characters escaped.
    pub command: String,
    /// CPU time per elapsed time; above 1 with several threads. `None` before the second look.
    pub cpu_ratio: Option<f64>,
    /// Resident memory.
    pub resident_bytes: Bytes,
    /// Memory on transparent huge pages; `None` if it is unknown, for the reason in `note`.
    pub thp_bytes: Option<Bytes>,
    /// Share of `thp_bytes` in `resident_bytes`.
    pub thp_ratio: Option<f64>,
    /// Zero-filled base pages inside huge pages (bloat); `None` if not counted.
    pub zero_filled_bytes: Option<Bytes>,
    /// Samples behind `stall_ratio`; recent ones count more.
    pub samples: u64,
    /// Share of samples that wait for scattered memory; `None` with too few samples.
    pub stall_ratio: Option<f64>,
    /// Speedup that the model predicts if all stalls on base pages were on huge pages; `None`
    /// without a calibration or samples.
    pub predicted_speedup: Option<Prediction>,
    /// Whether huge pages would help, by the stalls and the model.
    #[serde(default)]
    pub answer: Option<Answer>,
    /// Reason that keeps the most stalls from huge pages; `None` but for the answer `blocked`.
    #[serde(default)]
    pub blocked_by: Option<SkipReason>,
    /// Reason for the fields that are unknown.
    pub note: Option<TopNote>,
}

/// Reason why something about a process is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum TopNote {
    /// The user may not read it.
    #[text("the process may not be read")]
    NoPermission,
    /// Less resident memory than a huge page.
    #[text("it has less resident memory than a huge page")]
    TooSmall,
    /// Too little CPU time for samples.
    #[text("it uses too little CPU time to be sampled")]
    Idle,
    /// The CPU budget has not yet sufficed to read its huge pages.
    #[text("the CPU budget did not yet suffice to read its pages")]
    NotRead,
    /// Its CPU use is known from the second reading on.
    #[text("its CPU use is known from the second reading on")]
    NotMeasured,
    /// Other processes are sampled first.
    #[text("other processes are sampled first")]
    Waiting,
    /// Too few samples for a share.
    #[text("{} too few for a share of stalls", counted(*samples, "sample is", "samples are"))]
    FewSamples {
        /// Samples so far.
        samples: u64,
    },
    /// The kernel does not let it be sampled.
    #[text("it cannot be sampled: {error}")]
    #[help("test the samplers: hugepilot doctor")]
    NotSampled {
        /// The error.
        error: String,
    },
}

/// Restriction that concerns more than one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum TopWarning {
    /// Processes of other users, whose huge pages and stalls are unknown.
    #[text(
        "{processes} {} may not be read; huge pages, bloat, stalls and gain are unknown: {}",
        if *processes == 1 { "process" } else { "processes" }, first.text()
    )]
    #[help(of = first)]
    NoPermission {
        /// Number of these processes.
        processes: u64,
        /// Failure of the first.
        #[serde(flatten)]
        first: AccessError,
    },
    /// There is no calibration of this machine, so the model predicts nothing.
    #[text("no gain is predicted: this machine is not calibrated")]
    #[help(
        "calibrate it once, in up to 20 s, by a dry run on a process of your own: hugepilot tune \
         -p PID --dry-run --calibration force"
    )]
    NoCalibration,
    /// The user selected processes, and none of them runs.
    #[text("none of the selected processes runs any more")]
    NoneLeft,
    /// Large pages of the system are mapped in part: they hold memory that no process uses.
    #[text("{bytes} of large pages are mapped in part, and hold memory that no process uses")]
    #[help(
        "find the process: sudo hugepilot status -p PID; free it: sudo hugepilot debloat -p PID, \
         or the daemon"
    )]
    MappedInPart {
        /// Their size: an upper bound of the memory that they hold without a use.
        bytes: Bytes,
    },
}

/// Report of one look.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopReport {
    /// Schema and version.
    pub schema: String,
    /// Time since the look before; 0 for the first.
    pub interval_seconds: f64,
    /// CPU time of hugepilot since its start, per elapsed time.
    pub own_cpu_ratio: f64,
    /// CPU budget of hugepilot, as a share of one core.
    pub cpu_budget_ratio: f64,
    /// CPU time of hugepilot since its start.
    pub own_cpu_seconds: f64,
    /// Processes that were sampled since the look before.
    pub sampled_processes: u64,
    /// Samples per second of CPU time of each thread.
    pub sampling_rate_hz: u32,
    /// Processes by pid.
    pub processes: Vec<TopProcess>,
    /// Restrictions.
    pub warnings: Vec<TopWarning>,
}
