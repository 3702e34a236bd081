//! Text and JSON of `hugepilot graph`.

use std::fmt::Write;

use hugepilot_record::graph::{
    AllocOrder, GraphFacts, GraphReport, InputFile, KernelResult, OutputFile, Phases, RankedVertex,
    Trial,
};
use hugepilot_record::sentence::number;
use hugepilot_stats::Spread;
use serde_json::Value;

use crate::json::JsonReport;
use crate::sentence::{explain_all, warning_lines};
use crate::table::{Width, counted, percent, table};

/// Prints the graph, the result of the kernel, phase times and array pages.
pub fn graph_text(report: &GraphReport) -> String {
    let mut text = facts(&report.input, &report.graph);
    text.extend(report.file.as_ref().map(input_file));
    if let Some(order) = &report.reorder {
        let _ = writeln!(text, "relabelled by {order}; results carry the old IDs");
    }
    let order = match report.alloc_order {
        AllocOrder::Natural => String::new(),
        order => format!(", {order}"),
    };
    let (bits, threads, pages) = (report.width_bits, report.threads, &report.pages);
    let threads = counted(threads as u64, "thread", "threads");
    let _ = writeln!(text, "{bits} bits, {threads}, pages {pages}{order}");
    if let Some(cause) = &report.widened {
        let _ = writeln!(text, "64 bits, because 32 are too few: {cause}");
    }
    let _ = writeln!(text, "memory to build the graph: at most {}", report.peak_bytes);
    if let (Some(kernel), Some(result)) = (&report.kernel, &report.result) {
        let _ = writeln!(text, "\n{kernel}{}\n{}", origin(&report.trials), result_text(result));
        text.push_str(&ranking(result));
        text.push_str(&times(&report.trials));
        match (report.verified, &report.verify_error) {
            (Some(true), _) => text.push_str("verified\n"),
            (_, Some(error)) => _ = writeln!(text, "wrong result: {error}"),
            _ => {}
        }
    }
    if let Some(output) = &report.output {
        let _ = writeln!(text, "result of each vertex: {output}");
    }
    text.extend(report.written.as_ref().map(output_file));
    for part in [degrees(&report.graph), phases(&report.phases), arrays(report)] {
        if !part.is_empty() {
            let _ = write!(text, "\n{part}");
        }
    }
    text
}

/// Describes how a file was interpreted, on one line.
pub fn graph_file_note(file: &InputFile, graph: &GraphFacts) -> String {
    let mut parts = Vec::new();
    if !file.columns.is_empty() {
        parts.push(format!("columns {}", file.columns.join(",")));
    }
    if file.count_line {
        parts.push("first line: vertices and edges".to_owned());
    }
    let cause = match &*file.direction_cause {
        "symmetric" => " (each edge in both directions)",
        "requested" => " (requested)",
        "kernel" => " (required by the kernel)",
        "unstated" => " (the file states no directions: --directed keeps them)",
        _ => "",
    };
    parts.push(format!("{}{cause}", direction(graph)));
    parts.push(if graph.weighted { "weighted" } else { "unweighted" }.to_owned());
    parts.push(match (file.first_id, file.bipartite_sources) {
        (Some(first), Some(sources)) => {
            format!("IDs from {first}, targets after {sources} sources")
        }
        (Some(first), None) => format!("IDs from {first}"),
        (None, _) => "own IDs".to_owned(),
    });
    let [duplicates, loops] = [graph.duplicates_removed, graph.self_loops_removed];
    if duplicates > 0 {
        parts.push(format!("{} merged", counted(duplicates, "duplicate", "duplicates")));
    }
    if loops > 0 {
        parts.push(format!("{} dropped", counted(loops, "self-loop", "self-loops")));
    }
    format!("{}: {}", file.format, parts.join("; "))
}

fn direction(graph: &GraphFacts) -> &'static str {
    if graph.directed { "directed" } else { "undirected" }
}

/// Prints the warnings of a report, each with its fix.
pub fn graph_warnings_text(report: &GraphReport) -> String {
    warning_lines(&report.warnings)
}

