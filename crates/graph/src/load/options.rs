//! Load options.

use std::path::Path;

use hugepilot_units::Bytes;

use super::file_blocks::whole;
use super::number::Weights;
use super::text::check_memory;
use super::{LoadMode, Progress};
use crate::csr::BLOCK;
use crate::error::LoadFault;
use crate::{Build, EdgeSource, Format, Result, Width};

/// Options of [`load`](super::load).
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// Build options. [`Self::directed`] replaces `directed`.
    pub build: Build,
    /// Whether edges have a direction, unless the file states that they have none. `None` takes
    /// directions from the file, and none if the file does not state them.
    pub directed: Option<bool>,
    /// Whether edges have none otherwise.
    pub needs_undirected: bool,
    /// Format; `None` detects it by content and name.
    pub format: Option<Format>,
    /// Member of a tar archive, by its name.
    pub member: Option<&'a str>,
    /// Names of the columns of an edge list, separated by commas; `None` detects the columns.
    pub columns: Option<&'a str>,
    /// Lines of an edge list before the first edge or the names of the columns; `None` also skips a
    /// line that states vertices and edges.
    pub skip_lines: Option<u64>,
    /// Treatment of the page cache.
    pub load_mode: LoadMode,
    /// Number of vertices. `None` takes the number in the file, or the largest ID plus 1.
    pub vertices: Option<u64>,
    /// Whether the vertices of an edge list are relabelled to consecutive IDs. The IDs of the file
    /// may then have gaps and up to 64 bits.
    pub compact: bool,
    /// Factor for real weights, applied before rounding.
    pub scale_weights: Option<f64>,
    /// Whether weights are ignored.
    pub ignore_weights: bool,
    /// Upper bound on the memory at the peak.
    pub available: Option<Bytes>,
    /// Called with the number of vertices and the peak memory before a build starts. Called twice
    /// if the rows of the file turn out to be unusable. An error ends the load.
    pub building: &'a (dyn Fn(u64, Bytes) -> Result<()> + Sync),
    /// Called from time to time with the bytes read and the size of the file.
    pub progress: Progress<'a>,
}

