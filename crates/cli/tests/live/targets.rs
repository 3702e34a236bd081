//! Several targets of one tune: they share a budget, and none harms the others.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use hugepilot_kernel::Target;
use hugepilot_reports::tune::{FreedBy, NoVerdict, TuneReport, TuneVerdict};
use hugepilot_testkit::{need, requires};
use hugepilot_units::{Bytes, VirtAddr};
use rustix::process::Signal;

use crate::cgroup::Cgroup;
use crate::look::{huge_now, tunable};
use crate::tool::{ANYWHERE, Done, HUGEPILOT, LIMIT, Running, hugepilot, tune_args};
use crate::validation::validate;
use crate::workload::{HOT_SET, Workload, open, sizes};

/// A quarter of a GiB, of which a quarter is hot.
const SMALL: &str = "hot-set --footprint 256MiB --hot 64MiB --pages default";

/// Words of a tune of these workloads.
fn words(workloads: &[&Workload], more: &str) -> Vec<String> {
    let (first, others) = workloads.split_first().expect("a target");
    let others: String = others.iter().map(|one| format!("-p {} ", one.pid())).collect();
    tune_args(first.pid(), &format!("{others}{more}"))
}

fn run(workloads: &[&Workload], more: &str) -> Done {
    hugepilot(words(workloads, more))
}

#[track_caller]
fn report_of<'a>(reports: &'a [TuneReport], workload: &Workload) -> &'a TuneReport {
    let pid = workload.pid().cast_signed();
    reports.iter().find(|report| report.target.pid.0 == pid).expect("a report of it")
}

/// Regions that are huge now, as far as the report selected them.
fn promoted(report: &TuneReport, workload: &Workload) -> BTreeSet<u64> {
    let process = open(workload.pid());
    let is_huge = |start: VirtAddr| {
        process.region_pages(sizes().region_of(start)).is_ok_and(|pages| pages.huge)
    };
    report
        .plan
        .selected
        .iter()
        .map(|one| one.start)
        .filter(|&start| is_huge(start))
        .map(VirtAddr::get)
        .collect()
}

#[test]
fn a_shared_budget_goes_to_the_process_that_stalls() {
    requires!(tunable());
    requires!(need::memory(Bytes::gib(3)));
    let [hot, cold] = Workload::start_all([HOT_SET, "stream --footprint 512MiB --pages default"]);
    // An eighth of both is all that is hot in one: an eighth of that one alone would be half of it.
    let line = "--policy pcc --budget 12.5% --rate 4000 --observe 1s --for 3s";
    let done = run(&[&hot, &cold], line);
    let all = done.exits(0).reports();
    let [hot_report, cold_report] = [&hot, &cold].map(|one| report_of(&all, one));
    assert_eq!(all.len(), 2, "{done:?}");
    assert_eq!(hot_report.plan.budget_bytes, cold_report.plan.budget_bytes, "{done:?}");
    let budget = hot_report.plan.budget_bytes.unwrap();
    assert!(budget >= Bytes::mib(128) && budget < Bytes::mib(140), "{done:?}");
    assert!(hot_report.acts.verified_regions > 40, "more than its own eighth: {done:?}");
    let made = promoted(hot_report, &hot);
    assert_eq!(made.len() as u64, hot_report.acts.verified_regions, "{done:?}");
    assert!(made.intersection(&hot.hot).count() * 10 >= made.len() * 9, "{done:?}");
    assert_eq!(
        (cold_report.acts.verified_regions, huge_now(cold.pid())),
        (0, Bytes::ZERO),
        "{done:?}"
    );
    assert!(cold_report.sampler.samples > 100 && hot_report.sampler.samples > 100, "{done:?}");
}

