//! What can go wrong in the laboratory: the cause, then the fix.

use std::io;

use hugepilot_kernel::KernelError;
use hugepilot_record::Errno;
use hugepilot_units::Bytes;

/// So much; a sum that is full is more than it says.
fn or_more(need: Bytes) -> String {
    if need == Bytes::MAX { "more than 16777215TiB".to_owned() } else { need.to_string() }
}

/// Why a workload did not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkloadError {
    /// The machine has not enough memory, and the workload must not make it swap or kill.
    #[error(
        "{workload} needs {need}, but {available} of memory is available and {reserve} of it must stay free; \
         ask for a --footprint of at most {most}"
    )]
    TooLarge {
        /// Which workload.
        workload: &'static str,
        /// What it would take, at its peak.
        need: Bytes,
        /// What is there (`MemAvailable`).
        available: Bytes,
        /// What must be left.
        reserve: Bytes,
        /// The largest footprint that would do.
        most: Bytes,
    },
    /// The same for a workload that is told how many entries it gets.
    #[error(
        "{workload} needs {}, but {available} of memory is available and {reserve} of it must stay free; \
         ask for --entries of at most {most}",
        or_more(*need)
    )]
    TooManyEntries {
        /// Which workload.
        workload: &'static str,
        /// What it would take; [`Bytes::MAX`] for more.
        need: Bytes,
        /// What is there (`MemAvailable`).
        available: Bytes,
        /// What must be left.
        reserve: Bytes,
        /// The most entries that would do.
        most: u64,
    },
    /// No entries.
    #[error("--entries must be at least 1; leave it out for ten million")]
    NoEntries,
    /// The global allocator did not give the memory.
    #[error(
        "the allocator has no memory for the table of {workload}; ask for fewer --entries or raise the limit on \
         address space"
    )]
    Refused {
        /// Which workload.
        workload: &'static str,
    },
    /// A size that leaves nothing to do.
    #[error("{flag} {found} is too small; ask for at least {least}")]
    TooSmall {
        /// The flag that set it.
        flag: &'static str,
        /// What it was set to.
        found: Bytes,
        /// The least that works here.
        least: Bytes,
    },
    /// A part that is larger than the whole.
    #[error(
        "{flag} {found} does not fit into the footprint; ask for at most {most}, or for a larger --footprint"
    )]
    PartTooLarge {
        /// The flag that set it.
        flag: &'static str,
        /// What it was set to.
        found: Bytes,
        /// The most that works with this footprint.
        most: Bytes,
    },
    /// Page control for memory that the global allocator hands out.
    #[error(
        "{workload} takes its memory from the global allocator, so --pages cannot choose its pages; \
         leave --pages out and set transparent huge pages for the whole system or process"
    )]
    PagesNotOurs {
        /// Which workload.
        workload: &'static str,
    },
    /// No threads, or more than there is work to share.
    #[error("{found} threads cannot share this; ask for --threads between 1 and {most}")]
    Threads {
        /// How many were asked for.
        found: usize,
        /// The most that can run.
        most: usize,
    },
    /// Shares of bloat that cannot be.
    #[error("--bloat {what}; 80,20 bloats half of the buffer by 80 % and half by 20 %")]
    Bloat {
        /// What is wrong with them.
        what: &'static str,
    },
    /// A zero interval between lines.
    #[error("--interval must be longer than 0; leave it out for one line per second")]
    NoInterval,
    /// The kernel did not give the memory.
    #[error(
        "cannot reserve {len}: {errno}; ask for a smaller --footprint or raise the limit on address space"
    )]
    Map {
        /// How much.
        len: Bytes,
        /// The kernel's answer.
        errno: Errno,
    },
    /// With [`RunConfig::wait`](crate::RunConfig::wait), something else came than was waited for.
    #[error(
        "waited for a line `go` on stdin and got {found}; send it once the work may begin, or leave out --wait"
    )]
    NotTold {
        /// What came.
        found: String,
    },
    /// What was computed or read back is not what it must be: memory was lost or changed.
    #[error("the memory of {workload} is damaged: what it holds is not what was written")]
    Damaged {
        /// Which workload.
        workload: &'static str,
    },
    /// A program that a workload runs is not there.
    #[error("no {program} in PATH; install the package {package}")]
    NoProgram {
        /// The program.
        program: &'static str,
        /// The package that brings it, on Debian.
        package: &'static str,
    },
    /// A server that a workload runs does not do what it should.
    #[error("memcached {what}; what it printed itself, above, may say why")]
    Server {
        /// What it did.
        what: String,
    },
    /// The machine could not be looked at.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The lines could not be written. A closed pipe is no error: it ends the run.
    #[error("cannot write the measurements")]
    Output(#[from] io::Error),
}
