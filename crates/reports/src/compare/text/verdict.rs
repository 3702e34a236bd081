//! Sentences of a verdict: the conclusion, the source of the gain, and the rule of thumb.

use hugepilot_render::Sentence;
use hugepilot_render::table::percent;
use hugepilot_stats::{MIN_ROUNDS, PairedRatio};
use hugepilot_units::Bytes;

use crate::compare::{
    BestMode, CompareReport, Conclusion, Confirmation, DecidingTime, GainSource, ModeReport,
    SameAllocator,
};
use crate::run::text::effect_text;

/// Shares of loads that miss the data TLB from which huge pages may help, and should help (Zheng,
/// *Using Huge Pages on Linux*).
const MISSES: (f64, f64) = (0.05, 0.10);

/// The verdict of a report as a sentence.
pub(crate) struct VerdictText<'a>(pub(crate) &'a CompareReport);

impl Sentence for VerdictText<'_> {
    fn text(&self) -> String {
        let report = self.0;
        let mut sentences = vec![conclusion(report)];
        let conclusion = &report.verdict.conclusion;
        let Some(base) = report.base().filter(|_| *conclusion != Conclusion::CommandFails) else {
            return sentences.remove(0);
        };
        sentences.extend(attribution(report));
        sentences.extend(processor_wait(report, base));
        sentences.extend(failing_modes(report, base));
        sentences.push(rule_of_thumb(report, base));
        if base.runs < MIN_ROUNDS && report.confirmation.is_none() {
            sentences.push(format!(
                "{} cannot separate a gain from noise: use --rounds {MIN_ROUNDS}.",
                rounds(base.runs)
            ));
        }
        sentences.join(" ")
    }
}

fn conclusion(report: &CompareReport) -> String {
    let what = match report.verdict.gain {
        Some(GainSource::Pages) => "Huge pages pay",
        Some(GainSource::Allocator) => "The allocator pays, and its huge pages add nothing",
        _ => "It pays",
    };
    let range = |best: &BestMode| range(best.speedup, report.decided_by, best.cpu_speedup);
    match &report.verdict.conclusion {
        Conclusion::NoBase => "No verdict: base was not run.".to_owned(),
        Conclusion::CommandFails => "No verdict: the command fails.".to_owned(),
        Conclusion::NoHugePages => {
            "No verdict: no mode had huge pages; the table has the causes.".to_owned()
        }
        Conclusion::Pays(best) => format!("{what}: {} is {}.", best.mode, range(best)),
        Conclusion::Confirmed(best) => {
            format!("{what}: {}, the best mode, was run again and is {}.", best.mode, range(best))
        }
        Conclusion::NotConfirmed(best) => not_confirmed(report, best),
        Conclusion::NotRepeated(best) => format!(
            "{} is {}, but with several modes noise alone can put one ahead, and it was not run \
             again.",
            best.mode,
            range(best)
        ),
        Conclusion::TooFewRounds(best) => {
            format!(
                "{} is {}, but the rounds are too few to say that it pays.",
                best.mode,
                range(best)
            )
        }
        Conclusion::Slower(best) => {
            format!("Huge pages cost time: the best mode, {}, is {}.", best.mode, range(best))
        }
        Conclusion::WithinNoise(best) => format!(
            "Nothing pays: the differences are within the noise; the best mode, {}, is {}.",
            best.mode,
            range(best)
        ),
        Conclusion::NoGain(best) => {
            format!("Nothing pays: the best mode, {}, is {}.", best.mode, range(best))
        }
    }
}

fn not_confirmed(report: &CompareReport, best: &BestMode) -> String {
    let first = format!("{} was the best mode with {:.2}x", best.mode, best.speedup.median);
    let again = report.confirmation.as_ref().map(|again| repeated(report, again));
    let interrupted = if report.interrupted { " before the interrupt" } else { "" };
    format!(
        "Nothing pays for certain: {first}, but again{interrupted} it {}.",
        again.unwrap_or_else(|| "was not run".to_owned())
    )
}

/// Outcome of the confirmation rounds.
fn repeated(report: &CompareReport, again: &Confirmation) -> String {
    let time = report.decided_by;
    let speed = again.speedup(time).map_or_else(
        || "failed".to_owned(),
        |ratio| format!("was {}", range(ratio, time, again.cpu_speedup_over_base)),
    );
    match (again.failed_rounds, again.effect.took_effect) {
        (0, Some(true)) => speed,
        (0, _) => format!("{speed}, without a visible effect: {}", effect_text(&again.effect)),
        (some, _) => format!("{speed}, and the program failed with it in {}", rounds(some)),
    }
}

