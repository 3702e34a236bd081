//! Processes of a cgroup that cannot be read, reported together.

use hugepilot_record::{AccessError, Errno, ExcludedCount};

use crate::{KernelError, rights};

/// Collects the processes that a command excludes, and the error of the first.
#[derive(Debug, Default)]
pub struct ExcludedProcesses {
    count: usize,
    first: Option<KernelError>,
}

impl ExcludedProcesses {
    /// Adds a process that `error` excludes.
    pub fn add(&mut self, error: KernelError) {
        self.count += 1;
        self.first.get_or_insert(error);
    }

    /// Counts the excluded processes beside the `others`; `None` if there are none.
    ///
    /// # Errors
    /// The first error, if there are no others.
    pub fn count(self, others: usize) -> Result<Option<ExcludedCount>, KernelError> {
        let Some(error) = self.first else { return Ok(None) };
        if others == 0 {
            return Err(error);
        }
        Ok(Some(ExcludedCount {
            excluded: self.count as u64,
            processes: (self.count + others) as u64,
            first: access_error(&error),
        }))
    }
}

/// Records `error` with suggested actions.
pub fn access_error(error: &KernelError) -> AccessError {
    let help = match error.errno() {
        Some(Errno::EMFILE) => Some("raise the limit of open files: ulimit -n 65536".to_owned()),
        _ => error.is_denied().then(|| rights::fix(true)),
    };
    AccessError { error: error.to_string(), help: help.into_iter().collect() }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

    use super::*;

    #[test]
    fn a_missing_permission_has_the_help_for_reading_memory() {
        let denied =
            KernelError::Syscall { call: "process_vm_readv", pid: Pid(7), errno: Errno::EPERM };
        assert_eq!(access_error(&denied).help, [rights::fix(true)]);
        let gone = access_error(&KernelError::NoProcess { pid: Pid(7) });
        assert_eq!(gone, AccessError { error: "no process 7".to_owned(), help: Vec::new() });
    }

    #[test]
    fn the_first_error_stands_for_all_and_is_returned_if_no_process_is_left() {
        assert_eq!(ExcludedProcesses::default().count(0).unwrap(), None);
        let two = || {
            let mut excluded = ExcludedProcesses::default();
            for (pid, errno) in [(7, Errno::EMFILE), (8, Errno::EPERM)] {
                excluded.add(KernelError::Syscall { call: "pidfd_open", pid: Pid(pid), errno });
            }
            excluded
        };
        let first = two().count(0).unwrap_err();
        assert_eq!(first.errno(), Some(Errno::EMFILE));
        let count = two().count(3).unwrap().unwrap();
        assert_eq!((count.excluded, count.processes), (2, 5));
        assert_eq!(count.first, access_error(&first));
    }
}
