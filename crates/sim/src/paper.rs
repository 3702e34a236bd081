//! Examples of the candidate cache paper (Manocha et al., MICRO'23), worked by hand.

use crate::machine::{Machine, MachineConfig};
use crate::pages::PageClass;
use crate::pcc::{Pcc, PccConfig, PccReplacement, Ranked};
use crate::preset::Preset;
use crate::reuse::{Reuse, ReuseConfig, ReuseKind};
use crate::runs::{Batch, Footprint};

/// Act on a table of regions A, B, C …
enum Act {
    Walk(char),
    /// A promotion, which invalidates the entry.
    Promote(char),
}
use Act::{Promote, Walk};

/// Executes acts, each with the table after it: regions and frequencies, highest first.
fn follow(replacement: PccReplacement, steps: &[(Act, &[(char, u32)])]) {
    let mut pcc = Pcc::new(PccConfig { entries: 3, counter_bits: 3, replacement });
    for (at, (act, expected)) in steps.iter().enumerate() {
        match *act {
            Walk(region) => pcc.touch(u32::from(region)),
            Promote(region) => _ = pcc.remove(u32::from(region)),
        }
        let name = |one: Ranked| (char::from_u32(one.region).unwrap(), one.frequency);
        let found: Vec<_> = pcc.ranked().into_iter().map(name).collect();
        assert_eq!(found, *expected, "after step {}", at + 1);
    }
}

/// Section 3.2.1: a hit increments, a new region has frequency 0, and a full table evicts the
/// lowest frequency, the oldest of them. Counters of 3 bits saturate at 7; then all are halved.
#[test]
fn a_table_of_three_entries_follows_section_3_2_1() {
    follow(
        PccReplacement::Lfu,
        &[
            (Walk('A'), &[('A', 0)]),
            (Walk('B'), &[('B', 0), ('A', 0)]),
            (Walk('A'), &[('A', 1), ('B', 0)]),
            (Walk('C'), &[('A', 1), ('C', 0), ('B', 0)]),
            // B and C have 0; B was used longer ago.
            (Walk('D'), &[('A', 1), ('D', 0), ('C', 0)]),
            (Walk('C'), &[('C', 1), ('A', 1), ('D', 0)]),
            // D alone has 0, although A was used longer ago.
            (Walk('B'), &[('C', 1), ('A', 1), ('B', 0)]),
            (Walk('A'), &[('A', 2), ('C', 1), ('B', 0)]),
            (Walk('A'), &[('A', 3), ('C', 1), ('B', 0)]),
            (Walk('A'), &[('A', 4), ('C', 1), ('B', 0)]),
            (Walk('A'), &[('A', 5), ('C', 1), ('B', 0)]),
            (Walk('A'), &[('A', 6), ('C', 1), ('B', 0)]),
            // 7 saturates: 7, 1 and 0 become 3, 0 and 0. B was used after C.
            (Walk('A'), &[('A', 3), ('B', 0), ('C', 0)]),
            (Walk('E'), &[('A', 3), ('E', 0), ('B', 0)]),
            (Promote('A'), &[('E', 0), ('B', 0)]),
            // The free entry needs no victim.
            (Walk('F'), &[('F', 0), ('E', 0), ('B', 0)]),
        ],
    );
}

/// The simpler policy of section 3.2.1 evicts A, whose frequency is not the lowest.
#[test]
fn a_table_with_lru_evicts_the_oldest() {
    follow(
        PccReplacement::Lru,
        &[
            (Walk('A'), &[('A', 0)]),
            (Walk('A'), &[('A', 1)]),
            (Walk('B'), &[('A', 1), ('B', 0)]),
            (Walk('C'), &[('A', 1), ('C', 0), ('B', 0)]),
            (Walk('D'), &[('D', 0), ('C', 0), ('B', 0)]),
            (Walk('B'), &[('B', 1), ('D', 0), ('C', 0)]),
            (Walk('A'), &[('B', 1), ('A', 0), ('D', 0)]),
        ],
    );
}

