//! `graph` and files: written graphs are read as the same graphs, and results carry the IDs of the
//! file. No privileges required.

mod edges;
mod readings;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use hugepilot_reports::graph::{GraphReport, GraphWarning, KernelResult};
use hugepilot_testkit::{cached, need, requires};

use self::edges::{distances, edges, symmetrized, text, vertices};
use crate::tool::{Done, hugepilot};

/// Directory for files of a test, and commands on them.
struct Files(tempfile::TempDir);

impl Files {
    /// Creates a directory on a disk. `/tmp` may be a tmpfs.
    fn new() -> Self {
        Self(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory"))
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
    fn with(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        fs::write(self.path(name), contents).expect("a writable directory");
        self.path(name)
    }
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect(name)
    }
    /// Runs `hugepilot graph` with the words of `line`; `@` stands for the directory.
    #[track_caller]
    fn graph(&self, line: &str) -> Done {
        let here = format!("{}/", self.0.path().display());
        let words = line.split_whitespace().map(|word| word.replace('@', &here));
        hugepilot(["graph".to_owned()].into_iter().chain(words))
    }
    #[track_caller]
    fn report(&self, line: &str) -> GraphReport {
        self.graph(&format!("{line} --json")).exits(0).json()
    }
    /// Returns the result of each vertex.
    #[track_caller]
    fn values(&self, line: &str) -> BTreeMap<u64, String> {
        self.report(&format!("{line} --output @values --force"));
        let text = self.read("values");
        let pair = |line: &str| {
            let (id, value) = line.split_once(' ').expect("ID VALUE");
            (id.parse().expect("a number"), value.to_owned())
        };
        let values: Vec<(u64, String)> = text.lines().map(pair).collect();
        assert!(values.is_sorted(), "ascending");
        values.into_iter().collect()
    }
}

/// Tests all kernels and vertex orders. The IDs have gaps and more than 32 bits.
#[test]
fn results_carry_the_ids_of_the_file() {
    let files = Files::new();
    let ids: Vec<u64> = (0..60).map(|i| i * i * 1_000_003_003 + 7).collect();
    let list = edges(&ids, 140);
    files.with("g.wel", text(&list));
    let (all, source) = (vertices(&list), list[0].0);
    let expected = |length: fn(u64) -> u64, unreachable: &str| -> BTreeMap<u64, String> {
        let distances = distances(&list, source, length);
        let text = |id| distances.get(id).map_or(unreachable.to_owned(), u64::to_string);
        all.iter().map(|id| (*id, text(id))).collect()
    };
    let components: BTreeMap<u64, String> = {
        let list = symmetrized(&list);
        all.iter()
            .map(|&id| (id, distances(&list, id, |_| 1).keys().min().unwrap().to_string()))
            .collect()
    };
    assert!(components.values().collect::<BTreeSet<_>>().len() > 1, "several components");
    let plain = |kernel: &str| format!("run {kernel} @g.wel --compact --directed");
    let pr = "pr --algo jacobi --iterations 40 --tolerance 0 --width 64";
    let ranks = files.values(&plain(pr));
    let scores = files.values(&plain(&format!("bc --width 64 --source {source}")));
    let real = |text: &String| text.parse::<f64>().expect("a number");
    assert!((ranks.values().map(real).sum::<f64>() - 1.0).abs() < 1e-9);
    for order in ["", " --reorder dbg", " --reorder random:5", " --reorder rcm"] {
        let of = |kernel: &str| files.values(&format!("{}{order}", plain(kernel)));
        assert_eq!(
            of(&format!("bfs --source {source}")),
            expected(|_| 1, "9223372036854775807"),
            "{order}"
        );
        assert_eq!(
            of(&format!("sssp --source {source}")),
            expected(|weight| weight, "Infinity"),
            "{order}"
        );
        assert_eq!(of("cc"), components, "{order}");
        let same = |one: &BTreeMap<u64, String>, other: &BTreeMap<u64, String>| {
            one.iter().zip(other).all(|(a, b)| a.0 == b.0 && (real(a.1) - real(b.1)).abs() < 1e-12)
        };
        assert!(same(&of(pr), &ranks), "{order}");
        assert!(same(&of(&format!("bc --width 64 --source {source}")), &scores), "{order}");
        let report = files.report(&format!("{}{order}", plain(pr)));
        let Some(KernelResult::Pr { top, .. }) = &report.result else { panic!("{report:?}") };
        let highest = ranks.iter().max_by(|a, b| real(a.1).total_cmp(&real(b.1))).unwrap();
        assert!(
            (top[0].vertex, report.file.unwrap().compacted) == (*highest.0, true),
            "{top:?} {highest:?}"
        );
    }
    let report = files.report(&format!("{} --trials 3", plain(&format!("bfs --source {source}"))));
    assert!(report.trials.iter().all(|trial| trial.source == Some(source)));
    files.graph(&plain("bfs --source 8")).exits(2).says(&["cannot find vertex 8", "help:"]);
}

#[test]
fn every_format_gives_the_results_of_the_edge_list() {
    let files = Files::new();
    let list = edges(&(0..50).collect::<Vec<_>>(), 120);
    files.with("g.wel", text(&list));
    for directed in ["--directed", ""] {
        let plain =
            |kernel: &str| files.report(&format!("run {kernel} @g.wel {directed} --source 3"));
        let (unweighted, weighted) = (plain("bfs"), plain("sssp"));
        for to in [
            "el",
            "wel",
            "mtx",
            "dimacs",
            "metis",
            "sg",
            "wsg",
            "galois",
            "galois64",
            "four-files",
            "hpg",
        ] {
            if to == "metis" && !directed.is_empty() {
                files
                    .graph(&format!("convert @g.wel @{to} --to {to} {directed}"))
                    .exits(2)
                    .says(&["--symmetrize"]);
                continue;
            }
            let written =
                files.report(&format!("convert @g.wel @{to} --to {to} {directed} --force"));
            let (format, bytes) = written.written.map(|file| (file.format, file.bytes)).unwrap();
            assert_eq!(format, to);
            // Formats that state directions need no flag.
            let flag = if ["el", "wel"].contains(&to) { directed } else { "" };
            // Vertex 3, by its ID in the file.
            let source = if ["mtx", "dimacs", "metis"].contains(&to) { 4 } else { 3 };
            let again = |kernel: &str| {
                let line = format!("run {kernel} @{to} --format {to} {flag} --source {source}");
                files.report(&line)
            };
            let found = again("bfs");
            let has_weights = !["el", "sg"].contains(&to);
            let facts = (&found.result, found.graph.weighted, found.graph.edges);
            assert_eq!(facts, (&unweighted.result, has_weights, unweighted.graph.edges), "{to}");
            let file = found.file.unwrap();
            assert_eq!(
                (file.bytes, &file.format[..], file.compression, file.compacted),
                (bytes, to, None, false)
            );
            if has_weights {
                assert_eq!(again("sssp").result, weighted.result, "{to}");
            } else {
                let line = format!("run sssp @{to} --format {to}");
                files.graph(&line).exits(2).says(&["no weights", "help:"]);
            }
        }
    }
    let symmetrized = files.report("run bfs @g.wel --source 3");
    files.report("convert @g.wel @g.sg --directed --force");
    assert_eq!(files.report("run bfs @g.sg --symmetrize --source 3").result, symmetrized.result);
}

#[test]
fn relabelled_files_lead_back_to_the_old_ids() {
    let files = Files::new();
    let list = edges(&(100..160).collect::<Vec<_>>(), 150);
    files.with("g.wel", text(&list));
    let plain = files.values("run sssp @g.wel --compact --source 104");
    // The native format stores the old IDs.
    let report = files.report("reorder @g.wel @g.hpg --compact --reorder sort");
    let written = report.written.unwrap();
    assert_eq!((written.map, report.reorder.as_deref()), (None, Some("sort")));
    assert_eq!(files.values("run sssp @g.hpg --source 104"), plain);
    assert_eq!(files.values("run sssp @g.hpg --source 104 --reorder random:3"), plain);
    // For other formats, there is a map beside the file.
    for to in ["wsg", "wel"] {
        let written = files
            .report(&format!("reorder @g.wel @new.{to} --compact --reorder sort"))
            .written
            .unwrap();
        let map = files.path(&format!("new.{to}.map"));
        assert_eq!(written.map.as_deref(), map.to_str());
        let map: BTreeMap<u64, u64> = fs::read_to_string(map)
            .unwrap()
            .lines()
            .map(|line| {
                let (old, new) = line.split_once(' ').unwrap();
                (new.parse().unwrap(), old.parse().unwrap())
            })
            .collect();
        assert!(
            map.keys().copied().eq(0..plain.len() as u64)
                && map.values().copied().collect::<BTreeSet<_>>() == vertices(&list)
        );
        let source = map.iter().find(|(_, old)| **old == 104).unwrap().0;
        let values = files.values(&format!("run sssp @new.{to} --source {source}"));
        let by_old_id: BTreeMap<u64, String> =
            values.into_iter().map(|(new, value)| (map[&new], value)).collect();
        assert_eq!(by_old_id, plain, "{to}");
        let degrees = files.report(&format!("info @new.{to}")).graph;
        assert_eq!(degrees.max_degree, report.graph.max_degree);
    }
    // Highest degrees come first.
    let first = files.read("new.wel").lines().filter(|line| line.starts_with("0 ")).count() as u64;
    assert_eq!(first, report.graph.max_degree);
}

#[test]
fn maps_hold_the_ids_that_a_format_does_not_store() {
    let files = Files::new();
    let list = edges(&(100..160).collect::<Vec<_>>(), 150);
    files.with("g.wel", text(&list));
    let plain = files.values("run sssp @g.wel --compact --source 104");
    files.report("reorder @g.wel @new.wsg --compact --reorder sort");
    files.report("convert @g.wel @old.sg --compact --map @here");
    assert!(files.read("here").starts_with("100 0\n101 1\n") && !files.path("old.sg.map").exists());
    files.report("convert @g.wel @same.wel --compact");
    assert_eq!(files.values("run sssp @same.wel --compact --source 104"), plain);
    files
        .graph("reorder @g.wel @other.wsg --map @new.wsg.map --reorder dbg --compact")
        .exits(2)
        .says(&["new.wsg.map: the file exists"]);
    // A failure leaves the existing map, and writes no new one.
    let map = files.read("new.wsg.map");
    for line in ["@other.graph", "@other.graph --map @new.wsg.map --force"] {
        let line = format!("reorder @g.wel {line} --reorder dbg --compact --directed");
        files.graph(&line).exits(2).says(&["--symmetrize"]);
    }
    assert_eq!(files.read("new.wsg.map"), map);
    assert!(!files.path("other.graph.map").exists() && !files.path("other.graph").exists());
    files.graph("reorder @g.wel @x.sg").exits(2).says(&["--reorder"]);
}

#[test]
fn generated_graphs_are_the_same_in_a_file() {
    let files = Files::new();
    for (graph, file) in [
        ("kronecker:9", "k.wsg"),
        ("uniform:9:4", "u.wel"),
        ("uniform:9:4", "u.mtx --weighted"),
        ("grid:20x30", "g.gr"),
    ] {
        files.report(&format!("generate {graph} @{file}"));
        let name = file.split(' ').next().unwrap();
        let source = if name.ends_with("mtx") || name.ends_with("gr") { 6 } else { 5 };
        let again = files.report(&format!("run sssp @{name} --source {source}"));
        let direct = files.report(&format!("run sssp {graph} --source 5"));
        assert_eq!(again.result, direct.result, "{graph}");
        assert_eq!(
            (again.graph.edges, again.graph.vertices),
            (direct.graph.edges, direct.graph.vertices)
        );
        assert!(again.phases.load_seconds.is_some() && direct.phases.load_seconds.is_none());
        assert!(direct.file.is_none() && direct.peak_bytes.get() > 0);
    }
    files.graph("generate @k.wsg @x.sg").exits(2).says(&["graph convert is for files"]);
    // A file may have the name of a generated graph.
    fs::copy(files.path("k.wsg"), files.path("kronecker:9")).unwrap();
    assert_eq!(files.report("info @kronecker:9").file.unwrap().format, "wsg");
}

#[test]
fn load_options_apply() {
    requires!(need::program("gzip"));
    let files = Files::new();
    files.with("g.txt", "0 1 0.5\n1 2 0.25\n# of 10\n");
    assert!(Command::new("gzip").arg(files.path("g.txt")).status().unwrap().success());
    let len = fs::metadata(files.path("g.txt.gz")).unwrap().len();
    let report =
        files.report("run sssp @g.txt.gz --source 0 --scale-weights 100 --vertices 10 --load drop");
    let file = report.file.unwrap();
    assert_eq!(
        (file.bytes.get(), &file.format[..], file.compression.as_deref()),
        (len, "wel", Some("gzip"))
    );
    assert_eq!((&file.load_mode[..], report.graph.vertices), ("drop", 10));
    let expected = Some(KernelResult::Sssp { reached: 3, distance_sum: 50 + 75, distance_max: 75 });
    assert_eq!(report.result, expected);
    let info =
        files.graph("info @g.txt.gz --format wel --ignore-weights --load cached").exits(0).out();
    for words in
        ["undirected edges", "wel, gzip, --load cached", "memory to build the graph: at most"]
    {
        assert!(info.contains(words), "no {words:?} in {info}");
    }
    // The note before the build.
    files
        .graph("info @g.txt.gz --ignore-weights")
        .exits(0)
        .says(&["memory to build the graph: at most", "available"]);
    files.graph("convert @g.txt.gz @g.wel --scale-weights 100 --vertices 10").exits(0).says(&[
        "warning: wel does not store",
        "7 of 10",
        "help:",
        "--vertices 10",
    ]);
    files
        .graph("info kronecker:8 --reorder dbg")
        .exits(0)
        .says(&["memory to build the graph", "memory to relabel the graph"]);
}

#[test]
fn the_width_grows_if_required() {
    let files = Files::new();
    files.with("g.wel", "0 1 5000000000\n1 2 7\n");
    let report = files.report("run sssp @g.wel --source 0");
    assert_eq!(report.width_bits, 64);
    assert!(report.widened.unwrap().contains("g.wel:1: weight 5000000000"));
    let expected = Some(KernelResult::Sssp {
        reached: 3,
        distance_sum: 10_000_000_007,
        distance_max: 5_000_000_007,
    });
    assert_eq!(report.result, expected);
    files.graph("info @g.wel --width 32").exits(2).says(&["g.wel:1:", "--width 64"]);
    let narrow = files.report("info @g.wel --ignore-weights");
    assert_eq!((narrow.width_bits, narrow.widened), (32, None));
}

#[test]
fn errors_name_the_position_and_a_fix() {
    let files = Files::new();
    files.with("g.el", "0 1\n1 2\n2 x\n");
    files.with("good.el", "0 1\n1 2\n");
    files.with("there.sg", "unchanged");
    files.graph("convert @good.el @good.sg").exits(0);
    let whole = fs::read(files.path("good.sg")).unwrap();
    files.with("cut.sg", &whole[..whole.len() - 1]);
    let assert_error = |words: &[&str], line: &str| {
        files.graph(line).exits(2).says(words);
    };
    assert_error(&["nowhere.el: No such file", "help:", "kronecker:22"], "info @nowhere.el");
    assert_error(&["kroneker:22: No such file", "help:"], "info kroneker:22");
    assert_error(&["unknown graph \"kronecker:x\"", "./kronecker:x"], "info kronecker:x");
    assert_error(&["g.el:3:", "\"x\""], "run bfs @g.el");
    assert_error(&["cut.sg", "byte 1", "bytes"], "run bfs @cut.sg --format sg");
    assert_error(&["good.el:1"], "run bfs @good.el --format metis");
    assert_error(&["elf", "galois64"], "info @good.el --format elf");
    assert_error(&["there.sg: the file exists", "help:", "--force"], "convert @good.el @there.sg");
    assert_error(&["there.sg: the file exists", "--force"], "run bfs @good.el --output @there.sg");
    assert_error(
        &["there.sg: the file exists", "--force"],
        "convert @good.el @x.sg --map @there.sg",
    );
    assert_eq!(files.read("there.sg"), "unchanged");
    assert_error(&["--to", "four-files"], "convert @good.el @graph");
    assert_error(&["read only"], "convert @good.el @graph --to ldbc");
    assert_error(&["x.el.gz", "compress"], "convert @good.el @x.el.gz");
    assert_error(&["no/such: the directory does not exist"], "convert @good.el @no/such/x.sg");
    // Checked before the input is opened.
    assert_error(&["/sys/x.sg: ", "(os error"], "convert @nowhere.el /sys/x.sg");
    assert_error(&["/sys/four: ", "(os error"], "convert @nowhere.el /sys/four --to four-files");
    assert_error(
        &["File name too long"],
        &format!("run bfs @nowhere.el --output @{}", "x".repeat(256)),
    );
    assert_error(&["--map and OUT"], "convert @good.el @x.sg --map @./x.sg");
    assert_error(&["/dev/null: not a regular file"], "run bfs @good.el --output /dev/null --force");
    assert_error(&["not a regular file"], "convert @good.el @. --to sg --force");
    assert_error(
        &["not a directory", "four-files"],
        "convert @good.el @there.sg --to four-files --force",
    );
    assert_error(&["no weights", "help:"], "convert @good.el @x.wsg");
    assert_error(
        &["--output requires a value per vertex: tc has none"],
        "run tc @good.el --output @x",
    );
    assert_error(&["--compact is for files"], "info kronecker:8 --compact");
    assert_error(&["--weighted is for generated"], "info @good.el --weighted");
    let left: BTreeSet<_> = fs::read_dir(files.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(
        left,
        ["cut.sg", "g.el", "good.el", "good.sg", "there.sg"].map(str::to_owned).into()
    );
    files.graph("convert @good.el @there.sg --force").exits(0);
    assert_eq!(fs::read(files.path("there.sg")).unwrap(), whole);
}

#[test]
fn direct_leaves_a_hundredth_of_the_file_in_the_page_cache_at_most() {
    requires!(need::program("fincore"));
    let files = Files::new();
    for name in ["g.el", "g.sg", "g.hpg"] {
        files.report(&format!("generate uniform:16:8 @{name}"));
        let (path, len) = (files.path(name), fs::metadata(files.path(name)).unwrap().len());
        assert!(cached(&path) <= len / 100, "writing left {} of {len}", cached(&path));
        for load in ["direct", "cached", "drop", "cached", "direct"] {
            let line = if load == "direct" { String::new() } else { format!(" --load {load}") };
            let report = files.report(&format!("run bfs @{name}{line}"));
            let left = cached(&path);
            let is_right =
                if load == "cached" { left * 100 >= len * 99 } else { left * 100 <= len };
            assert!(is_right, "{name}: {left} of {len} by {load}");
            // The file system may not support `O_DIRECT`.
            let done = report.file.unwrap().load_mode;
            assert!(done == load || (load, &done[..]) == ("direct", "drop"), "{done}");
        }
    }
}

#[test]
fn gaps_between_ids_are_reported_with_a_fix() {
    let files = Files::new();
    let chain: String = (0..50).map(|i| format!("{} {}\n", 2 * i, 2 * i + 2)).collect();
    files.with("gaps.el", &chain);
    let says = ["warning: 50 of 101 vertices have no edge", "help:", "--compact"];
    files.graph("info @gaps.el").exits(0).says(&says);
    let warnings = files.report("info @gaps.el").warnings;
    assert_eq!(warnings, [GraphWarning::VertexIdGaps { vertices: 101, unused_ids: 50 }]);
    // No warning with relabelled vertices or a stated number of vertices.
    for option in ["--compact", "--vertices 101"] {
        assert_eq!(files.report(&format!("info @gaps.el {option}")).warnings, []);
    }
    // A vertex with only a self-loop has an ID that occurs.
    let loops: String = (0..50).map(|i| format!("{0} {0}\n", 2 * i + 1)).collect();
    files.with("loops.el", chain + &loops);
    assert_eq!(files.report("info @loops.el").warnings, []);
}
