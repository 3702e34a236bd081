//! Policy `all`: every eligible region, in address order.
//!
//! The baseline that other policies are compared with (all huge). It spends memory on regions
//! without stalls.

use hugepilot_record::{ProcessMemory, Promotion, SkipReason};

use crate::eligible::{Limits, mapping_skip, region_skip};

/// Returns every region whose pages are known and that may be promoted.
pub fn all(memory: &ProcessMemory, limits: &Limits) -> Vec<Promotion> {
    let mut promotions = Vec::new();
    for mapping in &memory.mappings {
        let skip = mapping_skip(mapping).or(memory.thp_disabled.then_some(SkipReason::ThpDisabled));
        if skip.is_some() {
            continue;
        }
        for region in memory.sizes.regions_inside(mapping.range) {
            let pages = memory.pages.get(&region).filter(|_| !memory.stacks.contains(&region));
            let Some(pages) = pages else { continue };
            if region_skip(pages, memory.sizes, limits).is_none() {
                let missing = memory.sizes.base_per_huge().saturating_sub(pages.resident);
                promotions.push(Promotion {
                    region,
                    heat_ratio: 0.0,
                    sampled_pages: 0,
                    added: memory.sizes.base.times(missing),
                    mapping: mapping.label().to_owned(),
                });
            }
        }
    }
    promotions
}
