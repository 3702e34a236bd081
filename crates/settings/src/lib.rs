//! Kernel settings that hugepilot changes for a while and restores: the guard, hugetlb pools, the
//! kernel's shrinker of underused huge pages, and hardware prefetchers.
//!
//! [`setting_risks`] judges the settings of THP. It changes nothing.
//!
//! Only [`SettingsGuard`] changes settings for a while. It restores them on drop, and after a crash
//! the next command does. [`pool::set`] changes the size of a pool for good.

#![forbid(unsafe_code)]

mod error;
mod guard;
pub mod pool;
pub mod prefetch;
mod risk;
pub mod shrink;

pub use error::SettingsError;
pub use guard::*;
pub use risk::setting_risks;
