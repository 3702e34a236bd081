//! Document and JSON of `hugepilot debloat --backend shrinker`.

use hugepilot_record::sentence::number;
use hugepilot_render::json::JsonReport;
use hugepilot_render::model::{Cell, Document, Notice, Report, Section, Table, Unit};
use hugepilot_render::sentence::explain_all;
use hugepilot_render::table::counted;
use hugepilot_units::Bytes;
use serde_json::Value;

use crate::settings::ChangedSetting;
use crate::shrink::{ProcessShrink, SettingReport, ShrinkReport};

/// Limit on the rows of the table of processes; `--json` has all.
const SHOWN: usize = 30;

impl JsonReport for ShrinkReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/warnings", &self.warnings);
    }
}

impl Document for ShrinkReport {
    fn document(&self) -> Report {
        let mut all = Report::new("Bloat of huge pages, by the kernel");
        all.summary.push(verdict(self));
        let after = self.shrinker.usage_bytes_after;
        let after = after.map_or_else(String::new, |after| format!(" before, {after} after"));
        let before = size(self.shrinker.usage_bytes_before);
        all.summary.push(format!("Memory use of the cgroup: {before}{after}."));
        all.add(processes(&self.processes));
        all.add(Section::new("Method", method(self)));
        all.add(Section::new("Warnings", "").with_all(Notice::warnings(&self.warnings)));
        all
    }
}

fn verdict(report: &ShrinkReport) -> String {
    let cgroup = &report.shrinker.cgroup;
    let huge_pages = |pages| counted(pages, "huge page", "huge pages");
    let all = report.huge_pages_before.map_or_else(|| "- huge pages".to_owned(), huge_pages);
    if report.dry_run {
        return format!("{all} in {cgroup}; nothing was changed.");
    }
    let stopped = report.stopped.as_ref().map_or_else(String::new, |why| format!(", then: {why}"));
    let Some(seconds) = report.split_seconds else {
        return format!("{all} in {cgroup}; nothing was requested{stopped}.");
    };
    let [before, after] = [report.huge_pages_before, report.huge_pages_after]
        .map(|pages| pages.map_or_else(unknown, number));
    format!(
        "freed {} in {seconds:.2} s; huge pages of {cgroup}: {before} before, {after} \
         after{stopped}.",
        size(report.freed_bytes)
    )
}

fn processes(all: &[ProcessShrink]) -> Section {
    let columns =
        ["pid", "command", "freed", "anon before", "anon after", "THP before", "THP after"];
    let row = |one: &ProcessShrink| {
        let ended = "the process has ended";
        let bytes = |bytes: Option<Bytes>| Cell::of(bytes.map(Bytes::as_f64), Unit::Bytes, ended);
        let count = |pages: Option<u64>| {
            Cell::of(pages.map(|pages| pages as f64), Unit::Count, "the mappings may not be read")
        };
        [
            one.pid.to_string().into(),
            one.command.clone().into(),
            bytes(one.freed_bytes),
            one.anon_bytes_before.into(),
            bytes(one.anon_bytes_after),
            count(one.huge_pages_before),
            count(one.huge_pages_after),
        ]
    };
    let table = Table::of("", columns, all.iter().take(SHOWN).map(row));
    let more = Notice::of_omitted(all.len(), SHOWN, "process", "processes");
    Section::new("Processes", "").with(table).with_all(more)
}

fn method(report: &ShrinkReport) -> String {
    let shrinker = &report.shrinker;
    let [set, requested] = match report.dry_run {
        true => ["Would set temporarily", "Would request"],
        false => ["Set temporarily", "Requested"],
    };
    let setting = |one: &SettingReport| {
        let ChangedSetting { name, before, set_to, .. } = &one.setting;
        format!("{set}: {name} from {before} to {set_to}. ")
    };
    let settings: String = shrinker.settings.iter().map(setting).collect();
    let amount = report.requested_bytes;
    let amount = amount.map_or_else(|| "all reclaimable memory".to_owned(), |one| one.to_string());
    format!("{settings}{requested}: {amount}, by {}.", shrinker.asked_by)
}

fn size(bytes: Option<Bytes>) -> String {
    bytes.map_or_else(unknown, |bytes| bytes.to_string())
}

fn unknown() -> String {
    "-".to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use hugepilot_record::Pid;
    use hugepilot_render::{Width, command_text};
    use hugepilot_testkit::assert_golden;

    use super::*;
    use crate::settings::Restored;
    use crate::shrink::{ShrinkWarning, Shrinker};

    pub(crate) fn report() -> ShrinkReport {
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
        assert_golden(path, &command_text(&report(), Width::UNLIMITED));
    }

    #[test]
    fn a_dry_run_states_no_number() {
        let mut report = ShrinkReport { dry_run: true, freed_bytes: None, ..report() };
        report.shrinker.usage_bytes_after = None;
        let text = command_text(&report, Width::UNLIMITED);
        assert!(text.lines().next().unwrap().ends_with("nothing was changed."), "{text}");
        assert!(text.contains("Would set") && !text.contains("Requested"), "{text}");
        assert!(!text.contains("freed"), "{text}");
    }
}
