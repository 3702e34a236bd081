//! Numbers of a journal that hugepilot cannot have written, and that would overflow a decision.

use hugepilot_record::{BloatedPage, ProcessId, ProcessMemory, ProcessSnapshot, Window, is_unsafe};
use hugepilot_units::PageSizes;

use crate::Order;
use crate::daemon::{Choice, DaemonRound};
use crate::debloat::round::{SeenProcess, SplitRound};
use crate::round::{Goal, Header, Round};
use crate::tune::{Policy, ProcessState, TunePhase};

/// Most regions of all mappings with stalls of a process: 32 TiB of address space on x86-64.
const MAX_REGIONS: usize = 1 << 24;
/// Most processes of a round of splits.
const MAX_PROCESSES: usize = 1 << 16;
/// End of an address space of 57 bits.
const MAX_ADDRESS: u64 = 1 << 57;
/// Most samples of a window: counts of two windows are added.
const MAX_SAMPLES: u64 = u32::MAX as u64 / 2;
/// Most pairs of a trial.
const MAX_PAIRS: usize = 1 << 20;

/// Name of a process or mapping, in an error.
const NAME: &str = "a name";

/// Checks a header.
///
/// # Errors
/// The first value that cannot be.
pub(super) fn header(header: &Header) -> Result<(), String> {
    printable("its version", &header.version)?;
    let goal = match &header.goal {
        Goal::Tune(goal) => goal,
        Goal::Debloat(policy) => {
            let has_none = policy.order == Order::Emd { buckets: 0 };
            return if has_none { Err("0 buckets".to_owned()) } else { Ok(()) };
        }
        Goal::Daemon => return Ok(()),
    };
    if matches!(&goal.policy, Policy::Schedule(rules) if !rules.is_sound()) {
        return Err("an event of a mapping that the schedule does not have".to_owned());
    }
    let pairs = goal.trial.max_pairs;
    if pairs > MAX_PAIRS { Err(format!("{pairs} pairs of a trial")) } else { Ok(()) }
}

/// Checks a round.
///
/// # Errors
/// The first value that cannot be.
pub(super) fn round(round: &Round) -> Result<(), String> {
    if round.rows.iter().any(|row| row.seen.id != row.decision.process) {
        return Err("a decision about another process".to_owned());
    }
    round.rows.iter().try_for_each(|row| process(&row.seen))?;
    let after = round.rows.iter().filter_map(|row| row.after.as_ref());
    round.state.processes().chain(after).try_for_each(past)
}

/// Checks a decision of the daemon.
///
/// # Errors
/// The first value that cannot be.
pub(super) fn daemon(round: &DaemonRound) -> Result<(), String> {
    let ids: Vec<&ProcessId> = match &round.choice {
        Choice::Step { .. } => Vec::new(),
        Choice::Turns { rules, found, .. }
            if found.turns.iter().any(|turn| turn.rule >= rules.len()) =>
        {
            return Err("a turn by a rule that is not there".to_owned());
        }
        Choice::Turns { facts, found, .. } => {
            let turns = found.turns.iter().map(|turn| &turn.process);
            facts.iter().map(|process| &process.id).chain(turns).collect()
        }
    };
    ids.into_iter().try_for_each(|id| printable(NAME, &id.command))
}

/// Checks a text: hugepilot escapes them, because reports print them on terminals.
fn printable(what: &str, text: &str) -> Result<(), String> {
    if text.contains(is_unsafe) { Err(format!("{what} has control characters")) } else { Ok(()) }
}

/// Checks a round of splits.
///
/// # Errors
/// The first value that cannot be.
pub(super) fn splits(round: &SplitRound) -> Result<(), String> {
    if round.rows.len() > MAX_PROCESSES {
        return Err(format!("{} processes", round.rows.len()));
    }
    if round.plan.splits.iter().any(|split| split.process >= round.rows.len()) {
        return Err("a split of a process that is not there".to_owned());
    }
    round.rows.iter().try_for_each(|row| seen(&row.seen))
}

