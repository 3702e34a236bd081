//! Failures of this crate.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use hugepilot_graph::GraphError;
use hugepilot_kernel::WatcherKilled;
use hugepilot_kernel::proc::{printable, printable_path};
use hugepilot_record::Ending;
use hugepilot_record::trace::TraceError as FormatError;
use hugepilot_units::Bytes;

use crate::source::LogFormat;

/// Failure of a source of accesses, or of a simulation of them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The program, or its engine, could not be started.
    #[error("cannot start {program:?}: {source}")]
    Start {
        /// The program.
        program: String,
        /// Cause.
        source: io::Error,
    },
    /// Hugepilot's process that watches the engine was killed.
    #[error("cannot follow {engine:?}: {}", WatcherKilled)]
    Unwatched {
        /// The engine.
        engine: String,
    },
    /// A program that an engine needs is missing.
    #[error("{program} is missing")]
    Missing {
        /// The program.
        program: &'static str,
        /// Debian package that has it.
        package: &'static str,
    },
    /// The engine runs only 64-bit programs for x86-64.
    #[error("{} is {what}; only 64-bit programs for x86-64 can be traced", printable_path(.path))]
    NotTraceable {
        /// The program.
        path: PathBuf,
        /// Kind of the file.
        what: &'static str,
    },
    /// The plugin for QEMU does not compile.
    #[error("cc cannot compile the plugin for QEMU: {problem}")]
    Compiler {
        /// First line of its output, or its exit status.
        problem: String,
    },
    /// The engine ended before the program began.
    #[error("{engine} ended before the program began ({ending})")]
    Engine {
        /// The engine.
        engine: &'static str,
        /// Its end.
        ending: Ending,
    },
    /// The accesses could not be received.
    #[error("cannot receive accesses from {engine}: {problem}")]
    Receive {
        /// The engine.
        engine: &'static str,
        /// Cause.
        problem: String,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", printable_path(.path))]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// A line of a log is not understood.
    #[error("{}: line {number}: {problem}", printable_path(.path))]
    Line {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: LogFormat,
        /// Line, from 1.
        number: u64,
        /// The problem.
        problem: String,
    },
    /// A stored trace is damaged, or not a trace.
    #[error("{}: {source}", printable_path(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Cause, with the position.
        source: FormatError,
    },
    /// A stored trace is complete and has no access.
    #[error("{}: the trace has no access", printable_path(.path))]
    NoAccess {
        /// The file.
        path: PathBuf,
    },
    /// No phase has the name at which the selected part begins.
    #[error("no phase {phase:?}")]
    NoPhase {
        /// Name.
        phase: String,
        /// Names of some phases.
        known: Vec<String>,
    },
    /// A log has no access.
    #[error(
        "{}: {}; expected lines such as {:?}",
        printable_path(.path), no_access(*.lost), .format.example()
    )]
    NoAccessInLog {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: LogFormat,
        /// Accesses without an address in the program.
        lost: u64,
    },
    /// A graph could not be read or built, or its kernel failed.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// More sources than a simulation takes.
    #[error("{sources} sources; at most {most} are simulated together")]
    TooManySources {
        /// Sources.
        sources: usize,
        /// Sources, at most.
        most: usize,
    },
    /// The sources access more memory than a simulation takes.
    #[error("the accesses are to more than {most} of memory, the most that is simulated")]
    TooMuchMemory {
        /// Accesses of each source before.
        fit: u64,
        /// Memory, at most, in whole regions of 2 MiB.
        most: Bytes,
    },
    /// The simulated machines need more memory than there is.
    #[error(
        "simulating {} with {} and {} needs {needed} of memory; {available} are available",
        counted(*.machines as u64, "machine", "machines"),
        counted(*.threads, "thread", "threads"),
        counted(*.regions, "region", "regions")
    )]
    TooLargeMachines {
        /// Accesses of each source before.
        fit: u64,
        /// Machines: one for each page size, or for each policy and budget.
        machines: usize,
        /// Threads so far, each of which has a core of each machine.
        threads: u64,
        /// Regions so far.
        regions: u64,
        /// Memory for that.
        needed: Bytes,
        /// Memory at the start of the simulation.
        available: Bytes,
    },
    /// The data of each page needs more memory than there is.
    #[error(
        "the reuse of the pages of {} needs {needed} of memory; {available} are available",
        counted(*.regions, "region", "regions")
    )]
    TooManyPages {
        /// Accesses of each source before.
        fit: u64,
        /// Regions so far.
        regions: u64,
        /// Memory for their pages.
        needed: Bytes,
        /// Memory at the start of the simulation.
        available: Bytes,
    },
    /// The sources have more threads than a simulation takes.
    #[error("the sources have more than {most} threads at a time, the most that are simulated")]
    TooManyThreads {
        /// Accesses of each source before.
        fit: u64,
        /// Threads, at most.
        most: u16,
    },
    /// The mappings of a stored trace need more memory than a simulation takes for them.
    #[error(
        "{origin}: block at byte {at}, after access {accesses}: its mappings and the former ones \
         need {needed} of memory; at most {most}"
    )]
    TooManyMappings {
        /// Name of the stored trace, safe on a terminal.
        origin: String,
        /// Position of the block that has them.
        at: u64,
        /// Accesses of the selected part before them.
        accesses: u64,
        /// Memory for them.
        needed: Bytes,
        /// Memory, at most.
        most: Bytes,
    },
}

