//! `hugepilot graph`: graph kernels with a page policy per array, and graph files.

mod convert;
mod error;
mod file;
mod generated;
#[allow(rustdoc::broken_intra_doc_links)] // `[:SEED]` of a help text
mod kernel;
mod out;
#[allow(rustdoc::broken_intra_doc_links)] // `[:SEED]` of a help text
mod source;
#[allow(rustdoc::broken_intra_doc_links)] // `[:SEED]` of a help text
pub(crate) mod traced;

use std::path::PathBuf;

use clap::{Arg, Args, Subcommand, ValueEnum};
use hugepilot_graph::run::{Job, JobResult, Kernel, Output, SourceVertex};
use hugepilot_graph::{Format, GraphError, PagePlan, ThreadPool, Width};
use hugepilot_launch::record::begin_phase;
use hugepilot_reports::graph::AllocOrder;
use hugepilot_reports::graph_warnings_text;

use self::convert::ConvertArgs;
use self::error::{failure, usage};
use self::file::FILES;
use self::kernel::KernelArgs;
use self::source::SourceArgs;
use crate::exit::Exit;
use crate::output::{Progress, finish_report};
use crate::recording::{RecordFlag, RunFiles};

/// Run graph kernels with a page policy per array; convert graphs
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = GRAPH_EXAMPLES)]
pub(crate) struct GraphArgs {
    #[command(subcommand)]
    command: GraphCommand,
}

#[derive(Debug, Subcommand)]
enum GraphCommand {
    Info(Box<InfoArgs>),
    Run(Box<RunArgs>),
    /// Convert a graph to a file of another format
    #[command(after_help = CONVERT_EXAMPLES)]
    Convert(Box<ConvertArgs>),
    /// Write a generated graph to a file
    #[command(after_help = GENERATE_EXAMPLES, mut_args(without_files))]
    Generate(Box<ConvertArgs>),
    /// Write a relabelled graph to a file, with the map of vertex IDs
    #[command(after_help = REORDER_EXAMPLES, mut_arg("reorder", |arg| arg.required(true)))]
    Reorder(Box<ConvertArgs>),
}

const GRAPH_EXAMPLES: &str = "\
Examples:
  hugepilot graph info kronecker:20                            size and shape
  hugepilot graph run bfs kronecker:22 --pages property=thp    property arrays on THP
  hugepilot graph convert lj.txt.gz lj.sg                      another file format

Exit status: 0 done, 1 wrong result (--verify), 2 error, 3 requested pages unavailable";

const INFO_EXAMPLES: &str = "\
Examples:
  hugepilot graph info kronecker:20                         a generated graph
  hugepilot graph info soc-LiveJournal1.txt.gz --directed   a compressed edge list
  hugepilot graph info grid:4096x4096 --json | jq .graph    facts as JSON

Exit status: 0 done, 2 error, 3 requested pages unavailable";

const RUN_EXAMPLES: &str = "\
Examples:
  hugepilot graph run bfs kronecker:22                      a generated graph
  hugepilot graph run pr lj.txt.gz --directed --output ranks.txt
                                                            ranks to a file
  hugepilot graph run pr kronecker:22 --pages property=thp --trials 5
                                                            property arrays on THP
  hugepilot graph run bfs kronecker:24:8 --algo top-down --reorder dbg --pages property=thp:20%
                                                            hubs on huge pages
  hugepilot graph run pr kronecker:22 --trials 5 --record pr.rec
                                                            each trial, for report
  hugepilot graph run sssp road.wsg --delta 10000 --source 4711 --verify
                                                            verified shortest paths

Exit status: 0 done, 1 wrong result (--verify), 2 error, 3 requested pages unavailable";

const CONVERT_EXAMPLES: &str = "\
Examples:
  hugepilot graph convert soc-LiveJournal1.txt.gz lj.sg     for the GAP benchmark suite
  hugepilot graph convert --directed --compact follows.csv follows.hpg
                                                            vertex IDs with gaps
  hugepilot graph convert lj.sg lj --to four-files          a directory of four files

Exit status: 0 done, 2 error, 3 requested pages unavailable";

const GENERATE_EXAMPLES: &str = "\
Examples:
  hugepilot graph generate kronecker:22 kron.sg             unweighted
  hugepilot graph generate uniform:20:8 uniform.wel         weighted, as .wel requires
  hugepilot graph generate grid:1000x1000 grid.hpg --weighted
                                                            weighted, native format