impl JsonReport for GraphReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        explain_all(json, "/warnings", &self.warnings);
    }
}

fn vertices(count: u64) -> String {
    counted(count, "vertex", "vertices")
}

fn edges(count: u64) -> String {
    counted(count, "edge", "edges")
}

fn facts(input: &str, graph: &GraphFacts) -> String {
    let direction = direction(graph);
    let weighted = if graph.weighted { ", weighted" } else { "" };
    let mut text = format!(
        "{input}: {}, {} {direction} {}{weighted}\n",
        vertices(graph.vertices),
        number(graph.edges),
        if graph.edges == 1 { "edge" } else { "edges" }
    );
    let parts = [
        ("self-loops dropped", graph.self_loops_removed),
        ("duplicates dropped", graph.duplicates_removed),
        ("isolated vertices", graph.isolated),
        ("highest degree", graph.max_degree),
    ];
    let parts = parts.iter().filter(|(_, number)| *number > 0);
    let parts: Vec<_> = parts.map(|(name, count)| format!("{name} {}", number(*count))).collect();
    if !parts.is_empty() {
        let _ = writeln!(text, "{}", parts.join(", "));
    }
    text
}

fn input_file(file: &InputFile) -> String {
    let compression =
        file.compression.as_ref().map_or_else(String::new, |name| format!(", {name}"));
    let mut text =
        format!("file: {}, {}{compression}, --load {}\n", file.bytes, file.format, file.load_mode);
    if file.compacted {
        text.push_str("vertices have consecutive IDs; results carry the IDs of the file\n");
    }
    text
}

fn output_file(file: &OutputFile) -> String {
    let map =
        file.map.as_ref().map_or_else(String::new, |map| format!("; map of vertex IDs: {map}"));
    format!("\n{}: {}, {}{map}\n", file.path, file.bytes, file.format)
}

/// Describes the source vertex of the result, and its trial.
fn origin(trials: &[Trial]) -> String {
    let source = trials.last().and_then(|trial| trial.source);
    let source = source.map_or_else(String::new, |source| format!(" from {source}"));
    match trials.len() {
        0 | 1 => source,
        trials => format!("{source}, last of {trials} trials"),
    }
}

fn result_text(result: &KernelResult) -> String {
    match result {
        KernelResult::Bfs { reached, level_sizes } => format!(
            "{} reached, largest distance {}",
            vertices(*reached),
            edges(level_sizes.len().saturating_sub(1) as u64)
        ),
        KernelResult::Sssp { reached, distance_sum, distance_max } => format!(
            "{} reached, largest distance {distance_max}, sum {distance_sum}",
            vertices(*reached)
        ),
        KernelResult::Pr { sum, iterations, residual, converged, .. } => {
            let ended = match converged {
                Some(false) => "\nnot converged: --iterations reached before --tolerance",
                _ => "",
            };
            format!(
                "{iterations} iterations, residual {residual:.2e}, sum of ranks {sum:.6}{ended}"
            )
        }
        KernelResult::Cc { components, largest, ignores_directions } => {
            let components = counted(*components, "component", "components");
            let ignored = if *ignores_directions { "; edge directions ignored" } else { "" };
            format!("{components}, {} in the largest{ignored}", vertices(*largest))
        }
        KernelResult::Bc { .. } => "highest scores".to_owned(),
        KernelResult::Diameter { lower_bound } => {
            let edges = edges(*lower_bound);
            format!("a shortest path of {edges}; the diameter is at least that")
        }
        KernelResult::Tc { triangles } => counted(*triangles, "triangle", "triangles"),
    }
}

fn ranking(result: &KernelResult) -> String {
    let (name, top) = match result {
        KernelResult::Pr { top, .. } => ("RANK", top),
        KernelResult::Bc { top } => ("SCORE", top),
        _ => return String::new(),
    };
    let row =
        |ranked: &RankedVertex| vec![ranked.vertex.to_string(), format!("{:.6e}", ranked.value)];
    let mut rows = vec![vec!["VERTEX".to_owned(), name.to_owned()]];
    rows.extend(top.iter().filter(|ranked| ranked.value != 0.0).map(row));
    if rows.len() == 1 { String::new() } else { table(rows, &[0, 1], Width::UNLIMITED) }
}

