//! A program run with chosen pages: `run`, and `compare`, which runs it in turns.

mod environment;
mod library;
pub(crate) mod pool;
mod program;
mod promote;
pub(crate) mod setup;
mod watch;

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::{effect, pool_warning};
use hugepilot_kernel::{
    Arrived, Change, GroupSignalProbe, Program, Root, Signals, Started, Unsupported, Used,
    ending_signals, proc, schedstat, stop_with, wait, was_ignored,
};
use hugepilot_record::Pid;
use hugepilot_record::run::{Ending, Mode, Obstacles, Run, RunReport, SCHEMA};
use hugepilot_units::{Bytes, Nanos};

use crate::LaunchError;
use promote::Promoter;
use setup::Setup;
use watch::Watch;

/// The longest sleep: interrupts by others than signals are asked for.
const NAP: Duration = Duration::from_millis(100);
/// Delay of a wake-up from which this process was stopped, unless it waited for a processor.
const LATE: Duration = Duration::from_secs(1);

/// How to run a program.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Where its memory shall come from.
    pub mode: Mode,
    /// The library to preload, instead of one that is found.
    pub library: Option<PathBuf>,
    /// Memory that the mode's pool shall have free for the time of the run.
    pub pool: Option<Bytes>,
}

/// Who else may have a say while it runs.
#[derive(Clone, Copy, Default)]
pub(crate) struct Control<'a> {
    /// Signals that are passed on to it. Without them, the program and all that it starts end with us.
    pub(crate) signals: Option<&'a Signals>,
    /// Asked now and then: whether it shall be stopped.
    pub(crate) interrupted: Option<&'a dyn Fn() -> bool>,
    /// Its standard input, output and error, where they are not ours.
    pub(crate) standard: [Option<BorrowedFd<'a>>; 3],
}

impl Control<'_> {
    /// Whether a signal waits to be passed on, or somebody asked to stop.
    pub(crate) fn is_wanted(&self) -> bool {
        let signal = |signals: &Signals| wait::readable(&[signals.as_fd()], Duration::ZERO);
        self.signals.is_some_and(signal)
            || self.interrupted.is_some_and(|interrupted| interrupted())
    }
    /// Takes the signals that came before there was a program to pass them to.
    ///
    /// # Errors
    /// [`LaunchError::Signalled`] and [`LaunchError::Interrupted`] if no program shall be started.
    pub(crate) fn goes_on(&self) -> Result<(), LaunchError> {
        let ends = ending_signals();
        let arrived = std::iter::from_fn(|| self.signals?.next()).collect::<Vec<_>>();
        let ending =
            |arrived: &&Arrived| ends.contains(&arrived.signal) && !was_ignored(arrived.signal);
        match arrived.iter().find(ending) {
            Some(arrived) => Err(LaunchError::Signalled(arrived.signal)),
            None if self.interrupted.is_some_and(|interrupted| interrupted()) => {
                Err(LaunchError::Interrupted)
            }
            None => Ok(()),
        }
    }
}

/// Somebody who watches the program besides.
pub(crate) trait Observer {
    /// It is held, and will run.
    fn attach(&mut self, child: &Started);
    /// It runs: called at least ten times a second.
    fn meanwhile(&mut self) {}
}

/// Nobody.
impl Observer for () {
    fn attach(&mut self, _: &Started) {}
}

/// Runs `command` to its end, and passes `signals` on to it. For a process without a second thread. Until the files that it
/// needs are read, signals do what they did before.
///
/// # Errors
/// [`LaunchError::Start`]; [`LaunchError::Refused`] where the mode is not to be had here; [`LaunchError::Signalled`] by a signal
/// before the start; those of [`hugepilot_settings::SettingsGuard`] where a pool was wanted.
pub fn run(
    command: &[OsString],
    options: &RunOptions,
    signals: &[i32],
) -> Result<RunReport, LaunchError> {
    let root = Root::live();
    let mut setup = Setup::new(&root, command, options)?;
    let signals = Signals::take(signals).map_err(|source| cannot_start(command, source))?;
    let control = Control { signals: Some(&signals), ..Control::default() };
    let (guard, mut warnings) = match options.pool {
        Some(bytes) => pool::raise(&root, &mut setup, bytes, control)?,
        None => (None, Vec::new()),
    };
    if let Some(why) = setup.obstacles.empty_pool.clone().filter(|_| options.pool.is_some()) {
        let why = [warnings, vec![why]].concat().join("; ");
        return Err(Unsupported::because(why)
            .fixed_by("a smaller --pool; hugepilot pool explain")
            .into());
    }
    let watched = watched(command, &setup, control, &mut ());
    warnings.extend(guard.map(pool::give_back).unwrap_or_default());
    let Watched { run, obstacles, .. } = watched?;
    warnings.extend(setup.environment.kept.iter().cloned());
    warnings.extend(pool_warning(options.mode, &run, &obstacles));
    Ok(RunReport {
        schema: SCHEMA.to_owned(),
        command: command.iter().map(|word| proc::printable(word.as_encoded_bytes())).collect(),
        mode: options.mode,
        environment: setup.environment.set,
        effect: effect(options.mode, &run, &obstacles),
        run,
        warnings,
    })
}

