//! Progress of a tune, as lines for people.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_manager::tune::Event;
use hugepilot_policy::tune::{ProcessState, State, TunePhase};
use hugepilot_record::{Pid, ProcessDecision};
use hugepilot_render::{Sentence, counted, process_count};
use hugepilot_reports::tune::{TrialVerdict, TuneWarning};
use hugepilot_units::{Nanos, Share};

use crate::output::Progress;

/// Wait for the progress metric after which its lack is reported.
const TELL_MISSING: Nanos = Nanos::seconds(3);

/// Processes of which each has lines of its own where it begins and where nothing is left.
const FEW: usize = 4;

/// Shows what happens; each fact once.
#[derive(Default)]
pub(super) struct Narrator {
    /// Whether nothing is promoted.
    dry_run: bool,
    /// Last line about each process.
    last: BTreeMap<Pid, String>,
    /// Processes so far: targets, and processes of rounds. Of several, lines name theirs.
    processes: BTreeSet<Pid>,
    /// Whether the progress metric was reported missing.
    told_missing: bool,
}

impl Narrator {
    /// Makes a narrator that has shown nothing.
    pub(super) fn new(dry_run: bool) -> Self {
        Self { dry_run, ..Self::default() }
    }

    /// Shows an event.
    pub(super) fn show(&mut self, progress: &Progress, event: &Event<'_>) {
        match event {
            Event::Attached { source, pid, command, rates_hz } => {
                self.processes.insert(*pid);
                let rate = match rates_hz {
                    None => String::new(),
                    Some((usual, most)) if usual == most => format!(" at {usual} Hz"),
                    Some((usual, most)) => format!(" at {usual} to {most} Hz"),
                };
                if self.processes.len() <= FEW {
                    progress.keep(&format!("sampling {command} (pid {pid}) with {source}{rate}"));
                } else {
                    let count = self.processes.len() as u64;
                    progress.now(format!("sampling {}", process_count(count)));
                }
            }
            Event::Excluded { pid, command, cause } => {
                let cause = cause.text();
                progress.keep(&format!("excluded {command} (pid {pid}): {cause}"));
            }
            Event::Observing { samples } => {
                progress.now(format!("sampling: {}", counted(*samples, "sample", "samples")));
            }
            Event::Round { round, state } => {
                for line in self.lines(round.decisions(), &round.state, state) {
                    progress.keep(&line);
                }
            }
            Event::Acted { pid, done, all } => {
                let of =
                    if self.processes.len() > 1 { format!(" of pid {pid}") } else { String::new() };
                progress.now(format!("promoting {done}/{all} regions{of}"));
            }
            Event::Demonstrating { step, left } => {
                let left = left
                    .map_or_else(String::new, |left| format!(": {:.0} s left", left.as_seconds()));
                progress.now(format!("{step}{left}"));
            }
            Event::AwaitingMetric { found, after, waited, longest, warnings } => {
                if *found == 0 && *waited >= TELL_MISSING && !self.told_missing {
                    self.told_missing = true;
                    for line in missing(*longest, warnings) {
                        progress.keep(&line);
                    }
                }
                let when = if *after { "after" } else { "before" };
                progress
                    .now(format!("waiting for the progress metric {when} tuning: {found} values"));
            }
        }
    }

