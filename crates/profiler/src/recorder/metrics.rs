//! Metrics that need no hardware counters: their names, sources and meaning.

use MetricKind::{Counter, Gauge};
use Unit::{Bytes, Count, Nanoseconds};
use hugepilot_record::{Metric, MetricKind, MetricScope, Unit};

/// Name, unit, kind, source, description.
pub(super) type Row = (&'static str, Unit, MetricKind, &'static str, &'static str);

/// Metrics of a process that are read at each slice.
pub(super) const PROCESS: [Row; 7] = [
    ("minor_faults", Count, Counter, "/proc/PID/stat", "Page faults without I/O"),
    ("major_faults", Count, Counter, "/proc/PID/stat", "Page faults that waited for I/O"),
    ("user_time", Nanoseconds, Counter, "/proc/PID/stat", "CPU time in user mode, in clock ticks"),
    (
        "system_time",
        Nanoseconds,
        Counter,
        "/proc/PID/stat",
        "CPU time in the kernel, in clock ticks",
    ),
    ("threads", Count, Gauge, "/proc/PID/stat", "Threads"),
    ("rss", Bytes, Gauge, "/proc/PID/statm", "Resident memory, without hugetlb pages"),
    (
        "anonymous",
        Bytes,
        Gauge,
        "/proc/PID/statm",
        "Resident memory that is neither file nor shared",
    ),
];

/// Metrics of a process that are sums over its threads, or that are read with them.
pub(super) const THREAD_SUMS: [Row; 4] = [
    (
        "run_queue_wait",
        Nanoseconds,
        Counter,
        "/proc/PID/task/TID/schedstat",
        "Time that threads waited for a processor",
    ),
    (
        "voluntary_switches",
        Count,
        Counter,
        "/proc/PID/task/TID/status",
        "Context switches of threads that waited for something",
    ),
    (
        "involuntary_switches",
        Count,
        Counter,
        "/proc/PID/task/TID/status",
        "Context switches of threads that were displaced",
    ),
    (
        "rss_peak",
        Bytes,
        Gauge,
        "/proc/PID/status, wait4",
        "Most resident memory since the program started, without hugetlb pages",
    ),
];

/// Metrics of a process that are sums over its mappings.
pub(super) const MAPPING_SUMS: [Row; 3] = [
    ("thp", Bytes, Gauge, "/proc/PID/pagemap, smaps", "Memory on transparent huge pages"),
    ("hugetlb", Bytes, Gauge, "/proc/PID/status, smaps", "Memory on hugetlb pages"),
    ("swapped", Bytes, Gauge, "/proc/PID/smaps", "Memory swapped out"),
];

/// Why [`FRAMES`] are missing.
pub(super) const NO_FRAMES: &str = "/proc/kpageflags requires CAP_SYS_ADMIN";

/// Metrics of a process that the flags of its page frames show.
pub(super) const FRAMES: [Row; 2] = [
    (
        "large_pages",
        Bytes,
        Gauge,
        "/proc/PID/pagemap, /proc/kpageflags",
        "Memory of the process alone on large pages that are smaller than a huge page",
    ),
    (
        "stranded",
        Bytes,
        Gauge,
        "/proc/PID/pagemap, /proc/kpageflags",
        "Memory that large pages hold and the process does not map",
    ),
];

/// Metrics of a thread.
pub(super) const THREAD: [Row; 6] = [
    ("thread_cpu_time", Nanoseconds, Counter, "/proc/PID/task/TID/schedstat", "CPU time"),
    (
        "thread_run_queue_wait",
        Nanoseconds,
        Counter,
        "/proc/PID/task/TID/schedstat",
        "Time that it waited for a processor",
    ),
    ("thread_minor_faults", Count, Counter, "/proc/PID/task/TID/stat", "Page faults without I/O"),
    (
        "thread_major_faults",
        Count,
        Counter,
        "/proc/PID/task/TID/stat",
        "Page faults that waited for I/O",
    ),
    (
        "thread_voluntary_switches",
        Count,
        Counter,
        "/proc/PID/task/TID/status",
        "Context switches because it waited for something",
    ),
    (
        "thread_involuntary_switches",
        Count,
        Counter,
        "/proc/PID/task/TID/status",
        "Context switches because it was displaced",
    ),
];

/// Counters of `/proc/vmstat`, by their names there.
pub(super) const VMSTAT: [(&str, &str); 18] = [
    ("pgfault", "Page faults"),
    ("pgmajfault", "Page faults that waited for I/O"),
    ("thp_fault_alloc", "Huge pages allocated by page faults"),
    ("thp_fault_fallback", "Page faults that found no huge page"),
    ("thp_collapse_alloc", "Huge pages allocated for collapses"),
    ("thp_collapse_alloc_failed", "Collapses that found no huge page"),
    ("thp_split_page", "Huge pages split into base pages"),
    ("thp_split_page_failed", "Huge pages whose split failed"),
    ("thp_split_pmd", "Huge mappings split"),
    ("thp_deferred_split_page", "Huge pages queued for a split"),
    ("thp_underused_split_page", "Underused huge pages split by reclaim"),
    ("thp_zero_page_alloc", "Huge zero pages allocated"),
    ("thp_swpout", "Huge pages swapped out whole"),
    ("compact_stall", "Allocations that waited for compaction"),
    ("compact_fail", "Compactions that freed no block"),
    ("compact_success", "Compactions that freed a block"),
    ("pgscan_direct", "Pages scanned by reclaim of the allocating task"),
    ("pgmigrate_success", "Pages migrated"),
];

/// Metrics of the system other than those of `/proc/vmstat`.
pub(super) const SYSTEM: [Row; 12] = [
    (
        "memory_pressure_some",
        Nanoseconds,
        Counter,
        "/proc/pressure/memory",
        "Time in which a task stalled on memory",
    ),
    (
        "memory_pressure_full",
        Nanoseconds,
        Counter,
        "/proc/pressure/memory",
        "Time in which all tasks stalled on memory",
    ),
    ("cpu_user_time", Nanoseconds, Counter, "/proc/stat", "CPU time in user mode, all processors"),
    (
        "cpu_system_time",
        Nanoseconds,
        Counter,
        "/proc/stat",
        "CPU time in the kernel, all processors",
    ),
    ("cpu_idle_time", Nanoseconds, Counter, "/proc/stat", "Idle time, all processors"),
    (
        "cpu_steal_time",
        Nanoseconds,
        Counter,
        "/proc/stat",
        "Time that the hypervisor took, all processors",
    ),
    ("memory_free", Bytes, Gauge, "/proc/meminfo", "Unused memory"),
    ("memory_available", Bytes, Gauge, "/proc/meminfo", "Memory available without swapping"),
    ("system_thp", Bytes, Gauge, "/proc/meminfo", "Anonymous memory on transparent huge pages"),
    ("hugetlb_free_pages", Count, Gauge, "/proc/meminfo", "Free pages of the default hugetlb pool"),
    (
        "system_large_pages",
        Bytes,
        Gauge,
        "/sys/kernel/mm/transparent_hugepage",
        "Anonymous memory on large pages that are smaller than a huge page",
    ),
    (
        "pages_mapped_in_part",
        Count,
        Gauge,
        "/sys/kernel/mm/transparent_hugepage",
        "Large pages that hold more memory than is mapped of them",
    ),
];

/// Place of a metric among the values of a slice of a process, which begin with [`PROCESS`] and
/// [`THREAD_SUMS`].
///
/// # Panics
/// Another name is a bug.
pub(super) fn place(name: &str) -> usize {
    let mut all = PROCESS.iter().chain(&THREAD_SUMS);
    all.position(|row| row.0 == name).expect("a metric of processes")
}

/// Returns the metric of a row. `missing`: why it has no values.
pub(super) fn metric(row: &Row, scope: MetricScope, missing: Option<String>) -> Metric {
    let &(name, unit, kind, source, description) = row;
    Metric {
        name: name.to_owned(),
        unit,
        kind,
        scope,
        source: source.to_owned(),
        description: description.to_owned(),
        group: None,
        missing,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_name_is_unique_and_each_description_a_phrase() {
        let rows = [&PROCESS[..], &THREAD_SUMS, &MAPPING_SUMS, &FRAMES, &THREAD, &SYSTEM].concat();
        let mut names: BTreeSet<&str> = VMSTAT.iter().map(|&(name, _)| name).collect();
        for (name, _, _, source, description) in &rows {
            assert!(names.insert(name), "{name} twice");
            assert!(
                ["/proc/", "/sys/"].iter().any(|top| source.starts_with(top)),
                "{name}: {source}"
            );
            assert!(!description.ends_with('.'), "{name}");
        }
        assert_eq!(names.len(), rows.len() + VMSTAT.len());
    }
}
