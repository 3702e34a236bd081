//! Events that count a metric, by core design.
//!
//! An event is a name of the design's list, a generic name of perf, or, for units outside the
//! cores, `unit/terms/`, several joined by `+`. Names and codes: the lists in `lists/`, which
//! `cargo xtask events` makes from the files of intel/perfmon and libpfm4. The rows of this file,
//! which choose an event for each metric, are written by hand, as are events of units outside the
//! cores: the uncore files of intel/perfmon of the same versions; for AMD, the kernel's
//! documentation of `amd_df` and `amd_umc`, and AMD's PPRs.

use super::design::{Design, Vendor};
use Native::{Event, Lacks};

/// Event of a metric, or why a design has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Native {
    Event(&'static str),
    Lacks(&'static str),
}

/// Inclusive range of designs, and their event.
type Row = (Design, Design, Native);

/// Returns the event of a metric on `design`; `None` for a design without a list, too, if there is
/// a generic event.
pub(super) fn native(metric: &str, design: Option<Design>) -> Native {
    if let Some(event) = software(metric) {
        return Event(event);
    }
    let Some(design) = design else {
        return generic(metric).map_or(Lacks("hugepilot has no list of this processor"), Event);
    };
    let fits = |&&(first, last, _): &&Row| (first..=last).contains(&design);
    match rows(metric).iter().find(fits) {
        Some(&(_, _, native)) => native,
        None => Lacks(elsewhere(metric, design.vendor())),
    }
}

/// Returns the description of a metric if the event of `design` counts something else than that of
/// other designs.
pub(super) fn description(metric: &str, design: Option<Design>) -> Option<&'static str> {
    let vendor = design.map(Design::vendor)?;
    match (metric, vendor) {
        // AMD counts no cycles without execution.
        ("stalls_mem", Vendor::Amd) => {
            Some("Cycles without retirement because a load was outstanding.")
        }
        // Schedulers of floating-point operations have an event of their own.
        ("stalls_rs", Vendor::Amd) => {
            Some("Cycles in which full schedulers of integer operations stopped dispatch.")
        }
        ("stalls_mem", Vendor::Arm) => Some(
            "Cycles in which the backend stalled on a load that missed the caches of the core.",
        ),
        _ => None,
    }
}

/// Events of the kernel.
fn software(metric: &str) -> Option<&'static str> {
    Some(match metric {
        "task_clock" => "task-clock",
        "page_fault_events" => "page-faults",
        "minor_fault_events" => "minor-faults",
        "major_fault_events" => "major-faults",
        "context_switch_events" => "context-switches",
        "cpu_migration_events" => "cpu-migrations",
        "alignment_fault_events" => "alignment-faults",
        _ => return None,
    })
}

/// Generic events for processors without a list.
fn generic(metric: &str) -> Option<&'static str> {
    Some(match metric {
        "instructions" => "instructions",
        "cycles" => "cycles",
        "l1d_loads" => "L1-dcache-loads",
        "l1d_load_misses" => "L1-dcache-load-misses",
        "llc_loads" => "LLC-loads",
        "llc_load_misses" => "LLC-load-misses",
        "dtlb_loads" => "dTLB-loads",
        "dtlb_stores" => "dTLB-stores",
        // As the kernel defines a miss for the processor: of the last level on Intel and AMD.
        "dtlb_load_walks" => "dTLB-load-misses",
        "dtlb_store_walks" => "dTLB-store-misses",
        _ => return None,
    })
}

/// Whether the metric is the time of page walks, not their number.
fn counts_walk_cycles(metric: &str) -> bool {
    ["walk_active", "walk_duration", "walk_pending"].iter().any(|kind| metric.contains(kind))
}

/// Whether the metric is stalls by the cache level that loads missed.
fn is_stall_by_level(metric: &str) -> bool {
    matches!(metric, "stalls_l1d" | "stalls_l2" | "stalls_l3")
}

