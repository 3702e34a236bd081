//! Census: zero-filled base pages inside huge pages.
//!
//! HawkEye (ASPLOS'19) observed that a page in use shows it in its first bytes. So some first lines
//! are read first, and the huge page is read whole only if one of them is zero. A line costs 0.4 µs
//! because it is a separate part of the call, not because of its bytes: in the same time the call
//! copies 2.5 KiB in one part. So reading further lines one by one does not help. Only huge pages
//! are read: they are resident, so no page is faulted in.
//!
//! Memory shared after fork must not be read. `process_vm_readv` pins each page, and the kernel
//! copies a shared page before it pins it, which would split the huge page.

use hugepilot_kernel::{KernelError, Target};
use hugepilot_record::{Errno, PageRun};
use hugepilot_stats::mix;
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

/// A line of the processor's cache.
const LINE: Bytes = Bytes::new(64);
/// Distance of the lines that are read first, in base pages.
const STRIDE: u64 = 4;
/// Lines per call. The first call shows for most full huge pages that they are full.
const LINES: usize = 32;
/// Bytes per call: they stay in the second-level cache until they are compared. Calls of 64 KiB or
/// 2 MiB are slower by a fifth.
const CHUNK: Bytes = Bytes::kib(256);

/// Zero-filled bytes of huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZeroFilled {
    /// Zero-filled bytes in the huge pages that were read.
    pub bytes: Bytes,
    /// Huge pages that could not be read.
    pub unread: u64,
}

/// Counts the zero-filled bytes in the huge pages among `runs`, without those that another process
/// maps.
///
/// # Errors
/// EPERM if the memory may not be read; [`KernelError::NoProcess`].
pub fn zero_filled(target: &dyn Target, runs: &[PageRun]) -> Result<ZeroFilled, KernelError> {
    let (mut sum, sizes) = (ZeroFilled::default(), target.sizes());
    let mut scanner = Scanner::new(target);
    for run in runs.iter().filter(|run| run.huge && run.present && !run.zero) {
        for region in sizes.regions_inside(run.range) {
            if target.region_pages(region)?.shared == 0 {
                let zero = scanner.zero_pages(region.range(sizes))?.len() as u64;
                sum.bytes += sizes.base.times(zero);
                sum.unread += u64::from(!scanner.was_read() && target.region_pages(region)?.huge);
            }
        }
    }
    Ok(sum)
}

/// Scanner for zero-filled base pages, one huge page after the other, with buffers that it reuses.
///
/// ```
/// use hugepilot_kernel::{AnonMap, Pages, Process, Root, Target};
/// use hugepilot_profiler::Scanner;
/// use hugepilot_record::Pid;
///
/// let pid = Pid(std::process::id().cast_signed());
/// let process = Process::open(&Root::live(), pid).expect("this process");
/// let sizes = process.sizes();
/// let mut map = AnonMap::new(sizes.huge, Pages::Base, sizes).expect("memory");
/// map.words_mut().fill(0);
/// map.words_mut()[700] = 1;
/// let words_per_page = sizes.base.as_usize() / 8;
///
/// let mut scanner = Scanner::new(&process);
/// let zero_pages = scanner.zero_pages(map.range()).expect("its own memory");
/// assert_eq!(zero_pages.len() as u64, sizes.base_per_huge() - 1);
/// assert!(!zero_pages.contains(&((700 / words_per_page) as u32)));
/// ```
pub struct Scanner<'a> {
    target: &'a dyn Target,
    page: Bytes,
    bytes: Vec<u8>,
    pieces: Vec<AddrRange>,
    zero_pages: Vec<u32>,
    was_read: bool,
}

impl<'a> Scanner<'a> {
    /// Creates a scanner of the memory of `target`.
    pub fn new(target: &'a dyn Target) -> Self {
        let page = target.sizes().base;
        Self {
            target,
            page,
            bytes: Vec::new(),
            pieces: Vec::new(),
            zero_pages: Vec::new(),
            was_read: true,
        }
    }

    /// Whether the last call could read all memory. If not, the memory was unmapped meanwhile, or
    /// its protection forbids reading (`PROT_NONE`).
    pub const fn was_read(&self) -> bool {
        self.was_read
    }

