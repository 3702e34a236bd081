//! Order by heat, whose samples depend on time: it runs alone.

use hugepilot_testkit::{need, requires};

use super::{Bloat, debloat, possible, report};

#[test]
fn heat_spares_hot_huge_pages_with_the_highest_bloat() {
    requires!(possible());
    requires!(need::cap_perfmon());
    const HOT: usize = 48;
    // More used pages than any TLB holds.
    let victim = Bloat::start(&["100x48,300x48", "0", "hot", "48"]);
    let pid = victim.pid();
    let split = || {
        let map = victim.map();
        let count = |some: &[bool]| some.iter().filter(|&&huge| !huge).count();
        (count(&map[..HOT]), count(&map[HOT..]))
    };
    let amount = "--order heat --observe 2s --amount 30MiB";
    let done = debloat(&[pid], amount);
    let spared = report(done.exits(0));
    let (hot, cold) = split();
    assert!(hot <= 1 && cold >= 35, "{hot} hot and {cold} cold were split: {done:?}");
    assert!(spared.processes[0].split_heat_ratio.is_some_and(|ratio| ratio < 0.02), "{done:?}");

    // An idle program has no samples.
    let idle = Bloat::start(&["16x8"]);
    let done = debloat(&[idle.pid()], "--order heat --observe 500ms");
    let one = &report(done.exits(0)).processes[0];
    assert_eq!((one.huge_pages_split, one.split_heat_ratio), (8, None), "{done:?}");

    // Density alone splits hot ones.
    let done = debloat(&[pid], "--order exact --amount 10MiB");
    report(done.exits(0));
    assert!(split().0 >= 6 && split().1 == cold, "{:?}: {done:?}", split());
}
