//! `hugepilot trace`: the accesses of a program or a graph kernel in a file.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueHint};
use hugepilot_kernel::proc::printable;
use hugepilot_record::trace::{TracePiece, TraceSummary, TraceWriter};
use hugepilot_render::json;
use hugepilot_reports::trace::{SCHEMA, TraceOrigin, TraceReport, TraceStopCause};
use hugepilot_reports::trace_text;
use hugepilot_trace::source::{
    Engine, LogFormat, TraceOptions, TraceSource, TraceStop, TraceWindow, trace,
};
use hugepilot_units::Bytes;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::graph::traced::TracedArgs;
use crate::interrupt::Interrupt;
use crate::new_file::Output;
use crate::output::{Progress, finish, width};

/// Time between two lines of progress.
const STEP: Duration = Duration::from_millis(500);

/// Record the memory accesses of a program or a graph kernel in a file
///
/// The program runs under QEMU's user mode (Debian package `qemu-user`) and takes 4 to 10 times its
/// time. The trace has the loads and stores of its threads and the names of its mappings. Forked
/// children and accesses by the kernel are not traced. A graph kernel of hugepilot records its own
/// accesses, exactly and faster, with its phases.
#[derive(Debug, Args)]
#[command(after_help = "\
Engines:
  qemu    QEMU with a plugin of hugepilot, which cc compiles at each start; the threads in parallel
  lackey  valgrind's lackey, hundreds of times slower; all threads as one

Imports:
  lackey      text of `valgrind --tool=lackey --trace-mem=yes`
  perf        text of `perf script -F tid,addr`, optionally with comm, pid, time and event
  drmemtrace  text, on stderr, of `drrun -t drmemtrace -tool view -indir DIR`, which merges the
              threads' files in DIR; their format is internal to DynamoRIO

Examples:
  hugepilot trace -o solve.trace -- ./solve input.txt       all accesses
  hugepilot trace -o solve.trace --max-accesses 1000000000 -- ./solve
                                                            the first 10^9
  hugepilot trace -o solve.trace --window 1000000/100000000 -- ./solve
                                                            1 % in windows
  hugepilot trace -o bfs.trace --graph kronecker:20 --kernel bfs
                                                            a graph kernel
  perf script -F tid,addr | hugepilot trace --import perf - -o samples.trace
                                                            samples of the CPU
  hugepilot sim tlb solve.trace                             simulate a trace

Exit status: 0 the trace is written, whatever the status of the program; 2 error")]
pub(crate) struct TraceArgs {
    /// File of the trace
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
    /// Engine that runs CMD, from the list below
    #[arg(long, value_name = "NAME", default_value_t = Engine::Qemu, conflicts_with = "graph")]
    engine: Engine,
    /// Log of another tool instead of CMD: its format, from the list below, and its file;
    /// - reads the standard input
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"],
          conflicts_with_all = ["engine", "graph", "from_phase", "to_phase"])]
    import: Option<Vec<OsString>>,
    #[command(flatten)]
    graph: TracedArgs,
    /// Accesses omitted at the start
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// First N of each M accesses after those, such as 1000000/100000000 [default: all]
    #[arg(long, value_name = "N/M")]
    window: Option<TraceWindow>,
    /// Accesses in the trace after which the program is ended [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_accesses: Option<u64>,
    /// Length of FILE after which the program is ended [default: unlimited]
    #[arg(long, value_name = "BYTES")]
    max_bytes: Option<Bytes>,
    /// JSON on stdout (schema hugepilot.trace/1)
    #[arg(long)]
    json: bool,
    /// Program and arguments
    #[arg(last = true, required_unless_present_any = ["import", "graph"],
          conflicts_with_all = ["import", "graph", "from_phase", "to_phase"],
          value_name = "CMD", num_args = 1.., value_hint = ValueHint::ExecutablePath)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &TraceArgs) -> anyhow::Result<Exit> {
    let source = source(args)?;
    let file = Output::create(&args.output, "the trace", "-o", args.force)?;
    let interrupt = Interrupt::listen()?;
    let report = write(args, &source, file, &|| interrupt.is_asked())?;
    finish(&if args.json { json(&report) } else { trace_text(&report, width()) })?;
    Ok(Exit::Yes)
}

