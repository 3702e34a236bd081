//! Rows that a binary file has ready: read, checked, and taken as they are where a builder would have made them so.

use std::time::Instant;

use hugepilot_alloc::HugeVec;
use hugepilot_units::Bytes;

use super::FileGraph;
use super::blocks::FileBlocks;
use super::options::{LoadOptions, Shape};
use super::records::Records;
use super::symmetry::Symmetry;
use crate::csr::DroppedEdges;
use crate::pages::Array;
use crate::{Build, Csr, Edge, EdgeSource, Graph, GraphError, Result, Width};

/// Where the rows of one direction are.
pub(super) struct Layout<'a> {
    pub(super) vertices: u64,
    pub(super) edges: u64,
    /// One more than vertices, or as many: then the first, which is 0, is left out.
    pub(super) offsets: Records<'a, 1>,
    pub(super) first_omitted: bool,
    pub(super) ends: Records<'a, 1>,
    pub(super) weights: Option<Weights<'a>>,
    /// Weights have a sign, which none may use.
    pub(super) signed: bool,
    /// CRC-32C of offsets, ends and weights, where the file tells.
    pub(super) sums: Option<[u32; 3]>,
}

/// Where the weights are.
pub(super) enum Weights<'a> {
    /// After the end of each edge, of 4 bytes as it is.
    Beside,
    /// In rows of their own.
    Apart(Records<'a, 1>),
}

/// What the file says of directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// Edges have one.
    With,
    /// They have none: each is in the rows of both its vertices.
    Without,
    /// Not a word.
    Unsaid,
}

/// Rows, and what they are like.
pub(super) struct CheckedRows<V: Width> {
    pub(super) csr: Csr<V>,
    /// Ascending, each once, and without loops.
    clean: bool,
    symmetry: Symmetry,
}

/// The arrays of one direction.
pub(super) const OUT: [Array; 3] = [Array::Offsets, Array::Edges, Array::Weights];
pub(super) const IN: [Array; 3] = [Array::InOffsets, Array::InEdges, Array::InWeights];

