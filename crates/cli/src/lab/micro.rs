//! `hugepilot lab pchase`, `stream`, `gups` and `tlb-sweep`: micro-benchmarks of memory.

use std::thread;

use anyhow::bail;
use clap::{Args, ValueEnum};
use hugepilot_kernel::{Root, cache};
use hugepilot_render::{JsonReport, Width, json};
use hugepilot_reports::lab::{PageKind, TlbSweepReport};
use hugepilot_reports::{gups_text, pchase_text, stream_text, tlb_sweep_text};
use hugepilot_units::{Bytes, Nanos};
use hugepilot_workload::micro::{
    self, GupsConfig, MAX_CHAINS, PchaseConfig, StreamConfig, TlbSweepConfig,
};
use hugepilot_workload::{MemoryLimits, Result as WorkloadResult};

use super::failed;
use crate::calibration::store_tlb;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Progress, note, print, width};

const EXIT: &str = "Exit status: 0 done, 2 error or wrong result, 3 such pages are not available";

const PCHASE_EXAMPLES: &str = "\
Examples:
  hugepilot lab pchase --pages thp                            latency of memory
  hugepilot lab pchase --chains 1,2,4,8 --threads 1,2         bandwidth by loads in flight
  hugepilot lab pchase --sweep --json                         all chains and threads";

/// Measure latency and bandwidth of independent pointer chains
///
/// Each chain is a random cycle through the cache lines of its part of the memory. One chain shows
/// the latency; more chains per thread keep more loads in flight.
#[derive(Debug, Args)]
#[command(after_help = format!("{PCHASE_EXAMPLES}\n\n{EXIT}"))]
pub(super) struct PchaseArgs {
    /// Memory of all chains
    #[arg(long, visible_alias = "size", value_name = "SIZE", default_value = "1GiB")]
    footprint: Bytes,
    /// Kind of page
    #[arg(long, value_enum, default_value_t = PagesArg::Base)]
    pages: PagesArg,
    /// Numbers of chains per thread, 1 to 16 each
    #[arg(long, value_name = "K,…", value_delimiter = ',', default_value = "1")]
    chains: Vec<u32>,
    /// Numbers of threads
    #[arg(long, value_name = "T,…", value_delimiter = ',', default_value = "1")]
    threads: Vec<u32>,
    /// 1, 2, 4, 8 and 16 chains with 1, 2, 4, … threads up to all processors
    #[arg(long, conflicts_with_all = ["chains", "threads"])]
    sweep: bool,
    /// Rounds per point
    #[arg(long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Time of a round
    #[arg(long, value_name = "TIME", default_value = "200ms")]
    time: Nanos,
    /// Seed of the random order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// JSON on stdout (schema hugepilot.lab-pchase/1)
    #[arg(long)]
    json: bool,
}

const STREAM_EXAMPLES: &str = "\
Examples:
  hugepilot lab stream                                        one thread, base pages
  hugepilot lab stream --threads 8 --pages thp                eight threads, huge pages
  hugepilot lab stream --array 4GiB --json                    a larger array";

/// Measure memory bandwidth by the four kernels of STREAM
///
/// Copy, scale, add and triad by STREAM's rules: the best round after the first, and bytes without
/// write-allocation. All values are checked.
#[derive(Debug, Args)]
#[command(after_help = format!("{STREAM_EXAMPLES}\n\n{EXIT}"))]
pub(super) struct StreamArgs {
    /// Size of each of the three arrays [default: 4 times the cache, as far as memory reaches, at
    /// most 1GiB]
    #[arg(long, visible_alias = "size", value_name = "SIZE")]
    array: Option<Bytes>,
    /// Kind of page
    #[arg(long, value_enum, default_value_t = PagesArg::Base)]
    pages: PagesArg,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Rounds, including the first, which does not count
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: u32,
    /// JSON on stdout (schema hugepilot.lab-stream/1)
    #[arg(long)]
    json: bool,
}

const GUPS_EXAMPLES: &str = "\
Examples:
  hugepilot lab gups --size 4GiB --pages thp                  a table on huge pages
  hugepilot lab gups --threads 2 --json                       two threads

Exit status: 0 the check passed, 1 it failed, 2 error, 3 such pages are not available";

