//! Metrics with a name of their own, and the sets of them.

use hugepilot_record::{MetricScope, Unit};

/// Metric that processors count with different events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricDefinition {
    /// Name: `dtlb_load_walks`.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Scope of its values.
    pub scope: MetricScope,
    /// Explanation, in a sentence.
    pub description: &'static str,
    /// Name in Table I of the paper that the set `paper` is from; empty if it is not there.
    pub paper: &'static str,
}

const fn count(name: &'static str, description: &'static str) -> MetricDefinition {
    let scope = MetricScope::Process;
    MetricDefinition { name, unit: Unit::Count, scope, description, paper: "" }
}

const fn cycles(name: &'static str, description: &'static str) -> MetricDefinition {
    MetricDefinition { unit: Unit::Cycles, ..count(name, description) }
}

impl MetricDefinition {
    const fn paper(self, paper: &'static str) -> Self {
        Self { paper, ..self }
    }
    const fn system(self) -> Self {
        Self { scope: MetricScope::System, ..self }
    }
    const fn nanoseconds(self) -> Self {
        Self { unit: Unit::Nanoseconds, ..self }
    }
    /// Returns the metric with that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|metric| metric.name == name)
    }
}

/// All metrics.
pub const METRICS: &[MetricDefinition] = &[
    count("instructions", "Instructions retired.").paper("Instructions"),
    cycles("cycles", "Core cycles in which the thread was not halted.").paper("Cycles"),
    count("dram_accesses", "Reads and writes of 64 bytes at the memory controllers.")
        .system()
        .paper("DRAMreqs"),
    count("dram_reads", "Reads of 64 bytes at the memory controllers.").system(),
    count("dram_writes", "Writes of 64 bytes at the memory controllers.").system(),
    cycles("dram_clocks", "Clocks of the memory, summed over the controllers.")
        .system()
        .paper("MCcycles"),
    count(
        "lfb_occupied",
        "Outstanding L1 misses of loads (line-fill buffers), summed over cycles.",
    )
    .paper("FBoccupancy"),
    cycles("lfb_full", "Cycles in which a load waited because all line-fill buffers were in use."),
    count("l1d_loads", "Loads that accessed the L1 data cache.").paper("L1loads"),
    count("l1d_load_misses", "L1 data-cache misses, as perf's L1-dcache-load-misses counts them.")
        .paper("L1misses"),
    count("l2_loads", "Demand loads that accessed the L2 cache.").paper("L2loads"),
    count("l2_load_hits", "Demand loads that hit the L2 cache.").paper("L2hits"),
    count("l2_load_misses", "Reads that missed the L2 cache, on processors that count no hits."),
    count("llc_loads", "Loads that accessed the last-level cache.").paper("LLCloads"),
    count("llc_load_misses", "Loads that missed the last-level cache.").paper("LLCmisses"),
    count(
        "dram_fills",
        "Lines of 64 bytes that the L1 data cache got from memory, prefetches included.",
    ),
    count("dtlb_loads", "Loads that accessed the data TLB.").paper("DTLBloads"),
    count("dtlb_stores", "Stores that accessed the data TLB."),
    count("dtlb_load_walk_starts", "Page walks that loads started.").paper("DTLBmisses"),
    cycles("dtlb_load_walk_duration", "Cycles of the page walks of loads, up to Broadwell.")
        .paper("DTLBmiss duration"),
    cycles("dtlb_store_walk_duration", "Cycles of the page walks of stores, up to Broadwell."),
    cycles("dtlb_load_walk_active", "Cycles with at least one page walk of a load, from Skylake."),
    cycles(
        "dtlb_store_walk_active",
        "Cycles with at least one page walk of a store, from Skylake.",
    ),
    cycles(
        "dtlb_load_walk_pending",
        "Page walks of loads in flight, summed over cycles, from Skylake.",
    ),
    count("dtlb_load_stlb_hits", "Loads that missed the first-level data TLB and hit the second."),
    count(
        "dtlb_store_stlb_hits",
        "Stores that missed the first-level data TLB and hit the second.",
    ),
    count("dtlb_load_walks", "Completed page walks of loads."),
    count("dtlb_store_walks", "Completed page walks of stores."),
    count("dtlb_load_walks_4k", "Completed page walks of loads to base pages of 4 KiB."),
    count("dtlb_load_walks_2m", "Completed page walks of loads to huge pages of 2 or 4 MiB."),
    count("dtlb_load_walks_1g", "Completed page walks of loads to huge pages of 1 GiB."),
    count("dtlb_store_walks_4k", "Completed page walks of stores to base pages of 4 KiB."),
    count("dtlb_store_walks_2m", "Completed page walks of stores to huge pages of 2 or 4 MiB."),
    count("dtlb_store_walks_1g", "Completed page walks of stores to huge pages of 1 GiB."),
    count("dtlb_misses", "Loads and stores that missed the first-level data TLB."),
    count(
        "dtlb_stlb_hits",
        "Loads and stores that missed the first-level data TLB, hit the second.",
    ),
    count("dtlb_walks", "Page walks of loads and stores."),
    count("dtlb_walks_4k", "Page walks of loads and stores to base pages of 4 KiB."),
    count("dtlb_walks_2m", "Page walks of loads and stores to huge pages of 2 MiB."),
    count("dtlb_walks_1g", "Page walks of loads and stores to huge pages of 1 GiB."),
    cycles("stalls_mem", "Cycles without execution while a load was outstanding.")
        .paper("Stallsmem"),
    cycles("stalls_l1d", "Cycles without execution while a load missed the L1 cache.")
        .paper("StallsL1"),
    cycles("stalls_l2", "Cycles without execution while a load missed the L2 cache.")
        .paper("StallsL2"),
    cycles("stalls_l3", "Cycles without execution while a load missed the L3 cache."),
    cycles("stalls_total", "Cycles without execution.").paper("Stallstotal"),
    cycles(
        "stalls_retire",
        "Cycles without retirement because the oldest operation is not complete.",
    ),
    count(
        "backend_stall_slots",
        "Dispatch slots that stay empty because the backend takes no operation.",
    ),
    cycles("stalls_rs", "Cycles in which a full reservation station stopped allocation.")
        .paper("StallsRS"),
    cycles("stalls_rob", "Cycles in which a full reorder buffer stopped allocation.")
        .paper("StallsROB"),
    cycles("stalls_store_buffer", "Cycles in which a full store buffer stopped allocation."),
    count("page_fault_events", "Page faults of the program."),
    count("minor_fault_events", "Page faults without input or output."),
    count("major_fault_events", "Page faults that waited for input or output."),
    count("context_switch_events", "Context switches of the program's threads."),
    count("cpu_migration_events", "Moves of the program's threads to another processor."),
    count("alignment_fault_events", "Unaligned accesses that the kernel handled."),
    count("task_clock", "CPU time of the program.").nanoseconds(),
];

