//! Kernels by name, and their results as records.

use std::mem::take;

use hugepilot_reports::graph::{KernelResult, RankedVertex};

use super::PreparedGraph;
use super::values::{Value, Values, depths, least};
use crate::kernel::{
    CcAlgorithm, DiameterAlgorithm, Direction, KernelCost, PageRankAlgorithm, PageRankConfig,
    Setup, SsspAlgorithm, Verdict, betweenness, bfs, components, diameter, pagerank, sssp,
    triangles,
};
use crate::{Result, Tracer, Width};

/// Kernel with its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kernel {
    /// Breadth-first search.
    Bfs(Direction),
    /// Single-source shortest paths.
    Sssp(SsspAlgorithm),
    /// `PageRank`.
    PageRank(PageRankConfig),
    /// Connected components.
    Components(CcAlgorithm),
    /// Betweenness centrality from one source.
    Betweenness,
    /// Lower bound on the diameter.
    Diameter(DiameterAlgorithm),
    /// Triangle counting.
    Triangles,
}

/// Outcome of one run of a kernel.
pub(super) struct KernelRun {
    pub(super) result: KernelResult,
    pub(super) cost: KernelCost,
    /// Verdict of the verifier; `None` if not requested.
    pub(super) verdict: Option<Verdict>,
    /// Value of each vertex, if requested and the kernel has them.
    pub(super) values: Option<Values>,
}

/// Requested extras of a run.
#[derive(Clone, Copy)]
pub(super) struct RunOptions {
    pub(super) verify: bool,
    pub(super) values: bool,
}

/// Vertices in a ranking.
const TOP: usize = 10;

impl Kernel {
    /// Returns the name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bfs(_) => "bfs",
            Self::Sssp(_) => "sssp",
            Self::PageRank(_) => "pr",
            Self::Components(_) => "cc",
            Self::Betweenness => "bc",
            Self::Diameter(_) => "diameter",
            Self::Triangles => "tc",
        }
    }

    /// Whether the kernel requires weights.
    pub fn needs_weights(&self) -> bool {
        matches!(self, Self::Sssp(_))
    }

    /// Whether the kernel requires an undirected graph.
    pub fn needs_undirected(&self) -> bool {
        matches!(self, Self::Triangles)
    }

    /// Whether the result has a value for each vertex.
    pub fn has_values(&self) -> bool {
        !matches!(self, Self::Diameter(_) | Self::Triangles)
    }

    /// Whether the kernel has a source vertex.
    pub(super) fn has_source(&self) -> bool {
        matches!(self, Self::Bfs(_) | Self::Sssp(_) | Self::Betweenness | Self::Diameter(_))
    }

    /// Returns the bytes of each property array that the kernel uses or may use.
    pub(super) fn property_sizes<V: Width>(&self, vertices: usize) -> Vec<usize> {
        let bytes = |size: usize| vertices.saturating_mul(size);
        let (word, eight) = (bytes(size_of::<V>()), bytes(size_of::<u64>()));
        match self {
            Self::Bfs(_)
            | Self::Sssp(_)
            | Self::Components(_)
            | Self::Triangles
            | Self::Diameter(DiameterAlgorithm::DoubleSweep) => vec![word],
            Self::Diameter(DiameterAlgorithm::MultiSource) => vec![eight; 2],
            Self::PageRank(PageRankConfig { algorithm: PageRankAlgorithm::DeltaPush, .. }) => {
                vec![word, eight]
            }
            Self::PageRank(_) => vec![word; 2],
            Self::Betweenness => vec![word, word, eight],
        }
    }

    /// Runs the kernel once.
    pub(super) fn run<V: Width, T: Tracer>(
        &self,
        prepared: &PreparedGraph<V>,
        source: Option<V>,
        setup: &Setup<T>,
        options: RunOptions,
    ) -> Result<KernelRun> {
        let source = source.unwrap_or_default();
        match *self {
            Self::Bfs(direction) => run_bfs(prepared, source, direction, setup, options),
            Self::Sssp(algorithm) => run_sssp(prepared, source, algorithm, setup, options),
            Self::PageRank(config) => run_pagerank(prepared, config, setup, options),
            Self::Components(algorithm) => run_components(prepared, algorithm, setup, options),
            Self::Betweenness => run_betweenness(prepared, source, setup, options),
            Self::Diameter(algorithm) => {
                let found = diameter(&prepared.graph, source, algorithm, setup)?;
                let result = KernelResult::Diameter { lower_bound: found.lower_bound as u64 };
                let verdict = options.verify.then(|| found.verify(&prepared.graph));
                Ok(KernelRun { result, verdict, values: None, cost: found.cost })
            }
            Self::Triangles => {
                let found = triangles(&prepared.graph, setup)?;
                let result = KernelResult::Tc { triangles: found.count };
                let verdict = options.verify.then(|| found.verify(&prepared.graph));
                Ok(KernelRun { result, verdict, values: None, cost: found.cost })
            }
        }
    }
}

