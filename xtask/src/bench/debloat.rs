//! Cost of debloating for one program, by order: Figures 7 and 8 of EMD (ISMM'25), and Table 3.
//!
//! A program runs throughout. All of its memory is promoted and its speed measured. Then 20, 30, 40
//! and 50 % of its bloat are freed in one order, and the speed is measured after each step. The
//! orders are interleaved. A second copy on base pages gives the lower bound. Speeds are relative
//! to a reference workload (`yardstick`).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hugepilot_stats::{Orders, Spread};
use serde_json::Value;

use super::arguments::Positional;
use super::pairs::{median, spread};
use super::workload::Workload;
use super::yardstick::Yardstick;
use crate::run::json;

/// Orders compared.
pub(super) const ORDERS: [&str; 4] = ["hawkeye", "emd", "exact", "heat"];
/// Attempts to promote all memory.
const ATTEMPTS: usize = 10;
/// Steps: freed bloat in percent.
const PERCENT: [u64; 4] = [20, 30, 40, 50];

/// Workloads.
const WORKLOADS: [(&str, &[&str]); 7] = [
    ("ra-left", &["random-access", "--bloat-side", "left"]),
    ("ra-right", &["random-access", "--bloat-side", "right"]),
    ("ra-hot", &HOT_EMPTY),
    ("ra-warm", &["random-access", "--bloat-side", "right", "--hot", "bloated"]),
    ("btree", &["btree"]),
    ("btree-grown", &["btree-grown"]),
    ("memcached", &["memcached"]),
];

/// Workload whose updates nearly all hit the half with more bloat, whose pages are scattered.
const HOT_EMPTY: [&str; 11] = [
    "random-access",
    "--bloat",
    "60,40",
    "--bloat-side",
    "left",
    "--hot",
    "bloated",
    "--skew",
    "97",
    "--layout",
    "scattered",
];

/// Values of one order at one step.
#[derive(Default)]
struct Point {
    slowdowns: Vec<f64>,
    retained: Vec<f64>,
}

/// `[RUNS=5] [SIZE=8GiB] [WORKLOAD…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let words = Positional::read(args, (5, 1), "8GiB")?;
    let (runs, size, workloads) = (words.count, words.size, words.chosen(&WORKLOADS, |one| one.0)?);
    println!(
        "slowdown by debloating (min–max), and huge pages retained; medians of {runs} runs, {size}"
    );
    println!(
        "{:<11} {:<8} {}",
        "workload",
        "order",
        PERCENT.map(|p| format!("{p:>25} %")).join("  ")
    );
    for (name, workload) in workloads {
        one(hugepilot, name, &[workload, &["--size", size][..]].concat(), runs)?;
    }
    Ok(())
}

fn one(hugepilot: &Path, name: &str, workload: &[&str], runs: usize) -> Result<()> {
    let mut yardstick = Yardstick::start(hugepilot)?;
    let mut huge = Workload::start_stopped(hugepilot, &[workload, &["--pages", "thp"]].concat())?;
    let mut base = Workload::start_stopped(hugepilot, &[workload, &["--pages", "base"]].concat())?;
    let mut points: BTreeMap<(usize, u64), Point> = BTreeMap::new();
    let mut floor = Vec::new();
    for orders in Orders::rotated(ORDERS.len()).take(runs) {
        for (position, order) in orders.into_iter().enumerate() {
            collapse(hugepilot, &huge.pid)?;
            Workload::age(std::slice::from_ref(&huge))?;
            let before = yardstick.measure(&mut huge)?;
            let each = &mut |percent, speed, retained| {
                let point = points.entry((order, percent)).or_default();
                point.slowdowns.push(before / speed);
                point.retained.push(retained);
            };
            sequence(hugepilot, &mut huge, &mut yardstick, ORDERS[order], each)?;
            if position == 0 {
                floor.push(before / yardstick.measure(&mut base)?);
            }
        }
    }
    for (index, order) in ORDERS.iter().enumerate() {
        let cell = |percent| {
            let point = &points[&(index, percent)];
            let slowdown = spread(Spread::of(&point.slowdowns), 2);
            let retained = 100.0 * median(point.retained.iter().copied());
            format!("{slowdown:>19} {retained:>5.1} %")
        };
        println!("{name:<11} {order:<8} {}", PERCENT.map(cell).join("  "));
    }
    println!("{name:<11} {:<8} {:>6.2}x   0.0 %", "4KiB", median(floor));
    Ok(())
}

/// Debloats step by step in one order. `each` gets the percentage, the speed and the share of huge
/// pages that remain.
fn sequence(
    hugepilot: &Path,
    workload: &mut Workload,
    yardstick: &mut Yardstick,
    order: &str,
    each: &mut dyn FnMut(u64, f64, f64),
) -> Result<()> {
    let (mut bloat, mut all_huge, mut freed) = (0, 0, 0);
    for percent in PERCENT {
        let amount = match bloat {
            0 => format!("{percent}%"),
            bloat => (bloat * percent / 100).saturating_sub(freed).to_string(),
        };
        // A stopped program gives no samples.
        workload.signal("CONT")?;
        let report = debloat(hugepilot, order, &amount, &[&workload.pid])?;
        workload.signal("STOP")?;
        if bloat == 0 {
            (bloat, all_huge) =
                (number(&report, "/bloat_bytes")?, number(&report, "/huge_pages_before")?);
        }
        freed += number(&report, "/freed_bytes")?;
        let speed = yardstick.measure(workload)?;
        #[allow(clippy::cast_precision_loss)]
        let retained = number(&report, "/huge_pages_after")? as f64 / all_huge.max(1) as f64;
        each(percent, speed, retained);
    }
    Ok(())
}

/// Promotes all memory of a process.
pub(super) fn collapse(hugepilot: &Path, pid: &str) -> Result<()> {
    // After debloating, memory is fragmented and partly in use: compaction takes some time.
    for _ in 0..ATTEMPTS {
        let mut command = Command::new(hugepilot);
        let done = command.args(["lab", "collapse", "-p", pid]).stdout(Stdio::null()).status()?;
        if done.success() {
            return Ok(());
        }
        // The page cache holds memory, too. Without root, this fails and the kernel compacts alone.
        for (file, what) in [("drop_caches", "1"), ("compact_memory", "1")] {
            let _ = fs::write(Path::new("/proc/sys/vm").join(file), what);
        }
        thread::sleep(Duration::from_secs(2));
    }
    bail!("hugepilot lab collapse -p {pid}: not all memory is on huge pages; free more memory")
}

/// Debloats `pids` and returns the report.
pub(super) fn debloat(hugepilot: &Path, order: &str, amount: &str, pids: &[&str]) -> Result<Value> {
    debloat_with(hugepilot, order, amount, pids, &[])
}

pub(super) fn debloat_with(
    hugepilot: &Path,
    order: &str,
    amount: &str,
    pids: &[&str],
    more: &[&str],
) -> Result<Value> {
    let mut command = Command::new(hugepilot);
    command.args(["debloat", "--json", "--calibration", "off", "--order", order]);
    command.args(["--amount", amount]).args(more);
    pids.iter().for_each(|pid| _ = command.args(["-p", pid]));
    json(&mut command)
}

pub(super) fn number(report: &Value, path: &str) -> Result<u64> {
    report.pointer(path).and_then(Value::as_u64).with_context(|| format!("{path} is a number"))
}
