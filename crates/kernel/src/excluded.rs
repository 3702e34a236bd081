//! Processes of a cgroup that may not be looked at: told of in one line, however many they are.

use hugepilot_record::Errno;

use crate::{KernelError, rights};

/// Those left out of a run, and why the first was.
#[derive(Debug, Default)]
pub struct ExcludedProcesses {
    count: usize,
    first: Option<KernelError>,
}

impl ExcludedProcesses {
    /// One more, because of `error`.
    pub fn add(&mut self, error: KernelError) {
        self.count += 1;
        self.first.get_or_insert(error);
    }

    /// What to tell, beside the `others` that were looked at; `None` where nobody was left out.
    ///
    /// # Errors
    /// The first error, where there are no others.
    pub fn warning(self, others: usize) -> Result<Option<String>, KernelError> {
        let Some(error) = self.first else { return Ok(None) };
        if others == 0 {
            return Err(error);
        }
        let all = self.count + others;
        Ok(Some(format!("{} of {all} processes were left out: {}", self.count, describe(&error))))
    }
}

/// `error`, and what to do about it, where we know.
pub fn describe(error: &KernelError) -> String {
    match error.errno() {
        Some(Errno::EMFILE) => format!("{error}; fix: ulimit -n 65536"),
        _ if error.is_denied() => format!("{error}; fix: {}", rights::fix(true)),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use hugepilot_record::Pid;

    use super::*;

    #[test]
    fn what_a_right_would_change_names_it() {
        let denied =
            KernelError::Syscall { call: "process_vm_readv", pid: Pid(7), errno: Errno::EPERM };
        assert!(describe(&denied).to_lowercase().contains("sys_ptrace"), "{}", describe(&denied));
        assert_eq!(describe(&KernelError::NoProcess { pid: Pid(7) }), "no process 7");
    }

    #[test]
    fn the_first_of_many_is_told_and_is_an_error_where_it_is_all_there_is() {
        assert_eq!(ExcludedProcesses::default().warning(0).unwrap(), None);
        let two = || {
            let mut left = ExcludedProcesses::default();
            for (pid, errno) in [(7, Errno::EMFILE), (8, Errno::EPERM)] {
                left.add(KernelError::Syscall { call: "pidfd_open", pid: Pid(pid), errno });
            }
            left
        };
        assert_eq!(two().warning(0).unwrap_err().errno(), Some(Errno::EMFILE));
        let told = two().warning(3).unwrap().unwrap();
        assert!(
            told.starts_with("2 of 5 processes were left out: pidfd_open on process 7"),
            "{told}"
        );
        assert!(told.ends_with("ulimit -n 65536"), "{told}");
    }
}
