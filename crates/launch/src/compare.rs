//! A program in several modes, in turns: each round has one run of each mode, and each begins with another one.

mod observe;

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::{confirming_rounds, effect, pool_warning, to_confirm, verdict};
use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{Root, Unsupported, cpu, memory};
use hugepilot_record::compare::{
    CompareReport, Confirmation, Counts, DecidingTime, ModeReport, Reach, SCHEMA, speedup,
};
use hugepilot_record::run::{Effect, Mode, Run};
use hugepilot_units::Bytes;

use crate::LaunchError;
use crate::run::setup::Setup;
use crate::run::{Control, Observer, RunOptions, Watched, pool, watched};
use observe::{Counting, Sampling};

/// What to compare.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The modes; `base` is run in any case.
    pub modes: Vec<Mode>,
    /// Rounds.
    pub rounds: u32,
    /// Libraries to preload, instead of those that are found: mimalloc by its name, another is ours.
    pub libraries: Vec<PathBuf>,
    /// Memory that a mode's pool shall have free for the time of each of its runs.
    pub pool: Option<Bytes>,
    /// Whether to look for stalls, in a run of each mode that is not timed.
    pub stalls: bool,
    /// Whether the program's output goes to our standard error, and not nowhere.
    pub show_output: bool,
}

/// What is being done.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// A run that is not timed, to warm up and to sample.
    WarmingUp(Mode),
    /// A timed run: the round, from 1, of how many.
    Running(Mode, u32, u32),
    /// A timed run of a confirmation round: the round, from 1, of how many.
    Confirming(Mode, u32, u32),
    /// A complete round.
    Round(RoundProgress),
    /// A mode that is not to be had here, and why.
    Unavailable(&'a ModeReport),
}

/// Progress after a complete round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundProgress {
    /// Whether the best mode is being confirmed.
    pub confirming: bool,
    /// The round, from 1.
    pub round: u32,
    /// Rounds in all.
    pub rounds: u32,
    /// Estimated time left for these rounds.
    pub left: Duration,
}

impl RoundProgress {
    /// Estimates the time left from the `spent` time.
    fn new(confirming: bool, round: u32, rounds: u32, spent: Duration) -> Self {
        let left = spent / round.max(1) * rounds.saturating_sub(round);
        Self { confirming, round, rounds, left }
    }
}

/// A comparison whose files are read.
pub struct Comparison<'a> {
    root: Root,
    command: &'a [OsString],
    options: &'a CompareOptions,
    contenders: Vec<Contender>,
    report: CompareReport,
}

/// One mode under way.
struct Contender {
    setup: Setup,
    runs: Vec<Run>,
    effects: Vec<Effect>,
    counts: Vec<Counts>,
    stall_ratio: Option<f64>,
}

