//! `hugepilot debloat --backend shrinker`: the kernel de-bloats a cgroup, where memory may not be read.

use std::path::PathBuf;

use anyhow::bail;
use clap::ValueEnum;
use hugepilot_kernel::Root;
use hugepilot_kernel::cgroup::MemoryCgroup;
use hugepilot_record::Pid;
use hugepilot_record::shrink::ShrinkReport;
use hugepilot_report::{json, shrink_text};
use hugepilot_settings::shrink::{ShrinkOptions, shrink};
use hugepilot_units::{Amount, Bytes, Share};

use super::{BackendArg, DebloatArgs, broken_memory};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::finish;

/// Meta's threshold, 409 of 512 pages: what is split then is nearly empty, and rarely missed.
const MIN_BLOAT: f64 = 80.0;

pub(super) fn run(args: &DebloatArgs) -> anyhow::Result<Exit> {
    let options = args.shrink_options()?;
    if !options.dry_run
        && let Some(broken) = broken_memory()?
    {
        eprintln!("{broken}");
        return Ok(Exit::Unsupported);
    }
    let interrupt = Interrupt::only_ask()?;
    let mut recovered = |recovery: hugepilot_settings::Recovery| {
        recovery.told().iter().for_each(|told| eprintln!("hugepilot: {told}"));
    };
    let report = shrink(&Root::live(), options, &|| interrupt.is_asked(), &mut recovered)?;
    finish(&if args.json { json(&report) } else { shrink_text(&report) })?;
    Ok(exit_of(&report))
}

/// Yes if memory came back; of a dry run, if there are huge pages at all.
fn exit_of(report: &ShrinkReport) -> Exit {
    let yes = if report.dry_run {
        report.huge_pages_before != Some(0)
    } else {
        report.freed_bytes.is_some_and(|freed| freed > Bytes::ZERO)
    };
    if yes { Exit::Yes } else { Exit::No }
}

impl DebloatArgs {
    /// What is asked for, or which flag makes no sense here.
    fn shrink_options(&self) -> anyhow::Result<ShrinkOptions> {
        let Some(cgroup) = self.cgroup.clone().filter(|_| self.pid.is_empty()) else {
            bail!("--backend shrinker takes whole cgroups: give --cgroup DIRECTORY, and no --pid");
        };
        if let Some((flag, why)) = self.no_use_to_the_shrinker() {
            bail!("--backend shrinker takes no {flag}: {why}");
        }
        let amount = match self.amount {
            None => None,
            Some(Amount::Bytes(bytes)) => Some(bytes),
            Some(Amount::Share(share)) => bail!(
                "--backend shrinker takes no --amount {share}: a share of the bloat is not known without reading memory; \
                 give bytes, or leave it out"
            ),
        };
        let min_bloat = self.min_bloat.unwrap_or(Share::percent(MIN_BLOAT));
        Ok(ShrinkOptions { cgroup, min_bloat, amount, dry_run: self.dry_run })
    }

    /// The first flag that was given though only the other back end can heed it, and why.
    fn no_use_to_the_shrinker(&self) -> Option<(&'static str, &'static str)> {
        let kernel = "the kernel goes through its queue of huge pages from the oldest on";
        let apart = "the kernel does not tell processes apart";
        let looks = "nobody looks how hot memory is";
        let flags = [
            ("--order", self.order.is_some(), kernel),
            ("--buckets", self.buckets.is_some(), kernel),
            ("--quantum", self.quantum.is_some(), apart),
            ("--fairness", self.fairness.is_some(), apart),
            ("--weight", !self.weight.is_empty(), apart),
            ("--protect", !self.protect.is_empty(), apart),
            ("--prefer", !self.prefer.is_empty(), apart),
            ("--sample", self.sample.is_some(), "no memory is read"),
            ("--observe", self.observe.is_some(), looks),
            ("--rate", self.rate.is_some(), looks),
            ("--calibration", self.calibration.is_some(), looks),
        ];
        flags.into_iter().find_map(|(flag, given, why)| given.then_some((flag, why)))
    }
}

/// The command that de-bloats where the memory of process `pid` may not be read.
pub(crate) fn command(pid: Pid) -> String {
    let cgroup =
        cgroup_of(pid).map_or_else(|| "DIRECTORY".to_owned(), |path| path.display().to_string());
    let backend = BackendArg::Shrinker
        .to_possible_value()
        .map_or_else(String::new, |v| v.get_name().to_owned());
    format!("sudo hugepilot debloat --cgroup {cgroup} --backend {backend}")
}

/// Its cgroup's directory; `None` where that cannot be seen, or is the root, of which nothing can be reclaimed.
fn cgroup_of(pid: Pid) -> Option<PathBuf> {
    let root = Root::live();
    let group = MemoryCgroup::find(&root, &root.read_text(format!("proc/{pid}/cgroup")).ok()?)?;
    let visible = group.is_visible(&root) && group.path() != "/";
    group.directory().filter(|_| visible).map(|directory| root.join(directory))
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
    fn what_the_kernel_cannot_heed_is_refused_by_name() {
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
            assert!(error.contains(flag) && error.contains(": "), "{line}: {error}");
        }
        for line in ["-p 1", "-p 1 --cgroup /g"] {
            assert!(
                options(line).unwrap_err().to_string().contains("--cgroup DIRECTORY"),
                "{line}"
            );
        }
    }

    #[test]
    fn what_it_can_is_taken() {
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
