//! `hugepilot pool`: hugetlb pools.

use clap::{Args, Subcommand};
use hugepilot_kernel::Root;
use hugepilot_render::json;
use hugepilot_reports::{pool_change_text, pool_explained, pool_text};
use hugepilot_settings::pool::{self, PoolRequest};
use hugepilot_units::{Amount, Bytes};

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{finish, print, width};
use crate::recover;

const EXAMPLES: &str = "\
Examples:
  hugepilot pool show                                  pools and their users
  sudo hugepilot pool set --size 2MiB --count 512      1 GiB of huge pages
  hugepilot pool explain                               how a program uses them

Exit status: 0 done, 1 not as requested (set), 2 error, 3 unsupported here";

/// Show, resize or explain hugetlb pools
///
/// A hugetlb pool is memory reserved in huge pages for programs that request them. Only `set`
/// changes a pool, and requires root.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true, after_help = EXAMPLES)]
pub(crate) struct PoolArgs {
    #[command(subcommand)]
    command: PoolCommand,
}

#[derive(Debug, Subcommand)]
enum PoolCommand {
    Show(ShowArgs),
    Set(SetArgs),
    Explain(ExplainArgs),
}

const SHOW_EXAMPLES: &str = "\
Examples:
  hugepilot pool show                                  pools, free blocks, users
  hugepilot pool show --json | jq '.pools[] | .free'   free pages by size

Exit status: 0 printed, 2 error, 3 this kernel has no pools";

/// Show hugetlb pools, free memory by block size, and users of pages
///
/// Changes no pool. Private and shared parts of other users' processes require root.
#[derive(Debug, Args)]
#[command(after_help = SHOW_EXAMPLES)]
struct ShowArgs {
    /// JSON on stdout (schema hugepilot.pool/2)
    #[arg(long)]
    json: bool,
}

const SET_EXAMPLES: &str = "\
Examples:
  sudo hugepilot pool set --size 2MiB --count 512             1 GiB over all nodes
  sudo hugepilot pool set --size 1GiB --count 2 --node 1 --compact  1 GiB pages of one node
  sudo hugepilot pool set --size 2MiB --count 0               return all pages
  hugepilot pool set --size 2MiB --count 4096 --dry-run       check the request

Exit status: 0 as requested, 1 not (the report has the cause), 2 error, 3 not root, or no such
pages here";

/// Set the number of pages of a hugetlb pool, and report the result
///
/// The count lasts until the next change or boot; the report has the command that restores the
/// former one, and the configuration that makes it permanent. Requires root, except with
/// `--dry-run`.
#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
struct SetArgs {
    /// Page size, one of those that `pool show` lists
    #[arg(long, value_name = "SIZE")]
    size: Bytes,
    /// Persistent pages; 0 returns all
    #[arg(long, value_name = "N")]
    count: u64,
    /// NUMA node [default: all nodes]
    #[arg(long, value_name = "K")]
    node: Option<u32>,
    /// Memory that must stay available, in bytes or as a share of the total or of the node
    #[arg(long, value_name = "AMOUNT", default_value = "10%")]
    floor: Amount,
    /// No floor
    #[arg(long)]
    force: bool,
    /// Compaction of memory first: takes seconds, and other programs may stall
    #[arg(long)]
    compact: bool,
    /// No change: only the request and known obstacles
    #[arg(long)]
    dry_run: bool,
    /// JSON on stdout (schema hugepilot.pool/2)
    #[arg(long)]
    json: bool,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  hugepilot pool explain          terms, pools of this machine, usage
  hugepilot pool explain | less   page by page

Exit status: 0 printed, 2 error";

/// Explain hugetlb pools, and how a program uses them
#[derive(Debug, Args)]
#[command(after_help = EXPLAIN_EXAMPLES)]
struct ExplainArgs {}

pub(crate) fn run(args: &PoolArgs) -> anyhow::Result<Exit> {
    // The pool must not have the size that a killed run left.
    recover::pending();
    let root = Root::live();
    match &args.command {
        PoolCommand::Show(args) => show(&root, args),
        PoolCommand::Set(args) => set(&mut root.clone(), args),
        PoolCommand::Explain(ExplainArgs {}) => {
            print(&pool_explained(&pool::show(&root)?))?;
            Ok(Exit::Yes)
        }
    }
}

fn show(root: &Root, args: &ShowArgs) -> anyhow::Result<Exit> {
    let report = pool::show(root)?;
    print(&if args.json { json(&report) } else { pool_text(&report, width()) })?;
    Ok(if report.pools.is_empty() { Exit::Unsupported } else { Exit::Yes })
}

fn set(root: &mut Root, args: &SetArgs) -> anyhow::Result<Exit> {
    // A signal ends the current request, not hugepilot: the report must have the result.
    let interrupt = Interrupt::only_ask()?;
    let change = pool::set(root, &args.request(), &|| interrupt.is_asked())?;
    finish(&if args.json { json(&change) } else { pool_change_text(&change, width()) })?;
    Ok(if change.is_complete() { Exit::Yes } else { Exit::No })
}

impl SetArgs {
    fn request(&self) -> PoolRequest {
        let Self { size, count, node, floor, force, compact, dry_run, .. } = *self;
        PoolRequest { size, count, node, floor, force, compact, dry_run }
    }
}

#[cfg(test)]
mod tests;
