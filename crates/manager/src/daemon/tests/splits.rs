//! Tests of splits, re-collapses and the order of processes.

use hugepilot_reports::daemon::Freed;

use super::*;

#[test]
fn a_recollapsed_region_is_split_a_few_times_and_then_excluded() {
    let mut sim = Sim::new(vec![bloated(7, 100, 400)], |_| 650.0);
    (sim.seconds, sim.risk) = (70 * 60, true);
    sim.meanwhile = Box::new(|sim| {
        let fake = &sim.fakes[0];
        let split: Vec<Region> =
            fake.pages.borrow().values().filter(|pages| !pages.huge).map(|p| p.region).collect();
        split.into_iter().for_each(|region| fake.make_huge_again(region, 400));
    });
    let lines = sim.run(config());
    let mut times = BTreeMap::<Region, usize>::new();
    for &region in sim.fakes[0].asked.borrow().iter() {
        *times.entry(region).or_default() += 1;
    }
    assert_eq!(times.values().max(), Some(&3), "{times:?}");
    let recollapses = lines.iter().filter_map(|line| match &line.event {
        Event::Recollapsed { regions, excluded, cause, .. } => Some((*regions, *excluded, *cause)),
        _ => None,
    });
    let recollapses: Vec<_> = recollapses.collect();
    assert_eq!(recollapses[0].2, RecollapseCause::KhugepagedOrProgram(RISK));
    let excluded: u64 = recollapses.iter().map(|one| one.1).sum();
    assert_eq!(excluded, times.values().filter(|&&times| times == 3).count() as u64);
    let sum: u64 = recollapses.iter().map(|one| one.0).sum();
    assert!(
        matches!(lines.last().unwrap().event, Event::Stopped(totals) if totals.recollapses == sum),
        "{sum}"
    );
}

#[test]
fn the_risk_of_recollapse_is_logged_once_with_the_first_splits() {
    let risks = |risk| {
        let mut sim =
            Sim::new(vec![bloated(7, 300, 410)], |second| 100.0 + (second * 2.0).min(500.0));
        sim.risk = risk;
        let freed = sim.run(config()).into_iter().filter_map(|line| match line.event {
            Event::Freed(freed) => Some(freed.recollapse_risk),
            _ => None,
        });
        freed.collect::<Vec<_>>()
    };
    let logged = risks(true);
    assert_eq!(logged[0], Some(RISK));
    assert!(logged.len() > 1 && logged[1..].iter().all(Option::is_none), "{logged:?}");
    assert!(risks(false).iter().all(Option::is_none));
}

#[test]
fn a_dry_run_decides_and_changes_nothing() {
    let sim = Sim::new(vec![bloated(7, 300, 410)], |_| 250.0);
    let lines = sim.run(Config { dry_run: true, ..config() });
    assert_eq!(sim.tried(), [0]);
    let names = names(&lines);
    assert_eq!(names[..5], ["started", "working", "skipped", "planned", "would_free"]);
    assert!(!names.iter().any(|name| name == "exhausted" || name == "idle"), "{names:?}");
    let Event::WouldFree(Freed { freed_bytes, huge_pages_split, .. }) = lines[4].event else {
        panic!()
    };
    // From 850 below 650 MiB, in steps of 410 base pages.
    assert_eq!((freed_bytes, huge_pages_split), (Bytes::kib(1640).times(125), 125));
    assert!(lines.iter().all(|line| line.memory.dry_run));
    let scans = names.iter().filter(|&name| name == "planned").count();
    assert!((6..=9).contains(&scans), "rarer each time: {scans}");
    let sums = lines.iter().find_map(|line| match &line.event {
        Event::Stopped(sums) => Some((sums.freed_bytes, sums.huge_pages_split)),
        _ => None,
    });
    assert_eq!(sums, Some((freed_bytes, huge_pages_split)), "each attempt has the same regions");
}

#[test]
fn preferred_processes_are_first_and_weights_share() {
    let config = |config: Config| Config { prefer: vec!["8".into()], ..config };
    let sim = Sim::new(vec![bloated(7, 100, 400), bloated(8, 100, 400)], |_| 450.0);
    sim.run(config(super::config()));
    assert_eq!(sim.tried(), [29, 100]);
    let sim = Sim::new(vec![bloated(7, 100, 400), bloated(8, 100, 400)], |_| 450.0);
    let weight = BTreeMap::from([("7".to_owned(), 3.0)]);
    sim.run(Config { weight, ..super::config() });
    let [a, b] = sim.tried()[..] else { panic!() };
    assert!(a.abs_diff(3 * b) <= 3, "{a} {b}");
}

#[test]
fn a_failure_is_logged_and_not_repeated_soon() {
    let denied = bloated(7, 200, 400).scripted([Script::Fail(Errno::EPERM)]);
    let sim = Sim::new(vec![denied, bloated(8, 100, 400)], |_| 250.0);
    let lines = sim.run(config());
    let denied = ExclusionCause::Stopped { stop: Stop::NotPermitted };
    let is_denied = |line: &DaemonLine| {
        matches!(&line.event, Event::Skipped { pid: Pid(7), cause, .. }
            if *cause == denied)
    };
    assert!(lines.iter().any(is_denied), "{lines:?}");
    let mut regions = sim.fakes[0].asked.borrow().clone();
    let tried = regions.len();
    regions.sort();
    regions.dedup();
    assert_eq!(regions.len(), tried, "none twice within ten minutes");
}

#[test]
fn a_forbidden_split_is_logged_and_not_tried() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 250.0);
    let broken = ExhaustedCause::BrokenMemory { corrupted_bytes: Bytes::kib(4) };
    sim.forbidden = Some(broken);
    let lines = sim.run(config());
    assert_eq!(names(&lines), ["started", "working", "exhausted", "stopped"]);
    assert!(matches!(lines[2].event, Event::Exhausted { cause, .. } if cause == broken));
    assert_eq!(sim.tried(), [0]);
}
