//! `hugepilot sim pcc`, `hugepilot sim hawkeye`, `hugepilot sim heat` and `hugepilot sim prefix`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use hugepilot_manager::names::parse_who;
use hugepilot_policy::round::Round;
use hugepilot_policy::tune::{HawkeyeRules, KhugepagedRules, PccRules, Selection};
use hugepilot_record::PolicyName;
use hugepilot_sim::{
    CandidateRules, CostModel, Coverage, MAX_PCC_ENTRIES, PccConfig, PccReplacement,
};
use hugepilot_trace::simulate::{CpuSetup, PolicySetup, SimPolicy, goal_of, policy};
use hugepilot_units::{Nanos, Share};

use super::cpu::CpuArgs;
use super::schedule::{self, LastDecision, Planned};
use super::source::SourceArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::finish_report;

const HEADING: &str = "Policy";

/// Options of the simulated time and the memory, for every policy.
#[derive(Args)]
pub(super) struct TimeArgs {
    /// Accesses in 30 s of simulated time, after which pcc and hawkeye decide; khugepaged decides
    /// after a third, heat after a tenth. The paper's programs make 0.7 to 2.6 billion
    #[arg(help_heading = HEADING, long, value_name = "N", default_value_t = 2_000_000,
          value_parser = clap::value_parser!(u64).range(120..))]
    interval: u64,
    /// Huge pages that the machine has, as if its memory were fragmented [default: unlimited]
    #[arg(help_heading = HEADING, long, value_name = "N")]
    frames: Option<u64>,
    /// Cycles from which speedups are computed: of an access, of a visit of a page, of an L2 TLB
    /// lookup, and of a memory reference of a walk. They are assumptions
    #[arg(help_heading = HEADING, long, value_name = "A,V,L,R", default_value = "1,20,7,20",
          value_parser = parse_cost)]
    cycles: CostModel,
}

fn parse_cost(text: &str) -> Result<CostModel, &'static str> {
    let numbers: Option<Vec<f64>> = text.split(',').map(|one| one.parse().ok()).collect();
    let is_cost = |one: &f64| (0.0..=1e6).contains(one);
    match numbers.filter(|numbers| numbers.iter().all(is_cost)).as_deref() {
        Some(&[access, visit, l2, reference]) if access > 0.0 => {
            Ok(CostModel { access, visit, l2, reference })
        }
        _ => Err("expected four numbers up to 1000000, the first above 0, such as 1,20,7,20"),
    }
}

impl TimeArgs {
    /// Returns a setup with the defaults of each policy.
    pub(super) fn setup(&self, cpu: CpuSetup) -> PolicySetup {
        PolicySetup {
            cpu,
            candidates: CandidateRules::PAPER,
            pcc: PccRules::default(),
            hawkeye: HawkeyeRules { pace: Some(HawkeyeRules::PACE), ..HawkeyeRules::default() },
            coverage: Coverage::PAPER,
            khugepaged: KhugepagedRules::default(),
            prefix: Vec::new(),
            interval: self.interval,
            frames: self.frames,
            cost: self.cycles,
            giant: false,
            used: None,
        }
    }
}

/// Options of a run of one policy.
#[derive(Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    cpu: CpuArgs,
    #[command(flatten)]
    time: TimeArgs,
    /// Share of the memory that huge pages may have: of all that the sources use, or, of a program
    /// that runs meanwhile, of the memory in use at each decision [default: unlimited]
    #[arg(help_heading = HEADING, long, value_name = "SHARE")]
    budget: Option<Share>,
    /// File for the promotions, which `tune --schedule FILE` replays; of one program or its trace,
    /// simulated to its end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    schedule: Option<PathBuf>,
    /// JSON on stdout (schema hugepilot.sim-policy/1)
    #[arg(long)]
    json: bool,
}

/// Option of the policies that decide in rounds.
#[derive(Args)]
pub(super) struct JournalArgs {
    /// File for each round as a line of JSON, which `explain FILE` decides again
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    journal: Option<PathBuf>,
}

/// Simulate the promotion candidate cache and its policy
///
/// A table of each core counts the page walks of 2 MiB regions (Manocha et al., MICRO 2023). At
/// each interval the regions with the highest counts are promoted, by the code that `tune --policy
/// pcc` runs.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot sim pcc --budget 4% --graph kronecker:20 --kernel bfs
                                                     promotions of 4 % of the memory
  hugepilot sim pcc --entries 16 solve.trace         a smaller table
  hugepilot sim pcc --selection round-robin a.trace b.trace
                                                     two processes
  hugepilot sim pcc --schedule s.ndjson -- ./solve   promotions to replay

