//! `status`: where a process's memory stands, and why the rest is not on huge pages. Only looks.

use std::collections::BTreeMap;

use hugepilot_kernel::memory::free_huge;
use hugepilot_kernel::{KernelError, Process, Target};
use hugepilot_policy::{Limits, mapping_skip, region_skip};
use hugepilot_profiler::{ZeroFilled, zero_filled};
use hugepilot_record::status::{MappingStatus, SCHEMA, Sizes, StatusReport};
use hugepilot_record::tune::TargetInfo;
use hugepilot_record::{Mapping, PageRun, RegionPages, SkipReason};
use hugepilot_units::{AddrRange, Bytes, PageSizes, Region};

/// Looks at every mapping of `process`. `read_contents` also reads the huge pages, for zero-filled pages: 0.1 to 0.5 s per
/// GiB of huge pages. Nothing is faulted in: only pages that the page map shows present are read.
///
/// # Errors
/// When the process is gone or may not be looked at. What is merely not allowed is said in the report's warnings.
pub fn status(process: &Process, read_contents: bool) -> Result<StatusReport, KernelError> {
    let mut looker = Looker {
        process,
        sizes: process.sizes(),
        read_contents,
        warnings: Vec::new(),
        thp_disabled: process.thp_disabled(),
    };
    let mappings: Vec<MappingStatus> =
        process.mappings()?.iter().map(|mapping| looker.mapping(mapping)).collect();
    let mut totals = Sizes { zero_filled_bytes: Some(Bytes::ZERO), ..Sizes::default() };
    for mapping in &mappings {
        totals.add(&mapping.sizes);
    }
    let free_huge_bytes = free_huge(process.root(), looker.sizes).unwrap_or(Bytes::ZERO);
    if free_huge_bytes < looker.sizes.huge && totals.eligible_bytes > Bytes::ZERO {
        looker.warnings.push(
            "no free block is large enough for a huge page: the kernel must compact memory first"
                .into(),
        );
    }
    looker.warnings.extend(unseen_limit(process));
    let id = process.id();
    Ok(StatusReport {
        schema: SCHEMA.to_owned(),
        target: TargetInfo { pid: id.pid, command: id.command.clone() },
        totals,
        mappings,
        free_huge_bytes,
        warnings: looker.warnings,
    })
}

/// That a memory limit of `process` cannot be seen, and what to do about it.
pub(crate) fn unseen_limit(process: &Process) -> Option<String> {
    let path = process.unseen_cgroup()?;
    Some(format!(
        "the memory limit of its cgroup {path} cannot be seen from here, so only the memory left on the system is heeded: \
         run on the host, or mount its cgroup hierarchy under /sys/fs/cgroup"
    ))
}

struct Looker<'a> {
    process: &'a Process,
    sizes: PageSizes,
    read_contents: bool,
    thp_disabled: bool,
    warnings: Vec<String>,
}

impl Looker<'_> {
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
                    self.warn(format!(
                        "the page map cannot be read, so only sizes are known: {error}"
                    ));
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
        sizes.not_huge_bytes = not_huge
            .into_iter()
            .filter(|&(_, bytes)| bytes > Bytes::ZERO)
            .map(|(reason, bytes)| (reason.to_string(), bytes))
            .collect();
        sizes.zero_filled_bytes = self.zero_filled(runs);
    }

    /// Why a region that is not huge cannot become so now.
    fn region_reason(&self, mapping: &Mapping, pages: &RegionPages) -> Option<SkipReason> {
        if !mapping.range.covers(pages.region.range(self.sizes)) {
            return Some(SkipReason::Unaligned);
        }
        // Only where smaps shows shared pages is it worth asking for each region.
        let exact = (mapping.shared > Bytes::ZERO)
            .then(|| self.process.region_pages(pages.region).ok())
            .flatten();
        region_skip(exact.as_ref().unwrap_or(pages), self.sizes, &Limits::default())
    }

    fn zero_filled(&mut self, runs: &[PageRun]) -> Option<Bytes> {
        if !self.read_contents {
            return None;
        }
        let why = match zero_filled(self.process, runs) {
            Ok(ZeroFilled { bytes, unread: 0 }) => return Some(bytes),
            Ok(ZeroFilled { unread, .. }) => format!(
                "{unread} huge pages of a mapping could not be read: the program forbids it (PROT_NONE), or their memory is \
                 broken"
            ),
            Err(error) if error.is_denied() => {
                format!("{error}; it needs CAP_SYS_PTRACE or the same user")
            }
            Err(error) => error.to_string(),
        };
        self.warn(format!(
            "zero-filled pages inside huge pages are not all counted, because {why}"
        ));
        None
    }

    fn warn(&mut self, warning: String) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}

/// The pages of every region that `runs` touch. Shared pages are not known from runs.
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
            // A huge page of another size (hugetlb) counts where it lies.
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
