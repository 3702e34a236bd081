//! Arguments of `cargo xtask bench gain`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::super::arguments::{choices, number};
use super::record::State;

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
    pub(super) output: Option<PathBuf>,
    /// File of earlier runs to report on, without new ones.
    pub(super) report: Option<PathBuf>,
    /// Further arguments of `hugepilot tune`.
    pub(super) tune: Vec<String>,
}

impl Options {
    pub(super) fn read(args: &[&str]) -> Result<Self> {
        let mut options = Self {
            programs: Vec::new(),
            pairs: 5,
            states: Vec::new(),
            seed: None,
            window: Duration::from_secs(5),
            output: None,
            report: None,
            tune: Vec::new(),
        };
        let mut words = args.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} takes a value"));
            match word {
                "--pairs" => options.pairs = number(word, value()?)?,
                "--seed" => options.seed = Some(number(word, value()?)?),
                "--window" => options.window = Duration::from_secs(number(word, value()?)?),
                "--output" => options.output = Some(value()?.into()),
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
            options.states = vec![State::Tuned, State::All];
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_in_any_order() {
        let args = ["redis", "--pairs", "2", "--state", "all,base", "go-map", "--seed", "7"];
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
        let options = Options::read(&["redis", "--", "--budget", "100%"]).unwrap();
        assert_eq!(options.tune, ["--budget", "100%"]);
        assert_eq!(options.programs, ["redis"]);
    }
}
