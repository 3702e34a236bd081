//! Arguments of `cargo xtask stress`.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Default of `--seconds`.
const LENGTH: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Name of a test, `all` or `list`.
    pub(super) name: String,
    /// Run time of each test.
    pub(super) length: Duration,
    /// Seed of random choices; `None` for a new one.
    pub(super) seed: Option<u64>,
}

impl Options {
    pub(super) fn read(args: &[&str]) -> Result<Self> {
        let mut options = Self { name: String::new(), length: LENGTH, seed: None };
        let mut words = args.iter();
        while let Some(&word) = words.next() {
            let mut number = || -> Result<u64> {
                let text = words.next().with_context(|| format!("{word} takes a number"))?;
                text.parse().with_context(|| format!("{word} takes a number, not {text:?}"))
            };
            match word {
                "--seconds" => options.length = Duration::from_secs(number()?),
                "--seed" => options.seed = Some(number()?),
                _ if word.starts_with('-') => bail!("no such option {word}"),
                _ => {
                    ensure!(options.name.is_empty(), "{word}: one test at a time, or all");
                    word.clone_into(&mut options.name);
                }
            }
        }
        ensure!(options.length > Duration::ZERO, "--seconds takes at least 1");
        if options.name.is_empty() {
            "all".clone_into(&mut options.name);
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_in_any_order() {
        let options = |name: &str, seconds, seed| {
            Some(Options { name: name.to_owned(), length: Duration::from_secs(seconds), seed })
        };
        for (line, wanted) in [
            ("", options("all", 600, None)),
            ("churn", options("churn", 600, None)),
            ("--seconds 60 churn --seed 7", options("churn", 60, Some(7))),
            ("churn forks", None),
            ("--seconds", None),
            ("--seconds ten", None),
            ("--seconds 0", None),
            ("--json", None),
        ] {
            let args: Vec<&str> = line.split_whitespace().collect();
            assert_eq!(Options::read(&args).ok(), wanted, "{line}");
        }
    }
}
