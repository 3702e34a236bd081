//! Parents and children that share memory after fork and write to it step by step, while several
//! pairs are tuned and debloated. A pair uses as much memory as an untouched pair, and reads what
//! it wrote.

use std::fmt;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use hugepilot_testkit::Victim;
use hugepilot_units::Bytes;

use super::Run;
use super::tool::{Tool, count, target};
use crate::random::Random;

/// Pairs that are tuned and debloated at once; one more stays untouched.
const PAIRS: usize = 3;
/// Share by which the memory of a pair may differ from that of the untouched pair.
const TOLERANCE: f64 = 0.02;
/// Steps that write all memory again; afterwards, nothing is shared.
const STEPS: u64 = 16;
const LIMIT: Duration = Duration::from_secs(60);

pub(super) fn run(run: &Run<'_>) -> Result<String> {
    let (mut random, mut tally) = (Random::new(run.seed, 3), Tally::default());
    while run.goes_on() {
        // Kinds alternate, so that even a short test has all.
        let (sparse, huge) = (tally.rounds % 2 == 1, tally.rounds / 2 % 2 == 1);
        let kind = Kind { mib: random.pick(&[32, 64, 96]), huge, sparse };
        round(run, kind, &mut random, &mut tally).with_context(|| kind.to_string())?;
        tally.rounds += 1;
    }
    ensure!(run.is_interrupted() || tally.comparisons > 0, "nothing was compared");
    Ok(tally.to_string())
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    rounds: u64,
    pairs: u64,
    comparisons: u64,
    promotions: u64,
    splits: u64,
    checked: Bytes,
    /// Largest share by which a pair used more than the untouched pair, or less if no page could be
    /// freed.
    most: f64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, pairs, comparisons, promotions, splits, checked, most } = self;
        write!(
            f,
            "{rounds} rounds, {pairs} pairs tuned and debloated, {comparisons} comparisons of Pss \
             with an untouched pair, at most {:.2} % apart; {promotions} promotions, {splits} \
             splits; {checked} of contents correct",
            most * 100.0
        )
    }
}

/// Kind of pairs in one round.
#[derive(Clone, Copy, Debug)]
struct Kind {
    mib: u64,
    /// Whether memory is on huge pages before the fork.
    huge: bool,
    /// Whether three base pages of four are zero-filled.
    sparse: bool,
}

impl Kind {
    fn start(self) -> Result<Pair> {
        let mib = self.mib.to_string();
        let mut words = vec!["forkpair.c", mib.as_str(), "busy"];
        words.extend(self.huge.then_some("huge"));
        words.extend(self.sparse.then_some("sparse"));
        let victim = target(&words);
        let child = victim.ready(LIMIT).rest.get(1).and_then(|text| text.parse().ok());
        Ok(Pair { child: child.context("a pair names its child")?, victim })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = if self.huge { "huge" } else { "base" };
        let contents = if self.sparse { "three of four zero-filled" } else { "none zero-filled" };
        write!(f, "pairs of {} MiB on {pages} pages, {contents}", self.mib)
    }
}

/// A parent and its child.
struct Pair {
    victim: Victim,
    child: u32,
}

impl Pair {
    fn parent(&self) -> u32 {
        self.victim.pid()
    }

    /// Memory of both processes, in KiB.
    fn used(&self) -> Result<u64> {
        Ok(pss_kib(self.parent())? + pss_kib(self.child)?)
    }

    /// Writes another sixteenth of all pages.
    fn step(&mut self) -> Result<()> {
        self.victim.send("write");
        let line = self.victim.line(LIMIT).context("a pair ended")?;
        ensure!(line.starts_with("wrote "), "a pair said {line:?}");
        Ok(())
    }

    fn ends_well(mut self) -> Result<()> {
        self.victim.end_input();
        let line = self.victim.line(LIMIT).unwrap_or_default();
        let status = self.victim.wait(LIMIT);
        ensure!(
            line == "ok" && status.success(),
            "a pair does not read what it wrote: {line:?}, {status}"
        );
        Ok(())
    }
}

