use serde_json::json;

use super::super::super::records::tests::machine;
use super::super::record::{ProgramRun, Sample};
use super::*;

/// Points each second on half a CPU.
fn points(speed: f64) -> Vec<[f64; 3]> {
    let point = |second: u32| {
        let at = f64::from(second);
        [at, at * 500.0 * speed, at * 0.5]
    };
    (0..=600).map(point).collect()
}

/// A run of ten minutes in which every program does 1000 times `speed` operations per CPU second,
/// on half a CPU, and the references 1000.
pub(in super::super) fn run(mode: Mode, speed: f64) -> Run {
    let program = |program: &Program| ProgramRun {
        name: program.name.to_owned(),
        ready: Some(0.0),
        points: points(if reference_of(program).is_some() { speed } else { 1.0 }),
        memory: vec![(0.0, 2 << 30, 0), (10.0, 2 << 30, 512 << 20), (20.0, 2 << 30, 1 << 20)],
    };
    let sample = |at: u32| Sample {
        at: f64::from(at),
        used_bytes: u64::from(at + 1) << 20,
        huge_bytes: 1 << 20,
        stalled_seconds: 7.0 + f64::from(at) * 0.01,
        ..Sample::default()
    };
    let ballast = Ballast {
        wanted_bytes: 2 << 30,
        from: 100.0,
        to: 200.0,
        held: vec![(150.0, 1 << 30)],
        waited_seconds: 25.0,
    };
    let log = vec![
        json!({"event": "promoted", "command": "mix-hot", "unix_seconds": 1010.0,
               "huge_pages_promoted": 7, "huge_pages_demoted": 2}),
        json!({"event": "freed", "unix_seconds": 1120.0, "huge_pages_split": 5,
               "processes": [{"command": "mix-bloat", "huge_pages_split": 5}]}),
        json!({"event": "stopped", "cpu_seconds": 12.0, "seconds": 600.0, "freed_bytes": 10 << 20,
               "huge_pages_split": 5, "recollapses": 1, "huge_pages_promoted": 7}),
    ];
    Run {
        mode,
        seconds: 600.0,
        limit_bytes: 4 << 30,
        seed: 1,
        unix_seconds: 1000.0,
        samples: (0..600).map(sample).collect(),
        programs: MIX.iter().map(program).collect(),
        ballast: vec![ballast.clone(), ballast],
        log: if mode == Mode::Daemon { log } else { Vec::new() },
        daemon_peak_bytes: 13 << 20,
        settings: Vec::new(),
        machine: machine(),
    }
}

#[test]
fn rates_are_compared_window_by_window() {
    let (mut never, always) = (run(Mode::Never, 1.0), run(Mode::Always, 1.5));
    let daemon = run(Mode::Daemon, 1.2);
    // In the second half, the machine of `never` is as fast as that of `always`.
    let hot = &mut never.programs[0].points;
    let middle = hot[300];
    for point in &mut hot[301..] {
        point[1] = middle[1] + (point[0] - middle[0]) * 750.0;
    }
    let summary = program(&[&never, &always, &daemon], &MIX[0]);
    let ratio = summary.always.unwrap();
    assert!((ratio.low - 1.0).abs() < 1e-9 && (ratio.high - 1.5).abs() < 1e-9, "{ratio:?}");
    assert!(ratio.windows > 80);
    assert!((summary.daemon_over_always.unwrap().median - 0.8).abs() < 1e-9);
    // The first shortage lies in the first half, most of the second in the other.
    let short = summary.while_short.unwrap();
    assert!(short.windows < 30 && (short.median - 0.8).abs() < 1e-9, "{short:?}");
    assert!((summary.done_always.unwrap() - 1.2).abs() < 0.01, "{:?}", summary.done_always);
    let other = program(&[&never, &always, &daemon], &MIX[4]);
    assert!((other.always.unwrap().median - 1.5).abs() < 1e-9);
    assert_eq!((other.promoted, other.split), (0, 5));
    assert_eq!((summary.promoted, summary.split), (7, 0));
    assert_eq!(summary.huge_bytes, [Some(512 << 20); 3]);
}

