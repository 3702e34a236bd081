//! Whether huge pages pay for a program, from runs in turns.
//!
//! Measured time decides, by the rule in `worth/rule.rs`. The rule of thumb, data TLB misses above 5 to 10 % of loads and a
//! working set beyond what the TLB maps (Zheng, *Using Huge Pages on Linux*), is told beside it, because it says what to expect
//! of larger inputs.

mod attribution;
mod rule;

use hugepilot_record::compare::{CompareReport, Confirmation, DecidingTime, ModeReport};
use hugepilot_record::run::Mode;
use hugepilot_stats::PairedRatio;
use hugepilot_units::Bytes;

use attribution::Gain;
use hugepilot_stats::MIN_ROUNDS;
pub use rule::confirming_rounds;
use rule::{MIN_GAIN, is_faster, is_slower, looks_faster};

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
    let best = best(report, base);
    let (pays, mut text) = match (&report.confirmation, best) {
        (Some(found), Some((mode, looked))) => {
            confirmed(report, found, looked, Gain::of(report, mode))
        }
        _ => measured(report, best),
    };
    if let Some((mode, _)) = best {
        text.push_str(&Gain::of(report, mode).shares(report, pays));
    }
    text.push_str(&processor_wait(report, base));
    text.push_str(&broken(&report.modes, base));
    text.push_str(&rule_of_thumb(report, base));
    if base.runs < MIN_ROUNDS && report.confirmation.is_none() {
        text.push_str(&format!(
            " Of {} noise cannot be told from gain: use --rounds 5.",
            rounds(base.runs)
        ));
    }
    (pays, text)
}

/// The modes of the further rounds: where the best of several looks as if it paid, `base`, it, and the same allocator without huge
/// pages if that was run; none else.
pub fn to_confirm(report: &CompareReport) -> Vec<Mode> {
    let Some(base) = report.base().filter(|base| base.failed_runs < base.runs) else {
        return Vec::new();
    };
    let Some((mode, ratio)) = best(report, base) else { return Vec::new() };
    if !has_rivals(report) || ratio.median < MIN_GAIN {
        return Vec::new();
    }
    let control = Gain::of(report, mode).same_allocator().map(|control| control.mode);
    [Mode::Base, mode.mode].into_iter().chain(control).collect()
}

/// Whether the best was chosen among several.
fn has_rivals(report: &CompareReport) -> bool {
    report.modes.iter().filter(|mode| mode.runs > 0 && mode.mode != Mode::Base).count() > 1
}

/// What its further rounds say of the mode that looked best.
fn confirmed(
    report: &CompareReport,
    found: &Confirmation,
    looked: PairedRatio,
    gain: Gain,
) -> (bool, String) {
    let time = report.decided_by;
    let (name, pays) = (found.mode, rule::is_confirmed(found, time));
    let again = found.speedup(time).map_or_else(
        || "failed".to_owned(),
        |ratio| format!("was {}", range(ratio, time, found.cpu_speedup_over_base)),
    );
    let but = match (found.failed_rounds, found.took_effect) {
        (0, Some(true)) => String::new(),
        (0, _) => format!(", and took no effect that could be seen: {}", found.reason),
        (some, _) => format!(", and the program failed with it in {some} more"),
    };
    if !pays {
        let more = if report.interrupted { " before it was interrupted" } else { "" };
        return (
            false,
            format!(
                "Nothing pays for sure: {name} looked best with {:.2}x, but run again{more} it {again}{but}.",
                looked.median
            ),
        );
    }
    let what = gain.what_pays();
    (true, format!("{what}: {name}, the best, was run again to be sure, and {again}."))
}

/// The fastest mode that had huge pages, those first that are faster for sure; of two alike the first.
fn best<'a>(report: &'a CompareReport, base: &ModeReport) -> Option<(&'a ModeReport, PairedRatio)> {
    let had = report.modes.iter().filter(|mode| {
        !matches!(mode.mode, Mode::Base | Mode::HugepilotBase)
            && mode.took_effect == Some(true)
            && huge(mode) > Bytes::ZERO
            && !breaks(mode, base)
    });
    let ratios = had.filter_map(|mode| Some((mode, mode.speedup(report.decided_by)?)));
    let rank = |(_, ratio): (&ModeReport, PairedRatio)| (looks_faster(ratio), ratio.median);
    ratios.reduce(|best, next| if rank(next) > rank(best) { next } else { best })
}

