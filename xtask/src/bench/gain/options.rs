//! Arguments of `cargo xtask bench gain`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::super::arguments::{choices, number};
use super::plan;
use super::record::State;
use crate::run::root;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Names of programs; empty for all.
    pub(super) programs: Vec<String>,
    /// Runs of each state of each program.
    pub(super) pairs: usize,
    /// States to measure.
    pub(super) states: Vec<State>,
    /// Seed of the order of states; `None` for a new one.
    pub(super) seed: Option<u64>,
    /// Length of each measured window.
    pub(super) window: Duration,
    /// File to which each run is appended, one line of JSON each.
    pub(super) output: PathBuf,
    /// File of earlier runs to report on, without new ones.
    pub(super) report: Option<PathBuf>,
    /// Further arguments of `hugepilot tune`.
    pub(super) tune: Vec<String>,
}

impl Options {
    pub(super) fn read(args: &[&str]) -> Result<Self> {
        let mut options = Self {
            programs: Vec::new(),
            pairs: plan::ROUNDS,
            states: Vec::new(),
            seed: None,
            window: plan::WINDOW,
            output: root().join(plan::FILE),
            report: None,
            tune: Vec::new(),
        };
        let mut is_named = false;
        let mut words = args.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} takes a value"));
            match word {
                "--pairs" => options.pairs = number(word, value()?)?,
                "--seed" => options.seed = Some(number(word, value()?)?),
                "--window" => options.window = Duration::from_secs(number(word, value()?)?),
                "--output" => (options.output, is_named) = (value()?.into(), true),
                "--report" => options.report = Some(value()?.into()),
                "--state" => {
                    options.states.extend(choices(value()?, "state", &State::ALL, State::name)?)
                }
                "--" => options.tune = words.by_ref().map(|&word| word.to_owned()).collect(),
                _ if word.starts_with('-') => bail!("no such option {word}"),
                _ => options.programs.push(word.to_owned()),
            }
        }
        ensure!(options.pairs > 0, "--pairs takes at least 1");
        ensure!(!options.window.is_zero(), "--window takes at least 1 second");
        if options.states.is_empty() {
            options.states = plan::STATES.to_vec();
        }
        let is_planned = options.states == plan::STATES
            && options.window == plan::WINDOW
            && options.tune.is_empty();
        ensure!(
            is_planned || is_named || options.report.is_some(),
            "runs with another --state, --window or with TUNE_ARGUMENTS are not of the plan: name \
             their file with --output"
        );
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_in_any_order() {
        let args = "redis --pairs 2 --state all,base go-map --seed 7 --output runs";
        let args: Vec<&str> = args.split(' ').collect();
        let options = Options::read(&args).unwrap();
        assert_eq!((options.pairs, options.seed), (2, Some(7)));
        assert_eq!(options.programs, ["redis", "go-map"]);
        assert_eq!(options.states, [State::All, State::Base]);
        assert_eq!(Options::read(&[]).unwrap().states, [State::Tuned, State::All]);
        for wrong in [&["--pairs"][..], &["--pairs", "0"], &["--state", "half"], &["--fast"]] {
            assert!(Options::read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn words_after_two_hyphens_go_to_tune() {
        let args = ["redis", "--output", "runs", "--", "--budget", "100%"];
        let options = Options::read(&args).unwrap();
        assert_eq!(options.tune, ["--budget", "100%"]);
        assert_eq!(options.programs, ["redis"]);
    }

    #[test]
    fn only_runs_of_the_plan_go_to_its_file_by_themselves() {
        let part = Options::read(&["redis", "--pairs", "1", "--seed", "7"]).unwrap();
        assert!(part.output.ends_with(plan::FILE), "{part:?}");
        for other in [&["--state", "base"][..], &["--window", "3"], &["--", "--min-gain", "0"]] {
            assert!(Options::read(other).is_err(), "{other:?}");
        }
    }
}
