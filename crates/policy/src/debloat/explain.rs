//! Explanation of rounds of splits from their journal: each is planned again and compared.

use std::collections::BTreeMap;

use hugepilot_record::explain::{
    ExplainReport, ExplainedRound, ExplainedSplit, ExplainedSplitProcess, ExplainedSplits, SCHEMA,
};
use hugepilot_record::{BloatedPage, Split, SplitAct, SplitOutcome};
use hugepilot_units::Nanos;

use super::round::{SeenProcess, SplitOutcomes, SplitRound};
use super::{DebloatPolicy, Priority};
use crate::round::outcome_name;
use crate::tune::explain::{Shown, ShownRegions};

/// Fold over the rounds of a journal.
#[derive(Debug)]
pub struct SplitExplainer<'a> {
    policy: &'a DebloatPolicy,
    shown: Shown,
    first: Option<Nanos>,
    report: ExplainReport,
}

impl<'a> SplitExplainer<'a> {
    /// Starts with no round.
    pub fn new(policy: &'a DebloatPolicy, shown: Shown) -> Self {
        let report = ExplainReport { schema: SCHEMA.to_owned(), ..ExplainReport::default() };
        Self { policy, shown, first: None, report }
    }

    /// Plans the next round again, and adds it.
    pub fn add(&mut self, round: &SplitRound) {
        let report = &mut self.report;
        report.rounds += 1;
        let first = *self.first.get_or_insert(round.time);
        let reproduced = round.plan_again(self.policy) == round.plan;
        report.decisions += 1;
        report.reproduced_decisions += u64::from(reproduced);
        if !reproduced {
            report.differing_rounds.push(report.rounds);
        }
        if self.shown.round.is_some_and(|only| only != report.rounds) {
            return;
        }
        report.shown.push(ExplainedRound {
            round: report.rounds,
            seconds: (round.time - first).as_seconds(),
            processes: Vec::new(),
            splits: Some(splits(round, self.policy, self.shown.regions, reproduced)),
        });
    }

    /// Returns the report. `cut_bytes` is the length of an incomplete last line.
    pub fn finish(self, cut_bytes: u64) -> ExplainReport {
        ExplainReport { cut_bytes, ..self.report }
    }
}

fn splits(
    round: &SplitRound,
    policy: &DebloatPolicy,
    regions: Option<ShownRegions>,
    reproduced: bool,
) -> ExplainedSplits {
    let nothing = SplitOutcomes::default();
    let mut planned: Vec<Vec<(u64, &Split)>> = vec![Vec::new(); round.processes.len()];
    for (rank, split) in (1..).zip(&round.plan.splits) {
        planned[split.process].push((rank, split));
    }
    let processes = round.processes.iter().zip(planned).enumerate();
    let processes = processes.map(|(index, (seen, planned))| {
        let outcomes = round.outcomes.get(index).unwrap_or(&nothing);
        ProcessRecord { seen, planned, outcomes }.explain(regions)
    });
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
    seen: &'a SeenProcess,
    planned: Vec<(u64, &'a Split)>,
    outcomes: &'a SplitOutcomes,
}

impl ProcessRecord<'_> {
    fn explain(&self, regions: Option<ShownRegions>) -> ExplainedSplitProcess {
        let census = &self.seen.census;
        let mut explained = ExplainedSplitProcess {
            pid: census.process.pid,
            command: census.process.command.clone(),
            protected: self.seen.priority == Priority::Protected,
            huge_pages: census.huge_pages,
            read_huge_pages: census.read_pages,
            bloat_bytes: census.bloat(),
            stalls: self
                .seen
                .stalls
                .as_ref()
                .map(|stalls| stalls.values().map(|&count| u64::from(count)).sum()),
            candidates: self.planned.len() as u64,
            huge_pages_split: 0,
            freed_bytes: hugepilot_units::Bytes::ZERO,
            skipped: BTreeMap::new(),
            failed: BTreeMap::new(),
            stopped: self.outcomes.ended,
            regions: regions.map_or_else(Vec::new, |shown| self.regions(shown)),
        };
        for act in &self.outcomes.acts {
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
        let sizes = self.seen.census.sizes;
        let acts: BTreeMap<_, &SplitAct> =
            self.outcomes.acts.iter().map(|act| (act.region, act)).collect();
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
                .seen
                .stalls
                .as_ref()
                .map(|stalls| stalls.get(&page.region).copied().unwrap_or(0)),
            rank: ranks.get(&page.region).copied(),
            outcome: acts.get(&page.region).map(|act| outcome_name(act, "split")),
        };
        self.seen.census.bloated.iter().filter(is_shown).map(explained).collect()
    }
}
