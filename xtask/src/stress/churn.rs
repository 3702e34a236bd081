//! Pattern-checked churn: threads check and rewrite every page of memory whose mappings change
//! constantly, while runs of `tune` and `debloat` promote and split the same regions and the kernel
//! takes lazily freed pages.

use std::fmt;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hugepilot_testkit::Victim;
use hugepilot_testkit::cgroup::Cgroup;
use hugepilot_units::Bytes;

use super::Run;
use super::settings::vmstat;
use super::tool::{Tool, count, target_in};
use crate::random::Random;
use crate::status::thp_always;

const MEMORY_MIB: &str = "512";
const THREADS: &str = "3";
/// Limit far above the time of one run of hugepilot on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Limit of the cgroup, above all memory of the program and its children.
const LIMIT_OF_GROUP: Bytes = Bytes::gib(2);
/// Interval in which the kernel takes lazily freed pages.
const RECLAIM_EVERY: Duration = Duration::from_millis(500);
/// Promotions or splits per second below which a test proves nothing.
const LEAST_PER_SECOND: f64 = 2.0;

pub(super) fn run(run: &Run<'_>) -> Result<String> {
    if let Some(cause) = thp_always() {
        bail!("there would be little to promote: {cause}");
    }
    let group = Cgroup::new(LIMIT_OF_GROUP);
    let words = ["storm.c", MEMORY_MIB, THREADS, &run.seed.to_string()];
    let mut victim = target_in(&group, &words);
    victim.ready(LIMIT);
    let pid = victim.pid();
    let before = KernelCounts::read()?;
    let (watched, acted) = thread::scope(|scope| {
        let actor = scope.spawn(|| until_it_fails(run, || act(run, pid)));
        scope.spawn(|| {
            while run.goes_on() {
                group.reclaim();
                thread::sleep(RECLAIM_EVERY);
            }
        });
        let watched = until_it_fails(run, || watch(run, &mut victim));
        (watched, actor.join().expect("it does not panic"))
    });
    // The last command has ended: it needs its target.
    let checked = watched.and_then(|checks| finish(&mut victim, checks));
    // Damage first: if the program ended by it, the commands failed for that.
    let checked = checked.with_context(|| format!("tune and debloat: {acted:?}"))?;
    ensure!(checked.taken > 0 || run.is_interrupted(), "the kernel took no lazily freed page");
    let [tuned, debloated] = acted?;
    let kernel = KernelCounts::read()?;
    let collapses = kernel.collapses - before.collapses;
    let splits = kernel.splits - before.splits;
    tuned.is_no_more_than(collapses, "promotions")?;
    debloated.is_no_more_than(splits, "splits")?;
    if !run.is_interrupted() {
        tuned.happened("promotions", run)?;
        debloated.happened("splits", run)?;
    }
    Ok(format!(
        "{checked}, 0 mismatches; {} promotions verified in {} runs of tune, {} splits in {} \
         runs of debloat (the kernel counted {collapses} and {splits})",
        tuned.pages, tuned.runs, debloated.pages, debloated.runs
    ))
}

fn until_it_fails<T>(run: &Run<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
    work().inspect_err(|_| run.fail())
}

/// Counts of the runs of one command.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    runs: u64,
    pages: u64,
}

impl Tally {
    fn is_no_more_than(self, counted: u64, what: &str) -> Result<()> {
        ensure!(
            self.pages <= counted,
            "{} {what} were verified, but the kernel counted {counted}",
            self.pages
        );
        Ok(())
    }

    #[allow(clippy::cast_precision_loss)]
    fn happened(self, what: &str, run: &Run<'_>) -> Result<()> {
        let per_second = self.pages as f64 / run.begun.elapsed().as_secs_f64();
        ensure!(
            per_second >= LEAST_PER_SECOND,
            "only {} {what} in {} runs: too few to prove anything",
            self.pages,
            self.runs
        );
        Ok(())
    }
}

/// Counts of the kernel for the whole machine: at least those of hugepilot.
struct KernelCounts {
    collapses: u64,
    splits: u64,
}

impl KernelCounts {
    fn read() -> Result<Self> {
        Ok(Self { collapses: vmstat("thp_collapse_alloc")?, splits: vmstat("thp_split_page")? })
    }
}

/// Runs `tune` and `debloat` alternately: only one run of hugepilot may change a process at a time.
fn act(run: &Run<'_>, pid: u32) -> Result<[Tally; 2]> {
    let mut random = Random::new(run.seed, 1);
    let [mut tuned, mut debloated] = [Tally::default(); 2];
    while run.goes_on() {
        tune(run, pid, &mut random, &mut tuned)?;
        debloat(run, pid, &mut random, &mut debloated)?;
    }
    Ok([tuned, debloated])
}

