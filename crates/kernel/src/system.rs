//! Resource use of the whole system: counters of `/proc/vmstat`, CPU times, memory pressure.

use std::fs::File;
use std::os::unix::fs::FileExt;

use hugepilot_units::{Bytes, Nanos};

use crate::proc::kib;
use crate::{Result, Root};

/// Longest file that is read; `/proc/stat` grows with the CPUs and interrupts.
const MAX_FILE: usize = 256 << 10;

/// Files of the system that are kept open.
#[derive(Debug)]
pub struct SystemMeter {
    vmstat: Option<File>,
    stat: Option<File>,
    pressure: Option<File>,
    meminfo: Option<File>,
    buffer: Vec<u8>,
}

/// Resource use of the system since boot, and its memory now. A part that cannot be read is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemUsage {
    /// Text of `/proc/vmstat`.
    vmstat: String,
    /// CPU times; `None` without `/proc/stat`.
    pub cpu: Option<CpuTimes>,
    /// Time in which at least one task stalled on memory (PSI).
    pub stalled_some: Option<Nanos>,
    /// Time in which all tasks stalled on memory (PSI).
    pub stalled_full: Option<Nanos>,
    /// Unused memory (`MemFree`).
    pub free: Option<Bytes>,
    /// Memory available without swapping (`MemAvailable`).
    pub available: Option<Bytes>,
    /// Anonymous memory on transparent huge pages (`AnonHugePages`).
    pub thp: Option<Bytes>,
    /// Free pages of the default hugetlb pool (`HugePages_Free`).
    pub hugetlb_free: Option<u64>,
}

/// CPU times of all processors together, in steps of a clock tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// In user mode, with low priority too.
    pub user: Nanos,
    /// In the kernel, with interrupts.
    pub system: Nanos,
    /// Idle, or waiting for I/O.
    pub idle: Nanos,
    /// Taken by the hypervisor.
    pub steal: Nanos,
}

impl SystemMeter {
    /// Opens the files; those that cannot be opened are missing from the readings.
    pub fn open(root: &Root) -> Self {
        let open = |path| File::open(root.join(path)).ok();
        Self {
            vmstat: open("proc/vmstat"),
            stat: open("proc/stat"),
            pressure: open("proc/pressure/memory"),
            meminfo: open("proc/meminfo"),
            buffer: vec![0; MAX_FILE],
        }
    }

    /// Reads all files, in about 0.1 ms.
    pub fn read(&mut self) -> SystemUsage {
        let buffer = &mut self.buffer;
        let mut text = |file: &Option<File>| -> String {
            let mut length = 0;
            // The kernel returns a page at a time.
            while let Some(file) = file
                && length < buffer.len()
            {
                match file.read_at(&mut buffer[length..], length as u64) {
                    Ok(0) | Err(_) => break,
                    Ok(read) => length += read,
                }
            }
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let memory = text(&self.meminfo);
        let pressure = text(&self.pressure);
        SystemUsage {
            vmstat: text(&self.vmstat),
            cpu: parse_cpu(&text(&self.stat)),
            stalled_some: stalled(&pressure, "some"),
            stalled_full: stalled(&pressure, "full"),
            free: kib(&memory, "MemFree:"),
            available: kib(&memory, "MemAvailable:"),
            thp: kib(&memory, "AnonHugePages:"),
            hugetlb_free: field(&memory, "HugePages_Free:"),
        }
    }
}

impl SystemUsage {
    /// Returns a counter of `/proc/vmstat`; `None` if this kernel lacks it.
    pub fn vmstat(&self, name: &str) -> Option<u64> {
        let mut lines = self.vmstat.lines();
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
    }
}

/// Returns the release of the running kernel, such as `6.18.0`.
///
/// # Errors
/// [`crate::KernelError::Read`].
pub fn kernel_release(root: &Root) -> Result<String> {
    root.read_text("proc/sys/kernel/osrelease")
}

/// Returns the load average of the last minute.
pub fn load_average(root: &Root) -> Option<f64> {
    root.read_text("proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// Parses the first line of `/proc/stat`.
fn parse_cpu(text: &str) -> Option<CpuTimes> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect();
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    let sum = |fields: &[usize]| {
        let ticks = fields.iter().map(|&at| ticks.get(at).copied().unwrap_or(0));
        Nanos::new(ticks.sum::<u64>().saturating_mul(tick))
    };
    // user nice system idle iowait irq softirq steal (proc(5))
    (ticks.len() >= 4).then(|| CpuTimes {
        user: sum(&[0, 1]),
        system: sum(&[2, 5, 6]),
        idle: sum(&[3, 4]),
        steal: sum(&[7]),
    })
}

/// Parses the total of a line of a pressure file, in microseconds.
fn stalled(text: &str, kind: &str) -> Option<Nanos> {
    let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
    let total = line.split(' ').find_map(|field| field.strip_prefix("total="))?;
    total.trim().parse::<u64>().ok().map(|micros| Nanos::new(micros.saturating_mul(1000)))
}

fn field(text: &str, label: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(label))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    #[test]
    fn a_captured_system_is_read() {
        let (_dir, root) = fixture(&[
            ("proc/vmstat", "pgfault 12\nthp_fault_alloc 3\nthp_fault_alloc_extra 4\n"),
            ("proc/stat", "cpu  1 2 3 4 5 6 7 8 0 0\ncpu0 9 9 9 9\n"),
            (
                "proc/pressure/memory",
                "some avg10=0.00 avg60=0.00 avg300=0.00 total=25\n\
                 full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n",
            ),
            (
                "proc/meminfo",
                "MemFree: 4 kB\nMemAvailable: 8 kB\nAnonHugePages: 2 kB\nHugePages_Free:   6\n",
            ),
        ]);
        let usage = SystemMeter::open(&root).read();
        assert_eq!(usage.vmstat("pgfault"), Some(12));
        assert_eq!(usage.vmstat("thp_fault_alloc"), Some(3));
        assert_eq!(usage.vmstat("thp_fault"), None, "a name is whole");
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        let of = |ticks: u64| Nanos::new(ticks * tick);
        let cpu = CpuTimes { user: of(3), system: of(16), idle: of(9), steal: of(8) };
        assert_eq!(usage.cpu, Some(cpu));
        assert_eq!(usage.stalled_some, Some(Nanos::new(25_000)));
        assert_eq!(usage.stalled_full, Some(Nanos::new(7_000)));
        assert_eq!((usage.free, usage.available), (Some(Bytes::kib(4)), Some(Bytes::kib(8))));
        assert_eq!((usage.thp, usage.hugetlb_free), (Some(Bytes::kib(2)), Some(6)));
    }

    #[test]
    fn a_system_without_files_has_no_values() {
        let (_dir, root) = fixture(&[]);
        assert_eq!(SystemMeter::open(&root).read(), SystemUsage::default());
    }

    #[test]
    fn the_live_system_is_read_again() {
        let mut meter = SystemMeter::open(&Root::live());
        let before = meter.read().vmstat("pgfault").unwrap();
        assert!(meter.read().vmstat("pgfault").unwrap() >= before);
        assert!(!kernel_release(&Root::live()).unwrap().is_empty());
    }
}
