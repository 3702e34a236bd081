//! `debloat` on the running kernel: contents, reports, orders, amounts and errors.

mod churn; // memory contents never change
mod heat; // order by heat
mod hostile; // targets that end, change, or have nothing to free
mod orders; // order of huge pages
mod refused; // kernels and users that cannot
mod several; // sharing among processes
mod shrinker; // debloating by the kernel
mod stranded; // memory that is held and not mapped
mod truth; // reports against independent measurements

use hugepilot_reports::debloat::{DebloatReport, ProcessDebloat};
use hugepilot_testkit::{Need, Victim, need};
use hugepilot_units::{AddrRange, Bytes};

use crate::look::{huge_map, total};
use crate::tool::{Done, hugepilot};
use crate::workload::{SOON, sizes};

/// Requirements of most tests; only root can read page frames, which identify huge pages.
fn possible() -> Need {
    need::all([need::live(), need::root(), need::c_compiler()])
}

/// Requirements of tests that inject faults.
fn injectable() -> Need {
    need::all([possible(), need::program("strace")])
}

/// Words of `hugepilot debloat --json` on `pids`, with those of `more`. Unless these say otherwise,
/// it samples no heat, and frees all bloat.
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

/// Returns its report after checking the sums.
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

/// A quiet victim with partly used huge pages.
struct Bloat {
    victim: Victim,
    memory: AddrRange,
}

impl Bloat {
    /// Starts `bloat.c` with `words`.
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

    /// Waits until its memory stops growing.
    #[track_caller]
    fn quiet(mut self) -> Self {
        self.asked("check", "intact");
        self
    }

    fn regions(&self) -> usize {
        sizes().regions_inside(self.memory).count()
    }

    /// Returns for each of its regions whether it is on a huge page.
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

    /// Sends `line`, and returns the words after its `answer`.
    #[track_caller]
    fn asked(&mut self, line: &str, answer: &str) -> Vec<String> {
        self.victim.send(line);
        self.victim.says(answer, SOON)
    }

    /// Ends after the victim has verified all its bytes.
    #[track_caller]
    fn ends_intact(mut self) {
        self.asked("check", "intact");
        assert!(self.victim.finish(SOON).success());
    }
}
