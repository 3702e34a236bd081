//! `debloat --backend shrinker` as text.

use std::fmt::Write;

use hugepilot_record::shrink::{ProcessShrink, ShrinkReport};
use hugepilot_units::Bytes;

use crate::table::{grouped, table};

/// Processes shown.
const SHOWN: usize = 30;

/// The report for people: the verdict, each process, what was asked for, and what to know.
pub fn shrink_text(report: &ShrinkReport) -> String {
    let mut text = format!("{}\n\n", verdict(report));
    text.push_str(&processes(report));
    text.push_str(&method(report));
    for warning in &report.warnings {
        let _ = writeln!(text, "note: {warning}");
    }
    text
}

fn verdict(report: &ShrinkReport) -> String {
    let (shrinker, count) =
        (&report.shrinker, |pages: Option<u64>| pages.map_or_else(unknown, grouped_count));
    let before = count(report.huge_pages_before);
    if report.dry_run {
        return format!("{before} huge pages in {}; nothing was changed", shrinker.cgroup);
    }
    let stopped = report.stopped.as_ref().map_or_else(String::new, |why| format!(", then: {why}"));
    let Some(seconds) = report.split_seconds else {
        return format!(
            "{before} huge pages in {}; nothing was asked for{stopped}",
            shrinker.cgroup
        );
    };
    format!(
        "freed {} in {seconds:.2} s; huge pages of {}: {before} before, {} after{stopped}",
        size(report.freed_bytes),
        shrinker.cgroup,
        count(report.huge_pages_after)
    )
}

fn processes(report: &ShrinkReport) -> String {
    let header =
        ["PID", "COMMAND", "FREED", "ANON_BEFORE", "ANON_AFTER", "HUGE_BEFORE", "HUGE_AFTER"];
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
    let mut text = table(rows, &[0, 2, 3, 4, 5, 6]);
    if report.processes.len() > SHOWN {
        let _ = writeln!(
            text,
            "and {} more processes (--json has all)",
            report.processes.len() - SHOWN
        );
    }
    text
}

fn method(report: &ShrinkReport) -> String {
    let shrinker = &report.shrinker;
    let would = if report.dry_run { "would be " } else { "" };
    let mut text = String::from("\n");
    for one in &shrinker.settings {
        let setting = &one.setting;
        let _ = writeln!(
            text,
            "{would}set for as long as it takes: {}, from {} to {}",
            setting.name, setting.before, setting.set_to
        );
    }
    let amount =
        report.requested_bytes.map_or_else(|| "all that can be had".to_owned(), |b| b.to_string());
    let _ = writeln!(text, "{would}asked for: {amount}, by {}", shrinker.asked_by);
    let _ = writeln!(
        text,
        "memory use of the cgroup: {}{}",
        size(shrinker.usage_bytes_before),
        shrinker
            .usage_bytes_after
            .map_or_else(String::new, |after| format!(" before, {after} after"))
    );
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
    use hugepilot_record::shrink::{SettingReport, Shrinker};
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
            warnings: vec!["something".into()],
            ..ShrinkReport::default()
        }
    }

    #[test]
    fn done() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/shrink.txt");
        assert_golden(path, &shrink_text(&report()));
    }

    #[test]
    fn a_dry_run_says_would_and_promises_no_number() {
        let mut report = ShrinkReport { dry_run: true, freed_bytes: None, ..report() };
        report.shrinker.usage_bytes_after = None;
        let text = shrink_text(&report);
        assert!(text.lines().next().unwrap().ends_with("nothing was changed"), "{text}");
        assert!(text.contains("would be set") && text.contains("would be asked for"), "{text}");
        assert!(!text.contains("freed"), "{text}");
    }
}
