//! Statistics of the runs of all modes. Pure.

use hugepilot_stats::{median, sorted};
use serde_json::Value;

use super::record::{Ballast, Mode, Run};
use super::timeline::{MIX, Program, SHORTAGES, is_short, reference_of, windows};

/// Seconds by which the points of a program may miss the end of a window.
const SLACK: f64 = 2.5;
/// CPU time of a program in a window at least, as a share of the window.
const MIN_CPU: f64 = 0.02;

/// Ratios of two modes in the same windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ratio {
    pub(super) median: f64,
    /// 10th percentile.
    pub(super) low: f64,
    /// 90th percentile.
    pub(super) high: f64,
    pub(super) windows: usize,
}

impl Ratio {
    fn of(ratios: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted(ratios.into_iter().filter(|ratio| ratio.is_finite()));
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| sorted[(last as f64 * share).round() as usize];
        let (low, high) = (at(0.1), at(0.9));
        Some(Self { median: median(sorted.iter().copied())?, low, high, windows: sorted.len() })
    }
}

/// Result of a program.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProgramSummary {
    pub(super) program: &'static Program,
    /// Operations per CPU second, relative to the reference, and that relative to `never`.
    pub(super) always: Option<Ratio>,
    pub(super) daemon: Option<Ratio>,
    /// Those of the daemon relative to `always`.
    pub(super) daemon_over_always: Option<Ratio>,
    /// The same while memory is short.
    pub(super) while_short: Option<Ratio>,
    /// All operations of the windows, relative to `never`.
    pub(super) done_always: Option<f64>,
    pub(super) done_daemon: Option<f64>,
    /// Most memory on huge pages, by mode.
    pub(super) huge_bytes: [Option<u64>; 3],
    /// Huge pages that the daemon promoted, and those that it split.
    pub(super) promoted: u64,
    pub(super) split: u64,
}

/// Result of a mode: medians of its runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ModeSummary {
    pub(super) mode: Mode,
    pub(super) runs: usize,
    pub(super) shortages: Vec<Shortage>,
    pub(super) mean_used_bytes: f64,
    pub(super) peak_used_bytes: f64,
    pub(super) mean_huge_bytes: f64,
    pub(super) peak_huge_bytes: f64,
    /// Share of the time in which some task stalled on memory.
    pub(super) stalled_ratio: f64,
    /// CPU time of khugepaged per second.
    pub(super) khugepaged_cpus: f64,
    /// `None` without a daemon.
    pub(super) daemon: Option<DaemonSummary>,
}

/// Ballast in one shortage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shortage {
    pub(super) wanted_bytes: f64,
    /// Bytes held at the end.
    pub(super) held_bytes: f64,
    /// Bytes held on average, relative to the wanted ones: how much, and how early.
    pub(super) mean_ratio: f64,
    /// Share of the time in which it wanted more and the ceiling was reached.
    pub(super) waited_ratio: f64,
}

/// Work and cost of the daemon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DaemonSummary {
    /// CPU time per second.
    pub(super) cpus: f64,
    pub(super) peak_bytes: f64,
    pub(super) promoted: f64,
    pub(super) demoted: f64,
    pub(super) split: f64,
    pub(super) freed_bytes: f64,
    pub(super) recollapses: f64,
}

/// Result of a program in all runs.
pub(super) fn program(runs: &[&Run], program: &'static Program) -> ProgramSummary {
    let [never, always, daemon] = Mode::ALL.map(|mode| windows_of(runs, mode, program));
    let speeds = Mode::ALL.map(|mode| relative(runs, mode, program));
    let seconds = runs.first().map_or(0.0, |run| run.seconds);
    let short: Vec<bool> =
        windows(program, seconds).into_iter().map(|window| is_short(window, seconds)).collect();
    let ratio = |a: Mode, b: Mode, only_short: bool| {
        let pairs = speeds[a as usize].iter().zip(&speeds[b as usize]).zip(&short);
        let counted = pairs.filter(|&(_, &short)| short || !only_short);
        Ratio::of(counted.filter_map(|((a, b), _)| Some((*a)? / (*b)?)))
    };
    let all = |a: &[Option<f64>]| {
        let both = a.iter().zip(&never).filter_map(|(a, b)| Some(((*a)?, (*b)?)));
        let sum = both.fold((0.0, 0.0), |sum, (a, b)| (sum.0 + a, sum.1 + b));
        (sum.1 > 0.0).then(|| sum.0 / sum.1)
    };
    let logs = || runs.iter().filter(|run| run.mode == Mode::Daemon);
    let count = logs().count().max(1) as u64;
    ProgramSummary {
        program,
        always: ratio(Mode::Always, Mode::Never, false),
        daemon: ratio(Mode::Daemon, Mode::Never, false),
        daemon_over_always: ratio(Mode::Daemon, Mode::Always, false),
        while_short: ratio(Mode::Daemon, Mode::Always, true),
        done_always: all(&always),
        done_daemon: all(&daemon),
        huge_bytes: Mode::ALL.map(|mode| most_huge(runs, mode, program)),
        promoted: logs().map(|run| promoted(&run.log, program.name)).sum::<u64>() / count,
        split: logs().map(|run| split(&run.log, program.name)).sum::<u64>() / count,
    }
}

