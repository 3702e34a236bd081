//! `run` and `compare` under signals: the program is as if its parent had started it itself.

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hugepilot_testkit::{need, requires};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::tool::{HUGEPILOT, LIMIT, Running, hugepilot};

/// Shell script that hugepilot runs; it writes its pid to a file.
struct Script {
    folder: tempfile::TempDir,
    tool: Running,
}

impl Script {
    /// In a process group of its own, as a shell's job; `$D` is a folder.
    #[track_caller]
    fn start(script: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(HUGEPILOT);
        command.args(["run", "--quiet", "--pages", "base", "--", "sh", "-c"]);
        command.arg(format!("echo $$ >$D/pid; {script}")).env("D", folder.path()).process_group(0);
        let mut script = Self { folder, tool: Running::start(command) };
        let pid = script.path("pid");
        script
            .tool
            .until("it runs", || fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n')));
        script
    }
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
    fn pid(&self) -> Pid {
        let text = fs::read_to_string(self.path("pid")).expect("it was written");
        Pid::from_raw(text.trim().parse().expect("a number")).expect("not 0")
    }
    fn us(&self) -> Pid {
        Pid::from_raw(self.tool.pid().cast_signed()).expect("not 0")
    }
    #[track_caller]
    fn both_stop(&mut self) {
        let both = [self.pid(), self.us()];
        self.tool.until("both are stopped", || both.iter().all(|&pid| state(pid) == Some('T')));
    }
}

pub(crate) fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Until a file is there.
const WAITS: &str = "while ! test -e $D/go; do sleep 0.02; done; exit 9";
/// Same script without children: a shell that starts a child by `vfork` cannot be stopped while the
/// child is stopped with the group.
const SPINS: &str = "while ! test -e $D/go; do :; done; exit 9";

#[test]
fn a_program_that_somebody_stops_and_continues_alone_takes_us_along() {
    requires!(need::live());
    let mut script = Script::start(WAITS);
    // Often, as the next stop may come while we are about to go on.
    for signal in [Signal::STOP, Signal::TSTP].into_iter().cycle().take(30) {
        kill_process(script.pid(), signal).unwrap();
        script.both_stop();
        kill_process(script.pid(), Signal::CONT).unwrap();
        let us = script.us();
        script.tool.until("we go on", || state(us) != Some('T'));
    }
    fs::write(script.path("go"), b"").unwrap();
    assert_eq!(script.tool.wait(LIMIT).status.code(), Some(9));
}

#[test]
fn a_program_that_is_killed_while_it_is_stopped_ends_us() {
    requires!(need::live());
    let mut script = Script::start(WAITS);
    kill_process(script.pid(), Signal::STOP).unwrap();
    script.both_stop();
    kill_process(script.pid(), Signal::KILL).unwrap();
    assert_eq!(script.tool.wait(LIMIT).status.code(), Some(137));
}

#[test]
fn a_job_that_is_stopped_and_continued_as_a_whole_hears_of_it_once() {
    requires!(need::live());
    let mut script = Script::start(&format!("trap 'echo x >>$D/continued' CONT; {SPINS}"));
    for rounds in 1..=3 {
        kill_process_group(script.us(), Signal::TSTP).unwrap();
        script.both_stop();
        kill_process_group(script.us(), Signal::CONT).unwrap();
        let (us, continued) = (script.us(), script.path("continued"));
        let lines = || fs::read_to_string(&continued).unwrap_or_default().lines().count();
        script.tool.until("both go on", || state(us) != Some('T') && lines() >= rounds);
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(lines(), rounds);
    }
    fs::write(script.path("go"), b"").unwrap();
    assert_eq!(script.tool.wait(LIMIT).status.code(), Some(9));
}

#[test]
fn what_is_sent_to_the_whole_group_comes_once_and_what_is_sent_to_us_alone_does_too() {
    requires!(need::live());
    let heard = "echo x >>$D/heard";
    let mut script = Script::start(&format!("trap '{heard}' USR1; trap '{heard}' TERM; {WAITS}"));
    let path = script.path("heard");
    let lines = || fs::read_to_string(&path).unwrap_or_default().lines().count();
    for (round, signal) in (1..).zip([Signal::USR1, Signal::TERM, Signal::USR1, Signal::TERM]) {
        for alone in [false, true] {
            let us = script.us();
            if alone { kill_process(us, signal) } else { kill_process_group(us, signal) }.unwrap();
            let wanted = 2 * round - usize::from(!alone);
            script.tool.until("it was heard", || lines() >= wanted);
            std::thread::sleep(Duration::from_millis(150));
            assert_eq!(lines(), wanted, "{signal:?}, to us alone: {alone}");
        }
    }
    fs::write(script.path("go"), b"").unwrap();
    assert_eq!(script.tool.wait(LIMIT).status.code(), Some(9));
}

/// Runs Python code that has our path in `T` and a folder in `D`.
fn python(folder: &Path, code: &str) -> std::process::Output {
    let mut command = Command::new("python3");
    command.args(["-c", code]).env("T", HUGEPILOT).env("D", folder).stdin(Stdio::null());
    command.output().expect("python3 runs")
}

#[test]
fn a_closed_terminal_sends_hup_to_the_program_of_a_session_leader() {
    requires!(need::all([need::live(), need::program("python3")]));
    let folder = tempfile::tempdir().unwrap();
    let code = "\
import os, pty, time
d = os.environ['D']
pid, terminal = pty.fork()
if pid == 0:
    script = 'trap \"echo hup >$D/heard; exit 0\" HUP; echo >$D/ready; n=0; ' + \\
        'while test $n -lt 500; do sleep 0.02; n=$((n+1)); done'
    words = ['hugepilot', 'run', '--quiet', '--pages', 'base', '--', 'sh', '-c', script]
    os.execv(os.environ['T'], words)
while not os.path.exists(d + '/ready'): time.sleep(0.01)
os.close(terminal)
os.waitpid(pid, 0)
";
    let output = python(folder.path(), code);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_to_string(folder.path().join("heard")).unwrap_or_default(), "hup\n");
}

