//! Text and JSON of `hugepilot trace`.

use std::fmt::Write;

use hugepilot_record::Ending;
use hugepilot_record::sentence::number as count;
use hugepilot_record::trace::{TraceTotals, TracedMapping, TracedPhase};
use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{explain_all, warning_lines};
use hugepilot_render::table::{Width, counted, percent, table};
use serde_json::Value;

use crate::trace::{TraceOrigin, TraceReport, TraceStopCause};

/// Mappings and phases shown.
const SHOWN: usize = 12;

/// Prints the file, the counts, the mappings with most accesses, the first phases, and warnings.
pub fn trace_text(report: &TraceReport, width: Width) -> String {
    let mut text = format!("{}: {}", report.file, report.file_bytes);
    if let Some(bytes) = report.bytes_per_access() {
        let _ = write!(text, ", {bytes:.2} bytes per access");
    }
    let _ = writeln!(text, "\n{}", source(report));
    let totals = &report.totals;
    let _ = writeln!(text, "{}", accesses(totals));
    let others = [("omitted", report.omitted_accesses), ("folded", report.folded_accesses)];
    let others: Vec<String> = others
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, number)| format!("{} {name}", count(number)))
        .collect();
    if !others.is_empty() {
        let all = report.omitted_accesses + report.folded_accesses;
        let accesses = if all == 1 { "access" } else { "accesses" };
        let _ = writeln!(text, "not in the trace: {} {accesses}", others.join(", "));
    }
    if !report.mappings.is_empty() {
        text.push('\n');
        text.push_str(&mappings(&report.mappings, totals, width));
    }
    if !report.phases.is_empty() {
        text.push('\n');
        text.push_str(&phases(&report.phases, totals, width));
    }
    text.push_str(&warning_lines(&report.warnings));
    text
}

impl JsonReport for TraceReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/warnings", &self.warnings);
    }
}

fn source(report: &TraceReport) -> String {
    let input = report.input.join(" ");
    let origin = match report.origin {
        TraceOrigin::Qemu => format!("{input} under QEMU"),
        TraceOrigin::Lackey => format!("{input} under lackey"),
        TraceOrigin::LackeyLog => format!("log of lackey {input}"),
        TraceOrigin::PerfScript => format!("text of perf script {input}"),
        TraceOrigin::DrmemtraceView => format!("text of drmemtrace {input}"),
        TraceOrigin::Graph => input,
    };
    let ending = match (report.stop, report.ending) {
        (TraceStopCause::MaxAccesses, _) => "ended by --max-accesses".to_owned(),
        (TraceStopCause::Phase, _) => "ended by --to-phase".to_owned(),
        (TraceStopCause::MaxBytes, _) => "ended by --max-bytes".to_owned(),
        (TraceStopCause::Interrupted, _) => "interrupted".to_owned(),
        (TraceStopCause::End, Some(Ending::Exited(status))) => format!("exit status {status}"),
        (TraceStopCause::End, Some(Ending::Killed(signal))) => {
            format!("killed by signal {signal}")
        }
        (TraceStopCause::End, None) => "read to its end".to_owned(),
    };
    format!("{origin}: {ending} after {:.2} s", report.wall_seconds)
}

fn accesses(totals: &TraceTotals) -> String {
    let mut text = format!(
        "{} by {}: {}, {}",
        counted(totals.accesses, "access", "accesses"),
        counted(totals.threads, "thread", "threads"),
        counted(totals.loads, "load", "loads"),
        counted(totals.stores, "store", "stores")
    );
    if let (Some(pages), Some(regions)) = (totals.touched_pages, totals.touched_regions) {
        let _ = write!(
            text,
            "\ntouched: {}, {} of 2MiB",
            counted(pages, "base page", "base pages"),
            counted(regions, "region", "regions")
        );
    }
    text
}

/// Mappings with most accesses, then the rest in one row.
fn mappings(mappings: &[TracedMapping], totals: &TraceTotals, width: Width) -> String {
    let header = ["MAPPING", "START", "SIZE", "ACCESSES", "SHARE", "STORES", "PAGES", "REGIONS"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let share = |accesses: u64| percent(accesses as f64 / totals.accesses.max(1) as f64);
    let known =
        |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |count| count.to_string());
    for mapping in mappings.iter().take(SHOWN) {
        rows.push(vec![
            mapping.name.clone(),
            mapping.start.to_string(),
            mapping.bytes.to_string(),
            count(mapping.accesses),
            share(mapping.accesses),
            count(mapping.stores),
            known(mapping.touched_pages),
            known(mapping.touched_regions),
        ]);
    }
    let shown: u64 = mappings.iter().take(SHOWN).map(|mapping| mapping.accesses).sum();
    let rest = totals.accesses.saturating_sub(shown);
    if rest > 0 {
        let mut row = vec!["(others)".to_owned()];
        row.extend(["", ""].map(str::to_owned));
        row.extend([count(rest), share(rest)]);
        row.extend(["", "", ""].map(str::to_owned));
        rows.push(row);
    }
    table(rows, &[1, 2, 3, 4, 5, 6, 7], width)
}

