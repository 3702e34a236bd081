//! Memory that hugepilot takes itself: in a small cgroup, neither it nor its target is killed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use hugepilot_kernel::Root;
use hugepilot_profiler::calibrate::{MachineCalibration, Measurement, Point, Standing};
use hugepilot_stats::Spread;
use hugepilot_testkit::{Victim, compiled, need, requires};
use hugepilot_units::{Bytes, Nanos};
use rustix::process::{Pid, Signal, kill_process};

use crate::cgroup::Cgroup;
use crate::look;
use crate::tool::{Done, HUGEPILOT, LIMIT, Running};
use crate::workload::{SOON, Workload};

/// Limit of a small container, most of which its program uses.
const SMALL: Bytes = Bytes::mib(128);
/// Its program.
const PROGRAM: &str = "gups --footprint 66MiB";
/// Times that make runs short.
const SHORT: &str = "--observe 300ms --json";

/// Cgroup with a program, and a user whose cache is empty.
struct Container {
    program: Workload,
    cache: tempfile::TempDir,
    group: Cgroup,
}

impl Container {
    #[track_caller]
    fn new(limit: Bytes, program: &str) -> Self {
        let group = Cgroup::new(limit);
        let program = Workload::by(group.command(Path::new(HUGEPILOT)), program);
        Self { program, cache: tempfile::tempdir().expect("a temporary folder"), group }
    }

    /// Starts hugepilot in it. `PID` is the program.
    #[track_caller]
    fn start(&self, line: &str) -> Running {
        let mut command = self.group.command(Path::new(HUGEPILOT));
        let pid = self.program.pid().to_string();
        command.args(line.split_whitespace().map(|word| word.replace("PID", &pid)));
        command.env("XDG_CACHE_HOME", self.cache.path());
        Running::start(command)
    }

    #[track_caller]
    fn run(&self, line: &str) -> Done {
        self.start(line).wait(LIMIT)
    }

    #[track_caller]
    fn is_unharmed(&self) {
        assert_eq!(self.group.oom_kills(), 0);
        assert!(look::stat(self.program.pid()).is_some_and(|stat| stat[0] != "Z"));
    }
}

#[test]
fn a_container_survives_the_first_calibration() {
    requires!(need::live());
    requires!(need::cap_sys_nice());
    requires!(need::cap_perfmon());
    requires!(need::cgroup_memory());
    let container = Container::new(SMALL, PROGRAM);
    for line in [
        "tune --dry-run -p PID --for 300ms",
        "debloat --dry-run -p PID",
        "debloat --order heat -p PID",
    ] {
        let done = container.run(&format!("{line} {SHORT}"));
        done.sane().says(&["calibrated", "below the cgroup limit of 128MiB"]);
        container.is_unharmed();
    }
}

#[test]
fn a_container_survives_the_daemon_which_watches_memory_first() {
    requires!(need::live());
    requires!(need::cap_sys_nice());
    requires!(need::cap_perfmon());
    requires!(need::cgroup_memory());
    let container = Container::new(SMALL, PROGRAM);
    let mut daemon = container.start("daemon --promote hugepilot --dry-run --interval 200ms");
    daemon.until_it_says("calibrated");
    // Without a process in turn, which takes two scans, nothing is measured.
    container.is_unharmed();
    daemon.signal(Signal::TERM);
    let done = daemon.wait(LIMIT);
    done.exits(0).says(&["below the cgroup limit of 128MiB"]);
    let off = container.start("daemon --promote hugepilot --dry-run --once --calibration off");
    assert!(!off.wait(LIMIT).exits(0).err().contains("calibrat"), "none is wanted");
}

/// Returns the child of `parent` that measures the calibration.
fn measuring(parent: u32) -> Option<u32> {
    let entries = fs::read_dir("/proc").expect("a /proc").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_it = |&pid: &u32| {
        look::stat(pid).is_some_and(|stat| stat[1] == parent.to_string())
            && fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.windows(11).any(|part| part == b"calibration"))
    };
    pids.into_iter().find(is_it)
}

