//! Rows of a binary file, used in place if they are as a build would make them.

use std::time::Instant;

use hugepilot_alloc::HugeVec;
use hugepilot_units::Bytes;

use super::FileGraph;
use super::direction::{Directedness, Half};
use super::file_blocks::FileBlocks;
use super::options::{LoadOptions, Shape};
use super::records::Records;
use super::symmetry::Symmetry;
use crate::csr::DroppedEdges;
use crate::error::LoadFault;
use crate::pages::Array;
use crate::{Build, Csr, Edge, EdgeSource, Graph, GraphError, Result, Width};

/// Location of the rows of one direction.
pub(super) struct Layout<'a> {
    pub(super) vertices: u64,
    pub(super) edges: u64,
    /// Offsets: one more than vertices, or as many if the first is omitted.
    pub(super) offsets: Records<'a, 1>,
    /// Whether the first offset, which is 0, is omitted.
    pub(super) first_omitted: bool,
    pub(super) ends: Records<'a, 1>,
    pub(super) weights: Option<Weights<'a>>,
    /// Whether weights are signed. Negative ones are invalid.
    pub(super) signed: bool,
    /// Whether the file does not state that weights are integers.
    pub(super) untyped: bool,
    /// CRC-32C of offsets, edges and weights, if the file has them.
    pub(super) checksums: Option<[u32; 3]>,
}

/// Location of the weights.
pub(super) enum Weights<'a> {
    /// 4 bytes after each edge of 4 bytes.
    Interleaved,
    /// Separate array.
    Separate(Records<'a, 1>),
}

/// Valid rows and their properties.
pub(super) struct CheckedRows<V: Width> {
    pub(super) csr: Csr<V>,
    /// Whether rows are ascending, without duplicates and self-loops.
    clean: bool,
    symmetry: Symmetry,
}

/// Array names of the outgoing edges.
pub(super) const OUT: [Array; 3] = [Array::Offsets, Array::Edges, Array::Weights];
/// Array names of the incoming edges.
pub(super) const IN: [Array; 3] = [Array::InOffsets, Array::InEdges, Array::InWeights];

