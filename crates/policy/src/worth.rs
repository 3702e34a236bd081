//! Whether huge pages pay for a program, from runs in turns.
//!
//! Measured time decides, by the rule in `worth/chance.rs`. The rule of thumb, data TLB misses above 5 to 10 % of loads and a
//! working set beyond what the TLB maps (Zheng, *Using Huge Pages on Linux*), is told beside it, because it says what to expect
//! of larger inputs.

mod chance;

use hugepilot_record::compare::{CompareReport, Confirmation, ModeReport, Ratio};
use hugepilot_record::run::Mode;
use hugepilot_units::Bytes;

pub use chance::confirming_rounds;
use chance::{MIN_GAIN, MIN_ROUNDS};

/// From this share of TLB misses on huge pages may help, and from the other they should.
const MISSES: (f64, f64) = (0.05, 0.10);

/// Whether some mode with huge pages is faster than `base`, by more than noise, and all that in words.
pub fn verdict(report: &CompareReport) -> (bool, String) {
    let Some(base) = report.base() else {
        return (false, "There is nothing to compare with: base was not run.".to_owned());
    };
    if base.failed_runs == base.runs {
        return (false, "The command fails, so its times say nothing.".to_owned());
    }
    let best = best(&report.modes, base);
    let (pays, mut text) = match (&report.confirmation, best) {
        (Some(found), Some((mode, looked))) => confirmed(report, found, mode, looked),
        _ => measured(report, base, best),
    };
    if let Some(alone) = best.and_then(|(mode, ratio)| allocator_alone(&report.modes, mode, ratio)) {
        text.push_str(&alone);
    } else if let Some(control) = best.and_then(|(mode, _)| mode.mode.without_huge_pages()).filter(|_| pays) {
        text.push_str(&format!(" How much of that is its allocator's is not known without {control}."));
    }
    text.push_str(&broken(&report.modes, base));
    text.push_str(&rule_of_thumb(report, base));
    if base.runs < MIN_ROUNDS && report.confirmation.is_none() {
        text.push_str(&format!(" Of {} noise cannot be told from gain: use --runs 5.", rounds(base.runs)));
    }
    (pays, text)
}

/// The mode to be confirmed by further rounds: the best of several, where it looks as if it paid.
pub fn to_confirm(report: &CompareReport) -> Option<Mode> {
    let base = report.base().filter(|base| base.failed_runs < base.runs)?;
    let (mode, ratio) = best(&report.modes, base)?;
    (has_rivals(report) && ratio.median >= MIN_GAIN).then_some(mode.mode)
}

/// Whether the best was chosen among several.
fn has_rivals(report: &CompareReport) -> bool {
    report.modes.iter().filter(|mode| mode.runs > 0 && mode.mode != Mode::Base).count() > 1
}

/// What its further rounds say of the mode that looked best.
fn confirmed(
    report: &CompareReport,
    found: &Confirmation,
    best: &ModeReport,
    looked: Ratio,
) -> (bool, String) {
    let (name, pays) = (found.mode, chance::is_confirmed(found));
    let again = found.speedup_over_base.map_or_else(
        || "failed".to_owned(),
        |ratio| format!("was {} over {}", range(ratio), rounds(found.rounds)),
    );
    let fails = match found.failed_rounds {
        0 => String::new(),
        some => format!(", and the program failed with it in {some} more"),
    };
    let faster = format!("faster in {} of them{fails}", found.faster_rounds);
    if !pays {
        let more = if report.interrupted { " before it was interrupted" } else { "" };
        return (
            false,
            format!(
                "Nothing pays for sure: {name} looked best with {:.2}x, but run again{more} it {again}, {faster}.",
                looked.median
            ),
        );
    }
    let what = what_pays(&report.modes, best, looked);
    (true, format!("{what}: {name}, the best, was run again to be sure, and {again}, {faster}."))
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
        !matches!(mode.mode, Mode::Base | Mode::OursBase)
            && mode.took_effect == Some(true)
            && huge(mode) > Bytes::ZERO
            && !breaks(mode, base)
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

/// What is to be said without further rounds.
fn measured(report: &CompareReport, base: &ModeReport, best: Option<(&ModeReport, Ratio)>) -> (bool, String) {
    let Some((mode, ratio)) = best else {
        let why =
            "No mode gave it huge pages, so nothing can be said of what they gain; see why in the table.";
        return (false, why.to_owned());
    };
    let name = mode.mode;
    let range = format!("{} over {}", range(ratio), rounds(base.runs));
    if has_rivals(report) && ratio.median >= MIN_GAIN {
        return (
            false,
            format!(
                "With {name} it is {range}, but the best of several may be so by luck, and was not run again."
            ),
        );
    }
    let counted = base.runs.saturating_sub(base.failed_runs + mode.failed_runs);
    if is_faster(ratio) && counted < MIN_ROUNDS {
        return (false, format!("With {name} it is {range}, but that is too little to say that it pays."));
    }
    if is_faster(ratio) {
        return (true, format!("{}: with {name} it is {range}.", what_pays(&report.modes, mode, ratio)));
    }
    (false, no_gain(report, name, ratio, &range))
}

fn range(ratio: Ratio) -> String {
    format!("{:.2}x as fast as base, {:.2} to {:.2}", ratio.median, ratio.low, ratio.high)
}

fn no_gain(report: &CompareReport, name: Mode, ratio: Ratio, range: &str) -> String {
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
fn allocator_alone(modes: &[ModeReport], best: &ModeReport, ratio: Ratio) -> Option<String> {
    let (plain, pages) = without_huge_pages(modes, best, ratio)?;
    let alone = plain.speedup_over_base?.median;
    let had = match huge(plain) {
        Bytes::ZERO => "with none".to_owned(),
        some => format!("with {some}"),
    };
    Some(format!(
        " Of that, {} ({had} on huge pages) gives {alone:.2}x, so that the pages give {pages:.2}x.",
        plain.mode
    ))
}

/// The same allocator without huge pages, where it was run, and the factor that they make.
fn without_huge_pages<'a>(
    modes: &'a [ModeReport],
    best: &ModeReport,
    ratio: Ratio,
) -> Option<(&'a ModeReport, f64)> {
    let control = best.mode.without_huge_pages()?;
    let plain = modes.iter().find(|mode| mode.mode == control && mode.took_effect == Some(true))?;
    Some((plain, ratio.median / plain.speedup_over_base?.median))
}

/// Huge pages, where there is no other allocator, or what was gained is more than what it gains without them.
fn what_pays(modes: &[ModeReport], best: &ModeReport, ratio: Ratio) -> &'static str {
    let pages = without_huge_pages(modes, best, ratio).map(|(_, pages)| pages);
    match pages {
        Some(pages) if pages >= MIN_GAIN => "Huge pages pay",
        None if best.mode.without_huge_pages().is_none() => "Huge pages pay",
        _ => "It pays",
    }
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
