//! Edges from lines of text, each on a line of its own.

use hugepilot_alloc::{Backing, HugeVec, Options};
use memchr::memchr_iter;

use super::number::{Weights, gap, is_end, number, shown, skip_line, weight, word};
use super::text::{Budget, SyntaxError, Text, parse};
use crate::{Edge, EdgeSource, Result, ThreadPool, Width};

/// How the lines of a format read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grammar {
    /// Lines that begin so say nothing.
    pub(super) comments: &'static [u8],
    /// What stands before an edge.
    pub(super) mark: Option<u8>,
    /// The third number is a weight.
    pub(super) weights: Option<Weights>,
    /// More may follow on a line, which says nothing.
    pub(super) rest: bool,
}

/// The edges of a block: two numbers for each, and the weights apart.
#[derive(Debug)]
pub(super) struct Part<V: Width> {
    pub(super) edges: HugeVec<[V; 2]>,
    pub(super) weights: HugeVec<V>,
    /// One more than the largest number.
    pub(super) vertices: u64,
}

impl<V: Width> Part<V> {
    /// Room for that many.
    pub(super) fn with_room(edges: usize, weighted: bool) -> Result<Self> {
        let options = |name| Options::only(Backing::Base).named(name);
        let weights = if weighted { edges } else { 0 };
        Ok(Self {
            edges: HugeVec::with_capacity(edges, options("list")?)?,
            weights: HugeVec::with_capacity(weights, options("list-weights")?)?,
            vertices: 0,
        })
    }
    /// Memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        (size_of_val(&self.edges[..]) + size_of_val(&self.weights[..])) as u64
    }
}

/// All edges of a file, in its order.
#[derive(Debug)]
pub(super) struct List<V: Width> {
    pub(super) vertices: u64,
    pub(super) weighted: bool,
    pub(super) parts: Vec<Part<V>>,
}

impl<V: Width> List<V> {
    /// Reads what is left of the text. `resolve` makes of a number the vertex that it names.
    ///
    /// # Errors
    /// As for [`parse`].
    pub(super) fn read(
        text: &mut Text<'_>,
        pool: ThreadPool,
        budget: &Budget,
        grammar: &Grammar,
        resolve: impl Fn(u64) -> std::result::Result<V, String> + Sync,
    ) -> Result<Self> {
        let parts = parse(text, pool, budget, |block| {
            let part = edges(block, grammar, &resolve)?;
            let bytes = part.bytes();
            Ok((part, bytes))
        })?;
        let vertices = parts.iter().map(|part| part.vertices).max().unwrap_or(0);
        Ok(Self { vertices, weighted: grammar.weights.is_some(), parts })
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

fn edges<V: Width>(
    text: &[u8],
    grammar: &Grammar,
    resolve: &impl Fn(u64) -> std::result::Result<V, String>,
) -> std::result::Result<Part<V>, SyntaxError> {
    // The shortest line is "1 2\n".
    let most = (memchr_iter(b'\n', text).count() + 1).min(text.len() / 4 + 1);
    let memory = |error: crate::GraphError| SyntaxError { at: 0, what: error.to_string() };
    let mut part = Part::with_room(most, grammar.weights.is_some()).map_err(memory)?;
    let (mut at, mut largest) = (0, None);
    while at < text.len() {
        gap(text, &mut at);
        if is_end(text, at) || grammar.comments.contains(&text[at]) {
            skip_line(text, &mut at);
            continue;
        }
        if let Some(mark) = grammar.mark {
            if text[at] != mark {
                let what = format!(
                    "{} where a line begins with {:?}",
                    shown(word(text, at)),
                    char::from(mark)
                );
                return Err(SyntaxError { at, what });
            }
            at += 1;
            gap(text, &mut at);
        }
        let mut end = || -> std::result::Result<V, SyntaxError> {
            let start = at;
            let id = number(text, &mut at)?;
            gap(text, &mut at);
            resolve(id).map_err(|what| SyntaxError { at: start, what })
        };
        let (from, to) = (end()?, end()?);
        largest = largest.max(Some(from.max(to)));
        part.edges.push([from, to]).map_err(|error| memory(error.into()))?;
        if let Some(weights) = &grammar.weights {
            let weight = weight(text, &mut at, weights)?;
            part.weights.push(V::new(weight as usize)).map_err(|error| memory(error.into()))?;
            gap(text, &mut at);
        }
        if !is_end(text, at) && !grammar.rest {
            let what = format!("{} where the line should end", shown(word(text, at)));
            return Err(SyntaxError { at, what });
        }
        skip_line(text, &mut at);
    }
    part.vertices = largest.map_or(0, |largest: V| (largest.at() as u64).saturating_add(1));
    Ok(part)
}
