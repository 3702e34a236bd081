//! `hugepilot sim utility`.

use clap::Args;
use hugepilot_policy::tune::KhugepagedRules;
use hugepilot_record::PolicyName;
use hugepilot_trace::simulate::{SimPolicy, utility};
use hugepilot_units::Share;

use super::cpu::CpuArgs;
use super::policy::{SelectionArgs, TimeArgs};
use super::source::SourceArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::finish_report;

/// Help for names of mappings.
const NAMES: &str = "list the mappings: hugepilot sim tlb --json";

/// Compare policies over a range of budgets: utility curves
///
/// All policies and budgets run in one pass over the accesses (Manocha et al., MICRO 2023,
/// Figure 5). `prefix` promotes the first regions of the mappings that --prefix names, such as
/// the property arrays of a graph whose vertices are sorted by degree.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot sim utility --graph kronecker:20 --kernel bfs
                                                 pcc, hawkeye, heat, linux and khugepaged
  hugepilot sim utility --graph kronecker:20 --kernel pr --reorder dbg \\
      --policies pcc,prefix --prefix property:ranks
  hugepilot sim utility --policies pcc,heat --budgets 1%,4%,16% -- ./solve

Exit status: 0 simulated, also if interrupted; 2 error")]
pub(crate) struct UtilityArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    time: TimeArgs,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Policies: pcc, hawkeye, heat, linux, khugepaged or all, as of `tune`, or prefix
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "NAME,…",
        default_value = "pcc,hawkeye,heat,linux,khugepaged"
    )]
    policies: Vec<SimPolicy>,
    /// Budgets: shares of the memory that huge pages may have: of all that the sources use, or, of
    /// a program that runs meanwhile, of the memory in use at each decision
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "SHARE,…",
        default_value = "0%,1%,2%,4%,8%,16%,32%,64%,100%"
    )]
    budgets: Vec<Share>,
    /// Mapping whose first regions policy prefix promotes, by name. Repeatable
    #[arg(long, value_name = "MAPPING")]
    prefix: Vec<String>,
    /// Most base pages not present in a region that policy khugepaged promotes
    #[arg(long, value_name = "N", default_value_t = KhugepagedRules::default().max_ptes_none,
          value_parser = clap::value_parser!(u64).range(..512))]
    max_ptes_none: u64,
    /// JSON on stdout (schema hugepilot.sim-utility/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &UtilityArgs) -> anyhow::Result<Exit> {
    if args.policies.contains(&SimPolicy::Prefix) && args.prefix.is_empty() {
        let help = ["name one, such as --prefix property:ranks", NAMES].map(str::to_owned);
        let failure = Failure::new("policy prefix requires a mapping", Exit::Error);
        return Err(failure.with_help(help).into());
    }
    let sources = args.source.sources()?;
    let mut setup = args.time.setup(args.cpu.setup()?);
    setup.prefix.clone_from(&args.prefix);
    setup.pcc.selection = args.selection.selection();
    setup.khugepaged.max_ptes_none = args.max_ptes_none;
    let mut policies = args.policies.clone();
    // Every report has base pages only: that is policy `never`.
    policies.retain(|policy| *policy != SimPolicy::Tune(PolicyName::Never));
    let budgets = distinct(&args.budgets);
    let policies = distinct(&policies);
    let mut files = args.source.files(None)?;
    files.begin_simulated(None)?;
    let report = sources.simulate(|job| -> anyhow::Result<_> {
        setup.used = job.used()?;
        Ok(utility(job, &setup, &policies, &budgets)?)
    })?;
    files.add_report(&report);
    finish_report(&report, args.json)?;
    files.finish()?;
    Ok(Exit::Yes)
}

/// Returns each value once, in the order of first use.
fn distinct<T: Clone + PartialEq>(values: &[T]) -> Vec<T> {
    let mut all: Vec<T> = Vec::with_capacity(values.len());
    for value in values {
        if !all.contains(value) {
            all.push(value.clone());
        }
    }
    all
}