Exit status: 0 done, 2 error, 3 requested pages unavailable";

const REORDER_EXAMPLES: &str = "\
Examples:
  hugepilot graph reorder lj.sg lj-dbg.hpg --reorder dbg    old IDs inside the file
  hugepilot graph reorder lj.sg lj-dbg.sg --reorder dbg     old IDs in lj-dbg.sg.map

Exit status: 0 done, 2 error, 3 requested pages unavailable";

/// Describe a graph and the memory it takes
#[derive(Debug, Args)]
#[command(after_help = INFO_EXAMPLES)]
struct InfoArgs {
    #[command(flatten)]
    common: CommonArgs,
}

/// Run a kernel and report its result, times and pages
///
/// Arrays that --pages does not name are on base pages, whatever the system setting.
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
struct RunArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    #[command(flatten)]
    common: CommonArgs,
    /// Memory that is touched first and so gets scarce huge pages first: natural (the graph) or
    /// property-first (property arrays)
    #[arg(long, value_name = "ORDER", default_value = "natural", hide_possible_values = true)]
    alloc_order: AllocOrderArg,
    /// Number of runs; the report has each and the median
    #[arg(long, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// Verification of each result by one pass over the edges; for bc and tc by recomputation on
    /// one thread, for diameter by the length of its path
    #[arg(long)]
    verify: bool,
    /// File for the result of the last trial, ID VALUE on each line: bfs distance in edges, sssp
    /// distance by weight, pr rank, cc least ID in the component, bc score
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replacement of an existing --output file
    #[arg(long, requires = "output")]
    force: bool,
    #[command(flatten)]
    record: RecordFlag,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AllocOrderArg {
    Natural,
    PropertyFirst,
}

#[derive(Debug, Args)]
struct CommonArgs {
    #[command(flatten)]
    source: SourceArgs,
    /// Bits of vertex IDs, offsets and weights: 32 or 64 [default: 32, or 64 if required]
    #[arg(long, value_name = "BITS", value_parser = ["32", "64"], hide_possible_values = true)]
    width: Option<String>,
    /// Number of threads, at most 1024 [default: one per processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Pages of each array, such as 'property=thp:20%,edges=base'. Arrays: offsets, edges, weights,
    /// in-offsets, in-edges, in-weights, property, worklist, all. Pages: base (huge pages
    /// forbidden), system (by the THP setting), thp[:PREFIX%], collapse[:PREFIX%], hugetlb,
    /// hugetlb-1g
    #[arg(long, value_name = "PLAN", default_value = "base")]
    pages: String,
    /// Output as one JSON object (schema hugepilot.graph/2)
    #[arg(long)]
    json: bool,
}

/// Hides options of files, for a command without files.
fn without_files(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "graph" => arg.help(
            "Generated graph: kronecker:SCALE[:DEGREE], uniform:SCALE[:DEGREE] (2^SCALE vertices, \
             DEGREE times as many edges, 16 by default), or grid:ROWSxCOLUMNS",
        ),
        "directed" => arg.help("Directed edges, with their transpose"),
        "symmetrize" => arg.hide(true),
        _ if arg.get_help_heading() == Some(FILES) => arg.hide(true),
        _ => arg,
    }
}