fn no_access(lost: u64) -> String {
    match lost {
        0 => "no line is an access".to_owned(),
        lost => {
            let accesses = counted(lost, "access", "accesses");
            format!("no address is one of the program in {accesses}")
        }
    }
}

fn counted(count: u64, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Help for a file that cannot be read; it may be the name of a generated graph.
fn read_help(name: &str) -> String {
    match name.split_once(':') {
        Some(("kronecker" | "uniform" | "grid", _)) => {
            format!("name a generated graph with its kernel: --graph {name} --kernel bfs")
        }
        _ => "name a trace: hugepilot trace -o FILE -- CMD writes one".to_owned(),
    }
}

impl TraceError {
    pub(crate) fn start(program: &OsStr, source: io::Error) -> Self {
        Self::Start { program: program.to_string_lossy().into_owned(), source }
    }

    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Read { path: path.to_owned(), source }
    }

    /// Returns suggestions, the likeliest first.
    pub fn help(&self) -> Vec<String> {
        let help: &[&str] = match self {
            Self::Missing { package, .. } => {
                return vec![format!("sudo apt-get install {package}")];
            }
            Self::NotTraceable { what: "a script", .. } => {
                &["trace its interpreter: hugepilot trace … -- /bin/sh SCRIPT"]
            }
            Self::Read { path, .. } => return vec![read_help(&printable_path(path))],
            Self::Unwatched { .. } => &[WatcherKilled::HELP],
            Self::NotTraceable { .. }
            | Self::Receive { .. }
            | Self::Start { .. }
            | Self::Graph(_) => &[],
            Self::Compiler { .. } => &["install the headers of C: sudo apt-get install libc6-dev"],
            Self::Engine { engine: "qemu-x86_64", .. } => &[
                "read its message above",
                "install QEMU 6.0 to 8.2 with plugins: sudo apt-get install qemu-user",
            ],
            Self::Engine { .. } => &["read its message above"],
            Self::Line { format: LogFormat::Lackey, .. }
            | Self::NoAccessInLog { format: LogFormat::Lackey, .. } => {
                &["make the log again: valgrind --tool=lackey --trace-mem=yes --log-file=FILE CMD"]
            }
            Self::Line { format: LogFormat::Perf, .. }
            | Self::NoAccessInLog { format: LogFormat::Perf, .. } => {
                &["make the text again: perf script -F comm,tid,time,event,addr"]
            }
            Self::Line { format: LogFormat::Drmemtrace, .. }
            | Self::NoAccessInLog { format: LogFormat::Drmemtrace, .. } => {
                &["make the text again: drrun -t drmemtrace -tool view -indir DIR 2> FILE"]
            }
            Self::Damaged { source: FormatError::Header(_), .. } => {
                &["record a trace: hugepilot trace -o FILE -- CMD"]
            }
            Self::NoAccess { .. } => {
                &["record it again without --skip: hugepilot trace -o FILE -- CMD"]
            }
            Self::Damaged { .. } => &["record the trace again: hugepilot trace -o FILE -- CMD"],
            Self::NoPhase { known, .. } if known.is_empty() => {
                &["omit --from-phase: the source has no phases"]
            }
            Self::NoPhase { known, .. } => {
                let known = printable(known.join(", ").as_bytes());
                return vec![format!("name one of its phases: {known}")];
            }
            Self::TooManySources { most, .. } => {
                return vec![format!("name at most {most} sources")];
            }
            Self::TooLargeMachines { .. } => {
                &["simulate fewer machines: --pages 4k, --policies pcc, --budgets 4%"]
            }
            Self::TooManyThreads { .. }
            | Self::TooManyMappings { .. }
            | Self::TooManyPages { .. }
            | Self::TooMuchMemory { .. } => &[],
        };
        let part = self.fit().map(|fit| format!("simulate a part: --max-accesses {fit}"));
        help.iter().map(|&help| help.to_owned()).chain(part).collect()
    }

    /// Returns the accesses of each source that a simulation can execute, if it is a limit of
    /// simulations that was exceeded.
    fn fit(&self) -> Option<u64> {
        let fit = match *self {
            Self::TooLargeMachines { fit, .. }
            | Self::TooManyThreads { fit, .. }
            | Self::TooManyPages { fit, .. }
            | Self::TooMuchMemory { fit, .. }
            | Self::TooManyMappings { accesses: fit, .. } => fit,
            _ => 0,
        };
        (fit > 0).then_some(fit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_controls_no_terminal() {
        let path = PathBuf::from("a\u{1b}[31m\nb");
        let source = io::Error::other("gone");
        let errors = [TraceError::read(&path)(source), TraceError::NoAccess { path }];
        let expected =
            ["cannot read a\\u{1b}[31m\\nb: gone", "a\\u{1b}[31m\\nb: the trace has no access"];
        assert_eq!(errors.map(|error| error.to_string()), expected);
        let graph = TraceError::read(Path::new("kronecker:14"))(io::Error::other("gone"));
        let help = "name a generated graph with its kernel: --graph kronecker:14 --kernel bfs";
        assert_eq!(graph.help(), [help]);
        let known = vec!["a\u{1b}[31m".to_owned(), "b".to_owned()];
        let error = TraceError::NoPhase { phase: "c\n".to_owned(), known };
        assert_eq!(error.to_string(), "no phase \"c\\n\"");
        assert_eq!(error.help(), ["name one of its phases: a\\u{1b}[31m, b"]);
    }
}
