//! Statistics of the runs of a program. Pure.

use hugepilot_stats::{Spread, median};
use serde_json::Value;

use super::super::pairs::spread_of;
use super::record::{Run, State};

/// All-huge gain above which tuning must gain, too.
const GAIN: f64 = 1.05;
/// All-huge gain below which tuning must keep nothing.
const NO_GAIN: f64 = 1.01;

/// Class of a program by its all-huge gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Truth {
    /// Above 5 %.
    Gain,
    /// From 1 to 5 %: no verdict is wrong.
    Small,
    /// Below 1 %.
    None,
}

/// Events among trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) events: usize,
    pub(super) of: usize,
}

impl Count {
    fn of(events: impl IntoIterator<Item = bool>) -> Self {
        let add =
            |sum: Self, event| Self { events: sum.events + usize::from(event), of: sum.of + 1 };
        events.into_iter().fold(Self::default(), add)
    }

    /// Sum of counts.
    pub(super) fn sum(counts: impl IntoIterator<Item = Self>) -> Self {
        let add =
            |sum: Self, one: Self| Self { events: sum.events + one.events, of: sum.of + one.of };
        counts.into_iter().fold(Self::default(), add)
    }

    /// Share of the events; `None` without trials.
    pub(super) fn ratio(self) -> Option<f64> {
        (self.of > 0).then(|| self.events as f64 / self.of as f64)
    }
}

/// Classes of runs by the claim of `tune` and the truth. Each run is in one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// Said gain where there is one, or none where there is none.
    pub(super) right: usize,
    pub(super) wrong: usize,
    /// The trial stayed open.
    pub(super) open: usize,
    /// `tune` had no verdict, or its trial was void.
    pub(super) cannot_tell: usize,
    /// Gain of 1 to 5 %: nothing that `tune` says is wrong.
    pub(super) small: usize,
    /// No process was wholly huge, so the gain is unknown.
    pub(super) unknown: usize,
}

impl Signs {
    fn of<'a>(runs: impl Iterator<Item = &'a Run>, truth: Option<Truth>) -> Self {
        let mut signs = Self::default();
        for run in runs {
            let class = match (truth, claim(run)) {
                (None, _) => &mut signs.unknown,
                (Some(Truth::Small), _) => &mut signs.small,
                (_, Claim::Open) => &mut signs.open,
                (_, Claim::CannotTell) => &mut signs.cannot_tell,
                (Some(truth), claim) if (truth == Truth::Gain) == (claim == Claim::Gain) => {
                    &mut signs.right
                }
                _ => &mut signs.wrong,
            };
            *class += 1;
        }
        signs
    }

    /// Sum of counts.
    pub(super) fn sum(all: impl IntoIterator<Item = Self>) -> Self {
        all.into_iter().fold(Self::default(), |sum, one| Self {
            right: sum.right + one.right,
            wrong: sum.wrong + one.wrong,
            open: sum.open + one.open,
            cannot_tell: sum.cannot_tell + one.cannot_tell,
            small: sum.small + one.small,
            unknown: sum.unknown + one.unknown,
        })
    }

    /// Right ones among all runs that have a right sign; open ones are not right.
    pub(super) const fn count(self) -> Count {
        let Self { right, wrong, open, cannot_tell, .. } = self;
        Count { events: right, of: right + wrong + open + cannot_tell }
    }
}

/// Claim of `tune` about the gain in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    Gain,
    NoGain,
    Open,
    CannotTell,
}

/// Bracket of a prediction, or medians of several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bracket {
    pub(super) low: f64,
    pub(super) median: f64,
    pub(super) high: f64,
}

