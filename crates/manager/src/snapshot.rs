//! What a policy gets to see of a live process.

use hugepilot_kernel::{Result, Target};
use hugepilot_profiler::ProcessView;
use hugepilot_record::{RegionHeat, Snapshot};

/// Looks at `target` now and joins it with what was sampled. The pages of hot regions only are counted, a few
/// microseconds each; the mappings cost a walk over all page tables.
///
/// # Errors
/// When the target is gone or may not be looked at: EACCES without CAP_DAC_READ_SEARCH for another user's page map,
/// ENOTTY before Linux 6.7.
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
