//! Reports of the micro-benchmarks of `hugepilot lab`: latency and bandwidth of memory by kind of
//! page.

pub(crate) mod text;
pub mod weather;

use std::fmt;

use hugepilot_record::sentence::{Sentence, counted};
use hugepilot_stats::Spread;
use hugepilot_units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of [`PchaseReport::schema`].
pub const PCHASE_SCHEMA: &str = "hugepilot.lab-pchase/1";
/// Value of [`StreamReport::schema`].
pub const STREAM_SCHEMA: &str = "hugepilot.lab-stream/1";
/// Value of [`GupsReport::schema`].
pub const GUPS_SCHEMA: &str = "hugepilot.lab-gups/1";
/// Value of [`TlbSweepReport::schema`].
pub const TLB_SWEEP_SCHEMA: &str = "hugepilot.lab-tlb-sweep/1";

/// Kind of page that a micro-benchmark requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PageKind {
    /// Base pages.
    #[serde(rename = "base")]
    Base,
    /// Transparent huge pages.
    #[serde(rename = "thp")]
    Thp,
    /// Pages of the 2 MiB hugetlb pool.
    #[serde(rename = "hugetlb-2m")]
    Hugetlb2M,
    /// Pages of the 1 GiB hugetlb pool.
    #[serde(rename = "hugetlb-1g")]
    Hugetlb1G,
}

impl PageKind {
    /// All kinds, from small to large.
    pub const ALL: [Self; 4] = [Self::Base, Self::Thp, Self::Hugetlb2M, Self::Hugetlb1G];

    /// Name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "base",
            Self::Thp => "thp",
            Self::Hugetlb2M => "hugetlb-2m",
            Self::Hugetlb1G => "hugetlb-1g",
        }
    }
}

impl fmt::Display for PageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Memory of a micro-benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LabMemory {
    /// Requested kind of page.
    pub pages: PageKind,
    /// Length of the memory.
    pub footprint_bytes: Bytes,
    /// Part of it on huge pages of any kind, read from the pagemap; `None` if it cannot be read.
    pub huge_bytes: Option<Bytes>,
    /// Last-level cache of the machine; `None` if unknown.
    pub cache_bytes: Option<Bytes>,
}

impl LabMemory {
    /// Warnings about memory that is not on the requested pages.
    pub fn warnings(&self) -> Vec<LabWarning> {
        let Some(huge_bytes) = self.huge_bytes else { return vec![LabWarning::PagesUnknown] };
        let is_short = self.pages != PageKind::Base && huge_bytes < self.footprint_bytes;
        let partly = LabWarning::PartlyHuge { huge_bytes, footprint_bytes: self.footprint_bytes };
        is_short.then_some(partly).into_iter().collect()
    }
}

/// Doubt about a result. JSON has the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum LabWarning {
    /// Part of the memory is on base pages.
    #[text("only {huge_bytes} of {footprint_bytes} are on huge pages; the result mixes both kinds")]
    #[help("free memory, or use a smaller footprint")]
    PartlyHuge {
        /// Bytes on huge pages.
        huge_bytes: Bytes,
        /// Length of the memory.
        footprint_bytes: Bytes,
    },
    /// The pagemap cannot be read.
    #[text("the pagemap cannot be read; the pages may differ from the request")]
    PagesUnknown,
    /// The memory is smaller than the rule of the benchmark requires, so caches serve part of it.
    #[text(
        "{bytes} is less than {required_bytes}, {} times the last-level cache of {cache_bytes}; \
         caches may serve part of the accesses",
        required_bytes.get() / cache_bytes.get().max(1)
    )]
    #[help("a larger footprint, on a machine with the memory for it")]
    InCache {
        /// Length of the memory, or of each array.
        bytes: Bytes,
        /// Length that the rule requires.
        required_bytes: Bytes,
        /// Last-level cache.
        cache_bytes: Bytes,
    },
    /// More threads than processors.
    #[text(
        "{threads} threads share {}; latencies include waits",
        counted(u64::from(*processors), "processor", "processors")
    )]
    ManyThreads {
        /// Threads.
        threads: u32,
        /// Processors that this process may use.
        processors: u32,
    },
}

