//! `status` as text.

use std::fmt::Write;

use hugepilot_record::status::{Sizes, StatusReport};
use hugepilot_units::Bytes;

use crate::table::table;

/// Mappings shown; the rest is summed up in one line.
const SHOWN: usize = 40;

/// The report for people: the largest mappings, the totals, and why what is not huge is not.
pub fn status_text(report: &StatusReport) -> String {
    let mut text = format!("{} (pid {})\n\n", report.target.command, report.target.pid);
    let mut mappings: Vec<_> =
        report.mappings.iter().filter(|m| m.sizes.resident_bytes > Bytes::ZERO).collect();
    mappings.sort_by_key(|m| (std::cmp::Reverse(m.sizes.resident_bytes), m.range));
    let rest = mappings.split_off(mappings.len().min(SHOWN));
    mappings.sort_by_key(|m| m.range);

    let mut rows = vec![header()];
    rows.extend(mappings.iter().map(|m| row(&m.range.to_string(), &m.name, &m.sizes)));
    if !rest.is_empty() {
        let mut sum = Sizes { zero_filled_bytes: Some(Bytes::ZERO), ..Sizes::default() };
        rest.iter().for_each(|m| sum.add(&m.sizes));
        rows.push(row("…", &format!("{} smaller mappings", rest.len()), &sum));
    }
    rows.push(row("total", "", &report.totals));
    text.push_str(&table(rows, &[1, 2, 3, 4, 5]));
    let _ = writeln!(text, "\nfree blocks large enough for a huge page: {}", report.free_huge_bytes);
    for warning in &report.warnings {
        let _ = writeln!(text, "note: {warning}");
    }
    text
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
