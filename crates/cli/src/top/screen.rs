//! Terminal of `top`: raw mode and the alternate screen, which every end restores.

use std::io::{self, Stdout, stdout};
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, Show};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui_core::buffer::Buffer;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::CrosstermBackend;
use signal_hook::consts::{SIGCONT, SIGTSTP};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;

/// Terminal in raw mode. Restored on drop and before a panic prints.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    stop: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
}

impl Screen {
    pub(super) fn new() -> io::Result<Self> {
        let (stop, continued) = (Arc::default(), Arc::default());
        flag::register(SIGTSTP, Arc::clone(&stop))?;
        flag::register(SIGCONT, Arc::clone(&continued))?;
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let screen = Self { terminal, stop, continued };
        enter()?;
        Ok(screen)
    }

    /// Draws the whole screen.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut())).map(drop)
    }

    /// Requests a stop, as Ctrl-Z does outside of raw mode.
    pub(super) fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Stops the process if SIGTSTP requested it, with the terminal restored. Returns whether the
    /// process was continued since the last call, so that the screen must be drawn again.
    pub(super) fn obey_job_control(&mut self) -> io::Result<bool> {
        if self.stop.swap(false, Ordering::Relaxed) {
            leave();
            // Returns when the user continues the process.
            emulate_default_handler(SIGTSTP)?;
            self.continued.store(true, Ordering::Relaxed);
        }
        if !self.continued.swap(false, Ordering::Relaxed) {
            return Ok(false);
        }
        // The shell may have changed the mode of the terminal, also after SIGSTOP.
        let _ = disable_raw_mode();
        enter()?;
        self.terminal.clear()?;
        Ok(true)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(stdout(), EnterAlternateScreen, Hide)
}

/// Restores the terminal. Without a terminal, nothing is left to restore.
fn leave() {
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
