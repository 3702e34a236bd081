//! Verdict of a comparison: whether huge pages pay, from interleaved runs.
//!
//! Measured time decides, by the rule in `worth/rule.rs`. The report adds the rule of thumb of
//! Zheng (*Using Huge Pages on Linux*), because it predicts the effect of larger inputs: data-TLB
//! misses above 5 to 10 % of loads, and a working set beyond TLB reach.

mod attribution;
mod rule;

use hugepilot_record::Mode;
use hugepilot_reports::compare::{
    BestMode, CompareReport, Conclusion, Confirmation, ModeReport, Verdict,
};
use hugepilot_stats::PairedRatio;
use hugepilot_units::Bytes;

use attribution::Gain;
pub use rule::confirming_rounds;
use rule::{MIN_GAIN, is_confirmed, is_faster, is_slower, seems_faster};

/// Judges whether a mode with huge pages is faster than `base` by more than noise.
pub fn verdict(report: &CompareReport) -> Verdict {
    let Some(base) = report.base() else {
        return Verdict::without_best(Conclusion::NoBase);
    };
    if base.failed_runs == base.runs {
        return Verdict::without_best(Conclusion::CommandFails);
    }
    let Some((best, ratio)) = best(report, base) else {
        return Verdict::without_best(Conclusion::NoHugePages);
    };
    let conclusion = match &report.confirmation {
        Some(confirmation) => confirmed(report, confirmation, best, ratio),
        None => measured(report, best, ratio),
    };
    let gain = Gain::of(report, best);
    Verdict { conclusion, gain: Some(gain.source()), same_allocator: gain.same_allocator() }
}

/// Lists the modes of the confirmation rounds: `base`, the best of several modes if it seems to
/// pay, and the same allocator without huge pages if that was run. Otherwise none.
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

/// Whether the best was chosen among several modes.
fn has_rivals(report: &CompareReport) -> bool {
    report.modes.iter().filter(|mode| mode.runs > 0 && mode.mode != Mode::Base).count() > 1
}

/// The conclusion from the confirmation rounds.
fn confirmed(
    report: &CompareReport,
    confirmation: &Confirmation,
    best: &ModeReport,
    first: PairedRatio,
) -> Conclusion {
    let time = report.decided_by;
    match confirmation.speedup(time).filter(|_| is_confirmed(confirmation, time)) {
        Some(speedup) => Conclusion::Confirmed(BestMode {
            mode: confirmation.mode,
            speedup,
            cpu_speedup: confirmation.cpu_speedup_over_base,
        }),
        None => Conclusion::NotConfirmed(best_mode(best, first)),
    }
}

/// The conclusion without confirmation rounds.
fn measured(report: &CompareReport, best: &ModeReport, ratio: PairedRatio) -> Conclusion {
    let mode = best_mode(best, ratio);
    if has_rivals(report) && ratio.median >= MIN_GAIN {
        return Conclusion::NotRepeated(mode);
    }
    if is_faster(ratio) {
        return Conclusion::Pays(mode);
    }
    if seems_faster(ratio) {
        return Conclusion::TooFewRounds(mode);
    }
    let mut huge = report.modes.iter().filter(|mode| mode.huge_peak() > Bytes::ZERO);
    if huge.all(|mode| mode.speedup(report.decided_by).is_some_and(is_slower)) {
        return Conclusion::Slower(mode);
    }
    if ratio.low <= 1.0 && ratio.high >= 1.0 {
        return Conclusion::WithinNoise(mode);
    }
    Conclusion::NoGain(mode)
}

const fn best_mode(best: &ModeReport, speedup: PairedRatio) -> BestMode {
    BestMode { mode: best.mode, speedup, cpu_speedup: best.cpu_speedup_over_base }
}

/// The fastest mode with huge pages: those that are significantly faster first; of equal ones the
/// first.
fn best<'a>(report: &'a CompareReport, base: &ModeReport) -> Option<(&'a ModeReport, PairedRatio)> {
    let huge = report.modes.iter().filter(|mode| {
        !matches!(mode.mode, Mode::Base | Mode::HugepilotBase)
            && mode.effect.took_effect == Some(true)
            && mode.huge_peak() > Bytes::ZERO
            && !mode.fails_more_than(base)
    });
    let ratios = huge.filter_map(|mode| Some((mode, mode.speedup(report.decided_by)?)));
    let rank = |(_, ratio): (&ModeReport, PairedRatio)| (seems_faster(ratio), ratio.median);
    ratios.reduce(|best, next| if rank(next) > rank(best) { next } else { best })
}

#[cfg(test)]
mod tests;