fn times(trials: &[Trial]) -> String {
    let seconds: Vec<f64> = trials.iter().map(|trial| trial.seconds).collect();
    match (&seconds[..], Spread::of(&seconds)) {
        (_, None) => String::new(),
        ([one], _) => format!("time {one:.4} s\n"),
        (all, Some(Spread { median, min, max })) => {
            format!("time {median:.4} s, median of {} trials ({min:.4}–{max:.4})\n", all.len())
        }
    }
}

/// Lists the non-empty groups of degree-based grouping, by degree relative to the average.
fn degrees(graph: &GraphFacts) -> String {
    const GROUPS: [&str; 8] = [
        "32x or more",
        "16x or more",
        "8x or more",
        "4x or more",
        "2x or more",
        "1x or more",
        "0.5x or more",
        "below 0.5x",
    ];
    let mut rows = vec![vec!["DEGREE_RATIO".to_owned(), "VERTICES".to_owned()]];
    rows.extend(
        GROUPS
            .iter()
            .zip(&graph.dbg_group_sizes)
            .filter(|&(_, &size)| size > 0)
            .map(|(group, &size)| vec![(*group).to_owned(), number(size)]),
    );
    if rows.len() == 1 { String::new() } else { table(rows, &[1], Width::UNLIMITED) }
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
        let seconds = seconds.filter(|&seconds| seconds > 0.0)?;
        Some(vec![name.to_owned(), format!("{seconds:.4} s")])
    };
    let mut rows = vec![vec!["PHASE".to_owned(), "TIME".to_owned()]];
    rows.extend(all.into_iter().filter_map(row));
    if rows.len() == 1 { String::new() } else { table(rows, &[1], Width::UNLIMITED) }
}

fn arrays(report: &GraphReport) -> String {
    if report.arrays.is_empty() {
        return String::new();
    }
    let mut rows = vec![["ARRAY", "SIZE", "HUGE", "HUGE_SHARE"].map(str::to_owned).to_vec()];
    rows.extend(report.arrays.iter().map(|array| {
        let (name, size) = (array.name.clone(), array.bytes.to_string());
        if array.huge_bytes.get() == 0 {
            return vec![name, size, String::new(), String::new()];
        }
        let share = array.huge_bytes.get() as f64 / array.bytes.get().max(1) as f64;
        vec![name, size, array.huge_bytes.to_string(), percent(share)]
    }));
    table(rows, &[1, 2, 3], Width::UNLIMITED)
}

#[cfg(test)]
pub(crate) mod tests {
    use hugepilot_record::graph::{ArrayPages, GraphWarning};
    use hugepilot_units::Bytes;

    use super::*;
    use crate::json::json;
    use crate::sentence::Sentence;

    pub(crate) fn report() -> GraphReport {
        let graph = GraphFacts {
            vertices: 4_194_304,
            edges: 64_155_735,
            isolated: 1_797_566,
            dbg_group_sizes: [5, 0, 0, 0, 0, 0, 0, 1_797_566],
            ..GraphFacts::default()
        };
        let trials = [0.5, 0.25, 1.0].map(|seconds| Trial { source: Some(7), seconds });
        let pages = |name: &str, mib, huge| ArrayPages {
            name: name.to_owned(),
            bytes: Bytes::mib(mib),
            huge_bytes: Bytes::mib(huge),
        };
        GraphReport {
            input: "kronecker:22".to_owned(),
            graph,
            file: Some(InputFile {
                bytes: Bytes::mib(300),
                format: "el".to_owned(),
                compression: Some("zstd".to_owned()),
                load_mode: "drop".to_owned(),
                ..InputFile::default()
            }),
            width_bits: 64,
            widened: Some("cannot load k.el:7: too large".to_owned()),
            peak_bytes: Bytes::gib(2),
            threads: 2,
            pages: "property=thp".to_owned(),
            alloc_order: AllocOrder::PropertyFirst,
            kernel: Some("bfs".to_owned()),
            trials: trials.to_vec(),
            result: Some(KernelResult::Bfs {
                reached: 2_396_738,
                level_sizes: vec![1, 5, 2_396_732],
            }),
            arrays: vec![pages("edges", 490, 0), pages("property", 16, 16)],
            verified: Some(true),
            output: Some("distances.txt".to_owned()),
            written: Some(OutputFile {
                path: "k.sg".to_owned(),
                format: "sg".to_owned(),
                bytes: Bytes::mib(490),
                map: Some("k.sg.map".to_owned()),
            }),
            ..GraphReport::default()
        }
    }

