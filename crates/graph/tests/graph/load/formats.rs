//! The same graph in every format.

use std::collections::BTreeMap;

use hugepilot_graph::{Compression, DroppedEdges, Format, LoadOptions, LoadedGraph, Width, load};
use hugepilot_testkit::{need, requires};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::by_hand::{self, ARCS, VERTICES};
use super::{Files, Rows, both, gzip, loaded, options, refuses_with, rejects};

fn expected(directed: bool, weighted: bool) -> Rows {
    let mut rows = vec![BTreeMap::new(); VERTICES as usize];
    for (from, to, weight) in if directed { ARCS.to_vec() } else { by_hand::undirected() } {
        rows[from as usize].insert(to, if weighted { weight } else { 0 });
    }
    rows
}

fn check<V: Width>(loaded: &LoadedGraph<V>, directed: bool, weighted: bool) {
    assert_eq!(both(&loaded.graph).0, expected(directed, weighted), "{}", loaded.format);
    assert_eq!(loaded.graph.is_directed(), directed);
    assert_eq!(loaded.graph.out.heaviest().at(), if weighted { 9 } else { 0 });
    assert!(loaded.peak.get() > 0 && loaded.file.get() > 0);
}

/// Loads a file in both widths, directed and undirected.
fn everywhere(
    name: &str,
    contents: impl AsRef<[u8]>,
    format: Format,
    has_directions: bool,
    weighted: bool,
) {
    for directed in [true, false] {
        let narrow = loaded::<u32>(name, &contents, &options(directed)).unwrap();
        check(&narrow, directed && has_directions, weighted);
        assert_eq!(narrow.format, format);
        let nothing = has_directions || narrow.graph.dropped == DroppedEdges::default();
        assert!(nothing, "{name}: an edge that is in two rows was taken twice");
        let wide = loaded::<u64>(name, &contents, &options(directed)).unwrap();
        check(&wide, directed && has_directions, weighted);
        let without = LoadOptions { ignore_weights: true, ..options(directed) };
        let plain = loaded::<u32>(name, &contents, &without).unwrap();
        check(&plain, directed && has_directions, false);
    }
}

#[test]
fn text_of_every_format_is_one_graph() {
    everywhere("g.el", by_hand::EL, Format::EdgeList, true, false);
    everywhere("g.txt", by_hand::SNAP, Format::EdgeList, true, false);
    everywhere("g.csv", by_hand::CSV, Format::EdgeList, true, false);
    everywhere("noname", by_hand::WEL, Format::WeightedEdgeList, true, true);
    everywhere("g.csv", by_hand::CSV_WEIGHTED, Format::WeightedEdgeList, true, true);
    everywhere("g.mtx", by_hand::MTX, Format::MatrixMarket, true, false);
    everywhere("noname", by_hand::MTX_WEIGHTED, Format::MatrixMarket, true, true);
    everywhere("g.mtx", by_hand::MTX_SYMMETRIC, Format::MatrixMarket, false, true);
    everywhere("g.gr", by_hand::DIMACS, Format::Dimacs, true, true);
    everywhere("g.graph", by_hand::METIS, Format::Metis, false, false);
    everywhere("g.graph", by_hand::METIS_WEIGHTED, Format::Metis, false, true);
    everywhere("g.metis", by_hand::METIS_FULL, Format::Metis, false, true);
    everywhere("g.graph", by_hand::METIS_ARCS, Format::Metis, true, false);
}

#[test]
fn binaries_of_every_format_are_the_same_graph() {
    for weighted in [false, true] {
        for directed in [false, true] {
            let format = if weighted { Format::WeightedGap } else { Format::Gap };
            everywhere("noname", by_hand::gap(weighted, directed), format, directed, weighted);
        }
        everywhere("g.gr", by_hand::galois(1, weighted), Format::Galois, true, weighted);
        everywhere("g.gr", by_hand::galois(2, weighted), Format::Galois64, true, weighted);
    }
}

