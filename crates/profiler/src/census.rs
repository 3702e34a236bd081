//! Zero-filled base pages inside huge pages: memory that nobody uses.
//!
//! HawkEye (ASPLOS'19) observed that a page in use shows it in its first bytes. So one line of each page is read first, and
//! only pages where that is zero are read whole. What costs is the pieces that the kernel copies, not their bytes; so the
//! first look takes one piece for two pages: the last line of one and the first of the next. Only huge pages are read: they
//! are resident, so nothing is faulted in.

use hugepilot_kernel::{KernelError, Target};
use hugepilot_record::{Errno, PageRun};
use hugepilot_units::{AddrRange, Bytes};

/// One line of the processor's cache.
const LINE: Bytes = Bytes::new(64);
/// So many pages are looked at together: two MiB at most are read, and the kernel takes 1024 pieces in one call.
const PAGES: usize = 512;

/// The zero-filled bytes in the huge pages among `runs`, found as [`Scanner::zero_pages`] does.
///
/// # Errors
/// EPERM where the memory may not be read; [`KernelError::NoProcess`].
pub fn zero_filled(target: &dyn Target, runs: &[PageRun]) -> Result<Bytes, KernelError> {
    let mut found = Bytes::ZERO;
    let mut scanner = Scanner::new(target);
    for run in runs.iter().filter(|run| run.huge && run.present && !run.zero) {
        let mut rest = run.range;
        while !rest.is_empty() {
            let part = AddrRange::at(rest.start, target.sizes().huge).intersect(rest);
            found += target.sizes().base.times(scanner.zero_pages(part)?.len() as u64);
            rest = AddrRange::new(part.end, rest.end);
        }
    }
    Ok(found)
}

/// Finds the zero-filled base pages of one huge page after the other. Its buffers are those of the first.
pub struct Scanner<'a> {
    target: &'a dyn Target,
    page: Bytes,
    bytes: Vec<u8>,
    pieces: Vec<AddrRange>,
    /// Numbers of the pages that may still be zero-filled.
    suspects: Vec<u32>,
}

impl<'a> Scanner<'a> {
    /// For the memory of `target`.
    pub fn new(target: &'a dyn Target) -> Self {
        let page = target.sizes().base;
        Self { target, page, bytes: Vec::new(), pieces: Vec::new(), suspects: Vec::new() }
    }

    /// The numbers of the zero-filled base pages in `range`, which should be resident, in order. What cannot be read, because
    /// it was unmapped meanwhile, counts as used. For a huge page of 2 MiB 0.1 ms when all is in use, 0.3 ms when nothing
    /// is.
    ///
    /// # Errors
    /// EPERM where the memory may not be read; [`KernelError::NoProcess`].
    pub fn zero_pages(&mut self, range: AddrRange) -> Result<&[u32], KernelError> {
        let pages = u32::try_from(range.len().get() / self.page.get()).unwrap_or(u32::MAX);
        self.look_at_pairs(range, pages)?;
        self.look_at_first_lines(range)?;
        self.look_at_all(range)?;
        Ok(&self.suspects)
    }

    fn page_at(&self, range: AddrRange, page: u32) -> AddrRange {
        AddrRange::at(range.start.plus(self.page.times(page.into())), self.page)
    }

    /// All pages of which a first look shows only zeros: of the even ones the last line, of the odd ones the first.
    fn look_at_pairs(&mut self, range: AddrRange, pages: u32) -> Result<(), KernelError> {
        self.suspects.clear();
        let odd = (0..pages / 2).map(|pair| 2 * pair + 1);
        for some in odd.collect::<Vec<_>>().chunks(PAGES) {
            let of_both = |page| {
                let between = self.page_at(range, page).start;
                AddrRange::new(between.minus(LINE), between.plus(LINE))
            };
            self.pieces = some.iter().map(|&page| of_both(page)).collect();
            self.read()?;
            for (&page, lines) in some.iter().zip(self.bytes.chunks(2 * LINE.as_usize())) {
                let (last_of_even, first_of_odd) = lines.split_at(lines.len().min(LINE.as_usize()));
                self.suspects.extend(is_zero(last_of_even, LINE).then_some(page - 1));
                self.suspects.extend(is_zero(first_of_odd, LINE).then_some(page));
            }
        }
        // A last page without a neighbour.
        self.suspects.extend((pages % 2 == 1).then(|| pages - 1));
        Ok(())
    }

