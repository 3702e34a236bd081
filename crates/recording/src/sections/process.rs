//! Sections of a process.

use hugepilot_render::model::{
    Cell, Chart, Flame, FlameNode, Notice, Plot, Report, Section, Table, TimeLine, TimePlot, Unit,
};
use hugepilot_render::table::counted;
use hugepilot_units::Nanos;

use super::{all_measures, marks, memory, phases, signature, threads};
use crate::areas::with_address;
use crate::code::{CodeTrack, base_name, frame_name};
use crate::measures::Measure;
use crate::timeline::{ProcessTrack, Timeline};
use crate::track::Track;

/// Lines of a plot at most, so that colours differ.
pub(crate) const MAX_LINES: usize = 7;
/// Points of a line over time at most.
pub(super) const MAX_POINTS: usize = 2000;
/// Rows of a table of code at most.
const MAX_CODE: usize = 40;
/// Least share of the heat for a row of its own.
const MIN_SHARE: f64 = 0.001;
/// Frames of a flame graph at most.
const MAX_FRAMES: usize = 3000;
/// Units of plots over time, in their order. Bytes are in the plot of the memory.
const UNITS: [Unit; 5] =
    [Unit::Ratio, Unit::PerSecond, Unit::BytesPerSecond, Unit::Number, Unit::Count];

/// Adds the sections of a process.
pub(super) fn sections(
    timeline: &Timeline,
    process: &ProcessTrack,
    report: &mut Report,
    is_one_of_many: bool,
) {
    let measures = all_measures(timeline, process);
    let first = report.sections.len();
    let head = |what: &str| match is_one_of_many {
        true => format!("{}: {}", process.title(), what.to_lowercase()),
        false => what.to_owned(),
    };
    report.add(heat(timeline, process, head("Heat by address and time")));
    report.add(memory::section(timeline, process, head("Memory by page kind")));
    if !timeline.is_simulated() {
        report.add(over_time(timeline, process, &measures, head("Measures over time")));
    }
    // Rounds have no even slices.
    if timeline.head.every > Nanos::ZERO {
        let every = timeline.head.every.as_seconds();
        let coarse = if signature::is_fine(every) { coarse(timeline, process) } else { Vec::new() };
        let title = head("Application signature");
        report.add(signature::section(title, every, &measures, &coarse));
    }
    report.add(phases::section(timeline, process, &measures, head("Phases")));
    report.add(code(process, head("Code that waits, and its memory")));
    report.add(threads::section(timeline, process, head("Threads")));
    if is_one_of_many {
        report.sections[first..].iter_mut().for_each(|section| section.group = process.title());
    }
}

/// Measures over longer slices.
fn coarse(timeline: &Timeline, process: &ProcessTrack) -> Vec<Measure> {
    let mut coarse = process.clone_tracks();
    coarse.track = process.track.resliced(signature::COARSE);
    coarse.stalls = process.stalls.resliced(signature::COARSE);
    all_measures(timeline, &coarse)
}

fn heat(timeline: &Timeline, process: &ProcessTrack, title: String) -> Section {
    let huge = timeline.head.machine.huge_page_bytes.max(1);
    let ranges = process.areas.ranges();
    let end = process.track.slots().last().map_or(0.0, |slot| slot.end);
    let Some((mut map, outside)) = process.heat.map(&ranges, huge, end) else {
        return Section::default();
    };
    map.marks = marks(timeline);
    let text = "Each cell has the stall samples at scattered accesses to its addresses. Rows \
                without samples between mappings are not shown.";
    // Only back ends that draw the map print the text of a plot.
    let legend = "Orange lines mark cells whose samples were on huge pages.".to_owned();
    let mut table = Table::new("Heat by mapping", ["mapping", "heat", "share of the heat"]);
    let total = process.heat.total() as f64;
    let mut row = |name: String, heat: u64| {
        let share = Some(heat as f64 / total);
        let heat = Cell::of(Some(heat as f64), Unit::Count, "");
        table.row(vec![name.into(), heat, Cell::of(share, Unit::Ratio, "")]);
    };
    let names = process.heat.by_name(&ranges, huge);
    let is_shown = |(_, heat): &&(String, u64)| *heat as f64 >= MIN_SHARE * total;
    let shown = names.iter().take(20).filter(is_shown).count();
    names[..shown].iter().for_each(|(name, heat)| row(name.clone(), *heat));
    let rest: u64 = names[shown..].iter().map(|(_, heat)| heat).sum();
    if rest > 0 {
        row(counted(names.len() as u64 - shown as u64, "other", "others"), rest);
    }
    let title_of_plot = "Stall samples by address and time".to_owned();
    let plot = Plot { title: title_of_plot, text: legend, chart: Chart::HeatMap(map) };
    let section = Section::new(title, text).with_all(unsampled(timeline, process, end));
    let section = section.with(plot).with(table);
    if outside == 0 {
        return section;
    }
    let outside = counted(outside, "sample is", "samples are");
    section.with(Notice::note(format!("{outside} outside the shown addresses")))
}

