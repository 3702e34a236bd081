//! Markdown table of the summaries, and the verdict. Pure.

use hugepilot_stats::{Spread, median};

use super::super::pairs::{none, spread};
use super::super::records::circumstances;
use super::plan::compared;
use super::record::{Record, Run};
use super::summary::{Bracket, Count, Signs, Summary, Truth};

/// Required share of the all-huge gain.
const SHARE: f64 = 0.9;
/// Time within which the gain must be reached.
const SECONDS: f64 = 15.0;
/// Required share of right signs.
const SIGNS: f64 = 0.95;
/// Required share of brackets around the achieved gain.
const INSIDE: f64 = 0.9;
/// Largest allowed median of the width of a bracket, as a share of the gain.
const WIDTH: f64 = 0.5;

const HEAD: &str = "\
| program | all huge | tuned | untouched | share of the gain | 90 % promoted, tune s | \
huge MiB, all | kept | model | trial, ratio | achieved | in bracket | width | sign right | \
wrong, open, no verdict |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";

/// Describes all records: the circumstances, a line for each program, and the verdict. Every run
/// counts.
pub(super) fn report(records: &[Record]) -> String {
    fn run(record: &Record) -> Option<&Run> {
        match record {
            Record::Run(run) => Some(run),
            Record::Failure(_) => None,
        }
    }
    let runs: Vec<&Run> = records.iter().filter_map(run).collect();
    let mut names: Vec<&str> = Vec::new();
    for run in &runs {
        if !names.contains(&run.program.as_str()) {
            names.push(&run.program);
        }
    }
    let of = |name: &&str| {
        let of_name = runs.iter().copied().filter(|run| run.program == **name);
        Summary::of(&of_name.collect::<Vec<_>>())
    };
    let summaries: Vec<Summary> = names.iter().map(of).collect();
    let mut text = circumstances(runs.iter().map(|run| &run.machine));
    text.push('\n');
    text.push_str(HEAD);
    text.extend(summaries.iter().map(line));
    text.push('\n');
    text.push_str(&verdict(&summaries));
    text.push_str(&compared(records));
    text
}

fn line(of: &Summary) -> String {
    let cells = [
        of.program.clone(),
        speedup(of.all),
        speedup(of.tuned),
        speedup(of.base),
        spread(of.share, 2),
        format!("{}, {}", spread(of.promotion_seconds, 1), spread(of.tune_seconds, 1)),
        format!("{}, {}", mebibytes(of.tuned_huge_bytes), mebibytes(of.all_huge_bytes)),
        count(of.kept),
        bracket(of.model),
        of.trial_ratio.map_or_else(
            || bracket(of.trial),
            |ratio| format!("{}, {ratio:.2}", bracket(of.trial)),
        ),
        of.achieved.map_or_else(none, |value| format!("{value:.2}x")),
        of.inside_noise.map_or_else(
            || count(of.inside),
            |noise| format!("{} ({})", count(of.inside), noise.events),
        ),
        median(of.widths.iter().map(|width| width.0))
            .map_or_else(none, |width| format!("{width:.2}")),
        count(of.signs.count()),
        format!("{}, {}, {}", of.signs.wrong, of.signs.open, of.signs.cannot_tell),
    ];
    format!("| {} |\n", cells.join(" | "))
}

fn speedup(of: Option<Spread>) -> String {
    of.map_or_else(none, |Spread { median, min, max }| format!("{median:.2}x ({min:.2}–{max:.2})"))
}

fn bracket(of: Option<Bracket>) -> String {
    of.map_or_else(none, |Bracket { low, median, high }| {
        format!("{median:.2}x ({low:.2}–{high:.2})")
    })
}

fn mebibytes(bytes: Option<f64>) -> String {
    bytes.map_or_else(none, |bytes| format!("{:.0}", bytes / f64::from(1 << 20)))
}

fn count(of: Count) -> String {
    if of.of == 0 { none() } else { format!("{} of {}", of.events, of.of) }
}

/// Compares the summaries with the required values.
fn verdict(all: &[Summary]) -> String {
    let of = |truth| all.iter().filter(move |one| one.truth == Some(truth));
    let shares: Vec<_> = of(Truth::Gain).filter_map(|one| Some((one, one.share?.median))).collect();
    let low: Vec<_> = shares.iter().filter(|&&(_, share)| share < SHARE).map(|one| one.0).collect();
    let times: Vec<_> =
        all.iter().filter_map(|one| Some((one, one.promotion_seconds?.max))).collect();
    let late: Vec<_> = times.iter().filter(|&&(_, max)| max > SECONDS).map(|one| one.0).collect();
    let kept = Count::sum(of(Truth::None).map(|one| one.kept));
    let keeping: Vec<_> = of(Truth::None).filter(|one| one.kept.events > 0).collect();
    let widened = Count::sum(all.iter().filter_map(|one| one.inside_noise));
    let widened = match widened.of {
        0 => String::new(),
        _ => format!("; {} with the noise of untouched runs", widened.events),
    };
    [
        format!(
            "- share of at least {SHARE} where the gain is above 5 %: {} of {} programs{}",
            shares.len() - low.len(),
            shares.len(),
            except(&low)
        ),
        format!(
            "- 90 % promoted within {SECONDS} s in all runs: {} of {} programs{}",
            times.len() - late.len(),
            times.len(),
            except(&late)
        ),
        format!(
            "- nothing kept where the gain is below 1 %: {} of {} runs{}",
            kept.of - kept.events,
            kept.of,
            except(&keeping)
        ),
        format!("- right sign where the gain is above 5 % or below 1 %: {}", signs_of(all)),
        format!(
            "- achieved gain in the bracket: {}{widened}; without a bracket {}",
            required(Count::sum(all.iter().map(|one| one.inside)), INSIDE),
            all.iter().map(|one| one.without_bracket).sum::<usize>()
        ),
        format!("- width of the bracket: {}", widths_of(all)),
        String::new(),
    ]
    .join("\n")
}

