//! `--backend shrinker`: the kernel debloats a cgroup, and its settings are always restored.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use hugepilot_record::Stop;
use hugepilot_reports::shrink::{ShrinkReport, ShrinkWarning};
use hugepilot_testkit::{Need, Victim, compiled, need, requires};
use hugepilot_units::Bytes;
use rustix::process::Signal;

use crate::cgroup::Cgroup;
use crate::look::{thp_settings, total};
use crate::tool::{Done, HUGEPILOT, Running, hugepilot};
use crate::unprivileged::Nobody;
use crate::workload::SOON;

const THP: &str = "/sys/kernel/mm/transparent_hugepage";
const MAX_PTES_NONE: &str = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none";
const JOURNAL: &str = "/run/hugepilot/settings.json";

fn possible() -> Need {
    let kernel = if Path::new(THP).join("shrink_underused").exists() {
        Need::Ok
    } else {
        Need::Err("the kernel has no shrink_underused (Linux 6.12)".to_owned())
    };
    need::all([need::live(), need::root(), need::cgroup_memory(), kernel])
}

/// Settings before a test, restored on drop.
struct Settings(Vec<(String, String)>);

impl Settings {
    fn now() -> Self {
        let names =
            ["khugepaged/max_ptes_none", "shrink_underused"].map(|name| format!("{THP}/{name}"));
        Self(
            names.map(|name| (name.clone(), fs::read_to_string(name).expect("a setting"))).to_vec(),
        )
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for (name, value) in &self.0 {
            let _ = fs::write(name, value.trim());
        }
    }
}

/// A waiting workload of 256 MiB in a cgroup. The bloat of half of its huge pages is 90 %, of the
/// others 10 %.
struct Patient {
    victim: Victim,
    cgroup: Cgroup,
}

const WORK: &str = "lab workload random-access --size 256MiB --bloat 90,10 --ops 2000000 \
                    --seed 7 --interval 60s --wait";

impl Patient {
    fn start() -> Self {
        let cgroup = Cgroup::new(Bytes::gib(1));
        let mut command = cgroup.command(Path::new(HUGEPILOT));
        command.args(WORK.split_whitespace());
        let victim = Victim::spawn(command);
        victim.says("ready", SOON);
        let this = Self { victim, cgroup };
        assert_eq!(this.huge(), Bytes::mib(256), "every huge page came");
        this
    }
    fn huge(&self) -> Bytes {
        total(self.victim.pid(), "AnonHugePages")
    }
    fn args(&self, more: &str) -> Vec<String> {
        let cgroup = self.cgroup.path().display();
        let line = format!("debloat --cgroup {cgroup} --backend shrinker --json {more}");
        line.split_whitespace().map(str::to_owned).collect()
    }
    #[track_caller]
    fn shrink(&self, more: &str) -> Done {
        hugepilot(self.args(more))
    }
    /// Runs the work, and returns its checksum. The workload fails if its check of memory fails.
    #[track_caller]
    fn checksum(mut self) -> String {
        self.victim.send("go");
        loop {
            let line = self.victim.line(SOON).expect("it ends with its report");
            if let Ok(report) = serde_json::from_str::<serde_json::Value>(&line)
                && let Some(checksum) = report["checksum"].as_str()
            {
                assert!(self.victim.wait(SOON).success());
                return checksum.to_owned();
            }
        }
    }
    /// Starts a run whose request is delayed, so that its settings are changed for a while.
    #[track_caller]
    fn slow(&self) -> Running {
        let file =
            ["memory.force_empty", "memory.reclaim"].map(|name| self.cgroup.path().join(name));
        let file = file.iter().find(|file| file.exists()).expect("a way to ask for reclaim");
        let mut command = Command::new("strace");
        command.args(["-D", "-f", "-qq", "-o", "/dev/null", "-e", "trace=write", "-P"]).arg(file);
        command.args(["-e", "inject=write:delay_enter=1000000"]).arg(HUGEPILOT).args(self.args(""));
        let mut run = Running::start(command);
        run.until("the change", || {
            fs::read_to_string(MAX_PTES_NONE).is_ok_and(|text| text.trim() == "409")
        });
        assert!(Path::new(JOURNAL).exists(), "the journal exists before the change");
        run
    }
    /// Kills a run while it has settings changed.
    #[track_caller]
    fn killed(&self) {
        let run = self.slow();
        run.signal(Signal::KILL);
        drop(run);
        assert_eq!(fs::read_to_string(MAX_PTES_NONE).unwrap().trim(), "409");
        assert!(Path::new(JOURNAL).exists());
    }
}

