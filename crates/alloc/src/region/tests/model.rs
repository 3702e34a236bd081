//! Random use of many regions against a model: no overlap, contents kept, all memory unmapped.

use hugepilot_units::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::sys::scripted::{ScriptedSys, cases};
use crate::{HugeRegion, Options, Setting};

#[derive(Clone, Debug)]
enum Step {
    /// Length in KiB, index of the chain, shift of the alignment.
    Map(u64, usize, u32),
    /// Index of the region, additional KiB.
    Grow(usize, u64),
    Drop(usize),
}

const CHAINS: [&str; 4] = ["base", "thp:50%,base", "hugetlb-2m,thp,base", "collapse"];

fn step() -> impl Strategy<Value = Step> {
    let kib = if cfg!(miri) { 1..64_u64 } else { 1..9000_u64 };
    prop_oneof![
        3 => (kib.clone(), 0..CHAINS.len(), 0..24_u32)
            .prop_map(|(kib, chain, align)| Step::Map(kib, chain, align)),
        2 => (0..8_usize, kib).prop_map(|(which, kib)| Step::Grow(which, kib)),
        1 => (0..8_usize).prop_map(Step::Drop),
    ]
}

/// Region with marks at both ends of its first bytes.
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
    #![proptest_config(cases(100, 3))]
    #[test]
    fn regions_are_apart_and_all_is_unmapped(
        steps in vec(step(), 1..24),
    ) {
        run(steps);
    }
}

/// Runs the steps and checks all regions after each.
fn run(steps: Vec<Step>) {
    let sys = ScriptedSys::default();
    sys.set(Setting::ThpEnabled, "always [madvise] never");
    sys.set(Setting::Thp2MEnabled, "always [inherit] madvise never");
    sys.pool(Bytes::mib(2), 4);
    let mut live: Vec<Marked> = Vec::new();
    for (i, step) in steps.into_iter().enumerate() {
        match step {
            Step::Map(kib, chain, align) => {
                let options =
                    Options::new(CHAINS[chain].parse().unwrap()).aligned(Bytes::new(1 << align));
                let region = HugeRegion::map_on(sys.clone(), Bytes::kib(kib), &options).unwrap();
                assert_eq!(region.range().start.get() % (1 << align), 0);
                assert!(region.len() >= Bytes::kib(kib));
                live.push(Marked::new(region, u8::try_from(i + 1).unwrap()));
            }
            Step::Grow(which, kib) if which < live.len() => {
                let marked = &mut live[which];
                let len = marked.region.len() + Bytes::kib(kib);
                marked.region.grow(len, marked.keep).unwrap();
                assert!(marked.region.len() >= len);
                let align = marked.region.requested().align.get();
                assert_eq!(marked.region.range().start.get() % align, 0);
            }
            Step::Drop(which) if which < live.len() => drop(live.swap_remove(which)),
            Step::Grow(..) | Step::Drop(_) => {}
        }
        assert!(live.iter().all(Marked::is_kept));
        let mut ranges: Vec<_> = live.iter().map(|marked| marked.region.range()).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start));
        assert_eq!(sys.mappings(), live.len());
    }
    drop(live);
    assert_eq!((sys.mappings(), sys.pool_free(Bytes::mib(2))), (0, 4));
}

#[test]
#[cfg_attr(miri, ignore = "reads /proc/self/maps")]
fn the_kernel_lists_no_mapping_afterwards() {
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
