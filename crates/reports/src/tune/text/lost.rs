//! Promoted regions that are on base pages again.

use hugepilot_record::Stop;
use hugepilot_render::table::counted;

use crate::tune::{ExecReport, FreedBy, RegionState, SelectedRegion, TuneReport};

/// Why regions of `report` lost their huge pages.
const fn cause(report: &TuneReport) -> &'static str {
    match report.acts.forks {
        0 => "the program freed memory there, or the program or the kernel split the page",
        _ => {
            "the process forked, and a write after a fork splits the page; or it freed memory there"
        }
    }
}

/// Whether a selected region is verified on a huge page, in a word; `None` if it was not tried.
pub(super) const fn verified(region: &SelectedRegion) -> Option<&'static str> {
    match (region.verified, region.state) {
        (_, Some(RegionState::Lost)) => Some("lost"),
        (_, Some(RegionState::Demoted)) => Some("returned"),
        (Some(true), _) => Some("yes"),
        (Some(false), _) => Some("no"),
        (None, _) => None,
    }
}

/// The verdict that an exec or the end of the process freed all promoted regions.
pub(super) fn freed_by_end(report: &TuneReport) -> Option<String> {
    let cause = report.acts.freed_by?;
    let ended_trial =
        report.acts.exec.is_some_and(|exec| exec.trials > 0) && report.forecast.trial.is_none();
    let place = if ended_trial || cause == FreedBy::End { " in the trial" } else { "" };
    let exec = if cause == FreedBy::Exec { " (exec)" } else { "" };
    let freed = counted(report.acts.lost_regions, "promoted region", "promoted regions");
    Some(format!("stopped{place}: {}{exec}, which freed its {freed}", Stop::from(cause)))
}

/// The regions that lost their huge pages, after those that were promoted.
pub(super) fn lost_since(report: &TuneReport) -> String {
    let (lost, of) = (report.acts.lost_regions, report.acts.verified_regions);
    match (lost, report.acts.freed_by) {
        (0, _) => String::new(),
        (_, Some(FreedBy::End)) => "; the program ended in its trial".to_owned(),
        _ => {
            let cause = cause(report);
            format!("; {lost} of the {of} regions lost their huge page since: {cause}")
        }
    }
}

/// The verdict that no promoted region is left on a huge page.
pub(super) fn none_left(report: &TuneReport) -> String {
    let (lost, of) = (report.acts.lost_regions, report.acts.verified_regions);
    let who = if lost == of { "all".to_owned() } else { format!("{lost} of") };
    let regions = counted(of, "promoted region", "promoted regions");
    format!("no promotion lasted: {who} {regions} lost their huge page: {}", cause(report))
}

/// The promoted regions that are on base pages again, and those that are not.
pub(super) fn on_base_pages(report: &TuneReport) -> String {
    let (kept, lost) = (report.acts.kept_regions(), report.acts.lost_regions);
    let again = report.acts.demoted_regions + lost;
    let lost = match lost {
        0 => String::new(),
        lost => format!(", {lost} of them because {}", cause(report)),
    };
    match (again, kept) {
        (again, 0) => {
            format!("its {} on base pages again{lost}", counted(again, "region is", "regions are"))
        }
        (0, kept) => {
            format!("its {} on huge pages", counted(kept, "region stays", "regions stay"))
        }
        (again, kept) => {
            format!("{again} of its regions are on base pages again{lost}; {kept} are still huge")
        }
    }
}

/// The line about former programs of the process, unless the first line is.
pub(super) fn exec(report: &TuneReport) -> Option<String> {
    let exec = report.acts.exec.filter(|_| report.acts.freed_by.is_none())?;
    let ExecReport { programs, freed_regions, trials } = exec;
    let freed = counted(freed_regions, "promoted region", "promoted regions");
    let former = match programs {
        1 => "a former program".to_owned(),
        programs => format!("{programs} former programs"),
    };
    let ended = match trials {
        0 => String::new(),
        1 => " and ended its trial without a result".to_owned(),
        trials => format!(" and ended {trials} trials without a result"),
    };
    Some(format!("exec: it freed {freed} of {former}{ended}"))
}

#[cfg(test)]
mod tests {
    use hugepilot_record::SkipReason;

    use super::*;
    use crate::tune::{TrialReport, TrialVerdict, TuneVerdict};

    const CAUSE: &str =
        "the program freed memory there, or the program or the kernel split the page";
    use hugepilot_render::table::Width;

    use crate::tune::text::tests::stopped;
    use crate::tune::text::tune_text;

    const OPEN: TrialReport = TrialReport {
        verdict: TrialVerdict::Open,
        ratio: None,
        low_ratio: None,
        high_ratio: None,
        high_speedup: None,
        pairs: Some(78),
        samples: None,
        seconds: 9.1,
        confirmed: None,
    };

