use hugepilot_record::trace::TraceMapping;
use hugepilot_reports::sim::SimPolicyReport;
use hugepilot_sim::{Batch, Footprint, Layout, TunedAct};
use hugepilot_trace::simulate::Simulated;
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

use super::*;

const MIB: u64 = 1 << 20;

/// Promotions of the regions at these MiB, in a process with one mapping from 2 to 9 MiB.
fn promoted(mib: &[u64]) -> PolicyResult {
    promoted_in("[heap]", mib)
}

fn promoted_in(name: &str, mib: &[u64]) -> PolicyResult {
    let (mut footprint, mut layout) = (Footprint::new(), Layout::default());
    footprint.add(0, 0, mib.iter().map(|at| at * MIB), &mut Batch::default());
    let range = AddrRange::new(VirtAddr::new(2 * MIB), VirtAddr::new(9 * MIB));
    layout.set(0, vec![TraceMapping { range, name: name.to_owned() }]);
    let act = |region| TunedAct { accesses: 9, region, promotes: true };
    let acts = (0..).zip(mib).map(|(region, _)| act(region)).collect();
    let (accesses, stores, threads, ends) = (10, 0, 1, Vec::new());
    let full = None;
    let simulated = Simulated { footprint, layout, accesses, stores, threads, ends, full };
    PolicyResult { report: SimPolicyReport::default(), acts, simulated }
}

#[test]
fn promotions_that_cannot_be_replayed_are_counted() {
    let of = |mib: &[u64]| of(&promoted(mib), "pcc").unwrap();
    let (schedule, promotions) = of(&[2, 4, 8, 40]);
    assert_eq!(schedule.events().len(), 2);
    let text = "2 of 4 promotions are in the schedule; 1 region crosses the border of a mapping, 1 \
                region is outside of all mappings";
    let report = SimPolicyReport { rounds: 1, ..SimPolicyReport::default() };
    let missing = promotions.missing(&report, &LastDecision::default());
    assert_eq!((promotions.to_string().as_str(), missing), (text, None));
    let (_, promotions) = of(&[2, 4, 40, 42]);
    let text = "2 of 4 promotions are in the schedule; 2 regions are outside of all mappings";
    assert_eq!(promotions.to_string(), text);
}

/// Arrays of a traced graph kernel, which no process has.
#[test]
fn promotions_in_arrays_are_not_replayed() {
    let (schedule, promotions) = of(&promoted_in("property:ranks", &[2, 4]), "pcc").unwrap();
    assert_eq!((schedule.events().len(), promotions.unmapped), (0, 2));
}

#[test]
fn a_schedule_without_promotions_is_refused_with_its_cause() {
    for (mib, rounds, cause) in [
        (&[][..], 0, "no decision: the accesses are fewer than --interval"),
        (&[], 3, "the policy promoted no region"),
        (&[8], 3, "all promoted regions cross the border of a mapping"),
        (&[40, 42], 3, "the trace does not have the mappings of the promoted regions"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("schedule");
        let mut result = promoted(mib);
        (result.report.rounds, result.report.input.complete) = (rounds, true);
        let planned = Planned::create(&path, "pcc").unwrap();
        let failure = planned.write(&result, &LastDecision::default()).unwrap_err();
        assert!(failure.to_string().ends_with(cause), "{failure}");
        assert!(!path.exists(), "{cause}");
    }
}

/// A shorter interval helps only if it has a decision, and none makes a region eligible.
#[test]
fn the_help_of_a_schedule_fits_its_cause() {
    let help = |accesses, interval, rounds, last: &LastDecision| {
        let mut report = SimPolicyReport { rounds, interval, ..SimPolicyReport::default() };
        report.input.accesses = accesses;
        let (cause, help) = Promotions::default().missing(&report, last).unwrap();
        format!("{cause}; {}", help.join("; "))
    };
    let last = |eligible, skipped: &[(SkipReason, u64)]| LastDecision {
        eligible,
        skipped: skipped.iter().copied().collect(),
    };
    let none = last(0, &[]);
    let cause = "no decision: the accesses are fewer than --interval";
    let longer =
        |accesses| format!("simulate a larger input, which makes {accesses} accesses or more");
    let shorter = "decide more often: --interval";
    assert_eq!(help(20_000, 2_000_000, 0, &none), format!("{cause}; {shorter} 2000"));
    assert_eq!(help(121, 2_000_000, 0, &none), format!("{cause}; {shorter} 120"));
    assert_eq!(help(120, 2_000_000, 0, &none), format!("{cause}; {}", longer(6_000_000)));
    assert_eq!(help(100, 120, 0, &none), format!("{cause}; {}", longer(360)));

    let cause = "the policy promoted no region";
    let other = "try another policy: hugepilot sim pcc";
    assert_eq!(help(20_000, 5000, 3, &none), format!("{cause}; {shorter} 2000; {other}"));
    let idle = last(0, &[(SkipReason::TooFewResident, 0)]);
    assert_eq!(help(20_000, 120, 3, &idle), format!("{cause}; {other}"));
    let cold = last(2, &[(SkipReason::TooCold, 7), (SkipReason::Unaligned, 9)]);
    assert_eq!(help(20_000, 5000, 3, &cold), format!("{cause}; {shorter} 2000; {other}"));
    let unaligned = last(0, &[(SkipReason::File, 2), (SkipReason::Unaligned, 9)]);
    let none = format!("{cause}: none is eligible, most because");
    let expected = format!(
        "{none} no whole, aligned huge page fits into a mapping there, as at its edges; simulate a \
         larger input, with a mapping of 4MiB or more"
    );
    assert_eq!(help(20_000, 5000, 3, &unaligned), expected);
    let files = last(0, &[(SkipReason::File, 2)]);
    assert!(help(20_000, 5000, 3, &files).ends_with("page walks: hugepilot sim tlb"));

    let mut report = SimPolicyReport { rounds: 3, ..SimPolicyReport::default() };
    let spent = last(0, &[(SkipReason::OverBudget, 9)]);
    let help = |report: &SimPolicyReport| {
        Promotions::default().missing(report, &spent).unwrap().1.join("; ")
    };
    report.input.regions = 4;
    assert_eq!(help(&report), "allow a huge page: --budget 25% or more");
    report.budget_of_bytes = Some(Bytes::mib(6));
    assert_eq!(help(&report), "allow a huge page: --budget 33.34% or more");
    report.frames = Some(0);
    assert_eq!(help(&report), "give it huge pages: --frames 1 or more");
}
