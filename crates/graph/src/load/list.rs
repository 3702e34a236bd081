//! Edge lists: one edge on each line of text.

use hugepilot_alloc::{Backing, HugeVec, Options};
use memchr::memchr_iter;

use super::number::{Weights, gap, is_end, number, skip_line, weight, word};
use super::text::{Budget, SyntaxError, Text, parse};
use crate::error::{Excerpt, LoadFault};
use crate::{Edge, EdgeSource, Result, ThreadPool, Width};

/// Line syntax of a format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grammar {
    /// First bytes of comment lines.
    pub(super) comments: &'static [u8],
    /// Letter before each edge.
    pub(super) mark: Option<u8>,
    /// Rule for the third number as a weight.
    pub(super) weights: Option<Weights>,
    /// Whether further words on a line are ignored.
    pub(super) rest: bool,
}

/// Edges of one block of text.
#[derive(Debug)]
pub(super) struct Part<V: Width> {
    pub(super) edges: HugeVec<[V; 2]>,
    /// Weight of each edge, or empty.
    pub(super) weights: HugeVec<V>,
    /// Largest vertex ID plus 1.
    pub(super) vertices: u64,
}

impl<V: Width> Part<V> {
    /// Allocates room for `edges` edges.
    pub(super) fn with_capacity(edges: usize, weighted: bool) -> Result<Self> {
        let options = |name| Options::only(Backing::Base).named(name);
        let weights = if weighted { edges } else { 0 };
        Ok(Self {
            edges: HugeVec::with_capacity(edges, options("list")?)?,
            weights: HugeVec::with_capacity(weights, options("list-weights")?)?,
            vertices: 0,
        })
    }
    /// Returns the memory in use.
    pub(super) fn bytes(&self) -> u64 {
        (size_of_val(&self.edges[..]) + size_of_val(&self.weights[..])) as u64
    }
}

/// All edges of a file, in file order.
#[derive(Debug)]
pub(super) struct List<V: Width> {
    pub(super) vertices: u64,
    pub(super) weighted: bool,
    pub(super) parts: Vec<Part<V>>,
}

impl<V: Width> List<V> {
    /// Parses the rest of the text. `resolve` maps a number in the file to a vertex.
    ///
    /// # Errors
    /// See [`parse`].
    pub(super) fn read(
        text: &mut Text<'_>,
        pool: ThreadPool,
        budget: &Budget,
        grammar: &Grammar,
        resolve: impl Fn(u64) -> std::result::Result<V, LoadFault> + Sync,
    ) -> Result<Self> {
        let parts = parse(text, pool, budget, |block| {
            let part = edges(block, grammar, &resolve)?;
            let bytes = part.bytes();
            Ok((part, bytes))
        })?;
        let vertices = parts.iter().map(|part| part.vertices).max().unwrap_or(0);
        Ok(Self { vertices, weighted: grammar.weights.is_some(), parts })
    }

    /// Counts the vertices whose IDs do not occur in any edge. One pass over the edges, and a bit
    /// per vertex.
    pub(super) fn unused_ids(&self) -> u64 {
        const WORD: usize = u64::BITS as usize;
        let vertices = usize::try_from(self.vertices).unwrap_or(usize::MAX);
        let mut seen = vec![0u64; vertices.div_ceil(WORD)];
        for id in self.parts.iter().flat_map(|part| part.edges.iter().flatten()) {
            seen[id.at() / WORD] |= 1 << (id.at() % WORD);
        }
        self.vertices - seen.iter().map(|word| u64::from(word.count_ones())).sum::<u64>()
    }
}

impl<V: Width> super::ListSource for List<V> {
    fn bytes(&self) -> u64 {
        self.parts.iter().map(Part::bytes).sum()
    }
}

impl<V: Width> EdgeSource for List<V> {
    fn vertices(&self) -> u64 {
        self.vertices
    }
    fn edges(&self) -> u64 {
        self.parts.iter().map(|part| part.edges.len() as u64).sum()
    }
    fn is_weighted(&self) -> bool {
        self.weighted
    }
    fn blocks(&self) -> usize {
        self.parts.len()
    }
    fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        let Part { edges, weights, .. } = &self.parts[block];
        for (i, [from, to]) in edges.iter().enumerate() {
            let weight = weights.get(i).map_or(0, |weight| weight.at() as u64);
            each(Edge { from: from.at() as u64, to: to.at() as u64, weight });
        }
    }
}

/// Parses the edges of a block.
fn edges<V: Width>(
    text: &[u8],
    grammar: &Grammar,
    resolve: &impl Fn(u64) -> std::result::Result<V, LoadFault>,
) -> std::result::Result<Part<V>, SyntaxError> {
    // The shortest line is "1 2\n".
    let capacity = (memchr_iter(b'\n', text).count() + 1).min(text.len() / 4 + 1);
    let mut part = Part::with_capacity(capacity, grammar.weights.is_some())?;
    let (mut at, mut largest) = (0, None);
    while at < text.len() {
        gap(text, &mut at);
        if is_end(text, at) || grammar.comments.contains(&text[at]) {
            skip_line(text, &mut at);
            continue;
        }
        if let Some(mark) = grammar.mark {
            skip_mark(text, &mut at, mark)?;
        }
        let mut end = || -> std::result::Result<V, SyntaxError> {
            let start = at;
            let id = number(text, &mut at)?;
            gap(text, &mut at);
            resolve(id).map_err(|fault| SyntaxError::at(start, fault))
        };
        let (from, to) = (end()?, end()?);
        largest = largest.max(Some(from.max(to)));
        part.edges.push([from, to])?;
        if let Some(weights) = &grammar.weights {
            let weight = weight(text, &mut at, weights)?;
            part.weights.push(V::new(weight as usize))?;
            gap(text, &mut at);
        }
        if !is_end(text, at) && !grammar.rest {
            let found = Excerpt::new(word(text, at));
            return Err(SyntaxError::at(at, LoadFault::TrailingWord(found)));
        }
        skip_line(text, &mut at);
    }
    part.vertices = largest.map_or(0, |largest: V| (largest.at() as u64).saturating_add(1));
    Ok(part)
}

/// Skips the letter before an edge.
fn skip_mark(text: &[u8], at: &mut usize, mark: u8) -> std::result::Result<(), SyntaxError> {
    if text[*at] != mark {
        let (expected, found) = (char::from(mark), Excerpt::new(word(text, *at)));
        return Err(SyntaxError::at(*at, LoadFault::UnexpectedStart { expected, found }));
    }
    *at += 1;
    gap(text, at);
    Ok(())
}
