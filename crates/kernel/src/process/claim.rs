//! Exclusive claim to change a process.
//!
//! The claim is an exclusive `flock(2)` on the process's `/proc/PID/pagemap`. Only a user who may
//! open that file, and so may read the process anyway, can hold it. The kernel drops it when its
//! holder ends, however it ends, and no file has to be created. Each mount of `/proc` has inodes of
//! its own, so runs in a container with its own `/proc` do not exclude each other.

use std::os::fd::OwnedFd;

use hugepilot_record::{Errno, Pid};
use rustix::fs::{FlockOperation, flock, fstat, major, minor};

use super::Process;
use crate::{KernelError, Result};

/// Exclusive claim to change a process, until dropped.
#[derive(Debug)]
pub struct Claim(Option<OwnedFd>);

impl Claim {
    /// Returns a claim for targets that are not processes, and for callers that hold the claim.
    pub const fn uncontested() -> Self {
        Self(None)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A child that was forked meanwhile also has the descriptor and would keep the lock.
        if let Some(pagemap) = &self.0 {
            let _ = flock(pagemap, FlockOperation::Unlock);
        }
    }
}

impl Process {
    pub(super) fn take_claim(&self, pagemap: OwnedFd) -> Result<Claim> {
        let pid = self.id.pid;
        let failed = |errno: rustix::io::Errno| {
            KernelError::syscall("flock", pid, Errno(errno.raw_os_error()))
        };
        match flock(&pagemap, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Claim(Some(pagemap))),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let file = fstat(&pagemap).map_err(failed)?;
                let locks = self.root.read_text("proc/locks").unwrap_or_default();
                let holder = holder(&locks, (major(file.st_dev), minor(file.st_dev), file.st_ino));
                Err(KernelError::Claimed { pid, holder })
            }
            Err(errno) => Err(failed(errno)),
        }
    }
}

/// Returns the process that holds a lock on the file with this device and inode, from
/// `/proc/locks`. `None` if the file does not name it: holders in other PID namespaces are missing
/// or have pid 0.
fn holder(locks: &str, file: (u32, u32, u64)) -> Option<Pid> {
    // 3: FLOCK  ADVISORY  WRITE 16851 00:15:15571 0 EOF
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[_, "FLOCK", _, _, pid, place, ..] = &words[..] else { return None };
        let parts: Vec<&str> = place.split(':').collect();
        let &[major, minor, inode] = &parts[..] else { return None };
        let hex = |text| u32::from_str_radix(text, 16).ok();
        let is_same = (hex(major)?, hex(minor)?, inode.parse().ok()?) == file;
        Some(Pid(pid.parse().ok()?)).filter(|pid| is_same && pid.0 > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Root, Target};

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:15:15571 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 fe:00:15571 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 00:15:15571 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 10 00:15:15571 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 0 00:15:15572 0 EOF\n";
        assert_eq!(holder(locks, (0, 0x15, 15571)), Some(Pid(9)));
        assert_eq!(holder(locks, (0xfe, 0, 15571)), Some(Pid(8)));
        assert_eq!(holder(locks, (0, 0x15, 15572)), None, "in another PID namespace");
        assert_eq!(holder("nonsense\n5: FLOCK", (0, 0x15, 1)), None);
    }

    #[test]
    fn a_process_is_claimed_once_and_the_error_names_the_holder() {
        let own = Pid(i32::try_from(std::process::id()).unwrap());
        let open = || Process::open(&Root::live(), own).unwrap();
        let claim = open().claim().unwrap();
        let error = open().claim().unwrap_err();
        let KernelError::Claimed { pid, holder } = error else { panic!("{error}") };
        assert_eq!((pid, holder), (own, Some(own)));
        drop(claim);
        assert!(open().claim().is_ok());
    }
}
