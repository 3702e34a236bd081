//! Mapping by a chain: each backing is tried in order.
//!
//! # Safety
//! A [`HugeRegion`] owns mapped memory at once, so any later failure unmaps it.
#![allow(unsafe_code)]

use hugepilot_record::Errno;
use hugepilot_units::{AddrRange, Bytes};

use super::{HugeRegion, NameStatus, RefusedBackings};
use crate::error::MAX_ALIGN;
use crate::{
    Advice, AllocError, Backing, Chain, Fork, Numa, Options, Pages, Pool, Result, Setting, Sys,
};

impl<S: Sys> HugeRegion<S> {
    /// Maps like [`HugeRegion::map`], with system calls through `sys`.
    ///
    /// # Errors
    /// Those of [`HugeRegion::map`].
    pub fn map_on(sys: S, len: Bytes, options: &Options) -> Result<Self> {
        Self::map_with(sys, len, options, thp_never)
    }

    /// Maps with `never` in place of [`thp_never`].
    pub(crate) fn map_with(
        sys: S,
        len: Bytes,
        options: &Options,
        never: impl Fn(&S) -> Option<Setting>,
    ) -> Result<Self> {
        if len == Bytes::ZERO {
            return Err(AllocError::Empty);
        }
        if !options.align.get().is_power_of_two() || options.align > MAX_ALIGN {
            return Err(AllocError::Alignment(options.align));
        }
        options.numa.check(&sys)?;
        let mut refused: RefusedBackings = [None; Chain::MAX_LEN];
        let mut last = AllocError::Empty;
        for (backing, note) in options.chain.backings().iter().zip(&mut refused) {
            let mapped = possible(*backing, &sys, &never)
                .and_then(|()| Self::map_one(sys.clone(), len, options, *backing));
            match mapped {
                Ok(mut region) => {
                    region.refused = refused;
                    return Ok(region);
                }
                Err(error) => (*note, last) = (Some(error), error),
            }
        }
        Err(last)
    }

    /// Maps on one backing.
    fn map_one(sys: S, len: Bytes, options: &Options, backing: Backing) -> Result<Self> {
        let (rounded, align) = shape(len, options.align, backing, &sys)?;
        let pages = backing.pool_page().map_or(Pages::Plain, Pages::Pool);
        let start =
            sys.map(rounded, align, pages).map_err(|errno| refusal(len, backing, errno, &sys))?;
        let mut region = Self {
            start,
            len: rounded,
            align,
            requested_len: len,
            options: *options,
            backing,
            refused: [None; Chain::MAX_LEN],
            named: NameStatus::NotRequested,
            sys,
        };
        region.prepare()?;
        Ok(region)
    }

    /// Passes to the kernel all that it needs before the first touch.
    fn prepare(&mut self) -> Result<()> {
        let (start, len) = (self.start, self.len);
        self.advise_pages()?;
        if let Some(nodes) = self.options.numa.nodes() {
            self.sys
                .bind(start, len, self.options.numa)
                .map_err(|errno| AllocError::Bind { nodes, errno })?;
        }
        if self.options.fork == Fork::Absent {
            // SAFETY: the region's own mapping.
            unsafe { self.sys.advise(start, len, Advice::DontFork) }
                .map_err(|errno| self.cannot_map(errno))?;
        }
        if let Some(name) = &self.options.name {
            self.named = self
                .sys
                .name(start, len, name)
                .map_or_else(NameStatus::Refused, |()| NameStatus::Set);
        }
        self.take_from_pool()
    }

    /// Takes all pages from the pool now. The reservation of `mmap` regards neither nodes nor the
    /// limit of the cgroup, so that a later touch may raise SIGBUS.
    fn take_from_pool(&self) -> Result<()> {
        let Some(page) = self.backing.pool_page() else { return Ok(()) };
        match self.prefault(1) {
            // Before Linux 5.14, only a touch takes pages.
            Err(AllocError::Prefault { errno: Errno::EINVAL, .. })
                if self.options.numa == Numa::Default =>
            {
                Ok(())
            }
            Err(AllocError::Prefault { errno, .. }) if self.options.numa == Numa::Default => {
                let wanted = self.len().get() / page.get();
                Err(AllocError::PoolLimit { page, wanted, errno })
            }
            done => done,
        }
    }

