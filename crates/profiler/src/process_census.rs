//! Census of a process: its huge pages that may be split, and their zero-filled base pages.

use hugepilot_kernel::{KernelError, Target, TargetState};
use hugepilot_policy::{mapping_split_skip, split_skip};
use hugepilot_record::{BloatedPage, Census, LargePages, Mapping, PageRun, Skips};
use hugepilot_units::{AddrRange, PageSizes, Region, Share};

use crate::Scanner;
use crate::lazily_freed::region_pages;

/// Census and mappings of a process.
#[derive(Debug)]
pub struct ProcessCensus {
    /// The census.
    pub census: Census,
    /// The mappings before it.
    pub mappings: Vec<Mapping>,
}

/// Counts zero-filled base pages in `part` of the huge pages of `target`, chosen by address.
///
/// Costs 0.3 ms per huge page. Without `exact`, huge pages that seem full cost 0.06 ms, and a bloat
/// of a few percent can be missed. `each` receives the number of pages done and of all pages, and
/// returns whether to continue. Nothing is faulted in.
///
/// # Errors
/// EPERM if memory may not be read, EACCES if the pagemap may not; [`KernelError::NoProcess`].
pub fn take_census(
    target: &dyn Target,
    part: Share,
    exact: bool,
    each: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<ProcessCensus, KernelError> {
    let begun = target.now();
    let sizes = target.sizes();
    let mappings = target.mappings()?;
    let (mut regions, mut skipped) = (Vec::new(), Skips::new());
    for mapping in mappings.iter().filter(|mapping| mapping.huge >= sizes.huge) {
        let huge = huge_regions(&target.page_runs(mapping.range)?, sizes);
        match mapping_split_skip(mapping) {
            Some(reason) => *skipped.entry(reason).or_insert(0) += huge.len() as u64,
            None => regions.extend(huge.into_iter().map(|region| (region, mapping))),
        }
    }
    let mut huge_pages = regions.len() as u64;
    let part = enough(part, huge_pages);
    let drawn: Vec<(Region, &Mapping)> =
        regions.into_iter().filter(|&(region, _)| is_drawn(region, part)).collect();
    let stranded = large_pages(target, &mappings, true)?.map(|large| large.stranded);
    let (mut scanner, mut bloated) = (Scanner::new(target), Vec::new());
    let (mut read_pages, mut unread_pages, mut skipped_pages) = (0, 0, 0);
    for &(region, mapping) in &drawn {
        let done = read_pages + unread_pages + skipped_pages;
        if !each(done, drawn.len() as u64) {
            // The first pages are not a sample of all.
            huge_pages = done;
            break;
        }
        // Checked before the read, which would split and copy a page that a child shares.
        if let Some(reason) = split_skip(&region_pages(target, mapping, region)?) {
            *skipped.entry(reason).or_insert(0) += 1;
            skipped_pages += 1;
            continue;
        }
        let zero = match exact {
            true => scanner.zero_pages(region.range(sizes))?,
            false => scanner.zero_pages_unless_full(region.range(sizes))?,
        };
        let bloat = BloatedPage::of(region, zero, sizes);
        if scanner.was_read() {
            read_pages += 1;
            bloated.extend(bloat);
        } else if let Some(reason) = split_skip(&target.region_pages(region)?) {
            // The program unmapped it, or it was split.
            *skipped.entry(reason).or_insert(0) += 1;
            skipped_pages += 1;
        } else {
            unread_pages += 1;
        }
    }
    // Memory is read by pid: if the pid was reused meanwhile, the census is of another process.
    if target.state()? != TargetState::Alive {
        return Err(KernelError::NoProcess { pid: target.id().pid });
    }
    let huge_pages = huge_pages - skipped_pages - unread_pages;
    let census = Census {
        process: target.id().clone(),
        sizes,
        bloated,
        huge_pages,
        read_pages,
        unread_pages,
        stranded,
        skipped,
        took: target.now() - begun,
    };
    Ok(ProcessCensus { census, mappings })
}

/// Finds large pages that the process maps by base pages, where they may be split.
/// `only_stranded`: smaller pages need not be counted.
///
/// # Errors
/// Those of [`Target::large_pages`].
pub fn large_pages(
    target: &dyn Target,
    mappings: &[Mapping],
    only_stranded: bool,
) -> Result<Option<LargePages>, KernelError> {
    let present = mappings.iter().filter(|mapping| !mapping.resident.is_zero());
    let may_split = present.filter(|mapping| mapping_split_skip(mapping).is_none());
    let ranges: Vec<AddrRange> = may_split.map(|mapping| mapping.range).collect();
    target.large_pages(&ranges, only_stranded)
}

/// Lists regions that are entirely on one huge page, in address order.
fn huge_regions(runs: &[PageRun], sizes: PageSizes) -> Vec<Region> {
    let huge = runs.iter().filter(|run| run.huge && run.present && !run.zero && !run.file);
    huge.flat_map(|run| sizes.regions_inside(run.range)).collect()
}

/// Minimum huge pages of a sample, unless there are fewer. Smaller samples have large errors.
const LEAST_SAMPLE: f64 = 30.0;

#[allow(clippy::cast_precision_loss)]
fn enough(part: Share, huge_pages: u64) -> Share {
    let least = LEAST_SAMPLE / huge_pages.max(1) as f64;
    Share::ratio(part.get().max(least).min(1.0))
}

/// Whether `region` belongs to a sample of `part` of all. Multiplication by the golden ratio
/// spreads neighbours evenly.
#[allow(clippy::cast_precision_loss)]
fn is_drawn(region: Region, part: Share) -> bool {
    let spread = region.get().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (spread >> 11) as f64 / (1_u64 << 53) as f64 <= part.get()
}

#[cfg(test)]
mod tests {
    use hugepilot_units::{AddrRange, Bytes, VirtAddr};

    use super::*;

    #[test]
    fn a_sample_is_even_and_of_about_the_requested_size() {
        for percent in [1.0, 10.0, 50.0] {
            let drawn =
                (0..100_000).filter(|&n| is_drawn(Region::new(n), Share::percent(percent))).count();
            assert!((drawn as f64 / 1000.0 / percent - 1.0).abs() < 0.05, "{percent} %: {drawn}");
        }
        let firsts =
            (0..1000).filter(|&n| is_drawn(Region::new(2 * n), Share::percent(50.0))).count();
        assert!((400..600).contains(&firsts), "a pattern of the addresses decides: {firsts}");
        assert!((0..1000).all(|n| is_drawn(Region::new(n), Share::ALL)));
    }

    #[test]
    fn a_sample_has_a_minimum_size() {
        let part = |percent, pages| enough(Share::percent(percent), pages).get();
        assert!((part(1.0, 100) - 0.3).abs() < 1e-9 && (part(1.0, 10_000) - 0.01).abs() < 1e-9);
        assert_eq!((part(0.0, 20), part(0.0, 0)), (1.0, 1.0));
    }

    #[test]
    fn unreadable_pages_are_counted_separately() {
        use hugepilot_kernel::fake::FakeTarget;
        let mut target = FakeTarget::with_bloat([(7, 400), (8, 400), (9, 0)]);
        let smaps =
            "00e00000-01400000 rw-p 00000000 00:00 0\nSize: 6144 kB\nAnonHugePages: 6144 kB\n";
        target.mappings =
            hugepilot_kernel::proc::parse_smaps(smaps.as_bytes(), std::path::Path::new("smaps"))
                .unwrap();
        target.hidden.set(Some(Region::new(8)));
        for exact in [true, false] {
            let census = take_census(&target, Share::ALL, exact, &mut |_, _| true).unwrap().census;
            assert_eq!((census.huge_pages, census.read_pages, census.unread_pages), (2, 2, 1));
            assert_eq!(census.bloat(), Bytes::kib(1600), "of region 7");
        }
    }

    #[test]
    fn only_whole_huge_pages_with_memory_are_candidates() {
        let run = |start_mib: u64, mib, huge, zero| PageRun {
            range: AddrRange::at(VirtAddr::new(start_mib << 20), Bytes::mib(mib)),
            present: true,
            swapped: false,
            zero,
            huge,
            file: false,
        };
        let runs = [
            run(2, 4, true, false),
            run(6, 2, false, false),
            run(8, 2, true, true),
            run(11, 2, true, false),
        ];
        let regions: Vec<_> =
            huge_regions(&runs, PageSizes::X86_64).iter().map(|r| r.get()).collect();
        assert_eq!(regions, [1, 2]);
    }
}
