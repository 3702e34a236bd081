//! Memory of a live process, for a decision.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_kernel::{Result, Target};
use hugepilot_policy::mapping_skip;
use hugepilot_record::{Headroom, Mapping, ProcessMemory, RegionPages};
use hugepilot_units::{Bytes, Region};

use crate::ProcessView;
use crate::lazily_freed::region_pages;

/// Regions of which the pages are read at most: 256 GiB, in about a second.
pub const MAX_REGIONS: usize = 1 << 17;

/// Reads `target` and joins the result with its samples. Counts the pages of all regions in
/// mappings with samples, a few microseconds each, up to 0.2 ms beside lazily freed memory: regions
/// without samples are judged by their neighbours. Reading the mappings costs a walk over all page
/// tables.
///
/// # Errors
/// The target has ended or cannot be read: EACCES for the pagemap of another user without
/// CAP_DAC_READ_SEARCH, ENOTTY before Linux 6.7.
pub fn read_sampled(
    target: &dyn Target,
    view: &ProcessView,
    tlb_entries: u32,
) -> Result<ProcessMemory> {
    let stalls = view.window.all_stalls();
    read(target, target.mappings()?, Some(view), tlb_entries, |mapping, pages| {
        let sizes = target.sizes();
        let inside = sizes.span_inside(mapping.range);
        if inside.is_none_or(|inside| stalls.range(inside).next().is_none()) {
            return Ok(());
        }
        for region in sizes.regions_inside(mapping.range) {
            if pages.len() < MAX_REGIONS || stalls.contains_key(&region) {
                pages.insert(region, region_pages(target, mapping, region)?);
            }
        }
        Ok(())
    })
}

/// Reads `target`, with its samples if it has any. Counts the pages of all regions in mappings with
/// resident memory, the first `most` of them, a few microseconds each.
///
/// # Errors
/// As for [`read_sampled`].
pub fn read_memory(
    target: &dyn Target,
    view: Option<&ProcessView>,
    tlb_entries: u32,
    most: usize,
) -> Result<ProcessMemory> {
    read(target, target.mappings()?, view, tlb_entries, |mapping, pages| {
        if mapping.resident > Bytes::ZERO {
            let left = most.saturating_sub(pages.len());
            for region in target.sizes().regions_inside(mapping.range).take(left) {
                pages.insert(region, region_pages(target, mapping, region)?);
            }
        }
        Ok(())
    })
}

/// Joins `mappings` with the samples, and with the pages of some regions.
///
/// # Errors
/// As for [`read_sampled`].
pub fn read_regions(
    target: &dyn Target,
    mappings: Vec<Mapping>,
    regions: &BTreeSet<Region>,
    view: Option<&ProcessView>,
    tlb_entries: u32,
) -> Result<ProcessMemory> {
    read(target, mappings, view, tlb_entries, |mapping, pages| {
        let inside = target.sizes().span_inside(mapping.range);
        for &region in inside.into_iter().flat_map(|inside| regions.range(inside)) {
            pages.insert(region, region_pages(target, mapping, region)?);
        }
        Ok(())
    })
}

/// Reads everything but the pages of mappings that may be promoted, which `add` reads.
fn read(
    target: &dyn Target,
    mappings: Vec<Mapping>,
    view: Option<&ProcessView>,
    tlb_entries: u32,
    add: impl Fn(&Mapping, &mut BTreeMap<Region, RegionPages>) -> Result<()>,
) -> Result<ProcessMemory> {
    let mut pages = BTreeMap::new();
    for mapping in mappings.iter().filter(|mapping| mapping_skip(mapping).is_none()) {
        add(mapping, &mut pages)?;
    }
    Ok(ProcessMemory {
        time: target.now(),
        sizes: target.sizes(),
        untouched: mappings.iter().map(Mapping::untouched).sum(),
        mappings,
        heat: view.map_or_else(Vec::new, |view| view.heat.regions(tlb_entries)),
        stacks: view.map_or_else(BTreeSet::new, |view| view.stacks.clone()),
        pages,
        thp_disabled: target.thp_disabled(),
        headroom: Headroom { free_huge: target.free_huge(), ..target.headroom()? },
        pressure: target.pressure().unwrap_or_default(),
    })
}
