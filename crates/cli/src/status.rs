//! `hugepilot status`.

use anyhow::ensure;
use clap::{ArgGroup, Args};
use hugepilot_kernel::descriptors;
use hugepilot_render::{Sentence, json, json_lines};
use hugepilot_reports::status::{StatusGroup, StatusReport};
use hugepilot_reports::{group_text, status_text};
use hugepilot_top::status::status;

use crate::exit::Exit;
use crate::output::{print, width};
use crate::target::{SelectedProcess, TargetArgs};
use crate::top::{self, TopArgs};

const LEGEND: &str = "\
The first line has the main reason, and what `hugepilot tune` may promote.

Columns:
  ADDRESSES     addresses of the mapping; START in a terminal of fewer than 120 columns
  SIZE          address space
  RSS           resident memory
  THP           resident memory on transparent huge pages
  HUGETLB       memory on hugetlb pages, which RSS does not count; only if there is any
  ELIGIBLE      resident memory on base pages, in regions that tune can promote now
  ZERO_FILLED   zero-filled base pages inside huge pages (bloat); - means not measured
  NAME          file or label of the mapping
  WHY_NOT_HUGE  resident memory on base pages, by the reason of the kernel
  TUNE_SKIPS    resident memory on base pages that is not eligible, by reason

WHY_NOT_HUGE, while the kernel may still promote the memory:
  khugepaged_pending  khugepaged has not collapsed it yet
  no_free_block       no free block is large enough at this moment

WHY_NOT_HUGE, until a setting, the program or its memory changes:
  thp_never           the setting is never
  not_advised         the setting is madvise and the program did not ask (MADV_HUGEPAGE)
  shmem_never         shmem_enabled forbids it for shared memory
  shmem_not_advised   shmem_enabled is advise and the program did not ask
  tmpfs_never         the tmpfs is mounted with huge=never
  tmpfs_not_advised   the tmpfs is mounted with huge=advise and the program did not ask
  beyond_file_size    the setting is within_size and a huge page would exceed the file
  max_ptes_none       more pages are not resident than khugepaged allows
  max_ptes_swap       more pages are in swap than khugepaged allows
  max_ptes_shared     more pages are shared with other processes than khugepaged allows
  userfaultfd         khugepaged fills no holes that userfaultfd watches
  nohugepage          the program set MADV_NOHUGEPAGE or MAP_STACK
  thp_disabled        the process disabled huge pages for itself (PR_SET_THP_DISABLE)
  not_eligible        the kernel's mark THPeligible is 0 for another cause
  too_small           the mapping is smaller than a huge page
  unaligned           no whole, aligned huge page fits there, as at the edges of a mapping
  file                a file of which the kernel makes no huge pages
  special             device or kernel memory
  no_thp              the kernel has no THP, or its settings cannot be read

TUNE_SKIPS:
  stack              stack of a thread
  nohugepage         the program set MADV_NOHUGEPAGE
  thp_disabled       the process disabled huge pages for itself (PR_SET_THP_DISABLE)
  mlocked            locked into memory
  shared_after_fork  shared with another process since a fork
  guard_pages        guards (MADV_GUARD_INSTALL), which no huge page may replace
  merged             merged with equal pages by KSM
  file               a file
  code               program code in a file
  shared_memory      shared memory
  userfaultfd        watched by userfaultfd
  mostly_swapped     more than an eighth is in swap
  too_few_resident   less than half is resident
  lazily_freed       the program freed it lazily (MADV_FREE)
  unaligned          no whole, aligned huge page fits there, as at the edges of a mapping
  special            device or kernel memory, hugetlb, or pages that could not be read
  cgroup_headroom    the cgroup of the process has too little headroom
  system_headroom    the system has too little headroom
  already_huge       it became huge while it was read

Examples:
  hugepilot status                                   all processes, a line for each
  hugepilot status -p $(pgrep -n redis-server)       the largest mappings
  hugepilot status -p 4711 --all                     every mapping
  hugepilot status -p 4711 --json | jq .totals       sums as JSON
  sudo hugepilot status --name postgres --no-contents
                                                     all processes with this name

Exit status: 0, 2 error, 3 unsupported here";

