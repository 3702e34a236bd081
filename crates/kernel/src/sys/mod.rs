//! System calls that need unsafe code, one kind to a file. They contain no policy.
//!
//! # Safety
//! Each file opts in to unsafe code for itself and states at every block why the call is sound. No
//! raw pointer leaves this module: it returns owned descriptors, owned mappings, and copied bytes.

pub(crate) mod anon;
pub(crate) mod cachestat;
pub(crate) mod cpu_clock;
pub(crate) mod fork;
pub(crate) mod group_probe;
pub(crate) mod hugetlb;
pub(crate) mod inherited;
pub(crate) mod io_uring;
pub(crate) mod kept_pages;
pub(crate) mod madvise;
pub(crate) mod own_code;
pub(crate) mod pagemap;
pub(crate) mod perf;
pub(crate) mod reach;
pub(crate) mod remote;
pub(crate) mod signals;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod warden;

use hugepilot_record::Errno;

/// Returns the error number of the last failed call.
fn last_errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0))
}
