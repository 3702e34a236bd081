//! Checks of the flags of `tune` that clap cannot make.

use anyhow::{bail, ensure};
use hugepilot_kernel::{Root, memory};
use hugepilot_units::{Bytes, Nanos};

use super::TuneArgs;
use crate::exit::Exit;
use crate::failure::Failure;

impl TuneArgs {
    /// Checks what clap cannot.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let is_running = !self.selection.is_empty();
        if is_running && self.progress_regex.is_some() && self.progress_file.is_none() {
            let help = "name the file to which the process writes it: --progress-file FILE";
            return Err(Failure::new(
                "--progress-regex with -p requires --progress-file",
                Exit::Error,
            )
            .because("the output of a running process cannot be read")
            .with_help([help.to_owned()])
            .into());
        }
        if !is_running && self.command.is_empty() && self.progress_regex.is_some() {
            bail!("--progress-regex requires a target: -p PID with --progress-file, or -- CMD");
        }
        if self.command.is_empty()
            && std::env::args_os().next_back().is_some_and(|last| last == "--")
        {
            bail!("no command after --");
        }
        ensure!(is_running || !self.is_try, "--try requires a target: -p PID");
        self.check_times()?;
        self.check_budget()?;
        if self.progress_regex.as_ref().is_some_and(|pattern| pattern.captures_len() < 2) {
            let what = "--progress-regex has no group in parentheses for the number";
            let help = r"enclose the number in a group, such as 'ops/s ([\d.]+)'".to_owned();
            return Err(Failure::new(what, Exit::Error).with_help([help]).into());
        }
        ensure!(
            self.policy.schedule.is_none() || is_running || !self.command.is_empty(),
            "--schedule requires a target: -p PID, or -- CMD"
        );
        ensure!(
            self.policy.makes_trials() || !self.keep && self.trial_rate.is_none(),
            "--keep and --trial-rate are for trials, which only --policy heat makes"
        );
        self.policy.policy()?;
        Ok(())
    }

    fn check_times(&self) -> anyhow::Result<()> {
        let (observe, total) = (self.observe(), self.total());
        if observe == Nanos::ZERO {
            return Err(zero("--observe", "a plan requires samples", "omit it for 3s"));
        }
        // A schedule has a time of its own, and so has a program.
        let has_schedule = self.policy.schedule.is_some();
        if total == Nanos::ZERO && !has_schedule {
            return Err(zero("--for", "sampling and promoting take time", "omit it for 15s"));
        }
        let is_limited = !has_schedule && self.command.is_empty();
        if is_limited && observe > total && self.observe.is_some() {
            let error = format!("--observe {observe} exceeds --for {total}");
            let help = format!("leave time to act: --for {}", observe + observe);
            return Err(Failure::new(error, Exit::Error).with_help([help]).into());
        }
        Ok(())
    }

    /// Checks that the budget allows a huge page, if it can be known before the resident set.
    fn check_budget(&self) -> anyhow::Result<()> {
        let Some(budget) = self.budget else { return Ok(()) };
        let page = memory::page_sizes(&Root::live())?.huge;
        let largest_resident_set = Bytes::gib(1 << 20);
        if budget.of(largest_resident_set) < page {
            let error = format!("--budget {budget} is less than a huge page ({page})");
            let help = format!("allow more: --budget {page}, or a share of the resident set");
            return Err(Failure::new(error, Exit::Error).with_help([help]).into());
        }
        Ok(())
    }
}

/// The failure that a time is 0.
fn zero(flag: &str, cause: &str, help: &str) -> anyhow::Error {
    let failure = Failure::new(format!("{flag} is 0"), Exit::Error).because(cause);
    failure.with_help([format!("{help}, or name a time: {flag} 5s")]).into()
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, FromArgMatches as _};

    use super::*;

    fn parsed(line: &str) -> TuneArgs {
        let command = TuneArgs::augment_args(clap::Command::new("tune"));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        TuneArgs::from_arg_matches(&matches).unwrap()
    }

    fn check(line: &str) -> Result<(), String> {
        parsed(line).check().map_err(|error| error.to_string())
    }

    #[test]
    fn a_tune_needs_time() {
        let total = |line| parsed(line).total();
        assert_eq!(total("tune"), Nanos::seconds(15));
        assert_eq!(total("tune --observe 30s"), Nanos::seconds(60));
        assert_eq!(total("tune -p 1 --try"), Nanos::seconds(30));
        assert_eq!(total("tune --observe 30s --for 40s"), Nanos::seconds(40));
        for (flag, cause) in [("--for", "promoting take time"), ("--observe", "requires samples")] {
            let error = parsed(&format!("tune -p 1 {flag} 0")).check().unwrap_err();
            let failure = format!("{:?}", error.downcast_ref::<Failure>().unwrap());
            assert!(error.to_string().starts_with(&format!("{flag} is 0: ")), "{error}");
            assert!(failure.contains(cause) && failure.contains("name a time: --"), "{failure}");
        }
        assert_eq!(check("tune -p 1 --for 1s"), Ok(()));
        assert_eq!(check("tune -p 1 --for 0 --schedule x"), Ok(()));
        let conflict = Err("--observe 30s exceeds --for 15s".to_owned());
        assert_eq!(check("tune -p 1 --observe 30s --for 15s"), conflict);
        for line in ["-p 1", "-p 1 --for 15s --schedule x", "--for 1s -- true"] {
            assert_eq!(check(&format!("tune --observe 30s {line}")), Ok(()), "{line}");
        }
    }

    #[test]
    fn a_budget_below_a_huge_page_and_a_pattern_without_a_group_are_refused() {
        for (budget, is_refused) in [("0B", true), ("1KiB", true), ("0%", true), ("1%", false)] {
            let checked = check(&format!("tune -p 1 --budget {budget}"));
            let refused = format!("--budget {budget} is less than a huge page");
            let is_it = checked.clone().is_err_and(|error| error.starts_with(&refused));
            assert_eq!(is_it, is_refused, "{checked:?}");
        }
        let pattern = |regex| check(&format!("tune --progress-regex {regex} -- true"));
        let no_group = "--progress-regex has no group in parentheses for the number";
        assert_eq!(pattern("(?:ops)"), Err(no_group.to_owned()));
        assert_eq!(pattern("ops:(.+)"), Ok(()));
    }
}
