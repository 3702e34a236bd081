//! Warnings of simulations.

use hugepilot_render::model::Notice;
use hugepilot_units::{Bytes, PageSizes, Share};

use super::counted;
use crate::sim::{SimInput, SimPolicyReport, SimUtilityReport, SourceCut};

/// Warnings about the accesses.
pub(super) fn of_input(input: &SimInput) -> Vec<Notice> {
    let cut = input.cut.iter().map(|SourceCut { source, byte }| {
        Notice::warning(format!(
            "{source} is cut at byte {byte}; only the accesses before it are simulated"
        ))
    });
    let sources = Notice::warnings(&input.warnings);
    let is_part = !input.complete && input.cut.is_empty();
    let part = "a source ended early, so this is a part of its accesses";
    cut.chain(sources).chain(is_part.then(|| Notice::warning(part))).collect()
}

/// Note about budgets of a program, which are shares of less than all of its memory.
fn of_budget() -> Notice {
    Notice::note("a budget is a share of the memory in use at each decision, as CMD runs only once")
        .help("for a share of all memory, simulate a trace: hugepilot trace -o FILE -- CMD")
}

/// Warnings about a policy.
pub(super) fn of_policy(report: &SimPolicyReport) -> Vec<Notice> {
    let SimPolicyReport { input, interval, rounds, .. } = report;
    let few = match rounds {
        // It decides whenever more memory is in use.
        _ if report.run.policy == "prefix" => None,
        0 => Some(few_decisions(input, *interval, "no decision".to_owned())),
        1..FEW if is_short(input, *interval) => {
            let decisions = counted(*rounds, "decision", "decisions");
            Some(few_decisions(input, *interval, format!("only {decisions}")))
        }
        _ => None,
    };
    let is_so_far = report.run.budget_ratio.is_some() && report.budget_of_bytes.is_none();
    let names = not_found(&report.prefix_not_found);
    let small =
        small_budgets("--budget", report.run.budget_ratio, used(input, report.budget_of_bytes));
    few.into_iter().chain(names).chain(small).chain(is_so_far.then(of_budget)).collect()
}

/// Returns the memory of which a budget is a share; at most that of all regions.
fn used(input: &SimInput, of: Option<Bytes>) -> Bytes {
    of.unwrap_or(PageSizes::X86_64.huge.times(input.regions))
}

/// Note about budgets that allow no huge page.
fn small_budgets(flag: &str, ratios: impl IntoIterator<Item = f64>, of: Bytes) -> Option<Notice> {
    let huge = PageSizes::X86_64.huge;
    let is_small = |share: &Share| share.get() > 0.0 && share.of(of) < huge && of >= huge;
    let small: Vec<_> = ratios.into_iter().map(Share::ratio).filter(is_small).collect();
    let names: Vec<_> = small.iter().map(Share::to_string).collect();
    let (what, are) = match names.len() {
        0 => return None,
        1 => ("budget", "is"),
        _ => ("budgets", "are"),
    };
    let text = format!(
        "{what} {} of {of} {are} less than a huge page of {huge}, so nothing is promoted",
        names.join(", ")
    );
    let least = budget_of_a_page(of);
    Some(Notice::note(text).help(format!("allow a huge page: {flag} {least} or more")))
}

/// Returns the smallest budget, in steps of 0.01 %, with a huge page.
pub fn smallest_budget(report: &SimPolicyReport) -> Share {
    budget_of_a_page(used(&report.input, report.budget_of_bytes))
}

/// The same in memory of this size.
fn budget_of_a_page(of: Bytes) -> Share {
    let regions = (of.get() / PageSizes::X86_64.huge.get()).max(1);
    Share::percent(10_000u64.div_ceil(regions) as f64 / 100.0)
}

/// Shortest `--interval`.
const MIN_INTERVAL: u64 = 120;
/// Intervals of a run that lets a policy act on what it observed.
const FEW: u64 = 3;

fn is_short(input: &SimInput, interval: u64) -> bool {
    input.accesses < interval.saturating_mul(FEW)
}

/// Warning about a run of few intervals.
fn few_decisions(input: &SimInput, interval: u64, what: String) -> Notice {
    let times = match input.accesses / interval.max(1) {
        0 => "fewer than".to_owned(),
        1 => "fewer than twice".to_owned(),
        _ => "fewer than three times".to_owned(),
    };
    let text = format!("{what}: the accesses are {times} --interval");
    Notice { help: more_decisions(input.accesses, interval), ..Notice::warning(text) }
}

/// Returns how to get more decisions: by a shorter interval, or, if it is the shortest or the
/// accesses do not suffice for it, by a longer run. `None` if the run is long.
pub fn more_decisions(accesses: u64, interval: u64) -> Option<String> {
    // A tenth leaves nine tenths of the accesses behind the first decision.
    let shorter = (accesses / 10).max(MIN_INTERVAL);
    if shorter < interval.min(accesses) {
        return Some(format!("decide more often: --interval {shorter}"));
    }
    let least = interval.saturating_mul(FEW);
    let longer = || format!("simulate a larger input, which makes {least} accesses or more");
    (accesses < least).then(longer)
}

fn not_found(names: &[String]) -> impl Iterator<Item = Notice> {
    names.iter().map(|name| {
        let text = format!("no mapping has the name {name}; policy prefix promotes nothing there");
        Notice::warning(text).help("list the mappings: hugepilot sim tlb --json")
    })
}

/// Warnings about utility curves.
pub(super) fn of_utility(report: &SimUtilityReport) -> Vec<Notice> {
    let SimUtilityReport { input, interval, .. } = report;
    let what = match input.accesses / (*interval).max(1) {
        0 => "no decisions of policies that decide once in --interval",
        _ => "few decisions of policies that decide once in --interval",
    };
    let few = is_short(input, *interval);
    let few = few.then(|| few_decisions(input, *interval, what.to_owned()));
    let budget = report.budget_of_bytes.is_none().then(of_budget);
    let budgets = report.points.iter().map(|point| point.budget_ratio);
    let small = small_budgets("--budgets", budgets, used(input, report.budget_of_bytes));
    let names = not_found(&report.prefix_not_found);
    few.into_iter().chain(names).chain(small).chain(budget).collect()
}
