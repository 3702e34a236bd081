//! Sharing among several processes.

use std::fs::read_to_string;
use std::process::Command;
use std::time::Duration;

use hugepilot_reports::debloat::{DebloatReport, DebloatWarning, ProcessDebloat};
use hugepilot_testkit::{Victim, compiled, need, requires};
use hugepilot_units::Bytes;

use super::{Bloat, args, debloat, possible, report};
use crate::cgroup::Cgroup;
use crate::tool::{HUGEPILOT, LIMIT, Running};
use crate::workload::sizes;

#[track_caller]
fn of<'a>(report: &'a DebloatReport, victim: &Bloat) -> &'a ProcessDebloat {
    let pid = i32::try_from(victim.pid()).unwrap();
    report.processes.iter().find(|one| one.pid.0 == pid).expect("it is in the report")
}

#[test]
fn protected_processes_keep_all_and_preferred_ones_are_first() {
    requires!(possible());
    let [full, empty, kept] = [("400x16", "full"), ("16x16", "empty"), ("16x16", "kept")]
        .map(|(used, name)| Bloat::start(&[used, "0", name]));
    let pids = [full.pid(), empty.pid(), kept.pid()];
    let done = debloat(&pids, &format!("--protect kept --prefer {} --amount 3MiB", full.pid()));
    let first = report(done.exits(0));
    assert_eq!(
        [&full, &empty, &kept].map(|one| of(&first, one).huge_pages_split),
        [7, 0, 0],
        "{done:?}"
    );
    assert_eq!(first.skipped.get("protected"), Some(&16), "{done:?}");

    // The preferred process first, then the others.
    let done = debloat(&pids, "--protect kept --prefer full --amount 100%");
    let all = report(done.exits(0));
    assert_eq!(
        [&full, &empty, &kept].map(|one| of(&all, one).huge_pages_split),
        [9, 16, 0],
        "{done:?}"
    );
    assert_eq!([&full, &empty, &kept].map(Bloat::split_regions), [16, 16, 0]);
    assert_eq!(of(&all, &kept).huge_pages_after, 16, "{done:?}");

    let done = debloat(&pids, "--protect kept --amount 1GiB");
    let short = report(done.exits(1));
    let protected =
        |warning: &_| matches!(warning, DebloatWarning::Shortfall { protected_huge_pages: 16, .. });
    assert!(short.warnings.iter().any(protected), "{done:?}");

    debloat(&pids, "--protect absent").exits(2).says(&["\"absent\""]);
    [full, empty, kept].into_iter().for_each(Bloat::ends_intact);
}

#[test]
fn processes_share_as_configured() {
    requires!(possible());
    // Programs with half-used huge pages; their parts of the sum by `--fairness`.
    let cases = [
        ("--fairness bloat", ["256x32", "256x16"], [2, 1]),
        ("--fairness weight --weight big=3", ["256x32", "256x32"], [3, 1]),
        ("--weight big=3", ["256x32", "256x32"], [3, 1]),
        ("--fairness round-robin --quantum 4", ["256x32", "256x16"], [1, 1]),
        ("--fairness off", ["256x32", "256x16"], [1, 0]),
    ];
    for (fairness, used, parts) in cases {
        let victims = [("big", used[0]), ("small", used[1])]
            .map(|(name, used)| Bloat::start(&[used, "0", name]));
        let done = debloat(
            &victims.each_ref().map(Bloat::pid),
            &format!("{fairness} --order exact --amount 24MiB"),
        );
        let report = report(done.exits(0));
        assert_eq!(report.freed_bytes, Bytes::mib(24), "{fairness}: {done:?}");
        for (victim, part) in victims.iter().zip(parts) {
            let due = Bytes::mib(24).get() * part / parts.iter().sum::<u64>();
            let freed = of(&report, victim).freed_bytes.get();
            assert!(
                freed.abs_diff(due) <= sizes().huge.get(),
                "{fairness}: {freed} of {due}: {done:?}"
            );
            assert_eq!(
                victim.split_regions() as u64,
                of(&report, victim).huge_pages_split,
                "{fairness}"
            );
        }
        victims.into_iter().for_each(Bloat::ends_intact);
    }
}

#[test]
fn a_cgroup_includes_its_descendants() {
    requires!(possible());
    requires!(need::cgroup_memory());
    let group = Cgroup::new(Bytes::gib(1));
    {
        let below = group.inside();
        let program = compiled("bloat.c".as_ref());
        let [inside, deep] = [&group, &below].map(|group| {
            let mut command = group.command(&program);
            command.arg("16x8");
            Bloat::is(Victim::spawn(command))
        });
        let outside = Bloat::start(&["16x8"]);
        let directory = group.path().to_str().expect("a name of ours").to_owned();
        let done = debloat(&[], &format!("--cgroup {directory}"));
        let one = report(done.exits(0));
        assert_eq!(one.processes.len(), 2, "{done:?}");
        assert_eq!([&inside, &deep, &outside].map(Bloat::split_regions), [8, 8, 0]);

        // Both flags together; a process that both name counts once.
        let done =
            debloat(&[outside.pid(), deep.pid()], &format!("--cgroup {directory} --dry-run"));
        assert_eq!(report(done.exits(0)).processes.len(), 3, "{done:?}");
        [inside, deep, outside].into_iter().for_each(Bloat::ends_intact);
    }
    let empty = debloat(&[], &format!("--cgroup {}", group.path().display()));
    empty.exits(2).says(&["no process"]);
    debloat(&[], "--cgroup /sys/fs/cgroup/no/such").exits(2).says(&["/sys/fs/cgroup/no/such"]);
    debloat(&[], "").exits(2).says(&["--cgroup"]);
}

#[test]
fn many_processes_are_sampled_through_the_same_rings() {
    requires!(possible());
    let cpus = read_to_string("/proc/cpuinfo").unwrap().matches("processor\t").count();
    let start = |how| Bloat::is(Victim::c("bloated.c", &["1", "5", how]));
    let mut victims: Vec<Bloat> = (0..30).map(|_| start("idle")).collect();
    victims.push(start("busy"));
    let pids: Vec<u32> = victims.iter().map(Bloat::pid).collect();
    let mut command = Command::new(HUGEPILOT);
    command.args(args(&pids, "--order heat --observe 2s --dry-run"));
    let mut running = Running::start(command);
    let maps = format!("/proc/{}/maps", running.pid());
    let rings = || read_to_string(&maps).unwrap_or_default().matches("[perf_event]").count();
    running.until("the rings", || rings() > 0);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(rings(), cpus);
    let done = running.wait(LIMIT);
    let report = report(done.exits(0));
    let sampled = |one: &&ProcessDebloat| one.split_heat_ratio.is_some();
    assert_eq!(
        (report.processes.len(), report.processes.iter().filter(sampled).count()),
        (31, 1),
        "{done:?}"
    );
}