/// Latency and bandwidth of pointer chains, as Figure 1 of Eisenman et al. (2016) has them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PchaseReport {
    /// [`PCHASE_SCHEMA`].
    pub schema: String,
    /// Memory of all chains.
    pub memory: LabMemory,
    /// Seed of the random order.
    pub seed: u64,
    /// Bytes of an access: a cache line.
    pub line_bytes: u64,
    /// Rounds per point; spreads are over these.
    pub rounds: u32,
    /// Results by threads and chains.
    pub points: Vec<PchasePoint>,
    /// Doubts about the results.
    pub warnings: Vec<LabWarning>,
}

/// Result for a number of threads and chains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PchasePoint {
    /// Threads.
    pub threads: u32,
    /// Chains of each thread.
    pub chains: u32,
    /// Time of an access: of a step of one chain, while the other chains step, too.
    pub latency_ns: Spread,
    /// Cache lines of all threads, in bytes per second.
    pub bytes_per_second: Spread,
}

/// Bandwidth by the rules of STREAM (McCalpin).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamReport {
    /// [`STREAM_SCHEMA`].
    pub schema: String,
    /// Memory of the three arrays.
    pub memory: LabMemory,
    /// Length of each array.
    pub array_bytes: Bytes,
    /// Threads.
    pub threads: u32,
    /// Rounds, including the first, which does not count.
    pub rounds: u32,
    /// Results: copy, scale, add, triad.
    pub kernels: Vec<StreamKernel>,
    /// Doubts about the results.
    pub warnings: Vec<LabWarning>,
}

/// Result of a kernel of STREAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamKernel {
    /// `copy`, `scale`, `add` or `triad`.
    pub kernel: String,
    /// Bytes that STREAM counts per round: those read and written, without write-allocation.
    pub counted_bytes: Bytes,
    /// Best rate: counted bytes by the shortest time.
    pub best_bytes_per_second: f64,
    /// Times of the rounds after the first.
    pub seconds: Spread,
}

/// Random updates by the rules of HPCC `RandomAccess`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GupsReport {
    /// [`GUPS_SCHEMA`].
    pub schema: String,
    /// Memory of the table.
    pub memory: LabMemory,
    /// Words of the table: a power of two.
    pub words: u64,
    /// Threads.
    pub threads: u32,
    /// Updates: four times the words.
    pub updates: u64,
    /// Time of the updates.
    pub seconds: f64,
    /// Updates per second.
    pub updates_per_second: f64,
    /// Words with a wrong value, because two threads updated them at once.
    pub wrong_words: u64,
    /// Whether at most 1 % of the words are wrong, as the rules require.
    pub passed: bool,
    /// Doubts about the result.
    pub warnings: Vec<LabWarning>,
}

/// Latency against the number of pages: shows the levels of the TLB.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlbSweepReport {
    /// [`TLB_SWEEP_SCHEMA`].
    pub schema: String,
    /// Processor clock in GHz, from a chain of dependent instructions; `None` on other processors
    /// than x86-64.
    pub clock_ghz: Option<f64>,
    /// Sizes of the TLB from hugepilot's table of processors.
    pub known: Option<KnownTlb>,
    /// Seed of the random order.
    pub seed: u64,
    /// Result by kind of page.
    pub curves: Vec<TlbCurve>,
}

/// Longest translation by a TLB, in cycles: the middle between a hit in the second level and the
/// shortest page walk.
///
/// A hit costs 7 to 9 cycles: `Mem_STLB_Hit_Cost` of Intel's top-down analysis (pmu-tools) is 7 on
/// Ivy Bridge, 8 on Haswell, 9 on Skylake, and 7 from Ice Lake on. A walk first misses there, then
/// reads at least one entry of the page table. More lines than a TLB has entries do not fit into
/// the first-level cache, so that entry comes from the second, in 11 to 14 cycles (Intel's
/// optimization manual, tables of cache parameters). So a walk takes at least 8 + 11 = 19.
const MAX_TLB_CYCLES: f64 = 14.0;
/// The same in nanoseconds, if the clock is unknown: 14 cycles at 2.8 GHz.
const MAX_TLB_NS: f64 = 5.0;

