//! A user without capabilities: their own processes can be inspected, and every failure names its
//! cause and help.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hugepilot_reports::status::StatusReport;
use hugepilot_testkit::{Need, Victim, compiled, need, requires};
use hugepilot_units::Bytes;

use crate::look::{base_pages_by_default, huge_now};
use crate::tool::{Done, HUGEPILOT, LIMIT, Running, copy_for_all, tune_args};
use crate::workload::{HOT_SET, Workload};

const NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// User without capabilities, with a copy of the command that they may run.
pub(crate) struct Nobody {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Nobody {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { program: copy_for_all(HUGEPILOT, folder.path()), folder }
    }

    fn command(&self) -> Command {
        self.with("", &self.program)
    }

    /// Returns the command that starts `program` as this user, with capabilities such as
    /// `+sys_nice,+perfmon`.
    fn with(&self, capabilities: &str, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command.args(NOBODY);
        if !capabilities.is_empty() {
            let only = format!("-all,{capabilities}");
            command.args(["--inh-caps", &only, "--ambient-caps", &only]);
        }
        command.arg(program).current_dir("/");
        command
    }

    /// The command as this user, with capabilities, as words of a shell.
    pub(crate) fn words(&self, capabilities: &str) -> String {
        let command = self.with(capabilities, &self.program);
        let words = [command.get_program()].into_iter().chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    /// Starts the C program at `source` as this user.
    #[track_caller]
    pub(crate) fn victim(&self, source: &str, args: &[&str]) -> Victim {
        let program = copy_for_all(compiled(Path::new(source)), self.folder.path());
        let mut command = self.with("", &program);
        command.args(args);
        Victim::spawn(command)
    }

    #[track_caller]
    pub(crate) fn runs_with<S: AsRef<std::ffi::OsStr>>(
        &self,
        capabilities: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Done {
        let mut command = self.with(capabilities, &self.program);
        command.args(args);
        Running::start(command).wait(LIMIT)
    }

    #[track_caller]
    pub(crate) fn runs<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Done {
        let mut command = self.command();
        command.args(args);
        Running::start(command).wait(LIMIT)
    }
}

/// Starts a workload of an unprivileged user.
fn own_workload() -> (Nobody, Workload) {
    let nobody = Nobody::new();
    let workload = Workload::by(nobody.command(), HOT_SET);
    (nobody, workload)
}

/// Requires that the test can switch to the unprivileged user.
pub(crate) fn can_be_nobody() -> Need {
    need::all([need::live(), need::root(), need::program("setpriv")])
}

/// Requires that the kernel permits users to sample their own processes.
fn own_samples() -> Need {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let open = level.trim().parse::<i32>().is_ok_and(|level| level <= 2);
    if open { Need::Ok } else { Need::Err(format!("perf_event_paranoid is {}", level.trim())) }
}

#[test]
fn own_processes_can_be_inspected_and_planned_for() {
    requires!(need::all([can_be_nobody(), own_samples(), base_pages_by_default()]));
    let (nobody, workload) = own_workload();
    let pid = workload.pid().to_string();

    let status: StatusReport = nobody.runs(["status", "-p", &pid, "--json"]).exits(0).json();
    assert!(status.totals.resident_bytes >= Bytes::mib(512), "{:?}", status.totals);
    assert!(status.totals.eligible_bytes >= Bytes::mib(512), "{:?}", status.totals);
    nobody.runs(["status", "-p", &pid]).exits(0);

    let plan = nobody.runs(tune_args(workload.pid(), "--dry-run --budget 50%")).exits(0).report();
    assert!(plan.dry_run && plan.plan.selected.len() > 10, "{} selected", plan.plan.selected.len());
    assert!(plan.plan.selected.iter().all(|candidate| candidate.verified.is_none()));
    assert_eq!(huge_now(workload.pid()), Bytes::ZERO);
}

#[test]
fn promoting_without_the_capability_fails_before_sampling() {
    requires!(need::all([can_be_nobody(), own_samples(), base_pages_by_default()]));
    let (nobody, workload) = own_workload();
    let done = nobody.runs(tune_args(workload.pid(), ""));
    done.exits(3).says(&["cannot promote", "cap_sys_nice", "setcap"]);
    assert!(done.out().contains("hugepilot.error") && !done.err().contains("sampling"), "{done:?}");
    assert_eq!(huge_now(workload.pid()), Bytes::ZERO);
}

#[test]
fn another_users_process_is_an_error_with_its_cause() {
    requires!(can_be_nobody());
    let (nobody, workload) = (Nobody::new(), Workload::start("gups --footprint 32MiB"));
    let pid = workload.pid().to_string();
    let status = nobody.runs(["status", "-p", &pid]);
    status.exits(3).says(&[&format!("/proc/{pid}/"), "ermission denied", "setcap", "doctor"]);
    let tune = nobody.runs(tune_args(workload.pid(), ""));
    // The permission to read it is checked before sampling.
    tune.exits(3).says(&[&format!("/proc/{pid}/"), "ermission denied", "cap_perfmon", "doctor"]);
    for done in [&status, &tune] {
        assert!(done.out().is_empty() || done.out().contains("hugepilot.error"), "{done:?}");
        // The cause is stated once.
        let first =
            done.err().lines().find(|line| line.starts_with("hugepilot:")).unwrap().to_owned();
        let causes = first.matches("EACCES").count() + first.matches("ermission denied").count();
        assert_eq!(causes, 1, "{first}");
    }
    // This user has no stored calibration, which takes many seconds.
    for args in [&["debloat", "-p", &pid, "--dry-run"][..], &["tune"], &["tune", "--", "true"]] {
        let done = nobody.runs(args);
        assert!(!done.exits(3).err().contains("calibrating"), "{done:?}");
    }
}

#[test]
fn a_graph_is_written_where_the_directory_permits_it() {
    requires!(can_be_nobody());
    let (nobody, folder) = (Nobody::new(), tempfile::tempdir().unwrap());
    let lets = |mode| set_permissions(folder.path(), Permissions::from_mode(mode)).unwrap();
    let file = folder.path().join("g.sg").display().to_string();
    // The directory is checked before the graph is read.
    lets(0o755);
    let done = nobody.runs(["graph", "convert", "/nowhere.el", &file]);
    done.exits(2).says(&["g.sg: Permission denied", "help:", "directory"]);
    // They may write there, but not list it.
    lets(0o733);
    nobody.runs(["graph", "generate", "uniform:8", &file]).exits(0);
    assert!(Path::new(&file).exists());
}

#[test]
fn doctor_names_the_missing_capability() {
    requires!(can_be_nobody());
    assert!(Path::new("/proc/self").exists());
    let report: serde_json::Value = Nobody::new().runs(["doctor", "--json"]).exits(3).json();
    let promote = report["probes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|probe| probe["name"] == "promote")
        .unwrap();
    assert_eq!(promote["supported"], false);
    assert_eq!(promote["code"], "capability_missing", "{promote}");
    assert!(promote["text"].as_str().unwrap().contains("cap_sys_nice"), "{promote}");
    assert!(promote["help"][0].as_str().unwrap().contains("setcap"), "{promote}");
}
