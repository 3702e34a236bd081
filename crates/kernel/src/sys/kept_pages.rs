//! Huge pages that are split, with one base page of each kept, so that no block of their frames can
//! become a huge page again.
//!
//! # Safety
//! All addresses are inside two mappings that this file makes and that no reference points to: they
//! are accessed by volatile writes and system calls only. Both stay mapped as a whole until they
//! are dropped: a moved page leaves no hole, which another thread could map.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr;

use hugepilot_record::Errno;
use hugepilot_units::{AddrRange, Bytes, PageSizes, VirtAddr};

use super::anon::{AnonMap, Pages};
use super::io_uring::PinRing;
use super::last_errno;

/// Frame number in an entry of the pagemap.
const FRAME: u64 = (1 << 55) - 1;
const PRESENT: u64 = 1 << 63;

/// Base pages, each alone in a huge-page-sized block of frames. Freed on drop, and by the end of
/// the process.
///
/// Requires Linux 6.12, which frees the zero-filled pages of a huge page when it is split. Costs
/// about 1.5 ms of CPU time for each block, 4 ms if few are free.
#[derive(Debug)]
pub struct KeptPages {
    /// Pins pages, which are unmapped then; `None`: they stay movable, in `maps`.
    ring: Option<PinRing>,
    maps: Vec<(AnonMap, Vec<VirtAddr>)>,
    pagemap: File,
    sizes: PageSizes,
    random: u64,
}

impl KeptPages {
    /// Makes an empty set. The kernel cannot move its pages unless they are `movable`.
    ///
    /// # Errors
    /// Those of `/proc/self/pagemap` and of io_uring: ENOSYS, EPERM.
    pub fn new(movable: bool, sizes: PageSizes) -> Result<Self, Errno> {
        let pagemap = File::open("/proc/self/pagemap").map_err(errno_of)?;
        let ring = (!movable).then(PinRing::new).transpose()?;
        Ok(Self { ring, maps: Vec::new(), pagemap, sizes, random: 0x9e37_79b9_7f4a_7c15 })
    }

    /// Allocates up to `count` huge pages, splits them, keeps a random base page of each and frees
    /// the others. Returns the frames of the kept pages, read after they were pinned: fewer than
    /// `count` if the kernel grants no more huge pages now.
    ///
    /// # Errors
    /// EPERM if the pagemap has no frame numbers (no CAP_SYS_ADMIN); ENOMEM beyond RLIMIT_MEMLOCK
    /// or the limit on mappings; ENOSPC beyond 16,384 calls.
    pub fn keep(&mut self, count: u64) -> Result<Vec<u64>, Errno> {
        let map = AnonMap::new(self.sizes.huge.times(count), Pages::Huge, self.sizes)?;
        let mut kept = Vec::new();
        for region in self.sizes.regions_inside(map.range()) {
            let region = region.range(self.sizes);
            match self.isolate(&map, region)? {
                Some(page) => kept.push(page),
                None => advise(region, libc::MADV_DONTNEED)?,
            }
        }
        if kept.is_empty() {
            return Ok(Vec::new());
        }
        let Some(ring) = &mut self.ring else {
            self.maps.push((map, kept));
            return self.frames_of(&self.maps[self.maps.len() - 1..]);
        };
        let length = self.sizes.base.times(kept.len() as u64);
        let row = AnonMap::new(length, Pages::Base, self.sizes)?;
        for (index, &page) in kept.iter().enumerate() {
            let base = self.sizes.base;
            move_page(page, row.range().start.plus(base.times(index as u64)), base)?;
        }
        let range = AddrRange::at(row.range().start, length);
        ring.pin(range)?;
        // Compaction may have moved a page before it was pinned.
        let pages = (0..kept.len() as u64).map(|at| range.start.plus(self.sizes.base.times(at)));
        pages.map(|page| self.frame(page)).collect()
    }

    /// Returns the present frames of movable pages, which the kernel may have moved; none if
    /// pinned.
    ///
    /// # Errors
    /// Those of reading the pagemap.
    pub fn movable_frames(&self) -> Result<Vec<u64>, Errno> {
        self.frames_of(&self.maps)
    }

    fn frames_of(&self, maps: &[(AnonMap, Vec<VirtAddr>)]) -> Result<Vec<u64>, Errno> {
        let mut frames = Vec::new();
        for &page in maps.iter().flat_map(|(_, pages)| pages) {
            // A page that was swapped out is in no block.
            if self.entry(page)? & PRESENT != 0 {
                frames.push(self.frame(page)?);
            }
        }
        Ok(frames)
    }

