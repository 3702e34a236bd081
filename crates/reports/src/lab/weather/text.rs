//! Text and JSON of the commands that make conditions for experiments.

use std::fmt::Write;

use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{Sentence, explain, explain_all, lines, warning_lines};
use hugepilot_render::table::{Width, counted, percent, table};
use serde_json::Value;

use super::{
    Activity, FragmentBase, FragmentReport, Noise, PageCacheReport, PressureKind, PressureReport,
    QuietReport, Shortfall, WarmReport,
};

/// Prints the memory that a pressure leaves.
pub fn pressure_text(report: &PressureReport) -> String {
    let left = report.left_bytes;
    let held = report.held_bytes;
    let what = match report.kind {
        PressureKind::Mlock => format!("{left} available, {held} held in locked base pages"),
        PressureKind::Cgroup => format!("{left} for the program, by a memory cgroup"),
        PressureKind::PageCache => format!("{left} free, {held} held in clean page cache"),
    };
    let node = report.node.map_or_else(String::new, |node| format!(" on node {node}"));
    let mut text = format!(
        "{what}{node}; requested {}, reached in {:.1} s\n",
        report.requested_bytes, report.seconds
    );
    text.push_str(&shortfall(report.shortfall.as_ref()));
    text.push_str(&warning_lines(&report.warnings));
    text
}

/// Prints the reached fragmentation and the free blocks.
pub fn fragment_text(report: &FragmentReport) -> String {
    let base = match report.of {
        FragmentBase::Machine => "of the machine",
        FragmentBase::Free => "that were free",
    };
    let mut text = format!(
        "{} of the {} {base} fragmented ({} of {}), requested {}, in {:.1} s\n",
        percent(report.reached_ratio),
        counted(report.base_blocks, "block", "blocks"),
        report.fragmented_blocks,
        report.block_bytes,
        report.requested_ratio,
        report.seconds
    );
    let _ = writeln!(
        text,
        "free blocks of a huge page or more: {} huge pages, {} before; {}",
        report.free_huge_pages,
        report.free_huge_pages_before,
        counted(u64::from(report.compactions), "compaction", "compactions")
    );
    if let Some(found) = report.obtainable {
        let more = if found.refused { "" } else { " or more" };
        let _ = writeln!(text, "obtainable by allocation: {} huge pages{more}", found.huge_pages);
    }
    text.push_str(&shortfall(report.shortfall.as_ref()));
    text
}

fn shortfall(cause: Option<&Shortfall>) -> String {
    let line = |cause: &Shortfall| lines("level not reached", cause);
    cause.map(line).unwrap_or_default()
}

/// Prints the pages in the page cache.
pub fn page_cache_text(report: &PageCacheReport) -> String {
    let file = report.file.as_deref().unwrap_or("a temporary file");
    let action = if report.dropped { "dropped" } else { "read" };
    format!(
        "{file}: {} in the page cache ({} dirty), {} before; {action} in {:.2} s\n",
        report.cached_bytes, report.dirty_bytes, report.cached_before_bytes, report.seconds
    )
}

/// Prints the times of both touches.
pub fn warm_text(report: &WarmReport) -> String {
    format!(
        "{} touched: first {:.2} s, second {:.2} s ({:.1}x)\n",
        report.touched_bytes,
        report.first_touch_seconds,
        report.second_touch_seconds,
        report.first_over_second_ratio
    )
}

/// Prints each activity with its limit, then the reasons.
pub fn quiet_text(report: &QuietReport, width: Width) -> String {
    let header = ["ACTIVITY", "MEASURED", "LIMIT", ""];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for (name, measured, limit, is_noisy) in activities(report) {
        let measured = measured.unwrap_or_else(|| "-".to_owned());
        let mark = if is_noisy { "noisy" } else { "" };
        rows.push(vec![name.to_owned(), measured, limit, mark.to_owned()]);
    }
    let mut text = table(rows, &[1, 2], width);
    let busy = |one: &super::BusyProcess| {
        format!("{} (pid {}) {}", one.name, one.pid, percent(one.busy_processors))
    };
    let busiest: Vec<String> = report.busiest.iter().map(busy).collect();
    if !busiest.is_empty() {
        let _ = writeln!(text, "busiest: {}", busiest.join(", "));
    }
    text.push_str(if report.quiet { "quiet\n" } else { "not quiet\n" });
    text.push_str(&report.reasons.iter().map(|noise| lines("reason", noise)).collect::<String>());
    text
}

type Row = (&'static str, Option<String>, String, bool);

fn activities(report: &QuietReport) -> [Row; 8] {
    let Activity { governor, damon_contexts, .. } = &report.activity;
    let (is, limit) = (&report.activity, &report.limits);
    let has = |noise: &Noise| report.reasons.contains(noise);
    let share = |value: Option<f64>| value.map(percent);
    let number = |value: Option<f64>| value.map(|value| format!("{value:.2}"));
    let count = |value: Option<u64>| value.map(|value| value.to_string());
    let none = || "0".to_owned();
    let is_varied = report.reasons.iter().any(|noise| matches!(noise, Noise::Governor { .. }));
    let [load, other] = [limit.load_per_processor, limit.other_busy_processors];
    [
        ("steal", share(is.steal_ratio), percent(limit.steal_ratio), has(&Noise::Steal)),
        ("load per CPU", number(is.load_per_processor), format!("{load:.2}"), has(&Noise::Load)),
        (
            "busy CPUs, others",
            number(is.other_busy_processors),
            format!("{other:.2}"),
            has(&Noise::OtherWork),
        ),
        (
            "CPU pressure",
            share(is.cpu_pressure_ratio),
            percent(limit.cpu_pressure_ratio),
            has(&Noise::CpuPressure),
        ),
        ("collapses", count(is.khugepaged_collapses), none(), has(&Noise::Khugepaged)),
        ("khugepaged scans", count(is.khugepaged_scans), none(), has(&Noise::Khugepaged)),
        ("DAMON contexts", Some(damon_contexts.to_string()), none(), has(&Noise::Damon)),
        ("governor", governor.clone(), "performance".to_owned(), is_varied),
    ]
}

impl JsonReport for PressureReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/warnings", &self.warnings);
        explain_some(json, "/shortfall", self.shortfall.as_ref());
    }
}

impl JsonReport for FragmentReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_some(json, "/shortfall", self.shortfall.as_ref());
    }
}

fn explain_some(json: &mut Value, pointer: &str, sentence: Option<&impl Sentence>) {
    if let Some(sentence) = sentence {
        explain(json, pointer, sentence);
    }
}

impl JsonReport for QuietReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/reasons", &self.reasons);
    }
}

impl JsonReport for PageCacheReport {}
impl JsonReport for WarmReport {}

#[cfg(test)]
mod tests;
