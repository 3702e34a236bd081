//! Metric: what the performance of a tune is measured by.

use hugepilot_record::sentence::{Sentence, counted, whole_percent};
use hugepilot_record::{AccessError, Pid};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Metric of `baseline`, `tuned` and `speedup`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The progress metric of `--progress-regex`.
    Given,
    /// Found: read and write calls of the process per second of its CPU time.
    IoCalls,
    /// Found: instructions in user mode, per second of its CPU time.
    Instructions,
}

impl Metric {
    /// Returns the unit of a found metric; `None` for a given one.
    pub const fn unit(self) -> Option<&'static str> {
        match self {
            Self::Given => None,
            Self::IoCalls => Some("read and write calls per CPU second"),
            Self::Instructions => Some("instructions per CPU second"),
        }
    }
}

/// Cause why no metric was found. JSON carries the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum NoMetric {
    /// The process may not be read.
    #[text(of = a)]
    Unreadable(AccessError),
    /// The process hardly ran before the first promotion, or after the last one.
    #[text(
        "the process ran in {} before the first promotion or after the last one; {required} are \
         needed",
        counted(*windows, "window", "windows")
    )]
    FewWindows {
        /// Windows in which it ran.
        windows: u64,
        /// Required.
        required: u64,
    },
    /// The process makes few read and write calls, and no hardware counters are available.
    #[text(
        "the process makes too few read and write calls, and this machine counts no instructions"
    )]
    FewEvents,
    /// No count is steady before the first promotion and after the last one.
    #[text(
        "{} vary by {} within seconds",
        metric.unit().unwrap_or("values"), whole_percent(*spread_ratio)
    )]
    Unsteady {
        /// The best metric that has enough events.
        metric: Metric,
        /// Quartile range of its windows over their median.
        spread_ratio: f64,
    },
    /// The bytes in a read or write call changed, so the requests did, and their number does not
    /// measure the speed.
    #[text(
        "the bytes in a read or write call changed by {}, so the requests are not the same",
        whole_percent(*change_ratio)
    )]
    Changed {
        /// Change, as a share of the smaller value.
        change_ratio: f64,
    },
    /// The regions were promoted in a process that the target started.
    #[text("the regions were promoted in a process that the target started")]
    OtherProcess,
    /// The performance is that of a program with several processes, and the report on another one
    /// of them has it.
    #[text("the speed of the whole program is in the report on process {pid}")]
    OfProgram {
        /// Process with that report.
        pid: Pid,
    },
}
