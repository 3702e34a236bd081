//! What de-bloating costs programs that have nothing to give: Figure 15 of EMD (ISMM'25).
//!
//! Harsher than any use: the program is sampled and read again and again for as long as it is measured, though one look already
//! found nothing.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use anyhow::{Context, Result};

use super::debloat::{debloat_with, number};
use super::pairs::{PairedStats, median, pairs};
use super::workload::Workload;
use super::yardstick::Yardstick;

/// All of their memory is in use.
const WORKLOADS: [&str; 3] = ["gups", "pointer-chase", "stream"];
/// So many measurements make one, so that whole looks fall within.
const MEASUREMENTS: usize = 3;

/// `[PAIRS=10] [SIZE=2GiB]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let count: usize = args.first().map_or(Ok(10), |text| text.parse()).context("PAIRS is a number")?;
    let size = args.get(1).unwrap_or(&"2GiB");
    println!("{size}; speed while looked at all the time, against alone; {count} pairs each");
    let mut all = Vec::new();
    for name in WORKLOADS {
        let workload = Workload::start_still(hugepilot, &[name, "--pages", "thp", "--size", size])?;
        let stats = one(hugepilot, name, workload, count)?;
        all.extend(stats.pairs);
    }
    println!("all        {}", PairedStats::of(all).line());
    Ok(())
}

fn one(hugepilot: &Path, name: &str, workload: Workload, count: usize) -> Result<PairedStats> {
    let pid = workload.pid.clone();
    let (yardstick, workload) = (RefCell::new(Yardstick::start(hugepilot)?), RefCell::new(workload));
    let speed = || {
        let one =
            |_| yardstick.borrow_mut().measure(&mut workload.borrow_mut()).expect("the workload runs on");
        median(&(0..MEASUREMENTS).map(one).collect::<Vec<f64>>())
    };
    let (looks, split) = (AtomicU64::new(0), AtomicU64::new(0));
    let look = || -> Result<()> {
        let report = debloat_with(hugepilot, "heat", "50%", &[&pid], &["--observe", "1s"])?;
        split.fetch_add(number(&report, "/huge_pages_split")?, Relaxed);
        looks.fetch_add(1, Relaxed);
        Ok(())
    };
    let looked_at = || {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let looking = scope.spawn(|| (0..).take_while(|_| !over.load(Relaxed)).try_for_each(|_| look()));
            let speed = speed();
            over.store(true, Relaxed);
            looking.join().expect("no panic").expect("debloat looks");
            speed
        })
    };
    let stats = pairs(count, speed, looked_at);
    println!(
        "{name:<14} {}; {} looks, {} huge pages split",
        stats.line(),
        looks.into_inner(),
        split.into_inner()
    );
    Ok(stats)
}
