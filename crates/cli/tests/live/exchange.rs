//! Exchanges of a spent budget: none among equal regions, and those of memory that moved.

use std::process::Command;
use std::thread;
use std::time::Duration;

use hugepilot_testkit::{Victim, need, requires};
use hugepilot_units::{AddrRange, Bytes};
use rustix::process::Signal;

use crate::look::{huge_map, huge_now, tunable};
use crate::tool::{HUGEPILOT, LIMIT, Running, tune_args};
use crate::workload::SOON;

/// Without a trial, whatever huge pages gain here: the budget has too few pairs.
const FLAGS: &str = "--min-gain 0% --observe 500ms --rate 2000 --budget 40MiB";

fn start_tune(pid: u32, more: &str) -> Running {
    let mut command = Command::new(HUGEPILOT);
    command.args(tune_args(pid, &format!("{FLAGS} {more}")));
    Running::start(command)
}

/// Number of huge pages in each half of the memory of a victim.
fn huge_halves(pid: u32, memory: AddrRange) -> [usize; 2] {
    let map = huge_map(pid, memory);
    let count = |half: &[bool]| half.iter().filter(|&&huge| huge).count();
    [count(&map[..map.len() / 2]), count(&map[map.len() / 2..])]
}

/// All regions of a program are equally hot, and a budget is for half of them. Ten horizons pass.
#[test]
fn equal_regions_never_change_places() {
    requires!(tunable());
    requires!(need::c_compiler());
    let victim = Victim::c("moving.c", &["80", "1"]);
    victim.ready(SOON);
    let done = start_tune(victim.pid(), "--horizon 1s --for 11s").wait(LIMIT);
    let report = done.exits(0).report();
    assert_eq!((report.acts.promotions, report.acts.demotions), (20, 0), "{done:?}");
    assert_eq!(huge_now(victim.pid()), Bytes::mib(40));
}

/// The hot half of the memory moves to the other half, and the huge pages follow it.
#[test]
fn a_budget_follows_memory_that_moves() {
    requires!(tunable());
    requires!(need::c_compiler());
    let mut victim = Victim::c("moving.c", &["80", "2"]);
    let (memory, pid) = (victim.ready(SOON).memory, victim.pid());
    let mut tool = start_tune(pid, "--horizon 4s --for 60s");
    let mut reach = |what: &str, is_there: &dyn Fn([usize; 2]) -> bool| {
        tool.until(what, || {
            thread::sleep(Duration::from_millis(100));
            is_there(huge_halves(pid, memory))
        });
    };
    reach("the huge pages of the first half", &|[first, second]| first >= 18 && second == 0);
    victim.send("move");
    reach("the huge pages of the second half", &|[first, second]| first <= 2 && second >= 18);
    tool.signal(Signal::INT);
    let report = tool.wait(LIMIT).sane().report();
    assert!(report.acts.promotions >= 36 && report.acts.demotions >= 16, "{report:?}");
    assert!(report.acts.promotions - report.acts.demotions <= 20, "{report:?}");
}
