//! All pages now instead of one by one.
//!
//! # Safety
//! Populating pages does not change what memory reads as, so it may be done by several threads, beside readers.
#![allow(unsafe_code)]

use std::sync::Mutex;
use std::thread;

use hugepilot_units::Bytes;

use super::HugeRegion;
use crate::{AllocError, Backing, Result, Sys};

impl<S: Sys> HugeRegion<S> {
    /// Makes all pages resident and writable (`MADV_POPULATE_WRITE`), each of `threads` threads a part of whole huge
    /// pages; then collapses, if that is the backing. Costs what the kernel takes to clear the memory, 0.1 to 0.3 s a
    /// GiB. Where a thread cannot be started, the caller's does its part. With one thread, nothing is
    /// allocated.
    ///
    /// # Errors
    /// [`AllocError::Prefault`]: ENOMEM where memory is used up, EFAULT where a pool is, EINVAL before Linux 5.14. Pages
    /// that were there by then stay. [`AllocError::Pagemap`] after a collapse.
    pub fn prefault(&self, threads: usize) -> Result<()> {
        let unit = self.backing.pool_page().unwrap_or(self.sys.sizes().huge).as_usize();
        let units = self.len.div_ceil(unit);
        let threads = threads.clamp(1, units);
        // Part `i` begins at unit ⌊i·units/threads⌋, so that all are used and none differs by more than one.
        let at = |i: usize| (units / threads * i + units % threads * i / threads) * unit;
        let part = |i: usize| self.populate(at(i), at(i + 1).min(self.len));
        if threads == 1 {
            part(0)?;
        } else {
            let failed = Mutex::new(None);
            let note = |done: Result<()>| {
                if let (Err(error), Ok(mut failed)) = (done, failed.lock()) {
                    *failed = Some(error);
                }
            };
            thread::scope(|scope| {
                for i in 1..threads {
                    let started = thread::Builder::new().spawn_scoped(scope, move || note(part(i)));
                    if started.is_err() {
                        note(part(i));
                    }
                }
                note(part(0));
            });
            failed.into_inner().unwrap_or(None).map_or(Ok(()), Err)?;
        }
        if matches!(self.backing, Backing::Collapse(_)) {
            self.collapse()?;
        }
        Ok(())
    }

    /// The bytes from offset `from` up to `to`.
    fn populate(&self, from: usize, to: usize) -> Result<()> {
        let len = to.saturating_sub(from);
        // SAFETY: both offsets are at most the length of our mapping.
        let done = unsafe { self.sys.advise(self.start.add(from), len, crate::Advice::Populate) };
        let len = Bytes::new(len as u64);
        done.map_err(|errno| AllocError::Prefault { len, backing: self.backing, errno })
    }
}
