//! The vocabulary that crates exchange: samples, heat, mappings, pages, decisions, acts, and the
//! causes with their sentences; the formats of traces and schedules.
//!
//! The crates above store these records in files. They are plain data with its arithmetic: no path,
//! clock or output. So a recording of one machine can be studied on another.

#![forbid(unsafe_code)]

mod answer;
mod census;
mod cpu;
mod decision;
mod ending;
pub mod error;
mod exclusion;
mod heat;
mod journal;
mod kernel_reason;
mod mapping;
mod metric;
mod mode;
mod obstacle;
mod pages;
mod policy_name;
mod prediction;
mod process;
mod recollapse;
mod sample;
pub mod schedule;
pub mod sentence;
mod skip;
mod snapshot;
mod split;
mod thp;
pub mod trace;
mod unsafe_text;
mod unsupported;

pub use answer::Answer;
pub use census::{BloatedPage, Census};
pub use cpu::Cpu;
pub use decision::{Expected, Next, ProcessDecision, Promotion};
pub use ending::Ending;
pub use exclusion::{AccessError, ExcludedCount, processes_were};
pub use heat::{Heat, HeatConfig, RegionHeat};
pub use journal::{Act, ActOutcome, Attempts, Errno, Stop};
pub use kernel_reason::{COMPACT, KernelCode, KernelReason, Outlook, THP};
pub use mapping::{Mapping, MappingKind, Protection, VmFlags};
pub use metric::{GroupTime, Metric, MetricKind, MetricScope, Unit};
pub use mode::Mode;
pub use obstacle::Obstacle;
pub use pages::{LargePages, PageRun, RegionPages, Stranded};
pub use policy_name::PolicyName;
pub use prediction::Prediction;
pub use process::{Pid, ProcessId, Tid};
pub use recollapse::{RecollapseCause, RecollapseRisk, ThpScope};
pub use sample::{Pattern, Provenance, ProvenanceCounts, Sample};
pub use sentence::Sentence;
pub use skip::{SkipReason, Skips};
pub use snapshot::{Headroom, Pressure, ProcessMemory, ProcessSnapshot, Snapshot, Window};
pub use split::{Split, SplitAct, SplitOutcome, SplitPlan};
pub use thp::{Khugepaged, ThpConfig, ThpSize, ThpWord, Tmpfs};
pub use unsafe_text::is_unsafe;
pub use unsupported::{
    ModeUnsupported, PoolUnsupported, PrefetchUnsupported, ShrinkUnsupported, Unsupported,
    raise_pool_limit,
};