/// Right signs, and all other classes of runs.
fn signs_of(all: &[Summary]) -> String {
    let signs = Signs::sum(all.iter().map(|one| one.signs));
    let Signs { wrong, open, cannot_tell, small, unknown, .. } = signs;
    format!(
        "{}; wrong {wrong}, open {open}, no verdict {cannot_tell}; not judged: {small} with a \
         gain of 1 to 5 %, {unknown} with an unknown one",
        required(signs.count(), SIGNS)
    )
}

/// The median width of all brackets, and the same over the gains of their runs.
fn widths_of(all: &[Summary]) -> String {
    let part = |of: fn(&(f64, f64)) -> f64| median(all.iter().flat_map(|one| &one.widths).map(of));
    match part(|width| width.0).zip(part(|width| width.1)) {
        Some((width, ratio)) => {
            format!("{width:.2}, {ratio:.1} of the gain (medians, required at most {WIDTH})")
        }
        None => none(),
    }
}

/// Names of programs that miss a requirement.
fn except(programs: &[&Summary]) -> String {
    if programs.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = programs.iter().map(|one| one.program.as_str()).collect();
    format!("; not {}", names.join(", "))
}

/// Runs and their share, beside the required share.
fn required(count: Count, share: f64) -> String {
    let percent = |ratio: f64| format!("{:.0} %", ratio * 100.0);
    let Count { events, of } = count;
    let ratio = count.ratio().map_or_else(none, percent);
    format!("{events} of {of} runs ({ratio}, required {})", percent(share))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::record::State;
    use super::super::record::tests::{failure, pair, run};
    use super::*;

    #[test]
    fn the_table_has_a_line_for_each_program_and_a_verdict() {
        let mut runs = Vec::new();
        for (program, all, gain) in [("redis", 1.25, 1.2), ("go-map", 1.5, 1.48), ("pr", 1.0, 1.0)]
        {
            runs.push(run(program, State::Base, 0, 1.0));
            let [mut tuned, all] = pair(program, 0, gain, all);
            runs.push(all);
            tuned.tune = Some(json!({
                "predicted_speedup": {"low": 1.1, "median": 1.2, "high": 1.3},
                "eligible_speedup": {"low": 1.1, "median": 1.2, "high": 1.3},
                "most_promoted_seconds": 16.0,
            }));
            if program == "go-map" {
                tuned.tune.as_mut().unwrap()["trial"] = json!({"verdict": "open"});
            }
            runs.push(tuned);
        }
        let mut records: Vec<Record> = runs.into_iter().map(Record::from).collect();
        records.push(failure("pr"));
        let text = report(&records);
        assert!(text.starts_with("2026-01-02, 2 CPUs CPU, Linux 6.18, commit abc\n\n| program"));
        let redis = text.lines().find(|line| line.starts_with("| redis")).unwrap();
        assert_eq!(
            redis,
            "| redis | 1.25x (1.25–1.25) | 1.20x (1.20–1.20) | 1.00x (1.00–1.00) | \
             0.80 (0.80–0.80) | 16.0 (16.0–16.0), 3.0 (3.0–3.0) | 512, 512 | 1 of 1 | \
             1.20x (1.10–1.30) | - | - | 1 of 1 (1) | 0.20 | 1 of 1 | 0, 0, 0 |"
        );
        let planned = compared(&records);
        assert!(planned.ends_with("; failed: pr 1\n"), "{planned}");
        assert_eq!(
            text.lines().filter(|line| line.starts_with("- ")).collect::<Vec<_>>(),
            [
                "- share of at least 0.9 where the gain is above 5 %: 1 of 2 programs; not redis",
                "- 90 % promoted within 15 s in all runs: 0 of 3 programs; not redis, go-map, pr",
                "- nothing kept where the gain is below 1 %: 0 of 1 runs; not pr",
                "- right sign where the gain is above 5 % or below 1 %: 1 of 3 runs (33 %, \
                 required 95 %); wrong 1, open 1, no verdict 0; not judged: 0 with a gain of 1 to \
                 5 %, 0 with an unknown one",
                "- achieved gain in the bracket: 1 of 3 runs (33 %, required 90 %); 1 with the \
                 noise of untouched runs; without a bracket 0",
                "- width of the bracket: 0.20, 1.0 of the gain (medians, required at most 0.5)",
                planned.trim_end(),
            ]
        );
    }

    #[test]
    fn columns_of_the_table_match() {
        let columns = |line: &str| line.matches('|').count();
        let text = report(&[run("redis", State::Tuned, 0, 1.2).into()]);
        let lines: Vec<usize> =
            text.lines().filter(|line| line.starts_with('|')).map(columns).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|&count| count == lines[0]), "{text}");
    }
}
