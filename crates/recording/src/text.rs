//! Text and JSON of `hugepilot record`.

use std::fmt::Write;

use hugepilot_render::json::JsonReport;
use hugepilot_render::sentence::{explain, warning_lines};
use hugepilot_render::table::{counted, grouped, percent, process_count};
use serde_json::Value;

use crate::{ALIKE, MAX_PHASES, RecordReport, RecordStop, TreeUse, causes, help_of};

/// Name of a file that is a stream.
const STREAM: &str = "-";
/// Warning about a recording without stalls, although samples were taken.
const NO_SAMPLE: &str = "warning: no stall sample: the program ended too soon, or hardly ran in \
                         user mode\nhelp: give it more work, or sample more often: --rate 5000\n";

impl JsonReport for RecordReport {
    const EXPLAINS: bool = true;

    fn explain(&self, json: &mut Value) {
        if let Some(no_begin) = &self.no_begin {
            explain(json, "/no_begin", no_begin);
        }
    }
}

/// Prints the file and its contents in a line, then what the recording lacks.
pub fn record_text(report: &RecordReport) -> String {
    let mut text = format!(
        "{}: {}, {:.1} s, {}, {}, {}",
        report.file,
        report.file_bytes,
        report.wall_seconds,
        counted(report.slices, "slice", "slices"),
        counted(report.samples, "sample", "samples"),
        process_count(report.processes),
    );
    if report.phases > 0 {
        let _ = write!(text, ", {}", counted(report.phases, "phase", "phases"));
    }
    let _ = writeln!(text, "; hugepilot used {} of a processor", percent(report.own_cpu_ratio));
    // A stream cannot be read again.
    if report.file != STREAM && report.slices > 0 {
        let page = report.file.strip_suffix(".rec").unwrap_or(&report.file);
        let _ = writeln!(text, "see it: hugepilot report {} -o {page}.html", report.file);
    }
    text.push_str(&warning_lines(report.no_begin.as_slice()));
    if report.began && report.sampler.is_some() && report.samples == 0 {
        text.push_str(NO_SAMPLE);
    }
    if let Some(span) = &report.span {
        let _ = writeln!(text, "note: recorded: {span}");
    }
    text.push_str(&runs(&report.run_seconds));
    if let Some(cause) = &report.sampler_missing {
        let _ = writeln!(text, "note: no stall samples: {cause}");
    }
    if let Some(ratio) = report.callers_ratio {
        let _ = writeln!(text, "note: {} of the samples have callers", percent(ratio));
    }
    text.push_str(&missing(report));
    if report.lost_samples > 0 {
        let lost = counted(report.lost_samples, "sample", "samples");
        let _ =
            writeln!(text, "warning: the kernel lost {lost}; shares of stalls are less certain");
    }
    if report.too_many_phases {
        let most = grouped(MAX_PHASES as f64);
        let _ = writeln!(text, "warning: more than {most} phases; later ones are not recorded");
    }
    if let Some(unseen) = report.tree.as_ref().and_then(much_unseen) {
        let _ = writeln!(text, "warning: {unseen}");
    }
    if report.ended_processes > 0 {
        let ended = process_count(report.ended_processes as u64);
        let _ = writeln!(text, "note: ended {ended} that the program left running");
    }
    if report.stop == RecordStop::WriteError {
        text.push_str("warning: the file could not be written to its end\n");
    }
    text
}

/// Says what the recorded processes lack of the use of the program and its descendants; `None` if
/// it is little.
pub(crate) fn much_unseen(tree: &TreeUse) -> Option<String> {
    let share = |ratio: Option<f64>| percent(ratio.unwrap_or(0.0));
    tree.is_much_unseen().then(|| {
        format!(
            "children not seen: {} of {} page faults ({}), {:.2} of {:.2} s of CPU time ({}); \
             {}",
            grouped(tree.unseen_faults as f64),
            grouped(tree.faults as f64),
            share(tree.unseen_faults_ratio()),
            tree.unseen_cpu_seconds,
            tree.cpu_seconds,
            share(tree.unseen_cpu_ratio()),
            unseen_cause(tree)
        )
    })
}

