//! Probes of promotion, demotion, and reads of pagemap and memory.

use std::time::Instant;

use hugepilot_record::Errno;
use hugepilot_reports::doctor::{Detail, Evidence, Probe};
use hugepilot_units::{AddrRange, Bytes, Nanos, PageSizes, Region};

use super::users;
use crate::rights::{Capability, Rights};
use crate::sys::anon::{AnonMap, Pages};
use crate::sys::fork::{Child, Task};
use crate::sys::reach::{self, Call};
use crate::{KernelError, Process, Root, Target, Unsupported, unsupported};

/// Capabilities of which one permits advice on the memory of other users' processes and reads of
/// their pagemap; before Linux 6.15 only the latter.
const INSPECT: &[Capability] = &[Capability::Perfmon, Capability::SysPtrace];

/// Base pages that the child of the demotion probe uses of its huge page.
const USED: u64 = 16;

/// Child with memory of one huge page, opened as any target is.
struct ProbeChild {
    _child: Child,
    process: Process,
    region: Region,
    sizes: PageSizes,
}

impl ProbeChild {
    fn new(root: &Root, sizes: PageSizes, stride: Bytes, task: Task) -> Result<Self, Unsupported> {
        let mut map = AnonMap::new(sizes.huge, Pages::Default, sizes)
            .map_err(|errno| Unsupported::NoProbeMemory { errno })?;
        let region = sizes.region_of(map.range().start);
        let child = Child::start(&mut map, stride, task, sizes)
            .map_err(|errno| Unsupported::NoProbeChild { errno })?;
        let process =
            Process::open(root, child.pid()).map_err(|error| Unsupported::because(&error))?;
        Ok(Self { _child: child, process, region, sizes })
    }
    fn range(&self) -> AddrRange {
        self.region.range(self.sizes)
    }
    /// Returns whether its memory is a huge page, and the number of its base pages. Kernels without
    /// PAGEMAP_SCAN show this in smaps.
    fn pages(&self) -> Result<(bool, u64), KernelError> {
        if let Ok(pages) = self.process.region_pages(self.region) {
            return Ok((pages.huge, pages.resident));
        }
        let (range, sizes) = (self.range(), self.sizes);
        let mappings = self.process.mappings()?;
        let here = mappings.iter().find(|mapping| mapping.range.covers(range));
        Ok(here.map_or((false, 0), |m| (m.huge >= sizes.huge, m.resident.get() / sizes.base.get())))
    }
}

/// Runs the four probes.
pub(super) fn probes(root: &Root, sizes: PageSizes, rights: &Rights) -> Vec<Probe> {
    let (promote, scan, read) = match on_base_pages(root, sizes) {
        Ok(child) => {
            let scan = pagemap_scan(&child, rights);
            let read = read_target_memory(&child, rights);
            (promote(&child, rights), scan, read)
        }
        Err(reason) => (
            Probe::no(Probe::PROMOTE, reason.clone()),
            Probe::no(Probe::PAGEMAP_SCAN, reason.clone()),
            Probe::no(Probe::READ_TARGET_MEMORY, reason),
        ),
    };
    vec![promote, demote_frees_zero_pages(root, sizes, rights), scan, read]
}

/// Probes whether a split frees zero-filled pages.
pub(super) fn demote_frees_zero_pages(root: &Root, sizes: PageSizes, rights: &Rights) -> Probe {
    let name = Probe::DEMOTE_FREES_ZERO_PAGES;
    let stride = Bytes::new(sizes.huge.get() / USED);
    let child = ProbeChild::new(root, sizes, stride, Task::HoldHuge);
    match child.and_then(|child| demote(&child, rights)) {
        Ok(evidence) => Probe::yes(name, evidence),
        Err(reason) => Probe::no(name, reason),
    }
}

/// Starts a child on base pages. If THP is `always`, khugepaged may promote it first.
fn on_base_pages(root: &Root, sizes: PageSizes) -> Result<ProbeChild, Unsupported> {
    const TRIES: usize = 3;
    let mut child = ProbeChild::new(root, sizes, sizes.base, Task::Hold)?;
    for _ in 1..TRIES {
        if matches!(child.pages(), Ok((true, _))) {
            child = ProbeChild::new(root, sizes, sizes.base, Task::Hold)?;
        }
    }
    Ok(child)
}

