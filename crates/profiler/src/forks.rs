//! Forks of sampled processes: after one, the first write to a huge page splits it.

use hashbrown::HashMap;
use hugepilot_record::Pid;

/// Children that may still start another program. A build starts tens of thousands.
const MAX_CHILDREN: usize = 4096;

/// Forks by process, without those of children that started another program: their copy of the
/// memory ends with that.
#[derive(Debug, Default)]
pub(crate) struct Forks {
    counts: HashMap<Pid, u64>,
    /// Parent of each child; `None` after the child's exec.
    parents: HashMap<Pid, Option<Pid>>,
}

impl Forks {
    /// Notes a new process, or a new thread of `parent`. Two events report the same child twice.
    pub(crate) fn fork(&mut self, child: Pid, parent: Pid) {
        if child == parent || self.parents.contains_key(&child) {
            return;
        }
        self.make_room();
        self.parents.insert(child, Some(parent));
        *self.counts.entry(parent).or_insert(0) += 1;
    }

    fn make_room(&mut self) {
        if self.parents.len() >= MAX_CHILDREN {
            self.parents.clear();
        }
    }

    /// Notes that a process started another program. The fork may be reported after it.
    pub(crate) fn exec(&mut self, pid: Pid) {
        self.make_room();
        let Some(parent) = self.parents.entry(pid).or_default().take() else { return };
        if let Some(count) = self.counts.get_mut(&parent) {
            *count -= 1;
        }
    }

    /// Forks of a process so far.
    pub(crate) fn of(&self, pid: Pid) -> u64 {
        self.counts.get(&pid).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_children_that_start_a_program_do_not_count() {
        let mut forks = Forks::default();
        forks.fork(Pid(1), Pid(1));
        assert_eq!(forks.of(Pid(1)), 0, "a thread");
        for child in [2, 3, 4, 2] {
            forks.fork(Pid(child), Pid(1));
        }
        forks.exec(Pid(3));
        forks.exec(Pid(3));
        forks.fork(Pid(3), Pid(1));
        assert_eq!((forks.of(Pid(1)), forks.of(Pid(2))), (2, 0));
        forks.exec(Pid(8));
        forks.fork(Pid(8), Pid(1));
        assert_eq!(forks.of(Pid(1)), 2, "its exec was reported first");
        (10..2 + MAX_CHILDREN as i32 + 10).for_each(|child| forks.fork(Pid(child), Pid(5)));
        (10..MAX_CHILDREN as i32 + 20).for_each(|pid| forks.exec(Pid(pid)));
        assert!(forks.parents.len() <= MAX_CHILDREN);
    }
}
