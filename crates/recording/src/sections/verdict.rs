//! Verdict of a recording without a result: whether huge pages may gain, and the next command.

use hugepilot_record::Answer;
use hugepilot_render::model::Cell;
use hugepilot_reports::tune::MIN_STALLS;

use super::stall_ratio;
use crate::timeline::{ProcessTrack, Timeline};

/// The first sentences of the report. `process`: the one with the most stalls.
pub(super) fn verdict(timeline: &Timeline, process: &ProcessTrack) -> String {
    let percent = |ratio| Cell::ratio(ratio).text();
    let Some(stalls) = stall_ratio(process) else {
        let cause = timeline.head.sampler_missing.as_deref().unwrap_or("no sample is recorded");
        return format!("{}: the stalls are unknown: {cause}.", Answer::CannotTell);
    };
    if stalls < MIN_STALLS {
        let stalls = percent(stalls);
        let title = process.title();
        return format!(
            "{}: {stalls} of the samples of {title} wait for scattered memory accesses; huge pages \
             shorten no others.",
            Answer::NoGain
        );
    }
    let on_huge = process.heat.huge_ratio().unwrap_or(0.0);
    if on_huge >= 0.5 {
        let on_huge = percent(on_huge);
        return format!("{}: {on_huge} of the stalls are on huge pages already.", Answer::NoGain);
    }
    let (stalls, on_base) = (percent(stalls), percent(1.0 - on_huge));
    format!(
        "Huge pages may gain: {stalls} of the samples wait for scattered memory accesses, \
         {on_base} of these on base pages. Next: {}",
        next(timeline, process)
    )
}

/// The command that measures the gain: of the program if the recording started it, else of the
/// process.
fn next(timeline: &Timeline, process: &ProcessTrack) -> String {
    let mut words = timeline.head.command.iter();
    match words.any(|word| word == "--") {
        true => {
            let program: Vec<&str> = words.map(String::as_str).collect();
            format!("hugepilot compare -- {}", program.join(" "))
        }
        false => format!("sudo hugepilot tune -p {} --try", process.pid),
    }
}