/// Measure random updates by the rules of HPCC RandomAccess
///
/// Four updates per word of the table. A second pass checks the table: at most 1 % of its words may
/// be wrong, as threads update it without locks.
#[derive(Debug, Args)]
#[command(after_help = GUPS_EXAMPLES)]
pub(super) struct GupsArgs {
    /// Size of the table, rounded down to a power of two; the rules ask for half of the memory
    #[arg(long, visible_alias = "size", value_name = "SIZE", default_value = "1GiB")]
    footprint: Bytes,
    /// Kind of page
    #[arg(long, value_enum, default_value_t = PagesArg::Base)]
    pages: PagesArg,
    /// Threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// JSON on stdout (schema hugepilot.lab-gups/1)
    #[arg(long)]
    json: bool,
}

const TLB_SWEEP_EXAMPLES: &str = "\
Examples:
  hugepilot lab tlb-sweep                                     all kinds of page
  hugepilot lab tlb-sweep --pages base,thp --max-footprint 8GiB
                                                              more huge pages
  hugepilot lab tlb-sweep --pages base --store                for tune, on a CPU that hugepilot
                                                              does not know
  hugepilot lab tlb-sweep --json                              for a plot";

/// Measure latency against the number of pages, to find the levels of the TLB
///
/// Visits one cache line per page at random. Subtracts the time of as many lines on few pages, so
/// that the rest is the time of the translation. On a virtual machine a TLB entry covers the
/// smaller page of guest and host.
#[derive(Debug, Args)]
#[command(after_help = format!("{TLB_SWEEP_EXAMPLES}\n\n{EXIT}"))]
pub(super) struct TlbSweepArgs {
    /// Kinds of page; those that are not available are reported so
    #[arg(long, value_enum, value_name = "KIND,…", value_delimiter = ',')]
    #[arg(default_value = "base,thp,hugetlb-2m,hugetlb-1g")]
    pages: Vec<PagesArg>,
    /// Most memory for a curve
    #[arg(long, visible_alias = "size", value_name = "SIZE", default_value = "4GiB")]
    max_footprint: Bytes,
    /// Store how many base pages the TLB holds; tune, debloat and daemon then use that number
    /// instead of the table of CPUs
    #[arg(long)]
    store: bool,
    /// Seed of the random order
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// JSON on stdout (schema hugepilot.lab-tlb-sweep/1)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PagesArg {
    /// Base pages
    Base,
    /// Transparent huge pages
    Thp,
    /// Pages of the 2 MiB hugetlb pool
    #[value(name = "hugetlb-2m")]
    Hugetlb2M,
    /// Pages of the 1 GiB hugetlb pool
    #[value(name = "hugetlb-1g")]
    Hugetlb1G,
}

impl PagesArg {
    const fn kind(self) -> PageKind {
        match self {
            Self::Base => PageKind::Base,
            Self::Thp => PageKind::Thp,
            Self::Hugetlb2M => PageKind::Hugetlb2M,
            Self::Hugetlb1G => PageKind::Hugetlb1G,
        }
    }
}

pub(super) fn pchase(args: &PchaseArgs) -> anyhow::Result<Exit> {
    let powers = |most: u32| (0..32).map(|bit| 1 << bit).take_while(|&n| n <= most).collect();
    let all = thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let (threads, chains) = match args.sweep {
        true => (powers(all), powers(MAX_CHAINS)),
        false => (args.threads.clone(), args.chains.clone()),
    };
    let config = PchaseConfig {
        footprint: args.footprint,
        pages: args.pages.kind(),
        seed: args.seed,
        threads,
        chains,
        rounds: args.rounds,
        round_time: args.time,
    };
    report(|machine, progress| micro::pchase(&config, machine, progress), args.json, pchase_text)
        .map(|outcome| outcome.map_or_else(|exit| exit, |_| Exit::Yes))
}

pub(super) fn stream(args: &StreamArgs) -> anyhow::Result<Exit> {
    let run = |machine: &MemoryLimits, progress: micro::Progress<'_>| {
        let default = || StreamConfig::default_array(cache::last_level(&Root::live()), machine);
        let config = StreamConfig {
            array: args.array.unwrap_or_else(default),
            pages: args.pages.kind(),
            threads: args.threads,
            rounds: args.rounds,
        };
        micro::stream(&config, machine, progress)
    };
    report(run, args.json, stream_text)
        .map(|outcome| outcome.map_or_else(|exit| exit, |_| Exit::Yes))
}