Exit status: 0 simulated, also if interrupted; 2 error, or no complete run for --schedule")]
pub(crate) struct PccArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    journal: JournalArgs,
    /// Rules: those of the paper, or those of its published simulator (artifact), as far as
    /// docs/simulations.md says
    #[arg(help_heading = HEADING, long, value_enum, value_name = "SET", default_value = "paper")]
    rules: PccSet,
    /// Entries of a core's table of 2 MiB regions
    #[arg(help_heading = HEADING, long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=MAX_PCC_ENTRIES as i64))]
    entries: u32,
    /// Entry that leaves a full table for a new one
    #[arg(help_heading = HEADING, long, value_enum, value_name = "RULE", default_value = "lfu")]
    replacement: ReplacementArg,
    /// Regions promoted in an interval, of all processes together [default: --entries; of artifact,
    /// all candidates]
    #[arg(help_heading = HEADING, long, value_name = "N")]
    promotions: Option<u32>,
    #[command(flatten)]
    selection: SelectionArgs,
    /// Process whose candidates come first: its place among the sources, from 1, or its name.
    /// Repeatable
    #[arg(help_heading = HEADING, long, value_name = "PID|NAME", value_parser = parse_who)]
    prefer: Vec<String>,
    /// Demote promoted regions that still walk much for candidates that would save more, once the
    /// budget is spent. The tables then have promoted regions, too
    #[arg(help_heading = HEADING, long)]
    demote: bool,
    /// Demote promoted regions that were not used in the last two intervals, by accessed bits, for
    /// candidates, once the budget is spent
    #[arg(help_heading = HEADING, long)]
    demote_cold: bool,
    /// Also promote regions of 1 GiB whose huge pages walk; without --budget and --frames
    #[arg(help_heading = HEADING, long, conflicts_with_all = ["budget", "frames"])]
    giant: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PccSet {
    Paper,
    Artifact,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ReplacementArg {
    /// Lowest count; among equals, the one used longest ago
    Lfu,
    /// Used longest ago
    Lru,
}

/// Option of `pcc`, also in a comparison.
#[derive(Args)]
pub(super) struct SelectionArgs {
    /// Order in which `pcc` promotes the candidates of several cores and processes
    #[arg(help_heading = HEADING, long, value_enum, value_name = "ORDER",
          default_value = "highest")]
    selection: SelectionArg,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SelectionArg {
    /// Highest count first, of whichever process
    Highest,
    /// Cores of all processes in turn, a candidate of each
    RoundRobin,
}

impl SelectionArgs {
    pub(super) const fn selection(&self) -> Selection {
        match self.selection {
            SelectionArg::Highest => Selection::HighestFrequency,
            SelectionArg::RoundRobin => Selection::RoundRobin,
        }
    }
}

/// Simulate heat, the policy of `tune`: regions with the most stalls
///
/// Stall samples follow from the cycles of a cost model (--cycles). A trial finds whether huge
/// pages pay, by the code that `tune` runs; then the regions with the most stalls are promoted.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot sim heat --budget 4% --graph kronecker:20 --kernel pr
                                                     promotions of 4 % of the memory
  hugepilot sim heat --schedule s.ndjson -- ./solve  promotions to replay

Exit status: 0 simulated, also if interrupted; 2 error, or no complete run for --schedule")]
pub(crate) struct HeatArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    journal: JournalArgs,
}

/// Simulate prefix: the first regions of given mappings
///
/// If the vertices of a graph are sorted by degree, the hot ones are at the start of the property
/// arrays (Manocha et al., IISWC 2022). Regions are promoted soon after the first touch, in the
/// order of their indices.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot sim prefix --prefix property:shares --budget 4% --reorder dbg \\
      --graph kronecker:20 --kernel pr               the hot vertices of a PageRank

Exit status: 0 simulated, also if interrupted; 2 error, or no complete run for --schedule")]
pub(crate) struct PrefixArgs {
    #[command(flatten)]
    run: RunArgs,
    /// Mapping whose first regions are promoted, by name. Repeatable
    #[arg(help_heading = HEADING, long, value_name = "MAPPING", required = true)]
    prefix: Vec<String>,
}

/// Simulate HawkEye: regions with the most base pages in use first
///
/// At each interval, the base pages in use of some regions are counted, for a thirtieth of the
/// interval. Their decaying mean sorts the regions into buckets. The same number of regions is
/// promoted, the highest buckets first, by the code that `tune --policy hawkeye` runs (Panwar et
/// al., ASPLOS 2019).
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot sim hawkeye --graph kronecker:20 --kernel bfs    as the paper simulates it
  hugepilot sim hawkeye --rules kernel solve.trace           as its kernel does

