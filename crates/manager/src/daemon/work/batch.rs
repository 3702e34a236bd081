//! Batches of splits and their log lines.

use std::collections::BTreeMap;

use hugepilot_record::daemon::{Event, ProcessFreed};
use hugepilot_record::{RecollapseRisk, SplitOutcome, SplitPlan};
use hugepilot_units::{Bytes, Nanos};

use super::super::{Daemon, System};
use super::survey::Survey;
use crate::act::split::count;
use crate::engine::splits::SplitProcess;
use hugepilot_policy::daemon::{Key, Reading, key_of};

/// Splits since the last `freed` line.
pub(super) struct Batch {
    /// Time of the first split.
    pub(super) begun: Nanos,
    cpu: Nanos,
    /// Part of each process.
    shares: BTreeMap<Key, ProcessFreed>,
    /// Whether a program requested huge pages in one of its mappings.
    advised: bool,
    skipped: BTreeMap<String, u64>,
    failed: BTreeMap<String, u64>,
}

impl Batch {
    pub(super) fn new(system: &impl System) -> Self {
        Self {
            begun: system.now(),
            cpu: system.cpu_time(),
            shares: BTreeMap::new(),
            advised: false,
            skipped: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }
    /// Counts one outcome, and returns the bytes freed.
    pub(super) fn add(&mut self, process: &SplitProcess, outcome: SplitOutcome) -> Bytes {
        let Some(bytes) = count(outcome, &mut self.skipped, &mut self.failed) else {
            return Bytes::ZERO;
        };
        let id = process.target.id();
        let sum = self.shares.entry(key_of(id)).or_insert_with(|| {
            self.advised |= process.mappings.iter().any(|mapping| mapping.flags.has("hg"));
            let (pid, command) = (id.pid, id.command.clone());
            ProcessFreed { pid, command, freed_bytes: Bytes::ZERO, huge_pages_split: 0 }
        });
        sum.freed_bytes += bytes;
        sum.huge_pages_split += 1;
        bytes
    }
    fn is_empty(&self) -> bool {
        self.shares.is_empty() && self.skipped.is_empty() && self.failed.is_empty()
    }
}

impl<S: System> Daemon<'_, S> {
    pub(super) fn log_planned(
        &mut self,
        reading: &Reading,
        survey: &Survey,
        plan: &SplitPlan,
        took: Nanos,
        over_budget: bool,
    ) {
        let censuses = || survey.found.processes.iter().map(|process| &process.census);
        let planned = Event::Planned {
            order: survey.order.name().to_owned(),
            processes: survey.found.processes.len() as u64,
            not_sampled: survey.not_sampled,
            huge_pages: censuses().map(|census| census.huge_pages).sum(),
            unread_huge_pages: censuses().map(|census| census.unread_pages).sum(),
            candidates: plan.splits.len() as u64,
            reclaimable_bytes: plan.splits.iter().map(|split| split.frees).sum(),
            requested_bytes: self.wanted(reading),
            skipped: plan
                .skipped
                .iter()
                .map(|(reason, &count)| (reason.to_string(), count))
                .collect(),
            seconds: took.as_seconds(),
            over_budget,
        };
        self.log(reading, planned);
    }

    pub(super) fn log_freed(&mut self, reading: &Reading, batch: Batch, over_budget: bool) {
        if batch.is_empty() {
            return;
        }
        let shares = batch.shares.values();
        let freed_bytes = shares.clone().map(|share| share.freed_bytes).sum();
        let huge_pages_split = shares.map(|share| share.huge_pages_split).sum();
        for sums in [&mut self.life.sums, &mut self.stretch.sums] {
            sums.freed_bytes += freed_bytes;
            sums.huge_pages_split += huge_pages_split;
        }
        let recollapse_risk = self.recollapse_risk(&batch);
        let freed = Event::Freed {
            freed_bytes,
            huge_pages_split,
            skipped: batch.skipped,
            failed: batch.failed,
            processes: batch.shares.into_values().collect(),
            seconds: (self.system.now() - batch.begun).as_seconds(),
            cpu_seconds: (self.system.cpu_time() - batch.cpu).as_seconds(),
            over_budget,
            recollapse_risk,
        };
        self.log(reading, freed);
    }

    /// Returns the risk of re-collapse, the first time that there is one.
    fn recollapse_risk(&mut self, batch: &Batch) -> Option<RecollapseRisk> {
        if self.warned || batch.shares.is_empty() {
            return None;
        }
        let risk = self.system.recollapse_risk(batch.advised);
        self.warned = risk.is_some();
        risk
    }
}
