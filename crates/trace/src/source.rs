//! Traces: the data accesses of a program, delivered in order to a sink.
//!
//! A [`TraceSource`] is a stored trace, a log of another tool, or a program that runs under an
//! [`Engine`]. [`trace`] delivers its pieces: mappings before the first access in them, unless the
//! program maps all the time, and the accesses. [`TraceOptions`] select a part. The sink may end
//! the source early.
//!
//! Only loads and stores of data are traced, in virtual addresses; no instruction fetches, and no
//! accesses by the kernel during system calls.
//!
//! # Programs
//!
//! QEMU runs the program with a plugin of hugepilot (`plugin.c`). `cc` compiles it at each start.
//! Memory of `mmap` has the addresses that Linux would give to it without ASLR, so that mappings
//! have the order and the sizes of a native run. Other addresses are those in QEMU. Identify memory
//! by mapping and offset. Rules:
//!
//! - QEMU splits accesses of 16 and 32 bytes, and reports a repeated string instruction byte by
//!   byte. A part is *folded* into the one before if both belong to one instruction, have the same
//!   direction, are adjacent and lie in one 64-byte line. So `rep stosb` is one store per line.
//! - An instruction that loads and stores is a load and a store. With several threads, an atomic
//!   one is a store only.
//! - Threads are ordered by the chunks of 8192 accesses that they fill. A thread that waits keeps
//!   its chunk until it goes on or the program ends.
//! - Forked children are not traced, and neither is a program after `execve`.
//!
//! Lackey, a tool of valgrind, is the slow fallback. It runs one thread at a time and does not name
//! it, so the trace has one thread. It reports accesses as the CPU makes them: nothing is folded.

mod channel;
mod delivery;
mod engine;
mod file;
mod lackey;
mod log;
mod mappings;
mod qemu;

use std::ffi::OsString;
use std::fmt;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;

use hugepilot_record::Ending;
use hugepilot_record::trace::{TracePiece, TraceWarning};

use delivery::Delivery;

use crate::TraceError;
use crate::graph::{GraphTrace, trace_graph};

/// Receiver of pieces, each with the position of its block if it is of a stored trace. After a
/// `Break` it gets no more.
pub type TraceSink<'a> = dyn FnMut(TracePiece, Option<u64>) -> ControlFlow<()> + 'a;

/// Source of a trace.
#[derive(Clone, Debug)]
pub enum TraceSource {
    /// Program with its arguments. Its stdout goes to stderr.
    Program {
        /// Program and arguments.
        command: Vec<OsString>,
        /// Engine that runs it.
        engine: Engine,
    },
    /// Stored trace, as [`hugepilot_record::trace::TraceWriter`] writes it.
    File(PathBuf),
    /// Log of another tool. It has no mappings.
    Log {
        /// File; `-` is the standard input.
        path: PathBuf,
        /// Format.
        format: LogFormat,
    },
    /// Kernel on a graph, which records its own accesses.
    Graph(Box<GraphTrace>),
}

/// Format of a log with accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text of `valgrind --tool=lackey --trace-mem=yes`: lines ` L ADDRESS,SIZE` (load), ` S`
    /// (store) and ` M` (load and store). Lines of instructions and messages are ignored.
    Lackey,
    /// Text of `perf script -F tid,addr`, optionally with `comm`, `pid`, `time` and `event`. An
    /// event with `store` in its name is a store. Samples without an address in the program are
    /// lost.
    Perf,
    /// Text of drmemtrace's view tool. Reads and writes are accesses; the threads of a workload are
    /// kept apart from those of others.
    Drmemtrace,
}

impl LogFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Lackey, Self::Perf, Self::Drmemtrace];

    /// Returns its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lackey => "lackey",
            Self::Perf => "perf",
            Self::Drmemtrace => "drmemtrace",
        }
    }

    /// Returns a line with an access.
    pub(crate) const fn example(self) -> &'static str {
        match self {
            Self::Lackey => " L 1fff000698,8",
            Self::Perf => "17918 7f3d37fed110",
            Self::Drmemtrace => "10 2: W0.T3256418 write 8 byte(s) @ 0x00007fff9a9e3528",
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        let names = || Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("unknown format {text:?}; formats: {}", names()))
    }
}