/// Reads the files of the program and the libraries, and says which modes there are. Starts and changes nothing.
///
/// # Errors
/// [`LaunchError::Start`]; what cannot be read of `/proc`.
pub fn prepare<'a>(
    command: &'a [OsString],
    options: &'a CompareOptions,
    say: &mut dyn FnMut(Event<'_>),
) -> Result<Comparison<'a>, LaunchError> {
    let root = Root::live();
    let mut report = empty(command, options, &root)?;
    let mut contenders = Vec::new();
    for mode in modes(&options.modes) {
        match contender(&root, mode, command, options) {
            Ok(contender) => contenders.push(contender),
            Err(LaunchError::Refused(reason)) => {
                let help = reason.help().into_iter().next();
                let absent = ModeReport::unavailable(mode, reason.to_string(), help);
                say(Event::Unavailable(&absent));
                report.modes.push(absent);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Comparison { root, command, options, contenders, report })
}

impl Comparison<'_> {
    /// Runs the program in each mode, [`CompareOptions::rounds`] times, and the best of several again, as often, with `base` in turns.
    /// `interrupted` ends it after the last whole round. What a run leaves running is ended with it.
    ///
    /// # Errors
    /// [`LaunchError::Start`]; [`LaunchError::Interrupted`] before the first round was whole.
    pub fn run(
        self,
        interrupted: &dyn Fn() -> bool,
        say: &mut dyn FnMut(Event<'_>),
    ) -> Result<CompareReport, LaunchError> {
        let Self { root, command, options, mut contenders, report } = self;
        let files = Files::open(options.show_output)?;
        let control =
            Control { signals: None, interrupted: Some(interrupted), standard: files.standard() };
        let mut session = Session { root, command, options, control, report, say };
        session.warm_up(&mut contenders)?;
        session.rounds(&mut contenders, options.rounds, Event::Running)?;
        if whole(&contenders) == 0 {
            return Err(LaunchError::Interrupted);
        }
        session.sum_up(&contenders);
        session.confirm(&contenders)?;
        Ok(session.conclude())
    }
}

/// `base` first, each once.
fn modes(wanted: &[Mode]) -> Vec<Mode> {
    let mut modes = vec![Mode::Base];
    for &mode in wanted {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    modes
}

/// The order of `all` contenders in a round: each begins with the next one.
fn order(round: usize, all: usize) -> impl Iterator<Item = usize> {
    (0..all).map(move |turn| (round + turn) % all)
}

fn contender(
    root: &Root,
    mode: Mode,
    command: &[OsString],
    options: &CompareOptions,
) -> Result<Contender, LaunchError> {
    let is_mimalloc = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains("mimalloc"))
    };
    let library = options.libraries.iter().find(|path| is_mimalloc(path) != mode.is_hugepilot());
    let setup = Setup::new(
        root,
        command,
        &RunOptions { mode, library: library.cloned(), pool: options.pool },
    )?;
    // Without the pages it would only be base under another name.
    if let Some(why) = setup.obstacles.empty_pool.as_ref().filter(|_| options.pool.is_none()) {
        let fix = setup.obstacles.pool_fix.clone();
        return Err(Unsupported::Other { cause: why.clone(), advice: fix }.into());
    }
    Ok(Contender::new(setup))
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
        verdict: String::new(),
        warnings: Vec::new(),
    })
}

/// Where the program reads and writes.
struct Files {
    nothing: std::fs::File,
    ours: std::io::Stderr,
    shown: bool,
}

impl Files {
    fn open(shown: bool) -> Result<Self, LaunchError> {
        let path = "/dev/null";
        let nothing = std::fs::File::options().read(true).write(true).open(path);
        let nothing = nothing
            .map_err(|source| hugepilot_kernel::KernelError::write(path.as_ref(), source))?;
        Ok(Self { nothing, ours: std::io::stderr(), shown })
    }
    fn standard(&self) -> [Option<std::os::fd::BorrowedFd<'_>>; 3] {
        let nothing = self.nothing.as_fd();
        if self.shown { [Some(nothing), Some(self.ours.as_fd()), None] } else { [Some(nothing); 3] }
    }
}

struct Session<'a> {
    root: Root,
    command: &'a [OsString],
    options: &'a CompareOptions,
    control: Control<'a>,
    report: CompareReport,
    say: &'a mut dyn FnMut(Event<'_>),
}

