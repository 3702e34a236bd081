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
MODES:
  base         no transparent huge pages
  thp          transparent huge pages for all its memory, whatever the system's setting; as root also from outside
  advised      transparent huge pages where the program itself advises them, and nowhere else
  glibc-thp    the C library's malloc advises them (glibc 2.35)
  hugetlb      the C library's malloc takes 2 MiB pages of the pool
  hugetlb-1g   the same with 1 GiB pages
  mimalloc     mimalloc in front of the program's malloc, as it comes
  mimalloc-2m  the same on 2 MiB pages: of the pool, or else transparent ones
  mimalloc-1g  the same on 1 GiB pages of the pool
  ours         hugepilot's own allocator
  ours-base    the same on base pages, to tell the gain of its pages from its own";

/// Run a program with chosen pages, and say at its end whether that took effect, and if not, why
///
/// The program has our standard input, output and error, our signals and our terminal, and its exit status is ours: 128 and the
/// number of the signal where one killed it. What we have to say comes on standard error when it has ended. Nothing outside of
/// the program changes; with --pool, the pool does for as long as it runs.
#[derive(Debug, Args)]
#[command(after_help = format!("{MODES}\n\n\
EXIT STATUS: the program's own; where it could not be started, 2 error, 3 not possible here\n\n\
EXAMPLES:\n  \
  hugepilot run --pages glibc-thp -- ./server --port 80\n  \
  sudo hugepilot run --pages hugetlb --pool 4GiB -- ./server\n  \
  hugepilot run --pages mimalloc-2m --library /opt/lib/libmimalloc.so -- python3 job.py\n  \
  hugepilot run --pages base --report run.json -- make"))]
pub(crate) struct RunArgs {
    /// Where its memory shall come from: see MODES
    #[arg(long, value_name = "MODE")]
    pages: Mode,
    /// The library to preload, instead of one that is found
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Have so much of the mode's pool free for the time of the run, and give it back: needs root
    #[arg(long, value_name = "BYTES")]
    pool: Option<Bytes>,
    /// Write one JSON object there (schema hugepilot.run/1): standard output is the program's
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Say nothing where all is well
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
