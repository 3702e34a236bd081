//! Fairness of debloating several programs together: Figures 9 to 14 of EMD (ISMM'25).
//!
//! Each program is measured while the others are stopped, so that only debloating affects it.
//! Fairness is 1 − σ/μ of the slowdowns (section 5.3.1), each the median of all runs. The base of a
//! slowdown is the same program on huge pages in the same run. The order `none` measures huge pages
//! twice: its distance from 1 is the error of the measurement. The fairness of splits is 1 − σ/μ of
//! the shares of huge pages that the programs lost; it needs no clock.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use hugepilot_stats::{Orders, Ratios, Rounds, fairness};
use serde_json::Value;

use super::arguments::Positional;
use super::debloat::{ORDERS, collapse, debloat_with, number};
use super::workload::Workload;
use super::yardstick::Yardstick;

/// Levels: freed bloat of all programs together, in percent.
const LEVELS: [&str; 2] = ["20%", "40%"];

/// Name, and the count of each workload.
type Group = (&'static str, &'static [(usize, &'static [&'static str])]);

/// Groups of programs that run together.
const GROUPS: [Group; 5] = [
    ("4 ra-left", &[(4, &["random-access", "--bloat-side", "left"])]),
    ("4 ra-right", &[(4, &["random-access", "--bloat-side", "right"])]),
    ("4 btree", &[(4, &["btree"])]),
    ("4 mc", &[(4, &["memcached"])]),
    ("btree+mc", &[(1, &["btree"]), (1, &["memcached"])]),
];

/// Order and level of a debloating.
type Case<'a> = (&'a str, &'a str);

/// Measurements of each program in one case.
#[derive(Default, Clone)]
struct Programs {
    speeds: Rounds<f64>,
    split: Rounds<f64>,
}

/// Splits an order and its quantum, as in `emd:10`.
fn order_of(name: &str) -> (&str, Option<&str>) {
    name.split_once(':').map_or((name, None), |(order, quantum)| (order, Some(quantum)))
}

/// `[RUNS=8] [SIZE=2GiB] [GROUP|ORDER[:QUANTUM]|LEVEL…]`
pub(super) fn run(hugepilot: &Path, args: &[&str]) -> Result<()> {
    let Positional { count: runs, size, names: wanted } = Positional::read(args, (8, 1), "2GiB")?;
    let is_group = |name: &&&str| GROUPS.iter().any(|group| group.0 == **name);
    let (groups, rest): (Vec<&str>, Vec<&str>) = wanted.iter().partition(|name| is_group(name));
    let (levels, orders): (Vec<&str>, Vec<&str>) =
        rest.iter().partition(|name| LEVELS.contains(*name));
    for name in &orders {
        let is_order = ORDERS.contains(&order_of(name).0);
        ensure!(is_order, "{name:?} is neither a group nor an order nor a level");
    }
    let orders = if orders.is_empty() { ORDERS.to_vec() } else { orders };
    let levels = if levels.is_empty() { LEVELS.to_vec() } else { levels };
    let of_level = |level| orders.iter().map(move |&order| (order, level));
    let cases: Vec<Case<'_>> = levels.into_iter().flat_map(of_level).collect();
    println!("shares of the bloat of all programs freed; medians of {runs} runs, {size} each");
    println!(
        "{:<11} {:<8} freed  mean slowdown  fairness  of huge pages split  slowdowns",
        "group", "order"
    );
    for (name, programs) in GROUPS.iter().filter(|one| groups.is_empty() || groups.contains(&one.0))
    {
        let programs: Vec<Vec<&str>> = programs
            .iter()
            .flat_map(|&(count, workload)| {
                vec![[workload, &["--size", size, "--pages", "thp"]].concat(); count]
            })
            .collect();
        group(hugepilot, name, &programs, &cases, runs)?;
    }
    Ok(())
}

