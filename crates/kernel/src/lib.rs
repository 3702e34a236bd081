//! The only door to Linux.
//!
//! Everything hugepilot asks of the kernel or tells it goes through here: `/proc` and `/sys` parsed into
//! [`hugepilot_record`]'s words, the page map, `process_madvise`, perf events. Unsafe code lives in `sys`, file by
//! file; all other crates forbid it. The root of `/proc` and `/sys` is an argument ([`Root`]), so a captured directory
//! runs through the same code, and [`Target`] is the seam where a scripted [`fake::FakeTarget`] can stand for a process.

pub mod cgroup;
pub mod clock;
pub mod cpu;
pub mod descriptors;
mod error;
mod excluded;
mod executable;
pub mod fake;
pub mod file;
pub mod hugetlb;
mod khugepaged;
pub mod memory;
mod path;
pub mod perf;
pub mod privilege;
pub mod probe;
pub mod proc;
mod process;
pub mod rights;
mod root;
pub mod schedstat;
mod sys;
mod target;
pub mod thp;
mod unsupported;
pub mod usage;
pub mod wait;
mod warm;

pub use hugepilot_record::Unsupported;

pub use error::KernelError;
pub use excluded::{ExcludedProcesses, describe};
pub use khugepaged::KhugepagedRisk;
pub use path::find_program;
pub use process::{Claim, Process};
pub use root::Root;
pub use sys::anon::{AnonMap, Pages};
pub use sys::group_probe::GroupSignalProbe;
pub use sys::inherited::was_ignored;
pub use sys::signals::{Arrived, Signals, ending_signals, fault_signals};
pub use sys::start::{Change, Program, Started, Thp, Used};
pub use sys::stop::stop_with;
pub use target::{Target, TargetState};

/// This crate's result.
pub type Result<T> = std::result::Result<T, KernelError>;