fn report(done: &Done) -> ShrinkReport {
    done.json()
}

/// Memory that huge pages hold and no process maps: its return shows in no resident set.
#[test]
fn what_no_process_maps_counts_as_freed() {
    requires!(possible());
    requires!(need::c_compiler());
    let _settings = Settings::now();
    let group = Cgroup::new(Bytes::gib(1));
    let mut command = group.command(&compiled(Path::new("held.c")));
    command.args(["64", "1"]);
    let mut victim = Victim::spawn(command);
    victim.ready(SOON);
    let before = group.usage();
    requires!((before > Bytes::mib(100)).then_some(()).ok_or("no huge pages"));
    let cgroup = group.path().display();
    let line = format!("debloat --cgroup {cgroup} --backend shrinker --json");
    let done = hugepilot(line.split(' '));
    let report: ShrinkReport = done.exits(0).json();
    let freed = report.freed_bytes.expect("a number");
    let returned = before - group.usage();
    assert!(returned > Bytes::mib(100), "{returned}: {done:?}");
    assert!(freed.get().abs_diff(returned.get()) < Bytes::mib(4).get(), "{freed} {returned}");
    assert!(victim.finish(SOON).success());
}

#[test]
fn underused_huge_pages_are_split_and_results_stay_correct() {
    requires!(possible());
    let untouched = Patient::start().checksum();
    let (settings, patient) = (Settings::now(), Patient::start());
    let pid = patient.victim.pid();
    let anon = total(pid, "Anonymous");

    let plan = report(patient.shrink("--dry-run").exits(0));
    assert_eq!((plan.dry_run, plan.freed_bytes, plan.huge_pages_before), (true, None, Some(128)));
    assert_eq!(patient.huge(), Bytes::mib(256));

    let done = patient.shrink("");
    let report = report(done.exits(0));
    assert_eq!(patient.huge(), Bytes::mib(128), "the half with 90 % bloat: {done:?}");
    let freed = anon - total(pid, "Anonymous");
    assert_eq!(freed, Bytes::kib(4 * 461 * 64), "461 of 512 pages of each: {done:?}");
    assert_eq!((report.freed_bytes, report.huge_pages_split), (Some(freed), Some(64)), "{done:?}");
    assert_eq!(
        (report.huge_pages_before, report.huge_pages_after),
        (Some(128), Some(64)),
        "{done:?}"
    );
    let [process] = &report.processes[..] else { panic!("{done:?}") };
    assert_eq!(
        (process.pid.0.unsigned_abs(), process.huge_pages_after),
        (pid, Some(64)),
        "{done:?}"
    );
    let used = |bytes: Option<Bytes>| bytes.expect("known").get();
    let drop = used(report.shrinker.usage_bytes_before) - used(report.shrinker.usage_bytes_after);
    assert!(drop >= freed.get(), "{drop}: {done:?}");
    assert!(!Path::new(JOURNAL).exists());
    std::mem::drop(settings);
    assert_eq!(patient.checksum(), untouched);
}

#[test]
fn a_huge_page_is_examined_once_and_the_report_states_that() {
    requires!(possible());
    let (_settings, patient) = (Settings::now(), Patient::start());
    // No huge page has that much bloat; each is examined.
    let first = patient.shrink("--min-bloat 95%");
    let second = patient.shrink("--min-bloat 50%");
    for done in [&first, &second] {
        let report = report(done.exits(1));
        assert_eq!(
            (report.freed_bytes, report.huge_pages_split),
            (Some(Bytes::ZERO), Some(0)),
            "{done:?}"
        );
        let nothing = |warning: &_| matches!(warning, ShrinkWarning::NothingFound { .. });
        assert!(report.warnings.iter().any(nothing), "{done:?}");
    }
    assert_eq!(patient.huge(), Bytes::mib(256));
}

