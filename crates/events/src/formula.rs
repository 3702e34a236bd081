//! Ratios of metrics: memory bound, DRAM bound, TLB miss rates, page-walk share.
//!
//! All inputs are metrics of the same time, by name, scaled to all of it. A ratio without one of
//! its inputs is `None`, as one with a denominator of 0.

use super::design::Design;

/// Bytes of a request to memory, and of a cache line.
pub const LINE_BYTES: f64 = 64.0;
/// Latency of memory in latencies of the last-level cache, on Ivy Bridge, Haswell and Broadwell.
/// Source: Intel Optimization Reference Manual, as quoted by Eisenman et al. 2016, section II-D.
pub const WEIGHT: f64 = 7.0;

/// Ratio with its name and its formula.
#[derive(Clone, Debug, PartialEq)]
pub struct Derived {
    /// Name: `memory_bound_ratio`.
    pub name: &'static str,
    /// Value.
    pub value: f64,
    /// Formula over names of metrics.
    pub formula: &'static str,
    /// Where the formula is from.
    pub source: &'static str,
}

const PAPER: &str = "Eisenman et al. 2016, section II-D";
const MANUAL: &str = "Intel Optimization Reference Manual, top-down analysis";
const PERF: &str = "Linux perf, metrics of amdzen4 and amdzen5";
const FILLS: &str = "Linux pmu-events, ls_dmnd_fills_from_sys: of DRAM, of all sources";
const DEFINITION: &str = "definition";

/// Returns `part / whole`; `None` without a finite result.
pub fn ratio(part: f64, whole: f64) -> Option<f64> {
    Some(part / whole).filter(|value| whole > 0.0 && value.is_finite())
}

/// Returns the share of last-level misses among the loads that leave L2, with misses weighted.
pub fn llc_miss_fraction(loads: f64, misses: f64, weight: f64) -> Option<f64> {
    let hits = (loads - misses).max(0.0);
    ratio(weight * misses, hits + weight * misses)
}

/// Returns the share of cycles that wait for DRAM, from the stalls on L2 misses, where the
/// processor does not count the stalls on misses of the last level.
pub fn dram_bound_weighted(stalls_l2: f64, loads: f64, misses: f64, cycles: f64) -> Option<f64> {
    ratio(stalls_l2 * llc_miss_fraction(loads, misses, WEIGHT)?, cycles)
}

/// Bounds of the share of cycles with a page walk. Walks of loads and of stores are counted apart
/// and may happen at the same time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WalkShare {
    /// All walks of stores are at the time of walks of loads, or the reverse.
    pub low: f64,
    /// No walks are at the same time.
    pub high: f64,
}

/// Returns the share of cycles with a page walk, from cycles of one kind: of `walk_active`, or of
/// `walk_duration`. The second counts each of several walks at the same time (Broadwell has two
/// walkers), so its low bound is too high there.
pub fn walk_share(loads: f64, stores: f64, cycles: f64) -> Option<WalkShare> {
    let low = ratio(loads.max(stores), cycles)?;
    let high = ratio(loads + stores, cycles)?;
    Some(WalkShare { low: low.min(1.0), high: high.min(1.0) })
}

/// Returns bytes per second of memory traffic.
pub fn bandwidth(accesses: f64, seconds: f64) -> Option<f64> {
    ratio(accesses * LINE_BYTES, seconds)
}

/// Returns all ratios that the metrics of `value` give on `design`. `seconds`: the time that the
/// value of a metric covers.
pub fn derived(
    design: Option<Design>,
    seconds: &dyn Fn(&str) -> Option<f64>,
    value: &dyn Fn(&str) -> Option<f64>,
) -> Vec<Derived> {
    let mut found = Found { value, ratios: Vec::new() };
    found.divide("ipc", ["instructions", "cycles"], DEFINITION, "instructions / cycles");
    let formula = "stalls_mem / cycles";
    found.divide("memory_bound_ratio", ["stalls_mem", "cycles"], PAPER, formula);
    found.dram_bound(design);
    found.backend_bound_by_memory(design);
    found.divide("stall_cycles_ratio", ["stalls_total", "cycles"], PAPER, "stalls_total / cycles");
    found.divide("rs_stall_ratio", ["stalls_rs", "cycles"], PAPER, "stalls_rs / cycles");
    found.divide("rob_stall_ratio", ["stalls_rob", "cycles"], PAPER, "stalls_rob / cycles");
    found.divide("lfb_occupancy", ["lfb_occupied", "cycles"], PAPER, "lfb_occupied / cycles");
    let formula = "l1d_load_misses / l1d_loads";
    found.divide("l1d_miss_ratio", ["l1d_load_misses", "l1d_loads"], DEFINITION, formula);
    found.l2_hits();
    let formula = "llc_load_misses / llc_loads";
    found.divide("llc_miss_ratio", ["llc_load_misses", "llc_loads"], DEFINITION, formula);
    found.dram_of_demand_fills(design);
    found.tlb();
    found.memory(seconds);
    found.ratios
}

