//! Experiments on huge pages ([`experiment`]), and conditions for them: memory pressure,
//! fragmentation, a filled page cache, warm memory, and a check that the machine is quiet.
//!
//! Each condition is a value: made by `begin`, described by its `report`, kept by
//! [`Condition::keep`], undone on drop. Memory is held by child processes ([`holder`]), which end
//! with this process, also after SIGKILL. [`keep_for`] runs a program under a condition.
//!
//! - [`Pressure`]: leaves an amount of available or free memory, in a closed loop ([`pressure`]).
//!   [`LimitedProgram`] limits one program by a memory cgroup.
//! - [`Fragmentation`]: keeps a page in a share of all huge-page-sized blocks ([`fragment`]).
//! - [`PageCacheFill`]: clean pages of a file.
//! - [`warm()`]: touches memory once, so that a hypervisor backs it.
//! - [`quiet()`]: measures the activity besides the experiment.
//!
//! Method: Manocha et al. (2022), sections 4.3 and 4.4; they lock memory by `memhog` and fragment
//! it by a kernel module, neither of which is needed here.

#![forbid(unsafe_code)]

mod condition;
mod error;
pub mod experiment;
pub mod fragment;
pub mod holder;
mod limited;
mod page_cache;
pub mod pressure;
pub mod quiet;
mod warm;

pub use condition::{Condition, Unchanged, keep_for};
pub use error::LabError;
pub use fragment::{FragmentConfig, Fragmentation};
pub use limited::LimitedProgram;
pub use page_cache::PageCacheFill;
pub use pressure::{Pressure, PressureConfig};
pub use quiet::quiet;
pub use warm::warm;

/// Result with the error of this crate.
pub type Result<T> = std::result::Result<T, LabError>;
