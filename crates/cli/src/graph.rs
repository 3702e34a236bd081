//! `hugepilot graph`: kernels on graphs whose arrays each have a page policy.

mod kernel;
mod source;

use clap::{Args, Subcommand, ValueEnum};
use hugepilot_graph::run::{Job, Ready};
use hugepilot_graph::{GraphError, PagePlan, Team};
use hugepilot_kernel::{Root, memory};
use hugepilot_report::{graph_text, json};
use hugepilot_units::Bytes;

use self::kernel::KernelArgs;
use self::source::SourceArgs;
use crate::exit::Exit;
use crate::output::{Progress, print};

/// Run graph kernels whose arrays each get the pages you choose, and see which they got
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct GraphArgs {
    #[command(subcommand)]
    verb: GraphVerb,
}

#[derive(Debug, Subcommand)]
enum GraphVerb {
    Info(InfoArgs),
    Run(Box<RunArgs>),
}

/// Build a graph and say what it is, and how much memory it takes
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES:\n  \
    hugepilot graph info kronecker:20\n  \
    hugepilot graph info grid:4096x4096 --json | jq .graph.dbg_group_sizes")]
struct InfoArgs {
    #[command(flatten)]
    common: CommonArgs,
}

const RUN_EXAMPLES: &str = "\
EXIT STATUS:
  0  done, and if asked for, verified
  1  a result does not hold (--verify)
  2  wrong usage, or not enough memory
  3  pages that were named are not to be had here

EXAMPLES:
  hugepilot graph run bfs kronecker:22
  hugepilot graph run pr kronecker:22 --pages property=thp --trials 5
  hugepilot graph run bfs kronecker:24:8 --algo top-down --width 64 --reorder dbg --pages property=thp:20%
  hugepilot graph run sssp grid:4096x4096 --delta 10000 --verify --json";

/// Run a kernel, and say what it found, how long each phase took, and on which pages each array was
///
/// Arrays that --pages does not name are on base pages, whatever the system is set to.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
struct RunArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    #[command(flatten)]
    common: CommonArgs,
    /// Which memory is mapped and touched first, and gets huge pages before the rest where these are scarce: natural, the graph's;
    /// property-first, what the kernel keeps per vertex
    #[arg(long, value_name = "WHICH", default_value = "natural")]
    order: OrderArg,
    /// How often; the report has each and the median
    #[arg(long, value_name = "N", default_value_t = 1)]
    trials: usize,
    /// Hold every result to rules that need no other result, one pass over the edges each; not for tc and diameter
    #[arg(long)]
    verify: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OrderArg {
    Natural,
    PropertyFirst,
}

#[derive(Debug, Args)]
struct CommonArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Bits of vertex numbers, offsets and weights
    #[arg(long, value_name = "BITS", default_value = "32", value_parser = ["32", "64"])]
    width: String,
    /// Threads [default: one per processor]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// The pages of each array: 'property=thp:20%,edges=base'. Arrays: offsets, edges, weights, in-offsets, in-edges, in-weights,
    /// property, worklist, all. Pages: base, thp[:PREFIX%], collapse[:PREFIX%], hugetlb, hugetlb-1g
    #[arg(long, value_name = "PLAN", default_value = "base")]
    pages: String,
    /// Print one JSON object (schema hugepilot.graph/1)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &GraphArgs) -> anyhow::Result<Exit> {
    let (common, run) = match &args.verb {
        GraphVerb::Info(args) => (&args.common, None),
        GraphVerb::Run(args) => (&args.common, Some(&**args)),
    };
    let done = if common.width == "64" { go::<u64>(common, run) } else { go::<u32>(common, run) };
    match done {
        Err(GraphError::Memory(error)) => {
            eprintln!("hugepilot: {error}");
            error.fix().iter().for_each(|fix| eprintln!("fix: {fix}"));
            Ok(Exit::Unsupported)
        }
        done => Ok(done?),
    }
}

fn go<V: hugepilot_graph::Width>(common: &CommonArgs, run: Option<&RunArgs>) -> Result<Exit, GraphError> {
    let job = common.job(run)?;
    let progress = Progress::new();
    progress.now(format!("building {}", job.name));
    let available = memory::mem_info(&Root::live()).map_or(Bytes::new(u64::MAX), |info| info.available);
    let ready: Ready<V> = common.source.build(&job, available)?;
    let trials = job.trials;
    let mut done = 0;
    progress.now(format!("trial 1 of {trials}"));
    let report = ready.run(&job, |_| {
        done += 1;
        progress.now(format!("trial {} of {trials}", (done + 1).min(trials)));
    })?;
    drop(progress);
    let text = if common.json { json(&report) } else { graph_text(&report) };
    print(&text).map_err(|source| GraphError::Io { path: "stdout".to_owned(), source })?;
    Ok(if report.verified == Some(false) { Exit::No } else { Exit::Yes })
}

impl CommonArgs {
    fn job(&self, run: Option<&RunArgs>) -> Result<Job, GraphError> {
        Ok(Job {
            name: self.source.name().to_owned(),
            directed: self.source.is_directed(),
            pages: self.pages.parse::<PagePlan>()?,
            pages_text: self.pages.clone(),
            property_first: run.is_some_and(|run| run.order == OrderArg::PropertyFirst),
            team: self.threads.map_or_else(Team::all, Team::of),
            order: self.source.order()?,
            kernel: run.map(|run| run.kernel.kernel()),
            trials: run.map_or(1, |run| run.trials.max(1)),
            start: run.map_or(hugepilot_graph::run::Start::MaxDegree, |run| run.kernel.start()),
            verify: run.is_some_and(|run| run.verify),
        })
    }
}
