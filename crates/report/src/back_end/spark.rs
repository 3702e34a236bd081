//! Plots as lines of text.

use crate::model::{Bars, Cell, Chart, Curves, HeatMap, Scatter, TimePlot, Unit};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Characters of a line.
const WIDTH: usize = 48;
/// Bars at most.
const MAX_BARS: usize = 40;

/// Rows of a table that sketches a plot: names, sketches, and ranges.
pub(super) fn sketch(chart: &Chart) -> Vec<Vec<String>> {
    match chart {
        Chart::Time(plot) => time(plot),
        Chart::Curves(curves) => quartiles(curves),
        Chart::Scatter(plot) => quadrants(plot),
        Chart::Bars(bars) => bar_rows(bars),
        Chart::HeatMap(map) => heat(map),
        Chart::Flame(_) => Vec::new(),
    }
}

fn shown(value: f64, unit: Unit) -> String {
    Cell::of(Some(value), unit, "").text()
}

fn time(plot: &TimePlot) -> Vec<Vec<String>> {
    let row = |line: &crate::model::TimeLine| {
        let finite: Vec<f64> = line.values.iter().copied().flatten().collect();
        let least = finite.iter().copied().fold(f64::INFINITY, f64::min);
        let most = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let range = match finite[..] {
            [] => "no values".to_owned(),
            _ => format!("{} to {}", shown(least, plot.unit), shown(most, plot.unit)),
        };
        vec![line.name.clone(), line_of(&line.values, most), range]
    };
    plot.lines.iter().map(row).collect()
}

/// A character for each part of the values: the mean of the part, from 0 to `most`.
fn line_of(values: &[Option<f64>], most: f64) -> String {
    let step = values.len().div_ceil(WIDTH).max(1);
    let part = |part: &[Option<f64>]| {
        let finite: Vec<f64> = part.iter().copied().flatten().collect();
        if finite.is_empty() {
            return ' ';
        }
        level(finite.iter().sum::<f64>() / finite.len() as f64, most)
    };
    values.chunks(step).map(part).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn level(value: f64, most: f64) -> char {
    let share = if most > 0.0 { (value / most).clamp(0.0, 1.0) } else { 0.0 };
    LEVELS[((share * 8.0) as usize).min(7)]
}

/// First coordinates at which each curve passes a quarter, a half and three quarters.
fn quartiles(curves: &Curves) -> Vec<Vec<String>> {
    let row = |curve: &crate::model::Curve| {
        let most = curve.points.iter().map(|point| point.1).fold(0.0, f64::max);
        let at = |share: f64| {
            let point = curve.points.iter().find(|point| point.1 >= share * most);
            point.map_or("–".to_owned(), |point| shown(point.0, curves.x_unit))
        };
        let values: Vec<Option<f64>> = curve.points.iter().map(|point| Some(point.1)).collect();
        let range = format!("25 %: {}, 50 %: {}, 75 %: {}", at(0.25), at(0.5), at(0.75));
        vec![curve.name.clone(), line_of(&values, most), range]
    };
    curves.curves.iter().map(row).collect()
}

/// Things of each group on each side of both borders.
fn quadrants(plot: &Scatter) -> Vec<Vec<String>> {
    let border = shown(plot.border, plot.x_unit);
    let sides = |is_left: bool, is_low: bool| {
        let side = |is_below: bool| if is_below { "below" } else { "from" };
        format!(
            "{} {} {border}, {} {} {border}",
            plot.x_name,
            side(is_left),
            plot.y_name,
            side(is_low)
        )
    };
    let rows = |group: &crate::model::ScatterGroup| {
        let all: u64 = group.points.iter().map(|point| point.2).sum();
        let row = |is_left: bool, is_low: bool| {
            let is_in = |point: &&(f64, f64, u64)| {
                (point.0 < plot.border) == is_left && (point.1 < plot.border) == is_low
            };
            let count: u64 = group.points.iter().filter(is_in).map(|point| point.2).sum();
            let share = shown(count as f64 / all.max(1) as f64, Unit::Ratio);
            vec![group.name.clone(), sides(is_left, is_low), share]
        };
        [(true, true), (true, false), (false, true), (false, false)].map(|(x, y)| row(x, y))
    };
    plot.groups.iter().flat_map(rows).collect()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bar_rows(bars: &Bars) -> Vec<Vec<String>> {
    let most = bars.bars.iter().filter_map(|bar| bar.value).fold(0.0, f64::max);
    let row = |bar: &crate::model::Bar| {
        let share = bar.value.map_or(0.0, |value| if most > 0.0 { value / most } else { 0.0 });
        let length = (share.max(0.0) * WIDTH as f64).round() as usize;
        let value = Cell::of(bar.value, bars.unit, "").text();
        vec![bar.name.clone(), "█".repeat(length.min(WIDTH)), value]
    };
    bars.bars.iter().take(MAX_BARS).map(row).collect()
}

/// Heat of each address range over time.
fn heat(map: &HeatMap) -> Vec<Vec<String>> {
    let columns = map.edges_seconds.len().saturating_sub(1);
    let mut sums = vec![vec![0.0; columns]; map.areas.len()];
    for cell in &map.cells {
        let area = map.rows.get(cell.1 as usize).and_then(|row| sums.get_mut(row.area));
        if let Some(sum) = area.and_then(|area| area.get_mut(cell.0 as usize)) {
            *sum += f64::from(cell.2);
        }
    }
    let most = sums.iter().flatten().copied().fold(0.0, f64::max);
    let row = |(area, sums): (&crate::model::Area, &Vec<f64>)| {
        let values: Vec<Option<f64>> =
            sums.iter().map(|sum| (*sum > 0.0).then_some(*sum)).collect();
        let total = shown(sums.iter().sum(), Unit::Count);
        let samples = if total == "1" { "sample" } else { "samples" };
        let name = format!("{} at {:#x}", area.name, area.start);
        vec![name, line_of(&values, most), format!("{total} {samples}")]
    };
    map.areas.iter().zip(&sums).map(row).collect()
}
