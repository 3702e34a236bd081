//! Kinds of files that people publish: each is read as its writer meant it, or refused with the
//! flags that choose.

use hugepilot_graph::{Ids, LoadOptions, LoadedGraph, StatedCount, load};

use super::{Files, by_hand, described, gzip, has_words, loaded, options, refuses_with, rejects};

/// Directed or not, first ID, vertices, and edges by IDs of the file; an undirected edge once.
type Meaning = (bool, u64, u64, Vec<(u64, u64, u64)>);

pub(super) fn meaning(loaded: &LoadedGraph<u64>) -> Meaning {
    let graph = &loaded.graph;
    let Ids::From(first) = loaded.ids else { panic!("listed IDs") };
    let mut edges = Vec::new();
    for from in 0..graph.vertices() {
        for (i, &to) in graph.out.neighbours(from).iter().enumerate() {
            if graph.is_directed() || from as u64 <= to {
                let weight = graph.out.weights(from).get(i).copied().unwrap_or(0);
                edges.push((from as u64 + first, to + first, weight));
            }
        }
    }
    (graph.is_directed(), first, graph.vertices() as u64, edges)
}

/// Options of a command without flags for directions.
fn plain() -> LoadOptions<'static> {
    LoadOptions { directed: None, ..options(false) }
}

/// Checks that a file is read as these edges, counted from `first`.
#[track_caller]
fn reads(name: &str, text: impl AsRef<[u8]>, directed: bool, first: u64, edges: &[[u64; 3]]) {
    reads_with(name, text, plain(), directed, first, edges);
}

#[track_caller]
fn reads_with(
    name: &str,
    text: impl AsRef<[u8]>,
    options: LoadOptions<'_>,
    directed: bool,
    first: u64,
    edges: &[[u64; 3]],
) {
    let found = meaning(&loaded::<u64>(name, &text, &options).unwrap());
    let text = String::from_utf8_lossy(text.as_ref());
    let edges: Vec<_> = edges.iter().map(|&[from, to, weight]| (from, to, weight)).collect();
    assert_eq!((found.0, found.1, &found.3), (directed, first, &edges), "{text}");
}

#[track_caller]
fn refuses(name: &str, text: impl AsRef<[u8]>, words: &[&str]) {
    refuses_with(name, text, &plain(), words);
}

const TRIANGLE: [[u64; 3]; 3] = [[0, 1, 0], [0, 2, 0], [1, 2, 0]];
const WEIGHTED: [[u64; 3]; 3] = [[0, 1, 7], [0, 2, 8], [1, 2, 9]];

#[test]
fn names_of_columns_decide() {
    for text in [
        "source,target\n0,1\n0,2\n1,2\n",
        "\"from\";\"to\"\r\n0;1\r\n0;2\r\n1;2\r\n",
        ",source,target\n0,0,1\n1,0,2\n2,1,2\n",
        "EdgeId,Source,Target\n7,0,1\n8,0,2\n9,1,2\n",
        "\tsrc\tdst\n0\t0\t1\n1\t0\t2\n2\t1\t2\n",
        "from_node,to_node,timestamp\n0,1,1600000000\n0,2,1600000001\n1,2,1600000002\n",
        "\u{feff}u v\n0 1\n0 2\n1 2\n",
        "Source;Target;Label\n0;1;\n0;2;\"a;b\"\n1;2;x\n",
    ] {
        reads("g.csv", text, false, 0, &TRIANGLE);
    }
    for text in [
        "weight,source,target\n7,0,1\n8,0,2\n9,1,2\n",
        "source,target,weight,time\n0,1,7,5\n0,2,8,5\n1,2,9,5\n",
        "source,target,cost,weight\n0,1,3,7\n0,2,3,8\n1,2,3,9\n",
        "\"source\",\"target\",\"weight\"\n\"0\",\"1\",\"7\"\n\"0\",\"2\",\"8\"\n1,2,\"9\"\n",
        "Source;Target;Type;Id;Label;Weight\n0;1;Undirected;0;;7.0\n0;2;Undirected;1;;8\n\
         1;2;Undirected;2;;9.0\n",
        "u v distance\n0 1 7\n0 2 8\n1 2 9\n",
    ] {
        reads("g.csv", text, false, 0, &WEIGHTED);
    }
    let directed = "Source,Target,Type,Weight\n0,1,Directed,7\n0,2,Directed,8\n1,2,Directed,9\n";
    reads("g.csv", directed, true, 0, &WEIGHTED);
    let mixed = directed.replace("2,Directed,9", "2,Undirected,9");
    refuses("g.csv", mixed, &["g.csv:4:", "Undirected"]);
    for text in [
        "id,label\n0,1\n",
        "source,target\n0,1,7\n",
        "source,target,cost,length\n0,1,7,8\n",
        "source,source,target\n0,1,2\n",
    ] {
        refuses("g.csv", text, &["g.csv:2:", "column", "--columns"]);
    }
}

