//! Growing and shrinking a region.
//!
//! # Safety
//! Both take `&mut self`, so nothing borrows from the region while it moves. Moved or copied memory
//! reads as before, and new memory reads as zeros.
#![allow(unsafe_code)]

use hugepilot_units::Bytes;

use super::HugeRegion;
use super::open::shape;
use crate::{Backing, Result, Sys};

impl<S: Sys> HugeRegion<S> {
    /// Grows the region to at least `len` bytes; its first `keep` bytes keep their contents. It may
    /// move.
    ///
    /// Base pages, THP for the whole region, and collapse grow by moving page tables (`mremap`),
    /// 0.2 ms per GiB. Memory on a pool, where mappings cannot grow, and THP for a part are mapped
    /// again by the whole chain and copied; both mappings then exist for a moment.
    ///
    /// # Errors
    /// Those of [`HugeRegion::map`]; the region is then unchanged.
    pub fn grow(&mut self, len: Bytes, keep: usize) -> Result<()> {
        if len <= self.len() {
            return Ok(());
        }
        if !(self.grows_by_mremap() && self.remap(len)) {
            *self = self.copied(len, keep)?;
        }
        Ok(())
    }

    /// Unmaps the memory after the first `len` bytes, rounded up to the pages of the backing.
    /// Returns `false`, with the region unchanged, if there is none or the kernel refuses.
    pub(crate) fn shrink(&mut self, len: Bytes) -> bool {
        let Ok((new, _)) = shape(len, Bytes::new(1), self.backing, &self.sys) else { return false };
        if new == 0 || new >= self.len {
            return false;
        }
        // SAFETY: the region's own mapping; `&mut self` excludes references into it.
        if unsafe { self.sys.shrink(self.start, self.len, new) }.is_err() {
            return false;
        }
        (self.len, self.requested_len) = (new, len);
        true
    }

    /// Maps a new region with the first `keep` bytes of this one.
    fn copied(&self, len: Bytes, keep: usize) -> Result<Self> {
        let larger = Self::map_on(self.sys.clone(), len, &self.options)?;
        let keep = keep.min(self.len).min(larger.len);
        // SAFETY: both are mapped that far and do not overlap. Copied as raw memory: written values
        // may have padding.
        unsafe { larger.start.copy_from_nonoverlapping(self.start, keep) };
        Ok(larger)
    }

    fn grows_by_mremap(&self) -> bool {
        let whole = [Backing::Base, Backing::System, Backing::THP, Backing::COLLAPSE];
        whole.contains(&self.backing)
    }

    /// Grows by `mremap`. Returns whether that succeeded.
    fn remap(&mut self, len: Bytes) -> bool {
        let sizes = self.sys.sizes();
        let unit = if self.backing == Backing::Base { sizes.base } else { sizes.huge };
        let new = len
            .get()
            .checked_next_multiple_of(unit.get())
            .and_then(|len| isize::try_from(len).ok());
        let Some(new) = new.map(isize::unsigned_abs) else { return false };
        // SAFETY: the region's own mapping; `&mut self` excludes references into it.
        let Ok(start) = (unsafe { self.sys.grow(self.start, self.len, new, self.align) }) else {
            return false;
        };
        (self.start, self.len, self.requested_len) = (start, new, len);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AllocError, Options};

    /// Distance of checked bytes; Miri is slow.
    const STEP: usize = if cfg!(miri) { 4099 } else { 1 };

    #[test]
    fn contents_are_kept_and_the_rest_is_zero() {
        for chain in ["base", "thp,base", "thp:50%,base", "collapse,base"] {
            let options = Options::new(chain.parse().unwrap());
            let mut region = HugeRegion::map(Bytes::mib(2), &options).unwrap();
            let old = region.len().as_usize();
            let mark = |i: usize| u8::try_from(i % 251).unwrap() + 1;
            (0..old).step_by(STEP).for_each(|i| region.bytes_mut()[i] = mark(i));
            region.grow(Bytes::mib(7), old).unwrap();
            assert!(
                region.len() >= Bytes::mib(7) && region.requested_len() == Bytes::mib(7),
                "{chain}"
            );
            assert!((0..old).step_by(STEP).all(|i| region.bytes()[i] == mark(i)), "{chain}");
            assert!(region.bytes()[old..].iter().step_by(STEP).all(|&byte| byte == 0), "{chain}");
            region.grow(Bytes::mib(1), 0).unwrap();
            assert!(region.len() >= Bytes::mib(7));
        }
    }

    #[test]
    fn more_than_the_address_space_is_refused_and_harmless() {
        let mut region = HugeRegion::map(Bytes::kib(4), &Options::only(Backing::Base)).unwrap();
        region.bytes_mut()[17] = 3;
        for len in [Bytes::gib(1 << 28), Bytes::MAX] {
            let error = region.grow(len, 4096).unwrap_err();
            assert!(
                matches!(error, AllocError::Map { .. } | AllocError::Overflow { .. }),
                "{error}"
            );
        }
        assert_eq!((region.bytes()[17], region.len()), (3, Bytes::kib(4)));
    }
}
