//! A kernel on a graph, once or several times, as a report.

mod facts;
mod kernels;
mod original_ids;
mod values;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hugepilot_record::graph::{ArrayPages, GraphReport, Phases, SCHEMA, Trial};
use hugepilot_units::Bytes;

pub use self::facts::facts;
pub use self::kernels::Kernel;
use self::kernels::RunOptions;
pub use self::original_ids::OriginalIds;
use crate::kernel::{ArrayUsage, KernelCost, Setup};
use crate::mix::random;
use crate::{
    Array, Build, Csr, DegreeKind, EdgeSource, Graph, GraphError, Ids, PagePlan, PropertyPool,
    Result, ThreadPool, VertexMap, VertexOrder, Width,
};

/// What is to be run.
#[derive(Clone, Debug)]
pub struct Job {
    /// What the source is called in the report.
    pub name: String,
    /// Whether edges keep their direction.
    pub directed: bool,
    /// The pages of every array.
    pub pages: PagePlan,
    /// As it was written.
    pub pages_text: String,
    /// Whether what the kernel keeps per vertex is mapped and touched before the graph is built, so that it gets huge pages first
    /// where they are scarce.
    pub property_first: bool,
    /// Who works.
    pub pool: ThreadPool,
    /// New numbers, if any.
    pub order: Option<(VertexOrder, DegreeKind)>,
    /// What to compute, if anything.
    pub kernel: Option<Kernel>,
    /// How often.
    pub trials: usize,
    /// Where it begins.
    pub start: SourceVertex,
    /// Whether each result is verified.
    pub verify: bool,
    /// Where a line for each vertex goes, with what the last trial found; not for kernels that find no such thing.
    pub output: Option<Output>,
}

/// A file of results.
#[derive(Clone, Debug)]
pub struct Output {
    /// Its name.
    pub path: PathBuf,
    /// Whether it may be there already, and is replaced.
    pub replace: bool,
}

/// Where a kernel begins that begins somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceVertex {
    /// At this vertex, by its number in the source, which is the file's own.
    Id(u64),
    /// At the one with most edges, the first of these.
    MaxDegree,
    /// In each trial at another one that has edges, by this seed.
    Random(u64),
}

/// A graph, and what it was made of.
#[derive(Debug)]
pub struct PreparedGraph<V: Width> {
    /// Under the new numbers, if there are some.
    pub graph: Graph<V>,
    /// The new numbers.
    pub numbers: Option<VertexMap<V>>,
    /// What the file calls each vertex, by the numbers before those; not for files that count them.
    pub ids: Option<Ids>,
    /// So far: all but the kernel and the arrays.
    pub report: GraphReport,
    properties: Option<PropertyPool>,
}

/// What came of a job.
#[derive(Debug)]
pub struct JobResult {
    /// All that was found and measured.
    pub report: GraphReport,
    /// Why [`Job::output`] could not be written; the report is no worse for it.
    pub unwritten: Option<GraphError>,
}

impl Job {
    /// How its graph is built.
    pub fn building(&self) -> Build {
        Build { directed: self.directed, pages: self.pages, pool: self.pool }
    }

    /// What comes before a graph of so many vertices: nothing, in the natural order.
    ///
    /// # Errors
    /// [`GraphError::Memory`](crate::GraphError::Memory).
    pub fn properties<V: Width>(&self, vertices: u64) -> Result<Option<PropertyPool>> {
        let ahead = self.property_first.then(|| self.ahead::<V>(vertices));
        ahead.map(|sizes| PropertyPool::new(&self.pages, &sizes, self.pool)).transpose()
    }

    /// How many bytes that takes.
    pub fn stashed<V: Width>(&self, vertices: u64) -> Bytes {
        Bytes::new(self.ahead::<V>(vertices).into_iter().fold(0, usize::saturating_add) as u64)
    }

    /// How much memory it takes to build and number anew the graph of a source, at the peak, with what comes before it.
    pub fn peak<V: Width>(&self, source: &impl EdgeSource) -> Bytes {
        let build = self.building();
        // A graph under new numbers is made beside the old one.
        let numbers = Bytes::new(2 * size_of::<V>() as u64).times(source.vertices());
        let anew = self.order.map_or(Bytes::ZERO, |_| build.arrays::<V>(source).times(2) + numbers);
        build.peak::<V>(source).max(anew) + self.stashed::<V>(source.vertices())
    }

