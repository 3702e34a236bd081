//! Text and JSON of `status`.

mod group;
mod skip;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{Display, Write};

use hugepilot_record::{Answer, ThpConfig};
use hugepilot_units::{AddrRange, Bytes};
use serde::Serialize;
use serde_json::Value;

use crate::status::{KernelShare, MappingStatus, Sizes, StatusReport};
use crate::tune::TargetInfo;

pub use group::group_text;
use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{Sentence, explain, explained, lines, warning_lines};
use hugepilot_render::table::{Width, counted, table};

use group::{is_postgres, pool_help};
use skip::{large_pages, skips, stranded};

use crate::kernel_reason::Summary;
use crate::obstacle::obstacles;

/// Mappings that the text shows; the others share one line.
const SHOWN: usize = 40;
/// Resident memory below which a mapping without huge pages shares that line: a huge page would not
/// help it.
const SMALL: Bytes = Bytes::mib(1);
/// Columns of the terminal below which the text shows start addresses instead of ranges.
const NARROW: usize = 120;

/// The report as text: a summary, the largest mappings, or with `all` every mapping, then the
/// totals and the reasons.
pub fn status_text(report: &StatusReport, width: Width, all: bool) -> String {
    let TargetInfo { pid, command } = &report.target;
    let answer = match report.answer {
        Answer::CannotTell => String::new(),
        answer => format!(": {answer}"),
    };
    let mut text = lines(&format!("{command} (pid {pid}){answer}"), &summary(report));
    text.push('\n');
    text.push_str(&mappings_text(report, width, all));
    text.push_str(&reasons_text(report, all));
    let free = report.free_huge_bytes;
    let _ = writeln!(text, "\nfree blocks large enough for a huge page, at this moment: {free}");
    text.extend(large_pages([report.large_page_bytes]));
    text.push_str(&stranded(report));
    if is_postgres(command) {
        let mappings = report.mappings.iter();
        text.extend(pool_help(mappings.map(|one| (one.kind, &*one.name, one.sizes.size_bytes))));
    }
    text + &obstacles(&report.obstacles) + &warning_lines(&report.warnings)
}

fn summary(report: &StatusReport) -> Summary<'_> {
    let zero_filled = report.totals.zero_filled_bytes;
    Summary { pid: report.target.pid, summary: &report.summary, zero_filled }
}

fn mappings_text(report: &StatusReport, width: Width, all: bool) -> String {
    let (mut mappings, mut rest): (Vec<_>, Vec<_>) =
        report.mappings.iter().partition(|m| all || !is_small(&m.sizes));
    if !all {
        mappings.sort_by_key(|m| (Reverse(m.sizes.resident_bytes), m.range));
        rest.extend(mappings.split_off(mappings.len().min(SHOWN)));
        mappings.sort_by_key(|m| m.range);
    }

    let narrow = width.is_below(NARROW);
    let addresses = |range: AddrRange| {
        if narrow { format!("{:x}", range.start.get()) } else { range.to_string() }
    };
    let hugetlb = report.mappings.iter().map(MappingStatus::hugetlb_bytes).sum();
    let columns = Columns { narrow, hugetlb: hugetlb > Bytes::ZERO };
    let mut rows = vec![columns.header()];
    rows.extend(
        mappings
            .iter()
            .map(|m| columns.row(&addresses(m.range), &m.name, &m.sizes, m.hugetlb_bytes())),
    );
    if !rest.is_empty() {
        let mut sum = Sizes { zero_filled_bytes: Some(Bytes::ZERO), ..Sizes::default() };
        rest.iter().for_each(|m| sum.add(&m.sizes));
        let of_rest = rest.iter().map(|m| m.hugetlb_bytes()).sum();
        rows.push(columns.row(
            "…",
            &counted(rest.len() as u64, "smaller mapping", "smaller mappings"),
            &sum,
            of_rest,
        ));
    }
    rows.push(columns.row("total", "", &report.totals, hugetlb));
    let numbers: &[usize] = if columns.hugetlb { &[1, 2, 3, 4, 5, 6] } else { &[1, 2, 3, 4, 5] };
    table(rows, numbers, width)
}

