//! Lazily freed memory (`MADV_FREE`): the kernel's to take, before a tune and after it.

use std::path::Path;
use std::process::Command;

use hugepilot_kernel::Target;
use hugepilot_record::SkipReason;
use hugepilot_reports::debloat::DebloatReport;
use hugepilot_testkit::{Victim, compiled, need, requires};
use hugepilot_units::{Bytes, Share};

use crate::capped::{Capped, can_be_capped};
use crate::cgroup::Cgroup;
use crate::look::{base_pages_by_default, huge_now, total, tunable};
use crate::tool::{Done, hugepilot, tune};
use crate::workload::{SOON, open, sizes};

/// A program of 64 regions, half of each lazily freed, that ends with its checks.
fn half_freed() -> Victim {
    let victim = Victim::c("lazyfree.c", &["64", "256"]);
    victim.ready(SOON);
    // Pages that a CPU has not yet put on its lists stay.
    assert!(freed(&victim) > Bytes::mib(63), "the kernel frees lazily");
    victim
}

fn freed(victim: &Victim) -> Bytes {
    total(victim.pid(), "LazyFree")
}

/// Asserts that `run` takes at most 1 % of the memory back, and skips regions.
fn takes_little(run: impl FnOnce(u32) -> Done) {
    let mut victim = half_freed();
    let most = Share::percent(1.0).of(total(victim.pid(), "Rss"));
    let before = freed(&victim);
    let done = run(victim.pid());
    let report = done.sane().report();
    assert!(freed(&victim) + most >= before, "{} of {before} left: {done:?}", freed(&victim));
    assert!(report.plan.skipped.contains_key(&SkipReason::LazilyFreed), "{done:?}");
    assert_eq!(huge_now(victim.pid()), sizes().huge.times(report.acts.verified_regions));
    assert!(victim.finish(SOON).success());
}

#[test]
fn a_tune_takes_no_more_lazily_freed_memory_than_it_may_add() {
    requires!(tunable());
    requires!(need::c_compiler());
    for policy in ["heat --keep", "pcc", "linux", "khugepaged", "all"] {
        takes_little(|pid| tune(pid, &format!("--policy {policy} --for 1s")));
    }
}

/// Without CAP_SYS_ADMIN the flags of page frames are hidden.
#[test]
fn without_the_flags_of_pages_every_region_may_have_the_memory_of_its_mapping() {
    requires!(need::all([can_be_capped(), need::c_compiler(), base_pages_by_default()]));
    let capped = Capped::new();
    takes_little(|pid| {
        let words = format!(
            "tune --pid {pid} --json --calibration off --policy all --observe 300ms --for 600ms \
             --max-collapse 60s"
        );
        capped.runs(&words.split(' ').map(str::to_owned).collect::<Vec<_>>())
    });
}

/// The counterpart of the tests above, which thus can fail.
#[test]
fn a_limit_of_all_memory_takes_it() {
    requires!(tunable());
    requires!(need::c_compiler());
    let mut victim = half_freed();
    let before = freed(&victim);
    let line = "--policy all --max-added 100% --observe 300ms --for 600ms";
    let report = tune(victim.pid(), line).exits(0).report();
    // The last page is on a list of its CPU for a while, and then is one more than was planned.
    assert!(report.acts.verified_regions >= 63 && freed(&victim) <= Bytes::mib(1), "{report:?}");
    let added = report.acts.added_bytes;
    assert!(
        added + Bytes::mib(1) >= before && added <= Bytes::mib(64),
        "it says what it added: {report:?}"
    );
    assert_eq!(report.acts.lazily_freed_bytes, added);
    assert!(victim.finish(SOON).success());
}

#[test]
fn pages_are_counted_and_memory_that_is_used_again_is_promoted() {
    requires!(need::all([tunable(), need::c_compiler(), need::root()]));
    let mut victim = Victim::c("lazyfree.c", &["64", "300"]);
    let memory = victim.ready(SOON).memory;
    let process = open(victim.pid());
    let counted = sizes().regions_inside(memory).map(|region| process.lazily_freed(region));
    let counted: u64 = counted.map(|count| count.unwrap().expect("root sees the flags")).sum();
    assert_eq!(sizes().base.times(counted), freed(&victim));
    assert!(counted > 64 * 299, "{counted}");
    victim.send("again");
    victim.says("reused", SOON);
    assert_eq!(freed(&victim), Bytes::ZERO);
    let report = tune(victim.pid(), "--policy all --observe 300ms --for 600ms").exits(0).report();
    assert_eq!(report.acts.verified_regions, 64, "{report:?}");
    assert!(victim.finish(SOON).success());
}

