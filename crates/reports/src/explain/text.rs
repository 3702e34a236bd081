//! Text and JSON of `hugepilot explain`.

mod daemon;
mod version;

use std::collections::BTreeMap;
use std::fmt::Write;

use hugepilot_record::Stop;
use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{Sentence, explain};
use hugepilot_render::table::{Width, counted, percent, table};
use serde_json::Value;

use crate::explain::{
    ExplainReport, ExplainedProcess, ExplainedRegion, ExplainedSplit, ExplainedSplitProcess,
    ExplainedSplits, PhaseName, RegionChoice, RegionShare, RoundOutcome, TimeOrigin, TrialReading,
};
use crate::tune::TrialVerdict;

/// Items of a list that are named.
const NAMED: usize = 8;

/// Prints the rounds, each process in a paragraph, and whether the decisions came out the same.
pub fn explain_text(report: &ExplainReport, width: Width) -> String {
    let mut text = String::new();
    for (at, round) in report.shown.iter().enumerate() {
        let origin = format!(" since the {}", origin(report.origin));
        let origin = if at == 0 { &*origin } else { "" };
        let _ = writeln!(text, "round {}, {:.2} s{origin}", round.round, round.seconds);
        for process in &round.processes {
            text.push_str(&paragraph(process, width));
        }
        if let Some(splits) = &round.splits {
            text.push_str(&splits_text(splits, width));
        }
        if let Some(daemon) = &round.daemon {
            text.push_str(&daemon::daemon_text(daemon));
        }
    }
    if report.cut_bytes > 0 {
        let _ = writeln!(text, "note: {}", cut_line(report.cut_bytes));
    }
    text + &version::note(report) + &verdict(report)
}

impl JsonReport for ExplainReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        for (i, round) in self.shown.iter().enumerate() {
            for (j, process) in round.processes.iter().enumerate() {
                let at = format!("/shown/{i}/processes/{j}");
                if let Some(no_trial) = &process.no_trial {
                    explain(json, &format!("{at}/no_trial"), no_trial);
                }
                for (k, region) in process.regions.iter().enumerate() {
                    explain(json, &format!("{at}/regions/{k}/choice"), &region.choice);
                }
            }
        }
    }
}

/// Time from which times count, after "since the".
pub const fn origin(origin: TimeOrigin) -> &'static str {
    match origin {
        TimeOrigin::RecordingStart => "start of the recording",
        TimeOrigin::FirstObservation => "first observation",
    }
}

/// The note about an incomplete last line of a journal.
pub(crate) fn cut_line(bytes: u64) -> String {
    format!(
        "the last line is incomplete ({}), as after a kill; the rounds before it were read",
        counted(bytes, "byte", "bytes")
    )
}

fn verdict(report: &ExplainReport) -> String {
    let ExplainReport { decisions, reproduced_decisions, differing_rounds, .. } = report;
    if report.rounds == 0 {
        return "no rounds: nothing was decided\n".to_owned();
    }
    let mut text = format!("{reproduced_decisions} of {decisions} decisions reproduced");
    if !differing_rounds.is_empty() {
        let noun = if differing_rounds.len() == 1 { "round" } else { "rounds" };
        let listed = first_few(differing_rounds.iter().map(ToString::to_string));
        let _ = write!(text, "; different in {noun} {listed}");
    }
    text + "\n"
}

fn paragraph(process: &ExplainedProcess, width: Width) -> String {
    let ExplainedProcess { command, pid, samples, window_seconds, .. } = process;
    let mut text = format!(
        "  {command} (pid {pid}): {}, {} in {window_seconds:.2} s\n",
        phases(process.phase_before, process.phase_after),
        counted(*samples, "sample", "samples")
    );
    let mut line = |label: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "    {label}: {value}");
        }
    };
    line("trial", process.trial.as_ref().map_or_else(String::new, reading));
    line("no trial", process.no_trial.map_or_else(String::new, |cause| cause.text()));
    line("candidates", process.candidate_regions.map_or_else(String::new, regions));
    line("promote", share(process.promote));
    line("skipped", skipped(process));
    let demote = process.demote_regions;
    line("demote", if demote > 0 { regions(demote) } else { String::new() });
    line("outcome", outcome(&process.outcome, demote));
    if !process.reproduced {
        line("not reproduced", "deciding again gives another decision or state".to_owned());
    }
    text + &regions_table(&process.regions, width)
}