#[test]
fn columns_without_names_are_counted_on_every_line() {
    reads("us.electric.csv", "0 1 7\n0 2 8\n1 2 9\n", false, 0, &WEIGHTED);
    reads("g.el", "0 1 7\n0 2 8\n1 2 9\n", false, 0, &WEIGHTED);
    reads("g.edgelist", "0 1 {}\n0 2 {}\n1 2 {}\n", false, 0, &TRIANGLE);
    let dictionaries =
        "0 1 {'weight': 7}\n0 2 {'color': 'a,b', 'weight': 8}\n1 2 {'weight': 9.0}\n";
    reads("g.edgelist", dictionaries, false, 0, &WEIGHTED);
}

#[test]
fn ambiguous_columns_are_refused() {
    for (text, words) in [
        ("0 1\n0 2 8\n1 2 9\n", &["g.txt:1: columns vary: 2", "--skip-lines 1"][..]),
        ("0 1 7\n0 2 8\n1 2\n", &["g.txt:3: columns vary: 2"]),
        ("0 1\n0 1 2\n5 6\n", &["g.txt:3: columns vary: 2"]),
        ("0 1\n0 1 2\n5 6 7\n", &["g.txt:1: columns vary"]),
        ("source,target\n0,1,2\n", &["g.txt:2:"]),
        (
            "0 1 7 1\n0 2 8 1\n",
            &["g.txt:1: \"0 1 7 1\" has 4 columns", "--columns source,target,weight,-"],
        ),
        ("0 1 2\n1 0\n2 0 5 6\n", &["columns vary", "NEIGHBOUR"]),
        ("0 2 1 2\n1 1 0\n2 1 0\n", &["columns vary", "NEIGHBOUR"]),
        ("0 1 2\n1 0 2\n2 0 1\n", &["g.txt:1: \"0 1 2\" is either", "--format wel", "NEIGHBOUR"]),
        ("0;1;0,5\n0;2;1,5\n", &["g.txt:1:", "decimal comma", "tr , ."]),
        ("0\t1\t0,5\n0\t2\t1,5\n", &["g.txt:1:", "separator"]),
        ("1,024 1,043\n1,012 1,034\n", &["g.txt:1:", "separator"]),
        ("0,1\n0 2\n", &["g.txt"]),
        ("0,1\n0,,2\n", &["g.txt:2:"]),
        ("0,1\n0,2\n0,,3\n", &["g.txt:3: columns vary: 3"]),
        ("0,1,\n0,2,\n", &["g.txt:1:"]),
        ("0 1 {}\n0 2 {'weight': 3}\n", &["g.txt:2:"]),
        ("0 1 {'weight': 3}\n0 2 {}\n", &["g.txt:2:", "missing weight"]),
        ("0 1 {}\n0 2 {} 7\n", &["g.txt:2:", "{} 7"]),
        ("0 1 {}\n0 2 7\n", &["g.txt:2:", "\"7\""]),
        ("0 1 {'weight': 3}\n0 2 7\n", &["g.txt:2:", "\"7\""]),
        ("0 1 7\n0 2 {'weight': 3}\n", &["g.txt:2:"]),
        ("0 1 {'weight': 3}\n0 2 {'weight': 3}4\n", &["g.txt:2:"]),
        ("\"a\" \"b\"\n\"0\" \"x\"\n", &["g.txt:2:", "\"x\""]),
        ("0|1\n0|2\n", &["g.txt:1:", "one column"]),
        ("3\n0 1\n0 2\n", &["g.txt:1: columns vary: 1"]),
    ] {
        refuses("g.txt", text, words);
    }
    let long = "0 1\n".repeat(2_000_000) + "0 1 2\n";
    refuses("g.txt", long, &["g.txt:2000001: columns vary: 3"]);
    // Beyond the sample, in columns by name.
    for odd in ["7,0", "7,0,1,8", "7,0,1,"] {
        let long = "weight,source,target\n".to_owned() + &"7,0,1\n".repeat(2000) + odd + "\n";
        refuses("g.csv", long, &["g.csv:2002: columns vary"]);
    }
}

