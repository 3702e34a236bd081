//! Huge pages instead of the base pages that memory was filled on.
//!
//! # Safety
//! A collapse copies pages and does not change what memory reads as, so it may be done beside readers.
#![allow(unsafe_code)]

use hugepilot_record::{Errno, PageRun};
use hugepilot_units::{Bytes, VirtAddr};

use super::HugeRegion;
use crate::{Advice, AllocError, Backing, Result, Sys};

/// What became of a collapse, as a look afterwards showed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollapseOutcome {
    /// On huge pages before.
    pub before: Bytes,
    /// On huge pages afterwards.
    pub after: Bytes,
    /// Huge pages' worth that nobody had touched, and that was left alone.
    pub empty: Bytes,
    /// Huge pages' worth that the kernel refused; ENOMEM ends the rest unasked, after some in a row.
    pub refused: Bytes,
    /// The kernel's last reason.
    pub errno: Option<Errno>,
}

/// ENOMEM in a row before the rest is left: each takes the kernel milliseconds of search.
const MAX_CONSECUTIVE_ENOMEM: u32 = 8;

/// A collapse under way.
struct CollapseRun {
    outcome: CollapseOutcome,
    /// ENOMEM since the last success.
    consecutive_enomem: u32,
}

impl CollapseRun {
    /// Has one page collapsed, unless there is no more hope.
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
    /// Puts each huge page's worth that has been touched, and is not huge, on a huge page (`MADV_COLLAPSE`), and looks
    /// afterwards. The rest of such a page becomes resident with it. 0.4 to 1 ms a huge page where free ones are at hand.
    /// Memory on a pool is huge already; parts without huge pages ([`Backing::Base`](crate::Backing::Base)) are refused with
    /// EINVAL.
    ///
    /// # Errors
    /// [`AllocError::Pagemap`]. What the kernel refused is no error, but counted.
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

    /// Collapses while it looks: what is found behind does not change what is found ahead.
    fn collapse_touched(&self, collapse: &mut CollapseRun) -> Result<()> {
        let huge = self.sys.sizes().huge;
        let part = match self.backing {
            Backing::Collapse(part) => part.of(self.range(), huge),
            _ => self.range(),
        };
        let inside = part.aligned_inside(huge);
        collapse.outcome.empty = inside.len();
        // What lies below is done with.
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
        // SAFETY: a whole huge page from `page` lies in our mapping.
        let advise = || unsafe {
            self.sys.advise(self.start.add(offset), huge.as_usize(), Advice::Collapse)
        };
        // A page may be locked for a moment: the kernel's own tests try twice, too.
        advise().or_else(|errno| if errno == Errno::EAGAIN { advise() } else { Err(errno) })
    }
}
