//! Plot of the runs as SVG without references: memory, huge pages and ballast over time, and the
//! programs. Pure.

use std::fmt::Write;

use super::record::{Mode, Run, Sample};
use super::summary::{events, number};
use super::table::alike;
use super::timeline::{MIX, SHORTAGES};

const WIDTH: f64 = 980.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
/// Height of a panel with curves, and the space below it.
const PANEL: f64 = 150.0;
const GAP: f64 = 34.0;
/// Height of a program's line.
const BAR: f64 = 18.0;
/// Points of a curve at most.
const POINTS: usize = 450;
const GIB: f64 = (1_u64 << 30) as f64;

/// Colours for light and dark backgrounds.
const STYLE: &str = "\
text { font: 12px sans-serif; fill: #24292f } .small { font-size: 11px; fill: #57606a }
.back { fill: #ffffff } .short { fill: #d29922; opacity: 0.18 } .axis { stroke: #8c959f }
.grid { stroke: #8c959f; opacity: 0.3 } .curve { fill: none; stroke-width: 1.6 }
.never { stroke: #6e7781 } .always { stroke: #cf5b00 } .daemon { stroke: #0969da }
.promoted { fill: #1a7f37 } .split { fill: #a40e8c } .bar { fill: #0969da; opacity: 0.55 }
.idle { fill: #8c959f; opacity: 0.35 } .grow { stroke: #24292f }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .back { fill: #0d1117 }
.never { stroke: #9198a1 } .always { stroke: #f0883e } .daemon { stroke: #4493f8 }
.promoted { fill: #3fb950 } .split { fill: #f778ba } .bar { fill: #4493f8 }
.grow { stroke: #e6edf3 } }
";

/// Draws the first run of each mode.
pub(super) fn svg(runs: &[Run]) -> String {
    let group = alike(runs).into_iter().next().unwrap_or_default();
    let of = |mode| group.iter().copied().find(|run| run.mode == mode);
    let shown: Vec<&Run> = Mode::ALL.into_iter().filter_map(of).collect();
    let height = TOP + 3.0 * (PANEL + GAP) + BAR * MIX.len() as f64 + GAP;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" \
         width=\"{WIDTH:.0}\" height=\"{height:.0}\" role=\"img\">\n\
         <title>hugepilot daemon beside a changing mix of programs</title>\n\
         <style>\n{STYLE}</style>\n<rect class=\"back\" width=\"100%\" height=\"100%\"/>\n"
    );
    let Some(first) = shown.first() else { return text + "</svg>\n" };
    legend(&mut text, &shown);
    let limit = first.limit_bytes as f64 / GIB;
    let mut top = TOP;
    let used = |run: &Run| curve(run, |sample| sample.used_bytes);
    panel(&mut text, &shown, "memory, GiB", top, limit, &used);
    for (share, name) in [(0.8, "high"), (0.65, "low")] {
        let y = top + PANEL * (1.0 - share);
        let x = WIDTH - RIGHT;
        let _ = writeln!(
            text,
            "<path class=\"axis\" stroke-dasharray=\"4 4\" d=\"M{LEFT:.0} {y:.1}H{x:.0}\"/>\n\
             <text class=\"small\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{name} \
             {:.0} %</text>",
            x - 4.0,
            y - 3.0,
            share * 100.0
        );
    }
    top += PANEL + GAP;
    let huge = |run: &Run| curve(run, |sample| sample.huge_bytes);
    // The marks are above the curve.
    let most =
        shown.iter().flat_map(|run| huge(run)).map(|point| point.1).fold(0.1, f64::max) * 1.1;
    panel(&mut text, &shown, "on huge pages, GiB", top, most, &huge);
    if let Some(run) = shown.iter().find(|run| run.mode == Mode::Daemon) {
        marks(&mut text, run, &huge(run), top, most);
    }
    top += PANEL + GAP;
    let wanted = first.ballast.iter().map(|one| one.wanted_bytes as f64 / GIB).fold(0.1, f64::max);
    panel(&mut text, &shown, "ballast, GiB", top, wanted, &ballast);
    top += PANEL + GAP;
    let longest = shown.iter().map(|run| run.seconds).fold(0.0, f64::max);
    programs(&mut text, top, longest);
    text + "</svg>\n"
}

fn legend(text: &mut String, runs: &[&Run]) {
    let mut x = LEFT;
    for run in runs {
        let name = run.mode.name();
        let _ = writeln!(
            text,
            "<path class=\"curve {name}\" d=\"M{x:.0} 16h24\"/><text x=\"{:.0}\" y=\"20\">{name}\
             </text>",
            x + 30.0
        );
        x += 110.0;
    }
    let _ = writeln!(
        text,
        "<path class=\"promoted\" d=\"M{x:.0} 20l5-9 5 9z\"/><text x=\"{:.0}\" y=\"20\">promoted\
         </text>\n<path class=\"split\" d=\"M{:.0} 11l5 9 5-9z\"/><text x=\"{:.0}\" y=\"20\">split\
         </text>\n<rect class=\"short\" x=\"{:.0}\" y=\"9\" width=\"16\" height=\"12\"/>\
         <text x=\"{:.0}\" y=\"20\">memory is short</text>",
        x + 16.0,
        x + 100.0,
        x + 116.0,
        x + 170.0,
        x + 192.0
    );
}

/// Position of a share of the time.
fn x_of(share: f64) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * share
}

/// Position of a value in a panel up to `most`.
fn y_of(value: f64, top: f64, most: f64) -> f64 {
    top + PANEL * (1.0 - (value / most).clamp(0.0, 1.0))
}

/// Curve of a run: shares of the time and GiB.
type Curve<'a> = &'a dyn Fn(&Run) -> Vec<(f64, f64)>;

/// Draws axes, shortages and the curve of each run.
fn panel(text: &mut String, runs: &[&Run], title: &str, top: f64, most: f64, curve: Curve<'_>) {
    shade(text, top, PANEL);
    let (bottom, x) = (top + PANEL, LEFT - 6.0);
    let _ = writeln!(
        text,
        "<path class=\"axis\" fill=\"none\" d=\"M{LEFT:.0} {top:.1}V{bottom:.1}H{:.0}\"/>\n\
         <text x=\"{LEFT:.0}\" y=\"{:.1}\">{title}</text>",
        WIDTH - RIGHT,
        top - 6.0
    );
    for step in ticks(most) {
        let y = y_of(step, top, most);
        let _ = writeln!(
            text,
            "<path class=\"grid\" d=\"M{LEFT:.0} {y:.1}H{:.0}\"/>\
             <text class=\"small\" x=\"{x:.0}\" y=\"{:.1}\" text-anchor=\"end\">{step}</text>",
            WIDTH - RIGHT,
            y + 4.0
        );
    }
    for run in runs {
        let points: Vec<String> = curve(run)
            .into_iter()
            .map(|(at, value)| format!("{:.1} {:.1}", x_of(at), y_of(value, top, most)))
            .collect();
        if !points.is_empty() {
            let (name, line) = (run.mode.name(), points.join("L"));
            let _ = writeln!(text, "<path class=\"curve {name}\" d=\"M{line}\"/>");
        }
    }
}

/// Shades the shortages.
fn shade(text: &mut String, top: f64, height: f64) {
    for (from, to) in SHORTAGES {
        let (x, width) = (x_of(from), x_of(to) - x_of(from));
        let _ = writeln!(
            text,
            "<rect class=\"short\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\"/>"
        );
    }
}

/// Values for up to six lines below `most`.
fn ticks(most: f64) -> Vec<f64> {
    let steps = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];
    let step = steps.into_iter().find(|step| most / step <= 6.0).unwrap_or(most);
    let count = (most / step + 1e-9).floor() as u32;
    (0..=count).map(|index| (f64::from(index) * step * 100.0).round() / 100.0).collect()
}

/// Values of the samples, thinned out.
fn curve(run: &Run, value: fn(&Sample) -> u64) -> Vec<(f64, f64)> {
    let every = run.samples.len().div_ceil(POINTS).max(1);
    let samples = run.samples.iter().step_by(every);
    samples.map(|sample| (sample.at / run.seconds, value(sample) as f64 / GIB)).collect()
}

/// Steps of the ballast, thinned out.
fn ballast(run: &Run) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    for one in &run.ballast {
        points.push((one.from / run.seconds, 0.0));
        let (every, mut last) = (one.held.len().div_ceil(POINTS / 2).max(1), 0.0);
        for (index, &(at, bytes)) in one.held.iter().enumerate() {
            if index % every == 0 || index + 1 == one.held.len() {
                points.push((at / run.seconds, last));
                last = bytes as f64 / GIB;
                points.push((at / run.seconds, last));
            }
        }
        points.extend([(one.to / run.seconds, last), (one.to / run.seconds, 0.0)]);
    }
    points.push((1.0, 0.0));
    points
}

/// Marks promotions and splits of the daemon on its curve.
fn marks(text: &mut String, run: &Run, curve: &[(f64, f64)], top: f64, most: f64) {
    let mut mark = |event: &str, count: &str, class: &str, shape: &str, shift: f64| {
        for line in events(&run.log, event).filter(|line| number(line, count) > 0.0) {
            let at = (number(line, "unix_seconds") - run.unix_seconds) / run.seconds;
            let near = curve.iter().take_while(|point| point.0 <= at).last();
            let y = y_of(near.map_or(0.0, |point| point.1), top, most) + shift;
            let pages = number(line, count);
            let _ = writeln!(
                text,
                "<path class=\"{class}\" d=\"M{:.1} {y:.1}{shape}\"><title>{class} {pages}</title>\
                 </path>",
                x_of(at.clamp(0.0, 1.0)) - 5.0
            );
        }
    };
    mark("promoted", "huge_pages_promoted", "promoted", "l5-9 5 9z", -4.0);
    mark("freed", "huge_pages_split", "split", "l5 9 5-9z", -14.0);
}

/// Draws when each program runs, idles and grows, and the time.
fn programs(text: &mut String, top: f64, seconds: f64) {
    let height = BAR * MIX.len() as f64;
    shade(text, top, height);
    let bar = |class: &str, from: f64, to: f64, y: f64| {
        format!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.0}\"/>",
            x_of(from),
            y + 3.0,
            x_of(to) - x_of(from),
            BAR - 6.0
        )
    };
    for (index, program) in MIX.iter().enumerate() {
        let y = top + BAR * index as f64;
        let _ = writeln!(
            text,
            "<text class=\"small\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 13.0,
            program.name
        );
        let (from, to) = program.idle.unwrap_or((program.end, program.end));
        let _ = writeln!(text, "{}", bar("bar", program.start, from, y));
        if to < program.end {
            let _ = writeln!(text, "{}", bar("idle", from, to, y));
            let _ = writeln!(text, "{}", bar("bar", to, program.end, y));
        }
        for (at, _) in program.grows {
            let x = x_of(*at);
            let _ = writeln!(text, "<path class=\"grow\" d=\"M{x:.1} {y:.1}v{BAR:.0}\"/>");
        }
    }
    for tick in 0..=6 {
        let share = f64::from(tick) / 6.0;
        let minutes = share * seconds / 60.0;
        let label = if tick == 6 { format!("{minutes:.1} min") } else { format!("{minutes:.1}") };
        let _ = writeln!(
            text,
            "<text class=\"small\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            x_of(share).min(WIDTH - RIGHT - 10.0),
            top + height + 16.0
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::tests::run;
    use super::*;

    #[test]
    fn every_mode_has_a_curve_in_every_panel_and_every_program_a_bar() {
        let text = svg(&[run(Mode::Never, 1.0), run(Mode::Daemon, 1.0)]);
        for (mode, curves) in [("never", 4), ("daemon", 4), ("always", 0)] {
            let class = format!("class=\"curve {mode}\"");
            assert_eq!(text.matches(&class).count(), curves, "three panels and the legend: {mode}");
        }
        assert!(MIX.iter().all(|program| text.contains(&format!(">{}</text>", program.name))));
        assert_eq!(text.matches("class=\"bar\"").count(), MIX.len() + 1);
        assert_eq!(text.matches("class=\"idle\"").count(), 1);
        assert_eq!(text.matches("class=\"short\"").count(), 1 + 2 * 4);
    }

    #[test]
    fn elements_are_closed_and_nothing_is_fetched() {
        let text = svg(&[run(Mode::Daemon, 1.0)]);
        for name in ["svg", "text", "style", "title"] {
            let open = text.matches(&format!("<{name}")).count();
            assert_eq!(open, text.matches(&format!("</{name}>")).count(), "{name}");
        }
        assert_eq!(text.matches("http").count(), 1, "only the name space");
        assert!(!text.contains("NaN") && !text.contains("inf"));
        assert!(svg(&[]).ends_with("</svg>\n"));
    }

    #[test]
    fn promotions_and_splits_are_marked_at_their_time() {
        let text = svg(&[run(Mode::Daemon, 1.0)]);
        assert!(text.contains("<title>promoted 7</title>") && text.contains("<title>split 5<"));
        // 10 s of 600 s after the start.
        let x = x_of(10.0 / 600.0) - 5.0;
        assert!(text.contains(&format!("class=\"promoted\" d=\"M{x:.1} ")), "{text}");
    }

    #[test]
    fn a_long_run_is_thinned_out_and_values_stay_in_the_panel() {
        let mut long = run(Mode::Never, 1.0);
        long.samples = vec![Sample::default(); 5000];
        assert!(curve(&long, |sample| sample.used_bytes).len() <= POINTS);
        assert_eq!(y_of(99.0, 100.0, 1.0), 100.0);
        assert_eq!(y_of(0.5, 100.0, 1.0), 100.0 + PANEL / 2.0);
        assert_eq!(ticks(12.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(ticks(0.1), [0.0, 0.05, 0.1]);
    }

    #[test]
    fn the_ballast_is_drawn_in_steps() {
        let points = ballast(&run(Mode::Never, 1.0));
        let wanted = [(0.0, 0.0), (1.0 / 6.0, 0.0), (0.25, 0.0), (0.25, 1.0), (1.0 / 3.0, 1.0)];
        let close =
            |a: &(f64, f64), b: &(f64, f64)| (a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9;
        assert!(points.iter().zip(&wanted).all(|(a, b)| close(a, b)), "{points:?}");
    }
}
