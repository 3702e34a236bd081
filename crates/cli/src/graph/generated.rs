//! Generated graphs by name.

use clap::ValueEnum;
use hugepilot_graph::error::GraphStep;
use hugepilot_graph::run::Job;
use hugepilot_graph::{EdgeSource, GraphError, Grid, Ids, Kronecker, Rng, Uniform, Width};
use hugepilot_trace::graph::GraphInput;

use super::source::{MemoryBudget, SourceGraph};

/// Generated graph with its name.
#[derive(Clone, Debug)]
pub(super) struct GeneratedGraph {
    pub(super) text: String,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    Kronecker { scale: u32, degree: u64 },
    Uniform { scale: u32, degree: u64 },
    Grid { rows: u64, columns: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RngArg {
    U32,
    Float,
}

/// Base-2 logarithm of the most vertices.
const MAX_SCALE: u32 = 32;

impl GeneratedGraph {
    /// Parses a name; `None` for a path.
    ///
    /// # Errors
    /// The supported names.
    pub(super) fn of(text: &str) -> Option<Result<Self, String>> {
        let (kind, rest) = text.split_once(':')?;
        let scaled = || {
            let (scale, degree) = rest.split_once(':').unwrap_or((rest, "16"));
            let (scale, degree) = (scale.parse().ok()?, degree.parse().ok()?);
            (scale <= MAX_SCALE && degree <= 1 << 20).then_some((scale, degree))
        };
        let shape = match kind {
            "kronecker" => scaled().map(|(scale, degree)| Shape::Kronecker { scale, degree }),
            "uniform" => scaled().map(|(scale, degree)| Shape::Uniform { scale, degree }),
            "grid" => rest.split_once('x').and_then(|(rows, columns)| {
                let (rows, columns) = (rows.parse().ok()?, columns.parse().ok()?);
                let sides = 1..=1u64 << 24;
                (sides.contains(&rows) && sides.contains(&columns))
                    .then_some(Shape::Grid { rows, columns })
            }),
            _ => return None,
        };
        Some(shape.map(|shape| Self { text: text.to_owned(), shape }).ok_or_else(|| {
            format!(
                "unknown graph {text:?}: expected kronecker:SCALE[:DEGREE], \
                 uniform:SCALE[:DEGREE] or grid:ROWSxCOLUMNS (scales up to {MAX_SCALE}, degrees \
                 up to 2^20, sides from 1 to 2^24); for a file of that name, ./{text}"
            )
        }))
    }

    pub(super) const fn is_kronecker(&self) -> bool {
        matches!(self.shape, Shape::Kronecker { .. })
    }

    /// Returns the graph as the input of a trace.
    pub(super) fn input(&self) -> GraphInput {
        let (weighted, rng) = (false, Rng::Whole);
        match self.shape {
            Shape::Kronecker { scale, degree } => {
                GraphInput::Kronecker(Kronecker { scale, degree, weighted, rng, shuffled: true })
            }
            Shape::Uniform { scale, degree } => {
                GraphInput::Uniform(Uniform { scale, degree, weighted })
            }
            Shape::Grid { rows, columns } => GraphInput::Grid(Grid { rows, columns, weighted }),
        }
    }

    /// Builds the graph if it fits into memory.
    pub(super) fn build<V: Width>(
        &self,
        job: &Job,
        weighted: bool,
        rng: RngArg,
        budget: MemoryBudget<'_>,
    ) -> Result<SourceGraph<V>, GraphError> {
        let rng = match rng {
            RngArg::U32 => Rng::Whole,
            RngArg::Float => Rng::Float,
        };
        match self.shape {
            Shape::Kronecker { scale, degree } => {
                build(job, &Kronecker { scale, degree, weighted, rng, shuffled: true }, budget)
            }
            Shape::Uniform { scale, degree } => {
                build(job, &Uniform { scale, degree, weighted }, budget)
            }
            Shape::Grid { rows, columns } => build(job, &Grid { rows, columns, weighted }, budget),
        }
    }
}

fn build<V: Width>(
    job: &Job,
    source: &impl EdgeSource,
    budget: MemoryBudget<'_>,
) -> Result<SourceGraph<V>, GraphError> {
    let peak = job.peak::<V>(source);
    budget.check(GraphStep::Build, peak, budget.available())?;
    let property_pool = job.property_pool::<V>(source.vertices())?;
    let begin = std::time::Instant::now();
    let graph = job.build_options().graph(source)?;
    Ok(SourceGraph {
        graph,
        ids: Ids::default(),
        property_pool,
        file: None,
        warnings: Vec::new(),
        peak,
        load: None,
        build: begin.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_generated_graphs_are_not_paths() {
        for text in ["kronecker:22", "uniform:24:8", "grid:3x4"] {
            let is_generated =
                matches!(GeneratedGraph::of(text), Some(Ok(graph)) if graph.text == text);
            assert!(is_generated, "{text}");
        }
        for text in ["kronecker:", "uniform:33", "grid:0x4", "kronecker:20:a"] {
            let error = GeneratedGraph::of(text).unwrap().unwrap_err();
            assert!(error.contains(&format!("./{text}")), "{error}");
        }
        for text in ["./kronecker:22", "kroneker:22", "g.el", "C:g.el", ""] {
            assert!(GeneratedGraph::of(text).is_none(), "{text}");
        }
    }
}
