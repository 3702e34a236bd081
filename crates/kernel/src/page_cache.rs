//! Page cache of a file: its pages counted and dropped.

use std::fs::File;
use std::io;
use std::num::NonZero;
use std::os::fd::AsFd;

use hugepilot_record::Errno;
use hugepilot_units::Bytes;
use rustix::fs::{Advice, fadvise, fstatfs};

pub use crate::sys::cachestat::CachedPages;

/// Magic numbers of tmpfs and ramfs, whose pages are the file itself.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// Counts the pages of `length` bytes from `offset`; of all the rest if `length` is 0.
///
/// # Errors
/// ENOSYS before Linux 6.5; EOPNOTSUPP for hugetlbfs; EPERM for files that the user may not write.
pub fn cached_pages(file: &File, offset: Bytes, length: Bytes) -> Result<CachedPages, Errno> {
    crate::sys::cachestat::cached_pages(file.as_fd(), offset.get(), length.get())
}

/// Drops the clean pages of `length` bytes from `offset`, of all the rest if `length` is 0. Mapped
/// pages stay.
///
/// # Errors
/// ESPIPE for pipes.
pub fn drop_pages(file: &File, offset: Bytes, length: Bytes) -> io::Result<()> {
    Ok(fadvise(file, offset.get(), NonZero::new(length.get()), Advice::DontNeed)?)
}

/// Lets reads through this descriptor fill the page cache with the pages that they read only.
///
/// # Errors
/// ESPIPE for pipes.
pub fn stop_readahead(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::Random)?)
}

/// Whether the file system keeps its files in memory, where no page is clean page cache.
///
/// # Errors
/// Those of `fstatfs`.
pub fn is_in_memory(file: &File) -> io::Result<bool> {
    Ok(IN_MEMORY.contains(&fstatfs(file)?.f_type))
}