#[test]
fn four_files_are_a_directory_or_its_first_file() {
    for weighted in [false, true] {
        let files = Files::new();
        for (name, contents) in by_hand::four(weighted) {
            files.with(name, contents);
        }
        for path in [files.path(""), files.path("num_nodes_edges.txt")] {
            let loaded = load::<u32>(&path, &options(true)).unwrap();
            check(&loaded, true, weighted);
            assert_eq!(loaded.format, Format::FourFiles);
            check(&load::<u64>(&path, &options(false)).unwrap(), false, weighted);
        }
    }
}

#[test]
fn a_pair_of_ldbc_files_keeps_its_vertex_ids() {
    let files = Files::new();
    let pair = [files.with("g.v", by_hand::LDBC_V), files.with("g.e", by_hand::LDBC_E)];
    for path in pair {
        let scaled = LoadOptions { scale_weights: Some(10.0), ..options(true) };
        let loaded = load::<u32>(&path, &scaled).unwrap();
        check(&loaded, true, true);
        assert_eq!(loaded.ids.listed().unwrap(), [10, 20, 30, 40, 50, 7_000_000_000]);
        rejects(&path, &options(true), &["g.e:1:", "--scale-weights FACTOR"]);
    }
    let lonely = files.with("lonely.e", "1 2\n");
    rejects(&lonely, &options(true), &["lonely.v"]);
    files.with("lonely.v", "1\n3\n");
    rejects(&lonely, &options(true), &["lonely.e:1: vertex 2"]);
    files.with("lonely.v", "1\n2\n1\n");
    rejects(&lonely, &options(true), &["lonely.v: names a vertex twice"]);
}

/// Columns are detected after the comments, by whole lines: with some of these lengths, the first
/// read ends inside the line of the first edge.
#[test]
fn comments_before_the_first_edge_may_be_long() {
    let comments = |len: usize| format!("#{}\n", "-\n#".repeat((len - 2) / 3));
    let (list, named) = (by_hand::WEL, by_hand::CSV_WEIGHTED);
    for (edges, len) in [
        (list, 4094),
        (list, 5000),
        (list, 1_048_574),
        (list, 3_000_002),
        (named, 4079),
        (named, 1_048_559),
    ] {
        let text = comments(len) + edges;
        assert_eq!(text.len(), len + edges.len());
        for (name, contents) in [("g.txt", text.clone().into_bytes()), ("noname", gzip(&text))] {
            let loaded = loaded::<u32>(name, &contents, &options(true)).unwrap();
            assert_eq!(loaded.format, Format::WeightedEdgeList, "{name}, {len} bytes of comments");
            check(&loaded, true, true);
        }
    }
    let endless = comments(17 << 20) + by_hand::WEL;
    let words = ["noname:1: no edge in the first 16 MiB", "--format"];
    refuses_with("noname", &endless, &options(true), &words);
    let said = LoadOptions { format: Some(Format::WeightedEdgeList), ..options(true) };
    check(&loaded::<u32>("g.txt", &endless, &said).unwrap(), true, true);
}

/// Two members or frames, as `cat a.gz b.gz` makes them.
#[test]
fn compression_is_detected_by_content() {
    let (first, second) = by_hand::DIMACS.split_at(30);
    let zstd = |text: &str| compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
    let compressed = [
        ([gzip(first), gzip(second)].concat(), Compression::Gzip),
        ([zstd(first), zstd(second)].concat(), Compression::Zstd),
    ];
    for (contents, by) in compressed {
        for name in ["g.gr", "g.gr.gz", "noname"] {
            let loaded = loaded::<u32>(name, &contents, &options(true)).unwrap();
            check(&loaded, true, true);
            assert_eq!((loaded.format, loaded.compression), (Format::Dimacs, Some(by)));
        }
    }
    everywhere("g.graph.gz", gzip(by_hand::METIS_FULL), Format::Metis, false, true);
    refuses_with("g.sg.gz", gzip("0 1\n"), &options(true), &["decompress the file first"]);
}