    /// A report on 128 promoted regions, of which some were returned and some lost.
    fn report(demoted: u64, lost: u64) -> TuneReport {
        let mut report = stopped();
        report.stopped = None;
        (report.acts.attempted_regions, report.acts.verified_regions) = (128, 128);
        (report.acts.demoted_regions, report.acts.lost_regions) = (demoted, lost);
        report
    }

    fn text(report: &TuneReport) -> String {
        tune_text(report, Width::UNLIMITED, false)
    }

    fn ends(report: &TuneReport, end: &str) {
        let text = text(report);
        assert!(text.lines().next().unwrap().ends_with(end), "{text}");
    }

    #[test]
    fn the_first_line_says_how_many_regions_lost_their_huge_page() {
        ends(&report(0, 0), " (0.01 s in calls, the rest in checks and pauses)");
        let lost = format!("; 40 of the 128 regions lost their huge page since: {CAUSE}");
        ends(&report(0, 40), &lost);
        let mut launched = report(0, 128);
        (launched.acts.freed_by, launched.measured.speedup) = (Some(FreedBy::End), Some(1.1));
        assert_eq!(launched.verdict(), TuneVerdict::Promoted, "the gain of the run is known");
        ends(&launched, "; the program ended in its trial");
    }

    #[test]
    fn if_all_are_lost_nothing_is_claimed_and_there_is_help() {
        let mut report = report(0, 128);
        let none = ": no promotion lasted: all 128 promoted regions lost their huge page: ";
        ends(&report, &format!("{none}{CAUSE}"));
        let help = "help: if the program frees memory and allocates it again, start it on huge \
                    pages: hugepilot compare -- CMD finds the mode\n";
        assert_eq!(text(&report).matches(help).count(), 1, "{}", text(&report));
        report.plan.skipped.insert(SkipReason::LostHugePage, 30);
        report.plan.skipped_stall_ratio.insert(SkipReason::LostHugePage, 0.5);
        assert_eq!(text(&report).matches(help).count(), 1, "{}", text(&report));
        (report.acts.lost_regions, report.acts.demoted_regions) = (125, 3);
        ends(&report, &format!(": 125 of 128 promoted regions lost their huge page: {CAUSE}"));
        report.schedule = Some(Default::default());
        assert_eq!(report.verdict(), TuneVerdict::Promoted, "the schedule returned the others");
        (report.schedule, report.acts.demoted_regions) = (None, 0);
        assert_eq!(report.verdict(), TuneVerdict::Promoted, "three are left");
    }

    #[test]
    fn a_trial_without_a_gain_names_what_it_returned_and_what_was_lost() {
        let mut all = report(78, 50);
        all.forecast.trial = Some(OPEN);
        let both = "a trial showed no certain gain; its 128 regions are on base pages again, \
                    50 of them because ";
        ends(&all, &format!("{both}{CAUSE}"));
        all.forecast.trial = Some(TrialReport { verdict: TrialVerdict::NoGain, ..OPEN });
        all.acts.lost_regions = 10;
        let kept = "; 88 of its regions are on base pages again, 10 of them because ";
        ends(&all, &format!("{kept}{CAUSE}; 40 are still huge"));
        all.forecast.trial = Some(TrialReport { verdict: TrialVerdict::Gain, ..OPEN });
        all.acts.lost_regions = 50;
        assert_eq!(all.verdict(), TuneVerdict::Lost, "those that were returned made room");
    }

    #[test]
    fn an_exec_or_an_end_in_a_trial_is_said() {
        let exec = ExecReport { programs: 1, freed_regions: 128, trials: 1 };
        // An interruption comes after it.
        let mut former = TuneReport { stopped: Some(Stop::Interrupted), ..report(0, 128) };
        (former.acts.exec, former.acts.freed_by) = (Some(exec), Some(FreedBy::Exec));
        let first = "(pid 4711): cannot tell: stopped in the trial: the target started another \
                     program (exec), which freed its 128 promoted regions";
        ends(&former, first);
        assert!(!text(&former).contains("exec: "), "{}", text(&former));
        let mut ended = former;
        (ended.acts.exec, ended.acts.freed_by) = (None, None);
        assert_eq!(ended.verdict(), TuneVerdict::Lost, "it lost them before");
        ended.acts.freed_by = Some(FreedBy::End);
        ends(
            &ended,
            "stopped in the trial: the target ended, which freed its 128 promoted regions",
        );
        let mut new = report(0, 0);
        new.acts.exec = Some(exec);
        let line = "\nexec: it freed 128 promoted regions of a former program and ended its trial \
                    without a result\n";
        assert!(text(&new).contains(line), "{}", text(&new));
        assert!(text(&new).contains(": 128 of 128 regions verified"), "{}", text(&new));
        new.acts.exec = Some(ExecReport { programs: 3, freed_regions: 300, trials: 0 });
        let line = "\nexec: it freed 300 promoted regions of 3 former programs\n";
        assert!(text(&new).contains(line), "{}", text(&new));
    }
}
