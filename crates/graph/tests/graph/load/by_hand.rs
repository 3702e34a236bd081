//! A small graph in every format, written by hand.

/// Vertices; vertex 3 has no edges.
pub(crate) const VERTICES: u64 = 6;
/// From, to, and weight: 2 and 5 are joined in both directions.
pub(crate) const ARCS: [(u64, u64, u64); 7] =
    [(0, 1, 4), (0, 2, 1), (2, 1, 2), (1, 4, 7), (4, 0, 3), (2, 5, 9), (5, 2, 9)];

pub(crate) const EL: &str = "0 1\n0 2\n2 1\n1 4\n4 0\n2 5\n5 2\n";
pub(crate) const SNAP: &str = "\
    # Directed graph: small.txt\r\n# FromNodeId\tToNodeId\r\n0\t1\r\n0\t2\r\n\r\n2\t1\r\n\
    1\t4\r\n4\t0\r\n2\t5\r\n5\t2";
pub(crate) const CSV: &str = "source,target\n0,1\n0,2\n2,1\n1, 4\n4,0\n2,5\n5,2\n";
pub(crate) const WEL: &str = "0 1 4\n0 2 1\n% between\n2 1 2\n1 4 7\n4 0 3\n2 5 9\n5 2 9\n";
pub(crate) const CSV_WEIGHTED: &str =
    "from;to;length\n0;1;4\n0;2;1\n2;1;2\n1;4;7\n4;0;3\n2;5;9\n5;2;9\n";
pub(crate) const MTX: &str = "\
    %%MatrixMarket matrix coordinate pattern general\n% a comment\n6 6 7\n1 2\n1 3\n3 2\n2 5\n\
    5 1\n3 6\n6 3\n";
pub(crate) const MTX_WEIGHTED: &str = "\
    %%MatrixMarket matrix coordinate integer general\n6 6 7\n1 2 4\n1 3 1\n3 2 2\n2 5 7\n\
    5 1 3\n3 6 9\n6 3 9\n";
pub(crate) const MTX_SYMMETRIC: &str = "\
    %%MatrixMarket matrix coordinate integer symmetric\n6 6 6\n2 1 4\n3 1 1\n3 2 2\n5 2 7\n\
    5 1 3\n6 3 9\n";
pub(crate) const DIMACS: &str = "\
    c small\nc\np sp 6 7\na 1 2 4\na 1 3 1\nc between\na 3 2 2\na 2 5 7\na 5 1 3\na 3 6 9\n\
    a 6 3 9\n";
/// Each edge in the lines of both its vertices.
pub(crate) const METIS: &str = "% small\n6 6\n2 3 5\n1 3 5\n1 2 6\n\n1 2\n3\n";
pub(crate) const METIS_WEIGHTED: &str =
    "6 6 001\n2 4 3 1 5 3\n1 4 3 2 5 7\n1 1 2 2 6 9\n\n1 3 2 7\n3 9\n";
/// A size and two weights of each vertex come first.
pub(crate) const METIS_FULL: &str = "\
    6 6 111 2\n1 1 1 2 4 3 1 5 3\n1 1 1 1 4 3 2 5 7\n8 8 8 1 1 2 2 6 9\n1 0 0\n1 5 5 1 3 2 7\n\
    1 5 5 3 9\n";
/// First digit as in the tenth DIMACS challenge, and each edge in one line, as in the GAP benchmark
/// suite.
pub(crate) const METIS_ARCS: &str = "6 7 100\n2 3 \n5 \n2 6 \n\n1 \n3\n";
pub(crate) const LDBC_V: &str = "40\n10\n20\n7000000000\n50\n30\n";
/// 10, 20, 30, 40, 50 and 7000000000 become 0 to 5.
pub(crate) const LDBC_E: &str =
    "10 20 0.4\n10 30 0.1\n30 20 0.2\n20 50 0.7\n50 10 0.3\n30 7000000000 0.9\n7000000000 30 0.9\n";

fn words(into: &mut Vec<u8>, width: usize, values: impl IntoIterator<Item = u64>) {
    for value in values {
        into.extend_from_slice(&value.to_le_bytes()[..width]);
    }
}

/// Returns offsets, and edges with weights, of sorted arcs.
fn rows(arcs: &[(u64, u64, u64)]) -> (Vec<u64>, Vec<(u64, u64)>) {
    let mut arcs = arcs.to_vec();
    arcs.sort_unstable();
    let offset = |v| arcs.iter().filter(|arc| arc.0 < v).count() as u64;
    (
        (0..=VERTICES).map(offset).collect(),
        arcs.iter().map(|&(_, to, weight)| (to, weight)).collect(),
    )
}

/// Returns both directions of all arcs, once each.
pub(crate) fn undirected() -> Vec<(u64, u64, u64)> {
    let mut all: Vec<_> = ARCS.iter().flat_map(|&(a, b, w)| [(a, b, w), (b, a, w)]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

pub(crate) fn gap(weighted: bool, directed: bool) -> Vec<u8> {
    let arcs = if directed { ARCS.to_vec() } else { undirected() };
    let mut file = vec![u8::from(directed)];
    words(&mut file, 8, [arcs.len() as u64, VERTICES]);
    let reverse: Vec<_> = arcs.iter().map(|&(a, b, w)| (b, a, w)).collect();
    for arcs in [arcs, reverse].iter().take(1 + usize::from(directed)) {
        let (offsets, ends) = rows(arcs);
        words(&mut file, 8, offsets);
        for (to, weight) in ends {
            words(&mut file, 4, std::iter::once(to).chain(weighted.then_some(weight)));
        }
    }
    file
}

pub(crate) fn galois(version: u64, weighted: bool) -> Vec<u8> {
    let ((offsets, ends), mut file) = (rows(&ARCS), Vec::new());
    words(&mut file, 8, [version, if weighted { 4 } else { 0 }, VERTICES, 7]);
    words(&mut file, 8, offsets.into_iter().skip(1));
    words(&mut file, 4 * version as usize, ends.iter().map(|end| end.0));
    file.resize(file.len().next_multiple_of(8), 0);
    words(&mut file, 4, ends.iter().map(|end| end.1).filter(|_| weighted));
    file
}

/// Returns names and contents of the four files, or of three without weights.
pub(crate) fn four(weighted: bool) -> Vec<(&'static str, Vec<u8>)> {
    let (offsets, ends) = rows(&ARCS);
    let file = |values: Vec<u64>| {
        let mut file = Vec::new();
        words(&mut file, 4, values);
        file
    };
    let mut files = vec![
        ("num_nodes_edges.txt", b"6 7\n".to_vec()),
        ("node_array.bin", file(offsets)),
        ("edge_array.bin", file(ends.iter().map(|end| end.0).collect())),
        ("edge_values.bin", file(ends.iter().map(|end| end.1).collect())),
    ];
    files.truncate(3 + usize::from(weighted));
    files
}
