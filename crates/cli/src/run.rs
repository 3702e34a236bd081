//! `hugepilot run`: a program on chosen pages.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::ensure;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueHint};
use hugepilot_kernel::{ending_signals, fault_signals};
use hugepilot_launch::run::{RunOptions, run as run_program};
use hugepilot_record::Mode;
use hugepilot_render::json;
use hugepilot_reports::run_text;
use hugepilot_units::Bytes;
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU};

use crate::new_file::Output;
use crate::output::note;
use crate::recover;

/// Signals to forward to the program, and SIGCHLD.
pub(crate) fn forwarded_signals() -> Vec<i32> {
    const STOPS: [i32; 5] = [SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT, SIGCHLD];
    ending_signals().into_iter().chain(fault_signals()).chain(STOPS).collect()
}

/// Parser of a mode, whose names shells complete.
pub(crate) fn mode() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::name)).try_map(|name| name.parse::<Mode>())
}

pub(crate) const MODES: &str = "\
Modes:
  base            no transparent huge pages (THP)
  thp             THP for all memory, whatever the system's setting; as root also from outside
  advised         THP only for memory that the program advises (MADV_HUGEPAGE)
  glibc-thp       the C library's malloc advises THP (glibc 2.35)
  hugetlb         the C library's malloc on 2 MiB hugetlb pages
  hugetlb-1g      the C library's malloc on 1 GiB hugetlb pages
  mimalloc        mimalloc with its defaults
  mimalloc-2m     mimalloc on 2 MiB pages: hugetlb, otherwise THP
  mimalloc-1g     mimalloc on 1 GiB hugetlb pages
  hugepilot       hugepilot's allocator on THP; with --pool, on hugetlb pages
  hugepilot-base  hugepilot's allocator on base pages: separates its gain from that of its pages";

/// Run a program on chosen pages and report whether it got them
///
/// The program gets the standard streams, the signals and the terminal; the report goes to stderr
/// at its end. Only `--pool` changes a kernel setting, until the program ends, and requires root.
#[derive(Debug, Args)]
#[command(after_help = format!("{MODES}\n\n\
Examples:\n  \
  hugepilot run --pages glibc-thp -- ./server --port 80       THP by malloc\n  \
  sudo hugepilot run --pages hugetlb --pool 4GiB -- ./server  hugetlb pages, pool raised\n  \
  hugepilot run --pages mimalloc-2m -- python3 job.py         another allocator\n  \
  hugepilot run --pages base --report run.json -- make        report as JSON\n\n\
Exit status: that of the program, or 128 + n if signal n killed it; 2 error, 3 unsupported here\n\
(see `hugepilot doctor`), if it was not started"))]
pub(crate) struct RunArgs {
    /// Page mode, from the list below
    #[arg(long, value_name = "MODE", value_parser = mode(), hide_possible_values = true)]
    pages: Mode,
    /// Library to preload [default: the installed one]
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Free memory in the mode's hugetlb pool during the run [default: unchanged]
    #[arg(long, value_name = "BYTES")]
    pool: Option<Bytes>,
    /// File for the report as JSON (schema hugepilot.run/2) [default: none]
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// No report if the mode took effect without warnings
    #[arg(short, long)]
    quiet: bool,
    /// Program and arguments
    #[arg(last = true, required = true, value_name = "CMD", num_args = 1..,
          value_hint = ValueHint::ExecutablePath)]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let unused = args.library.is_some() && !args.pages.preloads();
    ensure!(
        !unused,
        "mode {} preloads no library: omit --library, or choose a mode that does",
        args.pages
    );
    // A mode without a pool does not depend on one that a killed run has raised.
    if args.pages.needs_pool().is_some() || args.pool.is_some() {
        recover::pending();
    }
    let options = RunOptions { mode: args.pages, library: args.library.clone(), pool: args.pool };
    // An unwritable file is an error before the program starts.
    let create = |path| Output::create(path, "the report", "--report", true);
    let file = args.report.as_deref().map(create).transpose()?;
    let report = run_program(&args.command, &options, &forwarded_signals())?;
    // From here on the exit status is that of the program, even if stderr is closed.
    let mut stderr = io::stderr();
    let write = |mut file: Output| -> anyhow::Result<Bytes> {
        file.write_all(json(&report).as_bytes())?;
        Ok(file.finish()?)
    };
    if let Some(Err(error)) = file.map(write) {
        note(&format!("hugepilot: cannot write the report: {error}"));
    }
    if !args.quiet || report.effect.took_effect != Some(true) || !report.warnings.is_empty() {
        let _ = write!(stderr, "{}", run_text(&report));
    }
    Ok(ExitCode::from(u8::try_from(report.run.ending.code()).unwrap_or(u8::MAX)))
}
