//! What `graph` reports, as text.

use std::fmt::Write;

use hugepilot_record::graph::{
    FileFacts, GraphFacts, GraphReport, KernelResult, Phases, Ranked, Trial, Written,
};

use crate::table::{grouped, percent, table};

/// What the graph is, what was found, how long it took, and on which pages it was.
pub fn graph_text(report: &GraphReport) -> String {
    let mut text = facts(&report.source, &report.graph);
    text.extend(report.file.as_ref().map(read));
    if let Some(order) = &report.order {
        let _ = writeln!(text, "numbered anew by {order}");
    }
    let first = if report.property_first { ", property first" } else { "" };
    let _ = writeln!(
        text,
        "{} bits, {} threads, pages {}{first}",
        report.width_bits, report.threads, report.pages
    );
    if let Some(why) = &report.widened {
        let _ = writeln!(text, "64 bits, as 32 are too few: {why}");
    }
    let _ = writeln!(text, "{} of memory at most to make it", report.peak_bytes);
    if let (Some(kernel), Some(result)) = (&report.kernel, &report.result) {
        let _ = writeln!(text, "\n{kernel}{}: {}", from(&report.trials), found(result));
        for ranked in ranking(result) {
            let _ = writeln!(text, "  {:>12}  {:.6e}", ranked.vertex, ranked.value);
        }
        text.push_str(&times(report));
        match (report.verified, &report.wrong) {
            (Some(true), _) => text.push_str("verified\n"),
            (_, Some(wrong)) => _ = writeln!(text, "WRONG: {wrong}"),
            _ => {}
        }
    }
    if let Some(output) = &report.output {
        let _ = writeln!(text, "each vertex: {output}");
    }
    text.extend(report.written.as_ref().map(written));
    text.push('\n');
    text.push_str(&phases(&report.phases));
    text.push('\n');
    text.push_str(&arrays(report));
    text
}

fn facts(source: &str, graph: &GraphFacts) -> String {
    let count = |count: u64| grouped(count as f64);
    let direction = if graph.directed { "directed" } else { "undirected" };
    let weights = if graph.weighted { " with weights" } else { "" };
    let mut text = format!(
        "{source}: {} vertices, {} {direction} edges{weights}\n{} self-loops and {} duplicates left out; {} vertices alone; {} edges at one at most\n",
        count(graph.vertices),
        count(graph.edges),
        count(graph.self_loops_removed),
        count(graph.duplicates_removed),
        count(graph.isolated),
        count(graph.max_degree),
    );
    text.push_str("by degree against the average:");
    let groups = ["32", "16", "8", "4", "2", "1", "1/2", "0"];
    for (bound, &size) in groups.iter().zip(&graph.dbg_group_sizes) {
        let _ = write!(text, " {bound}x {}", count(size));
    }
    text.push('\n');
    text
}

fn read(file: &FileFacts) -> String {
    let packed =
        file.packed.as_ref().map_or_else(String::new, |packed| format!(" packed by {packed}"));
    let compacted = if file.compacted {
        "; vertices counted anew, and told by the numbers they have in it"
    } else {
        ""
    };
    format!(
        "{} of {}{packed}, read by --load {}{compacted}\n",
        file.bytes, file.format, file.loading
    )
}

fn written(file: &Written) -> String {
    let map =
        file.map.as_ref().map_or_else(String::new, |map| format!("; old and new numbers: {map}"));
    format!("\n{}: {} of {}{map}\n", file.path, file.bytes, file.format)
}

/// Where the trial began whose result is told, and which it is.
fn from(trials: &[Trial]) -> String {
    let of = if trials.len() > 1 {
        format!(", the last of {} trials", trials.len())
    } else {
        String::new()
    };
    match trials.last().and_then(|trial| trial.source) {
        Some(source) => format!(" from {source}{of}"),
        None => of,
    }
}

fn found(result: &KernelResult) -> String {
    let count = |count: u64| grouped(count as f64);
    match result {
        KernelResult::Bfs { reached, level_sizes } => {
            format!(
                "{} vertices reached, the farthest by {} edges",
                count(*reached),
                level_sizes.len() - 1
            )
        }
        KernelResult::Sssp { reached, distance_sum, distance_max } => {
            format!(
                "{} vertices reached, {distance_max} away at most, {distance_sum} in sum",
                count(*reached)
            )
        }
        KernelResult::Pr { sum, iterations, residual, converged, .. } => {
            let ended = *converged == Some(false);
            let more =
                if ended { ", more than --tolerance allows (--iterations ended it)" } else { "" };
            format!(
                "{iterations} iterations, the last of which changed the ranks by {residual:.2e}{more}; their sum is {sum:.6}"
            )
        }
        KernelResult::Cc { components, largest } => {
            format!(
                "{} components, the largest of {} vertices",
                count(*components),
                count(*largest)
            )
        }
        KernelResult::Bc { .. } => "highest scores".to_owned(),
        KernelResult::Diameter { lower_bound } => format!("a shortest way of {lower_bound} edges"),
        KernelResult::Tc { triangles } => format!("{} triangles", count(*triangles)),
    }
}

