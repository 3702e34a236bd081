//! Huge-page use of a process, and why its other memory is on base pages. Only reads.

use std::collections::BTreeMap;

use hugepilot_kernel::memory::free_huge;
use hugepilot_kernel::{KernelError, Process, Target};
use hugepilot_policy::{Limits, mapping_skip, region_skip};
use hugepilot_profiler::{ZeroFilled, zero_filled};
use hugepilot_record::status::{MappingStatus, SCHEMA, Sizes, StatusReport, StatusWarning};
use hugepilot_record::tune::TargetInfo;
use hugepilot_record::{Mapping, PageRun, RegionPages, SkipReason};
use hugepilot_units::{AddrRange, Bytes, PageSizes, Region};

/// Reads the state of every mapping of `process`. With `read_contents`, also reads the huge pages
/// to count zero-filled pages: 0.1 to 0.5 s per GiB of huge pages. Faults nothing in: it reads only
/// pages that the pagemap shows as present.
///
/// # Errors
/// If the process has ended or its mappings cannot be read. Other missing permissions are warnings
/// of the report.
pub fn status(process: &Process, read_contents: bool) -> Result<StatusReport, KernelError> {
    let mut reader = Reader {
        process,
        sizes: process.sizes(),
        read_contents,
        warnings: Vec::new(),
        thp_disabled: process.thp_disabled(),
    };
    let mappings: Vec<MappingStatus> =
        process.mappings()?.iter().map(|mapping| reader.mapping(mapping)).collect();
    let mut totals = Sizes { zero_filled_bytes: Some(Bytes::ZERO), ..Sizes::default() };
    for mapping in &mappings {
        totals.add(&mapping.sizes);
    }
    let free_huge_bytes = free_huge(process.root(), reader.sizes).unwrap_or(Bytes::ZERO);
    if free_huge_bytes < reader.sizes.huge && totals.eligible_bytes > Bytes::ZERO {
        reader.warnings.push(StatusWarning::NoFreeBlock);
    }
    let hidden = process.unseen_cgroup().map(|cgroup| StatusWarning::HiddenMemoryLimit { cgroup });
    reader.warnings.extend(hidden);
    let id = process.id();
    Ok(StatusReport {
        schema: SCHEMA.to_owned(),
        target: TargetInfo { pid: id.pid, command: id.command.clone() },
        totals,
        mappings,
        free_huge_bytes,
        warnings: reader.warnings,
    })
}

/// Reader of the mappings of one process.
struct Reader<'a> {
    process: &'a Process,
    sizes: PageSizes,
    read_contents: bool,
    thp_disabled: bool,
    warnings: Vec<StatusWarning>,
}

