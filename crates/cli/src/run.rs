//! `hugepilot run`: a program with chosen pages.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail, ensure};
use clap::{Args, ValueHint};
use hugepilot_kernel::file::NewFile;
use hugepilot_kernel::{ending_signals, fault_signals};
use hugepilot_launch::run::{RunOptions, run as run_program};
use hugepilot_record::run::Mode;
use hugepilot_report::{json, run_text};
use hugepilot_units::Bytes;
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU};

use crate::recover;

/// What is passed on to the program, and that it changed.
fn passed_on() -> Vec<i32> {
    const STOPS: [i32; 5] = [SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGCHLD];
    ending_signals().into_iter().chain(fault_signals()).chain(STOPS).collect()
}

pub(crate) const MODES: &str = "\
Modes:
  base            no transparent huge pages (THP)
  thp             THP for all memory, whatever the system's setting; as root also from outside
  advised         THP only for memory that the program advises (MADV_HUGEPAGE)
  glibc-thp       the C library's malloc advises THP (glibc 2.35)
  hugetlb         the C library's malloc on 2 MiB pages of the hugetlb pool
  hugetlb-1g      the C library's malloc on 1 GiB pages of the hugetlb pool
  mimalloc        mimalloc with its defaults
  mimalloc-2m     mimalloc on 2 MiB pages of the hugetlb pool, or else on THP
  mimalloc-1g     mimalloc on 1 GiB pages of the hugetlb pool
  hugepilot       hugepilot's allocator
  hugepilot-base  hugepilot's allocator on base pages, to separate its gain from its pages'";

/// Run a program on chosen pages and report whether it got them
///
/// The program gets the standard streams, the signals and the terminal; its exit status is returned
/// (128 plus the signal number if a signal killed it). The report goes to standard error at its end.
/// Only `--pool` changes a kernel setting, for the time of the run; it needs root.
#[derive(Debug, Args)]
#[command(after_help = format!("{MODES}\n\n\
Examples:\n  \
  hugepilot run --pages glibc-thp -- ./server --port 80       THP by malloc\n  \
  sudo hugepilot run --pages hugetlb --pool 4GiB -- ./server  2 MiB pages of a pool\n  \
  hugepilot run --pages mimalloc-2m --library /opt/lib/libmimalloc.so -- python3 job.py\n  \
  hugepilot run --pages base --report run.json -- make        report as JSON\n\n\
Exit status: that of the program; 2 error, 3 unsupported here, if it was not started"))]
pub(crate) struct RunArgs {
    /// Page mode, see Modes
    #[arg(long, value_name = "MODE")]
    pages: Mode,
    /// Library to preload [default: the installed one]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Free memory in the mode's hugetlb pool during the run; needs root
    #[arg(long, value_name = "BYTES")]
    pool: Option<Bytes>,
    /// File for the JSON report (schema hugepilot.run/2)
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// No report if the mode took effect without warnings
    #[arg(short, long)]
    quiet: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD", num_args = 1.., value_hint = ValueHint::ExecutablePath)]
    command: Vec<OsString>,
}

/// The report's file, which gets its name when it is whole. A regular file of that name is replaced; a link, a FIFO or a
/// device is refused, as root would write where the link of another user leads.
fn new_report(path: &Path) -> anyhow::Result<NewFile> {
    if let Ok(about) = path.symlink_metadata()
        && !about.is_file()
    {
        bail!("cannot write {}: the name is taken by what is not a regular file", path.display());
    }
    // The words alone: capabilities, which hugepilot names as the fix for calls of the kernel, would not help here.
    NewFile::create(path, true).map_err(|error| anyhow!("{error}"))
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let needless = args.library.is_some() && !args.pages.preloads();
    ensure!(
        !needless,
        "{} preloads nothing: leave --library out, or choose one of the modes that do",
        args.pages
    );
    // A pool that a killed run had raised is no matter of a mode without one.
    if args.pages.needs_pool().is_some() || args.pool.is_some() {
        recover::pending();
    }
    let options = RunOptions { mode: args.pages, library: args.library.clone(), pool: args.pool };
    // What cannot be written should be known before the program is started.
    let file = args.report.as_deref().map(new_report).transpose()?;
    let report = run_program(&args.command, &options, &passed_on())?;
    // From here on the exit status is the program's, whoever listens to us or not.
    let mut stderr = io::stderr();
    let write =
        |mut file: NewFile| file.write(json(&report).as_bytes()).and_then(|()| file.finish());
    if let Some(Err(error)) = file.map(write) {
        let _ = writeln!(stderr, "hugepilot: no report: {error}");
    }
    if !args.quiet || report.effect.took_effect != Some(true) || !report.warnings.is_empty() {
        let _ = write!(stderr, "{}", run_text(&report));
    }
    Ok(ExitCode::from(u8::try_from(report.run.ending.code()).unwrap_or(u8::MAX)))
}
