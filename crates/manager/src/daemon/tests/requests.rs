//! Tests of requests of the user: reload and stop.

use super::*;

#[test]
fn the_configuration_is_read_again_or_kept() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 100.0);
    let lower = Config { high: Share::percent(60.0), low: Share::percent(50.0), ..config() };
    let elsewhere = Config { cgroup: Some("/sys/fs/cgroup/x".into()), ..lower.clone() };
    let broken = ReloadError::Config { error: "d.toml:1: high: found 80".to_owned() };
    let reloads = RefCell::new(VecDeque::from([Err(broken.clone()), Ok(elsewhere), Ok(lower)]));
    sim.meanwhile = Box::new(move |sim| {
        if sim.elapsed() > Nanos::seconds(10) {
            sim.reloads.borrow_mut().extend(reloads.borrow_mut().pop_front());
        }
    });
    let lines = sim.run(config());
    let errors: Vec<Option<ReloadError>> = lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::Reloaded { error } => Some(error.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(errors, [Some(broken), Some(ReloadError::CgroupChanged), None]);
    assert_eq!(lines[2].memory.high_ratio, Share::percent(80.0), "the old one is kept");
    let used = sim.memory().unwrap().use_ratio();
    assert!((0.49..0.5).contains(&used), "the new watermarks apply: {used}");
}

#[test]
fn a_stop_is_immediate_and_logs_the_totals() {
    let mut sim = Sim::new(vec![bloated(7, 300, 410)], |_| 350.0);
    sim.seconds = 0;
    sim.meanwhile = Box::new(|_| {});
    assert_eq!(names(&sim.run(config())), ["started", "stopped"]);
    // In the middle of splitting: each takes 2 ms, and the second is over after some of them.
    let mut sim = Sim::new(vec![bloated(7, 1000, 100)], |_| 1800.0);
    (sim.limit, sim.seconds) = (Bytes::mib(4000), 1);
    let lines = sim.run(config());
    let done = sim.tried()[0];
    assert!((100..900).contains(&done), "{done}");
    assert_eq!(
        freed(&lines),
        Bytes::kib(400).times(done as u64),
        "the totals are of the splits done"
    );
    assert!(sim.elapsed() < Nanos::millis(1010), "{}", sim.elapsed());
}
