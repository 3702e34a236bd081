//! Use of a program, or of a running process, with all its descendants.
//!
//! A child that lives for milliseconds ends before it is found. The kernel adds the use of a child
//! to that of the parent that waits for it, so the sums over the recorded processes and the
//! children that they waited for have it. It adds all of it: for a child of a running process that
//! started before the recording, the use until then is subtracted.

use hugepilot_kernel::proc::{Stat, parse_stat};
use hugepilot_kernel::{LastUse, Process, usage};
use hugepilot_record::{Pid, Tid};
use hugepilot_recording::{Line, Slice, TreeUse};
use hugepilot_units::Nanos;

use super::Recorder;
use super::metrics::place;
use super::process::ProcessSlices;

/// Page faults and CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    pub(super) faults: u64,
    pub(super) cpu: Nanos,
}

impl Use {
    /// Use of a process and of the children that it waited for.
    pub(super) fn of(stat: &Stat) -> Self {
        let major = stat.major_faults.saturating_add(stat.child_major_faults);
        let minor = stat.minor_faults.saturating_add(stat.child_faults);
        let cpu = stat.user + stat.system + stat.child_cpu;
        Self { faults: minor.saturating_add(major), cpu }
    }
}

impl std::ops::AddAssign for Use {
    fn add_assign(&mut self, more: Self) {
        self.faults = self.faults.saturating_add(more.faults);
        self.cpu = self.cpu + more.cpu;
    }
}

/// Use that is in the slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenUse {
    used: Use,
    switches: u64,
}

impl SeenUse {
    /// Counts the slices of processes.
    pub(super) fn count(&mut self, lines: &[Line]) {
        let slices = lines.iter().filter_map(|line| match line {
            Line::Slice(slice @ Slice { pid: Some(_), tid: None, .. }) => Some(&slice.values),
            _ => None,
        });
        for values in slices {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let value = |name| values.get(place(name)).copied().flatten().unwrap_or(0.0) as u64;
            let cpu = Nanos::new(value("user_time")) + Nanos::new(value("system_time"));
            self.used += Use { faults: value("minor_faults") + value("major_faults"), cpu };
            self.switches += value("voluntary_switches") + value("involuntary_switches");
        }
    }
}

/// Tree of processes below a program.
#[derive(Debug)]
pub(super) struct Tree {
    root: Pid,
    /// Parent of a program. The kernel also gives it the processes whose parents ended. `None` for
    /// a running process, whose parent has children that are not its own.
    reaper: Option<Pid>,
    /// The same; `None` if it cannot be read.
    orphanage: Option<Process>,
    /// Descendants that started before the recording, with their start: they are not recorded.
    earlier: Vec<(Pid, u64)>,
    /// Use before the recording.
    begin: Use,
    /// Use of the processes that the reaper reaped.
    ended: Use,
    /// Context switches of the root and the children that it waited for, until its end.
    switches: Option<u64>,
    /// Whether the recording began after the program, so that its switches include earlier ones.
    is_late: bool,
}

impl Tree {
    /// Tree of `root` without any use.
    fn of(root: Pid) -> Self {
        Self {
            root,
            reaper: None,
            orphanage: None,
            earlier: Vec::new(),
            begin: Use::default(),
            ended: Use::default(),
            switches: None,
            is_late: false,
        }
    }
}

impl Recorder {
    /// Counts the use of a recorded process with its descendants from now on.
    pub(super) fn count_tree(&mut self, root: Pid) {
        let reaper = self.processes.get(&root).map(ProcessSlices::parent);
        self.tree = reaper.map(|reaper| {
            let orphanage = Process::open(&self.root, reaper).ok();
            let begin = self.live_use();
            Tree { reaper: Some(reaper), orphanage, begin, ..Tree::of(root) }
        });
    }

