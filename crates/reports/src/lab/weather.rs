//! Reports of the commands that make conditions for experiments: `hugepilot lab pressure`,
//! `fragment`, `page-cache`, `warm` and `quiet`.

pub(crate) mod text;

use hugepilot_record::sentence::Sentence;
use hugepilot_units::{Bytes, Share};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Value of [`PressureReport::schema`].
pub const PRESSURE_SCHEMA: &str = "hugepilot.lab-pressure/1";
/// Value of [`FragmentReport::schema`].
pub const FRAGMENT_SCHEMA: &str = "hugepilot.lab-fragment/1";
/// Value of [`PageCacheReport::schema`].
pub const PAGE_CACHE_SCHEMA: &str = "hugepilot.lab-page-cache/1";
/// Value of [`WarmReport::schema`].
pub const WARM_SCHEMA: &str = "hugepilot.lab-warm/1";
/// Value of [`QuietReport::schema`].
pub const QUIET_SCHEMA: &str = "hugepilot.lab-quiet/1";

/// Means of memory pressure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PressureKind {
    /// Locked base pages: available memory is short.
    Mlock,
    /// A memory cgroup with a limit, for one program.
    Cgroup,
    /// Clean file pages: free memory is short, available memory is not.
    PageCache,
}

/// Memory that a pressure leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PressureReport {
    /// [`PRESSURE_SCHEMA`].
    pub schema: String,
    /// Means.
    pub kind: PressureKind,
    /// Requested memory to leave, the footprint included.
    pub requested_bytes: Bytes,
    /// Memory left when the level was reached: available, for page-cache free, for cgroup the
    /// limit.
    pub left_bytes: Bytes,
    /// Memory that hugepilot holds.
    pub held_bytes: Bytes,
    /// Part of the requested memory that the program takes, as the user stated it.
    pub footprint_bytes: Option<Bytes>,
    /// NUMA node, if it is confined to one.
    pub node: Option<u32>,
    /// Step in which memory is held and released: the accuracy.
    pub step_bytes: Bytes,
    /// Time to reach the level.
    pub seconds: f64,
    /// Cause for which the level was not reached.
    pub shortfall: Option<Shortfall>,
    /// Doubts about the level.
    pub warnings: Vec<WeatherWarning>,
}

/// Pages by which memory is fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FragmentKind {
    /// Pinned pages: compaction cannot move them.
    Unmovable,
    /// Ordinary anonymous pages: compaction can join the free memory between them.
    Movable,
}

/// Blocks of which a fragmentation is a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FragmentBase {
    /// All memory of the machine (MemTotal).
    Machine,
    /// Free huge-page-sized blocks at the start (`/proc/buddyinfo`).
    Free,
}

/// Huge-page-sized blocks of memory with a page of hugepilot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FragmentReport {
    /// [`FRAGMENT_SCHEMA`].
    pub schema: String,
    /// Kind of the pages.
    pub kind: FragmentKind,
    /// Base of both ratios.
    pub of: FragmentBase,
    /// Requested share of the blocks.
    pub requested_ratio: Share,
    /// Reached share: distinct blocks with a page of hugepilot, by frame number.
    pub reached_ratio: f64,
    /// These distinct blocks.
    pub fragmented_blocks: u64,
    /// Pages that hugepilot keeps, one per block unless the kernel moved some before the pin.
    pub kept_pages: u64,
    /// Blocks of the base.
    pub base_blocks: u64,
    /// Length of a block: a huge page.
    pub block_bytes: Bytes,
    /// Free blocks of a huge page or more at the start, in huge pages.
    pub free_huge_pages_before: u64,
    /// The same once the level holds.
    pub free_huge_pages: u64,
    /// Free blocks by order once the level holds: 2^order base pages each.
    pub free_blocks_by_order: Vec<u64>,
    /// Huge pages that the kernel grants in fact, with --probe.
    pub obtainable: Option<Obtainable>,
    /// Compactions of all memory that were triggered.
    pub compactions: u32,
    /// Time to reach the level.
    pub seconds: f64,
    /// Cause for which the level was not reached.
    pub shortfall: Option<Shortfall>,
}

/// Huge pages that a program can get.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Obtainable {
    /// Huge pages that were allocated, then freed.
    pub huge_pages: u64,
    /// Whether the kernel refused the next one. Otherwise available memory ended the count, and
    /// there may be more.
    pub refused: bool,
}

