//! Records of measurements: samples, heat, mappings, pages, plans, journals, reports of commands.
//!
//! The crates above exchange these records and store them in files. They are plain data with its
//! arithmetic: no path, clock or output. So a recording of one machine can be studied on another.

#![forbid(unsafe_code)]

mod answer;
mod census;
pub mod compare;
pub mod daemon;
pub mod debloat;
mod decision;
pub mod doctor;
pub mod error;
pub mod event;
mod exclusion;
pub mod explain;
pub mod graph;
mod heat;
mod journal;
mod kernel_reason;
pub mod knobs;
pub mod lab;
mod mapping;
mod obstacle;
mod pages;
mod policy_name;
pub mod pool;
mod process;
mod recollapse;
pub mod recording;
pub mod run;
mod sample;
pub mod schedule;
pub mod sentence;
pub mod settings;
pub mod shrink;
pub mod sim;
mod skip;
mod snapshot;
mod split;
pub mod status;
mod thp;
pub mod top;
pub mod trace;
pub mod tune;
pub mod undo;
mod unsafe_text;
mod unsupported;

pub use answer::Answer;
pub use census::{BloatedPage, Census};
pub use decision::{Expected, Next, ProcessDecision, Promotion};
pub use exclusion::{AccessError, ExcludedCount};
pub use heat::{Heat, HeatConfig, RegionHeat};
pub use journal::{Act, ActOutcome, Errno, Journal, Stop};
pub use kernel_reason::{KernelCode, KernelReason, Outlook};
pub use mapping::{Mapping, MappingKind, Protection, VmFlags};
pub use obstacle::Obstacle;
pub use pages::{LargePages, PageRun, RegionPages, Stranded};
pub use policy_name::PolicyName;
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
