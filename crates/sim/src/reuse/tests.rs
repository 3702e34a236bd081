use proptest::prelude::*;

use super::*;

fn reuse(rate: f64, addresses: impl IntoIterator<Item = u64>) -> (Reuse, Footprint) {
    let (mut footprint, mut batch) = (Footprint::new(), Batch::default());
    footprint.add(0, 0, addresses, &mut batch);
    let mut reuse = Reuse::new(ReuseConfig { rate });
    reuse.run(&batch);
    (reuse, footprint)
}

fn random(pages: u64, count: usize) -> impl Iterator<Item = u64> {
    let mut state = 88_172_645_463_325_252u64;
    let next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % pages * 4096
    };
    std::iter::repeat_with(next).take(count)
}

/// A table of C entries hits C of N pages that are used at random.
#[test]
fn random_access_has_a_straight_curve() {
    let (reuse, _) = reuse(1.0, random(4096, 1_000_000));
    let histogram = reuse.histogram(PageClass::Base);
    for entries in [256, 1024, 2048, 3072] {
        let expected = 1.0 - entries as f64 / 4096.0;
        let found = histogram.miss_ratio(entries);
        assert!((found - expected).abs() < 0.005, "{entries}: {found} for {expected}");
    }
    let first_uses = 4096.0 / 1_000_000.0;
    assert!((histogram.miss_ratio(4096) - first_uses).abs() < 1e-9);
}

/// SHARDS reports a mean error below 0.01 for thousands of sampled pages.
#[test]
fn a_sample_of_pages_has_nearly_the_same_curve() {
    let skewed = || {
        random(1 << 16, 2_000_000).map(|address| {
            let page = address / 4096;
            page * page / (1 << 16) * 4096
        })
    };
    let (exact, sampled) = (reuse(1.0, skewed()).0, reuse(0.1, skewed()).0);
    let error = |entries| {
        let of = |reuse: &Reuse| reuse.histogram(PageClass::Base).miss_ratio(entries);
        (of(&exact) - of(&sampled)).abs()
    };
    let sizes = [256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768];
    let mean = sizes.into_iter().map(error).sum::<f64>() / sizes.len() as f64;
    assert!(mean < 0.03, "mean error {mean}");
}

/// Three kinds: a page used all the time, a region whose pages are used in turn, and regions used
/// in turn.
#[test]
fn pages_have_the_kind_of_their_distances() {
    let turn = |at: u64| {
        let hub = (1 << 30) + at % 512 * 4096 * 7 % (2 << 20);
        let cold = (2 << 30) + at * 4096 * 512 % (4 << 30);
        [0, 0, hub, cold, 8]
    };
    let (reuse, footprint) = reuse(1.0, (0..100_000).flat_map(turn));
    let pages: Vec<_> = reuse.pages(&footprint).collect();
    let kind = |address: u64| {
        let page = pages.iter().find(|page| page.page == address >> 12).unwrap();
        page.kind
    };
    assert_eq!(kind(0), ReuseKind::TlbFriendly);
    assert_eq!(kind(1 << 30), ReuseKind::Hub);
    assert_eq!(kind(2 << 30), ReuseKind::LowReuse);
    assert_eq!(pages.len(), footprint.pages() as usize);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// Histograms and means of all levels against lists and sums.
    #[test]
    fn all_levels_are_those_of_lists(
        addresses in prop::collection::vec((0u64..4, 0u64..1024, 0u64..4), 1..1500),
    ) {
        let addresses: Vec<_> = addresses
            .into_iter()
            .map(|(giant, page, near)| giant << 30 | page << 12 << (near % 2))
            .collect();
        let (reuse, _) = reuse(1.0, addresses.iter().copied());
        for class in PageClass::ALL {
            let (mut list, mut expected) = (Vec::new(), Histogram::new(1.0));
            for &address in &addresses {
                let page = address >> 12 >> class.shift();
                let found = list.iter().position(|&held| held == page);
                found.map(|at| list.remove(at));
                list.insert(0, page);
                expected.add(found.map(|at| at as u64), 1);
            }
            let found = reuse.histogram(class);
            prop_assert!(found.buckets().eq(expected.buckets()));
            prop_assert_eq!(found.cold(), expected.cold());
        }
    }
}
