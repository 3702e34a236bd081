//! A program in a tight cgroup that survives without hugepilot also survives with it.

use std::path::Path;
use std::process::ExitStatus;

use hugepilot_kernel::{Process, Target};
use hugepilot_manager::act::promote;
use hugepilot_record::{SkipReason, Stop};
use hugepilot_reports::tune::TuneReport;
use hugepilot_testkit::{Ready, Victim, compiled, need, requires};
use hugepilot_units::Bytes;

use crate::bytes::fearless;
use crate::cgroup::Cgroup;
use crate::tool::tune;
use crate::workload::{SOON, open, picks};

/// Runs a program under `limit` with 16 regions, one base page of `every` touched in each. After
/// `meanwhile`, the program needs 3 MiB more. Returns its exit status.
fn survives(limit: Bytes, every: &str, meanwhile: impl FnOnce(&Process, &Ready)) -> ExitStatus {
    let group = Cgroup::new(limit);
    let mut command = group.command(&compiled(Path::new("tight.c")));
    command.args(["16", every, "3", "busy"]);
    let mut victim = Victim::spawn(command);
    let ready = victim.ready(SOON);
    meanwhile(&open(victim.pid()), &ready);
    victim.send("grow");
    let status = victim.wait(SOON);
    drop(victim);
    status
}

/// Sparse memory: a region has 16 resident pages, and a huge page adds 496.
const SPARSE: &str = "32";
/// Half-used memory, the least that the rules allow: a huge page adds 256 pages.
const HALF: &str = "2";

/// Each has room to grow alone, but not beside 16 huge pages.
const CASES: [(&str, Bytes); 3] =
    [(SPARSE, Bytes::mib(12)), (SPARSE, Bytes::mib(24)), (HALF, Bytes::mib(31))];

#[test]
fn a_tight_program_survives_alone_but_not_unguarded_promotion() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cgroup_memory());
    for (every, limit) in CASES {
        let alone = survives(limit, every, |_, _| {});
        assert!(alone.success(), "{every} {limit}: it must survive alone");
        let harmed = survives(limit, every, |process, ready| {
            for pick in picks(ready.memory) {
                let _ = process.collapse(pick.region);
            }
        });
        assert!(!harmed.success(), "{every} {limit}: the test is too easy");
    }
}

#[test]
fn a_tight_program_survives_tune() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cap_perfmon());
    requires!(need::cgroup_memory());
    for (every, limit) in CASES {
        let status = survives(limit, every, |process, _| {
            let pid = process.id().pid.0.cast_unsigned();
            // 100 % of the resident memory would be half of these regions; a larger budget is more
            // dangerous.
            // With more samples, `tune` would find that the TLB holds these few pages.
            let flags = "--budget 1GiB --max-added 100% --rate 200 --for 1s";
            let reports = (0..3).map(|_| tune(pid, flags).sane().report());
            let is_sampled = |report: &TuneReport| {
                report.plan.skipped.contains_key(&SkipReason::TooFewResident)
                    || report.plan.eligible_regions > Some(0)
            };
            // On a busy machine the victim may get too little CPU time for samples in one run.
            let report = reports.into_iter().find(is_sampled).expect("a run with enough samples");
            eprintln!(
                "{limit}: {} verified, {:?}, {:?}",
                report.acts.verified_regions, report.plan.skipped, report.stopped
            );
        });
        assert!(status.success(), "{every} {limit}: {status}");
    }
}

#[test]
fn a_tight_program_survives_the_most_eager_promotion() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cgroup_memory());
    for (every, limit) in CASES {
        let status = survives(limit, every, |process, ready| {
            for _ in 0..3 {
                let journal =
                    promote(process, &picks(ready.memory), &fearless(), &|| false, &mut |_| {});
                assert_eq!(journal.stopped, Some(Stop::MemoryPressure), "{journal:?}");
            }
        });
        assert!(status.success(), "{every} {limit}: {status}");
    }
}