#[test]
fn a_cpu_that_is_slower_in_one_mode_does_not_count() {
    let (never, mut always) = (run(Mode::Never, 1.0), run(Mode::Always, 1.5));
    for one in &mut always.programs {
        let cpu = MIX.iter().find(|program| program.name == one.name).unwrap().cpu;
        let slower = if cpu == 1 { 0.5 } else { 1.0 };
        one.points.iter_mut().for_each(|point| point[1] *= slower);
    }
    for program in MIX.iter().filter(|one| reference_of(one).is_some()) {
        let ratio = super::program(&[&never, &always], program).always.unwrap();
        assert!((ratio.low - 1.5).abs() < 1e-9 && (ratio.high - 1.5).abs() < 1e-9, "{ratio:?}");
    }
    let reference = super::program(&[&never, &always], &MIX[9]).always.unwrap();
    assert!((reference.median - 0.5).abs() < 1e-9, "its own row shows the drift");
}

#[test]
fn several_runs_of_a_mode_count_by_their_median() {
    let never = run(Mode::Never, 1.0);
    let always = [1.0, 3.0, 1.4].map(|speed| run(Mode::Always, speed));
    let runs = [&never, &always[0], &always[1], &always[2]];
    assert!((program(&runs, &MIX[0]).always.unwrap().median - 1.4).abs() < 1e-9);
    assert_eq!(mode(&runs, Mode::Always).unwrap().runs, 3);
    assert_eq!(mode(&runs, Mode::Daemon), None);
}

#[test]
fn a_window_without_points_or_cpu_time_does_not_count() {
    let points = [[0.0, 0.0, 0.0], [1.0, 10.0, 0.5], [9.0, 20.0, 1.0], [10.0, 30.0, 1.5]];
    assert_eq!(work(&points, 0.0, 10.0), Some(Work { per_cpu: 20.0, per_second: 3.0 }));
    assert_eq!(work(&points, 4.0, 10.0), None, "no point near its start");
    assert_eq!(work(&points, 9.5, 12.0), None, "both ends are one point");
    let idle = [[0.0, 0.0, 0.0], [10.0, 5.0, 0.1]];
    assert_eq!(work(&idle, 0.0, 10.0), None);
    assert_eq!(work(&[], 0.0, 10.0), None);
}

#[test]
fn ballast_counts_by_how_much_and_how_early() {
    let held = vec![(110.0, 1 << 30), (150.0, 2 << 30)];
    let ballast =
        Ballast { wanted_bytes: 4 << 30, from: 100.0, to: 200.0, held, waited_seconds: 25.0 };
    let shortage = shortage_of(&ballast);
    assert!((shortage.mean_ratio - (40.0 + 2.0 * 50.0) / 400.0).abs() < 1e-9, "{shortage:?}");
    assert_eq!(shortage.held_bytes, f64::from(1_u32 << 31));
    assert_eq!(shortage.waited_ratio, 0.25);
    let nothing = shortage_of(&Ballast { held: Vec::new(), ..ballast });
    assert_eq!((nothing.mean_ratio, nothing.held_bytes), (0.0, 0.0));
}

#[test]
fn a_mode_has_its_memory_and_its_cost() {
    let (never, daemon) = (run(Mode::Never, 1.0), run(Mode::Daemon, 1.0));
    let summary = mode(&[&never, &daemon], Mode::Daemon).unwrap();
    assert_eq!(summary.peak_used_bytes, 600.0 * 1048576.0);
    assert_eq!(summary.mean_used_bytes, 300.5 * 1048576.0);
    assert!((summary.stalled_ratio - 0.01).abs() < 1e-9);
    assert_eq!(summary.shortages.len(), 2);
    let cost = summary.daemon.unwrap();
    assert!((cost.cpus - 0.02).abs() < 1e-9);
    assert_eq!((cost.promoted, cost.demoted, cost.split, cost.recollapses), (7.0, 2.0, 5.0, 1.0));
    assert_eq!(mode(&[&never, &daemon], Mode::Never).unwrap().daemon, None);
}