Exit status: 0 simulated, also if interrupted; 2 error, or no complete run for --schedule")]
pub(crate) struct HawkeyeArgs {
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    journal: JournalArgs,
    /// Buckets and mean. paper: ten buckets of 50 base pages and a weight of 0.1. kernel: twelve
    /// buckets of doubling width, a weight of 0.4, and at least eight regions with more than two
    /// base pages in use
    #[arg(help_heading = HEADING, long, value_enum, value_name = "SET", default_value = "paper")]
    rules: HawkeyeSet,
    /// Share of the regions in use that an interval promotes, and that an observation counts; the
    /// set kernel counts all [default: 0.16%, the paper's 8 of the 5,120 regions of 10 GB]
    #[arg(help_heading = HEADING, long, value_name = "SHARE")]
    pace: Option<Share>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HawkeyeSet {
    Paper,
    Kernel,
}

pub(super) fn run_pcc(args: &PccArgs) -> anyhow::Result<Exit> {
    let mut setup = args.run.time.setup(args.run.cpu.setup()?);
    let entries = args.entries as usize;
    let is_artifact = args.rules == PccSet::Artifact;
    let set = if is_artifact { CandidateRules::ARTIFACT } else { CandidateRules::PAPER };
    let replacement = match args.replacement {
        ReplacementArg::Lfu => PccReplacement::Lfu,
        ReplacementArg::Lru => PccReplacement::Lru,
    };
    let huge = PccConfig { entries, replacement, ..set.huge };
    let counts_promoted = set.counts_promoted || args.demote;
    setup.candidates = CandidateRules { huge, counts_promoted, ..set };
    setup.giant = args.giant;
    let usual = if is_artifact { usize::MAX } else { entries };
    setup.pcc = PccRules {
        entries: usize::MAX,
        promotions: args.promotions.map_or(usual, |count| count as usize),
        selection: args.selection.selection(),
        bias: args.prefer.clone(),
        demote: args.demote,
        demote_cold: args.demote_cold,
        early: if is_artifact { Nanos::seconds(1) } else { Nanos::ZERO },
    };
    run(&args.run, &args.journal, setup, SimPolicy::Tune(PolicyName::Pcc), &args.prefer)
}

pub(super) fn run_heat(args: &HeatArgs) -> anyhow::Result<Exit> {
    let setup = args.run.time.setup(args.run.cpu.setup()?);
    run(&args.run, &args.journal, setup, SimPolicy::Tune(PolicyName::Heat), &[])
}

pub(super) fn run_prefix(args: &PrefixArgs) -> anyhow::Result<Exit> {
    let mut setup = args.run.time.setup(args.run.cpu.setup()?);
    setup.prefix.clone_from(&args.prefix);
    // It observes nothing, so it has no rounds to keep.
    run(&args.run, &JournalArgs { journal: None }, setup, SimPolicy::Prefix, &[])
}

pub(super) fn run_hawkeye(args: &HawkeyeArgs) -> anyhow::Result<Exit> {
    let mut setup = args.run.time.setup(args.run.cpu.setup()?);
    let share = args.pace.unwrap_or(HawkeyeRules::PACE);
    let pace = Some(share);
    (setup.hawkeye, setup.coverage) = match args.rules {
        HawkeyeSet::Paper => (
            HawkeyeRules { pace, ..HawkeyeRules::default() },
            Coverage { scan: share, ..Coverage::PAPER },
        ),
        HawkeyeSet::Kernel => (HawkeyeRules { pace, ..HawkeyeRules::KERNEL }, Coverage::KERNEL),
    };
    run(&args.run, &args.journal, setup, SimPolicy::Tune(PolicyName::Hawkeye), &[])
}

/// # Errors
/// One of `prefer` is not a process of the simulation.
fn check_preferred(prefer: &[String], names: &[String]) -> Result<(), Failure> {
    let is_pid = |who: &str| who.parse().is_ok_and(|pid| (1..=names.len()).contains(&pid));
    match prefer.iter().find(|who| !is_pid(who) && !names.contains(who)) {
        None => Ok(()),
        Some(who) => {
            let processes = (1..).zip(names).map(|(pid, name)| format!("{pid} ({name})"));
            let processes: Vec<String> = processes.collect();
            Err(Failure::new(format!("cannot prefer process {who:?}"), Exit::Error)
                .because("the simulation has none such")
                .with_help([format!("name one of: {}", processes.join(", "))]))
        }
    }
}

fn run(
    args: &RunArgs,
    JournalArgs { journal }: &JournalArgs,
    mut setup: PolicySetup,
    kind: SimPolicy,
    prefer: &[String],
) -> anyhow::Result<Exit> {
    let sources = args.source.sources()?;
    check_preferred(prefer, sources.names())?;
    let budget = args.budget;
    args.source.check_outputs(&[args.schedule.as_deref(), journal.as_deref()])?;
    if args.schedule.is_some() {
        let has_synthetic = args.source.has_synthetic();
        schedule::check(sources.names(), has_synthetic, args.source.is_part())?;
    }
    let create = |path| Planned::create(path, kind.name());
    let planned = args.schedule.as_deref().map(create).transpose()?;
    let mut files = args.source.files(journal.as_deref())?;
    let mut last = LastDecision::default();
    let result = sources.simulate(|job| -> anyhow::Result<_> {
        setup.used = if budget.is_some() { job.used()? } else { None };
        files.begin_simulated(goal_of(&setup, kind, budget))?;
        let on_round = &mut |round: &Round| {
            last.note(round);
            files.add(round);
        };
        Ok(policy(job, &setup, kind, budget, on_round)?)
    })?;
    let written = planned.map_or(Ok(()), |planned| planned.write(&result, &last));
    let report = &result.report;
    files.add_report(report);
    files.finish()?;
    finish_report(report, args.json)?;
    Ok(written.map_or_else(Failure::note, |()| Exit::Yes))
}