/// The reasons in the columns of the table, with sentences; without `all`, only those of much
/// memory.
fn reasons_text(report: &StatusReport, all: bool) -> String {
    let mut text = String::new();
    let is_shown = |bytes: Bytes| all || bytes >= SMALL;
    let entry = |text: &mut String, code: String, bytes: Bytes, sentence: &dyn Sentence| {
        let _ = writeln!(text, "  {code} {bytes}: {}", sentence.text());
        sentence.help().iter().for_each(|help| {
            let _ = writeln!(text, "    help: {help}");
        });
    };
    let reasons: Vec<_> =
        report.kernel_reasons.iter().filter(|share| is_shown(share.bytes)).collect();
    if !reasons.is_empty() {
        text.push_str("\nWHY_NOT_HUGE: why the kernel has not used huge pages\n");
    }
    for share in reasons {
        entry(&mut text, share.reason.code().to_string(), share.bytes, &share.reason);
    }
    let skips: Vec<_> = skips(report).filter(|skip| is_shown(skip.share.bytes)).collect();
    if !skips.is_empty() {
        text.push_str("\nTUNE_SKIPS: why `hugepilot tune` would not promote memory\n");
    }
    for skip in skips {
        entry(&mut text, skip.share.code.to_string(), skip.share.bytes, &skip);
    }
    text
}

impl JsonReport for StatusReport {
    /// Without a copy of the mappings: 100,000 of them would take 200 MiB.
    fn pretty(&self) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Json<'a> {
            schema: &'a str,
            target: &'a TargetInfo,
            summary: Value,
            answer: Answer,
            totals: &'a Sizes,
            mappings: &'a [MappingStatus],
            kernel_reasons: Vec<Value>,
            skips: Vec<Value>,
            thp: &'a ThpConfig,
            stranded_bytes: Option<Bytes>,
            large_page_bytes: Option<Bytes>,
            free_huge_bytes: Bytes,
            obstacles: Vec<Value>,
            warnings: Vec<Value>,
        }
        let mut summary = serde_json::to_value(&self.summary)?;
        explain(&mut summary, "", &self::summary(self));
        serde_json::to_string_pretty(&Json {
            schema: &self.schema,
            target: &self.target,
            summary,
            answer: self.answer,
            totals: &self.totals,
            mappings: &self.mappings,
            kernel_reasons: self
                .kernel_reasons
                .iter()
                .map(explained_share)
                .collect::<serde_json::Result<_>>()?,
            skips: explained(&skips(self).collect::<Vec<_>>())?,
            thp: &self.thp,
            stranded_bytes: self.stranded_bytes,
            large_page_bytes: self.large_page_bytes,
            free_huge_bytes: self.free_huge_bytes,
            obstacles: explained(&self.obstacles)?,
            warnings: explained(&self.warnings)?,
        })
    }
}

fn explained_share(share: &KernelShare) -> serde_json::Result<Value> {
    let mut value = serde_json::to_value(share)?;
    explain(&mut value, "/reason", &share.reason);
    Ok(value)
}

fn is_small(sizes: &Sizes) -> bool {
    sizes.resident_bytes < SMALL
        && sizes.huge_bytes == Bytes::ZERO
        && sizes.eligible_bytes == Bytes::ZERO
}

/// Columns of the table of mappings.
#[derive(Clone, Copy)]
struct Columns {
    /// Start addresses instead of ranges.
    narrow: bool,
    /// Whether there is memory on hugetlb pages.
    hugetlb: bool,
}

impl Columns {
    fn header(self) -> Vec<String> {
        let addresses = if self.narrow { "START" } else { "ADDRESSES" };
        let hugetlb = self.hugetlb.then_some("HUGETLB");
        let rest = ["ELIGIBLE", "ZERO_FILLED", "NAME", "WHY_NOT_HUGE", "TUNE_SKIPS"];
        let columns = [addresses, "SIZE", "RSS", "THP"].into_iter().chain(hugetlb).chain(rest);
        columns.map(str::to_owned).collect()
    }

    /// A row. `hugetlb`: part of the sizes.
    fn row(self, addresses: &str, name: &str, sizes: &Sizes, hugetlb: Bytes) -> Vec<String> {
        let [rss, thp] = [sizes.resident_bytes, sizes.huge_bytes].map(|bytes| bytes - hugetlb);
        let mut row = vec![addresses.to_owned()];
        row.extend([sizes.size_bytes, rss, thp].map(|bytes| bytes.to_string()));
        row.extend(self.hugetlb.then(|| hugetlb.to_string()));
        row.extend([
            sizes.eligible_bytes.to_string(),
            sizes.zero_filled_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
            name.to_owned(),
            reasons(&sizes.kernel_reason_bytes),
            reasons(&sizes.not_huge_bytes),
        ]);
        row
    }
}