/// Work of a program in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Work {
    per_cpu: f64,
    per_second: f64,
}

/// Operations per CPU second in each window, relative to those of the reference on the same CPU:
/// the median of the runs of a mode. A reference itself is relative to nothing.
fn relative(runs: &[&Run], mode: Mode, program: &Program) -> Vec<Option<f64>> {
    in_windows(runs, mode, program, |run, window| {
        let rate = |program: &Program| Some(work_of(run, program, window)?.per_cpu);
        let base = reference_of(program).map_or(Some(1.0), rate)?;
        Some(rate(program)? / base)
    })
}

/// Operations per second in each window: the median of the runs of a mode.
fn windows_of(runs: &[&Run], mode: Mode, program: &Program) -> Vec<Option<f64>> {
    let value = |run: &Run, window| Some(work_of(run, program, window)?.per_second);
    in_windows(runs, mode, program, value)
}

/// Median of a value of the runs of a mode, in each window of a program.
fn in_windows(
    runs: &[&Run],
    mode: Mode,
    program: &Program,
    value: impl Fn(&Run, (f64, f64)) -> Option<f64>,
) -> Vec<Option<f64>> {
    let of_mode = runs.iter().filter(|run| run.mode == mode);
    // A run has its own length, and the windows are the same shares of all.
    let of_mode: Vec<_> = of_mode.map(|run| (run, windows(program, run.seconds))).collect();
    let count = of_mode.iter().map(|(_, windows)| windows.len()).min().unwrap_or(0);
    let in_window = |index: usize| {
        median(of_mode.iter().filter_map(|(run, windows)| value(run, windows[index])))
    };
    (0..count).map(in_window).collect()
}

/// Work of a program of a run in a window.
fn work_of(run: &Run, program: &Program, (from, to): (f64, f64)) -> Option<Work> {
    let done = run.programs.iter().find(|one| one.name == program.name)?;
    work(&done.points, from, to)
}

/// Work between two times; `None` without points there, or if the program hardly ran.
fn work(points: &[[f64; 3]], from: f64, to: f64) -> Option<Work> {
    let ([begin, none, idle], [end, all, busy]) = (at(points, from)?, at(points, to)?);
    let (cpu, seconds) = (busy - idle, end - begin);
    let ran = seconds > 0.5 * (to - from) && cpu > MIN_CPU * seconds;
    ran.then(|| Work { per_cpu: (all - none) / cpu, per_second: (all - none) / seconds })
}

/// Point nearest to a time.
fn at(points: &[[f64; 3]], time: f64) -> Option<[f64; 3]> {
    let distance = |point: &[f64; 3]| (point[0] - time).abs();
    let nearest = points.iter().min_by(|a, b| distance(a).total_cmp(&distance(b)))?;
    (distance(nearest) <= SLACK).then_some(*nearest)
}

fn most_huge(runs: &[&Run], mode: Mode, program: &Program) -> Option<u64> {
    let of_mode = runs.iter().filter(|run| run.mode == mode);
    let programs = of_mode.flat_map(|run| &run.programs).filter(|one| one.name == program.name);
    programs.flat_map(|one| &one.memory).map(|memory| memory.2).max()
}

