//! Tests with injected failures: each call fails, returns the documented error, and leaks no
//! mapping.

use hugepilot_record::Errno;
use hugepilot_units::Bytes;

use crate::sys::scripted::{Call, ScriptedSys};
use crate::{
    Advice, AllocError, Backing, Chain, Fork, Help, HugeRegion, NameStatus, Nodes, Numa, Options,
    Pool, Setting,
};

const HUGE: Bytes = Bytes::mib(2);
const THP: &str = "always [madvise] never";

fn scripted() -> ScriptedSys {
    let sys = ScriptedSys::default();
    sys.set(Setting::ThpEnabled, THP);
    sys.set(Setting::Thp2MEnabled, "always [inherit] madvise never");
    sys
}

fn map(sys: &ScriptedSys, chain: &str) -> crate::Result<HugeRegion<ScriptedSys>> {
    HugeRegion::map_on(sys.clone(), Bytes::mib(3), &Options::new(chain.parse().unwrap()))
}

#[test]
fn mmap_and_advice_that_fail_leave_nothing() {
    let node = Nodes::one(0).unwrap();
    let options =
        |backing: Backing| Options::only(backing).on(Numa::Bind(node)).forked(Fork::Absent);
    let len = Bytes::mib(3);
    let map_error = AllocError::Map { len, errno: Errno::ENOMEM };
    let advice = |backing| AllocError::Advice { backing, errno: Errno::EINVAL };
    let table: [(Call, Errno, Backing, AllocError); 8] = [
        (Call::Map, Errno::ENOMEM, Backing::Base, map_error),
        (Call::Map, Errno::ENOMEM, Backing::THP, map_error),
        (Advice::Huge.into(), Errno::EINVAL, Backing::THP, advice(Backing::THP)),
        (Advice::Huge.into(), Errno::ENOMEM, Backing::THP, map_error),
        (Advice::NoHuge.into(), Errno::ENOMEM, Backing::Base, map_error),
        (Advice::Collapse.into(), Errno::EINVAL, Backing::COLLAPSE, advice(Backing::COLLAPSE)),
        (Advice::DontFork.into(), Errno::ENOMEM, Backing::Base, map_error),
        (
            Call::Bind,
            Errno::ENOSYS,
            Backing::THP,
            AllocError::Bind { nodes: node, errno: Errno::ENOSYS },
        ),
    ];
    for (call, errno, backing, expected) in table {
        let sys = scripted();
        sys.set(Setting::NodesWithMemory, "0-1");
        sys.fail(call, 0, errno);
        let error = HugeRegion::map_on(sys.clone(), len, &options(backing)).unwrap_err();
        assert_eq!((error, error.errno(), sys.mappings()), (expected, Some(errno), 0), "{call:?}");
        sys.clear_failures();
        assert_eq!(
            HugeRegion::map_on(sys.clone(), len, &options(backing)).unwrap().backing(),
            backing
        );
    }
}

#[test]
fn a_kernel_without_thp_still_has_base_pages() {
    let sys = scripted();
    sys.fail(Advice::NoHuge, 0, Errno::EINVAL);
    sys.fail(Advice::Huge, 0, Errno::EINVAL);
    let region = map(&sys, "thp,base").unwrap();
    assert_eq!(region.backing(), Backing::Base);
    let refused: Vec<_> = region.refused().copied().collect();
    assert_eq!(refused, [AllocError::Advice { backing: Backing::THP, errno: Errno::EINVAL }]);
}

#[test]
fn a_pool_too_small_is_an_error_or_skipped() {
    let sys = scripted();
    sys.pool(HUGE, 1);
    sys.set(Setting::Pool2MTotal, "4");
    sys.set(Setting::Pool2MFree, "3");
    sys.set(Setting::Pool2MReserved, "2");
    let pool = Pool { total: 4, free: 3, reserved: 2 };
    let empty = AllocError::PoolEmpty { page: HUGE, wanted: 2, pool, errno: Errno::ENOMEM };
    assert_eq!(map(&sys, "hugetlb-2m").unwrap_err(), empty);
    assert_eq!(empty.help(), Some(Help::ResizePool { page: HUGE, count: 5 }));

    let region = map(&sys, "hugetlb-1g,hugetlb-2m,thp,base").unwrap();
    assert_eq!(region.backing(), Backing::THP);
    let none = AllocError::NoPool { page: Bytes::gib(1), errno: Errno::EINVAL };
    assert_eq!(region.refused().copied().collect::<Vec<_>>(), [none, empty]);
    assert_eq!(region.requested().chain.to_string(), "hugetlb-1g,hugetlb-2m,thp,base");
    drop(region);

    sys.pool(HUGE, 2);
    let region = map(&sys, "hugetlb-2m,base").unwrap();
    assert_eq!(
        (region.backing(), region.len(), sys.pool_free(HUGE)),
        (Backing::Hugetlb2M, Bytes::mib(4), 0)
    );
    drop(region);
    assert_eq!((sys.pool_free(HUGE), sys.mappings()), (2, 0));
}

