//! Tests of watermarks, back-off, budget and sampling.

use super::*;

#[test]
fn use_stays_between_the_watermarks() {
    // 300 huge pages, 80 % empty: 120 MiB used, 480 MiB of bloat. Others grow from 100 to 600 MiB
    // in four minutes.
    let sim = Sim::new(vec![bloated(7, 300, 410)], |second| 100.0 + (second * 2.0).min(500.0));
    let lines = sim.run(config());
    assert_eq!(names(&lines)[..4], ["started", "working", "skipped", "planned"]);
    assert!(sim.peak() <= Bytes::mib(806), "{}", sim.peak());
    let stretches: Vec<&DaemonLine> =
        lines.iter().filter(|line| matches!(line.event, Event::Idle(_))).collect();
    assert!(stretches.len() >= 2, "{:?}", names(&lines));
    for line in stretches {
        // Work ends as soon as use is below.
        assert!((Bytes::mib(648)..Bytes::mib(650)).contains(&line.memory.used_bytes), "{line:?}");
    }
    assert!(freed(&lines) > Bytes::mib(300));
}

#[test]
fn without_shortage_no_process_is_read() {
    let sim = Sim::new(vec![bloated(7, 300, 410)], |_| 150.0);
    let lines = sim.run(config());
    assert_eq!(names(&lines), ["started", "stopped"]);
    assert_eq!((sim.tried(), sim.cpu_time()), (vec![0], Nanos::ZERO));
}

#[test]
fn pressure_starts_work_between_the_watermarks() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 100.0);
    sim.psi = Some(0.5);
    let lines = sim.run(config());
    assert_eq!(lines[1].event, Event::Working { cause: WorkCause::Pressure });
    assert!(sim.memory().unwrap().use_ratio() < 0.65);
}

#[test]
fn a_cgroup_near_its_limit_is_relieved_while_the_machine_has_memory() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410), bloated(8, 300, 410)], |_| 100.0);
    (sim.limit, sim.group) = (Bytes::gib(16), Some((Bytes::mib(640), vec![7])));
    let lines = sim.run(config());
    let of_group = |line: &&DaemonLine| line.cgroup.as_deref() == Some(GROUP);
    let names = names(&lines);
    assert_eq!(names[..2], ["started", "working"]);
    assert!(lines.iter().skip(1).take(names.len() - 2).all(|line| of_group(&line)), "{lines:?}");
    let idle = lines.iter().find(|line| matches!(line.event, Event::Idle(_))).unwrap();
    assert_eq!(idle.memory.limit_bytes, Bytes::mib(640));
    assert!(idle.memory.use_ratio < 0.65, "{idle:?}");
    assert_eq!(sim.tried()[1], 0, "it is in no cgroup that is short");
}

#[test]
fn a_cgroup_without_bloat_does_not_keep_the_machine_from_relief() {
    let mut sim = Sim::new(vec![bloated(7, 300, 0), bloated(8, 300, 410)], |_| 100.0);
    (sim.limit, sim.group) = (Bytes::mib(1500), Some((Bytes::mib(640), vec![7])));
    let lines = sim.run(config());
    let exhausted = lines.iter().find(|line| matches!(line.event, Event::Exhausted { .. }));
    assert_eq!(exhausted.unwrap().cgroup.as_deref(), Some(GROUP));
    assert!(lines.iter().any(|line| matches!(line.event, Event::Idle(_)) && line.cgroup.is_none()));
    assert!(sim.memory().unwrap().use_ratio() < 0.8);
}

#[test]
fn a_lifted_limit_is_logged_once_and_so_is_its_return() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 250.0);
    sim.lifted.set(true);
    sim.meanwhile = Box::new(|sim| sim.lifted.set(sim.elapsed() < Nanos::seconds(60)));
    let lines = sim.run(config());
    assert_eq!(names(&lines)[..4], ["started", "limit", "limit", "working"], "{:?}", names(&lines));
    let limits = lines.iter().filter_map(|line| match line.event {
        Event::Limit { lifted } => Some((lifted, line.memory.limit_bytes)),
        _ => None,
    });
    assert_eq!(limits.collect::<Vec<_>>(), [(true, Bytes::MAX), (false, Bytes::mib(1000))]);
}

