//! `hugepilot sim`.

mod cpu;
mod policy;
mod presets;
mod reuse;
mod schedule;
mod source;
mod tlb;
mod utility;

use clap::{Args, Subcommand};

use crate::exit::Exit;

/// Simulate TLBs, policies and page reuse on the accesses of a program
///
/// Each command takes one or more sources of accesses: traces, a program that runs under QEMU,
/// graph kernels of hugepilot, or patterns. Several sources are simulated as processes side by
/// side. No permission is required, and no process is changed.
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot sim tlb -- ./solve input.txt                  walks with 4 KiB, 2 MiB and 1 GiB pages
  hugepilot sim utility --graph kronecker:20 --kernel bfs
                                                          what each policy gains by its budget
  hugepilot sim pcc solve.trace --budget 4% --schedule solve.schedule
                                                          plan promotions, then replay them:
  sudo hugepilot tune --schedule solve.schedule --schedule-time 60s -- ./solve input.txt
  hugepilot sim pcc solve.trace --record pcc.rec          rounds and result, for report
  hugepilot sim reuse --pattern random:1GiB --max-accesses 100000000
                                                          page reuse of a known pattern

Exit status: 0 simulated, also if interrupted; 2 error")]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    Tlb(Box<tlb::TlbArgs>),
    Pcc(Box<policy::PccArgs>),
    Hawkeye(Box<policy::HawkeyeArgs>),
    Heat(Box<policy::HeatArgs>),
    Prefix(Box<policy::PrefixArgs>),
    Reuse(Box<reuse::ReuseArgs>),
    Utility(Box<utility::UtilityArgs>),
    Presets(presets::PresetsArgs),
}

pub(crate) fn run(args: &SimArgs) -> anyhow::Result<Exit> {
    match &args.command {
        SimCommand::Tlb(args) => tlb::run(args),
        SimCommand::Pcc(args) => policy::run_pcc(args),
        SimCommand::Hawkeye(args) => policy::run_hawkeye(args),
        SimCommand::Heat(args) => policy::run_heat(args),
        SimCommand::Prefix(args) => policy::run_prefix(args),
        SimCommand::Reuse(args) => reuse::run(args),
        SimCommand::Utility(args) => utility::run(args),
        SimCommand::Presets(args) => presets::run(args),
    }
}