/// Named set of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricSet {
    /// Name, as `--events` takes it.
    pub name: &'static str,
    /// Explanation, in a sentence.
    pub description: &'static str,
    /// Names of its metrics.
    pub metrics: &'static [&'static str],
}

impl MetricSet {
    /// Returns the set with that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SETS.iter().find(|set| set.name == name)
    }
}

/// All sets.
pub const SETS: &[MetricSet] = &[
    MetricSet {
        name: "ipc",
        description: "Instructions and cycles.",
        metrics: &["instructions", "cycles"],
    },
    MetricSet {
        name: "paper",
        description: "The twenty events of Eisenman et al. 2016, Table I, or their successors.",
        metrics: &[
            "cycles",
            "instructions",
            "stalls_mem",
            "stalls_l2",
            "llc_load_misses",
            "llc_loads",
            "stalls_total",
            "stalls_l1d",
            "lfb_occupied",
            "l1d_loads",
            "l1d_load_misses",
            "l2_loads",
            "l2_load_hits",
            "dtlb_loads",
            "dtlb_load_walk_starts",
            "dtlb_load_walk_duration",
            "stalls_rs",
            "stalls_rob",
            "dtlb_load_walks",
            "dtlb_load_walk_active",
            "stalls_l3",
            "dtlb_walks",
            "dram_accesses",
            "dram_clocks",
        ],
    },
    MetricSet {
        name: "tlb",
        description: "Data-TLB misses, page walks and their cycles, by access and page size.",
        metrics: &[
            "cycles",
            "dtlb_load_walks",
            "dtlb_store_walks",
            "dtlb_load_walk_active",
            "dtlb_store_walk_active",
            "dtlb_load_walk_duration",
            "dtlb_store_walk_duration",
            "dtlb_load_walk_pending",
            "dtlb_loads",
            "dtlb_stores",
            "dtlb_load_stlb_hits",
            "dtlb_store_stlb_hits",
            "dtlb_load_walks_4k",
            "dtlb_load_walks_2m",
            "dtlb_load_walks_1g",
            "dtlb_store_walks_4k",
            "dtlb_store_walks_2m",
            "dtlb_store_walks_1g",
            "dtlb_misses",
            "dtlb_stlb_hits",
            "dtlb_walks",
            "dtlb_walks_4k",
            "dtlb_walks_2m",
            "dtlb_walks_1g",
        ],
    },
    MetricSet {
        name: "cache",
        description: "Loads and misses of the L1, L2 and last-level caches.",
        metrics: &[
            "l1d_loads",
            "l1d_load_misses",
            "l2_loads",
            "l2_load_hits",
            "l2_load_misses",
            "llc_loads",
            "llc_load_misses",
            "dram_fills",
        ],
    },
    MetricSet {
        name: "stalls",
        description: "Stall cycles by cache level, outstanding misses and full buffers.",
        metrics: &[
            "cycles",
            "stalls_mem",
            "stalls_retire",
            "backend_stall_slots",
            "stalls_l1d",
            "stalls_l2",
            "stalls_l3",
            "stalls_total",
            "lfb_occupied",
            "lfb_full",
            "stalls_rs",
            "stalls_rob",
            "stalls_store_buffer",
        ],
    },
    MetricSet {
        name: "bandwidth",
        description: "Memory traffic of the whole system, at the memory controllers.",
        metrics: &["dram_reads", "dram_writes", "dram_accesses"],
    },
    MetricSet {
        name: "software",
        description: "Events of the kernel, which need no counters of the processor.",
        metrics: &[
            "task_clock",
            "page_fault_events",
            "minor_fault_events",
            "major_fault_events",
            "context_switch_events",
            "cpu_migration_events",
            "alignment_fault_events",
        ],
    },
];
