use hugepilot_record::{
    Act, ActOutcome, Attempts, Errno, Headroom, Mapping, Next, Pid, Pressure, ProcessDecision,
    ProcessId, ProcessSnapshot, RegionPages, SplitAct, Window,
};
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

use super::*;
use crate::round::ProcessOutcome;

const SIZES: PageSizes = PageSizes::X86_64;

/// Memory of which these regions are huge, of the eight in its mapping.
fn memory(second: u64, huge: &[u64]) -> ProcessMemory {
    let pages = |number| {
        let (region, huge) = (Region::new(number), huge.contains(&number));
        (region, RegionPages { huge, ..RegionPages::on_base_pages(region, 512) })
    };
    ProcessMemory {
        time: Nanos::seconds(second),
        sizes: SIZES,
        mappings: vec![Mapping::anonymous(AddrRange::at(VirtAddr::new(0), SIZES.huge.times(8)))],
        heat: Vec::new(),
        stacks: Default::default(),
        pages: (0..8).map(pages).collect(),
        thp_disabled: false,
        untouched: Bytes::ZERO,
        headroom: Headroom::UNLIMITED,
        pressure: Pressure::default(),
    }
}

/// Adds a round that ends at this time, and tries and returns regions.
fn add(ledger: &mut Ledger, second: u64, tried: &[(u64, bool)], demoted: &[(u64, SplitOutcome)]) {
    let promotion = |&(number, _): &(u64, bool)| Promotion {
        region: Region::new(number),
        heat_ratio: 0.125,
        sampled_pages: 3,
        added: Bytes::ZERO,
        lazily_freed: Bytes::ZERO,
        mapping: "[anon]".to_owned(),
    };
    let act = |&(number, is_verified): &(u64, bool)| Act {
        region: Region::new(number),
        took: Nanos::millis(1),
        calls: 1,
        outcome: match is_verified {
            true => ActOutcome::Verified,
            false => ActOutcome::Failed(Errno::ENOMEM),
        },
    };
    let split = |&(number, outcome): &(u64, SplitOutcome)| SplitAct {
        region: Region::new(number),
        took: Nanos::ZERO,
        outcome,
    };
    let decision = ProcessDecision { promote: tried.iter().map(promotion).collect(), ..nothing() };
    let outcome = ProcessOutcome {
        begun: Some(Nanos::seconds(second)),
        ended: Some(Nanos::seconds(second)),
        attempts: Attempts { acts: tried.iter().map(act).collect(), ..Attempts::default() },
        demotions: demoted.iter().map(split).collect(),
    };
    ledger.add(&row(decision, outcome), false);
}

fn row(decision: ProcessDecision, outcome: ProcessOutcome) -> Row {
    let window = Window::starting(Nanos::ZERO);
    let seen = ProcessSnapshot { id: decision.process.clone(), window, memory: memory(0, &[]) };
    Row { seen, decision, outcome, after: None }
}

/// A decision that selects nothing.
fn nothing() -> ProcessDecision {
    ProcessDecision {
        process: ProcessId { pid: Pid(7), start_ticks: 7, command: "db".into() },
        promote: Vec::new(),
        demote: Vec::new(),
        eligible: 0,
        skipped: BTreeMap::new(),
        skipped_stalls: BTreeMap::new(),
        expected: None,
        next: Next::End,
    }
}

/// Attempted, verified, kept, demoted and lost regions.
fn counts(ledger: &Ledger) -> [u64; 5] {
    let LedgerCounts { attempted, verified, kept, demoted, lost, .. } = ledger.counts();
    [attempted, verified, kept, demoted, lost]
}

#[test]
fn a_lost_region_is_counted_once_until_it_is_huge_again() {
    let mut ledger = Ledger::default();
    add(&mut ledger, 2, &[(0, true), (1, true), (2, true), (3, false)], &[]);
    assert_eq!(counts(&ledger), [4, 3, 3, 0, 0]);
    ledger.note_memory(&memory(1, &[]));
    assert_eq!(counts(&ledger), [4, 3, 3, 0, 0], "read before the promotion");
    for second in [3, 4] {
        ledger.note_memory(&memory(second, &[0, 3]));
        assert_eq!(counts(&ledger), [4, 3, 1, 0, 2], "a failed one is none of them");
    }
    add(&mut ledger, 5, &[(1, true), (2, false)], &[]);
    assert_eq!(counts(&ledger), [4, 3, 2, 0, 1], "one is promoted again");
    ledger.note_memory(&memory(6, &[0, 1, 2]));
    assert_eq!(counts(&ledger), [4, 3, 3, 0, 0]);
    ledger.note_huge(|region| (region != Region::new(1)).then_some(false));
    assert_eq!(counts(&ledger), [4, 3, 1, 0, 2], "one cannot be read");
    let kept: Vec<_> = ledger.kept().map(|(region, end, _)| (region.get(), end)).collect();
    assert_eq!(kept, [(1, Nanos::seconds(5))]);
}

#[test]
fn what_a_process_unmaps_just_before_its_end_is_not_lost() {
    let unmapped = |second| ProcessMemory {
        mappings: Vec::new(),
        pages: BTreeMap::new(),
        ..memory(second, &[])
    };
    for (before_end, expected) in [(&[3][..], [2, 2, 1, 0, 1]), (&[3, 4], [2, 2, 0, 0, 2])] {
        let mut ledger = Ledger::default();
        add(&mut ledger, 1, &[(0, true), (1, true)], &[]);
        ledger.note_memory(&memory(2, &[0]));
        before_end.iter().for_each(|&second| ledger.note_memory(&unmapped(second)));
        assert_eq!(counts(&ledger), [2, 2, 0, 0, 2]);
        ledger.note_end();
        assert_eq!(counts(&ledger), expected, "one was split before, or unmapped long before");
    }
}

#[test]
fn a_region_that_was_returned_is_not_lost() {
    let mut ledger = Ledger::default();
    add(&mut ledger, 2, &[(0, true), (1, true), (2, true), (3, true)], &[]);
    let freed = SplitOutcome::Freed(Bytes::ZERO);
    let split = SplitOutcome::Skipped(SkipReason::AlreadySplit);
    add(&mut ledger, 3, &[], &[(0, freed), (1, split), (2, SplitOutcome::StillHuge)]);
    assert_eq!(counts(&ledger), [4, 4, 2, 1, 1]);
    ledger.note_memory(&memory(4, &[0, 2]));
    assert_eq!(counts(&ledger), [4, 4, 1, 1, 2]);
    assert_eq!(ledger.heat_ratio(), Some(0.125), "only one is left");
    add(&mut ledger, 5, &[(0, true)], &[]);
    assert_eq!(counts(&ledger), [4, 4, 2, 0, 2], "it is promoted again");
}

#[test]
fn the_end_of_the_process_freed_what_should_have_returned() {
    for (stopped, expected) in
        [(Some(Stop::TargetGone), [3, 3, 1, 0, 2]), (Some(Stop::Interrupted), [3, 3, 3, 0, 0])]
    {
        let mut ledger = Ledger::default();
        add(&mut ledger, 2, &[(0, true), (1, true), (2, true)], &[]);
        let demote = vec![Region::new(0), Region::new(2)];
        let decision = ProcessDecision { demote, ..nothing() };
        let attempts = Attempts { stopped, ..Attempts::default() };
        let outcome = ProcessOutcome { attempts, ..ProcessOutcome::default() };
        ledger.add(&row(decision, outcome), false);
        assert_eq!(counts(&ledger), expected);
        assert_eq!(ledger.counts().freed_by(), None, "one is left");
    }
}
