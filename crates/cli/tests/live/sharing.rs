//! Memory shared after fork stays shared: a huge page in one process would be a second copy.

use hugepilot_kernel::Target;
use hugepilot_manager::act::promote;
use hugepilot_record::SkipReason;
use hugepilot_testkit::{Victim, need, requires};
use hugepilot_units::Bytes;

use crate::bytes::fearless;
use crate::look::total;
use crate::tool::tune;
use crate::workload::{SOON, open, picks, sizes};

/// A parent and a child that share 64 MiB.
struct Pair {
    victim: Victim,
    memory: hugepilot_units::AddrRange,
    child: u32,
}

impl Pair {
    fn start(mode: &[&str]) -> Self {
        let victim = Victim::c("forkpair.c", &[&["64"], mode].concat());
        let ready = victim.ready(SOON);
        let child = ready.rest[1].parse().expect("a process number");
        Self { victim, memory: ready.memory, child }
    }

    /// Memory of both together.
    fn used(&self) -> Bytes {
        total(self.victim.pid(), "Pss") + total(self.child, "Pss")
    }

    fn ends_well(mut self) {
        assert!(self.victim.finish(SOON).success());
        self.victim.says("ok", SOON);
    }
}

/// Whether `b` is within 2 % of `a`.
fn about(a: Bytes, b: Bytes) -> bool {
    a.get().abs_diff(b.get()) * 50 <= a.get()
}

#[test]
fn tune_leaves_a_busy_child_sharing_with_its_parent() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cap_perfmon());
    let pair = Pair::start(&["busy"]);
    let before = pair.used();
    let report = tune(pair.child, "--budget 100%").exits(1).report();
    assert!(report.plan.skipped[&SkipReason::SharedAfterFork] > 20, "{:?}", report.plan.skipped);
    assert_eq!((report.acts.attempted_regions, report.acts.verified_regions), (0, 0));
    assert!(about(before, pair.used()), "{before} before, {} after", pair.used());
    pair.ends_well();
}

#[test]
fn promote_skips_shared_regions() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    let pair = Pair::start(&[]);
    let (before, picks) = (pair.used(), picks(pair.memory));
    for pid in [pair.child, pair.victim.pid()] {
        let journal = promote(&open(pid), &picks, &fearless(), &|| false, &mut |_| {});
        assert_eq!(journal.attempted(), 0, "{journal:?}");
        assert_eq!(journal.skipped[&SkipReason::SharedAfterFork], picks.len() as u64);
    }
    assert!(about(before, pair.used()), "{before} before, {} after", pair.used());

    // The kernel would not have refused: this is what the rule prevents.
    let child = open(pair.child);
    let done = picks.iter().filter(|pick| child.collapse(pick.region).is_ok()).count();
    assert!(done > 0, "the kernel refuses all {} regions by itself", picks.len());
    // Each region is a second copy then, also of the pages that the child did not write.
    let added = pair.used() - before;
    assert!(added.times(2) >= sizes().huge.times(done as u64), "{added} for {done} shared regions");
    pair.ends_well();
}