#[test]
fn top_ends_when_its_terminal_is_gone() {
    requires!(need::all([need::live(), need::program("python3")]));
    let folder = tempfile::tempdir().unwrap();
    let code = "\
import os, pty, signal, time
pid, terminal = pty.fork()
if pid == 0: os.execv(os.environ['T'], ['hugepilot', 'top', '--interval', '1s'])
# The alternate screen.
seen = b''
while b'[?1049h' not in seen: seen += os.read(terminal, 4096)
# Until it waits for a key.
time.sleep(1)
os.close(terminal)
until = time.monotonic() + 5
while time.monotonic() < until:
    if os.waitpid(pid, os.WNOHANG)[0]: raise SystemExit(0)
    time.sleep(0.05)
os.kill(pid, signal.SIGKILL)
raise SystemExit('top goes on')
";
    let output = python(folder.path(), code);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_timer_that_was_set_before_us_ends_the_program() {
    requires!(need::all([need::live(), need::program("python3")]));
    let folder = tempfile::tempdir().unwrap();
    let code = "\
import os, signal
signal.setitimer(signal.ITIMER_REAL, 1)
os.execv(os.environ['T'], ['hugepilot', 'run', '--quiet', '--pages', 'base', '--', 'sleep', '20'])
";
    let output = python(folder.path(), code);
    assert_eq!(output.status.code(), Some(128 + 14), "{output:?}");
}

#[test]
fn what_was_ignored_when_we_were_started_is_ignored_in_the_program_and_nothing_else() {
    requires!(need::live());
    let ignored = |trap: &str, how: &str| {
        let script = format!("{trap} exec {how} grep SigIgn: /proc/self/status");
        let output =
            Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for trap in ["", "trap '' HUP;", "trap '' PIPE CHLD INT RTMIN;", "trap '' PIPE;"] {
        let alone = ignored(trap, "");
        assert!(alone.starts_with("SigIgn:"), "{alone}");
        let with_us = ignored(trap, &format!("{HUGEPILOT} run --quiet --pages base --"));
        assert_eq!(with_us, alone, "{trap}");
    }
}

#[test]
fn a_script_without_a_first_line_is_run_by_the_shell() {
    requires!(need::live());
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "exit $(($1 + 3))\n").unwrap();
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let run =
        |words: &[&str]| hugepilot([&["run", "--quiet", "--pages", "base", "--"], words].concat());
    assert_eq!(run(&[script.to_str().unwrap(), "4"]).status.code(), Some(7));
}

#[test]
fn every_signal_that_would_end_us_is_passed_on() {
    requires!(need::live());
    for signal in [
        Signal::ALARM,
        Signal::VTALARM,
        Signal::PROF,
        Signal::XCPU,
        Signal::IO,
        Signal::SEGV,
        Signal::USR2,
    ] {
        let script = Script::start("exec sleep 20");
        // The shell is the program until it becomes sleep.
        std::thread::sleep(Duration::from_millis(50));
        script.tool.signal(signal);
        assert_eq!(
            script.tool.wait(LIMIT).status.code(),
            Some(128 + signal.as_raw()),
            "{signal:?}"
        );
    }
}

/// The script leads a session, so that its group is orphaned. The kernel sends SIGHUP to such a
/// group if it has a stopped process when a member ends whose parent is in another group of the
/// session.
#[test]
fn the_end_of_a_program_harms_no_stopped_job_of_the_script_that_started_us() {
    requires!(need::all([need::live(), need::program("setsid")]));
    for command in [
        "run --quiet --pages base",
        "record --no-stalls -o $D/recording",
        "compare --no-stalls --modes glibc-thp --rounds 1",
        "tune --calibration off",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "sleep 60 & kill -STOP $!; until grep -q ') T ' /proc/$!/stat; do :; done; \
             {HUGEPILOT} {command} -- sh -c 'echo >$D/ran'; echo >$D/alive; kill -KILL $!"
        );
        let mut shell = Command::new("setsid");
        shell.args(["sh", "-c", &script]).env("D", folder.path());
        let done = Running::start(shell).wait(LIMIT);
        for file in ["ran", "alive"] {
            assert!(folder.path().join(file).exists(), "not {file}: {command}: {done:?}");
        }
    }
}