/// Use of a graph.
#[derive(Clone, Copy)]
enum Action<'a> {
    Info,
    Run(&'a RunArgs),
    Write(&'a ConvertArgs, Format),
}

pub(crate) fn run(args: &GraphArgs) -> anyhow::Result<Exit> {
    let (common, action) = match &args.command {
        GraphCommand::Info(args) => (&args.common, Ok(Action::Info)),
        GraphCommand::Run(args) => (&args.common, args.check().map(|()| Action::Run(args))),
        GraphCommand::Convert(args)
        | GraphCommand::Generate(args)
        | GraphCommand::Reorder(args) => {
            (&args.common, args.check().map(|format| Action::Write(args, format)))
        }
    };
    common.source.check();
    if let (GraphCommand::Generate(_), Some(path)) = (&args.command, common.source.path()) {
        usage(&format!("{} is not a generated graph: graph convert is for files", path.display()));
    }
    let flag = match &args.command {
        GraphCommand::Run(args) => args.record.path(),
        _ => None,
    };
    let action = match action {
        Ok(action) => action,
        Err(error) => return Ok(failure(&error).print()),
    };
    let mut files = RunFiles::open(None, flag)?;
    files.begin(None)?;
    let progress = Progress::new();
    let result = run_wide_enough(common, action, &progress, &mut files);
    drop(progress);
    let JobResult { report, output_error } = match result {
        Ok(result) => result,
        Err(error) => return Ok(failure(&error).print()),
    };
    files.add_report(&report);
    eprint!("{}", graph_warnings_text(&report));
    finish_report(&report, common.json)?;
    files.finish()?;
    if let Some(error) = output_error {
        return Ok(failure(&error).note());
    }
    Ok(if report.verified == Some(false) { Exit::No } else { Exit::Yes })
}

/// Runs with the requested width, or with 64 bits if 32 are too few.
fn run_wide_enough(
    common: &CommonArgs,
    action: Action<'_>,
    progress: &Progress,
    files: &mut RunFiles,
) -> Result<JobResult, GraphError> {
    match common.width.as_deref() {
        Some("64") => run_width::<u64>(common, action, progress, files),
        Some(_) => run_width::<u32>(common, action, progress, files),
        None => match run_width::<u32>(common, action, progress, files) {
            Err(error) if error.is_too_narrow() => {
                progress.keep(&format!("note: {error}; repeating with 64 bits"));
                let mut result = run_width::<u64>(common, action, progress, files)?;
                result.report.widened = Some(error.to_string());
                Ok(result)
            }
            result => result,
        },
    }
}

fn run_width<V: Width>(
    common: &CommonArgs,
    action: Action<'_>,
    progress: &Progress,
    files: &mut RunFiles,
) -> Result<JobResult, GraphError> {
    let job = common.job(action)?;
    let weighted = match action {
        Action::Write(_, format) => ConvertArgs::needs_weights(format),
        _ => job.kernel.is_some_and(|kernel| kernel.needs_weights()),
    };
    begin_phase("build");
    let mut prepared = common.source.prepare::<V>(&job, weighted, progress)?;
    if let Action::Write(args, format) = action {
        args.write(format, &mut prepared, progress)?;
    }
    let trials = job.trials;
    let begin_trial = |number| {
        progress.now(format!("running trial {number}/{trials}"));
        begin_phase(&format!("trial {number}"));
    };
    if job.kernel.is_some() {
        begin_trial(1);
    }
    let kernel = job.kernel.as_ref().map_or("", Kernel::name);
    let mut done = 0;
    prepared.run(&job, |trial| {
        done += 1;
        files.add_trial(kernel.to_owned(), done as u64, trial.seconds, trial);
        if done < trials {
            begin_trial(done + 1);
        }
    })
}

impl RunArgs {
    /// Checks that the output file can be written.
    fn check(&self) -> Result<(), GraphError> {
        if let (Some(record), Some(input)) = (self.record.path(), self.common.source.path())
            && out::is_same(record, input)
        {
            usage("--record would replace the graph: name another file");
        }
        if let (Some(record), Some(output)) = (self.record.path(), &self.output)
            && out::is_same(record, output)
        {
            usage("--record and --output name the same file: name another one");
        }
        let kernel = self.kernel.kernel();
        let Some(output) = &self.output else { return Ok(()) };
        if !kernel.has_values() {
            usage(&format!("--output requires a value per vertex: {} has none", kernel.name()));
        }
        out::check(output, self.force, out::LINES)
    }
}

impl CommonArgs {
    fn job(&self, action: Action<'_>) -> Result<Job, GraphError> {
        let run = match action {
            Action::Run(run) => Some(run),
            _ => None,
        };
        let output = |run: &RunArgs| Some(Output { path: run.output.clone()?, replace: run.force });
        Ok(Job {
            input: self.source.name(),
            directed: self.source.is_directed(),
            pages: self.pages.parse::<PagePlan>()?,
            pages_text: self.pages.clone(),
            alloc_order: match run.map(|run| run.alloc_order) {
                None | Some(AllocOrderArg::Natural) => AllocOrder::Natural,
                Some(AllocOrderArg::PropertyFirst) => AllocOrder::PropertyFirst,
            },
            pool: match self.threads {
                Some(threads) => ThreadPool::new(threads as usize),
                None => ThreadPool::all(),
            },
            reorder: self.source.reorder(),
            kernel: run.map(|run| run.kernel.kernel()),
            trials: run.map_or(1, |run| run.trials as usize),
            source: run.map_or(SourceVertex::MaxDegree, |run| run.kernel.source()),
            verify: run.is_some_and(|run| run.verify),
            output: run.and_then(output),
        })
    }
}