fn group(
    hugepilot: &Path,
    name: &str,
    programs: &[Vec<&str>],
    cases: &[Case<'_>],
    runs: usize,
) -> Result<()> {
    let mut yardstick = Yardstick::start(hugepilot)?;
    let start = |program: &Vec<&str>| Workload::start_stopped(hugepilot, program);
    let mut running = programs.iter().map(start).collect::<Result<Vec<_>>>()?;
    // The last two change nothing: the very last is the base of all slowdowns.
    let cases: Vec<Option<Case<'_>>> =
        cases.iter().copied().map(Some).chain([None, None]).collect();
    let mut found = vec![Programs::default(); cases.len()];
    // The programs are measured one after the other.
    let programs = Orders::rotated(running.len());
    for (order, programs) in Orders::rotated(cases.len()).zip(programs).take(runs) {
        for case in order {
            let Programs { speeds, split } = &mut found[case];
            split.push(debloat_all(hugepilot, &running, cases[case])?);
            let speed = |which: usize| yardstick.measure(&mut running[which]);
            speeds.measure(programs.clone(), speed)?;
        }
    }
    let untouched = found.pop().context("there are cases")?;
    for (case, found) in cases.iter().zip(&found) {
        let each = 0..running.len();
        let slowdowns: Vec<f64> =
            each.clone().map(|program| found.slowdown(program, &untouched)).collect();
        let split: Vec<f64> = each.map(|program| found.split.median(program)).collect();
        let of_time = fairness(&slowdowns).context("every program has a slowdown")?;
        // There is no fairness where a program lost no huge page.
        let of_split = fairness(&split)
            .map_or_else(|| "-".to_owned(), |fair| format!("{:.3}", fair.fairness_ratio));
        let (order, level) = case.unwrap_or(("none", "-"));
        println!(
            "{name:<11} {order:<8} {level:>5} {:>13.3}x {:>9.3} {of_split:>20}  {}",
            of_time.mean_slowdown,
            of_time.fairness_ratio,
            slowdowns.iter().map(|slowdown| format!("{slowdown:.3}")).collect::<Vec<_>>().join(" ")
        );
    }
    Ok(())
}

impl Programs {
    fn slowdown(&self, program: usize, untouched: &Self) -> f64 {
        let pairs = untouched.speeds.of(program).zip(self.speeds.of(program));
        Ratios::of(pairs.map(|(base, speed)| base / speed)).median().unwrap_or(f64::NAN)
    }
}

/// Promotes all memory, then debloats in the order and to the level of `case`, if any. Returns the
/// share of its huge pages that each program lost.
#[allow(clippy::cast_precision_loss)]
fn debloat_all(hugepilot: &Path, running: &[Workload], case: Option<Case<'_>>) -> Result<Vec<f64>> {
    running.iter().try_for_each(|workload| collapse(hugepilot, &workload.pid))?;
    let mut split = vec![0.0; running.len()];
    if let Some((order, level)) = case {
        running.iter().try_for_each(|workload| workload.signal("CONT"))?;
        let pids: Vec<&str> = running.iter().map(|workload| workload.pid.as_str()).collect();
        let (order, quantum) = order_of(order);
        let quantum = quantum.map(|quantum| ["--quantum", quantum]);
        let quantum = quantum.as_ref().map_or(&[][..], |quantum| quantum);
        let report = debloat_with(hugepilot, order, level, &pids, quantum)?;
        for (index, split) in split.iter_mut().enumerate() {
            let of = |key: &str| number(of_process(&report, pids[index])?, &format!("/{key}"));
            *split = of("huge_pages_split")? as f64 / of("huge_pages_before")?.max(1) as f64;
        }
    }
    Workload::age(running)?;
    Ok(split)
}

/// Part of a report about one process.
fn of_process<'a>(report: &'a Value, pid: &str) -> Result<&'a Value> {
    let processes = report["processes"].as_array().into_iter().flatten();
    let found = processes.into_iter().find(|process| process["pid"].as_u64() == pid.parse().ok());
    found.with_context(|| format!("process {pid} is in the report"))
}
