//! METIS: a line with the numbers of vertices and edges, and then a line for each vertex, with its neighbours counted from 1.

use memchr::memchr3_iter;

use super::list::Part;
use super::number::{Weights, gap, is_end, number, skip_line, weight};
use super::options::{LoadOptions, vertex_from_1};
use super::symmetry::Symmetry;
use super::text::{Budget, SyntaxError, Text, fits, parse};
use super::{FileGraph, sizes};
use crate::{Edge, EdgeSource, Result, Width};

/// What the first line says.
#[derive(Clone, Copy, Debug)]
struct Header {
    vertices: u64,
    edges: u64,
    weighted: bool,
    /// Numbers before the first neighbour of a line.
    before: usize,
    /// There may be one more: where METIS has the size of each vertex, the tenth DIMACS challenge means by the same digit
    /// that edges may be there twice.
    sized: bool,
}

/// Reads the text that `open` opens, twice where the header can mean two things. `file` is its length, packed or not.
///
/// # Errors
/// [`GraphError::Format`](crate::GraphError::Format), [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of building.
pub(super) fn load<'a, V: Width>(
    open: impl Fn() -> Text<'a>,
    file: u64,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let (header, without) = attempt::<V>(&mut open(), file, 0, options)?;
    let rows = match without {
        Err(error) if header.sized => {
            attempt::<V>(&mut open(), file, 1, options)?.1.map_err(|_| error)?
        }
        rows => rows?,
    };
    FileGraph::of_list(rows.0, rows.1, None, options)
}

type Attempt<V> = (Header, Result<(Rows<V>, bool)>);

fn attempt<V: Width>(
    text: &mut Text<'_>,
    file: u64,
    more: usize,
    options: &LoadOptions<'_>,
) -> Result<Attempt<V>> {
    let header = header(text)?;
    options.justify::<V>(header.vertices, file).map_err(|what| text.error(what))?;
    // A neighbour is a digit and a gap; each edge is there at least once.
    if header.edges > file / 2 {
        return Err(text.error(format!("{} edges do not fit into {file} bytes", header.edges)));
    }
    let weights = options.weights::<V>(text.path(), header.weighted)?;
    let list = 2 * header.edges * (if weights.is_some() { 3 } else { 2 }) * size_of::<V>() as u64;
    fits(
        options.peak::<V>(header.vertices, header.edges, weights.is_some(), list),
        options.available,
    )?;
    Ok((header, rows(text, header, header.before + more, weights, options)))
}

fn header(text: &mut Text<'_>) -> Result<Header> {
    let line = text.telling(b"%")?.unwrap_or_default();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let kind = words.get(2).copied().unwrap_or("0");
    let constraints = words.get(3).map_or(Some(1), |word| word.parse::<usize>().ok());
    let (Some([vertices, edges]), Some(constraints @ 0..=1000), 2..=4) =
        (words.get(..2).and_then(|words| sizes(&words.join(" "))), constraints, words.len())
    else {
        let line: String = line.chars().take(80).collect();
        return Err(
            text.error(format!("{line:?} should be VERTICES EDGES [FORMAT [WEIGHTS OF A VERTEX]]"))
        );
    };
    if kind.len() > 3 || !kind.bytes().all(|digit| matches!(digit, b'0' | b'1')) {
        return Err(text.error(format!("the format {kind:?}; it has up to three digits, 0 or 1")));
    }
    let digit = |place: usize| kind.bytes().rev().nth(place) == Some(b'1');
    let before = if digit(1) { constraints } else { 0 };
    Ok(Header { vertices, edges, weighted: digit(0), before, sized: digit(2) })
}

/// Reads the lines of the vertices. Whether edges have a direction comes with them.
fn rows<V: Width>(
    text: &mut Text<'_>,
    header: Header,
    before: usize,
    weights: Option<Weights>,
    options: &LoadOptions<'_>,
) -> Result<(Rows<V>, bool)> {
    let kind = Kind { before, weighted: header.weighted, weights };
    let blocks = parse(text, options.build.pool, &Budget::new(options.available), |block| {
        let rows = block_rows::<V>(block, kind, header.vertices)?;
        let bytes = rows.part.bytes();
        Ok((rows, bytes))
    })?;
    let mut start = 0;
    let mut starts = Vec::with_capacity(blocks.len());
    for block in &blocks {
        starts.push(start);
        start += block.lines;
    }
    if start < header.vertices {
        let what =
            format!("{} vertices, but the file ends after {start} lines of them", header.vertices);
        return Err(text.error(what));
    }
    for (block, start) in blocks.iter().zip(&starts) {
        if start + block.told > header.vertices {
            return Err(
                text.error(format!("{} vertices, but the file has more lines", header.vertices))
            );
        }
    }
    let mut rows = Rows {
        blocks,
        starts,
        vertices: header.vertices,
        weighted: weights.is_some(),
        half: false,
        loops: 0,
    };
    let found = rows.blocks.iter().map(|block| block.part.edges.len() as u64).sum::<u64>();
    if found == header.edges && found > 0 {
        // Each edge once, as the GAP benchmark suite has them.
        return Ok((rows, options.build.directed));
    }
    let symmetry = (0..rows.blocks.len())
        .fold(Symmetry::default(), |sum, block| sum.and(rows.symmetry(block)));
    if found + symmetry.loops != 2 * header.edges && found != 2 * header.edges {
        let what = format!(
            "{} edges, but {found} neighbours, which should be twice as many",
            header.edges
        );
        return Err(text.error(what));
    }
    if !symmetry.is_whole() {
        let what =
            "of which some are in the line of one of their vertices only, or with two weights";
        return Err(text.error(format!("{} edges, {what}", header.edges)));
    }
    (rows.half, rows.loops) = (true, symmetry.loops);
    Ok((rows, false))
}

