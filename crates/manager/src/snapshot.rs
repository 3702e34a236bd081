//! Memory of a live process, for a decision.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_kernel::{Result, Target};
use hugepilot_policy::mapping_skip;
use hugepilot_profiler::ProcessView;
use hugepilot_record::{Mapping, ProcessMemory, RegionPages};
use hugepilot_units::{Bytes, Region};

use crate::engine::NeededRegions;

/// Regions of which the pages are read at most: 256 GiB, in about a second.
pub(crate) const MAX_REGIONS: usize = 1 << 17;

/// Reads `target` and joins the result with its samples. Counts the pages of the needed regions, a
/// few microseconds each: without a selection, those of mappings with samples, because regions
/// without samples are judged by their neighbours. Reading the mappings costs a walk over all page
/// tables.
///
/// # Errors
/// The target has ended or cannot be read: EACCES for the pagemap of another user without
/// CAP_DAC_READ_SEARCH, ENOTTY before Linux 6.7.
pub(crate) fn read_sampled(
    target: &dyn Target,
    view: &ProcessView,
    tlb_entries: u32,
    needed: NeededRegions<'_>,
) -> Result<ProcessMemory> {
    let stalls = view.window.all_stalls();
    read(target, Some(view), tlb_entries, needed, |mapping, pages| {
        let sizes = target.sizes();
        let inside = sizes.span_inside(mapping.range);
        if inside.is_none_or(|inside| stalls.range(inside).next().is_none()) {
            return Ok(());
        }
        for region in sizes.regions_inside(mapping.range) {
            if pages.len() < MAX_REGIONS || stalls.contains_key(&region) {
                pages.insert(region, target.region_pages(region)?);
            }
        }
        Ok(())
    })
}

/// Reads `target`, with its samples if it has any. Counts the pages of all regions in mappings with
/// resident memory, the first `most` of them, a few microseconds each; or of those that the goal
/// needs.
///
/// # Errors
/// As for [`read_sampled`].
pub(crate) fn read_memory(
    target: &dyn Target,
    view: Option<&ProcessView>,
    tlb_entries: u32,
    most: usize,
    needed: NeededRegions<'_>,
) -> Result<ProcessMemory> {
    read(target, view, tlb_entries, needed, |mapping, pages| {
        if mapping.resident > Bytes::ZERO {
            let left = most.saturating_sub(pages.len());
            for region in target.sizes().regions_inside(mapping.range).take(left) {
                pages.insert(region, target.region_pages(region)?);
            }
        }
        Ok(())
    })
}

/// Reads everything, with the pages of the `needed` regions of mappings that may be promoted. If
/// all are needed, `add` reads those of a mapping.
fn read(
    target: &dyn Target,
    view: Option<&ProcessView>,
    tlb_entries: u32,
    needed: NeededRegions<'_>,
    add: impl Fn(&Mapping, &mut BTreeMap<Region, RegionPages>) -> Result<()>,
) -> Result<ProcessMemory> {
    let mappings = target.mappings()?;
    let (needed, mut pages) = (needed(&mappings), BTreeMap::new());
    for mapping in mappings.iter().filter(|mapping| mapping_skip(mapping).is_none()) {
        let Some(needed) = &needed else {
            add(mapping, &mut pages)?;
            continue;
        };
        let Some(inside) = target.sizes().span_inside(mapping.range) else { continue };
        for &region in needed.range(inside) {
            pages.insert(region, target.region_pages(region)?);
        }
    }
    Ok(ProcessMemory {
        time: target.now(),
        sizes: target.sizes(),
        mappings,
        heat: view.map_or_else(Vec::new, |view| view.heat.regions(tlb_entries)),
        stacks: view.map_or_else(BTreeSet::new, |view| view.stacks.clone()),
        pages,
        thp_disabled: target.thp_disabled(),
        headroom: target.headroom()?,
    })
}
