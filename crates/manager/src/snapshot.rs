//! Memory of a live process, for a decision.

use std::collections::BTreeMap;

use hugepilot_kernel::{Result, Target};
use hugepilot_policy::mapping_skip;
use hugepilot_profiler::ProcessView;
use hugepilot_record::{Mapping, ProcessMemory, RegionPages};
use hugepilot_units::Region;

/// Regions of which the pages are read at most: 256 GiB, in about a second.
const MAX_REGIONS: usize = 1 << 17;

/// Reads `target` and joins the result with its samples. Counts the pages of all regions in
/// mappings with samples, a few microseconds each: regions without samples are judged by their
/// neighbours. Reading the mappings costs a walk over all page tables.
///
/// # Errors
/// The target has ended or cannot be read: EACCES for the pagemap of another user without
/// CAP_DAC_READ_SEARCH, ENOTTY before Linux 6.7.
pub(crate) fn read_memory(
    target: &dyn Target,
    view: &ProcessView,
    tlb_entries: u32,
) -> Result<ProcessMemory> {
    let mappings = target.mappings()?;
    let stalls = view.window.all_stalls();
    let mut pages = BTreeMap::new();
    for mapping in mappings.iter().filter(|mapping| mapping_skip(mapping).is_none()) {
        read_pages(target, mapping, &stalls, &mut pages)?;
    }
    Ok(ProcessMemory {
        time: target.now(),
        sizes: target.sizes(),
        mappings,
        heat: view.heat.regions(tlb_entries),
        stacks: view.stacks.clone(),
        pages,
        thp_disabled: target.thp_disabled(),
        headroom: target.headroom()?,
    })
}

fn read_pages(
    target: &dyn Target,
    mapping: &Mapping,
    stalls: &BTreeMap<Region, u32>,
    pages: &mut BTreeMap<Region, RegionPages>,
) -> Result<()> {
    let inside = target.sizes().regions_inside(mapping.range);
    let (Some(first), Some(last)) = (inside.clone().next(), inside.clone().last()) else {
        return Ok(());
    };
    if stalls.range(first..=last).next().is_none() {
        return Ok(());
    }
    for region in inside {
        if pages.len() < MAX_REGIONS || stalls.contains_key(&region) {
            pages.insert(region, target.region_pages(region)?);
        }
    }
    Ok(())
}
