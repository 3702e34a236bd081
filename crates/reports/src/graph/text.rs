//! Document and JSON of `hugepilot graph`.

use std::fmt::Write;

use hugepilot_record::sentence::number;
use hugepilot_render::json::JsonReport;
use hugepilot_render::model::{
    Bar, Cell, Document, Notice, Plot, Report, Section, Table, Unit, seconds_beside,
};
use hugepilot_render::sentence::{explain_all, warning_lines};
use hugepilot_render::table::counted;
use hugepilot_stats::Spread;
use serde_json::Value;

use crate::graph::{
    AllocOrder, ArrayPages, GraphFacts, GraphReport, InputFile, KernelResult, OutputFile, Phases,
    RankedVertex, Trial,
};

/// Trials of the table at most.
const MAX_TRIALS: usize = 500;

impl Document for GraphReport {
    fn document(&self) -> Report {
        let mut all = Report::new(self.kernel.as_deref().unwrap_or("graph"));
        if let (Some(kernel), Some(result)) = (&self.kernel, &self.result) {
            let (origin, result) = (origin(&self.trials), result_text(result));
            all.summary.push(format!("{kernel}{origin}: {result}."));
            all.summary.extend(time(&self.trials));
            let error = self.verify_error.as_ref().map(|error| format!("Wrong result: {error}."));
            let verified = || self.verified.unwrap_or(false).then(|| "Verified.".to_owned());
            all.summary.extend(error.or_else(verified));
        }
        all.summary.push(facts(&self.input, &self.graph));
        all.summary.extend(self.file.as_ref().map(input_file));
        if let Some(order) = &self.reorder {
            all.summary.push(format!("Relabelled by {order}; results carry the old IDs."));
        }
        all.summary.push(settings(self));
        if let Some(output) = &self.output {
            all.summary.push(format!("Result of each vertex: {output}."));
        }
        all.summary.extend(self.written.as_ref().map(output_file));
        let phases = phases(&self.phases);
        let bars = phases.iter().map(|&(name, seconds)| Bar::new(name, Some(seconds)));
        let times = Plot::bars("Time by phase", "time", Unit::Seconds, bars);
        let shares = self.arrays.iter().map(|array| Bar::new(&array.name, share(array)));
        let title = "Share of each array on huge pages";
        let shares = Plot::bars(title, "on huge pages", Unit::Ratio, shares);
        all.add(Section::detail("Plots", "").with_plot(times).with_plot(shares));
        // The terminal has them on stderr, above.
        all.add(Section::detail("Warnings", "").with_all(Notice::warnings(&self.warnings)));
        all.add(trials(&self.trials));
        all.add(self.result.as_ref().map_or_else(Section::default, ranking));
        all.add(degrees(&self.graph));
        let phases = phases.into_iter().map(|(name, time)| [name.into(), Cell::seconds(time)]);
        all.add(filled("Phases", Table::of("", ["phase", "time"], phases)));
        let row = |array: &ArrayPages| {
            let share = Cell::of(share(array), Unit::Ratio, "the array is empty");
            [(&*array.name).into(), array.bytes.into(), array.huge_bytes.into(), share]
        };
        let columns = ["array", "size", "huge", "huge share"];
        all.add(filled("Arrays", Table::of("", columns, self.arrays.iter().map(row))));
        all
    }
}

/// A section of a table with rows, else an empty one.
fn filled(title: &str, table: Table) -> Section {
    let is_filled = !table.rows.is_empty();
    if is_filled { Section::new(title, "").with(table) } else { Section::default() }
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
    let mut text = format!(
        "{input}: {}, {} {} {}{}",
        vertices(graph.vertices),
        number(graph.edges),
        direction(graph),
        if graph.edges == 1 { "edge" } else { "edges" },
        if graph.weighted { ", weighted" } else { "" }
    );
    for (name, count) in [
        ("self-loops dropped", graph.self_loops_removed),
        ("duplicates dropped", graph.duplicates_removed),
        ("isolated vertices", graph.isolated),
        ("highest degree", graph.max_degree),
    ] {
        if count > 0 {
            let _ = write!(text, "; {name} {}", number(count));
        }
    }
    text + "."
}

/// Width, threads and pages of a run.
fn settings(report: &GraphReport) -> String {
    let order = match report.alloc_order {
        AllocOrder::Natural => String::new(),
        order => format!(", {order}"),
    };
    let widened = report.widened.as_ref();
    let widened = widened.map_or_else(String::new, |cause| format!(" (32 are too few: {cause})"));
    format!(
        "{} bits{widened}, {}, pages {}{order}; memory to build the graph: at most {}.",
        report.width_bits,
        counted(report.threads as u64, "thread", "threads"),
        report.pages,
        report.peak_bytes
    )
}

fn input_file(file: &InputFile) -> String {
    let compression =
        file.compression.as_ref().map_or_else(String::new, |name| format!(", {name}"));
    let compacted = match file.compacted {
        true => " Vertices have consecutive IDs; results carry the IDs of the file.",
        false => "",
    };
    let InputFile { bytes, format, load_mode, .. } = file;
    format!("File: {bytes}, {format}{compression}, --load {load_mode}.{compacted}")
}

