//! Warnings of simulations, for their text and for `report`.

use hugepilot_record::sim::{SimInput, SimPolicyReport, SimUtilityReport, SourceCut};

use crate::Sentence;
use crate::back_end::notice;
use crate::model::Notice;

/// Warnings about the accesses.
pub(crate) fn of_input(input: &SimInput) -> Vec<Notice> {
    let cut = input.cut.iter().map(|SourceCut { source, byte }| {
        Notice::warning(format!(
            "{source} is cut at byte {byte}; only the accesses before it are simulated"
        ))
    });
    let sources = input.warnings.iter().map(|warning| Notice {
        help: warning.help().into_iter().next(),
        ..Notice::warning(warning.text())
    });
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
pub(crate) fn of_policy(report: &SimPolicyReport) -> Vec<Notice> {
    let text = "no decision: the accesses are fewer than --interval";
    let few = (report.rounds == 0).then(|| Notice::warning(text));
    let is_so_far = report.run.budget_ratio.is_some() && report.budget_of_bytes.is_none();
    few.into_iter().chain(is_so_far.then(of_budget)).collect()
}

/// Warnings about utility curves.
pub(crate) fn of_utility(report: &SimUtilityReport) -> Vec<Notice> {
    let few = "the accesses are fewer than --interval; policies that decide once in it made no \
               decision";
    let few = (report.input.accesses < report.interval).then(|| Notice::warning(few));
    let names = report.prefix_not_found.iter().map(|name| {
        let text = format!("no mapping has the name {name}; policy prefix promotes nothing there");
        Notice::warning(text).help("list the mappings: hugepilot sim tlb --json")
    });
    let budget = report.budget_of_bytes.is_none().then(of_budget);
    few.into_iter().chain(names).chain(budget).collect()
}

/// Returns the warnings as lines.
pub(super) fn lines(notices: &[Notice]) -> String {
    notices.iter().map(notice).collect()
}
