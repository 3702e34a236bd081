//! `hugepilot debloat`.

pub(crate) mod shrinker;

use std::path::PathBuf;

use anyhow::{Context, bail, ensure};
use clap::{ArgGroup, Args, ValueEnum};
use hugepilot_kernel::{
    ExcludedProcesses, KernelError, Root, Target, Unsupported, cgroup, descriptors, memory, probe,
    rights,
};
use hugepilot_manager::debloat::{
    DebloatOptions, DebloatTarget, Event, debloat, is_called, priority,
};
use hugepilot_manager::names::parse_who;
use hugepilot_policy::{DebloatPolicy, Fairness, Order};
use hugepilot_record::Pid;
use hugepilot_record::debloat::DebloatReport;
use hugepilot_report::{debloat_text, json};
use hugepilot_units::{Amount, Bytes, Nanos, Share};

use crate::calibration::{CalibrationMode, Keep, Machine};
use crate::exit::Exit;
use crate::failure::refused;
use crate::interrupt::Interrupt;
use crate::output::{Progress, finish};
use crate::target::open;

/// Split the huge pages that waste most, so that their zero-filled pages come back
///
/// What memory holds never changes: the kernel frees only base pages that it finds zero-filled itself (Linux 6.12 and newer).
/// What a program does not use costs it nothing; what is split costs page walks, which is why the order matters.
#[derive(Args)]
#[command(group(ArgGroup::new("whom").args(["pid", "cgroup"]).required(true).multiple(true)))]
#[command(after_help = "EXAMPLES:\n  \
    sudo hugepilot debloat -p 4711 --dry-run           what could be freed, and what it should cost\n  \
    sudo hugepilot debloat -p 4711                     free 40 % of the bloat, where it costs least\n  \
    sudo hugepilot debloat -p 4711 -p 4712 --amount 2GiB --order emd\n  \
    sudo hugepilot debloat --cgroup /sys/fs/cgroup/db.slice --protect postgres --amount 30%\n  \
    sudo hugepilot debloat -p 4711 --sample 5% --json  a quick estimate of the bloat\n  \
    sudo hugepilot debloat --cgroup /sys/fs/cgroup/db.slice --backend shrinker --min-bloat 80%\n  \
                                                       where memory may not be read: the kernel does it\n\n\
    EXIT STATUS: 0 memory was freed (or would be), 1 there is nothing to free, 2 error, 3 not possible here")]
