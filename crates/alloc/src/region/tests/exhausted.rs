//! Address space that is used up, in a process of its own.

use std::env;
use std::process::Command;

use hugepilot_record::Errno;
use hugepilot_units::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{AllocError, Arena, Backing, HugeRegion, HugeVec, Options};

const INNER: &str = "HUGEPILOT_TEST_WITHOUT_ADDRESSES";

#[test]
#[cfg_attr(miri, ignore = "starts a process")]
fn a_process_without_address_space_gets_errors_and_keeps_what_it_has() {
    if env::var_os(INNER).is_none() {
        let test =
            "region::tests::exhausted::a_process_without_address_space_gets_errors_and_keeps_what_it_has";
        let mut inner = Command::new(env::current_exe().unwrap());
        let output = inner.args(["--exact", test]).env(INNER, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
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
        assert!(error.fix().unwrap().contains("ulimit -v"));
    }
    // There is room for the memory, but not for it and what aligning it takes.
    let error = HugeRegion::map(Bytes::mib(2), &Options::only(Backing::Base).aligned(len)).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOMEM));

    let mut vec = HugeVec::new(Options::only(Backing::Base));
    let error = (0_u64..).find_map(|i| vec.push(i).err()).unwrap();
    assert!(matches!(error, AllocError::Map { errno: Errno::ENOMEM, .. }), "{error}");
    // Where twice the memory is not to be had, less is: most of the limit was used.
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