#[test]
fn output_of_the_zstd_program_is_read() {
    requires!(need::program("zstd"));
    let files = Files::new();
    let line = |i: u64| format!("{} {}\n", i % 1009, i * i % 1013);
    let text: String = (0..200_000).map(line).collect();
    let path = files.with("g.el", &text);
    for level in ["-1", "-19"] {
        let status =
            std::process::Command::new("zstd").args(["-qf", level]).arg(&path).status().unwrap();
        assert!(status.success());
        let compressed = load::<u32>(files.path("g.el.zst"), &options(true)).unwrap();
        let plain = load::<u32>(&path, &options(true)).unwrap();
        assert_eq!(both(&compressed.graph), both(&plain.graph));
        assert_eq!(compressed.compression, Some(Compression::Zstd));
    }
}

/// Several blocks, parsed by several threads in file order; and lines longer than a block.
#[test]
fn long_files_are_cut_at_line_ends() {
    let line = |i: u64| format!("{} {} {}\n", i % 70_001, i * 7 % 70_001, i % 250 + 1);
    let text: String = (0..900_000).map(line).collect();
    let expected = {
        let mut rows: Rows = vec![BTreeMap::new(); 70_001];
        for i in (0..900_000u64).filter(|i| i % 70_001 != i * 7 % 70_001) {
            let weight = rows[(i % 70_001) as usize].entry(i * 7 % 70_001).or_insert(u64::MAX);
            *weight = (*weight).min(i % 250 + 1);
        }
        rows
    };
    assert_eq!(both(&loaded::<u32>("g.wel", &text, &options(true)).unwrap().graph).0, expected);
    // All IDs occur, so relabelling changes nothing, whichever block they are in.
    let compact =
        loaded::<u32>("g.wel", &text, &LoadOptions { compact: true, ..options(true) }).unwrap();
    assert_eq!(both(&compact.graph).0, expected);
    assert!(compact.ids.listed().unwrap().iter().copied().eq(0..70_001));
    let mut broken = text.clone();
    // Not in the first block.
    broken.insert(text.rfind("\n69999 ").unwrap() + 6, 'x');
    let line = 1 + broken.lines().position(|line| line.contains('x')).unwrap();
    let words = format!("g.wel:{line}: \"69999x\"");
    refuses_with("g.wel", &broken, &options(true), &[&words]);

    let hub = 1_500_000;
    let mut metis = format!("{hub} {}\n", hub - 1);
    metis.extend((2..=hub).map(|v| format!("{v} ")));
    metis.push_str(&"\n1".repeat(hub - 1));
    let graph = loaded::<u32>("g.graph", &metis, &options(true)).unwrap().graph;
    assert_eq!(
        (graph.edges(), graph.out.degree(0), graph.out.degree(hub - 1)),
        (hub - 1, hub - 1, 1)
    );
}

#[test]
fn unsorted_rows_are_sorted() {
    // 0 → 2, 1, 1, 0 and 2 → 0.
    let mut file = Vec::new();
    for word in [1u64, 0, 3, 5, 4, 4, 5] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for end in [2u32, 1, 1, 0, 0, 0] {
        file.extend_from_slice(&end.to_le_bytes());
    }
    let graph = loaded::<u32>("g.gr", &file, &options(true)).unwrap().graph;
    assert_eq!(graph.out.neighbours(0), [1, 2]);
    assert_eq!((graph.dropped.self_loops, graph.dropped.duplicates), (1, 1));
    let graph = loaded::<u32>("g.gr", &file, &options(false)).unwrap().graph;
    assert_eq!((graph.out.neighbours(1), graph.out.neighbours(2)), (&[0][..], &[0][..]));
}
