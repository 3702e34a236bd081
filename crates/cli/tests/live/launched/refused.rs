//! Commands that the system cannot run.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use hugepilot_testkit::{need, requires};

use crate::tool::hugepilot;

#[test]
fn a_command_that_does_not_exist_is_an_error_with_its_name() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    for flags in [&[][..], &["--baseline"]] {
        let line =
            [&["tune", "--calibration", "off"], flags, &["--", "/no/such/program", "x"]].concat();
        let done = hugepilot(line);
        done.exits(2).says(&["/no/such/program", "No such file"]);
        assert!(done.stdout.is_empty(), "{done:?}");
    }
    // A folder is there, and cannot be run.
    hugepilot(["tune", "--calibration", "off", "--", "/proc"]).exits(2).says(&[
        "/proc",
        "ermission denied",
        "help: name an executable file",
    ]);
}

#[test]
fn only_what_the_system_cannot_run_is_called_so() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage");
    std::fs::write(&garbage, b"\x7fELF, but no program").unwrap();
    std::fs::set_permissions(&garbage, Permissions::from_mode(0o755)).unwrap();
    for flags in [&[][..], &["--baseline"]] {
        let tune = |command: &[&str]| {
            hugepilot([&["tune", "--calibration", "off"], flags, &["--"], command].concat())
        };
        let refused = tune(&[garbage.to_str().unwrap()]);
        refused.exits(2).says(&["cannot start", "garbage", "Exec format error"]);
        assert_eq!(refused.err().matches("cannot start").count(), 1, "{refused:?}");
        let ended = tune(&["sh", "-c", "exit 127"]);
        assert!(!ended.exits(3).err().contains("cannot start"), "{ended:?}");
    }
}
