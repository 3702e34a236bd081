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
    poll(&mut files, Some(&timespec(timeout))).is_ok_and(|ready| ready > 0)
}

/// Returns a time as calls of the kernel take it; the longest, if it is longer.
pub(crate) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
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
