//! `hugepilot lab`: programs to try hugepilot on.

use std::io;
use std::num::NonZeroU64;

use clap::{Args, Subcommand, ValueEnum};
use hugepilot_kernel::{Pages, Unsupported, rights};
use hugepilot_manager::ManagerError;
use hugepilot_manager::act::Guard;
use hugepilot_manager::tune::promote_all;
use hugepilot_policy::Limits;
use hugepilot_record::Stop;
use hugepilot_units::{Bytes, Nanos, Share};
use hugepilot_workload::WorkloadError;
use hugepilot_workload::{
    self, HashInsertConfig, Hot, HotSetConfig, Layout, Machine, MemoryConfig, Pattern,
    RandomAccessConfig, RunConfig, Side, Spec, TlbFriendlyConfig,
};

use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::output::finish;
use crate::target::{PidArg, open};

/// Run programs whose memory behaviour is known.
#[derive(Debug, Args)]
pub(crate) struct LabArgs {
    #[command(subcommand)]
    verb: LabVerb,
}

#[derive(Debug, Subcommand)]
enum LabVerb {
    /// Run one workload and print how fast it is.
    ///
    /// Prints `ready PID` when its memory is filled, then a line `SECONDS OPS_PER_SECOND` per interval, then one line
    /// of JSON. PID is this process, or the server that it started. Ends quietly when nobody reads any more.
    #[command(after_help = EXAMPLES)]
    Workload {
        #[command(subcommand)]
        name: Name,
    },
    /// Put all memory of a process on huge pages, however empty: the undo of debloat, to measure with.
    ///
    /// Every region with at least one page becomes huge, so this can take much memory; it stops short of the limits of the
    /// system and of the process's cgroup.
    Collapse(PidArg),
}

const EXAMPLES: &str = "\
Examples:
  hugepilot lab workload hot-set --footprint 4GiB --hot 512MiB --pattern gather --announce
  hugepilot lab workload pointer-chase --seconds 0 | head -20
  hugepilot lab workload gups --pages huge --ops 100000000
  hugepilot lab workload random-access --size 2GiB --bloat 80,20 --bloat-side right --wait --ops 50000000";

const HOT_SET_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload hot-set --hot 256MiB --pattern chase --threads 4 --seconds 30
  hugepilot lab workload hot-set --announce --seconds 0   (says where its hot regions are; runs until killed)";

const HASH_INSERT_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload hash-insert                        (ten million entries once: fixed work, 272 MiB)
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1 hugepilot lab workload hash-insert --entries 100000000
  hugepilot lab workload hash-insert --seconds 10s          (table after table, with a line per second)";

const RANDOM_ACCESS_EXAMPLES: &str = "\
Examples:
  hugepilot lab workload random-access --size 2GiB --bloat 80,20 --bloat-side right
  hugepilot lab workload random-access --size 1GiB --bloat 90,50,0 --layout scattered --hot bloated --skew 95
  hugepilot lab workload random-access --wait --ops 50000000 --steps 1000   (works once it reads `go`)";

#[derive(Debug, Subcommand)]
enum Name {
    /// Random reads, or a pointer chase, over hot regions scattered in a large footprint.
    #[command(after_help = HOT_SET_EXAMPLES)]
    HotSet(HotSetArgs),
    /// A pointer chase through every cache line of the memory.
    PointerChase(PlainArgs),
    /// Random updates of a table; each thread updates a part of its own.
    Gups(PlainArgs),
    /// Random look-ups in a hash map from the global allocator.
    HashMap(PlainArgs),
    /// Insertions into a hash map from the global allocator, hashed by CRC-32C: the same work each time, then it ends.
    #[command(after_help = HASH_INSERT_EXAMPLES)]
    HashInsert(HashInsertArgs),
    /// Random look-ups in a B-tree from the global allocator.
    Tree(PlainArgs),
    /// The triad a = b + s·c over three arrays; huge pages gain little.
    Stream(PlainArgs),
    /// A few very hot pages and a scan: huge pages gain nothing, so it must attract none.
    TlbFriendly(TlbFriendlyArgs),
    /// Random updates of a buffer whose huge pages are bloated to known shares.
    #[command(after_help = RANDOM_ACCESS_EXAMPLES)]
    RandomAccess(RandomAccessArgs),
    /// Random look-ups in a B+-tree with room for growth: three quarters of it are bloat.
    #[command(name = "btree")]
    BTree(PlainArgs),
    /// Random GETs from a memcached server, started here and ended with it: 62 % of its memory are bloat.
    Memcached(PlainArgs),
}