fn source(args: &TraceArgs) -> anyhow::Result<TraceSource> {
    let mut kernels = args.graph.traces();
    if kernels.len() > 1 {
        let help = "trace each in a file of its own; sim takes several traces".to_owned();
        let failure = Failure::new("a trace is that of one kernel", Exit::Error);
        return Err(failure.with_help([help]).into());
    }
    if let Some(kernel) = kernels.pop() {
        return Ok(TraceSource::Graph(Box::new(kernel)));
    }
    let Some([format, path]) = args.import.as_deref() else {
        return Ok(TraceSource::Program { command: args.command.clone(), engine: args.engine });
    };
    let format = format.to_string_lossy().parse::<LogFormat>().map_err(anyhow::Error::msg)?;
    Ok(TraceSource::Log { path: path.into(), format })
}

/// Writes the trace, and names its file also if the user ends it early.
fn write(
    args: &TraceArgs,
    source: &TraceSource,
    file: Output,
    interrupted: &dyn Fn() -> bool,
) -> anyhow::Result<TraceReport> {
    let options = TraceOptions {
        from_phase: args.graph.from_phase.clone(),
        to_phase: args.graph.to_phase.clone(),
        skip: args.skip,
        max_accesses: args.max_accesses,
        window: args.window,
    };
    let max_bytes = args.max_bytes.map_or(u64::MAX, Bytes::get);
    let mut writer = TraceWriter::new(file)?;
    let mut summary = TraceSummary::default();
    let mut failed = None;
    let progress = TraceProgress::new();
    let started = Instant::now();
    let mut sink = |piece: TracePiece, _| {
        summary.add(&piece);
        failed = writer.piece(&piece).err();
        progress.show(summary.accesses(), writer.bytes());
        match failed {
            None if writer.bytes() < max_bytes => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    };
    let end = trace(source, &options, interrupted, &mut sink)?;
    let wall_seconds = started.elapsed().as_secs_f64();
    if let Some(error) = failed {
        return Err(error).context("cannot write the trace");
    }
    let finished = writer.finish(end.folded, &end.stated(&options));
    let bytes = finished.context("cannot write the trace")?.finish()?;
    drop(progress);
    let phases = summary.phases();
    let (totals, mappings) = summary.finish();
    Ok(TraceReport {
        schema: SCHEMA.to_owned(),
        origin: origin(source),
        input: input(source),
        file: shown(args.output.as_os_str()),
        file_bytes: bytes,
        wall_seconds,
        ending: end.ending,
        stop: stop(end.stop),
        totals,
        omitted_accesses: end.omitted,
        folded_accesses: end.folded,
        mappings,
        phases,
        warnings: end.warnings(),
    })
}

fn shown(text: &OsStr) -> String {
    printable(text.as_encoded_bytes())
}

const fn origin(source: &TraceSource) -> TraceOrigin {
    match source {
        TraceSource::Program { engine: Engine::Lackey, .. } => TraceOrigin::Lackey,
        TraceSource::Log { format: LogFormat::Lackey, .. } => TraceOrigin::LackeyLog,
        TraceSource::Log { format: LogFormat::Perf, .. } => TraceOrigin::PerfScript,
        TraceSource::Log { format: LogFormat::Drmemtrace, .. } => TraceOrigin::DrmemtraceView,
        TraceSource::Graph(_) => TraceOrigin::Graph,
        TraceSource::Program { .. } | TraceSource::File(_) => TraceOrigin::Qemu,
    }
}

fn input(source: &TraceSource) -> Vec<String> {
    match source {
        TraceSource::Program { command, .. } => command.iter().map(|word| shown(word)).collect(),
        TraceSource::Log { path, .. } | TraceSource::File(path) => vec![shown(path.as_os_str())],
        TraceSource::Graph(kernel) => vec![TracedArgs::name_of(kernel)],
    }
}

const fn stop(stop: TraceStop) -> TraceStopCause {
    match stop {
        TraceStop::End => TraceStopCause::End,
        TraceStop::MaxAccesses => TraceStopCause::MaxAccesses,
        TraceStop::Phase => TraceStopCause::Phase,
        // A failed write is an error, so only the length remains.
        TraceStop::Sink => TraceStopCause::MaxBytes,
        TraceStop::Interrupted => TraceStopCause::Interrupted,
    }
}

/// Progress: accesses and bytes so far, twice a second.
struct TraceProgress {
    progress: Progress,
    next: Cell<Instant>,
}

impl TraceProgress {
    fn new() -> Self {
        Self { progress: Progress::new(), next: Cell::new(Instant::now()) }
    }

    fn show(&self, accesses: u64, bytes: u64) {
        let now = Instant::now();
        if now >= self.next.get() {
            self.next.set(now + STEP);
            let millions = accesses as f64 / 1e6;
            self.progress.now(format!("tracing: {millions:.1} M accesses, {}", Bytes::new(bytes)));
        }
    }
}
