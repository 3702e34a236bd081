//! `hugepilot debloat --backend shrinker`: the kernel debloats a cgroup without reading memory.

use anyhow::bail;
use hugepilot_kernel::Root;
use hugepilot_reports::setting_warnings_text;
use hugepilot_reports::shrink::ShrinkReport;
use hugepilot_settings::shrink::{ShrinkOptions, shrink};
use hugepilot_units::{Amount, Bytes, Share};

use super::{DebloatArgs, broken_memory};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::finish_report;
use crate::recording::RunFiles;
use crate::target::TargetArgs;

/// Default `--min-bloat` in percent: Meta's threshold, 409 of 512 base pages.
const MIN_BLOAT: f64 = 80.0;

pub(super) fn run(args: &DebloatArgs) -> anyhow::Result<Exit> {
    let options = args.shrink_options()?;
    if !options.dry_run
        && let Some(failure) = broken_memory()?
    {
        return Ok(failure.print());
    }
    let mut files = RunFiles::open(None, args.record.path())?;
    files.begin(None)?;
    let interrupt = Interrupt::only_ask()?;
    let mut recovered = |recovery: hugepilot_settings::Recovery| {
        eprint!("{}", setting_warnings_text(&recovery.warnings()));
    };
    let report = shrink(&Root::live(), options, &|| interrupt.is_asked(), &mut recovered)?;
    files.add_report(&report);
    finish_report(&report, args.json)?;
    files.finish()?;
    Ok(exit_of(&report))
}

/// Returns yes if memory was freed; for a dry run, if there are huge pages.
fn exit_of(report: &ShrinkReport) -> Exit {
    let yes = if report.dry_run {
        report.huge_pages_before != Some(0)
    } else {
        report.freed_bytes.is_some_and(|freed| freed > Bytes::ZERO)
    };
    if yes { Exit::Yes } else { Exit::No }
}

impl DebloatArgs {
    /// Derives the options, or rejects flags without an effect.
    fn shrink_options(&self) -> anyhow::Result<ShrinkOptions> {
        let TargetArgs { pid, name, cgroup } = &self.selection;
        let Some(cgroup) = cgroup.clone().filter(|_| pid.is_empty() && name.is_empty()) else {
            bail!(
                "--backend shrinker debloats whole cgroups: use --cgroup DIRECTORY without --pid \
                 and --name"
            );
        };
        if let Some((flag, cause)) = self.flag_of_other_backend() {
            bail!("--backend shrinker does not support {flag}: {cause}");
        }
        let amount = match self.amount {
            None => None,
            Some(Amount::Bytes(bytes)) => Some(bytes),
            Some(Amount::Share(share)) => bail!(
                "--backend shrinker does not support --amount {share}: the bloat is unknown \
                 without reading memory; use bytes, or omit it"
            ),
        };
        let min_bloat = self.min_bloat.unwrap_or(Share::percent(MIN_BLOAT));
        Ok(ShrinkOptions { cgroup, min_bloat, amount, dry_run: self.dry_run })
    }

    /// Finds the first flag that only the other backend supports, with the cause.
    fn flag_of_other_backend(&self) -> Option<(&'static str, &'static str)> {
        let oldest = "the kernel starts with the oldest huge page";
        let alike = "the kernel does not distinguish processes";
        let no_heat = "the kernel does not measure heat";
        let flags = [
            ("--order", self.order.is_some(), oldest),
            ("--buckets", self.buckets.is_some(), oldest),
            ("--quantum", self.quantum.is_some(), alike),
            ("--fairness", self.fairness.is_some(), alike),
            ("--weight", !self.weight.is_empty(), alike),
            ("--protect", !self.protect.is_empty(), alike),
            ("--prefer", !self.prefer.is_empty(), alike),
            ("--sample", self.sample.is_some(), "no memory is read"),
            ("--observe", self.observe.is_some(), no_heat),
            ("--rate", self.rate.is_some(), no_heat),
            ("--calibration", self.calibration.is_some(), no_heat),
            ("--journal", self.journal.is_some(), "the kernel reports no single split"),
        ];
        flags.into_iter().find_map(|(flag, given, cause)| given.then_some((flag, cause)))
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches, Parser};

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DebloatArgs,
    }

    fn options(line: &str) -> anyhow::Result<ShrinkOptions> {
        let words = ["x", "--backend", "shrinker"].into_iter().chain(line.split_whitespace());
        let matches = Line::command().try_get_matches_from(words)?;
        Line::from_arg_matches(&matches)?.args.shrink_options()
    }

    #[test]
    fn flags_of_the_other_backend_are_rejected_by_name() {
        for line in [
            "--order exact",
            "--buckets 4",
            "--quantum 3",
            "--fairness off",
            "--weight a=2",
            "--protect a",
            "--prefer a",
            "--sample 5%",
            "--observe 1s",
            "--rate 100",
            "--calibration off",
            "--amount 40%",
        ] {
            let flag = line.split(' ').next().unwrap();
            let error = options(&format!("--cgroup /g {line}")).unwrap_err().to_string();
            assert!(error.contains(flag), "{line}: {error}");
        }
        for line in ["-p 1", "-p 1 --cgroup /g"] {
            let error = options(line).unwrap_err().to_string();
            assert!(error.contains("--cgroup DIRECTORY"), "{line}: {error}");
        }
    }

    #[test]
    fn supported_flags_become_options() {
        let plain = options("--cgroup /g").unwrap();
        assert_eq!(
            (plain.min_bloat, plain.amount, plain.dry_run),
            (Share::percent(80.0), None, false)
        );
        let all = options("--cgroup /g --min-bloat 50% --amount 1MiB --dry-run --json").unwrap();
        assert_eq!(
            (all.min_bloat, all.amount, all.dry_run),
            (Share::percent(50.0), Some(Bytes::mib(1)), true)
        );
    }
}
