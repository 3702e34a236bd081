//! Files with features drawn at random, as people write them. Each is read as meant, refused, or
//! read with a warning; never wrong without a word. The generator knows the edges, and writes each
//! file without the code under test.
//!
//! `HUGEPILOT_FILES=5000 HUGEPILOT_SEED=7` makes more files, from another seed.

mod binary;
mod lists;
mod matrices;

use std::collections::BTreeMap;

use hugepilot_graph::{Format, LoadOptions, LoadedGraph, load};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::kinds::tar;
use super::{Files, gzip, options};

/// Random numbers: `splitmix64`.
pub(super) struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// Meaning of a file.
#[derive(Clone, Debug)]
pub(super) struct Truth {
    /// Whether edges have a direction; `None` if the file does not say so.
    directed: Option<bool>,
    /// Whether the file says that also a symmetric graph is directed.
    keeps_directions: bool,
    weighted: bool,
    /// Vertices, if the file states them.
    vertices: Option<u64>,
    /// Edges with weights by IDs of the file, as they are in it; without weights, weights are 0.
    edges: Vec<(u64, u64, u64)>,
    /// Whether the file must be read: nothing in it is damaged, ambiguous or unsupported.
    is_clear: bool,
}

impl Truth {
    /// Draws edges between `vertices` vertices from `first` on.
    fn draw(draw: &mut Draw, first: u64, weighted: bool) -> Self {
        let vertices = 2 + draw.below(40);
        let count = 1 + draw.below(3 * vertices);
        let mut edge = || {
            let (from, to) = (first + draw.below(vertices), first + draw.below(vertices));
            (from, to, if weighted { 1 + draw.below(200) } else { 0 })
        };
        let edges = (0..count).map(|_| edge()).collect();
        let (directed, vertices) = (None, Some(vertices));
        Self { directed, keeps_directions: false, weighted, vertices, edges, is_clear: true }
    }

    /// Makes the edges symmetric, with one weight for both directions.
    fn symmetrize(&mut self) {
        let mut all = BTreeMap::new();
        for &(from, to, weight) in &self.edges {
            all.entry((from.min(to), from.max(to))).or_insert(weight);
        }
        let both = |((from, to), weight)| [(from, to, weight), (to, from, weight)];
        self.edges = all.into_iter().flat_map(both).collect();
        self.edges.dedup();
    }

    /// Returns the graph: without self-loops and duplicates, of which the least weight stays.
    fn graph(&self, directed: bool) -> BTreeMap<(u64, u64), u64> {
        let mut graph = BTreeMap::new();
        for &(from, to, weight) in self.edges.iter().filter(|edge| edge.0 != edge.1) {
            let ends = if directed { (from, to) } else { (from.min(to), from.max(to)) };
            let least = graph.entry(ends).or_insert(weight);
            *least = weight.min(*least);
        }
        graph
    }

    /// Whether each edge is there in both directions as often, with the same weights.
    fn is_symmetric(&self) -> bool {
        let mut counts = BTreeMap::new();
        for &(from, to, weight) in &self.edges {
            *counts.entry((from.min(to), from.max(to), weight)).or_insert(0i64) +=
                i64::from(from < to) - i64::from(from > to);
        }
        counts.values().all(|&count| count == 0)
    }
}

/// File with its meaning.
pub(super) struct Made {
    name: &'static str,
    contents: Vec<u8>,
    truth: Truth,
    /// Options that the user states.
    scale: Option<f64>,
    member: Option<&'static str>,
}

impl Made {
    fn new(name: &'static str, contents: impl Into<Vec<u8>>, truth: Truth) -> Self {
        Self { name, contents: contents.into(), truth, scale: None, member: None }
    }

    /// Compresses or archives some files.
    fn packed(mut self, draw: &mut Draw) -> Self {
        self.contents = match draw.below(8) {
            0 => gzip(&self.contents),
            1 => compress_to_vec(&self.contents[..], CompressionLevel::Fastest),
            2 => {
                let (begin, end) = self.contents.split_at(self.contents.len() / 2);
                [gzip(begin), gzip(end)].concat()
            }
            3 => {
                self.member = Some(self.name);
                let archive = tar(&[("readme", b"1 2\n"), (self.name, &self.contents)]);
                if draw.one_in(2) { gzip(archive) } else { archive }
            }
            _ => return self,
        };
        self
    }
}

