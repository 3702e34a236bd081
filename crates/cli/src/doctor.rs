//! `hugepilot doctor`: what this machine lets us do, why not the rest, and what to change.

use anyhow::Context as _;
use hugepilot_kernel::probe;
use hugepilot_report::{doctor_text, json};

use crate::exit::Exit;
use crate::output::print;
use crate::recover;

const EXAMPLES: &str = "\
EXIT STATUS:
  0  live processes can be tuned here (promote, and one sampler)
  3  they cannot; the report says why, and what to change

EXAMPLES:
  hugepilot doctor                what works for this user, on this kernel
  sudo hugepilot doctor           the same for root
  hugepilot doctor --json | jq '.probes[] | select(.supported | not) | {name, why, fix}'
                                  what does not work, and the fixes";

/// Say what works on this machine, why the rest does not, and what to change
///
/// Tries everything hugepilot needs on a child process of its own. Takes about a tenth of a second and changes nothing, but
/// for settings of the kernel that a killed `debloat --backend shrinker` or `run --pool` left changed: as root, it puts them back.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object (schema hugepilot.doctor/1)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    recover::pending();
    let report = probe::examine().context("cannot examine this machine")?;
    print(&if args.json { json(&report) } else { doctor_text(&report) })?;
    Ok(if report.can_tune() { Exit::Yes } else { Exit::Unsupported })
}
