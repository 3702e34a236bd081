//! Runs of every workload, from its configuration to its last line, in a few MiB.

use std::io;
use std::num::NonZeroU64;

use hugepilot_kernel::Pages;
use hugepilot_units::{Bytes, Nanos};

use super::memory::tests::ROOMY;
use super::*;

const SMALL: MemoryConfig = MemoryConfig { footprint: Bytes::mib(16), ..MemoryConfig::DEFAULT };

fn all() -> [Spec; 13] {
    let hot_set =
        |pattern| Spec::HotSet(HotSetConfig { memory: SMALL, hot: Bytes::mib(6), pattern });
    let scan = Bytes::mib(4);
    [
        hot_set(Pattern::Gather),
        hot_set(Pattern::Chase),
        Spec::PointerChase(SMALL),
        Spec::Gups(SMALL),
        Spec::HashMap(SMALL),
        Spec::HashInsert(HashInsertConfig { entries: 30_000, ..HashInsertConfig::DEFAULT }),
        Spec::Tree(SMALL),
        Spec::Churn(SMALL),
        Spec::Stream(SMALL),
        Spec::TlbFriendly(TlbFriendlyConfig { memory: SMALL, scan, hot_pages: 64 }),
        Spec::RandomAccess(RandomAccessConfig { memory: SMALL, ..RandomAccessConfig::default() }),
        Spec::BTree(SMALL),
        Spec::BTreeGrown(SMALL),
    ]
}

fn printed(spec: &Spec, config: &RunConfig) -> (Summary, Vec<String>) {
    let mut out = Vec::new();
    let summary = run(spec, config, &ROOMY, &mut io::empty(), &mut out).unwrap();
    (summary, String::from_utf8(out).unwrap().lines().map(str::to_owned).collect())
}

#[test]
fn fixed_work_gives_the_same_checksum_every_time() {
    let config = RunConfig { ops: Some(20_000), threads: 2, seconds: None, ..RunConfig::DEFAULT };
    for spec in all() {
        let (first, second) = (printed(&spec, &config).0, printed(&spec, &config).0);
        assert_eq!(first.ops, 40_000, "{}", spec.name());
        assert_eq!(first.checksum, second.checksum, "{}", spec.name());
    }
}

#[test]
fn prints_regions_then_ready_then_rates_then_json() {
    let (seconds, interval) = (Some(Nanos::millis(200)), Nanos::millis(50));
    let config = RunConfig { seconds, interval, announce: true, ..RunConfig::DEFAULT };
    let (summary, lines) = printed(&all()[0], &config);
    let ready =
        lines.iter().position(|line| line == &format!("ready {}", std::process::id())).unwrap();
    let hot: u64 = lines[..ready].iter().map(|line| hot_bytes(line)).sum();
    assert_eq!((hot, summary.hot_bytes), (6 << 20, 6 << 20));
    let (json, rates) = lines[ready + 1..].split_last().unwrap();
    assert!((1..=4).contains(&rates.len()), "{rates:?}");
    let mut fastest = 0;
    for rate in rates {
        let (seconds, per_second) = rate.split_once(' ').unwrap();
        assert_eq!(seconds.split_once('.').unwrap().1.len(), 3);
        assert!(seconds.parse::<f64>().unwrap() > 0.0);
        fastest = fastest.max(per_second.parse::<u64>().unwrap());
    }
    // A busy machine may do no work in one interval, but not in all.
    assert!(fastest > 0, "{rates:?}");
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!(
        (json["workload"].as_str(), json["pages"].as_str()),
        (Some("hot-set"), Some("default"))
    );
    assert_eq!(json["pattern"], "gather");
    assert_eq!(
        (json["footprint_bytes"].as_u64(), json["ops"].as_u64()),
        (Some(16 << 20), Some(summary.ops))
    );
}

fn hot_bytes(line: &str) -> u64 {
    let (start, end) = line.strip_prefix("hot ").unwrap().split_once('-').unwrap();
    let parse = |text| u64::from_str_radix(text, 16).unwrap();
    parse(end) - parse(start)
}

#[test]
fn regions_are_announced_only_on_request() {
    let config = RunConfig { ops: Some(1), ..RunConfig::DEFAULT };
    let (_, lines) = printed(&all()[0], &config);
    assert!(
        lines[0].starts_with("ready ") && lines[1].starts_with('{') && lines.len() == 2,
        "{lines:?}"
    );
}