/// A notice of the time before `end` in which a command with rounds did not sample.
fn unsampled(timeline: &Timeline, process: &ProcessTrack, end: f64) -> Option<Notice> {
    let last = process.heat.end().filter(|_| !timeline.rounds.rows.is_empty())?;
    let seconds = |value| Cell::seconds(value).text();
    (end - last > timeline.head.every.as_seconds()).then(|| {
        let (last, end) = (seconds(last), seconds(end));
        Notice::note(format!(
            "the samples end at {last}, with the last round; the recording of the process ends at \
             {end}"
        ))
    })
}

/// A plot of columns over time, of the slices that have a value; neighbours are averaged beyond a
/// number of points.
pub(crate) fn time_plot(
    track: &Track,
    lines: &[(&str, &[f64])],
    unit: Unit,
    stacked: bool,
    timeline: &Timeline,
) -> Chart {
    // Metrics are read at times of their own: the other slices would be gaps in their lines.
    let has_value = |at: &usize| lines.iter().any(|(_, values)| values[*at].is_finite());
    let slots: Vec<usize> = (0..track.slots().len()).filter(has_value).collect();
    let end = |at: usize| track.slots()[at].end;
    let is_step = |a: usize, b: usize| {
        lines.iter().any(|(_, values)| values[a].is_finite() && values[b].is_finite())
    };
    // Metrics with slices of other lengths have slots of their own. A step has two points.
    let is_one = |&a: &usize, &b: &usize| end(a) == end(b) && !is_step(a, b);
    let moments: Vec<&[usize]> = slots.chunk_by(is_one).collect();
    let step = moments.len().div_ceil(MAX_POINTS).max(1);
    let value = |moment: &&[usize], values: &[f64]| {
        moment.iter().rev().map(|&at| values[at]).find(|value| value.is_finite())
    };
    let mean = |moments: &[&[usize]], values: &[f64]| {
        let known: Vec<f64> = moments.iter().filter_map(|one| value(one, values)).collect();
        (!known.is_empty()).then(|| rounded(known.iter().sum::<f64>() / known.len() as f64))
    };
    let line = |(name, values): &(&str, &[f64])| TimeLine {
        name: (*name).to_owned(),
        values: moments.chunks(step).map(|moments| mean(moments, values)).collect(),
    };
    let times = moments.chunks(step).map(|moments| end(moments[moments.len() - 1][0]));
    Chart::Time(TimePlot {
        unit,
        stacked,
        times_seconds: times.map(rounded).collect(),
        lines: lines.iter().map(line).collect(),
        marks: marks(timeline),
    })
}

/// Six significant digits: more would only lengthen the report.
#[allow(clippy::cast_possible_truncation)]
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powi(5 - value.abs().log10().floor() as i32);
    if scale.is_finite() && scale > 0.0 { (value * scale).round() / scale } else { value }
}

/// Plots of the stall samples and of the metrics.
fn over_time(
    timeline: &Timeline,
    process: &ProcessTrack,
    measures: &[Measure],
    title: String,
) -> Section {
    let mut section = Section::new(title, "");
    let (stalls, others): (Vec<_>, Vec<_>) = measures.iter().partition(|one| is_of_stalls(one));
    let stalls = stalls.into_iter().filter(|one| is_drawn(one));
    let lines: Vec<_> = stalls.map(|one: &Measure| (&*one.name, &*one.values)).collect();
    if !lines.is_empty() {
        let chart = time_plot(&process.stalls, &lines, Unit::Ratio, false, timeline);
        let text = String::new();
        section.blocks.push(Plot { title: "Stall samples".to_owned(), text, chart }.into());
    }
    let plots = time_plots(timeline, &process.track, &others, &UNITS);
    section.with_all(plots).with_all(zero_notice(measures))
}

/// Plots of the measures of a track with these units, unless they are 0 throughout.
pub(super) fn time_plots(
    timeline: &Timeline,
    track: &Track,
    measures: &[&Measure],
    units: &[Unit],
) -> Vec<Plot> {
    let mut plots = Vec::new();
    for &unit in units {
        let of_unit = measures.iter().copied().filter(|one| one.unit == unit && is_drawn(one));
        for group in groups(of_unit.collect()) {
            let labels: Vec<String> = group.iter().map(|one| one.label()).collect();
            let values = group.iter().map(|one| &*one.values);
            let lines: Vec<_> = labels.iter().map(|label| &**label).zip(values).collect();
            let chart = time_plot(track, &lines, unit, false, timeline);
            let names: Vec<&str> = group.iter().map(|one| &*one.name).collect();
            plots.push(Plot::new(names.join(", "), chart));
        }
    }
    plots
}

fn is_drawn(measure: &Measure) -> bool {
    !measure.values.is_empty() && !measure.is_zero()
}

