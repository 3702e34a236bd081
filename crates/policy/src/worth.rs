//! Whether huge pages pay for a program, from runs in turns.
//!
//! Measured time decides. The rule of thumb, data TLB misses above 5 to 10 % of loads and a working set beyond what the TLB
//! maps (Zheng, *Using Huge Pages on Linux*), is told beside it, because it says what to expect of larger inputs.

use hugepilot_record::compare::{CompareReport, ModeReport, Ratio};
use hugepilot_record::run::Mode;
use hugepilot_units::Bytes;

/// A gain below this is none to change a program's start for.
const MIN_GAIN: f64 = 1.02;
/// Of fewer rounds nobody can tell noise from gain.
const MIN_ROUNDS: u32 = 3;
/// From this share of TLB misses on huge pages may help, and from the other they should.
const MISSES: (f64, f64) = (0.05, 0.10);

/// Whether some mode with huge pages is faster than `base` in every round, and all that in words.
pub fn verdict(report: &CompareReport) -> (bool, String) {
    let Some(base) = report.base() else {
        return (false, "There is nothing to compare with: base was not run.".to_owned());
    };
    if base.failed_runs == base.runs {
        return (false, "The command fails, so its times say nothing.".to_owned());
    }
    let best = best(&report.modes, base);
    let pays = base.runs >= MIN_ROUNDS && best.is_some_and(|(_, ratio)| is_faster(ratio));
    let mut text = measured(report, base, best);
    if let Some(alone) = allocator_alone(&report.modes, best) {
        text.push_str(&alone);
    }
    text.push_str(&broken(&report.modes, base));
    text.push_str(&rule_of_thumb(report, base));
    if base.runs < MIN_ROUNDS {
        text.push_str(&format!(" Of {} noise cannot be told from gain: use --runs 5.", rounds(base.runs)));
    }
    (pays, text)
}

/// Faster in every round, and by enough.
fn is_faster(ratio: Ratio) -> bool {
    ratio.low > 1.0 && ratio.median >= MIN_GAIN
}

fn is_slower(ratio: Ratio) -> bool {
    ratio.high < 1.0 && ratio.median <= 1.0 / MIN_GAIN
}

/// The fastest mode that had huge pages, those first that are faster in every round; of two alike the first.
fn best<'a>(modes: &'a [ModeReport], base: &ModeReport) -> Option<(&'a ModeReport, Ratio)> {
    let had = modes.iter().filter(|mode| {
        mode.mode != Mode::Base && mode.took_effect && huge(mode) > Bytes::ZERO && !breaks(mode, base)
    });
    let ratios = had.filter_map(|mode| Some((mode, mode.speedup_over_base?)));
    let rank = |(_, ratio): (&ModeReport, Ratio)| (is_faster(ratio), ratio.median);
    ratios.reduce(|best, next| if rank(next) > rank(best) { next } else { best })
}

/// Whether the program fails with it, and not without.
fn breaks(mode: &ModeReport, base: &ModeReport) -> bool {
    mode.failed_runs > base.failed_runs
}

fn broken(modes: &[ModeReport], base: &ModeReport) -> String {
    let names: Vec<String> =
        modes.iter().filter(|mode| breaks(mode, base)).map(|mode| mode.mode.to_string()).collect();
    if names.is_empty() { String::new() } else { format!(" The program fails with {}.", names.join(", ")) }
}

/// Its memory on huge pages of any kind.
fn huge(mode: &ModeReport) -> Bytes {
    mode.huge_peak_bytes.unwrap_or(Bytes::ZERO) + mode.hugetlb_peak_bytes.unwrap_or(Bytes::ZERO)
}

fn measured(report: &CompareReport, base: &ModeReport, best: Option<(&ModeReport, Ratio)>) -> String {
    let all = rounds(base.runs);
    let Some((mode, ratio)) = best else {
        return "No mode gave it huge pages, so nothing can be said of what they gain; see why in the table."
            .to_owned();
    };
    let range =
        format!("{:.2}x as fast as base, {:.2} to {:.2} over {all}", ratio.median, ratio.low, ratio.high);
    let name = mode.mode;
    if is_faster(ratio) && base.runs < MIN_ROUNDS {
        return format!("With {name} it is {range}, but that is too little to say that it pays.");
    }
    if is_faster(ratio) {
        return format!("Huge pages pay: with {name} it is {range}.");
    }
    let slower =
        |mode: &ModeReport| huge(mode) > Bytes::ZERO && mode.speedup_over_base.is_some_and(is_slower);
    if report.modes.iter().filter(|mode| huge(mode) > Bytes::ZERO).all(slower) {
        return format!("Huge pages do not pay, they cost: the best of them is {name}, {range}.");
    }
    if ratio.low <= 1.0 && ratio.high >= 1.0 {
        return format!("Nothing pays: the differences are within the noise; the best is {name}, {range}.");
    }
    format!("Nothing pays: the best is {name}, {range}.")
}

/// What of the best mode's gain is its allocator's, where that was run without huge pages, too.
fn allocator_alone(modes: &[ModeReport], best: Option<(&ModeReport, Ratio)>) -> Option<String> {
    let (best, _) = best?;
    if !matches!(best.mode, Mode::Mimalloc2m | Mode::Mimalloc1g) {
        return None;
    }
    let plain = modes.iter().find(|mode| mode.mode == Mode::Mimalloc && mode.took_effect)?;
    let ratio = plain.speedup_over_base?;
    Some(format!(" Of that, mimalloc as it comes gives {:.2}x.", ratio.median))
}

fn rule_of_thumb(report: &CompareReport, base: &ModeReport) -> String {
    let mut text = match base.dtlb_miss_ratio {
        Some(ratio) => {
            let expects = if ratio > MISSES.1 {
                "above the 5 to 10 % from which huge pages help"
            } else if ratio >= MISSES.0 {
                "just where huge pages begin to help (5 to 10 %)"
            } else {
                "below the 5 to 10 % from which huge pages help"
            };
            format!(" Of its loads {} miss the data TLB, {expects}", percent(ratio))
        }
        None => {
            let why = report.counters_unavailable.as_deref().unwrap_or("they did not count in these runs");
            let stalls = base.stall_ratio.map_or_else(String::new, |ratio| {
                format!(", but {} of its samples wait for scattered memory", percent(ratio))
            });
            format!(" TLB misses are not known here ({why}){stalls}")
        }
    };
    let (Some(memory), reach) = (base.rss_peak_bytes, &report.tlb_reach) else { return text + "." };
    let assumed = if reach.assumed { ", assumed" } else { "" };
    let maps = format!(
        "the {} that the TLB maps with base pages ({} with huge ones{assumed})",
        reach.base_bytes, reach.huge_bytes
    );
    if memory <= reach.base_bytes {
        text.push_str(&format!("; its {memory} of memory are within {maps}."));
    } else {
        text.push_str(&format!("; its {memory} of memory go beyond {maps}."));
    }
    text
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

fn rounds(count: u32) -> String {
    format!("{count} round{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
