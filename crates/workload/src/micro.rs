//! Micro-benchmarks of memory: pointer chains, STREAM, random updates, and a sweep of the TLB.
//!
//! Unlike a workload, a micro-benchmark measures once and returns a report. Each checks its result.

mod clock;
mod gups;
mod levels;
mod pchase;
mod random;
mod stream;
mod tlb_sweep;

use hugepilot_alloc::{AllocError, Backing, Chain, HugeVec, Options, Zero};
use hugepilot_kernel::{Root, cache};
use hugepilot_reports::lab::{LabMemory, LabWarning, PageKind};
use hugepilot_units::Bytes;

pub use gups::{GupsConfig, gups};
pub use pchase::{MAX_CHAINS, PchaseConfig, pchase};
pub use stream::{MAX_ROUNDS, StreamConfig, stream};
pub use tlb_sweep::{TlbSweepConfig, tlb_sweep};

use super::runner::MAX_THREADS;
use super::{MemoryLimits, Result, WorkloadError};

/// Bytes of a cache line, which an access loads.
const LINE_BYTES: u64 = 64;
/// Words of 8 bytes in a cache line.
const WORDS_PER_LINE: usize = 8;

/// Callback for the current step.
pub type Progress<'a> = &'a dyn Fn(&str);

/// Maps `count` zeroed items on pages of `kind`, all resident. `flag`: the one that sets their
/// size.
fn allocate<T: Zero>(
    count: usize,
    kind: PageKind,
    machine: &MemoryLimits,
    flag: &'static str,
) -> Result<HugeVec<T>> {
    let bytes = Bytes::new(count as u64).times(size_of::<T>() as u64);
    require_available([bytes], kind, machine, flag)?;
    let items = map(count, kind)?;
    items.prefault(1).map_err(WorkloadError::Pages)?;
    collapse(&items, kind);
    Ok(items)
}

/// Checks that arrays of these lengths on pages of `kind` fit into the available memory together.
/// `flag`: the one that sets the length of each.
fn require_available<const N: usize>(
    arrays: [Bytes; N],
    kind: PageKind,
    machine: &MemoryLimits,
    flag: &'static str,
) -> Result<()> {
    let (required, room) = (arrays.into_iter().sum(), machine.memory.room());
    // The kernel does not count free pages of a pool as available memory.
    if matches!(kind, PageKind::Hugetlb2M | PageKind::Hugetlb1G) || required <= room {
        return Ok(());
    }
    Err(WorkloadError::TooLarge {
        workload: "the benchmark",
        required,
        memory: machine.memory,
        flag,
        max: Bytes::new(room.get() / N as u64),
    })
}

/// Maps `count` zeroed items on pages of `kind`, which get resident when they are touched.
fn map<T: Zero>(count: usize, kind: PageKind) -> Result<HugeVec<T>> {
    HugeVec::zeroed(count, Options::new(chain(kind))).map_err(WorkloadError::Pages)
}

/// Puts resident items on huge pages, if `kind` is that of THP.
fn collapse<T: Zero>(items: &HugeVec<T>, kind: PageKind) {
    if kind == PageKind::Thp {
        // The report has the pages that the memory is on, so a failure shows there.
        let _ = items.collapse();
    }
}

/// Backings of a kind. A collapse works with THP set to `never`, too.
const fn chain(kind: PageKind) -> Chain {
    match kind {
        PageKind::Base => Chain::only(Backing::Base),
        PageKind::Thp => Chain::only(Backing::THP).then(Backing::COLLAPSE),
        PageKind::Hugetlb2M => Chain::only(Backing::Hugetlb2M),
        PageKind::Hugetlb1G => Chain::only(Backing::Hugetlb1G),
    }
}

/// Describes memory of `footprint`, of which `huge` is on huge pages.
fn describe(pages: PageKind, footprint: Bytes, huge: Option<Bytes>) -> LabMemory {
    let cache_bytes = cache::last_level(&Root::live());
    LabMemory { pages, footprint_bytes: footprint, huge_bytes: huge, cache_bytes }
}

/// Returns the bytes of `items` on huge pages; `None` if the pagemap cannot be read.
fn huge_bytes<T>(items: &HugeVec<T>) -> Option<Bytes> {
    items.usage().ok().map(|usage| usage.huge().min(bytes_of(items)))
}

fn bytes_of<T>(items: &HugeVec<T>) -> Bytes {
    Bytes::new(items.len() as u64).times(size_of::<T>() as u64)
}

/// Warns if `bytes` are less than `factor` times the last-level cache.
fn in_cache(bytes: Bytes, factor: u64, memory: &LabMemory) -> Option<LabWarning> {
    let cache_bytes = memory.cache_bytes?;
    let required_bytes = cache_bytes.times(factor);
    (bytes < required_bytes).then_some(LabWarning::InCache { bytes, required_bytes, cache_bytes })
}

/// Warns if there are more threads than processors.
fn many_threads(threads: u32) -> Option<LabWarning> {
    let processors = std::thread::available_parallelism().ok()?;
    let processors = u32::try_from(processors.get()).ok()?;
    (threads > processors).then_some(LabWarning::ManyThreads { threads, processors })
}

fn check_threads(threads: u32) -> Result<usize> {
    let count = threads as usize;
    if (1..=MAX_THREADS).contains(&count) {
        return Ok(count);
    }
    Err(WorkloadError::Threads { threads: count, max: MAX_THREADS })
}

/// Returns the suggestion of an error of the allocator.
pub(crate) fn help(error: &AllocError) -> Option<String> {
    error.help().map(|help| help.to_string())
}

#[cfg(test)]
mod tests;