    /// Puts `region` on a huge page and splits it. Returns the page that is not zero-filled; `None`
    /// if the kernel has no huge page, or does not split it.
    fn isolate(&mut self, map: &AnonMap, region: AddrRange) -> Result<Option<VirtAddr>, Errno> {
        let (first, base) = (region.start, self.sizes.base);
        if !self.has_huge_page(map, region)? {
            return Ok(None);
        }
        // Otherwise khugepaged could collapse the region again.
        advise(region, libc::MADV_NOHUGEPAGE)?;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let index = 1 + self.random % (self.sizes.base_per_huge() - 1);
        let kept = first.plus(base.times(index));
        let frame = self.frame(first)?;
        write(kept, 1);
        // The zero-filled first page is a page of zeros in common after the split.
        let is_split = |this: &Self| {
            let _ = advise(AddrRange::at(first, base), libc::MADV_COLD);
            this.frame(first).map(|after| after != frame)
        };
        Ok((is_split(self)? || is_split(self)?).then_some(kept))
    }

    /// Touches a region. Returns whether it is on a huge page, if need be by a collapse.
    fn has_huge_page(&self, map: &AnonMap, region: AddrRange) -> Result<bool, Errno> {
        write(region.start, 0);
        if self.is_huge(region)? {
            return Ok(true);
        }
        Ok(map.collapse(region).is_ok() && self.is_huge(region)?)
    }

    /// Whether a region is one block of frames.
    fn is_huge(&self, region: AddrRange) -> Result<bool, Errno> {
        let frames = self.sizes.base_per_huge();
        let last = region.start.plus(self.sizes.base.times(frames - 1));
        let entry = self.entry(last)?;
        if entry & PRESENT == 0 {
            return Ok(false);
        }
        let first = self.frame(region.start)?;
        Ok(first.is_multiple_of(frames) && entry & FRAME == first + frames - 1)
    }

    fn frame(&self, page: VirtAddr) -> Result<u64, Errno> {
        match self.entry(page)? & FRAME {
            0 => Err(Errno::EPERM),
            frame => Ok(frame),
        }
    }

    fn entry(&self, page: VirtAddr) -> Result<u64, Errno> {
        let mut entry = [0; 8];
        let at = page.get() / self.sizes.base.get() * 8;
        self.pagemap.read_exact_at(&mut entry, at).map_err(errno_of)?;
        Ok(u64::from_ne_bytes(entry))
    }
}

/// Allocates huge pages, at most `most`, until the kernel refuses one, and frees them. Returns
/// their number, and whether one was refused. Ends when `goes_on` does not hold. Costs 1 to 4 ms of
/// CPU time each.
///
/// # Errors
/// Those of mapping memory and of the pagemap.
pub fn obtainable_huge_pages(
    most: u64,
    sizes: PageSizes,
    goes_on: &dyn Fn() -> bool,
) -> Result<(u64, bool), Errno> {
    let kept = KeptPages::new(true, sizes)?;
    let map = AnonMap::new(sizes.huge.times(most), Pages::Huge, sizes)?;
    for (count, region) in (0..most).zip(sizes.regions_inside(map.range())) {
        if !goes_on() {
            return Ok((count, false));
        }
        if !kept.has_huge_page(&map, region.range(sizes))? {
            return Ok((count, true));
        }
    }
    Ok((most, false))
}

fn errno_of(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(libc::EIO))
}

fn write(page: VirtAddr, byte: u8) {
    // SAFETY: an address in a private, writable mapping of this file, to which no reference exists.
    unsafe { ptr::write_volatile(page.get() as *mut u8, byte) };
}

fn advise(range: AddrRange, advice: libc::c_int) -> Result<(), Errno> {
    // SAFETY: a part of a mapping of this file. Only DONTNEED changes contents: nothing reads them.
    let done = unsafe {
        libc::madvise(range.start.get() as *mut libc::c_void, range.len().as_usize(), advice)
    };
    if done == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Moves a page to a place in another mapping of this file.
fn move_page(from: VirtAddr, to: VirtAddr, length: Bytes) -> Result<(), Errno> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: both pages are in mappings of this file, so nothing else is replaced, and both stay
    // mapped.
    let done = unsafe {
        libc::mremap(
            from.get() as *mut libc::c_void,
            length.as_usize(),
            length.as_usize(),
            flags,
            to.get() as *mut libc::c_void,
        )
    };
    if done == libc::MAP_FAILED { Err(last_errno()) } else { Ok(()) }
}
