//! Plots as lines of text.

use super::printable;
use crate::model::{Bars, Cell, Chart, Curve, Curves, HeatMap, Scatter, TimePlot, Unit};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Characters of a line.
const WIDTH: usize = 48;
/// Bars at most.
const MAX_BARS: usize = 40;
/// Shades of a cell, from the lightest.
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];
/// Characters of a cell, and cells on each side at most.
const STEP: usize = 3;
const MAX_CELLS: usize = 39;
/// Parts of a range without powers of two.
const PARTS: f64 = 9.0;

/// Rows of a table that sketches a plot, to print: names, sketches, and ranges.
pub(super) fn sketch(chart: &Chart) -> Vec<Vec<String>> {
    let rows = match chart {
        Chart::Time(plot) => time(plot),
        Chart::Curves(plot) => curves(plot),
        Chart::Scatter(plot) => grid(plot),
        Chart::Bars(bars) => bar_rows(bars),
        Chart::HeatMap(map) => heat(map),
        Chart::Flame(_) => Vec::new(),
    };
    rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect()
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

/// Curves on one scale. Those in steps are distributions, with the first coordinates of a quarter,
/// a half and three quarters; others have their ends.
fn curves(plot: &Curves) -> Vec<Vec<String>> {
    let points = plot.curves.iter().flat_map(|curve| &curve.points);
    let most = points.map(|point| point.1).fold(0.0, f64::max);
    let row = |curve: &Curve| {
        let points = &curve.points;
        let own = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let at = |share: f64| {
            let point = points.iter().find(|point| point.1 >= share * own);
            point.map_or("–".to_owned(), |point| shown(point.0, plot.x_unit))
        };
        let end = |point: Option<&(f64, f64)>| {
            point.map_or_else(String::new, |(x, y)| {
                format!("{} at {}", shown(*y, plot.y_unit), shown(*x, plot.x_unit))
            })
        };
        let range = match plot.steps {
            _ if points.is_empty() => "no values".to_owned(),
            true => format!("25 %: {}, 50 %: {}, 75 %: {}", at(0.25), at(0.5), at(0.75)),
            false => format!("{}, {}", end(points.first()), end(points.last())),
        };
        let values: Vec<Option<f64>> = points.iter().map(|point| Some(point.1)).collect();
        vec![curve.name.clone(), line_of(&values, most), range]
    };
    plot.curves.iter().map(row).collect()
}

/// Things of all groups by both values, darker for more: a line for each power of two, or for a
/// part of the range, with the larger values above; below, the other value.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn grid(plot: &Scatter) -> Vec<Vec<String>> {
    let points = || plot.groups.iter().flat_map(|group| &group.points);
    let axis = |unit: Unit, of: fn(&(f64, f64, u64)) -> f64| {
        let values = || points().map(of);
        let most = values().fold(0.0, f64::max);
        let least = if unit == Unit::Log2 { 0.0 } else { values().fold(most, f64::min) };
        let part = if unit == Unit::Log2 { 1.0 } else { ((most - least) / PARTS).max(1e-9) };
        let place = move |value: f64| (((value - least) / part) as usize).min(MAX_CELLS);
        (place(most), place, move |at: usize| shown(least + at as f64 * part, unit))
    };
    let (width, column, x_name) = axis(plot.x_unit, |point| point.0);
    let (height, line, y_name) = axis(plot.y_unit, |point| point.1);
    let mut sums = vec![vec![0; width + 1]; height + 1];
    points().for_each(|&(x, y, count)| sums[line(y)][column(x)] += count);
    let most = sums.iter().flatten().copied().max().unwrap_or(0);
    let cell = |&sum: &u64| {
        let share = (sum as f64).ln_1p() / (most as f64).ln_1p();
        let shade = if sum == 0 { ' ' } else { SHADES[((share * 4.0) as usize).min(3)] };
        shade.to_string().repeat(STEP)
    };
    let row = |(at, sums): (usize, &Vec<u64>)| {
        let name = if at.is_multiple_of(2) { y_name(at) } else { String::new() };
        let cells: String = sums.iter().map(cell).collect();
        vec![name, format!("│{}", cells.trim_end()), String::new()]
    };
    let names = (0..=width).step_by(4).map(|at| format!("{:<1$}", x_name(at), 4 * STEP));
    let names = format!(" {}", names.collect::<String>().trim_end());
    let rows = sums.iter().enumerate().rev().map(row);
    rows.chain([vec![String::new(), names, String::new()]]).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ScatterGroup;

    #[test]
    fn a_grid_has_a_place_for_each_point() {
        let cells = |unit, points: &[(f64, f64, u64)]| -> Vec<String> {
            let groups = vec![ScatterGroup { name: String::new(), points: points.to_vec() }];
            let rows = grid(&Scatter {
                x_name: String::new(),
                x_unit: unit,
                y_name: String::new(),
                y_unit: unit,
                things: String::new(),
                border: 0.0,
                groups,
            });
            let (_, lines) = rows.split_last().expect("the names of the axis");
            lines.iter().map(|row| row[1].clone()).collect()
        };
        assert_eq!(cells(Unit::Log2, &[]), ["│"]);
        assert_eq!(cells(Unit::Count, &[(5.0, 5.0, 1)]), ["│███"], "a range of one value");
        // Beyond the last cell, and below the first.
        let far = cells(Unit::Log2, &[(0.0, 0.0, 1), (1000.0, -3.0, 2)]);
        assert_eq!(far, [format!("│▓▓▓{}███", " ".repeat((MAX_CELLS - 1) * STEP))]);
        assert_eq!(cells(Unit::Count, &[(0.0, 0.0, 1), (90.0, 9.0, 1)]).len(), 10);
    }

    #[test]
    fn a_curve_without_points_has_no_values() {
        let curve = |points: &[(f64, f64)]| {
            let curves = vec![Curve { name: "pcc".to_owned(), points: points.to_vec() }];
            let plot = Curves {
                x_name: String::new(),
                x_unit: Unit::Ratio,
                y_name: String::new(),
                y_unit: Unit::Ratio,
                steps: false,
                curves,
            };
            super::curves(&plot).remove(0)
        };
        assert_eq!(curve(&[]), ["pcc", "", "no values"]);
        let ends = "0.0 % at 0.0 %, 50.0 % at 100.0 %";
        assert_eq!(curve(&[(0.0, 0.0), (1.0, 0.5)]), ["pcc", "▁█", ends]);
    }
}
