//! Promotion, demotion, and looking: tried on a child of ours.

use std::time::Instant;

use hugepilot_record::Errno;
use hugepilot_record::doctor::Probe;
use hugepilot_units::{AddrRange, Bytes, PageSizes, Region};

use super::whose;
use crate::rights::{Capability, Rights};
use crate::sys::anon::{AnonMap, Pages};
use crate::sys::fork::{Child, Task};
use crate::sys::reach::{self, Call};
use crate::unsupported::Unsupported;
use crate::{KernelError, Process, Root, Target};

/// Either lets one look at the memory of other users' processes; before Linux 6.15 only the latter.
const LOOK: &[Capability] = &[Capability::Perfmon, Capability::SysPtrace];
/// Why the demotion probe can tell nothing where there is no free huge page.
pub const NO_HUGE_PAGE: &str =
    "the child got no huge page to try it on: memory is fragmented, or THP is not to be had";

/// Base pages that the child of the demotion probe uses of its huge page.
const USED: u64 = 16;

/// One huge page's worth of memory in a child, and the child opened as any target is.
struct Patient {
    _child: Child,
    process: Process,
    region: Region,
    sizes: PageSizes,
}

impl Patient {
    fn new(root: &Root, sizes: PageSizes, stride: Bytes, task: Task) -> Result<Self, Unsupported> {
        let failed =
            |what: &str, errno| Unsupported::because(format!("{what} to try it on: {errno}"));
        let mut map = AnonMap::new(sizes.huge, Pages::Default, sizes)
            .map_err(|errno| failed("no memory could be mapped", errno))?;
        let region = sizes.region_of(map.range().start);
        let child = Child::start(&mut map, stride, task, sizes)
            .map_err(|errno| failed("no child process could be made", errno))?;
        let process = Process::open(root, child.pid())
            .map_err(|error| Unsupported::because(error.to_string()))?;
        Ok(Self { _child: child, process, region, sizes })
    }
    fn range(&self) -> AddrRange {
        self.region.range(self.sizes)
    }
    /// Whether it is on a huge page, and how many base pages it has. Kernels before PAGEMAP_SCAN tell by smaps.
    fn look(&self) -> Result<(bool, u64), KernelError> {
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
        Ok(patient) => {
            let scan = pagemap_scan(&patient, rights);
            let read = read_target_memory(&patient, rights);
            (promote(&patient, rights), scan, read)
        }
        Err(refusal) => (
            refusal.clone().probe(Probe::PROMOTE),
            refusal.clone().probe(Probe::PAGEMAP_SCAN),
            refusal.probe(Probe::READ_TARGET_MEMORY),
        ),
    };
    vec![promote, demote_frees_zero_pages(root, sizes, rights), scan, read]
}

/// Whether a split gives zero-filled pages back.
pub(super) fn demote_frees_zero_pages(root: &Root, sizes: PageSizes, rights: &Rights) -> Probe {
    let stride = Bytes::new(sizes.huge.get() / USED);
    match Patient::new(root, sizes, stride, Task::HoldHuge) {
        Ok(patient) => demote(&patient, rights),
        Err(refusal) => refusal.probe(Probe::DEMOTE_FREES_ZERO_PAGES),
    }
}

/// A child on base pages. Where THP is always on, khugepaged may be faster than we look.
fn on_base_pages(root: &Root, sizes: PageSizes) -> Result<Patient, Unsupported> {
    const TRIES: usize = 3;
    let mut patient = Patient::new(root, sizes, sizes.base, Task::Hold)?;
    for _ in 1..TRIES {
        if matches!(patient.look(), Ok((true, _))) {
            patient = Patient::new(root, sizes, sizes.base, Task::Hold)?;
        }
    }
    Ok(patient)
}

fn promote(patient: &Patient, rights: &Rights) -> Probe {
    let name = Probe::PROMOTE;
    if matches!(patient.look(), Ok((true, _))) {
        let why = "khugepaged put the child on a huge page before we could, so nothing was shown";
        return Probe::no(name, why, Some("hugepilot doctor, once more".to_owned()));
    }
    let started = Instant::now();
    // A page may be locked for a moment: the kernel's own tests try twice, too.
    let answer = patient.process.collapse(patient.region).or_else(|errno| match errno {
        Errno::EAGAIN => patient.process.collapse(patient.region),
        errno => Err(errno),
    });
    let took = started.elapsed();
    match (answer, patient.look()) {
        (Ok(_), Ok((true, _))) => {
            let why = format!("MADV_COLLAPSE put {} of a child on a huge page", patient.sizes.huge);
            let whose = whose(&[LOOK], rights);
            Probe::yes(name, why).with_detail(format!("took {} µs; {whose}", took.as_micros()))
        }
        (Ok(_), Ok(_)) => {
            Probe::no(name, "the kernel said yes, but no huge page was seen afterwards", None)
        }
        (Ok(_), Err(error)) => Probe::no(name, format!("the kernel said yes, but: {error}"), None),
        (Err(Errno::EINVAL), _) if patient.process.thp_disabled() => thp_disabled().probe(name),
        (Err(errno), _) => {
            Unsupported::of_advice(errno, reach::answer(Call::ProcessMadvise), rights).probe(name)
        }
    }
}

