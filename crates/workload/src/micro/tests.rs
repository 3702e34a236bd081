//! Short runs of each micro-benchmark.

use hugepilot_reports::lab::PageKind;
use hugepilot_units::{Bytes, Nanos};

use super::*;
use crate::memory::tests::{ROOMY, with};

fn quiet(_: &str) {}

#[test]
fn pchase_has_a_point_for_each_pair_and_its_bandwidth_follows_from_its_latency() {
    let config = PchaseConfig {
        footprint: Bytes::mib(4),
        pages: PageKind::Base,
        seed: 1,
        threads: vec![1, 2],
        chains: vec![1, 4],
        rounds: 3,
        round_time: Nanos::millis(5),
    };
    let report = pchase(&config, &ROOMY, &quiet).unwrap();
    let pairs: Vec<_> = report.points.iter().map(|point| (point.threads, point.chains)).collect();
    assert_eq!(pairs, [(1, 1), (1, 4), (2, 1), (2, 4)]);
    for point in &report.points[..2] {
        let expected = f64::from(point.chains) * 64e9 / point.latency_ns.min;
        let ratio = point.bytes_per_second.max / expected;
        assert!((0.99..1.01).contains(&ratio), "{point:?}");
    }
    let chains = |chains| PchaseConfig { chains: vec![chains], ..config.clone() };
    assert!(matches!(pchase(&chains(17), &ROOMY, &quiet), Err(WorkloadError::Chains { .. })));
    assert!(matches!(pchase(&chains(0), &ROOMY, &quiet), Err(WorkloadError::Chains { .. })));
    let tiny = PchaseConfig { footprint: Bytes::new(64), ..config };
    assert!(matches!(pchase(&tiny, &ROOMY, &quiet), Err(WorkloadError::TooSmall { .. })));
}

#[test]
fn stream_checks_its_values_on_any_number_of_threads() {
    for threads in [1, 2, 3] {
        let array = Bytes::new(1_000_000);
        let config = StreamConfig { array, pages: PageKind::Base, threads, rounds: 3 };
        let report = stream(&config, &ROOMY, &quiet).unwrap();
        let names: Vec<&str> = report.kernels.iter().map(|kernel| kernel.kernel.as_str()).collect();
        assert_eq!(names, ["copy", "scale", "add", "triad"]);
        assert!(report.kernels.iter().all(|kernel| kernel.best_bytes_per_second > 1e6));
    }
    let config =
        StreamConfig { array: Bytes::mib(1), pages: PageKind::Base, threads: 1, rounds: 1 };
    assert!(matches!(stream(&config, &ROOMY, &quiet), Err(WorkloadError::Rounds { .. })));
}

#[test]
fn the_arrays_of_stream_fit_together_or_its_flag_is_named() {
    let config =
        StreamConfig { array: Bytes::gib(10), pages: PageKind::Base, threads: 1, rounds: 3 };
    let machine = with(Bytes::gib(22));
    let error = stream(&config, &machine, &quiet).unwrap_err();
    let WorkloadError::TooLarge { required, flag, .. } = error else { panic!("{error}") };
    assert_eq!((required, flag), (Bytes::gib(30), "--array"));
}

#[test]
fn gups_does_four_updates_per_word_and_loses_at_most_a_few() {
    let config = |threads| GupsConfig { footprint: Bytes::mib(3), pages: PageKind::Base, threads };
    let report = gups(&config(1), &ROOMY, &quiet).unwrap();
    assert_eq!((report.words, report.updates, report.wrong_words), (1 << 18, 1 << 20, 0));
    assert!(report.passed && report.updates_per_second > 1e5);
    assert!(gups(&config(2), &ROOMY, &quiet).unwrap().passed);
}

#[test]
fn memory_that_does_not_fit_is_an_error_before_it_is_touched() {
    let config = GupsConfig { footprint: Bytes::gib(512), pages: PageKind::Base, threads: 1 };
    assert!(matches!(gups(&config, &ROOMY, &quiet), Err(WorkloadError::TooLarge { .. })));
}

#[test]
fn a_sweep_has_rising_page_counts_and_says_why_a_curve_is_missing() {
    let config =
        TlbSweepConfig { pages: PageKind::ALL.to_vec(), max_footprint: Bytes::mib(64), seed: 1 };
    let report = tlb_sweep(&config, &ROOMY, &quiet).unwrap();
    let base = &report.curves[0];
    assert_eq!(base.points.last().map(|point| point.page_count), Some(16 << 10));
    assert!(base.points.is_sorted_by_key(|point| point.page_count));
    assert!(base.levels.last().is_some_and(|level| level.holds_pages.is_none()));
    let gigabyte = &report.curves[3];
    assert!(gigabyte.points.is_empty() && gigabyte.unavailable.is_some(), "{gigabyte:?}");
}
