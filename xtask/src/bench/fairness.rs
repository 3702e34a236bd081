//! Whether several programs become slower alike when they are de-bloated together: Figures 9 to 14 of EMD (ISMM'25).
//!
//! Each program is measured alone, the others standing still, so that they share a fate only through de-bloating. Fairness is
//! 1 − σ/μ of their slow-downs (section 5.3.1).

use std::path::Path;

use anyhow::{Context, Result, ensure};
use hugepilot_record::measures::fairness;

use super::debloat::{ORDERS, SETTLE, STRETCH, collapse, debloat, number};
use super::pairs::median;
use super::workload::Workload;

/// Percent of the bloat that is given back, in this order.
const PERCENT: [u64; 2] = [20, 40];

/// A name, and how many of each workload.
type Group = (&'static str, &'static [(usize, &'static [&'static str])]);

/// Who runs together.
const GROUPS: [Group; 4] = [
    ("4 ra-left", &[(4, &["random-access", "--bloat-side", "left"])]),
    ("4 ra-right", &[(4, &["random-access", "--bloat-side", "right"])]),
    ("4 btree", &[(4, &["btree"])]),
    ("btree+mc", &[(1, &["btree"]), (1, &["memcached"])]),
];

/// What was measured of one order at one percentage.
#[derive(Default, Clone)]
struct Point {
    means: Vec<f64>,
    fairness: Vec<f64>,
    /// The smallest share of huge pages that a program retained, and the largest.
    least: Vec<f64>,
    most: Vec<f64>,
}

/// `[RUNS=5] [SIZE=2GiB] [GROUP…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let runs: usize = args.first().map_or(Ok(5), |text| text.parse()).context("RUNS is a number")?;
    let size = args.get(1).unwrap_or(&"2GiB");
    let wanted = args.get(2..).unwrap_or_default();
    for name in wanted {
        ensure!(GROUPS.iter().any(|one| one.0 == *name), "no group {name:?}");
    }
    println!(
        "mean slow-down, fairness, huge pages retained (least and most of one program); medians of {runs} runs, {size} each"
    );
    println!("{:<11} {:<8} {}", "group", "order", PERCENT.map(|p| format!("{p:>31} %")).join(" "));
    for (name, programs) in GROUPS.iter().filter(|one| wanted.is_empty() || wanted.contains(&one.0)) {
        let programs: Vec<Vec<&str>> = programs
            .iter()
            .flat_map(|&(count, workload)| {
                vec![[workload, &["--size", size, "--pages", "thp"]].concat(); count]
            })
            .collect();
        group(hugepilot, name, &programs, runs)?;
    }
    Ok(())
}

fn group(hugepilot: &Path, name: &str, programs: &[Vec<&str>], runs: usize) -> Result<()> {
    let mut running = Vec::new();
    for program in programs {
        let workload = Workload::start(hugepilot, program)?;
        workload.signal("STOP")?;
        running.push(workload);
    }
    let mut points = vec![vec![Point::default(); PERCENT.len()]; ORDERS.len()];
    for run in 0..runs {
        for turn in 0..ORDERS.len() {
            let order = (run + turn) % ORDERS.len();
            sequence(hugepilot, &mut running, ORDERS[order], &mut points[order])?;
        }
    }
    for (order, points) in ORDERS.iter().zip(&points) {
        let cells = points.iter().map(|point| {
            let [mean, fairness, least, most] =
                [&point.means, &point.fairness, &point.least, &point.most].map(|values| median(values));
            format!("{mean:>8.3}x {fairness:>7.4} {:>5.1}–{:>5.1} %", 100.0 * least, 100.0 * most)
        });
        println!("{name:<11} {order:<8} {}", cells.collect::<Vec<_>>().join("   "));
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)]
fn sequence(hugepilot: &Path, running: &mut [Workload], order: &str, points: &mut [Point]) -> Result<()> {
    for workload in running.iter() {
        collapse(hugepilot, &workload.pid)?;
    }
    let rates = |running: &mut [Workload]| {
        running
            .iter_mut()
            .map(|workload| workload.rate_in_turn(SETTLE, STRETCH))
            .collect::<Result<Vec<f64>>>()
    };
    let before = rates(running)?;
    let (mut bloat, mut freed, mut all_huge) = (0, 0, Vec::new());
    for (percent, point) in PERCENT.iter().zip(points) {
        let amount = match bloat {
            0 => format!("{percent}%"),
            bloat => (bloat * percent / 100).saturating_sub(freed).to_string(),
        };
        running.iter().try_for_each(|workload| workload.signal("CONT"))?;
        let pids: Vec<&str> = running.iter().map(|workload| workload.pid.as_str()).collect();
        let report = debloat(hugepilot, order, &amount, &pids)?;
        running.iter().try_for_each(|workload| workload.signal("STOP"))?;
        let huge = |key: &str| {
            let of = |index| number(&report, &format!("/processes/{index}/{key}"));
            (0..running.len()).map(of).collect::<Result<Vec<u64>>>()
        };
        if bloat == 0 {
            (bloat, all_huge) = (number(&report, "/bloat_bytes")?, huge("huge_pages_before")?);
        }
        freed += number(&report, "/freed_bytes")?;
        let retained: Vec<f64> = huge("huge_pages_after")?
            .iter()
            .zip(&all_huge)
            .map(|(&now, &all)| now as f64 / all.max(1) as f64)
            .collect();
        let slowdowns: Vec<f64> =
            rates(running)?.iter().zip(&before).map(|(now, before)| before / now).collect();
        let fairness = fairness(&slowdowns).context("every program has a slow-down")?;
        point.means.push(fairness.mean_slowdown);
        point.fairness.push(fairness.fairness_ratio);
        point.least.extend(retained.iter().copied().reduce(f64::min));
        point.most.extend(retained.iter().copied().reduce(f64::max));
    }
    Ok(())
}