/// Result of a mode; `None` without a run.
pub(super) fn mode(runs: &[&Run], mode: Mode) -> Option<ModeSummary> {
    let runs: Vec<&Run> = runs.iter().copied().filter(|run| run.mode == mode).collect();
    let of = |value: &dyn Fn(&Run) -> f64| median(runs.iter().map(|run| value(run)));
    let mean = |run: &Run, value: fn(&super::record::Sample) -> f64| {
        run.samples.iter().map(value).sum::<f64>() / run.samples.len().max(1) as f64
    };
    let peak = |run: &Run, value: fn(&super::record::Sample) -> f64| {
        run.samples.iter().map(value).fold(0.0, f64::max)
    };
    let per_second = |run: &Run, value: fn(&super::record::Sample) -> f64| {
        let (first, last) = (run.samples.first(), run.samples.last());
        let ends = first.zip(last).filter(|(first, last)| last.at > first.at);
        ends.map_or(0.0, |(first, last)| (value(last) - value(first)) / (last.at - first.at))
    };
    Some(ModeSummary {
        mode,
        runs: runs.len(),
        shortages: (0..SHORTAGES.len()).filter_map(|index| shortage(&runs, index)).collect(),
        mean_used_bytes: of(&|run| mean(run, |sample| sample.used_bytes as f64))?,
        peak_used_bytes: of(&|run| peak(run, |sample| sample.used_bytes as f64))?,
        mean_huge_bytes: of(&|run| mean(run, |sample| sample.huge_bytes as f64))?,
        peak_huge_bytes: of(&|run| peak(run, |sample| sample.huge_bytes as f64))?,
        stalled_ratio: of(&|run| per_second(run, |sample| sample.stalled_seconds))?,
        khugepaged_cpus: of(&|run| per_second(run, |sample| sample.khugepaged_cpu_seconds))?,
        daemon: daemon(&runs),
    })
}

/// Medians of a shortage over runs.
fn shortage(runs: &[&Run], index: usize) -> Option<Shortage> {
    let all: Vec<Shortage> =
        runs.iter().filter_map(|run| run.ballast.get(index)).map(shortage_of).collect();
    let of = |value: &dyn Fn(&Shortage) -> f64| median(all.iter().map(value));
    Some(Shortage {
        wanted_bytes: of(&|one| one.wanted_bytes)?,
        held_bytes: of(&|one| one.held_bytes)?,
        mean_ratio: of(&|one| one.mean_ratio)?,
        waited_ratio: of(&|one| one.waited_ratio)?,
    })
}

fn shortage_of(ballast: &Ballast) -> Shortage {
    let wanted = ballast.wanted_bytes as f64;
    let ends = ballast.held.iter().skip(1).map(|step| step.0).chain([ballast.to]);
    let area: f64 =
        ballast.held.iter().zip(ends).map(|(step, end)| step.1 as f64 * (end - step.0)).sum();
    Shortage {
        wanted_bytes: wanted,
        held_bytes: ballast.held.last().map_or(0.0, |step| step.1 as f64),
        mean_ratio: area / (wanted * (ballast.to - ballast.from)),
        waited_ratio: ballast.waited_seconds / (ballast.to - ballast.from),
    }
}

/// Medians of the daemon over runs; `None` if one has no log.
fn daemon(runs: &[&Run]) -> Option<DaemonSummary> {
    let totals: Option<Vec<&Value>> = runs.iter().map(|run| totals(&run.log)).collect();
    let totals = totals?;
    let of = |key: &str| median(totals.iter().map(|line| number(line, key)));
    let cpus = totals.iter().map(|line| number(line, "cpu_seconds") / number(line, "seconds"));
    let demoted = |run: &&Run| {
        events(&run.log, "promoted").map(|line| number(line, "huge_pages_demoted")).sum()
    };
    Some(DaemonSummary {
        cpus: median(cpus)?,
        peak_bytes: median(runs.iter().map(|run| run.daemon_peak_bytes as f64))?,
        promoted: of("huge_pages_promoted")?,
        demoted: median(runs.iter().map(demoted))?,
        split: of("huge_pages_split")?,
        freed_bytes: of("freed_bytes")?,
        recollapses: of("recollapses")?,
    })
}

/// Last line of a log.
fn totals(log: &[Value]) -> Option<&Value> {
    events(log, "stopped").last()
}

/// Lines of a log with this event.
pub(super) fn events<'a>(log: &'a [Value], event: &'a str) -> impl Iterator<Item = &'a Value> {
    log.iter().filter(move |line| line["event"] == event)
}

/// Number in a line of a log; 0 if it is missing.
pub(super) fn number(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or(0.0)
}

/// Huge pages of a program that the daemon promoted.
fn promoted(log: &[Value], name: &str) -> u64 {
    let of_program = events(log, "promoted").filter(|line| line["command"] == name);
    of_program.filter_map(|line| line["huge_pages_promoted"].as_u64()).sum()
}

/// Huge pages of a program that the daemon split.
fn split(log: &[Value], name: &str) -> u64 {
    let processes = events(log, "freed").filter_map(|line| line["processes"].as_array()).flatten();
    let of_program = processes.filter(|process| process["command"] == name);
    of_program.filter_map(|process| process["huge_pages_split"].as_u64()).sum()
}

/// Results of all programs.
pub(super) fn programs(runs: &[&Run]) -> Vec<ProgramSummary> {
    MIX.iter().map(|one| program(runs, one)).collect()
}

#[cfg(test)]
pub(super) mod tests;
