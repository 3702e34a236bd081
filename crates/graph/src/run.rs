//! Jobs: a graph and trials of a kernel, with a report.

mod facts;
mod kernels;
mod original_ids;
mod trace;
mod values;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hugepilot_reports::graph::{AllocOrder, ArrayPages, GraphReport, Phases, SCHEMA, Trial};
use hugepilot_stats::median;
use hugepilot_units::Bytes;

pub use self::facts::{facts, file_facts};
pub use self::kernels::Kernel;
use self::kernels::RunOptions;
pub use self::original_ids::OriginalIds;
pub use self::trace::TracedRuns;
use crate::kernel::{ArrayUsage, KernelCost, Setup};
use crate::mix::random;
use crate::{
    Array, Build, Csr, DegreeKind, EdgeSource, Graph, GraphError, Ids, PagePlan, PropertyPool,
    Result, ThreadPool, VertexMap, VertexOrder, Width,
};

/// Graph options and trials of a kernel.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of the input in the report.
    pub input: String,
    /// Whether edges keep their direction.
    pub directed: bool,
    /// Pages of every array.
    pub pages: PagePlan,
    /// Page plan as the user wrote it.
    pub pages_text: String,
    /// Memory that is mapped and touched first, and so gets scarce huge pages first.
    pub alloc_order: AllocOrder,
    /// Threads.
    pub pool: ThreadPool,
    /// Vertex order, if the graph is relabelled.
    pub reorder: Option<(VertexOrder, DegreeKind)>,
    /// Kernel, if any.
    pub kernel: Option<Kernel>,
    /// Number of trials.
    pub trials: usize,
    /// Source vertex, for kernels with one.
    pub source: SourceVertex,
    /// Whether each result is verified.
    pub verify: bool,
    /// File for the result of the last trial, one line per vertex, if the kernel has such a result.
    pub output: Option<Output>,
}

/// File of results.
#[derive(Clone, Debug)]
pub struct Output {
    /// Path.
    pub path: PathBuf,
    /// Whether an existing file is replaced.
    pub replace: bool,
}

/// Choice of the source vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceVertex {
    /// Vertex with this ID in the input.
    Id(u64),
    /// First vertex of highest degree.
    MaxDegree,
    /// Another vertex with edges in each trial, by this seed.
    Random(u64),
}

/// Graph that is ready for a kernel, and its origin.
#[derive(Debug)]
pub struct PreparedGraph<V: Width> {
    /// Graph, relabelled if requested.
    pub graph: Graph<V>,
    /// Map from the vertex IDs before relabelling.
    pub map: Option<VertexMap<V>>,
    /// Vertex IDs of the input, by the vertices before relabelling.
    pub ids: Ids,
    /// Report without kernel and arrays.
    pub report: GraphReport,
    property_pool: Option<PropertyPool>,
}

/// Outcome of a job.
#[derive(Debug)]
pub struct JobResult {
    /// Complete report.
    pub report: GraphReport,
    /// Error of writing [`Job::output`]. The report is valid anyway.
    pub output_error: Option<GraphError>,
}

impl Job {
    /// Returns the build options.
    pub fn build_options(&self) -> Build {
        Build { directed: self.directed, pages: self.pages, pool: self.pool }
    }

    /// Allocates property arrays before a graph of `vertices` vertices; `None` in natural order.
    ///
    /// # Errors
    /// [`GraphError::Memory`].
    pub fn property_pool<V: Width>(&self, vertices: u64) -> Result<Option<PropertyPool>> {
        match self.alloc_order {
            AllocOrder::Natural => Ok(None),
            AllocOrder::PropertyFirst => {
                let sizes = self.property_sizes::<V>(vertices);
                PropertyPool::new(&self.pages, &sizes, self.pool).map(Some)
            }
        }
    }

    /// Returns the memory of [`Self::property_pool`].
    pub fn property_pool_bytes<V: Width>(&self, vertices: u64) -> Bytes {
        let sizes = self.property_sizes::<V>(vertices).into_iter();
        Bytes::new(sizes.fold(0, usize::saturating_add) as u64)
    }

