//! Binary files with rows.

use super::{Draw, Made, Truth};

/// Offsets, and edges with weights, of edges in any order.
struct Rows {
    offsets: Vec<u64>,
    ends: Vec<u64>,
    weights: Vec<u64>,
}

impl Rows {
    fn of(truth: &Truth, reversed: bool) -> Self {
        let vertices = truth.vertices.unwrap_or(0);
        let turn =
            |&(from, to, weight)| if reversed { (to, from, weight) } else { (from, to, weight) };
        let mut edges: Vec<_> = truth.edges.iter().map(turn).collect();
        // Rows stay in the order of the edges.
        edges.sort_by_key(|edge| edge.0);
        let before = |v| edges.iter().filter(|edge| edge.0 < v).count() as u64;
        Self {
            offsets: (0..=vertices).map(before).collect(),
            ends: edges.iter().map(|edge| edge.1).collect(),
            weights: edges.iter().map(|edge| edge.2).collect(),
        }
    }
}

fn put(file: &mut Vec<u8>, width: usize, values: &[u64]) {
    values.iter().for_each(|value| file.extend_from_slice(&value.to_le_bytes()[..width]));
}

/// Draws edges; rows may be unsorted, with duplicates and self-loops.
fn draw_edges(draw: &mut Draw, weighted: bool, is_symmetric: bool) -> Truth {
    let mut truth = Truth::draw(draw, 0, weighted);
    if is_symmetric {
        truth.symmetrize();
    }
    if draw.one_in(2) {
        truth.edges.sort_unstable();
        truth.edges.dedup_by_key(|edge| (edge.0, edge.1));
        truth.edges.retain(|edge| edge.0 != edge.1);
    }
    truth
}

/// Galois: weights are integers or real numbers, of which the file has only the size.
pub(super) fn galois(draw: &mut Draw) -> Made {
    let (kind, is_symmetric, version) = (draw.below(5), draw.one_in(2), 1 + draw.below(2));
    let mut truth = draw_edges(draw, kind > 0, is_symmetric);
    truth.directed = Some(true);
    let rows = Rows::of(&truth, false);
    let data = [0, 4, 8, 4, 8][kind as usize];
    let (vertices, edges) = (truth.vertices.unwrap_or(0), rows.ends.len() as u64);
    let mut file = Vec::new();
    put(&mut file, 8, &[version, data, vertices, edges]);
    put(&mut file, 8, &rows.offsets[1..]);
    put(&mut file, 4 * version as usize, &rows.ends);
    if kind > 0 || draw.one_in(2) {
        file.resize(file.len().next_multiple_of(8), 0);
    }
    for &weight in &rows.weights {
        match kind {
            1 | 2 => put(&mut file, data as usize, &[weight]),
            3 => file.extend((weight as f32 / 4.0).to_le_bytes()),
            4 => file.extend((weight as f64 / 4.0).to_le_bytes()),
            _ => {}
        }
    }
    truth.is_clear = kind < 3 || edges == 0;
    Made::new(draw.pick(&["g.gr", "noname"]), file, truth)
}

/// The GAP benchmark suite.
pub(super) fn gap(draw: &mut Draw) -> Made {
    let (weighted, directed) = (draw.one_in(2), draw.one_in(2));
    let mut truth = draw_edges(draw, weighted, !directed);
    // The file states directions, also of a symmetric graph.
    truth.keeps_directions = true;
    truth.directed = Some(directed);
    let mut file = vec![u8::from(directed)];
    put(&mut file, 8, &[truth.edges.len() as u64, truth.vertices.unwrap_or(0)]);
    for reversed in [false, true].into_iter().take(1 + usize::from(directed)) {
        let rows = Rows::of(&truth, reversed);
        put(&mut file, 8, &rows.offsets);
        for (end, weight) in rows.ends.iter().zip(&rows.weights) {
            put(&mut file, 4, &[*end]);
            put(&mut file, 4, &[*weight][..usize::from(weighted)]);
        }
    }
    if draw.one_in(8) {
        file.truncate(file.len() - 1 - draw.below(16) as usize);
        truth.is_clear = false;
    }
    Made::new(draw.pick(&["g.sg", "noname"]), file, truth)
}

/// The native format, with the first ID or a list of IDs.
pub(super) fn native(draw: &mut Draw) -> Made {
    let (weighted, directed, ids) = (draw.one_in(2), draw.one_in(2), draw.below(3));
    let mut truth = draw_edges(draw, weighted, !directed);
    while truth.edges.is_empty() {
        truth = draw_edges(draw, weighted, !directed);
    }
    truth.keeps_directions = true;
    truth.directed = Some(directed);
    let width = draw.pick(&[4, 8]);
    let [out, into] = [false, true].map(|reversed| Rows::of(&truth, reversed));
    let empty = || Rows { offsets: vec![], ends: vec![], weights: vec![] };
    let into = if directed { into } else { empty() };
    let weights = |rows: &Rows| if weighted { rows.weights.clone() } else { Vec::new() };
    let vertices = truth.vertices.unwrap_or(0);
    let listed: Vec<u64> = (0..vertices).map(|v| v * 1_000_000_007 + 3).collect();
    let sections = [
        (width, out.offsets.clone()),
        (width, out.ends.clone()),
        (width, weights(&out)),
        (width, into.offsets.clone()),
        (width, into.ends.clone()),
        (width, weights(&into)),
        (8, if ids == 2 { listed.clone() } else { Vec::new() }),
    ];
    let mut file = vec![0; 4096];
    file[..8].copy_from_slice(b"hpgraph\n");
    let flags = u64::from(directed) + 2 * u64::from(weighted) + [0, 8, 4][ids as usize];
    let mut words = vec![vertices, out.ends.len() as u64];
    for (width, values) in &sections {
        let mut bytes = Vec::new();
        put(&mut bytes, *width, values);
        if bytes.is_empty() {
            words.extend([0; 3]);
            continue;
        }
        file.resize(file.len().next_multiple_of(4096), 0);
        words.extend([file.len() as u64, bytes.len() as u64, crc32c::crc32c(&bytes).into()]);
        file.extend(bytes);
    }
    for (at, value) in [(8, 2 + ((width as u64) << 32)), (16, flags)]
        .into_iter()
        .chain((24..).step_by(8).zip(words))
    {
        file[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    let sum = crc32c::crc32c(&file[..4096]);
    file[20..24].copy_from_slice(&sum.to_le_bytes());
    let id = |v: u64| [v, v + 1, listed[v as usize]][ids as usize];
    truth.edges.iter_mut().for_each(|edge| (edge.0, edge.1) = (id(edge.0), id(edge.1)));
    Made::new("g.hpg", file, truth)
}

/// Names and contents of the four files.
pub(super) fn four_files(draw: &mut Draw) -> (Vec<(&'static str, Vec<u8>)>, Truth) {
    let (weighted, is_symmetric) = (draw.one_in(2), draw.one_in(2));
    let mut truth = draw_edges(draw, weighted, is_symmetric);
    truth.directed = Some(true);
    let rows = Rows::of(&truth, false);
    let sizes = format!("{} {}\n", truth.vertices.unwrap_or(0), rows.ends.len());
    let mut files = vec![("num_nodes_edges.txt", sizes.into_bytes())];
    for (name, values) in [
        ("node_array.bin", &rows.offsets),
        ("edge_array.bin", &rows.ends),
        ("edge_values.bin", &rows.weights),
    ] {
        let mut file = Vec::new();
        put(&mut file, 4, values);
        files.push((name, file));
    }
    files.truncate(3 + usize::from(weighted));
    (files, truth)
}