/// Stops the child of `tune` when it has more than 100 MiB.
#[track_caller]
fn stopped(tune: &mut Running) -> u32 {
    let (parent, mut child) = (tune.pid(), 0);
    tune.until("a child with much memory", || {
        let found = measuring(parent).filter(|&pid| look::peak(pid) > Some(Bytes::mib(100)));
        child = found.unwrap_or(0);
        found.is_some()
    });
    let pid = Pid::from_raw(child.cast_signed()).expect("a process");
    kill_process(pid, Signal::STOP).expect("it still runs");
    child
}

#[test]
fn if_memory_gets_short_the_kernel_kills_the_process_that_measures() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_perfmon());
    requires!(need::cgroup_memory());
    requires!(need::memory(Bytes::gib(2)));
    let container = Container::new(Bytes::mib(600), "gups --footprint 16MiB");
    let mut tune = container.start(&format!("tune --dry-run -p PID --for 300ms {SHORT}"));
    let child = stopped(&mut tune);
    let adjusted = fs::read_to_string(format!("/proc/{child}/oom_score_adj")).unwrap();
    assert_eq!(adjusted.trim(), "1000");
    // Both need 620 MiB, the other processes 60.
    let mut command = container.group.command(&compiled(Path::new("grower.c")));
    command.args(["500", "100000"]);
    let mut grower = Victim::spawn(command);
    grower.ready(SOON);
    grower.send("go");
    assert_eq!(grower.says("grown", SOON), ["500"]);
    tune.wait(LIMIT).sane().says(&["not calibrated", "memory became short"]);
    assert_eq!(container.group.oom_kills(), 1, "that of the child");
    assert!(look::stat(container.program.pid()).is_some_and(|stat| stat[0] != "Z"));
    assert!(grower.finish(SOON).success());
}

#[test]
fn memory_that_does_not_fit_is_refused_before_it_is_mapped() {
    requires!(need::live());
    requires!(need::cap_sys_nice());
    requires!(need::cap_perfmon());
    requires!(need::cgroup_memory());
    let container = Container::new(SMALL, "gups --footprint 16MiB");
    for line in [
        "lab workload gups --footprint 256MiB --seconds 1",
        "lab workload hash-insert --seconds 1",
        "lab gups --size 256MiB",
        "lab stream --array 128MiB",
        "tune",
        "tune --footprint 256MiB",
    ] {
        let done = container.run(line);
        done.exits(2).says(&["below the cgroup limit of 128MiB", "must stay free"]);
        container.is_unharmed();
    }
    container.run("graph run pr uniform:24").exits(2).says(&["required", "available"]);
    container.is_unharmed();
}

/// A sound calibration of this machine, measured `days` ago.
fn calibration(days: u64) -> MachineCalibration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    let ratio = Spread { median: 0.8, min: 0.75, max: 0.85 };
    let (chase_ratio, gather_ratio) = (ratio, ratio);
    let measured = Measurement {
        points: vec![Point { hot_bytes: Bytes::mib(16), chase_ratio, gather_ratio }],
        left_out: Vec::new(),
        measured_unix_seconds: now.as_secs() - days * 24 * 3600,
        load_average: 0.0,
        steal_ratio: 0.0,
    };
    MachineCalibration {
        machine: MachineCalibration::machine(&Root::live()),
        sample_cost_ns: Nanos::new(10_000),
        measured,
        standing: Standing::Unchallenged,
    }
}

#[test]
fn a_unit_without_a_home_keeps_its_calibration_for_thirty_days() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    requires!(need::cgroup_memory());
    let container = Container::new(SMALL, PROGRAM);
    let directory = container.cache.path().join("hugepilot");
    let tune = |variable: &str| {
        let mut command: Command = container.group.command(Path::new(HUGEPILOT));
        command.env_remove("HOME").env_remove("XDG_CACHE_HOME").env(variable, &directory);
        let line = format!("tune --dry-run -p {} --for 300ms {SHORT}", container.program.pid());
        command.args(line.split_whitespace());
        let done = Running::start(command).wait(LIMIT);
        done.sane().err().contains("calibrat")
    };
    for (days, is_measured) in [(29, false), (31, true)] {
        calibration(days).save(&directory).unwrap();
        for variable in ["CACHE_DIRECTORY", "STATE_DIRECTORY"] {
            assert_eq!(tune(variable), is_measured, "{days} days, by {variable}");
        }
    }
}
