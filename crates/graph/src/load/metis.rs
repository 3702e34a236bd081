//! METIS: a line with the counts of vertices and edges, then a line of neighbours per vertex,
//! counted from 1.

use memchr::memchr3_iter;

use super::direction::{Directedness, Half, symmetry};
use super::ids::Ids;
use super::list::Part;
use super::number::{Weights, blanks, is_end, is_gap, number, skip_line, weight};
use super::options::{LoadOptions, vertex_from_1};
use super::text::{Budget, SyntaxError, Text, check_memory, parse};
use super::{FileGraph, sizes};
use crate::error::{Excerpt, LoadFault};
use crate::{Edge, EdgeSource, Result, Width};

/// First line of a file.
#[derive(Clone, Copy, Debug)]
struct Header {
    vertices: u64,
    edges: u64,
    weighted: bool,
    /// Numbers before the first neighbour of a line.
    prefix: usize,
    /// Whether the first digit of the format is set. METIS then has the size of each vertex before
    /// its weights; in the tenth DIMACS challenge, edges may then occur twice.
    sized: bool,
}

/// Loads the text that `open` opens, twice if the header is ambiguous. `file` is an upper bound on
/// its length.
///
/// # Errors
/// [`GraphError::Load`](crate::GraphError::Load),
/// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of
/// building.
pub(super) fn load<'a, V: Width>(
    open: impl Fn() -> Result<Text<'a>>,
    file: u64,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let (header, unsized_rows) = attempt::<V>(&mut open()?, file, 0, options)?;
    let rows = match unsized_rows {
        Err(error) if header.sized => {
            attempt::<V>(&mut open()?, file, 1, options)?.1.map_err(|_| error)?
        }
        rows => rows?,
    };
    let (rows, loops) = rows;
    let ids = Ids::From(1);
    match loops {
        None => FileGraph::of_list(&rows, Directedness::Unspecified, ids, options),
        Some(loops) => {
            let half = Half { source: &rows, loops };
            FileGraph::of_list(&half, Directedness::Undirected, ids, options)
        }
    }
}

/// Header, and the lines of the vertices; with the self-loops if each edge is in two lines.
type Attempt<V> = (Header, Result<(Rows<V>, Option<u64>)>);

/// Reads the text with `sizes` numbers for the size of each vertex.
fn attempt<V: Width>(
    text: &mut Text<'_>,
    file: u64,
    sizes: usize,
    options: &LoadOptions<'_>,
) -> Result<Attempt<V>> {
    let header = header(text)?;
    let checked = options.check_vertices::<V>(header.vertices, file, false);
    checked.map_err(|fault| text.error(fault))?;
    // A neighbour is a digit and a separator, and each edge occurs at least once.
    if header.edges > file / 2 {
        let fault = LoadFault::CountTooLarge { what: "edges", count: header.edges, bytes: file };
        return Err(text.error(fault));
    }
    let weights = options.weights::<V>(text.path(), header.weighted)?;
    let list = 2 * header.edges * (if weights.is_some() { 3 } else { 2 }) * size_of::<V>() as u64;
    let peak = options.peak::<V>(header.vertices, header.edges, weights.is_some(), list);
    check_memory(peak, options.available)?;
    Ok((header, rows(text, header, header.prefix + sizes, weights, options)))
}

fn header(text: &mut Text<'_>) -> Result<Header> {
    let line = text.content_line(b"%")?.unwrap_or_default();
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let format = words.get(2).copied().unwrap_or("0");
    let constraints = words.get(3).map_or(Some(1), |word| word.parse::<usize>().ok());
    let (Some([vertices, edges]), Some(constraints @ 0..=1000), 2..=4) =
        (words.get(..2).and_then(|words| sizes(&words.join(" "))), constraints, words.len())
    else {
        return Err(text.error(LoadFault::Expected {
            expected: "VERTICES EDGES [FORMAT [VERTEX_WEIGHTS]]",
            found: Excerpt::new(line.as_bytes()),
        }));
    };
    if format.len() > 3 || !format.bytes().all(|digit| matches!(digit, b'0' | b'1')) {
        let (what, found) = ("format", format.to_owned());
        let expected = "up to three digits, 0 or 1";
        return Err(text.error(LoadFault::Unsupported { what, found, expected }));
    }
    let digit = |place: usize| format.bytes().rev().nth(place) == Some(b'1');
    let prefix = if digit(1) { constraints } else { 0 };
    Ok(Header { vertices, edges, weighted: digit(0), prefix, sized: digit(2) })
}

