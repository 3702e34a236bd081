//! Lazily freed memory (`MADV_FREE`) of a process: resident, and the kernel's to take.

use hugepilot_kernel::{Result, Target};
use hugepilot_record::{Mapping, RegionPages};
use hugepilot_units::{PageSizes, Region};

/// Counts the lazily freed pages of one region with `pages`, at most: by the flags of its page
/// frames where these may be read, else all that the mapping can have there. The flags count pages
/// that the program has written since; the sum of the mapping does not.
///
/// # Errors
/// As for [`Target::lazily_freed`].
fn lazily_freed(target: &dyn Target, mapping: &Mapping, pages: &RegionPages) -> Result<u64> {
    let of_mapping = pages_of(mapping, target.sizes());
    if of_mapping == 0 || pages.resident == 0 {
        return Ok(0);
    }
    let flagged = target.lazily_freed(pages.region)?.unwrap_or(pages.resident);
    Ok(flagged.min(pages.resident).min(of_mapping))
}

/// Lazily freed pages of a mapping.
fn pages_of(mapping: &Mapping, sizes: PageSizes) -> u64 {
    mapping.lazily_freed.get().div_ceil(sizes.base.get())
}

/// Reads the pages of a region of `mapping`, with those that are lazily freed or merged by KSM.
///
/// # Errors
/// As for [`Target::region_pages`].
pub fn region_pages(target: &dyn Target, mapping: &Mapping, region: Region) -> Result<RegionPages> {
    let pages = target.region_pages(region)?;
    // Of a mapping that mostly a fork shares, the few merged pages are not the cause.
    let is_cause = mapping.merged.times(2) >= mapping.shared;
    let merged = if is_cause && !mapping.merged.is_zero() { pages.shared } else { 0 };
    Ok(RegionPages { lazily_freed: lazily_freed(target, mapping, &pages)?, merged, ..pages })
}