/// The orders of MICRO 2023, section 3.3.2.
#[test]
fn the_candidate_cache_shares_a_budget_by_frequency_in_turn_or_by_preference() {
    requires!(tunable());
    requires!(need::memory(Bytes::gib(3)));
    // How many of 40 regions the hot process gets.
    let cases = [("highest", 36..=40), ("round-robin", 19..=21), ("highest --prefer", 0..=0)];
    for (order, share) in cases {
        // All regions of the second are as warm, each with a quarter of the stalls of a hot one.
        let warm = "hot-set --footprint 512MiB --hot 512MiB --pages default";
        let [hot, warm] = Workload::start_all([HOT_SET, warm]);
        let prefer = if order.ends_with("prefer") { warm.pid().to_string() } else { String::new() };
        let line = "--policy pcc --budget 80MiB --rate 4000 --observe 1s --for 3s --selection";
        let done = run(&[&hot, &warm], &format!("{line} {order} {prefer}"));
        let all = done.exits(0).reports();
        let [of_hot, of_warm] = [&hot, &warm].map(|one| huge_now(one.pid()).get() >> 21);
        eprintln!("{order}: {of_hot} regions of the hot process, {of_warm} of the warm one");
        assert!((38..=40).contains(&(of_hot + of_warm)), "the budget: {of_hot} {of_warm} {done:?}");
        assert!(share.contains(&of_hot), "{order}: {of_hot} {of_warm} {done:?}");
        let found = promoted(report_of(&all, &hot), &hot).intersection(&hot.hot).count() as u64;
        assert!(found * 10 >= of_hot * 9, "{found} of {of_hot}: {done:?}");
    }
}

#[test]
fn a_target_that_ends_leaves_the_others() {
    requires!(tunable());
    let [stays, mut ends] = Workload::start_all([HOT_SET; 2]);
    let mut command = Command::new(HUGEPILOT);
    command.args(words(
        &[&stays, &ends],
        "--keep --rate 2000 --trial-rate 4000 --observe 1s --for 6s",
    ));
    let mut tool = Running::start(command);
    tool.until_it_says(&format!("(pid {}): trial", ends.pid()));
    ends.victim.signal(Signal::KILL);
    ends.victim.wait(LIMIT);
    let done = tool.wait(LIMIT);
    let all = done.exits(0).reports();
    let [stays_report, ends_report] = [&stays, &ends].map(|one| report_of(&all, one));
    assert!(ends_report.target_ended && !stays_report.target_ended, "{done:?}");
    let verdict = (ends_report.verdict(), ends_report.acts.freed_by);
    assert_eq!(verdict, (TuneVerdict::Stopped, Some(FreedBy::End)), "{done:?}");
    let made = stays_report.acts.verified_regions;
    assert!(made > 10 && huge_now(stays.pid()) == sizes().huge.times(made), "{done:?}");
    assert!(stays_report.forecast.trial.is_some(), "it went on: {done:?}");
}

