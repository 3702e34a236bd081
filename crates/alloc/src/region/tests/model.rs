//! Many regions at once against a model: none overlap, contents are kept, all is given back.

use hugepilot_units::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::sys::scripted::ScriptedSys;
use crate::{HugeRegion, Options, Setting};

#[derive(Clone, Debug)]
enum Step {
    /// So many KiB, on that chain, aligned to 2^n.
    Map(u64, usize, u32),
    /// That region to so many KiB more.
    Grow(usize, u64),
    Drop(usize),
}

const CHAINS: [&str; 4] = ["base", "thp:50%,base", "hugetlb-2m,thp,base", "collapse"];

fn step() -> impl Strategy<Value = Step> {
    let kib = if cfg!(miri) { 1..64_u64 } else { 1..9000_u64 };
    prop_oneof![
        3 => (kib.clone(), 0..CHAINS.len(), 0..24_u32).prop_map(|(kib, chain, align)| Step::Map(kib, chain, align)),
        2 => (0..8_usize, kib).prop_map(|(which, kib)| Step::Grow(which, kib)),
        1 => (0..8_usize).prop_map(Step::Drop),
    ]
}

/// A mark at both ends of the first bytes.
struct Marked {
    region: HugeRegion<ScriptedSys>,
    mark: u8,
    keep: usize,
}

impl Marked {
    fn new(mut region: HugeRegion<ScriptedSys>, mark: u8) -> Self {
        let keep = region.requested_len().as_usize();
        (region.bytes_mut()[0], region.bytes_mut()[keep - 1]) = (mark, mark);
        Self { region, mark, keep }
    }
    fn is_kept(&self) -> bool {
        self.region.bytes()[0] == self.mark && self.region.bytes()[self.keep - 1] == self.mark
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 3 } else { 100 }, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn regions_are_apart_and_all_is_given_back(steps in vec(step(), 1..24)) {
        let sys = ScriptedSys::default();
        sys.set(Setting::ThpEnabled, "always [madvise] never");
        sys.set(Setting::Thp2MEnabled, "always [inherit] madvise never");
        sys.pool(Bytes::mib(2), 4);
        let mut live: Vec<Marked> = Vec::new();
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Map(kib, chain, align) => {
                    let options = Options::new(CHAINS[chain].parse().unwrap()).aligned(Bytes::new(1 << align));
                    let region = HugeRegion::map_on(sys.clone(), Bytes::kib(kib), &options).unwrap();
                    prop_assert_eq!(region.range().start.get() % (1 << align), 0);
                    prop_assert!(region.len() >= Bytes::kib(kib));
                    live.push(Marked::new(region, u8::try_from(i + 1).unwrap()));
                }
                Step::Grow(which, kib) if which < live.len() => {
                    let marked = &mut live[which];
                    let len = marked.region.len() + Bytes::kib(kib);
                    marked.region.grow(len, marked.keep).unwrap();
                    prop_assert!(marked.region.len() >= len);
                    let align = marked.region.requested().align.get();
                    prop_assert_eq!(marked.region.range().start.get() % align, 0);
                }
                Step::Drop(which) if which < live.len() => drop(live.swap_remove(which)),
                Step::Grow(..) | Step::Drop(_) => {}
            }
            prop_assert!(live.iter().all(Marked::is_kept));
            let mut ranges: Vec<_> = live.iter().map(|marked| marked.region.range()).collect();
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
            prop_assert_eq!(sys.mappings(), live.len());
        }
        drop(live);
        prop_assert_eq!((sys.mappings(), sys.pool_free(Bytes::mib(2))), (0, 4));
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads /proc/self/maps")]
fn the_kernel_lists_nothing_of_ours_afterwards() {
    let name = "alloc test: all given back";
    let listed = || std::fs::read_to_string("/proc/self/maps").unwrap().matches(name).count();
    for chain in ["base", "thp:50%,base", "collapse,base"] {
        let options = Options::new(chain.parse().unwrap()).named(name).unwrap();
        let mut region = HugeRegion::map(Bytes::mib(5), &options.aligned(Bytes::mib(4))).unwrap();
        region.grow(Bytes::mib(9), 0).unwrap();
        assert!(listed() > 0 || region.named() != crate::NameStatus::Set);
        drop(region);
        assert_eq!(listed(), 0, "{chain}");
    }
}