#[test]
fn a_signal_leaves_the_settings_as_they_were_and_a_complete_report() {
    requires!(need::all([possible(), need::program("strace")]));
    let (_settings, patient) = (Settings::now(), Patient::start());
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1] {
        let run = patient.slow();
        // A second signal does not prevent the restore.
        run.signal(signal);
        std::thread::sleep(Duration::from_millis(100));
        run.signal(signal);
        let done = run.wait(SOON);
        // As the table of docs/cli.md has it.
        let killed = (signal == Signal::USR1).then_some(signal.as_raw());
        assert_eq!(done.status.signal(), killed, "{done:?}");
        assert_eq!(report(&done).stopped, Some(Stop::Interrupted), "{done:?}");
        assert!(!Path::new(JOURNAL).exists(), "{done:?}");
    }
}

#[test]
fn after_a_kill_the_next_run_and_doctor_restore_the_settings() {
    requires!(need::all([possible(), need::program("strace")]));
    let (settings, patient) = (thp_settings(), Patient::start());
    let max = fs::read_to_string(MAX_PTES_NONE).unwrap().trim().to_owned();
    let _guard = Settings::now();
    for next in ["doctor", "debloat"] {
        patient.killed();
        let done = match next {
            "doctor" => hugepilot(["doctor"]),
            _ => patient.shrink(""),
        };
        done.sane().says(&[&format!(
            "killed while khugepaged/max_ptes_none was changed to 409; it is restored to {max}"
        )]);
        assert_eq!(thp_settings(), settings, "{next}: {done:?}");
        assert!(!Path::new(JOURNAL).exists(), "{next}");
    }
    // A setting that another program changed is kept.
    patient.killed();
    fs::write(MAX_PTES_NONE, "64").unwrap();
    let mut doctor = Command::new(HUGEPILOT);
    let output = doctor.arg("doctor").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("max_ptes_none stays at 64"), "{said}");
    assert_eq!(fs::read_to_string(MAX_PTES_NONE).unwrap().trim(), "64");
    assert!(!Path::new(JOURNAL).exists(), "reported once");
}

#[test]
fn a_second_run_is_refused() {
    requires!(need::all([possible(), need::program("strace")]));
    let (_settings, patient) = (Settings::now(), Patient::start());
    let first = patient.slow();
    let mut second = Command::new(HUGEPILOT);
    let second = second.args(patient.args("")).output().unwrap();
    assert_eq!(second.status.code(), Some(2), "{second:?}");
    assert!(
        String::from_utf8_lossy(&second.stderr).contains("another hugepilot process"),
        "{second:?}"
    );
    let done = first.wait(SOON);
    assert_eq!(report(done.exits(0)).huge_pages_split, Some(64), "{done:?}");
}

#[test]
fn an_unsupported_request_has_a_cause() {
    requires!(need::all([possible(), need::program("setpriv")]));
    let patient = Patient::start();
    let nobody = Nobody::new().runs(patient.args(""));
    nobody.exits(3).says(&["kernel settings cannot be changed here", "help: run as root"]);
    assert!(nobody.out().contains("hugepilot.error"), "{nobody:?}");
    let run = |line: &str| hugepilot(line.split(' '));
    run("debloat --cgroup /tmp --backend shrinker")
        .exits(3)
        .says(&["no memory is accounted to /tmp", "help:"]);
    run("debloat -p 1 --backend shrinker").exits(2).says(&["--cgroup"]);
    patient.shrink("--order emd").exits(2).says(&["--order", "starts with the oldest huge page"]);
    patient.shrink("--min-bloat 100%").exits(3).says(&["no huge page counts as underused"]);
    assert_eq!(patient.huge(), Bytes::mib(256));
}
