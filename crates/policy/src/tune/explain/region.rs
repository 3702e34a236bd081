//! Regions of a round, one by one.

use std::collections::BTreeSet;

use hugepilot_record::{ActOutcome, Mapping, SkipReason};
use hugepilot_reports::explain::{ExplainedRegion, RegionChoice};
use hugepilot_units::Region;

use super::super::candidates::Judge;
use super::super::{Candidates, Policy, TunePhase};
use super::ProcessRecord;
use crate::explain::ShownRegions;
use crate::round::outcome_name;

impl ProcessRecord<'_> {
    /// The regions that were asked for.
    pub(super) fn regions(&self, shown: ShownRegions) -> Vec<ExplainedRegion> {
        let promoted = self.row.decision.promote.iter().map(|promotion| promotion.region);
        let acted = promoted.chain(self.row.decision.demote.iter().copied());
        match shown {
            ShownRegions::Acted => acted.map(|region| self.region(region)).collect(),
            ShownRegions::At(address) => {
                vec![self.region(self.row.seen.memory.sizes.region_of(address))]
            }
        }
    }

    fn region(&self, region: Region) -> ExplainedRegion {
        let memory = &self.row.seen.memory;
        let label = |mapping: &Mapping| mapping.label().to_owned();
        let planned = self.row.decision.promote.iter().find(|promotion| promotion.region == region);
        let stalls = self.window().of(region);
        ExplainedRegion {
            start: region.range(memory.sizes).start,
            mapping: memory.mapping_of(region).map_or_else(String::new, label),
            stalls,
            stall_ratio: self.share(f64::from(stalls)),
            added_bytes: planned.map(|promotion| promotion.added),
            choice: self.choice(region),
            outcome: self.outcome_of(region),
        }
    }

    fn choice(&self, region: Region) -> RegionChoice {
        if self.row.decision.promote.iter().any(|promotion| promotion.region == region) {
            return RegionChoice::Promote;
        }
        if self.row.decision.demote.contains(&region) {
            return RegionChoice::Demote;
        }
        if let TunePhase::Trial { pairs, .. } = &self.after.phase
            && pairs.iter().any(|(pair, _)| pair.control == region)
        {
            return RegionChoice::Control;
        }
        if self.selects() { self.judged(region) } else { RegionChoice::NotJudged }
    }

    /// Why a region that may be selected is not.
    fn judged(&self, region: Region) -> RegionChoice {
        let memory = &self.row.seen.memory;
        let Some(mapping) = memory.mapping_of(region) else {
            return RegionChoice::Skip { reason: SkipReason::Unaligned };
        };
        let (judge, policy) = (Judge::new(memory, &self.before, self.goal), &self.goal.policy);
        let added = match policy {
            Policy::Schedule(_) => judge.added_by_schedule(mapping, region),
            _ if policy.judges_heat() => judge.added(mapping, region),
            _ => judge.added_by_pages(mapping, region),
        };
        if let Err(reason) = added {
            return RegionChoice::Skip { reason };
        }
        match policy {
            Policy::Heat => {}
            Policy::Pcc(_) if self.window().of(region) == 0 => return RegionChoice::Cold,
            Policy::Hawkeye(_) if judge.sampled_pages(region) == 0 => return RegionChoice::Cold,
            _ => return RegionChoice::Wait,
        }
        let all = Candidates::of(memory, self.window(), &self.before, self.goal);
        let hot: BTreeSet<Region> = all.regions.iter().map(|one| one.region).collect();
        if hot.contains(&region) { RegionChoice::Wait } else { RegionChoice::Cold }
    }

    /// Outcome of the act on a region in a word.
    fn outcome_of(&self, region: Region) -> Option<String> {
        let promotion = self.row.outcome.attempts.acts.iter().find(|act| act.region == region);
        let demoted = self.row.outcome.demotions.iter().find(|act| act.region == region);
        promotion
            .map(|act| match act.outcome {
                ActOutcome::Verified => "verified".to_owned(),
                ActOutcome::NotVerified => "not_verified".to_owned(),
                ActOutcome::Failed(errno) => errno.to_string(),
            })
            .or_else(|| demoted.map(|act| outcome_name(act, "demoted")))
            .or_else(|| self.is_untried(region).then(|| "not_tried".to_owned()))
    }

    /// Whether a planned promotion was not tried; not in a dry run. Regions that changed after the
    /// plan are counted, not named, and are among these.
    fn is_untried(&self, region: Region) -> bool {
        let acted = self.row.outcome.begun.is_some() || self.row.outcome.attempts.stopped.is_some();
        acted && self.row.decision.promote.iter().any(|promotion| promotion.region == region)
    }
}
