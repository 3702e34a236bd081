//! Population of all pages at once.
//!
//! # Safety
//! Populating pages does not change what memory reads as, so several threads may do it, beside
//! readers.
#![allow(unsafe_code)]

use std::sync::Mutex;
use std::thread;

use hugepilot_units::Bytes;

use super::HugeRegion;
use crate::{AllocError, Backing, Result, Sys};

impl<S: Sys> HugeRegion<S> {
    /// Makes all pages resident and writable (`MADV_POPULATE_WRITE`), then collapses if that is the
    /// backing.
    ///
    /// Each of `threads` threads populates a part of whole huge pages. Costs the kernel's time to
    /// clear the memory, 0.1 to 0.3 s per GiB. If a thread cannot be started, the caller's thread
    /// populates its part. With one thread, nothing is allocated.
    ///
    /// # Errors
    /// [`AllocError::Prefault`]: ENOMEM if memory is exhausted, EFAULT if a pool is, EINVAL before
    /// Linux 5.14. Pages populated by then stay. [`AllocError::Pagemap`] after a collapse.
    pub fn prefault(&self, threads: usize) -> Result<()> {
        let unit = self.backing.pool_page().unwrap_or(self.sys.sizes().huge).as_usize();
        let units = self.len.div_ceil(unit);
        let threads = threads.clamp(1, units);
        // Part `i` begins at unit ⌊i·units/threads⌋: no part is empty, and sizes differ by at most
        // one.
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

    /// Populates the bytes from offset `from` to `to`.
    fn populate(&self, from: usize, to: usize) -> Result<()> {
        let len = to.saturating_sub(from);
        // SAFETY: both offsets are at most the length of the region's mapping.
        let done = unsafe { self.sys.advise(self.start.add(from), len, crate::Advice::Populate) };
        let len = Bytes::new(len as u64);
        done.map_err(|errno| AllocError::Prefault { len, backing: self.backing, errno })
    }
}
