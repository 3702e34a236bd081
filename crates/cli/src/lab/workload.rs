//! Command-line definition of the workloads and their flags.

use std::num::NonZeroU64;

use clap::{Args, Subcommand, ValueEnum};
use hugepilot_units::{Bytes, Nanos};
use hugepilot_workload::{
    HashInsertConfig, HotSetConfig, MemoryConfig, RandomAccessConfig, RunConfig, TlbFriendlyConfig,
};

/// Exit status of each workload; only `memcached` requires other programs.
const EXIT: &str = "Exit status: 0 done, 2 error or wrong result";

const HOT_SET_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload hot-set --announce --seconds 0       hot addresses; runs until killed
  hugepilot lab workload hot-set --hot 256MiB --pattern chase --threads 4
                                                              four pointer chases";

const POINTER_CHASE_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload pointer-chase --pages base           latency on base pages
  hugepilot lab workload pointer-chase --pages huge --steps 1000
                                                              percentiles on huge pages";

const GUPS_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload gups --size 4GiB --threads 2         two tables of 2 GiB
  hugepilot lab workload gups --pages huge --ops 100000000    fixed work, to compare times";

const HASH_MAP_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload hash-map --size 2GiB                 ten seconds
  hugepilot run --pages glibc-thp -- hugepilot lab workload hash-map
                                                              malloc on THP";

const HASH_INSERT_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload hash-insert                          one table, 272 MiB
  hugepilot lab workload hash-insert --seconds 10s            table after table
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1 hugepilot lab workload hash-insert --entries 100000000
                                                              a large table on THP";

const TREE_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload tree --size 2GiB                     ten seconds
  hugepilot run --pages glibc-thp -- hugepilot lab workload tree --ops 5000000
                                                              malloc on THP, fixed work";

const CHURN_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload churn --size 1GiB                    ten seconds
  hugepilot run --pages mimalloc -- hugepilot lab workload churn --steps 1000
                                                              another malloc; percentiles";

const STREAM_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload stream --pages base                  bandwidth on base pages
  hugepilot lab workload stream --pages huge                  about as fast";

const TLB_FRIENDLY_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload tlb-friendly --seconds 0             runs until killed
  hugepilot lab workload tlb-friendly --scan 256MiB --hot-pages 32
                                                              longer scan, fewer hot pages";

const RANDOM_ACCESS_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload random-access --size 2GiB --bloat 80,20 --bloat-side right
                                                              RandomAccess-R of EMD
  hugepilot lab workload random-access --size 1GiB --bloat 90,50,0 --layout scattered --hot bloated
                                                              hot memory is the most bloated
  hugepilot lab workload random-access --wait --ops 50000000 --steps 1000
                                                              starts at `go`; percentiles";

const BTREE_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload btree --size 2GiB                    78 % bloat
  hugepilot lab workload btree --size 2GiB --pages base       without bloat";

const BTREE_GROWN_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload btree-grown --size 2GiB              grows for ten seconds
  hugepilot lab workload btree-grown --size 2GiB --seed 2     other bloat elsewhere";

const MEMCACHED_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload memcached --size 2GiB                62 % bloat
  hugepilot lab workload memcached --steps 100 --seconds 30   percentiles of 100 GETs

Exit status: 0 done, 2 error or wrong result, 3 memcached or setpriv is missing";

