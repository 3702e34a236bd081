//! Live test of the allocator on a hugetlb pool, which is resized for it and restored.
//!
//! `HUGEPILOT_LIVE=1 cargo test -p hugepilot-capi --test live`, as root.

#![forbid(unsafe_code)]

#[allow(dead_code)] // most of it is for the other tests
#[path = "library/built.rs"]
mod built;

use std::fs;
use std::process::Command;

use built::{Compiler, Link, folder, run, source};
use hugepilot_testkit::{need, requires};

/// Reads a counter of the 2 MiB pool.
fn number(name: &str) -> Result<u64, String> {
    let path = format!("/sys/kernel/mm/hugepages/hugepages-2048kB/{name}");
    let text = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    text.trim().parse().map_err(|_| format!("{path}: {text:?}"))
}

/// Pool with a number of free pages; restored on drop.
struct Pool {
    before: u64,
}

impl Pool {
    fn with_free(count: u64) -> Result<Self, String> {
        if number("nr_overcommit_hugepages")? > 0 {
            return Err("the pool of 2MiB pages grows by itself".to_owned());
        }
        let spare =
            || Ok::<_, String>(number("free_hugepages")?.saturating_sub(number("resv_hugepages")?));
        let pool = Self { before: number("nr_hugepages")? };
        let wanted = pool.before - spare()? + count;
        fs::write("/proc/sys/vm/nr_hugepages", wanted.to_string())
            .map_err(|error| error.to_string())?;
        if spare()? == count {
            Ok(pool)
        } else {
            Err(format!("no free hugetlb pages: {count} of 2MiB"))
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        fs::write("/proc/sys/vm/nr_hugepages", self.before.to_string())
            .expect("the pool can be put back");
    }
}

#[test]
fn containers_live_on_a_pool_and_say_when_it_is_empty() {
    let gxx = Compiler { program: "g++", standard: "c++17" };
    requires!(need::all([need::live(), need::root(), gxx.there()]));
    let folder = folder();
    let built = folder.path().join("pool");
    run(gxx
        .command()
        .arg(source().join("tests/c/pool.cpp"))
        .arg("-o")
        .arg(&built)
        .args(Link::Shared.args()));
    let pool = Pool::with_free(32);
    requires!(pool.as_ref());
    let printed = run(&mut Command::new(&built));
    assert!(printed.ends_with("all checks passed\n"), "{printed}");
    assert_eq!(number("resv_hugepages").unwrap(), 0);
    drop(pool);
}