    #[test]
    fn text_has_the_result_and_the_pages() {
        let text = graph_text(&report());
        for line in [
            "kronecker:22: 4,194,304 vertices, 64,155,735 undirected edges\n",
            "\nisolated vertices 1,797,566\n",
            "\nbfs from 7, last of 3 trials\n",
            "\n2,396,738 vertices reached, largest distance 2 edges\n",
            "time 0.5000 s, median of 3 trials (0.2500–1.0000)\n",
            "file: 300MiB, el, zstd, --load drop\n",
            "64 bits, 2 threads, pages property=thp, property-first\n",
            "64 bits, because 32 are too few: cannot load k.el:7: too large",
            "memory to build the graph: at most 2GiB",
            "result of each vertex: distances.txt",
            "k.sg: 490MiB, sg; map of vertex IDs: k.sg.map",
            "verified",
            "\n32x or more           5\nbelow 0.5x    1,797,566\n",
            "\nedges     490MiB\nproperty   16MiB  16MiB     100.0 %\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let wrong = GraphReport {
            verified: Some(false),
            verify_error: Some("vertex 5 is nearer through 7".to_owned()),
            ..report()
        };
        assert!(graph_text(&wrong).contains("wrong result: vertex 5 is nearer through 7"));
    }

    #[test]
    fn the_median_of_an_even_number_of_trials_is_the_mean_of_the_middle_two() {
        let trials = [4.0, 1.0, 2.0, 3.0].map(|seconds| Trial { source: None, seconds });
        assert_eq!(times(&trials), "time 2.5000 s, median of 4 trials (1.0000–4.0000)\n");
        assert_eq!(times(&trials[..1]), "time 4.0000 s\n");
    }

    #[test]
    fn warnings_have_a_code_a_sentence_and_a_fix() {
        let gaps = GraphWarning::VertexIdGaps { vertices: 9000, unused_ids: 8000 };
        let text = warning_lines(std::slice::from_ref(&gaps));
        assert!(text.starts_with("warning: 8,000 of 9,000 vertices have no edge"), "{text}");
        assert!(text.ends_with("help: relabel vertices to consecutive IDs: --compact\n"), "{text}");
        let dropped = |original_ids| GraphWarning::IsolatedVerticesDropped {
            format: "el".to_owned(),
            dropped: 3,
            vertices: 10,
            original_ids,
        };
        assert!(dropped(false).help()[0].contains("--vertices 10"));
        assert!(dropped(true).help()[0].contains("--to hpg"));
        let report = GraphReport { warnings: vec![gaps, dropped(true)], ..report() };
        let json = json(&report);
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["warnings"][0]["code"], "vertex_id_gaps");
        assert_eq!(value["warnings"][0]["unused_ids"], 8000);
        assert!(value["warnings"][0]["text"].as_str().unwrap().contains("8,000"));
        assert_eq!(value["warnings"][1]["help"][0], "store them: --to hpg");
        assert_eq!(serde_json::from_str::<GraphReport>(&json).unwrap(), report);
    }

    #[test]
    fn json_holds_sums_beyond_64_bits() {
        let distance_sum = u128::from(u64::MAX) + 1;
        let sssp = KernelResult::Sssp { reached: 2, distance_sum, distance_max: 1 };
        let report = GraphReport { result: Some(sssp), ..report() };
        assert_eq!(serde_json::from_str::<GraphReport>(&json(&report)).unwrap(), report);
    }
}