impl TlbSweepReport {
    /// Returns the base pages that the TLB holds: those of the last level that is faster than a
    /// page walk. `None` if base pages were not measured, or the sweep did not exceed the TLB.
    pub fn base_pages(&self) -> Option<u64> {
        let curve = self.curves.iter().find(|curve| curve.pages == PageKind::Base)?;
        let is_tlb = |level: &&TlbLevel| match level.translation_cycles {
            Some(cycles) => cycles <= MAX_TLB_CYCLES,
            None => level.translation_ns <= MAX_TLB_NS,
        };
        curve.levels.iter().take_while(is_tlb).last()?.holds_pages
    }
}

/// Sizes of the data TLB from the table of processors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KnownTlb {
    /// Entries of the first level for base pages.
    pub l1d_4k_entries: u32,
    /// Entries of the second level for base pages.
    pub l2_4k_entries: u32,
    /// Entries of the second level for 2 MiB pages; 0 if it holds none.
    pub l2_2m_entries: u32,
    /// Source of the sizes.
    pub source: String,
    /// Whether the processor is not in the table.
    pub assumed: bool,
}

/// Latencies of one kind of page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlbCurve {
    /// Kind of page.
    pub pages: PageKind,
    /// Length of a page.
    pub page_bytes: Bytes,
    /// Latencies, by ascending number of pages; empty if the pages are not available.
    pub points: Vec<TlbPoint>,
    /// Levels of the TLB.
    pub levels: Vec<TlbLevel>,
    /// Cause of a missing or shortened curve.
    pub unavailable: Option<NotAvailable>,
}

/// Latency for a number of pages.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlbPoint {
    /// Pages, each with one access to a cache line of its own.
    pub page_count: u64,
    /// Time of an access.
    pub latency_ns: f64,
    /// Time of an access to as many cache lines on as few pages as hold them.
    pub packed_latency_ns: f64,
    /// Difference of the two: the time of the translation beyond the fastest level.
    pub translation_ns: f64,
}

/// Level of the TLB: a range of page counts with about the same time of translation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlbLevel {
    /// Most pages that were measured before the next level began; `None` for the last level.
    pub holds_pages: Option<u64>,
    /// Fewest pages that were measured beyond it; `None` for the last level.
    pub exceeded_pages: Option<u64>,
    /// Time of a translation, the median of its points.
    pub translation_ns: f64,
    /// The same in cycles, if the clock is known.
    pub translation_cycles: Option<f64>,
}

/// Cause of a missing measurement, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotAvailable {
    /// Cause.
    pub cause: String,
    /// Suggestions, the likeliest first.
    pub help: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sweep(pages: PageKind, levels: &[(Option<u64>, f64)], ghz: Option<f64>) -> TlbSweepReport {
        let level = |&(holds_pages, ns): &(Option<u64>, f64)| TlbLevel {
            holds_pages,
            exceeded_pages: holds_pages.map(|pages| pages + 1),
            translation_ns: ns,
            translation_cycles: ghz.map(|ghz| ns * ghz),
        };
        let curve = TlbCurve {
            pages,
            page_bytes: Bytes::kib(4),
            points: Vec::new(),
            levels: levels.iter().map(level).collect(),
            unavailable: None,
        };
        TlbSweepReport {
            schema: TLB_SWEEP_SCHEMA.to_owned(),
            clock_ghz: ghz,
            known: None,
            seed: 1,
            curves: vec![curve],
        }
    }

    /// Levels after the TLB are those of walks whose tables leave a cache.
    #[test]
    fn the_tlb_ends_where_walks_begin() {
        let levels = [(Some(64), 0.0), (Some(1536), 2.0), (Some(8192), 8.0), (None::<u64>, 20.0)];
        for ghz in [None, Some(3.6)] {
            assert_eq!(sweep(PageKind::Base, &levels, ghz).base_pages(), Some(1536));
        }
        // 8 ns are 12 cycles here.
        assert_eq!(sweep(PageKind::Base, &levels, Some(1.5)).base_pages(), Some(8192));
        assert_eq!(sweep(PageKind::Thp, &levels, None).base_pages(), None);
        assert_eq!(sweep(PageKind::Base, &[(None, 0.0)], None).base_pages(), None, "no end");
        assert_eq!(sweep(PageKind::Base, &[], None).base_pages(), None);
    }
}