pub(super) fn gups(args: &GupsArgs) -> anyhow::Result<Exit> {
    let config =
        GupsConfig { footprint: args.footprint, pages: args.pages.kind(), threads: args.threads };
    let run = |machine: &MemoryLimits, progress: micro::Progress<'_>| {
        micro::gups(&config, machine, progress)
    };
    let outcome = report(run, args.json, |report, _| gups_text(report))?;
    let exit = |passed: bool| if passed { Exit::Yes } else { Exit::No };
    Ok(outcome.map_or_else(|exit| exit, |report| exit(report.passed)))
}

pub(super) fn tlb_sweep(args: &TlbSweepArgs) -> anyhow::Result<Exit> {
    if args.store && !args.pages.iter().any(|pages| pages.kind() == PageKind::Base) {
        bail!("--store needs base pages: include base in --pages");
    }
    let config = TlbSweepConfig {
        pages: args.pages.iter().map(|pages| pages.kind()).collect(),
        max_footprint: args.max_footprint,
        seed: args.seed,
    };
    let run = |machine: &MemoryLimits, progress: micro::Progress<'_>| {
        micro::tlb_sweep(&config, machine, progress)
    };
    let report = match report(run, args.json, tlb_sweep_text)? {
        Ok(report) => report,
        Err(exit) => return Ok(exit),
    };
    if report.curves.iter().all(|curve| curve.points.is_empty()) {
        return Ok(Exit::Unsupported);
    }
    Ok(if args.store { store(&report) } else { Exit::Yes })
}

/// Stores the base pages that the TLB holds.
fn store(report: &TlbSweepReport) -> Exit {
    let stored = stored_pages(report).and_then(|pages| Ok((pages, store_tlb(pages)?)));
    match stored {
        Ok((pages, file)) => {
            note(&format!("stored in {}: the TLB holds {pages} base pages", file.display()));
            Exit::Yes
        }
        Err(failure) => failure.note(),
    }
}

/// Base pages that the TLB holds by a sweep.
fn stored_pages(report: &TlbSweepReport) -> Result<u32, Failure> {
    let pages = report.base_pages().and_then(|pages| u32::try_from(pages).ok());
    pages.ok_or_else(|| {
        let help = "use a --max-footprint of 64MiB or more, on an idle machine".to_owned();
        Failure::new("cannot store the size of the TLB", Exit::Error)
            .because("the sweep shows no end of the TLB for base pages")
            .with_help([help])
    })
}

/// Runs a benchmark and prints its report; on a failure, prints that and returns the exit status.
fn report<R: JsonReport>(
    run: impl FnOnce(&MemoryLimits, micro::Progress<'_>) -> WorkloadResult<R>,
    as_json: bool,
    text: impl FnOnce(&R, Width) -> String,
) -> anyhow::Result<Result<R, Exit>> {
    let progress = Progress::new();
    let measured = MemoryLimits::live()
        .and_then(|machine| run(&machine, &|step| progress.now(format!("measuring: {step}"))));
    drop(progress);
    match measured {
        Ok(report) => {
            print(&if as_json { json(&report) } else { text(&report, width()) })?;
            Ok(Ok(report))
        }
        Err(error) => failed(error).map(Err),
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_reports::lab::{TLB_SWEEP_SCHEMA, TlbCurve, TlbLevel};

    use super::*;

    #[test]
    fn the_largest_level_of_base_pages_is_stored() {
        let level = |holds_pages: Option<u64>, translation_ns| TlbLevel {
            holds_pages,
            exceeded_pages: holds_pages,
            translation_ns,
            translation_cycles: None,
        };
        let report = |levels: Vec<TlbLevel>| TlbSweepReport {
            schema: TLB_SWEEP_SCHEMA.to_owned(),
            clock_ghz: None,
            known: None,
            seed: 1,
            curves: vec![TlbCurve {
                pages: PageKind::Base,
                page_bytes: Bytes::kib(4),
                points: Vec::new(),
                levels,
                unavailable: None,
            }],
        };
        let whole = report(vec![level(Some(64), 0.0), level(Some(2048), 1.9), level(None, 15.0)]);
        assert_eq!(stored_pages(&whole).unwrap(), 2048);
        let failure = stored_pages(&report(vec![level(None, 0.0)])).unwrap_err();
        assert_eq!(
            failure.to_string(),
            "cannot store the size of the TLB: the sweep shows no end of the TLB for base pages"
        );
    }
}
