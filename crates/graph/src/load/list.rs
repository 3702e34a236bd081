//! Edge lists: one edge on each line of text.

use hugepilot_alloc::{Backing, HugeVec, Options};
use memchr::{memchr, memchr_iter};

use super::columns::{Columns, dictionary_weight, is_directed};
use super::number::{Weights, blanks, is_end, number, skip_line, weight, word};
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
    /// Fields of each line.
    pub(super) columns: Columns,
    /// Rule for the weights; `None` skips them.
    pub(super) weights: Option<Weights>,
    /// Whether a sample yielded the columns.
    pub(super) is_detected: bool,
}

/// Edges of one block of text.
#[derive(Debug)]
pub(super) struct Part<V: Width> {
    pub(super) edges: HugeVec<[V; 2]>,
    /// Weight of each edge, or empty.
    pub(super) weights: HugeVec<V>,
    /// Least vertex ID; [`Width::NONE`] without edges.
    least: V,
    /// Largest source and target.
    largest: [V; 2],
}

impl<V: Width> Part<V> {
    /// Allocates room for `edges` edges.
    pub(super) fn with_capacity(edges: usize, weighted: bool) -> Result<Self> {
        let options = |name| Options::only(Backing::Base).named(name);
        let weights = if weighted { edges } else { 0 };
        Ok(Self {
            edges: HugeVec::with_capacity(edges, options("list")?)?,
            weights: HugeVec::with_capacity(weights, options("list-weights")?)?,
            least: V::NONE,
            largest: [V::default(); 2],
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
    /// ID of the first vertex.
    pub(super) first: u64,
    /// Vertex of the first target: the number of sources in a bipartite graph, or 0.
    pub(super) targets: u64,
    /// Whether the first line is not an edge.
    pub(super) skips_first: bool,
}

impl<V: Width> List<V> {
    /// Makes a list of parts, whose IDs count from 0.
    pub(super) fn new(vertices: u64, weighted: bool, parts: Vec<Part<V>>) -> Self {
        Self { vertices, weighted, parts, first: 0, targets: 0, skips_first: false }
    }

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
        let mut list = Self::new(0, grammar.weights.is_some(), parts);
        list.vertices = if list.edges() == 0 { 0 } else { list.largest().saturating_add(1) };
        Ok(list)
    }

    /// Returns the edges of a part.
    pub(super) fn edges_of(&self, part: usize) -> &[[V; 2]] {
        &self.parts[part].edges[usize::from(part == 0 && self.skips_first)..]
    }

    /// Returns the least ID.
    pub(super) fn least(&self) -> u64 {
        if self.skips_first {
            return self.ids().min().unwrap_or(0);
        }
        self.parts.iter().map(|part| part.least.at() as u64).min().unwrap_or(0)
    }
    /// Returns the largest ID of a source, and that of a target.
    pub(super) fn largest_ends(&self) -> [u64; 2] {
        let parts = || 0..self.parts.len();
        [0, 1].map(|end| match self.skips_first {
            true => {
                let ids = parts().flat_map(|part| self.edges_of(part)).map(|edge| edge[end].at());
                ids.max().unwrap_or(0) as u64
            }
            false => self.parts.iter().map(|part| part.largest[end].at()).max().unwrap_or(0) as u64,
        })
    }
    /// Returns the largest ID.
    pub(super) fn largest(&self) -> u64 {
        self.largest_ends().into_iter().max().unwrap_or(0)
    }
    /// Returns the largest ID of all edges but the first. One pass over the edges.
    pub(super) fn largest_of_others(&self) -> u64 {
        self.ids().skip(2).max().unwrap_or(0)
    }
    fn ids(&self) -> impl Iterator<Item = u64> {
        let edges = (0..self.parts.len()).flat_map(|part| self.edges_of(part));
        edges.flatten().map(|id| id.at() as u64)
    }
    /// Returns ends and weight of the first edge.
    pub(super) fn first_edge(&self) -> Option<(u64, u64, Option<u64>)> {
        let part = self.parts.first().filter(|part| !part.edges.is_empty())?;
        let [from, to] = part.edges[0].map(|id| id.at() as u64);
        Some((from, to, part.weights.first().map(|weight| weight.at() as u64)))
    }

    /// Counts the vertices whose IDs do not occur in any edge. One pass over the edges, and a bit
    /// per vertex.
    pub(super) fn unused_ids(&self) -> u64 {
        const WORD: usize = u64::BITS as usize;
        let vertices = usize::try_from(self.vertices).unwrap_or(usize::MAX);
        let [first, targets] = [self.first, self.targets].map(|count| count as usize);
        let mut seen = vec![0u64; vertices.div_ceil(WORD)];
        for [from, to] in (0..self.parts.len()).flat_map(|part| self.edges_of(part)) {
            for at in [from.at() - first, to.at() - first + targets] {
                seen[at / WORD] |= 1 << (at % WORD);
            }
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
        let all: usize = self.parts.iter().map(|part| part.edges.len()).sum();
        all as u64 - u64::from(self.skips_first)
    }
    fn is_weighted(&self) -> bool {
        self.weighted
    }
    fn blocks(&self) -> usize {
        self.parts.len()
    }
    fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        let skipped = usize::from(block == 0 && self.skips_first);
        let weights = self.parts[block].weights.get(skipped..).unwrap_or_default();
        let to_first = self.targets.wrapping_sub(self.first);
        for (i, [from, to]) in self.edges_of(block).iter().enumerate() {
            let weight = weights.get(i).map_or(0, |weight| weight.at() as u64);
            let (from, to) = (from.at() as u64 - self.first, to.at() as u64);
            each(Edge { from, to: to.wrapping_add(to_first), weight });
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
    let is_plain = grammar.columns.is_plain();
    let (mut at, mut least, mut largest) = (0, V::NONE, [V::default(); 2]);
    while at < text.len() {
        let begin = at;
        blanks(text, &mut at);
        if is_end(text, at) || grammar.comments.contains(&text[at]) {
            skip_line(text, &mut at);
            continue;
        }
        if let Some(mark) = grammar.mark {
            skip_mark(text, &mut at, mark)?;
        }
        let line = at;
        let parsed = if is_plain {
            plain_line(text, &mut at, grammar, resolve)
        } else {
            // A tab may end an empty first field.
            at = begin;
            named_line(text, &mut at, grammar, resolve)
        };
        let Line { from, to, weight } = match parsed {
            Ok(edge) => edge,
            Err(error) => return Err(grammar.explained(text, line, error)),
        };
        least = least.min(from.min(to));
        largest = [largest[0].max(from), largest[1].max(to)];
        part.edges.push([from, to])?;
        if grammar.weights.is_some() {
            part.weights.push(weight)?;
        }
        skip_line(text, &mut at);
    }
    (part.least, part.largest) = (least, largest);
    Ok(part)
}

/// Edge on a line; the weight is 0 without weights.
struct Line<V> {
    from: V,
    to: V,
    weight: V,
}

/// Parses source and target, then a weight, then as many other fields as the lines have.
#[inline]
fn plain_line<V: Width>(
    text: &[u8],
    at: &mut usize,
    grammar: &Grammar,
    resolve: &impl Fn(u64) -> std::result::Result<V, LoadFault>,
) -> std::result::Result<Line<V>, SyntaxError> {
    let columns = &grammar.columns;
    let mut end = |is_first: bool| -> std::result::Result<V, SyntaxError> {
        if !is_first {
            separate(text, at, columns)?;
        }
        let start = *at;
        let id = number(text, at)?;
        resolve(id).map_err(|fault| SyntaxError::at(start, fault))
    };
    let (from, to) = (end(true)?, end(false)?);
    let (mut value, mut fields) = (0, 2);
    if let Some(weights) = &grammar.weights {
        separate(text, at, columns)?;
        value = weight(text, at, weights)?;
        fields = 3;
    }
    blanks(text, at);
    if fields < columns.count {
        skip_fields(text, at, columns, fields)?;
    }
    if !is_end(text, *at) {
        return Err(SyntaxError::at(*at, LoadFault::TrailingWord(Excerpt::new(word(text, *at)))));
    }
    Ok(Line { from, to, weight: V::new(value as usize) })
}

/// Skips the separator before a field.
#[inline]
fn separate(
    text: &[u8],
    at: &mut usize,
    columns: &Columns,
) -> std::result::Result<(), SyntaxError> {
    blanks(text, at);
    if let Some(separator) = columns.separator {
        if text.get(*at) != Some(&separator) {
            return Err(SyntaxError::at(*at, LoadFault::MissingNumber));
        }
        *at += 1;
        blanks(text, at);
    }
    Ok(())
}

/// Skips the fields after the first ones, up to the end of the line, if there are as many as the
/// lines have.
fn skip_fields(
    text: &[u8],
    at: &mut usize,
    columns: &Columns,
    before: usize,
) -> std::result::Result<(), SyntaxError> {
    let line = rest_of_line(text, *at);
    let is_apart = match columns.separator {
        Some(separator) => line.first() == Some(&separator),
        None => text[..*at].last().is_some_and(u8::is_ascii_whitespace),
    };
    if !line.is_empty() && !is_apart {
        return Err(SyntaxError::at(*at, LoadFault::TrailingWord(Excerpt::new(word(text, *at)))));
    }
    // The separator before the first of these fields.
    let fields = line.strip_prefix(columns.separator.as_slice()).unwrap_or(line);
    let more = if line.is_empty() { 0 } else { columns.fields(fields).count() };
    let found = before + more;
    if found != columns.count {
        return Err(SyntaxError::at(*at, LoadFault::MissingNumber));
    }
    *at += line.len();
    Ok(())
}

fn rest_of_line(text: &[u8], at: usize) -> &[u8] {
    let rest = &text[at..];
    &rest[..memchr(b'\n', rest).unwrap_or(rest.len())]
}

/// Parses a line whose columns have names, quotes or a dictionary.
fn named_line<V: Width>(
    text: &[u8],
    at: &mut usize,
    grammar: &Grammar,
    resolve: &impl Fn(u64) -> std::result::Result<V, LoadFault>,
) -> std::result::Result<Line<V>, SyntaxError> {
    let (columns, line) = (&grammar.columns, rest_of_line(text, *at));
    let error = |fault| SyntaxError::at(*at, fault);
    let whole = |field: &[u8], end: usize, value: u64| match end == field.len() {
        true => Ok(value),
        false => Err(error(LoadFault::NotUnsigned(Excerpt::new(field)))),
    };
    let id = |field: &[u8]| -> std::result::Result<V, SyntaxError> {
        let mut end = 0;
        let id = number(field, &mut end).and_then(|id| whole(field, end, id))?;
        resolve(id).map_err(error)
    };
    let (mut ends, mut value, mut count) = ([None; 2], 0, 0);
    for (i, field) in columns.fields(line).enumerate() {
        count += 1;
        if i == columns.source {
            ends[0] = Some(id(field)?);
        } else if i == columns.target {
            ends[1] = Some(id(field)?);
        } else if columns
            .kind
            .is_some_and(|(kind, directed)| kind == i && is_directed(field) != Some(directed))
        {
            return Err(error(LoadFault::MixedDirections(Excerpt::new(field))));
        } else if columns.has_dictionary && i + 1 == columns.count && !field.starts_with(b"{") {
            return Err(error(LoadFault::TrailingWord(Excerpt::new(field))));
        } else if field.starts_with(b"{") {
            let of_edge = dictionary_weight(field);
            let is_unread = of_edge.is_some() && columns.weight != Some(i);
            if is_unread || !field.ends_with(b"}") || !columns.has_dictionary {
                return Err(error(LoadFault::TrailingWord(Excerpt::new(field))));
            }
            if let (Some(rule), true) = (&grammar.weights, columns.weight == Some(i)) {
                let field = of_edge.ok_or_else(|| error(LoadFault::MissingWeight))?;
                let mut end = 0;
                value = weight(field, &mut end, rule).and_then(|value| whole(field, end, value))?;
            }
        } else if let (Some(rule), true) = (&grammar.weights, columns.weight == Some(i)) {
            let mut end = 0;
            value = weight(field, &mut end, rule).and_then(|value| whole(field, end, value))?;
        }
    }
    let ([Some(from), Some(to)], true) = (ends, count == columns.count) else {
        return Err(error(LoadFault::MissingNumber));
    };
    *at += line.len();
    Ok(Line { from, to, weight: V::new(value as usize) })
}

impl Grammar {
    /// Finds the cause of a fault in the line at `at`: another number of columns, or a decimal
    /// comma.
    #[cold]
    fn explained(&self, text: &[u8], at: usize, error: SyntaxError) -> SyntaxError {
        let fields: Vec<&[u8]> = self.columns.fields(rest_of_line(text, at)).collect();
        let (found, expected) = (fields.len(), self.columns.count);
        let weight = self.columns.weight.and_then(|weight| fields.get(weight));
        match weight.filter(|weight| weight.contains(&b',') && !weight.starts_with(b"{")) {
            _ if !self.is_detected => error,
            Some(weight) => SyntaxError::at(at, LoadFault::DecimalComma(Excerpt::new(weight))),
            None if found != expected => {
                SyntaxError::at(at, LoadFault::VaryingColumns { found, expected })
            }
            None => error,
        }
    }
}

/// Skips the letter before an edge.
fn skip_mark(text: &[u8], at: &mut usize, mark: u8) -> std::result::Result<(), SyntaxError> {
    if text[*at] != mark {
        let (expected, found) = (char::from(mark), Excerpt::new(word(text, *at)));
        return Err(SyntaxError::at(*at, LoadFault::UnexpectedStart { expected, found }));
    }
    *at += 1;
    let begin = *at;
    blanks(text, at);
    if *at == begin { Err(SyntaxError::at(begin, LoadFault::MissingNumber)) } else { Ok(()) }
}
