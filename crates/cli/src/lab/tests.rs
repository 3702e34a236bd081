//! Tests of the flags of `lab workload`.

use std::num::NonZeroU64;

use clap::Parser;
use hugepilot_kernel::Pages;
use hugepilot_units::{Bytes, Nanos};
use hugepilot_workload::{
    HashInsertConfig, Hot, HotSetConfig, Layout, MemoryConfig, Pattern, RandomAccessConfig,
    RunConfig, Side, Spec, TlbFriendlyConfig,
};

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    lab: LabArgs,
}

fn planned(flags: &str) -> (Spec, RunConfig) {
    let line =
        Line::try_parse_from(["lab", "workload"].into_iter().chain(flags.split(' '))).unwrap();
    let LabCommand::Workload { workload } = line.lab.command else { panic!("{flags}") };
    workload.into_spec()
}

#[test]
fn without_flags_the_defaults_of_the_library_hold() {
    let run = RunConfig::DEFAULT;
    assert_eq!(planned("hot-set"), (Spec::HotSet(HotSetConfig::DEFAULT), run));
    assert_eq!(planned("gups"), (Spec::Gups(MemoryConfig::DEFAULT), run));
    assert_eq!(planned("tlb-friendly"), (Spec::TlbFriendly(TlbFriendlyConfig::DEFAULT), run));
    assert_eq!(planned("random-access"), (Spec::RandomAccess(RandomAccessConfig::default()), run));
}

#[test]
fn hash_insert_fills_one_table_by_default() {
    let run = |flags: &str| planned(&format!("hash-insert{flags}")).1;
    let once = |entries| RunConfig { ops: Some(entries), seconds: None, ..RunConfig::DEFAULT };
    assert_eq!(
        planned("hash-insert"),
        (Spec::HashInsert(HashInsertConfig::DEFAULT), once(10_000_000))
    );
    assert_eq!(run(" --entries 7"), once(7));
    assert_eq!(run(" --entries 7 --ops 9"), once(9));
    assert_eq!(run(" --seconds 3").seconds, Some(Nanos::seconds(3)));
    assert_eq!((run(" --seconds 0").seconds, run(" --seconds 0").ops), (None, None));
    let requested = planned("hash-insert --entries 7 --pages huge").0;
    assert_eq!(requested, Spec::HashInsert(HashInsertConfig { entries: 7, pages: Pages::Huge }));
}

#[test]
fn workloads_with_bloat_request_huge_pages_by_default() {
    let memory = |pages| MemoryConfig { footprint: Bytes::mib(64), pages, ..MemoryConfig::DEFAULT };
    assert_eq!(planned("btree --size 64MiB").0, Spec::BTree(memory(Pages::Huge)));
    let grown = Spec::BTreeGrown(memory(Pages::Huge));
    assert_eq!(planned("btree-grown --size 64MiB").0, grown);
    assert_eq!(planned("memcached --size 64MiB").0, Spec::Memcached(memory(Pages::Huge)));
    assert_eq!(planned("btree --size 64MiB --pages base").0, Spec::BTree(memory(Pages::Base)));
    assert_eq!(planned("gups --size 64MiB --pages thp").0, Spec::Gups(memory(Pages::Huge)));
}

#[test]
fn every_flag_of_random_access_reaches_it() {
    let flags = "random-access --size 2GiB --bloat 90,50,0 --bloat-side right \
                 --layout scattered --hot bloated --skew 95 --pages base --wait --steps 500";
    let (spec, run) = planned(flags);
    let memory =
        MemoryConfig { footprint: Bytes::gib(2), pages: Pages::Base, ..MemoryConfig::DEFAULT };
    let (side, layout, hot) = (Side::Right, Layout::Scattered, Hot::Bloated);
    let config =
        RandomAccessConfig { memory, bloat: vec![90, 50, 0], side, layout, hot, skew_percent: 95 };
    assert_eq!(spec, Spec::RandomAccess(config));
    assert_eq!((run.wait, run.steps), (true, NonZeroU64::new(500)));
}

#[test]
fn zero_seconds_and_fixed_work_have_no_time_limit() {
    assert_eq!(planned("gups --seconds 0").1.seconds, None);
    assert_eq!(planned("gups --ops 5").1.seconds, None);
    assert_eq!(planned("gups --ops 5 --seconds 2").1.seconds, Some(Nanos::seconds(2)));
}

#[test]
fn every_flag_reaches_the_workload() {
    let flags = "hot-set --footprint 1GiB --hot 8MiB --pattern chase --threads 3 --seconds 500ms \
                 --seed 9 --pages huge --interval 100ms --announce";
    let (spec, run) = planned(flags);
    let memory = MemoryConfig { footprint: Bytes::gib(1), pages: Pages::Huge, seed: 9 };
    assert_eq!(
        spec,
        Spec::HotSet(HotSetConfig { memory, hot: Bytes::mib(8), pattern: Pattern::Chase })
    );
    let (seconds, interval) = (Some(Nanos::millis(500)), Nanos::millis(100));
    assert_eq!(
        run,
        RunConfig { threads: 3, seconds, interval, announce: true, ..RunConfig::DEFAULT }
    );
}