/// Program that runs another one and reports its accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// User mode of QEMU (`qemu-x86_64`, Debian package `qemu-user`).
    #[default]
    Qemu,
    /// Lackey of valgrind, hundreds of times slower (Debian package `valgrind`).
    Lackey,
}

impl Engine {
    /// All engines, the preferred one first.
    pub const ALL: [Self; 2] = [Self::Qemu, Self::Lackey];

    /// Returns its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Lackey => "lackey",
        }
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Engine {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|engine| engine.name() == text);
        let names = || Self::ALL.map(Self::name).join(", ");
        found.ok_or_else(|| format!("unknown engine {text:?}; engines: {}", names()))
    }
}

/// Selected part of a trace. The default is all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceOptions {
    /// Phase at whose first begin the selection begins.
    pub from_phase: Option<String>,
    /// Phase after it at whose begin the source ends.
    pub to_phase: Option<String>,
    /// Accesses at the start that are not delivered.
    pub skip: u64,
    /// Accesses after which the source ends.
    pub max_accesses: Option<u64>,
    /// Part of the accesses after the skipped ones.
    pub window: Option<TraceWindow>,
}

/// First accesses of each period, such as `1000000/100000000`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceWindow {
    /// Accesses that are delivered of each `of`.
    pub deliver: u64,
    /// Length of the period, at least `deliver`.
    pub of: u64,
}

impl FromStr for TraceWindow {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('/').and_then(|(deliver, of)| {
            Some(Self { deliver: deliver.parse().ok()?, of: of.parse().ok()? })
        });
        numbers
            .filter(|window| (1..=window.of).contains(&window.deliver))
            .ok_or_else(|| format!("{text:?} is not N/M with 1 ≤ N ≤ M, such as 1000000/100000000"))
    }
}

impl fmt::Display for TraceWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.deliver, self.of)
    }
}

/// End of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEnd {
    /// Reason of the end.
    pub stop: TraceStop,
    /// End of the program; `None` for a file.
    pub ending: Option<Ending>,
    /// Accesses that the sink received.
    pub delivered: u64,
    /// Accesses outside the selected part.
    pub omitted: u64,
    /// Accesses folded into the one before, because one instruction made both in one 64-byte line.
    pub folded: u64,
    /// Accesses that the engine saw and could not deliver.
    pub lost: u64,
    /// Children that the program forked. They are not traced.
    pub forks: u64,
    /// Whether the trace has its end: `false` for a file that was cut, and for a program that
    /// replaced itself by `execve`, was killed, or ended without notice of the engine.
    pub is_complete: bool,
    /// Byte of a stored trace from which on nothing could be read, because it was cut there.
    pub cut: Option<u64>,
    /// Warnings that a stored trace has about itself.
    pub stored: Vec<TraceWarning>,
}

impl TraceEnd {
    /// Returns the end of a complete trace; the source adds what it knows.
    pub(crate) const fn new(stop: TraceStop, delivered: u64, omitted: u64) -> Self {
        Self {
            stop,
            ending: None,
            delivered,
            omitted,
            folded: 0,
            lost: 0,
            forks: 0,
            is_complete: true,
            cut: None,
            stored: Vec::new(),
        }
    }

    /// Returns what the user should know about it.
    pub fn warnings(&self) -> Vec<TraceWarning> {
        let mut warnings = self.stored.clone();
        if self.forks > 0 {
            warnings.push(TraceWarning::Forked { children: self.forks });
        }
        if self.lost > 0 {
            warnings.push(TraceWarning::Lost { accesses: self.lost });
        }
        if self.stop == TraceStop::End && self.stored.is_empty() {
            warnings.extend(self.early_end());
        }
        if self.delivered == 0 {
            warnings.push(TraceWarning::Empty { omitted_accesses: self.omitted });
        }
        warnings
    }

