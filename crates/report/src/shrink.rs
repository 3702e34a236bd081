//! Text and JSON of `hugepilot debloat --backend shrinker`.

use std::fmt::Write;

use hugepilot_record::shrink::{ProcessShrink, ShrinkReport};
use hugepilot_units::Bytes;
use serde_json::Value;

use crate::json::JsonReport;
use crate::sentence::{explain_all, warning_lines};
use crate::table::{Width, counted, grouped, more_processes, table};

/// Limit on the rows of the table of processes; `--json` has all.
const SHOWN: usize = 30;

impl JsonReport for ShrinkReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/warnings", &self.warnings);
    }
}

/// Prints the verdict, the table of processes, the request, and the warnings.
pub fn shrink_text(report: &ShrinkReport, width: Width) -> String {
    let mut text = format!("{}\n\n", verdict(report));
    text.push_str(&processes(report, width));
    text.push_str(&method(report));
    text + &warning_lines(&report.warnings)
}

fn verdict(report: &ShrinkReport) -> String {
    let cgroup = &report.shrinker.cgroup;
    let huge_pages = |pages| counted(pages, "huge page", "huge pages");
    let all = report.huge_pages_before.map_or_else(|| "- huge pages".to_owned(), huge_pages);
    if report.dry_run {
        return format!("{all} in {cgroup}; nothing was changed");
    }
    let stopped = report.stopped.as_ref().map_or_else(String::new, |why| format!(", then: {why}"));
    let Some(seconds) = report.split_seconds else {
        return format!("{all} in {cgroup}; nothing was requested{stopped}");
    };
    let [before, after] = [report.huge_pages_before, report.huge_pages_after]
        .map(|pages| pages.map_or_else(unknown, grouped_count));
    format!(
        "freed {} in {seconds:.2} s; huge pages of {cgroup}: {before} before, {after} \
         after{stopped}",
        size(report.freed_bytes)
    )
}

fn processes(report: &ShrinkReport, width: Width) -> String {
    let header =
        ["PID", "COMMAND", "FREED", "ANON_BEFORE", "ANON_AFTER", "THP_BEFORE", "THP_AFTER"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let row = |one: &ProcessShrink| {
        vec![
            one.pid.to_string(),
            one.command.clone(),
            size(one.freed_bytes),
            one.anon_bytes_before.to_string(),
            size(one.anon_bytes_after),
            one.huge_pages_before.map_or_else(unknown, grouped_count),
            one.huge_pages_after.map_or_else(unknown, grouped_count),
        ]
    };
    rows.extend(report.processes.iter().take(SHOWN).map(row));
    let mut text = table(rows, &[0, 2, 3, 4, 5, 6], width);
    if report.processes.len() > SHOWN {
        text.push_str(&more_processes(report.processes.len() - SHOWN));
    }
    text
}

fn method(report: &ShrinkReport) -> String {
    let shrinker = &report.shrinker;
    let [set, requested] = match report.dry_run {
        true => ["would set temporarily", "would request"],
        false => ["set temporarily", "requested"],
    };
    let mut text = String::from("\n");
    for one in &shrinker.settings {
        let setting = &one.setting;
        let _ =
            writeln!(text, "{set}: {} from {} to {}", setting.name, setting.before, setting.set_to);
    }
    let amount = report
        .requested_bytes
        .map_or_else(|| "all reclaimable memory".to_owned(), |bytes| bytes.to_string());
    let _ = writeln!(text, "{requested}: {amount}, by {}", shrinker.asked_by);
    let after = shrinker
        .usage_bytes_after
        .map_or_else(String::new, |after| format!(" before, {after} after"));
    let before = size(shrinker.usage_bytes_before);
    let _ = writeln!(text, "memory use of the cgroup: {before}{after}");
    text
}

fn size(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(unknown, |bytes| bytes.to_string())
}

fn unknown() -> String {
    "-".to_owned()
}

#[allow(clippy::cast_precision_loss)]
fn grouped_count(count: u64) -> String {
    grouped(count as f64)
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;
    use hugepilot_record::settings::{ChangedSetting, Restored};
    use hugepilot_record::shrink::{SettingReport, ShrinkWarning, Shrinker};
    use hugepilot_testkit::assert_golden;

    use super::*;

    fn report() -> ShrinkReport {
        let setting = ChangedSetting {
            name: "khugepaged/max_ptes_none".into(),
            before: "511".into(),
            set_to: "409".into(),
            in_progress: false,
        };
        ShrinkReport {
            freed_bytes: Some(Bytes::gib(1)),
            huge_pages_split: Some(690),
            huge_pages_before: Some(4096),
            huge_pages_after: Some(3406),
            split_seconds: Some(0.25),
            processes: vec![ProcessShrink {
                pid: Pid(4711),
                command: "btree".into(),
                bloat_bytes_before: (),
                bloat_bytes_after: (),
                stranded_bytes: (),
                freed_bytes: Some(Bytes::gib(1)),
                huge_pages_split: (),
                huge_pages_before: None,
                huge_pages_after: None,
                anon_bytes_before: Bytes::gib(8),
                anon_bytes_after: Some(Bytes::gib(7)),
            }],
            shrinker: Shrinker {
                cgroup: "/sys/fs/cgroup/db.slice".into(),
                asked_by: "memory.force_empty".into(),
                max_ptes_none: 409,
                settings: vec![SettingReport { setting, restored: Some(Restored::Yes) }],
                usage_bytes_before: Some(Bytes::gib(9)),
                usage_bytes_after: Some(Bytes::gib(7)),
                ..Shrinker::default()
            },
            warnings: vec![
                ShrinkWarning::GlobalThreshold { seconds: Some(0.25) },
                ShrinkWarning::NothingFound { max_ptes_none: 409, was_off: true },
            ],
            ..ShrinkReport::default()
        }
    }

    #[test]
    fn the_text_of_a_whole_report() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/shrink.txt");
        assert_golden(path, &shrink_text(&report(), Width::UNLIMITED));
    }

    #[test]
    fn a_dry_run_states_no_number() {
        let mut report = ShrinkReport { dry_run: true, freed_bytes: None, ..report() };
        report.shrinker.usage_bytes_after = None;
        let text = shrink_text(&report, Width::UNLIMITED);
        assert!(text.lines().next().unwrap().ends_with("nothing was changed"), "{text}");
        assert!(text.contains("would set") && text.contains("would request"), "{text}");
        assert!(!text.contains("freed"), "{text}");
    }
}
