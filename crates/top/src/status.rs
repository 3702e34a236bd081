//! Huge-page use of a process, and why its other memory is on base pages. Only reads.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hugepilot_kernel::memory::free_huge;
use hugepilot_kernel::{KernelError, Mounts, Process, Target, thp};
use hugepilot_policy::{KernelView, Limits, process_skip, region_skip};
use hugepilot_profiler::{ZeroFilled, large_pages, region_pages, zero_filled};
use hugepilot_record::{
    Headroom, KernelReason, LargePages, Mapping, MappingKind, PageRun, RegionPages, SkipReason,
};
use hugepilot_reports::status::{
    KernelShare, MappingStatus, SCHEMA, Sizes, SkipShare, StatusReport, StatusWarning,
    status_summary,
};
use hugepilot_reports::tune::TargetInfo;
use hugepilot_units::{AddrRange, Bytes, PageSizes, Region};

/// Reads the state of every mapping of `process`. With `read_contents`, also reads the huge pages
/// to count zero-filled pages: 0.1 to 0.5 s per GiB of huge pages. Faults nothing in: it reads only
/// pages that the pagemap shows as present.
///
/// # Errors
/// If the process has ended or its mappings cannot be read. Other missing permissions are warnings
/// of the report.
pub fn status(process: &Process, read_contents: bool) -> Result<StatusReport, KernelError> {
    let sizes = process.sizes();
    let thp = thp::config(process.root(), sizes);
    let free_huge = free_huge(process.root(), sizes).ok();
    let thp_disabled = process.thp_disabled();
    let (headroom, unreadable) = read_headroom(process);
    let mut reader = Reader {
        process,
        sizes,
        read_contents,
        kernel: KernelView { sizes, thp: &thp, thp_disabled, free_huge },
        allowance: Allowance::new(headroom),
        mounts: None,
        reasons: BTreeMap::new(),
        warnings: unreadable.into_iter().collect(),
    };
    let read = process.mappings()?;
    let mappings: Vec<MappingStatus> = read.iter().map(|mapping| reader.mapping(mapping)).collect();
    let large = large_pages(process, &read, false).ok().flatten();
    let mut totals = Sizes { zero_filled_bytes: Some(Bytes::ZERO), ..Sizes::default() };
    for mapping in &mappings {
        totals.add(&mapping.sizes);
    }
    let free_huge_bytes = free_huge.unwrap_or(Bytes::ZERO);
    if free_huge_bytes < sizes.huge && totals.eligible_bytes > Bytes::ZERO {
        reader.warnings.push(StatusWarning::NoFreeBlock);
    }
    let hidden = process.unseen_cgroup().map(|cgroup| StatusWarning::HiddenMemoryLimit { cgroup });
    reader.warnings.extend(hidden);
    let Reader { reasons, warnings, .. } = reader;
    let kernel_reasons = shares(reasons);
    let unread =
        |warning: &StatusWarning| matches!(warning, StatusWarning::PagemapUnreadable { .. });
    let pages_known = !warnings.iter().any(unread);
    let (huge, resident) = (totals.huge_bytes, totals.resident_bytes);
    let summary = status_summary(huge, resident, &kernel_reasons, sizes.huge, pages_known);
    let id = process.id();
    Ok(StatusReport {
        schema: SCHEMA.to_owned(),
        target: TargetInfo { pid: id.pid, command: id.command.clone() },
        answer: summary.answer(),
        summary,
        skips: skips(&totals),
        totals,
        mappings,
        kernel_reasons,
        thp,
        stranded_bytes: large.as_ref().map(LargePages::stranded_bytes),
        large_page_bytes: large.map(|large| large.smaller),
        free_huge_bytes,
        obstacles: process.obstacles(),
        warnings,
    })
}

/// Reads the headroom of `process`. If that fails, returns no limit and a warning.
fn read_headroom(process: &Process) -> (Headroom, Option<StatusWarning>) {
    match process.headroom() {
        Ok(headroom) => (headroom, None),
        Err(error) => {
            let error = error.to_string();
            (Headroom::UNLIMITED, Some(StatusWarning::HeadroomUnreadable { error }))
        }
    }
}

/// Headroom for the eligible regions, of which `tune` promotes one after the other.
struct Allowance {
    headroom: Headroom,
    limits: Limits,
    /// Memory that huge pages add to the regions so far.
    taken: Bytes,
}

impl Allowance {
    fn new(headroom: Headroom) -> Self {
        Self { headroom, limits: Limits::default(), taken: Bytes::ZERO }
    }

    /// Takes the memory that the huge page of a region with these pages adds, unless there is a
    /// reason not to promote the region. Returns that reason.
    fn take(&mut self, pages: &RegionPages, sizes: PageSizes) -> Option<SkipReason> {
        let added = sizes.base.times(sizes.base_per_huge().saturating_sub(pages.resident));
        let needed = self.taken + added + sizes.huge;
        let skip = region_skip(pages, sizes, &self.limits)
            .or_else(|| self.limits.headroom_skip(self.headroom, needed));
        if skip.is_none() {
            self.taken += added;
        }
        skip
    }
}

/// Memory on base pages for which the kernel has the same reason.
#[derive(Default)]
struct Share {
    bytes: Bytes,
    eligible_bytes: Bytes,
    not_huge_bytes: BTreeMap<SkipReason, Bytes>,
}

