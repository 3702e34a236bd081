//! Document and JSON of `tune`.

mod eligible;
mod facts;
mod lost;
mod metric;
mod performance;
mod schedule;
pub(crate) mod sentence;
mod several;
mod skipped;
#[cfg(test)]
pub(crate) mod tests;
mod tried;
mod verdict;

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;

use eligible::eligible;
use facts::facts;
use lost::{exec, verified};
use performance::performance;

use crate::tune::{NoMetric, NoVerdict, SelectedRegion, TuneActs, TuneReport, TuneVerdict};
use schedule::schedule;
use sentence::{confirm_help, lacks_time, size, trial, unmeasured};
pub use several::tune_texts;
use skipped::skipped;
use tried::tried;
pub(crate) use verdict::verdict;

use hugepilot_render::document_text;
use hugepilot_render::json::JsonReport;
use hugepilot_render::model::{Cell, Document, Lines, Notice, Report, Section, Table, Unit};
use hugepilot_render::sentence::{Sentence, explain, explain_all, lines};
use hugepilot_render::table::{Width, counted, percent};

use crate::obstacle::obstacles;

/// Selected regions that the text shows.
const SHOWN: usize = 8;

impl Document for TuneReport {
    fn document(&self) -> Report {
        let mut all = document(self, true, "");
        // A recording may have several tunes.
        for section in &mut all.sections {
            section.title = format!("{}: {}", all.title, section.title);
            section.group.clone_from(&all.title);
        }
        all
    }
}

/// The report as text: the verdict, the performance, selected and skipped regions, the method.
/// `verbose` adds what is unavailable on this machine.
pub fn tune_text(report: &TuneReport, width: Width, verbose: bool) -> String {
    document_text(&document(report, verbose, ""), width)
}

/// The document of `report`, whose warnings begin with `name`.
fn document(report: &TuneReport, verbose: bool, name: &str) -> Report {
    let title = format!("{} (pid {})", report.target.command, report.target.pid);
    let mut all = Report::new(format!("Tune of {title}"));
    all.summary.push(format!("{title}: {}", verdict(report)));
    if let Some(no_verdict @ NoVerdict::Excluded(_)) = &report.no_verdict {
        // Nothing else is known of it.
        all.summary.extend(help_lines(no_verdict).lines().map(str::to_owned));
        return all;
    }
    performance(report).into_iter().for_each(|section| all.add(section));
    all.add(regions(report));
    let events = report.schedule.iter().flat_map(|one| schedule(one, report.dry_run));
    events.for_each(|section| all.add(section));
    let unavailable = if verbose { unavailable(report) } else { String::new() };
    let lines = method(report, verbose) + &unavailable + &obstacles(&report.obstacles);
    all.add(Section::new("Memory and stalls", "").with_all(Lines::of(&lines)));
    all.add(facts(report));
    let warnings = Notice::warnings(&report.warnings)
        .map(|one| Notice { text: format!("{name}{}", one.text), ..one });
    all.add(Section::new("Warnings", "").with_all(warnings));
    all
}

impl JsonReport for TuneReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        if let Some(no_verdict) = &self.no_verdict {
            explain(json, "/no_verdict", no_verdict);
        }
        if let Some(no_trial) = &self.forecast.no_trial {
            explain(json, "/no_trial", no_trial);
        }
        if let Some(no_metric) = &self.measured.no_metric {
            explain(json, "/no_metric", no_metric);
        }
        explain_all(json, "/obstacles", &self.obstacles);
        explain_all(json, "/warnings", &self.warnings);
        let Ok(Value::Object(mut code)) = serde_json::to_value(self.verdict()) else { return };
        code.insert("text".to_owned(), verdict(self).into());
        if let Some(object) = json.as_object_mut() {
            let answer = serde_json::to_value(self.answer()).unwrap_or_default();
            object.insert("answer".to_owned(), answer);
            object.insert("verdict".to_owned(), code.into());
            let gain = serde_json::to_value(self.gain()).unwrap_or_default();
            object.insert("gain".to_owned(), gain);
        }
    }
}

/// A share, or that it is unknown.
fn share(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "unknown".to_owned(), percent)
}

