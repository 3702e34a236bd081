//! Ctrl-C and SIGTERM: asked for, then obeyed at the next safe moment, so that a complete report is left. SIGHUP for daemons. And
//! all other signals that would end us, where settings of the kernel have to be put back first.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use hugepilot_kernel::{ending_signals, was_ignored};
use hugepilot_units::Nanos;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, pipe};

/// Whether somebody asked to stop.
#[derive(Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on the first signal asks, and a second one ends the program at once.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, 130, interrupt.0.clone())?;
            flag::register(signal, interrupt.0.clone())?;
        }
        Ok(interrupt)
    }
    /// From now on every signal that would end us only asks: for work that must put something right before it ends. Those but
    /// Ctrl-C, SIGTERM and that a terminal went away (SIGHUP) end us all the same, at [`end_if_killed`]. What was ignored when we
    /// were started, as SIGHUP is by nohup, still is; but for Ctrl-C, as scripts ignore it for what they put in the background.
    pub(crate) fn only_ask() -> std::io::Result<Self> {
        let interrupt = Self::default();
        let heard = |signal: &i32| [SIGINT, SIGTERM].contains(signal) || !was_ignored(*signal);
        for signal in ending_signals().into_iter().filter(heard) {
            flag::register(signal, interrupt.0.clone())?;
            if ![SIGINT, SIGTERM, SIGHUP].contains(&signal) {
                flag::register_usize(signal, killed_by().clone(), signal.unsigned_abs() as usize)?;
            }
        }
        Ok(interrupt)
    }
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The signal that shall end us when all is put right; 0 for none.
fn killed_by() -> &'static Arc<AtomicUsize> {
    static KILLED_BY: OnceLock<Arc<AtomicUsize>> = OnceLock::new();
    KILLED_BY.get_or_init(Arc::default)
}

/// Ends us by the signal that asked for it, so that whoever started us learns of it.
pub(crate) fn end_if_killed() {
    let signal = i32::try_from(killed_by().load(Ordering::Relaxed)).unwrap_or(0);
    if signal != 0 {
        // Of signals that it has no name for, it knows no default: shells say it so.
        let _ = emulate_default_handler(signal);
        std::process::exit(128 + signal);
    }
}

/// Signals for what runs for ever: SIGHUP asks to read the configuration again, and any of the three ends a wait.
pub(crate) struct Signals {
    pub(crate) interrupt: Interrupt,
    reload: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        let interrupt = Interrupt::listen()?;
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