impl LoadOptions<'_> {
    /// Makes options that take everything else from the file and have no memory bound.
    pub fn new(build: Build) -> Self {
        Self {
            build,
            directed: None,
            needs_undirected: false,
            format: None,
            member: None,
            columns: None,
            skip_lines: None,
            load_mode: LoadMode::default(),
            vertices: None,
            compact: false,
            scale_weights: None,
            ignore_weights: false,
            available: None,
            building: &|_, _| Ok(()),
            progress: &|_, _| {},
        }
    }

    /// Rejects options without effect for a format.
    ///
    /// # Errors
    /// [`GraphError::Load`](crate::GraphError::Load).
    pub(super) fn check(&self, path: &Path, format: Format) -> Result<()> {
        let is_list = matches!(format, Format::EdgeList | Format::WeightedEdgeList);
        let states_vertices = !format.is_text() || matches!(format, Format::Ldbc | Format::Metis);
        let fault = if self.compact && !is_list {
            LoadFault::CompactUnsupported(format)
        } else if (self.columns.is_some() || self.skip_lines.is_some()) && !is_list {
            LoadFault::ColumnsUnsupported(format)
        } else if self.vertices.is_some() && states_vertices {
            LoadFault::VerticesUnsupported(format)
        } else if self.scale_weights.is_some_and(|scale| !scale.is_finite() || scale <= 0.0) {
            LoadFault::InvalidScale
        } else if self.scale_weights.is_some() && !format.is_text() {
            LoadFault::ScaleUnsupported(format)
        } else {
            return Ok(());
        };
        Err(whole(path, fault))
    }

    /// Returns the rule for weights in text; `has` states whether the file has any.
    ///
    /// # Errors
    /// [`LoadFault::ScaleWithoutWeights`].
    pub(super) fn weights<V: Width>(&self, path: &Path, has: bool) -> Result<Option<Weights>> {
        if self.scale_weights.is_some() && !has {
            return Err(whole(path, LoadFault::ScaleWithoutWeights));
        }
        let rule = Weights { scale: self.scale_weights, limit: V::NONE.at() as u64 };
        Ok((has && !self.ignore_weights).then_some(rule))
    }

    /// Returns the number of vertices for a file that states `stated`.
    pub(super) fn vertices_or(&self, stated: u64) -> std::result::Result<u64, LoadFault> {
        match self.vertices {
            Some(requested) if requested < stated => {
                Err(LoadFault::MoreVertices { stated, requested })
            }
            Some(requested) => Ok(requested),
            None => Ok(stated),
        }
    }

    /// Rejects 0 vertices, and more than `bytes` of text justify, unless the caller states them.
    /// `can_compact`: the file is an edge list.
    pub(super) fn check_vertices<V: Width>(
        &self,
        vertices: u64,
        bytes: u64,
        can_compact: bool,
    ) -> std::result::Result<(), LoadFault> {
        /// Bytes of memory that one byte of a file justifies.
        const PER_BYTE: u64 = 64;
        const FREE: u64 = 1 << 20;
        if vertices == 0 {
            let fault = if can_compact { LoadFault::EmptyList } else { LoadFault::NoVertices };
            return Err(fault);
        }
        let needed = vertices.saturating_mul(size_of::<V>() as u64);
        if needed <= FREE.saturating_add(bytes.saturating_mul(PER_BYTE))
            || self.vertices == Some(vertices)
        {
            return Ok(());
        }
        Err(LoadFault::ImplausibleVertices { vertices, bytes, can_compact })
    }

    /// Checks the memory, and announces the build.
    ///
    /// # Errors
    /// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of
    /// [`Self::building`].
    pub(super) fn begin(&self, vertices: u64, peak: Bytes) -> Result<()> {
        check_memory(peak, self.available)?;
        (self.building)(vertices, peak)
    }

    /// Returns the memory at the peak of a build, with `beside` bytes for the input.
    pub(super) fn peak<V: Width>(
        &self,
        vertices: u64,
        edges: u64,
        weighted: bool,
        beside: u64,
    ) -> Bytes {
        self.build.peak::<V>(&Shape { vertices, edges, weighted }) + Bytes::new(beside)
    }
}

/// Sizes of an edge source whose edges are not known yet.
pub(super) struct Shape {
    pub(super) vertices: u64,
    pub(super) edges: u64,
    pub(super) weighted: bool,
}

impl EdgeSource for Shape {
    fn vertices(&self) -> u64 {
        self.vertices
    }
    fn edges(&self) -> u64 {
        self.edges
    }
    fn is_weighted(&self) -> bool {
        self.weighted
    }
    fn blocks(&self) -> usize {
        usize::try_from(self.edges.div_ceil(BLOCK as u64)).unwrap_or(usize::MAX)
    }
    fn block(&self, _: usize, _: impl FnMut(crate::Edge)) {}
}

/// Converts an ID to a vertex below `vertices`, if stated.
pub(super) fn vertex<V: Width>(
    id: u64,
    vertices: Option<u64>,
) -> std::result::Result<V, LoadFault> {
    if let Some(vertices) = vertices
        && id >= vertices
    {
        return Err(LoadFault::VertexOutOfRange { id, vertices });
    }
    // The number of vertices is the largest ID plus 1, and the largest number means "none".
    if id >= V::NONE.at() as u64 - 1 {
        return Err(LoadFault::VertexTooLarge { id, bits: V::BITS });
    }
    Ok(V::new(id as usize))
}

/// Converts an ID that counts from 1 to a vertex.
pub(super) fn vertex_from_1<V: Width>(id: u64, vertices: u64) -> std::result::Result<V, LoadFault> {
    if id == 0 || id > vertices {
        return Err(LoadFault::OneBasedVertexOutOfRange { id, vertices });
    }
    vertex(id - 1, None)
}