/// Speedup with its range; by wall time also the speedup by CPU time.
fn range(ratio: PairedRatio, time: DecidingTime, cpu: Option<PairedRatio>) -> String {
    let by_cpu = match (time, cpu) {
        (DecidingTime::Cpu, _) => " by CPU time".to_owned(),
        (DecidingTime::Wall, Some(cpu)) => format!(" ({:.2}x by CPU time)", cpu.median),
        (DecidingTime::Wall, None) => String::new(),
    };
    let PairedRatio { low, median, high, faster_rounds, .. } = ratio;
    let all = rounds(ratio.rounds);
    let (low, high) = (format!("{low:.2}"), format!("{high:.2}"));
    let spread = if low == high { String::new() } else { format!(", {low} to {high}") };
    format!("{median:.2}x as fast as base{by_cpu}{spread}, faster in {faster_rounds} of {all}")
}

/// Shares of the allocator and of the pages in the gain of the best mode.
fn attribution(report: &CompareReport) -> Option<String> {
    let verdict = &report.verdict;
    let Some(plain) = verdict.same_allocator else {
        let (Conclusion::Pays(best) | Conclusion::Confirmed(best)) = &verdict.conclusion else {
            return None;
        };
        let control = best.mode.without_huge_pages()?;
        return Some(format!("The share of its allocator is unknown without {control}."));
    };
    let SameAllocator { mode, speedup_over_base: alone, speedup_over_same_allocator: pages } =
        plain;
    let huge = report.modes.iter().find(|other| other.mode == mode).map(ModeReport::huge_peak);
    let huge = huge.filter(|&bytes| bytes > Bytes::ZERO);
    let huge = huge.map_or_else(|| "no".to_owned(), |bytes| format!("{bytes} on"));
    let PairedRatio { median, faster_rounds, rounds: all, .. } = pages;
    let advice = match verdict.gain {
        Some(GainSource::Allocator) if verdict.pays() => format!(" Run it with {mode}."),
        _ => String::new(),
    };
    Some(format!(
        "Of that, {mode} (with {huge} huge pages) gives {:.2}x, and the pages {median:.2}x, \
         faster in {faster_rounds} of {}.{advice}",
        alone.median,
        rounds(all)
    ))
}

/// Cause of a decision by CPU time.
fn processor_wait(report: &CompareReport, base: &ModeReport) -> Option<String> {
    let ratio = base.processor_wait_ratio.filter(|_| report.decided_by == DecidingTime::Cpu)?;
    Some(format!(
        "CPU time decides, not wall time: base waited for a processor {} of its runnable time.",
        percent(ratio)
    ))
}

fn failing_modes(report: &CompareReport, base: &ModeReport) -> Option<String> {
    let failing = report.modes.iter().filter(|mode| mode.fails_more_than(base));
    let names: Vec<String> = failing.map(|mode| mode.mode.to_string()).collect();
    (!names.is_empty()).then(|| format!("The program fails with {}.", names.join(", ")))
}

fn rule_of_thumb(report: &CompareReport, base: &ModeReport) -> String {
    let misses = match base.dtlb_miss_ratio {
        Some(ratio) => {
            let expected = if ratio > MISSES.1 {
                "above the 5 to 10 % from which huge pages help"
            } else if ratio >= MISSES.0 {
                "in the range where huge pages start to help (5 to 10 %)"
            } else {
                "below the 5 to 10 % from which huge pages help"
            };
            format!("{} of its loads miss the data TLB, {expected}", percent(ratio))
        }
        None => {
            let cause = report.counters_unavailable.as_deref();
            let cause = cause.unwrap_or("no counts in these runs");
            let stalls = base.stall_ratio.map_or_else(String::new, |ratio| {
                format!(", but {} of its samples stall on scattered memory", percent(ratio))
            });
            format!("Its TLB misses are unknown ({cause}){stalls}")
        }
    };
    let Some(memory) = base.rss_peak_bytes else { return format!("{misses}.") };
    let reach = &report.tlb_reach;
    let assumed = if reach.assumed { ", assumed" } else { "" };
    let relation = if memory <= reach.base_bytes { "is within" } else { "exceeds" };
    format!(
        "{misses}; its memory of {memory} {relation} the TLB reach of {} with base pages ({} with \
         huge pages{assumed}).",
        reach.base_bytes, reach.huge_bytes
    )
}

fn rounds(count: u32) -> String {
    format!("{count} round{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
