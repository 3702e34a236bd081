use proptest::prelude::*;

use super::*;

const STEP: Nanos = Nanos::millis(400);
/// Windows before the first promotion, during the promotions, and after.
const PARTS: [usize; 3] = [7, 4, 10];
const FIRST: Nanos = Nanos::millis(7 * 400);
const LAST: Nanos = Nanos::millis(11 * 400 - 100);

/// Counts of a window.
#[derive(Clone, Copy)]
struct Work {
    cpu: Nanos,
    calls: u64,
    bytes: u64,
    instructions: Option<u64>,
}

/// A server that makes calls of 100 bytes each.
fn server(calls: u64) -> Work {
    Work { cpu: Nanos::millis(300), calls, bytes: 100 * calls, instructions: None }
}

/// Readings at the ends of windows; `work` has the part and the number of each.
fn readings(mut work: impl FnMut(usize, u64) -> Work) -> Vec<WorkReading> {
    let zero = Some(0);
    let mut last = WorkReading {
        io_calls: zero,
        io_bytes: zero,
        instructions: zero,
        ..WorkReading::default()
    };
    let mut all = vec![last];
    let parts = PARTS.iter().enumerate().flat_map(|(part, &count)| vec![part; count]);
    for (number, part) in (0..).zip(parts) {
        let work = work(part, number);
        last.time = last.time + STEP;
        last.cpu = last.cpu + work.cpu;
        last.io_calls = last.io_calls.map(|count| count + work.calls);
        last.io_bytes = last.io_bytes.map(|count| count + work.bytes);
        last.instructions = last.instructions.zip(work.instructions).map(|(a, b)| a + b);
        all.push(last);
    }
    all
}

fn find(readings: &[WorkReading]) -> Result<FoundMetric, NoMetric> {
    find_metric(readings, FIRST, LAST)
}

/// `value`, with `percent` hundredths more in each second window.
fn shaken(value: u64, number: u64, percent: u64) -> u64 {
    if number.is_multiple_of(2) { value } else { value + value * percent / 100 }
}

#[test]
fn steady_calls_are_found_and_windows_of_the_promotions_do_not_count() {
    let found = find(&readings(|part, number| match part {
        0 => server(shaken(10_000, number, 10)),
        1 => server(1),
        _ => server(shaken(12_500, number, 10)),
    }));
    let found = found.unwrap();
    // The first window after the last promotion belongs to settling.
    assert_eq!((found.metric, found.before.len(), found.after.len()), (Metric::IoCalls, 7, 10 - 1));
    let ratio = median(found.after).unwrap() / median(found.before).unwrap();
    assert!((ratio - 1.25).abs() < 1e-9, "{ratio}");
}

#[test]
fn windows_of_a_server_with_little_work_are_longer() {
    // Two readings together have the CPU time of a window.
    let light = |calls| Work { cpu: Nanos::millis(25), ..server(calls) };
    let parts: usize = PARTS.iter().sum();
    assert_eq!(windows(&readings(|_, _| light(1000))).len(), parts / 2);
}

#[test]
fn calls_that_are_not_steady_on_either_side_are_passed_over() {
    for shaken_part in [0, 2] {
        let work = |instructions| {
            readings(|part, number| {
                let percent = if part == shaken_part { 50 } else { 0 };
                Work { instructions, ..server(shaken(10_000, number, percent)) }
            })
        };
        assert_eq!(find(&work(Some(1 << 30))).unwrap().metric, Metric::Instructions);
        let cause = find(&work(None)).unwrap_err();
        let NoMetric::Unsteady { metric, spread_ratio } = cause else { panic!("{cause:?}") };
        assert!(metric == Metric::IoCalls && (0.3..=0.5).contains(&spread_ratio), "{cause:?}");
    }
}

#[test]
fn other_requests_are_not_another_speed() {
    let changed = |bytes: u64| {
        find(&readings(|part, _| {
            let work = server(10_000);
            if part == 2 { Work { bytes: work.calls * bytes, ..work } } else { work }
        }))
    };
    for (bytes, expected) in [(111, 0.11), (50, 1.0)] {
        let cause = changed(bytes).unwrap_err();
        let NoMetric::Changed { change_ratio } = cause else { panic!("{cause:?}") };
        assert!((change_ratio - expected).abs() < 1e-9, "{cause:?}");
    }
    assert!(changed(104).is_ok() && changed(97).is_ok());
}

#[test]
fn few_events_few_windows_and_no_cpu_time_have_their_causes() {
    assert_eq!(find(&readings(|_, _| server(390))), Err(NoMetric::FewEvents));
    let no_io = |one| WorkReading { io_calls: None, io_bytes: None, instructions: None, ..one };
    let unreadable: Vec<_> = readings(|_, _| server(10_000)).into_iter().map(no_io).collect();
    assert_eq!(find(&unreadable), Err(NoMetric::FewEvents));
    let windows = |windows| Err(NoMetric::FewWindows { windows, required: 5 });
    let steady = readings(|_, _| server(10_000));
    assert_eq!(find_metric(&steady, Nanos::millis(1900), LAST), windows(4));
    assert_eq!(find_metric(&steady, FIRST, Nanos::millis(6800)), windows(3));
    assert_eq!(find(&steady[..1]), windows(0));
    assert_eq!(find(&[]), windows(0));
    let idle = readings(|_, _| Work { cpu: Nanos::ZERO, ..server(10_000) });
    assert_eq!(find(&idle), windows(0));
}