/// Page, walks after its access, and the table after it.
type Step = ((u64, u64), u64, &'static [(u32, u32)]);

/// Figure 3: only walks reach the table, and of them only those that find the accessed bit of the
/// region set. Figure 4: promoted candidates leave the table.
/// The L1 TLB has one entry, and there is no L2.
#[test]
fn accesses_reach_the_table_as_figure_3_shows() {
    let one = r#"
        name = "one entry"
        cpu = "none"
        source = "none"
        levels = 4
        l1 = [{ holds = ["base", "huge", "giant"], entries = 1 }]
    "#;
    let mut machine = Machine::new(MachineConfig::new(Preset::parse(one).unwrap()));
    let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
    let mut access = |machine: &mut Machine, (region, page): (u64, u64)| {
        batch.clear();
        footprint.add(0, 0, [region << 21 | page << 12], &mut batch);
        machine.run(&batch);
        let table = machine.candidates().remove(0);
        let table = table.into_iter().map(|one| (one.region, one.frequency));
        (machine.counts().walks, table.collect::<Vec<_>>())
    };
    let steps: [Step; 7] = [
        // A cold region: the walk sets its accessed bit.
        ((0, 0), 1, &[]),
        // A hit in the TLB.
        ((0, 0), 1, &[]),
        ((0, 1), 2, &[(0, 0)]),
        ((0, 2), 3, &[(0, 1)]),
        ((1, 0), 4, &[(0, 1)]),
        ((1, 1), 5, &[(0, 1), (1, 0)]),
        ((0, 0), 6, &[(0, 2), (1, 0)]),
    ];
    for (at, (page, walks, table)) in steps.into_iter().enumerate() {
        assert_eq!(access(&mut machine, page), (walks, table.to_vec()), "step {}", at + 1);
    }
    machine.set_class(0, PageClass::Huge);
    assert_eq!(access(&mut machine, (0, 3)), (7, vec![(1, 0)]), "a promoted region stays out");
    assert_eq!(access(&mut machine, (0, 4)), (7, vec![(1, 0)]), "one page now");
}

/// Figure 2: low is below 1,024, for a 4 KiB page and for its 2 MiB region. A turn of 2,048
/// accesses has, by hand:
///
/// | page | accesses in a turn | its distance | its region's | kind |
/// |---|---|---|---|---|
/// | T | 4 k | 4 | 4 | TLB-friendly |
/// | H0 to H3, one region | 4 k + 1: k = 0, 128, 256, 384 | 2,048 | 512 | HUB |
/// | L | 4 k + 2: k = 0 | 2,048 | 2,048 | low reuse |
/// | others, each once | the rest | infinite | 1 to 2 | HUB |
#[test]
fn pages_are_classified_as_figure_2_does() {
    let (t, h, l, others) = (1 << 30, 2 << 30, 3 << 30, 4 << 30);
    let mut next = others;
    let mut other = || {
        next += 4096;
        next
    };
    let mut turn = || -> Vec<u64> {
        let four = |k: u64| {
            let hub = (k.is_multiple_of(128)).then_some(h | ((k / 128) << 12));
            [t, hub.unwrap_or_else(&mut other), if k == 0 { l } else { other() }, other()]
        };
        (0..512).flat_map(four).collect()
    };
    let accesses: Vec<u64> = (0..5).flat_map(|_| turn()).collect();
    let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
    footprint.add(0, 0, accesses, &mut batch);
    let mut reuse = Reuse::new(ReuseConfig::default());
    reuse.run(&batch);
    let found = |address: u64| {
        let page = reuse.pages(&footprint).find(|page| page.page == address >> 12).unwrap();
        (page.base, page.huge, page.kind)
    };
    assert_eq!(found(t), (4.0, 4.0, ReuseKind::TlbFriendly));
    for hub in 0..4 {
        assert_eq!(found(h | hub << 12), (2048.0, 512.0, ReuseKind::Hub), "H{hub}");
    }
    assert_eq!(found(l), (2048.0, 2048.0, ReuseKind::LowReuse));
    let (base, _, kind) = found(others + 4096);
    assert_eq!((base, kind), (f64::INFINITY, ReuseKind::Hub));
    // The borders of the figure's three areas.
    assert_eq!(ReuseKind::of(1023.9, 2000.0), ReuseKind::TlbFriendly);
    assert_eq!(ReuseKind::of(1024.0, 1023.9), ReuseKind::Hub);
    assert_eq!(ReuseKind::of(1024.0, 1024.0), ReuseKind::LowReuse);
}

/// Stack distances of `a b c b a d a`, by hand: first uses, then 1 (c), 2 (b, c), first, 1 (d).
#[test]
fn stack_distances_count_distinct_pages() {
    let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
    let pages = [0, 1, 2, 1, 0, 3, 0].map(|page: u64| page << 12);
    footprint.add(0, 0, pages, &mut batch);
    let mut reuse = Reuse::new(ReuseConfig::default());
    reuse.run(&batch);
    let histogram = reuse.histogram(PageClass::Base);
    assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(1, 2.0), (2, 1.0)]);
    assert_eq!(histogram.cold(), 4.0);
}