/// Causes that hold for a vendor.
fn elsewhere(metric: &str, vendor: Vendor) -> &'static str {
    match vendor {
        _ if metric.starts_with("dram_") => "no event of the memory controllers is known for it",
        Vendor::Intel if metric.contains("walk_duration") => {
            "counted up to Broadwell; WALK_ACTIVE replaces it, with another meaning"
        }
        Vendor::Intel if metric.contains("walk_active") => {
            "counted from Skylake on; WALK_DURATION precedes it, with another meaning"
        }
        Vendor::Intel if metric.contains("walk_pending") => {
            "counted from Skylake on; WALK_DURATION precedes it"
        }
        Vendor::Intel if metric.starts_with("dtlb_walks") => {
            "counted for loads and stores apart: dtlb_load_walks, dtlb_store_walks"
        }
        Vendor::Intel if matches!(metric, "dtlb_misses" | "dtlb_stlb_hits") => {
            "counted for loads and stores apart: dtlb_load_stlb_hits, dtlb_store_stlb_hits"
        }
        Vendor::Intel if metric == "dtlb_load_walk_starts" => {
            "removed with Ice Lake; dtlb_load_walks counts completed walks"
        }
        Vendor::Intel if matches!(metric, "stalls_rs" | "stalls_rob") => {
            "removed with Skylake, without a successor"
        }
        Vendor::Intel if metric == "stalls_l3" => "counted from Skylake on",
        Vendor::Intel => "the processor has no such event",
        Vendor::Amd if counts_walk_cycles(metric) => {
            "AMD counts no cycles of page walks; dtlb_walks counts the walks"
        }
        Vendor::Amd if metric.starts_with("dtlb_") => {
            "AMD does not separate loads and stores: see dtlb_misses, dtlb_stlb_hits, dtlb_walks"
        }
        Vendor::Amd if is_stall_by_level(metric) => {
            "AMD counts no stalls by cache level; from Zen 3 on, dram_of_demand_fills_ratio of \
             report has the share of demand fills from memory"
        }
        Vendor::Amd => "no event of this design counts it",
        Vendor::Arm if counts_walk_cycles(metric) => {
            "the processor counts no cycles of page walks; dtlb_walks counts the walks"
        }
        Vendor::Arm if is_stall_by_level(metric) => {
            "ARM counts no stalls by cache level; llc_miss_ratio of report has the share of \
             last-level reads that go to memory"
        }
        Vendor::Arm if metric.starts_with("dtlb_") => {
            "the processor counts page walks of all sizes and accesses together: dtlb_walks"
        }
        Vendor::Arm => "no event of this design counts it",
    }
}

const IVB: Design = Design::IvyBridge;
const HSW: Design = Design::Haswell;
const BDW: Design = Design::Broadwell;
const SKX: Design = Design::Skylake;
const ICX: Design = Design::IceLake;
const SPR: Design = Design::SapphireRapids;
const GNR: Design = Design::GraniteRapids;
const ZEN1: Design = Design::Zen1;
const ZEN2: Design = Design::Zen2;
const ZEN3: Design = Design::Zen3;
const ZEN4: Design = Design::Zen4;
const ZEN5: Design = Design::Zen5;
const N1: Design = Design::NeoverseN1;
const V1: Design = Design::NeoverseV1;
const V2: Design = Design::NeoverseV2;

/// Requests with data of the eight memory channels of Zen 1 to 3, reads and writes together.
const DF_CHANNELS: &str = "amd_df/event=0x7,umask=0x38/+amd_df/event=0x47,umask=0x38/+\
    amd_df/event=0x87,umask=0x38/+amd_df/event=0xc7,umask=0x38/+amd_df/event=0x107,umask=0x38/+\
    amd_df/event=0x147,umask=0x38/+amd_df/event=0x187,umask=0x38/+amd_df/event=0x1c7,umask=0x38/";

fn rows(metric: &str) -> &'static [Row] {
    let walker = |metric| walks(metric).or_else(|| caches(metric)).or_else(|| stalls(metric));
    walker(metric).or_else(|| memory(metric)).unwrap_or_default()
}

