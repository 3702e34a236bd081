//! `hugepilot lab`: workloads with known memory behaviour, micro-benchmarks, and conditions for
//! experiments.

mod collapse;
mod experiment;
mod micro;
mod spec;
#[cfg(test)]
mod tests;
mod weather;
mod workload;

use std::io;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use hugepilot_units::AddrRange;
use hugepilot_workload::{MemoryLimits, WorkloadError};

use self::workload::Workload;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt;
use crate::target::parse_pid;

const LAB_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload gups --pages huge                    random updates on huge pages
  hugepilot lab workload hot-set --announce --seconds 0       a target for hugepilot tune
  sudo hugepilot lab collapse -p 4711                         undo debloat
  hugepilot lab tlb-sweep                                     levels of the TLB
  sudo hugepilot lab fragment --level 50% -- ./solve          half of the memory fragmented

Exit status: 0 done, 1 not all memory became huge (collapse) or the check failed (gups), 2 error,
3 unsupported here";

const WORKLOAD_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload hot-set --footprint 2GiB --hot 256MiB --announce
                                                              scattered hot regions
  hugepilot lab workload pointer-chase --seconds 0 | head -20
                                                              twenty intervals
  hugepilot lab workload gups --pages huge --ops 100000000    fixed work, to compare times
  hugepilot lab workload random-access --size 2GiB --bloat 80,20 --wait
                                                              bloat; starts at `go`

Exit status: 0 done, 2 error or wrong result, 3 a required program is missing";

const COLLAPSE_EXAMPLES: &str = "\
Examples:
  sudo hugepilot lab collapse -p 4711                         undo debloat of a process
  sudo hugepilot lab collapse -p $(pgrep -n redis-server)     the newest process of a name
  sudo hugepilot lab collapse -p 4711 --range 7f8a40000000-7f8a80000000
                                                              1 GiB of it

Exit status: 0 every region that was tried became huge, 1 not all, 2 error, 3 unsupported here";

/// Run workloads and micro-benchmarks, and make conditions for experiments
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = LAB_EXAMPLES)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Debug, Subcommand)]
enum LabCommand {
    /// Run one workload and print its throughput
    ///
    /// Prints `ready PID` once the memory is filled, a line `SECONDS OPS_PER_SECOND` per interval,
    /// and one line of JSON at the end. PID is this process, or the server that the workload
    /// starts. If the reader closes the pipe, the workload ends without an error.
    #[command(arg_required_else_help = true, after_help = WORKLOAD_EXAMPLES)]
    Workload {
        #[command(subcommand)]
        workload: Workload,
    },
    /// Promote all memory of a process, to measure with
    ///
    /// Every region with at least one resident page becomes huge. The huge pages add at most as
    /// much memory as the process has resident; regions beyond that are not tried. It stays below
    /// the memory limits of the system and of the process's cgroup. Requires root.
    #[command(after_help = COLLAPSE_EXAMPLES)]
    Collapse(CollapseArgs),
    Pchase(micro::PchaseArgs),
    Stream(micro::StreamArgs),
    Gups(micro::GupsArgs),
    TlbSweep(micro::TlbSweepArgs),
    List(experiment::ListArgs),
    Run(experiment::RunArgs),
    Report(experiment::ReportArgs),
    Merge(experiment::MergeArgs),
    Pressure(weather::PressureArgs),
    Fragment(weather::FragmentArgs),
    PageCache(weather::PageCacheArgs),
    Warm(weather::WarmArgs),
    Quiet(weather::QuietArgs),
}

/// Target of `lab collapse`.
#[derive(Debug, Args)]
struct CollapseArgs {
    /// Process to promote
    #[arg(short, long, value_name = "PID", value_parser = parse_pid, allow_negative_numbers = true)]
    pid: i32,

    /// Only regions that overlap these addresses, in hexadecimal; repeatable
    #[arg(long = "range", value_name = "START-END")]
    ranges: Vec<AddrRange>,
}

/// Runs the command.
///
/// # Errors
/// Failures of the kernel and of promotion; failures of a workload are printed here.
pub(crate) fn run(args: LabArgs) -> anyhow::Result<ExitCode> {
    let exit = match args.command {
        LabCommand::Workload { workload } => run_workload(workload),
        LabCommand::Collapse(target) => collapse::run(target.pid, &target.ranges),
        LabCommand::Pchase(args) => micro::pchase(&args),
        LabCommand::Stream(args) => micro::stream(&args),
        LabCommand::Gups(args) => micro::gups(&args),
        LabCommand::TlbSweep(args) => micro::tlb_sweep(&args),
        LabCommand::List(args) => experiment::list(&args),
        LabCommand::Run(args) => experiment::run(&args),
        LabCommand::Report(args) => experiment::report_runs(&args),
        LabCommand::Merge(args) => experiment::merge_files(&args),
        LabCommand::Pressure(args) => return weather::pressure(&args),
        LabCommand::Fragment(args) => return weather::fragment(&args),
        LabCommand::PageCache(args) => return weather::page_cache(&args),
        LabCommand::Warm(args) => return weather::warm(&args),
        LabCommand::Quiet(args) => return weather::quiet(&args),
    };
    exit.map(ended)
}

/// Ends the command: with this status, or by the signal that interrupted it.
fn ended(exit: Exit) -> ExitCode {
    interrupt::over();
    interrupt::end(exit)
}

fn run_workload(workload: Workload) -> anyhow::Result<Exit> {
    let (spec, config) = workload.into_spec();
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    let done = MemoryLimits::live().and_then(|machine| {
        hugepilot_workload::run(&spec, &config, &machine, &mut stdin, &mut stdout)
    });
    match done {
        Ok(_) => Ok(Exit::Yes),
        Err(error) => failed(error),
    }
}

/// Prints the failure of a workload or a micro-benchmark.
fn failed(error: WorkloadError) -> anyhow::Result<Exit> {
    let exit = match error {
        WorkloadError::Kernel(error) => return Err(error.into()),
        WorkloadError::NoProgram { .. } | WorkloadError::Pages(_) => Exit::Unsupported,
        _ => Exit::Error,
    };
    Ok(Failure::new(error.to_string(), exit).with_help(error.help()).print())
}