    /// Returns the memory to build and relabel the graph of a source at the peak, including
    /// property arrays allocated before.
    pub fn peak<V: Width>(&self, source: &impl EdgeSource) -> Bytes {
        let build = self.build_options();
        let map = Bytes::new(2 * size_of::<V>() as u64).times(source.vertices());
        // The relabelled graph is built beside the old one.
        let relabel =
            self.reorder.map_or(Bytes::ZERO, |_| build.arrays::<V>(source).times(2) + map);
        build.peak::<V>(source).max(relabel) + self.property_pool_bytes::<V>(source.vertices())
    }

    /// Returns the bytes of each property array that is allocated before the graph.
    fn property_sizes<V: Width>(&self, vertices: u64) -> Vec<usize> {
        let vertices = usize::try_from(vertices).unwrap_or(usize::MAX);
        match (self.alloc_order, self.kernel) {
            (AllocOrder::PropertyFirst, Some(kernel)) => kernel.property_sizes::<V>(vertices),
            _ => Vec::new(),
        }
    }

    /// Relabels a graph if requested, and starts the report.
    ///
    /// # Errors
    /// [`GraphError::Memory`].
    pub fn prepare<V: Width>(
        &self,
        graph: Graph<V>,
        mut phases: Phases,
        property_pool: Option<PropertyPool>,
    ) -> Result<PreparedGraph<V>> {
        let facts = facts(&graph, self.pool);
        let (mut graph, mut map) = (graph, None);
        if let Some((order, degree)) = self.reorder {
            let began = Instant::now();
            let new = VertexMap::of(&graph, order, degree, self.pool);
            graph = graph.relabelled(&new, &self.pages, self.pool)?;
            map = Some(new);
            phases.reorder_seconds = Some(began.elapsed().as_secs_f64());
        }
        let report = GraphReport {
            schema: SCHEMA.to_owned(),
            input: self.input.clone(),
            graph: facts,
            width_bits: V::BITS,
            threads: self.pool.threads(),
            pages: self.pages_text.clone(),
            alloc_order: self.alloc_order,
            reorder: self.reorder.map(|(order, _)| order.to_string()),
            phases,
            ..GraphReport::default()
        };
        Ok(PreparedGraph { graph, map, ids: Ids::default(), report, property_pool })
    }
}

impl<V: Width> PreparedGraph<V> {
    /// Runs the trials of `job`, if it has a kernel, and reads the pages of the arrays. Calls
    /// `on_trial` after each trial.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn run(mut self, job: &Job, mut on_trial: impl FnMut(&Trial)) -> Result<JobResult> {
        let (of_kernel, output_error) = match &job.kernel {
            Some(kernel) => self.trials(kernel, job, &mut on_trial)?,
            None => (Vec::new(), None),
        };
        let mut usage = self.graph.usage()?;
        usage.extend(of_kernel);
        self.report.arrays = arrays(&usage);
        Ok(JobResult { report: self.report, output_error })
    }

    /// Runs all trials. Returns the arrays of the last, and an error of writing its output.
    fn trials(
        &mut self,
        kernel: &Kernel,
        job: &Job,
        on_trial: &mut impl FnMut(&Trial),
    ) -> Result<(Vec<ArrayUsage>, Option<GraphError>)> {
        let property_pool = self.property_pool.clone();
        let setup = Setup { property_pool, ..Setup::new(job.pages, job.pool) };
        let (mut costs, mut output_error) = (Vec::<KernelCost>::new(), None);
        self.report.kernel = Some(kernel.name().to_owned());
        let mut sources = SourceVertices::new(job.source);
        let trials = job.trials.max(1);
        for i in 1..=trials {
            let source = if kernel.has_source() { Some(sources.next(self)?) } else { None };
            let output = job.output.as_ref().filter(|_| i == trials);
            let options = RunOptions { verify: job.verify, values: output.is_some() };
            let run =
                kernel.run(self, source.map(|source| self.relabelled(source)), &setup, options)?;
            let source = source.map(|source| self.id(source.at()));
            let trial = Trial { source, seconds: run.cost.total().as_secs_f64() };
            on_trial(&trial);
            self.report.trials.push(trial);
            self.report.result = Some(run.result);
            let is_valid = run.verdict.as_ref().is_none_or(std::result::Result::is_ok);
            if let (Some(output), Some(values), true) = (output, &run.values, is_valid) {
                output_error = values::write(self, values, output).err();
                self.report.output =
                    output_error.is_none().then(|| output.path.display().to_string());
            }
            if let Some(verdict) = run.verdict {
                // The first error stays, whatever later trials yield.
                self.report.verified =
                    Some(self.report.verified.unwrap_or(true) && verdict.is_ok());
                let error = verdict.err().map(|error| error.to_string());
                self.report.verify_error = self.report.verify_error.take().or(error);
            }
            costs.push(run.cost);
        }
        self.add_phases(&costs);
        Ok((costs.pop().map(|cost| cost.arrays).unwrap_or_default(), output_error))
    }

    /// Reports the medians of the phases over all trials.
    fn add_phases(&mut self, costs: &[KernelCost]) {
        let phase = |of: fn(&KernelCost) -> Duration, before: Option<Duration>| {
            let median = median(costs.iter().map(|cost| of(cost).as_secs_f64()))?;
            Some(median + before.unwrap_or_default().as_secs_f64())
        };
        let pool = self.property_pool.as_ref();
        let phases = &mut self.report.phases;
        phases.allocate_seconds = phase(|cost| cost.allocate, pool.map(|pool| pool.allocate));
        phases.first_touch_seconds =
            phase(|cost| cost.first_touch, pool.map(|pool| pool.first_touch));
        phases.kernel_seconds = phase(|cost| cost.kernel, None);
    }

    /// Returns the vertex of the graph for a vertex before relabelling.
    fn relabelled(&self, vertex: V) -> V {
        self.map.as_ref().map_or(vertex, |map| map.new[vertex.at()])
    }
}

