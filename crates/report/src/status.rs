//! Text and JSON of `status`.

use std::cmp::Reverse;
use std::fmt::Write;

use hugepilot_record::status::{MappingStatus, Sizes, StatusReport, StatusWarning};
use hugepilot_record::tune::TargetInfo;
use hugepilot_units::{AddrRange, Bytes};
use serde::Serialize;
use serde_json::Value;

use crate::json::JsonReport;
use crate::sentence::{Sentence, explained, warning_lines};
use crate::table::{Width, table};
use crate::tune::{HIDDEN_LIMIT_HELP, hidden_limit};

/// Mappings that the text shows; the others share one line.
const SHOWN: usize = 40;
/// Resident memory below which a mapping without huge pages shares that line: a huge page would not
/// help it.
const SMALL: Bytes = Bytes::mib(1);
/// Columns of the terminal below which the text shows start addresses instead of ranges.
const NARROW: usize = 120;

/// The report as text: the largest mappings, or with `all` every mapping, then the totals.
pub fn status_text(report: &StatusReport, width: Width, all: bool) -> String {
    let mut text = format!("{} (pid {})\n\n", report.target.command, report.target.pid);
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
    let mut rows = vec![header(narrow)];
    rows.extend(mappings.iter().map(|m| row(&addresses(m.range), &m.name, &m.sizes)));
    if !rest.is_empty() {
        let mut sum = Sizes { zero_filled_bytes: Some(Bytes::ZERO), ..Sizes::default() };
        rest.iter().for_each(|m| sum.add(&m.sizes));
        rows.push(row("…", &format!("{} smaller mappings", rest.len()), &sum));
    }
    rows.push(row("total", "", &report.totals));
    text.push_str(&table(rows, &[1, 2, 3, 4, 5], width));
    let _ =
        writeln!(text, "\nfree blocks large enough for a huge page: {}", report.free_huge_bytes);
    text.push_str(&warning_lines(&report.warnings));
    text
}

impl JsonReport for StatusReport {
    /// Without a copy of the mappings: 100,000 of them would take 200 MiB.
    fn pretty(&self) -> serde_json::Result<String> {
        #[derive(Serialize)]
        struct Json<'a> {
            schema: &'a str,
            target: &'a TargetInfo,
            totals: &'a Sizes,
            mappings: &'a [MappingStatus],
            free_huge_bytes: Bytes,
            warnings: Vec<Value>,
        }
        let Self { schema, target, totals, mappings, free_huge_bytes, warnings } = self;
        let free_huge_bytes = *free_huge_bytes;
        let warnings = explained(warnings)?;
        let json = Json { schema, target, totals, mappings, free_huge_bytes, warnings };
        serde_json::to_string_pretty(&json)
    }
}

impl Sentence for StatusWarning {
    fn text(&self) -> String {
        match self {
            Self::NoFreeBlock => "no free block is large enough for a huge page; the kernel must \
                                  compact memory first"
                .to_owned(),
            Self::HiddenMemoryLimit { cgroup } => hidden_limit(cgroup),
            Self::PagemapUnreadable { error } => {
                format!("the pagemap cannot be read: {error}; only sizes are known")
            }
            Self::HugePagesUnreadable { huge_pages } => format!(
                "{huge_pages} huge pages of a mapping cannot be read, because the program forbids \
                 it (PROT_NONE) or their memory is broken; zero-filled pages are not all counted"
            ),
            Self::ContentsUnreadable { error, .. } => format!(
                "the contents of huge pages cannot be read: {error}; zero-filled pages are not all \
                 counted"
            ),
        }
    }

    fn help(&self) -> Vec<String> {
        let help = match self {
            Self::NoFreeBlock => {
                "compact free memory: echo 1 | sudo tee /proc/sys/vm/compact_memory"
            }
            Self::HiddenMemoryLimit { .. } => HIDDEN_LIMIT_HELP,
            Self::ContentsUnreadable { denied: true, .. } => {
                "run as root or as the user of the process, or grant CAP_SYS_PTRACE"
            }
            Self::PagemapUnreadable { .. } => "test the permissions: hugepilot doctor",
            _ => return Vec::new(),
        };
        vec![help.to_owned()]
    }
}

fn is_small(sizes: &Sizes) -> bool {
    sizes.resident_bytes < SMALL
        && sizes.huge_bytes == Bytes::ZERO
        && sizes.eligible_bytes == Bytes::ZERO
}

fn header(narrow: bool) -> Vec<String> {
    let addresses = if narrow { "START" } else { "ADDRESSES" };
    [addresses, "SIZE", "RESIDENT", "HUGE", "ELIGIBLE", "ZERO_FILLED", "NAME", "WHY_NOT_HUGE"]
        .map(str::to_owned)
        .to_vec()
}

fn row(addresses: &str, name: &str, sizes: &Sizes) -> Vec<String> {
    let why: Vec<String> =
        sizes.not_huge_bytes.iter().map(|(reason, bytes)| format!("{reason} {bytes}")).collect();
    vec![
        addresses.to_owned(),
        sizes.size_bytes.to_string(),
        sizes.resident_bytes.to_string(),
        sizes.huge_bytes.to_string(),
        sizes.eligible_bytes.to_string(),
        sizes.zero_filled_bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
        name.to_owned(),
        why.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use hugepilot_record::status::SCHEMA;
    use hugepilot_record::{MappingKind, Pid, SkipReason};
    use hugepilot_units::VirtAddr;

    use super::*;

    fn report(resident_and_huge: &[(Bytes, Bytes)]) -> StatusReport {
        let mapping = |(number, &(resident_bytes, huge_bytes)): (usize, &(Bytes, Bytes))| {
            let sizes =
                Sizes { resident_bytes, huge_bytes, size_bytes: Bytes::mib(4), ..Sizes::default() };
            let range = AddrRange::at(VirtAddr::new((number as u64 + 1) << 30), sizes.size_bytes);
            MappingStatus { range, kind: MappingKind::Anonymous, name: format!("m{number}"), sizes }
        };
        let mappings: Vec<_> = resident_and_huge.iter().enumerate().map(mapping).collect();
        let mut totals = Sizes::default();
        mappings.iter().for_each(|mapping| totals.add(&mapping.sizes));
        StatusReport {
            schema: SCHEMA.into(),
            target: TargetInfo { pid: Pid(7), command: "x".into() },
            totals,
            mappings,
            free_huge_bytes: Bytes::ZERO,
            warnings: Vec::new(),
        }
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
        assert_eq!(text.lines().count(), 9, "{text}");
        let all = status_text(&report, Width::UNLIMITED, true);
        assert!(
            (0..5).all(|number| all.contains(&format!("m{number}"))) && !all.contains("smaller"),
            "{all}"
        );
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
        let value: Value = serde_json::from_str(&crate::json(&report)).unwrap();
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
        report.mappings[0].sizes.not_huge_bytes.insert(SkipReason::FileOrShared, Bytes::mib(138));
        let text = status_text(&report, Width::columns(80), false);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for part in ["START ", "/usr/lib/x86…nu/libc.so.6", "file_or_shared 138MiB"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
