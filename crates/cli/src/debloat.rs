//! `hugepilot debloat`.

pub(crate) mod shrinker;

use std::path::PathBuf;
use std::rc::Rc;

use anyhow::ensure;
use clap::{ArgGroup, Args, ValueEnum, ValueHint};
use hugepilot_kernel::{Process, Root, Target, Unsupported, descriptors, memory, probe, rights};
use hugepilot_manager::ManagerError;
use hugepilot_manager::debloat::{
    DebloatOptions, DebloatTarget, Event, debloat, is_called, priority,
};
use hugepilot_manager::names::parse_who;
use hugepilot_policy::round::Goal;
use hugepilot_policy::{DebloatPolicy, Fairness, Order};
use hugepilot_profiler::check_sampling;
use hugepilot_record::ExcludedCount;
use hugepilot_render::counted;
use hugepilot_reports::debloat::{DebloatReport, DebloatWarning};
use hugepilot_units::{Amount, Bytes, Nanos, Share};

use crate::calibration::{CalibrationMode, Keep, Machine};
use crate::exit::Exit;
use crate::failure::{Failure, refused};
use crate::interrupt::Interrupt;
use crate::output::{Progress, finish_report};
use crate::recording::{RunFiles, TargetRecordFlag, metrics};
use crate::target::{RequiredTargets, SelectedProcess, TargetArgs};

const EXAMPLES: &str = "\
Examples:
  sudo hugepilot debloat -p 4711 --dry-run            reclaimable memory and its cost
  sudo hugepilot debloat -p 4711                      free 40 % of the bloat
  sudo hugepilot debloat -p 4711 --amount 2GiB        free a fixed amount
  sudo hugepilot debloat -p 4711 --sample 5%          a quick estimate of the bloat
  sudo hugepilot debloat -p 4711 --journal splits.ndjson
                                                      record each split, for explain
  sudo hugepilot debloat -p 4711 --record splits.rec  record the run, for report
  sudo hugepilot debloat --name redis-server          all processes with this name
  sudo hugepilot debloat --cgroup /sys/fs/cgroup/db.slice --protect postgres
                                                      all processes of a cgroup but one
  sudo hugepilot debloat --cgroup /sys/fs/cgroup/db.slice --backend shrinker
                                                      processes that may not be read

Exit status: 0 memory was freed (or would be), 1 nothing to free, 2 error, 3 unsupported here";

/// Split huge pages to free their zero-filled and their unmapped base pages
///
/// The kernel frees only base pages that it finds zero-filled, so memory contents never change.
/// Base pages of a huge page that the program freed alone (stranded memory) are held until the huge
/// page is split. They are freed first, since that costs the program nothing; root finds them.
/// Requires Linux 6.12, CAP_SYS_NICE, and CAP_SYS_PTRACE for processes of other users.
#[derive(Args)]
#[command(group(
    ArgGroup::new("target").args(["pid", "name", "cgroup"]).required(true).multiple(true)
))]
#[command(after_help = EXAMPLES)]
pub(crate) struct DebloatArgs {
    #[command(flatten)]
    selection: TargetArgs,
    /// Component that finds and splits huge pages
    #[arg(long, value_enum, default_value_t = BackendArg::Split)]
    backend: BackendArg,
    /// Memory to free: a share of the bloat, beside all stranded memory, or bytes [default: 40%]
    #[arg(long, value_name = "AMOUNT")]
    amount: Option<Amount>,
    /// Order in which huge pages are split [default: heat]
    #[arg(long, value_enum)]
    order: Option<OrderArg>,
    /// Huge pages of one process in a row [default: 100 for hawkeye and emd, 8 for exact and heat]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    quantum: Option<u32>,
    /// Buckets of bloat density, for --order emd [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    buckets: Option<u32>,
    /// How processes share [default: round-robin; off for hawkeye]
    #[arg(long, value_enum)]
    fairness: Option<FairnessArg>,
    /// Weight of a process by pid or name, for --fairness weight; repeatable [default: 1]
    #[arg(long, value_name = "WHO=WEIGHT", value_parser = parse_weight)]
    weight: Vec<(String, f64)>,
    /// Process to exclude, by pid or name; repeatable
    #[arg(long, value_name = "WHO", value_parser = parse_who)]
    protect: Vec<String>,
    /// Process to debloat first, by pid or name; repeatable
    #[arg(long, value_name = "WHO", value_parser = parse_who)]
    prefer: Vec<String>,
    /// Minimum zero-filled share of a huge page to split [default: 0% for hawkeye and emd, 5% for
    /// exact and heat, 80% for --backend shrinker]
    #[arg(long, value_name = "SHARE")]
    min_bloat: Option<Share>,
    /// Report the bytes to free and the predicted slowdown; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Share of the huge pages to read for an estimate with its error; changes nothing
    #[arg(long, value_name = "SHARE")]
    sample: Option<Share>,
    /// Time to sample heat [default: 3s for --order heat, --dry-run and --sample, else 0s]
    #[arg(long, value_name = "TIME")]
    observe: Option<Nanos>,
    /// Samples per second of CPU time per thread [default: 0.5 % overhead, 100 to 500]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: Option<u32>,
    /// Source of the predicted slowdown [default: auto]
    #[arg(long, value_enum)]
    calibration: Option<CalibrationMode>,
    /// Write the plan and the outcome of each split to FILE, for hugepilot explain
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    journal: Option<PathBuf>,
    #[command(flatten)]
    record: TargetRecordFlag,
    /// Print one JSON object (schema hugepilot.debloat/2)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendArg {
    /// hugepilot reads, chooses, splits and verifies; requires permission to read memory
    Split,
    /// The kernel's shrinker of underused huge pages, by a reclaim of the cgroup
    Shrinker,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// Address order, process by process (baseline of EMD)
    Hawkeye,
    /// Buckets of bloat density, processes alternating (EMD, ISMM'25)
    Emd,
    /// Exact bloat density
    Exact,
    /// Most bytes freed per predicted slowdown
    Heat,
}

