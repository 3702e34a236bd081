use hugepilot_record::sim::SimPolicyReport;
use hugepilot_record::trace::TraceMapping;
use hugepilot_sim::{Batch, Footprint, Layout, TunedAct};
use hugepilot_trace::simulate::Simulated;
use hugepilot_units::{AddrRange, VirtAddr};

use super::*;

const MIB: u64 = 1 << 20;

/// Promotions of the regions at these MiB, in a process with one mapping from 2 to 9 MiB.
fn promoted(mib: &[u64]) -> PolicyResult {
    let (mut footprint, mut layout) = (Footprint::new(), Layout::default());
    footprint.add(0, 0, mib.iter().map(|at| at * MIB), &mut Batch::default());
    let range = AddrRange::new(VirtAddr::new(2 * MIB), VirtAddr::new(9 * MIB));
    layout.set(0, vec![TraceMapping { range, name: "[heap]".to_owned() }]);
    let act = |region| TunedAct { accesses: 9, region, promotes: true };
    let acts = (0..).zip(mib).map(|(region, _)| act(region)).collect();
    let (accesses, stores, threads, ends) = (10, 0, 1, Vec::new());
    let simulated = Simulated { footprint, layout, accesses, stores, threads, ends };
    PolicyResult { report: SimPolicyReport::default(), acts, simulated }
}

#[test]
fn promotions_that_cannot_be_replayed_are_counted() {
    let of = |mib: &[u64]| of(&promoted(mib), "pcc").unwrap();
    let (schedule, promotions) = of(&[2, 4, 8, 40]);
    assert_eq!(schedule.events().len(), 2);
    let text = "2 of 4 promotions are in the schedule; 1 region crosses the border of a mapping, 1 \
                region is outside of all mappings";
    assert_eq!((promotions.to_string().as_str(), promotions.missing(1)), (text, None));
    let (_, promotions) = of(&[2, 4, 40, 42]);
    let text = "2 of 4 promotions are in the schedule; 2 regions are outside of all mappings";
    assert_eq!(promotions.to_string(), text);
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
        let failure = Planned::create(&path, "pcc").unwrap().write(&result).unwrap_err();
        assert!(failure.to_string().ends_with(cause), "{failure}");
        assert!(!path.exists(), "{cause}");
    }
}