fn run_bfs<V: Width, T: Tracer>(
    prepared: &PreparedGraph<V>,
    source: V,
    direction: Direction,
    setup: &Setup<T>,
    options: RunOptions,
) -> Result<KernelRun> {
    let found = bfs(&prepared.graph, source, direction, setup)?;
    let level_sizes = found.levels.iter().map(|&size| size as u64).collect();
    let result = KernelResult::Bfs { reached: found.reached() as u64, level_sizes };
    let verdict = options.verify.then(|| found.verify(&prepared.graph, source));
    let values = options.values.then(|| {
        let depths = depths(&found.parents);
        boxed(move |v| Value::Depth(finite(depths[v])))
    });
    Ok(KernelRun { result, verdict, values, cost: found.cost })
}

fn run_sssp<V: Width, T: Tracer>(
    prepared: &PreparedGraph<V>,
    source: V,
    algorithm: SsspAlgorithm,
    setup: &Setup<T>,
    options: RunOptions,
) -> Result<KernelRun> {
    let mut found = sssp(&prepared.graph, source, algorithm, setup)?;
    let result = KernelResult::Sssp {
        reached: found.reached() as u64,
        distance_sum: found.sum(),
        distance_max: found.max().map_or(0, |distance| distance.at() as u64),
    };
    let verdict = options.verify.then(|| found.verify(&prepared.graph, source));
    let cost = take(&mut found.cost);
    let values =
        options.values.then(|| boxed(move |v| Value::Distance(finite(found.distances[v]))));
    Ok(KernelRun { result, verdict, values, cost })
}

fn run_pagerank<V: Width, T: Tracer>(
    prepared: &PreparedGraph<V>,
    config: PageRankConfig,
    setup: &Setup<T>,
    options: RunOptions,
) -> Result<KernelRun> {
    let mut found = pagerank(&prepared.graph, config, setup)?;
    let result = KernelResult::Pr {
        sum: (0..prepared.graph.vertices()).map(|v| found.rank(v)).sum(),
        top: top(prepared, |v| found.rank(v)),
        iterations: found.iterations as u64,
        residual: found.residual,
        converged: Some(found.residual <= config.tolerance),
    };
    let verdict = options.verify.then(|| found.verify(&prepared.graph, config));
    let cost = take(&mut found.cost);
    let values = options.values.then(|| boxed(move |v| Value::Real(found.rank(v))));
    Ok(KernelRun { result, verdict, values, cost })
}

fn run_components<V: Width, T: Tracer>(
    prepared: &PreparedGraph<V>,
    algorithm: CcAlgorithm,
    setup: &Setup<T>,
    options: RunOptions,
) -> Result<KernelRun> {
    let found = components(&prepared.graph, algorithm, setup)?;
    let (components, largest) = (found.count() as u64, found.largest() as u64);
    let ignores_directions = prepared.graph.is_directed();
    let result = KernelResult::Cc { components, largest, ignores_directions };
    let verdict = options.verify.then(|| found.verify(&prepared.graph));
    let values = options.values.then(|| {
        let ids = prepared.original_ids();
        let least = least(&found.labels, |v| ids.of(v));
        boxed(move |v| Value::Label(least[v]))
    });
    Ok(KernelRun { result, verdict, values, cost: found.cost })
}

fn run_betweenness<V: Width, T: Tracer>(
    prepared: &PreparedGraph<V>,
    source: V,
    setup: &Setup<T>,
    options: RunOptions,
) -> Result<KernelRun> {
    let mut found = betweenness(&prepared.graph, &[source], setup)?;
    let result = KernelResult::Bc { top: top(prepared, |v| found.score(v)) };
    let verdict = options.verify.then(|| found.verify(&prepared.graph, &[source]));
    let cost = take(&mut found.cost);
    let values = options.values.then(|| boxed(move |v| Value::Real(found.score(v))));
    Ok(KernelRun { result, verdict, values, cost })
}

/// Converts a distance; `None` for unreachable vertices.
fn finite<V: Width>(distance: V) -> Option<u64> {
    (distance != V::NONE).then_some(distance.at() as u64)
}

fn boxed(value: impl Fn(usize) -> Value + 'static) -> Values {
    Box::new(value)
}

/// Returns the vertices with the highest values, by their IDs in the input; equal values by
/// ascending ID.
fn top<V: Width>(prepared: &PreparedGraph<V>, value: impl Fn(usize) -> f64) -> Vec<RankedVertex> {
    let ids = prepared.original_ids();
    let mut best: Vec<RankedVertex> = Vec::with_capacity(TOP + 1);
    for v in 0..prepared.graph.vertices() {
        let one = RankedVertex { vertex: ids.of(v), value: value(v) };
        let before = |other: &RankedVertex| (other.value, one.vertex) > (one.value, other.vertex);
        let place = best.partition_point(before);
        if place < TOP {
            best.insert(place, one);
            best.truncate(TOP);
        }
    }
    best
}
