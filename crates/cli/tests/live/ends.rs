//! Ends of commands: each signal to each command, against the table of docs/cli.md, without
//! processes left running.

mod works;

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use hugepilot_testkit::{Need, need, requires};
use rustix::process::{Pid, Signal, kill_process};

use crate::tool::{HUGEPILOT, LIMIT, hugepilot};
use crate::workload::Workload;
use works::{Work, work, works};

const SIGNALS: [Signal; 5] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1];
/// A second is promised; the rest is for busy machines.
const PROMPT: Duration = Duration::from_secs(4);
/// The file of a pool that `pool set` writes.
const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// The effects of INT and TERM, of HUP and of others on `command`, as they are documented.
fn documented(command: &str) -> [String; 3] {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let page = fs::read_to_string(page).expect("the documentation");
    let (_, table) =
        page.split_once("| command | INT, TERM | HUP | others |\n").expect("the table");
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let row = rows.map(cells).find(|row| {
        let rest = command.strip_prefix(row[1].trim_matches('`'));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    });
    let row =
        row.unwrap_or_else(|| panic!("docs/cli.md does not say what signals do to `{command}`"));
    [row[2].clone(), row[3].clone(), row[4].clone()]
}

fn effect_of(signal: Signal, [asks, hangs_up, others]: &[String; 3]) -> &str {
    match signal {
        Signal::INT | Signal::TERM => asks,
        Signal::HUP => hangs_up,
        _ => others,
    }
}

