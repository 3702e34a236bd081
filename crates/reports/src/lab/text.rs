//! Text and JSON of the micro-benchmarks of `hugepilot lab`.

use std::fmt::Write;

use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{explain_all, warning_lines};
use hugepilot_render::table::{Width, counted, grouped, percent, table};
use hugepilot_stats::Spread;
use serde_json::Value;

use crate::lab::{GupsReport, LabMemory, PchaseReport, StreamReport, TlbCurve, TlbSweepReport};

/// Columns of the plot of a curve.
const PLOT_WIDTH: usize = 40;

/// Prints latency and bandwidth by threads and chains.
pub fn pchase_text(report: &PchaseReport, width: Width) -> String {
    let mut text = format!("pchase on {}\n\n", memory(&report.memory));
    let header = ["THREADS", "CHAINS", "LATENCY", "MIN", "MAX", "BANDWIDTH"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for point in &report.points {
        let Spread { median, min, max } = point.latency_ns;
        rows.push(vec![
            point.threads.to_string(),
            point.chains.to_string(),
            nanoseconds(median),
            nanoseconds(min),
            nanoseconds(max),
            rate(point.bytes_per_second.median),
        ]);
    }
    text.push_str(&table(rows, &[0, 1, 2, 3, 4, 5], width));
    text.push_str(&warning_lines(&report.warnings));
    text
}

/// Prints the bandwidth of each kernel, with the columns of STREAM.
pub fn stream_text(report: &StreamReport, width: Width) -> String {
    let mut text = format!(
        "stream on {}, {} per array, threads {}, best of {} after the first\n\n",
        memory(&report.memory),
        report.array_bytes,
        report.threads,
        counted(u64::from(report.rounds - 1), "round", "rounds")
    );
    let header = ["KERNEL", "BEST_RATE", "MEDIAN_TIME", "MIN_TIME", "MAX_TIME"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for kernel in &report.kernels {
        let Spread { median, min, max } = kernel.seconds;
        let mut row = vec![kernel.kernel.clone(), rate(kernel.best_bytes_per_second)];
        row.extend([median, min, max].map(|seconds| format!("{seconds:.6} s")));
        rows.push(row);
    }
    text.push_str(&table(rows, &[1, 2, 3, 4], width));
    text.push_str(&warning_lines(&report.warnings));
    text
}

/// Prints the rate of the updates, and whether the table is right.
pub fn gups_text(report: &GupsReport) -> String {
    let mut text = format!("gups on {}, threads {}\n\n", memory(&report.memory), report.threads);
    let _ = writeln!(
        text,
        "{:.6} giga-updates per second: {} updates in {:.3} s",
        report.updates_per_second / 1e9,
        grouped(report.updates as f64),
        report.seconds
    );
    let verdict = if report.passed { "passed" } else { "failed" };
    let _ = writeln!(
        text,
        "check {verdict}: {} of {} words wrong, at most 1 % permitted",
        grouped(report.wrong_words as f64),
        grouped(report.words as f64)
    );
    text.push_str(&warning_lines(&report.warnings));
    text
}

/// Prints each curve with a plot, and its levels beside the known sizes of the TLB.
pub fn tlb_sweep_text(report: &TlbSweepReport, width: Width) -> String {
    let mut text = String::new();
    if let Some(ghz) = report.clock_ghz {
        let _ = writeln!(text, "processor clock: {ghz:.2} GHz, measured");
    }
    if let Some(known) = &report.known {
        let second = match known.l2_2m_entries {
            0 => "no 2 MiB pages".to_owned(),
            entries => format!("{entries} of 2 MiB"),
        };
        let _ = writeln!(
            text,
            "TLB entries by table: first level {} of 4 KiB; second level {} of 4 KiB, {second} \
             ({})",
            known.l1d_4k_entries, known.l2_4k_entries, known.source
        );
    }
    for curve in &report.curves {
        let _ = writeln!(text, "\n{} ({} pages)", curve.pages, curve.page_bytes);
        text.push_str(&points(curve, width));
        if !curve.points.is_empty() {
            let _ = writeln!(text, "\n{}", levels(curve, width).trim_end());
        }
        if let Some(absent) = &curve.unavailable {
            let _ = writeln!(text, "not available, because {}", absent.cause);
            for help in &absent.help {
                let _ = writeln!(text, "help: {help}");
            }
        }
    }
    text
}

fn points(curve: &TlbCurve, width: Width) -> String {
    if curve.points.is_empty() {
        return String::new();
    }
    let header = ["PAGES", "FOOTPRINT", "LATENCY", "PACKED", "TRANSLATION", "PLOT"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let highest = curve.points.iter().map(|point| point.translation_ns).fold(0.1, f64::max);
    for point in &curve.points {
        rows.push(vec![
            point.page_count.to_string(),
            curve.page_bytes.times(point.page_count).to_string(),
            nanoseconds(point.latency_ns),
            nanoseconds(point.packed_latency_ns),
            nanoseconds(point.translation_ns),
            bar(point.translation_ns / highest),
        ]);
    }
    table(rows, &[0, 1, 2, 3, 4], width)
}

fn bar(share: f64) -> String {
    let length = (share.clamp(0.0, 1.0) * PLOT_WIDTH as f64).round();
    "#".repeat(length as usize)
}

fn levels(curve: &TlbCurve, width: Width) -> String {
    let header = ["LEVEL", "HOLDS", "EXCEEDED_AT", "REACH", "TRANSLATION", "CYCLES"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let known =
        |count: Option<u64>| count.map_or_else(|| "-".to_owned(), |pages| pages.to_string());
    for (index, level) in curve.levels.iter().enumerate() {
        let reach = level.holds_pages.map(|pages| curve.page_bytes.times(pages).to_string());
        let cycles = level.translation_cycles.map(|cycles| format!("{cycles:.1}"));
        rows.push(vec![
            (index + 1).to_string(),
            known(level.holds_pages),
            known(level.exceeded_pages),
            reach.unwrap_or_else(|| "-".to_owned()),
            nanoseconds(level.translation_ns),
            cycles.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table(rows, &[0, 1, 2, 3, 4, 5], width)
}

fn memory(memory: &LabMemory) -> String {
    let huge = memory.huge_bytes.map_or_else(String::new, |huge| {
        let share = huge.get() as f64 / memory.footprint_bytes.get().max(1) as f64;
        format!(" ({} huge)", percent(share))
    });
    format!("{} of {} pages{huge}", memory.footprint_bytes, memory.pages)
}

fn nanoseconds(ns: f64) -> String {
    // No sign for what rounds to zero.
    let ns = if ns.abs() < 0.005 { 0.0 } else { ns };
    format!("{ns:.2} ns")
}

/// Formats a rate in decimal gigabytes, as STREAM and pChase do.
fn rate(bytes_per_second: f64) -> String {
    format!("{:.3} GB/s", bytes_per_second / 1e9)
}

macro_rules! explains_warnings {
    ($($report:ty),*) => { $(
        impl JsonReport for $report {
            const EXPLAINS: bool = true;

            fn explain(&self, json: &mut Value) {
                explain_all(json, "/warnings", &self.warnings);
            }
        }
    )* };
}
explains_warnings!(PchaseReport, StreamReport, GupsReport);

impl JsonReport for TlbSweepReport {}

#[cfg(test)]
mod tests;