#[derive(Debug, Subcommand)]
pub(super) enum Workload {
    /// Read hot regions scattered in a large footprint
    ///
    /// A huge page on each hot region gains all there is; on other regions it gains nothing.
    #[command(after_help = format!("{HOT_SET_EXAMPLES}\n\n{EXIT}"))]
    HotSet(HotSetArgs),
    /// Chase pointers through every cache line of the memory
    #[command(after_help = format!("{POINTER_CHASE_EXAMPLES}\n\n{EXIT}"))]
    PointerChase(PlainArgs),
    /// Update random words of a table; each thread has its own part
    #[command(after_help = format!("{GUPS_EXAMPLES}\n\n{EXIT}"))]
    Gups(PlainArgs),
    /// Look up random keys in a hash map from the global allocator
    #[command(after_help = format!("{HASH_MAP_EXAMPLES}\n\n{EXIT}"))]
    HashMap(PlainArgs),
    /// Fill a hash map from the global allocator once, and end
    ///
    /// Keys are hashed by CRC-32C. Filling is the work, so `ready` comes first; at the end every
    /// entry is checked.
    #[command(after_help = format!("{HASH_INSERT_EXAMPLES}\n\n{EXIT}"))]
    HashInsert(HashInsertArgs),
    /// Look up random keys in a B-tree from the global allocator
    #[command(after_help = format!("{TREE_EXAMPLES}\n\n{EXIT}"))]
    Tree(PlainArgs),
    /// Replace random objects of the global allocator by others of 16 to 1023 bytes
    #[command(after_help = format!("{CHURN_EXAMPLES}\n\n{EXIT}"))]
    Churn(PlainArgs),
    /// Compute the triad a = b + s·c over three arrays
    ///
    /// The accesses are sequential, so huge pages gain little.
    #[command(after_help = format!("{STREAM_EXAMPLES}\n\n{EXIT}"))]
    Stream(PlainArgs),
    /// Read a few very hot pages and scan the rest
    ///
    /// Huge pages gain nothing here, so hugepilot should promote none of it.
    #[command(after_help = format!("{TLB_FRIENDLY_EXAMPLES}\n\n{EXIT}"))]
    TlbFriendly(TlbFriendlyArgs),
    /// Update random words of a buffer whose huge pages have known bloat
    ///
    /// The buffer is divided into equal parts, one for each value of --bloat.
    #[command(after_help = format!("{RANDOM_ACCESS_EXAMPLES}\n\n{EXIT}"))]
    RandomAccess(RandomAccessArgs),
    /// Look up random keys in a B+-tree with room for growth (78 % bloat)
    #[command(name = "btree", after_help = format!("{BTREE_EXAMPLES}\n\n{EXIT}"))]
    BTree(PlainArgs),
    /// Look up random keys in a B+-tree that grew by insertion
    ///
    /// Insertions by tenants of different sizes leave its bloat.
    #[command(name = "btree-grown", after_help = format!("{BTREE_GROWN_EXAMPLES}\n\n{EXIT}"))]
    BTreeGrown(PlainArgs),
    /// Send random GETs to a memcached server (62 % bloat)
    ///
    /// Starts, fills and ends the server. Requires the programs memcached and setpriv.
    #[command(after_help = MEMCACHED_EXAMPLES)]
    Memcached(PlainArgs),
}

