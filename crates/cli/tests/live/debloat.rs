//! `debloat` on the running kernel: it loses no byte, tells the truth, keeps to its order and its amount, and says no in words.

mod churn; // no byte ever changes
mod hostile; // targets that end, change, lie, or have nothing to give
mod orders; // which huge pages go first
mod refused; // kernels and rights that forbid it
mod several; // whose huge pages go first
mod shrinker; // where memory may not be read: the kernel does it
mod truth; // what the report says is so

use hugepilot_record::debloat::{DebloatReport, ProcessDebloat};
use hugepilot_testkit::{Need, Victim, need};
use hugepilot_units::{AddrRange, Bytes};

use crate::look::{huge_map, total};
use crate::tool::{Done, hugepilot};
use crate::workload::{SOON, sizes};

/// What nearly all of these take; only root sees page frames, which tell what is huge.
fn possible() -> Need {
    need::all([need::live(), need::root(), need::c_compiler()])
}

/// And to inject faults.
fn injectable() -> Need {
    need::all([possible(), need::program("strace")])
}

/// The words of `hugepilot debloat --json` on `pids` with those of `more`. Where these do not say so, it does not look for
/// heat first, and takes all bloat.
fn args(pids: &[u32], more: &str) -> Vec<String> {
    let mut words: Vec<String> =
        ["debloat", "--json", "--calibration", "off"].map(str::to_owned).to_vec();
    words.extend(pids.iter().map(|pid| format!("--pid={pid}")));
    words.extend(more.split_whitespace().map(str::to_owned));
    for (flag, value) in [("--order", "exact"), ("--observe", "0s"), ("--amount", "100%")] {
        if !words.iter().any(|word| word == flag) {
            words.extend([flag.to_owned(), value.to_owned()]);
        }
    }
    words
}

#[track_caller]
fn debloat(pids: &[u32], more: &str) -> Done {
    hugepilot(args(pids, more))
}

/// Its report, whose sums are right.
#[track_caller]
fn report(done: &Done) -> DebloatReport {
    let report: DebloatReport = done.json();
    let sum = |of: fn(&ProcessDebloat) -> u64| -> u64 { report.processes.iter().map(of).sum() };
    assert_eq!(report.schema, "hugepilot.debloat/2");
    assert_eq!(report.freed_bytes.get(), sum(|one| one.freed_bytes.get()), "{done:?}");
    assert_eq!(report.huge_pages_split, sum(|one| one.huge_pages_split), "{done:?}");
    assert_eq!(report.huge_pages_before, sum(|one| one.huge_pages_before), "{done:?}");
    assert_eq!(report.huge_pages_after, sum(|one| one.huge_pages_after), "{done:?}");
    report
}

/// A victim whose huge pages are used in part, and quiet.
struct Bloat {
    victim: Victim,
    memory: AddrRange,
}

impl Bloat {
    /// `words` as `bloat.c` takes them.
    #[track_caller]
    fn start(words: &[&str]) -> Self {
        Self::is(Victim::c("bloat.c", words))
    }

    #[track_caller]
    fn is(victim: Victim) -> Self {
        let memory = victim.ready(SOON).memory;
        Self { victim, memory }
    }

    fn pid(&self) -> u32 {
        self.victim.pid()
    }

    /// It has done all that it does before it waits, so that its memory grows no more.
    #[track_caller]
    fn quiet(mut self) -> Self {
        self.asked("check", "intact");
        self
    }

    fn regions(&self) -> usize {
        sizes().regions_inside(self.memory).count()
    }

    /// Whether each of its regions is on a huge page.
    #[track_caller]
    fn map(&self) -> Vec<bool> {
        huge_map(self.pid(), self.memory)
    }

    #[track_caller]
    fn split_regions(&self) -> usize {
        self.map().iter().filter(|&&huge| !huge).count()
    }

    #[track_caller]
    fn total(&self, label: &str) -> Bytes {
        total(self.pid(), label)
    }

    /// Has it do what `line` says, and gives the words after its `answer`.
    #[track_caller]
    fn asked(&mut self, line: &str, answer: &str) -> Vec<String> {
        self.victim.send(line);
        self.victim.says(answer, SOON)
    }

    /// Every byte is as it wrote it, it says, and ends.
    #[track_caller]
    fn ends_intact(mut self) {
        self.asked("check", "intact");
        assert!(self.victim.finish(SOON).success());
    }
}
