//! Errors of workloads, each with a suggestion.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use hugepilot_alloc::AllocError;
use hugepilot_kernel::{KernelError, OwnMemory, file};
use hugepilot_record::Errno;
use hugepilot_units::Bytes;

/// Failure to run a workload. [`WorkloadError::help`] suggests what to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// Not enough memory: a workload must cause neither swapping nor an OOM kill.
    #[error("cannot run {workload}: {required} required, {memory}")]
    TooLarge {
        /// The workload.
        workload: &'static str,
        /// Its peak memory use.
        required: Bytes,
        /// Memory that this process may take.
        memory: OwnMemory,
        /// The flag that set its size.
        flag: &'static str,
        /// The largest value of the flag that fits.
        max: Bytes,
    },
    /// Not enough memory for the entries of a table.
    #[error("cannot run {workload}: {} required, {memory}", or_more(*required))]
    TooManyEntries {
        /// The workload.
        workload: &'static str,
        /// Its peak memory use; [`Bytes::MAX`] if the sum overflows.
        required: Bytes,
        /// Memory that this process may take.
        memory: OwnMemory,
        /// The largest number of entries that fits.
        max_entries: u64,
    },
    /// A table without entries.
    #[error("--entries is 0")]
    NoEntries,
    /// An allocation of the global allocator failed.
    #[error("cannot allocate the table of {workload}: out of memory")]
    NoMemory {
        /// The workload.
        workload: &'static str,
    },
    /// A size that leaves no work.
    #[error("{flag} {value} is too small")]
    TooSmall {
        /// The flag that set it.
        flag: &'static str,
        /// Its value.
        value: Bytes,
        /// The smallest accepted value.
        min: Bytes,
    },
    /// A part larger than the footprint.
    #[error("{flag} {value} exceeds the footprint")]
    PartTooLarge {
        /// The flag that set it.
        flag: &'static str,
        /// Its value.
        value: Bytes,
        /// The largest value for this footprint.
        max: Bytes,
    },
    /// A number of hot pages that is 0 or does not fit beside the scan.
    #[error("cannot use {value} hot pages")]
    HotPages {
        /// The requested number.
        value: usize,
        /// The largest number for this footprint.
        max: u64,
    },
    /// A choice of pages for memory that an allocator hands out.
    #[error("cannot choose the pages of {workload}: an allocator hands out its memory")]
    PagesUnsupported {
        /// The workload.
        workload: &'static str,
    },
    /// No threads, or more than the work can be divided among.
    #[error("cannot divide the work among {threads} threads")]
    Threads {
        /// The requested number.
        threads: usize,
        /// The largest accepted number.
        max: usize,
    },
    /// Invalid shares of bloat.
    #[error("invalid --bloat: {0}")]
    Bloat(BloatFault),
    /// A number of chains that `pchase` does not have.
    #[error("cannot run {chains} chains per thread")]
    Chains {
        /// The requested number.
        chains: u32,
        /// The largest accepted number.
        max: u32,
    },
    /// A number of rounds that a benchmark does not have.
    #[error("cannot run {rounds} rounds")]
    Rounds {
        /// The requested number.
        rounds: u32,
        /// The smallest accepted number.
        min: u32,
        /// The largest accepted number.
        max: u32,
    },
    /// The requested kind of page is not available.
    #[error(transparent)]
    Pages(AllocError),
    /// A zero interval between lines.
    #[error("--interval is 0")]
    NoInterval,
    /// The kernel did not map the memory.
    #[error("cannot reserve {len}: {errno}")]
    Map {
        /// The length of the mapping.
        len: Bytes,
        /// The error of `mmap`.
        errno: Errno,
    },
    /// Input other than the line `go` with [`RunConfig::wait`](crate::RunConfig::wait).
    #[error("expected a line `go` on stdin, got {found}")]
    NotGo {
        /// The input: a quoted line, the end of the input, or an error.
        found: String,
    },
    /// A wrong result: memory was lost or changed.
    #[error("{workload} read other values than it wrote: its memory is damaged")]
    Damaged {
        /// The workload.
        workload: &'static str,
    },
    /// A required program is not installed.
    #[error("cannot find {program} in PATH")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// Its Debian package.
        package: &'static str,
    },
    /// Failure of the memcached server.
    #[error("memcached {0}")]
    Server(ServerFault),
    /// The machine's memory or page sizes cannot be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A line cannot be written. A closed pipe is not an error: it ends the run.
    #[error("cannot write the measurements to stdout: {0}")]
    Output(#[from] io::Error),
}