#[test]
fn debloat_leaves_huge_pages_that_the_kernel_may_take_already() {
    requires!(need::all([need::live(), need::root(), need::c_compiler()]));
    let mut victim = Victim::c("lazyfree.c", &["16", "512", "huge"]);
    victim.ready(SOON);
    requires!((huge_now(victim.pid()) == Bytes::mib(32)).then_some(()).ok_or("no huge pages"));
    let line = format!("debloat -p {} --json --order exact --amount 100%", victim.pid());
    let done = hugepilot(line.split(' '));
    let report: DebloatReport = done.sane().json();
    assert_eq!(report.skipped[&SkipReason::LazilyFreed.to_string()], 16, "{done:?}");
    assert_eq!((huge_now(victim.pid()), freed(&victim)), (Bytes::mib(32), Bytes::mib(32)));
    assert!(victim.finish(SOON).success());
}

/// Runs `meanwhile` on a program of 128 MiB in a cgroup, of which half is lazily freed. Then a
/// neighbour takes more than is left. Whether both live.
fn outlive_a_neighbour(mut program: Command, meanwhile: &dyn Fn(u32, &Cgroup)) -> [bool; 2] {
    let group = Cgroup::new(Bytes::mib(152));
    let inside = |command: &Command| {
        let mut entered = group.command(command.get_program().as_ref());
        entered.args(command.get_args());
        entered.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        entered
    };
    let victim = Victim::spawn(inside(&mut program));
    victim.ready(SOON);
    meanwhile(victim.pid(), &group);
    let mut grower = Command::new(compiled(Path::new("grower.c")));
    grower.args(["64", "500"]);
    let mut grower = Victim::spawn(inside(&mut grower));
    grower.ready(SOON);
    grower.send("go");
    let grown = grower.wait(SOON).success();
    let mut victim = victim;
    [victim.finish(SOON).success(), grown]
}

/// Tunes a process in its cgroup.
type TuneIn = Box<dyn Fn(u32, &Cgroup)>;

fn tunes() -> [(&'static str, TuneIn); 3] {
    let by = |line: &'static str| -> TuneIn { Box::new(move |pid, _| drop(tune(pid, line))) };
    let daemon = |_: u32, group: &Cgroup| {
        let group = group.path().display();
        let line = format!(
            "daemon --once --cgroup {group} --cpu 100% --high 97% --low 95% --critical 98% \
             --promote lazyfree --promote freeing"
        );
        hugepilot(line.split_whitespace()).sane();
    };
    [
        ("tune", by("--for 2s")),
        ("tune --policy all", by("--policy all --observe 300ms --for 600ms")),
        ("daemon", Box::new(daemon)),
    ]
}

#[test]
fn a_program_with_lazily_freed_memory_outlives_a_neighbour() {
    requires!(need::all([tunable(), need::c_compiler(), need::cgroup_memory()]));
    survives_beside_a_neighbour(&|| {
        let mut command = Command::new(compiled(Path::new("lazyfree.c")));
        command.args(["64", "256"]);
        command
    });
}

#[test]
fn a_go_program_that_frees_lazily_outlives_a_neighbour() {
    requires!(need::all([tunable(), need::c_compiler(), need::cgroup_memory()]));
    requires!(need::program("go"));
    survives_beside_a_neighbour(&|| {
        let mut command = Command::new(compiled(Path::new("freeing.go")));
        command.env("GODEBUG", "madvdontneed=0");
        command
    });
}

/// Asserts that a program lives beside its neighbour whatever tunes it, unless the user allows a
/// tune to add as much memory as the program has.
fn survives_beside_a_neighbour(program: &dyn Fn() -> Command) {
    assert_eq!(outlive_a_neighbour(program(), &|_, _| {}), [true; 2], "without hugepilot");
    let all = |pid: u32, _: &Cgroup| {
        drop(tune(pid, "--policy all --max-added 100% --observe 300ms --for 600ms"));
    };
    assert_ne!(outlive_a_neighbour(program(), &all), [true; 2], "the test is too easy");
    for (name, tune) in tunes() {
        assert_eq!(outlive_a_neighbour(program(), &*tune), [true; 2], "{name}");
    }
}
