//! Processes of a cgroup that a command excludes, reported in one line.

use hugepilot_record::Errno;

use crate::{KernelError, rights};

/// Number of excluded processes, and the error of the first.
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

    /// Returns the warning beside `others` processes; `None` if none was excluded.
    ///
    /// # Errors
    /// The first error, if there are no others.
    pub fn warning(self, others: usize) -> Result<Option<String>, KernelError> {
        let Some(error) = self.first else { return Ok(None) };
        if others == 0 {
            return Err(error);
        }
        let all = self.count + others;
        Ok(Some(format!("{} of {all} processes were excluded: {}", self.count, describe(&error))))
    }
}

/// Returns `error` with help, if any is known.
pub fn describe(error: &KernelError) -> String {
    match error.errno() {
        Some(Errno::EMFILE) => format!("{error}; help: ulimit -n 65536"),
        _ if error.is_denied() => format!("{error}; help: {}", rights::fix(true)),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

    use super::*;

    #[test]
    fn the_help_names_the_missing_capability() {
        let denied =
            KernelError::Syscall { call: "process_vm_readv", pid: Pid(7), errno: Errno::EPERM };
        assert!(describe(&denied).to_lowercase().contains("sys_ptrace"), "{}", describe(&denied));
        assert_eq!(describe(&KernelError::NoProcess { pid: Pid(7) }), "no process 7");
    }

    #[test]
    fn the_first_error_is_the_warning_and_the_error_without_others() {
        assert_eq!(ExcludedProcesses::default().warning(0).unwrap(), None);
        let two = || {
            let mut excluded = ExcludedProcesses::default();
            for (pid, errno) in [(7, Errno::EMFILE), (8, Errno::EPERM)] {
                excluded.add(KernelError::Syscall { call: "pidfd_open", pid: Pid(pid), errno });
            }
            excluded
        };
        assert_eq!(two().warning(0).unwrap_err().errno(), Some(Errno::EMFILE));
        let warning = two().warning(3).unwrap().unwrap();
        assert!(
            warning.starts_with("2 of 5 processes were excluded: pidfd_open on process 7"),
            "{warning}"
        );
        assert!(warning.ends_with("ulimit -n 65536"), "{warning}");
    }
}
