//! A program in a tight cgroup that would survive without us survives with us.

use std::path::Path;
use std::process::ExitStatus;

use hugepilot_kernel::{Process, Target};
use hugepilot_manager::act::promote;
use hugepilot_record::tune::TuneReport;
use hugepilot_record::{SkipReason, Stop};
use hugepilot_testkit::{Ready, Victim, compiled, need, requires};
use hugepilot_units::Bytes;

use crate::bytes::fearless;
use crate::cgroup::Cgroup;
use crate::tool::tune;
use crate::workload::{SOON, open, picks};

/// Runs a program with 16 regions, one base page of `every` touched in each, under `limit`; lets `meanwhile` do its work,
/// and then the program needs 3 MiB more. Says how that ends.
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

/// Sparse memory: a region holds 16 pages, and a huge page adds 496.
const SPARSE: &str = "32";
/// Half-used memory, as much as the rules allow: a huge page adds 256 pages.
const HALF: &str = "2";

/// Each with room to grow alone, and not beside 16 huge pages.
const CASES: [(&str, Bytes); 3] =
    [(SPARSE, Bytes::mib(12)), (SPARSE, Bytes::mib(24)), (HALF, Bytes::mib(31))];

#[test]
fn it_survives_alone_and_the_kernel_would_let_us_kill_it() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cgroup_memory());
    for (every, limit) in CASES {
        assert!(survives(limit, every, |_, _| {}).success(), "{every} {limit}: no fair test");
        let harmed = survives(limit, every, |process, ready| {
            for pick in picks(ready.memory) {
                let _ = process.collapse(pick.region);
            }
        });
        assert!(!harmed.success(), "{every} {limit}: there was no danger");
    }
}

#[test]
fn it_survives_tune() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cap_perfmon());
    requires!(need::cgroup_memory());
    for (every, limit) in CASES {
        let status = survives(limit, every, |process, _| {
            let pid = process.id().pid.0.cast_unsigned();
            // 100 % of what is resident would be half of these regions; as much as it likes is more dangerous.
            let reports = (0..3).map(|_| tune(pid, "--budget 1GiB").sane().report());
            let seen = |report: &TuneReport| {
                report.skipped.contains_key(&SkipReason::TooFewResident)
                    || report.eligible_regions > Some(0)
            };
            // On a busy machine the victim may get too little time to be sampled in one run.
            let report = reports.into_iter().find(seen).expect("the victim is seen to be busy");
            eprintln!(
                "{limit}: {} verified, {:?}, {:?}",
                report.verified_regions, report.skipped, report.stopped
            );
        });
        assert!(status.success(), "{every} {limit}: {status}");
    }
}

#[test]
fn it_survives_the_engine_at_its_most_eager() {
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
