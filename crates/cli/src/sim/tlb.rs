//! `hugepilot sim tlb`.

use clap::{Args, ValueEnum};
use hugepilot_sim::PageClass;
use hugepilot_trace::simulate::tlb;

use super::cpu::CpuArgs;
use super::source::SourceArgs;
use crate::exit::Exit;
use crate::output::finish_report;

/// Count TLB misses and page walks with pages of each size
///
/// The accesses run once on a machine of each page size. The report has misses and page walks in
/// all and by mapping, and the 2 MiB regions with the most page walks on base pages.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot sim tlb -- ./solve input.txt                   a program under QEMU
  hugepilot sim tlb --preset zen5 solve.trace --json       a stored trace
  hugepilot sim tlb --graph kronecker:20 --kernel pr --threads 2
                                                           a graph kernel, each thread with TLBs
  hugepilot sim tlb --pattern cyclic:8MiB --max-accesses 10000000
                                                           a known pattern

Exit status: 0 simulated, also if interrupted; 2 error")]
pub(crate) struct TlbArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    /// Page sizes, each a machine with all memory on it
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "SIZE,…",
        default_value = "4k,2m,1g"
    )]
    pages: Vec<PagesArg>,
    /// JSON on stdout (schema hugepilot.sim-tlb/1)
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum PagesArg {
    /// Base pages
    #[value(name = "4k")]
    Base,
    /// Huge pages
    #[value(name = "2m")]
    Huge,
    /// Gigantic pages
    #[value(name = "1g")]
    Giant,
}

pub(super) fn run(args: &TlbArgs) -> anyhow::Result<Exit> {
    let (sources, cpu) = (args.source.sources()?, args.cpu.setup()?);
    let mut pages = args.pages.clone();
    pages.sort();
    pages.dedup();
    let class = |page: &PagesArg| match page {
        PagesArg::Base => PageClass::Base,
        PagesArg::Huge => PageClass::Huge,
        PagesArg::Giant => PageClass::Giant,
    };
    let classes: Vec<PageClass> = pages.iter().map(class).collect();
    let mut files = args.source.files(None)?;
    files.begin_simulated(None)?;
    let report = sources.simulate(|job| Ok::<_, anyhow::Error>(tlb(job, &cpu, &classes)?))?;
    files.add_report(&report);
    finish_report(&report, args.json)?;
    files.finish()?;
    Ok(Exit::Yes)
}
