//! Policy `heat`: the regions with the most stalls, hottest first, within a budget.
//!
//! The rule of the promotion candidate cache (Manocha et al., MICRO'23, sections 3.2–3.3): rank
//! regions by page walks, promote the top ones. The paper counts TLB misses, so TLB-friendly
//! regions never enter its table. hugepilot counts stalls and filters two kinds here: streamed
//! regions, and regions whose stalls fall on few enough pages for the TLB. The others are the
//! paper's HUBs, high-reuse TLB-sensitive regions.

use std::cmp::Reverse;

use hugepilot_record::{Budget, Pick, Plan, RegionHeat, SkipReason, Snapshot};
use hugepilot_units::Bytes;

use crate::Policy;
use crate::eligible::{Limits, mapping_skip, region_skip};

/// The policy and its parameters.
///
/// ```
/// use std::collections::{BTreeMap, BTreeSet};
///
/// use hugepilot_policy::{HeatPolicy, Policy};
/// use hugepilot_record::*;
/// use hugepilot_units::{AddrRange, Bytes, PageSizes, Region};
///
/// let sizes = PageSizes::X86_64;
/// let (hot, cold) = (Region::new(10), Region::new(11));
/// let heat = |region, samples| RegionHeat {
///     region,
///     samples,
///     streamed: 0,
///     tlb_held: 0,
///     sampled_pages: samples,
/// };
/// let pages =
///     |region| RegionPages { region, resident: 512, swapped: 0, huge: false, shared: 0 };
/// let snapshot = Snapshot {
///     sizes,
///     mappings: vec![Mapping::anonymous(AddrRange::at(hot.range(sizes).start, Bytes::mib(4)))],
///     heat: vec![heat(hot, 90), heat(cold, 1)],
///     stacks: BTreeSet::new(),
///     pages: BTreeMap::from([(hot, pages(hot)), (cold, pages(cold))]),
///     thp_disabled: false,
///     headroom: Headroom::UNLIMITED,
/// };
/// let budget = Budget { huge: Bytes::mib(64), regions: usize::MAX };
/// let plan = HeatPolicy::new(100).plan(&snapshot, budget);
/// assert_eq!(plan.picks.len(), 1);
/// assert_eq!((plan.picks[0].region, plan.picks[0].heat_ratio), (hot, 0.9));
/// assert_eq!(plan.skipped[&SkipReason::TooCold], 1);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HeatPolicy {
    /// Samples in the window, also those without an address: the denominator of shares.
    pub samples: u64,
    /// Samples that a region needs. Two, because one may be a stray.
    pub min_samples: u32,
    /// Whether the program is known to have hot memory. Then a stray is unlikely, and one sample is
    /// enough.
    pub proven: bool,
    /// The safety rules.
    pub limits: Limits,
}

impl HeatPolicy {
    /// Policy with the default parameters, for a window of `samples`.
    pub fn new(samples: u64) -> Self {
        Self { samples, min_samples: 2, proven: false, limits: Limits::default() }
    }

    #[allow(clippy::cast_precision_loss)]
    fn heat_ratio(&self, samples: u32) -> f64 {
        f64::from(samples) / self.samples.max(1) as f64
    }

    /// Judges one region, independent of all others.
    fn judge(&self, snapshot: &Snapshot, heat: &RegionHeat) -> Result<Pick, SkipReason> {
        let mapping = snapshot.mapping_of(heat.region).ok_or(SkipReason::Unaligned)?;
        if let Some(reason) = mapping_skip(mapping) {
            return Err(reason);
        }
        if snapshot.thp_disabled {
            return Err(SkipReason::ThpDisabled);
        }
        if snapshot.stacks.contains(&heat.region) {
            return Err(SkipReason::Stack);
        }
        self.judge_heat(heat)?;
        let pages = snapshot.pages.get(&heat.region).ok_or(SkipReason::Special)?;
        if let Some(reason) = region_skip(pages, snapshot.sizes, &self.limits) {
            return Err(reason);
        }
        let missing = snapshot.sizes.base_per_huge().saturating_sub(pages.resident);
        Ok(Pick {
            region: heat.region,
            heat_ratio: self.heat_ratio(heat.scattered()),
            sampled_pages: heat.sampled_pages,
            added: snapshot.sizes.base.times(missing),
            mapping: mapping.label().to_owned(),
        })
    }

    fn judge_heat(&self, heat: &RegionHeat) -> Result<(), SkipReason> {
        // Stalls on one page only may be heat that the TLB holds; one more sample shows how hot the
        // page is.
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
    snapshot: &'a Snapshot,
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
        let huge = self.snapshot.sizes.huge;
        if self.budget < huge {
            return Err(SkipReason::OverBudget);
        }
        let needed = self.added + added + huge;
        if let Some(reason) = self.limits.headroom_skip(self.snapshot.headroom, needed) {
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

    fn plan(&self, snapshot: &Snapshot, budget: Budget) -> Plan {
        let mut plan = Plan::default();
        let mut ranked: Vec<&RegionHeat> = snapshot.heat.iter().collect();
        ranked.sort_by_key(|heat| (Reverse(heat.scattered()), heat.region));
        let mut tracker = BudgetTracker {
            snapshot,
            budget: budget.huge,
            added: Bytes::ZERO,
            limits: &self.limits,
        };
        for heat in ranked {
            let judged = self.judge(snapshot, heat).inspect(|_| plan.eligible += 1);
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
