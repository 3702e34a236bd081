//! Policy `heat`: the regions that stall the program most, hottest first, within a budget.
//!
//! The rule of the promotion candidate cache (Manocha et al., MICRO'23, sections 3.2–3.3): rank regions by how often
//! they were waited for, promote the top ones. The paper counts TLB misses, so TLB-friendly regions never enter its
//! table. We count stalls, so they are filtered here: regions that are streamed through, and regions whose stalls fall
//! on so few pages that the TLB would hold them. What is left is the paper's HUBs, high-reuse TLB-sensitive regions.

use std::cmp::Reverse;

use hugepilot_record::{Budget, Pick, Plan, RegionHeat, SkipReason, Snapshot};
use hugepilot_units::Bytes;

use crate::Policy;
use crate::eligible::{Limits, mapping_skip, region_skip};

/// The policy and its knobs.
#[derive(Clone, Copy, Debug)]
pub struct HeatPolicy {
    /// Samples of all kinds in the window, those without an address too: what shares are measured against.
    pub samples: u64,
    /// Samples a region needs before it is believed. Two, because one may be a stray.
    pub min_samples: u32,
    /// Whether this program was seen to have hot memory: then the next sample is hardly a stray, and one is enough.
    pub proven: bool,
    /// The safety rules.
    pub limits: Limits,
}

impl HeatPolicy {
    /// With the default knobs, for a window of `samples`.
    pub fn new(samples: u64) -> Self {
        Self { samples, min_samples: 2, proven: false, limits: Limits::default() }
    }

    #[allow(clippy::cast_precision_loss)]
    fn heat_ratio(&self, samples: u32) -> f64 {
        f64::from(samples) / self.samples.max(1) as f64
    }

    /// One region, judged apart from all others.
    fn judge(&self, seen: &Snapshot, heat: &RegionHeat) -> Result<Pick, SkipReason> {
        let mapping = seen.mapping_of(heat.region).ok_or(SkipReason::Unaligned)?;
        if let Some(reason) = mapping_skip(mapping) {
            return Err(reason);
        }
        if seen.thp_disabled {
            return Err(SkipReason::ThpDisabled);
        }
        if seen.stacks.contains(&heat.region) {
            return Err(SkipReason::Stack);
        }
        self.judge_heat(heat)?;
        let pages = seen.pages.get(&heat.region).ok_or(SkipReason::Special)?;
        if let Some(reason) = region_skip(pages, seen.sizes, &self.limits) {
            return Err(reason);
        }
        let missing = seen.sizes.base_per_huge().saturating_sub(pages.resident);
        Ok(Pick {
            region: heat.region,
            heat_ratio: self.heat_ratio(heat.scattered()),
            sampled_pages: heat.sampled_pages,
            added: seen.sizes.base.times(missing),
            mapping: mapping.label().to_owned(),
        })
    }

    fn judge_heat(&self, heat: &RegionHeat) -> Result<(), SkipReason> {
        // All on one page may be one page's heat, which the TLB holds; one sample more shows how hot that page is.
        let enough =
            if self.proven { 1 } else { self.min_samples + u32::from(heat.sampled_pages < 2) };
        if heat.streamed > heat.samples / 2 {
            Err(SkipReason::Streamed)
        } else if heat.tlb_held > heat.samples / 2 {
            Err(SkipReason::TlbFriendly)
        } else if heat.scattered() < enough {
            Err(SkipReason::TooCold)
        } else {
            Ok(())
        }
    }
}

/// The memory that a plan may still take: budget and headroom.
struct BudgetTracker<'a> {
    seen: &'a Snapshot,
    budget: Bytes,
    added: Bytes,
    limits: &'a Limits,
}

impl BudgetTracker<'_> {
    /// Takes one huge page from the budget.
    ///
    /// # Errors
    /// The limit that forbids it.
    fn take(&mut self, added: Bytes) -> Result<(), SkipReason> {
        let huge = self.seen.sizes.huge;
        if self.budget < huge {
            return Err(SkipReason::OverBudget);
        }
        let needed = self.added + added + huge;
        if let Some(reason) = self.limits.headroom_skip(self.seen.headroom, needed) {
            return Err(reason);
        }
        self.budget -= huge;
        self.added += added;
        Ok(())
    }
}

impl Policy for HeatPolicy {
    fn name(&self) -> &'static str {
        "heat"
    }

    fn plan(&self, seen: &Snapshot, budget: Budget) -> Plan {
        let mut plan = Plan::default();
        let mut ranked: Vec<&RegionHeat> = seen.heat.iter().collect();
        ranked.sort_by_key(|heat| (Reverse(heat.scattered()), heat.region));
        let mut tracker =
            BudgetTracker { seen, budget: budget.huge, added: Bytes::ZERO, limits: &self.limits };
        for heat in ranked {
            let judged = self.judge(seen, heat).inspect(|_| plan.eligible += 1);
            let picked = judged.and_then(|pick| {
                if plan.picks.len() == budget.regions {
                    return Err(SkipReason::OverBudget);
                }
                tracker.take(pick.added).map(|()| pick)
            });
            match picked {
                Ok(pick) => plan.picks.push(pick),
                Err(reason) => *plan.skipped.entry(reason).or_insert(0) += 1,
            }
        }
        plan
    }
}

#[cfg(test)]
mod tests;