/// Result of a program. Gains are speeds relative to the twin, after over before.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Summary {
    pub(super) program: String,
    pub(super) runs: usize,
    /// Noise: gain of processes to which nothing happened.
    pub(super) base: Option<Spread>,
    /// Gain that tuned processes would have had wholly on huge pages.
    pub(super) all: Option<Spread>,
    pub(super) tuned: Option<Spread>,
    pub(super) truth: Option<Truth>,
    /// Share of the all-huge gain that tuning reached. `None` for gains of at most 5 %.
    pub(super) share: Option<Spread>,
    /// Bytes on huge pages in a tuned process, and after its rest was promoted.
    pub(super) tuned_huge_bytes: Option<f64>,
    pub(super) all_huge_bytes: Option<f64>,
    /// Tuned processes that kept huge pages.
    pub(super) kept: Count,
    /// Time until regions with 90 % of the promoted stalls were huge, and until `tune` ended.
    pub(super) promotion_seconds: Option<Spread>,
    pub(super) tune_seconds: Option<Spread>,
    /// Prediction of the model.
    pub(super) model: Option<Bracket>,
    /// Bracket of the trial.
    pub(super) trial: Option<Bracket>,
    /// Ratio of stall times in the trial.
    pub(super) trial_ratio: Option<f64>,
    /// Gain that `tune` itself reports.
    pub(super) achieved: Option<f64>,
    /// Runs whose achieved gain lies in their bracket.
    pub(super) inside: Count,
    /// The same, with brackets widened by the spread of processes to which nothing happened.
    /// `None` without such processes.
    pub(super) inside_noise: Option<Count>,
    /// Runs without a bracket.
    pub(super) without_bracket: usize,
    /// Width of the bracket of each run that has one, and the same over the gain of the run.
    pub(super) widths: Vec<(f64, f64)>,
    /// Runs by whether they distinguished a gain from none.
    pub(super) signs: Signs,
}

impl Summary {
    /// Summarises the runs of one program.
    pub(super) fn of(runs: &[&Run]) -> Self {
        let base = gains(runs, State::Base);
        let deviations = base.iter().map(|gain| gain.ln().abs());
        let noise = deviations.max_by(f64::total_cmp).map(f64::exp);
        let pairs = pairs(runs);
        let all = spread_of(pairs.iter().map(|&(_, all)| all));
        let tuned: Vec<&Run> = of_state(runs, State::Tuned).collect();
        let truth = all.map(|all| class(all.median));
        let inside = |noise: f64| {
            Count::of(tuned.iter().filter_map(|run| {
                let Bracket { low, high, .. } = bracket(run)?;
                Some((low / noise..=high * noise).contains(&run.gain()))
            }))
        };
        let report = |path: &str| median(tuned.iter().filter_map(|run| number(run, path)));
        Self {
            program: runs.first().map_or_else(String::new, |run| run.program.clone()),
            runs: tuned.len(),
            base: Spread::of(&base),
            all,
            tuned: Spread::of(&gains(runs, State::Tuned)),
            truth,
            share: spread_of(pairs.iter().map(|&(tuned, all)| (tuned - 1.0) / (all - 1.0)))
                .filter(|_| truth == Some(Truth::Gain)),
            tuned_huge_bytes: median(tuned.iter().map(|run| run.huge_after_bytes as f64)),
            all_huge_bytes: median(tuned.iter().filter_map(|run| Some(run.all?.huge_bytes as f64))),
            kept: Count::of(tuned.iter().map(|run| run.keeps_huge_pages())),
            promotion_seconds: spread_of(
                tuned.iter().filter_map(|run| number(run, "/most_promoted_seconds")),
            ),
            tune_seconds: spread_of(tuned.iter().map(|run| run.apply_seconds)),
            model: brackets(tuned.iter().filter_map(|run| at(run, "/eligible_speedup"))),
            trial: brackets(tuned.iter().filter_map(|run| trial_bracket(run))),
            trial_ratio: report("/trial/ratio"),
            achieved: median(tuned.iter().filter_map(|run| {
                number(run, "/achieved").or_else(|| number(run, "/achieved/median"))
            })),
            inside: inside(1.0),
            inside_noise: noise.map(inside),
            without_bracket: tuned.iter().filter(|run| bracket(run).is_none()).count(),
            widths: tuned.iter().filter_map(|run| width(run)).collect(),
            signs: Signs::of(tuned.iter().copied(), truth),
        }
    }
}