/// Selected regions, and what became of the others.
fn regions(report: &TuneReport) -> Section {
    let all = &report.plan.selected;
    let count = counted(all.len() as u64, "selected region", "selected regions");
    let text = if all.is_empty() { String::new() } else { count + &coverage(report) + "." };
    let mut section = Section::new("Regions", text);
    if !all.is_empty() {
        let columns = ["region", "samples", "sampled pages", "verified", "mapping"];
        let has_samples = report.forecast.coverage_ratio.is_some();
        let rows = all.iter().take(SHOWN).map(|region| row(region, has_samples));
        section = section.with(Table::of("", columns, rows));
    }
    let truth = report.ground_truth.map_or_else(String::new, |truth| {
        format!(
            "ground truth: {} of {} hot regions selected, {} of selected regions are hot\n",
            truth.selected_hot_regions,
            truth.hot_regions,
            percent(truth.precision_ratio)
        )
    });
    section
        .with_all(Notice::of_omitted(all.len(), SHOWN, "region", "regions"))
        .with_all(Lines::of(&(truth + &not_promoted(report))))
}

/// The share of the samples on the selected regions, if none was returned: a returned one has no
/// share.
fn coverage(report: &TuneReport) -> String {
    match report.forecast.coverage_ratio {
        Some(ratio) if report.acts.demoted_regions + report.acts.lost_regions == 0 => {
            format!(" with {} of the samples, the hottest first", percent(ratio))
        }
        Some(_) => ", the hottest first".to_owned(),
        None => String::new(),
    }
}

/// Cells of a region; without samples, those about stalls are unknown.
fn row(region: &SelectedRegion, has_samples: bool) -> [Cell; 5] {
    let sampled = |value: f64, unit| Cell::of(has_samples.then_some(value), unit, "no samples");
    [
        region.start.to_string().into(),
        sampled(region.heat_ratio, Unit::Ratio),
        sampled(region.sampled_pages.into(), Unit::Count),
        verified(region).map_or_else(|| Cell::of(None, Unit::Number, "not tried"), Cell::from),
        region.mapping.clone().into(),
    ]
}

/// Skipped regions, failures, and the cause of an early end.
fn not_promoted(report: &TuneReport) -> String {
    let mut text = skipped(report) + &failures(report);
    if let Some(no_verdict) = &report.no_verdict {
        text.push_str(&help_lines(no_verdict));
    }
    if report.acts.untried_regions > 0 {
        let cause = report
            .stopped
            .map_or("the time for promotions (--for) was over", |_| "the tune stopped early");
        let regions = counted(report.acts.untried_regions, "selected region", "selected regions");
        let _ = writeln!(text, "not tried: {regions}: {cause}");
    }
    if let Some(stop) = report.stopped {
        // The first line has the cause if nothing was promoted.
        text.push_str(&match report.verdict() {
            TuneVerdict::Stopped => help_lines(&stop),
            _ => lines("stopped early", &stop),
        });
    }
    text
}

/// A line for each errno of failed promotions, with its cause.
fn failures(report: &TuneReport) -> String {
    let line = |(errno, &count): (&String, &u64)| {
        let cause = cause_of(errno).map_or_else(String::new, |cause| format!(": {cause}"));
        format!("failed: {errno} {count}{cause}\n")
    };
    report.acts.failed.iter().filter(|&(_, &count)| count > 0).map(line).collect()
}

/// Cause of a failed promotion, by the name of its errno.
fn cause_of(errno: &str) -> Option<&'static str> {
    Some(match errno {
        "EAGAIN" => {
            "the kernel could not take the pages out of use: they are pinned, under input or \
             output, or changed just then"
        }
        "EBUSY" => "the memory cgroup has no room for a huge page",
        "EINVAL" => {
            "the kernel makes no huge page of this memory: it has guard pages, its mapping \
             changed, or huge pages are disabled"
        }
        "ENOMEM" => {
            "no free block is large enough, compaction made none, or the memory was unmapped"
        }
        "EPERM" | "EACCES" => "a permission is missing; hugepilot doctor names it",
        "not_verified" => "the call succeeded without a huge page",
        _ => return None,
    })
}

/// `label: NAME COUNT, …` without zeros; empty if all are zero.
fn counts(label: &str, counts: impl Iterator<Item = (impl ToString, u64)>) -> String {
    let named: Vec<_> = counts
        .filter(|&(_, count)| count > 0)
        .map(|(name, count)| format!("{} {count}", name.to_string()))
        .collect();
    if named.is_empty() { String::new() } else { format!("{label}: {}\n", named.join(", ")) }
}

fn help_lines(sentence: &impl Sentence) -> String {
    sentence.help().iter().map(|help| format!("help: {help}\n")).collect()
}