/// Says why processes are in no slice.
pub(crate) fn unseen_cause(tree: &TreeUse) -> String {
    let short = "processes that live for milliseconds end before they are found";
    let limit = tree.process_limit.map(|most| {
        let most = process_count(most);
        format!("more than {most} ran at a time, and the others are not recorded; ")
    });
    let earlier = tree.earlier_processes.map(|count| {
        let before = ["process that started before is", "processes that started before are"];
        format!("{} not recorded; ", counted(count, before[0], before[1]))
    });
    limit.into_iter().chain(earlier).collect::<String>() + short
}

/// Says how many metrics are missing, with the first cause; empty if none is.
fn missing(report: &RecordReport) -> String {
    let missing = report.missing_metrics.iter();
    let causes = causes(missing.map(|missing| (&*missing.name, &*missing.cause)));
    let Some(&(cause, _)) = causes.first() else { return String::new() };
    let count = report.missing_metrics.len();
    let (metrics, others) = (are_missing(count), and_others(causes.len() - 1));
    let list = if others.is_empty() { "" } else { "; the report lists them" };
    let mut text = format!("note: {count} {metrics}: {cause}{others}{list}\n");
    if let Some(help) = help_of(cause) {
        let _ = writeln!(text, "help: {help}");
    }
    text
}

/// Continues the number of missing metrics.
pub(crate) const fn are_missing(count: usize) -> &'static str {
    if count == 1 { "metric is missing" } else { "metrics are missing" }
}

/// Continues the cause that is named with the number of further ones.
pub(crate) fn and_others(causes: usize) -> String {
    match causes {
        0 => String::new(),
        1 => ", and another cause".to_owned(),
        count => format!(", and {count} other causes"),
    }
}