struct Found<'a> {
    value: &'a dyn Fn(&str) -> Option<f64>,
    ratios: Vec<Derived>,
}

impl Found<'_> {
    fn add(
        &mut self,
        name: &'static str,
        value: Option<f64>,
        source: &'static str,
        formula: &'static str,
    ) {
        self.ratios.extend(value.map(|value| Derived { name, value, formula, source }));
    }

    fn divide(
        &mut self,
        name: &'static str,
        [part, whole]: [&str; 2],
        source: &'static str,
        formula: &'static str,
    ) {
        let quotient = self.all([part, whole]).and_then(|[part, whole]| ratio(part, whole));
        self.add(name, quotient, source, formula);
    }

    /// Returns the values of metrics, if all are known.
    fn all<const N: usize>(&self, names: [&str; N]) -> Option<[f64; N]> {
        let values: Option<Vec<f64>> = names.iter().map(|name| (self.value)(name)).collect();
        values?.try_into().ok()
    }

    /// From Skylake on, stalls on misses of the last level have an event. Before, the weight
    /// estimates them. On other designs neither is known.
    fn dram_bound(&mut self, design: Option<Design>) {
        match design {
            Some(design) if design <= Design::Broadwell => {
                let inputs = ["stalls_l2", "llc_loads", "llc_load_misses", "cycles"];
                let value = self.all(inputs).and_then(|[stalls, loads, misses, cycles]| {
                    dram_bound_weighted(stalls, loads, misses, cycles)
                });
                let formula = "stalls_l2 * 7 * llc_load_misses / (llc_loads - llc_load_misses + \
                               7 * llc_load_misses) / cycles";
                self.add("dram_bound_ratio", value, PAPER, formula);
            }
            Some(design) if design <= Design::GraniteRapids => {
                let formula = "stalls_l3 / cycles";
                self.divide("dram_bound_ratio", ["stalls_l3", "cycles"], MANUAL, formula);
            }
            _ => {}
        }
    }

    /// Zen 4 and 5 count no stalls by cache level, but the dispatch slots that the backend leaves
    /// empty. Of these, memory has the share of loads in the cycles without retirement.
    fn backend_bound_by_memory(&mut self, design: Option<Design>) {
        let (width, formula) = match design {
            Some(Design::Zen4) => {
                (6.0, "backend_stall_slots / (6 * cycles) * stalls_mem / stalls_retire")
            }
            Some(Design::Zen5) => {
                (8.0, "backend_stall_slots / (8 * cycles) * stalls_mem / stalls_retire")
            }
            _ => return,
        };
        let inputs = ["backend_stall_slots", "cycles", "stalls_mem", "stalls_retire"];
        let value = self.all(inputs).and_then(|[slots, cycles, loads, all]| {
            Some(ratio(slots, width * cycles)? * ratio(loads, all)?)
        });
        self.add("backend_bound_memory_ratio", value, PERF, formula);
    }

    /// ARM counts the misses of the L2 cache, other designs its hits.
    fn l2_hits(&mut self) {
        let formula = "l2_load_hits / l2_loads";
        self.divide("l2_hit_ratio", ["l2_load_hits", "l2_loads"], PAPER, formula);
        // Multiplexed counts may have more misses than loads.
        let hits = self
            .all(["l2_load_misses", "l2_loads"])
            .and_then(|[misses, loads]| ratio((loads - misses).max(0.0), loads));
        self.add("l2_hit_ratio", hits, DEFINITION, "(l2_loads - l2_load_misses) / l2_loads");
    }

    /// From Zen 3 on, lines that the L1 cache got on demand are counted by their source. That is a
    /// share of misses, not of stalls: no formula over it for stalls has a source.
    fn dram_of_demand_fills(&mut self, design: Option<Design>) {
        if design.is_some_and(|design| (Design::Zen3..=Design::Zen5).contains(&design)) {
            let inputs = ["llc_load_misses", "l1d_load_misses"];
            let formula = "llc_load_misses / l1d_load_misses";
            self.divide("dram_of_demand_fills_ratio", inputs, FILLS, formula);
        }
    }

    fn tlb(&mut self) {
        let formula = "(dtlb_load_stlb_hits + dtlb_load_walks) / dtlb_loads";
        let value = self
            .all(["dtlb_load_stlb_hits", "dtlb_load_walks", "dtlb_loads"])
            .and_then(|[hits, walks, loads]| ratio(hits + walks, loads));
        self.add("dtlb_load_miss_ratio", value, DEFINITION, formula);
        let formula = "dtlb_load_walks / (dtlb_load_stlb_hits + dtlb_load_walks)";
        let value = self
            .all(["dtlb_load_stlb_hits", "dtlb_load_walks"])
            .and_then(|[hits, walks]| ratio(walks, hits + walks));
        self.add("stlb_load_miss_ratio", value, DEFINITION, formula);
        let formula = "dtlb_load_walks / dtlb_loads";
        self.divide("load_walk_ratio", ["dtlb_load_walks", "dtlb_loads"], DEFINITION, formula);
        let value = self
            .all(["dtlb_misses", "dtlb_loads", "dtlb_stores"])
            .and_then(|[misses, loads, stores]| ratio(misses, loads + stores));
        let formula = "dtlb_misses / (dtlb_loads + dtlb_stores)";
        self.add("dtlb_miss_ratio", value, DEFINITION, formula);
        let formula = "dtlb_walks / dtlb_misses";
        self.divide("stlb_miss_ratio", ["dtlb_walks", "dtlb_misses"], DEFINITION, formula);
        self.walk_duration();
        self.walk_share(
            ["dtlb_load_walk_active", "dtlb_store_walk_active"],
            MANUAL,
            [
                "max(dtlb_load_walk_active, dtlb_store_walk_active) / cycles",
                "(dtlb_load_walk_active + dtlb_store_walk_active) / cycles",
            ],
        );
        self.walk_share(
            ["dtlb_load_walk_duration", "dtlb_store_walk_duration"],
            MANUAL,
            [
                "max(dtlb_load_walk_duration, dtlb_store_walk_duration) / cycles",
                "(dtlb_load_walk_duration + dtlb_store_walk_duration) / cycles",
            ],
        );
    }

    /// Cycles of a page walk on average. Up to Broadwell, one event adds up the cycles of each
    /// walk; later it is the walks in flight at each cycle. Both have the same sum.
    fn walk_duration(&mut self) {
        let formula = "dtlb_load_walk_duration / dtlb_load_walks";
        let metrics = ["dtlb_load_walk_duration", "dtlb_load_walks"];
        self.divide("walk_duration_cycles", metrics, DEFINITION, formula);
        let formula = "dtlb_load_walk_pending / dtlb_load_walks";
        let metrics = ["dtlb_load_walk_pending", "dtlb_load_walks"];
        self.divide("walk_duration_cycles", metrics, DEFINITION, formula);
    }

    /// Cycles of one design only are ever counted, so the two kinds never mix.
    fn walk_share(
        &mut self,
        [loads, stores]: [&str; 2],
        source: &'static str,
        [low, high]: [&'static str; 2],
    ) {
        let share = self
            .all([loads, stores, "cycles"])
            .and_then(|[loads, stores, cycles]| walk_share(loads, stores, cycles));
        self.add("walk_cycles_low_ratio", share.map(|share| share.low), source, low);
        self.add("walk_cycles_high_ratio", share.map(|share| share.high), source, high);
    }

    fn memory(&mut self, seconds: &dyn Fn(&str) -> Option<f64>) {
        let traffic = [
            ("dram_bytes_per_second", "dram_accesses", "64 * dram_accesses / seconds"),
            ("dram_read_bytes_per_second", "dram_reads", "64 * dram_reads / seconds"),
            ("dram_write_bytes_per_second", "dram_writes", "64 * dram_writes / seconds"),
            ("dram_fill_bytes_per_second", "dram_fills", "64 * dram_fills / seconds"),
        ];
        for (name, metric, formula) in traffic {
            let value = (self.value)(metric).and_then(|count| bandwidth(count, seconds(metric)?));
            let source = if metric == "dram_fills" { DEFINITION } else { PAPER };
            self.add(name, value, source, formula);
        }
    }
}

#[cfg(test)]
mod tests;