    /// Advises huge pages for the part that the backing names, and no huge pages for the rest.
    fn advise_pages(&self) -> Result<()> {
        let whole = self.range();
        let huge = match self.backing {
            Backing::System | Backing::Hugetlb2M | Backing::Hugetlb1G => return Ok(()),
            Backing::Base => AddrRange::at(whole.start, Bytes::ZERO),
            Backing::Thp(part) | Backing::Collapse(part) => part.of(whole, self.sys.sizes().huge),
        };
        let before = AddrRange::new(whole.start, huge.start);
        let after = AddrRange::new(huge.end, whole.end);
        for (part, advice) in
            [(before, Advice::NoHuge), (huge, Advice::Huge), (after, Advice::NoHuge)]
        {
            let later = matches!(self.backing, Backing::Collapse(_)) && advice == Advice::Huge;
            if part.is_empty() || later {
                continue;
            }
            let (offset, len) = (part.start.since(whole.start).as_usize(), part.len().as_usize());
            // SAFETY: the part lies in the region's mapping.
            let done = unsafe { self.sys.advise(self.start.add(offset), len, advice) };
            match (done, advice) {
                // A kernel without THP also refuses the advice not to use it.
                (Ok(()), _) | (Err(Errno::EINVAL), Advice::NoHuge) => {}
                (Err(errno @ Errno::ENOMEM), _) => return Err(self.cannot_map(errno)),
                (Err(errno), _) => return Err(AllocError::Advice { backing: self.backing, errno }),
            }
        }
        Ok(())
    }

    const fn cannot_map(&self, errno: Errno) -> AllocError {
        AllocError::Map { len: self.requested_len, errno }
    }
}

/// Returns length and alignment, rounded up to the pages of the backing. Huge pages fit only into
/// whole ones.
pub(super) fn shape(
    len: Bytes,
    align: Bytes,
    backing: Backing,
    sys: &impl Sys,
) -> Result<(usize, usize)> {
    let sizes = sys.sizes();
    let unit = match backing {
        Backing::Base => sizes.base,
        Backing::System | Backing::Thp(_) | Backing::Collapse(_) => sizes.huge,
        Backing::Hugetlb2M => Bytes::mib(2),
        Backing::Hugetlb1G => Bytes::gib(1),
    };
    let rounded =
        len.get().checked_next_multiple_of(unit.get()).and_then(|len| isize::try_from(len).ok());
    let overflow = || AllocError::Overflow {
        count: 1,
        size: usize::try_from(len.get()).unwrap_or(usize::MAX),
    };
    Ok((rounded.ok_or_else(overflow)?.unsigned_abs(), align.max(unit).as_usize()))
}

/// Rejects a backing that the settings exclude but the kernel would accept silently.
fn possible<S: Sys>(
    backing: Backing,
    sys: &S,
    never: impl Fn(&S) -> Option<Setting>,
) -> Result<()> {
    match backing {
        Backing::Base | Backing::System | Backing::Hugetlb2M | Backing::Hugetlb1G => Ok(()),
        Backing::Thp(_) | Backing::Collapse(_) if sys.thp_disabled() => {
            Err(AllocError::ThpDisabled)
        }
        Backing::Thp(_) => never(sys).map_or(Ok(()), |setting| Err(AllocError::ThpNever(setting))),
        Backing::Collapse(_) if sys.knows(Advice::Collapse) => Ok(()),
        Backing::Collapse(_) => Err(AllocError::Advice { backing, errno: Errno::EINVAL }),
    }
}

/// Returns the setting, if any, that denies huge pages even to advised memory: the setting of the
/// page size, or the global one that it inherits. Reads one or two small files.
pub(crate) fn thp_never(sys: &impl Sys) -> Option<Setting> {
    let is = |setting, word: &str| {
        let mut buffer = [0; 64];
        let text = sys.setting(setting, &mut buffer)?;
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0 == word)
    };
    let own =
        sys.sizes().huge == Bytes::mib(2) && is(Setting::Thp2MEnabled, "inherit") == Some(false);
    let decides = if own { Setting::Thp2MEnabled } else { Setting::ThpEnabled };
    (is(decides, "never") == Some(true)).then_some(decides)
}

/// Whether a mapping without a pool has enough addresses, so that those are not the cause.
fn fits_elsewhere(len: Bytes, sys: &impl Sys) -> bool {
    let (len, align) = (len.as_usize(), sys.sizes().base.as_usize());
    // SAFETY: mapped here, without other users.
    sys.map(len, align, Pages::Plain).map(|start| unsafe { sys.unmap(start, len, align) }).is_ok()
}

/// Returns the error for a failed `mmap`.
fn refusal(len: Bytes, backing: Backing, errno: Errno, sys: &impl Sys) -> AllocError {
    let Some(page) = backing.pool_page() else { return AllocError::Map { len, errno } };
    let (pool, wanted) = (Pool::read(page, sys), len.get().div_ceil(page.get()));
    match errno {
        Errno::ENOMEM if pool.spare() < wanted => {
            AllocError::PoolEmpty { page, wanted, pool, errno }
        }
        Errno::ENOMEM if fits_elsewhere(len, sys) => AllocError::PoolLimit { page, wanted, errno },
        // A kernel with larger base pages has pools of other sizes.
        Errno::EINVAL | Errno(2 | 19) => AllocError::NoPool { page, errno },
        errno => AllocError::Map { len, errno },
    }
}