/// Says how many runs there were, and how alike; empty for one.
fn runs(seconds: &[f64]) -> String {
    if seconds.len() < 2 {
        return String::new();
    }
    let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = seconds.iter().copied().fold(0.0, f64::max);
    let count = seconds.len();
    let mut text = format!("note: {count} runs of {least:.2} to {most:.2} s are joined\n");
    if most > least * (1.0 + ALIKE) {
        let spread = percent(most / least - 1.0);
        let _ = writeln!(
            text,
            "warning: the times of the runs differ by {spread}; ratios of metrics of different \
             runs are less certain"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Unsupported;
    use hugepilot_units::Bytes;

    use super::*;
    use crate::{MissingMetric, NoBegin, REPORT_SCHEMA};

    fn all() -> RecordReport {
        let no_pmu = Unsupported::NoCounters { hypervisor: true }.to_string();
        let missing = |name: &str, cause: &str| MissingMetric {
            name: name.to_owned(),
            cause: cause.to_owned(),
        };
        RecordReport {
            schema: REPORT_SCHEMA.to_owned(),
            command: vec!["solve".to_owned()],
            file: "hugepilot-solve.rec".to_owned(),
            file_bytes: Bytes::kib(120),
            wall_seconds: 10.04,
            run_seconds: vec![10.04, 10.0, 11.0],
            began: true,
            no_begin: None,
            slices: 100,
            processes: 1,
            phases: 2,
            sampler: None,
            sampler_missing: Some("disabled by --no-stalls".to_owned()),
            samples: 0,
            lost_samples: 1,
            callers_ratio: Some(0.25),
            missing_metrics: vec![
                missing("cycles", &no_pmu),
                missing("thp_swpout", "this kernel has no thp_swpout"),
                missing("instructions", &no_pmu),
            ],
            own_cpu_ratio: 0.004,
            too_many_phases: true,
            tree: Some(TreeUse {
                faults: 205_000,
                unseen_faults: 204_559,
                cpu_seconds: 1.5,
                unseen_cpu_seconds: 1.2,
                context_switches: Some(300),
                unseen_context_switches: Some(290),
                ..TreeUse::default()
            }),
            span: Some("from the start to the first that matches `^done`".to_owned()),
            ending: None,
            stop: RecordStop::End,
            ended_processes: 0,
        }
    }

    #[test]
    fn the_text_has_the_count_of_missing_metrics_and_their_main_cause() {
        let report = all();
        assert_eq!(
            record_text(&report),
            "hugepilot-solve.rec: 120KiB, 10.0 s, 100 slices, 0 samples, 1 process, 2 phases; \
             hugepilot used 0.4 % of a processor\n\
             see it: hugepilot report hugepilot-solve.rec -o hugepilot-solve.html\n\
             note: recorded: from the start to the first that matches `^done`\n\
             note: 3 runs of 10.00 to 11.00 s are joined\n\
             warning: the times of the runs differ by 10.0 %; ratios of metrics of different runs \
             are less certain\n\
             note: no stall samples: disabled by --no-stalls\n\
             note: 25.0 % of the samples have callers\n\
             note: 3 metrics are missing: this virtual machine has no performance counters (PMU), \
             and another cause; the report lists them\n\
             help: a virtual machine has counters only if its host passes them on: KVM -cpu \
             host,pmu=on; clouds: a bare-metal or PMU-enabled instance\n\
             warning: the kernel lost 1 sample; shares of stalls are less certain\n\
             warning: more than 10,000 phases; later ones are not recorded\n\
             warning: children not seen: 204,559 of 205,000 page faults (99.8 %), 1.20 of 1.50 s \
             of CPU time (80.0 %); processes that live for milliseconds end before they are found\n"
        );
        let stream = RecordReport { file: "-".to_owned(), ended_processes: 1, ..report.clone() };
        let text = record_text(&stream);
        assert!(!text.contains("see it"), "{text}");
        assert!(!text.contains(NO_SAMPLE), "{text}");
        let idle = RecordReport { sampler: Some("cpu-clock".to_owned()), ..report.clone() };
        assert!(record_text(&idle).contains(NO_SAMPLE), "{}", record_text(&idle));
        assert!(text.contains("note: ended 1 process that the program left running\n"), "{text}");
        assert_eq!(process_count(2), "2 processes");
        let tree = TreeUse { process_limit: Some(256), ..report.tree.clone().unwrap() };
        let text = record_text(&RecordReport { tree: Some(tree), ..report.clone() });
        assert!(text.contains("(80.0 %); more than 256 processes ran at a time, "), "{text}");
        let tree = TreeUse { earlier_processes: Some(1), ..report.tree.clone().unwrap() };
        let text = much_unseen(&tree).unwrap();
        assert!(text.contains("; 1 process that started before is not recorded; "), "{text}");
        let begun = |no_begin| {
            let text = record_text(&RecordReport { no_begin: Some(no_begin), ..report.clone() });
            text.lines().skip(2).take(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let end = "the recording did not begin and has no values";
        let line =
            format!("warning: no line of the program's stdout matched --from-regex `^x`; {end}");
        let help = "help: compare the pattern with the output of the program";
        assert_eq!(begun(NoBegin::FromRegex { pattern: "^x".to_owned() }), [&line, help]);
        let line =
            format!("warning: no phase of the program had the name of --only-phase, `a`; {end}");
        let help =
            "help: record without --only-phase, and see the names of the phases in the report";
        assert_eq!(begun(NoBegin::OnlyPhase { name: "a".to_owned() }), [&line, help]);
        assert_eq!(runs(&[10.0]), "");
        assert_eq!(runs(&[10.0, 10.4]), "note: 2 runs of 10.00 to 10.40 s are joined\n");
    }
}