#[test]
fn flags_choose() {
    let four = "0 7 1 5\n0 8 2 5\n1 9 2 5\n";
    let columns = LoadOptions { columns: Some("source,weight,target,-"), ..plain() };
    reads_with("g.txt", four, columns, false, 0, &WEIGHTED);
    let rows = "0 1 1\n1 2 2\n2 3 3\n";
    let edges = [[0, 1, 1], [1, 2, 2], [2, 3, 3]];
    reads("g.wel", rows, false, 0, &edges);
    let wel = LoadOptions { format: Some(hugepilot_graph::Format::WeightedEdgeList), ..plain() };
    reads_with("g.txt", rows, wel, false, 0, &edges);
    let tree = "3 2\n0 1\n0 2\n";
    let skipped = |lines| LoadOptions { skip_lines: Some(lines), ..plain() };
    reads_with("g.txt", tree, skipped(1), false, 0, &TRIANGLE[..2]);
    reads_with("g.txt", tree, skipped(0), false, 0, &[[0, 1, 0], [0, 2, 0], [2, 3, 0]]);
    refuses_with("g.mtx", by_hand::MTX, &skipped(1), &["--skip-lines are for el"]);
}

#[test]
fn a_line_of_counts_is_no_edge() {
    let rest = "0 1\n0 2\n1 2\n0 3\n1 3\n2 3\n0 4\n";
    let edges = [[0, 1, 0], [0, 2, 0], [0, 3, 0], [0, 4, 0], [1, 2, 0], [1, 3, 0], [2, 3, 0]];
    let text = format!("5 7\n{rest}");
    let found = loaded::<u64>("g.txt", &text, &plain()).unwrap();
    assert_eq!(meaning(&found), (false, 0, 5, edges.map(|[a, b, c]| (a, b, c)).to_vec()));
    assert!(found.reading.count_line);
    // With isolated vertices at the end, with weights, from 1, and in several blocks.
    let six = loaded::<u64>("g.txt", format!("6 7\n{rest}"), &plain()).unwrap();
    assert_eq!(six.graph.vertices(), 6);
    let weighted = rest.replace('\n', " 5\n");
    reads("g.txt", format!("5 7\n{weighted}"), false, 0, &edges.map(|[a, b, _]| [a, b, 5]));
    reads("g.txt", format!("5 7 1\n{rest}"), false, 0, &edges);
    let from_1 = "4 6\n1 2\n1 3\n2 3\n1 4\n2 4\n3 4\n";
    let complete = [[1, 2, 0], [1, 3, 0], [1, 4, 0], [2, 3, 0], [2, 4, 0], [3, 4, 0]];
    reads("g.txt", from_1, false, 1, &complete);
    let many: String =
        (0..900_000).map(|i| format!("{} {}\n", i % 1000, 1000 + i / 1000)).collect();
    let found = loaded::<u64>("g.txt", format!("1900 900000\n{many}"), &plain()).unwrap();
    assert_eq!((found.graph.vertices(), found.graph.edges()), (1900, 900_000));
    assert_eq!(found.graph.out.degree(1899), 1000);
    let compact = LoadOptions { compact: true, ..plain() };
    assert_eq!(loaded::<u64>("g.txt", &text, &compact).unwrap().graph.edges(), 7);
    // A tree has a line of counts that may be an edge, and so has a list in both directions.
    for text in ["3 2\n0 1\n0 2\n", "5 14\n0 1\n1 0\n3 4\n", "3 3 3\n0 1 1\n1 2 1\n0 2 1\n"] {
        refuses("g.txt", text, &["g.txt:1:", "--skip-lines 1", "--skip-lines 0"]);
    }
}