/// Cause for which a level was not reached. JSON has the variant as `code`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Shortfall {
    /// The kernel grants no more huge pages.
    #[text("the kernel grants no more huge pages, also after compaction")]
    #[help("a lower --level, or end programs that use memory")]
    NoFreeBlocks,
    /// Available memory is at the guard.
    #[text("only {available_bytes} are available, of which {guard_bytes} must stay so")]
    #[help("a lower --level, or end programs that use memory")]
    MemoryGuard {
        /// Available memory.
        available_bytes: Bytes,
        /// Memory that must stay available.
        guard_bytes: Bytes,
    },
    /// Processes stall on memory, or other processes use what was to be held.
    #[text("processes stall on memory, or the memory of other processes varies")]
    #[help("a larger --leave, or end programs that use memory")]
    Unsteady,
}

/// Doubt about a level. JSON has the variant as `code`, and the sentence as `text`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum WeatherWarning {
    /// The machine has swap space.
    #[text("swap is on; the kernel may swap out memory of programs instead of refusing it")]
    #[help("switch it off for the experiment: sudo swapoff -a")]
    Swap,
    /// The kernel reports no stalls on memory.
    #[text("the kernel reports no stalls on memory ({cause}); only available memory guards")]
    NoStallReports {
        /// Cause.
        cause: String,
    },
}

/// Condition for which a command does not start. JSON has the variant as `code`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum WeatherRefusal {
    /// The level would endanger the machine.
    #[text("to leave {requested_bytes} is not safe: at least {floor_bytes} must stay")]
    #[help("a larger amount: --leave {floor_bytes}")]
    BelowFloor {
        /// Requested level.
        requested_bytes: Bytes,
        /// Lowest level.
        floor_bytes: Bytes,
    },
    /// Less is available than should be left.
    #[text("to leave {requested_bytes} is not possible: {left_bytes} are available now")]
    #[help("a smaller amount, or end programs that use memory")]
    AboveAvailable {
        /// Requested level.
        requested_bytes: Bytes,
        /// Available memory; free memory for the page cache.
        left_bytes: Bytes,
    },
    /// hugepilot may not take the memory itself.
    #[text("{wanted_bytes} must be held, and hugepilot may use only {room_bytes} here")]
    #[help("a smaller amount, or outside of this cgroup or this `ulimit -v`")]
    NoRoom {
        /// Memory to hold.
        wanted_bytes: Bytes,
        /// Memory that its bounds leave.
        room_bytes: Bytes,
    },
    /// `footprint+AMOUNT` without the footprint.
    #[text("the footprint of the program is not known")]
    #[help(
        "measure it: hugepilot run --pages base -- CMD prints its peak RSS; then --footprint BYTES"
    )]
    NoFootprint,
    /// A cgroup limits a program, and there is none.
    #[text("a cgroup limits the program that it is for, and there is none")]
    #[help("name the program: -- CMD")]
    NoProgram,
    /// The temporary directory keeps its files in memory.
    #[text("{directory} is in memory, so its files are not clean page cache")]
    #[help("a directory on a disk: TMPDIR=/var/tmp")]
    MemoryFiles {
        /// Directory.
        directory: String,
    },
    /// Frame numbers are hidden.
    #[text("frame numbers are hidden from this user, so the level cannot be verified")]
    #[help("run it as root")]
    NoFrames,
    /// The limit on locked memory is too small.
    #[text("the limit on locked memory (RLIMIT_MEMLOCK) is reached")]
    #[help("run it as root, or raise the limit: ulimit -l unlimited")]
    LockLimit,
    /// io_uring is switched off.
    #[text("the kernel refuses io_uring, which pins the pages")]
    #[help("allow it: echo 0 | sudo tee /proc/sys/kernel/io_uring_disabled; or --kind movable")]
    NoIoUring,
    /// The machine is not quiet.
    #[text("the machine is not quiet")]
    #[help("end what the reasons name, or start the program nevertheless: --force")]
    NotQuiet,
}

/// Clean pages in the page cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PageCacheReport {
    /// [`PAGE_CACHE_SCHEMA`].
    pub schema: String,
    /// File; `None` for a temporary one.
    pub file: Option<String>,
    /// Whether its pages were dropped instead of read.
    pub dropped: bool,
    /// Requested pages.
    pub requested_bytes: Bytes,
    /// Pages of the file in the page cache before.
    pub cached_before_bytes: Bytes,
    /// The same afterwards (`cachestat(2)`).
    pub cached_bytes: Bytes,
    /// Those among them that are not clean.
    pub dirty_bytes: Bytes,
    /// Time to read or drop them.
    pub seconds: f64,
}