pub(crate) struct DebloatArgs {
    /// A process to take from; may be repeated
    #[arg(short, long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Vec<i32>,
    /// All processes of this cgroup and those below it
    #[arg(long, value_name = "DIRECTORY")]
    cgroup: Option<PathBuf>,
    /// Who finds and splits: we, or the kernel, which takes no right to read memory but sees less
    #[arg(long, value_enum, default_value_t = BackendArg::Split)]
    backend: BackendArg,
    /// How much to free: a share of the bloat, or bytes [default: 40%]
    #[arg(long, value_name = "AMOUNT")]
    amount: Option<Amount>,
    /// Which huge pages go first [default: heat]
    #[arg(long, value_enum)]
    order: Option<OrderArg>,
    /// Huge pages taken from one process in a row [default: 100 for hawkeye and emd, 8 for exact and heat]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    quantum: Option<u32>,
    /// Buckets of bloat density, for --order emd [default: 10]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    buckets: Option<u32>,
    /// How processes share [default: round-robin, but off for hawkeye]
    #[arg(long, value_enum)]
    fairness: Option<FairnessArg>,
    /// Weight of a process for --fairness weight, as PID=WEIGHT or NAME=WEIGHT; others weigh 1
    #[arg(long, value_name = "WHO=WEIGHT", value_parser = parse_weight)]
    weight: Vec<(String, f64)>,
    /// Leave this process alone: its number or name
    #[arg(long, value_name = "WHO", value_parser = parse_who)]
    protect: Vec<String>,
    /// Take from this process before all others: its number or name
    #[arg(long, value_name = "WHO", value_parser = parse_who)]
    prefer: Vec<String>,
    /// Leave huge pages alone of which a smaller part is zero-filled [default: 0% for hawkeye and emd, 5% for exact and heat, 80% for --backend shrinker]
    #[arg(long, value_name = "SHARE")]
    min_bloat: Option<Share>,
    /// Print what would be freed and what it should cost; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Read only this part of the huge pages, for a quick estimate with its error; changes nothing
    #[arg(long, value_name = "SHARE")]
    sample: Option<Share>,
    /// Look so long which huge pages are hot [default: 3s for --order heat, --dry-run and --sample, else not at all]
    #[arg(long, value_name = "TIME")]
    observe: Option<Nanos>,
    /// Samples per second of each thread's CPU time [default: what costs the target 0.5 %, 100 to 500]
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    rate: Option<u32>,
    /// Where the predicted slow-down comes from [default: auto]
    #[arg(long, value_enum)]
    calibration: Option<CalibrationMode>,
    /// Print one JSON object (schema hugepilot.debloat/2)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BackendArg {
    /// Read each huge page, choose, split, and look: needs the right to read memory
    Split,
    /// Have the kernel's shrinker of underused huge pages do it, by a reclaim of the cgroup (Linux 6.12)
    Shrinker,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OrderArg {
    /// Address order, process by process: the baseline of the EMD paper
    Hawkeye,
    /// Ten buckets of bloat density, processes in turns (EMD, ISMM'25)
    Emd,
    /// Exact bloat density
    Exact,
    /// Most freed bytes for the time that the split should cost
    Heat,
}

impl OrderArg {
    /// The order meant, with `buckets` for `emd`.
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
    /// One process after the other
    Off,
    /// In turns
    RoundRobin,
    /// In proportion to each one's bloat
    Bloat,
    /// In proportion to --weight
    Weight,
}

fn parse_weight(text: &str) -> Result<(String, f64), String> {
    let wrong = || {
        format!(
            "expected PID=WEIGHT or NAME=WEIGHT with a weight above 0, such as redis-server=2, found {text:?}"
        )
    };
    let (who, weight) = text.rsplit_once('=').ok_or_else(wrong)?;
    let weight: f64 = weight.trim().parse().map_err(|_| wrong())?;
    if weight.is_finite() && weight > 0.0 { Ok((parse_who(who)?, weight)) } else { Err(wrong()) }
}

pub(crate) fn run(args: &DebloatArgs) -> anyhow::Result<Exit> {
    descriptors::raise_limit();
    if args.backend == BackendArg::Shrinker {
        return shrinker::run(args);
    }
    ensure!(
        args.order() != OrderArg::Heat || args.observe() > Nanos::ZERO,
        "--order heat must look which huge pages are hot: give --observe some time, or use --order exact"
    );
    ensure!(
        args.weight.is_empty()
            || args.fairness.is_none_or(|fairness| fairness == FairnessArg::Weight),
        "--weight has no meaning with this --fairness: leave --fairness out, or give --fairness weight"
    );
    ensure!(
        args.buckets.is_none() || args.order() == OrderArg::Emd,
        "--buckets is for --order emd only: leave it out, or give --order emd"
    );
    let (targets, left_out) = args.targets()?;
    if !args.only_looks()
        && let Some(refused) = refusal()?
    {
        eprintln!("{refused}");
        return Ok(Exit::Unsupported);
    }
    let progress = Progress::new();
    let options = args.options(args.machine(&progress));
    // Until here a signal ends us at once: there is nothing to report.
    let interrupt = Interrupt::listen()?;
    let mut report =
        debloat(targets, options, &|| interrupt.is_asked(), &mut |event| tell(&progress, event))?;
    report.warnings.extend(left_out);
    drop(progress);
    finish(&if args.json { json(&report) } else { debloat_text(&report) })?;
    Ok(exit_of(&report))
}

fn exit_of(report: &DebloatReport) -> Exit {
    if report.failed.keys().any(|errno| ["EPERM", "EACCES", "ENOSYS"].contains(&errno.as_str()))
        && report.huge_pages_split == 0
    {
        return refused("splitting another process's huge pages", &report.failed, true);
    }
    if report.huge_pages_split == 0 && report.unread_huge_pages > 0 {
        eprintln!(
            "hugepilot: cannot tell whether there is anything to free: {} huge pages could not be read\nfix: let the kernel split \
             what is nearly empty: --backend shrinker",
            report.unread_huge_pages
        );
        return Exit::Unsupported;
    }
    if report.huge_pages_split > 0 { Exit::Yes } else { Exit::No }
}

/// Why nothing can be freed by splitting here; `None` when it can. Tried, not concluded.
pub(crate) fn refusal() -> anyhow::Result<Option<String>> {
    if let Some(broken) = broken_memory()? {
        return Ok(Some(broken));
    }
    let tried = probe::demote_frees_zero_pages()?;
    // Without a free huge page nothing could be tried, and that is when memory is short: then the first split tells.
    let Some(reason) = tried.reason().filter(|reason| **reason != Unsupported::NoHugePage) else {
        return Ok(None);
    };
    let help = match reason {
        // The probe splits its own memory; that of others must be read, too.
        Unsupported::CapabilityMissing { .. } => vec![rights::fix(true)],
        reason => reason.help(),
    };
    let help: String = help.iter().map(|help| format!("\nhelp: {help}")).collect();
    Ok(Some(format!("hugepilot: splitting frees nothing here: {reason}; nothing was split{help}")))
}

/// That memory is broken, which no huge page survives being read through; `None` when it is not.
fn broken_memory() -> anyhow::Result<Option<String>> {
    let corrupted = memory::mem_info(&Root::live())?.corrupted;
    Ok((corrupted > Bytes::ZERO).then(|| {
        format!(
            "hugepilot: {corrupted} of memory are broken (HardwareCorrupted in /proc/meminfo), and a split reads every page: \
             nothing was split\nfix: replace the memory; look at the kernel's log for EDAC or mce"
        )
    }))
}

fn tell(progress: &Progress, event: Event) {
    progress.now(match event {
        Event::Observing { samples } => format!("looking: {samples} samples"),
        Event::Scanning { pid, done, all } => {
            format!("reading huge pages of {pid}: {done} of {all}")
        }
        Event::Splitting { freed, wanted } => format!("splitting: freed {freed} of {wanted}"),
    });
}

impl DebloatArgs {
    fn only_looks(&self) -> bool {
        self.dry_run || self.sample.is_some()
    }