/// Whether the program fails with it, and not without.
fn breaks(mode: &ModeReport, base: &ModeReport) -> bool {
    mode.failed_runs > base.failed_runs
}

fn broken(modes: &[ModeReport], base: &ModeReport) -> String {
    let names: Vec<String> =
        modes.iter().filter(|mode| breaks(mode, base)).map(|mode| mode.mode.to_string()).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!(" The program fails with {}.", names.join(", "))
    }
}

/// Its memory on huge pages of any kind.
fn huge(mode: &ModeReport) -> Bytes {
    mode.thp_peak_bytes.unwrap_or(Bytes::ZERO) + mode.hugetlb_peak_bytes.unwrap_or(Bytes::ZERO)
}

/// What is to be said without further rounds.
fn measured(report: &CompareReport, best: Option<(&ModeReport, PairedRatio)>) -> (bool, String) {
    let Some((mode, ratio)) = best else {
        let why = "No mode gave it huge pages, so nothing can be said of what they gain; see why in the table.";
        return (false, why.to_owned());
    };
    let name = mode.mode;
    let range = range(ratio, report.decided_by, mode.cpu_speedup_over_base);
    if has_rivals(report) && ratio.median >= MIN_GAIN {
        return (
            false,
            format!(
                "With {name} it is {range}, but the best of several may be so by luck, and was not run again."
            ),
        );
    }
    if is_faster(ratio) {
        return (
            true,
            format!("{}: with {name} it is {range}.", Gain::of(report, mode).what_pays()),
        );
    }
    if looks_faster(ratio) {
        return (
            false,
            format!("With {name} it is {range}, but that is too little to say that it pays."),
        );
    }
    (false, no_gain(report, name, ratio, &range))
}

/// `cpu`: the speedup by CPU time, given beside that by wall time.
fn range(ratio: PairedRatio, time: DecidingTime, cpu: Option<PairedRatio>) -> String {
    let by_cpu = match (time, cpu) {
        (DecidingTime::Cpu, _) => " by CPU time".to_owned(),
        (DecidingTime::Wall, Some(cpu)) => format!(" ({:.2}x by CPU time)", cpu.median),
        (DecidingTime::Wall, None) => String::new(),
    };
    let PairedRatio { low, median, high, .. } = ratio;
    let (faster, all) = (ratio.faster_rounds, rounds(ratio.rounds));
    format!(
        "{median:.2}x as fast as base{by_cpu}, {low:.2} to {high:.2}, faster in {faster} of {all}"
    )
}

fn no_gain(report: &CompareReport, name: Mode, ratio: PairedRatio, range: &str) -> String {
    let slower = |mode: &ModeReport| {
        huge(mode) > Bytes::ZERO && mode.speedup(report.decided_by).is_some_and(is_slower)
    };
    if report.modes.iter().filter(|mode| huge(mode) > Bytes::ZERO).all(slower) {
        return format!("Huge pages do not pay, they cost: the best of them is {name}, {range}.");
    }
    if ratio.low <= 1.0 && ratio.high >= 1.0 {
        return format!(
            "Nothing pays: the differences are within the noise; the best is {name}, {range}."
        );
    }
    format!("Nothing pays: the best is {name}, {range}.")
}

/// Why CPU time decides, if it does.
fn processor_wait(report: &CompareReport, base: &ModeReport) -> String {
    match (report.decided_by, base.processor_wait_ratio) {
        (DecidingTime::Cpu, Some(ratio)) => format!(
            " CPU time decides, not wall time: base waited for a processor {} of its runnable time.",
            percent(ratio)
        ),
        _ => String::new(),
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
            let why = report
                .counters_unavailable
                .as_deref()
                .unwrap_or("they did not count in these runs");
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
