use hugepilot_record::{Cpu, Unit};

use super::*;
use crate::{RecordedMachine, SCHEMA};

fn metric(name: &str, group: Option<u32>, missing: bool) -> Metric {
    Metric {
        name: name.to_owned(),
        unit: Unit::Count,
        kind: MetricKind::Counter,
        scope: MetricScope::Process,
        source: String::new(),
        description: String::new(),
        group,
        missing: missing.then(|| "not in this run".to_owned()),
    }
}

fn head(started: u64, metrics: Vec<Metric>) -> Head {
    let cpu = Cpu {
        vendor: String::new(),
        model_name: String::new(),
        family: 0,
        model: 0,
        hypervisor: false,
    };
    Head {
        schema: SCHEMA.to_owned(),
        version: String::new(),
        command: Vec::new(),
        started_unix_seconds: 0.0,
        started: Nanos::millis(started),
        every: Nanos::millis(100),
        machine: RecordedMachine {
            cpu,
            cpus: 1,
            memory_bytes: 0,
            kernel: String::new(),
            thp: String::new(),
            base_page_bytes: 4096,
            huge_page_bytes: 2 << 20,
            tlb: None,
        },
        metrics,
        sampler: None,
        sampler_missing: None,
    }
}

fn slice(time: u64, pid: i32, values: &[Option<f64>], running_ns: u64) -> Line {
    Line::Slice(Slice {
        time: Nanos::millis(time),
        length: Nanos::millis(100),
        pid: Some(Pid(pid)),
        tid: None,
        values: values.to_vec(),
        groups: vec![GroupTime { enabled_ns: 100, running_ns }],
    })
}

fn slices(lines: &[Line]) -> Vec<&Slice> {
    let mut slices = Vec::new();
    for line in lines {
        if let Line::Slice(slice) = line {
            slices.push(slice);
        }
    }
    slices
}

#[test]
fn values_of_the_same_time_since_the_start_are_joined() {
    let (a, b) = (Some(0), None);
    let first = head(
        1000,
        vec![metric("cycles", a, false), metric("walks", b, true), metric("faults", b, false)],
    );
    let second = head(
        5000,
        vec![metric("faults", b, false), metric("walks", a, false), metric("stalls", a, false)],
    );
    let first_lines = vec![
        slice(1100, 7, &[Some(1.0), None, Some(2.0)], 90),
        slice(1200, 7, &[Some(3.0), None, Some(4.0)], 90),
    ];
    // Each slice a little late; the second run ends before the first.
    let second_lines = vec![slice(5103, 9, &[Some(9.0), Some(5.0), Some(6.0)], 80)];
    let (head, lines) = join(&[(first, first_lines), (second, second_lines)]).unwrap();
    let names: Vec<&str> = head.metrics.iter().map(|metric| metric.name.as_str()).collect();
    assert_eq!(names, ["cycles", "walks", "faults", "stalls"]);
    assert_eq!(head.metrics[1].missing, None);
    let groups: Vec<_> = head.metrics.iter().map(|metric| metric.group).collect();
    assert_eq!(groups, [Some(0), Some(1), None, Some(1)]);
    let joined = slices(&lines);
    assert_eq!(joined[0].values, [Some(1.0), Some(5.0), Some(2.0), Some(6.0)]);
    assert_eq!(joined[1].values, [Some(3.0), None, Some(4.0), None]);
    assert_eq!(joined[0].pid, Some(Pid(7)));
    let running: Vec<u64> = joined[0].groups.iter().map(|time| time.running_ns).collect();
    assert_eq!(running, [90, 80]);
    let Line::Warning(warning) = &lines[0] else { panic!("{:?}", lines[0]) };
    assert!(warning.contains("2 runs") && warning.contains("walks, stalls"), "{warning}");
    let Line::Warning(warning) = &lines[1] else { panic!("{:?}", lines[1]) };
    assert!(warning.starts_with("the runs took 0.10 to 0.20 s"), "{warning}");
    let sources: Vec<_> = head.metrics.iter().map(|metric| &metric.source[..]).collect();
    let [one, two] = ["; run 1 of 2", "; run 2 of 2"];
    assert_eq!(sources, [one, two, one, two]);
}

#[test]
fn the_same_phases_are_joined_by_their_begins() {
    let phase =
        |time, name: &str| Line::Phase(Phase { time: Nanos::millis(time), name: name.to_owned() });
    let run = |name: &str, begin: u64, phases: [&str; 2]| {
        let value = |at: u64| Some((at / 100) as f64);
        let mut lines = vec![phase(5, phases[0]), phase(begin, phases[1])];
        lines.extend((1..=6).map(|at| slice(at * 100, 7, &[value(at * 100)], 0)));
        (head(0, vec![metric(name, None, false)]), lines)
    };
    let values = |runs: &[(Head, Vec<Line>)]| -> Vec<_> {
        let (_, lines) = join(runs).unwrap();
        slices(&lines).iter().map(|slice| slice.values[1]).collect()
    };
    let first = run("a", 210, ["load", "solve"]);
    // The second run loads for two slices more.
    let second = run("b", 410, ["load", "solve"]);
    let by_phase = [Some(1.0), Some(2.0), Some(5.0), Some(6.0), None, None];
    assert_eq!(values(&[first.clone(), second.clone()]), by_phase);
    let by_time: Vec<_> = (1..=6).map(|at| Some(f64::from(at))).collect();
    assert_eq!(values(&[first, run("b", 410, ["load", "other"])]), by_time);
}

