//! Graphs that numbers make.

use clap::ValueEnum;
use hugepilot_graph::run::Job;
use hugepilot_graph::{EdgeSource, GraphError, Grid, Kronecker, Rng, Uniform, Width};

use super::source::{MemoryBudget, SourceGraph};

/// A graph by its name.
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
const MOST_SCALE: u32 = 32;

impl GeneratedGraph {
    /// That of a text that begins as such names do; none for any other, which is a path.
    ///
    /// # Errors
    /// What to write instead.
    pub(super) fn of(text: &str) -> Option<Result<Self, String>> {
        let (kind, rest) = text.split_once(':')?;
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
                (sides.contains(&rows) && sides.contains(&columns))
                    .then_some(Shape::Grid { rows, columns })
            }),
            _ => return None,
        };
        Some(shape.map(|shape| Self { text: text.to_owned(), shape }).ok_or_else(|| {
            format!(
                "{text:?} is no graph; write kronecker:22, kronecker:22:16, uniform:24:8 or grid:4096x4096 (scales up to \
                 {MOST_SCALE}, degrees to 2^20, sides from 1 to 2^24), and for a file of that name ./{text}"
            )
        }))
    }

    pub(super) const fn is_kronecker(&self) -> bool {
        matches!(self.shape, Shape::Kronecker { .. })
    }

    /// Builds it, if it fits.
    pub(super) fn make<V: Width>(
        &self,
        job: &Job,
        weighted: bool,
        rng: RngArg,
        room: MemoryBudget<'_>,
    ) -> Result<SourceGraph<V>, GraphError> {
        let rng = match rng {
            RngArg::U32 => Rng::Whole,
            RngArg::Float => Rng::Float,
        };
        match self.shape {
            Shape::Kronecker { scale, degree } => {
                built(job, &Kronecker { scale, degree, weighted, rng, shuffled: true }, room)
            }
            Shape::Uniform { scale, degree } => {
                built(job, &Uniform { scale, degree, weighted }, room)
            }
            Shape::Grid { rows, columns } => built(job, &Grid { rows, columns, weighted }, room),
        }
    }
}

fn built<V: Width>(
    job: &Job,
    source: &impl EdgeSource,
    room: MemoryBudget<'_>,
) -> Result<SourceGraph<V>, GraphError> {
    let peak = job.peak::<V>(source);
    room.take("building", peak, room.available())?;
    let properties = job.properties::<V>(source.vertices())?;
    let begin = std::time::Instant::now();
    let graph = job.building().graph(source)?;
    Ok(SourceGraph {
        graph,
        ids: None,
        properties,
        file: None,
        peak,
        load: None,
        build: begin.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_like_a_generated_graph_is_one_and_all_else_a_path() {
        for text in ["kronecker:22", "uniform:24:8", "grid:3x4"] {
            assert!(
                matches!(GeneratedGraph::of(text), Some(Ok(graph)) if graph.text == text),
                "{text}"
            );
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
