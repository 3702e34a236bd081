//! `hugepilot graph`: kernels on graphs whose arrays each have a page policy, and the files of these graphs.

mod convert;
mod file;
mod fix;
mod generated;
mod kernel;
mod out;
mod source;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use hugepilot_graph::run::{Job, JobResult, Output, SourceVertex};
use hugepilot_graph::{Format, GraphError, PagePlan, ThreadPool, Width};
use hugepilot_report::{graph_text, json};

use self::convert::ConvertArgs;
use self::fix::{fail, usage};
use self::kernel::KernelArgs;
use self::source::SourceArgs;
use crate::exit::Exit;
use crate::output::{Progress, print};

/// Run graph kernels whose arrays each get the pages you choose, see which they got, and bring graphs from format to format
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
    /// Write a graph into a file of another format
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(Box<ConvertArgs>),
    /// Write a graph that numbers make into a file
    #[command(after_help = GENERATE_EXAMPLES)]
    Generate(Box<ConvertArgs>),
    /// Write a graph whose vertices are numbered anew, and which number became which
    #[command(after_help = REORDER_EXAMPLES, mut_arg("reorder", |arg| arg.required(true)))]
    Reorder(Box<ConvertArgs>),
}

/// Build or load a graph and say what it is, and how much memory it takes
#[derive(Debug, Args)]
#[command(after_help = "EXAMPLES:\n  \
    hugepilot graph info kronecker:20\n  \
    hugepilot graph info soc-LiveJournal1.txt.gz --directed\n  \
    hugepilot graph info grid:4096x4096 --json | jq .graph.dbg_group_sizes")]
struct InfoArgs {
    #[command(flatten)]
    common: CommonArgs,
}

const RUN_EXAMPLES: &str = "\
EXIT STATUS:
  0  done, and if asked for, verified
  1  a result does not hold (--verify)
  2  wrong usage, a file that is wrong or cannot be read or written, or not enough memory
  3  pages that were named are not to be had here

EXAMPLES:
  hugepilot graph run bfs kronecker:22
  hugepilot graph run pr soc-LiveJournal1.txt.gz --directed --output ranks.txt
  hugepilot graph run pr kronecker:22 --pages property=thp --trials 5
  hugepilot graph run bfs kronecker:24:8 --algo top-down --width 64 --reorder dbg --pages property=thp:20%
  hugepilot graph run sssp road.wsg --delta 10000 --source 4711 --verify --json";

const CONVERT_EXAMPLES: &str = "\
EXAMPLES:
  hugepilot graph convert soc-LiveJournal1.txt.gz lj.sg
  hugepilot graph convert --directed --compact follows.csv follows.hpg
  hugepilot graph convert lj.sg lj --to four-files";

const GENERATE_EXAMPLES: &str = "\
EXAMPLES:
  hugepilot graph generate kronecker:22 kron.sg
  hugepilot graph generate uniform:20:8 uniform.wel       with weights, as a .wel has
  hugepilot graph generate grid:1000x1000 grid.hpg --weighted";

const REORDER_EXAMPLES: &str = "\
EXAMPLES:
  hugepilot graph reorder lj.sg lj-dbg.hpg --reorder dbg   it keeps the old numbers, and results are told under these
  hugepilot graph reorder lj.sg lj-dbg.sg --reorder dbg    so does lj-dbg.sg.map, OLD NEW on each line";

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
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// Hold every result to rules that only the right one keeps, one pass over the edges each; bc and tc are found again by one
    /// thread in another way, and of diameter, whether a shortest way is that long
    #[arg(long)]
    verify: bool,
    /// Write what the last trial found for each vertex, ID VALUE on each line, under the numbers of the source: bfs the distance in
    /// edges, sssp that by weights, pr the rank, cc the least number in the component, bc the score
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace that file if it is there already
    #[arg(long, requires = "output")]
    force: bool,
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
    /// Bits of vertex numbers, offsets and weights: 32 or 64 [default: 32, or 64 where these are too few]
    #[arg(long, value_name = "BITS", value_parser = ["32", "64"], hide_possible_values = true)]
    width: Option<String>,
    /// Threads, 1024 at most [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// The pages of each array: 'property=thp:20%,edges=base'. Arrays: offsets, edges, weights, in-offsets, in-edges, in-weights,
    /// property, worklist, all. Pages: base, thp[:PREFIX%], collapse[:PREFIX%], hugetlb, hugetlb-1g
    #[arg(long, value_name = "PLAN", default_value = "base")]
    pages: String,
    /// Print one JSON object (schema hugepilot.graph/1)
    #[arg(long)]
    json: bool,
}

