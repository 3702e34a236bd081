//! Processes by a mark in their environment, which whatever hugepilot starts inherits.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The name of the variable.
const VARIABLE: &str = "HUGEPILOT_STRESS";

/// What tells one run's processes from all others.
#[derive(Clone, Debug)]
pub(super) struct Mark(String);

impl Mark {
    /// Number `n` of this process.
    pub(super) fn new(n: u64) -> Self {
        Self(format!("{}-{n}", std::process::id()))
    }

    /// What all marks of this process have in common.
    pub(super) fn any() -> Self {
        Self(format!("{}-", std::process::id()))
    }

    /// The variable, and its value.
    pub(super) fn variable(&self) -> (&'static str, &str) {
        (VARIABLE, &self.0)
    }

    /// The living processes that have it, with their command lines. One that ended and was not waited for has no environment.
    pub(super) fn processes(&self) -> Vec<(Pid, String)> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let marked = numbers.filter(|pid| {
            is_marked(&fs::read(format!("/proc/{pid}/environ")).unwrap_or_default(), &self.0)
        });
        marked.filter_map(|pid| Some((Pid::from_raw(pid)?, command_line(pid)))).collect()
    }

    /// Waits until there are none, at most for `limit`; those that are left.
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

    /// Kills them all, also those that they start meanwhile.
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
    fn a_mark_is_its_whole_value_or_that_of_all() {
        let environment = b"A=1\0HUGEPILOT_STRESS=7-12\0B=\0";
        assert!(is_marked(environment, "7-12"));
        assert!(!is_marked(environment, "7-1"));
        assert!(is_marked(environment, "7-") && !is_marked(environment, "2-"));
        assert!(!is_marked(b"", "7-12"));
    }

    #[test]
    fn what_a_marked_process_started_is_found_and_killed() {
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