impl Layout<'_> {
    fn file(&self) -> &FileBlocks<'_> {
        self.offsets.file
    }

    /// Bytes that the arrays take.
    fn room<V: Width>(&self) -> Bytes {
        let per_edge = if self.weights.is_some() { 2 } else { 1 };
        let values =
            Bytes::new(self.edges).times(per_edge) + Bytes::new(self.vertices.saturating_add(1));
        values.times(size_of::<V>() as u64)
    }

    /// As many vertices and edges, for what is stated before they are read.
    fn shape(&self) -> Shape {
        Shape { vertices: self.vertices, edges: self.edges, weighted: self.weights.is_some() }
    }

    /// Reads and checks. The file is as long as its header says: so nothing is allocated that it does not hold.
    ///
    /// # Errors
    /// [`GraphError::Format`] for offsets that go back, ends that are no vertices, and weights that are not above 0.
    pub(super) fn read<V: Width>(
        &self,
        names: [Array; 3],
        options: &LoadOptions<'_>,
    ) -> Result<CheckedRows<V>> {
        for (what, count) in [("vertices", self.vertices), ("edges", self.edges)] {
            if count >= V::NONE.at() as u64 - 1 {
                return Err(GraphError::Width { what, count, bits: V::BITS });
            }
        }
        let (pages, pool) = (options.build.pages, options.build.pool);
        let [vertices, edges] = [self.vertices, self.edges].map(|count| count as usize);
        let mut offsets = pages.zeroed::<V>(names[0], vertices + 1)?;
        let first = usize::from(self.first_omitted);
        let sum = self.offsets.read([&mut offsets[first..]], pool)?;
        self.check_sum(0, &self.offsets, sum)?;
        self.check_offsets(&offsets)?;
        let mut ends = pages.zeroed::<V>(names[1], edges)?;
        let mut weights =
            pages.zeroed::<V>(names[2], if self.weights.is_some() { edges } else { 0 })?;
        if let Some(Weights::Beside) = self.weights {
            let Records { file, at, size, fields: [(_, width)] } = self.ends;
            let both = Records { file, at, size, fields: [(0, width), (width, 4)] };
            both.read([&mut ends, &mut weights], pool)?;
        } else {
            let sum = self.ends.read([&mut ends], pool)?;
            self.check_sum(1, &self.ends, sum)?;
        }
        if let Some(Weights::Apart(apart)) = &self.weights {
            let sum = apart.read([&mut weights], pool)?;
            self.check_sum(2, apart, sum)?;
        }
        self.check_edges(Csr { offsets, edges: ends, weights, heaviest: V::default() }, options)
    }

    fn check_sum(&self, which: usize, records: &Records<'_, 1>, found: u32) -> Result<()> {
        match self.sums {
            Some(sums) if sums[which] != found => {
                let what = format!(
                    "the {} from here on are damaged: their checksum is another",
                    OUT[which]
                );
                Err(records.file.error_at(records.at, what))
            }
            _ => Ok(()),
        }
    }

    fn check_offsets<V: Width>(&self, offsets: &HugeVec<V>) -> Result<()> {
        let wrong = |i: usize, what| {
            let i = i - usize::from(self.first_omitted);
            Err(self.file().error_at(self.offsets.at + (i * self.offsets.size) as u64, what))
        };
        if let Some(first) = offsets.first().filter(|first| first.at() != 0) {
            return wrong(0, format!("the first offset is {first}; it is 0"));
        }
        if let Some(back) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
            return wrong(
                back + 1,
                format!("the offset {} after {}", offsets[back + 1], offsets[back]),
            );
        }
        let last = offsets.len() - 1;
        if offsets[last].at() as u64 != self.edges {
            return wrong(
                last,
                format!("the last offset is {}, there are {} edges", offsets[last], self.edges),
            );
        }
        Ok(())
    }

    fn check_edges<V: Width>(
        &self,
        mut csr: Csr<V>,
        options: &LoadOptions<'_>,
    ) -> Result<CheckedRows<V>> {
        let pieces = crate::WorkQueue::default();
        let limit = if self.signed { 1 << 31 } else { V::NONE.at() };
        let checks = options.build.pool.run(|worker| {
            let mut check = Check { clean: true, ..Check::default() };
            worker.each(&pieces, csr.vertices(), 1 << 12, |rows| {
                rows.for_each(|v| check.row(&csr, v, limit))
            });
            check
        });
        let all = checks.into_iter().reduce(Check::and).unwrap_or_default();
        if let Some(i) = all.nowhere {
            let what =
                format!("an edge to vertex {} in a graph of {}", csr.edges[i], self.vertices);
            return Err(self.ends.file.error_at(self.ends.at + (i * self.ends.size) as u64, what));
        }
        if let Some(i) = all.weight {
            let (file, byte) = match &self.weights {
                Some(Weights::Apart(apart)) => (apart.file, apart.at + (i * apart.size) as u64),
                _ => (self.ends.file, self.ends.at + (i * self.ends.size) as u64 + 4),
            };
            let what =
                format!("the weight {}; weights are above 0 and below {limit}", csr.weights[i]);
            return Err(file.error_at(byte, what));
        }
        csr.heaviest = csr.weights.iter().copied().max().unwrap_or_default();
        Ok(CheckedRows { csr, clean: all.clean, symmetry: all.symmetry })
    }
}

/// What was seen of some rows.
#[derive(Clone, Copy, Debug, Default)]
struct Check {
    clean: bool,
    /// The first edge that leads nowhere, and the first weight that is none.
    nowhere: Option<usize>,
    weight: Option<usize>,
    symmetry: Symmetry,
}

impl Check {
    fn row<V: Width>(&mut self, csr: &Csr<V>, v: usize, limit: usize) {
        let mut before = None;
        for i in csr.range(v) {
            let to = csr.edges[i];
            if to.at() >= csr.vertices() {
                self.nowhere = least(self.nowhere, Some(i));
            }
            self.clean &= to.at() != v && before.is_none_or(|before| before < to);
            before = Some(to);
            let weight = csr.weights.get(i).copied();
            if weight.is_some_and(|weight| weight.at() == 0 || weight.at() >= limit) {
                self.weight = least(self.weight, Some(i));
            }
            self.symmetry.add(
                v as u64,
                to.at() as u64,
                weight.map_or(0, |weight| weight.at() as u64),
            );
        }
    }
    fn and(self, other: Self) -> Self {
        Self {
            clean: self.clean && other.clean,
            nowhere: least(self.nowhere, other.nowhere),
            weight: least(self.weight, other.weight),
            symmetry: self.symmetry.and(other.symmetry),
        }
    }
}

