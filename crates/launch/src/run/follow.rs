//! A program from its start to its end: its memory, its signals, its job control.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hugepilot_kernel::{
    Change, GroupSignalProbe, Program, ReceivedSignal, ResourceUsage, Root, StartedProgram, proc,
    schedstat, stop_with, wait,
};
use hugepilot_record::{Ending, Pid};
use hugepilot_reports::run::Run;
use hugepilot_units::Nanos;

use super::promote::Promoter;
use super::setup::Setup;
use super::watch::Watch;
use super::{Control, Observer};
use crate::LaunchError;
use crate::effect::Obstacles;

/// Longest sleep: an interrupt is noticed only between sleeps.
const NAP: Duration = Duration::from_millis(100);
/// Delay of a wake-up from which this process was stopped, unless it waited for a processor.
const LATE: Duration = Duration::from_secs(1);

/// Outcome of a run.
pub(crate) struct FollowedRun {
    pub(crate) run: Run,
    pub(crate) obstacles: Obstacles,
    /// Processes that the program left running, and that were ended.
    pub(crate) ended_processes: usize,
}

/// Starts the program, held; lets the observer attach, releases it, and follows it to its end.
pub(crate) fn follow(
    command: &[OsString],
    setup: &Setup,
    control: Control<'_>,
    observer: &mut dyn Observer,
) -> Result<FollowedRun, LaunchError> {
    let cannot = |source| LaunchError::start(&command[0], source);
    let mut followed = Followed::start(command, setup, control, observer).map_err(cannot)?;
    let started = Instant::now();
    followed.release(setup).map_err(cannot)?;
    let (ending, used) = followed.until_end(observer).map_err(cannot)?;
    let wall_seconds = started.elapsed().as_secs_f64();
    let ended_processes = followed.child.end_rest();
    let mut obstacles = setup.obstacles.clone();
    followed.watch.note(&mut obstacles);
    if let Some(promoter) = &followed.promoter {
        obstacles.not_promoted = promoter.obstacle();
        obstacles.promotions = Some(promoter.promotions());
    }
    let run = Run {
        ending,
        wall_seconds,
        stopped: followed.stopped,
        user_seconds: used.user.as_seconds(),
        system_seconds: used.system.as_seconds(),
        processor_wait_seconds: followed.watch.processor_wait_seconds(),
        page_faults: used.minor_faults + used.major_faults,
        peak: followed.watch.peak(&used),
    };
    Ok(FollowedRun { run, obstacles, ended_processes })
}

/// A running program.
struct Followed<'a> {
    child: StartedProgram,
    watch: Watch,
    promoter: Option<Promoter>,
    control: Control<'a>,
    /// Detects signals that reached the program directly.
    witness: Option<GroupSignalProbe>,
    /// Whether the program was asked to end.
    asked: bool,
    /// Process that continued hugepilot after it stopped with the program; until the next signals.
    continued_by: Option<Pid>,
    /// Whether the program or hugepilot was ever stopped.
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

impl<'a> Followed<'a> {
    fn start(
        command: &[OsString],
        setup: &Setup,
        control: Control<'a>,
        observer: &mut dyn Observer,
    ) -> std::io::Result<Self> {
        let program = Program {
            path: &setup.path,
            arguments: command,
            environment: &setup.environment.all,
            thp: setup.thp,
            standard: control.standard,
            own_group: false,
        };
        let witness = control.signals.map(|_| GroupSignalProbe::new()).transpose()?;
        let child = match control.signals {
            Some(signals) => StartedProgram::held(&program, Some(signals)),
            None => StartedProgram::bound(&program),
        }?;
        observer.attach(&child);
        Ok(Self {
            child,
            watch: Watch::new(&Root::live(), setup.library.clone()),
            promoter: None,
            control,
            witness,
            asked: false,
            continued_by: None,
            stopped: false,
            own_wait: None,
        })
    }

    fn release(&mut self, setup: &Setup) -> std::io::Result<()> {
        self.child.release()?;
        self.promoter = setup.promote.then(Promoter::new);
        self.own_wait = schedstat::own_processor_wait(&Root::live());
        Ok(())
    }

    fn until_end(
        &mut self,
        observer: &mut dyn Observer,
    ) -> std::io::Result<(Ending, ResourceUsage)> {
        loop {
            self.sleep();
            observer.meanwhile();
            self.forward_signals();
            match self.child.changed()? {
                Some((Change::Exited(status), used)) => return Ok((Ending::Exited(status), used)),
                Some((Change::Killed(signal), used)) => return Ok((Ending::Killed(signal), used)),
                Some((Change::Stopped, _)) => {
                    self.stopped = true;
                    // The parent of hugepilot shall see it stopped, too.
                    if self.control.signals.is_some() {
                        self.continued_by = stop_with(self.child.pid());
                    }
                }
                // The only sign of a stop during which hugepilot was stopped as well.
                Some((Change::Continued, _)) => self.stopped = true,
                None => {}
            }
            self.end_if_interrupted();
            if self.watch.due() <= Instant::now() {
                self.watch.sample(self.child.pid());
            }
            self.promote();
        }
    }

    /// Sleeps until the program ends, a signal arrives, or the next sample or promotion is due.
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

    /// Forwards signals that did not reach the program directly. A signal to the whole process
    /// group did, unless the program left the group. A signal that hugepilot caused itself, such as
    /// by writing too large a file, is not forwarded.
    fn forward_signals(&mut self) {
        use rustix::process::{Signal, getpid};
        const CHLD: i32 = Signal::CHILD.as_raw();
        const CONT: i32 = Signal::CONT.as_raw();
        let continued_by = self.continued_by.take();
        let arrived = std::iter::from_fn(|| self.control.signals?.next());
        let arrived: Vec<_> = arrived.filter(|arrived| arrived.signal != CHLD).collect();
        let Some(witness) = self.witness.as_mut().filter(|_| !arrived.is_empty()) else { return };
        let grouped =
            witness.saw(&arrived.iter().map(|arrived| arrived.signal).collect::<Vec<_>>());
        for (ReceivedSignal { signal, sender }, grouped) in arrived.into_iter().zip(grouped) {
            let has_received = match signal {
                // The sender continued the program, too; if it has stopped since, it stays so.
                CONT if continued_by == Some(sender) => true,
                CONT if continued_by.is_some() => !self.is_stopped(),
                _ => grouped || sender.0 == getpid().as_raw_nonzero().get(),
            };
            if !has_received {
                self.child.signal(signal);
            }
        }
    }

    fn is_stopped(&self) -> bool {
        let stat = Root::live().read(format!("proc/{}/stat", self.child.pid()));
        stat.is_ok_and(|line| proc::parse_stat(&line).is_some_and(|stat| stat.state == 'T'))
    }

    fn end_if_interrupted(&mut self) {
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