/// Show huge-page use per mapping and why the rest is not huge
///
/// The reasons are those of the kernel and those of `hugepilot tune`, each with what to change.
/// Changes nothing. To count zero-filled pages, it reads the huge pages of the process, 0.1 to
/// 0.5 s per GiB; this requires permission to read its memory. Without a target, prints all
/// processes as `hugepilot top --once`.
#[derive(Args)]
#[command(group(
    ArgGroup::new("target").args(["pid", "name", "cgroup"]).multiple(true)
))]
#[command(after_help = LEGEND)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    selection: TargetArgs,
    /// Do not read huge pages: zero-filled bytes stay unknown
    #[arg(long, requires = "target")]
    no_contents: bool,
    /// Every mapping; by default the 40 largest, and the sum of the rest, or for several processes
    /// only their sums
    #[arg(long, requires = "target")]
    all: bool,
    /// Print one JSON object (schema hugepilot.status/2), or a line for each process if the flags
    /// can select several; without a target, schema hugepilot.top/2
    #[arg(long, conflicts_with = "all")]
    json: bool,
}

pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<Exit> {
    if args.selection.is_empty() {
        return top::run(&TopArgs::once(args.json));
    }
    descriptors::raise_limit();
    let (selected, mut excluded) = args.selection.open("show")?;
    // A report for each process of a large server would hide what they have in common.
    let is_group = !args.json && !args.all && selected.len() > 1;
    let (mut shown, mut group) = (0, StatusGroup::default());
    for SelectedProcess { process, .. } in selected {
        match status(&process, !args.no_contents) {
            Ok(report) => {
                match is_group {
                    true => group.add(&report),
                    false => print(&args.print(&report, shown == 0))?,
                }
                shown += 1;
            }
            // One of several may end meanwhile.
            Err(error) if error.is_gone() && args.selection.is_list() => {}
            Err(error) => excluded.add(error),
        }
    }
    if is_group && shown > 0 {
        print(&group_text(&group, width()))?;
    }
    if let Some(excluded) = excluded.count(shown)? {
        eprintln!("warning: {}", excluded.text());
        excluded.help().iter().for_each(|help| eprintln!("help: {help}"));
    }
    ensure!(shown > 0, "no process to show");
    Ok(Exit::Yes)
}

impl StatusArgs {
    /// A report as text, or as JSON: in one line if the flags can select several.
    fn print(&self, report: &StatusReport, is_first: bool) -> String {
        match () {
            () if self.json && self.selection.is_list() => json_lines(std::slice::from_ref(report)),
            () if self.json => json(report),
            () => {
                let text = status_text(report, width(), self.all);
                if is_first { text } else { format!("\n{text}") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_legend_has_every_column() {
        let columns = [
            "ADDRESSES",
            "SIZE",
            "RSS",
            "THP",
            "HUGETLB",
            "ELIGIBLE",
            "ZERO_FILLED",
            "NAME",
            "WHY_NOT_HUGE",
            "TUNE_SKIPS",
        ];
        for column in columns {
            assert!(LEGEND.contains(&format!("\n  {column} ")), "{column}");
        }
    }

    #[test]
    fn the_legend_has_every_reason_of_the_kernel_by_its_outlook() {
        let schema: serde_json::Value = crate::schema::schema("status").unwrap();
        let codes = schema["$defs"]["KernelReason"]["oneOf"].as_array().unwrap();
        let (may, will_not) = LEGEND.split_once("until a setting").unwrap();
        for code in codes.iter().map(|code| code["properties"]["code"]["const"].as_str().unwrap()) {
            let may_still = matches!(code, "khugepaged_pending" | "no_free_block");
            let part = if may_still { may } else { will_not };
            assert!(part.contains(&format!("\n  {code} ")), "{code}");
        }
    }

    #[test]
    fn the_legend_has_every_reason_for_which_memory_is_not_eligible() {
        /// Reasons of a plan, which `status` does not make.
        const OF_PLANS: [&str; 12] = [
            "already_split",
            "changed",
            "cooling_down",
            "little_bloat",
            "lost_huge_page",
            "memory_pressure",
            "over_budget",
            "protected",
            "recollapses_repeatedly",
            "streamed",
            "tlb_friendly",
            "too_cold",
        ];
        let schema: serde_json::Value = crate::schema::schema("status").unwrap();
        let reasons = schema["$defs"]["SkipReason"]["oneOf"].as_array().unwrap();
        let (_, legend) = LEGEND.split_once("\nTUNE_SKIPS:").unwrap();
        for reason in reasons.iter().map(|reason| reason["const"].as_str().unwrap()) {
            let is_there = legend.contains(&format!("\n  {reason} "));
            assert_ne!(is_there, OF_PLANS.contains(&reason), "{reason}");
        }
    }
}
