//! Runs of an experiment: which are due, and on which shard.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use hugepilot_stats::Orders;

use super::error::ExperimentError;
use super::runs::{LabMachine, LabRun};
use super::{Experiment, Panel};

/// Cells that run one after the other in one weather: the rounds of a panel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Panel.
    pub panel: Panel,
    /// Name of the weather.
    pub weather: String,
    /// Command lines that hold the weather.
    pub holders: Vec<Vec<String>>,
    /// Runs, in order.
    pub runs: Vec<Due>,
}

/// Run that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Name of the cell.
    pub cell: String,
    /// Round.
    pub round: u32,
    /// Words of the command line.
    pub words: Vec<String>,
    /// Words of the command lines beside it.
    pub beside: Vec<Vec<String>>,
    /// Command lines that run meanwhile, in which pids lack.
    pub act: Vec<String>,
    /// Schema of the JSON object.
    pub schema: String,
    /// Place of the value in the output.
    pub value: String,
    /// Digest of what runs.
    pub digest: String,
}

/// Part of an experiment, for one of several machines or jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number, from 1.
    pub number: u32,
    /// Number of shards.
    pub count: u32,
}

impl Shard {
    /// All.
    pub const WHOLE: Self = Self { number: 1, count: 1 };

    /// Whether the group with this index is in the shard.
    const fn has(self, index: usize) -> bool {
        index % self.count as usize == self.number as usize - 1
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/');
        let parts = parts.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match parts {
            Some((number, count)) if 1 <= number && number <= count => Ok(Self { number, count }),
            _ => Err("not NUMBER/COUNT, such as 1/4 to 4/4".to_owned()),
        }
    }
}

/// The groups of a shard with the runs that `done` lacks, on this machine. A failed run is due
/// again.
///
/// # Errors
/// [`ExperimentError::NoVariable`], if the experiment names one that no panel has.
pub fn plan(
    experiment: &Experiment,
    scale: &str,
    panels: &[Panel],
    shard: Shard,
    done: &[LabRun],
    machine: &LabMachine,
) -> Result<Vec<Group>, ExperimentError> {
    let done = done.iter().filter(|run| run.failed.is_none() && run.machine == *machine);
    let done: BTreeSet<(&str, u32)> = done.map(|run| (&*run.digest, run.round)).collect();
    let mut groups = Vec::new();
    let pairs = panels.iter().flat_map(|panel| experiment.weather.iter().map(move |w| (panel, w)));
    for (index, (panel, weather)) in pairs.enumerate().filter(|(index, _)| shard.has(*index)) {
        let holders = weather.run.iter().map(|line| panel.words(line));
        let holders = holders.collect::<Result<Vec<_>, _>>()?;
        let cells: Vec<_> = experiment.cell.iter().filter(|cell| cell.is_in(weather)).collect();
        let mut runs = Vec::new();
        let orders = Orders::random(cells.len(), index as u64);
        for (round, order) in (0..experiment.rounds).zip(orders) {
            let mut filled = panel.clone();
            filled.set_word("round", (round + 1).to_string());
            for cell in order.into_iter().map(|cell| cells[cell]) {
                let words = filled.words(&cell.run)?;
                let beside = cell.beside.iter().map(|line| filled.words(line));
                let beside = beside.collect::<Result<Vec<_>, _>>()?;
                let schema = cell.schema.as_ref().unwrap_or(&experiment.measure.schema).clone();
                let value = cell.value.as_ref().unwrap_or(&experiment.measure.value);
                let digest = experiment.digest(scale, panel, weather, cell);
                if !done.contains(&(&*digest, round)) {
                    let (act, value) = (cell.act.clone(), value.clone());
                    let cell = cell.name.clone();
                    runs.push(Due { cell, round, words, beside, act, schema, value, digest });
                }
            }
        }
        if !runs.is_empty() {
            let (panel, weather) = (panel.clone(), weather.name.clone());
            groups.push(Group { panel, weather, holders, runs });
        }
    }
    Ok(groups)
}