    /// Returns the indices of the zero-filled base pages in `range`, ascending. The range should be
    /// resident, and no other process may map it. Unreadable pages count as used, and
    /// [`Scanner::was_read`] returns false. Reads all of it: 0.3 ms for 2 MiB.
    ///
    /// # Errors
    /// EPERM if the memory may not be read; [`KernelError::NoProcess`].
    pub fn zero_pages(&mut self, range: AddrRange) -> Result<&[u32], KernelError> {
        self.zero_pages.clear();
        self.was_read = true;
        let mut rest = range;
        while !rest.is_empty() {
            let chunk = AddrRange::at(rest.start, CHUNK).intersect(rest);
            self.pieces.clear();
            self.pieces.push(chunk);
            self.read()?;
            let first = AddrRange::new(range.start, chunk.start).len().get() / self.page.get();
            let pages = (first..).zip(self.bytes.chunks(self.page.as_usize()));
            let zero = pages.filter(|(_, bytes)| is_zero(bytes, self.page));
            self.zero_pages.extend(zero.filter_map(|(number, _)| u32::try_from(number).ok()));
            rest = AddrRange::new(chunk.end, rest.end);
        }
        Ok(&self.zero_pages)
    }

    /// Returns the same as [`Scanner::zero_pages`], but skips a `range` that seems full: one page
    /// in four is drawn at random, and none starts with a zero line. So the chance to miss `z`
    /// zero-filled pages is at most 0.75^z: 6 % for 10, 0.06 % for 26 (5 % bloat). Costs 0.06 ms
    /// for 2 MiB in use.
    ///
    /// # Errors
    /// Those of [`Scanner::zero_pages`].
    pub fn zero_pages_unless_full(&mut self, range: AddrRange) -> Result<&[u32], KernelError> {
        self.was_read = true;
        if self.seems_full(range)? {
            self.zero_pages.clear();
            return Ok(&self.zero_pages);
        }
        self.zero_pages(range)
    }

