//! Explanation of a round of splits: planned again, compared with its plan, and summed up.

use std::collections::BTreeMap;

use hugepilot_record::{BloatedPage, Split, SplitAct, SplitOutcome};
use hugepilot_reports::explain::{ExplainedSplit, ExplainedSplitProcess, ExplainedSplits};

use super::round::{SplitRound, SplitRow};
use super::{DebloatPolicy, Priority};
use crate::explain::{Explained, ShownRegions};
use crate::round::outcome_name;

/// Plans a round again, and explains each of its processes.
pub(crate) fn explain(
    policy: &DebloatPolicy,
    round: &SplitRound,
    regions: Option<ShownRegions>,
) -> Explained {
    let reproduced = round.plan_again(policy) == round.plan;
    Explained {
        time: round.time,
        decisions: 1,
        reproduced: u64::from(reproduced),
        processes: Vec::new(),
        splits: Some(splits(round, policy, regions, reproduced)),
        daemon: None,
    }
}

fn splits(
    round: &SplitRound,
    policy: &DebloatPolicy,
    regions: Option<ShownRegions>,
    reproduced: bool,
) -> ExplainedSplits {
    let mut planned: Vec<Vec<(u64, &Split)>> = vec![Vec::new(); round.rows.len()];
    for (rank, split) in (1..).zip(&round.plan.splits) {
        planned[split.process].push((rank, split));
    }
    let processes = round.rows.iter().zip(planned);
    let processes = processes.map(|(row, planned)| ProcessRecord { row, planned }.explain(regions));
    ExplainedSplits {
        order: policy.order.name().to_owned(),
        dry_run: round.dry_run,
        requested_bytes: round.wanted,
        candidates: round.plan.splits.len() as u64,
        skipped: round.plan.skipped.clone(),
        processes: processes.collect(),
        stopped: round.stopped,
        reproduced,
    }
}

/// A process in a round, with everything that the journal has about it.
struct ProcessRecord<'a> {
    row: &'a SplitRow,
    planned: Vec<(u64, &'a Split)>,
}

impl ProcessRecord<'_> {
    fn explain(&self, regions: Option<ShownRegions>) -> ExplainedSplitProcess {
        let census = &self.row.seen.census;
        let mut explained = ExplainedSplitProcess {
            pid: census.process.pid,
            command: census.process.command.clone(),
            protected: self.row.seen.priority == Priority::Protected,
            huge_pages: census.huge_pages,
            read_huge_pages: census.read_pages,
            bloat_bytes: census.bloat(),
            stalls: self
                .row
                .seen
                .stalls
                .as_ref()
                .map(|stalls| stalls.values().map(|&count| u64::from(count)).sum()),
            candidates: self.planned.len() as u64,
            huge_pages_split: 0,
            freed_bytes: hugepilot_units::Bytes::ZERO,
            skipped: BTreeMap::new(),
            failed: BTreeMap::new(),
            stopped: self.row.outcome.ended,
            regions: regions.map_or_else(Vec::new, |shown| self.regions(shown)),
        };
        for act in &self.row.outcome.acts {
            let name = || outcome_name(act, "split");
            let counts = match act.outcome {
                SplitOutcome::Freed(bytes) => {
                    explained.huge_pages_split += 1;
                    explained.freed_bytes += bytes;
                    continue;
                }
                SplitOutcome::Skipped(_) => &mut explained.skipped,
                SplitOutcome::StillHuge | SplitOutcome::Failed(_) => &mut explained.failed,
            };
            *counts.entry(name()).or_insert(0) += 1;
        }
        explained
    }

    fn regions(&self, shown: ShownRegions) -> Vec<ExplainedSplit> {
        let sizes = self.row.seen.census.sizes;
        let acts: BTreeMap<_, &SplitAct> =
            self.row.outcome.acts.iter().map(|act| (act.region, act)).collect();
        let ranks: BTreeMap<_, u64> =
            self.planned.iter().map(|&(rank, split)| (split.region, rank)).collect();
        let is_shown = |page: &&BloatedPage| match shown {
            ShownRegions::Acted => acts.contains_key(&page.region),
            ShownRegions::At(address) => page.region.range(sizes).contains(address),
        };
        let explained = |page: &BloatedPage| ExplainedSplit {
            start: page.region.range(sizes).start,
            bloat_bytes: page.bloat(sizes),
            stalls: self
                .row
                .seen
                .stalls
                .as_ref()
                .map(|stalls| stalls.get(&page.region).copied().unwrap_or(0)),
            rank: ranks.get(&page.region).copied(),
            outcome: acts.get(&page.region).map(|act| outcome_name(act, "split")),
        };
        self.row.seen.census.bloated.iter().filter(is_shown).map(explained).collect()
    }
}
