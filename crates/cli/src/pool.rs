//! `hugepilot pool`: the hugetlb pools.

use clap::{Args, Subcommand};
use hugepilot_kernel::Root;
use hugepilot_report::{json, pool_change_text, pool_explained, pool_text};
use hugepilot_settings::pool::{self, PoolRequest};
use hugepilot_units::{Amount, Bytes};

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::{finish, print, width};
use crate::recover;

/// Show the hugetlb pools, set how many pages they have, or explain them
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct PoolArgs {
    #[command(subcommand)]
    verb: PoolVerb,
}

#[derive(Debug, Subcommand)]
enum PoolVerb {
    Show(ShowArgs),
    Set(SetArgs),
    /// Say what the pools are, what is there, and what a program must do to use them
    Explain,
}

/// Show every pool, free memory by the size of its blocks, and who uses the pages
///
/// It only looks, in a few milliseconds. How much of a process's pages is shared is known of one's own processes, and as root.
#[derive(Debug, Args)]
#[command(
    after_help = "EXAMPLES:\n  hugepilot pool show\n  hugepilot pool show --json | jq '.pools[] | {page_bytes, total, free}'"
)]
struct ShowArgs {
    /// Print one JSON object (schema hugepilot.pool/1)
    #[arg(long)]
    json: bool,
}

const SET_EXAMPLES: &str = "\
EXIT STATUS:
  0  the pool has as many pages as asked for
  1  it has not: what it has, why, and what would help are said
  3  no such pages here, or only root may

EXAMPLES:
  sudo hugepilot pool set --size 2MiB --count 512             1 GiB of pages, over all nodes
  sudo hugepilot pool set --size 1GiB --count 2 --node 1 --compact
  sudo hugepilot pool set --size 2MiB --count 0               give them back
  hugepilot pool set --size 2MiB --count 4096 --dry-run       whether that leaves enough";

/// Set how many pages a pool has, and say how many it really got, and why not more
///
/// What is asked for stays until it is set anew, or until the next boot. The command that restores the former count is printed,
/// and the text that makes the new one last.
#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
struct SetArgs {
    /// The size of a page; `pool show` has those of this machine
    #[arg(long, value_name = "SIZE")]
    size: Bytes,
    /// How many pages; 0 gives all back
    #[arg(long, value_name = "N")]
    count: u64,
    /// Only the part of this NUMA node: N pages on it, the others stay as they are
    #[arg(long, value_name = "K")]
    node: Option<u32>,
    /// How much memory must stay available, of all or of the node
    #[arg(long, value_name = "AMOUNT", default_value = "10%")]
    floor: Amount,
    /// Go below the floor
    #[arg(long)]
    force: bool,
    /// Have the kernel compact memory first: seconds of its work, and of waiting for others
    #[arg(long)]
    compact: bool,
    /// Say what would be asked for, and what is known to be in the way; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object (schema hugepilot.pool/1)
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &PoolArgs) -> anyhow::Result<Exit> {
    // A pool that a killed run had raised is no count to start from.
    recover::pending();
    let root = Root::live();
    match &args.verb {
        PoolVerb::Show(args) => show(&root, args),
        PoolVerb::Set(args) => set(&mut root.clone(), args),
        PoolVerb::Explain => {
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
    // A second signal ends only the request that is under way: what was got must be told.
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
