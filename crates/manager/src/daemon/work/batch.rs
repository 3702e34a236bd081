//! Batches of splits and their log lines.

use std::collections::BTreeMap;

use hugepilot_policy::daemon::{Key, Reading, key_of};
use hugepilot_record::{Census, RecollapseRisk, SplitOutcome, SplitPlan};
use hugepilot_reports::daemon::{Event, Freed, ProcessFreed};
use hugepilot_units::{Bytes, Nanos};

use super::super::{Daemon, System};
use super::Shortage;
use crate::act::split::count;
use crate::engine::splits::{SplitProcess, Survey};

/// Splits since the last `freed` line.
#[derive(Default)]
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
        Self { begun: system.now(), cpu: system.cpu_time(), ..Self::default() }
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

impl<S: System> Shortage<'_, '_, S> {
    pub(super) fn log_planned(&mut self, survey: &Survey, plan: &SplitPlan) {
        let (daemon, processes) = (&mut *self.daemon, &survey.processes);
        let sum = |of: fn(&Census) -> u64| processes.iter().map(|one| of(&one.census)).sum();
        let is_cold = |one: &&SplitProcess| self.order.needs_heat() && one.stalls.is_none();
        let skipped = plan.skipped.iter();
        let skipped = skipped.map(|(reason, &count)| (reason.to_string(), count)).collect();
        // Use does not fall in a dry run: the next attempt has the same regions.
        if daemon.config.dry_run {
            for sums in [&mut daemon.life.sums, &mut daemon.scope.stretch.sums] {
                (sums.freed_bytes, sums.huge_pages_split) = (Bytes::ZERO, 0);
            }
        }
        let planned = Event::Planned {
            order: self.order.name().to_owned(),
            processes: processes.len() as u64,
            not_sampled: processes.iter().filter(is_cold).count() as u64,
            huge_pages: sum(|census| census.huge_pages),
            unread_huge_pages: sum(|census| census.unread_pages),
            candidates: plan.splits.len() as u64,
            reclaimable_bytes: plan.splits.iter().map(|split| split.frees).sum(),
            requested_bytes: daemon.wanted(&self.reading),
            skipped,
            seconds: (daemon.system.now() - self.begun).as_seconds(),
            over_budget: std::mem::take(&mut self.over_budget),
        };
        daemon.log(&self.reading, planned);
    }
}

impl<S: System> Daemon<'_, S> {
    pub(super) fn log_freed(&mut self, reading: &Reading, batch: Batch, over_budget: bool) {
        if batch.is_empty() {
            return;
        }
        let shares = batch.shares.values();
        let freed_bytes = shares.clone().map(|share| share.freed_bytes).sum();
        let huge_pages_split = shares.map(|share| share.huge_pages_split).sum();
        for sums in [&mut self.life.sums, &mut self.scope.stretch.sums] {
            sums.freed_bytes += freed_bytes;
            sums.huge_pages_split += huge_pages_split;
        }
        let recollapse_risk = self.recollapse_risk(&batch);
        let freed = Freed {
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
        let event = if self.config.dry_run { Event::WouldFree } else { Event::Freed };
        self.log(reading, event(freed));
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
