use super::*;

const NOW: u64 = 1_800_000_000;
const DAY: u64 = 24 * 3600;

fn spread(median: f64) -> Spread {
    Spread { median, min: median - 0.02, max: median + 0.02 }
}

fn point(hot_bytes: Bytes, chase: f64, gather: f64) -> Point {
    Point { hot_bytes, chase_ratio: spread(chase), gather_ratio: spread(gather) }
}

fn sound() -> MachineCalibration {
    let points = vec![point(Bytes::mib(16), 0.9, 0.8), point(Bytes::mib(64), 0.8, 0.5)];
    let cause = LeftOutCause::Memory { available: "300MiB available".to_owned() };
    let left_out = vec![LeftOut { hot_bytes: Bytes::mib(256), cause }];
    MachineCalibration {
        machine: "A".into(),
        sample_cost_ns: Nanos::new(9_000),
        measured: Measurement {
            points,
            left_out,
            measured_unix_seconds: NOW,
            load_average: 0.5,
            steal_ratio: 0.01,
        },
        standing: Standing::Unchallenged,
    }
}

/// `sound` with a change.
fn changed(change: impl FnOnce(&mut MachineCalibration)) -> MachineCalibration {
    let mut calibration = sound();
    change(&mut calibration);
    calibration
}

fn flaw(change: impl FnOnce(&mut MachineCalibration)) -> Option<Flaw> {
    changed(change).measured.flaw()
}

fn loads(calibration: &MachineCalibration) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hugepilot");
    calibration.save(&path).unwrap();
    MachineCalibration::load(&path, "A").is_some_and(|loaded| loaded == *calibration)
}

#[test]
fn calibrations_of_other_machines_and_older_files_are_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("hugepilot");
    sound().save(&path).unwrap();
    assert_eq!(MachineCalibration::load(&path, "A"), Some(sound()));
    assert_eq!(MachineCalibration::load(&path, "B"), None);
    let older = r#"{"machine": "A", "sample_cost_ns": 9000,
        "points": [{"hot_bytes": 67108864, "chase_ratio": 0.8, "gather_ratio": 0.5}]}"#;
    for text in ["{ torn", older] {
        std::fs::write(path.join(FILE), text).unwrap();
        assert_eq!(MachineCalibration::load(&path, "A"), None);
    }
}

#[test]
fn impossible_values_are_rejected() {
    assert!(loads(&sound()));
    type Change = fn(&mut MachineCalibration);
    let changes: [Change; 8] = [
        |one| one.measured.points[0].chase_ratio.min = -0.8,
        |one| one.measured.points[1].gather_ratio.max = 1e300,
        |one| one.measured.points[0].hot_bytes = Bytes::MAX,
        |one| one.measured.points.reverse(),
        |one| one.measured.points.clear(),
        |one| one.measured.points = vec![one.measured.points[0]; 5],
        |one| one.measured.steal_ratio = 7.0,
        |one| one.sample_cost_ns = Nanos::seconds(1),
    ];
    for change in changes {
        assert!(!loads(&changed(change)));
    }
}

#[test]
fn a_measurement_that_cannot_be_right_has_a_flaw() {
    assert_eq!(flaw(|_| {}), None);
    let slower = |one: &mut MachineCalibration| one.measured.points[0].gather_ratio = spread(1.09);
    let found = flaw(slower).unwrap();
    assert_eq!(found, Flaw::Slower { hot: Bytes::mib(16), ratio: 1.09 });
    assert_eq!(found.to_string(), "for 16MiB, huge pages took 1.09 of the time of base pages");
    assert!(!loads(&changed(slower)), "a flawed one is not used");
    // A wide spread says nothing.
    assert_eq!(flaw(|one| one.measured.points[0].gather_ratio.max = 2.0), None);
    let rising = flaw(|one| one.measured.points[1].chase_ratio = spread(1.0));
    let (small, large) = ((Bytes::mib(16), 0.9), (Bytes::mib(64), 1.0));
    assert_eq!(rising, Some(Flaw::NotMonotone { small, large }));
    assert_eq!(flaw(|one| one.measured.points[1].chase_ratio = spread(0.97)), None);
    let stolen = flaw(|one| one.measured.steal_ratio = 0.3).unwrap();
    assert_eq!(stolen.to_string(), "the hypervisor took 30 % of the CPU time");
}

#[test]
fn an_old_or_contradicted_calibration_is_measured_again() {
    assert!(sound().is_trusted(NOW) && sound().is_trusted(NOW + 30 * DAY));
    assert!(!sound().is_trusted(NOW + 30 * DAY + 1));
    assert!(!sound().is_trusted(NOW - 1), "measured in the future");
    let mut contradicted = sound();
    assert!(contradicted.contradict());
    assert!(!contradicted.is_trusted(NOW));
    assert!(!contradicted.contradict(), "once is enough");
    assert!(loads(&contradicted), "the next run compares its own with this one");
}

#[test]
fn a_contradicted_calibration_that_is_measured_alike_again_stays() {
    let before = changed(|one| one.standing = Standing::Contradicted);
    let mut confirmed = sound().replacing(Some(&before));
    assert_eq!(confirmed.standing, Standing::Confirmed);
    assert!(!confirmed.contradict() && confirmed.is_trusted(NOW), "it is the trial that differs");
    let other = changed(|one| one.measured.points[1].gather_ratio = spread(0.3));
    assert_eq!(other.clone().replacing(Some(&before)).standing, Standing::Unchallenged);
    assert_eq!(other.replacing(None).standing, Standing::Unchallenged);
}

#[test]
fn sizes_that_memory_did_not_allow_are_measured_when_it_does() {
    let measured = sound().measured;
    assert!(measured.is_complete(OwnMemory::system(Bytes::mib(1024 + 500))));
    assert!(!measured.is_complete(OwnMemory::system(Bytes::gib(2))));
    let lacking = changed(|one| one.measured.left_out[0].cause = LeftOutCause::NoHugePages);
    assert!(lacking.measured.is_complete(OwnMemory::system(Bytes::gib(9))));
    assert!(is_possible(OwnMemory::system(Bytes::mib(1024 + 48))));
    assert!(!is_possible(OwnMemory::system(Bytes::mib(1024 + 47))));
}