impl Session<'_> {
    fn is_interrupted(&self) -> bool {
        self.control.interrupted.is_some_and(|interrupted| interrupted())
    }

    /// Runs that are not timed: of `base` at least, so that files are read once, and of all where that is used for sampling.
    fn warm_up(&mut self, contenders: &mut [Contender]) -> Result<(), LaunchError> {
        let mut counting = Counting::default();
        (self.say)(Event::WarmingUp(Mode::Base));
        let first = if self.options.stalls { contenders.len() } else { 1 };
        for (turn, contender) in contenders.iter_mut().take(first).enumerate() {
            (self.say)(Event::WarmingUp(contender.setup.mode));
            let mut sampling = Sampling::default();
            if turn == 0 && !self.options.stalls {
                self.once(contender, &mut counting)?;
            } else {
                self.once(contender, &mut sampling)?;
                contender.stall_ratio = sampling.ratio();
                self.report.stalls_unavailable =
                    self.report.stalls_unavailable.take().or(sampling.unavailable);
            }
            if self.is_interrupted() {
                return Err(LaunchError::Interrupted);
            }
        }
        if !self.options.stalls {
            self.report.stalls_unavailable = Some("not asked for".to_owned());
        }
        Ok(())
    }

    /// Rounds of these, until interrupted.
    fn rounds(
        &mut self,
        contenders: &mut [Contender],
        rounds: u32,
        event: fn(Mode, u32, u32) -> Event<'static>,
    ) -> Result<(), LaunchError> {
        let begun = Instant::now();
        for round in 0..rounds {
            for turn in order(round as usize, contenders.len()) {
                let contender = &mut contenders[turn];
                (self.say)(event(contender.setup.mode, round + 1, rounds));
                let mut counting = Counting::default();
                let (run, effect) = self.once(contender, &mut counting)?;
                if self.is_interrupted() {
                    self.report.interrupted = true;
                    return Ok(());
                }
                self.report.counters_unavailable = counting.unavailable.take();
                contender.counts.extend(counting.counts());
                contender.runs.push(run);
                contender.effects.push(effect);
            }
            let confirming = matches!(event(Mode::Base, 0, 0), Event::Confirming(..));
            let done = RoundProgress::new(confirming, round + 1, rounds, begun.elapsed());
            (self.say)(Event::Round(done));
        }
        Ok(())
    }

    /// One run; and where it was stopped meanwhile, so that its time says nothing, another one instead.
    fn once(
        &mut self,
        contender: &mut Contender,
        observer: &mut dyn Observer,
    ) -> Result<(Run, Effect), LaunchError> {
        let done = self.run(contender, observer)?;
        if !done.0.stopped || self.is_interrupted() {
            return Ok(done);
        }
        let mode = contender.setup.mode;
        self.warn(vec![format!(
            "a run of {mode} was stopped for a while: it was dropped, and made again"
        )]);
        let done = self.run(contender, observer)?;
        if done.0.stopped {
            self.warn(vec![format!(
                "a run of {mode} was stopped each time: its wall time holds that"
            )]);
        }
        Ok(done)
    }

    /// With its pool where it has one.
    fn run(
        &mut self,
        contender: &mut Contender,
        observer: &mut dyn Observer,
    ) -> Result<(Run, Effect), LaunchError> {
        let mode = contender.setup.mode;
        let wanted = self.options.pool.filter(|_| mode.uses_pool().is_some());
        let raised = wanted
            .map(|bytes| pool::raise(&self.root, &mut contender.setup, bytes, self.control))
            .transpose()?;
        let done = watched(self.command, &contender.setup, self.control, observer);
        if let Some((guard, warnings)) = raised {
            self.warn(warnings);
            self.warn(guard.map(pool::give_back).unwrap_or_default());
        }
        let Watched { run, obstacles, left } = done?;
        if left > 0 && !self.is_interrupted() {
            self.warn(vec![format!("runs of {mode} left processes running: they were ended")]);
        }
        let effect = effect(mode, &run, &obstacles);
        let told = pool_warning(mode, &run, &obstacles);
        self.warn(told.map(|told| format!("{mode}: {told}")).into_iter().collect());
        Ok((run, effect))
    }

    /// Each once.
    fn warn(&mut self, warnings: Vec<String>) {
        for warning in warnings {
            if !self.report.warnings.contains(&warning) {
                self.report.warnings.push(warning);
            }
        }
    }

    /// Runs what looks best again, with what it is held against, in turns, and nothing else.
    fn confirm(&mut self, contenders: &[Contender]) -> Result<(), LaunchError> {
        if self.report.interrupted {
            return Ok(());
        }
        let wanted = to_confirm(&self.report).into_iter();
        let known = |mode| contenders.iter().find(|contender| contender.setup.mode == mode);
        let mut again: Vec<_> =
            wanted.filter_map(known).map(|known| Contender::new(known.setup.clone())).collect();
        self.rounds(&mut again, confirming_rounds(self.options.rounds), Event::Confirming)?;
        if let ([_, best, plain @ ..], [base, ours, ..]) = (&summed(&again)[..], &again[..]) {
            let time = self.report.decided_by;
            let runs = [base, ours].map(|of| &of.runs[..whole(&again)]);
            self.report.confirmation =
                Some(Confirmation::of(time, best, plain.first(), runs[0], runs[1]));
        }
        Ok(())
    }

    /// The figures of each mode's rounds.
    fn sum_up(&mut self, contenders: &[Contender]) {
        let absent = std::mem::take(&mut self.report.modes);
        self.report.modes = summed(contenders).into_iter().chain(absent).collect();
        self.report.decided_by = self.report.base().map(DecidingTime::of).unwrap_or_default();
        self.warn(
            contenders
                .iter()
                .flat_map(|contender| contender.setup.environment.kept.clone())
                .collect(),
        );
        let failures: Vec<String> = self.report.modes.iter().filter_map(failures).collect();
        self.warn(failures);
    }

    fn conclude(mut self) -> CompareReport {
        (self.report.pays, self.report.verdict) = verdict(&self.report);
        self.report
    }
}

