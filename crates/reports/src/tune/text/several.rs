//! Text of `tune` on several targets: their totals and a line for each, or a block for each.

use std::cmp::Reverse;
use std::fmt::Write;

use hugepilot_render::document_text;
use hugepilot_render::model::Report;
use hugepilot_render::sentence::Sentence;
use hugepilot_render::table::{Width, counted, process_count};
use hugepilot_units::Bytes;

use super::performance::performance;
use super::verdict::{acts_time, verdict};
use super::{document, help_lines};
use crate::explain::text::regions;
use crate::tune::{NoVerdict, TuneReport};

/// Lines of verdicts that the text shows, the largest processes first.
const SHOWN: usize = 12;

/// The reports as text. `verbose`: a block for each, whose warnings name the process, and a line of
/// totals at the end; else the totals, a line for each verdict, and each obstacle and warning once.
pub fn tune_texts(reports: &[TuneReport], width: Width, verbose: bool) -> String {
    let mut text = String::new();
    if !verbose {
        return group(reports, width);
    }
    for report in reports {
        let name = format!("{} (pid {})", report.target.command, report.target.pid);
        text.push_str(&document_text(&document(report, verbose, &format!("{name}: ")), width));
        text.push('\n');
    }
    text.push_str(&totals(reports));
    text
}

fn group(reports: &[TuneReport], width: Width) -> String {
    let mut sorted: Vec<&TuneReport> = reports.iter().collect();
    sorted.sort_by_key(|report| Reverse(report.plan.footprint_bytes));
    let (mut verdicts, mut notes) = (Vec::new(), Vec::new());
    for report in &sorted {
        let help: String = report.no_verdict.as_ref().map(help_lines).unwrap_or_default();
        add(&mut verdicts, (verdict(report), help), report);
        for note in &report.obstacles {
            add(&mut notes, ("note: ".to_owned() + &note.text(), help_lines(note)), report);
        }
        for warning in &report.warnings {
            let text = "warning: ".to_owned() + &warning.text();
            add(&mut notes, (text, help_lines(warning)), report);
        }
    }
    let mut text = totals(reports);
    let rest = verdicts.split_off(verdicts.len().min(SHOWN));
    for ((verdict, help), of) in verdicts {
        let _ = write!(text, "{}: {verdict}\n{help}", named(&of));
    }
    if !rest.is_empty() {
        let count = rest.iter().map(|(_, of)| of.len() as u64).sum();
        let _ =
            writeln!(text, "\u{2026} {}", counted(count, "smaller process", "smaller processes"));
    }
    for ((note, help), of) in notes {
        let of =
            if of.len() == reports.len() { String::new() } else { format!(" ({})", named(&of)) };
        let _ = write!(text, "{note}{of}\n{help}");
    }
    // The speed of a program is in the report of one process.
    let mut speeds = Report::new("");
    reports.iter().flat_map(performance).for_each(|section| speeds.add(section));
    text + &document_text(&speeds, width) + "the regions of each process: --verbose, or --json\n"
}

/// Sentence and help, and the processes with them.
type Said<'a> = ((String, String), Vec<&'a TuneReport>);

fn add<'a>(all: &mut Vec<Said<'a>>, said: (String, String), report: &'a TuneReport) {
    match all.iter_mut().find(|(known, _)| *known == said) {
        Some((_, of)) => of.push(report),
        None => all.push((said, vec![report])),
    }
}

