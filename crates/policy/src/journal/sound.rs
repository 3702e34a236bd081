//! Numbers of a journal that hugepilot cannot have written, and that would overflow a decision.

use hugepilot_record::{ProcessMemory, ProcessSnapshot, Window};
use hugepilot_units::PageSizes;

use crate::round::Round;
use crate::tune::{Phase, ProcessState, TuneGoal};

/// Most regions of all mappings of a process: 32 TiB of address space on x86-64.
const MAX_REGIONS: usize = 1 << 24;
/// Most samples of a window: counts of two windows are added.
const MAX_SAMPLES: u64 = u32::MAX as u64 / 2;
/// Most pairs of a trial.
const MAX_PAIRS: usize = 1 << 20;

/// Checks a goal.
///
/// # Errors
/// The first value that cannot be.
pub(super) fn goal(goal: &TuneGoal) -> Result<(), String> {
    let pairs = goal.trial.max_pairs;
    if pairs > MAX_PAIRS { Err(format!("{pairs} pairs of a trial")) } else { Ok(()) }
}

/// Checks a round.
///
/// # Errors
/// The first value that cannot be.
pub(super) fn round(round: &Round) -> Result<(), String> {
    let seen: Vec<_> = round.snapshot.processes.iter().map(|process| &process.id).collect();
    let decided: Vec<_> = round.decisions.iter().map(|decision| &decision.process).collect();
    if seen != decided || seen.len() != round.outcomes.len() {
        return Err("its processes, decisions and outcomes do not match".to_owned());
    }
    round.snapshot.processes.iter().try_for_each(process)?;
    round.state.processes().try_for_each(past)
}

fn process(process: &ProcessSnapshot) -> Result<(), String> {
    window(&process.window)?;
    let labels = process.memory.mappings.iter().map(|mapping| &mapping.name);
    // hugepilot escapes them, because reports print them on terminals.
    if labels.chain([&process.id.command]).any(|name| name.contains(char::is_control)) {
        return Err("a name has control characters".to_owned());
    }
    let ProcessMemory { sizes, mappings, .. } = &process.memory;
    if PageSizes::new(sizes.base, sizes.huge).is_none() {
        return Err(format!("page sizes {} and {}", sizes.base, sizes.huge));
    }
    let regions = mappings.iter().try_fold(0_usize, |sum, mapping| {
        let is_range = mapping.range.start <= mapping.range.end;
        let sum = sum.checked_add(sizes.regions_inside(mapping.range).len())?;
        (is_range && sum <= MAX_REGIONS).then_some(sum)
    });
    let pid = process.id.pid;
    regions.map(drop).ok_or_else(|| format!("process {pid} has more than {MAX_REGIONS} regions"))
}

fn past(state: &ProcessState) -> Result<(), String> {
    if state.touched.regions().is_none_or(|regions| regions > MAX_REGIONS as u64) {
        return Err(format!("more than {MAX_REGIONS} regions in the order of first touch"));
    }
    match &state.phase {
        Phase::Trial { before, pairs, .. } => window(before).and_then(|()| counted(pairs.len())),
        Phase::Spread { window: seen, pairs } => window(seen).and_then(|()| counted(pairs.len())),
        Phase::Check { pairs } => counted(pairs.len()),
        Phase::Watching { idle } if *idle > u32::MAX / 2 => Err(format!("{idle} idle rounds")),
        Phase::Watching { .. } | Phase::Observing | Phase::Ended => Ok(()),
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