/// Prints the plan of a debloat, and its outcome in each process.
fn splits_text(splits: &ExplainedSplits, width: Width) -> String {
    let ExplainedSplits { order, requested_bytes, candidates, .. } = splits;
    let dry_run = if splits.dry_run { ", dry run" } else { "" };
    let mut text = format!(
        "  order {order}{dry_run}: {} to split, until {requested_bytes} are free\n",
        counted(*candidates, "huge page", "huge pages")
    );
    if let Some(stop) = splits.stopped {
        let _ = writeln!(text, "    stopped: {}", stop.text());
    }
    let skipped = splits.skipped.iter().map(|(reason, count)| format!("{reason} {count}"));
    let skipped = skipped.collect::<Vec<_>>().join(", ");
    if !skipped.is_empty() {
        let _ = writeln!(text, "    skipped: {skipped}");
    }
    if !splits.reproduced {
        text.push_str("    not reproduced: planning again gives another plan\n");
    }
    for process in &splits.processes {
        text.push_str(&split_paragraph(process, width));
    }
    text
}

fn split_paragraph(process: &ExplainedSplitProcess, width: Width) -> String {
    let ExplainedSplitProcess { command, pid, huge_pages, bloat_bytes, candidates, .. } = process;
    let read = match process.read_huge_pages {
        read if read == *huge_pages => String::new(),
        read => format!(", of which {read} were read,"),
    };
    let protected = if process.protected { ", protected" } else { "" };
    let stalls = process.stalls.map_or_else(
        || "not sampled".to_owned(),
        |stalls| format!("{} that huge pages avoid", counted(stalls, "stall", "stalls")),
    );
    let mut text = format!(
        "  {command} (pid {pid}){protected}: {}{read} with {bloat_bytes} zero-filled, {candidates} \
         in the plan; {stalls}\n",
        counted(*huge_pages, "huge page", "huge pages")
    );
    let mut parts = Vec::new();
    if process.huge_pages_split > 0 {
        let ExplainedSplitProcess { huge_pages_split, freed_bytes, .. } = process;
        parts.push(format!("{huge_pages_split} split, {freed_bytes} freed"));
    }
    parts.extend(counts("failed", &process.failed));
    parts.extend(counts("changed before", &process.skipped));
    parts.extend(process.stopped.map(|stop| format!("stopped: {}", stop.text())));
    if !parts.is_empty() {
        let _ = writeln!(text, "    outcome: {}", parts.join("; "));
    }
    text + &splits_table(&process.regions, width)
}

