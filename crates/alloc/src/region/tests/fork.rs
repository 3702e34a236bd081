//! Tests of the memory that a child sees.
//!
//! # Safety
//! After fork, the child reads and writes its memory, makes system calls, and ends without
//! destructors.
#![allow(unsafe_code)]

use hugepilot_units::Bytes;

use crate::{Backing, Fork, HugeRegion, Options};

/// Returns the exit status of a child that runs `work`.
fn child(work: impl FnOnce() -> u8) -> i32 {
    // SAFETY: see the module.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            let status = work();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(status)) }
        }
        pid => {
            let mut status = 0;
            // SAFETY: this process's own child, awaited once; the status outlives the call.
            assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
            if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                -libc::WTERMSIG(status)
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_child_has_a_copy() {
    for chain in ["base", "thp,base"] {
        let mut region =
            HugeRegion::map(Bytes::mib(2), &Options::new(chain.parse().unwrap())).unwrap();
        region.bytes_mut()[5] = 41;
        let seen = child(|| {
            region.bytes_mut()[5] += 1;
            region.bytes()[5]
        });
        assert_eq!((seen, region.bytes()[5]), (42, 41), "{chain}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "forks")]
fn a_child_has_nothing_where_that_was_asked_for() {
    let options = Options::only(Backing::Base).forked(Fork::Absent);
    let mut region = HugeRegion::map(Bytes::mib(2), &options).unwrap();
    region.bytes_mut()[5] = 41;
    let start = region.as_ptr().as_ptr();
    // SAFETY: queries whether the page is mapped, without effect on it.
    let mapped = || unsafe { libc::msync(start.cast(), 4096, libc::MS_ASYNC) == 0 };
    assert!(mapped());
    assert_eq!(child(|| u8::from(mapped())), 0);
    assert_eq!(child(|| region.bytes()[5]), -libc::SIGSEGV);
    // The option persists when memory grows.
    region.grow(Bytes::mib(64), 6).unwrap();
    assert_eq!((child(|| region.bytes()[5]), region.bytes()[5]), (-libc::SIGSEGV, 41));
}