#[test]
fn bloat_by_design_is_reported() {
    let config = RunConfig { ops: Some(1), ..RunConfig::DEFAULT };
    for spec in all() {
        let bloat = printed(&spec, &config).0.bloat_bytes;
        let expected = match spec {
            Spec::RandomAccess(_) => Some(8 << 20),
            Spec::BTree(_) => Some((2 * 256 + 5 * 496) * 4096),
            // `btree_grown/tests.rs` counts the zero-filled pages.
            Spec::BTreeGrown(_) => {
                bloat.filter(|bloat| (1 << 20..SMALL.footprint.get()).contains(bloat))
            }
            _ => None,
        };
        assert_eq!(bloat, expected, "{}", spec.name());
        let is_about_bloat = spec.name().starts_with("btree") || spec.name() == "random-access";
        assert_eq!(bloat.is_some(), is_about_bloat, "{}", spec.name());
    }
}

#[test]
fn timed_steps_are_a_line_before_the_json_and_in_it() {
    let config = RunConfig { ops: Some(100), steps: NonZeroU64::new(10), ..RunConfig::DEFAULT };
    let (summary, lines) = printed(&all()[0], &config);
    let [.., line, json] = &lines[..] else { panic!("{lines:?}") };
    let latency = summary.latency.unwrap();
    let Latency { p50_ns, p99_ns, max_ns, .. } = latency;
    assert_eq!(line, &format!("latency p50_ns {p50_ns} p99_ns {p99_ns} max_ns {max_ns}"));
    assert_eq!((latency.batches, latency.batch_ops), (10, 10));
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(json["latency"]["p99_ns"].as_u64(), Some(p99_ns));
}

#[test]
fn waiting_work_starts_only_at_go() {
    let config = RunConfig { ops: Some(1), wait: true, ..RunConfig::DEFAULT };
    let with_input = |mut stdin: &[u8]| {
        let mut out = Vec::new();
        let summary = run(&all()[0], &config, &ROOMY, &mut stdin, &mut out);
        (summary, String::from_utf8(out).unwrap())
    };
    assert_eq!(with_input(b"go\n").0.unwrap().ops, 1);
    let (refused, out) = with_input(b"");
    assert!(matches!(refused, Err(crate::WorkloadError::NotGo { .. })));
    assert!(out.starts_with("ready ") && out.lines().count() == 1, "{out}");
}

#[test]
fn hot_memory_is_what_huge_pages_help() {
    let config = RunConfig { ops: Some(1), ..RunConfig::DEFAULT };
    for spec in all() {
        let hot = printed(&spec, &config).0.hot_bytes;
        // The address of an empty table is unknown.
        let pays = !matches!(spec, Spec::Stream(_) | Spec::TlbFriendly(_) | Spec::HashInsert(_));
        assert_eq!(hot > 0, pays, "{}", spec.name());
    }
}

#[test]
fn every_choice_of_pages_is_granted_and_named() {
    let config = RunConfig { ops: Some(1), ..RunConfig::DEFAULT };
    for (pages, name) in [(Pages::Base, "base"), (Pages::Huge, "huge"), (Pages::Default, "default")]
    {
        let spec = Spec::Gups(MemoryConfig { pages, ..SMALL });
        assert_eq!(printed(&spec, &config).0.pages, name);
    }
}

#[test]
fn invalid_runs_are_refused_before_memory_is_reserved() {
    let refused = |spec: &Spec, config: &RunConfig| {
        run(spec, config, &ROOMY, &mut io::empty(), &mut io::sink()).unwrap_err()
    };
    let none = RunConfig { threads: 0, ..RunConfig::DEFAULT };
    assert!(matches!(refused(&all()[0], &none), crate::WorkloadError::Threads { threads: 0, .. }));
    let never = RunConfig { interval: Nanos::ZERO, ..RunConfig::DEFAULT };
    assert!(matches!(refused(&all()[0], &never), crate::WorkloadError::NoInterval));
    for spec in [
        Spec::Gups,
        Spec::HashMap,
        Spec::Tree,
        Spec::Churn,
        Spec::Stream,
        Spec::PointerChase,
        Spec::BTree,
        Spec::BTreeGrown,
        Spec::Memcached,
    ] {
        let spec = spec(MemoryConfig { footprint: Bytes::gib(1 << 20), ..SMALL });
        let error = refused(&spec, &RunConfig::DEFAULT);
        let fits = matches!(error, crate::WorkloadError::TooLarge { flag: "--footprint", .. });
        assert!(fits, "{}", spec.name());
    }
}