#[test]
fn a_counter_of_a_longer_slice_keeps_its_rate_and_a_gauge_its_value() {
    let gauge = Metric { kind: MetricKind::Gauge, ..metric("rss", None, false) };
    let second = head(0, vec![metric("faults", None, false), gauge]);
    let first = head(0, vec![metric("cycles", None, false)]);
    let mut longer = slice(100, 9, &[Some(40.0), Some(7.0)], 0);
    if let Line::Slice(slice) = &mut longer {
        slice.length = Nanos::millis(400);
    }
    let lines = vec![slice(100, 7, &[Some(1.0)], 0)];
    let (_, lines) = join(&[(first, lines), (second, vec![longer])]).unwrap();
    assert_eq!(slices(&lines)[0].values, [Some(1.0), Some(10.0), Some(7.0)]);
}

#[test]
fn the_slices_of_a_run_that_drifts_are_joined_by_time() {
    let first = head(0, vec![metric("a", None, false)]);
    let lines: Vec<_> = (1..=100).map(|at| slice(at * 100, 7, &[Some(1.0)], 0)).collect();
    let gauge = Metric { kind: MetricKind::Gauge, ..metric("c", None, false) };
    let second = head(0, vec![metric("b", None, false), gauge]);
    // Each slice takes 110 ms and counts 110.
    let drifting = (1..=91).map(|at| match slice(at * 110, 9, &[Some(110.0), None], 0) {
        Line::Slice(slice) => Line::Slice(Slice {
            length: Nanos::millis(110),
            values: vec![Some(110.0), Some((at * 110) as f64)],
            ..slice
        }),
        line => line,
    });
    let (_, joined) = join(&[(first, lines), (second, drifting.collect())]).unwrap();
    let joined = slices(&joined);
    assert_eq!(joined.len(), 100);
    for slice in joined {
        let counted = slice.values[1].unwrap();
        assert!((counted - 100.0).abs() < 1e-6, "{slice:?}");
        let state = Nanos::millis(slice.values[2].unwrap() as u64);
        assert!((state - slice.time).max(slice.time - state) <= Nanos::millis(55), "{slice:?}");
    }
}

#[test]
fn a_counter_of_a_later_run_is_in_the_slices_of_its_interval_only() {
    let of_run = |third: &str| {
        let names = ["minor_faults", "run_queue_wait", third];
        head(0, names.map(|name| metric(name, None, false)).to_vec())
    };
    // Each second has ten short slices and a long one, of another source.
    let lines = |own: f64| {
        let short = |at: u64| slice(at * 100, 7, &[Some(1.0), None, Some(own)], 90);
        let mut lines: Vec<_> = (1..=10).map(short).collect();
        lines.push(Line::Slice(Slice {
            time: Nanos::millis(1000),
            length: Nanos::millis(1000),
            pid: Some(Pid(7)),
            tid: None,
            values: vec![None, Some(5.0), None],
            groups: Vec::new(),
        }));
        lines
    };
    let runs = [(of_run("cycles"), lines(3.0)), (of_run("walks"), lines(4.0))];
    let (head, lines) = join(&runs).unwrap();
    assert_eq!(head.metrics.last().unwrap().name, "walks");
    let joined = slices(&lines);
    let walks: f64 = joined.iter().filter_map(|slice| slice.values[3]).sum();
    assert!((walks - 40.0).abs() < 1e-9, "{walks}");
    assert_eq!(joined.last().unwrap().values, [None, Some(5.0), None, None]);
    assert!(joined.last().unwrap().groups.is_empty());
}

#[test]
fn processes_correspond_in_the_order_in_which_they_appear() {
    let first = head(0, vec![metric("a", None, false)]);
    let second = head(0, vec![metric("b", None, false)]);
    let lines = vec![slice(100, 7, &[Some(1.0)], 0), slice(100, 8, &[Some(2.0)], 0)];
    let others = vec![slice(100, 30, &[Some(3.0)], 0), slice(100, 20, &[Some(4.0)], 0)];
    let (_, lines) = join(&[(first, lines), (second, others)]).unwrap();
    let values: Vec<_> = slices(&lines).iter().map(|slice| slice.values.clone()).collect();
    assert_eq!(values, [[Some(1.0), Some(3.0)], [Some(2.0), Some(4.0)]]);
}

#[test]
fn one_recording_stays_as_it_is_and_others_need_its_interval() {
    let lines = vec![slice(100, 7, &[Some(1.0)], 50)];
    let first = head(0, vec![metric("a", Some(0), false)]);
    assert_eq!(join(&[(first.clone(), lines.clone())]), Ok((first.clone(), lines.clone())));
    assert_eq!(join(&[]), Err(JoinError::Empty));
    let other = Head { every: Nanos::millis(10), ..first.clone() };
    let error = join(&[(first, lines.clone()), (other, lines)]).unwrap_err();
    assert!(matches!(error, JoinError::OtherInterval { number: 2, .. }), "{error}");
}
