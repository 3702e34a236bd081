//! Snapshot of a live process for a policy.

use hugepilot_kernel::{Result, Target};
use hugepilot_profiler::ProcessView;
use hugepilot_record::{RegionHeat, Snapshot};

/// Reads `target` and joins the result with its samples. Counts only the pages of hot regions, a
/// few microseconds each. Reading the mappings costs a walk over all page tables.
///
/// # Errors
/// The target has ended or cannot be read: EACCES for the pagemap of another user without
/// CAP_DAC_READ_SEARCH, ENOTTY before Linux 6.7.
pub fn snapshot(target: &dyn Target, view: &ProcessView, tlb_entries: u32) -> Result<Snapshot> {
    let heat = view.heat.regions(tlb_entries);
    let pages = heat
        .iter()
        .filter(|heat| heat.scattered() > 0)
        .map(|heat: &RegionHeat| Ok((heat.region, target.region_pages(heat.region)?)))
        .collect::<Result<_>>()?;
    Ok(Snapshot {
        sizes: target.sizes(),
        mappings: target.mappings()?,
        heat,
        stacks: view.stacks.clone(),
        pages,
        thp_disabled: target.thp_disabled(),
        headroom: target.headroom()?,
    })
}
