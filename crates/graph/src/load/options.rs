//! What a file is to become.

use std::path::Path;

use hugepilot_units::Bytes;

use super::blocks::whole;
use super::number::Weights;
use super::text::fits;
use super::{LoadMode, Progress};
use crate::csr::BLOCK;
use crate::error::WIDER;
use crate::{Build, EdgeSource, Format, Result, Width};

/// How a file is loaded.
#[derive(Clone, Copy)]
pub struct LoadOptions<'a> {
    /// How its graph is built. Without `directed`, edges with a direction lose it; with it, they have one unless the file says
    /// that they have none.
    pub build: Build,
    /// A file that says that its edges have directions keeps them all the same.
    pub keep_directions: bool,
    /// What the file looks like; by its contents and name otherwise.
    pub format: Option<Format>,
    /// What becomes of it in the page cache.
    pub load_mode: LoadMode,
    /// How many vertices there are; one more than the largest number otherwise, in files that do not say it.
    pub vertices: Option<u64>,
    /// Vertices of an edge list are counted anew: there may be gaps between their numbers, of up to 64 bits.
    pub compact: bool,
    /// What real weights are multiplied with before they are rounded.
    pub scale_weights: Option<f64>,
    /// The graph gets no weights.
    pub ignore_weights: bool,
    /// Memory that may be taken at the peak.
    pub available: Option<Bytes>,
    /// Told how many vertices there are and what memory building takes at its peak, before it begins; twice where rows that the
    /// file has turn out to be of no use. Its errors end the load_mode.
    pub building: &'a (dyn Fn(u64, Bytes) -> Result<()> + Sync),
    /// Told now and then how many bytes of the file are read, of how many.
    pub progress: Progress<'a>,
}

impl LoadOptions<'_> {
    /// As the file says, whatever memory that takes.
    pub fn new(build: Build) -> Self {
        Self {
            build,
            keep_directions: false,
            format: None,
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

    /// Refuses what a format has no use for: better than to pass it over.
    ///
    /// # Errors
    /// [`GraphError::Format`](crate::GraphError::Format).
    pub(super) fn check(&self, path: &Path, format: Format) -> Result<()> {
        let is_list = matches!(format, Format::EdgeList | Format::WeightedEdgeList);
        let wrong = |what| Err(whole(path, format!("is {format}, {what}")));
        if self.compact && !is_list {
            return wrong(
                "where vertices have no gaps between their numbers; --compact is for el and wel",
            );
        }
        if self.vertices.is_some()
            && (!format.is_text() || format == Format::Ldbc || format == Format::Metis)
        {
            return wrong(
                "which says how many vertices there are; --vertices is for el, wel, mtx and dimacs",
            );
        }
        if self.scale_weights.is_some_and(|scale| !scale.is_finite() || scale <= 0.0) {
            return Err(whole(path, "cannot be scaled so; --scale-weights takes a number above 0"));
        }
        if self.scale_weights.is_some() && !format.is_text() {
            return wrong("whose weights are whole numbers; --scale-weights is for text");
        }
        Ok(())
    }

    /// What weights become in text, if the file has any.
    ///
    /// # Errors
    /// [`GraphError::Format`](crate::GraphError::Format) where there are none to be scaled.
    pub(super) fn weights<V: Width>(&self, path: &Path, has: bool) -> Result<Option<Weights>> {
        if self.scale_weights.is_some() && !has {
            return Err(whole(path, "has no weights; leave out --scale-weights"));
        }
        let rule = Weights { scale: self.scale_weights, limit: V::NONE.at() as u64 };
        Ok((has && !self.ignore_weights).then_some(rule))
    }

    /// How many vertices, where the file says `said` or nothing.
    pub(super) fn count(&self, said: Option<u64>) -> std::result::Result<Option<u64>, String> {
        match (self.vertices, said) {
            (Some(wanted), Some(said)) if wanted < said => {
                Err(format!("the file has {said} vertices, more than --vertices {wanted}"))
            }
            (Some(wanted), _) => Ok(Some(wanted)),
            (None, said) => Ok(said),
        }
    }

    /// Refuses vertices that a file has no room for, unless they were asked for; and none.
    pub(super) fn justify<V: Width>(
        &self,
        vertices: u64,
        file: u64,
    ) -> std::result::Result<(), String> {
        /// Bytes of memory that a byte of a file may cost, before anybody has to ask for it.
        const PER_BYTE: u64 = 64;
        const FREE: u64 = 1 << 20;
        if vertices == 0 {
            return Err(
                "no vertices; --vertices says how many there are where no edge does".to_owned()
            );
        }
        let needed = vertices.saturating_mul(size_of::<V>() as u64);
        if needed <= FREE.saturating_add(file.saturating_mul(PER_BYTE))
            || self.vertices == Some(vertices)
        {
            return Ok(());
        }
        Err(format!(
            "{vertices} vertices in {file} bytes; if that is meant, say --vertices {vertices}, \
             and if their numbers have gaps, --compact"
        ))
    }

    /// Refuses what does not fit, and tells of what does: building begins.
    ///
    /// # Errors
    /// [`GraphError::InsufficientMemory`](crate::GraphError::InsufficientMemory), and those of who is told.
    pub(super) fn begin(&self, vertices: u64, peak: Bytes) -> Result<()> {
        fits(peak, self.available)?;
        (self.building)(vertices, peak)
    }

    /// Memory at the peak, with `beside` the builder's.
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

/// A source of which only the numbers are known.
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

/// The vertex `id` of `vertices`, if numbers of the width count it.
pub(super) fn vertex<V: Width>(id: u64, vertices: Option<u64>) -> std::result::Result<V, String> {
    if let Some(vertices) = vertices
        && id >= vertices
    {
        return Err(format!("vertex {id} in a graph of {vertices}"));
    }
    // One more than the largest is how many there are, and the largest of all numbers means none.
    if id >= V::NONE.at() as u64 - 1 {
        let bits = V::BITS;
        return Err(format!("vertex {id} is more than {bits} bits count; {WIDER} or --compact"));
    }
    Ok(V::new(id as usize))
}

/// The same, counted from 1.
pub(super) fn vertex_from_1<V: Width>(id: u64, vertices: u64) -> std::result::Result<V, String> {
    if id == 0 || id > vertices {
        return Err(format!("vertex {id} in a graph whose {vertices} are counted from 1"));
    }
    vertex(id - 1, None)
}