fn tune(run: &Run<'_>, pid: u32, random: &mut Random, tally: &mut Tally) -> Result<()> {
    let observe = random.pick(&["200ms", "500ms", "1s"]);
    let rate = random.pick(&[2000, 4000, 8000]);
    let total = random.pick(&["1s", "1s", "5s"]);
    let budget = random.pick(&["50%", "100%", "100%"]);
    let policy = random.pick(&["heat", "heat", "all", "all --max-added 100%"]);
    let line = format!(
        "tune -p {pid} --json --calibration off --max-collapse 2s --observe {observe} \
         --rate {rate} --for {total} --budget {budget} --policy {policy}"
    );
    let reports = Tool::start(run, &line, &[])?.wait(run, LIMIT)?.reports()?;
    tally.runs += 1;
    tally.pages += count(&reports, "verified_regions");
    Ok(())
}

fn debloat(run: &Run<'_>, pid: u32, random: &mut Random, tally: &mut Tally) -> Result<()> {
    let order = random.pick(&["exact", "exact", "emd", "hawkeye", "heat"]);
    let observe = if order == "heat" { "200ms" } else { "0s" };
    let amount = random.pick(&[20, 50, 80, 100]);
    let line = format!(
        "debloat -p {pid} --json --calibration off --order {order} --observe {observe} \
         --amount {amount}%"
    );
    let reports = Tool::start(run, &line, &[])?.wait(run, LIMIT)?.reports()?;
    tally.runs += 1;
    tally.pages += count(&reports, "huge_pages_split");
    Ok(())
}

/// Counts of the program's checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Checks {
    words: u64,
    pages: u64,
    changes: u64,
    children: u64,
    /// Lazily freed pages that the kernel took.
    taken: u64,
}

impl Checks {
    /// Reads `did WORDS PAGES CHANGES CHILDREN TAKEN`, or the same with `ok`.
    fn read(line: &str) -> Option<Self> {
        let numbers = line.strip_prefix("did ").or(line.strip_prefix("ok "))?;
        let numbers: Vec<u64> = numbers.split(' ').map_while(|word| word.parse().ok()).collect();
        let [words, pages, changes, children, taken] = numbers[..] else { return None };
        Some(Self { words, pages, changes, children, taken })
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { words, pages, changes, children, taken } = self;
        write!(
            f,
            "{pages} page checks, {words} word checks, {changes} changes of mappings, \
             {children} children, {taken} lazily freed pages taken by the kernel"
        )
    }
}

/// Follows the program until the time is over.
fn watch(run: &Run<'_>, victim: &mut Victim) -> Result<Checks> {
    let mut checks = Checks::default();
    while run.goes_on() {
        while let Some(line) = victim.line_now() {
            take(&line, &mut checks)?;
        }
        if let Some(status) = victim.ended() {
            while let Some(line) = victim.line(LIMIT) {
                take(&line, &mut checks)?;
            }
            bail!("the program that was tuned ended: {status}");
        }
        run.progress(|| checks.to_string());
        thread::sleep(Duration::from_millis(100));
    }
    Ok(checks)
}

/// Makes the program check every page once more and end.
fn finish(victim: &mut Victim, mut checks: Checks) -> Result<Checks> {
    victim.end_input();
    let until = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = victim.ended() {
            break status;
        }
        ensure!(Instant::now() < until, "the program that was tuned does not end");
        thread::sleep(Duration::from_millis(10));
    };
    while let Some(line) = victim.line(LIMIT) {
        take(&line, &mut checks)?;
    }
    ensure!(status.success(), "the program that was tuned ended: {status}");
    Ok(checks)
}

fn take(line: &str, checks: &mut Checks) -> Result<()> {
    *checks =
        Checks::read(line).with_context(|| format!("the program that was tuned said: {line}"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_counted_every_verified_promotion() {
        let tally = Tally { runs: 3, pages: 10 };
        assert!(tally.is_no_more_than(10, "promotions").is_ok());
        let error = tally.is_no_more_than(9, "promotions").unwrap_err().to_string();
        assert_eq!(error, "10 promotions were verified, but the kernel counted 9");
    }

    #[test]
    fn counts_of_the_program_are_read() {
        let checks = Checks { words: 1, pages: 2, changes: 3, children: 4, taken: 5 };
        assert_eq!(Checks::read("did 1 2 3 4 5"), Some(checks));
        assert_eq!(Checks::read("ok 1 2 3 4 5"), Some(checks));
        for line in ["damaged 0x1000 want 1 got 2", "did 1 2 3 4", "", "ok"] {
            assert_eq!(Checks::read(line), None, "{line}");
        }
        let damage =
            take("damaged 0x1000 want 1 got 2", &mut Checks::default()).unwrap_err().to_string();
        assert!(damage.contains("0x1000"), "{damage}");
    }
}
