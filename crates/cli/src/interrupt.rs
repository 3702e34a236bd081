//! Ctrl-C and SIGTERM: asked for, then obeyed at the next safe moment, so that a complete report is left. SIGHUP for daemons.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hugepilot_units::Nanos;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::low_level::pipe;

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
    /// From now on every signal only asks, also that a terminal went away (SIGHUP): for work that is short, and that must
    /// put something right before it ends.
    pub(crate) fn only_ask() -> std::io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, interrupt.0.clone())?;
        }
        Ok(interrupt)
    }
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The same for what runs for ever: SIGHUP asks to read the configuration again, and any of the three ends a wait.
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
