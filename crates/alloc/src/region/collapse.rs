//! Collapse of base pages into huge pages.
//!
//! # Safety
//! A collapse copies pages and does not change what memory reads as, so readers may run beside it.
#![allow(unsafe_code)]

use hugepilot_record::{Errno, PageRun};
use hugepilot_units::{Bytes, VirtAddr};

use super::HugeRegion;
use crate::{Advice, AllocError, Backing, Result, Sys};

/// Outcome of a collapse, verified in the pagemap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollapseOutcome {
    /// Bytes on huge pages before.
    pub before: Bytes,
    /// Bytes on huge pages afterwards.
    pub after: Bytes,
    /// Bytes of huge-page-sized ranges without a touched page, which were skipped.
    pub empty: Bytes,
    /// Bytes of huge-page-sized ranges that the kernel refused. After several ENOMEM in a row, the
    /// rest is counted here without an attempt.
    pub refused: Bytes,
    /// Last error number of the kernel.
    pub errno: Option<Errno>,
}

/// Consecutive ENOMEM results that end a collapse: each costs the kernel milliseconds of search.
const MAX_CONSECUTIVE_ENOMEM: u32 = 8;

/// State of a running collapse.
struct CollapseRun {
    outcome: CollapseOutcome,
    /// Number of ENOMEM results since the last success.
    consecutive_enomem: u32,
}

impl CollapseRun {
    /// Collapses one huge-page-sized range, unless too many attempts in a row failed.
    fn attempt(&mut self, huge: Bytes, collapse: impl FnOnce() -> std::result::Result<(), Errno>) {
        let answer = if self.consecutive_enomem < MAX_CONSECUTIVE_ENOMEM {
            collapse()
        } else {
            Err(Errno::ENOMEM)
        };
        let Err(errno) = answer else {
            self.consecutive_enomem = 0;
            return;
        };
        self.outcome.refused += huge;
        self.outcome.errno = Some(errno);
        self.consecutive_enomem =
            if errno == Errno::ENOMEM { self.consecutive_enomem + 1 } else { 0 };
    }
}

impl<S: Sys> HugeRegion<S> {
    /// Collapses each huge-page-sized range with a touched page (`MADV_COLLAPSE`), then verifies.
    ///
    /// The untouched pages of such a range become resident. Costs 0.4 to 1 ms per huge page if free
    /// ones are available. Memory on a pool is already huge. On parts without huge pages
    /// ([`Backing::Base`](crate::Backing::Base)) the kernel returns EINVAL.
    ///
    /// # Errors
    /// [`AllocError::Pagemap`]. Refused ranges are not errors; they are counted in the outcome.
    pub fn collapse(&self) -> Result<CollapseOutcome> {
        let before = self.usage()?.huge();
        let mut collapse = CollapseRun {
            outcome: CollapseOutcome { before, ..CollapseOutcome::default() },
            consecutive_enomem: 0,
        };
        if self.backing.pool_page().is_none() {
            self.collapse_touched(&mut collapse)?;
        }
        collapse.outcome.after = self.usage()?.huge();
        Ok(collapse.outcome)
    }

    /// Collapses during the scan: changes behind the scan position do not affect what lies ahead.
    fn collapse_touched(&self, collapse: &mut CollapseRun) -> Result<()> {
        let huge = self.sys.sizes().huge;
        let part = match self.backing {
            Backing::Collapse(part) => part.of(self.range(), huge),
            _ => self.range(),
        };
        let inside = part.aligned_inside(huge);
        collapse.outcome.empty = inside.len();
        // Everything below is done.
        let mut next = inside.start;
        let mut each = |run: PageRun| {
            if run.zero {
                return;
            }
            next = next.max(run.range.start.align_down(huge));
            while next < run.range.end {
                collapse.outcome.empty -= huge;
                if !run.huge {
                    collapse.attempt(huge, || self.collapse_one(next, huge));
                }
                next = next.plus(huge);
            }
        };
        self.sys.scan(inside, &mut each).map_err(AllocError::Pagemap)
    }

    fn collapse_one(&self, page: VirtAddr, huge: Bytes) -> std::result::Result<(), Errno> {
        let offset = page.since(self.range().start).as_usize();
        // SAFETY: a whole huge page from `page` lies in the region's mapping.
        let advise = || unsafe {
            self.sys.advise(self.start.add(offset), huge.as_usize(), Advice::Collapse)
        };
        // A page may be locked for a moment. The kernel's selftests also try twice.
        advise().or_else(|errno| if errno == Errno::EAGAIN { advise() } else { Err(errno) })
    }
}
