//! Signals. After the first request to end, a command ends at the next safe moment, with a complete
//! report or restored kernel settings. [`crate::exit`] lists the effects by command.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hugepilot_kernel::{ending_signals, was_ignored, with_signals_blocked};
use hugepilot_units::Nanos;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, pipe};

use crate::exit::Exit;

/// Signals that request an end with a report: Ctrl-C, `kill`, a closed terminal.
const ASKING: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Request of the user to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Lets the first SIGINT, SIGTERM or SIGHUP request an end, and a second one end the program.
    /// For commands that have something to report from now on.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let interrupt = Self::default();
        let once = Arc::default();
        let mut signals = ASKING.into_iter().filter(is_heard);
        with_signals_blocked(|| signals.try_for_each(|signal| interrupt.ask_once(signal, &once)))?;
        Ok(interrupt)
    }
    /// Lets every signal that would end the program only request an end, until [`over`]. For work
    /// that must restore settings first. Signals other than SIGINT, SIGTERM and SIGHUP end the
    /// program in [`end`].
    pub(crate) fn only_ask() -> std::io::Result<Self> {
        let interrupt = Self::default();
        let mut signals = ending_signals().into_iter().filter(is_heard);
        with_signals_blocked(|| signals.try_for_each(|signal| interrupt.ask(signal)))?;
        Ok(interrupt)
    }
    /// Lets `signal` request an end. Called while signals are blocked: signal-hook loses one that
    /// arrives between the installation of its handler and of the first action.
    fn ask(&self, signal: i32) -> std::io::Result<()> {
        flag::register(signal, self.0.clone())?;
        flag::register_usize(signal, heard().clone(), signal.unsigned_abs() as usize)?;
        // signal-hook has no default for real-time signals.
        let _ = flag::register_conditional_default(signal, is_over().clone());
        Ok(())
    }
    /// The same, and lets a signal end the program after one that set `once`.
    fn ask_once(&self, signal: i32, once: &Arc<AtomicBool>) -> std::io::Result<()> {
        self.ask(signal)?;
        // Actions run in this order.
        let _ = flag::register_conditional_default(signal, once.clone());
        flag::register(signal, once.clone()).map(drop)
    }
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether `signal` has an effect. Signals ignored at the start, such as SIGHUP under nohup, stay
/// ignored, except SIGINT, which shells ignore for background jobs of scripts.
fn is_heard(signal: &i32) -> bool {
    [SIGINT, SIGTERM].contains(signal) || !was_ignored(*signal)
}

/// Last signal that requested an end; 0 for none.
fn heard() -> &'static Arc<AtomicUsize> {
    static HEARD: OnceLock<Arc<AtomicUsize>> = OnceLock::new();
    HEARD.get_or_init(Arc::default)
}

fn is_over() -> &'static Arc<AtomicBool> {
    static OVER: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    OVER.get_or_init(Arc::default)
}

/// Gives every signal its default action, as the work is done and the settings are restored. A slow
/// reader of the report then cannot block the program.
pub(crate) fn over() {
    is_over().store(true, Ordering::Relaxed);
}

/// Notes that `signal` ended a command before it started.
pub(crate) fn ended_by(signal: i32) {
    heard().store(signal.unsigned_abs() as usize, Ordering::Relaxed);
}

/// Ends the program: by the signal, if there was nothing to report or it is not SIGINT, SIGTERM or
/// SIGHUP; otherwise with the status of the report.
pub(crate) fn end(exit: Exit) -> ExitCode {
    let signal = i32::try_from(heard().load(Ordering::Relaxed)).unwrap_or(0);
    if signal != 0 && (exit == Exit::Interrupted || !ASKING.contains(&signal)) {
        // signal-hook knows no default of unnamed signals; shells return this status for them.
        let _ = emulate_default_handler(signal);
        std::process::exit(Exit::Interrupted as i32 + signal);
    }
    exit.into()
}

/// Signals of the daemon: SIGHUP requests a reload; SIGINT, SIGTERM and SIGHUP end a wait.
pub(crate) struct Signals {
    pub(crate) interrupt: Interrupt,
    reload: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        with_signals_blocked(Self::install)
    }
    fn install() -> std::io::Result<Self> {
        let interrupt = Interrupt::default();
        let once = Arc::default();
        [SIGINT, SIGTERM].into_iter().try_for_each(|signal| interrupt.ask_once(signal, &once))?;
        let reload = Arc::new(AtomicBool::new(false));
        flag::register(SIGHUP, reload.clone())?;
        // After the flags, so that they are set when a wait ends.
        let (wake, end) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, end.try_clone()?)?;
        }
        Ok(Self { interrupt, reload, wake })
    }
    /// Whether SIGHUP arrived since the last [`Signals::reloaded`].
    pub(crate) fn is_reload_asked(&self) -> bool {
        self.reload.load(Ordering::Relaxed)
    }
    pub(crate) fn reloaded(&self) {
        self.reload.store(false, Ordering::Relaxed);
    }
    /// Sleeps for `time`, or until a signal arrives.
    pub(crate) fn wait(&self, time: Nanos) {
        // A timeout of zero would mean none.
        let time = time.max(Nanos::new(1000)).into();
        if self.wake.set_read_timeout(Some(time)).is_err() {
            return std::thread::sleep(time);
        }
        // The arrival counts, not the content. One read takes all signals so far.
        let _ = (&self.wake).read(&mut [0; 64]);
    }
}