/// Runs of several files as one, without those that are there twice.
///
/// # Errors
/// [`ExperimentError::Mixed`] if those of an experiment are of several machines, unless `mixed`
/// permits it.
pub fn merge(files: Vec<Vec<LabRun>>, mixed: bool) -> Result<Vec<LabRun>, ExperimentError> {
    let mut merged: BTreeMap<(String, u32, String), LabRun> = BTreeMap::new();
    let mut order = Vec::new();
    let mut machines: BTreeMap<(String, String), Vec<LabMachine>> = BTreeMap::new();
    for run in files.into_iter().flatten() {
        let of = machines.entry((run.experiment.clone(), run.scale.clone())).or_default();
        if !of.contains(&run.machine) {
            of.push(run.machine.clone());
        }
        let key = (run.digest.clone(), run.round, run.machine.text());
        let known = merged.get(&key);
        // A run that succeeded replaces one that failed.
        if known.is_none_or(|known| known.failed.is_some()) {
            if known.is_none() {
                order.push(key.clone());
            }
            merged.insert(key, run);
        }
    }
    if let Some(machines) = machines.into_values().find(|of| of.len() > 1 && !mixed) {
        return Err(ExperimentError::Mixed { machines });
    }
    Ok(order.into_iter().filter_map(|key| merged.remove(&key)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::runs::tests::run;
    use crate::experiment::tests::TEXT;

    fn planned(shard: Shard, done: &[LabRun]) -> Vec<Group> {
        let experiment = Experiment::parse(TEXT, "x").unwrap();
        let panels = experiment.panels("small").unwrap();
        let machine = run("", "", 0, 1.0).machine;
        plan(&experiment, "small", &panels, shard, done, &machine).unwrap()
    }

    fn done(groups: &[Group]) -> Vec<LabRun> {
        let run = |due: &Due| LabRun { digest: due.digest.clone(), ..run("", "", due.round, 1.0) };
        groups.iter().flat_map(|group| &group.runs).map(run).collect()
    }

    #[test]
    fn each_round_of_each_weather_has_every_cell_once() {
        let groups = planned(Shard::WHOLE, &[]);
        assert_eq!(groups.len(), 8, "four panels, two weathers");
        assert_eq!(groups[1].holders[0], ["lab", "pressure", "--leave", "1GiB"]);
        for group in &groups {
            for (round, pair) in (0..3).zip(group.runs.chunks(2)) {
                let mut cells: Vec<&str> = pair.iter().map(|due| &*due.cell).collect();
                cells.sort_unstable();
                assert_eq!(cells, ["base", "thp"]);
                assert!(pair.iter().all(|due| due.round == round));
            }
        }
        let first: BTreeSet<&str> = groups.iter().map(|group| &*group.runs[0].cell).collect();
        assert_eq!(first.len(), 2, "no cell is always first");
    }

    #[test]
    fn what_is_done_is_not_due_and_what_failed_is() {
        let groups = planned(Shard::WHOLE, &[]);
        let mut runs = done(&groups);
        assert_eq!(planned(Shard::WHOLE, &runs), []);
        runs[5].failed = Some("no memory".to_owned());
        let due = planned(Shard::WHOLE, &runs);
        let due: Vec<_> = due.iter().flat_map(|group| &group.runs).collect();
        assert_eq!(due, [&groups[0].runs[5]]);
        runs[5].failed = None;
        runs[5].machine.cpus = 64;
        assert_eq!(planned(Shard::WHOLE, &runs).len(), 1, "another machine");
    }

    #[test]
    fn shards_have_all_groups_once() {
        let whole = planned(Shard::WHOLE, &[]);
        let mut parts: Vec<Group> =
            (1..=3).flat_map(|number| planned(Shard { number, count: 3 }, &[])).collect();
        assert_eq!(parts.len(), whole.len());
        parts.sort_by_key(|part| whole.iter().position(|group| group == part));
        assert_eq!(parts, whole);
        assert_eq!("2/3".parse(), Ok(Shard { number: 2, count: 3 }));
        for wrong in ["0/3", "4/3", "2", "a/b", "1/0"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn merged_files_have_each_run_once_and_of_one_machine() {
        let mut failed = run("none", "base", 0, 1.0);
        failed.failed = Some("ended".to_owned());
        let (first, second) = (run("none", "base", 0, 1.0), run("none", "thp", 0, 2.0));
        let files = vec![vec![failed, second.clone()], vec![first.clone(), second.clone()]];
        assert_eq!(merge(files, false).unwrap(), [first.clone(), second.clone()]);
        let mut other = second.clone();
        other.machine.cpu = "another".to_owned();
        let files = || vec![vec![first.clone()], vec![other.clone()]];
        assert!(merge(files(), false).unwrap_err().to_string().contains("another"));
        assert_eq!(merge(files(), true).unwrap().len(), 2);
    }
}
