//! The memory of a workload: what the machine can spare, and pages that are really there.

use hugepilot_kernel::{AnonMap, Pages, Root, memory};
use hugepilot_units::{AddrRange, Bytes, PageSizes, VirtAddr};

use super::rng::mix;
use crate::{Result, WorkloadError};

/// What every workload leaves free, so that it is neither swapped nor killed, nor anyone else.
pub(crate) const RESERVE: Bytes = Bytes::gib(1);

/// What a workload needs to know of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Its page sizes.
    pub sizes: PageSizes,
    /// Memory that can be had without swapping.
    pub available: Bytes,
}

impl Machine {
    /// The machine this runs on, now.
    ///
    /// # Errors
    /// [`WorkloadError::Kernel`] when `/proc/meminfo` or the page sizes cannot be read.
    pub fn live() -> Result<Self> {
        let root = Root::live();
        let available = memory::mem_info(&root)?.available;
        Ok(Self { sizes: memory::page_sizes(&root)?, available })
    }
}

/// What all workloads are told about their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// How much to make resident. Rounded up to huge pages.
    pub footprint: Bytes,
    /// Which pages to ask the kernel for.
    pub pages: Pages,
    /// What the random choices start from: the same seed makes the same accesses.
    pub seed: u64,
}

impl MemoryConfig {
    /// 1 GiB, the pages the system gives, seed 1.
    pub const DEFAULT: Self = Self { footprint: Bytes::gib(1), pages: Pages::Default, seed: 1 };

    /// The footprint, checked: at least one huge page, and `peak_percent` of it can be spared.
    pub(crate) fn fitting(
        self,
        name: &'static str,
        peak_percent: u64,
        machine: &Machine,
    ) -> Result<Bytes> {
        let huge = machine.sizes.huge;
        if self.footprint < huge {
            return Err(WorkloadError::TooSmall {
                flag: "--footprint",
                found: self.footprint,
                least: huge,
            });
        }
        let footprint = Bytes::new(
            self.footprint.get().checked_next_multiple_of(huge.get()).unwrap_or(u64::MAX),
        );
        let need = Bytes::new(footprint.times(peak_percent).get() / 100);
        let spare = machine.available - RESERVE;
        if need > spare {
            let most = Bytes::new(spare.times(100).get() / peak_percent);
            let most = VirtAddr::new(most.get()).align_down(huge).since(VirtAddr::new(0));
            let available = machine.available;
            return Err(WorkloadError::TooLarge {
                workload: name,
                need,
                available,
                reserve: RESERVE,
                most,
            });
        }
        Ok(footprint)
    }

    /// Reserves the footprint under `name` and touches every base page of it.
    pub(crate) fn resident(self, name: &'static str, machine: &Machine) -> Result<AnonMap> {
        let footprint = self.fitting(name, 100, machine)?;
        let mut map = reserve(name, footprint, self.pages, machine.sizes)?;
        touch(map.words_mut(), machine.sizes.base);
        Ok(map)
    }

    /// Refuses a choice of pages, for workloads that live in the global allocator.
    pub(crate) fn refuse_pages(self, workload: &'static str) -> Result<()> {
        refuse_pages(self.pages, workload)
    }
}

/// As [`MemoryConfig::refuse_pages`].
pub(crate) fn refuse_pages(pages: Pages, workload: &'static str) -> Result<()> {
    if pages == Pages::Default { Ok(()) } else { Err(WorkloadError::PagesNotOurs { workload }) }
}

/// Reserves `len` bytes, named after the workload in `/proc/PID/maps`. Nothing is resident yet.
pub(crate) fn reserve(name: &str, len: Bytes, pages: Pages, sizes: PageSizes) -> Result<AnonMap> {
    let map = AnonMap::new(len, pages, sizes).map_err(|errno| WorkloadError::Map { len, errno })?;
    map.name(&format!("lab-{name}"));
    Ok(map)
}

