//! Memory of a workload: limits of the machine, and reserved or resident mappings.

use hugepilot_kernel::{AnonMap, OwnMemory, Pages, Root, memory};
use hugepilot_units::{AddrRange, Bytes, PageSizes, VirtAddr};

use super::rng::mix;
use crate::{Result, WorkloadError};

/// Page sizes and available memory of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Page sizes.
    pub sizes: PageSizes,
    /// Memory that this process may take, so that no process is swapped or killed.
    pub memory: OwnMemory,
}

impl MemoryLimits {
    /// Reads the state of this machine.
    ///
    /// # Errors
    /// [`WorkloadError::Kernel`] when the page sizes cannot be read.
    pub fn live() -> Result<Self> {
        let root = Root::live();
        Ok(Self { sizes: memory::page_sizes(&root)?, memory: OwnMemory::read(&root) })
    }
}

/// Memory parameters of all workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Resident memory. Rounded up to huge pages.
    pub footprint: Bytes,
    /// Pages to request from the kernel.
    pub pages: Pages,
    /// Seed of the random accesses.
    pub seed: u64,
}

impl MemoryConfig {
    /// 1 GiB, default pages, seed 1.
    pub const DEFAULT: Self = Self { footprint: Bytes::gib(1), pages: Pages::Default, seed: 1 };

    /// Returns the footprint, checked: at least one huge page, and `peak_percent` of it fits into
    /// memory.
    pub(crate) fn fitting(
        self,
        name: &'static str,
        peak_percent: u64,
        machine: &MemoryLimits,
    ) -> Result<Bytes> {
        let huge = machine.sizes.huge;
        if self.footprint < huge {
            return Err(WorkloadError::TooSmall {
                flag: "--footprint",
                value: self.footprint,
                min: huge,
            });
        }
        let footprint = Bytes::new(
            self.footprint.get().checked_next_multiple_of(huge.get()).unwrap_or(u64::MAX),
        );
        let required = Bytes::new(footprint.times(peak_percent).get() / 100);
        let spare = machine.memory.room();
        if required > spare {
            let max = Bytes::new(spare.times(100).get() / peak_percent);
            let max_footprint = VirtAddr::new(max.get()).align_down(huge).since(VirtAddr::new(0));
            return Err(WorkloadError::TooLarge {
                workload: name,
                required,
                memory: machine.memory,
                flag: "--footprint",
                max: max_footprint,
            });
        }
        Ok(footprint)
    }

    /// Reserves the footprint under `name` and touches every base page.
    pub(crate) fn resident(self, name: &'static str, machine: &MemoryLimits) -> Result<AnonMap> {
        let footprint = self.fitting(name, 100, machine)?;
        let mut map = reserve(name, footprint, self.pages, machine.sizes)?;
        touch(map.words_mut(), machine.sizes.base);
        Ok(map)
    }

    /// Rejects a choice of pages, for workloads in the global allocator.
    pub(crate) fn refuse_pages(self, workload: &'static str) -> Result<()> {
        refuse_pages(self.pages, workload)
    }
}

/// Rejects other pages than the default.
pub(crate) fn refuse_pages(pages: Pages, workload: &'static str) -> Result<()> {
    if pages == Pages::Default { Ok(()) } else { Err(WorkloadError::PagesUnsupported { workload }) }
}

/// Reserves `len` bytes, named after the workload in `/proc/PID/maps`. No page is resident yet.
pub(crate) fn reserve(name: &str, len: Bytes, pages: Pages, sizes: PageSizes) -> Result<AnonMap> {
    let map = AnonMap::new(len, pages, sizes).map_err(|errno| WorkloadError::Map { len, errno })?;
    map.name(&format!("lab-{name}"));
    Ok(map)
}

/// Writes a word other than 0 into every base page, so that none is zero-filled.
pub(crate) fn touch(words: &mut [u64], base: Bytes) {
    let step = base.as_usize() / size_of::<u64>();
    for (page, word) in words.iter_mut().step_by(step).enumerate() {
        *word = mix(page as u64) | 1;
    }
}

/// Returns the address ranges in `parts`, widened to whole regions; adjacent ones are merged.
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

/// Returns the regions that hold any of `items`.
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

    /// A machine with more memory than tests use.
    pub(crate) const ROOMY: MemoryLimits =
        MemoryLimits { sizes: PageSizes::X86_64, memory: OwnMemory::system(Bytes::gib(64)) };

    /// A machine that has `available` memory.
    pub(crate) const fn with(available: Bytes) -> MemoryLimits {
        MemoryLimits { memory: OwnMemory::system(available), ..ROOMY }
    }

    #[test]
    fn too_large_a_footprint_is_an_error_with_the_largest_possible() {
        let machine = with(Bytes::gib(4) + Bytes::kib(5));
        let config = |footprint| MemoryConfig { footprint, ..MemoryConfig::DEFAULT };
        assert_eq!(config(Bytes::gib(3)).fitting("gups", 100, &machine).unwrap(), Bytes::gib(3));
        for (gib, percent, needed, most) in
            [(8, 100, Bytes::gib(8), Bytes::gib(3)), (2, 200, Bytes::gib(4), Bytes::mib(1536))]
        {
            let error = config(Bytes::gib(gib)).fitting("gups", percent, &machine).unwrap_err();
            let WorkloadError::TooLarge { required, max, .. } = error else { panic!("{error}") };
            assert_eq!((required, max), (needed, most));
        }
        assert!(config(Bytes::MAX).fitting("gups", 100, &machine).is_err());
        assert!(matches!(
            config(Bytes::kib(4)).fitting("gups", 100, &machine),
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