/// Rows of TLB misses and page walks.
fn walks(metric: &str) -> Option<&'static [Row]> {
    Some(match metric {
        "dtlb_loads" => &[
            (IVB, BDW, Event("MEM_UOPS_RETIRED.ALL_LOADS")),
            (SKX, GNR, Event("MEM_INST_RETIRED.ALL_LOADS")),
            (ZEN1, ZEN5, Event("LS_DISPATCH.LD_DISPATCH")),
            (N1, V2, Event("L1D_TLB_RD")),
        ],
        "dtlb_stores" => &[
            (IVB, BDW, Event("MEM_UOPS_RETIRED.ALL_STORES")),
            (SKX, GNR, Event("MEM_INST_RETIRED.ALL_STORES")),
            (ZEN1, ZEN5, Event("LS_DISPATCH.STORE_DISPATCH")),
            (N1, V2, Event("L1D_TLB_WR")),
        ],
        "dtlb_load_walk_starts" => &[(IVB, SKX, Event("DTLB_LOAD_MISSES.MISS_CAUSES_A_WALK"))],
        "dtlb_load_walk_duration" => &[(IVB, BDW, Event("DTLB_LOAD_MISSES.WALK_DURATION"))],
        "dtlb_store_walk_duration" => &[(IVB, BDW, Event("DTLB_STORE_MISSES.WALK_DURATION"))],
        "dtlb_load_walk_active" => &[(SKX, GNR, Event("DTLB_LOAD_MISSES.WALK_ACTIVE"))],
        "dtlb_store_walk_active" => &[(SKX, GNR, Event("DTLB_STORE_MISSES.WALK_ACTIVE"))],
        "dtlb_load_walk_pending" => &[(SKX, GNR, Event("DTLB_LOAD_MISSES.WALK_PENDING"))],
        "dtlb_load_stlb_hits" => &[(IVB, GNR, Event("DTLB_LOAD_MISSES.STLB_HIT"))],
        "dtlb_store_stlb_hits" => &[(IVB, GNR, Event("DTLB_STORE_MISSES.STLB_HIT"))],
        "dtlb_load_walks" => &[(IVB, GNR, Event("DTLB_LOAD_MISSES.WALK_COMPLETED"))],
        "dtlb_store_walks" => &[(IVB, GNR, Event("DTLB_STORE_MISSES.WALK_COMPLETED"))],
        "dtlb_load_walks_4k" => &[(HSW, GNR, Event("DTLB_LOAD_MISSES.WALK_COMPLETED_4K"))],
        "dtlb_load_walks_2m" => &[
            (IVB, IVB, Event("DTLB_LOAD_MISSES.LARGE_PAGE_WALK_COMPLETED")),
            (HSW, GNR, Event("DTLB_LOAD_MISSES.WALK_COMPLETED_2M_4M")),
        ],
        "dtlb_load_walks_1g" => &[(HSW, GNR, Event("DTLB_LOAD_MISSES.WALK_COMPLETED_1G"))],
        "dtlb_store_walks_4k" => &[(HSW, GNR, Event("DTLB_STORE_MISSES.WALK_COMPLETED_4K"))],
        "dtlb_store_walks_2m" => &[(HSW, GNR, Event("DTLB_STORE_MISSES.WALK_COMPLETED_2M_4M"))],
        "dtlb_store_walks_1g" => &[(HSW, GNR, Event("DTLB_STORE_MISSES.WALK_COMPLETED_1G"))],
        "dtlb_misses" => {
            &[(ZEN1, ZEN5, Event("L1_DTLB_MISS.ALL")), (N1, V2, Event("L1D_TLB_REFILL"))]
        }
        "dtlb_stlb_hits" => &[(ZEN1, ZEN5, Event("L1_DTLB_MISS.ALL_L2_HIT"))],
        "dtlb_walks" => {
            &[(ZEN1, ZEN5, Event("L1_DTLB_MISS.ALL_L2_MISS")), (N1, V2, Event("DTLB_WALK"))]
        }
        "dtlb_walks_4k" => &[(ZEN1, ZEN5, Event("L1_DTLB_MISS.4K_L2_MISS"))],
        "dtlb_walks_2m" => &[(ZEN1, ZEN5, Event("L1_DTLB_MISS.TLB_RELOAD_2M_L2_MISS"))],
        "dtlb_walks_1g" => &[(ZEN1, ZEN5, Event("L1_DTLB_MISS.TLB_RELOAD_1G_L2_MISS"))],
        _ => return None,
    })
}

