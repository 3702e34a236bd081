//! Comparison of a program in several page modes, in interleaved runs: each round has one run of
//! each mode, and starts with a different one.

mod contender;
mod observe;
mod session;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{KernelError, Root, cpu, memory};
use hugepilot_record::Mode;
use hugepilot_reports::compare::{CompareReport, DecidingTime, ModeReport, Reach, SCHEMA, Verdict};
use hugepilot_reports::run::{EffectCause, Run};
use hugepilot_units::Bytes;

use contender::Contender;
use session::Session;

use crate::run::setup::Setup;
use crate::run::{Control, RunOptions};
use crate::{LaunchError, confirming_rounds};

/// Modes and rounds of a comparison.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Modes besides `base`.
    pub modes: Vec<Mode>,
    /// Rounds.
    pub rounds: u32,
    /// Libraries to preload instead of the installed ones: mimalloc by its name, hugepilot's
    /// otherwise.
    pub libraries: Vec<PathBuf>,
    /// Free memory in a mode's hugetlb pool during each of its runs.
    pub pool: Option<Bytes>,
    /// Whether to sample stalls, in an untimed run of each mode.
    pub stalls: bool,
    /// Whether the program's output goes to stderr instead of `/dev/null`.
    pub show_output: bool,
}

/// Progress of a comparison.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Size of the comparison, before its first run.
    Start(ComparisonSize),
    /// An untimed run, for warm-up and sampling.
    WarmingUp(Mode),
    /// A timed run: its round, from 1, and all rounds.
    Running(Mode, u32, u32),
    /// A timed run of a confirmation round: its round, from 1, and all rounds.
    Confirming(Mode, u32, u32),
    /// A timed run is over.
    Ran {
        /// Its mode.
        mode: Mode,
        /// Whether the best mode is being confirmed.
        confirming: bool,
        /// Round, from 1.
        round: u32,
        /// Time and memory.
        run: &'a Run,
    },
    /// A complete round.
    Round(RoundProgress),
    /// A mode that is unavailable on this machine.
    Unavailable(&'a ModeReport),
}

/// Size of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ComparisonSize {
    /// Modes, `base` included.
    pub modes: usize,
    /// Rounds.
    pub rounds: u32,
    /// Confirmation rounds that may follow; 0 if none can.
    pub confirming_rounds: u32,
}

impl ComparisonSize {
    /// Most modes of a confirmation round: `base`, the best mode, and its allocator alone.
    const CONFIRMED_MODES: u32 = 3;

    /// Only the best of several modes is confirmed.
    fn new(modes: usize, rounds: u32) -> Self {
        let confirming_rounds = if modes > 2 { confirming_rounds(rounds) } else { 0 };
        Self { modes, rounds, confirming_rounds }
    }

    /// Estimates the longest confirmation, if `rounds` of all modes took the `spent` time.
    fn confirmation(self, rounds: u32, spent: Duration) -> Duration {
        let modes = u32::try_from(self.modes).unwrap_or(u32::MAX).max(1);
        spent / rounds.max(1) * self.confirming_rounds * Self::CONFIRMED_MODES.min(modes) / modes
    }
}

/// Progress after a complete round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundProgress {
    /// Whether the best mode is being confirmed.
    pub confirming: bool,
    /// Round, from 1.
    pub round: u32,
    /// All rounds.
    pub rounds: u32,
    /// Estimated time left, confirmation rounds that may follow included.
    pub left: Duration,
    /// Whether confirmation rounds may follow.
    pub may_confirm: bool,
}

impl RoundProgress {
    /// Estimates the time left from the `spent` time.
    fn new(size: ComparisonSize, round: u32, spent: Duration) -> Self {
        let left = spent / round.max(1) * size.rounds.saturating_sub(round);
        Self {
            confirming: false,
            round,
            rounds: size.rounds,
            left: left + size.confirmation(round, spent),
            may_confirm: size.confirming_rounds > 0,
        }
    }

    /// Estimates the time left of `rounds` confirmation rounds.
    fn confirming(round: u32, rounds: u32, spent: Duration) -> Self {
        let size = ComparisonSize { modes: 0, rounds, confirming_rounds: 0 };
        Self { confirming: true, ..Self::new(size, round, spent) }
    }
}

/// Comparison, ready to run.
pub struct Comparison<'a> {
    root: Root,
    command: &'a [OsString],
    options: &'a CompareOptions,
    contenders: Vec<Contender>,
    report: CompareReport,
}

/// Reads the files of the program and of the libraries, and reports unavailable modes. Starts and
/// changes nothing.
///
/// # Errors
/// [`LaunchError::Start`]; unreadable files of `/proc`.
pub fn prepare<'a>(
    command: &'a [OsString],
    options: &'a CompareOptions,
    say: &mut dyn FnMut(Event<'_>),
) -> Result<Comparison<'a>, LaunchError> {
    let root = Root::live();
    let mut report = empty(command, options, &root)?;
    let mut contenders = Vec::new();
    for mode in modes(&options.modes) {
        let setup = match setup(&root, mode, command, options) {
            Err(LaunchError::Refused(reason)) => Err(EffectCause::Unavailable { reason }),
            setup => with_pages(setup?, options),
        };
        match setup {
            Ok(setup) => contenders.push(Contender::new(setup)),
            Err(cause) => {
                let absent = ModeReport::unavailable(mode, cause);
                say(Event::Unavailable(&absent));
                report.modes.push(absent);
            }
        }
    }
    Ok(Comparison { root, command, options, contenders, report })
}

