//! Tests of `random-access`.

use super::super::memory::tests::ROOMY;
use super::*;

const PAGE: usize = 512;
const REGION: usize = 512 * PAGE;

fn config(mib: u64, bloat: &[u8]) -> RandomAccessConfig {
    let memory =
        MemoryConfig { footprint: Bytes::mib(mib), pages: Pages::Base, ..MemoryConfig::DEFAULT };
    RandomAccessConfig { memory, bloat: bloat.to_vec(), ..RandomAccessConfig::default() }
}

fn prepared(config: RandomAccessConfig) -> RandomAccess {
    RandomAccess::prepare(config, &ROOMY, 2).unwrap()
}

/// Used pages of each huge page.
fn used(access: &RandomAccess) -> Vec<Vec<usize>> {
    let used = |page: &(usize, &[u64])| page.1.iter().any(|&word| word != 0);
    let pages = |region: &[u64]| {
        region.chunks(PAGE).enumerate().filter(used).map(|(number, _)| number).collect::<Vec<_>>()
    };
    access.map.words().chunks(REGION).map(pages).collect()
}

/// Does `ops` updates on two threads and returns the changed words of each huge page.
fn changed(access: &mut RandomAccess, ops: u64) -> Vec<usize> {
    let before = access.map.words().to_vec();
    for mut worker in access.workers(2) {
        worker.step(ops).unwrap();
        worker.checksum().unwrap();
    }
    let regions = before.chunks(REGION).zip(access.map.words().chunks(REGION));
    regions.map(|(old, new)| old.iter().zip(new).filter(|(old, new)| old != new).count()).collect()
}

#[test]
fn each_part_has_its_bloat_and_the_sides_mirror_each_other() {
    let left = prepared(config(16, &[80, 20]));
    let counts: Vec<usize> = used(&left).iter().map(Vec::len).collect();
    assert_eq!(counts, [102, 102, 102, 102, 410, 410, 410, 410]);
    assert_eq!(left.bloat_bytes(), Some(8 << 20), "410 and 102 of 512 pages make exactly half");
    let right = prepared(RandomAccessConfig { side: Side::Right, ..config(16, &[80, 20]) });
    assert_eq!(
        used(&right).iter().map(Vec::len).collect::<Vec<_>>(),
        [410, 410, 410, 410, 102, 102, 102, 102]
    );
    let three = prepared(config(12, &[90, 100, 0]));
    assert_eq!(used(&three).iter().map(Vec::len).collect::<Vec<_>>(), [51, 51, 0, 0, 512, 512]);
}

#[test]
fn used_pages_are_contiguous_or_scattered_and_updates_touch_no_other() {
    let contiguous = prepared(config(8, &[80]));
    assert!(used(&contiguous).iter().all(|pages| pages.iter().copied().eq(0..102)));
    let scattered = RandomAccessConfig { layout: Layout::Scattered, ..config(8, &[80]) };
    let mut access = prepared(scattered.clone());
    let places = used(&access);
    assert!(places.iter().all(|pages| pages.len() == 102 && pages.iter().any(|&page| page > 400)));
    assert_ne!(places[0], places[1]);
    let neighbours = places[0].windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
    assert!(neighbours < 50, "{neighbours} of 102 have a neighbour");
    changed(&mut access, 100_000);
    assert_eq!(used(&access), places, "what is bloat stays bloat");
    let other =
        RandomAccessConfig { memory: MemoryConfig { seed: 2, ..scattered.memory }, ..scattered };
    assert_ne!(used(&prepared(other)), places);
}

#[test]
fn updates_spread_over_used_pages_or_fall_on_the_hot_part() {
    let share_of_first = |hot, skew_percent| {
        let config = RandomAccessConfig { hot, skew_percent, ..config(16, &[80, 20]) };
        let changed = changed(&mut prepared(config), 40_000);
        assert!(changed.iter().all(|&count| count > 100), "each huge page is used: {changed:?}");
        let sum = |part: &[usize]| part.iter().sum::<usize>() as f64;
        sum(&changed[..4]) / sum(&changed)
    };
    for (hot, skew, expected) in
        [(Hot::Uniform, 90, 0.2), (Hot::Bloated, 90, 0.9), (Hot::Dense, 75, 0.25)]
    {
        let share = share_of_first(hot, skew);
        // Words that are hit twice count once.
        assert!((share - expected).abs() < 0.04, "{hot:?}: {share}");
    }
}

#[test]
fn no_word_of_a_used_page_can_become_zero() {
    let mut access = prepared(config(4, &[99]));
    changed(&mut access, 1 << 20);
    let words = access.map.words();
    assert!(words.chunks(REGION).all(|region| region[..5 * PAGE].iter().all(|word| word & 1 == 1)));
}

#[test]
fn a_lost_word_is_detected() {
    for lost in [false, true] {
        let mut access = prepared(config(8, &[50, 0]));
        if lost {
            access.map.words_mut()[77] = 0;
        }
        let mut worker = access.workers(2).swap_remove(0);
        worker.step(1000).unwrap();
        assert_eq!(
            matches!(worker.checksum(), Err(WorkloadError::Damaged { workload: NAME })),
            lost
        );
    }
}

#[test]
fn the_hot_part_gets_most_updates() {
    let hot = |hot| {
        let access = prepared(RandomAccessConfig { hot, ..config(16, &[80, 20]) });
        let start = access.map.range().start;
        access.hot().iter().map(|range| (range.start.since(start), range.len())).collect::<Vec<_>>()
    };
    assert_eq!(hot(Hot::Uniform), [(Bytes::ZERO, Bytes::mib(16))]);
    assert_eq!(hot(Hot::Bloated), [(Bytes::ZERO, Bytes::mib(8))]);
    assert_eq!(hot(Hot::Dense), [(Bytes::mib(8), Bytes::mib(8))]);
}

#[test]
fn invalid_shares_and_threads_are_refused() {
    let refused = |mib, bloat| RandomAccess::prepare(config(mib, bloat), &ROOMY, 2).err().unwrap();
    for bloat in [&[][..], &[101], &[100, 100], &[50; 65]] {
        assert!(matches!(refused(256, bloat), WorkloadError::Bloat(_)), "{bloat:?}");
    }
    let small = refused(4, &[1, 2, 3]);
    assert!(matches!(small, WorkloadError::TooSmall { min, .. } if min == Bytes::mib(6)));
    assert!(matches!(refused(4, &[80, 20]), WorkloadError::Threads { max: 1, .. }));
}