/// Rows of instructions, cycles and caches.
fn caches(metric: &str) -> Option<&'static [Row]> {
    Some(match metric {
        // The kernel places these on fixed counters where there are any.
        "instructions" => &[(IVB, V2, Event("instructions"))],
        "cycles" => &[(IVB, V2, Event("cycles"))],
        "l1d_loads" => &[
            (IVB, BDW, Event("MEM_UOPS_RETIRED.ALL_LOADS")),
            (SKX, GNR, Event("MEM_INST_RETIRED.ALL_LOADS")),
            (ZEN1, ZEN5, Event("LS_DISPATCH.LD_DISPATCH")),
            (N1, V2, Event("L1D_CACHE_RD")),
        ],
        "l1d_load_misses" => &[
            (IVB, GNR, Event("L1D.REPLACEMENT")),
            (ZEN1, ZEN2, Event("MAB_ALLOCATION_BY_PIPE.DATA_PIPE")),
            (ZEN3, ZEN5, Event("LS_DMND_FILLS.ALL")),
            (N1, V2, Event("L1D_CACHE_REFILL_RD")),
        ],
        "l2_loads" => &[
            (IVB, GNR, Event("L2_RQSTS.ALL_DEMAND_DATA_RD")),
            (ZEN1, ZEN5, Event("L2_CACHE_REQ_STAT.DC_ACCESS_IN_L2")),
            (N1, V2, Event("L2D_CACHE_RD")),
        ],
        "l2_load_hits" => &[
            (IVB, GNR, Event("L2_RQSTS.DEMAND_DATA_RD_HIT")),
            (ZEN1, ZEN5, Event("L2_CACHE_REQ_STAT.DC_HIT_IN_L2")),
            (N1, V2, Lacks("ARM counts misses: l2_load_misses")),
        ],
        "l2_load_misses" => &[
            (IVB, ZEN5, Lacks("counted as hits: l2_load_hits")),
            (N1, V2, Event("L2D_CACHE_REFILL_RD")),
        ],
        "llc_loads" => &[
            (IVB, GNR, Event("LLC-loads")),
            (ZEN1, ZEN1, Lacks("the L3 cache of Zen 1 is counted for the system only (amd_l3)")),
            (ZEN2, ZEN5, Event("LS_DMND_FILLS.BEYOND_L2")),
            (N1, V2, Event("LL_CACHE_RD")),
        ],
        "llc_load_misses" => &[
            (IVB, GNR, Event("LLC-load-misses")),
            (ZEN1, ZEN1, Lacks("the L3 cache of Zen 1 is counted for the system only (amd_l3)")),
            (ZEN2, ZEN5, Event("LS_DMND_FILLS.DRAM")),
            (N1, V2, Event("LL_CACHE_MISS_RD")),
        ],
        "dram_fills" => &[(ZEN3, ZEN5, Event("LS_ANY_FILLS.DRAM"))],
        "lfb_occupied" => {
            &[(IVB, GNR, Event("L1D_PEND_MISS.PENDING")), (ZEN3, ZEN5, Event("ALLOC_MAB_COUNT"))]
        }
        "lfb_full" => &[(IVB, GNR, Event("L1D_PEND_MISS.FB_FULL"))],
        _ => return None,
    })
}

