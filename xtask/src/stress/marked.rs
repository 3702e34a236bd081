//! Processes with a mark in their environment. All processes that hugepilot starts inherit it.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Environment variable.
const VARIABLE: &str = "HUGEPILOT_STRESS";

/// Value that identifies the processes of one run.
#[derive(Clone, Debug)]
pub(super) struct Mark(String);

impl Mark {
    /// Mark number `n` of this process.
    pub(super) fn new(n: u64) -> Self {
        Self(format!("{}-{n}", std::process::id()))
    }

    /// Common prefix of all marks of this process.
    pub(super) fn any() -> Self {
        Self(format!("{}-", std::process::id()))
    }

    /// Variable and value.
    pub(super) fn variable(&self) -> (&'static str, &str) {
        (VARIABLE, &self.0)
    }

    /// Live processes with the mark, and their command lines. A zombie has no environment, so it
    /// does not count.
    pub(super) fn processes(&self) -> Vec<(Pid, String)> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let marked = pids.filter(|pid| {
            is_marked(&fs::read(format!("/proc/{pid}/environ")).unwrap_or_default(), &self.0)
        });
        marked.filter_map(|pid| Some((Pid::from_raw(pid)?, command_line(pid)))).collect()
    }

    /// Processes that are left after a wait of at most `limit`.
    pub(super) fn left_after(&self, limit: Duration) -> Vec<(Pid, String)> {
        let until = Instant::now() + limit;
        loop {
            let left = self.processes();
            if left.is_empty() || Instant::now() > until {
                return left;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills all of them, also those that they start meanwhile.
    pub(super) fn kill(&self) {
        for _ in 0..100 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for (pid, _) in left {
                let _ = kill_process(pid, Signal::KILL);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_marked(environment: &[u8], value: &str) -> bool {
    let wanted = format!("{VARIABLE}={value}");
    let begins = |entry: &[u8]| value.ends_with('-') && entry.starts_with(wanted.as_bytes());
    environment.split(|&byte| byte == 0).any(|entry| entry == wanted.as_bytes() || begins(entry))
}

fn command_line(pid: i32) -> String {
    let text = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&text).trim_end_matches('\0').replace('\0', " ")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_mark_matches_its_whole_value_or_the_common_prefix() {
        let environment = b"A=1\0HUGEPILOT_STRESS=7-12\0B=\0";
        assert!(is_marked(environment, "7-12"));
        assert!(!is_marked(environment, "7-1"));
        assert!(is_marked(environment, "7-") && !is_marked(environment, "2-"));
        assert!(!is_marked(b"", "7-12"));
    }

    #[test]
    fn children_of_a_marked_process_are_found_and_killed() {
        let mark = Mark::new(u64::MAX);
        let (name, value) = mark.variable();
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & wait"]).env(name, value).stdin(Stdio::null());
        let mut shell = shell.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while mark.processes().len() < 2 {
            assert!(Instant::now() < until, "{:?}", mark.processes());
        }
        shell.kill().unwrap();
        shell.wait().unwrap();
        let left = mark.left_after(Duration::from_millis(50));
        assert_eq!(left.iter().map(|(_, line)| line.as_str()).collect::<Vec<_>>(), ["sleep 1000"]);
        mark.kill();
        assert!(mark.left_after(Duration::ZERO).is_empty());
    }
}
