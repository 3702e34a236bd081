//! `hugepilot lab pressure`, `fragment`, `page-cache`, `warm` and `quiet`: conditions for
//! experiments.

mod leave;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::{Args, ValueEnum};
use hugepilot_kernel::Root;
use hugepilot_kernel::own_memory::end_with_parent;
use hugepilot_lab::holder::own_executable;
use hugepilot_lab::{
    Condition, FragmentConfig, Fragmentation, LabError, LimitedProgram, PageCacheFill, Pressure,
    PressureConfig, keep_for,
};
use hugepilot_record::Sentence;
use hugepilot_render::JsonReport;
use hugepilot_reports::lab::weather::{
    FragmentBase, FragmentKind, PRESSURE_SCHEMA, PressureKind, PressureReport, WeatherRefusal,
};
use hugepilot_reports::{fragment_text, page_cache_text, pressure_text, quiet_text, warm_text};
use hugepilot_units::{Bytes, Nanos, Share};

use self::leave::Leave;
use super::ended;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::interrupt::{self, Interrupt};
use crate::output::{note, print, width};

const EXIT: &str = "\
Exit status: 0 ended by a signal, 1 the level was not reached, 2 error, 3 unsupported here; with CMD
that of CMD";

/// Program that runs meanwhile.
#[derive(Args, Debug)]
struct Meanwhile {
    /// JSON on stdout, one line as soon as the condition holds (the schema is in the name of the
    /// command, such as hugepilot.lab-pressure/1)
    #[arg(long)]
    json: bool,
    /// Program and arguments; the command ends with its exit status [default: none, until a signal]
    #[arg(last = true, value_name = "CMD", num_args = 1..)]
    command: Vec<OsString>,
}

impl Meanwhile {
    /// Writes the report once the condition holds: on stdout, but text on stderr if a program
    /// writes to stdout.
    fn print(&self, report: &impl JsonReport, text: &str) -> Result<(), Failure> {
        match (self.json, self.command.is_empty()) {
            (true, _) => print(&(report.line().unwrap_or_default() + "\n")),
            (false, true) => print(text),
            (false, false) => {
                note(text.trim_end());
                Ok(())
            }
        }
    }

    /// Keeps the condition up while the program runs, or until a signal. `is_reached`: whether the
    /// level holds.
    fn keep(
        &self,
        condition: &mut dyn Condition,
        is_reached: bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<ExitCode> {
        let status = keep_for(condition, &self.command, &|| interrupt.is_asked());
        self.end(status.map_err(failure)?, is_reached)
    }

    fn end(&self, status: i32, is_reached: bool) -> anyhow::Result<ExitCode> {
        if self.command.is_empty() {
            return Ok(ended(if is_reached { Exit::Yes } else { Exit::No }));
        }
        Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)))
    }
}

const PRESSURE_EXAMPLES: &str = "\
Examples:
  sudo hugepilot lab pressure --leave 3GiB                    until Ctrl-C
  sudo hugepilot lab pressure --leave footprint+0.5GiB --footprint 2GiB -- ./solve
                                                              0.5 GiB more than it needs
  sudo hugepilot lab pressure --leave 2GiB --kind cgroup -- ./solve
                                                              a limit for one program
  sudo hugepilot lab pressure --leave 1GiB --kind page-cache -- ./solve
                                                              free memory short, available not";

