//! Memory of processes, in the files of `/proc/PID`, and the THP setting.

use std::fs;

/// Memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) rss_bytes: u64,
    /// Anonymous memory on huge pages.
    pub(crate) huge_bytes: u64,
}

impl Memory {
    /// Memory of process `pid`; `None` if it ended.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?)
    }

    fn read(text: &str) -> Option<Self> {
        Some(Self { rss_bytes: kib(text, "Rss")?, huge_bytes: kib(text, "AnonHugePages")? })
    }
}

/// Resident bytes of process `pid` and their peak so far; zeros if it ended.
pub(crate) fn resident(pid: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let bytes = |name| kib(&text, name).unwrap_or(0);
    (bytes("VmRSS"), bytes("VmHWM"))
}

/// Returns why programs would not run on base pages, if the kernel gives huge pages to all.
pub(crate) fn thp_always() -> Option<String> {
    const FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let setting = fs::read_to_string(FILE).ok()?;
    setting.contains("[always]").then(|| format!("{FILE} is always; write madvise or never to it"))
}

/// Bytes of a line `NAME: N kB`.
fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_by_name() {
        assert_eq!(kib("VmHWM:\t   12 kB\nVmRSS:\t 8 kB\n", "VmRSS"), Some(8192));
        let text = "0-1 ---p 00000000 00:00 0 [rollup]\nRss:  2048 kB\nPss: 1 kB\n\
                    AnonHugePages:    1024 kB\n";
        let memory = Memory { rss_bytes: 2 << 20, huge_bytes: 1 << 20 };
        assert_eq!(Memory::read(text), Some(memory));
        assert_eq!(Memory::read("Rss: 1 kB\n"), None);
    }

    #[test]
    fn this_process_has_memory() {
        let (now, peak) = resident(std::process::id());
        assert!(now > 0 && peak >= now / 2);
        assert!(Memory::of(std::process::id()).unwrap().rss_bytes > 0);
    }
}
