//! SVG: all plots below each other, without a script.

use std::fmt::Write;

use super::escape::xml;
use crate::model::{
    Bars, Block, Cell, Chart, Curves, Flame, HeatMap, Mark, Plot, Report, Scatter, TimePlot, Unit,
};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 880.0;
/// Height of the area inside the axes.
const HEIGHT: f64 = 200.0;
/// Height of a row of a heat map.
const ROW: f64 = 4.0;
/// Height of a bar or a frame with its text.
const LINE: f64 = 20.0;
/// Characters of the name of an event at most.
const MARK: usize = 18;
/// Events without room for their names that are listed at most.
const MAX_UNNAMED: usize = 8;

const STYLE: &str = "text{font:12px sans-serif;fill:#222}.end{text-anchor:end}\
    .title{font-weight:bold;font-size:14px}\
    .axis{stroke:#bbb}.mark{stroke:#777;stroke-dasharray:3 3}.line{fill:none;stroke-width:1.6;\
    stroke-linecap:round}\
    .c0{stroke:#0072b2;fill:#0072b2}.c1{stroke:#d55e00;fill:#d55e00}\
    .c2{stroke:#009e73;fill:#009e73}.c3{stroke:#aa4499;fill:#aa4499}\
    .c4{stroke:#8a6d00;fill:#8a6d00}.c5{stroke:#3aa0d8;fill:#3aa0d8}\
    .c6{stroke:#444;fill:#444}.line{fill:none}.huge{fill:#ff8c1a}";
const DASHES: [&str; 7] = ["", "7 3", "2 2", "9 3 2 3", "", "7 3", "2 2"];

/// Class of the colour and dashes of a line. From the eighth line on, the colours repeat with other
/// dashes.
const fn style(index: usize) -> (usize, &'static str) {
    (index % 7, DASHES[(index + 2 * (index / 7)) % 7])
}

