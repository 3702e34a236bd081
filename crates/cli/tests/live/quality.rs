//! Precision of the promoted regions, and the gain by the progress metric of the program.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use hugepilot_kernel::Target;
use hugepilot_record::SkipReason;
use hugepilot_reports::tune::{Metric, TrialVerdict, TuneVerdict};
use hugepilot_testkit::{Victim, need, requires};
use hugepilot_units::{Bytes, VirtAddr};

use crate::look::{base_pages_by_default, huge_now, tunable};
use crate::tool::{HUGEPILOT, hugepilot, tune, tune_args};
use crate::workload::{SOON, Workload, open, sizes};

/// Tunes a workload with 128 hot regions, and checks that these are promoted, and no others.
#[allow(clippy::cast_precision_loss)]
fn promotes_the_hot_regions(pattern: &str) {
    let workload =
        Workload::start(&format!("hot-set --footprint 1GiB --hot 256MiB --pattern {pattern}"));
    assert_eq!(workload.hot.len() as u64, Bytes::mib(256).get() / sizes().huge.get());
    let done = tune(workload.pid(), "--budget 30% --rate 4000 --observe 1s --for 4s");
    let report = done.exits(0).report();
    let verified = report.plan.selected.iter().filter(|candidate| candidate.verified == Some(true));
    let promoted: BTreeSet<u64> = verified.map(|candidate| candidate.start.get()).collect();
    let found = promoted.intersection(&workload.hot).count() as f64;
    let (recall, precision) = (found / workload.hot.len() as f64, found / promoted.len() as f64);
    eprintln!("{pattern}: {recall:.3} of the hot regions, precision {precision:.3}");
    assert!(recall >= 0.95 && precision >= 0.95, "{pattern}: {recall} {precision} {done:?}");
    let planned: f64 = report.plan.selected.iter().map(|candidate| candidate.heat_ratio).sum();
    // The heat of a region is a mean with its neighbours; the stalls bound the sum.
    let (covered, stalls) =
        (report.forecast.coverage_ratio.unwrap(), report.forecast.before.stall_ratio.unwrap());
    let off = (covered - planned.min(stalls)).abs();
    assert!(off < 0.05 || !report.acts.failed.is_empty(), "{off} {done:?}");
    assert!(
        !report.plan.skipped.contains_key(&SkipReason::AlreadyHuge),
        "no other process promotes: {done:?}"
    );
    // The report agrees with the pagemap.
    assert_eq!(promoted.len() as u64, report.acts.verified_regions);
    assert_eq!(huge_now(workload.pid()), sizes().huge.times(report.acts.verified_regions));
    let process = open(workload.pid());
    let is_huge =
        |start| process.region_pages(sizes().region_of(VirtAddr::new(start))).unwrap().huge;
    assert!(promoted.iter().copied().all(is_huge));
}

/// A pointer chase has no trial.
#[test]
fn only_the_hot_regions_of_a_pointer_chase_are_promoted() {
    requires!(tunable());
    requires!(need::memory(Bytes::gib(2)));
    promotes_the_hot_regions("chase");
}

/// The trial promotes half of them, and the rest if it shows a gain.
#[test]
fn only_the_hot_regions_are_promoted_if_their_trial_shows_a_gain() {
    requires!(tunable());
    requires!(need::memory(Bytes::gib(2)));
    requires!(need::gain(GAIN));
    promotes_the_hot_regions("gather");
}

/// Speedup of random reads with which a trial of a second has its verdict.
pub(crate) const GAIN: f64 = 1.25;

/// Runs `tune` on a workload without gain; checks the reasons of the skipped regions.
fn gains_nothing(line: &str, reasons: &[SkipReason]) {
    let workload = Workload::start(line);
    let done = tune(workload.pid(), "--budget 100% --trial-rate 4000 --observe 2s --for 12s");
    let report = done.exits(1).report();
    // What a trial promoted is on base pages again.
    assert_eq!(report.acts.verified_regions, report.acts.demoted_regions, "{done:?}");
    for reason in reasons {
        assert!(
            report.plan.skipped.get(reason).is_some_and(|&count| count > 0),
            "no {reason}: {:?}",
            report.plan.skipped
        );
    }
    assert_eq!(huge_now(workload.pid()), Bytes::ZERO);
}

#[test]
fn a_few_hot_pages_and_a_scan_are_not_promoted() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    requires!(base_pages_by_default());
    gains_nothing(
        "tlb-friendly --footprint 512MiB",
        &[SkipReason::TlbFriendly, SkipReason::Streamed],
    );
}

#[test]
fn a_stream_is_not_promoted() {
    requires!(need::live());
    requires!(need::cap_perfmon());
    requires!(base_pages_by_default());
    gains_nothing("stream --footprint 512MiB", &[SkipReason::Streamed]);
}

