//! Directions of edges: those of the file, unless the caller requests others.

use super::options::LoadOptions;
use super::symmetry::Symmetry;
use crate::{Cursor, EdgeSource, ThreadPool};

/// Statement of a file or format about directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Directedness {
    /// The file says that edges have a direction.
    Directed,
    /// Edges have a direction, and those of an undirected graph are there in both.
    Arcs,
    /// Edges have no direction.
    Undirected,
    /// There is no statement.
    Unspecified,
}

/// Cause of the directions of a loaded graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectionCause {
    /// The file or its format states them.
    #[default]
    Stated,
    /// Each edge is there in both directions, with one weight.
    Symmetric,
    /// The caller requested them.
    Requested,
    /// The kernel requires an undirected graph.
    Kernel,
    /// The file states none, so edges have none.
    Unstated,
}

impl DirectionCause {
    /// Returns the name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stated => "stated",
            Self::Symmetric => "symmetric",
            Self::Requested => "requested",
            Self::Kernel => "kernel",
            Self::Unstated => "unstated",
        }
    }
}

impl Directedness {
    /// Decides whether edges have a direction.
    pub(super) fn decide(
        self,
        options: &LoadOptions<'_>,
        is_symmetric: impl FnOnce() -> bool,
    ) -> (bool, DirectionCause) {
        match (self, options.directed) {
            (Self::Undirected, _) => (false, DirectionCause::Stated),
            (_, Some(directed)) => (directed, DirectionCause::Requested),
            _ if options.needs_undirected => (false, DirectionCause::Kernel),
            (Self::Directed, None) => (true, DirectionCause::Stated),
            (Self::Arcs, None) if is_symmetric() => (false, DirectionCause::Symmetric),
            (Self::Arcs, None) => (true, DirectionCause::Stated),
            (Self::Unspecified, None) => (false, DirectionCause::Unstated),
        }
    }
}

/// Sums up the edges of a source. One pass over them, by all threads.
pub(super) fn symmetry(source: &impl EdgeSource, pool: ThreadPool) -> Symmetry {
    let blocks = Cursor::default();
    let sums = pool.run(|_| {
        let mut sum = Symmetry::default();
        while let Some(block) = blocks.next(source.blocks()) {
            source.block(block, |edge| sum.add(edge.from, edge.to, edge.weight));
        }
        sum
    });
    sums.into_iter().fold(Symmetry::default(), Symmetry::and)
}

/// Edges of a symmetric source, each once.
pub(super) struct Half<'a, S> {
    pub(super) source: &'a S,
    /// Self-loops, which are there once.
    pub(super) loops: u64,
}

impl<S: EdgeSource> EdgeSource for Half<'_, S> {
    fn vertices(&self) -> u64 {
        self.source.vertices()
    }
    fn edges(&self) -> u64 {
        (self.source.edges() - self.loops) / 2 + self.loops
    }
    fn is_weighted(&self) -> bool {
        self.source.is_weighted()
    }
    fn blocks(&self) -> usize {
        self.source.blocks()
    }
    fn block(&self, block: usize, mut each: impl FnMut(crate::Edge)) {
        self.source.block(block, |edge| {
            if edge.from <= edge.to {
                each(edge);
            }
        });
    }
}