/// When a command is at work.
#[derive(Clone)]
enum Moment {
    /// Writing its report to a full pipe.
    Printing,
    /// Signal handlers are in place.
    Listening,
    /// This text is in its output.
    Wrote(&'static str),
    /// The same, and it has nothing to report yet.
    Begins(&'static str),
    /// Its program wrote this number of lines to its file.
    Lines(usize),
}

/// A command at work.
struct Job {
    child: Child,
    /// The full pipe that it writes to.
    full: Option<OwnedFd>,
    output: File,
    folder: tempfile::TempDir,
}

impl Job {
    #[track_caller]
    fn start(Work { line, moment }: &Work) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let output = tempfile::tempfile().expect("a file");
        let to_file = || Stdio::from(output.try_clone().expect("a copy of a descriptor"));
        let (full, stdout) = match moment {
            Moment::Printing => {
                let (read, write) = full_pipe();
                (Some(read), Stdio::from(write))
            }
            _ => (None, to_file()),
        };
        let mut command = Command::new("sh");
        // Signals must leave no core file behind.
        command.args(["-c", &format!("ulimit -c 0; exec {line}")]).env("D", folder.path());
        command.stdin(Stdio::null()).stdout(stdout).stderr(to_file());
        let child = command.spawn().expect("sh runs");
        Self { child, full, output, folder }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn said(&self) -> String {
        // The descriptor's position is the program's, too, and stays where it is.
        let mut text = vec![0; 256 << 10];
        let length = self.output.read_at(&mut text, 0).expect("our own file");
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    fn is_at(&self, moment: &Moment) -> bool {
        let proc = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", self.child.id()));
        if proc("comm").is_ok_and(|name| name != "hugepilot\n") {
            return false;
        }
        match moment {
            Moment::Printing => {
                // A write to another pipe waits for a moment, too, if its reader holds the lock.
                let is_stdout = |call: String| call.split(' ').nth(1) == Some("0x1");
                proc("syscall").is_ok_and(is_stdout)
                    && proc("wchan").is_ok_and(|at| at.contains("pipe_write"))
            }
            Moment::Listening => is_listening(&proc("status").unwrap_or_default()),
            Moment::Wrote(text) | Moment::Begins(text) => self.said().contains(text),
            Moment::Lines(count) => {
                let text = fs::read_to_string(self.folder.path().join("lines")).unwrap_or_default();
                text.lines().count() >= *count
            }
        }
    }

    #[track_caller]
    fn until(&mut self, what: &str, happened: &mut dyn FnMut(&mut Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !happened(self) {
            self.goes_on(what, until);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[track_caller]
    fn goes_on(&mut self, what: &str, until: Instant) {
        let ended = self.child.try_wait().expect("a child can be waited for");
        assert!(ended.is_none() && Instant::now() < until, "{what}: {ended:?} {}", self.said());
    }

    #[track_caller]
    fn end(&mut self, what: &str) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(begun.elapsed() < PROMPT, "{what}: it goes on: {}", self.said());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether what it wrote is a whole report: one JSON object, or a line.
    fn has_report(&self) -> bool {
        let said = self.said();
        match said.find('{') {
            Some(at) => serde_json::from_str::<serde_json::Value>(said[at..].trim()).is_ok(),
            None => said.ends_with('\n') && !said.starts_with("hugepilot:"),
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        drop(self.full.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).expect("a pipe");
    rustix::io::ioctl_fionbio(&write, true).expect("our own pipe");
    while rustix::io::write(&write, &[0; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&write, false).expect("our own pipe");
    (read, write)
}

fn is_listening(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0);
    // Of the signals that are tried here, one of these gets its handler last.
    [Signal::HUP, Signal::TERM].iter().all(|signal| caught & (1 << (signal.as_raw() - 1)) != 0)
}

/// Sends each job its signal as soon as it is at work: while one starts, another may already end.
#[track_caller]
fn signal_at_work(works: &[Work], jobs: &mut [Job]) {
    let until = Instant::now() + LIMIT;
    let mut waiting: Vec<_> = works.iter().zip(jobs).zip(SIGNALS).collect();
    while !waiting.is_empty() {
        waiting.retain_mut(|((work, job), signal)| {
            if job.is_at(&work.moment) {
                kill_process(job.pid(), *signal).expect("it lives");
                return false;
            }
            job.goes_on(&format!("to be at work: {}", work.line), until);
            true
        });
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends each signal to a command that does `work` each, and compares.
fn check(command: &str, works: &[Work]) {
    let effects = documented(command);
    let mut jobs: Vec<Job> = works.iter().map(Job::start).collect();
    signal_at_work(works, &mut jobs);
    for ((work, job), signal) in works.iter().zip(&mut jobs).zip(SIGNALS) {
        let effect = match work.moment {
            Moment::Printing | Moment::Begins(_) => "128 + n",
            _ => effect_of(signal, &effects),
        };
        let what = format!("{} under {signal:?}, which should be: {effect}", work.line);
        if effect == "reload" {
            job.until(&what, &mut |job| job.said().contains("\"reloaded\""));
            kill_process(job.pid(), Signal::TERM).expect("it lives");
        }
        let status = job.end(&what);
        let killed = status.signal() == Some(signal.as_raw());
        let as_documented = match effect {
            "128 + n" => killed,
            "report" => matches!(status.code(), Some(0 | 1 | 3)) && job.has_report(),
            "report, 128 + n" => killed && job.has_report(),
            "0" | "reload" => status.code() == Some(0),
            "program" => status.code() == Some(40),
            other => panic!("docs/cli.md says {other:?} of `{command}`"),
        };
        assert!(as_documented, "{what}: {status:?} {}", job.said());
    }
}

/// The count of pages in the pool. The same again on drop.
struct PoolBefore(String);

impl Drop for PoolBefore {
    fn drop(&mut self) {
        let _ = fs::write(POOL, &self.0);
    }
}

fn everything() -> Need {
    need::all([need::live(), need::root(), need::program("strace")])
}

/// Command line that `number` makes unique among the tests.
fn sleep(number: u32) -> String {
    format!("sleep 4711.{number}")
}

/// Processes with such a command line.
fn running(is: &dyn Fn(&str) -> bool) -> Vec<Pid> {
    let pid = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        is(line.trim_end())
            .then(|| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .flatten()
    };
    fs::read_dir("/proc").expect("processes").filter_map(pid).collect()
}

/// Within the time that a signal may take.
#[track_caller]
fn none_is_left(is: &dyn Fn(&str) -> bool, what: &str) {
    let begun = Instant::now();
    loop {
        let left = running(is);
        if left.is_empty() {
            break;
        }
        assert!(begun.elapsed() < PROMPT, "{what} left {left:?} running");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Script that leaves a child, a child in another session, and a child of a shell that ignores TERM
/// for a while, and then waits.
fn leaves(sleep: &str) -> String {
    format!("{sleep} & setsid {sleep} & (setsid sh -c \"trap : TERM; {sleep}; true\" &); {sleep}")
}

#[test]
fn nothing_that_a_run_started_outlives_it_or_us() {
    requires!(need::all([need::live(), need::cap_perfmon()]));
    let commands =
        ["compare --no-stalls --modes glibc-thp --rounds 9", "tune --calibration off --baseline"];
    let mut number = 0;
    for command in commands {
        let mut jobs = Vec::new();
        for signal in [Signal::HUP, Signal::INT, Signal::TERM, Signal::USR1, Signal::KILL] {
            number += 1;
            let sleep = sleep(number);
            let line = format!("{HUGEPILOT} {command} -- sh -c '{}'", leaves(&sleep));
            jobs.push((signal, sleep, Job::start(&work(line, Moment::Lines(0)))));
        }
        for (signal, sleep, job) in &mut jobs {
            job.until(command, &mut |_| running(&|line| line == sleep).len() == 4);
            kill_process(job.pid(), *signal).expect("it lives");
        }
        for (signal, sleep, job) in &mut jobs {
            let status = job.end(command);
            let is_end = status.signal() == Some(signal.as_raw()) || status.code() == Some(1);
            assert!(is_end, "{command} under {signal:?}: {status:?} {}", job.said());
            none_is_left(&|line| line.contains(&*sleep), &format!("{command} under {signal:?}"));
        }
    }
}

#[test]
fn what_a_run_leaves_running_ends_with_it_and_is_a_warning() {
    requires!(need::live());
    let sleep = sleep(99);
    let script = format!("(setsid {sleep} >/dev/null 2>&1 &); test -e /proc/self");
    for command in
        ["compare --json --no-stalls --modes glibc-thp --rounds 2", "tune --json --calibration off"]
    {
        let words = command.split(' ').chain(["--", "sh", "-c", &script]);
        let done = hugepilot(words);
        assert!(done.out().contains(" running; hugepilot ended them"), "{done:?}");
        assert_eq!(running(&|line| line == sleep), [], "{done:?}");
    }
}

#[test]
fn a_demonstration_that_is_killed_leaves_no_workload() {
    requires!(need::live());
    let is = |line: &str| line.ends_with("--threads 1 --seed 471199");
    let mut command = Command::new(HUGEPILOT);
    command.args(["tune", "--calibration", "off", "--footprint", "1GiB", "--hot", "32MiB"]);
    command
        .args(["--seed", "471199"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().expect("it runs");
    let begun = Instant::now();
    while running(&is).is_empty() {
        assert!(begun.elapsed() < LIMIT, "it starts no workload");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().and_then(|()| child.wait()).expect("our own child");
    // The workload still fills its memory. If it lived, it would end by itself when it prints, but
    // not while it is stopped.
    running(&is).into_iter().for_each(|pid| _ = kill_process(pid, Signal::STOP));
    none_is_left(&is, "a demonstration");
}

#[test]
fn each_signal_does_to_each_command_what_the_documentation_says() {
    requires!(everything());
    let _pool = PoolBefore(fs::read_to_string(POOL).expect("a pool"));
    // Two of them on one process would meet.
    let line = "pointer-chase --size 32MiB --pages default";
    let victims = Workload::start_all(SIGNALS.map(|_| line));
    let commands = hugepilot_cli::leaves();
    assert!(commands.len() > 20, "{commands:?}");
    for (command, _) in commands {
        if command.ends_with(" memcached") && need::program("memcached") != Need::Ok {
            eprintln!("without memcached: {command}");
            continue;
        }
        let begun = Instant::now();
        let works = victims.iter().map(|victim| works(&command, victim.pid())).collect::<Vec<_>>();
        for moment in 0..works[0].len() {
            let works = works.iter().map(|works| &works[moment]);
            check(
                &command,
                &works.map(|Work { line, moment }| work(line, moment.clone())).collect::<Vec<_>>(),
            );
        }
        eprintln!("{:5} ms: {command}", begun.elapsed().as_millis());
    }
}
