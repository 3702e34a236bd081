//! Verdict on the claim of an experiment, by its runs.

use std::collections::{BTreeMap, BTreeSet};

use hugepilot_reports::experiment::{
    BandReport, CellReport, ExperimentReport, ExperimentVerdict, FailedRuns,
};
use hugepilot_stats::{Ratios, Spread, fairness};

use super::runs::LabRun;
use super::{Band, Experiment, ExperimentError, MeasureUnit, Panel, Speedup};

/// Share of CPU time taken by the hypervisor from which a run counts as noisy.
const NOISY: f64 = 0.05;
/// Least gain of which shares are taken: those of less are chance.
const LEAST_GAIN: f64 = 0.02;

/// The report of an experiment on the runs of one scale. Runs of other experiments, scales and
/// command lines do not count.
///
/// # Errors
/// [`ExperimentError::NoScale`].
pub fn judge(
    experiment: &Experiment,
    scale: &str,
    runs: &[LabRun],
) -> Result<ExperimentReport, ExperimentError> {
    let panels = experiment.panels(scale)?;
    let mut stated = BTreeSet::new();
    for (panel, weather, cell) in experiment.places(&panels) {
        stated.insert(experiment.digest(scale, panel, weather, cell));
    }
    let is_own = |run: &&LabRun| run.round < experiment.rounds && stated.contains(&run.digest);
    let runs = Runs { experiment, runs: runs.iter().filter(is_own).collect() };
    let panels: Vec<String> = panels.iter().map(Panel::name).collect();
    let due = stated.len() as u64 * u64::from(experiment.rounds);
    let cells: Vec<CellReport> = panels.iter().flat_map(|panel| runs.cells(panel)).collect();
    let bands: Vec<BandReport> = panels
        .iter()
        .flat_map(|panel| experiment.band.iter().map(|band| runs.band(panel, band)))
        .collect();
    let times = runs.runs.iter().map(|run| run.unix_seconds);
    Ok(ExperimentReport {
        name: experiment.name.clone(),
        claim: experiment.claim.clone(),
        source: experiment.source.clone(),
        scale: scale.to_owned(),
        unit: match experiment.measure.unit {
            MeasureUnit::Seconds | MeasureUnit::Nanoseconds => "seconds",
            MeasureUnit::PerSecond => "per_second",
            MeasureUnit::Speedup => "speedup",
            MeasureUnit::Count => "count",
        }
        .to_owned(),
        verdict: verdict(&bands),
        due_runs: due,
        runs: runs.runs.len() as u64,
        noisy_runs: runs.runs.iter().filter(|run| run.steal_ratio > Some(NOISY)).count() as u64,
        first_unix_seconds: times.clone().min(),
        last_unix_seconds: times.max(),
        failed: runs.failed(),
        cells,
        bands,
    })
}

fn verdict(bands: &[BandReport]) -> ExperimentVerdict {
    let known: Vec<bool> = bands.iter().filter_map(|band| band.met).collect();
    match known.iter().filter(|&&met| met).count() {
        _ if known.is_empty() => ExperimentVerdict::NotMeasured,
        met if met == bands.len() => ExperimentVerdict::Reproduced,
        0 => ExperimentVerdict::NotReproduced,
        _ => ExperimentVerdict::InPart,
    }
}

struct Runs<'a> {
    experiment: &'a Experiment,
    runs: Vec<&'a LabRun>,
}