fn shares(reasons: BTreeMap<KernelReason, Share>) -> Vec<KernelShare> {
    let share = |(reason, share): (KernelReason, Share)| KernelShare {
        outlook: reason.outlook(),
        reason,
        bytes: share.bytes,
        eligible_bytes: share.eligible_bytes,
        not_huge_bytes: share.not_huge_bytes,
    };
    let mut shares: Vec<_> = reasons.into_iter().map(share).collect();
    shares.sort_by_key(|share| Reverse(share.bytes));
    shares
}

fn skips(totals: &Sizes) -> Vec<SkipShare> {
    let share = |(&code, &bytes)| SkipShare { code, bytes };
    let mut skips: Vec<_> = totals.not_huge_bytes.iter().map(share).collect();
    skips.sort_by_key(|share| Reverse(share.bytes));
    skips
}

/// Reader of the mappings of one process.
struct Reader<'a> {
    process: &'a Process,
    sizes: PageSizes,
    read_contents: bool,
    kernel: KernelView<'a>,
    allowance: Allowance,
    /// Read when the first mapping of a file needs them.
    mounts: Option<Mounts>,
    reasons: BTreeMap<KernelReason, Share>,
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
            let whole = self.whole_reason(mapping);
            match self.process.page_runs(mapping.range) {
                Ok(runs) => self.regions(mapping, whole.as_ref(), &runs, &mut sizes),
                Err(error) => {
                    sizes.zero_filled_bytes = None;
                    self.warn(StatusWarning::PagemapUnreadable { error: error.to_string() });
                    let reason = whole.unwrap_or_else(|| self.kernel.pending(mapping, None));
                    let rest = mapping.resident - mapping.huge;
                    self.count(reason, rest, &mut sizes);
                }
            }
        }
        MappingStatus {
            range: mapping.range,
            kind: mapping.kind,
            name: mapping.label().to_owned(),
            inode: mapping.inode,
            proportional_bytes: mapping.proportional,
            sizes,
        }
    }

    /// Reason why the kernel promotes none of the mapping; `None` if it allows huge pages.
    fn whole_reason(&mut self, mapping: &Mapping) -> Option<KernelReason> {
        // Other shared memory has names that look like paths, but no mount.
        let is_file = mapping.kind == MappingKind::File || mapping.name.starts_with("/dev/shm/");
        let tmpfs = if is_file {
            self.mounts.get_or_insert_with(|| self.process.mounts()).tmpfs_of(&mapping.name)
        } else {
            None
        };
        self.kernel.mapping_reason(mapping, tmpfs)
    }

    fn regions(
        &mut self,
        mapping: &Mapping,
        whole: Option<&KernelReason>,
        runs: &[PageRun],
        sizes: &mut Sizes,
    ) {
        let skip = process_skip(mapping, self.kernel.thp_disabled);
        let may_be_skipped = mapping.shared > Bytes::ZERO || mapping.lazily_freed > Bytes::ZERO;
        let is_judged = skip.is_none() || whole.is_none();
        for pages in count_regions(runs, self.sizes).into_values() {
            if pages.huge || pages.resident == 0 {
                continue;
            }
            let resident = self.sizes.base.times(pages.resident);
            let is_whole = mapping.range.covers(pages.region.range(self.sizes));
            // Reading each region costs a call, so only those are read of which more is to know.
            // The runs show guards as swapped pages.
            let is_read = is_judged && (may_be_skipped || pages.swapped > 0);
            let exact = (is_read && is_whole && is_private(mapping))
                .then(|| region_pages(self.process, mapping, pages.region).ok())
                .flatten();
            let pages = exact.unwrap_or(pages);
            let skip = skip.or_else(|| {
                let unaligned = (!is_whole).then_some(SkipReason::Unaligned);
                unaligned.or_else(|| self.allowance.take(&pages, self.sizes))
            });
            let reason = self.kernel.region_reason(mapping, whole, &pages);
            let share = self.count(reason, resident, sizes);
            let (part, of_share) = match skip {
                None => (&mut sizes.eligible_bytes, &mut share.eligible_bytes),
                Some(skip) => (
                    sizes.not_huge_bytes.entry(skip).or_default(),
                    share.not_huge_bytes.entry(skip).or_default(),
                ),
            };
            *part += resident;
            *of_share += resident;
        }
        sizes.zero_filled_bytes = self.zero_filled(runs);
    }

    /// Adds memory on base pages to its reason.
    fn count(&mut self, reason: KernelReason, bytes: Bytes, sizes: &mut Sizes) -> &mut Share {
        if bytes > Bytes::ZERO {
            *sizes.kernel_reason_bytes.entry(reason.code()).or_default() += bytes;
        }
        let share = self.reasons.entry(reason).or_default();
        share.bytes += bytes;
        share
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

fn is_private(mapping: &Mapping) -> bool {
    matches!(mapping.kind, MappingKind::Anonymous | MappingKind::Stack)
}

/// Counts the pages of every region that `runs` touch. Runs do not show shared pages.
fn count_regions(runs: &[PageRun], sizes: PageSizes) -> BTreeMap<Region, RegionPages> {
    let mut regions = BTreeMap::new();
    for run in runs {
        let mut rest = run.range;
        while !rest.is_empty() {
            let region = sizes.region_of(rest.start);
            let part = rest.intersect(region.range(sizes));
            let pages = regions.entry(region).or_insert(RegionPages::on_base_pages(region, 0));
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
mod tests;