#[test]
fn compare_ends_by_the_signal_that_asked_for_it_and_reports_first() {
    requires!(need::live());
    for signal in [Signal::ALARM, Signal::USR1, Signal::QUIT] {
        let mut command = Command::new(HUGEPILOT);
        let folder = tempfile::tempdir().unwrap();
        let flags = "compare --json --no-stalls --modes glibc-thp --rounds 1000 -- sh -c";
        command.args(flags.split(' ')).arg("echo x >>$D/runs; sleep 0.05").env("D", folder.path());
        let mut tool = Running::start(command);
        let runs = || fs::read_to_string(folder.path().join("runs")).unwrap_or_default();
        tool.until("runs", || runs().lines().count() > 6);
        tool.signal(signal);
        let done = tool.wait(LIMIT);
        assert_eq!(done.status.signal(), Some(signal.as_raw()), "{done:?}");
        let report: hugepilot_reports::compare::CompareReport = done.json();
        assert!(report.interrupted && report.modes[0].runs > 0, "{report:?}");
    }
}

#[test]
fn compare_that_is_interrupted_before_it_knows_anything_says_so_by_its_status() {
    requires!(need::live());
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(HUGEPILOT);
    command.args("compare --no-stalls --modes glibc-thp -- sh -c".split(' '));
    command.arg("echo x >>$D/runs; exec sleep 20").env("D", folder.path());
    let mut tool = Running::start(command);
    tool.until("the first run", || folder.path().join("runs").exists());
    std::thread::sleep(Duration::from_millis(200));
    tool.signal(Signal::INT);
    let done = tool.wait(LIMIT);
    assert_eq!(done.status.signal(), Some(Signal::INT.as_raw()), "{done:?}");
    done.says(&["interrupted before the first result"]);
}