/// What was seen of a run.
pub(crate) struct Watched {
    pub(crate) run: Run,
    pub(crate) obstacles: Obstacles,
    /// Processes that the program had left, and that were ended.
    pub(crate) left: usize,
}

fn cannot_start(command: &[OsString], source: std::io::Error) -> LaunchError {
    LaunchError::Start { program: command[0].to_string_lossy().into_owned(), source }
}

/// Starts the program, held; lets the observer see it, releases it, and follows it to its end.
pub(crate) fn watched(
    command: &[OsString],
    setup: &Setup,
    control: Control<'_>,
    observer: &mut dyn Observer,
) -> Result<Watched, LaunchError> {
    let cannot = |source| cannot_start(command, source);
    let program = Program {
        path: &setup.path,
        arguments: command,
        environment: &setup.environment.all,
        thp: setup.thp,
        standard: control.standard,
        own_group: false,
    };
    let witness = control.signals.map(|_| GroupSignalProbe::new()).transpose().map_err(cannot)?;
    let child = match control.signals {
        Some(signals) => Started::held(&program, Some(signals)),
        None => Started::bound(&program),
    };
    let mut child = child.map_err(cannot)?;
    observer.attach(&child);
    let watch = Watch::new(&Root::live(), setup.library.clone());
    let begun = Instant::now();
    child.release().map_err(cannot)?;
    let promoter = setup.promote.then(Promoter::new);
    let mut following = Following {
        child,
        watch,
        promoter,
        control,
        witness,
        asked: false,
        keeper: None,
        stopped: false,
        own_wait: schedstat::own_processor_wait(&Root::live()),
    };
    let (ending, used) = following.follow(observer).map_err(cannot)?;
    let wall_seconds = begun.elapsed().as_secs_f64();
    let left = following.child.end_rest();
    let mut obstacles = setup.obstacles.clone();
    following.watch.note(&mut obstacles);
    if let Some(promoter) = &following.promoter {
        obstacles.not_promoted = promoter.why_not();
    }
    let run = Run {
        ending,
        wall_seconds,
        stopped: following.stopped,
        user_seconds: used.user.as_seconds(),
        system_seconds: used.system.as_seconds(),
        processor_wait_seconds: following.watch.processor_wait_seconds(),
        page_faults: used.minor_faults + used.major_faults,
        peak: following.watch.peak(&used),
    };
    Ok(Watched { run, obstacles, left })
}

/// A program under way.
struct Following<'a> {
    child: Started,
    watch: Watch,
    promoter: Option<Promoter>,
    control: Control<'a>,
    /// Knows which signals reached it without us.
    witness: Option<GroupSignalProbe>,
    /// Whether it was asked to end.
    asked: bool,
    /// Who continued us, if we were stopped with it just now.
    keeper: Option<Pid>,
    /// Whether it, or we, were ever.
    stopped: bool,
    /// Time that this thread has waited for a processor, as of the last wake-up.
    own_wait: Option<Nanos>,
}

/// Whether a sleep of `nap` that took `slept` means that this process was stopped.
///
/// On a busy machine it also wakes late, but then it waited for a processor meanwhile. Without that
/// count, only a stop of the program itself shows.
fn was_stopped(slept: Duration, nap: Duration, waited: Option<Nanos>) -> bool {
    waited.is_some_and(|waited| slept > nap + LATE + Duration::from(waited))
}