/// Compares a loaded graph with its meaning.
fn compare(truth: &Truth, loaded: &LoadedGraph<u64>) -> Result<(), String> {
    let graph = &loaded.graph;
    let directed = match truth.directed {
        Some(directed) => directed && (truth.keeps_directions || !truth.is_symmetric()),
        None => false,
    };
    if graph.is_directed() != directed {
        return Err(format!("directed: {}", graph.is_directed()));
    }
    if truth.vertices.is_some_and(|vertices| vertices != graph.vertices() as u64) {
        return Err(format!("{} vertices", graph.vertices()));
    }
    let mut found = BTreeMap::new();
    for from in 0..graph.vertices() {
        for (i, &to) in graph.out.neighbours(from).iter().enumerate() {
            let (a, b) = (loaded.ids.of(from), loaded.ids.of(to as usize));
            if directed || a <= b {
                found.insert((a, b), graph.out.weights(from).get(i).copied().unwrap_or(0));
            }
        }
    }
    let expected = truth.graph(directed);
    if found == expected { Ok(()) } else { Err(format!("{found:?}, expected {expected:?}")) }
}

/// Loads files of a kind. Returns how many were read, and how many of these with a warning.
fn check(kind: &str, make: impl Fn(&mut Draw) -> Made) {
    let of = |name: &str, default| {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (count, seed) = (of("HUGEPILOT_FILES", 150u64), of("HUGEPILOT_SEED", 1u64));
    let files = Files::new();
    let (mut read, mut clear) = (0, 0);
    for i in 0..count {
        let mut draw = Draw(seed.wrapping_mul(0x1_0000_0001).wrapping_add(i));
        let made = make(&mut draw);
        let path = files.with(made.name, &made.contents);
        let options = LoadOptions {
            directed: None,
            scale_weights: made.scale,
            member: made.member,
            ..options(false)
        };
        let text = String::from_utf8_lossy(&made.contents[..made.contents.len().min(3000)]);
        let about = || format!("{kind} {i}: {} {:?}\n{text}", made.name, made.truth);
        clear += u64::from(made.truth.is_clear);
        match load::<u64>(&path, &options) {
            Ok(loaded) => {
                read += 1;
                let warns = !loaded.reading.differences.is_empty();
                let right = compare(&made.truth, &loaded);
                assert!(right.is_ok() || warns && !made.truth.is_clear, "{right:?}\n{}", about());
            }
            Err(error) => assert!(!made.truth.is_clear, "{error}\n{}", about()),
        }
        std::fs::remove_file(path).unwrap();
    }
    assert!(clear > count / 4 && read > count / 4, "{kind}: {read} read, {clear} clear");
}

#[test]
fn lists_are_right_or_refused() {
    check("list", lists::list);
}

#[test]
fn tables_with_names_are_right_or_refused() {
    check("table", lists::table);
}

#[test]
fn lists_of_konect_and_networkx_are_right_or_refused() {
    check("konect", lists::konect);
    check("networkx", lists::networkx);
}

#[test]
fn adjacency_lists_are_refused_or_right() {
    for i in 0..300 {
        let made = lists::adjacency(&mut Draw(i));
        let options = LoadOptions { directed: None, ..options(false) };
        if let Ok(loaded) = super::loaded::<u64>(made.name, &made.contents, &options) {
            let text = String::from_utf8_lossy(&made.contents);
            assert_eq!(compare(&made.truth, &loaded), Ok(()), "{i}\n{text}");
        }
    }
}

#[test]
fn text_with_headers_is_right_or_refused() {
    check("mtx", matrices::matrix_market);
    check("dimacs", matrices::dimacs);
    check("metis", matrices::metis);
}

#[test]
fn binaries_are_right_or_refused() {
    check("galois", binary::galois);
    check("gap", binary::gap);
    check("hpg", binary::native);
}

/// The directory of four files, and the pair of LDBC.
#[test]
fn several_files_are_right_or_refused() {
    for seed in 0..150 {
        let mut draw = Draw(seed);
        let (files, options) = (Files::new(), LoadOptions { directed: None, ..options(false) });
        let (parts, truth) = binary::four_files(&mut draw);
        parts.iter().for_each(|(name, contents)| drop(files.with(name, contents)));
        let loaded = load::<u64>(files.path(""), &options).unwrap();
        assert_eq!(compare(&truth, &loaded), Ok(()), "{seed}");
        assert_eq!(loaded.format, Format::FourFiles);
        let (vertices, edges, truth) = lists::ldbc(&mut draw);
        files.with("g.v", vertices);
        let path = files.with("g.e", &edges);
        match load::<u64>(path, &options) {
            Ok(loaded) => assert_eq!(compare(&truth, &loaded), Ok(()), "{seed}\n{edges}"),
            Err(error) => assert!(!truth.is_clear, "{error}\n{edges}"),
        }
    }
}