#[test]
fn counters_that_go_backwards_and_children_that_ended_void_a_window() {
    let mut children = readings(|_, _| server(10_000));
    children.iter_mut().skip(4).for_each(|one| one.child_faults = 9);
    assert_eq!(find(&children).unwrap().before.len(), 6);
    let mut backwards = readings(|_, _| server(10_000));
    backwards.iter_mut().skip(4).for_each(|one| one.cpu = one.cpu - Nanos::seconds(1));
    assert_eq!(find(&backwards).unwrap().before.len(), 6);
    let mut backwards = readings(|_, _| server(10_000));
    backwards[4].io_calls = Some(0);
    assert_eq!(find(&backwards), Err(NoMetric::FewEvents));
}

#[test]
fn at_most_the_windows_closest_to_the_promotions_count() {
    let reading = |number: u64| WorkReading {
        time: Nanos::millis(400 * number),
        cpu: Nanos::millis(300 * number),
        io_calls: Some(10_000 * number + if number == 0 { 0 } else { 5_000 }),
        ..WorkReading::default()
    };
    let many: Vec<_> = (0..400).map(reading).collect();
    let found = find_metric(&many, Nanos::seconds(80), Nanos::seconds(81)).unwrap();
    assert_eq!((found.before.len(), found.after.len()), (64, 64));
    let first = found.before[0];
    assert!(found.before.iter().all(|value| (value - first).abs() < 1e-6), "without the first");
}

proptest! {
    #[test]
    fn what_is_found_is_steady_and_finite(
        works in prop::collection::vec((0_u64..400, 1000_u64..20_000, 0_u64..1000), 21),
        jump in (0_usize..22, any::<[u64; 5]>()),
    ) {
        let mut readings = readings(|_, number| {
            let (cpu, calls, instructions) = works[usize::try_from(number).unwrap()];
            Work {
                cpu: Nanos::millis(cpu),
                calls: calls / 10 + 9000,
                bytes: calls,
                instructions: Some(instructions + 100_000),
            }
        });
        // Anything may stand in one reading.
        let (number, [cpu, child_faults, calls, bytes, instructions]) = jump;
        readings[number] = WorkReading {
            time: readings[number].time,
            cpu: Nanos::new(cpu),
            child_faults: child_faults % 2,
            io_calls: (calls % 5 > 0).then_some(calls),
            io_bytes: Some(bytes),
            instructions: Some(instructions),
        };
        match find(&readings) {
            Ok(found) => for values in [found.before, found.after] {
                prop_assert!(values.len() >= MIN_WINDOWS && spread(&values) <= MAX_SPREAD);
                prop_assert!(values.iter().all(|value| value.is_finite() && *value > 0.0));
            },
            Err(NoMetric::Unsteady { spread_ratio, .. }) => prop_assert!(spread_ratio > MAX_SPREAD),
            Err(NoMetric::Changed { change_ratio }) => prop_assert!(change_ratio > MAX_CHANGE),
            Err(cause) => prop_assert!(
                matches!(cause, NoMetric::FewWindows { .. } | NoMetric::FewEvents), "{:?}", cause
            ),
        }
    }

    #[test]
    fn any_readings_are_judged(numbers in prop::collection::vec(any::<[u64; 6]>(), 0..40)) {
        let reading = |[time, cpu, child_faults, calls, bytes, instructions]: [u64; 6]| {
            WorkReading {
                time: Nanos::new(time),
                cpu: Nanos::new(cpu),
                child_faults,
                io_calls: Some(calls),
                io_bytes: Some(bytes),
                instructions: Some(instructions),
            }
        };
        let readings: Vec<_> = numbers.into_iter().map(reading).collect();
        let _ = find_metric(&readings, Nanos::new(u64::MAX / 2), Nanos::new(u64::MAX / 2));
    }

    #[test]
    fn the_ratio_of_the_medians_is_that_of_the_server(
        permille in 700_u64..2000, noise in prop::collection::vec(0_u64..200, 21),
    ) {
        let found = find(&readings(|part, number| {
            let calls = if part < 2 { 10_000 } else { 10 * permille };
            server(calls + calls * noise[usize::try_from(number).unwrap()] / 10_000)
        })).unwrap();
        let ratio = median(found.after).unwrap() / median(found.before).unwrap();
        let expected = f64::from(u32::try_from(permille).unwrap()) / 1000.0;
        prop_assert!((ratio / expected - 1.0).abs() < 0.025, "{ratio} {expected}");
    }
}
