//! Budget that several processes share, in their reports.

use hugepilot_record::tune::{NoVerdict, TuneReport};
use hugepilot_units::Bytes;

use super::Session;

impl Session<'_> {
    /// Sets the budget that several targets share: of the sum of their resident memory.
    pub(super) fn share_budget(&self, reports: &mut [TuneReport]) {
        let is_excluded =
            |report: &TuneReport| matches!(report.no_verdict, Some(NoVerdict::Excluded(_)));
        let tuned = reports.iter().filter(|report| !is_excluded(report));
        let resident: Bytes = tuned.filter_map(|report| report.footprint_bytes).sum();
        let budget = self.options.goal.budget_of(resident);
        reports.iter_mut().for_each(|report| report.budget_bytes = budget);
    }
}

/// Notes for each of several processes that share a budget the huge pages that the others got.
pub(super) fn note_others(reports: &mut [TuneReport], huge: Bytes) {
    let regions = |report: &TuneReport| match report.dry_run {
        true => report.selected.len() as u64,
        false => report.kept_regions(),
    };
    let all: u64 = reports.iter().map(regions).sum();
    let has_others = reports.len() > 1;
    for report in reports {
        let others = huge.times(all - regions(report));
        report.budget_of_others_bytes = report.budget_bytes.filter(|_| has_others).map(|_| others);
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

    use super::*;
    use crate::tune::session::empty_report;
    use crate::tune::{TuneOptions, open};

    #[test]
    fn each_of_several_processes_knows_what_the_others_got_of_the_budget() {
        let own = open(Pid(std::process::id().cast_signed())).unwrap();
        let others = |dry_run, budget: Option<Bytes>| {
            let report = TuneReport {
                budget_bytes: budget,
                ..empty_report(&own, &TuneOptions { dry_run, ..TuneOptions::default() })
            };
            let tuned = TuneReport { verified_regions: 9, demoted_regions: 4, ..report.clone() };
            let mut all = [tuned, report.clone(), report];
            note_others(&mut all, Bytes::mib(2));
            all.map(|report| report.budget_of_others_bytes)
        };
        let mib = |size| Some(Bytes::mib(size));
        assert_eq!(others(false, mib(12)), [mib(0), mib(10), mib(10)]);
        assert_eq!(others(true, mib(12)), [mib(0); 3], "no region is selected");
        assert_eq!(others(false, None), [None; 3]);
    }
}
