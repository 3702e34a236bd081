//! What a measurement is: samples, heat, mappings, page states, plans, journals, and the reports made of them.
//!
//! These are the words in which the crates above talk to each other and to files. Everything here is plain data
//! with its arithmetic: nothing opens a path, reads a clock or prints, so a recording made on another machine can
//! be studied on any.

#![forbid(unsafe_code)]

mod census;
pub mod compare;
pub mod daemon;
pub mod debloat;
pub mod doctor;
pub mod error;
pub mod graph;
mod heat;
mod journal;
mod mapping;
mod pages;
mod plan;
pub mod pool;
mod process;
pub mod run;
mod sample;
pub mod settings;
pub mod shrink;
mod split;
pub mod status;
pub mod tune;
mod unsupported;

pub use census::{BloatedPage, Census};
pub use heat::{Heat, HeatConfig, RegionHeat};
pub use journal::{Act, Errno, Journal, Outcome, Stop};
pub use mapping::{Mapping, MappingKind, Protection, VmFlags};
pub use pages::{PageRun, RegionPages};
pub use plan::{Budget, Headroom, Pick, Plan, SkipReason, Skips, Snapshot};
pub use process::{Pid, ProcessId, Tid};
pub use sample::{Pattern, Provenance, ProvenanceCounts, Sample};
pub use split::{Split, SplitAct, SplitOutcome, SplitPlan};
pub use unsupported::Unsupported;