#[test]
fn a_lack_of_addresses_is_not_called_a_lack_of_pool_pages() {
    let sys = scripted();
    sys.pool(HUGE, 8);
    for (setting, count) in
        [(Setting::Pool2MTotal, "8"), (Setting::Pool2MFree, "8"), (Setting::Pool2MReserved, "0")]
    {
        sys.set(setting, count);
    }
    sys.fail(Call::Map, 0, Errno::ENOMEM);
    assert!(matches!(
        map(&sys, "hugetlb-2m").unwrap_err(),
        AllocError::Map { errno: Errno::ENOMEM, .. }
    ));
}

#[test]
fn bound_memory_of_a_pool_is_there_at_once_or_not_at_all() {
    let sys = scripted();
    sys.set(Setting::NodesWithMemory, "0-1");
    sys.pool(HUGE, 2);
    let options = Options::only(Backing::Hugetlb2M).on(Numa::Bind("1".parse().unwrap()));
    // The kernel's error if the node has no free page: a touch would have been SIGBUS.
    sys.fail(Advice::Populate, 0, Errno::EFAULT);
    let error = HugeRegion::map_on(sys.clone(), HUGE, &options).unwrap_err();
    assert_eq!(
        error,
        AllocError::Prefault { len: HUGE, backing: Backing::Hugetlb2M, errno: Errno::EFAULT }
    );
    assert_eq!(error.help(), Some(Help::ResizePoolOfNodes { page: HUGE }));
    assert_eq!((sys.mappings(), sys.pool_free(HUGE)), (0, 2));
}

/// The kernel reserves pages that the limit of a cgroup then refuses at a touch, or refuses to
/// reserve them.
#[test]
fn pool_pages_that_the_cgroup_does_not_grant_are_an_error_before_a_touch() {
    let limit = |errno| AllocError::PoolLimit { page: HUGE, wanted: 2, errno };
    let sys = scripted();
    sys.pool(HUGE, 4);
    sys.fail(Advice::Populate, 0, Errno::EFAULT);
    let map = |sys: &ScriptedSys, chain: &str| {
        HugeRegion::map_on(sys.clone(), HUGE.times(2), &Options::new(chain.parse().unwrap()))
    };
    let error = map(&sys, "hugetlb-2m").unwrap_err();
    assert_eq!((error, sys.mappings(), sys.pool_free(HUGE)), (limit(Errno::EFAULT), 0, 4));
    let help = error.help().unwrap().to_string();
    assert!(help.contains("hugetlb.2MB.max"), "{help}");
    let region = map(&sys, "hugetlb-2m,base").unwrap();
    assert_eq!(region.backing(), Backing::Base);
    assert_eq!(region.refused().collect::<Vec<_>>(), [&limit(Errno::EFAULT)]);
    drop(region);
    // A kernel before 5.14 cannot take pages without a touch.
    sys.fail(Advice::Populate, 0, Errno::EINVAL);
    assert_eq!(map(&sys, "hugetlb-2m,base").unwrap().backing(), Backing::Hugetlb2M);
}

#[test]
fn thp_that_is_off_is_said_so() {
    let table = [
        ("always madvise [never]", "always [inherit] madvise never", Some(Setting::ThpEnabled)),
        ("always madvise [never]", "always inherit [madvise] never", None),
        ("always [madvise] never", "always inherit madvise [never]", Some(Setting::Thp2MEnabled)),
        ("[always] madvise never", "always [inherit] madvise never", None),
        ("garbage", "", None),
    ];
    for (all, size, expected) in table {
        let sys = ScriptedSys::default();
        sys.set(Setting::ThpEnabled, all);
        sys.set(Setting::Thp2MEnabled, size);
        assert_eq!(map(&sys, "thp").err(), expected.map(AllocError::ThpNever), "{all} / {size}");
        assert_eq!(map(&sys, "collapse").err(), None);
    }
    let sys = scripted();
    sys.disable_thp();
    for chain in ["thp", "collapse"] {
        assert_eq!(map(&sys, chain).unwrap_err(), AllocError::ThpDisabled);
    }
    assert_eq!(map(&sys, "thp,collapse,base").unwrap().refused().count(), 2);
}

