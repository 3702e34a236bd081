//! Stress test of mimalloc, from its source, which `cargo xtask test` fetches: threads fill memory
//! with a pattern, pass it to each other, check it on free, and end with some of it in use.

use std::path::{Path, PathBuf};

use hugepilot_testkit::{Need, compiled, need, requires};

use super::Preloaded;

/// Returns the fetched source, changed to use plain `malloc`.
fn source() -> Result<PathBuf, String> {
    let target = super::library().ancestors().nth(3).map(Path::to_owned).unwrap_or_default();
    let fetched = target.join("fetched/mimalloc-test-stress.c");
    let text = std::fs::read_to_string(&fetched)
        .map_err(|_| "mimalloc's test-stress.c is not there: cargo xtask setup".to_owned())?;
    let plain = fetched.with_file_name("stress.c");
    let text = format!("#define USE_STD_MALLOC\n{text}");
    if std::fs::read_to_string(&plain).is_ok_and(|there| there == text) {
        return Ok(plain);
    }
    std::fs::write(&plain, text).map(|()| plain).map_err(|error| error.to_string())
}

#[test]
fn the_stress_test_of_mimalloc_passes() {
    requires!(need::c_compiler());
    let source = source();
    requires!(Need::from(source.as_ref()));
    let program = compiled(&source.unwrap());
    for pages in ["thp,base", "base"] {
        for threads in ["1", "4", "32"] {
            let mut stress = Preloaded::new(&program, &[threads, "20", "20"]);
            stress.command.env("HUGEPILOT_PAGES", pages);
            let (_, report) = stress.run();
            // Objects that outlive their threads are left in the end; the caches of the threads are
            // not.
            assert!(
                report["threads"].as_u64() <= threads.parse::<u64>().ok().map(|n| n + 1),
                "{report}"
            );
        }
    }
}
