//! Contents of memory never change: a program writes and checks its pages while they are promoted
//! and split.

use std::env;
use std::time::{Duration, Instant};

use hugepilot_kernel::{Target, TargetState};
use hugepilot_manager::act::promote;
use hugepilot_policy::{Guard, Limits};
use hugepilot_record::Attempts;
use hugepilot_reports::tune::{Certainty, Metric, NoMetric};
use hugepilot_testkit::{Victim, need, requires};
use hugepilot_units::{Nanos, Region};

use crate::look::base_pages_by_default;
use crate::tool::{ANYWHERE, LIMIT, tune};
use crate::workload::{SOON, eager, open, picks};

/// Duration of `HUGEPILOT_SOAK_SECONDS`, if set.
fn soak() -> Option<Duration> {
    let seconds = env::var("HUGEPILOT_SOAK_SECONDS").ok()?;
    seconds.parse().ok().map(Duration::from_secs)
}

/// Returns a guard that never stops, unlike any that a user can request.
pub(crate) fn fearless() -> Guard {
    Guard {
        max_collapse: Nanos::seconds(60),
        max_failures: usize::MAX,
        limits: Limits { max_pressure: 101.0, max_full_pressure: 101.0, ..eager() },
    }
}

#[test]
fn no_byte_changes_while_pages_are_promoted_and_split() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    let mut victim = Victim::c("pattern.c", &["64", "2"]);
    let ready = victim.ready(SOON);
    let process = open(victim.pid());
    let (sizes, picks) = (process.sizes(), picks(ready.memory));
    let is_huge = |region: Region| process.region_pages(region).is_ok_and(|pages| pages.huge);

    let (mut promoted, mut split, mut rounds) = (0, 0, 0);
    let until = Instant::now() + soak().unwrap_or(3 * LIMIT);
    // Without a duration, a thousand of each are enough.
    let is_enough = |promoted, split| soak().is_none() && promoted > 1000 && split > 1000;
    while Instant::now() < until && !is_enough(promoted, split) {
        let Attempts { acts, stopped, .. } =
            promote(&process, &picks, &fearless(), &|| false, &mut |_| {});
        assert_eq!(
            (stopped, process.state().unwrap()),
            (None, TargetState::Alive),
            "{:?}",
            victim.line_now()
        );
        promoted += acts.iter().filter(|act| is_huge(act.region)).count();
        // Each round names another page; every third round splits only every second region.
        let step = if rounds % 3 == 0 { 2 } else { 1 };
        for pick in picks.iter().step_by(step).filter(|pick| is_huge(pick.region)) {
            let page = sizes.base.times(rounds * 37 % sizes.base_per_huge());
            // The call may fail with EAGAIN; the pagemap shows the outcome in any case.
            let _ = process.split(pick.region.range(sizes).start.plus(page));
            split += usize::from(!is_huge(pick.region));
        }
        rounds += 1;
    }
    assert!(victim.finish(SOON).success(), "{:?}", victim.line_now());
    let checked = victim.says("ok", SOON);
    eprintln!(
        "{rounds} rounds: {promoted} promoted, {split} split, all pages checked {} times",
        checked[0]
    );
    assert!(
        promoted > 1000 && split > 1000,
        "{promoted} promoted, {split} split: too few attempts"
    );
}

#[test]
fn no_byte_changes_while_tune_works() {
    requires!(need::live());
    requires!(need::c_compiler());
    requires!(need::cap_sys_nice());
    requires!(need::cap_perfmon());
    requires!(base_pages_by_default());
    let mut victim = Victim::c("pattern.c", &["64", "2", "random"]);
    victim.ready(SOON);
    let line = format!("{ANYWHERE} --for 4s");
    let report = tune(victim.pid(), &line).exits(0).report();
    assert!(report.acts.verified_regions > 16, "{report:?}");
    // The victim makes a call for each check.
    match (report.measured.metric, &report.measured.no_metric) {
        (Some(Metric::IoCalls), None) => {
            let [before, after] = [report.measured.baseline, report.measured.tuned]
                .map(|side| side.unwrap().work_per_cpu_second.unwrap());
            assert!(before.min > 1000.0 && after.min > 1000.0, "{report:?}");
            let quotient = after.median / before.median;
            assert!((report.measured.speedup.unwrap() - quotient).abs() < 1e-6, "{report:?}");
            let load = report.measured.load.expect("windows before precede those after");
            assert!(load.before.is_some() && load.after.is_some(), "{load:?}");
            let is_certain = report.measured.speedup_certainty == Some(Certainty::Certain);
            assert!(load.changed.is_none() || !is_certain, "{report:?}");
            eprintln!("{quotient:.2} times the calls, {:?}", report.measured.speedup_certainty);
        }
        // The machine was too busy.
        (
            None,
            Some(NoMetric::Unsteady { .. } | NoMetric::FewWindows { .. } | NoMetric::FewEvents),
        ) => {}
        other => panic!("{other:?}"),
    }
    assert!(victim.finish(SOON).success(), "{:?}", victim.line_now());
    victim.says("ok", SOON);
}