impl Runs<'_> {
    /// Runs with a value of a cell by machine and round; of those that were repeated, the last.
    fn of(&self, panel: &str, weather: &str, cell: &str) -> BTreeMap<(String, u32), &LabRun> {
        let is_it =
            |run: &&&LabRun| run.panel == panel && run.weather == weather && run.cell == cell;
        let good = self.runs.iter().filter(is_it).filter(|run| run.value().is_some());
        good.map(|&run| ((run.machine.text(), run.round), run)).collect()
    }

    /// The values of these runs.
    fn values(&self, panel: &str, weather: &str, cell: &str) -> BTreeMap<(String, u32), f64> {
        self.values_of(1, panel, weather, cell)
    }

    /// The values of a program of these runs.
    fn values_of(
        &self,
        program: usize,
        panel: &str,
        weather: &str,
        cell: &str,
    ) -> BTreeMap<(String, u32), f64> {
        let runs = self.of(panel, weather, cell).into_iter();
        runs.filter_map(|(key, run)| Some((key, run.value_of(program)?))).collect()
    }

    /// Speedups of a cell over another one in the rounds that have both.
    fn ratios(&self, panel: &str, weather: &str, cell: &str, over: &str) -> Ratios {
        self.ratios_of(1, panel, weather, [cell, over])
    }

    /// Speedups of a program in a cell over the same one in another cell.
    fn ratios_of(&self, program: usize, panel: &str, weather: &str, cells: [&str; 2]) -> Ratios {
        let [this, that] = cells.map(|cell| self.values_of(program, panel, weather, cell));
        let rounds = this.iter().filter_map(|(round, this)| Some((*this, *that.get(round)?)));
        Ratios::of(rounds.map(|(this, that)| match self.experiment.measure.unit {
            MeasureUnit::Seconds | MeasureUnit::Nanoseconds | MeasureUnit::Count => that / this,
            MeasureUnit::PerSecond | MeasureUnit::Speedup => this / that,
        }))
    }

    fn cells(&self, panel: &str) -> Vec<CellReport> {
        let base = &self.experiment.cell[0].name;
        let mut cells = Vec::new();
        for weather in &self.experiment.weather {
            for cell in &self.experiment.cell {
                let values = self.values(panel, &weather.name, &cell.name);
                let Some(value) = Spread::of(&values.values().copied().collect::<Vec<_>>()) else {
                    continue;
                };
                let speedup = self.ratios(panel, &weather.name, &cell.name, base);
                // Further values belong to the usual value of a run, not to another one.
                let also = cell.value.is_none();
                let also = also.then(|| self.also(panel, &weather.name, &cell.name));
                cells.push(CellReport {
                    panel: panel.to_owned(),
                    weather: weather.name.clone(),
                    cell: cell.name.clone(),
                    runs: values.len() as u64,
                    value,
                    speedup: speedup.spread().filter(|_| cell.name != *base),
                    published_speedup: cell.published.get(&weather.name).copied(),
                    also: also.unwrap_or_default(),
                });
            }
        }
        cells
    }

    /// Medians of the further values of a cell.
    fn also(&self, panel: &str, weather: &str, cell: &str) -> BTreeMap<String, f64> {
        let runs = self.of(panel, weather, cell);
        let of = |name: &String| {
            hugepilot_stats::median(runs.values().filter_map(|run| run.values.get(name).copied()))
        };
        let names = self.experiment.measure.also.keys();
        names.filter_map(|name| Some((name.clone(), of(name)?))).collect()
    }

    /// The median speedup that a band names.
    fn speedup(&self, panel: &str, speedup: &Speedup) -> Option<f64> {
        self.speedup_of(1, panel, speedup)
    }

    fn speedup_of(&self, program: usize, panel: &str, speedup: &Speedup) -> Option<f64> {
        let Speedup { cell, over, weather } = speedup;
        let over = &self.experiment.cell[self.experiment.cell_of(over.as_deref())].name;
        let weather = &self.experiment.weather[self.experiment.weather_of(weather.as_deref())].name;
        let ratios = self.ratios_of(program, panel, weather, [cell, over]);
        ratios.median().filter(|_| ratios.count() >= self.experiment.rounds as usize)
    }

    /// Fairness of the slowdowns of all programs of a cell.
    fn fairness(&self, panel: &str, speedup: &Speedup) -> Option<f64> {
        let cell = &self.experiment.cell[self.experiment.cell_of(Some(&speedup.cell))];
        let slowdown = |program| Some(1.0 / self.speedup_of(program, panel, speedup)?);
        let slowdowns = (1..=cell.beside.len() + 1).map(slowdown).collect::<Option<Vec<_>>>()?;
        fairness(&slowdowns).map(|fair| fair.fairness_ratio)
    }

    fn band(&self, panel: &str, band: &Band) -> BandReport {
        let speedup = self.speedup(panel, &band.speedup);
        let mut is_small = false;
        let value = match (&band.also, &band.share_of) {
            (Some(name), _) => {
                let Speedup { cell, weather, .. } = &band.speedup;
                let weather = self.experiment.weather_of(weather.as_deref());
                let weather = &self.experiment.weather[weather].name;
                self.also(panel, weather, cell).get(name).copied()
            }
            (None, None) if band.fairness => self.fairness(panel, &band.speedup),
            (None, None) => speedup,
            (None, Some(whole)) => {
                let whole = self.speedup(panel, whole);
                is_small = whole.is_some_and(|whole| whole - 1.0 < LEAST_GAIN);
                let whole = whole.filter(|_| !is_small);
                speedup.zip(whole).map(|(part, whole)| (part - 1.0) / (whole - 1.0))
            }
        };
        let is_within = |value: f64| {
            band.at_least.is_none_or(|least| value >= least)
                && band.at_most.is_none_or(|most| value <= most)
        };
        BandReport {
            panel: panel.to_owned(),
            claim: band.claim.clone(),
            is_share: band.also.is_none() && band.share_of.is_some(),
            is_gain_small: is_small,
            value,
            at_least: band.at_least,
            at_most: band.at_most,
            published: band.published,
            met: value.map(is_within),
        }
    }

    /// Failed runs that no later run of the same round replaced, by cause.
    fn failed(&self) -> Vec<FailedRuns> {
        let mut failed: Vec<FailedRuns> = Vec::new();
        for run in &self.runs {
            let Some(cause) = &run.failed else { continue };
            let key = (run.machine.text(), run.round);
            if self.of(&run.panel, &run.weather, &run.cell).contains_key(&key) {
                continue;
            }
            let is_it = |one: &&mut FailedRuns| {
                one.panel == run.panel
                    && one.weather == run.weather
                    && one.cell == run.cell
                    && one.cause == *cause
            };
            match failed.iter_mut().find(is_it) {
                Some(one) => one.runs += 1,
                None => failed.push(FailedRuns {
                    panel: run.panel.clone(),
                    weather: run.weather.clone(),
                    cell: run.cell.clone(),
                    cause: cause.clone(),
                    runs: 1,
                }),
            }
        }
        failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::runs::tests::run;
    use crate::experiment::tests::TEXT;

    /// Runs of `base` and `thp` without scarcity and with it, by round.
    fn runs(thp: [f64; 3], scarce: [f64; 3]) -> Vec<LabRun> {
        let mut runs = Vec::new();
        let experiment = Experiment::parse(TEXT, "x").unwrap();
        let panel = &experiment.panels("small").unwrap()[0];
        let run = |weather: &str, cell: &str, round, value| {
            let place = [experiment.weather_of(Some(weather)), experiment.cell_of(Some(cell))];
            let (of, cell_of) = (&experiment.weather[place[0]], &experiment.cell[place[1]]);
            let digest = experiment.digest("small", panel, of, cell_of);
            LabRun { digest, ..run(weather, cell, round, value) }
        };
        for round in 0..3 {
            // The machine becomes slower from round to round.
            let drift = f64::from(round + 1);
            let index = round as usize;
            runs.push(run("none", "base", round, 3.0 * drift));
            runs.push(run("none", "thp", round, 3.0 * drift / thp[index]));
            runs.push(run("scarce", "base", round, 3.0 * drift));
            runs.push(run("scarce", "thp", round, 3.0 * drift / scarce[index]));
        }
        runs
    }

    fn judged(runs: &[LabRun]) -> ExperimentReport {
        judge(&Experiment::parse(TEXT, "x").unwrap(), "small", runs).unwrap()
    }

    #[test]
    fn speedups_are_taken_within_rounds_and_bands_of_their_medians() {
        let report = judged(&runs([1.4, 1.5, 1.6], [1.2, 1.3, 1.1]));
        let thp = &report.cells[1];
        let speedup = thp.speedup.unwrap();
        assert!((speedup.median - 1.5).abs() < 1e-9 && (speedup.max - 1.6).abs() < 1e-9);
        assert_eq!(report.cells[0].speedup, None, "the base");
        let band = &report.bands[0];
        assert!((band.value.unwrap() - 0.4).abs() < 1e-9, "{band:?}");
        assert_eq!((band.met, report.verdict), (Some(false), ExperimentVerdict::NotReproduced));
        let report = judged(&runs([1.4, 1.5, 1.6], [1.2, 1.3, 1.4]));
        assert_eq!(report.bands[0].met, Some(true));
        assert_eq!(report.verdict, ExperimentVerdict::InPart, "the other panels have no runs");
        assert_eq!((report.runs, report.due_runs, report.noisy_runs), (12, 48, 0));
        assert_eq!(report.cells[3].published_speedup, Some(1.02));
    }

    #[test]
    fn programs_of_a_cell_are_slowed_down_evenly_or_not() {
        let text = TEXT.replacen("published =", "beside = [\"a\", \"b\"]\npublished =", 1);
        let text =
            text.replacen("run = \"graph run", "beside = [\"a\", \"b\"]\nrun = \"graph run", 1);
        let share = "share_of = { cell = \"thp\", weather = \"none\" }";
        let experiment =
            Experiment::parse(&text.replacen(share, "fairness = true", 1), "x").unwrap();
        let panel = &experiment.panels("small").unwrap()[0];
        let mut all = runs([1.5; 3], [1.0; 3]);
        for run in &mut all {
            let of = &experiment.weather[experiment.weather_of(Some(&run.weather))];
            let cell = &experiment.cell[experiment.cell_of(Some(&run.cell))];
            run.digest = experiment.digest("small", panel, of, cell);
            let value = run.values["value"];
            // By hand: slowdowns 1, 1 and 4, so σ/μ is √2/2.
            let slow = if run.cell == "thp" { 4.0 } else { 1.0 };
            run.values.extend([("value2".to_owned(), value), ("value3".to_owned(), slow * value)]);
        }
        let fairness = |all: &[LabRun]| judge(&experiment, "small", all).unwrap().bands[0].value;
        assert!((fairness(&all).unwrap() - (1.0 - 0.5_f64.sqrt())).abs() < 1e-9);
        all.iter_mut().for_each(|run| _ = run.values.remove("value3"));
        assert_eq!(fairness(&all), None);
    }

    #[test]
    fn without_a_gain_there_is_no_share_of_it() {
        let report = judged(&runs([1.01; 3], [1.01; 3]));
        assert!(report.bands[0].met.is_none() && report.bands[0].is_gain_small);
        assert_eq!(report.verdict, ExperimentVerdict::NotMeasured);
    }

    #[test]
    fn failed_runs_have_their_cause_until_they_are_repeated() {
        let mut all = runs([1.5; 3], [1.2; 3]);
        (all[3].failed, all[3].values) = (Some("no memory".to_owned()), Default::default());
        let report = judged(&all);
        assert_eq!((report.failed.len(), report.failed[0].runs), (1, 1));
        assert_eq!(report.cells[3].runs, 2);
        let mut again = all[3].clone();
        (again.failed, again.values) = (None, all[7].values.clone());
        all.push(again);
        let report = judged(&all);
        assert_eq!((report.failed.len(), report.cells[3].runs), (0, 3));
        let mut other = all[0].clone();
        other.digest = "0".to_owned();
        all.push(other);
        assert_eq!(judged(&all).runs, 13, "another command line is another run");
    }
}
