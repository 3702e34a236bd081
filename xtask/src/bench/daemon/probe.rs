//! State of the cgroup and of processes.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Ticks per second in `/proc/PID/stat`, on all usual CPUs.
const TICKS: f64 = 100.0;

/// Files of a memory cgroup, version 1 or 2.
pub(super) struct Group {
    /// Memory use in bytes.
    pub(super) usage: PathBuf,
    stat: PathBuf,
    /// Name of the anonymous huge bytes in `memory.stat`.
    huge: &'static str,
    /// PSI: of the machine in version 1.
    pressure: PathBuf,
    /// File with the count of killed processes.
    kills: PathBuf,
}

impl Group {
    pub(super) fn at(directory: &Path) -> Self {
        let first = directory.join("memory.usage_in_bytes").exists();
        let file = |one: &str, two: &str| directory.join(if first { one } else { two });
        let machine = PathBuf::from("/proc/pressure/memory");
        Self {
            usage: file("memory.usage_in_bytes", "memory.current"),
            stat: directory.join("memory.stat"),
            huge: if first { "total_rss_huge" } else { "anon_thp" },
            pressure: if first { machine } else { directory.join("memory.pressure") },
            kills: file("memory.oom_control", "memory.events"),
        }
    }

    /// Memory use in bytes.
    pub(super) fn used(&self) -> Result<u64> {
        read(&self.usage)?.trim().parse().context("memory use is a number")
    }

    /// Bytes on anonymous huge pages.
    pub(super) fn huge(&self) -> Result<u64> {
        let stat = read(&self.stat)?;
        field(&stat, self.huge).with_context(|| format!("no {} in memory.stat", self.huge))
    }

    /// Seconds in which some task stalled on memory; 0 without PSI.
    pub(super) fn stalled_seconds(&self) -> f64 {
        read(&self.pressure).ok().and_then(|text| stalled(&text)).unwrap_or(0.0)
    }

    /// Processes that the kernel killed for lack of memory.
    pub(super) fn kills(&self) -> u64 {
        read(&self.kills).ok().and_then(|text| field(&text, "oom_kill")).unwrap_or(0)
    }
}

/// CPU seconds of a process, in steps of 10 ms, ended threads included; 0 if it ended.
pub(super) fn cpu(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    cpu_in_stat(&text).unwrap_or(0.0)
}

/// Reads user and system time in `/proc/PID/stat`.
fn cpu_in_stat(text: &str) -> Option<f64> {
    let (_, fields) = text.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / TICKS)
}

/// Pid of khugepaged, if it is visible.
pub(super) fn khugepaged() -> Option<u32> {
    let is_it = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "khugepaged"
    };
    let entries = fs::read_dir("/proc").ok()?.flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_it)
}

fn read(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| file.display().to_string())
}

/// Number after `name` and a space, at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Seconds of the line `some` of PSI.
fn stalled(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let total = line.split_whitespace().find_map(|word| word.strip_prefix("total="))?;
    total.parse::<f64>().ok().map(|micros| micros / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_by_name() {
        let stat = "rss 5\ntotal_rss 1\ntotal_rss_huge 4194304\n";
        assert_eq!(field(stat, "total_rss_huge"), Some(4 << 20));
        assert_eq!(field(stat, "total_rss"), Some(1));
        assert_eq!(field(stat, "anon_thp"), None);
    }

    #[test]
    fn pressure_is_the_time_of_some() {
        let text = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1500000\n\
                    full avg10=0.00 avg60=0.00 avg300=0.00 total=9\n";
        assert_eq!(stalled(text), Some(1.5));
    }

    #[test]
    fn the_name_of_a_process_may_have_spaces_and_brackets() {
        let text = "7 (a) b) S 1 7 7 0 -1 4 5 0 6 0 150 50 0 0 20 0 1 0 9 8";
        assert_eq!(cpu_in_stat(text), Some(2.0));
    }
}