    /// The processes meant, each once, and that some of the cgroup could not be opened.
    fn targets(&self) -> anyhow::Result<(Vec<DebloatTarget>, Option<String>)> {
        let mut pids = self.pid.clone();
        if let Some(directory) = &self.cgroup {
            let inside = cgroup::processes(&Root::live(), directory).with_context(|| {
                format!("no cgroup at {} (such as /sys/fs/cgroup/db.slice)", directory.display())
            })?;
            // We ourselves may well be in it.
            pids.extend(
                inside
                    .iter()
                    .map(|&Pid(pid)| pid)
                    .filter(|&pid| pid.unsigned_abs() != std::process::id()),
            );
        }
        pids.sort_unstable();
        pids.dedup();
        let (mut targets, mut left) = (Vec::new(), ExcludedProcesses::default());
        for pid in pids {
            match open(pid) {
                Ok(process) => targets.push(self.target(process)),
                // Of a cgroup, what ended or has no memory is just not there.
                Err(KernelError::NoProcess { .. } | KernelError::NoMemory { .. })
                    if !self.pid.contains(&pid) => {}
                Err(error) if self.pid.contains(&pid) => return Err(error.into()),
                Err(error) => left.add(error),
            }
        }
        // Pids wrap around; start times do not.
        targets.sort_by_key(|target| {
            let id = target.process.id();
            (id.start_ticks, id.pid)
        });
        let left_out = left.warning(targets.len())?;
        if targets.is_empty() {
            bail!("there is no process to take from");
        }
        for who in
            self.protect.iter().chain(&self.prefer).chain(self.weight.iter().map(|(who, _)| who))
        {
            ensure!(
                targets.iter().any(|target| is_called(target.process.id(), who)),
                "none of the processes is called {who:?} or has that number"
            );
        }
        Ok((targets, left_out))
    }

    fn target(&self, process: hugepilot_kernel::Process) -> DebloatTarget {
        let id = process.id().clone();
        let priority = priority(&id, &self.protect, &self.prefer);
        let weight = self
            .weight
            .iter()
            .find(|(who, _)| is_called(&id, who))
            .map_or(1.0, |&(_, weight)| weight);
        let named = self.pid.contains(&id.pid.0);
        DebloatTarget { process, priority, weight, named }
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
        let usual = if self.order() == OrderArg::Heat || self.only_looks() {
            Nanos::seconds(3)
        } else {
            Nanos::ZERO
        };
        self.observe.unwrap_or(usual)
    }

    /// Measured only where something follows from it.
    fn machine(&self, progress: &Progress) -> Machine {
        if self.observe() == Nanos::ZERO {
            return Machine::unknown();
        }
        let mode = self.calibration.unwrap_or(CalibrationMode::Auto);
        Machine::get(mode, Keep::unless(self.only_looks()), progress)
    }

    fn options(&self, machine: Machine) -> DebloatOptions {
        DebloatOptions {
            policy: self.policy(),
            amount: self.amount.unwrap_or(Amount::Share(Share::percent(40.0))),
            dry_run: self.only_looks(),
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
    fn whom_to_take_from_must_be_said_and_both_ways_are_named() {
        let parse = |args: &[&str]| {
            let command = DebloatArgs::augment_args(clap::Command::new("debloat"));
            command
                .try_get_matches_from(["debloat"].iter().chain(args))
                .map_err(|error| error.to_string())
        };
        let told = parse(&["--dry-run"]).unwrap_err();
        assert!(told.matches("<--pid <PID>|--cgroup <DIRECTORY>>").count() == 2, "{told}");
        for fine in
            [&["-p", "1", "-p", "2"][..], &["--cgroup", "/x"], &["-p", "1", "--cgroup", "/x"]]
        {
            assert!(parse(fine).is_ok(), "{fine:?}");
        }
        assert!(
            parse(&["-p", "1", "--protect", "a-very-long-process-name"])
                .unwrap_err()
                .contains("15 bytes")
        );
    }

    #[test]
    fn weights_are_read_or_refused() {
        assert_eq!(parse_weight("redis-server=2.5"), Ok(("redis-server".to_owned(), 2.5)));
        assert_eq!(
            parse_weight("a=b=3"),
            Ok(("a=b".to_owned(), 3.0)),
            "names may hold an equals sign"
        );
        for wrong in ["redis", "x=", "x=0", "x=-1", "x=inf", "x=nan", "sixteen-bytes-xy=1"] {
            assert!(parse_weight(wrong).is_err(), "{wrong}");
        }
    }
}
