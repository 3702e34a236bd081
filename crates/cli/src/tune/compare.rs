//! `tune -- CMD`: interleaved runs, tuned, untuned and with all memory promoted.

use hugepilot_launch::baseline::{Kinds, compare};
use hugepilot_manager::tune::{Event, TuneOptions};
use hugepilot_reports::tune::TuneReport;

use super::TuneArgs;

pub(super) fn run(
    args: &TuneArgs,
    options: &TuneOptions,
    interrupted: &dyn Fn() -> bool,
    say: &mut dyn FnMut(Event<'_>),
) -> anyhow::Result<Vec<TuneReport>> {
    let kinds = Kinds { baseline: args.baseline, all_huge: args.all_huge, runs: args.runs };
    let pattern = args.progress_regex.as_ref();
    Ok(compare(&args.command, kinds, options, pattern, interrupted, say)?)
}