#[derive(Debug, Args)]
pub(super) struct HotSetArgs {
    /// Resident memory
    #[arg(long, visible_alias = "size", value_name = "SIZE")]
    #[arg(default_value_t = HotSetConfig::DEFAULT.memory.footprint)]
    pub(super) footprint: Bytes,
    /// Hot part of it, in huge-page regions chosen at random
    #[arg(long, value_name = "SIZE", default_value_t = HotSetConfig::DEFAULT.hot)]
    pub(super) hot: Bytes,
    /// Accesses to the hot regions
    #[arg(long, value_enum, default_value_t)]
    pub(super) pattern: PatternArg,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct PlainArgs {
    /// Resident memory, including bloat
    #[arg(long, visible_alias = "size", value_name = "SIZE")]
    #[arg(default_value_t = MemoryConfig::DEFAULT.footprint)]
    pub(super) footprint: Bytes,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

#[derive(Debug, Args)]
pub(super) struct HashInsertArgs {
    /// Entries of each table, keys from 0; each thread has its own table
    #[arg(long, value_name = "N", default_value_t = HashInsertConfig::DEFAULT.entries)]
    pub(super) entries: u64,
    /// Requested pages; only `default`, because the global allocator chooses
    #[arg(long, value_enum)]
    pub(super) pages: Option<PagesArg>,
    #[command(flatten)]
    pub(super) work: WorkArgs,
}

#[derive(Debug, Args)]
pub(super) struct TlbFriendlyArgs {
    #[command(flatten)]
    pub(super) plain: PlainArgs,
    /// Part of the memory that is scanned repeatedly
    #[arg(long, value_name = "SIZE", default_value_t = TlbFriendlyConfig::DEFAULT.scan)]
    pub(super) scan: Bytes,
    /// Base pages read at random during the scan
    #[arg(long, value_name = "N", default_value_t = TlbFriendlyConfig::DEFAULT.hot_pages)]
    pub(super) hot_pages: usize,
}

#[derive(Debug, Args)]
pub(super) struct RandomAccessArgs {
    /// Size of the buffer, including bloat
    #[arg(long, visible_alias = "size", value_name = "SIZE")]
    #[arg(default_value_t = RandomAccessConfig::FOOTPRINT)]
    pub(super) footprint: Bytes,
    /// Bloat in each huge page, in percent, for each part of the buffer
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "80,20")]
    pub(super) bloat: Vec<u8>,
    /// End of the buffer where the first part is
    #[arg(long, value_enum, default_value_t)]
    pub(super) bloat_side: SideArg,
    /// Position of the used base pages in a huge page
    #[arg(long, value_enum, default_value_t)]
    pub(super) layout: LayoutArg,
    /// Used pages that get more updates
    #[arg(long, value_enum, default_value_t)]
    pub(super) hot: HotArg,
    /// Share of the updates that go to the hot pages, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 90)]
    pub(super) skew: u8,
    #[command(flatten)]
    pub(super) common: CommonArgs,
}

/// Flags of every workload.
#[derive(Debug, Args)]
pub(super) struct WorkArgs {
    /// Worker threads
    #[arg(long, value_name = "N", default_value_t = RunConfig::DEFAULT.threads)]
    pub(super) threads: usize,
    /// Run time; 0 until killed [default: 10s; none with --ops or for hash-insert]
    #[arg(long, value_name = "TIME")]
    pub(super) seconds: Option<Nanos>,
    /// Operations of each thread: fixed work, to compare times
    #[arg(long, value_name = "N")]
    pub(super) ops: Option<u64>,
    /// Interval between lines
    #[arg(long, value_name = "TIME", default_value_t = RunConfig::DEFAULT.interval)]
    pub(super) interval: Nanos,
    /// Start of the work at a line `go` on stdin, after `ready`
    #[arg(long)]
    pub(super) wait: bool,
    /// Operations per timed batch; prints percentiles of the times at the end
    #[arg(long, value_name = "N")]
    pub(super) steps: Option<NonZeroU64>,
}

/// Flags of every workload with a footprint.
#[derive(Debug, Args)]
pub(super) struct CommonArgs {
    #[command(flatten)]
    pub(super) work: WorkArgs,
    /// Seed of the random accesses
    #[arg(long, value_name = "N", default_value_t = MemoryConfig::DEFAULT.seed)]
    pub(super) seed: u64,
    /// Requested pages [default: huge for workloads with bloat, else default]
    #[arg(long, value_enum)]
    pub(super) pages: Option<PagesArg>,
    /// Lines `hot START-END` before `ready`: the memory that huge pages help
    #[arg(long)]
    pub(super) announce: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum PatternArg {
    /// Independent random reads, several at once
    #[default]
    Gather,
    /// Dependent reads: each one yields the next address
    Chase,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum PagesArg {
    /// The system's setting
    Default,
    /// Base pages; nothing can promote them later
    Base,
    /// Huge pages from the first touch
    #[value(alias = "thp")]
    Huge,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum SideArg {
    /// Low addresses (RandomAccess-L of EMD)
    #[default]
    Left,
    /// High addresses (RandomAccess-R of EMD)
    Right,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum LayoutArg {
    /// At the start
    #[default]
    Contiguous,
    /// Everywhere, differently in each huge page
    Scattered,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum HotArg {
    /// None: all used pages equally
    #[default]
    Uniform,
    /// Those of the most bloated part
    Bloated,
    /// Those of the least bloated part
    Dense,
}