/// Writes one word into every base page, never 0: such a page is resident, and no zero page to be given back.
pub(crate) fn touch(words: &mut [u64], base: Bytes) {
    let step = base.as_usize() / size_of::<u64>();
    for (page, word) in words.iter_mut().step_by(step).enumerate() {
        *word = mix(page as u64) | 1;
    }
}

/// The addresses in `parts`, widened to whole regions; neighbours become one range.
pub(crate) fn whole_regions(
    parts: impl IntoIterator<Item = AddrRange>,
    sizes: PageSizes,
) -> Vec<AddrRange> {
    let widen = |part: AddrRange| {
        AddrRange::new(part.start.align_down(sizes.huge), part.end.align_up(sizes.huge))
    };
    let mut merged: Vec<AddrRange> = Vec::new();
    let mut parts: Vec<AddrRange> = parts.into_iter().map(widen).collect();
    parts.sort_unstable();
    for part in parts {
        match merged.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => merged.push(part),
        }
    }
    merged
}

/// The regions that hold any of `items`, wherever the allocator put them.
pub(crate) fn regions_of<'a, T: 'a>(
    items: impl Iterator<Item = &'a T>,
    sizes: PageSizes,
) -> Vec<AddrRange> {
    let mut ranges = Vec::new();
    let mut last = AddrRange::default();
    for item in items {
        let address = VirtAddr::new(std::ptr::from_ref(item).addr() as u64);
        if !last.contains(address) {
            last = sizes.region_of(address).range(sizes);
            ranges.push(last);
        }
    }
    whole_regions(ranges, sizes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A machine with plenty of memory: tests use little of it.
    pub(crate) const ROOMY: Machine =
        Machine { sizes: PageSizes::X86_64, available: Bytes::gib(64) };

    #[test]
    fn refuses_what_the_machine_cannot_spare_and_names_what_would_do() {
        let machine = Machine { available: Bytes::gib(4) + Bytes::kib(5), ..ROOMY };
        let ask = |footprint| MemoryConfig { footprint, ..MemoryConfig::DEFAULT };
        assert_eq!(ask(Bytes::gib(3)).fitting("gups", 100, &machine).unwrap(), Bytes::gib(3));
        let refusal = ask(Bytes::gib(8)).fitting("gups", 100, &machine).unwrap_err().to_string();
        assert!(refusal.contains("needs 8GiB") && refusal.contains("at most 3GiB"), "{refusal}");
        let refusal = ask(Bytes::gib(2)).fitting("tree", 200, &machine).unwrap_err().to_string();
        assert!(refusal.contains("needs 4GiB") && refusal.contains("at most 1.5GiB"), "{refusal}");
        assert!(ask(Bytes::MAX).fitting("gups", 100, &machine).is_err());
        assert!(matches!(
            ask(Bytes::kib(4)).fitting("gups", 100, &machine),
            Err(WorkloadError::TooSmall { .. })
        ));
    }

    #[test]
    fn every_base_page_is_touched() {
        let config = MemoryConfig { footprint: Bytes::mib(3), ..MemoryConfig::DEFAULT };
        let map = config.resident("test", &ROOMY).unwrap();
        assert_eq!(map.words().len(), 4 << 17);
        assert!(map.words().chunks(512).all(|page| page.iter().any(|&word| word != 0)));
    }

    #[test]
    fn neighbouring_regions_become_one_range() {
        let part = |start, end| AddrRange::new(VirtAddr::new(start), VirtAddr::new(end));
        let merged = whole_regions(
            [part(9 << 20, 10 << 20), part(5, 2 << 20), part(3 << 20, 4 << 20)],
            ROOMY.sizes,
        );
        assert_eq!(merged, [part(0, 4 << 20), part(8 << 20, 10 << 20)]);
    }

    #[test]
    fn items_are_found_where_they_are() {
        let items = vec![7_u64; 1 << 19];
        let ranges = regions_of(items.iter(), ROOMY.sizes);
        let at = |i: usize| VirtAddr::new(std::ptr::from_ref(&items[i]).addr() as u64);
        assert_eq!(ranges.len(), 1);
        assert!(ranges[0].contains(at(0)) && ranges[0].contains(at(items.len() - 1)));
    }
}
