//! What de-bloating costs one program, by order: Figures 7 and 8 of EMD (ISMM'25), and Table 3 beside them.
//!
//! A program runs all the while. Its memory is put on huge pages again, its speed taken, then it is de-bloated to 20, 30, 40
//! and 50 % of its bloat in one order, and its speed taken after each; then the next order, in turns. A second copy on base
//! pages stands by: what it reaches is the floor.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::pairs::median;
use super::workload::Workload;

/// Orders compared.
pub(super) const ORDERS: [&str; 4] = ["hawkeye", "emd", "exact", "heat"];
/// Percent of the bloat that is given back, in this order.
const PERCENT: [u64; 4] = [20, 30, 40, 50];
pub(super) const SETTLE: Duration = Duration::from_millis(250);
pub(super) const STRETCH: Duration = Duration::from_millis(1000);

/// The workloads, and whether there is a copy on base pages to compare with.
const WORKLOADS: [(&str, &[&str], bool); 5] = [
    ("ra-left", &["random-access", "--bloat-side", "left"], true),
    ("ra-right", &["random-access", "--bloat-side", "right"], true),
    ("ra-hot", &["random-access", "--bloat-side", "right", "--hot", "bloated"], true),
    ("btree", &["btree"], true),
    ("memcached", &["memcached"], false),
];

/// One measured point.
#[derive(Default)]
struct Point {
    slowdowns: Vec<f64>,
    retained: Vec<f64>,
}

/// `[RUNS=5] [SIZE=8GiB] [WORKLOAD…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let runs: usize = args.first().map_or(Ok(5), |text| text.parse()).context("RUNS is a number")?;
    let size = args.get(1).unwrap_or(&"8GiB");
    let wanted = args.get(2..).unwrap_or_default();
    for name in wanted {
        ensure!(WORKLOADS.iter().any(|one| one.0 == *name), "no workload {name:?}");
    }
    println!("slow-down against no de-bloating, and huge pages retained; medians of {runs} runs, {size}");
    println!("{:<10} {:<8} {}", "workload", "order", PERCENT.map(|p| format!("{p:>15} %")).join(" "));
    for (name, workload, with_base) in
        WORKLOADS.iter().filter(|one| wanted.is_empty() || wanted.contains(&one.0))
    {
        one(hugepilot, name, &[workload, &["--size", size][..]].concat(), *with_base, runs)?;
    }
    Ok(())
}

fn one(hugepilot: &Path, name: &str, workload: &[&str], with_base: bool, runs: usize) -> Result<()> {
    let mut huge = Workload::start(hugepilot, &[workload, &["--pages", "thp"]].concat())?;
    huge.signal("STOP")?;
    let mut base = match with_base {
        true => Some(Workload::start(hugepilot, &[workload, &["--pages", "base"]].concat())?),
        false => None,
    };
    base.as_ref().map_or(Ok(()), |base| base.signal("STOP"))?;
    let mut points: BTreeMap<(usize, u64), Point> = BTreeMap::new();
    let mut floor = Vec::new();
    for run in 0..runs {
        for turn in 0..ORDERS.len() {
            // Each order is first, second … as often as the others.
            let order = (run + turn) % ORDERS.len();
            collapse(hugepilot, &huge.pid)?;
            let before = huge.rate_in_turn(SETTLE, STRETCH)?;
            sequence(hugepilot, &mut huge, ORDERS[order], before, &mut |percent, slowdown, retained| {
                let point = points.entry((order, percent)).or_default();
                point.slowdowns.push(slowdown);
                point.retained.push(retained);
            })?;
            if let Some(base) = &mut base {
                floor.push(before / base.rate_in_turn(SETTLE, STRETCH)?);
            }
        }
    }
    for (index, order) in ORDERS.iter().enumerate() {
        let cell = |percent| {
            let point = &points[&(index, percent)];
            format!("{:>8.3}x {:>5.1} %", median(&point.slowdowns), 100.0 * median(&point.retained))
        };
        println!("{name:<10} {order:<8} {}", PERCENT.map(cell).join("  "));
    }
    if with_base {
        println!("{name:<10} {:<8} {:>8.3}x   0.0 %", "4KiB", median(&floor));
    }
    Ok(())
}

/// De-bloats step by step in one order; `each` gets percent, slow-down and the share of huge pages that is left.
fn sequence(
    hugepilot: &Path,
    workload: &mut Workload,
    order: &str,
    before: f64,
    each: &mut dyn FnMut(u64, f64, f64),
) -> Result<()> {
    let (mut bloat, mut all_huge, mut freed) = (0, 0, 0);
    for percent in PERCENT {
        let amount = match bloat {
            0 => format!("{percent}%"),
            bloat => (bloat * percent / 100).saturating_sub(freed).to_string(),
        };
        // It must run to be sampled.
        workload.signal("CONT")?;
        let report = debloat(hugepilot, order, &amount, &[&workload.pid])?;
        workload.signal("STOP")?;
        if bloat == 0 {
            (bloat, all_huge) = (number(&report, "/bloat_bytes")?, number(&report, "/huge_pages_before")?);
        }
        freed += number(&report, "/freed_bytes")?;
        let rate = workload.rate_in_turn(SETTLE, STRETCH)?;
        #[allow(clippy::cast_precision_loss)]
        let retained = number(&report, "/huge_pages_after")? as f64 / all_huge.max(1) as f64;
        each(percent, before / rate, retained);
    }
    Ok(())
}

/// Puts all memory of a process on huge pages again.
pub(super) fn collapse(hugepilot: &Path, pid: &str) -> Result<()> {
    let done = Command::new(hugepilot).args(["lab", "collapse", "-p", pid]).stdout(Stdio::null()).status()?;
    ensure!(done.success(), "hugepilot lab collapse -p {pid}: {done}");
    Ok(())
}

/// The report of one de-bloating.
pub(super) fn debloat(hugepilot: &Path, order: &str, amount: &str, pids: &[&str]) -> Result<Value> {
    let mut command = Command::new(hugepilot);
    command.args(["debloat", "--json", "--calibration", "off", "--order", order, "--amount", amount]);
    pids.iter().for_each(|pid| _ = command.args(["-p", pid]));
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    // Nothing left to free is an answer, too.
    if !matches!(output.status.code(), Some(0 | 1)) {
        bail!("hugepilot debloat --order {order} --amount {amount}: {}", output.status);
    }
    serde_json::from_slice(&output.stdout).context("hugepilot debloat --json prints JSON")
}

pub(super) fn number(report: &Value, path: &str) -> Result<u64> {
    report.pointer(path).and_then(Value::as_u64).with_context(|| format!("{path} is a number"))
}