#[test]
fn nothing_left_is_logged_once_and_scans_become_rare() {
    let sim = Sim::new(vec![bloated(7, 100, 100)], |_| 700.0);
    let lines = sim.run(config());
    let exhausted: Vec<&DaemonLine> =
        lines.iter().filter(|line| matches!(line.event, Event::Exhausted { .. })).collect();
    assert_eq!(exhausted.len(), 1, "{:?}", names(&lines));
    let scans = names(&lines).iter().filter(|&name| name == "planned").count();
    // At once, and after 5, 10, 20, 40, 80, 160 and 300 seconds; the first freed something, so one
    // pause stays short.
    assert!((7..=9).contains(&scans), "{scans}");
    assert_eq!(sim.tried(), [100], "no region twice");
}

#[test]
fn a_process_with_little_bloat_at_a_time_does_not_keep_scans_frequent() {
    let mut sim = Sim::new(vec![bloated(7, 200, 0)], |_| 450.0);
    sim.meanwhile = Box::new(|sim| {
        // 120 KiB of 200 MiB wanted.
        let next = Region::new(1 + sim.tried()[0] as u64);
        sim.fakes[0].zeros.borrow_mut().insert(next, 30);
    });
    let names = names(&sim.run(config()));
    let count = |wanted| names.iter().filter(|&name| name == wanted).count();
    assert!(sim.tried()[0] >= 5, "each scan frees something: {:?}", sim.tried());
    assert!((6..=9).contains(&count("planned")), "{names:?}");
    assert_eq!(count("exhausted"), 1, "{names:?}");
}

#[test]
fn the_budget_holds_until_use_is_critical() {
    // Splitting 1000 huge pages costs 2 s of CPU time. With 1 % of a core and 0.1 s saved, that
    // takes minutes.
    let fakes = || vec![bloated(7, 1000, 100)];
    let slow = Config { cpu: Share::percent(1.0), ..config() };
    let run = |others: f64| {
        let mut sim = Sim::new(fakes(), move |_| others);
        (sim.limit, sim.seconds) = (Bytes::mib(4000), 100);
        let lines = sim.run(slow.clone());
        let is_over =
            |line: &DaemonLine| matches!(&line.event, Event::Freed(freed) if freed.over_budget);
        let over = lines.iter().any(is_over);
        (sim.cpu_time().as_seconds(), over)
    };
    let (cpu, over) = run(1400.0);
    assert!((0.9..1.2).contains(&cpu) && !over, "{cpu}");
    let (cpu, over) = run(2100.0);
    assert!(cpu > 2.0 && over, "{cpu}");
    // Critical for the first 0.8 s of CPU time only, which causes no debt.
    let (cpu, over) = run(1800.0);
    assert!((1.6..1.9).contains(&cpu) && over, "{cpu}");
}

#[test]
fn samples_are_taken_unless_use_is_critical() {
    let order = |others| {
        let sim = Sim::new(vec![bloated(7, 300, 410)], others);
        let lines = sim.run(Config::default());
        let planned = lines.iter().find_map(|line| match &line.event {
            Event::Planned { order, seconds, .. } => Some((order.clone(), *seconds)),
            _ => None,
        });
        planned.unwrap()
    };
    let (name, seconds) = order((|_| 250.0) as fn(f64) -> f64);
    assert!(name == "heat" && seconds > 3.0, "{name} {seconds}");
    let (name, seconds) = order(|_| 350.0);
    assert!(name == "exact" && seconds < 1.0, "{name} {seconds}");
    // Use would be critical before sampling ends.
    let (name, seconds) = order(|second| 250.0 + 20.0 * second);
    assert!(name == "exact" && seconds < 1.0, "{name} {seconds}");
    // A small jump is not a trend.
    let (name, seconds) = order(|second| if second < 0.02 { 250.0 } else { 255.0 });
    assert!(name == "heat" && seconds > 3.0, "{name} {seconds}");
    // Use becomes critical during sampling.
    let (name, seconds) = order(|second| 250.0 + 100.0 * second.min(1.0));
    assert!(name == "exact" && seconds < 2.0, "{name} {seconds}");
}

#[test]
fn processes_without_samples_are_counted() {
    let sim = Sim::new(vec![bloated(7, 150, 410), bloated(UNSAMPLED.0, 150, 410)], |_| 250.0);
    let lines = sim.run(Config::default());
    let planned = |line: &DaemonLine| match &line.event {
        Event::Planned { order, not_sampled, .. } => Some((order.clone(), *not_sampled)),
        _ => None,
    };
    assert_eq!(lines.iter().find_map(planned), Some(("heat".to_owned(), 1)));
}