/// A notice with the measures that have no plot, because they are 0 throughout.
pub(crate) fn zero_notice<'a>(measures: impl IntoIterator<Item = &'a Measure>) -> Option<Notice> {
    let zero = measures.into_iter().filter(|measure| measure.is_zero());
    let names: Vec<&str> = zero.map(|measure| &*measure.name).collect();
    (!names.is_empty()).then(|| Notice::note(format!("0 in every slice: {}", names.join(", "))))
}

/// Measures of similar size, so that each is visible in its plot, and read about as often, so that
/// no line has gaps where another one has values.
fn groups(mut measures: Vec<&Measure>) -> Vec<Vec<&Measure>> {
    let peak = |measure: &Measure| {
        let finite = measure.values.iter().filter(|value| value.is_finite());
        finite.fold(0.0_f64, |most, value| most.max(value.abs()))
    };
    let reads = |measure: &Measure| measure.values.iter().filter(|one| one.is_finite()).count();
    let fits = |most: &Measure, measure: &Measure| {
        let (few, many) = (reads(most).min(reads(measure)), reads(most).max(reads(measure)));
        peak(most) <= 20.0 * peak(measure) && 4 * many <= 5 * few
    };
    measures.sort_by(|a, b| peak(b).total_cmp(&peak(a)));
    let mut groups: Vec<Vec<&Measure>> = Vec::new();
    for measure in measures {
        match groups.last_mut() {
            Some(group) if group.len() < MAX_LINES && fits(group[0], measure) => {
                group.push(measure);
            }
            _ => groups.push(vec![measure]),
        }
    }
    groups
}

fn is_of_stalls(measure: &Measure) -> bool {
    matches!(&*measure.name, "stall_ratio" | "addressed_samples_ratio")
}

fn code(process: &ProcessTrack, title: String) -> Section {
    let code = &process.code;
    let total = code.samples();
    if total == 0 {
        return Section::default();
    }
    let table = code_table(process, total);
    let text = "The share counts all samples in this table and beyond it. Streamed accesses read \
                memory in order, so they need few translations. The instruction is that of the \
                line with the most samples; its share is of the samples of the line.";
    let section = Section::new(title, text);
    let called = code.samples_with_callers();
    if called == 0 {
        return section.with(table);
    }
    let share = Cell::ratio(called as f64 / total as f64).text();
    let text = format!(
        "Callers are above the frames that they call; the width is the share of the samples. \
         {share} of the samples have callers."
    );
    let chart = Chart::Flame(flame(code));
    let plot = Plot { title: "Flame graph of stalls".to_owned(), text, chart };
    section.with(plot).with(table)
}

/// Lines of the code that wait, and for which memory. `total`: samples of all code.
fn code_table(process: &ProcessTrack, total: u64) -> Table {
    let columns = [
        "function",
        "source",
        "instruction",
        "its share",
        "waits for",
        "samples",
        "share",
        "streamed",
    ];
    let mut table = Table::new("Stall samples by source line and mapping", columns);
    let ranges = process.areas.ranges();
    for row in process.code.by_line(&ranges).into_iter().take(MAX_CODE) {
        let source = match (&row.frame.source, &row.frame.object) {
            (Some((file, line)), _) => format!("{file}:{line}"),
            (None, Some(object)) => base_name(object).to_owned(),
            (None, None) => String::new(),
        };
        let memory = row.mapping.map(|name| match row.start {
            Some(start) => format!("{name} at {start:#x}"),
            None => with_address(&ranges, name),
        });
        let ratio = |part: u64, whole: u64| Some(part as f64 / whole as f64);
        let hottest = row.hottest.map_or_else(|| "-".to_owned(), |(ip, _)| format!("{ip:#x}"));
        let its_share = row.hottest.and_then(|(_, samples)| ratio(samples, row.samples));
        table.row(vec![
            frame_name(row.frame).into(),
            source.into(),
            hottest.into(),
            Cell::of(its_share, Unit::Ratio, "no instruction is recorded"),
            memory.unwrap_or_else(|| "[unknown address]".to_owned()).into(),
            Cell::count(row.samples),
            Cell::of(ratio(row.samples, total), Unit::Ratio, ""),
            Cell::of(ratio(row.streamed, row.samples), Unit::Ratio, "no samples"),
        ]);
    }
    table
}

/// Stacks as a tree, the outermost caller first.
fn flame(code: &CodeTrack) -> Flame {
    let mut nodes: Vec<FlameNode> = Vec::new();
    let mut index = std::collections::HashMap::new();
    let mut order: Vec<usize> = (0..code.stacks.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(code.totals[at].0));
    for at in order {
        let samples = code.totals[at].0;
        let mut parent = None;
        for frame in code.stacks[at].frames.iter().rev() {
            let name = frame_name(frame);
            let node = match index.get(&(parent, name.clone())) {
                Some(&node) => node,
                None if nodes.len() < MAX_FRAMES => {
                    index.insert((parent, name.clone()), nodes.len());
                    nodes.push(FlameNode { name, parent, samples: 0 });
                    nodes.len() - 1
                }
                None => break,
            };
            nodes[node].samples += samples;
            parent = Some(node);
        }
    }
    Flame { nodes }
}
