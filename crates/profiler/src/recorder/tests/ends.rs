//! End of a process whose last values come with its end.

use super::*;

#[test]
fn an_awaited_process_keeps_its_place_until_its_last_values_are_known() {
    let folder = tree();
    let mut recorder = recorder(&folder, missing());
    recorder.await_end(Pid(7));
    let head = recorder.head(Vec::new(), 1.0);
    // The files of a process that was reaped can be opened, but not read.
    for name in ["stat", "statm"] {
        fs::write(folder.path().join("proc/7").join(name), "").unwrap();
    }
    NOW.set(Nanos::millis(10_100));
    let lines = recorder.slice();
    assert_eq!(value(&head, &slices(&lines), "minor_faults"), None);
    put_stat(folder.path(), Stat { state: 'Z', faults: 150, ..STAT });
    let text = fs::read(folder.path().join("proc/7/stat")).unwrap();
    fs::write(folder.path().join("proc/7/stat"), "").unwrap();
    recorder.ended(&hugepilot_kernel::proc::parse_stat(&text).unwrap());
    NOW.set(Nanos::millis(10_150));
    let lines = recorder.finish(None);
    let faults = value(&head, &slices(&lines), "minor_faults");
    assert_eq!(faults, Some((50.0, Nanos::millis(150))));
}