/// What is done with a graph.
#[derive(Clone, Copy)]
enum Action<'a> {
    Look,
    Run(&'a RunArgs),
    Write(&'a ConvertArgs, Format),
}

pub(crate) fn run(args: &GraphArgs) -> anyhow::Result<Exit> {
    let (common, then) = match &args.verb {
        GraphVerb::Info(args) => (&args.common, Ok(Action::Look)),
        GraphVerb::Run(args) => (&args.common, args.check().map(|()| Action::Run(args))),
        GraphVerb::Convert(args) | GraphVerb::Generate(args) | GraphVerb::Reorder(args) => {
            (&args.common, args.check().map(|format| Action::Write(args, format)))
        }
    };
    common.source.check();
    if let (GraphVerb::Generate(_), Some(path)) = (&args.verb, common.source.path()) {
        usage(&format!(
            "{} is no graph that numbers make; graph convert is for files",
            path.display()
        ));
    }
    let JobResult { report, unwritten } = match then.and_then(|then| wide_enough(common, then)) {
        Ok(done) => done,
        Err(error) => return Ok(fail(&error)),
    };
    print(&if common.json { json(&report) } else { graph_text(&report) })?;
    if let Some(error) = unwritten {
        return Ok(fail(&error));
    }
    Ok(if report.verified == Some(false) { Exit::No } else { Exit::Yes })
}

/// In numbers of as many bits as were asked for, or as it takes.
fn wide_enough(common: &CommonArgs, then: Action<'_>) -> Result<JobResult, GraphError> {
    let progress = Progress::new();
    match common.width.as_deref() {
        Some("64") => go::<u64>(common, then, &progress),
        Some(_) => go::<u32>(common, then, &progress),
        None => match go::<u32>(common, then, &progress) {
            Err(error) if error.is_too_narrow() => {
                progress.keep(&format!("{error}: doing so"));
                let mut done = go::<u64>(common, then, &progress)?;
                done.report.widened = Some(error.to_string());
                Ok(done)
            }
            done => done,
        },
    }
}

fn go<V: Width>(
    common: &CommonArgs,
    then: Action<'_>,
    progress: &Progress,
) -> Result<JobResult, GraphError> {
    let job = common.job(then)?;
    let weighted = match then {
        Action::Write(_, format) => ConvertArgs::needs_weights(format),
        _ => job.kernel.is_some_and(|kernel| kernel.needs_weights()),
    };
    let mut ready = common.source.ready::<V>(&job, weighted, progress)?;
    if let Action::Write(args, format) = then {
        args.write(format, &mut ready, progress)?;
    }
    let trials = job.trials;
    let mut done = 0;
    if job.kernel.is_some() {
        progress.now(format!("trial 1 of {trials}"));
    }
    ready.run(&job, |_| {
        done += 1;
        progress.now(format!("trial {} of {trials}", (done + 1).min(trials)));
    })
}

impl RunArgs {
    /// Whether the result can be written.
    fn check(&self) -> Result<(), GraphError> {
        let kernel = self.kernel.kernel();
        let Some(output) = &self.output else { return Ok(()) };
        if !kernel.has_values() {
            usage(&format!(
                "--output has a line for each vertex, and {} finds one number",
                kernel.name()
            ));
        }
        out::check(output, self.force, out::LINES)
    }
}

impl CommonArgs {
    fn job(&self, then: Action<'_>) -> Result<Job, GraphError> {
        let run = match then {
            Action::Run(run) => Some(run),
            _ => None,
        };
        Ok(Job {
            name: self.source.name(),
            directed: self.source.is_directed(),
            pages: self.pages.parse::<PagePlan>()?,
            pages_text: self.pages.clone(),
            property_first: run.is_some_and(|run| run.order == OrderArg::PropertyFirst),
            pool: self
                .threads
                .map_or_else(ThreadPool::all, |threads| ThreadPool::new(threads as usize)),
            order: self.source.order(),
            kernel: run.map(|run| run.kernel.kernel()),
            trials: run.map_or(1, |run| run.trials as usize),
            start: run.map_or(SourceVertex::MaxDegree, |run| run.kernel.start()),
            verify: run.is_some_and(|run| run.verify),
            output: run
                .and_then(|run| Some(Output { path: run.output.clone()?, replace: run.force })),
        })
    }
}