    /// The bytes of each property that comes before the graph.
    fn ahead<V: Width>(&self, vertices: u64) -> Vec<usize> {
        let vertices = usize::try_from(vertices).unwrap_or(usize::MAX);
        let kernel = self.kernel.filter(|_| self.property_first);
        kernel.map_or_else(Vec::new, |kernel| kernel.properties::<V>(vertices))
    }

    /// Takes a graph that is there, and what came before it; numbers it anew if that was asked for, and looks at it.
    ///
    /// # Errors
    /// [`GraphError::Memory`](crate::GraphError::Memory).
    pub fn ready<V: Width>(
        &self,
        graph: Graph<V>,
        mut phases: Phases,
        properties: Option<PropertyPool>,
    ) -> Result<PreparedGraph<V>> {
        let facts = facts(&graph, self.pool);
        let (mut graph, mut numbers) = (graph, None);
        if let Some((order, degree)) = self.order {
            let began = Instant::now();
            let new = VertexMap::of(&graph, order, degree, self.pool);
            graph = graph.relabelled(&new, &self.pages, self.pool)?;
            numbers = Some(new);
            phases.reorder_seconds = Some(began.elapsed().as_secs_f64());
        }
        let report = GraphReport {
            schema: SCHEMA.to_owned(),
            source: self.name.clone(),
            graph: facts,
            width_bits: V::BITS,
            threads: self.pool.threads(),
            pages: self.pages_text.clone(),
            property_first: self.property_first,
            order: self.order.map(|(order, _)| order.to_string()),
            phases,
            ..GraphReport::default()
        };
        Ok(PreparedGraph { graph, numbers, ids: None, report, properties })
    }
}

impl<V: Width> PreparedGraph<V> {
    /// Runs the kernel of `job`, if it has one, `heard` after each trial; then looks at the arrays.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn run(mut self, job: &Job, mut heard: impl FnMut(&Trial)) -> Result<JobResult> {
        let (cost, unwritten) = match &job.kernel {
            Some(kernel) => self.trials(kernel, job, &mut heard)?,
            None => (Vec::new(), None),
        };
        let mut usage = self.graph.usage()?;
        usage.extend(cost);
        self.report.arrays = arrays(&usage);
        Ok(JobResult { report: self.report, unwritten })
    }

    /// All trials. The arrays of the last, and why its output could not be written.
    fn trials(
        &mut self,
        kernel: &Kernel,
        job: &Job,
        heard: &mut impl FnMut(&Trial),
    ) -> Result<(Vec<ArrayUsage>, Option<GraphError>)> {
        let setup =
            Setup { properties: self.properties.clone(), ..Setup::new(job.pages, job.pool) };
        let (mut cost, mut unwritten) = (Vec::<KernelCost>::new(), None);
        self.report.kernel = Some(kernel.name().to_owned());
        let mut starts = SourceVertices::new(job.start);
        let trials = job.trials.max(1);
        for i in 1..=trials {
            let source = if kernel.starts() { Some(starts.next(self)?) } else { None };
            let start = source.map(|source| self.numbered(source));
            let output = job.output.as_ref().filter(|_| i == trials);
            let ran = kernel.run(
                self,
                start,
                &setup,
                RunOptions { verify: job.verify, values: output.is_some() },
            )?;
            let seconds =
                (ran.cost.allocate + ran.cost.first_touch + ran.cost.kernel).as_secs_f64();
            let trial = Trial { source: source.map(|source| self.name(source.at())), seconds };
            heard(&trial);
            self.report.trials.push(trial);
            self.report.result = Some(ran.result);
            let holds = ran.verdict.as_ref().is_none_or(std::result::Result::is_ok);
            if let (Some(output), Some(values), true) = (output, &ran.values, holds) {
                unwritten = values::write(self, values, output).err();
                self.report.output = unwritten.is_none().then(|| output.path.display().to_string());
            }
            if let Some(verdict) = ran.verdict {
                // One that did not hold is not forgotten over those that do.
                self.report.verified =
                    Some(self.report.verified.unwrap_or(true) && verdict.is_ok());
                self.report.wrong = self.report.wrong.take().or(verdict.err());
            }
            cost.push(ran.cost);
        }
        let median = |of: fn(&KernelCost) -> Duration, ahead: Option<Duration>| {
            let mut all: Vec<f64> = cost.iter().map(|cost| of(cost).as_secs_f64()).collect();
            all.sort_by(f64::total_cmp);
            // The middle two where they are even.
            let middle = f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2]);
            Some(middle + ahead.unwrap_or_default().as_secs_f64())
        };
        let properties = self.properties.as_ref();
        self.report.phases.allocate_seconds =
            median(|cost| cost.allocate, properties.map(|properties| properties.allocate));
        self.report.phases.first_touch_seconds =
            median(|cost| cost.first_touch, properties.map(|properties| properties.first_touch));
        self.report.phases.kernel_seconds = median(|cost| cost.kernel, None);
        Ok((cost.pop().map(|cost| cost.arrays).unwrap_or_default(), unwritten))
    }

    /// The number here of a vertex of the source.
    fn numbered(&self, vertex: V) -> V {
        self.numbers.as_ref().map_or(vertex, |numbers| numbers.new[vertex.at()])
    }
}