/// What stands in a line.
#[derive(Clone, Copy, Debug)]
struct Kind {
    before: usize,
    weighted: bool,
    /// What becomes of the weights.
    weights: Option<Weights>,
}

/// Lines of vertices, the first of which is not known yet.
struct Block<V: Width> {
    /// `from` counts from the first line of the block.
    part: Part<V>,
    /// How many lines there are.
    lines: u64,
    /// The same, up to the last that says something.
    told: u64,
}

fn block_rows<V: Width>(
    text: &[u8],
    kind: Kind,
    vertices: u64,
) -> std::result::Result<Block<V>, SyntaxError> {
    let memory = |error: crate::GraphError| SyntaxError { at: 0, what: error.to_string() };
    let most = (memchr3_iter(b' ', b'\t', b'\n', text).count() + 1).min(text.len() / 2 + 1);
    let part = Part::with_room(most, kind.weights.is_some()).map_err(memory)?;
    let (mut rows, mut at) = (Block { part, lines: 0, told: 0 }, 0);
    while at < text.len() {
        if text[at] == b'%' {
            skip_line(text, &mut at);
            continue;
        }
        gap(text, &mut at);
        let from = V::new(rows.lines as usize);
        rows.lines += 1;
        if !is_end(text, at) {
            rows.told = rows.lines;
            for _ in 0..kind.before {
                number(text, &mut at)?;
                gap(text, &mut at);
            }
        }
        while !is_end(text, at) {
            let start = at;
            let to = number(text, &mut at)?;
            let to =
                vertex_from_1::<V>(to, vertices).map_err(|what| SyntaxError { at: start, what })?;
            rows.part.edges.push([from, to]).map_err(|error| memory(error.into()))?;
            gap(text, &mut at);
            if let Some(rule) = &kind.weights {
                let weight = weight(text, &mut at, rule)?;
                rows.part
                    .weights
                    .push(V::new(weight as usize))
                    .map_err(|error| memory(error.into()))?;
            } else if kind.weighted {
                if is_end(text, at) {
                    return Err(SyntaxError {
                        at: start,
                        what: "a neighbour without a weight".to_owned(),
                    });
                }
                while !is_end(text, at) && !super::number::is_gap(text[at]) {
                    at += 1;
                }
            }
            gap(text, &mut at);
        }
        skip_line(text, &mut at);
    }
    Ok(rows)
}

/// Lines of all vertices.
struct Rows<V: Width> {
    blocks: Vec<Block<V>>,
    /// The vertex of the first line of each block.
    starts: Vec<u64>,
    vertices: u64,
    weighted: bool,
    /// Each edge is in two lines, and told once.
    half: bool,
    loops: u64,
}

impl<V: Width> Rows<V> {
    fn each(&self, block: usize, mut each: impl FnMut(Edge)) {
        let (start, part) = (self.starts[block], &self.blocks[block].part);
        for (i, [from, to]) in part.edges.iter().enumerate() {
            let weight = part.weights.get(i).map_or(0, |weight| weight.at() as u64);
            each(Edge { from: start + from.at() as u64, to: to.at() as u64, weight });
        }
    }
    fn symmetry(&self, block: usize) -> Symmetry {
        let mut sum = Symmetry::default();
        self.each(block, |edge| sum.add(edge.from, edge.to, edge.weight));
        sum
    }
}

impl<V: Width> super::ListSource for Rows<V> {
    fn bytes(&self) -> u64 {
        self.blocks.iter().map(|block| block.part.bytes()).sum()
    }
}

impl<V: Width> EdgeSource for Rows<V> {
    fn vertices(&self) -> u64 {
        self.vertices
    }
    fn edges(&self) -> u64 {
        let all = self.blocks.iter().map(|block| block.part.edges.len() as u64).sum::<u64>();
        if self.half { (all - self.loops) / 2 + self.loops } else { all }
    }
    fn is_weighted(&self) -> bool {
        self.weighted
    }
    fn blocks(&self) -> usize {
        self.blocks.len()
    }
    fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        self.each(block, |edge| {
            if !self.half || edge.from <= edge.to {
                each(edge);
            }
        });
    }
}
