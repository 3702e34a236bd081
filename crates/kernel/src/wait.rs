//! Waits for files, pidfds and signal files to become readable.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until one of `files` is readable, at most for `timeout`. A pidfd is readable when its
/// process has ended.
///
/// Returns whether one is readable. A signal that interrupts the wait ends it.
pub fn readable(files: &[BorrowedFd<'_>], timeout: Duration) -> bool {
    let mut files: Vec<_> =
        files.iter().map(|&file| PollFd::from_borrowed_fd(file, PollFlags::IN)).collect();
    let timeout = Timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    poll(&mut files, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_pipe_is_readable_once_it_holds_a_byte() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        assert!(!readable(&[reader.as_fd()], Duration::ZERO));
        writer.write_all(b"x").unwrap();
        assert!(readable(&[reader.as_fd()], Duration::ZERO));
        assert!(!readable(&[], Duration::from_millis(1)));
    }
}