/// Vertices to begin at, one after the other.
struct SourceVertices {
    start: SourceVertex,
    drawn: u64,
}

impl SourceVertices {
    fn new(start: SourceVertex) -> Self {
        Self { start, drawn: 0 }
    }

    /// The next, by its place in the source: the same whatever the numbers are here.
    #[allow(clippy::cast_possible_truncation)] // below the number of vertices
    fn next<V: Width>(&mut self, ready: &PreparedGraph<V>) -> Result<V> {
        let vertices = ready.graph.vertices() as u64;
        let degree = |v: u64| ready.graph.out.degree(ready.numbered(V::new(v as usize)).at());
        let found = match self.start {
            SourceVertex::Id(id) => ready.place(id)? as u64,
            SourceVertex::MaxDegree => (0..vertices).rev().max_by_key(|&v| degree(v)).unwrap_or(0),
            SourceVertex::Random(_) if ready.graph.out.edges() == 0 => 0,
            SourceVertex::Random(seed) => loop {
                self.drawn += 1;
                // The high bits of a product: a number below `vertices`.
                let drawn = (u128::from(random(seed, self.drawn)) * u128::from(vertices)) >> 64;
                if degree(drawn as u64) > 0 {
                    break drawn as u64;
                }
            },
        };
        Ok(V::new(found as usize))
    }
}

/// By array, those of one name together.
fn arrays(usage: &[ArrayUsage]) -> Vec<ArrayPages> {
    let one = |array: Array| {
        let of = usage.iter().filter(|usage| usage.array == array);
        let got = of.map(|usage| usage.got).reduce(|a, b| a + b)?;
        let bytes = got.resident() + got.zero + got.swapped + got.untouched;
        let pages = ArrayPages { name: array.name().to_owned(), bytes, huge_bytes: got.huge() };
        (bytes.get() > 0).then_some(pages)
    };
    Array::ALL.into_iter().filter_map(one).collect()
}

impl<V: Width> Graph<V> {
    /// On which pages its arrays are.
    ///
    /// # Errors
    /// [`GraphError::Memory`] where the page map cannot be read.
    pub fn usage(&self) -> Result<Vec<ArrayUsage>> {
        let mut usage = Vec::new();
        let mut look = |csr: &Csr<V>, [offsets, edges, weights]: [Array; 3]| -> Result<()> {
            usage.push(ArrayUsage::read(offsets, &csr.offsets)?);
            usage.push(ArrayUsage::read(edges, &csr.edges)?);
            usage.push(ArrayUsage::read(weights, &csr.weights)?);
            Ok(())
        };
        look(&self.out, [Array::Offsets, Array::Edges, Array::Weights])?;
        if let Some(transpose) = &self.transpose {
            look(transpose, [Array::InOffsets, Array::InEdges, Array::InWeights])?;
        }
        Ok(usage)
    }
}
