//! `hugepilot doctor`: tests of features and permissions of this machine.

use anyhow::Context as _;
use hugepilot_kernel::{Root, probe, thp};
use hugepilot_render::json;
use hugepilot_reports::doctor_text;
use hugepilot_settings::setting_risks;
use hugepilot_units::PageSizes;

use crate::exit::Exit;
use crate::output::print;
use crate::{recover, trial_guard};

const EXAMPLES: &str = "\
Examples:
  hugepilot doctor                  test this machine as this user
  sudo hugepilot doctor             test it as root
  hugepilot doctor --json | jq '.probes[] | select(.supported | not) | {name, text, help}'
                                    list failures with causes and help

Exit status: 0 live processes can be tuned here, 2 error, 3 they cannot";

/// Test kernel features and permissions, and suggest fixes
///
/// Tests each feature on a child process of its own, in about a tenth of a second, with the
/// permissions of this user. As root, also restores kernel settings that a killed `debloat
/// --backend shrinker`, `run --pool` or `compare --pool` left changed. Returns the regions of a
/// trial in which `tune` or `daemon` was killed to base pages.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object (schema hugepilot.doctor/2)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    recover::pending();
    trial_guard::recover();
    let mut report = probe::examine().context("cannot examine this machine")?;
    let sizes = PageSizes { base: report.base_page_bytes, huge: report.huge_page_bytes };
    report.risks = setting_risks(&thp::config(&Root::live(), sizes), sizes);
    print(&if args.json { json(&report) } else { doctor_text(&report) })?;
    Ok(if report.can_tune() { Exit::Yes } else { Exit::Unsupported })
}
