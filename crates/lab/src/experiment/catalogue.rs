//! Experiments that come with hugepilot.

use super::{Experiment, ExperimentError};

/// Names and definitions, in order of `lab list`.
const ALL: [(&str, &str); 33] = [
    ("tlb", include_str!("catalogue/tlb.toml")),
    ("tlb-walks", include_str!("catalogue/tlb-walks.toml")),
    ("arrays", include_str!("catalogue/arrays.toml")),
    ("order", include_str!("catalogue/order.toml")),
    ("pressure", include_str!("catalogue/pressure.toml")),
    ("fragmentation", include_str!("catalogue/fragmentation.toml")),
    ("selective", include_str!("catalogue/selective.toml")),
    ("page-cache", include_str!("catalogue/page-cache.toml")),
    ("reorder", include_str!("catalogue/reorder.toml")),
    ("pcc-utility", include_str!("catalogue/pcc-utility.toml")),
    ("pcc-size", include_str!("catalogue/pcc-size.toml")),
    ("pcc-fragmented", include_str!("catalogue/pcc-fragmented.toml")),
    ("pcc-threads", include_str!("catalogue/pcc-threads.toml")),
    ("pcc-processes", include_str!("catalogue/pcc-processes.toml")),
    ("pcc-programs", include_str!("catalogue/pcc-programs.toml")),
    ("hot-set", include_str!("catalogue/hot-set.toml")),
    ("prefetch", include_str!("catalogue/prefetch.toml")),
    ("bandwidth", include_str!("catalogue/bandwidth.toml")),
    ("scaling", include_str!("catalogue/scaling.toml")),
    ("gain", include_str!("catalogue/gain.toml")),
    ("scarce", include_str!("catalogue/scarce.toml")),
    ("debloat", include_str!("catalogue/debloat.toml")),
    ("fairness", include_str!("catalogue/fairness.toml")),
    ("bloat-free", include_str!("catalogue/bloat-free.toml")),
    ("census", include_str!("catalogue/census.toml")),
    ("overhead", include_str!("catalogue/overhead.toml")),
    ("graph-peers", include_str!("catalogue/graph-peers.toml")),
    ("allocators", include_str!("catalogue/allocators.toml")),
    ("malloc-peers", include_str!("catalogue/malloc-peers.toml")),
    ("stream-peers", include_str!("catalogue/stream-peers.toml")),
    ("latency-peers", include_str!("catalogue/latency-peers.toml")),
    ("sim-speed", include_str!("catalogue/sim-speed.toml")),
    ("startup", include_str!("catalogue/startup.toml")),
];

/// All experiments.
///
/// # Errors
/// None: a test parses each of them.
pub fn all() -> Result<Vec<Experiment>, ExperimentError> {
    ALL.iter().map(|(name, text)| Experiment::parse(text, name)).collect()
}

/// The experiment of this name; `None` if there is none.
///
/// # Errors
/// As [`all`].
pub fn named(name: &str) -> Result<Option<Experiment>, ExperimentError> {
    let found = ALL.iter().find(|(known, _)| *known == name);
    found.map(|(name, text)| Experiment::parse(text, name)).transpose()
}

/// Names of all experiments.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_experiment_has_its_name_a_small_scale_and_variables_for_all_lines() {
        for ((name, _), experiment) in ALL.iter().zip(all().unwrap()) {
            assert_eq!(experiment.name, *name);
            assert!(experiment.scale["small"].minutes <= 15.0, "{name}");
            let prepared = experiment.file.iter().map(|file| &file.name);
            let known = prepared.chain(experiment.probe.iter().map(|probe| &probe.name));
            let known = known.chain(experiment.tool.iter().map(|tool| &tool.name));
            let known: Vec<&String> = known.collect();
            for mut panel in
                experiment.scale.keys().flat_map(|name| experiment.panels(name).unwrap())
            {
                for name in known
                    .iter()
                    .map(|name| name.to_string())
                    .chain(["hugepilot", "round", "pid", "pids"].map(String::from))
                {
                    panel.set_word(&name, "x".to_owned());
                }
                let files = experiment.file.iter().flat_map(|file| [&file.run, &file.file]);
                let held = experiment.weather.iter().flat_map(|weather| &weather.run);
                let lines = experiment
                    .cell
                    .iter()
                    .flat_map(|cell| cell.beside.iter().chain(&cell.act).chain([&cell.run]));
                for line in lines.chain(held).chain(files) {
                    assert!(panel.words(line).is_ok(), "{name}: {line}");
                }
            }
        }
    }
}