#[test]
fn vertex_ids_are_those_of_the_file() {
    reads("g.txt", "1 2\n1 3\n2 3\n", false, 1, &[[1, 2, 0], [1, 3, 0], [2, 3, 0]]);
    reads("g.mtx", by_hand::MTX_SYMMETRIC, false, 1, &{
        let mut edges = by_hand::undirected();
        edges.retain(|(from, to, _)| from < to);
        edges.into_iter().map(|(from, to, weight)| [from + 1, to + 1, weight]).collect::<Vec<_>>()
    });
    reads("g.gr", "p sp 3 2\na 1 2 5\na 2 3 7\n", true, 1, &[[1, 2, 5], [2, 3, 7]]);
    reads("g.graph", "3 2\n2\n1 3\n2\n", false, 1, &[[1, 2, 0], [2, 3, 0]]);
    refuses("g.graph", "3 2\n2\n1,3\n2\n", &["g.graph:3:"]);
    // The stated number of vertices decides.
    let vertices = |count| LoadOptions { vertices: Some(count), ..plain() };
    reads_with("g.el", "1 2\n2 3\n", vertices(3), false, 1, &[[1, 2, 0], [2, 3, 0]]);
    reads_with("g.el", "1 2\n2 3\n", vertices(4), false, 0, &[[1, 2, 0], [2, 3, 0]]);
    refuses_with("g.el", "0 2\n2 3\n", &vertices(3), &["vertex 3 in a graph of 3"]);
}

#[test]
fn comments_are_compared_with_the_edges() {
    let differences = |text: &str| {
        let loaded = loaded::<u64>("g.txt", text, &plain()).unwrap();
        (loaded.unused_ids, loaded.reading.differences)
    };
    let whole = "# Nodes: 3 Edges: 3\n0 1\n0 2\n1 2\n";
    assert_eq!(differences(whole), (None, vec![]));
    let cut = StatedCount { what: "edges", stated: 3, found: 2 };
    let lost = StatedCount { what: "vertices", stated: 4, found: 3 };
    assert_eq!(differences(&whole.replace("1 2\n", "")), (None, vec![cut]));
    assert_eq!(differences(&whole.replace("Nodes: 3", "Nodes: 4")), (None, vec![lost]));
    // Gaps in the IDs are below a quarter, but the comment excludes vertices without edges.
    let gaps = "# Nodes: 5 Edges: 4\n0 1\n0 2\n1 2\n4 5\n";
    assert_eq!(differences(gaps), (Some(1), vec![]));
    let both = "# Nodes: 3 Edges: 3\n0 1\n1 0\n0 2\n2 0\n1 2\n2 1\n";
    assert_eq!(differences(both), (None, vec![]));
    assert_eq!(differences("% sym unweighted\n% 4 3 3\n1 2\n1 3\n2 3\n").1.len(), 1);
}

#[test]
fn directions_are_those_of_the_file() {
    let arcs = "p sp 3 4\na 1 2 7\na 2 1 7\na 2 3 8\na 3 2 8\n";
    reads("g.gr", arcs, false, 1, &[[1, 2, 7], [2, 3, 8]]);
    let one_way = arcs.replace("a 3 2 8", "a 3 2 9");
    let edges = [[1, 2, 7], [2, 1, 7], [2, 3, 8], [3, 2, 9]];
    reads("g.gr", &one_way, true, 1, &edges);
    reads_with("g.gr", arcs, options(true), true, 1, &[[1, 2, 7], [2, 1, 7], [2, 3, 8], [3, 2, 8]]);
    reads_with("g.gr", &one_way, options(false), false, 1, &[[1, 2, 7], [2, 3, 8]]);
    let snap = |direction: &str| format!("# {direction} graph: x\n0 1\n0 2\n1 2\n");
    reads("g.txt", snap("Directed"), true, 0, &TRIANGLE);
    reads("g.txt", snap("Undirected"), false, 0, &TRIANGLE);
    reads("g.txt", snap("Some"), false, 0, &TRIANGLE);
    reads("g.txt", snap("Directed") + "1 0\n2 0\n2 1\n", false, 0, &TRIANGLE);
    let general = "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n2 3\n";
    reads("g.mtx", general, true, 1, &[[1, 2, 0], [2, 3, 0]]);
    let loaded = loaded::<u64>("g.gr", arcs, &plain()).unwrap();
    assert_eq!(
        (loaded.graph.dropped.duplicates, loaded.reading.direction.name()),
        (0, "symmetric")
    );
}

#[test]
fn konect_states_directions_weights_and_sides() {
    reads("out.a", "% sym unweighted\n% 2 3 3\n1 2\n2 3\n", false, 1, &[[1, 2, 0], [2, 3, 0]]);
    reads(
        "out.a",
        "% asym posweighted\n1 2 7 1600000000\n3 2 8 1600000000\n",
        true,
        1,
        &[[1, 2, 7], [3, 2, 8]],
    );
    // Sources 1 to 2, then targets 1 to 3.
    let text = "% bip unweighted\n% 3 2 3\n1 1\n2 2\n2 3\n";
    let found = loaded::<u64>("out.b", text, &plain()).unwrap();
    assert_eq!(meaning(&found), (false, 1, 5, vec![(1, 3, 0), (2, 4, 0), (2, 5, 0)]));
    assert_eq!(found.reading.sources, Some(2));
    let compact = LoadOptions { compact: true, ..plain() };
    refuses_with("out.b", text, &compact, &["--compact"]);
}

