//! Tests with exhausted address space or mappings, each in a process of its own.

use std::env;
use std::process::Command;

use hugepilot_record::Errno;
use hugepilot_testkit::requires;
use hugepilot_units::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{AllocError, Arena, Backing, Fork, Help, HugeRegion, HugeVec, Options};

const INNER: &str = "HUGEPILOT_TEST_OF_EXHAUSTION";

/// Runs this test in a process of its own. Returns `false` in that process.
fn is_outer(test: &str) -> bool {
    if env::var_os(INNER).is_some() {
        return false;
    }
    let test = format!("region::tests::exhausted::{test}");
    let mut inner = Command::new(env::current_exe().unwrap());
    let output = inner.args(["--exact", &test]).env(INNER, "1").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    true
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_process_without_address_space_gets_errors_and_keeps_what_it_has() {
    if is_outer("a_process_without_address_space_gets_errors_and_keeps_what_it_has") {
        return;
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let limit = pages * rustix::param::page_size() as u64 + (256 << 20);
    setrlimit(Resource::As, Rlimit { current: Some(limit), ..getrlimit(Resource::As) }).unwrap();

    let len = Bytes::gib(1);
    for chain in ["base", "thp,base", "collapse,base"] {
        let error = HugeRegion::map(len, &Options::new(chain.parse().unwrap())).unwrap_err();
        assert_eq!(error, AllocError::Map { len, errno: Errno::ENOMEM });
        assert_eq!(error.help(), Some(Help::RaiseMappingLimits));
    }
    // There is room for the memory, but not for its alignment.
    let error =
        HugeRegion::map(Bytes::mib(2), &Options::only(Backing::Base).aligned(len)).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOMEM));

    let mut vec = HugeVec::new(Options::only(Backing::Base));
    let error = (0_u64..).find_map(|i| vec.push(i).err()).unwrap();
    assert!(matches!(error, AllocError::Map { errno: Errno::ENOMEM, .. }), "{error}");
    // If twice the memory is unavailable, it grows by less: most of the limit was used.
    assert!(vec.len() * 8 > 100 << 20, "{}", vec.len());
    assert!(vec.iter().enumerate().all(|(i, &item)| i as u64 == item));
    let filled = vec.len();
    assert!(vec.reserve(1 << 30).is_err());
    assert_eq!(vec.len(), filled);
    drop(vec);

    let arena = Arena::new(Bytes::mib(16), Options::only(Backing::Base));
    let error = (0..1_u64 << 20).find_map(|_| arena.alloc([0_u8; 4096]).err()).unwrap();
    assert_eq!(error, AllocError::Map { len: Bytes::mib(16), errno: Errno::ENOMEM });
    assert!(arena.mapped() >= Bytes::mib(128), "{}", arena.mapped());
}

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_process_at_the_limit_of_mappings_gets_errors_and_loses_no_memory() {
    let most: u64 =
        std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap().trim().parse().unwrap();
    if most > 100_000 {
        requires!(Err::<(), _>(format!("{most} mappings are allowed: too many to use up")));
    }
    if is_outer("a_process_at_the_limit_of_mappings_gets_errors_and_loses_no_memory") {
        return;
    }
    let len = Bytes::kib(64);
    let plain = Options::only(Backing::Base);
    // The kernel does not merge neighbours of different kinds.
    let options = |i: u64| if i.is_multiple_of(2) { plain } else { plain.forked(Fork::Absent) };
    let mut live = Vec::with_capacity(most as usize);
    let error = loop {
        match HugeRegion::map(len, &options(live.len() as u64)) {
            Ok(region) => live.push(region),
            Err(error) => break error,
        }
    };
    assert_eq!(error, AllocError::Map { len, errno: Errno::ENOMEM });
    assert_eq!(error.help(), Some(Help::RaiseMappingLimits));
    // Mappings that need splits, in an order that meets the limit at every step. A mapping that
    // merges with a neighbour still succeeds after a split has met the limit.
    let refused = ["thp:50%", "base", "collapse"].map(|chain| {
        let options = Options::new(chain.parse().unwrap()).aligned(Bytes::mib(64));
        HugeRegion::map(Bytes::mib(4), &options).is_err()
    });
    assert!(refused.contains(&true), "{refused:?}");
    let last = live.len() - 1;
    for region in [0, 1, last] {
        live[region].bytes_mut().fill(9);
        // Success is up to the kernel, but the contents must be kept.
        let _ = live[region].grow(Bytes::mib(1), 100);
        assert_eq!(live[region].bytes()[..100], [9; 100]);
    }
    drop(live);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.lines().count() < 1000, "{}", maps.lines().count());
    HugeRegion::map(Bytes::mib(4), &Options::new("thp:50%,base".parse().unwrap())).unwrap();
}