impl Reader<'_> {
    fn mapping(&mut self, mapping: &Mapping) -> MappingStatus {
        let mut sizes = Sizes {
            size_bytes: mapping.range.len(),
            resident_bytes: mapping.resident,
            huge_bytes: mapping.huge,
            zero_filled_bytes: Some(Bytes::ZERO),
            ..Sizes::default()
        };
        if mapping.resident > Bytes::ZERO {
            match self.process.page_runs(mapping.range) {
                Ok(runs) => self.regions(mapping, &runs, &mut sizes),
                Err(error) => {
                    sizes.zero_filled_bytes = None;
                    self.warn(StatusWarning::PagemapUnreadable { error: error.to_string() });
                }
            }
        }
        MappingStatus {
            range: mapping.range,
            kind: mapping.kind,
            name: mapping.label().to_owned(),
            sizes,
        }
    }

    fn regions(&mut self, mapping: &Mapping, runs: &[PageRun], sizes: &mut Sizes) {
        let whole = mapping_skip(mapping).or(self.thp_disabled.then_some(SkipReason::ThpDisabled));
        let regions = count_regions(runs, self.sizes);
        let mut not_huge: BTreeMap<SkipReason, Bytes> = BTreeMap::new();
        for pages in regions.values().filter(|pages| !pages.huge) {
            let resident = self.sizes.base.times(pages.resident);
            match whole.or_else(|| self.region_reason(mapping, pages)) {
                None => sizes.eligible_bytes += resident,
                Some(reason) => *not_huge.entry(reason).or_default() += resident,
            }
        }
        sizes.not_huge_bytes =
            not_huge.into_iter().filter(|&(_, bytes)| bytes > Bytes::ZERO).collect();
        sizes.zero_filled_bytes = self.zero_filled(runs);
    }

    /// Reason why a region on base pages cannot be promoted now; `None` if it can.
    fn region_reason(&self, mapping: &Mapping, pages: &RegionPages) -> Option<SkipReason> {
        if !mapping.range.covers(pages.region.range(self.sizes)) {
            return Some(SkipReason::Unaligned);
        }
        // Reading each region costs a call, so only mappings with shared pages are read.
        let exact = (mapping.shared > Bytes::ZERO)
            .then(|| self.process.region_pages(pages.region).ok())
            .flatten();
        region_skip(exact.as_ref().unwrap_or(pages), self.sizes, &Limits::default())
    }

    fn zero_filled(&mut self, runs: &[PageRun]) -> Option<Bytes> {
        if !self.read_contents {
            return None;
        }
        self.warn(match zero_filled(self.process, runs) {
            Ok(ZeroFilled { bytes, unread: 0 }) => return Some(bytes),
            Ok(ZeroFilled { unread, .. }) => {
                StatusWarning::HugePagesUnreadable { huge_pages: unread }
            }
            Err(error) => StatusWarning::ContentsUnreadable {
                error: error.to_string(),
                denied: error.is_denied(),
            },
        });
        None
    }

    fn warn(&mut self, warning: StatusWarning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

/// Counts the pages of every region that `runs` touch. Runs do not show shared pages.
fn count_regions(runs: &[PageRun], sizes: PageSizes) -> BTreeMap<Region, RegionPages> {
    let mut regions = BTreeMap::new();
    for run in runs {
        let mut rest = run.range;
        while !rest.is_empty() {
            let region = sizes.region_of(rest.start);
            let part = rest.intersect(region.range(sizes));
            let pages = regions.entry(region).or_insert(RegionPages {
                region,
                resident: 0,
                swapped: 0,
                huge: false,
                shared: 0,
            });
            let count = part.len().get() / sizes.base.get();
            pages.resident += if run.present && !run.zero { count } else { 0 };
            pages.swapped += if run.swapped { count } else { 0 };
            // A huge page of another size (hugetlb) counts in the regions that it covers.
            pages.huge |= run.huge && !run.zero;
            rest = AddrRange::new(part.end, rest.end);
        }
    }
    regions
}

#[cfg(test)]
mod tests {
    use hugepilot_units::VirtAddr;

    use super::*;

    fn run(start: u64, pages: u64, huge: bool, zero: bool) -> PageRun {
        let sizes = PageSizes::X86_64;
        PageRun {
            range: AddrRange::at(VirtAddr::new(start), sizes.base.times(pages)),
            present: true,
            swapped: false,
            zero,
            huge,
            file: false,
        }
    }

    #[test]
    fn runs_are_cut_at_region_borders() {
        let regions = count_regions(&[run((4 << 20) - 8192, 5, false, false)], PageSizes::X86_64);
        let counts: Vec<_> = regions.values().map(|p| (p.region.get(), p.resident)).collect();
        assert_eq!(counts, [(1, 2), (2, 3)]);
    }

    #[test]
    fn the_zero_page_uses_no_memory() {
        let runs = [run(2 << 20, 512, true, true), run(4 << 20, 512, true, false)];
        let regions = count_regions(&runs, PageSizes::X86_64);
        let counts: Vec<_> = regions.values().map(|p| (p.resident, p.huge)).collect();
        assert_eq!(counts, [(0, false), (512, true)]);
    }
}
