//! Size of a terminal, and its end.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::wait::timespec;

/// Columns of the terminal at `descriptor`; `None` if it is not a terminal or its size is unknown.
pub fn columns(descriptor: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(descriptor).ok()?;
    (size.ws_col > 0).then(|| size.ws_col.into())
}

/// Waits for input from the terminal at `descriptor`, at most for `timeout`. A signal ends the
/// wait.
///
/// Returns whether the terminal is gone: a read would find no input for ever.
pub fn is_gone(descriptor: impl AsFd, timeout: Duration) -> bool {
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut polled, Some(&timespec(timeout))).is_ok() && polled[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_gone_when_its_writer_is() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!is_gone(&reader, Duration::ZERO));
        drop(writer);
        assert!(is_gone(&reader, Duration::from_secs(60)));
    }

    #[test]
    fn a_file_has_no_columns() {
        assert_eq!(columns(std::fs::File::open("/dev/null").unwrap()), None);
    }
}