    /// Pages that end with zeros mostly begin with something else.
    fn look_at_first_lines(&mut self, range: AddrRange) -> Result<(), KernelError> {
        let all = std::mem::take(&mut self.suspects);
        for some in all.chunks(PAGES) {
            self.pieces =
                some.iter().map(|&page| AddrRange::at(self.page_at(range, page).start, LINE)).collect();
            self.read()?;
            let zero = self.bytes.chunks(LINE.as_usize()).map(|line| is_zero(line, LINE));
            self.suspects.extend(some.iter().zip(zero).filter_map(|(&page, zero)| zero.then_some(page)));
        }
        Ok(())
    }

    /// Reads the suspects whole, neighbours in one piece.
    fn look_at_all(&mut self, range: AddrRange) -> Result<(), KernelError> {
        let all = std::mem::take(&mut self.suspects);
        for some in all.chunks(PAGES) {
            let neighbours = some.chunk_by(|a, b| a + 1 == *b);
            let whole = neighbours.map(|run| {
                let (first, last) = (self.page_at(range, run[0]), self.page_at(range, run[run.len() - 1]));
                AddrRange::new(first.start, last.end)
            });
            self.pieces = whole.collect();
            self.read()?;
            let zero = self.bytes.chunks(self.page.as_usize()).map(|bytes| is_zero(bytes, self.page));
            self.suspects.extend(some.iter().zip(zero).filter_map(|(&page, zero)| zero.then_some(page)));
        }
        Ok(())
    }

    /// Fills `bytes` with what `pieces` hold, as far as it can be read.
    fn read(&mut self) -> Result<(), KernelError> {
        let wanted = self.pieces.iter().map(|piece| piece.len()).sum::<Bytes>();
        self.bytes.resize(wanted.as_usize(), 0);
        match self.target.read_memory(&self.pieces, &mut self.bytes) {
            Ok(read) => self.bytes.truncate(read),
            Err(error) if error.errno() == Some(Errno::EFAULT) => self.bytes.clear(),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Whether `bytes` are all `len` bytes long, and zero.
fn is_zero(bytes: &[u8], len: Bytes) -> bool {
    // Lines are taken whole, so that the compiler can compare many bytes at once.
    let line_is_zero = |line: &[u8]| line.iter().fold(0, |any, &byte| any | byte) == 0;
    bytes.len() == len.as_usize() && bytes.chunks(LINE.as_usize()).all(line_is_zero)
}

#[cfg(test)]
mod tests {
    use hugepilot_kernel::{AnonMap, Pages, Process, Root};
    use hugepilot_record::Pid;
    use hugepilot_units::PageSizes;
    use proptest::prelude::*;

    use super::*;

    fn ourselves() -> Process {
        Process::open(&Root::live(), Pid(i32::try_from(std::process::id()).unwrap())).unwrap()
    }

    /// What reading every byte finds.
    fn by_brute_force(words: &[u64], words_per_page: usize) -> Vec<u32> {
        let pages = words.chunks(words_per_page).enumerate();
        let zero = pages.filter(|(_, page)| page.iter().all(|&word| word == 0));
        zero.map(|(number, _)| u32::try_from(number).unwrap()).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Wherever a page holds its only byte that is not zero, it is found in use, and no other is.
        #[test]
        fn finds_what_brute_force_finds(
            used in prop::collection::vec((0_usize..512, 0_usize..4096), 0..600),
            odd in any::<bool>(),
        ) {
            let process = ourselves();
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
            prop_assert_eq!(scanner.zero_pages(range).unwrap(), expected);
        }
    }

    #[test]
    fn what_cannot_be_read_counts_as_used() {
        let process = ourselves();
        let nowhere = AddrRange::at(hugepilot_units::VirtAddr::new(0), PageSizes::X86_64.huge);
        assert!(Scanner::new(&process).zero_pages(nowhere).unwrap().is_empty());
    }
}