fn ranking(result: &KernelResult) -> &[Ranked] {
    match result {
        KernelResult::Pr { top, .. } | KernelResult::Bc { top } => top,
        _ => &[],
    }
}

fn times(report: &GraphReport) -> String {
    let mut seconds: Vec<f64> = report.trials.iter().map(|trial| trial.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    match &seconds[..] {
        [] => String::new(),
        [one] => format!("{one:.4} s\n"),
        all => format!(
            "median {:.4} s of {} trials, from {:.4} to {:.4}\n",
            all[all.len() / 2],
            all.len(),
            all[0],
            all[all.len() - 1]
        ),
    }
}

fn phases(phases: &Phases) -> String {
    let all = [
        ("load", phases.load_seconds),
        ("build", Some(phases.build_seconds)),
        ("reorder", phases.reorder_seconds),
        ("allocate", phases.allocate_seconds),
        ("first touch", phases.first_touch_seconds),
        ("kernel", phases.kernel_seconds),
        ("save", phases.save_seconds),
    ];
    let row = |(name, seconds): (&str, Option<f64>)| {
        Some(vec![name.to_owned(), format!("{:.4} s", seconds?)])
    };
    table(all.into_iter().filter_map(row).collect(), &[1])
}

fn arrays(report: &GraphReport) -> String {
    let mut rows = vec![["ARRAY", "SIZE", "HUGE", "SHARE"].map(str::to_owned).to_vec()];
    rows.extend(report.arrays.iter().map(|array| {
        let share = array.huge_bytes.get() as f64 / array.bytes.get().max(1) as f64;
        vec![
            array.name.clone(),
            array.bytes.to_string(),
            array.huge_bytes.to_string(),
            percent(share),
        ]
    }));
    table(rows, &[1, 2, 3])
}

#[cfg(test)]
mod tests {
    use hugepilot_record::graph::ArrayPages;
    use hugepilot_units::Bytes;

    use super::*;

    #[test]
    fn a_report_says_what_was_found_and_on_which_pages() {
        let graph = GraphFacts {
            vertices: 4_194_304,
            edges: 64_155_735,
            isolated: 1_797_566,
            ..GraphFacts::default()
        };
        let trials = [0.5, 0.25, 1.0].map(|seconds| Trial { source: Some(7), seconds });
        let pages = |name: &str, mib, huge| ArrayPages {
            name: name.to_owned(),
            bytes: Bytes::mib(mib),
            huge_bytes: Bytes::mib(huge),
        };
        let report = GraphReport {
            source: "kronecker:22".to_owned(),
            graph,
            file: Some(FileFacts {
                bytes: Bytes::mib(300),
                format: "el".to_owned(),
                packed: Some("zstd".to_owned()),
                loading: "drop".to_owned(),
                compacted: false,
            }),
            width_bits: 64,
            widened: Some("k.el:7: too large".to_owned()),
            peak_bytes: Bytes::gib(2),
            threads: 2,
            pages: "property=thp".to_owned(),
            kernel: Some("bfs".to_owned()),
            trials: trials.to_vec(),
            result: Some(KernelResult::Bfs {
                reached: 2_396_738,
                level_sizes: vec![1, 5, 2_396_732],
            }),
            arrays: vec![pages("edges", 490, 0), pages("property", 16, 16)],
            verified: Some(true),
            output: Some("ways.txt".to_owned()),
            written: Some(Written {
                path: "k.sg".to_owned(),
                format: "sg".to_owned(),
                bytes: Bytes::mib(490),
                map: Some("k.sg.map".to_owned()),
            }),
            ..GraphReport::default()
        };
        let text = graph_text(&report);
        for line in [
            "kronecker:22: 4,194,304 vertices, 64,155,735 undirected edges",
            "bfs from 7, the last of 3 trials: 2,396,738 vertices reached, the farthest by 2 edges",
            "median 0.5000 s of 3 trials, from 0.2500 to 1.0000",
            "300MiB of el packed by zstd, read by --load drop\n",
            "64 bits, as 32 are too few: k.el:7: too large",
            "2GiB of memory at most to make it",
            "each vertex: ways.txt",
            "k.sg: 490MiB of sg; old and new numbers: k.sg.map",
            "verified",
            "property   16MiB  16MiB  100.0 %",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        let wrong = GraphReport {
            verified: Some(false),
            wrong: Some("5 is nearer by 7".to_owned()),
            ..report
        };
        assert!(graph_text(&wrong).contains("WRONG: 5 is nearer by 7"));
    }
}
