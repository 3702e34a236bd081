//! Memory that simulators take.

/// Memory of a simulator, which grows with its cores and the regions in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Bytes of each core.
    pub core_bytes: u64,
    /// Bytes of each region.
    pub region_bytes: u64,
    /// Bytes of each region of each core.
    pub core_region_bytes: u64,
}

impl MemoryUse {
    /// Returns the sums.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            core_bytes: self.core_bytes + other.core_bytes,
            region_bytes: self.region_bytes + other.region_bytes,
            core_region_bytes: self.core_region_bytes + other.core_region_bytes,
        }
    }
    /// Returns the bytes with these cores and regions.
    pub const fn bytes(&self, cores: u64, regions: u64) -> u64 {
        let of_region = self.region_bytes.saturating_add(cores * self.core_region_bytes);
        (cores * self.core_bytes).saturating_add(regions.saturating_mul(of_region))
    }
}

/// Returns the bytes of the elements of a slice.
pub(crate) const fn bytes_of<T>(all: &[T]) -> u64 {
    size_of_val(all) as u64
}