impl Layout<'_> {
    fn file(&self) -> &FileBlocks<'_> {
        self.offsets.file
    }

    /// Returns the memory of the arrays.
    fn memory<V: Width>(&self) -> Bytes {
        let per_edge = if self.weights.is_some() { 2 } else { 1 };
        let values =
            Bytes::new(self.edges).times(per_edge) + Bytes::new(self.vertices.saturating_add(1));
        values.times(size_of::<V>() as u64)
    }

    /// Returns the sizes, for the memory bound before the read.
    fn shape(&self) -> Shape {
        Shape { vertices: self.vertices, edges: self.edges, weighted: self.weights.is_some() }
    }

    /// Reads and checks the rows. The caller has checked the file size against the header, so the
    /// arrays are no larger than the file.
    ///
    /// # Errors
    /// [`GraphError::Load`] for decreasing offsets, edges to missing vertices, weights that are
    /// not positive, and checksum mismatches.
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
        let sums = self.checksums.is_some();
        let [vertices, edges] = [self.vertices, self.edges].map(|count| count as usize);
        let mut offsets = pages.zeroed::<V>(names[0], vertices + 1)?;
        let first = usize::from(self.first_omitted);
        let sum = self.offsets.read([&mut offsets[first..]], sums, pool)?;
        self.check_sum(0, &self.offsets, sum)?;
        self.check_offsets(&offsets)?;
        let mut ends = pages.zeroed::<V>(names[1], edges)?;
        let mut weights =
            pages.zeroed::<V>(names[2], if self.weights.is_some() { edges } else { 0 })?;
        if let Some(Weights::Interleaved) = self.weights {
            let Records { file, at, size, fields: [(_, width)] } = self.ends;
            let both = Records { file, at, size, fields: [(0, width), (width, 4)] };
            both.read([&mut ends, &mut weights], false, pool)?;
        } else {
            let sum = self.ends.read([&mut ends], sums, pool)?;
            self.check_sum(1, &self.ends, sum)?;
        }
        if let Some(Weights::Separate(records)) = &self.weights {
            let sum = records.read([&mut weights], sums, pool)?;
            self.check_sum(2, records, sum)?;
        }
        self.check_edges(Csr { offsets, edges: ends, weights, heaviest: V::default() }, options)
    }

    fn check_sum(&self, which: usize, records: &Records<'_, 1>, found: u32) -> Result<()> {
        match self.checksums {
            Some(sums) if sums[which] != found => {
                Err(records.file.error_at(records.at, LoadFault::Checksum(OUT[which].name())))
            }
            _ => Ok(()),
        }
    }

    fn check_offsets<V: Width>(&self, offsets: &HugeVec<V>) -> Result<()> {
        let offset = |i: usize| offsets[i].at() as u64;
        let error = |i: usize, fault| {
            let i = i - usize::from(self.first_omitted);
            Err(self.file().error_at(self.offsets.at + (i * self.offsets.size) as u64, fault))
        };
        if offset(0) != 0 {
            return error(0, LoadFault::FirstOffset(offset(0)));
        }
        if let Some(i) = offsets.windows(2).position(|pair| pair[0] > pair[1]) {
            let (offset, previous) = (offset(i + 1), offset(i));
            return error(i + 1, LoadFault::OffsetDecreases { offset, previous });
        }
        let last = offsets.len() - 1;
        if offset(last) != self.edges {
            let fault = LoadFault::LastOffset { offset: offset(last), edges: self.edges };
            return error(last, fault);
        }
        Ok(())
    }

    fn check_edges<V: Width>(
        &self,
        mut csr: Csr<V>,
        options: &LoadOptions<'_>,
    ) -> Result<CheckedRows<V>> {
        let work = crate::WorkQueue::default();
        let limit = if self.signed { 1 << 31 } else { V::NONE.at() };
        let checks = options.build.pool.run(|worker| {
            let mut check = RowCheck { clean: true, ..RowCheck::default() };
            worker.each(&work, csr.vertices(), 1 << 12, |rows| {
                rows.for_each(|v| check.row(&csr, v, limit));
            });
            check
        });
        let all = checks.into_iter().reduce(RowCheck::and).unwrap_or_default();
        if let Some(i) = all.invalid_edge {
            let byte = self.ends.at + (i * self.ends.size) as u64;
            let (id, vertices) = (csr.edges[i].at() as u64, self.vertices);
            let fault = LoadFault::VertexOutOfRange { id, vertices };
            return Err(self.ends.file.error_at(byte, fault));
        }
        if let Some(i) = all.invalid_weight {
            let (file, byte) = match &self.weights {
                Some(Weights::Separate(records)) => {
                    (records.file, records.at + (i * records.size) as u64)
                }
                _ => (self.ends.file, self.ends.at + (i * self.ends.size) as u64 + 4),
            };
            let (weight, limit) = (csr.weights[i].at() as u64, limit as u64);
            return Err(file.error_at(byte, LoadFault::WeightOutOfRange { weight, limit }));
        }
        csr.heaviest = csr.weights.iter().copied().max().unwrap_or_default();
        if self.untyped {
            self.check_reals(&csr)?;
        }
        Ok(CheckedRows { csr, clean: all.clean, symmetry: all.symmetry })
    }
}

impl Layout<'_> {
    /// Rejects weights of which each is a positive number if its bits are those of a real number,
    /// and half of them between 2^-40 and 2^40. As integers, half would be above 700 million.
    fn check_reals<V: Width>(&self, csr: &Csr<V>) -> Result<()> {
        let Some(Weights::Separate(records)) = &self.weights else { return Ok(()) };
        let real = |weight: &V| -> f64 {
            let bits = weight.at() as u64;
            #[allow(clippy::cast_possible_truncation)] // 4 bytes
            if records.size == 4 {
                f32::from_bits(bits as u32).into()
            } else {
                f64::from_bits(bits)
            }
        };
        let is_usual = |weight: &&V| (2f64.powi(-40)..=2f64.powi(40)).contains(&real(weight));
        let all = csr.weights.iter();
        let least = if records.size == 4 { f32::MIN_POSITIVE.into() } else { f64::MIN_POSITIVE };
        if !all.clone().all(|weight| (least..f64::INFINITY).contains(&real(weight)))
            || all.filter(is_usual).count() * 2 < csr.weights.len()
            || csr.weights.is_empty()
        {
            return Ok(());
        }
        let integer = csr.weights[0].at() as u64;
        let real = real(&csr.weights[0]);
        Err(records.file.error_at(records.at, LoadFault::RealOrInteger { real, integer }))
    }
}

/// Properties of checked rows.
#[derive(Clone, Copy, Debug, Default)]
struct RowCheck {
    clean: bool,
    /// Index of the first edge to a missing vertex.
    invalid_edge: Option<usize>,
    /// Index of the first weight out of range.
    invalid_weight: Option<usize>,
    symmetry: Symmetry,
}