    /// Returns what a file of this trace should state about itself: the part of the program that it
    /// has, and the warnings. A sink that ended the source is one with a limit of bytes.
    pub fn stated(&self, options: &TraceOptions) -> Vec<TraceWarning> {
        let is_of_phases = options.from_phase.is_some() || self.stop == TraceStop::Phase;
        let phases = is_of_phases.then_some(TraceWarning::Phases);
        let (accesses, is_windowed) = (options.skip, self.omitted > options.skip);
        let skipped = (accesses > 0).then_some(TraceWarning::Skipped { accesses });
        let window = options.window.filter(|window| is_windowed && window.deliver < window.of);
        let windowed = window.map(|TraceWindow { deliver, of }| TraceWarning::Windowed {
            accesses: deliver,
            of_accesses: of,
        });
        let stop = match self.stop {
            TraceStop::End | TraceStop::Phase => None,
            TraceStop::MaxAccesses => Some(TraceWarning::MaxAccesses),
            TraceStop::Sink => Some(TraceWarning::MaxBytes),
            TraceStop::Interrupted => Some(TraceWarning::Interrupted),
        };
        [phases, skipped, windowed, stop].into_iter().flatten().chain(self.warnings()).collect()
    }

    /// Returns how the source ended, unless with success.
    const fn early_end(&self) -> Option<TraceWarning> {
        match self.ending {
            Some(Ending::Exited(0)) | None if self.is_complete => None,
            Some(Ending::Exited(status)) if self.is_complete => {
                Some(TraceWarning::Failed { status })
            }
            Some(Ending::Exited(_)) => Some(TraceWarning::Replaced),
            Some(Ending::Killed(signal)) => Some(TraceWarning::Killed { signal }),
            None => Some(TraceWarning::Cut),
        }
    }
}

/// Reason of the end of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceStop {
    /// The source has no more.
    End,
    /// [`TraceOptions::max_accesses`] were delivered.
    MaxAccesses,
    /// [`TraceOptions::to_phase`] began.
    Phase,
    /// The sink returned `Break`.
    Sink,
    /// `interrupted` returned `true`.
    Interrupted,
}

/// Delivers the selected part of `source` to `sink`. Threads are numbered from 0 in the order of
/// first use; under QEMU, numbers of threads that have ended are used again. `interrupted` is
/// called at least ten times a second; if it returns `true`, the source ends. A program that still
/// runs then is ended.
///
/// # Errors
/// An unreadable or damaged file, with its position; a missing engine; [`TraceError::Start`] for a
/// program that cannot be started; [`TraceError::NoPhase`].
pub fn trace(
    source: &TraceSource,
    options: &TraceOptions,
    interrupted: &dyn Fn() -> bool,
    sink: &mut TraceSink<'_>,
) -> Result<TraceEnd, TraceError> {
    let mut delivery = Delivery::new(options, interrupted, sink);
    let end = match source {
        TraceSource::Program { command, engine: Engine::Qemu } => {
            qemu::trace(command, &mut delivery)
        }
        TraceSource::Program { command, engine: Engine::Lackey } => {
            lackey::trace(command, &mut delivery)
        }
        TraceSource::File(path) => file::read(path, &mut delivery),
        TraceSource::Log { path, format } => log::read(path, *format, &mut delivery),
        TraceSource::Graph(spec) => trace_graph(spec, &mut |piece| delivery.piece(piece))
            .map(|_| delivery.end())
            .map_err(TraceError::from),
    }?;
    match delivery.missing_phase() {
        Some((phase, known)) if end.stop == TraceStop::End => {
            Err(TraceError::NoPhase { phase, known })
        }
        _ => Ok(end),
    }
}