/// Reads the lines of the vertices. If each edge is in two lines, returns the self-loops, too.
fn rows<V: Width>(
    text: &mut Text<'_>,
    header: Header,
    prefix: usize,
    weights: Option<Weights>,
    options: &LoadOptions<'_>,
) -> Result<(Rows<V>, Option<u64>)> {
    let line = LineLayout { prefix, weighted: header.weighted, weights };
    let blocks = parse(text, options.build.pool, &Budget::new(options.available), |block| {
        let rows = block_rows::<V>(block, line, header.vertices)?;
        let bytes = rows.part.bytes();
        Ok((rows, bytes))
    })?;
    let starts = starts(text, &blocks, header.vertices)?;
    let weighted = weights.is_some();
    let rows = Rows { blocks, starts, vertices: header.vertices, weighted };
    let found = rows.blocks.iter().map(|block| block.part.edges.len() as u64).sum::<u64>();
    if found == header.edges && found > 0 {
        // Each edge once, as in the GAP benchmark suite.
        return Ok((rows, None));
    }
    let symmetry = symmetry(&rows, options.build.pool);
    if found + symmetry.loops != 2 * header.edges && found != 2 * header.edges {
        return Err(text.error(LoadFault::NeighbourMismatch { edges: header.edges, found }));
    }
    if !symmetry.is_symmetric() {
        return Err(text.error(LoadFault::Asymmetric));
    }
    Ok((rows, Some(symmetry.loops)))
}

/// Returns the vertex of the first line of each block, after a check of the number of lines.
fn starts<V: Width>(text: &Text<'_>, blocks: &[Block<V>], vertices: u64) -> Result<Vec<u64>> {
    let mut start = 0;
    let mut starts = Vec::with_capacity(blocks.len());
    for block in blocks {
        starts.push(start);
        start += block.lines;
    }
    if start < vertices {
        let (what, stated, found) = ("vertices", vertices, start);
        return Err(text.error(LoadFault::CountMismatch { what, stated, found }));
    }
    let mut ends = blocks.iter().zip(&starts).map(|(block, start)| start + block.content_lines);
    if ends.any(|end| end > vertices) {
        return Err(text.error(LoadFault::TooManyLines(vertices)));
    }
    Ok(starts)
}

/// Fields of a line.
#[derive(Clone, Copy, Debug)]
struct LineLayout {
    prefix: usize,
    weighted: bool,
    /// Rule for the weights; `None` skips them.
    weights: Option<Weights>,
}

/// Lines of consecutive vertices; the first vertex is not known during the parse.
struct Block<V: Width> {
    /// `from` counts from the first line of the block.
    part: Part<V>,
    lines: u64,
    /// Lines up to the last with content.
    content_lines: u64,
}

fn block_rows<V: Width>(
    text: &[u8],
    layout: LineLayout,
    vertices: u64,
) -> std::result::Result<Block<V>, SyntaxError> {
    let capacity = (memchr3_iter(b' ', b'\t', b'\n', text).count() + 1).min(text.len() / 2 + 1);
    let part = Part::with_capacity(capacity, layout.weights.is_some())?;
    let (mut rows, mut at) = (Block { part, lines: 0, content_lines: 0 }, 0);
    while at < text.len() {
        if text[at] == b'%' {
            skip_line(text, &mut at);
            continue;
        }
        blanks(text, &mut at);
        let from = V::new(rows.lines as usize);
        rows.lines += 1;
        if !is_end(text, at) {
            rows.content_lines = rows.lines;
            for _ in 0..layout.prefix {
                number(text, &mut at)?;
                blanks(text, &mut at);
            }
        }
        while !is_end(text, at) {
            neighbour(text, &mut at, from, layout, vertices, &mut rows.part)?;
        }
        skip_line(text, &mut at);
    }
    Ok(rows)
}

/// Parses a neighbour and its weight.
fn neighbour<V: Width>(
    text: &[u8],
    at: &mut usize,
    from: V,
    layout: LineLayout,
    vertices: u64,
    part: &mut Part<V>,
) -> std::result::Result<(), SyntaxError> {
    let start = *at;
    let to = number(text, at)?;
    let to = vertex_from_1::<V>(to, vertices).map_err(|fault| SyntaxError::at(start, fault))?;
    part.edges.push([from, to])?;
    blanks(text, at);
    if let Some(rule) = &layout.weights {
        let weight = weight(text, at, rule)?;
        part.weights.push(V::new(weight as usize))?;
    } else if layout.weighted {
        if is_end(text, *at) {
            return Err(SyntaxError::at(start, LoadFault::MissingWeight));
        }
        while !is_end(text, *at) && !is_gap(text[*at]) {
            *at += 1;
        }
    }
    blanks(text, at);
    Ok(())
}

/// Lines of all vertices.
struct Rows<V: Width> {
    blocks: Vec<Block<V>>,
    /// Vertex of the first line of each block.
    starts: Vec<u64>,
    vertices: u64,
    weighted: bool,
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
        self.blocks.iter().map(|block| block.part.edges.len() as u64).sum()
    }
    fn is_weighted(&self) -> bool {
        self.weighted
    }
    fn blocks(&self) -> usize {
        self.blocks.len()
    }
    fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        let (start, part) = (self.starts[block], &self.blocks[block].part);
        for (i, [from, to]) in part.edges.iter().enumerate() {
            let weight = part.weights.get(i).map_or(0, |weight| weight.at() as u64);
            each(Edge { from: start + from.at() as u64, to: to.at() as u64, weight });
        }
    }
}
