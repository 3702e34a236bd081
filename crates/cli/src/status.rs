//! `hugepilot status`.

use clap::Args;
use hugepilot_report::{json, status_text};

use crate::exit::Exit;
use crate::output::print;
use crate::target::{PidArg, open};

/// Show where a process's memory stands: what is huge, what could be, and why the rest is not
///
/// It only reads, and never makes the target touch or lose a page. Zero-filled pages inside huge pages (bloat) are
/// counted by reading these huge pages, which takes 0.1 to 0.5 s per GiB and needs the right to read the target's memory.
#[derive(Args)]
#[command(
    after_help = "EXAMPLES:\n  hugepilot status -p 4711\n  hugepilot status -p $(pgrep -n redis-server) --json | jq .totals"
)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    target: PidArg,
    /// Do not read the contents of huge pages: zero-filled bytes stay unknown
    #[arg(long)]
    no_contents: bool,
    /// Show each mapping: those with less than 1 MiB resident and nothing huge, too
    #[arg(long)]
    all: bool,
    /// Print one JSON object (schema hugepilot.status/1)
    #[arg(long, conflicts_with = "all")]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Exit> {
    let process = open(args.target.pid)?;
    let report = hugepilot_manager::status::status(&process, !args.no_contents)?;
    print(&if args.json { json(&report) } else { status_text(&report, args.all) })?;
    Ok(Exit::Yes)
}