/// The first phases, then the rest in one row.
fn phases(phases: &[TracedPhase], totals: &TraceTotals, width: Width) -> String {
    let mut rows = vec![["PHASE", "ACCESSES", "SHARE", "STORES"].map(str::to_owned).to_vec()];
    let row = |name: &str, accesses: u64, stores: u64| {
        let share = percent(accesses as f64 / totals.accesses.max(1) as f64);
        vec![name.to_owned(), count(accesses), share, count(stores)]
    };
    let (shown, rest) = phases.split_at(phases.len().min(SHOWN));
    rows.extend(shown.iter().map(|one| row(&one.name, one.accesses, one.stores)));
    if !rest.is_empty() {
        let accesses = rest.iter().map(|one| one.accesses).sum();
        rows.push(row("(others)", accesses, rest.iter().map(|one| one.stores).sum()));
    }
    table(rows, &[1, 2, 3], width)
}

#[cfg(test)]
mod tests {
    use hugepilot_record::trace::TraceWarning;
    use hugepilot_testkit::assert_golden;
    use hugepilot_units::{Bytes, VirtAddr};

    use super::*;
    use crate::trace::SCHEMA;

    fn report() -> TraceReport {
        let mapping = |name: &str, start, accesses| TracedMapping {
            name: name.to_owned(),
            start: VirtAddr::new(start),
            bytes: Bytes::mib(8),
            accesses,
            loads: accesses - 1000,
            stores: 1000,
            touched_pages: Some(2048),
            touched_regions: Some(4),
        };
        TraceReport {
            schema: SCHEMA.to_owned(),
            origin: TraceOrigin::Qemu,
            input: vec!["./solve".to_owned(), "input.txt".to_owned()],
            file: "solve.trace".to_owned(),
            file_bytes: Bytes::mib(3),
            wall_seconds: 3.5,
            ending: Some(Ending::Exited(0)),
            stop: TraceStopCause::End,
            totals: TraceTotals {
                accesses: 2_500_000,
                loads: 2_400_000,
                stores: 100_000,
                threads: 2,
                touched_pages: Some(4097),
                touched_regions: Some(9),
            },
            omitted_accesses: 1000,
            folded_accesses: 12_345,
            mappings: vec![
                mapping("[heap]", 0x40_0000_5000, 2_000_000),
                mapping("/usr/lib/x86_64-linux-gnu/libc.so.6", 0x40_0284_9000, 400_000),
            ],
            phases: Vec::new(),
            warnings: vec![
                TraceWarning::Forked { children: 2 },
                TraceWarning::Lost { accesses: 7 },
                TraceWarning::Replaced,
            ],
        }
    }

    #[test]
    fn one_of_a_kind_is_not_many() {
        let totals = TraceTotals {
            accesses: 1,
            loads: 1,
            stores: 0,
            threads: 1,
            touched_pages: Some(1),
            touched_regions: Some(1),
        };
        let expected = "1 access by 1 thread: 1 load, 0 stores\n\
                        touched: 1 base page, 1 region of 2MiB";
        assert_eq!(accesses(&totals), expected);
    }

    #[test]
    fn the_text_has_the_counts_and_the_mappings() {
        let imported = TraceReport {
            origin: TraceOrigin::PerfScript,
            input: vec!["perf.txt".to_owned()],
            ending: None,
            stop: TraceStopCause::MaxBytes,
            totals: TraceTotals::default(),
            omitted_accesses: 0,
            folded_accesses: 0,
            mappings: Vec::new(),
            phases: Vec::new(),
            warnings: vec![TraceWarning::Empty { omitted_accesses: 9 }, TraceWarning::Cut],
            ..report()
        };
        let phase = |number: u64| TracedPhase {
            name: format!("pr {number}"),
            accesses: 180_000,
            stores: number,
        };
        let kernel = TraceReport {
            origin: TraceOrigin::Graph,
            input: vec!["pr on kronecker:20:16".to_owned()],
            ending: None,
            stop: TraceStopCause::Phase,
            phases: (1..=14).map(phase).collect(),
            warnings: vec![TraceWarning::Phases],
            ..report()
        };
        let reports = [report(), imported, kernel];
        let text = reports.map(|report| trace_text(&report, Width::UNLIMITED));
        assert_golden("testdata/trace.txt", &text.join("\n"));
    }
}
