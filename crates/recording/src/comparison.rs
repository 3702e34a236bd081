//! Comparison of two recordings: medians and distances of distributions.

use hugepilot_record::MetricScope;
use hugepilot_render::model::{Cell, Curve, Notice, Plot, Report, Section, Table, Unit};
use hugepilot_render::table::counted;
use hugepilot_stats::Distribution;

use super::measures::{Measure, measures};
use super::multiplexing;
use super::sections::{all_measures, main_process, zero_notice};
use super::timeline::{ProcessTrack, Timeline};

/// Plots of distributions at most.
const MAX_PLOTS: usize = 8;
/// Points of a distribution.
const CDF_POINTS: usize = 200;
/// Distance of distributions from which a plot is of interest.
const NOTABLE: f64 = 0.1;

/// Compares the process with the most stall samples of each recording. `names` are their files.
pub fn comparison_report(first: &Timeline, second: &Timeline, names: [&str; 2]) -> Report {
    let mut report = Report::new(format!("{} and {}", names[0], names[1]));
    let (Some(a), Some(b)) = (main_process(first), main_process(second)) else {
        let help = "record a process: hugepilot record -p PID -o FILE";
        let notice = Notice::warning("a recording has no process, so nothing is compared");
        report.add(Section::new("Comparison", "").with(notice.help(help)));
        return report;
    };
    let pairs = paired(all_measures(first, a), &all_measures(second, b));
    report.summary.push(format!(
        "{} of {} against {} of {}.",
        a.title(),
        names[0],
        b.title(),
        names[1]
    ));
    let system = of_system(first, second);
    report.add(table("Medians and distributions", &pairs, names));
    report.add(system_table(&system, names));
    report.add(certainty([first, second], [a, b]));
    report.add(distributions("Distributions that differ", &pairs, names));
    report.add(distributions("Distributions of the system that differ", &system, names));
    report
}

/// Measures of the system that both have, unless neither has a value.
fn of_system(first: &Timeline, second: &Timeline) -> Vec<(Measure, Measure)> {
    let [a, b] = [first, second].map(|one| measures(&one.head, MetricScope::System, &one.system));
    let mut pairs = paired(a, &b);
    pairs.retain(|(a, b)| !a.values.is_empty() || !b.values.is_empty());
    pairs
}

/// The table of the system, with a notice in place of rows without a value above 0.
fn system_table(pairs: &[(Measure, Measure)], names: [&str; 2]) -> Section {
    let (zero, others): (Vec<_>, Vec<_>) =
        pairs.iter().cloned().partition(|(a, b)| a.is_zero() && b.is_zero());
    if others.is_empty() {
        return Section::default();
    }
    let section = table("Medians and distributions of the system", &others, names);
    section.with_all(zero_notice(zero.iter().map(|(a, _)| a)))
}

/// Measures that both have, by name.
fn paired(first: Vec<Measure>, second: &[Measure]) -> Vec<(Measure, Measure)> {
    let same = |measure: &Measure| second.iter().find(|other| other.name == measure.name).cloned();
    first
        .into_iter()
        .filter_map(|measure| Some((same(&measure)?, measure)).map(|(b, a)| (a, b)))
        .collect()
}

fn distribution(measure: &Measure) -> Option<Distribution> {
    Distribution::of(measure.values.iter().copied())
}

fn table(title: &str, pairs: &[(Measure, Measure)], names: [&str; 2]) -> Section {
    let columns = ["measure", "first median", "second median", "second / first", "distance"];
    let mut table = Table::new(format!("first: {}; second: {}", names[0], names[1]), columns);
    let (mut omitted, mut shares) = (0, Vec::new());
    for (a, b) in pairs {
        let (first, second) = (distribution(a), distribution(b));
        if first.is_none() && second.is_none() {
            omitted += 1;
            continue;
        }
        let cause = |measure: &Measure| {
            measure.missing.clone().unwrap_or_else(|| "no slice has a value".to_owned())
        };
        let middle = |values: &Option<Distribution>| values.as_ref().map(|d| d.quantile(0.5));
        let medians = (middle(&first), middle(&second));
        let ratio = match medians {
            (Some(first), Some(second)) if first > 0.0 => Some(second / first),
            _ => None,
        };
        let distance = first.as_ref().zip(second.as_ref()).map(|(a, b)| a.distance(b));
        table.row(vec![
            a.name.clone().into(),
            Cell::of(medians.0, a.unit, &cause(a)),
            Cell::of(medians.1, b.unit, &cause(b)),
            Cell::of(ratio, Unit::Number, "the first median is missing or 0"),
            Cell::of(distance, Unit::Number, "a recording has no value"),
        ]);
        shares.push(a.counted.min(b.counted));
    }
    let mut text = "The distance is the largest difference between the cumulative distributions \
                    (Kolmogorov and Smirnov): 0 for the same distribution, 1 for distributions \
                    without overlap."
        .to_owned();
    if omitted > 0 {
        let measures = counted(omitted as u64, "measure has", "measures have");
        text += &format!(" {measures} no value in either recording.");
    }
    Section::new(title, text).with(multiplexing::with_counted(table, &shares))
}

/// Limits of what two recordings show.
fn certainty(timelines: [&Timeline; 2], processes: [&ProcessTrack; 2]) -> Section {
    let slices =
        processes.map(|process| process.track.slots().len().max(process.stalls.slots().len()));
    let text = format!(
        "Each recording is one run, with {} and {}. The table describes these two runs; it \
         does not separate the effect of a setting from differences between runs.",
        slices[0],
        counted(slices[1] as u64, "slice", "slices")
    );
    let help = "to test an effect, compare interleaved runs: hugepilot compare -- CMD";
    let mut section = Section::new("Certainty", "").with(Notice::note(text).help(help));
    let mut warn = |text: String| section.blocks.push(Notice::warning(text).into());
    let [a, b] = timelines;
    if a.head.every != b.head.every {
        let seconds = |timeline: &Timeline| Cell::seconds(timeline.head.every.as_seconds()).text();
        let (first, second) = (seconds(a), seconds(b));
        warn(format!("slices of {first} and {second}: shorter ones have wider distributions"));
    }
    if a.head.machine != b.head.machine {
        warn("the recordings are of different machines, kernels or THP settings".to_owned());
    }
    let few = ["first", "second"].into_iter().zip(timelines).filter_map(|(which, timeline)| {
        let notice = multiplexing::warning(timeline)?;
        Some(Notice { text: format!("{which} recording: {}", notice.text), ..notice })
    });
    section.with_all(few)
}

/// Distributions of the measures that differ most.
fn distributions(title: &str, pairs: &[(Measure, Measure)], names: [&str; 2]) -> Section {
    let mut found: Vec<(f64, Plot)> = pairs
        .iter()
        .filter_map(|(a, b)| {
            let (first, second) = (distribution(a)?, distribution(b)?);
            let curve = |values: &Distribution, name: &str| {
                let mut points = values.cdf(CDF_POINTS);
                points.insert(0, (points[0].0, 0.0));
                Curve { name: name.to_owned(), points }
            };
            let curves = vec![
                curve(&first, &format!("first: {}", names[0])),
                curve(&second, &format!("second: {}", names[1])),
            ];
            let (x, y) = ((&*a.name, a.unit), "share of the time at or below it");
            let plot = Plot::distributions(&a.name, x, y, curves);
            Some((first.distance(&second), plot))
        })
        .filter(|(distance, _)| *distance >= NOTABLE)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut section = Section::new(title, "");
    section.blocks.extend(found.into_iter().take(MAX_PLOTS).map(|(_, plot)| plot.into()));
    section
}
