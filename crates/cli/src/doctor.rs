//! `hugepilot doctor`: what this machine lets us do, why not the rest, and what to change.

use std::io::{ErrorKind, Write as _};

use anyhow::Context as _;
use hugepilot_kernel::probe;
use hugepilot_report::doctor_text;

const EXAMPLES: &str = "\
EXIT STATUS:
  0  live processes can be tuned here (promote, and one sampler)
  3  they cannot; the report says why, and what to change

EXAMPLES:
  hugepilot doctor                what works for this user, on this kernel
  sudo hugepilot doctor           the same for root
  hugepilot doctor --json | jq '.probes[] | select(.supported | not) | {name, why, fix}'
                                  what does not work, and the fixes";

/// Tries everything hugepilot needs on a child process of its own, and says what works, why not the rest, and what to
/// change. Takes about a tenth of a second and changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DoctorArgs {
    /// Print one JSON object (schema hugepilot.doctor/1)
    #[arg(long)]
    json: bool,
}

/// Runs it; returns the exit status.
///
/// # Errors
/// When `/proc` cannot be read, or standard output not written to.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<u8> {
    let report = probe::examine().context("cannot examine this machine")?;
    let text = if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { doctor_text(&report) };
    match std::io::stdout().write_all(text.as_bytes()) {
        // A reader that has seen enough is no failure.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => return Err(error).context("cannot print"),
        _ => {}
    }
    Ok(if report.can_tune() { 0 } else { 3 })
}
