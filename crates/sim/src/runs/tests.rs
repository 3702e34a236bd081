use super::*;

fn batch(accesses: &[(u16, u64)]) -> (Batch, Footprint) {
    let (mut batch, mut footprint) = (Batch::default(), Footprint::new());
    for &(thread, address) in accesses {
        footprint.add(1, thread, [address], &mut batch);
    }
    (batch, footprint)
}

/// Accesses beyond the end are to the last region, and the footprint is full.
#[test]
fn a_footprint_has_an_end() {
    let mut footprint = Footprint { most: 3, ..Footprint::new() };
    let mut batch = Batch::default();
    footprint.add(0, 0, (0..3).map(|region| region << 21), &mut batch);
    assert!(!footprint.is_full());
    footprint.add(0, 0, (0..5).map(|region| region << 21), &mut batch);
    assert!(footprint.is_full());
    let regions: Vec<u32> = batch.runs().iter().map(AccessRun::region).collect();
    assert_eq!(regions, [0, 1, 2, 0, 1, 2, 2, 2]);
}

#[test]
fn accesses_of_a_thread_to_one_page_are_one_run() {
    let (batch, footprint) =
        batch(&[(0, 0x5000), (0, 0x5ff8), (1, 0x5000), (0, 0x5008), (0, 0x20_0000)]);
    let run = |page, accesses| AccessRun { page, accesses };
    let turns: Vec<(u16, &[AccessRun])> =
        batch.turns().map(|turn| (turn.thread, turn.runs)).collect();
    let expected: [(u16, &[AccessRun]); 3] =
        [(0, &[run(5, 2)]), (1, &[run(5, 1)]), (0, &[run(5, 1), run(512, 1)])];
    assert_eq!(turns, expected);
    assert_eq!(batch.runs().len(), 4);
    assert_eq!((footprint.pages(), footprint.threads()), (2, 2));
    assert_eq!(size_of::<AccessRun>(), 8);
}

#[test]
fn a_batch_has_the_regions_that_it_uses_first() {
    let address = |giant: u64, region: u64| giant << 30 | region << 21;
    let (mut batch, mut footprint) = batch(&[(0, address(5, 0)), (0, address(2, 7))]);
    let id = |giant: u64, region: u64, number| RegionId {
        number: base_page(1, address(giant, region)) >> 9,
        giant: number,
    };
    assert_eq!(batch.regions(), [id(5, 0, 0), id(2, 7, 1)]);
    assert_eq!(batch.runs()[1].base_page(batch.regions()[1].number), base_page(1, 0x80e0_0000));
    batch.clear();
    footprint.add(1, 0, [address(2, 7), address(5, 3), address(5, 3)], &mut batch);
    assert_eq!(batch.regions(), [id(5, 3, 0)]);
    let runs: Vec<_> = batch.runs().iter().map(|run| (run.region(), run.accesses)).collect();
    assert_eq!(runs, [(1, 1), (2, 2)]);
    batch.clear();
    assert!(batch.turns().next().is_none() && batch.regions().is_empty());
}

/// Its first access continues no run of the thread before.
#[test]
fn a_new_thread_on_a_core_has_runs_of_its_own() {
    let (mut batch, mut footprint) = batch(&[(0, 0x5000)]);
    batch.begin_thread(0);
    footprint.add(1, 0, [0x5000, 0x5008], &mut batch);
    footprint.add(1, 0, [0x5010], &mut batch);
    let turns: Vec<_> = batch.turns().map(|turn| (turn.is_new, turn.runs.to_vec())).collect();
    let run = |accesses| vec![AccessRun { page: 5, accesses }];
    assert_eq!(turns, [(false, run(1)), (true, run(3))]);
}

#[test]
fn no_access_is_no_turn() {
    let (mut batch, mut footprint) = (Batch::default(), Footprint::new());
    footprint.add(0, 7, [], &mut batch);
    assert_eq!((batch.turns().count(), footprint.threads()), (0, 0));
    footprint.add(0, 7, [0x5000], &mut batch);
    footprint.add(0, 7, [], &mut batch);
    footprint.add(0, 8, [], &mut batch);
    assert_eq!((batch.turns().count(), batch.runs().len()), (1, 1));
}

/// The follower has the visits and the bits of each batch, when it has followed it.
#[test]
fn a_footprint_follows_another_one() {
    let (mut leader, mut follower) = (Footprint::new(), Footprint::new());
    let mut address = 1_u64;
    for _ in 0..20 {
        let mut batch = Batch::default();
        for thread in 0..3 {
            let next = |_| {
                address = address.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                address >> 34
            };
            leader.add(thread, thread, (0..50).map(next).collect::<Vec<_>>(), &mut batch);
        }
        follower.follow(&batch);
        let all = |footprint: &Footprint| format!("{:?}", footprint.regions());
        assert_eq!(all(&leader), all(&follower));
        assert_eq!(leader.threads(), follower.threads());
        let regions = leader.regions().iter();
        for (number, region) in (0..).zip(regions) {
            assert_eq!(follower.find(region.process(), region.address()), Some(number));
        }
    }
    assert_eq!(follower.visits(), 3000);
}

#[test]
fn a_region_knows_its_process_and_address() {
    let (_, footprint) = batch(&[(0, 0x7fff_ffff_f000)]);
    let region = footprint.regions()[0];
    assert_eq!((region.process(), region.address()), (1, 0x7fff_ffe0_0000));
    assert_eq!(region.touched()[7], 1 << 63);
}