fn output_file(file: &OutputFile) -> String {
    let map = file.map.as_ref();
    let map = map.map_or_else(String::new, |map| format!("; map of vertex IDs: {map}"));
    format!("Written: {}, {}, {}{map}.", file.path, file.bytes, file.format)
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
                Some(false) => "; not converged: --iterations reached before --tolerance",
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
        KernelResult::Bc { .. } => "betweenness, with the highest scores below".to_owned(),
        KernelResult::Diameter { lower_bound } => {
            let edges = edges(*lower_bound);
            format!("a shortest path of {edges}; the diameter is at least that")
        }
        KernelResult::Tc { triangles } => counted(*triangles, "triangle", "triangles"),
    }
}

/// Time of the median trial, with the range of several.
fn time(trials: &[Trial]) -> Option<String> {
    let seconds: Vec<f64> = trials.iter().map(|trial| trial.seconds).collect();
    let Spread { median, min, max } = Spread::of(&seconds)?;
    let [median, min, max] = [median, min, max].map(|seconds| seconds_beside(seconds, max));
    Some(match trials.len() {
        1 => format!("Time {median}."),
        count => format!("Time {median}, median of {count} trials ({min} to {max})."),
    })
}

/// Vertices with the highest values.
fn ranking(result: &KernelResult) -> Section {
    let (title, name, top) = match result {
        KernelResult::Pr { top, .. } => ("Highest ranks", "rank", top),
        KernelResult::Bc { top } => ("Highest scores", "score", top),
        _ => return Section::default(),
    };
    // Text: an ID is not a quantity.
    let row =
        |one: &RankedVertex| [one.vertex.to_string(), format!("{:.6e}", one.value)].map(Cell::from);
    let rows = top.iter().filter(|ranked| ranked.value != 0.0).map(row);
    filled(title, Table::of("", ["vertex", name], rows))
}

/// Each trial.
fn trials(trials: &[Trial]) -> Section {
    let row = |(number, trial): (usize, &Trial)| {
        let source = trial.source.map_or_else(|| "none".to_owned(), |source| source.to_string());
        [number.to_string().into(), source.into(), Cell::seconds(trial.seconds)]
    };
    let shown = || (1..).zip(trials.iter().take(MAX_TRIALS));
    let table = Table::of("", ["trial", "source vertex", "time"], shown().map(row));
    if table.rows.is_empty() {
        return Section::default();
    }
    let bars = shown().map(|(number, one)| Bar::new(number.to_string(), Some(one.seconds)));
    let plot = Plot::bars("Time by trial", "time", Unit::Seconds, bars);
    let section = Section::detail("Trials", "Mapping, first touch and the kernel together.");
    let more = Notice::of_omitted(trials.len(), MAX_TRIALS, "trial", "trials");
    section.with(plot).with(table).with_all(more)
}

/// Groups of degree-based grouping that have vertices, by degree relative to the average.
fn degrees(graph: &GraphFacts) -> Section {
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
    let groups = GROUPS.into_iter().zip(graph.dbg_group_sizes).filter(|&(_, size)| size > 0);
    let rows = groups.map(|(group, size)| [group.into(), Cell::count(size)]);
    filled("Degrees", Table::of("", ["degree ratio", "vertices"], rows))
}

/// Phases that took time, in seconds.
fn phases(phases: &Phases) -> Vec<(&'static str, f64)> {
    let all = [
        ("load", phases.load_seconds),
        ("build", Some(phases.build_seconds)),
        ("reorder", phases.reorder_seconds),
        ("allocate", phases.allocate_seconds),
        ("first touch", phases.first_touch_seconds),
        ("kernel", phases.kernel_seconds),
        ("save", phases.save_seconds),
    ];
    let took = |(name, seconds): (_, Option<f64>)| Some((name, seconds.filter(|&one| one > 0.0)?));
    all.into_iter().filter_map(took).collect()
}

/// Share of an array on huge pages.
fn share(array: &ArrayPages) -> Option<f64> {
    (!array.bytes.is_zero()).then(|| array.huge_bytes.ratio_of(array.bytes))
}

#[cfg(test)]
pub(crate) mod tests {
    use hugepilot_render::json::json;
    use hugepilot_render::sentence::Sentence;
    use hugepilot_render::{Width, command_text};
    use hugepilot_testkit::assert_golden;
    use hugepilot_units::Bytes;

    use super::*;
    use crate::graph::GraphWarning;

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
        let text = command_text(&report(), Width::columns(80));
        assert_golden("testdata/graph.txt", &text);
        let wrong = GraphReport {
            verified: Some(false),
            verify_error: Some("vertex 5 is nearer through 7".to_owned()),
            ..report()
        };
        let text = command_text(&wrong, Width::UNLIMITED);
        assert!(text.contains("\nWrong result: vertex 5 is nearer through 7.\n"), "{text}");
    }

    #[test]
    fn the_median_of_an_even_number_of_trials_is_the_mean_of_the_middle_two() {
        let trials = [4.0, 1.0, 2.0, 3.0].map(|seconds| Trial { source: None, seconds });
        assert_eq!(time(&trials).unwrap(), "Time 2.5s, median of 4 trials (1s to 4s).");
        assert_eq!(time(&trials[..1]).unwrap(), "Time 4s.");
    }

    #[test]
    fn warnings_have_a_code_a_sentence_and_a_fix() {
        let gaps = GraphWarning::VertexIdGaps { vertices: 9000, unused_ids: 8000 };
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
