//! Arguments of `cargo xtask bench daemon`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use hugepilot_units::Bytes;

use super::super::arguments::{choices, number};
use super::record::Mode;

/// Shortest run in minutes: phases of some seconds say nothing.
const SHORTEST: f64 = 2.0;
/// Smallest limit: smaller programs fit the caches and the TLB.
const SMALLEST: Bytes = Bytes::gib(2);

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Options {
    /// Length of the run of each mode.
    pub(super) minutes: f64,
    pub(super) modes: Vec<Mode>,
    /// Memory limit of the mix.
    pub(super) limit: Bytes,
    /// Seed of the programs' random accesses.
    pub(super) seed: u64,
    /// File to which each run is appended, one line of JSON each.
    pub(super) output: Option<PathBuf>,
    /// File of earlier runs to report on, without new ones.
    pub(super) report: Option<PathBuf>,
    /// File for the plot.
    pub(super) plot: Option<PathBuf>,
}

impl Options {
    pub(super) fn read(args: &[&str]) -> Result<Self> {
        let mut options = Self {
            minutes: 30.0,
            modes: Mode::ALL.to_vec(),
            limit: Bytes::gib(12),
            seed: 1,
            output: None,
            report: None,
            plot: None,
        };
        let mut words = args.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} takes a value"));
            match word {
                "--minutes" => options.minutes = number(word, value()?)?,
                "--mode" => options.modes = choices(value()?, "mode", &Mode::ALL, Mode::name)?,
                "--limit" => options.limit = value()?.parse().context("--limit")?,
                "--seed" => options.seed = number(word, value()?)?,
                "--output" => options.output = Some(value()?.into()),
                "--report" => options.report = Some(value()?.into()),
                "--plot" => options.plot = Some(value()?.into()),
                _ => bail!("no such option {word}"),
            }
        }
        ensure!(
            options.minutes.is_finite() && options.minutes >= SHORTEST,
            "--minutes takes at least {SHORTEST}"
        );
        ensure!(options.limit >= SMALLEST, "--limit takes at least {SMALLEST}");
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_in_any_order() {
        let args = ["--limit", "4GiB", "--mode", "daemon,never", "--minutes", "3", "--seed", "7"];
        let options = Options::read(&args).unwrap();
        assert_eq!((options.limit, options.seed), (Bytes::gib(4), 7));
        assert_eq!(options.modes, [Mode::Daemon, Mode::Never]);
        assert_eq!(options.minutes, 3.0);
        let usual = Options::read(&["--output", "a", "--report", "b", "--plot", "c"]).unwrap();
        assert_eq!((usual.minutes, usual.limit), (30.0, Bytes::gib(12)));
        assert_eq!(usual.modes, Mode::ALL);
        assert_eq!(usual.output, Some("a".into()));
        assert_eq!((usual.report, usual.plot), (Some("b".into()), Some("c".into())));
    }

    #[test]
    fn impossible_arguments_are_errors() {
        for wrong in [
            &["--minutes"][..],
            &["--minutes", "1"],
            &["--minutes", "inf"],
            &["--mode", "sometimes"],
            &["--limit", "1GiB"],
            &["--fast"],
            &["redis"],
        ] {
            assert!(Options::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
