//! Free pages that the kernel keeps in lists of each processor.

use hugepilot_record::Errno;
use hugepilot_units::{Bytes, PageSizes};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{AnonMap, Pages};

/// Memory that is touched on each processor: more than its list holds.
const LIST: Bytes = Bytes::mib(64);

/// Exchanges the pages of these lists for neighbouring ones, so that scattered free pages can join
/// their blocks, by touching and freeing `size` of memory. Costs 0.3 s for each GiB.
///
/// Since Linux 6.7 a list holds some 10,000 pages, which `/proc/buddyinfo` does not count and which
/// compaction does not free: after a fragmentation, each may be the only page that its block lacks.
/// Allocation takes them first, then the smallest free blocks. Memory is freed in the same order,
/// and the lists keep the pages that were freed last: those of the largest blocks, if `size`
/// exceeds the small ones. Up to half of it is touched on the processors of this thread.
///
/// # Errors
/// ENOMEM.
pub fn flush_free_lists(size: Bytes, sizes: PageSizes) -> Result<(), Errno> {
    if size.is_zero() {
        return Ok(());
    }
    let raw = |errno: rustix::io::Errno| Errno(errno.raw_os_error());
    let before = sched_getaffinity(None).map_err(raw)?;
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| before.is_set(cpu)).collect();
    let part = LIST.min(Bytes::new(size.get() / 2 / cpus.len().max(1) as u64));
    let mut map = AnonMap::new(size, Pages::Base, sizes)?;
    let page = sizes.base.as_usize() / 8;
    let mut pages = map.words_mut().chunks_mut(page);
    for cpu in cpus {
        let mut one = CpuSet::new();
        one.set(cpu);
        sched_setaffinity(None, &one).map_err(raw)?;
        pages.by_ref().take(part.as_usize() / 8 / page).for_each(|page| page[0] = 1);
    }
    sched_setaffinity(None, &before).map_err(raw)?;
    pages.for_each(|page| page[0] = 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_of_the_thread_stay_the_same() {
        let before = sched_getaffinity(None).unwrap();
        flush_free_lists(Bytes::mib(8), PageSizes::X86_64).unwrap();
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }
}