#[test]
fn the_progress_metric_shows_the_gain() {
    requires!(tunable());
    requires!(need::gain(GAIN));
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("progress");
    let mut command = Command::new("sh");
    let words = "lab workload hot-set --footprint 512MiB --hot 128MiB --seconds 0 --interval 100ms";
    command
        .args(["-c", &format!("exec {HUGEPILOT} {words} > \"$1\""), "sh"])
        .arg(&log)
        .stdin(Stdio::null());
    let victim = Victim::spawn(command);
    let until = Instant::now() + SOON;
    while !fs::read_to_string(&log).is_ok_and(|text| text.contains("ready")) {
        assert!(Instant::now() < until, "the workload is not ready");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut words =
        tune_args(victim.pid(), "--budget 50% --progress-wait 10s --progress-higher-is-better");
    words.extend(["--progress-regex", r"^[\d.]+ (\d+)$", "--progress-file"].map(str::to_owned));
    words.push(log.to_string_lossy().into_owned());
    let done = hugepilot(words);
    let report = done.exits(0).report();
    let progress = [report.measured.baseline, report.measured.tuned]
        .map(|interval| interval.unwrap().progress.unwrap());
    assert!(
        progress.iter().all(|spread| spread.median > 1000.0 && spread.min <= spread.median),
        "{done:?}"
    );
    assert_eq!(report.measured.metric, Some(Metric::Given), "{done:?}");
    let quotient = progress[1].median / progress[0].median;
    assert!((report.measured.speedup.unwrap() - quotient).abs() < 1e-6, "{done:?}");
    // The machine's speed drifts by more than the gain, so one figure before and one after prove
    // nothing. The trial compares halves of the memory in the same window.
    let trial = report.forecast.trial.unwrap();
    eprintln!("speedup {quotient:.2}, trial {trial:?}");
    assert_ne!(trial.verdict, TrialVerdict::NoGain, "{done:?}");
    assert!(trial.ratio.unwrap() < 1.0, "{done:?}");
}

/// The pattern matches no line, so that the wait is longer than the first observation.
#[test]
fn a_missing_progress_metric_costs_its_wait_only() {
    requires!(tunable());
    let workload = Workload::start("hot-set --footprint 512MiB --hot 128MiB");
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("progress");
    fs::write(&log, "step 1\nstep 2\n").unwrap();
    let options = "--dry-run --observe 500ms --progress-wait 3500ms";
    let mut words = tune_args(workload.pid(), options);
    words.extend(["--progress-regex", r"Time: (\d+)", "--progress-file"].map(str::to_owned));
    words.push(log.to_string_lossy().into_owned());
    let done = hugepilot(words);
    let report = done.exits(0).report();
    assert_eq!(report.verdict(), TuneVerdict::WouldPromote, "{done:?}");
    let talk = String::from_utf8_lossy(&done.stderr);
    assert!(talk.contains("waiting for the progress metric, at most 3.5s"), "{done:?}");
}

/// Policies besides `heat` on one workload, which keeps what each of them promoted. Those that need
/// no samples have few.
#[test]
fn policies_promote_as_their_names_say() {
    requires!(tunable());
    requires!(need::memory(Bytes::gib(2)));
    let workload = Workload::start("hot-set --footprint 512MiB --hot 64MiB --pattern gather");
    let promoted = |policy: &str, line: &str, exit: i32| {
        let line = format!("--policy {policy} --max-collapse 2s {line}");
        let done = tune(workload.pid(), &line);
        let report = done.exits(exit).report();
        assert_eq!((report.policy.as_str(), report.forecast.trial), (policy, None), "{done:?}");
        let verified = report.plan.selected.iter().filter(|one| one.verified == Some(true));
        let starts: BTreeSet<u64> = verified.map(|one| one.start.get()).collect();
        assert_eq!(starts.len() as u64, report.acts.verified_regions, "{done:?}");
        starts
    };
    assert!(promoted("never", "--observe 300ms --for 600ms", 1).is_empty());
    assert_eq!(huge_now(workload.pid()), Bytes::ZERO);
    let scanned = promoted("khugepaged", "--observe 300ms --for 600ms --rate 1", 0);
    assert_eq!(scanned.len(), 8, "the first scan: {scanned:?}");
    let first = promoted("linux", "--observe 300ms --for 600ms --rate 1 --budget 32MiB", 0);
    assert!(first.len() == 16 && first.first() > scanned.last(), "{first:?} {scanned:?}");
    let covered = promoted("hawkeye", "--observe 1s --for 2s --rate 4000", 0);
    let hot = covered.intersection(&workload.hot).count();
    assert!((6..=16).contains(&covered.len()) && hot * 10 >= covered.len() * 9, "{covered:?}");
    let rest = promoted("all", "--observe 300ms --for 2s --rate 1", 0);
    let all = [&scanned, &first, &covered, &rest].iter().map(|one| one.len()).sum::<usize>();
    assert_eq!(huge_now(workload.pid()), sizes().huge.times(all as u64));
    assert!(Bytes::new(huge_now(workload.pid()).get()) >= Bytes::mib(500), "{all}");
}