/// Delivers the selected part of what `source` gives to `sink`.
pub(crate) fn select(
    options: &TraceOptions,
    interrupted: &dyn Fn() -> bool,
    sink: &mut TraceSink<'_>,
    source: impl FnOnce(&mut dyn FnMut(TracePiece) -> ControlFlow<()>),
) -> TraceEnd {
    let mut delivery = Delivery::new(options, interrupted, sink);
    source(&mut |piece| delivery.piece(piece));
    delivery.end()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_trace_gives_its_warnings() {
        let end = TraceEnd::new(TraceStop::End, 1, 0);
        let end = TraceEnd { ending: Some(Ending::Exited(0)), ..end };
        assert_eq!(end.warnings(), []);
        let failed = TraceEnd { ending: Some(Ending::Exited(3)), ..end.clone() };
        assert_eq!(failed.warnings(), [TraceWarning::Failed { status: 3 }]);
        let cut = TraceEnd { is_complete: false, ..end.clone() };
        assert_eq!(cut.warnings(), [TraceWarning::Replaced]);
        let killed = TraceEnd { ending: Some(Ending::Killed(9)), ..cut.clone() };
        assert_eq!(killed.warnings(), [TraceWarning::Killed { signal: 9 }]);
        let limited = TraceEnd { stop: TraceStop::MaxAccesses, ..killed };
        assert_eq!(limited.warnings(), []);
        let file = TraceEnd { ending: None, forks: 2, lost: 3, delivered: 0, ..cut };
        let expected = [
            TraceWarning::Forked { children: 2 },
            TraceWarning::Lost { accesses: 3 },
            TraceWarning::Cut,
            TraceWarning::Empty { omitted_accesses: 0 },
        ];
        assert_eq!(file.warnings(), expected);
        let stored = vec![TraceWarning::Killed { signal: 9 }];
        let stored = TraceEnd { stored, delivered: 1, forks: 0, lost: 0, ..file };
        assert_eq!(stored.warnings(), stored.stored);
    }

    #[test]
    fn a_file_states_which_part_of_the_program_it_has() {
        let all = TraceOptions::default();
        let ended = |stop| TraceEnd::new(stop, 60, 40);
        let end = ended(TraceStop::End);
        assert_eq!(TraceEnd { omitted: 0, ..end.clone() }.stated(&all), []);
        let skipped = [TraceWarning::Skipped { accesses: 40 }];
        let window = |deliver, of, skip| TraceOptions {
            skip,
            window: Some(TraceWindow { deliver, of }),
            ..TraceOptions::default()
        };
        let windowed = |accesses| TraceWarning::Windowed { accesses, of_accesses: 10 };
        assert_eq!(end.stated(&TraceOptions { skip: 40, ..all.clone() }), skipped);
        // The program ended within the first window.
        assert_eq!(end.stated(&window(6, 10, 40)), skipped);
        assert_eq!(end.stated(&window(6, 10, 0)), [windowed(6)]);
        assert_eq!(end.stated(&window(10, 10, 0)), []);
        for (stop, warning) in [
            (TraceStop::MaxAccesses, TraceWarning::MaxAccesses),
            (TraceStop::Sink, TraceWarning::MaxBytes),
            (TraceStop::Interrupted, TraceWarning::Interrupted),
            (TraceStop::Phase, TraceWarning::Phases),
        ] {
            assert_eq!(ended(stop).stated(&all), [warning]);
        }
        let killed = TraceEnd { ending: Some(Ending::Killed(9)), is_complete: false, ..end };
        let expected = [windowed(6), TraceWarning::Killed { signal: 9 }];
        assert_eq!(killed.stated(&window(6, 10, 0)), expected);
    }

    #[test]
    fn a_window_is_two_numbers() {
        let window = TraceWindow { deliver: 10, of: 200 };
        assert_eq!("10/200".parse(), Ok(window));
        assert_eq!(window.to_string(), "10/200");
        for wrong in ["", "10", "0/5", "6/5", "1/0", "a/b", "-1/5", "1/2/3"] {
            assert!(wrong.parse::<TraceWindow>().is_err(), "{wrong}");
        }
    }
}