    /// New lines about the decisions of a round, between two states.
    fn lines<'a>(
        &mut self,
        decisions: impl Iterator<Item = &'a ProcessDecision> + Clone,
        before: &State,
        state: &State,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        self.processes.extend(decisions.clone().map(|decision| decision.process.pid));
        for decision in decisions {
            let process = &decision.process;
            let Some(state) = state.of(process) else { continue };
            let before = before.of(process);
            let Some(line) = self.line(decision, before, state) else { continue };
            if self.last.get(&process.pid) != Some(&line) {
                let shown = if self.processes.len() > 1 {
                    format!("{} (pid {}): {line}", process.command, process.pid)
                } else {
                    line.clone()
                };
                lines.push(shown);
                self.last.insert(process.pid, line);
            }
        }
        lines
    }

    /// Returns a line about a round of a process, if it is worth one.
    fn line(
        &self,
        decision: &ProcessDecision,
        before: Option<&ProcessState>,
        state: &ProcessState,
    ) -> Option<String> {
        let promoting = if self.dry_run { "would promote" } else { "promoting" };
        let coverage = Share::ratio(decision.heat_ratio());
        let promotes = !decision.promote.is_empty();
        let regions = counted(decision.promote.len() as u64, "region", "regions");
        let had_verdict = before.is_some_and(|before| before.trial.is_some());
        if let Some(trial) = state.trial.filter(|_| !had_verdict) {
            let took = trial.took.as_seconds();
            let ratio = trial.estimate.map_or_else(String::new, |estimate| {
                format!(": a stall takes {:.2} of its time on a huge page", estimate.ratio())
            });
            return Some(match trial.verdict {
                TrialVerdict::Gain => format!("trial: gain after {took:.1} s{ratio}"),
                TrialVerdict::NoGain => format!("trial: no gain after {took:.1} s{ratio}"),
                TrialVerdict::Open => format!("trial: no verdict after {took:.1} s{ratio}"),
            });
        }
        match &state.phase {
            TunePhase::Trial { pairs, .. } if promotes => Some(format!(
                "trial: {} pairs of regions; a coin decided which one of each is promoted",
                pairs.len()
            )),
            _ if promotes && coverage > Share::ratio(0.0) => {
                Some(format!("{promoting} {regions} with {coverage} of samples so far"))
            }
            _ if promotes => Some(format!("{promoting} {regions}")),
            TunePhase::Check { .. } => {
                Some("checking: all regions of the trial are huge".to_owned())
            }
            TunePhase::Watching { idle: 1.. } if self.processes.len() <= FEW => {
                Some("no more regions to promote".to_owned())
            }
            _ => None,
        }
    }
}

/// Returns lines about a progress metric that has no value yet.
fn missing(longest: Nanos, warnings: &[TuneWarning]) -> Vec<String> {
    let mut lines =
        vec![format!("waiting for the progress metric, at most {longest} (--progress-wait)")];
    for warning in warnings {
        lines.push(format!("warning: {}", warning.text()));
        lines.extend(warning.help().into_iter().map(|help| format!("help: {help}")));
    }
    lines
}

#[cfg(test)]
mod tests {

    use super::*;

    /// A decision that promotes a region.
    fn decision(pid: i32) -> ProcessDecision {
        serde_json::from_value(serde_json::json!({
            "process": {"pid": pid, "start_ticks": 1, "command": "db"},
            "promote": [{"region": 1, "heat_ratio": 0.6, "sampled_pages": 3, "added": 0,
                "mapping": ""}],
            "demote": [], "eligible": 1, "skipped": {}, "skipped_stalls": {}, "expected": null,
            "next": "end",
        }))
        .unwrap()
    }

    #[test]
    fn once_a_second_process_is_decided_about_lines_name_theirs() {
        let mut narrator = Narrator { processes: [Pid(7)].into(), ..Narrator::default() };
        let mut lines = |pid| {
            let (decision, mut state) = (decision(pid), State::default());
            state.of_mut(&decision.process).phase = TunePhase::Watching { idle: 0 };
            narrator.lines([&decision].into_iter(), &State::default(), &state)
        };
        assert_eq!(lines(7), ["promoting 1 region with 60% of samples so far"]);
        assert_eq!(lines(8), ["db (pid 8): promoting 1 region with 60% of samples so far"]);
    }

    #[test]
    fn shares_of_several_intervals_are_of_the_samples_so_far() {
        let decision = decision(7);
        let line = |dry_run| {
            let state =
                ProcessState { phase: TunePhase::Watching { idle: 0 }, ..Default::default() };
            Narrator::new(dry_run).line(&decision, None, &state).unwrap()
        };
        assert_eq!(line(false), "promoting 1 region with 60% of samples so far");
        assert_eq!(line(true), "would promote 1 region with 60% of samples so far");
    }

    #[test]
    fn a_missing_metric_is_reported_with_its_cause_and_the_longest_wait() {
        let warning = TuneWarning::NoProgressValues { lines: 81, matches: 0 };
        let lines = missing(Nanos::seconds(60), &[warning]);
        assert_eq!(lines[0], "waiting for the progress metric, at most 1min (--progress-wait)");
        let cause = "warning: no progress metric: none of 81 lines matches --progress-regex";
        assert_eq!(lines[1], cause);
        assert!(lines[2].starts_with("help: "), "{lines:?}");
    }
}