#[test]
fn names_and_cgroups_select_processes_and_a_process_in_use_is_excluded() {
    requires!(tunable());
    requires!(need::cgroup_memory());
    let folder = tempfile::tempdir().unwrap();
    let name = format!("hp-{}", std::process::id());
    let link = folder.path().join(&name);
    symlink(HUGEPILOT, &link).unwrap();
    let group = Cgroup::new(Bytes::gib(2));
    {
        let inside = |program: &Path| Workload::by(group.command(program), SMALL);
        let workloads =
            [inside(&link), inside(HUGEPILOT.as_ref()), Workload::by(Command::new(&link), SMALL)];
        let pids = |line: &str| {
            let line =
                format!("tune --json --calibration off {ANYWHERE} --for 1s --dry-run {line}");
            let done = hugepilot(line.split_whitespace().chain(["--rate", "1000"]));
            let mut pids: Vec<u32> =
                done.exits(0).reports().iter().map(|one| one.target.pid.0.unsigned_abs()).collect();
            pids.sort_unstable();
            pids
        };
        let [first, second, third] = workloads.each_ref().map(Workload::pid);
        let directory = group.path().display();
        assert_eq!(pids(&format!("--name {name}")), [first, third]);
        assert_eq!(pids(&format!("--cgroup {directory}")), [first, second]);
        assert_eq!(
            pids(&format!("--cgroup {directory} --name {name} -p {second}")),
            [first, second, third]
        );

        let shown = hugepilot(["status", "--no-contents", "--json", "--name", &name]);
        assert_eq!(shown.exits(0).out().lines().count(), 2, "{shown:?}");
        assert!(shown.out().lines().all(|line| validate(line.as_bytes()).is_ok()), "{shown:?}");
        let shown = hugepilot(["status", "--no-contents", "--name", &name]);
        let text = shown.exits(0).out();
        assert!(text.starts_with("2 processes: "), "{shown:?}");
        assert!(text.contains(&format!("{third}  {name}  ")), "{shown:?}");

        // Another run holds one of them.
        let mut command = Command::new(HUGEPILOT);
        command.args(words(&[&workloads[0]], "--observe 120s --for 120s"));
        let mut other = Running::start(command);
        other.until_it_says("sampling ");
        let done = run(&[&workloads[0], &workloads[1]], ANYWHERE);
        let all = done.exits(0).says(&["excluded"]).reports();
        let held = report_of(&all, &workloads[0]);
        let Some(NoVerdict::Excluded(cause)) = &held.no_verdict else { panic!("{done:?}") };
        assert!(cause.error.contains(&other.pid().to_string()), "{done:?}");
        assert!(report_of(&all, &workloads[1]).acts.verified_regions > 0, "{done:?}");
        let done = run(&[&workloads[0]], "");
        done.exits(2).says(&["another"]);
        let done =
            run(&[&workloads[0], &workloads[1]], "--progress-regex (x) --progress-file /dev/null");
        done.exits(2).says(&["requires a single target", "2 processes"]);
    }
    let absent = |line: &str| hugepilot(format!("tune {line}").split_whitespace());
    absent("--name no-such-program")
        .exits(2)
        .says(&["no process is called \"no-such-program\"", "ps "]);
    absent(&format!("--cgroup {}", group.path().display())).exits(2).says(&["no process"]);
    absent("--cgroup /sys/fs/cgroup/no/such").exits(2).says(&["/sys/fs/cgroup/no/such"]);
}

#[test]
fn an_interruption_returns_the_halves_of_all_and_the_journal_undoes_them() {
    requires!(tunable());
    let workloads = Workload::start_all([HOT_SET; 2]);
    let both = || workloads.each_ref().map(|one| huge_now(one.pid()));
    let targets: Vec<&Workload> = workloads.iter().collect();
    let mut command = Command::new(HUGEPILOT);
    // Too few samples for a verdict before the signal.
    command.args(words(&targets, "--rate 500 --trial-rate 500 --observe 2s --for 30s"));
    let mut tool = Running::start(command);
    for one in &workloads {
        tool.until_it_says(&format!("(pid {}): trial: ", one.pid()));
    }
    assert!(both().iter().all(|huge| *huge > Bytes::ZERO));
    tool.signal(Signal::INT);
    let done = tool.wait(LIMIT);
    for report in done.exits(1).reports() {
        assert!(report.acts.verified_regions > 5, "{done:?}");
        assert_eq!(report.acts.demoted_regions, report.acts.verified_regions, "{done:?}");
        assert_eq!(report.verdict(), TuneVerdict::Stopped, "{done:?}");
    }
    assert_eq!(both(), [Bytes::ZERO; 2], "{done:?}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tune.ndjson").display().to_string();
    let done = run(&targets, &format!("{ANYWHERE} --budget 60% --for 1s --journal {path}"));
    let made: u64 = done.exits(0).reports().iter().map(|one| one.acts.verified_regions).sum();
    assert!(both().iter().all(|huge| *huge > Bytes::ZERO), "{done:?}");
    let explained = hugepilot(["explain", &path]);
    assert!(explained.exits(0).out().contains(" decisions reproduced\n"), "{explained:?}");
    let undone = hugepilot(["tune", "--undo", &path]);
    let returned: u64 = undone
        .exits(0)
        .out()
        .lines()
        .map(|line| {
            let (_, counts) = line.split_once("returned ").expect("a line for each process");
            counts.split(' ').next().unwrap().parse::<u64>().unwrap()
        })
        .sum();
    assert_eq!((returned, both()), (made, [Bytes::ZERO; 2]), "{undone:?}");
}