#[test]
fn valid_forms_are_read() {
    let aligned = "c\taligned\np  sp\t 3   2\na\t1  2\t5\na  2 3  7\n";
    reads("noname", aligned, true, 1, &[[1, 2, 5], [2, 3, 7]]);
    let matrix = |field: &str, symmetry: &str, value: &str| {
        format!(
            "\u{feff}%%MatrixMarket MATRIX coordinate {field} {symmetry}\n% x\n3 3 2\n\
             2 1{value}\n3\t2 {value}\n"
        )
    };
    let lower = [[1, 2, 0], [2, 3, 0]];
    let five = [[1, 2, 5], [2, 3, 5]];
    reads("g.mtx", matrix("pattern", "symmetric", ""), false, 1, &lower);
    reads("g.mtx", matrix("integer", "symmetric", " 5"), false, 1, &five);
    reads("g.mtx", matrix("real", "symmetric", " 5.0e0"), false, 1, &five);
    reads("g.mtx", matrix("real", "general", " 5.0"), true, 1, &[[2, 1, 5], [3, 2, 5]]);
    for (field, symmetry, value) in [
        ("real", "skew-symmetric", " 5"),
        ("complex", "hermitian", " 5 1"),
        ("complex", "symmetric", " 5 1"),
    ] {
        let text = matrix(field, symmetry, value);
        refuses("g.mtx", &text, &["g.mtx:1:", "cannot be weights", "--ignore-weights"]);
        let ignored = LoadOptions { ignore_weights: true, ..plain() };
        reads_with("g.mtx", &text, ignored, false, 1, &lower);
    }
    let array = "%%MatrixMarket matrix array real general\n2 2\n0\n1\n1\n0\n";
    refuses("g.mtx", array, &["g.mtx:1:", "array", "coordinate"]);
    for (format, lines) in [
        ("", "2\n1 3\n2\n"),
        (" 0", "2\n1 3\n2\n"),
        (" 10", "9 2\n9 1 3\n9 2\n"),
        (" 010 2", "9 8 2\n9 8 1 3\n9 8 2\n"),
        (" 100", "4 2\n4 1 3\n4 2\n"),
        (" 110", "4 9 2\n4 9 1 3\n4 9 2\n"),
    ] {
        reads("g.graph", format!("3 2{format}\n{lines}"), false, 1, &lower);
    }
    for (format, lines) in [
        (" 1", "2 5\n1 5 3 5\n2 5\n"),
        (" 011", "9 2 5\n9 1 5 3 5\n9 2 5\n"),
        (" 101", "4 2 5\n4 1 5 3 5\n4 2 5\n"),
        (" 111 2", "4 9 8 2 5\n4 9 8 1 5 3 5\n4 9 8 2 5\n"),
    ] {
        reads("g.graph", format!("3 2{format}\n{lines}"), false, 1, &five);
    }
}

