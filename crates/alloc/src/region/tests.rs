//! Tests of regions on the running kernel, without privileges, and on a scripted one.

mod exhausted;
mod fork;
mod injected;
mod model;
mod pages;

use hugepilot_testkit::Need;
use hugepilot_units::Bytes;

use crate::{AllocError, Backing, Chain, HugeRegion, Linux, NameStatus, Nodes, Numa, Options, Sys};

/// Requires that the kernel backs advised memory with a huge page.
pub(crate) fn thp() -> Need {
    let usage = HugeRegion::map(Linux.sizes().huge, &Options::only(Backing::THP))
        .and_then(|region| region.prefault(1).and_then(|()| region.usage()));
    match usage {
        Ok(usage) if usage.thp > Bytes::ZERO => Need::Ok,
        Ok(_) => Need::Err("no transparent huge page is to be had".to_owned()),
        Err(error) => Need::Err(error.to_string()),
    }
}

#[test]
fn memory_is_zeroed_writable_and_rounded_up_to_its_pages() {
    let sizes = Linux.sizes();
    for (backing, unit) in
        [(Backing::Base, sizes.base), (Backing::THP, sizes.huge), (Backing::COLLAPSE, sizes.huge)]
    {
        let options = Options::new(Chain::only(backing).then(Backing::Base));
        for len in [Bytes::new(1), unit, unit + Bytes::new(1)] {
            let mut region = HugeRegion::map(len, &options).unwrap();
            assert_eq!(region.requested_len(), len);
            if region.backing() == backing {
                assert_eq!(region.len().get(), len.get().next_multiple_of(unit.get()));
            }
            assert_eq!(region.range().start.get() % unit.get(), 0);
            assert!(region.bytes().iter().step_by(512).all(|&byte| byte == 0));
            *region.bytes_mut().last_mut().unwrap() = 9;
            assert_eq!(*region.bytes().last().unwrap(), 9);
        }
    }
}

#[test]
fn invalid_requests_are_errors_before_any_backing_is_tried() {
    let map = |len, options: Options| HugeRegion::map(len, &options).unwrap_err();
    let base = Options::only(Backing::Base);
    assert_eq!(map(Bytes::ZERO, base), AllocError::Empty);
    for align in [Bytes::ZERO, Bytes::new(3), Bytes::kib(12), Bytes::gib(2)] {
        assert_eq!(map(Bytes::kib(4), base.aligned(align)), AllocError::Alignment(align));
    }
    for len in [Bytes::MAX, Bytes::new(u64::MAX - 4094), Bytes::new(1 << 63)] {
        assert!(matches!(map(len, base), AllocError::Overflow { .. }), "{len}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads the nodes of the machine")]
fn nodes_that_are_not_there_are_named() {
    let nodes: Nodes = "0,63".parse().unwrap();
    for numa in [Numa::Bind(nodes), Numa::Interleave(nodes)] {
        let error = HugeRegion::map(Bytes::kib(4), &Options::default().on(numa)).unwrap_err();
        // A kernel without NUMA shows no nodes and refuses the call.
        match error {
            AllocError::Nodes { requested, .. } => assert_eq!(requested, nodes),
            error => assert!(matches!(error, AllocError::Bind { .. }), "{error}"),
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "binds memory")]
fn memory_can_be_bound_to_a_node_that_is_there() {
    let node = Nodes::one(0).unwrap();
    for numa in [Numa::Bind(node), Numa::Interleave(node)] {
        match HugeRegion::map(Bytes::mib(2), &Options::default().on(numa)) {
            Ok(region) => region.prefault(1).unwrap(),
            Err(error) => {
                hugepilot_testkit::requires!(Err::<(), _>(error));
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads /proc/self/maps")]
fn a_name_shows_in_maps_or_its_error_is_reported() {
    let name = "alloc test: named";
    let mut region =
        HugeRegion::map(Bytes::mib(2), &Options::only(Backing::Base).named(name).unwrap()).unwrap();
    let line = |region: &HugeRegion| {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let start = format!("{:x}-", region.range().start.get());
        maps.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_owned()
    };
    match region.named() {
        NameStatus::Set => {
            assert!(line(&region).ends_with("[anon:alloc test: named]"), "{}", line(&region))
        }
        NameStatus::Refused(errno) => assert_eq!(errno, hugepilot_record::Errno::EINVAL),
        NameStatus::NotRequested => unreachable!("a name was asked for"),
    }
    region.grow(Bytes::mib(64), 0).unwrap();
    assert!(region.named() != NameStatus::Set || line(&region).contains(name), "{}", line(&region));
}
