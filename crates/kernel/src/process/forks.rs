//! Forks of a process: after one, the first write to a huge page splits it.

use super::Process;
use crate::usage::children;

/// Forks of a process, as far as `/proc` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forks {
    /// Whether a child runs that started no other program, so that it shares the memory.
    pub running: bool,
    /// Whether it waited for a child, which may have been a fork.
    pub ended: bool,
}

impl Process {
    /// Reads what the process shows of its forks: some ten microseconds for each thread and child.
    /// What cannot be read counts as no fork.
    pub fn forks(&self) -> Forks {
        let is_fork =
            |child| Self::open(&self.root, child).is_ok_and(|child| child.program == self.program);
        Forks {
            running: children(&self.root, self.id.pid).into_iter().any(is_fork),
            ended: self.stat().is_ok_and(|stat| stat.child_faults > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use hugepilot_record::Pid;

    use super::*;
    use crate::Root;
    use crate::usage::family;

    /// A shell forks for a subshell, and starts a program for a command.
    #[test]
    fn a_subshell_is_a_fork_and_a_command_is_none() {
        for (script, running) in [("(sleep 60; :) & wait", true), ("sleep 60 & wait", false)] {
            let mut shell = Command::new("sh").args(["-c", script]).spawn().unwrap();
            let pid = Pid(shell.id().cast_signed());
            let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
            // Until the exec, the shell is another program, and the command is a fork.
            let found = loop {
                let has_child = !children(&Root::live(), pid).is_empty();
                let found = Process::open(&Root::live(), pid).unwrap().forks().running;
                if has_child && found == running || std::time::Instant::now() > until {
                    break found;
                }
                std::thread::yield_now();
            };
            let family = family(&Root::live(), pid).into_iter().rev();
            family.for_each(|one| _ = Command::new("kill").arg(one.to_string()).status());
            shell.wait().unwrap();
            assert_eq!(found, running, "{script}");
        }
    }
}