/// The process, or their number and the first.
fn named(of: &[&TuneReport]) -> String {
    let [first, rest @ ..] = of else { return String::new() };
    let first = format!("{} (pid {})", first.target.command, first.target.pid);
    match rest.len() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn totals(reports: &[TuneReport]) -> String {
    let is_excluded =
        |report: &&TuneReport| matches!(report.no_verdict, Some(NoVerdict::Excluded(_)));
    let count = |of: &dyn Fn(&TuneReport) -> u64| reports.iter().map(of).sum::<u64>();
    let size = |of: &dyn Fn(&TuneReport) -> Option<Bytes>| -> Bytes {
        reports.iter().filter(|report| !is_excluded(report)).filter_map(of).sum()
    };
    let regions = if reports.iter().any(|report| report.dry_run) {
        let selected = count(&|report| report.plan.selected.len() as u64);
        format!("would promote {}", regions(selected))
    } else {
        let calls: f64 = reports.iter().map(|report| report.acts.promotion_seconds).sum();
        let acts =
            reports.iter().filter_map(|report| report.acts.acts_seconds).reduce(|a, b| a + b);
        let time = acts_time(acts, calls);
        let mut text = format!(
            "{} of {} verified on huge pages in {time}",
            count(&|report| report.acts.verified_regions),
            regions(count(&|report| report.acts.attempted_regions)),
        );
        let demoted = count(&|report| report.acts.demoted_regions);
        let lost = count(&|report| report.acts.lost_regions);
        for (what, count) in [("demoted", demoted), ("lost", lost)] {
            if count > 0 {
                let _ = write!(text, ", {count} {what}");
            }
        }
        let promotions = count(&|report| report.acts.promotions);
        let demotions = count(&|report| report.acts.demotions);
        if promotions + demotions > 0 {
            let promotions = counted(promotions, "promotion", "promotions");
            let demotions = counted(demotions, "demotion", "demotions");
            let _ = write!(text, " ({promotions}, {demotions})");
        }
        text
    };
    let mut text = format!(
        "total of {}: {regions}; memory: {} huge before, {} after",
        process_count(reports.len() as u64),
        size(&|report| report.acts.huge_bytes_before),
        size(&|report| report.acts.huge_bytes_after),
    );
    if let Some(budget) = reports.iter().find_map(|report| report.plan.budget_bytes) {
        let _ = write!(text, ", budget {budget}");
    }
    let excluded = reports.iter().filter(is_excluded).count();
    let ended = reports.iter().filter(|report| report.target_ended).count();
    for (what, count) in [("excluded", excluded), ("ended", ended)] {
        if count > 0 {
            let _ = write!(text, "; {count} {what}");
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use hugepilot_record::{AccessError, Pid};
    use hugepilot_render::json_lines;

    use super::*;
    use crate::tune::text::tests::stopped;
    use crate::tune::{NoMetric, TuneWarning};

    fn three() -> [TuneReport; 3] {
        let (first, mut second, mut third) = (stopped(), stopped(), stopped());
        second.target.pid = Pid(4712);
        second.target_ended = true;
        second.warnings = vec![TuneWarning::FewSamples { samples: 12 }];
        third.target.pid = Pid(4713);
        (third.acts.attempted_regions, third.acts.verified_regions) = (0, 0);
        let help = vec!["wait".to_owned()];
        third.no_verdict =
            Some(NoVerdict::Excluded(AccessError { error: "in use".to_owned(), help }));
        [first, second, third]
    }

    #[test]
    fn each_target_has_a_block_whose_warnings_name_it_and_the_totals_are_last() {
        let text = tune_texts(&three(), Width::UNLIMITED, true);
        assert!(text.starts_with("db (pid 4711): cannot tell: 3 of 4 regions verified"), "{text}");
        assert!(text.contains("\nwarning: db (pid 4712): only 12 samples; shares"), "{text}");
        let excluded =
            "\n\ndb (pid 4713): cannot tell: in use; nothing was changed\nhelp: wait\n\n";
        assert!(text.contains(excluded), "{text}");
        let totals = "\ntotal of 3 processes: 6 of 8 regions verified on huge pages in 0.90 s \
                      (0.03 s in calls, the rest in checks and pauses); memory: \
                      0B huge before, 12MiB after, budget 615.12MiB; 1 excluded; 1 ended\n";
        assert!(text.ends_with(totals), "{text}");
    }

    #[test]
    fn many_targets_are_one_report_in_which_the_same_is_said_once() {
        let mut all: Vec<TuneReport> = (0..40)
            .map(|number| {
                let mut report = three()[2].clone();
                report.target.pid = Pid(number);
                report.plan.footprint_bytes = Some(Bytes::mib(number.unsigned_abs().into()));
                report.warnings = vec![TuneWarning::FewSamples { samples: 12 }];
                report
            })
            .collect();
        let text = tune_texts(&all, Width::UNLIMITED, false);
        let [totals, verdict, help, warning, rest @ ..] = &text.lines().collect::<Vec<_>>()[..]
        else {
            panic!("{text}")
        };
        assert!(totals.starts_with("total of 40 processes: "), "{text}");
        let in_use = "db (pid 39) and 39 more: cannot tell: in use; nothing was changed";
        assert_eq!((*verdict, *help), (in_use, "help: wait"), "{text}");
        assert!(warning.starts_with("warning: only 12 samples"), "{text}");
        assert!(rest.len() < 4, "{text}");
        for (number, report) in all.iter_mut().enumerate() {
            (report.no_verdict, report.stopped) = (None, None);
            (report.acts.attempted_regions, report.acts.verified_regions) = (40, 1 + number as u64);
        }
        let text = tune_texts(&all, Width::UNLIMITED, false);
        assert!(text.contains("\ndb (pid 39): ") && text.contains("smaller processes\n"), "{text}");
        assert!(text.lines().count() < 24, "{text}");
    }

    #[test]
    fn the_speed_of_a_program_is_in_one_block_to_which_the_others_point() {
        let [first, mut second, _] = three();
        second.measured.no_metric = Some(NoMetric::OfProgram { pid: first.target.pid });
        second.target_ended = false;
        let text = tune_texts(&[first, second], Width::UNLIMITED, true);
        let cause = "gain: not measured: the speed of the whole program is in the report on \
                     process 4711\n";
        assert_eq!(text.matches(cause).count(), 1, "{text}");
        assert!(!text.contains("no metric found"), "{text}");
    }

    #[test]
    fn json_has_a_line_for_each_with_its_sentences() {
        let lines = json_lines(&three());
        let values: Vec<serde_json::Value> =
            lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            values.iter().map(|one| one["target"]["pid"].as_i64()).collect::<Vec<_>>(),
            [Some(4711), Some(4712), Some(4713)]
        );
        assert_eq!(values[2]["no_verdict"]["code"], "excluded");
        assert_eq!(values[2]["no_verdict"]["text"], "in use");
        assert!(values[0]["verdict"]["text"].as_str().unwrap().starts_with("cannot tell: 3 of 4"));
    }
}