fn least(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    a.into_iter().chain(b).min()
}

/// Rows as edges, for where they are not as a builder would make them.
struct Listing<'a, V: Width> {
    csr: &'a Csr<V>,
    /// Each edge is in both rows: it is told once.
    half: bool,
    loops: u64,
}

impl<V: Width> EdgeSource for Listing<'_, V> {
    fn vertices(&self) -> u64 {
        self.csr.vertices() as u64
    }
    fn edges(&self) -> u64 {
        let all = self.csr.edges() as u64;
        if self.half { (all - self.loops) / 2 + self.loops } else { all }
    }
    fn is_weighted(&self) -> bool {
        self.csr.is_weighted()
    }
    fn blocks(&self) -> usize {
        self.csr.blocks()
    }
    fn block(&self, block: usize, mut each: impl FnMut(Edge)) {
        self.csr.block(block, |edge| {
            if !self.half || edge.from <= edge.to {
                each(edge);
            }
        });
    }
}

/// Reads the rows of a graph, and those of the other direction where the file has them, and makes of them what is wanted.
///
/// # Errors
/// Those of [`Layout::read`] and of building; [`GraphError::InsufficientMemory`].
pub(super) fn load<V: Width>(
    out: &Layout<'_>,
    transpose: Option<&Layout<'_>>,
    direction: Direction,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    let directed = match direction {
        Direction::With => options.build.directed || options.keep_directions,
        Direction::Without => false,
        Direction::Unsaid => options.build.directed,
    };
    let build = Build { directed, ..options.build };
    let (arrays, turned) = (out.room::<V>(), build.peak::<V>(&out.shape()));
    let mut peak = match transpose {
        None if directed => turned,
        _ => arrays.times(if directed { 2 } else { 1 }),
    };
    options.begin(out.vertices, peak)?;
    let found = out.read::<V>(OUT, options)?;
    if direction == Direction::Without && !found.symmetry.is_whole() {
        let what =
            "the file says that edges have no directions, but not each of these is there both ways";
        return Err(out.file().error_at(out.offsets.at, what));
    }
    let half = !directed && found.symmetry.is_whole();
    if found.clean && (directed || half) {
        let read = match transpose {
            Some(layout) if directed => reverse(layout, &found, options)?,
            _ => None,
        };
        let begin = Instant::now();
        let transpose = match read {
            None if directed => {
                // Said already, unless the file has one, which is of no use.
                if transpose.is_some() {
                    peak = turned;
                    options.begin(out.vertices, peak)?;
                }
                Some(build.transpose(&found.csr)?)
            }
            read => read,
        };
        let graph = Graph { out: found.csr, transpose, dropped: DroppedEdges::default() };
        return Ok(FileGraph { graph, ids: None, peak, build: begin.elapsed() });
    }
    let begin = Instant::now();
    let listing = Listing { csr: &found.csr, half, loops: found.symmetry.loops };
    let peak = arrays + build.peak::<V>(&listing);
    options.begin(out.vertices, peak)?;
    Ok(FileGraph { graph: build.graph(&listing)?, ids: None, peak, build: begin.elapsed() })
}

/// The rows of the other direction, if they are what they should be; none where they are in no order.
fn reverse<V: Width>(
    layout: &Layout<'_>,
    out: &CheckedRows<V>,
    options: &LoadOptions<'_>,
) -> Result<Option<Csr<V>>> {
    let found = layout.read::<V>(IN, options)?;
    if !found.symmetry.is_reverse_of(out.symmetry) {
        let byte = layout.offsets.at;
        return Err(layout
            .file()
            .error_at(byte, "the edges towards each vertex are not those that leave the others"));
    }
    Ok(found.clean.then_some(found.csr))
}
