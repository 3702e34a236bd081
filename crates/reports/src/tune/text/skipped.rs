//! Skipped regions: the stalls on them by cause, and what can be changed.

use hugepilot_record::SkipReason;
use hugepilot_render::sentence::Sentence;

use super::sentence::percent;
use super::{counts, help_lines};
use crate::tune::{TuneReport, TuneVerdict};

/// Share of the stalls from which a reason has a sentence.
const NAMED: f64 = 0.01;
/// Share of the samples that are stalls, from which shares of the stalls are named: huge pages
/// cannot save more than the stalls take.
const FEW_STALLS: f64 = 0.01;

/// Stalls on the regions that were skipped for one reason.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SkippedStalls {
    reason: SkipReason,
    /// Share of all stalls.
    ratio: f64,
}

/// Skipped regions: a sentence for each reason with at least 1 % of the stalls, the largest share
/// first, then a line with the regions of the other reasons.
pub(super) fn skipped(report: &TuneReport) -> String {
    let named = named(report);
    let is_named = |reason: &SkipReason| named.iter().any(|one| one.reason == *reason);
    let others = report.plan.skipped.iter().filter(|&(reason, _)| !is_named(reason));
    let sentences: String = named
        .iter()
        .map(|one| format!("{}\n{}{}", one.text(), help_lines(one), of_program(report, one.reason)))
        .collect();
    // Memory that was freed has no stalls.
    let is_unnamed = report.verdict() == TuneVerdict::Lost && !is_named(&SkipReason::LostHugePage);
    let help = more_help(SkipReason::LostHugePage).filter(|_| is_unnamed);
    let help = help.map_or_else(String::new, |help| format!("help: {help}\n"));
    help + &sentences + &counts("skipped regions", others.map(|(reason, &count)| (reason, count)))
}

/// The reasons with at least 1 % of the stalls; none if the stalls are unknown or few.
fn named(report: &TuneReport) -> Vec<SkippedStalls> {
    let Some(stalls) = report.forecast.before.stall_ratio.filter(|&ratio| ratio >= FEW_STALLS)
    else {
        return Vec::new();
    };
    // The report has shares of the samples. Those of the last plan can exceed the stalls before the
    // first promotion.
    let of_stalls = |ratio: f64| (ratio / stalls).min(1.0);
    let all = report.plan.skipped_stall_ratio.iter();
    let all = all.map(|(&reason, &ratio)| SkippedStalls { reason, ratio: of_stalls(ratio) });
    let mut named: Vec<SkippedStalls> = all.filter(|one| one.ratio >= NAMED).collect();
    named.sort_by(|a, b| b.ratio.total_cmp(&a.ratio));
    named
}

/// The share of the stalls in regions that are on huge pages already, if it is at least half.
pub(super) fn already_huge(report: &TuneReport) -> Option<f64> {
    let named = named(report);
    let huge = named.iter().find(|one| one.reason == SkipReason::AlreadyHuge)?;
    Some(huge.ratio).filter(|&ratio| ratio >= 0.5)
}

impl Sentence for SkippedStalls {
    fn text(&self) -> String {
        format!("{} of the stalls are {}", percent(self.ratio), self.reason.place())
    }

    fn help(&self) -> Vec<String> {
        let mut help = self.reason.help();
        help.extend(more_help(self.reason).map(str::to_owned));
        help
    }
}

/// A line with what a certain program offers; empty for others.
fn of_program(report: &TuneReport, reason: SkipReason) -> &'static str {
    match (reason, report.target.command.as_str()) {
        (SkipReason::SharedMemory, "postgres") => {
            "help: or put the buffers of PostgreSQL on a hugetlb pool: hugepilot status --name \
             postgres prints its size and the commands\n"
        }
        _ => "",
    }
}

