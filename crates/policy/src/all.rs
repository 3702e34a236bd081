//! Policy `all`: every eligible region, in address order.
//!
//! The baseline that other policies are compared with (all huge). It spends memory on regions
//! without stalls.

use hugepilot_record::{Budget, Pick, Plan, SkipReason, Snapshot};

use crate::Policy;
use crate::eligible::{Limits, mapping_skip, region_skip};

/// The policy and its safety rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllPolicy {
    /// The safety rules.
    pub limits: Limits,
}

impl Policy for AllPolicy {
    fn name(&self) -> &'static str {
        "all"
    }

    /// Plans every region in `snapshot` whose pages are known.
    fn plan(&self, snapshot: &Snapshot, budget: Budget) -> Plan {
        let mut plan = Plan::default();
        for mapping in &snapshot.mappings {
            let skip =
                mapping_skip(mapping).or(snapshot.thp_disabled.then_some(SkipReason::ThpDisabled));
            for region in snapshot.sizes.regions_inside(mapping.range) {
                let Some(pages) =
                    snapshot.pages.get(&region).filter(|_| !snapshot.stacks.contains(&region))
                else {
                    continue;
                };
                if let Some(reason) =
                    skip.or_else(|| region_skip(pages, snapshot.sizes, &self.limits))
                {
                    *plan.skipped.entry(reason).or_insert(0) += 1;
                    continue;
                }
                plan.eligible += 1;
                let within =
                    (plan.picks.len() as u64 + 1) * snapshot.sizes.huge.get() <= budget.huge.get();
                if within && plan.picks.len() < budget.regions {
                    plan.picks.push(Pick {
                        region,
                        heat_ratio: 0.0,
                        sampled_pages: 0,
                        added: snapshot
                            .sizes
                            .base
                            .times(snapshot.sizes.base_per_huge() - pages.resident),
                        mapping: mapping.label().to_owned(),
                    });
                }
            }
        }
        plan
    }
}