impl Following<'_> {
    fn follow(&mut self, observer: &mut dyn Observer) -> std::io::Result<(Ending, Used)> {
        loop {
            self.sleep();
            observer.meanwhile();
            self.pass_signals();
            match self.child.changed()? {
                Some((Change::Exited(status), used)) => return Ok((Ending::Exited(status), used)),
                Some((Change::Killed(signal), used)) => return Ok((Ending::Killed(signal), used)),
                Some((Change::Stopped, _)) => {
                    self.stopped = true;
                    // Whoever started us shall see us stopped, too.
                    if self.control.signals.is_some() {
                        self.keeper = stop_with(self.child.pid());
                    }
                }
                // All that there is to see where we were stopped with it.
                Some((Change::Continued, _)) => self.stopped = true,
                None => {}
            }
            self.stop_if_asked();
            if self.watch.due() <= Instant::now() {
                self.watch.look(self.child.pid());
            }
            self.promote();
        }
    }

    /// Until it ends, a signal comes, or somebody wants to look.
    fn sleep(&mut self) {
        let next = self
            .promoter
            .as_ref()
            .map_or(self.watch.due(), |promoter| promoter.due().min(self.watch.due()));
        let begun = Instant::now();
        let nap = next.saturating_duration_since(begun).min(NAP);
        let signals = self.control.signals.map(AsFd::as_fd);
        let files: Vec<_> = [Some(self.child.as_fd()), signals].into_iter().flatten().collect();
        wait::readable(&files, nap);
        let waited = self.own_wait();
        self.stopped |= was_stopped(begun.elapsed(), nap, waited);
    }

    /// Time that this thread waited for a processor since the last call.
    fn own_wait(&mut self) -> Option<Nanos> {
        let before = self.own_wait.take();
        self.own_wait = schedstat::own_processor_wait(&Root::live());
        Some(self.own_wait? - before?)
    }

    /// What was sent to all of our group has reached the program, unless it has left that. What continued us may have continued the
    /// program, too. And what we did ourselves, such as writing too large a file, is ours.
    fn pass_signals(&mut self) {
        use rustix::process::{Signal, getpid};
        const CHLD: i32 = Signal::CHILD.as_raw();
        const CONT: i32 = Signal::CONT.as_raw();
        let keeper = self.keeper.take();
        let arrived = std::iter::from_fn(|| self.control.signals?.next());
        let arrived: Vec<_> = arrived.filter(|arrived| arrived.signal != CHLD).collect();
        let Some(witness) = self.witness.as_mut().filter(|_| !arrived.is_empty()) else { return };
        let grouped =
            witness.saw(&arrived.iter().map(|arrived| arrived.signal).collect::<Vec<_>>());
        for (Arrived { signal, sender }, grouped) in arrived.into_iter().zip(grouped) {
            let told = match signal {
                // The program went on then, and who has stopped it again since shall have it so.
                CONT if keeper == Some(sender) => true,
                CONT if keeper.is_some() => !self.is_stopped(),
                _ => grouped || sender.0 == getpid().as_raw_nonzero().get(),
            };
            if !told {
                self.child.signal(signal);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        let stat = Root::live().read(format!("proc/{}/stat", self.child.pid()));
        stat.is_ok_and(|line| proc::parse_stat(&line).is_some_and(|stat| stat.state == 'T'))
    }

    fn stop_if_asked(&mut self) {
        if !self.asked && self.control.interrupted.is_some_and(|interrupted| interrupted()) {
            self.asked = true;
            self.child.ask_to_end();
        }
    }

    fn promote(&mut self) {
        let (child, control) = (&self.child, self.control);
        if let Some(promoter) =
            self.promoter.as_mut().filter(|promoter| promoter.due() <= Instant::now())
        {
            let ended = || wait::readable(&[child.as_fd()], Duration::ZERO);
            promoter.promote(child.pid(), &|| ended() || control.is_wanted());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_wake_up_is_a_stop_only_without_a_wait_for_a_processor() {
        let seconds = Duration::from_secs;
        let table = [
            (seconds(3), Some(0), true),
            (seconds(3), Some(2), false),
            (seconds(5), Some(2), true),
            (seconds(1), Some(0), false),
            (seconds(3), None, false),
        ];
        for (slept, waited, stopped) in table {
            let waited = waited.map(Nanos::seconds);
            assert_eq!(was_stopped(slept, NAP, waited), stopped, "{slept:?} {waited:?}");
        }
    }
}