#[test]
fn a_refused_name_is_reported_and_harmless() {
    let sys = scripted();
    sys.fail(Call::Name, 0, Errno::EINVAL);
    let options = Options::default().named("x").unwrap();
    let region = HugeRegion::map_on(sys, HUGE, &options).unwrap();
    assert_eq!(region.named(), NameStatus::Refused(Errno::EINVAL));
}

#[test]
fn one_thread_that_fails_to_prefault_fails_the_whole() {
    for (threads, after) in [(1, 0), (3, 0), (3, 2)] {
        let sys = scripted();
        let region =
            HugeRegion::map_on(sys.clone(), HUGE.times(3), &Options::only(Backing::Base)).unwrap();
        sys.fail(Advice::Populate, after, Errno::ENOMEM);
        let error = region.prefault(threads).unwrap_err();
        assert!(matches!(error, AllocError::Prefault { errno: Errno::ENOMEM, .. }), "{error}");
        assert_eq!(sys.calls(Advice::Populate), threads);
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads the page map")]
fn a_collapse_retries_on_eagain_and_stops_after_enomem() {
    let table = [(Errno::EAGAIN, 40), (Errno::ENOMEM, 8), (Errno::EBUSY, 20)];
    for (errno, calls) in table {
        let sys = scripted();
        let mut region =
            HugeRegion::map_on(sys.clone(), HUGE.times(20), &Options::only(Backing::Base)).unwrap();
        hugepilot_testkit::requires!(region.usage());
        let inside = region.range().aligned_inside(HUGE).len();
        region.bytes_mut().fill(1);
        sys.fail(Advice::Collapse, 0, errno);
        let done = region.collapse().unwrap();
        assert_eq!((done.after, done.refused, done.errno), (Bytes::ZERO, inside, Some(errno)));
        let calls = if inside == HUGE.times(20) || errno == Errno::ENOMEM {
            calls
        } else {
            calls / 20 * 19
        };
        assert_eq!(sys.calls(Advice::Collapse), calls, "{errno}");
    }
}

#[test]
fn an_unreadable_pagemap_is_an_error() {
    let sys = scripted();
    let region = map(&sys, "base").unwrap();
    sys.fail(Call::Scan, 0, Errno(25));
    assert_eq!(region.usage().unwrap_err(), AllocError::Pagemap(Errno(25)));
    assert_eq!(region.collapse().unwrap_err().help(), Some(Help::KernelWithPagemapScan));
}

#[test]
fn growing_falls_back_to_a_copy_and_fails_without_harm() {
    let sys = scripted();
    let mut region = map(&sys, "base").unwrap();
    region.bytes_mut()[3] = 4;
    sys.fail(Call::Grow, 0, Errno::ENOMEM);
    region.grow(Bytes::mib(5), 4).unwrap();
    assert_eq!((region.bytes()[3], sys.mappings()), (4, 1));
    sys.fail(Call::Map, 0, Errno::ENOMEM);
    let error = region.grow(Bytes::mib(9), 4).unwrap_err();
    assert_eq!(error, AllocError::Map { len: Bytes::mib(9), errno: Errno::ENOMEM });
    assert_eq!((region.len(), region.bytes()[3], sys.mappings()), (Bytes::mib(5), 4, 1));
    drop(region);
    assert_eq!(sys.mappings(), 0);
}

#[test]
fn memory_on_a_pool_grows_by_a_copy_along_the_chain() {
    let sys = scripted();
    sys.pool(HUGE, 3);
    let mut region =
        HugeRegion::map_on(sys.clone(), HUGE, &Options::new("hugetlb-2m,base".parse().unwrap()))
            .unwrap();
    region.bytes_mut()[9] = 9;
    region.grow(HUGE.times(2), 10).unwrap();
    assert_eq!(
        (region.backing(), sys.pool_free(HUGE), region.bytes()[9]),
        (Backing::Hugetlb2M, 1, 9)
    );
    region.grow(HUGE.times(3), 10).unwrap();
    assert_eq!((region.backing(), sys.pool_free(HUGE), region.bytes()[9]), (Backing::Base, 3, 9));
    assert_eq!(region.refused().count(), 1);
    assert_eq!(
        (sys.calls(Call::Grow), Chain::from(region.backing()).to_string().as_str()),
        (0, "base")
    );
}