/// Rounds in which each was run: of an unfinished one nothing counts.
fn whole(contenders: &[Contender]) -> usize {
    contenders.iter().map(|contender| contender.runs.len()).min().unwrap_or(0)
}

/// The figures of each, and those that hold it against others of the same round.
fn summed(contenders: &[Contender]) -> Vec<ModeReport> {
    let whole = whole(contenders);
    let runs_of =
        |mode| contenders.iter().find(|other| other.setup.mode == mode).map(|of| &of.runs[..whole]);
    let sum_up = |contender: &Contender| {
        let over = |time, mode| speedup(time, runs_of(mode)?, &contender.runs[..whole]);
        let mode = contender.setup.mode;
        let base = Some(Mode::Base).filter(|&base| base != mode);
        let plain = mode.without_huge_pages();
        ModeReport {
            speedup_over_base: base.and_then(|base| over(DecidingTime::Wall, base)),
            cpu_speedup_over_base: base.and_then(|base| over(DecidingTime::Cpu, base)),
            speedup_over_same_allocator: plain.and_then(|plain| over(DecidingTime::Wall, plain)),
            cpu_speedup_over_same_allocator: plain.and_then(|plain| over(DecidingTime::Cpu, plain)),
            ..contender.report(whole)
        }
    };
    contenders.iter().map(sum_up).collect()
}

impl Contender {
    const fn new(setup: Setup) -> Self {
        Self { setup, runs: Vec::new(), effects: Vec::new(), counts: Vec::new(), stall_ratio: None }
    }

    /// Of its first `whole` runs.
    fn report(&self, whole: usize) -> ModeReport {
        let effects = &self.effects[..whole];
        let known = effects.iter().filter_map(|effect| effect.took_effect);
        let (took, known) = (known.clone().filter(|&took| took).count(), known.count());
        let took_effect = (known > 0).then_some(2 * took >= known);
        let said = effects.iter().rfind(|effect| effect.took_effect == took_effect).cloned();
        let said = said.unwrap_or(Effect { took_effect, reason: String::new(), fix: None });
        let partly = match took {
            0 => String::new(),
            took if took == whole => String::new(),
            took => format!("in {took} of {whole} runs it did; "),
        };
        let mut report = ModeReport::unavailable(self.setup.mode, partly + &said.reason, said.fix);
        report.took_effect = took_effect;
        report.measure(&self.runs[..whole].iter().collect::<Vec<_>>());
        report.count(&self.counts[..whole.min(self.counts.len())]);
        report.stall_ratio = self.stall_ratio;
        report
    }
}

fn failures(mode: &ModeReport) -> Option<String> {
    let (failed, runs) = (mode.failed_runs, mode.runs);
    (failed > 0).then(|| {
        format!(
            "{failed} of {runs} {} runs did not end with success: their rounds do not count for it",
            mode.mode
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_rounds_left() {
        let progress = RoundProgress::new(false, 2, 5, Duration::from_secs(8));
        assert_eq!(progress.left, Duration::from_secs(12));
        assert_eq!(RoundProgress::new(true, 5, 5, Duration::from_secs(8)).left, Duration::ZERO);
    }

    #[test]
    fn base_is_always_run_and_each_mode_once() {
        assert_eq!(modes(&[Mode::Thp, Mode::Base, Mode::Thp]), [Mode::Base, Mode::Thp]);
        assert_eq!(modes(&[]), [Mode::Base]);
    }

    #[test]
    fn every_mode_is_first_in_some_round_and_runs_once_in_each() {
        for all in 1..6 {
            let rounds: Vec<Vec<usize>> =
                (0..all).map(|round| order(round, all).collect()).collect();
            for round in &rounds {
                let mut sorted = round.clone();
                sorted.sort_unstable();
                assert_eq!(sorted, (0..all).collect::<Vec<_>>());
            }
            let mut firsts: Vec<usize> = rounds.iter().map(|round| round[0]).collect();
            firsts.sort_unstable();
            assert_eq!(firsts, (0..all).collect::<Vec<_>>());
        }
    }
}