/// Reasons with their bytes, the largest first.
fn reasons<Reason: Display>(bytes: &BTreeMap<Reason, Bytes>) -> String {
    let mut reasons: Vec<_> = bytes.iter().collect();
    reasons.sort_by_key(|&(_, &bytes)| Reverse(bytes));
    let reasons: Vec<_> =
        reasons.iter().map(|(reason, bytes)| format!("{reason} {bytes}")).collect();
    reasons.join(", ")
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{
        KernelCode, KernelReason, MappingKind, Outlook, Pid, SkipReason, ThpConfig,
    };
    use hugepilot_units::VirtAddr;

    use super::*;
    use crate::status::{MainReason, SCHEMA, SkipShare, StatusSummary, StatusWarning};

    pub(super) fn report(resident_and_huge: &[(Bytes, Bytes)]) -> StatusReport {
        let mapping = |(number, &(resident_bytes, huge_bytes)): (usize, &(Bytes, Bytes))| {
            let sizes =
                Sizes { resident_bytes, huge_bytes, size_bytes: Bytes::mib(4), ..Sizes::default() };
            let range = AddrRange::at(VirtAddr::new((number as u64 + 1) << 30), sizes.size_bytes);
            MappingStatus {
                range,
                kind: MappingKind::Anonymous,
                name: format!("m{number}"),
                inode: 0,
                proportional_bytes: resident_bytes,
                sizes,
            }
        };
        let mappings: Vec<_> = resident_and_huge.iter().enumerate().map(mapping).collect();
        let mut totals = Sizes::default();
        mappings.iter().for_each(|mapping| totals.add(&mapping.sizes));
        StatusReport {
            schema: SCHEMA.into(),
            target: TargetInfo { pid: Pid(7), command: "x".into() },
            summary: StatusSummary::NothingResident,
            answer: Answer::CannotTell,
            totals,
            mappings,
            kernel_reasons: Vec::new(),
            skips: Vec::new(),
            thp: ThpConfig::default(),
            stranded_bytes: None,
            large_page_bytes: None,
            free_huge_bytes: Bytes::ZERO,
            obstacles: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// A heap of 140 MiB that the program did not advise, with the sums of it.
    fn unadvised_heap() -> StatusReport {
        let mut report = report(&[(Bytes::mib(140), Bytes::ZERO)]);
        let reason = KernelReason::NotAdvised { setting: "enabled".to_owned() };
        let (bytes, eligible, kept) = (Bytes::mib(140), Bytes::mib(100), Bytes::mib(40));
        let sizes = &mut report.mappings[0].sizes;
        sizes.kernel_reason_bytes.insert(KernelCode::NotAdvised, bytes);
        sizes.not_huge_bytes.insert(SkipReason::Mlocked, kept);
        sizes.eligible_bytes = eligible;
        report.totals = sizes.clone();
        let skip = SkipReason::Mlocked;
        report.skips = vec![SkipShare { code: skip, bytes: kept }];
        let main = MainReason {
            reason: reason.clone(),
            bytes,
            eligible_bytes: Some(eligible),
            skip: Some(skip),
        };
        let (huge_bytes, resident_bytes) = (Bytes::ZERO, bytes);
        report.summary = StatusSummary::KernelWillNotPromote { huge_bytes, resident_bytes, main };
        report.kernel_reasons = vec![KernelShare {
            reason,
            outlook: Outlook::WillNot,
            bytes,
            eligible_bytes: eligible,
            not_huge_bytes: report.totals.not_huge_bytes.clone(),
        }];
        report
    }

    #[test]
    fn the_first_line_says_why_and_each_reason_has_its_sentence_and_help() {
        let report = unadvised_heap();
        let text = status_text(&report, Width::UNLIMITED, false);
        let start = "x (pid 7): 0B of 140MiB huge: THP is madvise and the program did not ask; \
                     tune may promote 100MiB of it, and selects what pays\nhelp: promote the \
                     hottest regions: hugepilot tune -p 7\n\n";
        assert!(text.starts_with(start), "{text}");
        for part in [
            "not_advised 140MiB  mlocked 40MiB\n",
            "\n  not_advised 140MiB: THP is madvise and the program did not ask\n    help: huge",
            "\n  mlocked 40MiB: the memory is locked\n    help: put",
        ] {
            assert!(text.contains(part), "{part:?}: {text}");
        }
        let value: Value = serde_json::from_str(&hugepilot_render::json(&report)).unwrap();
        assert_eq!(value["summary"]["code"], "kernel_will_not_promote");
        assert_eq!(value["summary"]["main"]["reason"]["code"], "not_advised");
        assert_eq!(value["summary"]["help"][0], "promote the hottest regions: hugepilot tune -p 7");
        assert_eq!(value["kernel_reasons"][0]["reason"]["setting"], "enabled");
        assert!(value["kernel_reasons"][0]["reason"]["help"][1].is_string());
        assert_eq!(value["kernel_reasons"][0]["outlook"], "will_not");
        assert_eq!(value["skips"][0]["text"], "the memory is locked");
        assert_eq!(value["mappings"][0]["kernel_reason_bytes"]["not_advised"], 140 << 20);
        assert_eq!(serde_json::from_value::<StatusReport>(value).unwrap(), report);
    }

    #[test]
    fn reasons_of_little_memory_have_no_sentence_unless_all_is_wanted() {
        let mut report = unadvised_heap();
        report.kernel_reasons[0].bytes = Bytes::kib(1023);
        report.skips[0].bytes = Bytes::kib(4);
        let text = status_text(&report, Width::UNLIMITED, false);
        assert!(!text.contains("WHY_NOT_HUGE:") && !text.contains("TUNE_SKIPS:"), "{text}");
        let all = status_text(&report, Width::UNLIMITED, true);
        assert!(all.contains("not_advised 1023KiB: ") && all.contains("mlocked 4KiB: "), "{all}");
    }

    #[test]
    fn small_mappings_are_one_line_unless_all_are_wanted() {
        let kib = |resident, huge| (Bytes::kib(resident), Bytes::kib(huge));
        let report = report(&[kib(1024, 0), kib(1023, 0), kib(4, 4), kib(0, 0), kib(5, 0)]);
        let text = status_text(&report, Width::UNLIMITED, false);
        assert!(text.contains("m0") && text.contains("m2"), "{text}");
        let folded =
            text.lines().find(|line| line.contains("3 smaller mappings")).expect("one line");
        assert!(folded.contains("12MiB") && folded.contains("1MiB"), "their sums: {folded}");
        let rows = text.lines().filter(|line| line.contains("MiB")).count();
        assert_eq!(rows, 4, "{text}");
        let all = status_text(&report, Width::UNLIMITED, true);
        assert!(
            (0..5).all(|number| all.contains(&format!("m{number}"))) && !all.contains("smaller"),
            "{all}"
        );
    }

    #[test]
    fn hugetlb_pages_are_neither_rss_nor_thp() {
        let mut report =
            report(&[(Bytes::mib(8), Bytes::mib(6)), (Bytes::mib(32), Bytes::mib(32))]);
        let text = status_text(&report, Width::UNLIMITED, false);
        assert!(!text.contains("HUGETLB"), "{text}");
        report.mappings[1].kind = MappingKind::Hugetlb;
        let text = status_text(&report, Width::UNLIMITED, false);
        let cells = |start: &str| -> Vec<&str> {
            let line = text.lines().find(|line| line.starts_with(start)).expect("a line");
            line.split_whitespace().skip(2).take(3).collect()
        };
        assert_eq!(cells("ADDRESSES"), ["RSS", "THP", "HUGETLB"]);
        assert_eq!(cells("total"), ["8MiB", "6MiB", "32MiB"], "{text}");
    }

    #[test]
    fn many_large_mappings_are_cut_to_the_largest() {
        let sizes: Vec<_> = (0..50).map(|number| (Bytes::mib(100 + number), Bytes::ZERO)).collect();
        let text = status_text(&report(&sizes), Width::UNLIMITED, false);
        assert!(
            text.contains("10 smaller mappings") && !text.contains("m9 ") && text.contains("m10"),
            "{text}"
        );
    }
    #[test]
    fn json_has_the_sentences_of_warnings_and_reads_back() {
        let mut report = report(&[(Bytes::mib(4), Bytes::ZERO)]);
        report.totals.not_huge_bytes.insert(SkipReason::Mlocked, Bytes::mib(4));
        report.warnings =
            vec![StatusWarning::NoFreeBlock, StatusWarning::HugePagesUnreadable { huge_pages: 16 }];
        let value: Value = serde_json::from_str(&hugepilot_render::json(&report)).unwrap();
        assert_eq!(value["warnings"][0]["code"], "no_free_block");
        assert!(value["warnings"][0]["help"][0].is_string());
        assert_eq!(value["warnings"][1]["huge_pages"], 16);
        assert_eq!(value["totals"]["not_huge_bytes"]["mlocked"], Bytes::mib(4).get());
        assert_eq!(serde_json::from_value::<StatusReport>(value).unwrap(), report);
        let text = status_text(&report, Width::UNLIMITED, false);
        assert!(
            text.contains("warning: no free block") && text.contains("help: compact"),
            "{text}"
        );
    }

    #[test]
    fn a_terminal_of_80_columns_is_wide_enough() {
        let mut report = report(&[(Bytes::mib(140), Bytes::mib(2))]);
        report.mappings[0].name = "/usr/lib/x86_64-linux-gnu/libc.so.6".to_owned();
        report.mappings[0].sizes.not_huge_bytes.insert(SkipReason::File, Bytes::mib(138));
        report.mappings[0].sizes.kernel_reason_bytes.insert(KernelCode::File, Bytes::mib(138));
        let text = status_text(&report, Width::columns(80), false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in ["START ", "libc.so.6", "file 138MiB"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