/// A way out besides the help of `reason` in reports of `status`.
const fn more_help(reason: SkipReason) -> Option<&'static str> {
    Some(match reason {
        SkipReason::OverBudget => "allow more: --budget, --max-added",
        SkipReason::LostHugePage => {
            "if the program frees memory and allocates it again, start it on huge pages: hugepilot \
             compare -- CMD finds the mode"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::text::tests::stopped;

    const REASONS: [SkipReason; 26] = [
        SkipReason::AlreadyHuge,
        SkipReason::Stack,
        SkipReason::Nohugepage,
        SkipReason::ThpDisabled,
        SkipReason::Mlocked,
        SkipReason::SharedAfterFork,
        SkipReason::Merged,
        SkipReason::GuardPages,
        SkipReason::File,
        SkipReason::Code,
        SkipReason::SharedMemory,
        SkipReason::Userfaultfd,
        SkipReason::MostlySwapped,
        SkipReason::TooFewResident,
        SkipReason::LazilyFreed,
        SkipReason::Unaligned,
        SkipReason::Special,
        SkipReason::TlbFriendly,
        SkipReason::Streamed,
        SkipReason::TooCold,
        SkipReason::CoolingDown,
        SkipReason::LostHugePage,
        SkipReason::CgroupHeadroom,
        SkipReason::SystemHeadroom,
        SkipReason::MemoryPressure,
        SkipReason::OverBudget,
    ];

    /// A report on a process that stalls on memory in half of its samples, with shares of all
    /// samples.
    fn report(stalls: &[(SkipReason, f64)]) -> TuneReport {
        let mut report = stopped();
        report.forecast.before.stall_ratio = Some(0.5);
        report.plan.skipped = REASONS.map(|reason| (reason, 0)).into();
        report.plan.skipped.extend(stalls.iter().map(|&(reason, _)| (reason, 7)));
        report.plan.skipped_stall_ratio = stalls.iter().copied().collect();
        report
    }

    #[test]
    fn each_cause_has_its_share_of_the_stalls_and_its_help() {
        let mut report = report(&[
            (SkipReason::TooCold, 0.05),
            (SkipReason::SharedMemory, 0.32),
            (SkipReason::Unaligned, 0.004),
        ]);
        report.plan.skipped.insert(SkipReason::Stack, 2);
        let shared = help_lines(&SkipReason::SharedMemory);
        assert!(shared.contains("shmem_enabled"), "{shared}");
        let expected = format!(
            "64 % of the stalls are in shared memory, which tune does not promote\n\
             {shared}\
             10 % of the stalls are in regions whose huge pages would save less than they cost \
             (--horizon, --min-gain)\n\
             skipped regions: stack 2, unaligned 7\n"
        );
        assert_eq!(skipped(&report), expected);
    }

    #[test]
    fn unknown_or_few_stalls_leave_the_regions() {
        let mut report = report(&[(SkipReason::Mlocked, 0.002)]);
        for few in [None, Some(0.0), Some(0.002), Some(0.0099)] {
            report.forecast.before.stall_ratio = few;
            assert_eq!(skipped(&report), "skipped regions: mlocked 7\n");
            assert_eq!(already_huge(&report), None);
        }
        report.forecast.before.stall_ratio = Some(0.01);
        assert!(skipped(&report).starts_with("20 % of the stalls are in locked memory"));
        report.plan.skipped.clear();
        report.plan.skipped_stall_ratio.clear();
        assert_eq!(skipped(&report), "");
    }

    #[test]
    fn a_share_is_at_most_that_of_all_stalls() {
        let text = skipped(&report(&[(SkipReason::Streamed, 0.9), (SkipReason::Stack, 0.6)]));
        assert_eq!(text.matches("100 % of the stalls are in ").count(), 2, "{text}");
        // Equal shares keep the order of the reasons.
        assert!(text.find("in stacks") < text.find("in regions that the program acc"), "{text}");
    }

    #[test]
    fn each_reason_has_a_sentence_and_those_that_can_be_changed_have_help() {
        let with_help = REASONS.into_iter().filter(|&reason| {
            let text = skipped(&report(&[(reason, 0.25)]));
            let (first, help) = text.split_once('\n').unwrap();
            assert!(first.starts_with("50 % of the stalls are "), "{text}");
            assert!(help.lines().all(|line| line.starts_with("help: ")), "{text}");
            assert!(help.lines().count() <= 2, "{text}");
            !help.is_empty()
        });
        let with_help: Vec<SkipReason> = with_help.collect();
        for reason in [SkipReason::Nohugepage, SkipReason::Unaligned, SkipReason::OverBudget] {
            assert!(with_help.contains(&reason), "{with_help:?}");
        }
        assert!(!with_help.contains(&SkipReason::TooCold), "{with_help:?}");
    }
}
