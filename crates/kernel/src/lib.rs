//! Access to Linux: `/proc`, `/sys`, the pagemap, `process_madvise` and perf events.
//!
//! No other crate reads or changes the state of the kernel. Unsafe code lives in `sys`, file by
//! file. The root of `/proc` and `/sys` is an argument ([`Root`]), so a captured directory runs
//! through the same code. [`Target`] is the interface to one process: [`Process`] is a live one,
//! [`fake::FakeTarget`] a scripted one.
//!
//! # Huge pages of a live process
//!
//! [`Process::open`] holds a process by pid; [`Target::mappings`] reads its mappings with their
//! resident and huge bytes. Processes of the same user need no permission.
//!
//! ```
//! use hugepilot_kernel::{Process, Root, Target};
//! use hugepilot_record::Pid;
//! use hugepilot_units::Bytes;
//!
//! let pid = Pid(std::process::id().cast_signed());
//! let process = Process::open(&Root::live(), pid)?;
//! let mappings = process.mappings()?;
//! let resident: Bytes = mappings.iter().map(|mapping| mapping.resident).sum();
//! let huge: Bytes = mappings.iter().map(|mapping| mapping.huge).sum();
//! println!("{}: {resident} resident, {huge} on huge pages", process.id().command);
//! assert!(huge <= resident);
//! # Ok::<(), hugepilot_kernel::KernelError>(())
//! ```
//!
//! `cargo run -p hugepilot-kernel --example huge_pages_of_a_process -- PID` prints each mapping.
//!
//! # Features of a machine
//!
//! [`probe::examine`] tries each feature on a child process. [`Unsupported`] is the reason of a
//! failure, with the help for it.

pub mod cache;
pub mod cgroup;
pub mod clock;
mod connector;
pub mod cpu;
pub mod damon;
pub mod descriptors;
mod error;
mod excluded;
mod executable;
pub mod fake;
pub mod file;
pub mod free_lists;
pub mod hugetlb;
mod khugepaged;
pub mod memory;
mod mounts;
pub mod msr;
pub mod own_memory;
pub mod page_cache;
mod path;
pub mod perf;
pub mod privilege;
pub mod probe;
pub mod proc;
mod process;
pub mod rights;
mod root;
pub mod schedstat;
pub mod stall_trigger;
mod sys;
pub mod system;
mod target;
pub mod terminal;
pub mod thp;
mod unsupported;
pub mod usage;
pub mod wait;
mod warm;

pub use connector::ForkWatch;
pub use error::KernelError;
pub use excluded::{ExcludedProcesses, access_error};
pub use hugepilot_record::Unsupported;
pub use khugepaged::recollapse_risk;
pub use mounts::Mounts;
pub use own_memory::OwnMemory;
pub use path::find_program;
pub use process::{Claim, Forks, HugeSums, Process, ProcessMeter, ProcessUsage, ThreadUsage};
pub use root::Root;
pub use sys::anon::{AnonMap, Pages};
pub use sys::group_probe::GroupSignalProbe;
pub use sys::inherited::was_ignored;
pub use sys::kept_pages::{KeptPages, obtainable_huge_pages};
pub use sys::own_code::drop_own_code;
pub use sys::signals::{
    ReceivedSignal, Signals, ending_signals, fault_signals, with_signals_blocked,
};
pub use sys::start::{Change, LastUse, Program, ResourceUsage, StartedProgram, Thp};
pub use sys::stop::stop_with;
pub use sys::warden::WatcherKilled;
pub use target::{Target, TargetState};

/// Result with the error of this crate.
pub type Result<T> = std::result::Result<T, KernelError>;