    /// Counts the use of a recorded process that runs already with its descendants from now on. Of
    /// a descendant from before whose parent does not wait for it, no use is counted.
    pub fn count_running(&mut self, root: Pid) {
        let family = usage::family(&self.root, root);
        let stats = family.iter().skip(1).filter_map(|&pid| self.stat(pid));
        // A shell that records itself is the parent of hugepilot.
        let is_own = |stat: &Stat| u32::try_from(stat.pid.0) == Ok(std::process::id());
        let is_earlier = |stat: &Stat| stat.started() < self.booted && !is_own(stat);
        let earlier: Vec<Stat> = stats.filter(is_earlier).collect();
        let mut begin = Use::default();
        // The root is last: a child that ends meanwhile is subtracted twice rather than counted.
        earlier.iter().chain(&self.stat(root)).for_each(|stat| begin += Use::of(stat));
        let earlier = earlier.iter().map(|stat| (stat.pid, stat.start_ticks)).collect();
        self.tree = Some(Tree { earlier, begin, is_late: true, ..Tree::of(root) });
    }

    fn stat(&self, pid: Pid) -> Option<Stat> {
        parse_stat(&self.root.read(format!("proc/{pid}/stat")).ok()?)
    }

    /// Begins the count again.
    pub(super) fn restart_tree(&mut self) {
        let begin = self.live_use();
        if let Some(tree) = &mut self.tree {
            (tree.begin, tree.ended, tree.is_late) = (begin, Use::default(), true);
        }
    }

    /// Notes the use of the root until its end.
    pub(super) fn end_tree(&mut self, last: &LastUse) {
        let usage = &last.usage;
        match &mut self.tree {
            Some(tree) if tree.root == last.stat.pid && !tree.is_late => {
                tree.switches = Some(usage.voluntary_switches + usage.involuntary_switches);
            }
            _ => {}
        }
    }

    /// Keeps the use of a process that ended, unless its parent has it.
    pub(super) fn leave_tree(&mut self, pid: Pid) {
        let (Some(tree), Some(process)) = (&mut self.tree, self.processes.get(&pid)) else {
            return;
        };
        if tree.reaper.map_or(pid == tree.root, |reaper| process.parent() == reaper) {
            tree.ended += process.tree_use();
        }
    }

    /// Returns the live children of the parent of the root: the root, and orphans.
    pub(super) fn orphans(&self) -> Vec<Pid> {
        let of = |tree: &Tree| {
            let tid = Tid(tree.reaper?.0);
            tree.orphanage.as_ref().map(|reaper| reaper.children_of(tid))
        };
        self.tree.as_ref().and_then(of).unwrap_or_default()
    }

    /// Use of the live processes, and of the children that they waited for.
    fn live_use(&self) -> Use {
        let mut sum = Use::default();
        self.processes.values().for_each(|process| sum += process.tree_use());
        for &(pid, start) in self.tree.iter().flat_map(|tree| &tree.earlier) {
            let stat = self.stat(pid).filter(|stat| stat.start_ticks == start);
            sum += stat.as_ref().map(Use::of).unwrap_or_default();
        }
        sum
    }

    /// Returns the use of the tree, and the part of it that is in no slice. Of a process whose
    /// parent does not wait for it, only the slices have the use.
    pub(super) fn tree_use(&self) -> Option<TreeUse> {
        let tree = self.tree.as_ref()?;
        let mut all = self.live_use();
        all += tree.ended;
        let seen = &self.counts.seen;
        let faults = all.faults.saturating_sub(tree.begin.faults).max(seen.used.faults);
        let cpu = (all.cpu - tree.begin.cpu).max(seen.used.cpu);
        Some(TreeUse {
            faults,
            unseen_faults: faults.saturating_sub(seen.used.faults),
            cpu_seconds: cpu.as_seconds(),
            unseen_cpu_seconds: (cpu - seen.used.cpu).as_seconds(),
            context_switches: tree.switches,
            unseen_context_switches: tree.switches.map(|all| all.saturating_sub(seen.switches)),
            process_limit: self.too_many.then_some(self.options.max_processes as u64),
            earlier_processes: (!tree.earlier.is_empty()).then_some(tree.earlier.len() as u64),
        })
    }
}