/// Memory that was touched once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WarmReport {
    /// [`WARM_SCHEMA`].
    pub schema: String,
    /// Requested memory; as much as is safe if the user named no size.
    pub requested_bytes: Bytes,
    /// Memory that was touched: less, if available memory ended it.
    pub touched_bytes: Bytes,
    /// Time of the first touch.
    pub first_touch_seconds: f64,
    /// Time of the second touch, after the memory was freed.
    pub second_touch_seconds: f64,
    /// First by second: far above 1 if the hypervisor had to back the memory.
    pub first_over_second_ratio: f64,
}

/// Activity of the machine besides hugepilot, each with its limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuietReport {
    /// [`QUIET_SCHEMA`].
    pub schema: String,
    /// Time of the measurement.
    pub seconds: f64,
    /// Processors.
    pub processors: u32,
    /// Whether no limit is exceeded.
    pub quiet: bool,
    /// Measured activity.
    pub activity: Activity,
    /// The most that is quiet.
    pub limits: QuietLimits,
    /// Processes that used most CPU time, at most three.
    pub busiest: Vec<BusyProcess>,
    /// Exceeded limits.
    pub reasons: Vec<Noise>,
}

/// Activity of a machine. `None`: not available on this kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    /// Share of processor time that the hypervisor withheld.
    pub steal_ratio: Option<f64>,
    /// Runnable threads per processor, mean of a minute.
    pub load_per_processor: Option<f64>,
    /// Busy processors, by other processes and the kernel.
    pub other_busy_processors: Option<f64>,
    /// Share of the last ten seconds in which some thread waited for a processor.
    pub cpu_pressure_ratio: Option<f64>,
    /// Huge pages that khugepaged collapsed.
    pub khugepaged_collapses: Option<u64>,
    /// Scans of all memory that khugepaged completed.
    pub khugepaged_scans: Option<u64>,
    /// Running DAMON threads with a scheme that changes memory.
    pub damon_contexts: u64,
    /// Whether the hypervisor takes free memory back (free page reporting of virtio-balloon).
    pub free_page_reporting: bool,
    /// Frequency governor of the first processor; `None` if the machine has none.
    pub governor: Option<String>,
}

/// Limits of [`Activity`]; khugepaged and DAMON must not act at all, and a governor must be
/// `performance`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuietLimits {
    /// Most of [`Activity::steal_ratio`].
    pub steal_ratio: f64,
    /// Most of [`Activity::load_per_processor`].
    pub load_per_processor: f64,
    /// Most of [`Activity::other_busy_processors`].
    pub other_busy_processors: f64,
    /// Most of [`Activity::cpu_pressure_ratio`].
    pub cpu_pressure_ratio: f64,
}

impl QuietLimits {
    /// Limits of the command. Steal and other work of 1 and 5 % are below the spread of usual
    /// measurements; the load of the last minute lags, so it only rules out a busy minute.
    pub const DEFAULT: Self = Self {
        steal_ratio: 0.01,
        load_per_processor: 0.5,
        other_busy_processors: 0.05,
        cpu_pressure_ratio: 0.05,
    };
}

/// Process that used CPU time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BusyProcess {
    /// Process.
    pub pid: i32,
    /// Name.
    pub name: String,
    /// Processors that it kept busy.
    pub busy_processors: f64,
}

/// Exceeded limit. JSON has the variant as `code`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, Sentence)]
#[serde(tag = "code", rename_all = "snake_case")]
pub enum Noise {
    /// The hypervisor withholds processor time.
    #[text("the hypervisor withholds processor time")]
    Steal,
    /// The load of the last minute is high.
    #[text("the load of the last minute is high")]
    #[help("wait a minute after the last work")]
    Load,
    /// Other processes work.
    #[text("other processes work")]
    #[help("end or pause them: hugepilot top lists them")]
    OtherWork,
    /// Threads wait for a processor.
    #[text("threads wait for a processor")]
    CpuPressure,
    /// khugepaged collapses memory.
    #[text("khugepaged scans or collapses memory")]
    #[help(
        "pause it: echo 0 | sudo tee /sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan"
    )]
    Khugepaged,
    /// DAMON changes memory.
    #[text("DAMON changes memory by its own rules")]
    #[help(
        "stop it for the experiment: echo off | sudo tee \
         /sys/kernel/mm/damon/admin/kdamonds/0/state; echo on starts it again"
    )]
    Damon,
    /// The hypervisor takes free memory back.
    #[text("the hypervisor takes free memory back, so that its next first touch is slow")]
    #[help("measure after the first touch; hugepilot lab warm shows what the touch costs")]
    FreePageReporting,
    /// The clock frequency varies.
    #[text("the governor {governor} varies the clock frequency")]
    #[help("fix it: sudo cpupower frequency-set -g performance")]
    Governor {
        /// Governor.
        governor: String,
    },
}