impl Comparison<'_> {
    /// Runs the program in each mode [`CompareOptions::rounds`] times, then runs the best of
    /// several modes and `base` again. `interrupted` ends it after the last complete round.
    /// Processes that a run leaves behind are ended.
    ///
    /// # Errors
    /// [`LaunchError::Start`]; [`LaunchError::Interrupted`] before the first complete round.
    pub fn run(
        self,
        interrupted: &dyn Fn() -> bool,
        say: &mut dyn FnMut(Event<'_>),
    ) -> Result<CompareReport, LaunchError> {
        let Self { root, command, options, mut contenders, report } = self;
        let files = Files::open(options.show_output)?;
        let control =
            Control { signals: None, interrupted: Some(interrupted), standard: files.standard() };
        say(Event::Start(ComparisonSize::new(contenders.len(), options.rounds)));
        let mut session = Session { root, command, options, control, report, say };
        session.warm_up(&mut contenders)?;
        session.rounds(&mut contenders, options.rounds, Event::Running)?;
        if contenders.iter().all(|contender| contender.runs.is_empty()) {
            return Err(LaunchError::Interrupted);
        }
        session.sum_up(&contenders);
        session.confirm(&contenders)?;
        Ok(session.conclude())
    }
}

/// `base` first, each mode once.
fn modes(requested: &[Mode]) -> Vec<Mode> {
    let mut modes = vec![Mode::Base];
    for &mode in requested {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

fn setup(
    root: &Root,
    mode: Mode,
    command: &[OsString],
    options: &CompareOptions,
) -> Result<Setup, LaunchError> {
    let is_mimalloc = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains("mimalloc"))
    };
    let library = options.libraries.iter().find(|path| is_mimalloc(path) != mode.is_hugepilot());
    let options = RunOptions { mode, library: library.cloned(), pool: options.pool };
    Setup::new(root, command, &options)
}

/// The setup, unless its pool is empty and stays so: that would be `base` under another name.
fn with_pages(setup: Setup, options: &CompareOptions) -> Result<Setup, EffectCause> {
    match setup.obstacles.empty_pool.filter(|_| options.pool.is_none()) {
        Some(page_bytes) => Err(EffectCause::EmptyPool { page_bytes }),
        None => Ok(setup),
    }
}

fn empty(
    command: &[OsString],
    options: &CompareOptions,
    root: &Root,
) -> Result<CompareReport, LaunchError> {
    let (tlb, sizes) = (cpu::tlb(&cpu::read(root)?), memory::page_sizes(root)?);
    let tlb_reach = Reach {
        base_bytes: sizes.base.times(tlb.l2_4k_entries.into()),
        huge_bytes: sizes.huge.times(tlb.l2_2m_entries.into()),
        assumed: tlb.assumed,
    };
    Ok(CompareReport {
        schema: SCHEMA.to_owned(),
        command: command.iter().map(|word| printable(word.as_encoded_bytes())).collect(),
        rounds: options.rounds,
        modes: Vec::new(),
        confirmation: None,
        tlb_reach,
        counters_unavailable: None,
        stalls_unavailable: None,
        decided_by: DecidingTime::default(),
        interrupted: false,
        pays: false,
        verdict: Verdict::default(),
        warnings: Vec::new(),
    })
}

/// Standard streams of the program.
struct Files {
    null: std::fs::File,
    stderr: std::io::Stderr,
    show_output: bool,
}

impl Files {
    fn open(show_output: bool) -> Result<Self, LaunchError> {
        let path = "/dev/null";
        let null = std::fs::File::options().read(true).write(true).open(path);
        let null = null.map_err(|source| KernelError::write(path.as_ref(), source))?;
        Ok(Self { null, stderr: std::io::stderr(), show_output })
    }
    fn standard(&self) -> [Option<BorrowedFd<'_>>; 3] {
        let null = Some(self.null.as_fd());
        if self.show_output { [null, Some(self.stderr.as_fd()), None] } else { [null; 3] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_rounds_left() {
        let spent = Duration::from_secs(8);
        let two = RoundProgress::new(ComparisonSize::new(2, 5), 2, spent);
        assert_eq!((two.left, two.may_confirm), (Duration::from_secs(12), false));
        assert_eq!(RoundProgress::confirming(5, 5, spent).left, Duration::ZERO);
    }

    #[test]
    fn the_time_left_includes_confirmation_of_three_modes() {
        let size = ComparisonSize::new(6, 3);
        assert_eq!(size.confirming_rounds, 5);
        let first = RoundProgress::new(size, 1, Duration::from_secs(6));
        assert_eq!((first.left, first.may_confirm), (Duration::from_secs(12 + 15), true));
    }

    #[test]
    fn base_is_always_run_and_each_mode_once() {
        assert_eq!(modes(&[Mode::Thp, Mode::Base, Mode::Thp]), [Mode::Base, Mode::Thp]);
        assert_eq!(modes(&[]), [Mode::Base]);
    }
}
