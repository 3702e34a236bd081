//! Mapping of new chunks.
//!
//! # Safety
//! A chunk is made of memory that was just mapped, and is linked before any of it is handed out.
#![allow(unsafe_code)]

use std::ptr;

use hugepilot_units::Bytes;

use super::super::chunk::{CHUNK, Chunk, PAGE};
use super::super::class::UNIT;
use super::{Central, link};
use crate::{Backing, Chain, HugeRegion, Options, Sys};

impl<S: Sys> Central<S> {
    /// Maps chunks, one of which has `units` consecutive units at a multiple of `align`.
    pub(super) fn map_chunks(&mut self, units: usize, align: usize) -> Option<()> {
        // Includes the head, and the cost of alignment.
        let least = ((units + align + 1) * UNIT).next_power_of_two().clamp(PAGE, CHUNK);
        let chain = self.options.chain;
        for &backing in chain.backings() {
            // Other programs need pool pages, so a small heap takes few.
            let most = if backing.pool_page().is_some() {
                self.counts.mapped.next_power_of_two()
            } else {
                CHUNK
            };
            let mut len = most.clamp(least, CHUNK);
            while len >= least {
                match self.map_region(len, backing) {
                    Ok(region) => {
                        self.add(region);
                        return Some(());
                    }
                    Err(error) => self.refused = Some(error),
                }
                len /= 2;
            }
        }
        None
    }

    fn map_region(&mut self, len: usize, backing: Backing) -> crate::Result<HugeRegion<S>> {
        let never = matches!(backing, Backing::Thp(_)).then(|| self.thp_never()).flatten();
        let align = self.options.align.max(Bytes::new(CHUNK as u64));
        let options = Options { chain: Chain::only(backing), align, ..self.options };
        HugeRegion::map_with(self.sys.clone(), Bytes::new(len as u64), &options, |_| never)
    }

    /// Makes chunks of a region, usually one.
    fn add(&mut self, region: HugeRegion<S>) {
        let (start, len) = (region.as_ptr().as_ptr(), region.len().as_usize());
        // Larger huge pages would be split. A pool reserves its pages once.
        let discards =
            region.backing().pool_page().is_none() && self.sys.sizes().huge.as_usize() <= PAGE;
        self.counts.mapped += len;
        let mut first = ptr::null_mut();
        // The first chunk is linked last, and so used first.
        for at in (0..len).step_by(CHUNK).rev() {
            let part = (len - at).min(CHUNK) / PAGE * PAGE;
            // SAFETY: inside of the region, which is new, zeroed, aligned and without other users.
            first = unsafe {
                let chunk = Chunk::begin(start.wrapping_add(at), part, self.id);
                ((*chunk).shared, (*chunk).discards) = (len > CHUNK, discards);
                (*chunk).epoch = self.epoch;
                chunk
            };
            link(&mut self.open, first);
            self.empty_chunks += 1;
            self.counts.chunks += 1;
        }
        // SAFETY: a region has at least one chunk, made above.
        unsafe { (*first).region = Some(region) };
    }
}
