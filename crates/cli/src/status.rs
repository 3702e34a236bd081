//! `hugepilot status`.

use clap::Args;
use hugepilot_report::{json, status_text};

use crate::exit::Exit;
use crate::output::{print, width};
use crate::target::{PidArg, open};

const LEGEND: &str = "\
Columns:
  ADDRESSES     addresses of the mapping; START in a terminal of fewer than 120 columns
  SIZE          address space
  RESIDENT      resident memory
  HUGE          resident memory on huge pages
  ELIGIBLE      resident memory on base pages, in regions that can be promoted now
  ZERO_FILLED   zero-filled base pages inside huge pages (bloat); - means not measured
  NAME          file or label of the mapping
  WHY_NOT_HUGE  resident memory that is neither huge nor eligible, by reason

Reasons:
  stack              stack of a thread
  nohugepage         the program set MADV_NOHUGEPAGE
  thp_disabled       the process disabled huge pages for itself (PR_SET_THP_DISABLE)
  mlocked            locked into memory
  shared_after_fork  shared with another process since a fork
  file_or_shared     a file or shared memory
  userfaultfd        watched by userfaultfd
  mostly_swapped     more than an eighth is in swap
  too_few_resident   less than half is resident
  unaligned          no single mapping covers the region
  special            device or kernel memory, hugetlb, or pages that could not be read

Examples:
  hugepilot status -p $(pgrep -n redis-server)       the largest mappings
  hugepilot status -p 4711 --all                     every mapping
  hugepilot status -p 4711 --json | jq .totals       sums as JSON

Exit status: 0, 2 error, 3 unsupported here";

/// Show huge-page use per mapping and why the rest is not huge
///
/// Changes nothing. To count zero-filled pages, it reads the huge pages of the process, 0.1 to
/// 0.5 s per GiB; this requires permission to read its memory.
#[derive(Args)]
#[command(after_help = LEGEND)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    target: PidArg,
    /// Do not read huge pages: zero-filled bytes stay unknown
    #[arg(long)]
    no_contents: bool,
    /// Every mapping; by default the 40 largest, and the sum of the rest
    #[arg(long)]
    all: bool,
    /// Print one JSON object (schema hugepilot.status/2)
    #[arg(long, conflicts_with = "all")]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Exit> {
    let process = open(args.target.pid)?;
    let report = hugepilot_manager::status::status(&process, !args.no_contents)?;
    print(&if args.json { json(&report) } else { status_text(&report, width(), args.all) })?;
    Ok(Exit::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_has_every_column() {
        let columns = [
            "ADDRESSES",
            "SIZE",
            "RESIDENT",
            "HUGE",
            "ELIGIBLE",
            "ZERO_FILLED",
            "NAME",
            "WHY_NOT_HUGE",
        ];
        for column in columns {
            assert!(LEGEND.contains(&format!("\n  {column} ")), "{column}");
        }
    }
}
