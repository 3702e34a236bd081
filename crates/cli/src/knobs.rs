//! `hugepilot knobs`: settings of the processor, shown or changed while a program runs.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueHint};
use hugepilot_kernel::Root;
use hugepilot_launch::run_with_prefetchers;
use hugepilot_render::json;
use hugepilot_reports::{prefetch_text, setting_warnings_text};
use hugepilot_settings::prefetch::{self, PrefetchSetting};

use crate::exit::Exit;
use crate::output::{print, width};
use crate::recover;
use crate::run::forwarded_signals;

const EXAMPLES: &str = "\
Examples:
  sudo hugepilot knobs prefetch show                          state of the prefetchers
  sudo hugepilot knobs prefetch set off -- ./solve            a run without them

Exit status: 0 printed, 2 error, 3 unsupported here; that of the program (set)";

/// Show or change settings of the processor
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct KnobsArgs {
    #[command(subcommand)]
    knob: Knob,
}

#[derive(Debug, Subcommand)]
enum Knob {
    /// Show hardware prefetchers, or change them while a program runs
    ///
    /// Reads and writes model-specific registers of Intel processors since Nehalem and AMD
    /// processors since Zen 4. Requires root and the kernel module msr; hypervisors usually reject
    /// the registers.
    #[command(arg_required_else_help = true, after_help = EXAMPLES)]
    Prefetch {
        #[command(subcommand)]
        action: PrefetchAction,
    },
}

const SHOW_EXAMPLES: &str = "\
Examples:
  sudo hugepilot knobs prefetch show                          prefetchers by processor
  sudo hugepilot knobs prefetch show --json | jq '.cpus[0]'   the first processor

Exit status: 0 printed, 2 error, 3 unsupported here";

const SET_EXAMPLES: &str = "\
Examples:
  sudo hugepilot knobs prefetch set off -- ./solve            without prefetchers
  sudo hugepilot knobs prefetch set 0x1 -- ./solve            without that of bit 0

Exit status: that of the program; 2 error, 3 unsupported here";

#[derive(Debug, Subcommand)]
enum PrefetchAction {
    /// Show the hardware prefetchers of each processor
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// JSON on stdout (schema hugepilot.knobs/1)
        #[arg(long)]
        json: bool,
    },
    /// Run a program with changed prefetchers, then restore them
    ///
    /// Changes all processors, so it affects other programs, too. After a crash the next hugepilot
    /// command that changes settings restores them.
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// `on`, `off`, or bits of the register, where 1 disables a prefetcher
        #[arg(value_name = "on|off|BITS")]
        setting: PrefetchSetting,
        /// Program and arguments
        #[arg(last = true, required = true, value_name = "CMD", num_args = 1..,
              value_hint = ValueHint::ExecutablePath)]
        command: Vec<OsString>,
    },
}

pub(crate) fn run(args: &KnobsArgs) -> anyhow::Result<ExitCode> {
    // The registers must not have the values that a killed run left.
    recover::pending();
    let root = Root::live();
    let Knob::Prefetch { action } = &args.knob;
    match action {
        PrefetchAction::Show { json: as_json } => {
            let report = prefetch::show(&root)?;
            print(&if *as_json { json(&report) } else { prefetch_text(&report, width()) })?;
            Ok(Exit::Yes.into())
        }
        PrefetchAction::Set { setting, command } => set(&root, *setting, command),
    }
}

fn set(root: &Root, setting: PrefetchSetting, command: &[OsString]) -> anyhow::Result<ExitCode> {
    let (ending, warnings) = run_with_prefetchers(root, command, setting, &forwarded_signals())?;
    // From here on the exit status is that of the program, even if stderr is closed.
    let text = setting_warnings_text(&warnings);
    let lines = text.lines().map(|line| format!("hugepilot: {line}\n"));
    let _ = io::stderr().write_all(lines.collect::<String>().as_bytes());
    Ok(ExitCode::from(u8::try_from(ending.code()).unwrap_or(u8::MAX)))
}