#[derive(Debug, Args)]
struct HotSetArgs {
    /// How much memory to make resident.
    #[arg(long, visible_alias = "size", value_name = "SIZE", default_value_t = HotSetConfig::DEFAULT.memory.footprint)]
    footprint: Bytes,
    /// How much of it is hot, in huge-page regions chosen at random.
    #[arg(long, value_name = "SIZE", default_value_t = HotSetConfig::DEFAULT.hot)]
    hot: Bytes,
    /// How the hot regions are read.
    #[arg(long, value_enum, default_value_t)]
    pattern: PatternArg,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct PlainArgs {
    /// How much memory to make resident.
    #[arg(long, visible_alias = "size", value_name = "SIZE", default_value_t = MemoryConfig::DEFAULT.footprint)]
    footprint: Bytes,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Debug, Args)]
struct HashInsertArgs {
    /// How many entries a table gets: the keys from 0 on. Each thread has a table of its own.
    #[arg(long, value_name = "N", default_value_t = HashInsertConfig::DEFAULT.entries)]
    entries: u64,
    /// Which pages to ask the kernel for: none but `default`, because the global allocator chooses.
    #[arg(long, value_enum)]
    pages: Option<PagesArg>,
    #[command(flatten)]
    work: WorkArgs,
}

#[derive(Debug, Args)]
struct TlbFriendlyArgs {
    #[command(flatten)]
    plain: PlainArgs,
    /// How much of it is scanned, again and again.
    #[arg(long, value_name = "SIZE", default_value_t = TlbFriendlyConfig::DEFAULT.scan)]
    scan: Bytes,
    /// How many base pages are read at random in between.
    #[arg(long, value_name = "N", default_value_t = TlbFriendlyConfig::DEFAULT.hot_pages)]
    hot_pages: usize,
}

#[derive(Debug, Args)]
struct RandomAccessArgs {
    /// How much memory to reserve, bloat included.
    #[arg(long, visible_alias = "size", value_name = "SIZE", default_value_t = Bytes::gib(8))]
    footprint: Bytes,
    /// Percent of bloat in each huge page, part by part of the buffer.
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "80,20")]
    bloat: Vec<u8>,
    /// Which end of the buffer the first part is: EMD's RandomAccess-L or RandomAccess-R.
    #[arg(long, value_enum, default_value_t)]
    bloat_side: SideArg,
    /// Where the used base pages of a huge page lie.
    #[arg(long, value_enum, default_value_t)]
    layout: LayoutArg,
    /// Which used pages are updated more often.
    #[arg(long, value_enum, default_value_t)]
    hot: HotArg,
    /// Percent of the updates that fall on the hot part.
    #[arg(long, value_name = "PERCENT", default_value_t = 90)]
    skew: u8,
    #[command(flatten)]
    common: CommonArgs,
}

/// How long to work, and what to print: for every workload.
#[derive(Debug, Args)]
struct WorkArgs {
    /// Threads that work.
    #[arg(long, value_name = "N", default_value_t = RunConfig::DEFAULT.threads)]
    threads: usize,
    /// Stop after this time; 0 runs until killed or until nobody reads. Default: 10s, but no limit with --ops or for
    /// fixed work.
    #[arg(long, value_name = "TIME")]
    seconds: Option<Nanos>,
    /// Stop each thread after this many operations: fixed work, to compare times.
    #[arg(long, value_name = "N")]
    ops: Option<u64>,
    /// Time between two lines.
    #[arg(long, value_name = "TIME", default_value_t = RunConfig::DEFAULT.interval)]
    interval: Nanos,
    /// After `ready`, begin to work only when a line `go` comes on stdin.
    #[arg(long)]
    wait: bool,
    /// Time batches of this many operations, and print a line `latency p50_ns … p99_ns … max_ns …` at the end.
    #[arg(long, value_name = "N")]
    steps: Option<NonZeroU64>,
}