fn thp_disabled() -> Unsupported {
    Unsupported::because(
        "THP is disabled for us by prctl(PR_SET_THP_DISABLE), which children inherit",
    )
    .fixed_by("start hugepilot from a shell that is not under it")
}

fn demote(patient: &Patient, rights: &Rights) -> Probe {
    let name = Probe::DEMOTE_FREES_ZERO_PAGES;
    let before = match patient.look() {
        Ok((true, resident)) => resident,
        Ok((false, _)) if patient.process.thp_disabled() => return thp_disabled().probe(name),
        Ok((false, _)) => {
            return Probe::no(
                name,
                NO_HUGE_PAGE,
                Some("echo 1 | sudo tee /proc/sys/vm/compact_memory".to_owned()),
            );
        }
        Err(error) => return Probe::no(name, format!("cannot look: {error}"), None),
    };
    // A page that was never written: nothing that is used gets old.
    let zero_page = patient.range().start.plus(patient.sizes.base);
    if let Err(errno) = patient.process.split(zero_page) {
        return Unsupported::of_advice(errno, reach::answer(Call::ProcessMadvise), rights)
            .probe(name);
    }
    match patient.look() {
        Ok((true, _)) => {
            Probe::no(name, "MADV_COLD on one page was accepted, but split nothing", None)
        }
        Ok((false, after)) if after >= before => {
            let why = "the huge page was split, but its zero pages were not freed";
            Probe::no(name, why, Some("a kernel of Linux 6.12 or newer".to_owned()))
        }
        Ok((false, after)) => {
            let (freed, zero) = (before - after, before.saturating_sub(USED));
            Probe::yes(
                name,
                format!(
                    "MADV_COLD on one page split a huge page and freed {freed} of {zero} zero pages"
                ),
            )
        }
        Err(error) => Probe::no(name, format!("cannot look: {error}"), None),
    }
}

fn pagemap_scan(patient: &Patient, rights: &Rights) -> Probe {
    let name = Probe::PAGEMAP_SCAN;
    let runs = match patient.process.page_runs(patient.range()) {
        Ok(runs) => runs,
        Err(error) => {
            let errno = error.errno().unwrap_or(Errno(0));
            return Unsupported::of_look("PAGEMAP_SCAN", errno, None, rights).probe(name);
        }
    };
    let present = runs.iter().filter(|run| run.present).map(|run| run.range.len()).sum::<Bytes>();
    let (seen, base) = (present.get() / patient.sizes.base.get(), patient.sizes.base_per_huge());
    if seen == base {
        Probe::yes(name, format!("the page map of a child shows its {seen} pages"))
            .with_detail(whose(&[&[Capability::DacReadSearch], LOOK], rights))
    } else {
        Probe::no(name, format!("the page map of a child shows {seen} pages of {base}"), None)
    }
}

fn read_target_memory(patient: &Patient, rights: &Rights) -> Probe {
    let name = Probe::READ_TARGET_MEMORY;
    let mut word = [0_u8; 8];
    let first = AddrRange::at(patient.range().start, Bytes::new(8));
    match patient.process.read_memory(&[first], &mut word) {
        Ok(8) if u64::from_ne_bytes(word) == Child::MARK => {
            let children_only = rights.yama_ptrace_scope.is_some_and(|scope| scope == 1);
            let probe = Probe::yes(name, "process_vm_readv read what a child had written");
            if children_only && !rights.has(Capability::SysPtrace) {
                probe.with_detail(
                    "children only: kernel.yama.ptrace_scope=1, and cap_sys_ptrace is missing",
                )
            } else {
                probe.with_detail(whose(&[&[Capability::SysPtrace]], rights))
            }
        }
        Ok(_) => {
            Probe::no(name, "process_vm_readv read something else than the child had written", None)
        }
        Err(error) => {
            let errno = error.errno().unwrap_or(Errno(0));
            Unsupported::of_look(
                "process_vm_readv",
                errno,
                Some(reach::answer(Call::ProcessVmReadv)),
                rights,
            )
            .probe(name)
        }
    }
}