impl RowCheck {
    fn row<V: Width>(&mut self, csr: &Csr<V>, v: usize, limit: usize) {
        let (row, vertices, mut before) = (csr.range(v), csr.vertices(), None);
        for (i, &to) in row.clone().zip(&csr.edges[row]) {
            if to.at() >= vertices {
                self.invalid_edge = least(self.invalid_edge, Some(i));
            }
            self.clean &= to.at() != v && before.is_none_or(|before| before < to);
            before = Some(to);
            let weight = csr.weights.get(i).copied();
            if weight.is_some_and(|weight| weight.at() == 0 || weight.at() >= limit) {
                self.invalid_weight = least(self.invalid_weight, Some(i));
            }
            let weight = weight.map_or(0, |weight| weight.at() as u64);
            self.symmetry.add(v as u64, to.at() as u64, weight);
        }
    }
    fn and(self, other: Self) -> Self {
        Self {
            clean: self.clean && other.clean,
            invalid_edge: least(self.invalid_edge, other.invalid_edge),
            invalid_weight: least(self.invalid_weight, other.invalid_weight),
            symmetry: self.symmetry.and(other.symmetry),
        }
    }
}

fn least(a: Option<usize>, b: Option<usize>) -> Option<usize> {
    a.into_iter().chain(b).min()
}

/// Rows as an edge source, if they are not as a build would make them.
struct RowEdges<'a, V: Width>(&'a Csr<V>);

impl<V: Width> EdgeSource for RowEdges<'_, V> {
    fn vertices(&self) -> u64 {
        self.0.vertices() as u64
    }
    fn edges(&self) -> u64 {
        self.0.edges() as u64
    }
    fn is_weighted(&self) -> bool {
        self.0.is_weighted()
    }
    fn blocks(&self) -> usize {
        self.0.blocks()
    }
    fn block(&self, block: usize, each: impl FnMut(Edge)) {
        self.0.block(block, each);
    }
}

/// Reads the rows of a graph, and its transpose if the file has one, and builds the missing parts.
///
/// # Errors
/// Those of [`Layout::read`] and of building; [`GraphError::InsufficientMemory`].
pub(super) fn load<V: Width>(
    out: &Layout<'_>,
    transpose: Option<&Layout<'_>>,
    stated: Directedness,
    options: &LoadOptions<'_>,
) -> Result<FileGraph<V>> {
    // Whether rows are symmetric is known only after the read.
    let (may_be_directed, _) = stated.decide(options, || false);
    let build = Build { directed: may_be_directed, ..options.build };
    let (arrays, with_transpose) = (out.memory::<V>(), build.peak::<V>(&out.shape()));
    let mut peak = match transpose {
        None if may_be_directed => with_transpose,
        _ => arrays.times(if may_be_directed { 2 } else { 1 }),
    };
    options.begin(out.vertices, peak)?;
    let rows = out.read::<V>(OUT, options)?;
    let is_symmetric = rows.symmetry.is_symmetric();
    if stated == Directedness::Undirected && !is_symmetric {
        return Err(out.file().error_at(out.offsets.at, LoadFault::Asymmetric));
    }
    let (directed, cause) = stated.decide(options, || is_symmetric);
    let build = Build { directed, ..options.build };
    let half = !directed && is_symmetric;
    if !rows.clean || !(directed || half) {
        let begin = Instant::now();
        let edges = RowEdges(&rows.csr);
        let halved = Half { source: &edges, loops: rows.symmetry.loops };
        let peak = arrays + if half { build.peak::<V>(&halved) } else { build.peak::<V>(&edges) };
        options.begin(out.vertices, peak)?;
        let graph = if half { build.graph(&halved)? } else { build.graph(&edges)? };
        return Ok(FileGraph::new(graph, peak, begin.elapsed(), cause));
    }
    let read = match transpose {
        Some(layout) if directed => read_transpose(layout, &rows, options)?,
        _ => None,
    };
    let begin = Instant::now();
    let incoming = match read {
        None if directed => {
            // Announced already, unless the file has an unusable transpose.
            if transpose.is_some() {
                peak = with_transpose;
                options.begin(out.vertices, peak)?;
            }
            Some(build.transpose(&rows.csr)?)
        }
        read => read,
    };
    let graph = Graph { out: rows.csr, transpose: incoming, dropped: DroppedEdges::default() };
    Ok(FileGraph::new(graph, peak, begin.elapsed(), cause))
}

/// Reads the transpose; `None` if its rows are unsorted.
fn read_transpose<V: Width>(
    layout: &Layout<'_>,
    out: &CheckedRows<V>,
    options: &LoadOptions<'_>,
) -> Result<Option<Csr<V>>> {
    let rows = layout.read::<V>(IN, options)?;
    if !rows.symmetry.is_reverse_of(out.symmetry) {
        return Err(layout.file().error_at(layout.offsets.at, LoadFault::NotTranspose));
    }
    Ok(rows.clean.then_some(rows.csr))
}