/// Memory that the huge pages added, and the command that returns it; empty without any.
fn added(report: &TuneReport) -> String {
    let TuneActs { added_bytes: added, lazily_freed_bytes: freed, .. } = report.acts;
    if added.is_zero() {
        return String::new();
    }
    let mut text = format!("memory that huge pages added: {added}");
    if !freed.is_zero() {
        let _ = write!(
            text,
            ", {freed} of it lazily freed before (MADV_FREE), which no command frees again"
        );
    }
    text.push('\n');
    if added > freed && report.tried.is_none() {
        let pid = report.target.pid;
        let _ = writeln!(text, "help: free the unused part: sudo hugepilot debloat -p {pid}");
    }
    text
}

/// Promotions and demotions, of which a region may have several; empty without one.
fn acts(report: &TuneReport) -> String {
    if report.acts.promotions + report.acts.demotions == 0 {
        return String::new();
    }
    let promotions = counted(report.acts.promotions, "promotion", "promotions");
    let demotions = counted(report.acts.demotions, "demotion", "demotions");
    format!("policy {}: {promotions}, {demotions}\n", report.policy)
}

fn method(report: &TuneReport, verbose: bool) -> String {
    let mut text = format!(
        "memory: {} resident, {} huge before, {} after{}\n",
        size(report.plan.footprint_bytes),
        size(report.acts.huge_bytes_before),
        size(report.acts.huge_bytes_after),
        report.plan.budget_bytes.map_or_else(String::new, |budget| format!(", budget {budget}"))
    );
    text.push_str(&added(report));
    text.push_str(&tried(report));
    text.push_str(&acts(report));
    let before = report.forecast.before.stall_ratio.map_or_else(
        || "unknown".to_owned(),
        |ratio| format!("{} of samples before", percent(ratio)),
    );
    let after = report
        .measured
        .after
        .map_or_else(String::new, |after| format!(", {} after", share(after.stall_ratio)));
    let _ = writeln!(text, "stalls on scattered memory: {before}{after}");
    if let Some(trial) = trial(report.forecast.no_trial, report.forecast.trial) {
        let _ = writeln!(text, "{trial}");
        text.extend(confirm_help(report));
    }
    text.extend(exec(report).map(|line| line + "\n"));
    text.push_str(&eligible(report));
    if let Some(cause) = unmeasured(report) {
        let _ = writeln!(text, "gain: not measured: {cause}");
        // The line before names an interruption, from which few windows follow, and a program.
        let is_named = |cause: &&NoMetric| matches!(cause, NoMetric::OfProgram { .. });
        let cause =
            report.measured.no_metric.as_ref().filter(|one| !is_named(one) && !lacks_time(report));
        text.extend(cause.map(|cause| lines("no metric found", cause)));
    }
    text.push_str(&samples(report, verbose));
    text
}

/// Samplers and counters that are unavailable, by cause.
fn unavailable(report: &TuneReport) -> String {
    let mut text = String::new();
    let mut by_cause: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (source, cause) in &report.sampler.unavailable {
        by_cause.entry(cause).or_default().push(source);
    }
    for (cause, sources) in by_cause {
        let _ = writeln!(text, "not available: {}: {cause}", sources.join(", "));
    }
    text
}

/// The sampler, its samples, the provenance of their addresses, and what sampling cost.
fn samples(report: &TuneReport, verbose: bool) -> String {
    let sampler = &report.sampler;
    let mut text = format!("samples: {} by {}", sampler.samples, sampler.source);
    let provenance: Vec<_> = [
        ("exact", sampler.exact_ratio),
        ("recomputed", sampler.recomputed_ratio),
        ("next", sampler.next_ratio),
        ("fetch", sampler.fetch_ratio),
        ("none", sampler.none_ratio),
    ]
    .into_iter()
    .filter_map(|(name, ratio)| {
        Some(format!("{name} {}", percent(ratio.filter(|&r| r >= 0.0005)?)))
    })
    .collect();
    if !provenance.is_empty() {
        let _ = write!(text, "; address {}", provenance.join(", "));
    }
    if sampler.lost > 0 {
        let _ = write!(text, "; lost {}", sampler.lost);
    }
    let overhead = sampler.overhead_ratio.map(percent);
    if let Some(overhead) = overhead.or_else(|| verbose.then(|| "not measured".to_owned())) {
        let _ = write!(text, "; overhead {overhead}");
    }
    text.push('\n');
    text
}