fn round(run: &Run<'_>, kind: Kind, random: &mut Random, tally: &mut Tally) -> Result<()> {
    let mut alone = kind.start()?;
    let mut pairs = (0..PAIRS).map(|_| kind.start()).collect::<Result<Vec<_>>>()?;
    // At the end nothing is shared: then the most pages can be promoted and split.
    let (some, most) = (1 + random.below(6), 8 + random.below(6));
    let mut done = 0;
    for wanted in [0, some, most, STEPS, STEPS, STEPS] {
        while done < wanted {
            pairs.iter_mut().chain([&mut alone]).try_for_each(Pair::step)?;
            done += 1;
        }
        act(run, &pairs, random, tally)?;
        compare(kind, done, &alone, &pairs, tally)?;
        run.progress(|| tally.to_string());
        if !run.goes_on() {
            break;
        }
    }
    for pair in pairs.into_iter().chain([alone]) {
        pair.ends_well()?;
        tally.checked += Bytes::mib(2 * kind.mib);
    }
    tally.pairs += PAIRS as u64;
    Ok(())
}

/// Tunes or debloats each pair, all at once.
fn act(run: &Run<'_>, pairs: &[Pair], random: &mut Random, tally: &mut Tally) -> Result<()> {
    let mut tools = Vec::new();
    for pair in pairs {
        let (parent, child) = (pair.parent(), pair.child);
        let tune = "tune --json --calibration off --max-collapse 2s --observe 300ms --for 1s \
            --budget 100% --rate 2000";
        let order = random.pick(&["exact", "emd", "hawkeye"]);
        // Only one run of hugepilot may change a process at a time.
        tools.push(if random.below(2) == 0 {
            let member = random.pick(&[parent, child]);
            Tool::start(run, &format!("{tune} -p {member}"), &[])?
        } else {
            let line = format!(
                "debloat --json --calibration off --observe 0s --amount 100% --order {order} \
                 -p {parent} -p {child}"
            );
            Tool::start(run, &line, &[])?
        });
    }
    for tool in tools {
        let reports = tool.wait(run, LIMIT)?.reports()?;
        tally.promotions += count(&reports, "verified_regions");
        tally.splits += count(&reports, "huge_pages_split");
    }
    Ok(())
}

fn compare(kind: Kind, done: u64, alone: &Pair, pairs: &[Pair], tally: &mut Tally) -> Result<()> {
    let wanted = alone.used()?;
    for pair in pairs {
        let used = pair.used()?;
        let apart = apart(used, wanted, kind.sparse);
        if apart > TOLERANCE {
            let [more, rollups] = [pair, alone].map(|pair| {
                [pair.parent(), pair.child].map(|pid| rollup(pid).unwrap_or_default()).join("\n")
            });
            bail!(
                "after {done} of {STEPS} steps a pair uses {used} KiB, \
                 the untouched pair {wanted} KiB\n{more}\n--- untouched\n{rollups}"
            );
        }
        tally.most = tally.most.max(apart);
        tally.comparisons += 1;
    }
    Ok(())
}

/// Share by which `used` differs from `wanted`. If zero-filled pages can be freed, only more
/// counts.
#[allow(clippy::cast_precision_loss)]
fn apart(used: u64, wanted: u64, may_be_less: bool) -> f64 {
    let difference = (used as f64 - wanted as f64) / wanted.max(1) as f64;
    if may_be_less { difference.max(0.0) } else { difference.abs() }
}

fn rollup(pid: u32) -> Result<String> {
    let file = format!("/proc/{pid}/smaps_rollup");
    fs::read_to_string(&file).context(file)
}

fn pss_kib(pid: u32) -> Result<u64> {
    pss_of(&rollup(pid)?).with_context(|| format!("process {pid} has no Pss"))
}

fn pss_of(rollup: &str) -> Option<u64> {
    rollup
        .lines()
        .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_memory_counts_if_no_page_can_be_freed() {
        assert!(apart(103, 100, true) > TOLERANCE);
        assert!(apart(97, 100, true) < TOLERANCE);
        assert!(apart(97, 100, false) > TOLERANCE);
        assert!(apart(101, 100, false) < TOLERANCE);
    }

    #[test]
    fn pss_is_read_from_a_rollup() {
        let text =
            "557 ---p 0 00:00 0    [rollup]\nRss:    900 kB\nPss:      640 kB\nPss_Dirty: 3 kB\n";
        assert_eq!(pss_of(text), Some(640));
        assert_eq!(pss_of("Rss: 900 kB\n"), None);
    }
}
