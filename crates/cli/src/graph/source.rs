//! Which graph.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use hugepilot_graph::run::{Job, Ready};
use hugepilot_graph::{Degree, GraphError, Grid, Kronecker, Order, Rng, Source, Uniform, Width};
use hugepilot_units::Bytes;

#[derive(Debug, Args)]
pub(super) struct SourceArgs {
    /// The graph: kronecker:SCALE[:DEGREE], uniform:SCALE[:DEGREE] (2^SCALE vertices, DEGREE times as many edges, 16 unless
    /// given) or grid:ROWSxCOLUMNS
    #[arg(value_name = "GRAPH")]
    graph: Generated,
    /// Give edges weights from 1 to 255, for a kernel that needs none; sssp does it by itself
    #[arg(long)]
    weighted: bool,
    /// Keep the direction of edges, and build the inverse, too
    #[arg(long)]
    directed: bool,
    /// How random numbers choose the edges of a Kronecker graph: u32 as the GAP benchmark suite since October 2023, float as before
    /// that, and as in the papers
    #[arg(long, value_name = "HOW", default_value = "u32")]
    rng: RngArg,
    /// Number vertices anew: dbg, hub-sort, hub-cluster, sort, random[:SEED] or rcm. Results keep the old numbers
    #[arg(long, value_name = "ORDER")]
    reorder: Option<String>,
    /// Which edges count as a vertex's degree for --reorder: out for kernels that pull, in for those that push
    #[arg(long, value_name = "WHICH", default_value = "out")]
    degree: DegreeArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RngArg {
    U32,
    Float,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DegreeArg {
    Out,
    In,
}

/// A graph that numbers make.
#[derive(Clone, Debug)]
struct Generated {
    text: String,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Kronecker { scale: u32, degree: u64 },
    Uniform { scale: u32, degree: u64 },
    Grid { rows: u64, columns: u64 },
}

/// Base-2 logarithm of the most vertices.
const MOST_SCALE: u32 = 32;

impl FromStr for Generated {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let fail = || {
            format!(
                "{text:?} is no graph; write kronecker:22, kronecker:22:16, uniform:24:8 or grid:4096x4096"
            )
        };
        let (kind, rest) = text.split_once(':').ok_or_else(fail)?;
        let scaled = || {
            let (scale, degree) = rest.split_once(':').unwrap_or((rest, "16"));
            let (scale, degree) = (scale.parse().ok()?, degree.parse().ok()?);
            (scale <= MOST_SCALE && degree <= 1 << 20).then_some((scale, degree))
        };
        let shape = match kind {
            "kronecker" => scaled().map(|(scale, degree)| Shape::Kronecker { scale, degree }),
            "uniform" => scaled().map(|(scale, degree)| Shape::Uniform { scale, degree }),
            "grid" => rest.split_once('x').and_then(|(rows, columns)| {
                let (rows, columns) = (rows.parse().ok()?, columns.parse().ok()?);
                let sides = 1..=1u64 << 24;
                (sides.contains(&rows) && sides.contains(&columns)).then_some(Shape::Grid { rows, columns })
            }),
            _ => None,
        };
        Ok(Self { text: text.to_owned(), shape: shape.ok_or_else(fail)? })
    }
}

impl SourceArgs {
    pub(super) fn name(&self) -> &str {
        &self.graph.text
    }

    pub(super) const fn is_directed(&self) -> bool {
        self.directed
    }

    pub(super) fn order(&self) -> Result<Option<(Order, Degree)>, GraphError> {
        let degree = match self.degree {
            DegreeArg::Out => Degree::Out,
            DegreeArg::In => Degree::In,
        };
        self.reorder.as_deref().map(|order| Ok((order.parse()?, degree))).transpose()
    }

    /// Builds it, if it fits into `available`.
    pub(super) fn build<V: Width>(&self, job: &Job, available: Bytes) -> Result<Ready<V>, GraphError> {
        let weighted = self.weighted || job.kernel.is_some_and(|kernel| kernel.needs_weights());
        let rng = match self.rng {
            RngArg::U32 => Rng::Whole,
            RngArg::Float => Rng::Float,
        };
        match self.graph.shape {
            Shape::Kronecker { scale, degree } => {
                fitting(job, &Kronecker { scale, degree, weighted, rng, shuffled: true }, available)
            }
            Shape::Uniform { scale, degree } => fitting(job, &Uniform { scale, degree, weighted }, available),
            Shape::Grid { rows, columns } => fitting(job, &Grid { rows, columns, weighted }, available),
        }
    }
}

fn fitting<V: Width>(job: &Job, source: &impl Source, available: Bytes) -> Result<Ready<V>, GraphError> {
    let needed = job.peak::<V>(source);
    if needed > available {
        return Err(GraphError::Room { needed, available });
    }
    job.build(source)
}