impl OrderArg {
    /// Returns the order, with `buckets` for `emd`.
    pub(crate) const fn with_buckets(self, buckets: u32) -> Order {
        match self {
            Self::Hawkeye => Order::Hawkeye,
            Self::Emd => Order::Emd { buckets },
            Self::Exact => Order::Exact,
            Self::Heat => Order::Heat,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FairnessArg {
    /// Processes one after the other
    Off,
    /// Processes alternate
    RoundRobin,
    /// In proportion to bloat
    Bloat,
    /// In proportion to --weight
    Weight,
}

fn parse_weight(text: &str) -> Result<(String, f64), String> {
    let error = || {
        format!(
            "expected PID=WEIGHT or NAME=WEIGHT with a weight above 0, such as redis-server=2, \
             found {text:?}"
        )
    };
    let (who, weight) = text.rsplit_once('=').ok_or_else(error)?;
    let weight: f64 = weight.trim().parse().map_err(|_| error())?;
    if weight.is_finite() && weight > 0.0 { Ok((parse_who(who)?, weight)) } else { Err(error()) }
}

pub(crate) fn run(args: &DebloatArgs) -> anyhow::Result<Exit> {
    descriptors::raise_limit();
    if args.backend == BackendArg::Shrinker {
        return shrinker::run(args);
    }
    args.check_flags()?;
    let (targets, excluded) = args.targets()?;
    if !args.is_dry_run()
        && let Some(failure) = unsupported()?
    {
        return Ok(failure.print());
    }
    // A missing permission, or a file that cannot be written, is an error at once, not after
    // seconds of calibration.
    let those = |named: bool| {
        targets.iter().filter(move |one| one.named == named).map(|one| &*one.process).collect()
    };
    let required = RequiredTargets { named: those(true), others: those(false) };
    required.require(|process| args.check_permissions(process))?;
    let progress = Progress::new();
    let mut files = RunFiles::open(args.journal.as_deref(), args.record.path())?;
    let options = args.options(args.machine(&progress));
    let pids = targets.iter().map(|target| target.process.id().pid).collect();
    let no_samples = "debloat samples once, before its plan; the rounds have the counts";
    files.begin_with(Goal::Debloat(options.policy), metrics(pids, Err(no_samples)))?;
    // Before this line a signal ends the process: there is nothing to report.
    let interrupt = Interrupt::listen()?;
    let mut follow = |event: Event<'_>| match &event {
        Event::Round(round) => files.add(*round),
        event => show(&progress, event),
    };
    let mut report = debloat(targets, options, &|| interrupt.is_asked(), &mut follow)?;
    report.warnings.extend(excluded.map(DebloatWarning::Excluded));
    drop(progress);
    files.add_report(&report);
    finish_report(&report, args.json)?;
    files.finish()?;
    Ok(exit_of(&report))
}

fn exit_of(report: &DebloatReport) -> Exit {
    if report.failed.keys().any(|errno| ["EPERM", "EACCES", "ENOSYS"].contains(&errno.as_str()))
        && report.huge_pages_split == 0
    {
        return refused("splitting another process's huge pages", &report.failed, true);
    }
    if report.huge_pages_split == 0 && report.unread_huge_pages > 0 {
        let unread = counted(report.unread_huge_pages, "huge page", "huge pages");
        let cause = format!("{unread} could not be read");
        return Failure::new("cannot determine whether memory can be freed", Exit::Unsupported)
            .because(cause)
            .with_help(["let the kernel split underused pages: --backend shrinker".to_owned()])
            .note();
    }
    if report.huge_pages_split > 0 { Exit::Yes } else { Exit::No }
}

/// Tests on a child process whether splits free memory here; `None` if they do.
pub(crate) fn unsupported() -> anyhow::Result<Option<Failure>> {
    if let Some(broken) = broken_memory()? {
        return Ok(Some(broken));
    }
    let tested = probe::demote_frees_zero_pages()?;
    // The test requires a free huge page, and memory may be short. Then the first split shows it.
    let Some(reason) = tested.reason().filter(|reason| **reason != Unsupported::NoHugePage) else {
        return Ok(None);
    };
    let help = match reason {
        // The test splits its own memory. Reading other processes requires one capability more.
        Unsupported::CapabilityMissing { .. } => vec![rights::fix(true)],
        reason => reason.help(),
    };
    let failure = Failure::new("cannot free memory by splitting huge pages", Exit::Unsupported);
    Ok(Some(failure.because(reason.to_string()).with_help(help)))
}

/// Fails if memory is broken: a split reads every page, and reading broken memory kills.
fn broken_memory() -> anyhow::Result<Option<Failure>> {
    let corrupted = memory::mem_info(&Root::live())?.corrupted;
    let failure = || {
        Failure::new("cannot split huge pages safely", Exit::Unsupported)
            .because(format!(
                "{corrupted} of memory are broken (HardwareCorrupted in /proc/meminfo), and a \
                 split reads every page"
            ))
            .with_help([
                "find the module, and replace it: sudo dmesg | grep -iE 'edac|mce'".to_owned()
            ])
    };
    Ok((corrupted > Bytes::ZERO).then(failure))
}

fn show(progress: &Progress, event: &Event<'_>) {
    progress.now(match event {
        Event::Round(_) => return,
        Event::Observing { samples } => {
            format!("sampling: {}", counted(*samples, "sample", "samples"))
        }
        Event::Scanning { pid, done, all } => {
            format!("reading huge pages of process {pid}: {done}/{all}")
        }
        Event::Splitting { freed, wanted } => format!("splitting: freed {freed} of {wanted}"),
    });
}

impl DebloatArgs {
    fn is_dry_run(&self) -> bool {
        self.dry_run || self.sample.is_some()
    }

    /// Rejects flags that contradict each other.
    fn check_flags(&self) -> anyhow::Result<()> {
        ensure!(
            self.order() != OrderArg::Heat || self.observe() > Nanos::ZERO,
            "--order heat requires samples: use --observe with a time above 0, or --order exact"
        );
        ensure!(
            self.weight.is_empty()
                || self.fairness.is_none_or(|fairness| fairness == FairnessArg::Weight),
            "--weight requires --fairness weight: omit --fairness, or use --fairness weight"
        );
        ensure!(
            self.buckets.is_none() || self.order() == OrderArg::Emd,
            "--buckets requires --order emd: omit it, or use --order emd"
        );
        Ok(())
    }

    /// Opens each target once; also counts processes that cannot be opened.
    fn targets(&self) -> anyhow::Result<(Vec<DebloatTarget>, Option<ExcludedCount>)> {
        let (selected, excluded) = self.selection.open("debloat")?;
        let excluded = excluded.count(selected.len())?;
        let targets: Vec<_> = selected.into_iter().map(|one| self.target(one)).collect();
        let weighted = self.weight.iter().map(|(who, _)| who);
        for who in self.protect.iter().chain(&self.prefer).chain(weighted) {
            ensure!(
                targets.iter().any(|target| is_called(target.process.id(), who)),
                "no target has the pid or name {who:?}"
            );
        }
        Ok((targets, excluded))
    }

    /// Tests whether `process` may be read, if it has huge pages, and sampled, if the order
    /// requires that.
    fn check_permissions(&self, process: &Process) -> Result<(), ManagerError> {
        let huge = process.sizes().huge;
        if process.mappings()?.iter().any(|mapping| mapping.huge >= huge) {
            process.check_readable()?;
        }
        if self.order() != OrderArg::Heat {
            return Ok(());
        }
        let pid = process.id().pid;
        check_sampling(process).map_err(|source| ManagerError::Sample { pid, source })
    }

    fn target(&self, SelectedProcess { process, by_pid }: SelectedProcess) -> DebloatTarget {
        let id = process.id().clone();
        let priority = priority(&id, &self.protect, &self.prefer);
        let weight = self
            .weight
            .iter()
            .find(|(who, _)| is_called(&id, who))
            .map_or(1.0, |&(_, weight)| weight);
        DebloatTarget { process: Rc::new(process), priority, weight, named: by_pid }
    }

    fn order(&self) -> OrderArg {
        self.order.unwrap_or(OrderArg::Heat)
    }

    fn policy(&self) -> DebloatPolicy {
        let mut policy = DebloatPolicy::new(self.order().with_buckets(self.buckets.unwrap_or(10)));
        if let Some(quantum) = self.quantum {
            policy.quantum = quantum as usize;
        }
        if let Some(min_bloat) = self.min_bloat {
            policy.min_bloat = min_bloat;
        }
        policy.fairness = match self.fairness {
            None if self.weight.is_empty() => policy.fairness,
            None | Some(FairnessArg::Weight) => Fairness::Weight,
            Some(FairnessArg::Off) => Fairness::Off,
            Some(FairnessArg::RoundRobin) => Fairness::RoundRobin,
            Some(FairnessArg::Bloat) => Fairness::Bloat,
        };
        policy
    }

    fn observe(&self) -> Nanos {
        let usual = if self.order() == OrderArg::Heat || self.is_dry_run() {
            Nanos::seconds(3)
        } else {
            Nanos::ZERO
        };
        self.observe.unwrap_or(usual)
    }

    /// Measures the machine, if the prediction requires it.
    fn machine(&self, progress: &Progress) -> Machine {
        if self.observe() == Nanos::ZERO {
            return Machine::unknown();
        }
        let mode = self.calibration.unwrap_or(CalibrationMode::Auto);
        Machine::get(mode, Keep::unless(self.is_dry_run()), progress)
    }

    fn options(&self, machine: Machine) -> DebloatOptions {
        DebloatOptions {
            policy: self.policy(),
            amount: self.amount.unwrap_or(Amount::Share(Share::percent(40.0))),
            dry_run: self.is_dry_run(),
            part: self.sample.unwrap_or(Share::ALL),
            observe: self.observe(),
            rate_hz: self.rate.unwrap_or_else(|| machine.affordable_rate()),
            tlb_entries: machine.tlb_entries,
            calibration: machine.calibration,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_required_and_the_error_names_both_flags() {
        let parse = |args: &[&str]| {
            let command = DebloatArgs::augment_args(clap::Command::new("debloat"));
            command
                .try_get_matches_from(["debloat"].iter().chain(args))
                .map_err(|error| error.to_string())
        };
        let error = parse(&["--dry-run"]).unwrap_err();
        let flags = "<--pid <PID>|--name <NAME>|--cgroup <DIRECTORY>>";
        assert_eq!(error.matches(flags).count(), 2, "{error}");
        for fine in [&["-p", "1", "-p", "2"][..], &["--cgroup", "/x"], &["-p", "1", "--name", "x"]]
        {
            assert!(parse(fine).is_ok(), "{fine:?}");
        }
        let long = parse(&["-p", "1", "--protect", "a-very-long-process-name"]).unwrap_err();
        assert!(long.contains("15 bytes"), "{long}");
    }

    #[test]
    fn weights_are_positive_numbers() {
        assert_eq!(parse_weight("redis-server=2.5"), Ok(("redis-server".to_owned(), 2.5)));
        assert_eq!(
            parse_weight("a=b=3"),
            Ok(("a=b".to_owned(), 3.0)),
            "names may hold an equals sign"
        );
        for text in ["redis", "x=", "x=0", "x=-1", "x=inf", "x=nan", "sixteen-bytes-xy=1"] {
            assert!(parse_weight(text).is_err(), "{text}");
        }
    }
}