/// Rows of stall cycles.
fn stalls(metric: &str) -> Option<&'static [Row]> {
    Some(match metric {
        "stalls_mem" => &[
            (IVB, BDW, Event("CYCLE_ACTIVITY.STALLS_LDM_PENDING")),
            (SKX, ICX, Event("CYCLE_ACTIVITY.STALLS_MEM_ANY")),
            (SPR, GNR, Event("EXE_ACTIVITY.BOUND_ON_LOADS")),
            (ZEN4, ZEN5, Event("CYCLES_NO_RETIRE.NOT_COMPLETE_MISSING_LOAD")),
            (V1, V2, Event("STALL_BACKEND_MEM")),
        ],
        "stalls_l1d" => &[
            (IVB, BDW, Event("CYCLE_ACTIVITY.STALLS_L1D_PENDING")),
            (SKX, ICX, Event("CYCLE_ACTIVITY.STALLS_L1D_MISS")),
            (SPR, GNR, Event("MEMORY_ACTIVITY.STALLS_L1D_MISS")),
        ],
        "stalls_l2" => &[
            (IVB, BDW, Event("CYCLE_ACTIVITY.STALLS_L2_PENDING")),
            (SKX, ICX, Event("CYCLE_ACTIVITY.STALLS_L2_MISS")),
            (SPR, GNR, Event("MEMORY_ACTIVITY.STALLS_L2_MISS")),
        ],
        "stalls_l3" => &[
            (SKX, ICX, Event("CYCLE_ACTIVITY.STALLS_L3_MISS")),
            (SPR, GNR, Event("MEMORY_ACTIVITY.STALLS_L3_MISS")),
        ],
        "stalls_total" => &[
            (IVB, BDW, Event("CYCLE_ACTIVITY.CYCLES_NO_EXECUTE")),
            (SKX, GNR, Event("CYCLE_ACTIVITY.STALLS_TOTAL")),
            (N1, V2, Event("STALL_BACKEND")),
        ],
        "stalls_retire" => &[(ZEN4, ZEN5, Event("CYCLES_NO_RETIRE.NOT_COMPLETE_LOAD_AND_ALU"))],
        "backend_stall_slots" => &[(ZEN4, ZEN5, Event("DISPATCH_STALLS_1.BE_STALLS"))],
        "stalls_rs" => &[
            (IVB, BDW, Event("RESOURCE_STALLS.RS")),
            (ZEN1, ZEN1, Event("DYNAMIC_TOKENS_DISPATCH_STALLS_CYCLES_0.SCHEDULER_TOKEN_STALL")),
            (ZEN2, ZEN2, Event("DISPATCH_RESOURCE_STALL_CYCLES_0.SCHEDULER_TOKEN_STALL")),
            (ZEN3, ZEN5, Event("DISPATCH_RESOURCE_STALL_CYCLES_2.INT_SCHEDULER_TOKEN_STALL")),
        ],
        "stalls_rob" => &[
            (IVB, BDW, Event("RESOURCE_STALLS.ROB")),
            (ZEN1, ZEN1, Event("DYNAMIC_TOKENS_DISPATCH_STALLS_CYCLES_0.RETIRE_TOKEN_STALL")),
            (ZEN2, ZEN2, Event("DISPATCH_RESOURCE_STALL_CYCLES_0.RETIRE_TOKEN_STALL")),
            (ZEN3, ZEN5, Event("DISPATCH_RESOURCE_STALL_CYCLES_2.RETIRE_TOKEN_STALL")),
        ],
        "stalls_store_buffer" => &[
            (IVB, GNR, Event("RESOURCE_STALLS.SB")),
            (ZEN1, ZEN5, Event("DISPATCH_RESOURCE_STALL_CYCLES_1.STORE_QUEUE_RSRC_STALL")),
        ],
        _ => return None,
    })
}

/// Rows of the memory controllers.
fn memory(metric: &str) -> Option<&'static [Row]> {
    Some(match metric {
        "dram_accesses" => &[
            (IVB, SKX, Event("uncore_imc/event=0x4,umask=0xf/")),
            (ICX, ICX, Event("uncore_imc/event=0x4,umask=0x3f/")),
            (SPR, SPR, Event("uncore_imc/event=0x5,umask=0xff/")),
            (GNR, GNR, Event("uncore_imc/event=0x5,umask=0xff/+uncore_imc/event=0x6,umask=0xff/")),
            (ZEN1, ZEN3, Event(DF_CHANNELS)),
            (ZEN4, ZEN5, Event("amd_umc/event=0xa/")),
        ],
        "dram_reads" => &[
            (IVB, SKX, Event("uncore_imc/event=0x4,umask=0x3/")),
            (ICX, ICX, Event("uncore_imc/event=0x4,umask=0xf/")),
            (SPR, SPR, Event("uncore_imc/event=0x5,umask=0xcf/")),
            (GNR, GNR, Event("uncore_imc/event=0x5,umask=0xcf/+uncore_imc/event=0x6,umask=0xcf/")),
            (ZEN1, ZEN3, Lacks("counted with the writes: dram_accesses")),
            (ZEN4, ZEN5, Event("amd_umc/event=0xa,rdwrmask=0x1/")),
        ],
        "dram_writes" => &[
            (IVB, SKX, Event("uncore_imc/event=0x4,umask=0xc/")),
            (ICX, ICX, Event("uncore_imc/event=0x4,umask=0x30/")),
            (SPR, SPR, Event("uncore_imc/event=0x5,umask=0xf0/")),
            (GNR, GNR, Event("uncore_imc/event=0x5,umask=0xf0/+uncore_imc/event=0x6,umask=0xf0/")),
            (ZEN1, ZEN3, Lacks("counted with the reads: dram_accesses")),
            (ZEN4, ZEN5, Event("amd_umc/event=0xa,rdwrmask=0x2/")),
        ],
        "dram_clocks" => &[
            (IVB, ICX, Event("uncore_imc/event=0x0/")),
            (SPR, GNR, Event("uncore_imc/event=0x1,umask=0x1/")),
            (ZEN4, ZEN5, Event("amd_umc/event=0x0/")),
        ],
        _ => return None,
    })
}