    fn seems_full(&mut self, range: AddrRange) -> Result<bool, KernelError> {
        let pages = range.len().get() / self.page.get();
        for first in (0..pages).step_by(LINES * STRIDE as usize) {
            let strides = (first..pages).step_by(STRIDE as usize).take(LINES);
            let drawn = strides
                .map(|stride| range.start.plus(self.page.times(draw(range.start, stride, pages))));
            self.pieces.clear();
            self.pieces.extend(drawn.map(|page| AddrRange::at(page, LINE)));
            self.read()?;
            if self.bytes.chunks(LINE.as_usize()).any(|line| is_zero(line, LINE)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fills `bytes` with the contents of `pieces`, as far as they can be read.
    fn read(&mut self) -> Result<(), KernelError> {
        let wanted = self.pieces.iter().map(|piece| piece.len()).sum::<Bytes>();
        self.bytes.resize(wanted.as_usize(), 0);
        match self.target.read_memory(&self.pieces, &mut self.bytes) {
            Ok(read) => self.bytes.truncate(read),
            Err(error) if error.errno() == Some(Errno::EFAULT) => self.bytes.clear(),
            Err(error) => return Err(error),
        }
        self.was_read &= self.bytes.len() == wanted.as_usize();
        Ok(())
    }
}

/// Draws one of the pages from `stride` on, among `pages`. Each stride draws independently, so no
/// pattern of the program stays hidden.
const fn draw(seed: VirtAddr, stride: u64, pages: u64) -> u64 {
    let drawn = mix(seed.get() ^ mix(stride)) >> 33;
    let left = pages - stride;
    stride + drawn % if left < STRIDE { left } else { STRIDE }
}

/// Whether `bytes` has `len` bytes, all zero.
fn is_zero(bytes: &[u8], len: Bytes) -> bool {
    // The C library compares slices with the widest registers: twice as fast as a loop compiled for
    // any processor. The zeros stay in the first-level cache.
    static ZEROS: [u8; 4096] = [0; 4096];
    bytes.len() == len.as_usize()
        && bytes.chunks(ZEROS.len()).all(|part| *part == ZEROS[..part.len()])
}

#[cfg(test)]
mod tests {
    use hugepilot_kernel::{AnonMap, Pages, Process, Root};
    use hugepilot_record::Pid;
    use hugepilot_units::PageSizes;
    use proptest::prelude::*;

    use super::*;

    fn this_process() -> Process {
        Process::open(&Root::live(), Pid(i32::try_from(std::process::id()).unwrap())).unwrap()
    }

    /// Reads every byte.
    fn by_brute_force(words: &[u64], words_per_page: usize) -> Vec<u32> {
        let pages = words.chunks(words_per_page).enumerate();
        let zero = pages.filter(|(_, page)| page.iter().all(|&word| word == 0));
        zero.map(|(number, _)| u32::try_from(number).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// A page with a single nonzero byte, anywhere, counts as used, and no other page does.
        #[test]
        fn agrees_with_brute_force(
            used in prop::collection::vec((0_usize..512, 0_usize..4096), 0..600),
            odd in any::<bool>(),
        ) {
            let process = this_process();
            let sizes = process.sizes();
            let mut map = AnonMap::new(sizes.huge, Pages::Base, sizes).unwrap();
            let per_page = sizes.base.as_usize() / 8;
            for word in map.words_mut().iter_mut().step_by(per_page) {
                *word = 0;
            }
            for (page, byte) in used {
                let byte = byte % sizes.base.as_usize();
                map.words_mut()[page * per_page + byte / 8] |= 1 << (byte % 8 * 8);
            }
            let pages = if odd { 511 } else { 512 };
            let range = AddrRange::at(map.range().start, sizes.base.times(pages as u64));
            let expected = by_brute_force(&map.words_mut()[..pages * per_page], per_page);
            let mut scanner = Scanner::new(&process);
            prop_assert_eq!(scanner.zero_pages(range).unwrap(), &expected[..]);
            // If all four pages of a stride are zero-filled, the range cannot seem full.
            let unless_full = scanner.zero_pages_unless_full(range).unwrap();
            let stride = STRIDE as usize;
            let last = 2 * stride - 2;
            let is_certain =
                expected.windows(last + 1).any(|run| run[last] - run[0] == last as u32);
            prop_assert!(unless_full == expected || unless_full.is_empty() && !is_certain);
        }
    }

    /// Returns the share of 4000 huge pages that seem full if `is_zero` gives their zero-filled
    /// base pages, and the expected share if each stride of four pages draws independently.
    fn missed_shares(is_zero: fn(u64) -> bool) -> (f64, f64) {
        let huge_page = |n: u64| VirtAddr::new((1000 + n) << 21);
        let strides = || (0..512).step_by(STRIDE as usize);
        let seems_full =
            |&n: &u64| !strides().any(|stride| is_zero(draw(huge_page(n), stride, 512)));
        let missed = (0..4000).filter(seems_full).count();
        let shown =
            |stride: u64| (stride..stride + STRIDE).filter(|&page| is_zero(page)).count() as f64;
        let chance = strides().map(|stride| 1.0 - shown(stride) / STRIDE as f64).product();
        (missed as f64 / 4000.0, chance)
    }

    #[test]
    fn pages_are_missed_as_rarely_as_expected() {
        let patterns: [fn(u64) -> bool; 6] = [
            |page| page == 100 || page == 300,
            |page| page % 64 == 7,
            |page| page % 32 == 5,
            |page| (3..5).contains(&(page % 32)),
            |page| (3..7).contains(&(page % 64)),
            |page| page % 59 < 3,
        ];
        for (number, pattern) in patterns.into_iter().enumerate() {
            let (missed, chance) = missed_shares(pattern);
            let error = (chance * (1.0 - chance) / 4000.0).sqrt();
            assert!(
                (missed - chance).abs() < 4.0 * error + 0.0005,
                "{number}: {missed} for {chance}"
            );
        }
    }

    #[test]
    fn unreadable_pages_count_as_used() {
        let process = this_process();
        let nowhere = AddrRange::at(hugepilot_units::VirtAddr::new(0), PageSizes::X86_64.huge);
        let mut scanner = Scanner::new(&process);
        assert!(scanner.zero_pages(nowhere).unwrap().is_empty() && !scanner.was_read());
        assert!(scanner.zero_pages_unless_full(nowhere).unwrap().is_empty() && !scanner.was_read());
        let here = AddrRange::at(
            hugepilot_units::VirtAddr::new(&raw const scanner as u64),
            Bytes::new(64),
        );
        let page = AddrRange::at(here.start.align_down(process.sizes().base), process.sizes().base);
        assert!(scanner.zero_pages(page).is_ok() && scanner.was_read());
    }
}
