//! Signals. The first one that asks a command to end is obeyed at the next safe moment, so that a complete report is left, or
//! kernel settings are restored. [`crate::exit`] has what each signal does to each command.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hugepilot_kernel::{ending_signals, was_ignored};
use hugepilot_units::Nanos;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, pipe};

use crate::exit::Exit;

/// Ctrl-C, `kill`, and a terminal that went away: they ask for the report of what is done.
const ASKING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Whether the user asked to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first signal of SIGINT, SIGTERM and SIGHUP asks, and a second one ends the program at once. For a command that
    /// has something to report from here on: before, the first one ends it.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let interrupt = Self::default();
        ASKING
            .into_iter()
            .filter(is_heard)
            .try_for_each(|signal| interrupt.ask(signal, &interrupt.0))?;
        Ok(interrupt)
    }
    /// From now on every signal that would end us only asks, until [`over`]: for work that must restore settings before it ends.
    /// Those other than SIGINT, SIGTERM and SIGHUP end us then, at [`end`].
    pub(crate) fn only_ask() -> std::io::Result<Self> {
        let interrupt = Self::default();
        let signals = ending_signals().into_iter().filter(is_heard);
        signals.into_iter().try_for_each(|signal| interrupt.ask(signal, is_over()))?;
        Ok(interrupt)
    }
    fn ask(&self, signal: i32, at_once: &Arc<AtomicBool>) -> std::io::Result<()> {
        // The order of registration is that of the actions. Real-time signals have no default that it knows.
        let _ = flag::register_conditional_default(signal, at_once.clone());
        let _ = flag::register_conditional_default(signal, is_over().clone());
        flag::register_usize(signal, heard().clone(), signal.unsigned_abs() as usize)?;
        flag::register(signal, self.0.clone()).map(drop)
    }
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What was ignored when we were started, as SIGHUP is by nohup, still is; but SIGINT, as shells ignore it for background jobs
/// of scripts.
fn is_heard(signal: &i32) -> bool {
    [SIGINT, SIGTERM].contains(signal) || !was_ignored(*signal)
}

/// The last signal that asked; 0 for none.
fn heard() -> &'static Arc<AtomicUsize> {
    static HEARD: OnceLock<Arc<AtomicUsize>> = OnceLock::new();
    HEARD.get_or_init(Arc::default)
}

fn is_over() -> &'static Arc<AtomicBool> {
    static OVER: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    OVER.get_or_init(Arc::default)
}

/// The work is done and nothing is left to restore: from now on every signal has its default action, so that no reader of a
/// report can hold us.
pub(crate) fn over() {
    is_over().store(true, Ordering::Relaxed);
}

/// This signal ended a command before it began.
pub(crate) fn ended_by(signal: i32) {
    heard().store(signal.unsigned_abs() as usize, Ordering::Relaxed);
}

/// Ends us: by the signal that asked, if there was nothing to report or it is none of SIGINT, SIGTERM and SIGHUP; else with the
/// status of the report.
pub(crate) fn end(exit: Exit) -> ExitCode {
    let signal = i32::try_from(heard().load(Ordering::Relaxed)).unwrap_or(0);
    if signal != 0 && (exit == Exit::Interrupted || !ASKING.contains(&signal)) {
        // Of signals that it has no name for, it knows no default: shells say it so.
        let _ = emulate_default_handler(signal);
        std::process::exit(Exit::Interrupted as i32 + signal);
    }
    exit.into()
}

/// Signals for what runs for ever: SIGHUP asks to read the configuration again, and any of the three ends a wait.
pub(crate) struct Signals {
    pub(crate) interrupt: Interrupt,
    reload: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        let interrupt = Interrupt::default();
        [SIGINT, SIGTERM].into_iter().try_for_each(|signal| interrupt.ask(signal, &interrupt.0))?;
        let reload = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, reload.clone())?;
        // After the flags, so that whoever wakes up finds them set.
        let (wake, end) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, end.try_clone()?)?;
        }
        Ok(Self { interrupt, reload, wake })
    }
    /// Whether SIGHUP came since the last [`Signals::reloaded`].
    pub(crate) fn is_reload_asked(&self) -> bool {
        self.reload.load(Ordering::Relaxed)
    }
    pub(crate) fn reloaded(&self) {
        self.reload.store(false, Ordering::Relaxed);
    }
    /// Sleeps so long, or until a signal comes.
    pub(crate) fn wait(&self, time: Nanos) {
        // No time at all would mean for ever.
        let time = time.max(Nanos::new(1000)).into();
        if self.wake.set_read_timeout(Some(time)).is_err() {
            return std::thread::sleep(time);
        }
        // What is read says nothing; that it came is what counts. One read takes all signals so far.
        let _ = (&self.wake).read(&mut [0; 64]);
    }
}