/// Leave an amount of memory, while a program runs or until a signal
///
/// Holds memory in steps of 64 MiB and follows the memory that is left: releases when other
/// processes need more or processes stall on memory, and holds again. The memory of CMD counts as
/// left to it. All of it is free again when the command or its parent ends, also by SIGKILL.
/// Requires root, or a limit on locked memory (ulimit -l) as large.
#[derive(Args, Debug)]
#[command(after_help = format!("{PRESSURE_EXAMPLES}\n\n{EXIT}"))]
pub(super) struct PressureArgs {
    /// Memory to leave, at least 1GiB (256MiB for page-cache): an amount, or footprint+AMOUNT
    #[arg(long, value_name = "AMOUNT")]
    leave: Leave,
    /// Footprint of the program, for `--leave footprint+AMOUNT`: its peak RSS without pressure
    #[arg(long, value_name = "BYTES")]
    footprint: Option<Bytes>,
    /// Means
    #[arg(long, value_enum, default_value_t = KindArg::Mlock)]
    kind: KindArg,
    /// NUMA node to confine it to, with the kind mlock [default: all nodes]
    #[arg(long, value_name = "N")]
    node: Option<u32>,
    /// Hold the same amount once the level is reached, whatever others use; end if less than 256MiB
    /// is available
    #[arg(long)]
    fixed: bool,
    #[command(flatten)]
    meanwhile: Meanwhile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KindArg {
    /// Locked base pages: available memory is short
    Mlock,
    /// A memory cgroup with a limit, for CMD alone
    Cgroup,
    /// Clean file pages: free memory is short, available memory is not
    PageCache,
}

pub(super) fn pressure(args: &PressureArgs) -> anyhow::Result<ExitCode> {
    let leave = args.leave.bytes(args.footprint);
    let leave = leave.ok_or_else(|| refusal(&WeatherRefusal::NoFootprint))?;
    let is_confined = args.node.is_none() || args.kind == KindArg::Mlock;
    ensure!(is_confined, "--node confines locked memory only: use --kind mlock, or omit --node");
    let kind = match args.kind {
        KindArg::Mlock => PressureKind::Mlock,
        KindArg::PageCache => PressureKind::PageCache,
        KindArg::Cgroup => return limited(args, leave),
    };
    let interrupt = listen()?;
    let config = PressureConfig {
        kind,
        leave,
        footprint: args.footprint,
        node: args.node,
        fixed: args.fixed,
        executable: own_executable(),
    };
    let begun = Pressure::begin(config, &|| interrupt.is_asked());
    let mut pressure = begun.map_err(failure)?;
    let report = pressure.report();
    let is_reached = report.shortfall.is_none();
    args.meanwhile.print(report, &pressure_text(report))?;
    let ended = args.meanwhile.keep(&mut pressure, is_reached, &interrupt);
    if !pressure.yielded().is_zero() {
        let yielded = pressure.yielded();
        note(&format!("note: {yielded} were released because processes stalled on memory"));
    }
    ended
}

fn limited(args: &PressureArgs, leave: Bytes) -> anyhow::Result<ExitCode> {
    if args.meanwhile.command.is_empty() {
        return Err(refusal(&WeatherRefusal::NoProgram).into());
    }
    let interrupt = listen()?;
    let limited = LimitedProgram::begin(leave, &own_executable()).map_err(failure)?;
    let report = PressureReport {
        schema: PRESSURE_SCHEMA.to_owned(),
        kind: PressureKind::Cgroup,
        requested_bytes: leave,
        left_bytes: leave,
        held_bytes: Bytes::ZERO,
        footprint_bytes: args.footprint,
        node: None,
        step_bytes: Bytes::ZERO,
        seconds: 0.0,
        shortfall: None,
        warnings: Vec::new(),
    };
    args.meanwhile.print(&report, &pressure_text(&report))?;
    let status = limited.run(&args.meanwhile.command, &|| interrupt.is_asked());
    let status = status.map_err(failure)?;
    if limited.oom_kills() > 0 {
        note("note: the kernel killed a process of the program at the limit");
    }
    args.meanwhile.end(status, true)
}

const FRAGMENT_EXAMPLES: &str = "\
Examples:
  sudo hugepilot lab fragment --level 50%                     half of the machine, until Ctrl-C
  sudo hugepilot lab fragment --level 75% --of free -- ./solve
                                                              of the free huge pages
  sudo hugepilot lab fragment --level 90% --probe --json      and what can be obtained
  sudo hugepilot lab fragment --level 50% --kind movable      that compaction can mend";

/// Fragment memory, while a program runs or until a signal
///
/// Keeps a base page in a share of all blocks of a huge page, and leaves the rest of these blocks
/// free. Compacts memory if too few blocks are free. All of it is free again when the command or
/// its parent ends, also by SIGKILL; free huge pages return in part. Requires root.
#[derive(Args, Debug)]
#[command(after_help = format!("{FRAGMENT_EXAMPLES}\n\n{EXIT}"))]
pub(super) struct FragmentArgs {
    /// Share of the blocks
    #[arg(long, value_name = "SHARE")]
    level: Share,
    /// Blocks that are the whole
    #[arg(long, value_enum, default_value_t = BaseArg::Machine)]
    of: BaseArg,
    /// Kind of the pages
    #[arg(long, value_enum, default_value_t = MovabilityArg::Unmovable)]
    kind: MovabilityArg,
    /// Allocate huge pages until the kernel refuses one, count them and free them: up to 4 ms each
    #[arg(long)]
    probe: bool,
    #[command(flatten)]
    meanwhile: Meanwhile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BaseArg {
    /// All memory of the machine (MemTotal)
    Machine,
    /// Free blocks at the start (/proc/buddyinfo)
    Free,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MovabilityArg {
    /// Pinned: compaction cannot move them
    Unmovable,
    /// Ordinary anonymous memory
    Movable,
}

pub(super) fn fragment(args: &FragmentArgs) -> anyhow::Result<ExitCode> {
    let interrupt = listen()?;
    let config = FragmentConfig {
        level: args.level,
        of: match args.of {
            BaseArg::Machine => FragmentBase::Machine,
            BaseArg::Free => FragmentBase::Free,
        },
        kind: match args.kind {
            MovabilityArg::Unmovable => FragmentKind::Unmovable,
            MovabilityArg::Movable => FragmentKind::Movable,
        },
        probe: args.probe,
        executable: own_executable(),
    };
    let begun = Fragmentation::begin(&config, &|| interrupt.is_asked());
    let mut fragmentation = begun.map_err(failure)?;
    let report = fragmentation.report();
    let is_reached = report.shortfall.is_none();
    args.meanwhile.print(report, &fragment_text(report))?;
    args.meanwhile.keep(&mut fragmentation, is_reached, &interrupt)
}

const PAGE_CACHE_EXAMPLES: &str = "\
Examples:
  hugepilot lab page-cache --size 4GiB                        clean pages, until Ctrl-C
  hugepilot lab page-cache --file input.sg -- ./solve input.sg
                                                              a file in the cache
  hugepilot lab page-cache --file input.sg --drop             and out of it";

/// Fill the page cache with clean pages, while a program runs or until a signal
///
/// Reads a temporary file without data, or a file of the user. The pages that were not in the page
/// cache before are dropped at the end.
#[derive(Args, Debug)]
#[command(after_help = format!("{PAGE_CACHE_EXAMPLES}\n\n{EXIT}"))]
pub(super) struct PageCacheArgs {
    /// Bytes to read [default: all of --file]
    #[arg(long, value_name = "SIZE", required_unless_present = "file")]
    size: Option<Bytes>,
    /// File to read [default: a temporary one]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Drop the clean pages of --file instead, also those of other readers, and end
    #[arg(long, requires = "file", conflicts_with = "size")]
    drop: bool,
    #[command(flatten)]
    meanwhile: Meanwhile,
}

pub(super) fn page_cache(args: &PageCacheArgs) -> anyhow::Result<ExitCode> {
    let interrupt = listen()?;
    let fill = match &args.file {
        Some(path) => PageCacheFill::of_file(path),
        None => PageCacheFill::temporary(),
    };
    let mut fill = fill.map_err(failure)?;
    let report = match args.drop {
        true => fill.drop_all(),
        false => fill.fill(args.size.unwrap_or(Bytes::MAX), &|| interrupt.is_asked()),
    };
    let report = report.map_err(failure)?;
    args.meanwhile.print(&report, &page_cache_text(&report))?;
    let ends = args.drop && args.meanwhile.command.is_empty();
    if ends { Ok(ended(Exit::Yes)) } else { args.meanwhile.keep(&mut fill, true, &interrupt) }
}

const WARM_EXAMPLES: &str = "\
Examples:
  sudo hugepilot lab warm                                     all memory that is safe
  sudo hugepilot lab warm --size 8GiB -- ./solve              then a program

Exit status: 0 done, 2 error, 3 unsupported here; with CMD that of CMD";

/// Touch memory once, so that a hypervisor backs it
///
/// Touches it, frees it, and touches it again: the first time is the longer one if the hypervisor
/// had to find memory. Requires root, or a limit on locked memory (ulimit -l) as large.
#[derive(Args, Debug)]
#[command(after_help = WARM_EXAMPLES)]
pub(super) struct WarmArgs {
    /// Memory to touch [default: what is available, less the reserve]
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    #[command(flatten)]
    meanwhile: Meanwhile,
}

pub(super) fn warm(args: &WarmArgs) -> anyhow::Result<ExitCode> {
    let interrupt = listen()?;
    let report = hugepilot_lab::warm(args.size, &own_executable(), &|| interrupt.is_asked());
    let report = report.map_err(failure)?;
    over_without(&args.meanwhile);
    args.meanwhile.print(&report, &warm_text(&report))?;
    then_run(&args.meanwhile, &interrupt, Exit::Yes)
}

const QUIET_EXAMPLES: &str = "\
Examples:
  hugepilot lab quiet                                         what disturbs measurements
  hugepilot lab quiet --seconds 10 --json                     a longer look
  hugepilot lab quiet -- ./benchmark                          only on a quiet machine

Exit status: 0 quiet, 1 not quiet, 2 error; with CMD, once it is started, that of CMD";

/// Check that the machine is quiet, or start a program only then
///
/// Measures the activity of the hypervisor, of other processes and of the kernel, each with a
/// limit.
#[derive(Args, Debug)]
#[command(after_help = QUIET_EXAMPLES)]
pub(super) struct QuietArgs {
    /// Time to measure
    #[arg(long, value_name = "TIME", default_value = "2s")]
    seconds: Nanos,
    /// Start CMD also on a machine that is not quiet
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    meanwhile: Meanwhile,
}

pub(super) fn quiet(args: &QuietArgs) -> anyhow::Result<ExitCode> {
    let interrupt = listen()?;
    let time = args.seconds.into();
    let measured = hugepilot_lab::quiet(&Root::live(), time, &|| interrupt.is_asked());
    let report = measured.map_err(failure)?;
    over_without(&args.meanwhile);
    args.meanwhile.print(&report, &quiet_text(&report, width()))?;
    if !args.meanwhile.command.is_empty() && !report.quiet && !args.force {
        return Ok(ended(refusal(&WeatherRefusal::NotQuiet).note()));
    }
    then_run(&args.meanwhile, &interrupt, if report.quiet { Exit::Yes } else { Exit::No })
}

/// Lets a signal end the command while it prints, if nothing follows.
fn over_without(meanwhile: &Meanwhile) {
    if meanwhile.command.is_empty() {
        interrupt::over();
    }
}

/// Runs the program after a report; without one ends with `exit`.
fn then_run(meanwhile: &Meanwhile, interrupt: &Interrupt, exit: Exit) -> anyhow::Result<ExitCode> {
    if meanwhile.command.is_empty() {
        return Ok(ended(exit));
    }
    meanwhile.keep(&mut hugepilot_lab::Unchanged, true, interrupt)
}

/// Ends the command with its parent, and lets signals request an end.
fn listen() -> anyhow::Result<Interrupt> {
    let interrupt = Interrupt::listen()?;
    end_with_parent()?;
    Ok(interrupt)
}

fn refusal(refusal: &WeatherRefusal) -> Failure {
    let exit = match refusal {
        WeatherRefusal::NotQuiet => Exit::No,
        WeatherRefusal::NoFootprint | WeatherRefusal::NoProgram => Exit::Error,
        _ => Exit::Unsupported,
    };
    Failure::new(refusal.text(), exit).with_help(refusal.help())
}

fn failure(error: LabError) -> anyhow::Error {
    match error {
        LabError::Refused(reason) => refusal(&reason).into(),
        LabError::Interrupted => Failure::new(error.to_string(), Exit::Interrupted).into(),
        LabError::Kernel(error) => error.into(),
        error => Failure::new(error.to_string(), Exit::Error).with_help(error.help()).into(),
    }
}