fn splits_table(regions: &[ExplainedSplit], width: Width) -> String {
    if regions.is_empty() {
        return String::new();
    }
    let header = ["REGION", "BLOAT", "STALLS", "PLACE", "OUTCOME"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let none = || "-".to_owned();
    rows.extend(regions.iter().map(|region| {
        vec![
            region.start.to_string(),
            region.bloat_bytes.to_string(),
            region.stalls.map_or_else(none, |stalls| stalls.to_string()),
            region.rank.map_or_else(none, |rank| rank.to_string()),
            region.outcome.clone().unwrap_or_else(none),
        ]
    }));
    let lines = table(rows, &[1, 2, 3], width);
    lines.lines().fold(String::new(), |text, line| text + "    " + line + "\n")
}

/// The first items of a list, and the number of further ones.
fn first_few(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len().saturating_sub(NAMED);
    let named = items.take(NAMED).collect::<Vec<_>>().join(", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// Regions with their noun.
pub(crate) fn regions(count: u64) -> String {
    counted(count, "region", "regions")
}

fn share(promote: RegionShare) -> String {
    match (promote.regions, promote.stall_ratio) {
        (0, _) => String::new(),
        (count, None) => regions(count),
        (count, Some(ratio)) => format!("{} with {} of stalls", regions(count), percent(ratio)),
    }
}

fn phases(before: PhaseName, after: PhaseName) -> String {
    if before == after {
        return word(before).to_owned();
    }
    format!("{} → {}", word(before), word(after))
}

const fn word(phase: PhaseName) -> &'static str {
    match phase {
        PhaseName::Observing => "observing",
        PhaseName::Trial => "trial",
        PhaseName::Spread => "spread",
        PhaseName::Check => "check",
        PhaseName::Watching => "watching",
        PhaseName::Ended => "ended",
    }
}

/// The reading of a trial: verdict, ratio with its interval, and the samples behind it.
fn reading(trial: &TrialReading) -> String {
    let verdict = match (trial.verdict, trial.confirmed) {
        (Some(TrialVerdict::Gain), _) => "gain, ",
        (Some(TrialVerdict::NoGain), _) => "no gain, ",
        (Some(TrialVerdict::Open), _) => "over without a verdict, ",
        (None, Some(true)) => "confirmed, ",
        (None, Some(false)) => "void, because the program changed its phase, ",
        (None, None) => "",
    };
    let ratio = match (trial.ratio, trial.low_ratio, trial.high_ratio) {
        (Some(ratio), Some(low), Some(high)) => {
            format!("ratio {ratio:.2} ({low:.2}–{high:.2})")
        }
        _ => "no ratio yet".to_owned(),
    };
    let samples = counted(trial.samples, "sample", "samples");
    let again = match trial.rereads_pages {
        true => "; before the verdict, the pages are read again",
        false => "",
    };
    format!("{verdict}{ratio}, {samples} on {}{again}", counted(trial.pairs, "pair", "pairs"))
}

fn skipped(process: &ExplainedProcess) -> String {
    let named = process.skipped.iter().filter(|(_, share)| share.regions > 0);
    let named = named.map(|(reason, share)| {
        let RegionShare { regions, stall_ratio } = share;
        let share = stall_ratio.map(|ratio| format!(" ({} of stalls)", percent(ratio)));
        format!("{reason} {regions}{}", share.unwrap_or_default())
    });
    named.collect::<Vec<_>>().join(", ")
}

/// `demote`: regions that should return to base pages.
fn outcome(outcome: &RoundOutcome, demote: u64) -> String {
    let mut parts = Vec::new();
    if outcome.verified_regions > 0 {
        parts.push(format!("{} verified", outcome.verified_regions));
    }
    if outcome.demoted_regions > 0 {
        parts.push(format!("{} demoted", outcome.demoted_regions));
    }
    let changed: BTreeMap<String, u64> =
        outcome.changed.iter().map(|(reason, &count)| (reason.to_string(), count)).collect();
    parts.extend(counts("failed", &outcome.failed));
    parts.extend(counts("demotion failed", &outcome.failed_demotions));
    parts.extend(counts("changed before", &changed));
    if outcome.untried_regions > 0 {
        let cause = if outcome.stopped.is_some() { "" } else { ", because the time was over" };
        parts.push(format!("{} not tried{cause}", outcome.untried_regions));
    }
    let is_freed =
        demote > 0 && matches!(outcome.stopped, Some(Stop::TargetGone | Stop::TargetExeced));
    let freed = if is_freed { ", which freed the regions" } else { "" };
    parts.extend(outcome.stopped.map(|stop| format!("stopped: {}{freed}", stop.text())));
    if let Some(seconds) = outcome.seconds {
        parts.push(format!("{seconds:.2} s"));
    }
    parts.join("; ")
}

/// `label: NAME COUNT, …`; `None` without any.
fn counts(label: &str, counts: &BTreeMap<String, u64>) -> Option<String> {
    let named: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    (!named.is_empty()).then(|| format!("{label}: {}", named.join(", ")))
}

fn regions_table(regions: &[ExplainedRegion], width: Width) -> String {
    if regions.is_empty() {
        return String::new();
    }
    let none = || "-".to_owned();
    let header = ["REGION", "STALLS", "STALL_%", "DECISION", "OUTCOME", "MAPPING"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(regions.iter().map(|region| {
        vec![
            region.start.to_string(),
            region.stalls.to_string(),
            region.stall_ratio.map_or_else(none, |ratio| format!("{:.2}", ratio * 100.0)),
            decision(region.choice),
            region.outcome.clone().unwrap_or_else(none),
            region.mapping.clone(),
        ]
    }));
    let lines = table(rows, &[1, 2], width);
    lines.lines().fold(String::new(), |text, line| text + "    " + line + "\n")
}

/// A choice in a word, for the table.
fn decision(choice: RegionChoice) -> String {
    match choice {
        RegionChoice::Promote => "promote".to_owned(),
        RegionChoice::Demote => "demote".to_owned(),
        RegionChoice::Control => "control".to_owned(),
        RegionChoice::Wait => "wait".to_owned(),
        RegionChoice::Cold => "cold".to_owned(),
        RegionChoice::Skip { reason } => format!("skip: {reason}"),
        RegionChoice::NotJudged => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_units::VirtAddr;

    use super::*;
    use crate::explain::{ExplainedRound, SCHEMA};

    #[test]
    fn a_journal_without_rounds_has_no_decisions() {
        let report = ExplainReport { schema: SCHEMA.to_owned(), ..ExplainReport::default() };
        assert_eq!(explain_text(&report, Width::UNLIMITED), "no rounds: nothing was decided\n");
    }

    #[test]
    fn a_round_without_its_verdict_says_why() {
        let reading_of = |again: bool| {
            let json = serde_json::json!({"ratio": 0.5, "low_ratio": 0.4, "high_ratio": 0.6,
                "pairs": 128, "samples": 429, "rereads_pages": again});
            reading(&serde_json::from_value(json).unwrap())
        };
        let open = "ratio 0.50 (0.40–0.60), 429 samples on 128 pairs";
        assert_eq!(reading_of(false), open);
        let again = format!("{open}; before the verdict, the pages are read again");
        assert_eq!(reading_of(true), again);
        let stopped = Some(Stop::TargetGone);
        let gone = RoundOutcome { stopped, ..RoundOutcome::default() };
        assert_eq!(outcome(&gone, 128), "stopped: the target ended, which freed the regions");
        assert_eq!(outcome(&gone, 0), "stopped: the target ended");
    }

    #[test]
    fn shares_without_stalls_are_unknown() {
        let promote = RegionShare { regions: 101, stall_ratio: None };
        assert_eq!(share(promote), "101 regions");
        assert_eq!(
            share(RegionShare { stall_ratio: Some(0.0), ..promote }),
            "101 regions with 0.0 % of stalls"
        );
        let region = ExplainedRegion {
            start: VirtAddr::new(1 << 21),
            mapping: "[heap]".to_owned(),
            stalls: 0,
            stall_ratio: None,
            added_bytes: None,
            choice: RegionChoice::Promote,
            outcome: None,
        };
        let text = regions_table(&[region], Width::UNLIMITED);
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(cells, ["0x200000", "0", "-", "promote", "-", "[heap]"]);
    }

    #[test]
    fn the_first_round_names_the_origin_of_the_times() {
        let round = ExplainedRound {
            round: 3,
            seconds: 1.5,
            processes: Vec::new(),
            splits: None,
            daemon: None,
        };
        let shown = vec![round.clone(), ExplainedRound { round: 4, ..round }];
        let mut report = ExplainReport { shown, ..ExplainReport::default() };
        let start = |report: &ExplainReport| {
            let text = explain_text(report, Width::UNLIMITED);
            text.lines().take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let second = "round 4, 1.50 s";
        assert_eq!(start(&report), ["round 3, 1.50 s since the first observation", second]);
        report.origin = TimeOrigin::RecordingStart;
        assert_eq!(start(&report), ["round 3, 1.50 s since the start of the recording", second]);
    }

    #[test]
    fn the_last_line_names_the_rounds_that_differ() {
        let mut report = ExplainReport {
            schema: SCHEMA.to_owned(),
            rounds: 20,
            decisions: 20,
            reproduced_decisions: 19,
            differing_rounds: vec![3],
            ..ExplainReport::default()
        };
        let text = |report: &ExplainReport| {
            let text = explain_text(report, Width::UNLIMITED);
            text.split_inclusive('\n').next_back().unwrap().to_owned()
        };
        assert_eq!(text(&report), "19 of 20 decisions reproduced; different in round 3\n");
        (report.reproduced_decisions, report.differing_rounds) = (10, (1..=10).collect());
        assert_eq!(
            text(&report),
            "10 of 20 decisions reproduced; different in rounds 1, 2, 3, 4, 5, 6, 7, 8 and 2 more\n"
        );
    }
}
