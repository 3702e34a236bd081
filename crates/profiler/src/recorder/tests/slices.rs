//! Contents of the slices of a recording.

use hugepilot_testkit::requires;

use super::*;

#[test]
fn what_was_before_the_begin_does_not_count() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    put_stat(folder.path(), Stat { faults: 500, ..STAT });
    NOW.set(Nanos::seconds(20));
    recorder.begin();
    let head = recorder.head(Vec::new(), 1.0);
    assert_eq!(head.started, Nanos::seconds(20));
    put_stat(folder.path(), Stat { faults: 503, ..STAT });
    NOW.set(Nanos::millis(20_100));
    let lines = recorder.slice();
    let found = value(&head, &slices(&lines), "minor_faults");
    assert_eq!(found, Some((3.0, Nanos::millis(100))));
}

#[test]
fn huge_pages_in_total_are_read_between_two_reads_of_the_mappings() {
    NOW.set(Nanos::seconds(10));
    let root = Root::live();
    let own = || Process::open(&root, Pid(std::process::id().cast_signed())).unwrap();
    requires!(own().huge_sums());
    let mut recorder =
        Recorder::with_clock(&root, PageSizes::X86_64, OPTIONS, missing(), Vec::new(), now);
    assert!(recorder.watch(own()));
    let head = recorder.head(Vec::new(), 1.0);
    let names: Vec<&str> = metrics_of(&head, MetricScope::Process);
    let column = |name| names.iter().position(|one| *one == name).unwrap();
    let mut reads = [0; 2];
    for slice in 1..=9 {
        NOW.set(Nanos::millis(10_000 + 100 * slice));
        let lines = recorder.slice();
        let of_process = slices(&lines).into_iter().filter(|one| one.pid.is_some());
        for one in of_process.filter(|one| one.tid.is_none()) {
            reads[0] += usize::from(one.values[column("thp")].is_some());
            reads[1] += usize::from(one.values[column("swapped")].is_some());
        }
    }
    assert_eq!(reads, [9 + 1, 1], "the mappings have the total, too");
}
