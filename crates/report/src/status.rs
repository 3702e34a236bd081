//! `status` as text.

use std::cmp::Reverse;
use std::fmt::Write;

use hugepilot_record::status::{Sizes, StatusReport};
use hugepilot_units::Bytes;

use crate::table::table;

/// Mappings shown; the rest is summed up in one line.
const SHOWN: usize = 40;
/// A mapping with less resident memory, none of it huge, is summed up with the rest: no huge page would pay for it.
const SMALL: Bytes = Bytes::mib(1);

/// The report for people: the largest mappings, or with `all` each of them, the totals, and why what is not huge is not.
pub fn status_text(report: &StatusReport, all: bool) -> String {
    let mut text = format!("{} (pid {})\n\n", report.target.command, report.target.pid);
    let (mut mappings, mut rest): (Vec<_>, Vec<_>) =
        report.mappings.iter().partition(|m| all || !is_small(&m.sizes));
    if !all {
        mappings.sort_by_key(|m| (Reverse(m.sizes.resident_bytes), m.range));
        rest.extend(mappings.split_off(mappings.len().min(SHOWN)));
        mappings.sort_by_key(|m| m.range);
    }

    let mut rows = vec![header()];
    rows.extend(mappings.iter().map(|m| row(&m.range.to_string(), &m.name, &m.sizes)));
    if !rest.is_empty() {
        let mut sum = Sizes { zero_filled_bytes: Some(Bytes::ZERO), ..Sizes::default() };
        rest.iter().for_each(|m| sum.add(&m.sizes));
        rows.push(row("…", &format!("{} smaller mappings", rest.len()), &sum));
    }
    rows.push(row("total", "", &report.totals));
    text.push_str(&table(rows, &[1, 2, 3, 4, 5]));
    let _ =
        writeln!(text, "\nfree blocks large enough for a huge page: {}", report.free_huge_bytes);
    for warning in &report.warnings {
        let _ = writeln!(text, "note: {warning}");
    }
    text
}

fn is_small(sizes: &Sizes) -> bool {
    sizes.resident_bytes < SMALL
        && sizes.huge_bytes == Bytes::ZERO
        && sizes.eligible_bytes == Bytes::ZERO
}

fn header() -> Vec<String> {
    ["ADDRESSES", "SIZE", "RESIDENT", "HUGE", "ELIGIBLE", "ZERO_FILLED", "NAME", "WHY_NOT_HUGE"]
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
        sizes.zero_filled_bytes.map_or_else(|| "?".to_owned(), |bytes| bytes.to_string()),
        name.to_owned(),
        why.join(", "),
    ]
}

#[cfg(test)]
mod tests {
    use hugepilot_record::status::{MappingStatus, SCHEMA};
    use hugepilot_record::tune::TargetInfo;
    use hugepilot_record::{MappingKind, Pid};
    use hugepilot_units::{AddrRange, VirtAddr};

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
        let text = status_text(&report, false);
        assert!(text.contains("m0") && text.contains("m2"), "{text}");
        let folded =
            text.lines().find(|line| line.contains("3 smaller mappings")).expect("one line");
        assert!(folded.contains("12MiB") && folded.contains("1MiB"), "their sums: {folded}");
        assert_eq!(text.lines().count(), 9, "{text}");
        let all = status_text(&report, true);
        assert!(
            (0..5).all(|number| all.contains(&format!("m{number}"))) && !all.contains("smaller"),
            "{all}"
        );
    }

    #[test]
    fn many_large_mappings_are_cut_to_the_largest() {
        let sizes: Vec<_> = (0..50).map(|number| (Bytes::mib(100 + number), Bytes::ZERO)).collect();
        let text = status_text(&report(&sizes), false);
        assert!(
            text.contains("10 smaller mappings") && !text.contains("m9 ") && text.contains("m10"),
            "{text}"
        );
    }
}
