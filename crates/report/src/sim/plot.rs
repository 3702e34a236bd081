//! Plots of simulations in text.

use std::fmt::Write;

/// Characters of a bar that stands for everything.
const BAR: f64 = 40.0;
/// Characters of a sketch at most.
const SKETCH: usize = 64;
/// Lines of a plot of curves.
const HEIGHT: usize = 9;
/// Characters between two powers of two.
const STEP: usize = 3;
/// Marks of curves, in their order.
const MARKS: [char; 3] = ['o', '+', 'x'];
/// Shades of a cell, from the lightest.
const SHADES: [char; 4] = ['░', '▒', '▓', '█'];
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Bar of a share, with a mark at another one.
pub(super) fn bar(share: f64, mark: Option<f64>) -> String {
    let (filled, mark) = (cells(share), mark.map(cells));
    let cell = |cell| match cell {
        _ if cell < filled => '█',
        _ if Some(cell) == mark => '|',
        _ => ' ',
    };
    let bar: String = (0..=BAR as usize).map(cell).collect();
    bar.trim_end().to_owned()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn cells(ratio: f64) -> usize {
    (ratio.clamp(0.0, 1.0) * BAR).round() as usize
}

/// A line for each value, with its name and a bar; the longest bar is that of the largest.
pub(super) fn bars(title: &str, values: &[(String, f64, String)]) -> String {
    let most = values.iter().map(|one| one.1).fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let width = values.iter().map(|one| one.0.chars().count()).max().unwrap_or(0);
    let mut text = format!("\n{title}:\n");
    for (name, value, shown) in values {
        let _ = writeln!(text, "{name:>width$}  {} {shown}", bar(value / most, None));
    }
    text
}

/// A character for each value, or for the largest of some neighbours. Values above 0 are visible.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn sketch(values: &[f64]) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let level = |part: &[f64]| match part.iter().copied().fold(0.0, f64::max) {
        value if value > 0.0 => LEVELS[((value / most * 8.0) as usize).min(7)],
        _ => ' ',
    };
    values.chunks(values.len().div_ceil(SKETCH).max(1)).map(level).collect()
}

/// Curves over powers of two: the value at each power. Of curves at one place, the first is shown.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn curves(title: &str, curves: &[(String, Vec<f64>)]) -> String {
    let columns = curves.iter().map(|curve| curve.1.len()).max().unwrap_or(0);
    let most = curves.iter().flat_map(|curve| &curve.1).copied().fold(0.0, f64::max);
    if most <= 0.0 || curves.len() > MARKS.len() {
        return String::new();
    }
    let mut lines = vec![vec![' '; columns * STEP]; HEIGHT];
    for ((_, values), mark) in curves.iter().zip(MARKS).rev() {
        for (column, value) in values.iter().enumerate() {
            let up = (value / most * (HEIGHT - 1) as f64).round() as usize;
            lines[HEIGHT - 1 - up][column * STEP] = mark;
        }
    }
    let names = curves.iter().zip(MARKS).map(|((name, _), mark)| format!("{mark} {name}"));
    let mut text = format!("\n{title}; {}:\n", names.collect::<Vec<_>>().join(", "));
    for (at, line) in lines.iter().enumerate() {
        let percent = most * 100.0 * (HEIGHT - 1 - at) as f64 / (HEIGHT - 1) as f64;
        let line: String = line.iter().collect();
        let _ = writeln!(text, "{percent:>7.2} │{}", line.trim_end());
    }
    let _ = writeln!(text, "         {}", powers(columns));
    text
}

/// Names of every second power of two, below their columns.
fn powers(columns: usize) -> String {
    let name = |power: usize| format!("{:<width$}", power_name(power), width = 2 * STEP);
    let names: String = (0..columns).step_by(2).map(name).collect();
    names.trim_end().to_owned()
}

fn power_name(power: usize) -> String {
    let unit = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][(power / 10).min(6)];
    format!("{}{unit}", 1u64 << (power % 10))
}

/// Cells by two powers of two, darker for more; the square is that of the largest powers.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn grid(title: &str, cells: &[(u32, u32, u64)]) -> String {
    let most = cells.iter().map(|cell| cell.2).max().unwrap_or(0);
    let side =
        |of: fn(&(u32, u32, u64)) -> u32| cells.iter().map(of).max().map_or(0, |top| top + 1);
    let (width, height) = (side(|cell| cell.0) as usize, side(|cell| cell.1) as usize);
    if most == 0 {
        return String::new();
    }
    let mut lines = vec![vec![' '; width * STEP]; height];
    for &(x, y, count) in cells.iter().filter(|cell| cell.2 > 0) {
        let share = (count as f64).ln_1p() / (most as f64).ln_1p();
        let shade = SHADES[((share * 4.0) as usize).min(3)];
        lines[height - 1 - y as usize][x as usize * STEP..][..STEP].fill(shade);
    }
    let mut text = format!("\n{title}:\n");
    for (at, line) in lines.iter().enumerate() {
        let power = height - 1 - at;
        let name = if power.is_multiple_of(2) { power_name(power) } else { String::new() };
        let line: String = line.iter().collect();
        let _ = writeln!(text, "{name:>7} │{}", line.trim_end());
    }
    let _ = writeln!(text, "         {}", powers(width));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_value_is_visible() {
        assert_eq!(sketch(&[0.0, 1e-9, 0.5, 1.0]), " ▁▅█");
        let many: Vec<f64> = (0..65).map(|at| f64::from(u8::from(at == 1))).collect();
        assert_eq!(sketch(&many), format!("█{}", " ".repeat(32)));
    }

    #[test]
    fn without_values_there_is_no_plot() {
        assert_eq!(bars("a", &[("b".to_owned(), 0.0, "0".to_owned())]), "");
        assert_eq!(curves("a", &[("b".to_owned(), vec![0.0])]), "");
        assert_eq!(grid("a", &[]), "");
    }

    #[test]
    fn powers_have_short_names() {
        assert_eq!(
            [0, 9, 10, 19, 20, 63].map(power_name),
            ["1", "512", "1Ki", "512Ki", "1Mi", "8Ei"]
        );
    }
}