/// All plots of the report as one picture on a white ground.
pub fn svg(report: &Report) -> String {
    let mut drawing = Drawing { body: String::new(), y: 30.0 };
    drawing.text(10.0, 20.0, "title", &report.title);
    for section in &report.sections {
        for block in &section.blocks {
            if let Block::Plot(plot) = block {
                drawing.plot(plot);
            }
        }
    }
    let (height, body) = (drawing.y + 20.0, drawing.body);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\">\n<style>{STYLE}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}

/// Values beside an axis: its ends and quarters, or powers of two.
fn ticks((least, most, unit): (f64, f64, Unit)) -> Vec<f64> {
    if unit == Unit::Log2 {
        let step = ((most - least) / 8.0).ceil().max(1.0);
        let all = (0..).map(|at| least.ceil() + step * f64::from(at));
        return all.take_while(|value| *value <= most).collect();
    }
    [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| least + share * (most - least)).to_vec()
}

/// Radius of a circle that stands for `count` things.
fn radius(count: u64) -> f64 {
    1.5 + 2.0 * (count as f64).ln_1p().sqrt()
}

struct Drawing {
    body: String,
    /// Upper edge of the next plot.
    y: f64,
}

/// Scale of an axis: least and largest value, and where they are.
#[derive(Clone, Copy)]
struct Scale {
    values: (f64, f64),
    places: (f64, f64),
}

impl Scale {
    fn at(self, value: f64) -> f64 {
        let span = self.values.1 - self.values.0;
        let share = if span > 0.0 { (value - self.values.0) / span } else { 0.0 };
        self.places.0 + share * (self.places.1 - self.places.0)
    }
}

fn shown(value: f64, unit: Unit) -> String {
    Cell::of(Some(value), unit, "").text()
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((0.0, 0.0), |(least, most): (f64, f64), value| (least.min(value), most.max(value)))
}

impl Drawing {
    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let text = xml(text);
        let _ =
            writeln!(self.body, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{text}</text>");
    }

    fn plot(&mut self, plot: &Plot) {
        self.y += 24.0;
        self.text(10.0, self.y, "title", &plot.title);
        self.y += 12.0;
        if let Some(absence) = plot.absence() {
            self.text(10.0, self.y + 4.0, "", absence);
            self.y += 16.0;
            return;
        }
        // The text of other plots is longer than a line.
        if matches!(plot.chart, Chart::HeatMap(_)) && !plot.text.is_empty() {
            self.text(10.0, self.y + 4.0, "", &plot.text);
            self.y += 16.0;
        }
        match &plot.chart {
            Chart::Time(chart) => self.time(chart, &plot.title),
            Chart::Curves(chart) => self.curves(chart, &plot.title),
            Chart::Scatter(chart) => self.scatter(chart, &plot.title),
            Chart::Bars(chart) => self.bars(chart),
            Chart::HeatMap(chart) => self.heat(chart),
            Chart::Flame(chart) => self.flame(chart),
        }
    }

    /// Draws axes with their ends and middles, and returns the scales.
    fn axes(&mut self, x: (f64, f64, Unit), y: (f64, f64, Unit)) -> (Scale, Scale) {
        let (top, bottom) = (self.y, self.y + HEIGHT);
        let horizontal = Scale { values: (x.0, x.1), places: (LEFT, RIGHT) };
        let vertical = Scale { values: (y.0, y.1), places: (bottom, top) };
        for value in ticks(y) {
            let place = vertical.at(value);
            let _ = writeln!(
                self.body,
                "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{RIGHT}\" y1=\"{place:.1}\" \
                 y2=\"{place:.1}\"/>"
            );
            self.text(4.0, place + 4.0, "", &shown(value, y.2));
        }
        for value in ticks(x) {
            self.text(horizontal.at(value) - 14.0, bottom + 16.0, "", &shown(value, x.2));
        }
        self.y = bottom + 24.0;
        (horizontal, vertical)
    }

    /// Names the lines. A single line with the name of the plot needs none.
    fn legend(&mut self, title: &str, names: &[String]) {
        let names = if names == [title] { &[] } else { names };
        for (index, name) in names.iter().enumerate() {
            let ((class, dash), y) = (style(index), self.y + 4.0);
            let _ = writeln!(
                self.body,
                "<path class=\"line c{class}\" stroke-dasharray=\"{dash}\" \
                 d=\"M{LEFT} {y:.1}h26\"/>"
            );
            self.text(LEFT + 32.0, y + 4.0, "", name);
            self.y += 16.0;
        }
    }

    fn line(&mut self, index: usize, path: &str) {
        let (class, dash) = style(index);
        let _ = writeln!(
            self.body,
            "<path class=\"line c{class}\" stroke-dasharray=\"{dash}\" d=\"{path}\"/>"
        );
    }

    /// Draws a value between two gaps, which has no line.
    fn point(&mut self, index: usize, x: f64, y: f64) {
        let (class, _) = style(index);
        let _ =
            writeln!(self.body, "<circle class=\"c{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>");
    }

    /// Draws events as dashed lines, with names that do not overlap. Returns the events without
    /// room for their names.
    fn marks(&mut self, marks: &[Mark], x: Scale, (top, bottom): (f64, f64)) -> Vec<String> {
        let (mut free, mut unnamed) = (x.places.0, Vec::new());
        for mark in marks {
            let place = x.at(mark.time_seconds);
            if !(x.places.0..=x.places.1).contains(&place) {
                continue;
            }
            let _ = writeln!(
                self.body,
                "<line class=\"mark\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{top:.1}\" \
                 y2=\"{bottom:.1}\"/>"
            );
            let name: String = mark.name.chars().take(MARK).collect();
            let size = 3.0 + 7.0 * name.chars().count() as f64;
            if place >= free && place + size <= x.places.1 {
                self.text(place + 3.0, top - 1.0, "", &name);
                free = place + size + 7.0;
            } else if place - size >= free {
                self.text(place - 3.0, top - 1.0, "end", &name);
                free = place + 4.0;
            } else {
                unnamed.push(format!("{} {name}", shown(mark.time_seconds, Unit::Seconds)));
            }
        }
        unnamed
    }

    /// Lists the events without room for their names.
    fn unnamed(&mut self, unnamed: &[String]) {
        let more = unnamed.len().saturating_sub(MAX_UNNAMED);
        let more = if more > 0 { format!("; {more} more") } else { String::new() };
        let shown = &unnamed[..unnamed.len().min(MAX_UNNAMED)];
        for (at, line) in shown.chunks(4).enumerate() {
            let is_last = (at + 1) * 4 >= shown.len();
            let line = format!("dashed: {}{}", line.join("; "), if is_last { &more } else { "" });
            self.text(LEFT, self.y + 4.0, "", &line);
            self.y += 16.0;
        }
    }

    fn time(&mut self, chart: &TimePlot, title: &str) {
        let times = &chart.times_seconds;
        let mut below = vec![0.0; times.len()];
        let sums = (0..times.len())
            .map(|at| chart.lines.iter().filter_map(|line| line.values[at]).sum::<f64>());
        let all = chart.lines.iter().flat_map(|line| line.values.iter().copied().flatten());
        let (least, most) = if chart.stacked { range(sums) } else { range(all) };
        let last = times.last().copied().unwrap_or(1.0);
        let (x, y) = self.axes((0.0, last, Unit::Seconds), (least, most, chart.unit));
        for (index, line) in chart.lines.iter().enumerate() {
            let (mut path, mut is_open) = (String::new(), false);
            for (at, (time, value)) in times.iter().zip(&line.values).enumerate() {
                let Some(value) = value else {
                    is_open = false;
                    continue;
                };
                below[at] += value;
                let value = if chart.stacked { below[at] } else { *value };
                let command = if is_open { 'L' } else { 'M' };
                let _ = write!(path, "{command}{:.1} {:.1}", x.at(*time), y.at(value));
                let is_last = line.values.get(at + 1).is_none_or(Option::is_none);
                if is_last && !is_open {
                    self.point(index, x.at(*time), y.at(value));
                }
                is_open = true;
            }
            self.line(index, &path);
        }
        let unnamed = self.marks(&chart.marks, x, (y.places.1, y.places.0));
        self.unnamed(&unnamed);
        let suffix = if chart.stacked { " (on top of those above)" } else { "" };
        let names: Vec<String> = chart
            .lines
            .iter()
            .enumerate()
            .map(|(at, line)| format!("{}{}", line.name, if at > 0 { suffix } else { "" }))
            .collect();
        self.legend(title, &names);
    }

    fn curves(&mut self, chart: &Curves, title: &str) {
        let points = || chart.curves.iter().flat_map(|curve| curve.points.iter());
        let (left, right) = range(points().map(|point| point.0));
        let (least, most) = range(points().map(|point| point.1));
        let (x, y) = self.axes((left, right, chart.x_unit), (least, most, chart.y_unit));
        for (index, curve) in chart.curves.iter().enumerate() {
            let mut path = String::new();
            for (horizontal, vertical) in &curve.points {
                let (px, py) = (x.at(*horizontal), y.at(*vertical));
                let _ = match (path.is_empty(), chart.steps) {
                    (true, _) => write!(path, "M{px:.1} {py:.1}"),
                    (false, true) => write!(path, "H{px:.1}V{py:.1}"),
                    (false, false) => write!(path, "L{px:.1} {py:.1}"),
                };
            }
            self.line(index, &path);
        }
        let axes = format!("across: {}; up: {}", chart.x_name, chart.y_name);
        self.text(LEFT, self.y + 4.0, "", &axes);
        self.y += 16.0;
        let names: Vec<String> = chart.curves.iter().map(|curve| curve.name.clone()).collect();
        self.legend(title, &names);
    }

    /// Draws a circle for each point, with an area by the logarithm of its things.
    fn scatter(&mut self, chart: &Scatter, title: &str) {
        let points = || chart.groups.iter().flat_map(|group| &group.points);
        let (left, right) = range(points().map(|point| point.0));
        let (least, most) = range(points().map(|point| point.1));
        let (x, y) = self.axes((left, right, chart.x_unit), (least, most, chart.y_unit));
        let (px, py) = (x.at(chart.border), y.at(chart.border));
        let (top, bottom) = (y.places.1, y.places.0);
        if (LEFT..=RIGHT).contains(&px) {
            let _ =
                writeln!(self.body, "<path class=\"mark\" d=\"M{px:.1} {top:.1}V{bottom:.1}\"/>");
        }
        if (top..=bottom).contains(&py) {
            let _ = writeln!(self.body, "<path class=\"mark\" d=\"M{LEFT} {py:.1}H{RIGHT}\"/>");
        }
        for (index, group) in chart.groups.iter().enumerate() {
            for &(horizontal, vertical, count) in &group.points {
                let (px, py, radius) = (x.at(horizontal), y.at(vertical), radius(count));
                let _ = writeln!(
                    self.body,
                    "<circle class=\"c{}\" cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"{radius:.1}\" \
                     fill-opacity=\"0.5\"/>",
                    style(index).0
                );
            }
        }
        let axes =
            format!("across: {}; up: {}; circles: {}", chart.x_name, chart.y_name, chart.things);
        self.text(LEFT, self.y + 4.0, "", &axes);
        self.y += 16.0;
        let names: Vec<String> = chart.groups.iter().map(|group| group.name.clone()).collect();
        self.legend(title, &names);
    }

    /// Draws each bar below its name, which may be long, with its range as a line.
    fn bars(&mut self, chart: &Bars) {
        let ends = chart.bars.iter().flat_map(|bar| [bar.value, bar.range.map(|(_, high)| high)]);
        let (_, most) = range(ends.flatten());
        let scale = Scale { values: (0.0, most), places: (10.0, 800.0) };
        for bar in &chart.bars {
            self.text(10.0, self.y + 12.0, "", &bar.name);
            let (y, end) = (self.y + 16.0, scale.at(bar.value.unwrap_or(0.0).max(0.0)));
            let width = end - 10.0;
            let _ = writeln!(
                self.body,
                "<rect class=\"c0\" x=\"10\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"12\"/>"
            );
            let ends = bar.range.map(|(low, high)| (scale.at(low.max(0.0)), scale.at(high)));
            if let Some((low, high)) = ends {
                let y = y + 6.0;
                let _ = writeln!(
                    self.body,
                    "<path class=\"line c1\" d=\"M{low:.1} {y:.1}H{high:.1}\"/>"
                );
            }
            let end = ends.map_or(end, |(_, high)| high.max(end)) + 8.0;
            self.text(end, y + 10.0, "", &Cell::of(bar.value, chart.unit, "").text());
            self.y += 2.0 * LINE;
        }
    }

    fn heat(&mut self, chart: &HeatMap) {
        let (Some(first), Some(last)) = (chart.edges_seconds.first(), chart.edges_seconds.last())
        else {
            return;
        };
        let x = Scale { values: (*first, *last), places: (LEFT, RIGHT) };
        let top = self.y;
        let mut tops = Vec::new();
        for (at, row) in chart.rows.iter().enumerate() {
            if at == 0 || chart.rows[at - 1].area != row.area {
                let area = &chart.areas[row.area];
                self.y += LINE;
                let y = self.y - 5.0;
                self.text(LEFT, y, "", &format!("{} at {:#x}", area.name, area.start));
            }
            tops.push(self.y);
            self.y += ROW;
        }
        let most = chart.cells.iter().map(|cell| cell.2).max().unwrap_or(1);
        for cell in &chart.cells {
            let (column, Some(y)) = (cell.0 as usize, tops.get(cell.1 as usize)) else { continue };
            let (start, end) =
                (x.at(chart.edges_seconds[column]), x.at(chart.edges_seconds[column + 1]));
            let share = f64::from(cell.2).ln_1p() / f64::from(most).ln_1p();
            let width = end - start;
            let _ = writeln!(
                self.body,
                "<rect x=\"{start:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{ROW}\" \
                 fill=\"#08519c\" fill-opacity=\"{:.2}\"/>",
                0.15 + 0.85 * share
            );
            if u64::from(cell.3) * 2 > u64::from(cell.2) {
                let y = y + ROW - 1.2;
                let _ = writeln!(
                    self.body,
                    "<rect class=\"huge\" x=\"{start:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                     height=\"1.2\"/>"
                );
            }
        }
        let unnamed = self.marks(&chart.marks, x, (top, self.y));
        self.text(LEFT, self.y + 14.0, "", &shown(*first, Unit::Seconds));
        self.text(RIGHT - 30.0, self.y + 14.0, "", &shown(*last, Unit::Seconds));
        self.text(
            LEFT + 200.0,
            self.y + 14.0,
            "",
            "darker: more stall samples; orange: huge pages",
        );
        self.y += LINE;
        self.unnamed(&unnamed);
    }

    fn flame(&mut self, chart: &Flame) {
        let roots = chart.nodes.iter().filter(|node| node.parent.is_none());
        let total: u64 = roots.map(|node| node.samples).sum();
        let scale = Scale { values: (0.0, total as f64), places: (10.0, RIGHT) };
        // Depth and first sample of each frame, and samples of its callees so far.
        let mut places: Vec<(f64, u64, u64)> = Vec::new();
        let (mut roots, mut deepest) = (0, 0.0_f64);
        for node in &chart.nodes {
            let (depth, start) = match node.parent {
                None => (0.0, {
                    roots += node.samples;
                    roots - node.samples
                }),
                Some(parent) => {
                    let (depth, start, used) = &mut places[parent];
                    let at = *start + *used;
                    *used += node.samples;
                    (*depth + 1.0, at)
                }
            };
            places.push((depth, start, 0));
            let (left, right) = (scale.at(start as f64), scale.at((start + node.samples) as f64));
            if right - left < 1.0 {
                continue;
            }
            deepest = deepest.max(depth + 1.0);
            let (y, width) = (self.y + depth * LINE, right - left);
            let share = shown(node.samples as f64 / total as f64, Unit::Ratio);
            let title = xml(&format!("{}: {} samples, {share}", node.name, node.samples));
            let _ = writeln!(
                self.body,
                "<g><title>{title}</title><rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                 height=\"18\" fill=\"#9ecae1\" stroke=\"#fff\"/>"
            );
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let fits = (width / 7.0) as usize;
            if fits > 3 {
                let name: String = node.name.chars().take(fits).collect();
                self.text(left + 3.0, y + 13.0, "", &name);
            }
            self.body.push_str("</g>\n");
        }
        self.y += deepest * LINE;
    }
}