fn seen(process: &SeenProcess) -> Result<(), String> {
    let SeenProcess { census, weight, .. } = process;
    let sizes = census.sizes;
    printable(NAME, &census.process.command)?;
    if PageSizes::new(sizes.base, sizes.huge).is_none() {
        return Err(format!("page sizes {} and {}", sizes.base, sizes.huge));
    }
    if !weight.is_finite() || *weight <= 0.0 {
        return Err(format!("weight {weight}"));
    }
    let counts = [census.huge_pages, census.read_pages, census.unread_pages];
    let most = census.skipped.values().chain(&counts).max().copied().unwrap_or(0);
    if most > MAX_ADDRESS / sizes.huge.get() {
        return Err(format!("{most} huge pages of a process"));
    }
    let all = sizes.base_per_huge();
    let is_page = |page: &BloatedPage| {
        u64::from(page.zero_pages) <= all
            && u64::from(page.first_zero_page) < all
            && u64::from(page.table_lines) <= all
            && page.region.get() <= MAX_ADDRESS / sizes.huge.get()
    };
    match census.bloated.iter().find(|page| !is_page(page)) {
        Some(page) => {
            Err(format!("region {} with {} zero pages", page.region.get(), page.zero_pages))
        }
        None => Ok(()),
    }
}

fn process(process: &ProcessSnapshot) -> Result<(), String> {
    window(&process.window)?;
    let labels = process.memory.mappings.iter().map(|mapping| &mapping.name);
    labels.chain([&process.id.command]).try_for_each(|name| printable(NAME, name))?;
    let ProcessMemory { sizes, mappings, .. } = &process.memory;
    if PageSizes::new(sizes.base, sizes.huge).is_none() {
        return Err(format!("page sizes {} and {}", sizes.base, sizes.huge));
    }
    let pid = process.id.pid;
    if mappings.iter().any(|mapping| mapping.range.start > mapping.range.end) {
        return Err(format!("a mapping of process {pid} ends before its start"));
    }
    let stalls = process.window.all_stalls();
    let regions = mappings.iter().try_fold(0_usize, |sum, mapping| {
        let inside = sizes.span_inside(mapping.range);
        let has_stalls = inside.is_some_and(|inside| stalls.range(inside).next().is_some());
        let regions = if has_stalls { sizes.regions_inside(mapping.range).len() } else { 0 };
        sum.checked_add(regions).filter(|&sum| sum <= MAX_REGIONS)
    });
    regions.map(drop).ok_or_else(|| format!("process {pid} has more than {MAX_REGIONS} regions"))
}

fn past(state: &ProcessState) -> Result<(), String> {
    if state.touched.regions().is_none_or(|regions| regions > MAX_REGIONS as u64) {
        return Err(format!("more than {MAX_REGIONS} regions in the order of first touch"));
    }
    if !state.schedule.is_sound() {
        return Err("a count of events that a schedule cannot have".to_owned());
    }
    match &state.phase {
        TunePhase::Trial { before, pairs, .. } => {
            window(before).and_then(|()| counted(pairs.len()))
        }
        TunePhase::Spread { window: seen, pairs } => {
            window(seen).and_then(|()| counted(pairs.len()))
        }
        TunePhase::Check { pairs } => counted(pairs.len()),
        TunePhase::Watching { idle } if *idle > u32::MAX / 2 => Err(format!("{idle} idle rounds")),
        TunePhase::Watching { .. } | TunePhase::Observing | TunePhase::Ended => Ok(()),
    }
}

fn counted(pairs: usize) -> Result<(), String> {
    if pairs > MAX_PAIRS { Err(format!("{pairs} pairs of a trial")) } else { Ok(()) }
}

fn window(window: &Window) -> Result<(), String> {
    let stalls = window.stalls.values().chain(window.chases.values());
    let stalls: u64 = stalls.map(|&count| u64::from(count)).sum();
    let most = stalls.max(window.samples).max(window.unknown);
    if most > MAX_SAMPLES { Err(format!("{most} samples in a window")) } else { Ok(()) }
}