/// Fault of the shares of bloat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BloatFault {
    /// No share, or more shares than a buffer is divided into.
    #[error("{count} shares")]
    Count {
        /// The number of shares.
        count: usize,
    },
    /// A share, or that of the hot updates, above 100 %.
    #[error("a share or --skew exceeds 100 %")]
    Percent,
    /// Shares that leave no page for the work.
    #[error("no page is left to use")]
    NoUsedPage,
}

/// Fault of the memcached server.
#[derive(Debug, thiserror::Error)]
pub enum ServerFault {
    /// The directory of its socket cannot be created.
    #[error("has no directory for its socket: {0}")]
    Directory(io::Error),
    /// A failed start.
    #[error("cannot be started: {0}")]
    Start(io::Error),
    /// An end before it listened.
    #[error("ended at its start: {0}")]
    Ended(ExitStatus),
    /// No socket within the time limit.
    #[error("does not listen after {0:?}")]
    NotListening(Duration),
    /// A refused connection.
    #[error("refused a connection: {0}")]
    Refused(io::Error),
    /// Missing or evicted items.
    #[error(
        "stored {} of {count} items and evicted {}",
        or_unknown(*.stored),
        or_unknown(*.evicted)
    )]
    Stored {
        /// The number of items sent.
        count: usize,
        /// The number of items that it reports; `None` if it does not.
        stored: Option<usize>,
        /// The number of evictions that it reports; `None` if it does not.
        evicted: Option<usize>,
    },
    /// A failed connection.
    #[error("does not answer: {0}")]
    Connection(io::Error),
    /// A closed connection.
    #[error("closed the connection")]
    Closed,
    /// An answer outside the protocol.
    #[error("answered {0:?}")]
    Answer(String),
}

impl WorkloadError {
    /// The suggestion, if there is one.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::TooLarge { flag, max, .. } => format!("reduce {flag} to {max} or less"),
            Self::TooManyEntries { max_entries, .. } => {
                format!("reduce --entries to {max_entries} or less")
            }
            Self::NoEntries => "omit --entries for ten million, or use at least 1".to_owned(),
            Self::NoMemory { .. } => {
                "reduce --entries, or raise the limit on address space: ulimit -v".to_owned()
            }
            Self::TooSmall { flag, min, .. } => format!("use {flag} {min} or more"),
            Self::PartTooLarge { flag, max, .. } => {
                format!("use {flag} {max} or less, or a larger --footprint")
            }
            Self::HotPages { max, .. } => {
                format!("use --hot-pages between 1 and {max}, or a larger --footprint")
            }
            Self::PagesUnsupported { .. } => {
                "omit --pages, and set transparent huge pages for the system or the process"
                    .to_owned()
            }
            Self::Threads { max, .. } => format!("use --threads between 1 and {max}"),
            Self::Chains { max, .. } => format!("use --chains between 1 and {max}"),
            Self::Rounds { min, max, .. } => format!("use --rounds between {min} and {max}"),
            Self::Pages(error) => return crate::micro::help(error),
            Self::Bloat(_) => "use 1 to 64 shares from 0 to 100, such as --bloat 80,20".to_owned(),
            Self::NoInterval => "omit --interval for one line per second".to_owned(),
            Self::Map { .. } => {
                "reduce --footprint, or raise the limit on address space: ulimit -v".to_owned()
            }
            Self::NotGo { .. } => "send `go` after `ready`, or omit --wait".to_owned(),
            Self::NoProgram { package, .. } => {
                format!("install it: sudo apt-get install {package}")
            }
            Self::Server(_) => "read its messages above".to_owned(),
            Self::Output(_) => file::STDOUT_HELP.to_owned(),
            Self::Damaged { .. } | Self::Kernel(_) => return None,
        })
    }
}

fn or_more(required: Bytes) -> String {
    if required == Bytes::MAX { "more than 16777215TiB".to_owned() } else { required.to_string() }
}

fn or_unknown(count: Option<usize>) -> String {
    count.map_or_else(|| "an unknown number".to_owned(), |count| count.to_string())
}
