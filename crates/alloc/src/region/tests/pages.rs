//! Tests of requested pages against the pagemap.

use hugepilot_testkit::requires;
use hugepilot_units::{AddrRange, Bytes, VirtAddr};

use super::thp;
use crate::{Backing, HugeRegion, Linux, Options, PageUsage, Sys};

fn map(len: Bytes, backing: &str) -> HugeRegion {
    HugeRegion::map(len, &Options::new(backing.parse().unwrap())).unwrap()
}

#[test]
#[cfg_attr(miri, ignore = "reads the page map")]
fn base_pages_differ_from_zero_pages_and_untouched_ones() {
    let base = Linux.sizes().base;
    let mut region = map(base.times(64), "base");
    requires!(region.usage());
    assert_eq!(
        region.usage().unwrap(),
        PageUsage { untouched: base.times(64), ..PageUsage::default() }
    );
    for page in 0..5 {
        region.bytes_mut()[page * base.as_usize()] = 1;
    }
    assert_eq!(region.bytes()[60 * base.as_usize()], 0);
    let usage = region.usage().unwrap();
    assert_eq!((usage.base, usage.zero, usage.untouched), (base.times(5), base, base.times(58)));
    assert_eq!((usage.resident(), usage.huge()), (base.times(5), Bytes::ZERO));
    region.prefault(1).unwrap();
    assert_eq!(region.usage().unwrap(), PageUsage { base: base.times(64), ..PageUsage::default() });
}

#[test]
#[cfg_attr(miri, ignore = "reads the page map")]
fn more_runs_than_one_scan_holds_are_all_found() {
    let base = Linux.sizes().base;
    for runs in [127, 128, 129, 512, 513, 1000] {
        let mut region = map(base.times(2 * runs), "base");
        requires!(region.usage());
        region.bytes_mut().iter_mut().step_by(2 * base.as_usize()).for_each(|byte| *byte = 1);
        let usage = region.usage().unwrap();
        assert_eq!((usage.base, usage.untouched), (base.times(runs), base.times(runs)), "{runs}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads the page map")]
fn advised_memory_is_on_huge_pages_and_the_rest_of_it_is_not() {
    requires!(thp());
    let huge = Linux.sizes().huge;
    for (backing, pages) in
        [("thp", 0..20), ("thp:30%", 0..6), ("thp:25-50%", 5..10), ("thp:90-100%", 18..20)]
    {
        let region = map(huge.times(20), backing);
        region.prefault(1).unwrap();
        let usage = region.usage().unwrap();
        // Memory may be too fragmented for all, but memory without advice is never huge.
        let most = huge.times(pages.end - pages.start);
        assert!(usage.thp > Bytes::ZERO && usage.thp <= most, "{backing}: {usage:?}");
        assert_eq!(usage.resident(), region.len(), "{backing}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads the page map")]
fn huge_pages_stay_huge_when_memory_grows() {
    requires!(thp());
    let huge = Linux.sizes().huge;
    let mut region = map(huge.times(4), "thp");
    region.prefault(1).unwrap();
    let before = region.usage().unwrap().thp;
    // A neighbour in the way forces a move now and then.
    let mut neighbours = Vec::new();
    for pages in [5, 8, 16, 33] {
        neighbours.push(map(huge, "base"));
        region.grow(huge.times(pages), usize::MAX).unwrap();
        assert_eq!(region.range().start.get() % huge.get(), 0);
        assert!(region.usage().unwrap().thp >= before, "{:?}", region.usage());
    }
}

#[test]
#[cfg_attr(miri, ignore = "populates pages")]
fn threads_share_the_prefault_without_gaps() {
    let huge = Linux.sizes().huge;
    for (pages, threads) in [(1, 1), (1, 4), (3, 2), (7, 3), (8, 8), (5, 100)] {
        let region = map(huge.times(pages), "base");
        region.prefault(threads).unwrap();
        requires!(region.usage());
        assert_eq!(region.usage().unwrap().base, region.len(), "{pages} by {threads}");
    }
    let odd = map(Bytes::kib(12), "base");
    odd.prefault(0).unwrap();
    assert_eq!(odd.usage().unwrap().base, Bytes::kib(12));
}

#[test]
#[cfg_attr(miri, ignore = "collapses pages")]
fn what_was_filled_is_collapsed_and_keeps_its_contents() {
    requires!(thp());
    let huge = Linux.sizes().huge;
    let region = HugeRegion::map(huge.times(6), &Options::only(Backing::COLLAPSE));
    requires!(region.as_ref());
    let mut region = region.unwrap();
    let (page, half) = (huge.as_usize(), huge.as_usize() / 2);
    // One huge-page-sized range stays empty, and one is half full.
    for part in [0..page, 2 * page..2 * page + half, 3 * page..6 * page] {
        region.bytes_mut()[part].fill(7);
    }
    let done = region.collapse().unwrap();
    assert_eq!(done.empty, huge, "{done:?}");
    assert_eq!(done.after + done.refused, huge.times(5), "{done:?}");
    assert!(done.after > Bytes::ZERO && done.after == region.usage().unwrap().huge());
    assert!(region.bytes()[2 * page..2 * page + half].iter().all(|&byte| byte == 7));
    assert!(region.bytes()[2 * page + half..3 * page].iter().all(|&byte| byte == 0));
    let again = region.collapse().unwrap();
    assert!(again.before == done.after && again.after >= done.after);
}

#[test]
#[cfg_attr(miri, ignore = "collapses pages")]
fn parts_without_huge_pages_are_not_collapsed() {
    let huge = Linux.sizes().huge;
    let mut region = map(huge.times(2), "base");
    requires!(region.usage());
    region.bytes_mut().fill(1);
    let done = region.collapse().unwrap();
    assert_eq!((done.after, done.errno), (Bytes::ZERO, Some(hugepilot_record::Errno::EINVAL)));
    assert_eq!(done.refused, region.range().aligned_inside(huge).len());
}

#[test]
#[cfg_attr(miri, ignore = "maps a gigabyte of addresses")]
fn alignments_above_all_pages_are_kept() {
    for backing in ["base", "thp,base"] {
        for align in [Bytes::kib(8), Bytes::mib(1), Bytes::mib(4), Bytes::mib(64), Bytes::gib(1)] {
            let options = Options::new(backing.parse().unwrap()).aligned(align);
            let mut region = HugeRegion::map(Bytes::kib(20), &options).unwrap();
            assert_eq!(region.range().start.get() % align.get(), 0, "{backing} {align}");
            region.bytes_mut()[5] = 5;
            region.grow(Bytes::mib(3), 20).unwrap();
            assert_eq!(region.range().start.get() % align.get(), 0, "{backing} {align}");
            assert_eq!(region.bytes()[5], 5);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "collapses pages")]
fn a_part_is_collapsed_and_the_rest_stays() {
    requires!(thp());
    let huge = Linux.sizes().huge;
    let region = HugeRegion::map(huge.times(8), &Options::only("collapse:50%".parse().unwrap()));
    requires!(region.as_ref());
    let region = region.unwrap();
    region.prefault(1).unwrap();
    let usage = region.usage().unwrap();
    assert!(usage.thp > Bytes::ZERO && usage.thp <= huge.times(4), "{usage:?}");
    assert_eq!(usage.thp + usage.base, huge.times(8));
    let outside = region.bytes().as_ptr().addr() + 5 * huge.as_usize();
    let mut found = None;
    let range = AddrRange::at(VirtAddr::new(outside as u64), huge);
    Linux.scan(range, &mut |run| found = Some(run.huge)).unwrap();
    assert_eq!(found, Some(false), "the second half is on base pages");
}
