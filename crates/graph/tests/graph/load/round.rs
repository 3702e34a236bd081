//! Round trips: saved graphs load as the same graphs.

use hugepilot_graph::{
    Build, Csr, Edge, EdgeList, Format, Graph, GraphError, Ids, LoadOptions, PagePlan, ThreadPool,
    Width, load, save,
};
use proptest::prelude::*;

use super::{Files, both, options};

/// Whether two graphs have the same rows, in any width.
fn same<A: Width, B: Width>(one: &Graph<A>, other: &Graph<B>) -> bool {
    let rows = |one: &Csr<A>, other: &Csr<B>| {
        one.vertices() == other.vertices()
            && (0..one.vertices()).all(|v| {
                let [a, b] = [one.neighbours(v), one.weights(v)];
                let [c, d] = [other.neighbours(v), other.weights(v)];
                a.iter()
                    .chain(b)
                    .map(|value| value.at())
                    .eq(c.iter().chain(d).map(|value| value.at()))
            })
    };
    rows(&one.out, &other.out)
        && rows(one.incoming(), other.incoming())
        && one.is_directed() == other.is_directed()
}

fn built<V: Width>(list: &EdgeList, directed: bool) -> Graph<V> {
    Build { directed, pages: PagePlan::default(), pool: ThreadPool::new(2) }.graph(list).unwrap()
}

/// Whether the format can store the graph.
fn fits(format: Format, directed: bool, weighted: bool) -> bool {
    match format {
        Format::Ldbc => false,
        Format::Metis => !directed,
        Format::WeightedEdgeList | Format::WeightedGap | Format::Dimacs => weighted,
        Format::EdgeList | Format::Gap => !weighted,
        _ => true,
    }
}

fn check<V: Width>(list: &EdgeList, directed: bool) {
    let (graph, files) = (built::<V>(list, directed), Files::new());
    let weighted = graph.out.is_weighted();
    for format in Format::ALL.into_iter().filter(|&format| fits(format, directed, weighted)) {
        let path = files.path(&format!("graph-{format}"));
        let bytes = save(&path, true, format, &graph, &Ids::default()).unwrap();
        let count = matches!(format, Format::EdgeList | Format::WeightedEdgeList);
        let vertices = count.then_some(list.vertices);
        let options = LoadOptions { format: Some(format), vertices, ..options(directed) };
        let again = load::<V>(&path, &options).unwrap();
        assert_eq!(again.file, bytes, "{format}");
        assert!(same(&again.graph, &graph), "{format}");
        assert_eq!(again.graph.out.heaviest(), graph.out.heaviest(), "{format}");
        // In the other width. The format of a binary file is detected.
        let format = format.is_text().then_some(format);
        let options = LoadOptions { format, ..options };
        let is_same = if V::BITS == 32 {
            same(&load::<u64>(&path, &options).unwrap().graph, &graph)
        } else {
            same(&load::<u32>(&path, &options).unwrap().graph, &graph)
        };
        assert!(is_same, "{format:?}");
    }
    let left = std::fs::read_dir(files.path(""))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(".part"));
    assert_eq!(left.count(), 0, "something half is left");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_format_round_trips(
        vertices in 1u64..40,
        ends in prop::collection::vec((any::<u64>(), any::<u64>(), 1u64..1000), 0..120),
        directed: bool,
        weighted: bool,
    ) {
        let edge = |(from, to, weight)| {
            let weight = if weighted { weight } else { 0 };
            Edge { from: from % vertices, to: to % vertices, weight }
        };
        let list = EdgeList { vertices, edges: ends.into_iter().map(edge).collect(), weighted };
        check::<u32>(&list, directed);
        check::<u64>(&list, directed);
    }
}

/// Larger than one chunk of reads and writes.
#[test]
fn large_graphs_round_trip() {
    let edge = |i: u64| Edge { from: i % 5003, to: i * i % 5009, weight: i % 251 + 1 };
    for weighted in [false, true] {
        let edges = (0..400_000)
            .map(edge)
            .map(|edge| Edge { weight: if weighted { edge.weight } else { 0 }, ..edge });
        let list = EdgeList { vertices: 5010, edges: edges.collect(), weighted };
        check::<u32>(&list, weighted);
        check::<u64>(&list, !weighted);
    }
}

#[test]
fn vertex_ids_are_stored_or_written() {
    let (graph, files) = (built::<u32>(&EdgeList::new(3, [(0, 1), (2, 1)]), true), Files::new());
    let ids = [5, 6, 70_000_000_000];
    let listed = Ids::list(3, |v| ids[v]).unwrap();
    let path = files.path("g.hpg");
    save(&path, true, Format::Native, &graph, &listed).unwrap();
    assert_eq!(load::<u32>(&path, &options(true)).unwrap().ids.listed().unwrap(), ids);
    let path = files.path("g.el");
    save(&path, true, Format::EdgeList, &graph, &listed).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "5 6\n70000000000 6\n");
    let compact = LoadOptions { compact: true, ..options(true) };
    assert_eq!(both(&load::<u32>(&path, &compact).unwrap().graph), both(&graph));
    let two = Ids::list(2, |v| ids[v]).unwrap();
    let error = save(&path, true, Format::Native, &graph, &two).unwrap_err().to_string();
    assert!(error.contains("2 vertex IDs for 3 vertices"), "{error}");
}

/// Makes a graph of one edge, whose weight requires 64 bits.
fn heavy() -> Graph<u64> {
    let edges = vec![Edge { from: 0, to: 1, weight: 1 << 31 }];
    built(&EdgeList { vertices: 2, edges, weighted: true }, true)
}

#[test]
fn a_failure_leaves_existing_files() {
    let (graph, files) = (built::<u64>(&EdgeList::new(3, [(0, 1), (2, 1)]), true), Files::new());
    for format in [Format::FourFiles, Format::Galois] {
        let path = files.path(format.name());
        save(&path, false, format, &graph, &Ids::default()).unwrap();
        save(&path, true, format, &heavy(), &Ids::default()).unwrap_err();
        let error = save(&path, false, format, &graph, &Ids::default()).unwrap_err();
        let exists = |source: &std::io::Error| source.kind() == std::io::ErrorKind::AlreadyExists;
        assert!(matches!(&error, GraphError::Io { source, .. } if exists(source)), "{error}");
        assert!(same(&load::<u32>(&path, &options(true)).unwrap().graph, &graph), "{format}");
    }
}

#[test]
fn a_graph_that_a_format_cannot_store_leaves_no_file() {
    let (files, heavy) = (Files::new(), heavy());
    for format in
        [Format::WeightedGap, Format::Galois, Format::Metis, Format::Ldbc, Format::FourFiles]
    {
        let path = files.path("g");
        let error = save(&path, true, format, &heavy, &Ids::default()).unwrap_err();
        assert!(matches!(error, GraphError::Save { .. }), "{error}");
        assert!(!path.exists());
    }
    let plain = built::<u32>(&EdgeList::new(2, [(0, 1)]), true);
    let error = save(files.path("g.wel"), true, Format::WeightedEdgeList, &plain, &Ids::default())
        .unwrap_err();
    assert!(matches!(error, GraphError::Unweighted), "{error}");
    let error = save("/nowhere/at/all", true, Format::EdgeList, &plain, &Ids::default());
    assert!(error.unwrap_err().to_string().contains("/nowhere/at/all"));
    assert_eq!(std::fs::read_dir(files.path("")).unwrap().count(), 0);
}