fn of_state<'a>(runs: &[&'a Run], state: State) -> impl Iterator<Item = &'a Run> {
    runs.iter().copied().filter(move |run| run.state == state)
}

fn gains(runs: &[&Run], state: State) -> Vec<f64> {
    of_state(runs, state).map(Run::gain).collect()
}

/// Gain of each tuned run, with the gain that it would have had wholly on huge pages. If no run of
/// any round was wholly huge, that is the gain in its last window, by which the machine may have
/// drifted.
fn pairs(runs: &[&Run]) -> Vec<(f64, f64)> {
    let has_all = of_state(runs, State::All).next().is_some();
    let all_gain = |tuned: &Run| {
        let is_beside = |all: &&Run| (all.seed, all.round) == (tuned.seed, tuned.round);
        match has_all {
            true => tuned.all_gain(of_state(runs, State::All).find(is_beside)?),
            false => tuned.last_gain(),
        }
    };
    let pair = |tuned: &Run| Some((tuned.gain(), all_gain(tuned)?));
    of_state(runs, State::Tuned).filter_map(pair).collect()
}

fn class(gain: f64) -> Truth {
    if gain > GAIN {
        Truth::Gain
    } else if gain < NO_GAIN {
        Truth::None
    } else {
        Truth::Small
    }
}

/// Value in the report of `tune`.
fn at<'a>(run: &'a Run, path: &str) -> Option<&'a Value> {
    run.tune.as_ref()?.pointer(path).filter(|value| !value.is_null())
}

fn number(run: &Run, path: &str) -> Option<f64> {
    at(run, path)?.as_f64()
}

/// Bracket of the trial, or of the model without a trial.
fn bracket(run: &Run) -> Option<Bracket> {
    parsed(at(run, "/predicted_speedup")?)
}

/// Bracket of the trial.
fn trial_bracket(run: &Run) -> Option<&Value> {
    let is_trial = at(run, "/predicted_by").and_then(Value::as_str) == Some("trial");
    is_trial.then(|| at(run, "/predicted_speedup")).flatten()
}

fn parsed(value: &Value) -> Option<Bracket> {
    let field = |name: &str| value.get(name)?.as_f64();
    let (low, high) = (field("low")?, field("high")?);
    let median = field("median").unwrap_or_else(|| low.midpoint(high));
    Some(Bracket { low, median, high })
}

fn brackets<'a>(values: impl Iterator<Item = &'a Value>) -> Option<Bracket> {
    let all: Vec<Bracket> = values.filter_map(parsed).collect();
    let part = |of: fn(&Bracket) -> f64| median(all.iter().map(of));
    Some(Bracket { low: part(|b| b.low)?, median: part(|b| b.median)?, high: part(|b| b.high)? })
}

/// Width of the bracket, and the same over the gain of the run.
fn width(run: &Run) -> Option<(f64, f64)> {
    let Bracket { low, high, .. } = bracket(run)?;
    Some((high - low, (high - low) / (run.gain() - 1.0).abs()))
}

/// The claim of `tune` by its trial, or, if there was none, by the huge pages that the model let it
/// keep.
fn claim(run: &Run) -> Claim {
    let is_void = at(run, "/trial/confirmed").and_then(Value::as_bool) == Some(false);
    if run.tune.is_none() || at(run, "/no_verdict").is_some() || is_void {
        return Claim::CannotTell;
    }
    match at(run, "/trial/verdict").and_then(Value::as_str) {
        Some("gain") => Claim::Gain,
        Some("no_gain") => Claim::NoGain,
        Some(_) => Claim::Open,
        None if run.keeps_huge_pages() => Claim::Gain,
        None => Claim::NoGain,
    }
}

#[cfg(test)]
mod tests;