/// Sequence of source vertices.
struct SourceVertices {
    choice: SourceVertex,
    drawn: u64,
}

impl SourceVertices {
    fn new(choice: SourceVertex) -> Self {
        Self { choice, drawn: 0 }
    }

    /// Returns the next source before relabelling: the same for every vertex order.
    #[allow(clippy::cast_possible_truncation)] // below the number of vertices
    fn next<V: Width>(&mut self, prepared: &PreparedGraph<V>) -> Result<V> {
        let out = &prepared.graph.out;
        let vertices = prepared.graph.vertices() as u64;
        let degree = |v: u64| out.degree(prepared.relabelled(V::new(v as usize)).at());
        let vertex = match self.choice {
            SourceVertex::Id(id) => prepared.vertex(id)? as u64,
            SourceVertex::MaxDegree => (0..vertices).rev().max_by_key(|&v| degree(v)).unwrap_or(0),
            SourceVertex::Random(_) if out.edges() == 0 => 0,
            SourceVertex::Random(seed) => loop {
                self.drawn += 1;
                // The high bits of the product are a number below `vertices`.
                let drawn = (u128::from(random(seed, self.drawn)) * u128::from(vertices)) >> 64;
                if degree(drawn as u64) > 0 {
                    break drawn as u64;
                }
            },
        };
        Ok(V::new(vertex as usize))
    }
}

/// Sums the pages of arrays with the same name.
fn arrays(usage: &[ArrayUsage]) -> Vec<ArrayPages> {
    let one = |array: Array| {
        let of_name = usage.iter().filter(|usage| usage.array == array);
        let sum = of_name.map(|usage| usage.pages).reduce(|a, b| a + b)?;
        let bytes = sum.resident() + sum.zero + sum.swapped + sum.untouched;
        let pages = ArrayPages { name: array.name().to_owned(), bytes, huge_bytes: sum.huge() };
        (bytes.get() > 0).then_some(pages)
    };
    Array::ALL.into_iter().filter_map(one).collect()
}

impl<V: Width> Graph<V> {
    /// Reads the pages of the arrays from the pagemap.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if the pagemap cannot be read.
    pub fn usage(&self) -> Result<Vec<ArrayUsage>> {
        let mut usage = Vec::new();
        let mut add = |csr: &Csr<V>, [offsets, edges, weights]: [Array; 3]| -> Result<()> {
            usage.push(ArrayUsage::read(offsets, &csr.offsets)?);
            usage.push(ArrayUsage::read(edges, &csr.edges)?);
            usage.push(ArrayUsage::read(weights, &csr.weights)?);
            Ok(())
        };
        add(&self.out, [Array::Offsets, Array::Edges, Array::Weights])?;
        if let Some(transpose) = &self.transpose {
            add(transpose, [Array::InOffsets, Array::InEdges, Array::InWeights])?;
        }
        Ok(usage)
    }
}
