//! Notices of the kernel that processes stall on memory (pressure stall information).

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use crate::Root;
use crate::wait::timespec;

/// Trigger on `/proc/pressure/memory`: some process stalled for a share of a window.
#[derive(Debug)]
pub struct StallTrigger(File);

impl StallTrigger {
    /// Sets a trigger for 150 ms of stalls within 2 s. Without `CAP_SYS_RESOURCE`, the kernel
    /// accepts only windows that are multiples of 2 s.
    ///
    /// # Errors
    /// ENOENT without pressure stall information; EINVAL and EACCES if the kernel rejects the
    /// trigger. Without a trigger, a wait would report stalls at once.
    pub fn memory(root: &Root) -> io::Result<Self> {
        let path = root.join("proc/pressure/memory");
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.write_all(b"some 150000 2000000\0")?;
        Ok(Self(file))
    }

    /// Waits for stalls, at most for `timeout`. Returns whether there were some since the last
    /// call: at most once in a window.
    ///
    /// # Errors
    /// EIO if the kernel has no trigger for the file; those of `poll`.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut files = [PollFd::new(&self.0, PollFlags::PRI)];
        match poll(&mut files, Some(&timespec(timeout))) {
            Err(rustix::io::Errno::INTR) => return Ok(false),
            done => done?,
        };
        let events = files[0].revents();
        if events.contains(PollFlags::ERR) {
            return Err(rustix::io::Errno::IO.into());
        }
        Ok(events.contains(PollFlags::PRI))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trigger_that_is_not_accepted_is_an_error() {
        assert!(StallTrigger::memory(&Root::at("/no/such/tree")).is_err());
        // An ordinary file accepts the text, but has no trigger.
        let (_dir, root) = crate::root::fixture(&[("proc/pressure/memory", "")]);
        let trigger = StallTrigger::memory(&root).unwrap();
        assert!(!trigger.wait(Duration::ZERO).unwrap_or(false));
    }
}