/// Returns a tar archive, as GNU tar and POSIX define it.
pub(super) fn tar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, contents) in members {
        let mut header = [0u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        let is_directory = name.ends_with('/');
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", contents.len()).as_bytes());
        header[156] = if is_directory { b'5' } else { b'0' };
        header[257..265].copy_from_slice(b"ustar\x0000");
        archive.extend(header);
        archive.extend(*contents);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

#[test]
fn a_member_of_an_archive_is_read() {
    let (matrix, vector) = (by_hand::MTX, "%%MatrixMarket matrix array real general\n");
    let compressed = gzip(matrix);
    let archive = tar(&[
        ("net/", b""),
        ("net/net_b.mtx", vector.as_bytes()),
        ("net/net.mtx", matrix.as_bytes()),
        ("net/net.mtx.gz", &compressed),
        ("net/net.graph", by_hand::METIS_FULL.as_bytes()),
    ]);
    let expected = meaning(&loaded::<u64>("g.mtx", matrix, &plain()).unwrap());
    let files = Files::new();
    for (name, contents) in [
        ("net.tar", archive.clone()),
        ("net.tar.gz", gzip(&archive)),
        ("net.mtx.gz", gzip(&archive)),
    ] {
        refuses(name, &contents, &["tar archive", "net/net.mtx", "--member net/net_b.mtx"]);
        let path = files.with(name, &contents);
        for member in ["net/net.mtx", "net/net.mtx.gz"] {
            let options = LoadOptions { member: Some(member), ..plain() };
            assert_eq!(meaning(&load(&path, &options).unwrap()), expected, "{name} {member}");
        }
        let metis = LoadOptions { member: Some("net/net.graph"), ..plain() };
        assert_eq!(load::<u64>(&path, &metis).unwrap().graph.edges(), 6);
        for (member, words) in [("net.mtx", "no member net.mtx"), ("net/net_b.mtx", "array")] {
            rejects(&path, &LoadOptions { member: Some(member), ..plain() }, &[words]);
        }
    }
    // An edge list would not show that its end is missing.
    let list = tar(&[("g.el", by_hand::EL.as_bytes())]);
    let options = LoadOptions { member: Some("g.el"), ..plain() };
    for (whole, end) in [(list.clone(), 512 + by_hand::EL.len()), (gzip(&list), 80)] {
        assert_eq!(loaded::<u64>("g.tar", &whole, &options).unwrap().graph.edges(), 6);
        for len in 0..end {
            loaded::<u64>("g.tar", &whole[..len], &options).unwrap_err();
        }
    }
    let options = LoadOptions { member: Some("x"), ..plain() };
    refuses_with("g.el", "0 1\n", &options, &["not a tar archive"]);
}

#[test]
fn weights_of_galois_may_be_real_numbers() {
    let file = |weights: &[u8]| {
        let mut file = by_hand::galois(1, false);
        file[8] = u8::try_from(weights.len() / 7).unwrap();
        file.resize(file.len().next_multiple_of(8), 0);
        [&file, weights].concat()
    };
    let reals = [0.5f64, 1.0, 2.5, 3.0, 1e6, 0.001, 7.0];
    let narrow: Vec<u8> = reals.iter().flat_map(|&real| (real as f32).to_le_bytes()).collect();
    let wide: Vec<u8> = reals.iter().flat_map(|real| real.to_le_bytes()).collect();
    for weights in [narrow, wide] {
        let words = ["real numbers such as 0.5", "--format galois", "--ignore-weights"];
        let error = loaded::<u64>("g.gr", file(&weights), &plain()).unwrap_err();
        has_words(&described(&error), &words);
    }
    let extreme = [0.5f32, 1e-20, 1.0, 2e13].iter().chain(&[7.0, 1e-30, 3.0]);
    let extreme: Vec<u8> = extreme.flat_map(|real| real.to_le_bytes()).collect();
    assert!(loaded::<u64>("g.gr", file(&extreme), &plain()).is_err());
    let integers: Vec<u8> = (1..8u32).flat_map(|i| (i * 100_000_000).to_le_bytes()).collect();
    assert!(loaded::<u64>("g.gr", file(&integers), &plain()).is_ok());
    let large: Vec<u8> = (1..8u32).flat_map(|i| (1_000_000_000 + i).to_le_bytes()).collect();
    assert!(loaded::<u64>("g.gr", file(&large), &plain()).is_err());
    let named = LoadOptions { format: Some(hugepilot_graph::Format::Galois), ..plain() };
    assert_eq!(
        loaded::<u64>("g.gr", file(&large), &named).unwrap().graph.out.weights(0)[0],
        1_000_000_001
    );
}

/// A header without a weight, a weight cut at a comma, and counts with isolated vertices.
#[test]
fn what_names_separators_and_counts_say_holds_on_each_line() {
    refuses("g.wel", "id,source,target\n7,1,2\n8,2,3\n", &["g.wel:2:", "column names"]);
    let columns = LoadOptions { columns: Some("source,target,weight,time"), ..plain() };
    let cut = "1 2 4 77\n".repeat(1100) + "3 9 5,25\n";
    refuses_with("g.txt", &cut, &columns, &["g.txt:1101:"]);
    let five = "6 9\n1 2\n1 3\n1 4\n1 5\n2 3\n2 4\n2 5\n3 4\n3 5\n";
    let found = meaning(&loaded::<u64>("g.txt", five, &plain()).unwrap());
    assert_eq!((found.1, found.2), (1, 6));
    reads("g.txt", "3 3\n0 1 7\n0 2 8\n1 2 9\n", false, 0, &WEIGHTED);
}