fn promote(child: &ProbeChild, rights: &Rights) -> Probe {
    let name = Probe::PROMOTE;
    if matches!(child.pages(), Ok((true, _))) {
        return Probe::no(name, Unsupported::KhugepagedFirst);
    }
    let started = Instant::now();
    // A page may be locked for a moment: the kernel's own tests try twice, too.
    let result = child.process.collapse(child.region).or_else(|errno| match errno {
        Errno::EAGAIN => child.process.collapse(child.region),
        errno => Err(errno),
    });
    let duration_ns = Nanos::from(started.elapsed());
    let reason = match (result, child.pages()) {
        (Ok(_), Ok((true, _))) => {
            let evidence = Evidence::Promoted { promoted_bytes: child.sizes.huge };
            let details = [Detail::Duration { duration_ns }, users(&[INSPECT], rights)];
            return Probe::yes(name, evidence).with_details(details);
        }
        (Ok(_), Ok(_)) => Unsupported::NotPromoted,
        (Ok(_), Err(error)) => Unsupported::NotVerified { error: error.to_string() },
        (Err(Errno::EINVAL), _) if child.process.thp_disabled() => Unsupported::ThpDisabled,
        (Err(errno), _) => {
            unsupported::of_advice(errno, reach::answer(Call::ProcessMadvise), rights)
        }
    };
    Probe::no(name, reason)
}

fn demote(child: &ProbeChild, rights: &Rights) -> Result<Evidence, Unsupported> {
    let unread = |error: KernelError| Unsupported::NotVerified { error: error.to_string() };
    let (is_huge, before) = child.pages().map_err(unread)?;
    if !is_huge {
        return Err(if child.process.thp_disabled() {
            Unsupported::ThpDisabled
        } else {
            Unsupported::NoHugePage
        });
    }
    // This page was never written, so MADV_COLD ages no page in use.
    let zero_page = child.range().start.plus(child.sizes.base);
    child.process.split(zero_page).map_err(|errno| {
        unsupported::of_advice(errno, reach::answer(Call::ProcessMadvise), rights)
    })?;
    match child.pages().map_err(unread)? {
        (true, _) => Err(Unsupported::NotSplit),
        (false, after) if after >= before => Err(Unsupported::ZeroPagesKept),
        (false, after) => Ok(Evidence::ZeroPagesFreed {
            freed_pages: before - after,
            zero_pages: before.saturating_sub(USED),
        }),
    }
}

fn pagemap_scan(child: &ProbeChild, rights: &Rights) -> Probe {
    let name = Probe::PAGEMAP_SCAN;
    let runs = match child.process.page_runs(child.range()) {
        Ok(runs) => runs,
        Err(error) => {
            let errno = error.errno().unwrap_or(Errno(0));
            return Probe::no(name, unsupported::of_read("PAGEMAP_SCAN", errno, None, rights));
        }
    };
    let present = runs.iter().filter(|run| run.present).map(|run| run.range.len()).sum::<Bytes>();
    let pages = present.get() / child.sizes.base.get();
    let expected = child.sizes.base_per_huge();
    if pages == expected {
        Probe::yes(name, Evidence::PagemapRead { pages })
            .with_details([users(&[&[Capability::DacReadSearch], INSPECT], rights)])
    } else {
        Probe::no(name, Unsupported::PagesMissing { pages, expected })
    }
}

fn read_target_memory(child: &ProbeChild, rights: &Rights) -> Probe {
    let name = Probe::READ_TARGET_MEMORY;
    let mut word = [0_u8; 8];
    let first = AddrRange::at(child.range().start, Bytes::new(8));
    match child.process.read_memory(&[first], &mut word) {
        Ok(8) if u64::from_ne_bytes(word) == Child::MARK => {
            let is_limited = rights.yama_ptrace_scope == Some(1);
            let detail = if is_limited && !rights.has(Capability::SysPtrace) {
                Detail::ChildrenOnly
            } else {
                users(&[&[Capability::SysPtrace]], rights)
            };
            Probe::yes(name, Evidence::MemoryRead).with_details([detail])
        }
        Ok(_) => Probe::no(name, Unsupported::WrongMemory),
        Err(error) => {
            let errno = error.errno().unwrap_or(Errno(0));
            let answer = Some(reach::answer(Call::ProcessVmReadv));
            Probe::no(name, unsupported::of_read("process_vm_readv", errno, answer, rights))
        }
    }
}
