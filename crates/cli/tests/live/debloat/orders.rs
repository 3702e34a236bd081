//! Orders of huge pages, compared with their descriptions, computed here from all bytes.

use std::cmp::Reverse;

use hugepilot_reports::explain::ExplainReport;
use hugepilot_testkit::requires;
use hugepilot_units::Bytes;

use super::{Bloat, debloat, possible, report};
use crate::look::zero_pages;
use crate::tool::hugepilot;
use crate::workload::sizes;

/// Used pages around the limits of EMD's buckets and of `--min-bloat`, unordered, some twice.
const DENSITIES: &str = "463,16,512,400,62,13,487,250,12,511,462,486,300,61,0,350,412,112,413,256,\
                         16,500,11,62,488,162,300,63,1,212";

/// Returns whether each region with `zero` zero-filled pages stays huge after `wanted` bytes are
/// freed in `order`.
fn expected(order: &str, zero: &[usize], wanted: Bytes) -> Vec<bool> {
    let mut turns: Vec<usize> = (0..zero.len()).collect();
    match order {
        "hawkeye" => turns.retain(|&region| zero[region] > 0),
        "emd" => {
            turns.retain(|&region| zero[region] > 0);
            turns.sort_by_key(|&region| (Reverse((zero[region] / 50).min(9)), region));
        }
        "exact" => {
            // 5 % of 512 pages are 25.6.
            turns.retain(|&region| zero[region] >= 26);
            turns.sort_by_key(|&region| (Reverse(zero[region]), region));
        }
        _ => panic!("{order} has no description here"),
    }
    let (mut huge, mut freed) = (vec![true; zero.len()], Bytes::ZERO);
    for region in turns {
        if freed < wanted {
            huge[region] = false;
            freed += sizes().base.times(zero[region] as u64);
        }
    }
    huge
}

#[test]
fn each_order_splits_what_its_description_says() {
    requires!(possible());
    let mut seen = Vec::new();
    for order in ["hawkeye", "emd", "exact"] {
        for percent in [10, 35, 70, 100] {
            let victim = Bloat::start(&[DENSITIES]);
            let zero = zero_pages(victim.pid(), victim.memory);
            let bloat = sizes().base.times(zero.iter().sum::<usize>() as u64);
            let wanted = Bytes::new(bloat.get() * percent / 100);
            let folder = tempfile::tempdir().unwrap();
            let journal = folder.path().join("journal").display().to_string();
            let wanted_bytes = wanted.get();
            let amount = format!("--order {order} --amount {wanted_bytes} --journal {journal}");
            let done = debloat(&[victim.pid()], &amount);
            let report = report(done.exits(0));
            assert_eq!(
                victim.map(),
                expected(order, &zero, wanted),
                "{order} {percent} %: {done:?}"
            );
            assert_eq!(
                report.huge_pages_split,
                victim.split_regions() as u64,
                "{order} {percent} %"
            );
            let explained: ExplainReport =
                hugepilot(["explain", "--json", &journal]).exits(0).json();
            let splits = explained.shown[0].splits.as_ref().unwrap();
            let process = &splits.processes[0];
            assert_eq!(
                (process.huge_pages_split, process.freed_bytes),
                (report.huge_pages_split, report.freed_bytes),
                "{order} {percent} %"
            );
            if percent == 35 {
                seen.push(victim.map());
            }
            victim.ends_intact();
        }
    }
    assert!(
        seen[0] != seen[1] && seen[1] != seen[2] && seen[0] != seen[2],
        "the orders do not differ"
    );
}