#[derive(Debug, Args)]
struct CommonArgs {
    #[command(flatten)]
    work: WorkArgs,
    /// What the random choices start from: the same seed makes the same accesses.
    #[arg(long, value_name = "N", default_value_t = MemoryConfig::DEFAULT.seed)]
    seed: u64,
    /// Which pages to ask the kernel for. Default: `huge` for the workloads with bloat, `default` for the others.
    #[arg(long, value_enum)]
    pages: Option<PagesArg>,
    /// Print a line `hot START-END` for the regions that huge pages pay for, before `ready`.
    #[arg(long)]
    announce: bool,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum PatternArg {
    /// Independent random reads: many are under way at once.
    #[default]
    Gather,
    /// Each read says where the next one is.
    Chase,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum PagesArg {
    /// As the system is set.
    Default,
    /// Base pages only, for good: nothing can promote them later.
    Base,
    /// Huge pages from the first touch on.
    #[value(alias = "thp")]
    Huge,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum SideArg {
    /// Low addresses.
    #[default]
    Left,
    /// High addresses.
    Right,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LayoutArg {
    /// At its start.
    #[default]
    Contiguous,
    /// All over it, differently in each.
    Scattered,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum HotArg {
    /// None: all equally often.
    #[default]
    Uniform,
    /// Those of the most bloated part.
    Bloated,
    /// Those of the least bloated part.
    Dense,
}

/// Runs the verb. What cannot run is an error, but for a program that is not there.
pub(crate) fn run(args: LabArgs) -> anyhow::Result<Exit> {
    let name = match args.verb {
        LabVerb::Workload { name } => name,
        LabVerb::Collapse(target) => return collapse(target.pid),
    };
    let (spec, config) = plan(name);
    let (mut stdin, mut stdout) = (io::stdin().lock(), io::stdout().lock());
    match hugepilot_workload::run(&spec, &config, &Machine::live()?, &mut stdin, &mut stdout) {
        Ok(_) => Ok(Exit::Yes),
        Err(missing @ WorkloadError::NoProgram { .. }) => {
            eprintln!("hugepilot: {missing}");
            Ok(Exit::Unsupported)
        }
        Err(error) => Err(error.into()),
    }
}

fn collapse(pid: i32) -> anyhow::Result<Exit> {
    let limits = Limits { min_resident: Share::ratio(0.0), ..Limits::default() };
    let guard = Guard { limits, ..Guard::default() };
    let process = open(pid).map_err(ManagerError::Kernel).map_err(as_root)?;
    let interrupt = Interrupt::listen()?;
    let journal = promote_all(&process, &guard, &|| interrupt.is_asked()).map_err(as_root)?;
    if journal.stopped == Some(Stop::NotPermitted) {
        let why = format!("promoting memory of process {pid} is not permitted");
        return Err(ManagerError::Refused(refusal(why)).into());
    }
    let stopped = journal.stopped.map_or_else(String::new, |stop| format!("; then: {stop}"));
    let (verified, attempted) = (journal.verified(), journal.attempted());
    finish(&format!("{verified} of {attempted} regions put on huge pages{stopped}\n"))?;
    Ok(if verified == attempted && journal.stopped.is_none() { Exit::Yes } else { Exit::No })
}

/// What the flags mean to the library.
fn plan(name: Name) -> (Spec, RunConfig) {
    match name {
        Name::HotSet(args) => {
            let pattern = match args.pattern {
                PatternArg::Gather => Pattern::Gather,
                PatternArg::Chase => Pattern::Chase,
            };
            let memory = args.common.memory(args.footprint, Pages::Default);
            (Spec::HotSet(HotSetConfig { memory, hot: args.hot, pattern }), args.common.run())
        }
        Name::PointerChase(args) => (Spec::PointerChase(args.memory()), args.common.run()),
        Name::Gups(args) => (Spec::Gups(args.memory()), args.common.run()),
        Name::HashMap(args) => (Spec::HashMap(args.memory()), args.common.run()),
        Name::HashInsert(args) => args.plan(),
        Name::Tree(args) => (Spec::Tree(args.memory()), args.common.run()),
        Name::Stream(args) => (Spec::Stream(args.memory()), args.common.run()),
        Name::TlbFriendly(args) => {
            let (memory, run) = (args.plain.memory(), args.plain.common.run());
            (
                Spec::TlbFriendly(TlbFriendlyConfig {
                    memory,
                    scan: args.scan,
                    hot_pages: args.hot_pages,
                }),
                run,
            )
        }
        Name::RandomAccess(args) => (Spec::RandomAccess(args.config()), args.common.run()),
        Name::BTree(args) => (Spec::BTree(args.bloated()), args.common.run()),
        Name::Memcached(args) => (Spec::Memcached(args.bloated()), args.common.run()),
    }
}

impl PlainArgs {
    fn memory(&self) -> MemoryConfig {
        self.common.memory(self.footprint, Pages::Default)
    }

    /// The same for a workload that is about bloat, of which there is none without huge pages.
    fn bloated(&self) -> MemoryConfig {
        self.common.memory(self.footprint, Pages::Huge)
    }
}

impl HashInsertArgs {
    /// One table filled once, unless a time or a number of operations is given.
    fn plan(&self) -> (Spec, RunConfig) {
        let mut run = self.work.run();
        if self.work.seconds.is_none() && run.ops.is_none() {
            (run.ops, run.seconds) = (Some(self.entries), None);
        }
        (
            Spec::HashInsert(HashInsertConfig {
                entries: self.entries,
                pages: pages(self.pages, Pages::Default),
            }),
            run,
        )
    }
}

impl RandomAccessArgs {
    fn config(&self) -> RandomAccessConfig {
        let side = match self.bloat_side {
            SideArg::Left => Side::Left,
            SideArg::Right => Side::Right,
        };
        let layout = match self.layout {
            LayoutArg::Contiguous => Layout::Contiguous,
            LayoutArg::Scattered => Layout::Scattered,
        };
        let hot = match self.hot {
            HotArg::Uniform => Hot::Uniform,
            HotArg::Bloated => Hot::Bloated,
            HotArg::Dense => Hot::Dense,
        };
        let (memory, bloat) = (self.common.memory(self.footprint, Pages::Huge), self.bloat.clone());
        RandomAccessConfig { memory, bloat, side, layout, hot, skew_percent: self.skew }
    }
}

impl CommonArgs {
    fn memory(&self, footprint: Bytes, default: Pages) -> MemoryConfig {
        MemoryConfig { footprint, pages: pages(self.pages, default), seed: self.seed }
    }

    fn run(&self) -> RunConfig {
        RunConfig { announce: self.announce, ..self.work.run() }
    }
}

fn pages(asked: Option<PagesArg>, default: Pages) -> Pages {
    match asked {
        None => default,
        Some(PagesArg::Default) => Pages::Default,
        Some(PagesArg::Base) => Pages::Base,
        Some(PagesArg::Huge) => Pages::Huge,
    }
}

impl WorkArgs {
    fn run(&self) -> RunConfig {
        let default = if self.ops.is_some() { None } else { RunConfig::DEFAULT.seconds };
        let seconds = self.seconds.map_or(default, |time| (time > Nanos::ZERO).then_some(time));
        let Self { threads, ops, interval, wait, steps, .. } = *self;
        RunConfig { threads, seconds, ops, interval, announce: false, wait, steps }
    }
}

/// `lab` holds no capabilities, so that being root is what helps.
fn as_root(error: ManagerError) -> ManagerError {
    match error {
        ManagerError::Kernel(error) if error.is_denied() => {
            ManagerError::Refused(refusal(error.to_string()))
        }
        error => error,
    }
}

fn refusal(why: String) -> Unsupported {
    Unsupported::because(why).fixed_by(rights::fix_without_capabilities())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        lab: LabArgs,
    }

    fn planned(flags: &str) -> (Spec, RunConfig) {
        let line =
            Line::try_parse_from(["lab", "workload"].into_iter().chain(flags.split(' '))).unwrap();
        let LabVerb::Workload { name } = line.lab.verb else { panic!("not a workload: {flags}") };
        plan(name)
    }

    #[test]
    fn without_flags_the_defaults_of_the_library_hold() {
        let run = RunConfig::DEFAULT;
        assert_eq!(planned("hot-set"), (Spec::HotSet(HotSetConfig::DEFAULT), run));
        assert_eq!(planned("gups"), (Spec::Gups(MemoryConfig::DEFAULT), run));
        assert_eq!(planned("tlb-friendly"), (Spec::TlbFriendly(TlbFriendlyConfig::DEFAULT), run));
        assert_eq!(
            planned("random-access"),
            (Spec::RandomAccess(RandomAccessConfig::default()), run)
        );
    }

    #[test]
    fn a_hash_table_is_filled_once_unless_told_otherwise() {
        let run = |flags: &str| planned(&format!("hash-insert{flags}")).1;
        let once = |entries| RunConfig { ops: Some(entries), seconds: None, ..RunConfig::DEFAULT };
        assert_eq!(
            planned("hash-insert"),
            (Spec::HashInsert(HashInsertConfig::DEFAULT), once(10_000_000))
        );
        assert_eq!(run(" --entries 7"), once(7));
        assert_eq!(run(" --entries 7 --ops 9"), once(9));
        assert_eq!(run(" --seconds 3").seconds, Some(Nanos::seconds(3)));
        assert_eq!((run(" --seconds 0").seconds, run(" --seconds 0").ops), (None, None));
        let asked = planned("hash-insert --entries 7 --pages huge").0;
        assert_eq!(asked, Spec::HashInsert(HashInsertConfig { entries: 7, pages: Pages::Huge }));
    }

    #[test]
    fn bloat_comes_with_huge_pages_unless_told_otherwise() {
        let memory =
            |pages| MemoryConfig { footprint: Bytes::mib(64), pages, ..MemoryConfig::DEFAULT };
        assert_eq!(planned("btree --size 64MiB").0, Spec::BTree(memory(Pages::Huge)));
        assert_eq!(planned("memcached --size 64MiB").0, Spec::Memcached(memory(Pages::Huge)));
        assert_eq!(planned("btree --size 64MiB --pages base").0, Spec::BTree(memory(Pages::Base)));
        assert_eq!(planned("gups --size 64MiB --pages thp").0, Spec::Gups(memory(Pages::Huge)));
    }

    #[test]
    fn every_flag_of_random_access_reaches_it() {
        let flags = "random-access --size 2GiB --bloat 90,50,0 --bloat-side right --layout scattered --hot bloated \
                     --skew 95 --pages base --wait --steps 500";
        let (spec, run) = planned(flags);
        let memory =
            MemoryConfig { footprint: Bytes::gib(2), pages: Pages::Base, ..MemoryConfig::DEFAULT };
        let (side, layout, hot) = (Side::Right, Layout::Scattered, Hot::Bloated);
        let config = RandomAccessConfig {
            memory,
            bloat: vec![90, 50, 0],
            side,
            layout,
            hot,
            skew_percent: 95,
        };
        assert_eq!(spec, Spec::RandomAccess(config));
        assert_eq!((run.wait, run.steps), (true, NonZeroU64::new(500)));
    }

    #[test]
    fn zero_seconds_and_fixed_work_have_no_time_limit() {
        assert_eq!(planned("gups --seconds 0").1.seconds, None);
        assert_eq!(planned("gups --ops 5").1.seconds, None);
        assert_eq!(planned("gups --ops 5 --seconds 2").1.seconds, Some(Nanos::seconds(2)));
    }

    #[test]
    fn every_flag_reaches_the_workload() {
        let flags = "hot-set --footprint 1GiB --hot 8MiB --pattern chase --threads 3 --seconds 500ms --seed 9 \
                     --pages huge --interval 100ms --announce";
        let (spec, run) = planned(flags);
        let memory = MemoryConfig { footprint: Bytes::gib(1), pages: Pages::Huge, seed: 9 };
        assert_eq!(
            spec,
            Spec::HotSet(HotSetConfig { memory, hot: Bytes::mib(8), pattern: Pattern::Chase })
        );
        let (seconds, interval) = (Some(Nanos::millis(500)), Nanos::millis(100));
        assert_eq!(
            run,
            RunConfig { threads: 3, seconds, interval, announce: true, ..RunConfig::DEFAULT }
        );
    }
}
